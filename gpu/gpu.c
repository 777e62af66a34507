#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "gpu/cuda/cuda.h"
#include "gpu/device.h"
#include "gpu/job.h"
#include "gpu/kernels/image.h"
#include "gpu/multicast.h"
#include "gpu/software/software.h"

#define GPU_NVLS_SLOTS_DEFAULT 16u
#define GPU_MULTICAST_DRIVER_MIN 12010 /* cuMulticastCreate came with CUDA 12.1 */

/* ---------------------------------------------------------------- drivers that can be opened */

static enum st_status backend_open_cuda(const struct gpu_options *options,
                                        const struct gpu_driver **ret_driver, struct st_error *err)
{
    (void)options;
    return gpu_cuda_open(&(struct gpu_cuda_options){0}, ret_driver, err);
}

static enum st_status backend_open_software(const struct gpu_options *options,
                                            const struct gpu_driver **ret_driver,
                                            struct st_error *err)
{
    const struct gpu_software_options software = {
        .device_count = options->software_devices,
        .memory_bytes = options->software_memory_bytes,
    };
    enum st_status status = gpu_software_check_room(&software, err);
    return status == ST_OK ? gpu_software_open(&software, ret_driver, err) : status;
}

static enum st_status backend_fail_init(CUresult result, struct st_error *err)
{
    return gpu_result_fail(NULL, GPU_CALL_cuInit, result, err);
}

/** In the order in which AUTO tries them; the next one is tried when one answers NO_DRIVER. */
static const struct gpu_backend gpu_backends[] = {
    {
        .choice = GPU_DRIVER_CUDA,
        .open = backend_open_cuda,
        .close = gpu_cuda_close,
        .fail_init = gpu_cuda_init_fail,
        .kernel_image = gpu_kernel_image,
        .memory_is_zeroed = false,
        .kernels_may_wait = true,
        .calls_may_block = true,
        /* A launch on one device more costs some 3 us, in which NVLink moves this much. */
        .small_traffic_bytes = ST_MIB,
        .graph_after = 1,
    },
    {
        .choice = GPU_DRIVER_SOFTWARE,
        .open = backend_open_software,
        .close = gpu_software_close,
        .fail_init = backend_fail_init,
        .kernel_image = "symtensor", /* twins are found by name alone */
        .memory_is_zeroed = true,
        .kernels_may_wait = false,
        .calls_may_block = false,
        /* Handing work to another thread costs what one core moves in this many bytes. */
        .small_traffic_bytes = 256 * ST_KIB,
    },
};

/** Initialise the driver that is open. */
static enum st_status backend_start(struct gpu *gpu, struct st_error *err)
{
    CUresult result = gpu->driver->cuInit(0);
    if (result != CUDA_SUCCESS) {
        return gpu->backend->fail_init(result, err);
    }
    result = gpu->driver->cuDriverGetVersion(&gpu->driver_version);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(NULL, GPU_CALL_cuDriverGetVersion, result, err);
    }
    return ST_OK;
}

static void backend_close(struct gpu *gpu)
{
    gpu_devices_close(gpu);
    gpu->backend->close();
    gpu->backend = NULL;
    gpu->driver = NULL;
}

/** Open the driver of one row and its devices; a driver without a device that will do is none. */
static enum st_status backend_open(struct gpu *gpu, const struct gpu_backend *backend,
                                   struct st_error *err)
{
    const struct gpu_driver *driver = NULL;
    enum st_status status = backend->open(&gpu->options, &driver, err);
    if (status != ST_OK) {
        return status;
    }
    gpu->backend = backend;
    gpu->driver = gpu_faults_wrap(driver);
    status = backend_start(gpu, err);
    status = status == ST_OK ? gpu_devices_open(gpu, err) : status;
    if (status != ST_OK) {
        backend_close(gpu);
    }
    return status;
}

static enum st_status backend_choose(struct gpu *gpu, struct st_error *err)
{
    enum gpu_driver_choice choice = gpu->options.driver;
    enum st_status status = ST_OK;
    if (!gpu_faults_parse(getenv("SYMTENSOR_FAULTS"), err)) {
        return ST_INVALID_ARGUMENT;
    }
    for (size_t i = 0; i < sizeof(gpu_backends) / sizeof(gpu_backends[0]); i++) {
        if (choice != GPU_DRIVER_AUTO && choice != gpu_backends[i].choice) {
            continue;
        }
        if (status != ST_OK) {
            st_log_error(ST_LOG_WARNING, "no device of one driver, trying the next", err);
        }
        struct st_error why = {0};
        status = backend_open(gpu, &gpu_backends[i], &why);
        if (status == ST_OK) {
            return ST_OK;
        }
        *err = why;
        if (why.reason != ST_REASON_NO_DRIVER) {
            return status;
        }
    }
    return status;
}

/* ---------------------------------------------------------------- open and close */

static void gpu_init(struct gpu *gpu, const struct gpu_options *options)
{
    gpu->options = *options;
    gpu->options.nvls_slots = options->nvls_slots ? options->nvls_slots : GPU_NVLS_SLOTS_DEFAULT;
    const char *nccl = getenv("NCCL_NVLS_ENABLE");
    if (nccl && strcmp(nccl, "0") == 0) {
        gpu->options.nvls = GPU_NVLS_OFF;
    }
    pthread_mutex_init(&gpu->multicast_lock, NULL);
    pthread_mutex_init(&gpu->jobs_lock, NULL);
    pthread_cond_init(&gpu->jobs_ended, NULL);
    pthread_mutex_init(&gpu->staging_lock, NULL);
    pthread_mutex_init(&gpu->state_lock, NULL);
    pthread_mutex_init(&gpu->graphs_lock, NULL);
}

/** Why no group of this node can have multicast, whatever its ranks. */
static enum gpu_multicast_reason gpu_judge_multicast(const struct gpu *gpu)
{
    if (gpu->options.nvls == GPU_NVLS_OFF) {
        return GPU_MULTICAST_DISABLED_BY_CONFIG;
    }
    if (gpu->driver_version < GPU_MULTICAST_DRIVER_MIN) {
        return GPU_MULTICAST_DRIVER_TOO_OLD;
    }
    if (gpu->device_count < 2) {
        return GPU_MULTICAST_SINGLE_RANK;
    }
    uint32_t able = 0, loaded = 0;
    for (uint32_t i = 0; i < gpu->device_count; i++) {
        able += gpu->devices[i].info.multicast_granularity_minimum_bytes > 0;
        loaded += gpu->devices[i].kernels;
    }
    if (able < 2) {
        return GPU_MULTICAST_NOT_SUPPORTED_BY_DEVICE;
    }
    return loaded < 2 ? GPU_MULTICAST_NO_KERNELS : GPU_MULTICAST_NONE;
}

/** See struct gpu_backend.graph_after. */
static uint32_t gpu_judge_graphs(const struct gpu *gpu)
{
    static const uint32_t when_on = 1;
    switch (gpu->options.graphs) {
    case GPU_GRAPHS_ON:
        return when_on;
    case GPU_GRAPHS_OFF:
        return 0;
    default:
        return gpu->backend->graph_after;
    }
}

enum st_status gpu_open(const struct gpu_options *options, struct gpu **ret_gpu,
                        struct st_error *err)
{
    struct st_error unused;
    err = err ? err : &unused;
    struct gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the devices");
    }
    gpu_init(gpu, options);
    enum st_status status = backend_choose(gpu, err);
    status = status == ST_OK ? gpu_jobs_start_watch(gpu, err) : status;
    if (status != ST_OK) {
        gpu_close(gpu);
        return status;
    }
    gpu->multicast_reason = gpu_judge_multicast(gpu);
    gpu->graph_after = gpu_judge_graphs(gpu);
    *ret_gpu = gpu;
    return ST_OK;
}

void gpu_close(struct gpu *gpu)
{
    if (!gpu) {
        return;
    }
    gpu_jobs_stop_watch(gpu);
    if (gpu->backend) {
        gpu_staging_close(gpu);
        backend_close(gpu);
    }
    gpu_jobs_free_lost(gpu);
    pthread_mutex_destroy(&gpu->graphs_lock);
    pthread_mutex_destroy(&gpu->state_lock);
    pthread_mutex_destroy(&gpu->staging_lock);
    pthread_cond_destroy(&gpu->jobs_ended);
    pthread_mutex_destroy(&gpu->jobs_lock);
    pthread_mutex_destroy(&gpu->multicast_lock);
    free(gpu);
}

/* ---------------------------------------------------------------- what the node can do */

const char *gpu_multicast_reason_name(enum gpu_multicast_reason reason)
{
    static const char *const names[GPU_MULTICAST_REASON_COUNT] = {
#define X(name, text, meaning) text,
        GPU_MULTICAST_REASONS(X)
#undef X
    };
    return names[reason];
}

void gpu_capabilities(const struct gpu *gpu, struct gpu_capabilities *ret)
{
    *ret = (struct gpu_capabilities){
        .driver = gpu->driver->name,
        .driver_version = gpu->driver_version,
        .kernels_may_wait = gpu->backend->kernels_may_wait,
        .calls_may_block = gpu->backend->calls_may_block,
        .multicast_reason = gpu->multicast_reason,
        .nvls_planned = gpu->options.nvls == GPU_NVLS_ON,
        .multicast_slots_limit = gpu->options.nvls_slots,
        .multicast_slots_used = gpu_multicast_slots_used(gpu),
        .allocations_limit = gpu->options.allocations_max,
        .small_traffic_bytes = gpu->backend->small_traffic_bytes,
        .cache_bytes = gpu->cache_bytes,
        .node_ranks_max = ST_NODE_RANKS_MAX,
    };
}
