#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/software/internal.h"

/* Pinned host memory: ordinary pages, present from the start, that every device may access. */

#define HOST_FLAGS                                                                                 \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)

void software_host_free(struct software_range *range)
{
    munmap((void *)(uintptr_t)range->address, range->bytes);
    software.host_allocations--;
    free(range);
}

CUresult software_cuMemHostAlloc(void **host, size_t bytes, unsigned flags)
{
    struct software_context *context;
    CUresult result = software_enter_context(&context);
    if (result) {
        return result;
    }
    uint64_t rounded;
    if (!host || bytes == 0 || (flags & ~(unsigned)HOST_FLAGS) ||
        !st_size_round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE), &rounded)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_range *range = calloc(1, sizeof(*range));
    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *pages = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (pages == MAP_FAILED) {
        free(range);
        return software_errno_result(errno);
    }
    range->address = (uintptr_t)pages;
    range->bytes = rounded;
    range->kind = SOFTWARE_RANGE_HOST;
    range->readable = UINT64_MAX;
    range->writable = UINT64_MAX;
    pthread_mutex_lock(&software.memory_lock);
    software.host_allocations++;
    if (!software_range_insert(range)) {
        software_host_free(range);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&software.memory_lock);
    if (!result) {
        *host = pages;
    }
    return result;
}

CUresult software_cuMemFreeHost(void *host)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.memory_lock);
    struct software_range *range = software_intervals_find(&software.ranges, (uintptr_t)host, 1);
    if (!range || range->kind != SOFTWARE_RANGE_HOST || range->address != (uintptr_t)host ||
        !software_range_remove(range)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        software_host_free(range);
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}
