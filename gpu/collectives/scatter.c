#include "gpu/collectives/collectives.h"

/** Slice index of the root's input to rank index; in place it stays at its offset. */
static struct gpu_movement scatter_movement(const struct gpu_collective_shape *shape,
                                            uint32_t index)
{
    uint64_t slice = index * shape->slice_count;
    return (struct gpu_movement){
        .source_offset = slice,
        .destination_offset = shape->in_place ? slice : 0,
        .count = shape->slice_count,
        .source_rank = (uint16_t)shape->root,
        .destination_rank = (uint16_t)index,
        .kind = GPU_MOVEMENT_COPY,
    };
}

static uint32_t scatter_movements(const struct gpu_collective_shape *shape, uint32_t first,
                                  uint32_t max, struct gpu_movement *ret)
{
    return gpu_movements_write(shape, shape->world_size, first, max, ret, scatter_movement);
}

const struct gpu_collective gpu_scatter = {
    .name = "scatter",
    .summary = "Rank r's output is slice r of the root's input.",
    .rule = GPU_SHAPE_SCATTERED,
    .reduces = false,
    .rooted = true,
    .reads = GPU_SIDE_ROOT,
    .writes = GPU_SIDE_ALL,
    .movements = scatter_movements,
    .bus_factor = gpu_bus_factor_sliced,
};
