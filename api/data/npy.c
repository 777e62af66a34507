#include "api/data/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6u
#define ALIGNMENT 64u

static enum st_status npy_fail(struct st_error *err, const char *what)
{
    return st_fail(err, ST_REASON_NPY_INVALID, NULL, "npy header: %s", what);
}

/** Bytes in front of the dictionary: magic, version, length. */
static size_t prelude_bytes(const char *data)
{
    return data[MAGIC_BYTES] == 1 ? 10 : 12;
}

enum st_status data_npy_measure(const char *data, size_t bytes, size_t *ret_header_bytes,
                                struct st_error *err)
{
    if (bytes < DATA_NPY_PRELUDE_BYTES) {
        return npy_fail(err, "the body ends inside it");
    }
    if (memcmp(data, MAGIC, MAGIC_BYTES) != 0) {
        return npy_fail(err, "the body does not begin with \\x93NUMPY");
    }
    const unsigned char *version = (const unsigned char *)data + MAGIC_BYTES;
    if (version[0] < 1 || version[0] > 3 || version[1] != 0) {
        return npy_fail(err, "the version must be 1.0, 2.0 or 3.0");
    }
    const unsigned char *length = version + 2;
    uint32_t dictionary = length[0] | (uint32_t)length[1] << 8;
    if (version[0] > 1) {
        dictionary |= (uint32_t)length[2] << 16 | (uint32_t)length[3] << 24;
    }
    if (dictionary > DATA_NPY_HEADER_MAX - DATA_NPY_PRELUDE_BYTES) {
        return npy_fail(err, "it must have at most 64 KiB");
    }
    if (prelude_bytes(data) + dictionary < DATA_NPY_PRELUDE_BYTES) {
        return npy_fail(err, "it is too short");
    }
    *ret_header_bytes = prelude_bytes(data) + dictionary;
    return ST_OK;
}

/* ---------------------------------------------------------------- the dictionary */

/** What is left to read. */
struct scan {
    const char *at, *end;
};

static void scan_spaces(struct scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n')) {
        scan->at++;
    }
}

/** Skip spaces and take one character if it is @p wanted. */
static bool scan_take(struct scan *scan, char wanted)
{
    scan_spaces(scan);
    bool there = scan->at < scan->end && *scan->at == wanted;
    scan->at += there;
    return there;
}

/** Take a word such as True. */
static bool scan_word(struct scan *scan, const char *word)
{
    size_t length = strlen(word);
    scan_spaces(scan);
    bool there = (size_t)(scan->end - scan->at) >= length && memcmp(scan->at, word, length) == 0;
    scan->at += there ? length : 0;
    return there;
}

/** Take a quoted string of visible ASCII without escapes into @p buffer. */
static bool scan_string(struct scan *scan, char *buffer, size_t size)
{
    scan_spaces(scan);
    if (scan->at == scan->end || (*scan->at != '\'' && *scan->at != '"')) {
        return false;
    }
    char quote = *scan->at++;
    size_t length = 0;
    for (; scan->at < scan->end && *scan->at != quote; scan->at++) {
        if (length + 1 >= size || *scan->at < ' ' || *scan->at > '~' || *scan->at == '\\') {
            return false;
        }
        buffer[length++] = *scan->at;
    }
    buffer[length] = '\0';
    return scan_take(scan, quote);
}

/** Take a decimal integer without sign and leading zeros. */
static bool scan_integer(struct scan *scan, int64_t *ret_value)
{
    scan_spaces(scan);
    int64_t value = 0;
    const char *start = scan->at;
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *scan->at - '0', &value)) {
            return false;
        }
    }
    *ret_value = value;
    size_t digits = (size_t)(scan->at - start);
    return digits == 1 || (digits > 1 && *start != '0');
}

static bool descr_scan(struct scan *scan, struct data_npy *npy)
{
    return scan_string(scan, npy->descr, sizeof(npy->descr));
}

static bool fortran_scan(struct scan *scan, struct data_npy *npy)
{
    npy->fortran_order = scan_word(scan, "True");
    return npy->fortran_order || scan_word(scan, "False");
}

/** A tuple: (), (3,), (3, 4), (3, 4,). */
static bool shape_scan(struct scan *scan, struct data_npy *npy)
{
    npy->shape.rank = 0;
    if (!scan_take(scan, '(')) {
        return false;
    }
    bool comma = true;
    while (!scan_take(scan, ')')) {
        if (!comma || npy->shape.rank == ST_SHAPE_RANK_MAX ||
            !scan_integer(scan, &npy->shape.dims[npy->shape.rank])) {
            return false;
        }
        npy->shape.rank++;
        comma = scan_take(scan, ',');
    }
    /* (3) is a number in brackets, no tuple. */
    return npy->shape.rank != 1 || comma;
}

static const struct {
    const char *key;
    bool (*scan)(struct scan *scan, struct data_npy *npy);
    const char *wanted;
} keys[] = {
    {"descr", descr_scan, "'descr' must be a plain string: structured types are not read"},
    {"fortran_order", fortran_scan, "'fortran_order' must be True or False"},
    {"shape", shape_scan, "'shape' must be a tuple of at most 8 integers"},
};
#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))

/** One "key: value". @return why it is none, or NULL. */
static const char *member_scan(struct scan *scan, unsigned *seen, struct data_npy *npy)
{
    char name[16];
    if (!scan_string(scan, name, sizeof(name)) || !scan_take(scan, ':')) {
        return "a key is missing";
    }
    for (unsigned i = 0; i < KEY_COUNT; i++) {
        if (strcmp(keys[i].key, name) != 0) {
            continue;
        }
        if (*seen & (1u << i)) {
            return "a key is given twice";
        }
        *seen |= 1u << i;
        return keys[i].scan(scan, npy) ? NULL : keys[i].wanted;
    }
    return "there is a key beside 'descr', 'fortran_order' and 'shape'";
}

enum st_status data_npy_parse(const char *data, size_t header_bytes, struct data_npy *ret_npy,
                              struct st_error *err)
{
    struct scan scan = {.at = data + prelude_bytes(data), .end = data + header_bytes};
    struct data_npy npy = {0};
    unsigned seen = 0;
    if (!scan_take(&scan, '{')) {
        return npy_fail(err, "it must be a dictionary");
    }
    bool comma = true;
    while (!scan_take(&scan, '}')) {
        const char *why = comma ? member_scan(&scan, &seen, &npy) : "a comma is missing";
        if (why) {
            return npy_fail(err, why);
        }
        comma = scan_take(&scan, ',');
    }
    scan_spaces(&scan);
    if (scan.at != scan.end) {
        return npy_fail(err, "something stands behind the dictionary");
    }
    if (seen != (1u << KEY_COUNT) - 1) {
        return npy_fail(err, "one of 'descr', 'fortran_order' and 'shape' is missing");
    }
    *ret_npy = npy;
    return ST_OK;
}

/* ---------------------------------------------------------------- fitting a tensor */

enum st_status data_npy_check_dtype(enum st_dtype dtype, struct st_error *err)
{
    const struct st_dtype_info *info = st_dtype_info(dtype);
    if (!info->npy) {
        return st_fail(err, ST_REASON_NPY_DTYPE, NULL,
                       "npy has no %s; use application/octet-stream", info->name);
    }
    return ST_OK;
}

/** Column-major strides of a shape. */
static void fortran_strides(const struct st_shape *shape, struct st_strides *ret)
{
    int64_t stride = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        ret->dims[i] = stride;
        stride *= shape->dims[i] ? shape->dims[i] : 1;
    }
}

enum st_status data_npy_check(const struct data_npy *npy, enum st_dtype dtype,
                              const struct st_shape *shape, const struct st_strides *strides,
                              bool *ret_logical, struct st_error *err)
{
    const struct st_dtype_info *info = st_dtype_info(dtype);
    enum st_status status = data_npy_check_dtype(dtype, err);
    if (status != ST_OK) {
        return status;
    }
    char quoted[80], file_text[200], tensor_text[200];
    if (strcmp(npy->descr, info->npy) != 0) {
        return st_fail(err, ST_REASON_NPY_INVALID, "descr", "the file has \"%s\", %s is \"%s\"",
                       st_error_quote(npy->descr, quoted), info->name, info->npy);
    }
    if (!st_shape_equal(&npy->shape, shape)) {
        return st_fail(err, ST_REASON_NPY_INVALID, "shape", "the file has %s, the tensor %s",
                       st_shape_format(&npy->shape, file_text),
                       st_shape_format(shape, tensor_text));
    }
    struct st_strides fortran;
    fortran_strides(shape, &fortran);
    *ret_logical = !npy->fortran_order || st_shape_is_row_major(shape, &fortran);
    if (!*ret_logical && !st_strides_equal(shape, &fortran, strides)) {
        return st_fail(err, ST_REASON_NPY_INVALID, "fortran_order",
                       "must be False for this tensor; save numpy.ascontiguousarray(a)");
    }
    return ST_OK;
}

size_t data_npy_write(enum st_dtype dtype, const struct st_shape *shape,
                      char buffer[static DATA_NPY_HEADER_WRITTEN_MAX])
{
    const size_t prelude = 10;
    size_t room = DATA_NPY_HEADER_WRITTEN_MAX - prelude;
    char *text = buffer + prelude;
    size_t length =
        (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                         st_dtype_info(dtype)->npy);
    for (uint32_t i = 0; i < shape->rank; i++) {
        length += (size_t)snprintf(text + length, room - length, "%" PRId64 "%s", shape->dims[i],
                                   i + 1 < shape->rank ? ", " : "");
    }
    length += (size_t)snprintf(text + length, room - length, "%s), }", shape->rank == 1 ? "," : "");
    size_t total = (prelude + length + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(text + length, ' ', total - prelude - length - 1);
    buffer[total - 1] = '\n';
    size_t dictionary = total - prelude;
    memcpy(buffer, MAGIC "\x01\x00", MAGIC_BYTES + 2);
    buffer[MAGIC_BYTES + 2] = (char)(dictionary & 0xff);
    buffer[MAGIC_BYTES + 3] = (char)(dictionary >> 8);
    return total;
}
_Static_assert(DATA_NPY_HEADER_WRITTEN_MAX % ALIGNMENT == 0 &&
                   DATA_NPY_HEADER_WRITTEN_MAX > 10 + 64 + ST_SHAPE_RANK_MAX * 22 + ALIGNMENT,
               "the longest header that is written fits");
