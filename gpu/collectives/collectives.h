#ifndef SYMTENSOR_GPU_COLLECTIVES_COLLECTIVES_H
#define SYMTENSOR_GPU_COLLECTIVES_COLLECTIVES_H

#include "gpu/collective.h"

/**
 * The rows, each defined in the file of its name, and what their files share. A slice is
 * slice_count elements; slice r of a larger side begins at element r * slice_count.
 */
extern const struct gpu_collective gpu_all_gather, gpu_all_reduce, gpu_all_to_all, gpu_broadcast,
    gpu_gather, gpu_reduce, gpu_reduce_scatter, gpu_scatter;

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
