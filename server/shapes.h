#ifndef SYMTENSOR_SERVER_SHAPES_H
#define SYMTENSOR_SERVER_SHAPES_H

#include "base/shape.h"
#include "gpu/collective.h"

/** Whether two tensors fit a collective. Pure. Thread: any. Blocks: never. */

/** What counts about one side. */
struct server_side {
    enum st_dtype dtype;
    struct st_shape shape;
    struct st_strides strides; /**< A dense permutation. */
};

/**
 * Check the sides of a collective over @p world_size ranks.
 *
 * Equal shapes, or the larger side [world_size * d0, ...] or [world_size, d0, ...] of a smaller
 * [d0, ...], as collective->rule says. In place the tensor is the larger side and rank r works on
 * slice r. Strides are equal where the shapes are, and row-major where they differ; slices of one
 * tensor must be contiguous, so that its first dimension is the outermost in memory.
 *
 * @param output          NULL: in place.
 * @param ret_slice_count elements of the smaller side (gpu_collective_shape.slice_count).
 * @retval ST_INVALID_ARGUMENT DTYPE_MISMATCH or SHAPE_MISMATCH; the field is "output", or "tensor"
 * in place; detail "expected" where one shape would fit.
 */
ST_MUST_CHECK enum st_status server_shapes_check(const struct gpu_collective *collective,
                                                 uint32_t world_size,
                                                 const struct server_side *input,
                                                 const struct server_side *output,
                                                 uint64_t *ret_slice_count, struct st_error *err);

#endif
