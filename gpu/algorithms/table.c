#include <string.h>

#include "gpu/algorithms/algorithm.h"

/* In order of preference. */
const struct gpu_algorithm *const gpu_algorithms[] = {
    &gpu_two_shot, &gpu_one_shot, &gpu_copy_engine, &gpu_nvls, NULL,
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
