#include "api/field.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/text.h"

/** Rows of one table; more would not fit the set of seen rows. */
#define FIELDS_MAX 64

/* ---------------------------------------------------------------- paths and failures */

static size_t __attribute__((format(printf, 2, 3)))
path_push(struct api_decoding *decoding, const char *format, ...)
{
    size_t mark = decoding->path_length;
    size_t room = sizeof(decoding->path) - mark;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(decoding->path + mark, room, format, args);
    va_end(args);
    size_t added = length < 0 ? 0 : (size_t)length;
    decoding->path_length += added < room ? added : room - 1;
    return mark;
}

size_t api_path_push_name(struct api_decoding *decoding, const char *name)
{
    char quoted[80];
    st_error_quote(name, quoted);
    return path_push(decoding, "%s%s", decoding->path_length ? "." : "", quoted);
}

size_t api_path_push_index(struct api_decoding *decoding, size_t index)
{
    return path_push(decoding, "[%zu]", index);
}

void api_path_pop(struct api_decoding *decoding, size_t mark)
{
    decoding->path_length = mark;
    decoding->path[mark] = '\0';
}

enum st_status api_decode_fill(const struct api_decoding *decoding, struct st_error *err,
                               enum st_reason reason, const char *format, ...)
{
    char message[ST_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    return st_fail(err, reason, decoding->path, "%s", message);
}

enum st_status api_decode_fill_type(const struct api_decoding *decoding, const char *wanted,
                                    const json_t *value, struct st_error *err)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",
        [JSON_ARRAY] = "an array",
        [JSON_STRING] = "a string",
        [JSON_INTEGER] = "integer",
        [JSON_REAL] = "a number with a fraction or exponent",
        [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",
        [JSON_NULL] = "null",
    };
    return api_decode_fail(decoding, err, ST_REASON_INVALID_TYPE, "must be of type %s, not %s",
                           wanted, names[json_typeof(value)]);
}

enum st_status api_decode_fill_memory(struct st_error *err)
{
    return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory to decode the request");
}

/* ---------------------------------------------------------------- objects */

static void *field_target(const struct api_field *field, void *target)
{
    return (char *)target + field->offset;
}

static void field_mark(const struct api_field *field, void *target)
{
    if (field->has) {
        *(bool *)((char *)target + field->has - 1) = true;
    }
}

static enum st_status fields_check_required(struct api_decoding *decoding,
                                            const struct api_field *fields, uint64_t seen,
                                            struct st_error *err)
{
    for (uint32_t i = 0; fields[i].name; i++) {
        if ((fields[i].flags & API_REQUIRED) && !(seen & (1ull << i))) {
            size_t mark = api_path_push_name(decoding, fields[i].name);
            enum st_status status = api_decode_fail(decoding, err, ST_REASON_MISSING_FIELD,
                                                    "is required (%s)", fields[i].type->name);
            api_path_pop(decoding, mark);
            return status;
        }
    }
    return ST_OK;
}

/** Row called @p name, or the end row. */
static uint32_t fields_find(const struct api_field *fields, const char *name)
{
    uint32_t i = 0;
    while (fields[i].name && strcmp(fields[i].name, name) != 0) {
        i++;
    }
    return i;
}

/** One object on its way into one struct. */
struct fields_run {
    const struct api_field *fields;
    void *target;
    uint64_t seen; /**< A bit a row. */
};

static enum st_status fields_decode_one(struct api_decoding *decoding, struct fields_run *run,
                                        const char *name, const json_t *value, struct st_error *err)
{
    uint32_t i = fields_find(run->fields, name);
    const struct api_field *field = &run->fields[i];
    size_t mark = api_path_push_name(decoding, name);
    enum st_status status;
    if (!field->name || i >= FIELDS_MAX) {
        status = api_decode_fail(decoding, err, ST_REASON_UNKNOWN_FIELD, "is not a known field");
    } else {
        run->seen |= 1ull << i;
        status = field->type->decode(decoding, field, value, field_target(field, run->target), err);
    }
    if (status == ST_OK) {
        field_mark(field, run->target);
    }
    api_path_pop(decoding, mark);
    return status;
}

enum st_status api_fields_decode(struct api_decoding *decoding, const struct api_field *fields,
                                 const json_t *object, void *target, struct st_error *err)
{
    if (!json_is_object(object)) {
        return api_decode_fail_type(decoding, "object", object, err);
    }
    struct fields_run run = {.fields = fields, .target = target};
    /* The iterators of jansson take a json_t without const, though they change nothing. */
    union {
        const json_t *in;
        json_t *out;
    } source = {.in = object};
    for (void *at = json_object_iter(source.out); at; at = json_object_iter_next(source.out, at)) {
        enum st_status status = fields_decode_one(decoding, &run, json_object_iter_key(at),
                                                  json_object_iter_value(at), err);
        if (status != ST_OK) {
            return status;
        }
    }
    return fields_check_required(decoding, fields, run.seen, err);
}

/* ---------------------------------------------------------------- queries */

static int hex_value(char digit)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = digit ? strchr(digits, digit) : NULL;
    int value = at ? (int)(at - digits) : -1;
    return value < 16 ? value : value - 6;
}

/** Undo "%XX" and "+" of text[0..length) in the arena. NULL: malformed, a NUL, a blank or control
 * byte that is not escaped, no UTF-8 or no memory. */
static char *query_unescape(struct api_arena *arena, const char *text, size_t length)
{
    char *copy = api_arena_copy(arena, text, length);
    size_t out = 0;
    for (size_t in = 0; copy && in < length; in++) {
        unsigned char raw = (unsigned char)text[in];
        char byte = text[in];
        if (byte == '+') {
            byte = ' ';
        }
        if (byte == '%') {
            int high = in + 2 < length ? hex_value(text[in + 1]) : -1;
            int low = in + 2 < length ? hex_value(text[in + 2]) : -1;
            if (high < 0 || low < 0) {
                return NULL;
            }
            byte = (char)(high * 16 + low);
            in += 2;
        }
        if (!byte || raw <= 0x20 || raw == 0x7f) {
            return NULL;
        }
        copy[out++] = byte;
    }
    if (copy) {
        copy[out] = '\0';
    }
    return copy && api_text_is_utf8(copy) ? copy : NULL;
}

/** One query on its way into the structs of its parts. */
struct query_run {
    const struct api_query_part *parts; /**< [count] */
    uint32_t count;
    uint64_t seen[API_QUERY_PARTS_MAX]; /**< A bit a row, one word a part. */
};

static bool query_row_matches(const struct api_field *field, const char *name)
{
    if (field->flags & API_PREFIX) {
        size_t length = strlen(field->name);
        return strncmp(field->name, name, length) == 0 && name[length];
    }
    return strcmp(field->name, name) == 0;
}

static enum st_status query_parse_row(struct api_decoding *decoding, const struct api_field *field,
                                      const char *name, const char *value, void *target,
                                      struct st_error *err)
{
    decoding->suffix = field->flags & API_PREFIX ? name + strlen(field->name) : NULL;
    struct st_error found = {0};
    enum st_status status =
        field->type->parse(decoding, field, value, field_target(field, target), &found);
    if (status == ST_OK) {
        field_mark(field, target);
        return ST_OK;
    }
    /* The limit is in the message; the reason of every wrong parameter is the same. */
    found.reason = found.reason == ST_REASON_OUT_OF_MEMORY ? found.reason : ST_REASON_INVALID_QUERY;
    found.status = st_reason_info(found.reason)->status;
    if (err) {
        *err = found;
    }
    return found.status;
}

static enum st_status query_decode_pair(struct api_decoding *decoding, struct query_run *run,
                                        const char *name, const char *value, struct st_error *err)
{
    for (uint32_t part = 0; part < run->count; part++) {
        const struct api_field *fields = run->parts[part].fields;
        for (uint32_t i = 0; fields && fields[i].name && i < FIELDS_MAX; i++) {
            if (!query_row_matches(&fields[i], name)) {
                continue;
            }
            if ((run->seen[part] & (1ull << i)) && !(fields[i].flags & API_PREFIX)) {
                return api_decode_fail(decoding, err, ST_REASON_INVALID_QUERY, "is given twice");
            }
            run->seen[part] |= 1ull << i;
            return query_parse_row(decoding, &fields[i], name, value, run->parts[part].target, err);
        }
    }
    return api_decode_fail(decoding, err, ST_REASON_INVALID_QUERY,
                           "is not a parameter of this path");
}

static enum st_status query_decode_text(struct api_decoding *decoding, struct query_run *run,
                                        const char *pair, size_t length, struct st_error *err)
{
    const char *equals = memchr(pair, '=', length);
    size_t name_length = equals ? (size_t)(equals - pair) : length;
    char *name = query_unescape(decoding->arena, pair, name_length);
    char *value = equals ? query_unescape(decoding->arena, equals + 1, length - name_length - 1)
                         : query_unescape(decoding->arena, "true", 4);
    if (!name || !name[0] || !value) {
        return st_fail(err, ST_REASON_INVALID_QUERY, NULL,
                       "the query holds a malformed escape, a NUL, a blank or control byte that is "
                       "not escaped, or bytes that are no UTF-8");
    }
    size_t mark = api_path_push_name(decoding, name);
    enum st_status status = query_decode_pair(decoding, run, name, value, err);
    api_path_pop(decoding, mark);
    return status;
}

/** Pairs of a query, empty ones too. */
static size_t query_count(const char *query)
{
    size_t count = 1;
    for (const char *at = strchr(query, '&'); at; at = strchr(at + 1, '&')) {
        count++;
    }
    return count;
}

enum st_status api_query_decode(struct api_arena *arena, const char *query,
                                const struct api_query_part *parts, uint32_t count,
                                struct st_error *err)
{
    struct api_decoding decoding = {.arena = arena};
    struct query_run run = {.parts = parts, .count = count};
    if (query && query_count(query) > ST_HTTP_QUERY_PARAMETERS_MAX) {
        return st_fail(err, ST_REASON_INVALID_QUERY, NULL,
                       "the query must have at most %d parameters", ST_HTTP_QUERY_PARAMETERS_MAX);
    }
    while (query && *query) {
        size_t length = strcspn(query, "&");
        if (length) {
            enum st_status status = query_decode_text(&decoding, &run, query, length, err);
            if (status != ST_OK) {
                return status;
            }
        }
        query += length + (query[length] == '&');
    }
    for (uint32_t part = 0; part < count; part++) {
        const struct api_field *fields = parts[part].fields;
        enum st_status status =
            fields ? fields_check_required(&decoding, fields, run.seen[part], err) : ST_OK;
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}
