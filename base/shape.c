#include "base/shape.h"

#include <stdio.h>
#include <string.h>

/** A zero dimension counts as 1 wherever extents are multiplied, so that it hides no overflow. */
static int64_t shape_extent(const struct st_shape *shape, uint32_t dim)
{
    return shape->dims[dim] == 0 ? 1 : shape->dims[dim];
}

static bool shape_is_empty(const struct st_shape *shape)
{
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == 0) {
            return true;
        }
    }
    return false;
}

enum st_status st_shape_measure(const struct st_shape *shape, enum st_dtype dtype,
                                uint64_t *ret_elements, uint64_t *ret_bytes, struct st_error *err)
{
    if (shape->rank > ST_SHAPE_RANK_MAX) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "shape", "must have at most %d dimensions",
                       ST_SHAPE_RANK_MAX);
    }
    uint64_t elements = 1;
    bool overflow = false;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0) {
            char field[32];
            snprintf(field, sizeof(field), "shape[%u]", i);
            return st_fail(err, ST_REASON_INVALID_VALUE, field, "must not be negative, is %lld",
                           (long long)shape->dims[i]);
        }
        overflow |= __builtin_mul_overflow(elements, (uint64_t)shape_extent(shape, i), &elements);
    }
    uint64_t bytes;
    overflow |= __builtin_mul_overflow(elements, st_dtype_info(dtype)->size_bytes, &bytes);
    if (overflow || bytes > (uint64_t)ST_JSON_INTEGER_MAX) {
        return st_fail(err, ST_REASON_SHAPE_OVERFLOW, "shape",
                       "the dimensions multiply to more than %lld bytes", ST_JSON_INTEGER_MAX);
    }
    bool empty = shape_is_empty(shape);
    *ret_elements = empty ? 0 : elements;
    *ret_bytes = empty ? 0 : bytes;
    return ST_OK;
}

void st_shape_row_major(const struct st_shape *shape, struct st_strides *ret_strides)
{
    int64_t stride = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        ret_strides->dims[i] = stride;
        stride *= shape_extent(shape, i);
    }
}

bool st_shape_is_row_major(const struct st_shape *shape, const struct st_strides *strides)
{
    if (shape_is_empty(shape)) {
        return true;
    }
    int64_t expected = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        if (shape->dims[i] == 1) {
            continue;
        }
        if (strides->dims[i] != expected) {
            return false;
        }
        expected *= shape->dims[i];
    }
    return true;
}

/** The dimension, not yet in @p used, whose elements lie @p stride apart; rank when there is none.
 */
static uint32_t shape_find_stride(const struct st_shape *shape, const struct st_strides *strides,
                                  int64_t stride, unsigned used)
{
    for (uint32_t i = 0; i < shape->rank; i++) {
        if ((used & (1u << i)) == 0 && strides->dims[i] == stride) {
            return i;
        }
    }
    return shape->rank;
}

bool st_shape_is_dense(const struct st_shape *shape, const struct st_strides *strides)
{
    if (shape_is_empty(shape)) {
        return true;
    }
    /* Dense means: from the innermost outwards, each stride is the number of elements inside it. */
    unsigned used = 0;
    uint32_t left = shape->rank;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == 1) {
            used |= 1u << i;
            left--;
        }
    }
    int64_t inside = 1;
    for (; left > 0; left--) {
        uint32_t dim = shape_find_stride(shape, strides, inside, used);
        if (dim == shape->rank) {
            return false;
        }
        used |= 1u << dim;
        inside *= shape->dims[dim];
    }
    return true;
}

bool st_shape_equal(const struct st_shape *a, const struct st_shape *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

bool st_strides_equal(const struct st_shape *shape, const struct st_strides *a,
                      const struct st_strides *b)
{
    return memcmp(a->dims, b->dims, shape->rank * sizeof(a->dims[0])) == 0;
}

const char *st_shape_format(const struct st_shape *shape, char buffer[static 200])
{
    size_t length = 0;
    buffer[length++] = '[';
    for (uint32_t i = 0; i < shape->rank; i++) {
        length += (size_t)snprintf(buffer + length, 200 - length, "%s%lld", i ? ", " : "",
                                   (long long)shape->dims[i]);
    }
    buffer[length++] = ']';
    buffer[length] = '\0';
    return buffer;
}

uint64_t st_shape_offset(const struct st_shape *shape, const struct st_strides *strides,
                         uint64_t index)
{
    uint64_t offset = 0;
    for (uint32_t i = shape->rank; i-- > 0;) {
        uint64_t extent = (uint64_t)shape_extent(shape, i);
        offset += index % extent * (uint64_t)strides->dims[i];
        index /= extent;
    }
    return offset;
}
