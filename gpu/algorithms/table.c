#include <string.h>

#include "gpu/algorithms/algorithm.h"

const struct gpu_algorithm *const gpu_algorithms[] = {
#define X(name) &gpu_##name,
    GPU_ALGORITHMS(X)
#undef X
        NULL,
};

const struct gpu_algorithm *gpu_algorithm_find(const char *name)
{
    for (size_t i = 0; gpu_algorithms[i]; i++) {
        if (strcmp(gpu_algorithms[i]->name, name) == 0) {
            return gpu_algorithms[i];
        }
    }
    return NULL;
}
