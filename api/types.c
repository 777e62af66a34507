#include "api/field.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/text.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/size.h"

/* ---------------------------------------------------------------- ids and text */

static enum st_status id_check(const struct api_decoding *decoding, const char *text, size_t length,
                               char *target, struct st_error *err)
{
    if (!st_id_is_valid(text, length)) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_ID,
                               "must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,254} without \"..\" and "
                               "without a \".\" at the end");
    }
    memcpy(target, text, length);
    target[length] = '\0';
    return ST_OK;
}

static enum st_status id_decode(struct api_decoding *decoding, const struct api_field *field,
                                const json_t *value, void *target, struct st_error *err)
{
    if (!json_is_string(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    return id_check(decoding, json_string_value(value), json_string_length(value), target, err);
}

static enum st_status id_parse(struct api_decoding *decoding, const struct api_field *field,
                               const char *text, void *target, struct st_error *err)
{
    (void)field;
    return id_check(decoding, text, strlen(text), target, err);
}

const struct api_type api_type_id = {
    .name = "id",
    .schema = "\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}$\"",
    .decode = id_decode,
    .parse = id_parse,
};

static enum st_status text_parse(struct api_decoding *decoding, const struct api_field *field,
                                 const char *text, void *target, struct st_error *err)
{
    int64_t length = (int64_t)strlen(text);
    int64_t max = field->max ? field->max : ST_LABEL_VALUE_MAX;
    if (length < field->min || length > max) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must have %" PRId64 " to %" PRId64 " bytes", field->min, max);
    }
    char *copy = api_arena_copy(decoding->arena, text, (size_t)length);
    if (!copy) {
        return api_decode_fail_memory(err);
    }
    *(const char **)target = copy;
    return ST_OK;
}

static enum st_status text_decode(struct api_decoding *decoding, const struct api_field *field,
                                  const json_t *value, void *target, struct st_error *err)
{
    if (!json_is_string(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    return text_parse(decoding, field, json_string_value(value), target, err);
}

const struct api_type api_type_text = {
    .name = "string",
    .schema = "\"type\":\"string\"",
    .decode = text_decode,
    .parse = text_parse,
};

/* ---------------------------------------------------------------- integers */

/** Bounds of a row, or @p low..@p high when it has none. */
static void field_bounds(const struct api_field *field, int64_t *low, int64_t *high)
{
    if (field->min || field->max) {
        *low = field->min;
        *high = field->max;
    }
}

static enum st_status integer_check(const struct api_decoding *decoding, int64_t value, int64_t low,
                                    int64_t high, struct st_error *err)
{
    if (value < low) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must be at least %" PRId64 ", not %" PRId64, low, value);
    }
    if (value > high) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must be at most %" PRId64 ", not %" PRId64, high, value);
    }
    return ST_OK;
}

static enum st_status integer_decode(const struct api_decoding *decoding, const json_t *value,
                                     int64_t low, int64_t high, int64_t *ret, struct st_error *err)
{
    if (!json_is_integer(value)) {
        return api_decode_fail_type(decoding, "integer", value, err);
    }
    *ret = json_integer_value(value);
    return integer_check(decoding, *ret, low, high, err);
}

static enum st_status integer_parse(const struct api_decoding *decoding, const char *text,
                                    int64_t low, int64_t high, int64_t *ret, struct st_error *err)
{
    uint64_t magnitude;
    bool negative = text[0] == '-';
    if (!st_uint_parse(text + negative, ST_JSON_INTEGER_MAX, &magnitude)) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must be an integer from %" PRId64 " to %" PRId64, low, high);
    }
    *ret = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return integer_check(decoding, *ret, low, high, err);
}

/** The functions of one integer type: they differ in the bounds and the width of the target only.
 */
#define INTEGER_TYPE(kind, c_type, low_bound, high_bound)                                          \
    static enum st_status kind##_decode(struct api_decoding *decoding,                             \
                                        const struct api_field *field, const json_t *value,        \
                                        void *target, struct st_error *err)                        \
    {                                                                                              \
        int64_t low = (low_bound), high = (high_bound), number = 0;                                \
        field_bounds(field, &low, &high);                                                          \
        enum st_status status = integer_decode(decoding, value, low, high, &number, err);          \
        if (status == ST_OK) {                                                                     \
            *(c_type *)target = (c_type)number;                                                    \
        }                                                                                          \
        return status;                                                                             \
    }                                                                                              \
    static enum st_status kind##_parse(struct api_decoding *decoding,                              \
                                       const struct api_field *field, const char *text,            \
                                       void *target, struct st_error *err)                         \
    {                                                                                              \
        int64_t low = (low_bound), high = (high_bound), number = 0;                                \
        field_bounds(field, &low, &high);                                                          \
        enum st_status status = integer_parse(decoding, text, low, high, &number, err);            \
        if (status == ST_OK) {                                                                     \
            *(c_type *)target = (c_type)number;                                                    \
        }                                                                                          \
        return status;                                                                             \
    }                                                                                              \
    const struct api_type api_type_##kind = {                                                      \
        .name = "integer",                                                                         \
        .schema = "\"type\":\"integer\"",                                                          \
        .decode = kind##_decode,                                                                   \
        .parse = kind##_parse,                                                                     \
    };

INTEGER_TYPE(uint64, uint64_t, 0, ST_JSON_INTEGER_MAX)
INTEGER_TYPE(uint32, uint32_t, 0, UINT32_MAX)
INTEGER_TYPE(int32, int32_t, INT32_MIN, INT32_MAX)

/* ---------------------------------------------------------------- bool and enum */

static enum st_status bool_decode(struct api_decoding *decoding, const struct api_field *field,
                                  const json_t *value, void *target, struct st_error *err)
{
    if (!json_is_boolean(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    *(bool *)target = json_is_true(value);
    return ST_OK;
}

static enum st_status bool_parse(struct api_decoding *decoding, const struct api_field *field,
                                 const char *text, void *target, struct st_error *err)
{
    (void)field;
    bool is_true = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    if (!is_true && strcmp(text, "false") != 0 && strcmp(text, "0") != 0) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE, "must be true or false");
    }
    *(bool *)target = is_true;
    return ST_OK;
}

const struct api_type api_type_bool = {
    .name = "boolean",
    .schema = "\"type\":\"boolean\"",
    .decode = bool_decode,
    .parse = bool_parse,
};

static enum st_status tristate_decode(struct api_decoding *decoding, const struct api_field *field,
                                      const json_t *value, void *target, struct st_error *err)
{
    bool is_true = false;
    enum st_status status = bool_decode(decoding, field, value, &is_true, err);
    if (status == ST_OK) {
        *(int *)target = is_true;
    }
    return status;
}

const struct api_type api_type_tristate = {
    .name = "boolean",
    .schema = "\"type\":\"boolean\"",
    .decode = tristate_decode,
};

static enum st_status enum_fail(const struct api_decoding *decoding, const struct api_names *names,
                                struct st_error *err)
{
    char list[ST_ERROR_MESSAGE_MAX - ST_ERROR_FIELD_MAX] = "";
    size_t length = 0;
    for (unsigned i = 0; i < names->count && length < sizeof(list); i++) {
        const char *name = names->name(i);
        if (name) {
            int added = snprintf(list + length, sizeof(list) - length, "%s\"%s\"",
                                 length ? ", " : "", name);
            length += added > 0 ? (size_t)added : 0;
        }
    }
    return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE, "must be one of %s", list);
}

static enum st_status enum_parse(struct api_decoding *decoding, const struct api_field *field,
                                 const char *text, void *target, struct st_error *err)
{
    for (unsigned i = 0; i < field->names->count; i++) {
        const char *name = field->names->name(i);
        if (name && strcmp(name, text) == 0) {
            *(unsigned *)target = i;
            return ST_OK;
        }
    }
    return enum_fail(decoding, field->names, err);
}

static enum st_status enum_decode(struct api_decoding *decoding, const struct api_field *field,
                                  const json_t *value, void *target, struct st_error *err)
{
    if (!json_is_string(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    return enum_parse(decoding, field, json_string_value(value), target, err);
}

const struct api_type api_type_enum = {
    .name = "string",
    .schema = "\"type\":\"string\"",
    .decode = enum_decode,
    .parse = enum_parse,
};

/* ---------------------------------------------------------------- arrays of numbers and ids */

/** Array of @p low..@p high items, or the failure. */
static enum st_status array_check(const struct api_decoding *decoding, const json_t *value,
                                  int64_t low, int64_t high, struct st_error *err)
{
    if (!json_is_array(value)) {
        return api_decode_fail_type(decoding, "array", value, err);
    }
    int64_t count = (int64_t)json_array_size(value);
    if (count < low || count > high) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must have %" PRId64 " to %" PRId64 " items, not %" PRId64, low,
                               high, count);
    }
    return ST_OK;
}

/** Decode a small array of integers, [ST_SHAPE_RANK_MAX] at most. */
static enum st_status dims_decode(struct api_decoding *decoding, const json_t *value,
                                  uint32_t *ret_rank, int64_t *ret_dims, struct st_error *err)
{
    enum st_status status = array_check(decoding, value, 0, ST_SHAPE_RANK_MAX, err);
    size_t count = status == ST_OK ? json_array_size(value) : 0;
    for (size_t i = 0; i < count; i++) {
        size_t mark = api_path_push_index(decoding, i);
        status = integer_decode(decoding, json_array_get(value, i), 0, ST_JSON_INTEGER_MAX,
                                &ret_dims[i], err);
        api_path_pop(decoding, mark);
        if (status != ST_OK) {
            return status;
        }
    }
    if (status == ST_OK) {
        *ret_rank = (uint32_t)count;
    }
    return status;
}

static enum st_status shape_decode(struct api_decoding *decoding, const struct api_field *field,
                                   const json_t *value, void *target, struct st_error *err)
{
    (void)field;
    struct st_shape *shape = target;
    return dims_decode(decoding, value, &shape->rank, shape->dims, err);
}

const struct api_type api_type_shape = {
    .name = "array of integers",
    .schema = "\"type\":\"array\",\"maxItems\":8,\"items\":{\"type\":\"integer\",\"minimum\":0}",
    .decode = shape_decode,
};

static enum st_status strides_decode(struct api_decoding *decoding, const struct api_field *field,
                                     const json_t *value, void *target, struct st_error *err)
{
    (void)field;
    struct api_strides *strides = target;
    return dims_decode(decoding, value, &strides->rank, strides->strides.dims, err);
}

const struct api_type api_type_strides = {
    .name = "array of integers",
    .schema = "\"type\":\"array\",\"maxItems\":8,\"items\":{\"type\":\"integer\",\"minimum\":0}",
    .decode = strides_decode,
};
_Static_assert(ST_SHAPE_RANK_MAX == 8, "the schemas above name the largest rank");

static enum st_status uint32s_decode(struct api_decoding *decoding, const struct api_field *field,
                                     const json_t *value, void *target, struct st_error *err)
{
    int64_t low = 0, high = UINT32_MAX;
    field_bounds(field, &low, &high);
    enum st_status status = array_check(decoding, value, 0, ST_BATCH_MAX, err);
    if (status != ST_OK) {
        return status;
    }
    size_t count = json_array_size(value);
    uint32_t *items = api_arena_array(decoding->arena, count, sizeof(*items));
    if (!items) {
        return api_decode_fail_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        int64_t number;
        size_t mark = api_path_push_index(decoding, i);
        status = integer_decode(decoding, json_array_get(value, i), low, high, &number, err);
        api_path_pop(decoding, mark);
        if (status != ST_OK) {
            return status;
        }
        items[i] = (uint32_t)number;
    }
    *(struct api_array *)target = (struct api_array){.count = (uint32_t)count, .items = items};
    return ST_OK;
}

const struct api_type api_type_uint32s = {
    .name = "array of integers",
    .schema = "\"type\":\"array\",\"items\":{\"type\":\"integer\"}",
    .decode = uint32s_decode,
};

/** Check one text of a list and copy it to its slot of ST_ID_MAX + 1 bytes. */
typedef enum st_status (*text_check)(const struct api_decoding *decoding, const char *text,
                                     size_t length, char *target, struct st_error *err);

/** Decode an array of texts, each into ST_ID_MAX + 1 bytes. */
static enum st_status texts_decode(struct api_decoding *decoding, const struct api_field *field,
                                   const json_t *value, text_check check,
                                   struct api_array *ret_array, struct st_error *err)
{
    int64_t low = 0, high = ST_BATCH_MAX;
    field_bounds(field, &low, &high);
    enum st_status status = array_check(decoding, value, low, high, err);
    if (status != ST_OK) {
        return status;
    }
    size_t count = json_array_size(value);
    char(*items)[ST_ID_MAX + 1] = api_arena_array(decoding->arena, count, sizeof(*items));
    if (!items) {
        return api_decode_fail_memory(err);
    }
    for (size_t i = 0; i < count && status == ST_OK; i++) {
        const json_t *item = json_array_get(value, i);
        size_t mark = api_path_push_index(decoding, i);
        status = json_is_string(item) ? check(decoding, json_string_value(item),
                                              json_string_length(item), items[i], err)
                                      : api_decode_fail_type(decoding, "string", item, err);
        api_path_pop(decoding, mark);
    }
    if (status == ST_OK) {
        *ret_array = (struct api_array){.count = (uint32_t)count, .items = items};
    }
    return status;
}

static enum st_status ids_decode(struct api_decoding *decoding, const struct api_field *field,
                                 const json_t *value, void *target, struct st_error *err)
{
    return texts_decode(decoding, field, value, id_check, target, err);
}

const struct api_type api_type_ids = {
    .name = "array of ids",
    .schema = "\"type\":\"array\",\"items\":{\"type\":\"string\"}",
    .decode = ids_decode,
};

static enum st_status principal_check(const struct api_decoding *decoding, const char *text,
                                      size_t length, char *target, struct st_error *err)
{
    bool visible = length >= 1 && length <= ST_ID_MAX;
    for (size_t i = 0; visible && i < length; i++) {
        visible = text[i] > 0x20 && text[i] < 0x7f;
    }
    if (!visible) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must be 1 to %d visible ASCII characters", ST_ID_MAX);
    }
    memcpy(target, text, length);
    return ST_OK;
}

static enum st_status principals_decode(struct api_decoding *decoding,
                                        const struct api_field *field, const json_t *value,
                                        void *target, struct st_error *err)
{
    struct api_array array;
    enum st_status status = texts_decode(decoding, field, value, principal_check, &array, err);
    if (status == ST_OK) {
        *(struct api_principals *)target =
            (struct api_principals){.count = array.count, .items = array.items};
    }
    return status;
}

const struct api_type api_type_principals = {
    .name = "array of principals",
    .schema = "\"type\":\"array\",\"items\":{\"type\":\"string\"}",
    .decode = principals_decode,
};

/* ---------------------------------------------------------------- labels */

static int label_compare(const void *a, const void *b)
{
    const struct server_label *left = a, *right = b;
    return strcmp(left->key, right->key);
}

static enum st_status label_set(const struct api_decoding *decoding, const char *key,
                                const char *value, struct server_label *ret_label,
                                struct st_error *err)
{
    size_t length = strlen(key);
    if (length > ST_LABEL_KEY_MAX || !st_id_is_valid(key, length)) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "a label's key must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,%d}",
                               ST_LABEL_KEY_MAX - 1);
    }
    if (strlen(value) > ST_LABEL_VALUE_MAX) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "a label's value must have at most %d bytes", ST_LABEL_VALUE_MAX);
    }
    snprintf(ret_label->key, sizeof(ret_label->key), "%s", key);
    snprintf(ret_label->value, sizeof(ret_label->value), "%s", value);
    return ST_OK;
}

enum st_status api_label_decode(struct api_decoding *decoding, const char *key, const json_t *value,
                                struct server_label *ret_label, struct st_error *err)
{
    size_t mark = api_path_push_name(decoding, key);
    enum st_status status = json_is_string(value)
                                ? label_set(decoding, key, json_string_value(value), ret_label, err)
                                : api_decode_fail_type(decoding, "string", value, err);
    api_path_pop(decoding, mark);
    return status;
}

static enum st_status labels_fail_count(const struct api_decoding *decoding, struct st_error *err)
{
    return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE, "must have at most %d labels",
                           ST_LABELS_MAX);
}

static enum st_status labels_decode(struct api_decoding *decoding, const struct api_field *field,
                                    const json_t *value, void *target, struct st_error *err)
{
    if (!json_is_object(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    size_t count = json_object_size(value);
    if (count > ST_LABELS_MAX) {
        return labels_fail_count(decoding, err);
    }
    struct server_labels labels = {
        .items = api_arena_array(decoding->arena, count, sizeof(struct server_label))};
    if (!labels.items) {
        return api_decode_fail_memory(err);
    }
    union {
        const json_t *in;
        json_t *out;
    } source = {.in = value};
    for (void *at = json_object_iter(source.out); at; at = json_object_iter_next(source.out, at)) {
        enum st_status status =
            api_label_decode(decoding, json_object_iter_key(at), json_object_iter_value(at),
                             &labels.items[labels.count++], err);
        if (status != ST_OK) {
            return status;
        }
    }
    qsort(labels.items, labels.count, sizeof(struct server_label), label_compare);
    *(struct server_labels *)target = labels;
    return ST_OK;
}

/** One "label.k=v" of a query is added to the list; the same key twice is refused. */
static enum st_status labels_parse(struct api_decoding *decoding, const struct api_field *field,
                                   const char *text, void *target, struct st_error *err)
{
    (void)field;
    struct server_labels *labels = target;
    if (!labels->items) {
        labels->items =
            api_arena_array(decoding->arena, ST_LABELS_MAX, sizeof(struct server_label));
        if (!labels->items) {
            return api_decode_fail_memory(err);
        }
    }
    if (labels->count == ST_LABELS_MAX) {
        return labels_fail_count(decoding, err);
    }
    struct server_label label;
    enum st_status status = label_set(decoding, decoding->suffix, text, &label, err);
    if (status != ST_OK) {
        return status;
    }
    for (uint32_t i = 0; i < labels->count; i++) {
        if (strcmp(labels->items[i].key, label.key) == 0) {
            return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE, "is given twice");
        }
    }
    labels->items[labels->count++] = label;
    qsort(labels->items, labels->count, sizeof(label), label_compare);
    return ST_OK;
}

const struct api_type api_type_labels = {
    .name = "object of strings",
    .schema = "\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}",
    .decode = labels_decode,
    .parse = labels_parse,
};

/* ---------------------------------------------------------------- numbers */

/** A value written as text: an integer of 64 bits where it is one, else a double. */
static enum st_status number_from_text(const struct api_decoding *decoding, const char *text,
                                       struct api_number *number, struct st_error *err)
{
    static const struct {
        const char *text;
        double value;
    } specials[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
        if (strcmp(text, specials[i].text) == 0) {
            *number = (struct api_number){.kind = SERVER_NUMBER_DOUBLE,
                                          .double_value = specials[i].value};
            return ST_OK;
        }
    }
    /* JSON's grammar of numbers, so that "0x10", " 1" and "inf", which strtod takes, are refused.
     */
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    bool decimal = json_is_number(value) && strspn(text, "+-0123456789.eE") == strlen(text);
    bool fraction = json_is_real(value);
    json_decref(value);
    size_t digits = strspn(text + (text[0] == '-'), "0123456789");
    bool integer = text[0] && digits && !text[digits + (text[0] == '-')];
    if (!decimal && !integer) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must be a number, decimal text, \"NaN\", \"Infinity\" or "
                               "\"-Infinity\"");
    }
    char *end;
    errno = 0;
    if (fraction || (text[0] == '-' && strspn(text + 1, "0") == digits)) { /* -0 is no integer */
        *number =
            (struct api_number){.kind = SERVER_NUMBER_DOUBLE, .double_value = strtod(text, &end)};
    } else if (text[0] == '-') {
        *number = (struct api_number){.kind = SERVER_NUMBER_INT64,
                                      .int64_value = strtoll(text, &end, 10)};
    } else {
        *number = (struct api_number){.kind = SERVER_NUMBER_UINT64,
                                      .uint64_value = strtoull(text, &end, 10)};
    }
    if (errno == ERANGE && !fraction) {
        return api_decode_fail(decoding, err, ST_REASON_OUT_OF_RANGE_VALUE,
                               "must be from -2^63 to 2^64-1 when it is an integer");
    }
    return ST_OK;
}

static enum st_status number_decode(struct api_decoding *decoding, const struct api_field *field,
                                    const json_t *value, void *target, struct st_error *err)
{
    struct api_number *number = target;
    if (json_is_string(value)) {
        return number_from_text(decoding, json_string_value(value), number, err);
    }
    if (json_is_integer(value)) {
        int64_t integer;
        enum st_status status = integer_decode(decoding, value, -ST_JSON_INTEGER_MAX,
                                               ST_JSON_INTEGER_MAX, &integer, err);
        *number = (struct api_number){.kind = SERVER_NUMBER_INT64, .int64_value = integer};
        return status;
    }
    if (json_is_real(value)) {
        *number = (struct api_number){.kind = SERVER_NUMBER_DOUBLE,
                                      .double_value = json_real_value(value)};
        return ST_OK;
    }
    if (json_is_boolean(value)) {
        *number =
            (struct api_number){.kind = SERVER_NUMBER_BOOL, .uint64_value = json_is_true(value)};
        return ST_OK;
    }
    return api_decode_fail_type(decoding, field->type->name, value, err);
}

const struct api_type api_type_number = {
    .name = "number or string",
    .schema = "\"type\":[\"number\",\"string\",\"boolean\"]",
    .decode = number_decode,
};

static enum st_status seconds_check(const struct api_decoding *decoding,
                                    const struct api_field *field, double seconds, uint64_t *ret_ns,
                                    struct st_error *err)
{
    int64_t low = 0, high = ST_WAIT_SECONDS_MAX;
    field_bounds(field, &low, &high);
    if (!(seconds >= (double)low && seconds <= (double)high)) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must be from %" PRId64 " to %" PRId64 " seconds", low, high);
    }
    *ret_ns = (uint64_t)(seconds * (double)ST_NS_PER_SECOND);
    return ST_OK;
}

static enum st_status seconds_decode(struct api_decoding *decoding, const struct api_field *field,
                                     const json_t *value, void *target, struct st_error *err)
{
    if (!json_is_number(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    return seconds_check(decoding, field, json_number_value(value), target, err);
}

static enum st_status seconds_parse(struct api_decoding *decoding, const struct api_field *field,
                                    const char *text, void *target, struct st_error *err)
{
    char *end = NULL;
    bool decimal = text[0] >= '0' && text[0] <= '9' && strspn(text, "0123456789.") == strlen(text);
    double seconds = decimal ? strtod(text, &end) : NAN;
    if (end && *end) {
        seconds = NAN;
    }
    return seconds_check(decoding, field, seconds, target, err);
}

const struct api_type api_type_seconds = {
    .name = "seconds",
    .schema = "\"type\":\"number\"",
    .decode = seconds_decode,
    .parse = seconds_parse,
};

/* ---------------------------------------------------------------- objects */

static enum st_status object_decode(struct api_decoding *decoding, const struct api_field *field,
                                    const json_t *value, void *target, struct st_error *err)
{
    return api_fields_decode(decoding, field->fields, value, target, err);
}

const struct api_type api_type_object = {
    .name = "object",
    .schema = "\"type\":\"object\"",
    .decode = object_decode,
};

static enum st_status objects_decode(struct api_decoding *decoding, const struct api_field *field,
                                     const json_t *value, void *target, struct st_error *err)
{
    int64_t low = 0, high = ST_BATCH_MAX;
    field_bounds(field, &low, &high);
    enum st_status status = array_check(decoding, value, low, high, err);
    if (status != ST_OK) {
        return status;
    }
    size_t count = json_array_size(value);
    char *items = api_arena_array(decoding->arena, count, field->item_bytes);
    if (!items) {
        return api_decode_fail_memory(err);
    }
    for (size_t i = 0; i < count && status == ST_OK; i++) {
        char *item = items + i * field->item_bytes;
        if (field->item_defaults) {
            memcpy(item, field->item_defaults, field->item_bytes);
        }
        size_t mark = api_path_push_index(decoding, i);
        status = api_fields_decode(decoding, field->fields, json_array_get(value, i), item, err);
        api_path_pop(decoding, mark);
    }
    if (status == ST_OK) {
        *(struct api_array *)target = (struct api_array){.count = (uint32_t)count, .items = items};
    }
    return status;
}

const struct api_type api_type_objects = {
    .name = "array of objects",
    .schema = "\"type\":\"array\"",
    .decode = objects_decode,
};
