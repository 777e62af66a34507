#include "gpu/collectives/collectives.h"

/** Slice d of rank s's input to slice s of rank d's output. */
static struct gpu_movement all_to_all_copy(const struct gpu_collective_shape *shape, uint32_t index)
{
    uint32_t source = index / shape->world_size;
    uint32_t destination = index % shape->world_size;
    return (struct gpu_movement){
        .source_offset = destination * shape->slice_count,
        .destination_offset = source * shape->slice_count,
        .count = shape->slice_count,
        .source_rank = (uint16_t)source,
        .destination_rank = (uint16_t)destination,
        .kind = GPU_MOVEMENT_COPY,
    };
}

/** In place: slice d of rank s for slice s of rank d, once for each pair s < d. */
static struct gpu_movement all_to_all_exchange(const struct gpu_collective_shape *shape,
                                               uint32_t index)
{
    uint32_t source = 0;
    uint32_t pairs = shape->world_size - 1; /* of rank source with those above it */
    while (index >= pairs) {
        index -= pairs;
        source++;
        pairs--;
    }
    uint32_t destination = source + 1 + index;
    return (struct gpu_movement){
        .source_offset = destination * shape->slice_count,
        .destination_offset = source * shape->slice_count,
        .count = shape->slice_count,
        .source_rank = (uint16_t)source,
        .destination_rank = (uint16_t)destination,
        .kind = GPU_MOVEMENT_EXCHANGE,
    };
}

static uint32_t all_to_all_movements(const struct gpu_collective_shape *shape, uint32_t first,
                                     uint32_t max, struct gpu_movement *ret)
{
    uint32_t w = shape->world_size;
    return shape->in_place
               ? gpu_movements_write(shape, w * (w - 1) / 2, first, max, ret, all_to_all_exchange)
               : gpu_movements_write(shape, w * w, first, max, ret, all_to_all_copy);
}

const struct gpu_collective gpu_all_to_all = {
    .name = "all_to_all",
    .summary = "Slice s of rank d's output is slice d of rank s's input.",
    .rule = GPU_SHAPE_SLICED,
    .reduces = false,
    .rooted = false,
    .reads = GPU_SIDE_ALL,
    .writes = GPU_SIDE_ALL,
    .movements = all_to_all_movements,
    .bus_factor = gpu_bus_factor_sliced,
};
