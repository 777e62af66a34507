#include "api/data/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"

static void bool_write(struct api_text *text, enum st_dtype dtype, union st_scalar scalar)
{
    api_json_bool(text, NULL, st_dtype_to_int64(dtype, scalar) != 0);
}

static void unsigned_write(struct api_text *text, enum st_dtype dtype, union st_scalar scalar)
{
    uint64_t value = (uint64_t)st_dtype_to_int64(dtype, scalar);
    if (value <= ST_JSON_INTEGER_MAX) {
        api_json_uint(text, NULL, value);
        return;
    }
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    api_json_string(text, NULL, digits);
}

static void signed_write(struct api_text *text, enum st_dtype dtype, union st_scalar scalar)
{
    int64_t value = st_dtype_to_int64(dtype, scalar);
    if (value >= -ST_JSON_INTEGER_MAX && value <= ST_JSON_INTEGER_MAX) {
        api_json_int(text, NULL, value);
        return;
    }
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRId64, value);
    api_json_string(text, NULL, digits);
}

static void float_write(struct api_text *text, enum st_dtype dtype, union st_scalar scalar)
{
    api_json_double(text, NULL, st_dtype_to_double(dtype, scalar));
}

void data_values_write(struct api_text *text, const char *key, enum st_dtype dtype,
                       const unsigned char *data, uint64_t count)
{
    static void (*const writes[])(struct api_text *, enum st_dtype, union st_scalar) = {
        [ST_KIND_BOOL] = bool_write,
        [ST_KIND_UNSIGNED] = unsigned_write,
        [ST_KIND_SIGNED] = signed_write,
        [ST_KIND_FLOAT] = float_write,
    };
    const struct st_dtype_info *info = st_dtype_info(dtype);
    api_json_begin_array(text, key);
    for (uint64_t i = 0; i < count; i++) {
        union st_scalar scalar = {.bits = 0};
        memcpy(scalar.bytes, data + i * info->size_bytes, info->size_bytes);
        writes[info->kind](text, dtype, scalar);
    }
    api_json_end_array(text);
}
