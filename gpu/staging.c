#include "gpu/device.h"

/* Pinned buffers: made when first needed, one driver call each, and kept for the next transfer. */

/** Take a free buffer; or, when none is, the right to make one. @return NULL and false: @p limit
 * are out. */
static void *staging_take(struct gpu *gpu, uint32_t limit, bool *ret_make)
{
    void *buffer = NULL;
    pthread_mutex_lock(&gpu->staging_lock);
    bool may = gpu->staging_out < limit;
    if (may && gpu->staging_free_count > 0) {
        buffer = gpu->staging_free[--gpu->staging_free_count];
    }
    *ret_make = may && !buffer;
    gpu->staging_out += may;
    pthread_mutex_unlock(&gpu->staging_lock);
    return buffer;
}

/** Any context will do: the buffers are for all of them. */
static void *staging_make(struct gpu *gpu)
{
    struct gpu_device *device = gpu_device_any(gpu);
    struct st_error unused;
    void *buffer = NULL;
    if (device && gpu_device_enter(device, &unused) == ST_OK &&
        gpu->driver->cuMemHostAlloc(&buffer, ST_STAGING_BYTES,
                                    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
            CUDA_SUCCESS) {
        buffer = NULL;
    }
    return buffer;
}

static void *staging_acquire(struct gpu *gpu, uint32_t limit)
{
    bool make = false;
    void *buffer = staging_take(gpu, limit, &make);
    if (!make) {
        return buffer;
    }
    buffer = staging_make(gpu);
    pthread_mutex_lock(&gpu->staging_lock);
    if (buffer) {
        gpu->staging_made[gpu->staging_made_count++] = buffer;
    } else {
        gpu->staging_out--;
    }
    pthread_mutex_unlock(&gpu->staging_lock);
    return buffer;
}

void *gpu_staging_acquire(struct gpu *gpu)
{
    return staging_acquire(gpu, ST_STAGING_BUFFERS_MAX);
}

void *gpu_staging_acquire_for_copy(struct gpu *gpu)
{
    return staging_acquire(gpu, GPU_STAGING_MAX);
}

void gpu_staging_release(struct gpu *gpu, void *buffer)
{
    pthread_mutex_lock(&gpu->staging_lock);
    gpu->staging_free[gpu->staging_free_count++] = buffer;
    gpu->staging_out--;
    pthread_mutex_unlock(&gpu->staging_lock);
}

void gpu_staging_close(struct gpu *gpu)
{
    struct gpu_device *device = gpu_device_any(gpu);
    if (device && gpu->staging_made_count > 0) {
        gpu_device_enter_teardown(device);
    }
    for (uint32_t i = 0; i < gpu->staging_made_count; i++) {
        gpu->driver->cuMemFreeHost(gpu->staging_made[i]);
    }
    gpu->staging_made_count = 0;
    gpu->staging_free_count = 0;
}
