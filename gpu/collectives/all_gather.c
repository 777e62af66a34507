#include "gpu/collectives/collectives.h"

/** Rank index's slice to every output; in place it lies where it belongs. */
static struct gpu_movement all_gather_movement(const struct gpu_collective_shape *shape,
                                               uint32_t index)
{
    uint64_t slice = index * shape->slice_count;
    return (struct gpu_movement){
        .source_offset = shape->in_place ? slice : 0,
        .destination_offset = slice,
        .count = shape->slice_count,
        .source_rank = (uint16_t)index,
        .destination_rank = GPU_RANK_ALL,
        .kind = GPU_MOVEMENT_COPY,
    };
}

static uint32_t all_gather_movements(const struct gpu_collective_shape *shape, uint32_t first,
                                     uint32_t max, struct gpu_movement *ret)
{
    return gpu_movements_write(shape, shape->world_size, first, max, ret, all_gather_movement);
}

const struct gpu_collective gpu_all_gather = {
    .name = "all_gather",
    .summary = "Slice r of every rank's output is rank r's input.",
    .rule = GPU_SHAPE_GATHERED,
    .reduces = false,
    .rooted = false,
    .reads = GPU_SIDE_ALL,
    .writes = GPU_SIDE_ALL,
    .movements = all_gather_movements,
    .bus_factor = gpu_bus_factor_sliced,
};
