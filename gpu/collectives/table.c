#include <string.h>

#include "gpu/collectives/collectives.h"

const struct gpu_collective *const gpu_collectives[] = {
#define X(name) &gpu_##name,
    GPU_COLLECTIVES(X)
#undef X
        NULL,
};

const struct gpu_collective *gpu_collective_find(const char *name)
{
    for (size_t i = 0; gpu_collectives[i]; i++) {
        if (strcmp(gpu_collectives[i]->name, name) == 0) {
            return gpu_collectives[i];
        }
    }
    return NULL;
}

uint64_t gpu_collective_large_count(const struct gpu_collective *collective,
                                    const struct gpu_collective_shape *shape)
{
    return collective->rule == GPU_SHAPE_EQUAL ? shape->slice_count
                                               : shape->slice_count * shape->world_size;
}

uint32_t gpu_movements_write(const struct gpu_collective_shape *shape, uint32_t total,
                             uint32_t first, uint32_t max, struct gpu_movement *ret,
                             struct gpu_movement (*make)(const struct gpu_collective_shape *shape,
                                                         uint32_t index))
{
    uint32_t count = 0;
    while (count < max && first < total && count < total - first) {
        ret[count] = make(shape, first + count);
        count++;
    }
    return count;
}

double gpu_bus_factor_sliced(uint32_t world_size)
{
    return (double)(world_size - 1) / world_size;
}

double gpu_bus_factor_whole(uint32_t world_size)
{
    (void)world_size;
    return 1.0;
}
