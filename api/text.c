#include "api/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define TEXT_CAPACITY_FIRST 512

/** Make room for @p more bytes and a terminator. */
static bool text_reserve(struct api_text *text, size_t more)
{
    size_t needed;
    if (text->failed) {
        return false;
    }
    if (__builtin_add_overflow(text->length, more + 1, &needed)) {
        text->failed = true;
        return false;
    }
    if (needed <= text->capacity) {
        return true;
    }
    size_t capacity = text->capacity ? text->capacity * 2 : TEXT_CAPACITY_FIRST;
    if (capacity < needed) {
        capacity = needed;
    }
    char *data = realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void api_text_done(struct api_text *text)
{
    free(text->data);
    *text = (struct api_text){0};
}

char *api_text_take(struct api_text *text, size_t *ret_length)
{
    if (text->failed || !text_reserve(text, 0)) {
        api_text_done(text);
        return NULL;
    }
    char *data = text->data;
    data[text->length] = '\0';
    *ret_length = text->length;
    *text = (struct api_text){0};
    return data;
}

void api_text_append(struct api_text *text, const char *data, size_t length)
{
    if (!text_reserve(text, length)) {
        return;
    }
    memcpy(text->data + text->length, data, length);
    text->length += length;
    text->data[text->length] = '\0';
}

static void text_append_text(struct api_text *text, const char *data)
{
    api_text_append(text, data, strlen(data));
}

static void __attribute__((format(printf, 2, 0)))
text_format_list(struct api_text *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    char small[256];
    int length = vsnprintf(small, sizeof(small), format, args);
    if (length < 0) {
        text->failed = true;
    } else if ((size_t)length < sizeof(small)) {
        api_text_append(text, small, (size_t)length);
    } else if (text_reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void api_text_format(struct api_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_format_list(text, format, args);
    va_end(args);
}

/** Bytes of the UTF-8 sequence at @p text, or 0 when there is none (RFC 3629, shortest form only).
 */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char first_low, first_high, second_low, second_high;
        unsigned char length;
    } forms[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (text[0] < forms[i].first_low || text[0] > forms[i].first_high) {
            continue;
        }
        if (text[1] < forms[i].second_low || text[1] > forms[i].second_high) {
            return 0;
        }
        for (size_t k = 2; k < forms[i].length; k++) {
            if ((text[k] & 0xc0) != 0x80) {
                return 0;
            }
        }
        return forms[i].length;
    }
    return 0;
}

bool api_text_is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        size_t length = *at < 0x80 ? 1 : utf8_length(at);
        if (!length) {
            return false;
        }
        at += length;
    }
    return true;
}

/** One byte or sequence that cannot stand as it is. @return bytes of it that were used. */
static size_t json_escape_one(struct api_text *text, const unsigned char *at)
{
    static const char shorts[] = {['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f',
                                  ['\n'] = 'n', ['\r'] = 'r',  ['\t'] = 't'};
    if (*at >= 0x80) {
        size_t length = utf8_length(at);
        if (length) {
            api_text_append(text, (const char *)at, length);
            return length;
        }
        text_append_text(text, "\xef\xbf\xbd");
        return 1;
    }
    if (*at < sizeof(shorts) && shorts[*at]) {
        char pair[2] = {'\\', shorts[*at]};
        api_text_append(text, pair, sizeof(pair));
    } else {
        api_text_format(text, "\\u%04x", *at);
    }
    return 1;
}

static void json_quote(struct api_text *text, const char *value)
{
    const unsigned char *at = (const unsigned char *)value;
    api_text_append(text, "\"", 1);
    while (*at) {
        size_t plain = 0;
        while (at[plain] >= 0x20 && at[plain] < 0x7f && at[plain] != '"' && at[plain] != '\\') {
            plain++;
        }
        api_text_append(text, (const char *)at, plain);
        at += plain;
        if (*at) {
            at += json_escape_one(text, at);
        }
    }
    api_text_append(text, "\"", 1);
}

/** What stands before a value: a comma where one is missing, and the key. */
static void json_lead(struct api_text *text, const char *key)
{
    if (text->length && !strchr("{[:,", text->data[text->length - 1])) {
        api_text_append(text, ",", 1);
    }
    if (key) {
        json_quote(text, key);
        api_text_append(text, ":", 1);
    }
}

void api_json_begin(struct api_text *text, const char *key)
{
    json_lead(text, key);
    api_text_append(text, "{", 1);
}

void api_json_end(struct api_text *text)
{
    api_text_append(text, "}", 1);
}

void api_json_begin_array(struct api_text *text, const char *key)
{
    json_lead(text, key);
    api_text_append(text, "[", 1);
}

void api_json_end_array(struct api_text *text)
{
    api_text_append(text, "]", 1);
}

void api_json_string(struct api_text *text, const char *key, const char *value)
{
    if (!value) {
        api_json_null(text, key);
        return;
    }
    json_lead(text, key);
    json_quote(text, value);
}

void api_json_uint(struct api_text *text, const char *key, uint64_t value)
{
    json_lead(text, key);
    api_text_format(text, "%" PRIu64, value);
}

void api_json_int(struct api_text *text, const char *key, int64_t value)
{
    json_lead(text, key);
    api_text_format(text, "%" PRId64, value);
}

void api_json_bool(struct api_text *text, const char *key, bool value)
{
    json_lead(text, key);
    text_append_text(text, value ? "true" : "false");
}

void api_json_null(struct api_text *text, const char *key)
{
    json_lead(text, key);
    text_append_text(text, "null");
}

void api_json_double(struct api_text *text, const char *key, double value)
{
    if (!isfinite(value)) {
        api_json_string(text, key, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
        return;
    }
    char number[40] = "";
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(number, sizeof(number), "%.*g", digits, value);
        if (strtod(number, NULL) == value) {
            break;
        }
    }
    json_lead(text, key);
    /* "-0" is an integer for many parsers, and loses its sign. */
    text_append_text(text, value == 0 && signbit(value) ? "-0.0" : number);
}

void api_json_time(struct api_text *text, const char *key, uint64_t realtime_ns)
{
    char time[32];
    api_json_string(text, key, realtime_ns ? st_clock_format(realtime_ns, time) : NULL);
}

void api_json_raw(struct api_text *text, const char *key, const char *json)
{
    json_lead(text, key);
    text_append_text(text, json);
}
