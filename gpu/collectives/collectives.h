#ifndef SYMTENSOR_GPU_COLLECTIVES_COLLECTIVES_H
#define SYMTENSOR_GPU_COLLECTIVES_COLLECTIVES_H

#include "gpu/collective.h"

/** The rows: gpu_NAME, defined in NAME.c. In the order of the documentation. */
#define GPU_COLLECTIVES(X)                                                                         \
    X(broadcast)                                                                                   \
    X(reduce)                                                                                      \
    X(all_reduce)                                                                                  \
    X(all_gather)                                                                                  \
    X(reduce_scatter)                                                                              \
    X(gather)                                                                                      \
    X(scatter)                                                                                     \
    X(all_to_all)

#define X(name) extern const struct gpu_collective gpu_##name;
GPU_COLLECTIVES(X)
#undef X

/*
 * What the files share. A slice is slice_count elements; slice r of a larger side begins at element
 * r * slice_count.
 */

/**
 * Write movements [first, first + max) of a list of @p total, made one by one.
 * @param make movement @p index, which is < total.
 * @return how many were written.
 */
uint32_t gpu_movements_write(const struct gpu_collective_shape *shape, uint32_t total,
                             uint32_t first, uint32_t max, struct gpu_movement *ret,
                             struct gpu_movement (*make)(const struct gpu_collective_shape *shape,
                                                         uint32_t index));

/** (w - 1) / w: what nccl-tests uses where each rank sends or receives all but its own slice. */
double gpu_bus_factor_sliced(uint32_t world_size);
/** 1. */
double gpu_bus_factor_whole(uint32_t world_size);

#endif
