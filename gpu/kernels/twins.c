#include <stdatomic.h>
#include <string.h>

#include "gpu/kernels/twin_table.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

const struct gpu_twin *const gpu_twins[] = {
    &gpu_twin_move, &gpu_twin_multicast, &gpu_twin_fill, &gpu_twin_permute, NULL,
};

const struct gpu_twin *gpu_twin_find(const char *name)
{
    for (const struct gpu_twin *const *twin = gpu_twins; *twin; twin++) {
        if (strcmp((*twin)->name, name) == 0) {
            return *twin;
        }
    }
    return NULL;
}

void gpu_twin_publish(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}
