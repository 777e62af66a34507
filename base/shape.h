#ifndef SYMTENSOR_BASE_SHAPE_H
#define SYMTENSOR_BASE_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"

/** A shape, outermost dimension first. rank 0 is a scalar; a dimension of 0 is allowed. */
struct st_shape {
    uint32_t rank;
    int64_t dims[ST_SHAPE_RANK_MAX];
};

/** Strides in elements, one for each dimension of a shape. */
struct st_strides {
    int64_t dims[ST_SHAPE_RANK_MAX];
};

/**
 * Number of elements and bytes; checked for overflow (limit 2^53-1 bytes, a zero dimension does not
 * hide an overflow of the others).
 * @retval ST_INVALID_ARGUMENT reason SHAPE_OVERFLOW, or INVALID_VALUE for a negative dimension or
 *         more than ST_SHAPE_RANK_MAX of them; the field is "shape" or "shape[i]".
 */
ST_MUST_CHECK enum st_status st_shape_measure(const struct st_shape *shape, enum st_dtype dtype,
                                              uint64_t *ret_elements, uint64_t *ret_bytes,
                                              struct st_error *err);
/**
 * Row-major strides of @p shape; a zero dimension counts as 1. This and the functions below expect
 * a shape that st_shape_measure() has accepted. Thread: any.
 */
void st_shape_row_major(const struct st_shape *shape, struct st_strides *ret_strides);
/** Whether strides are row-major (dimensions of extent 1 do not count; an empty shape always is).
 */
bool st_shape_is_row_major(const struct st_shape *shape, const struct st_strides *strides);
/** Whether strides are a dense permutation: no gap, no overlap. */
bool st_shape_is_dense(const struct st_shape *shape, const struct st_strides *strides);
bool st_shape_equal(const struct st_shape *a, const struct st_shape *b);
bool st_strides_equal(const struct st_shape *shape, const struct st_strides *a,
                      const struct st_strides *b);
/** "[2, 3]". @return @p buffer. */
const char *st_shape_format(const struct st_shape *shape, char buffer[static 200]);
/** Memory offset, in elements, of the row-major logical index @p index. */
uint64_t st_shape_offset(const struct st_shape *shape, const struct st_strides *strides,
                         uint64_t index);

#endif
