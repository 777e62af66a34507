#include "gpu/collectives/collectives.h"

/** All inputs, reduced, to the root's output. */
static struct gpu_movement reduce_movement(const struct gpu_collective_shape *shape, uint32_t index)
{
    (void)index;
    return (struct gpu_movement){
        .count = shape->slice_count,
        .source_rank = GPU_RANK_ALL,
        .destination_rank = (uint16_t)shape->root,
        .kind = GPU_MOVEMENT_REDUCE,
    };
}

static uint32_t reduce_movements(const struct gpu_collective_shape *shape, uint32_t first,
                                 uint32_t max, struct gpu_movement *ret)
{
    return gpu_movements_write(shape, 1, first, max, ret, reduce_movement);
}

const struct gpu_collective gpu_reduce = {
    .name = "reduce",
    .summary = "The root's output is the reduction of all ranks' inputs.",
    .rule = GPU_SHAPE_EQUAL,
    .reduces = true,
    .rooted = true,
    .reads = GPU_SIDE_ALL,
    .writes = GPU_SIDE_ROOT,
    .movements = reduce_movements,
    .bus_factor = gpu_bus_factor_whole,
};
