#include "gpu/collectives/collectives.h"

/** The root's input to every output. */
static struct gpu_movement broadcast_movement(const struct gpu_collective_shape *shape,
                                              uint32_t index)
{
    (void)index;
    return (struct gpu_movement){
        .count = shape->slice_count,
        .source_rank = (uint16_t)shape->root,
        .destination_rank = GPU_RANK_ALL,
        .kind = GPU_MOVEMENT_COPY,
    };
}

static uint32_t broadcast_movements(const struct gpu_collective_shape *shape, uint32_t first,
                                    uint32_t max, struct gpu_movement *ret)
{
    return gpu_movements_write(shape, 1, first, max, ret, broadcast_movement);
}

const struct gpu_collective gpu_broadcast = {
    .name = "broadcast",
    .summary = "Every rank's output is the root's input.",
    .rule = GPU_SHAPE_EQUAL,
    .reduces = false,
    .rooted = true,
    .reads = GPU_SIDE_ROOT,
    .writes = GPU_SIDE_ALL,
    .movements = broadcast_movements,
    .bus_factor = gpu_bus_factor_whole,
};
