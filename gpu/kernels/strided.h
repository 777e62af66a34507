#ifndef SYMTENSOR_GPU_KERNELS_STRIDED_H
#define SYMTENSOR_GPU_KERNELS_STRIDED_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/kernels/params.h"

#define STRIDED_DIMS_MAX 8u

/**
 * Whether dims and strides are a dense permutation of exactly @p count elements. Anything may be in
 * the arrays; a product that overflows is not dense.
 */
bool strided_is_dense(const int64_t *dims, const int64_t *strides, uint32_t dims_count,
                      uint64_t count);

/**
 * A walk over a multi-dimensional range, outermost dimension first, that keeps value = the sum of
 * coordinate * step. It goes in runs along the innermost dimension.
 */
struct strided_walk {
    uint32_t rank; /**< >= 1; dimensions of 1 are gone, ones that run into each other are one. */
    uint64_t dims[STRIDED_DIMS_MAX];
    uint64_t steps[STRIDED_DIMS_MAX];
    uint64_t coordinates[STRIDED_DIMS_MAX];
    uint64_t value; /**< At the current position; wraps like the steps. */
};

/**
 * Begin a walk at @p position, counted in elements in the walk's own order.
 * @param dims  [dims_count] each >= 1; @param steps [dims_count]
 */
void strided_walk_init(struct strided_walk *walk, const int64_t *dims, const int64_t *steps,
                       uint32_t dims_count, uint64_t position);
/** A walk in the order of memory whose value is the row-major logical index of the element there.
 */
void strided_walk_init_memory(struct strided_walk *walk, const int64_t *dims,
                              const int64_t *strides, uint32_t dims_count, uint64_t position);
/** Elements from here to the end of the run; from one to the next, value grows by steps[rank - 1].
 */
static inline uint64_t strided_walk_run(const struct strided_walk *walk)
{
    return walk->dims[walk->rank - 1] - walk->coordinates[walk->rank - 1];
}
/** Go on by @p count elements, at most what strided_walk_run() says. */
void strided_walk_advance(struct strided_walk *walk, uint64_t count);

#endif
