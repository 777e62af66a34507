#include "api/http/json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A walk over JSON text that knows only strings and brackets, so that it also works on wrong text.
 */
struct scan {
    const char *text;
    size_t length;
    size_t at;
    uint32_t depth;
    /** Of each open bracket: the place of the key last seen in it, and commas seen (of an array).
     */
    struct scan_level {
        bool is_array;
        size_t key_at, key_length;
        size_t index;
    } levels[ST_HTTP_JSON_DEPTH_MAX + 1];
};

/** Skip the string that begins at the quote; its inside is [*ret_begin, +*ret_length). */
static void scan_string(struct scan *scan, size_t *ret_begin, size_t *ret_length)
{
    size_t at = ++scan->at;
    while (at < scan->length && scan->text[at] != '"') {
        at += scan->text[at] == '\\' && at + 1 < scan->length ? 2 : 1;
    }
    *ret_begin = scan->at;
    *ret_length = at - scan->at;
    scan->at = at + 1;
}

/** A string followed by a colon is a key. */
static void scan_key(struct scan *scan)
{
    size_t begin, length;
    scan_string(scan, &begin, &length);
    size_t at = scan->at;
    while (at < scan->length && strchr(" \t\r\n", scan->text[at])) {
        at++;
    }
    struct scan_level *level = &scan->levels[scan->depth];
    if (at < scan->length && scan->text[at] == ':' && !level->is_array) {
        level->key_at = begin;
        level->key_length = length;
    }
}

/** Take one byte or string. @return false when the nesting is too deep. */
static bool scan_step(struct scan *scan)
{
    char byte = scan->text[scan->at];
    if (byte == '"') {
        scan_key(scan);
        return true;
    }
    scan->at++;
    if (byte == '{' || byte == '[') {
        if (scan->depth == ST_HTTP_JSON_DEPTH_MAX) {
            return false;
        }
        scan->levels[++scan->depth] = (struct scan_level){.is_array = byte == '['};
    } else if ((byte == '}' || byte == ']') && scan->depth) {
        scan->depth--;
    } else if (byte == ',') {
        scan->levels[scan->depth].index++;
        scan->levels[scan->depth].key_length = 0;
    }
    return true;
}

static const char *scan_path(const struct scan *scan, char path[static ST_ERROR_FIELD_MAX])
{
    size_t length = 0;
    path[0] = '\0';
    for (uint32_t i = 1; i <= scan->depth && length < ST_ERROR_FIELD_MAX; i++) {
        const struct scan_level *level = &scan->levels[i];
        size_t room = ST_ERROR_FIELD_MAX - length;
        int added = 0;
        if (level->is_array) {
            added = snprintf(path + length, room, "[%zu]", level->index);
        } else if (level->key_length) {
            char key[64];
            char quoted[80];
            snprintf(key, sizeof(key), "%.*s",
                     (int)(level->key_length < 63 ? level->key_length : 63),
                     scan->text + level->key_at);
            added = snprintf(path + length, room, "%s%s", length ? "." : "",
                             st_error_quote(key, quoted));
        }
        length += added > 0 ? (size_t)added : 0;
    }
    return path;
}

const char *http_json_path(const char *text, size_t length, size_t position,
                           char path[static ST_ERROR_FIELD_MAX])
{
    struct scan scan = {.text = text, .length = length};
    while (scan.at < length && scan.at < position && scan_step(&scan)) {
    }
    return scan_path(&scan, path);
}

static enum st_status json_check_depth(const char *text, size_t length, struct st_error *err)
{
    struct scan scan = {.text = text, .length = length};
    while (scan.at < scan.length) {
        if (!scan_step(&scan)) {
            char path[ST_ERROR_FIELD_MAX];
            return st_fail(err, ST_REASON_INVALID_JSON, scan_path(&scan, path),
                           "nested deeper than %d levels", ST_HTTP_JSON_DEPTH_MAX);
        }
    }
    return ST_OK;
}

/** Whether the '-' at @p at begins a number that is "-0" and no more; not an exponent as in 1e-0.
 */
static bool zero_is_at(const char *text, size_t length, size_t at)
{
    bool ends = at + 2 >= length || !strchr("0123456789.eE", text[at + 2]);
    return at + 1 < length && text[at + 1] == '0' && ends &&
           (at == 0 || !strchr("eE", text[at - 1]));
}

/** Behind the next such number outside of strings, from @p at on; 0: none. No NUL is in the text.
 */
static size_t zero_find(const char *text, size_t length, size_t at)
{
    for (bool in_string = false; at < length; at++) {
        if (in_string && text[at] == '\\') {
            at++;
        } else if (text[at] == '"') {
            in_string = !in_string;
        } else if (!in_string && text[at] == '-' && zero_is_at(text, length, at)) {
            return at + 2;
        }
    }
    return 0;
}

/**
 * jansson reads -0 as an integer, which has no sign then. So it is given -0.0 instead.
 * @param ret_text malloc'd, [*ret_length]; NULL: there is nothing to replace.
 */
static enum st_status json_keep_zeros(const char *text, size_t length, char **ret_text,
                                      size_t *ret_length, struct st_error *err)
{
    static const char fraction[] = ".0";
    size_t from = 0, to = 0;
    char *copy = NULL;
    for (size_t at = zero_find(text, length, 0); at; at = zero_find(text, length, at)) {
        copy = copy ? copy : malloc(length * 2); /* each "-0" becomes twice as long */
        if (!copy) {
            return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the body");
        }
        memcpy(copy + to, text + from, at - from);
        memcpy(copy + to + at - from, fraction, sizeof(fraction) - 1);
        to += at - from + sizeof(fraction) - 1;
        from = at;
    }
    if (copy) {
        memcpy(copy + to, text + from, length - from);
    }
    *ret_text = copy;
    *ret_length = to + length - from;
    return ST_OK;
}

/** jansson's position is behind the token that it could not take. */
static enum st_status json_fail(const char *text, size_t length, const json_error_t *error,
                                struct st_error *err)
{
    char path[ST_ERROR_FIELD_MAX];
    char quoted[80];
    size_t position = error->position > 0 ? (size_t)error->position - 1 : 0;
    return st_fail(err, ST_REASON_INVALID_JSON, http_json_path(text, length, position, path),
                   "line %d, column %d: %s", error->line, error->column,
                   st_error_quote(error->text, quoted));
}

enum st_status http_json_parse(const char *text, size_t length, json_t **ret_object,
                               struct st_error *err)
{
    if (length == 0) {
        *ret_object = json_object();
        return *ret_object ? ST_OK
                           : st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the body");
    }
    if (memchr(text, '\0', length)) {
        return st_fail(err, ST_REASON_INVALID_JSON, NULL, "the body holds a NUL byte");
    }
    enum st_status status = json_check_depth(text, length, err);
    if (status != ST_OK) {
        return status;
    }
    char *signed_text;
    size_t signed_length;
    status = json_keep_zeros(text, length, &signed_text, &signed_length, err);
    if (status != ST_OK) {
        return status;
    }
    json_error_t error;
    const char *taken = signed_text ? signed_text : text;
    json_t *value = json_loadb(taken, signed_length, JSON_REJECT_DUPLICATES, &error);
    if (!value) {
        status = json_fail(taken, signed_length, &error, err);
    }
    free(signed_text);
    if (!value) {
        return status;
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return st_fail(err, ST_REASON_INVALID_JSON, NULL, "the body must be one JSON object");
    }
    *ret_object = value;
    return ST_OK;
}
