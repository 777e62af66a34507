#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/** PIPE_BUF of Linux: a longer write to a pipe may be torn by another writer. */
#define LOG_LINE_BYTES 4096
/** Kept free so that a line that is cut still ends as JSON: ..." and } and the newline. */
#define LOG_TAIL_BYTES 6

static const char *const level_names[] = {
#define X(name, text) [ST_LOG_##name] = text,
    ST_LOG_LEVELS(X)
#undef X
};

static atomic_uint log_lowest_level = ST_LOG_INFO;

/** A line being built. Once a piece does not fit, the rest of the line is dropped. */
struct log_line {
    char text[LOG_LINE_BYTES];
    size_t length;
    bool full;
};

void st_log_set_level(enum st_log_level level)
{
    atomic_store_explicit(&log_lowest_level, level, memory_order_relaxed);
}

enum st_log_level st_log_level(void)
{
    return (enum st_log_level)atomic_load_explicit(&log_lowest_level, memory_order_relaxed);
}

bool st_log_level_parse(const char *text, enum st_log_level *ret_level)
{
    for (unsigned level = 0; level < ST_LOG_LEVEL_COUNT; level++) {
        if (strcmp(level_names[level], text) == 0) {
            *ret_level = (enum st_log_level)level;
            return true;
        }
    }
    return false;
}

const char *st_log_level_name(enum st_log_level level)
{
    return level_names[level];
}

static bool line_add(struct log_line *line, const char *bytes, size_t count)
{
    if (line->full || line->length + count > LOG_LINE_BYTES - LOG_TAIL_BYTES) {
        line->full = true;
        return false;
    }
    memcpy(line->text + line->length, bytes, count);
    line->length += count;
    return true;
}

/** Bytes of the well-formed UTF-8 sequence at @p text (RFC 3629), or 0 when it is none. */
static size_t utf8_sequence(const unsigned char *text)
{
    static const struct {
        unsigned char first_low, first_high;   /**< Range of the first byte. */
        unsigned char second_low, second_high; /**< Range of the second; excludes overlong forms. */
        unsigned char bytes;
    } forms[] = {
        {0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (text[0] < forms[i].first_low || text[0] > forms[i].first_high) {
            continue;
        }
        if (text[1] < forms[i].second_low || text[1] > forms[i].second_high) {
            return 0;
        }
        for (size_t j = 2; j < forms[i].bytes; j++) {
            if ((text[j] & 0xc0) != 0x80) {
                return 0;
            }
        }
        return forms[i].bytes;
    }
    return 0;
}

/** Write what stands for the character at @p text. @return bytes read. */
static size_t line_add_character(struct log_line *line, const unsigned char *text)
{
    char escape[8];
    size_t count = utf8_sequence(text);
    if (count == 0) {
        line_add(line, "\\ufffd", 6);
        return 1;
    }
    if (*text == '"' || *text == '\\') {
        snprintf(escape, sizeof(escape), "\\%c", *text);
    } else if (*text < 0x20 || *text == 0x7f) {
        snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)*text);
    } else {
        line_add(line, (const char *)text, count);
        return count;
    }
    line_add(line, escape, strlen(escape));
    return 1;
}

static void line_add_text(struct log_line *line, const char *key, const char *text)
{
    size_t before = line->length;
    line_add(line, line->length == 1 ? "\"" : ",\"", line->length == 1 ? 1 : 2);
    line_add(line, key, strlen(key));
    if (!line_add(line, "\":\"", 3)) {
        line->length = before; /* no half of a key */
        return;
    }
    const unsigned char *at = (const unsigned char *)text;
    while (*at && !line->full) {
        at += line_add_character(line, at);
    }
    /* The tail's bytes are there for this. */
    const char *end = line->full ? "...\"" : "\"";
    memcpy(line->text + line->length, end, strlen(end));
    line->length += strlen(end);
}

static void line_add_number(struct log_line *line, const char *key, int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRId64, number);
    size_t before = line->length;
    line_add(line, ",\"", 2);
    line_add(line, key, strlen(key));
    line_add(line, "\":", 2);
    if (!line_add(line, digits, strlen(digits))) {
        line->length = before;
    }
}

static void line_write(struct log_line *line)
{
    line->text[line->length++] = '}';
    line->text[line->length++] = '\n';
    ssize_t written;
    do {
        written = write(STDERR_FILENO, line->text, line->length);
    } while (written < 0 && errno == EINTR);
}

void st_log_write(enum st_log_level level, const char *message, const struct st_log_field *fields)
{
    if (level < st_log_level()) {
        return;
    }
    int saved_errno = errno; /* callers log between a failure and its report */
    char now[32];
    struct log_line line = {.text = "{", .length = 1};
    line_add_text(&line, "time", st_clock_format(st_clock_realtime_ns(), now));
    line_add_text(&line, "level", st_log_level_name(level));
    line_add_text(&line, "message", message);
    for (const struct st_log_field *field = fields; field && field->key && !line.full; field++) {
        if (field->text) {
            line_add_text(&line, field->key, field->text);
        } else {
            line_add_number(&line, field->key, field->number);
        }
    }
    line_write(&line);
    errno = saved_errno;
}

void st_log_error(enum st_log_level level, const char *what, const struct st_error *err)
{
    struct st_log_field fields[5 + ST_ERROR_DETAILS_MAX] = {
        ST_LOG_TEXT("status", st_status_info(err->status)->name),
        ST_LOG_TEXT("reason", st_reason_info(err->reason)->name),
        ST_LOG_TEXT("error", err->message),
    };
    size_t count = 3;
    if (err->field[0]) {
        fields[count++] = ST_LOG_TEXT("field", err->field);
    }
    for (uint32_t i = 0; i < err->detail_count; i++) {
        fields[count++] = ST_LOG_TEXT(err->details[i].key, err->details[i].value);
    }
    st_log_write(level, what, fields);
}
