#include "gpu/collectives/collectives.h"

/** Each byte crosses the bus once to be reduced and once to be handed out. */
static double all_reduce_bus_factor(uint32_t world_size)
{
    return 2.0 * gpu_bus_factor_sliced(world_size);
}

/** All inputs, reduced, to every output. */
static struct gpu_movement all_reduce_movement(const struct gpu_collective_shape *shape,
                                               uint32_t index)
{
    (void)index;
    return (struct gpu_movement){
        .count = shape->slice_count,
        .source_rank = GPU_RANK_ALL,
        .destination_rank = GPU_RANK_ALL,
        .kind = GPU_MOVEMENT_REDUCE,
    };
}

static uint32_t all_reduce_movements(const struct gpu_collective_shape *shape, uint32_t first,
                                     uint32_t max, struct gpu_movement *ret)
{
    return gpu_movements_write(shape, 1, first, max, ret, all_reduce_movement);
}

const struct gpu_collective gpu_all_reduce = {
    .name = "all_reduce",
    .summary = "Every rank's output is the reduction of all ranks' inputs.",
    .rule = GPU_SHAPE_EQUAL,
    .reduces = true,
    .rooted = false,
    .reads = GPU_SIDE_ALL,
    .writes = GPU_SIDE_ALL,
    .movements = all_reduce_movements,
    .bus_factor = all_reduce_bus_factor,
};
