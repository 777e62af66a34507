#include "gpu/collectives/collectives.h"

/** Slice index of all inputs, reduced, to rank index; in place it stays at its offset. */
static struct gpu_movement reduce_scatter_movement(const struct gpu_collective_shape *shape,
                                                   uint32_t index)
{
    uint64_t slice = index * shape->slice_count;
    return (struct gpu_movement){
        .source_offset = slice,
        .destination_offset = shape->in_place ? slice : 0,
        .count = shape->slice_count,
        .source_rank = GPU_RANK_ALL,
        .destination_rank = (uint16_t)index,
        .kind = GPU_MOVEMENT_REDUCE,
    };
}

static uint32_t reduce_scatter_movements(const struct gpu_collective_shape *shape, uint32_t first,
                                         uint32_t max, struct gpu_movement *ret)
{
    return gpu_movements_write(shape, shape->world_size, first, max, ret, reduce_scatter_movement);
}

const struct gpu_collective gpu_reduce_scatter = {
    .name = "reduce_scatter",
    .summary = "Rank r's output is slice r of the reduction of all ranks' inputs.",
    .rule = GPU_SHAPE_SCATTERED,
    .reduces = true,
    .rooted = false,
    .reads = GPU_SIDE_ALL,
    .writes = GPU_SIDE_ALL,
    .movements = reduce_scatter_movements,
    .bus_factor = gpu_bus_factor_sliced,
};
