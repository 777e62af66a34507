#include "gpu/device.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gpu/kernels/image.h"

/* ---------------------------------------------------------------- asking */

/** An attribute, or 0 when the driver does not know it: an older driver has fewer. */
static int device_attribute(const struct gpu_device *device, CUdevice_attribute attribute)
{
    int value = 0;
    CUresult result = device->gpu->driver->cuDeviceGetAttribute(&value, attribute, device->device);
    return result == CUDA_SUCCESS ? value : 0;
}

static void device_format_uuid(const CUuuid *uuid, char text[static ST_UID_BYTES])
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        at += (size_t)snprintf(text + at, ST_UID_BYTES - at, "%s%02x", dash,
                               (unsigned char)uuid->bytes[i]);
    }
}

/** Name, uuid, total memory: what every driver must know. */
static enum st_status device_identify(struct gpu_device *device, struct st_error *err)
{
    const struct gpu_driver *driver = device->gpu->driver;
    struct gpu_device_info *info = &device->info;
    CUuuid uuid;
    size_t total = 0;
    CUresult result = driver->cuDeviceGet(&device->device, (int)info->ordinal);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuDeviceGet, result, err);
    }
    result = driver->cuDeviceGetName(info->model, (int)sizeof(info->model), device->device);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuDeviceGetName, result, err);
    }
    info->model[sizeof(info->model) - 1] = '\0';
    result = driver->cuDeviceGetUuid(&uuid, device->device);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuDeviceGetUuid, result, err);
    }
    device_format_uuid(&uuid, info->uuid);
    result = driver->cuDeviceTotalMem(&total, device->device);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuDeviceTotalMem, result, err);
    }
    uint64_t limit = device->gpu->options.device_memory_limit;
    info->total_bytes = total;
    info->limit_bytes = limit && limit < total ? limit : total;
    return ST_OK;
}

static enum st_status device_read_attributes(struct gpu_device *device, struct st_error *err)
{
    struct gpu_device_info *info = &device->info;
    if (!device_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        return st_fail(err, ST_REASON_NO_DRIVER, NULL,
                       "device %u (%s) has no virtual memory management", info->ordinal,
                       info->model);
    }
    info->compute_major =
        (uint32_t)device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    info->compute_minor =
        (uint32_t)device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    info->copy_engines = (uint32_t)device_attribute(device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    info->multicast = device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0;
    info->posix_fd =
        device_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) !=
        0;
    info->fabric = device_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) != 0;
    info->rdma =
        device_attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
    uint32_t processors =
        (uint32_t)device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    device->processors = processors ? processors : 1;
    return ST_OK;
}

/* ---------------------------------------------------------------- opening */

static enum st_status device_ask_granularity(struct gpu_device *device, enum gpu_memory_type type,
                                             struct st_error *err)
{
    const struct gpu_driver *driver = device->gpu->driver;
    CUmemAllocationProp prop;
    gpu_device_allocation_prop(device, type, &prop);
    size_t minimum = 0, recommended = 0;
    CUresult result =
        driver->cuMemGetAllocationGranularity(&minimum, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemGetAllocationGranularity(&recommended, &prop,
                                                       CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    }
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuMemGetAllocationGranularity, result, err);
    }
    device->granularity[type] = (struct gpu_granularity){minimum, recommended};
    return ST_OK;
}

/** The fabric attribute is no proof: without a channel device cuMemCreate answers 800 or 801. */
static void device_try_fabric(struct gpu_device *device)
{
    const struct gpu_driver *driver = device->gpu->driver;
    size_t bytes = 0;
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle;
    if (!device->info.fabric) {
        return;
    }
    gpu_device_allocation_prop(device, GPU_MEMORY_SYMMETRIC, &prop);
    device->info.fabric = driver->cuMemGetAllocationGranularity(
                              &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
                          driver->cuMemCreate(&handle, bytes, &prop, 0) == CUDA_SUCCESS;
    if (device->info.fabric) {
        driver->cuMemRelease(handle);
    }
}

/** Keep why a device has no kernels. An error that stays makes it lost too. */
static void device_note_no_kernels(struct gpu_device *device, enum gpu_driver_call call,
                                   CUresult result)
{
    const struct gpu *gpu = device->gpu;
    struct st_error err = {0};
    (void)gpu_result_fail(device, call, result, &err);
    int needed =
        device->info.compute_major >= 9 ? GPU_KERNEL_DRIVER_MIN_SM90 : GPU_KERNEL_DRIVER_MIN;
    snprintf(device->why_no_kernels, sizeof(device->why_no_kernels),
             "device %u has no kernels, so that it cannot reduce: %.200s; they need a driver of "
             "CUDA %d.%d or later, this one is of %d.%d",
             device->info.ordinal, err.message, needed / 1000, needed % 1000 / 10,
             gpu->driver_version / 1000, gpu->driver_version % 1000 / 10);
}

/** A driver that can load no kernels still copies; whoever needs one is told then. */
static void device_load_kernels(struct gpu_device *device)
{
    static const char *const symbols[GPU_KERNEL_COUNT] = {
#define X(name, symbol) symbol,
        GPU_KERNELS(X)
#undef X
    };
    const struct gpu_driver *driver = device->gpu->driver;
    CUresult result = driver->cuModuleLoadData(&device->module, device->gpu->backend->kernel_image);
    if (result != CUDA_SUCCESS) {
        device->module = NULL;
        device_note_no_kernels(device, GPU_CALL_cuModuleLoadData, result);
        return;
    }
    for (size_t i = 0; i < GPU_KERNEL_COUNT; i++) {
        result = driver->cuModuleGetFunction(&device->functions[i], device->module, symbols[i]);
        if (result != CUDA_SUCCESS) {
            device_note_no_kernels(device, GPU_CALL_cuModuleGetFunction, result);
            return;
        }
        /* Now, not within the first launch; a driver that cannot loads it then. */
        driver->cuFuncLoad(device->functions[i]);
    }
    device->kernels = true;
}

/** Why a context was refused, as far as the device's compute mode tells. */
static const char *device_explain_refusal(const struct gpu_device *device)
{
    static const struct {
        int mode;
        const char *text;
    } rows[] = {
        {CU_COMPUTEMODE_EXCLUSIVE_PROCESS,
         "; its compute mode lets one process use it, and another does"},
        {CU_COMPUTEMODE_PROHIBITED, "; its compute mode prohibits use (nvidia-smi -c 0)"},
    };
    int mode = device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].mode == mode) {
            return rows[i].text;
        }
    }
    return "";
}

static enum st_status device_open_context(struct gpu_device *device, struct st_error *err)
{
    const struct gpu_driver *driver = device->gpu->driver;
    /* Who waits sleeps. Where that cannot be set any more, waiting only costs more. */
    driver->cuDevicePrimaryCtxSetFlags(device->device, CU_CTX_SCHED_BLOCKING_SYNC);
    CUresult result = driver->cuDevicePrimaryCtxRetain(&device->context, device->device);
    if (result != CUDA_SUCCESS) {
        device->context = NULL;
        return st_fail(err, ST_REASON_DEVICE_UNAVAILABLE, NULL, "device %u: %s answered %s%s",
                       device->info.ordinal,
                       gpu_driver_call_name(GPU_CALL_cuDevicePrimaryCtxRetain),
                       gpu_driver_result_name(result), device_explain_refusal(device));
    }
    enum st_status status = gpu_device_enter(device, err);
    if (status != ST_OK) {
        return status;
    }
    result = driver->cuStreamCreateWithPriority(&device->service, CU_STREAM_NON_BLOCKING, 0);
    if (result != CUDA_SUCCESS) {
        device->service = NULL;
        return gpu_result_fail(device, GPU_CALL_cuStreamCreateWithPriority, result, err);
    }
    device_load_kernels(device);
    return ST_OK;
}

static enum st_status device_open(struct gpu_device *device, struct st_error *err)
{
    enum st_status status = device_identify(device, err);
    status = status == ST_OK ? device_read_attributes(device, err) : status;
    status = status == ST_OK ? device_open_context(device, err) : status;
    if (status != ST_OK) {
        return status;
    }
    device_try_fabric(device);
    status = device_ask_granularity(device, GPU_MEMORY_SYMMETRIC, err);
    status = status == ST_OK ? device_ask_granularity(device, GPU_MEMORY_GLOBAL, err) : status;
    if (status != ST_OK) {
        return status;
    }
    device->info.granularity_minimum_bytes =
        device->granularity[GPU_MEMORY_SYMMETRIC].minimum_bytes;
    device->info.granularity_recommended_bytes =
        device->granularity[GPU_MEMORY_SYMMETRIC].recommended_bytes;
    gpu_device_refresh_free(device);
    return gpu_devices_usable(device->gpu, 1ull << device->info.ordinal, err);
}

/** What multicast objects over this device and another would need; 0 when nothing says so. */
static void device_ask_multicast_granularity(struct gpu_device *device)
{
    const struct gpu_driver *driver = device->gpu->driver;
    if (!device->info.multicast) {
        return;
    }
    const CUmulticastObjectProp prop = {
        .numDevices = 2,
        .size = device->info.granularity_minimum_bytes,
        .handleTypes = gpu_device_multicast_handle_types(device),
    };
    size_t minimum = 0, recommended = 0;
    bool known =
        driver->cuMulticastGetGranularity(&minimum, &prop, CU_MULTICAST_GRANULARITY_MINIMUM) ==
            CUDA_SUCCESS &&
        driver->cuMulticastGetGranularity(&recommended, &prop,
                                          CU_MULTICAST_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS;
    device->info.multicast_granularity_minimum_bytes = known ? minimum : 0;
    device->info.multicast_granularity_recommended_bytes = known ? recommended : 0;
}

/** Undo what was opened of a device. */
static void device_close(struct gpu_device *device)
{
    const struct gpu_driver *driver = device->gpu->driver;
    if (!device->context) {
        return;
    }
    gpu_device_enter_teardown(device);
    if (device->service) {
        driver->cuStreamDestroy(device->service);
    }
    if (device->module) {
        driver->cuModuleUnload(device->module);
    }
    driver->cuCtxSetCurrent(NULL);
    driver->cuDevicePrimaryCtxRelease(device->device);
    device->context = NULL;
    device->service = NULL;
    device->module = NULL;
    device->kernels = false;
}

/** The node goes on without the device. */
static void device_give_up(struct gpu_device *device, const struct st_error *err)
{
    char prefix[24];
    size_t length = (size_t)snprintf(prefix, sizeof(prefix), "device %u: ", device->info.ordinal);
    bool named = strncmp(err->message, prefix, length) == 0;
    device_close(device);
    snprintf(device->why_unavailable, sizeof(device->why_unavailable), "%s",
             err->message + (named ? length : 0));
    atomic_store(&device->reason, device->why_unavailable);
    atomic_store(&device->state, GPU_DEVICE_UNAVAILABLE);
    atomic_fetch_or(&device->gpu->lost, 1ull << device->info.ordinal);
    st_log_error(ST_LOG_WARNING, "a device is not used", err);
}

/** What does not answer does not reach: work goes another way then. */
static bool device_reaches(const struct gpu_device *device, const struct gpu_device *other)
{
    int can = 0;
    if (!device->context || !other->context) {
        return false;
    }
    return device == other || (device->gpu->driver->cuDeviceCanAccessPeer(
                                   &can, device->device, other->device) == CUDA_SUCCESS &&
                               can);
}

static void devices_read_peers(struct gpu *gpu)
{
    for (uint32_t a = 0; a < gpu->device_count; a++) {
        for (uint32_t b = 0; b < gpu->device_count; b++) {
            bool reaches = device_reaches(&gpu->devices[a], &gpu->devices[b]);
            gpu->devices[a].peers |= (uint64_t)reaches << b;
        }
    }
}

/** No device opened; @p incapable of them are of a kind that never will. */
static enum st_status devices_fail(const struct gpu *gpu, uint32_t incapable, struct st_error *err)
{
    const char *why = gpu_device_state_reason(gpu, 0);
    if (incapable == gpu->device_count) {
        return st_fail(err, ST_REASON_NO_DRIVER, "driver",
                       "the %s driver has no device that will do; device 0: %s", gpu->driver->name,
                       why);
    }
    return st_fail(err, ST_REASON_DEVICE_UNAVAILABLE, "driver",
                   "none of the %u devices of the %s driver opens; device 0: %s", gpu->device_count,
                   gpu->driver->name, why);
}

enum st_status gpu_devices_open(struct gpu *gpu, struct st_error *err)
{
    int count = 0;
    CUresult result = gpu->driver->cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(NULL, GPU_CALL_cuDeviceGetCount, result, err);
    }
    if (count < 1) {
        return st_fail(err, ST_REASON_NO_DRIVER, "driver", "the %s driver has no device",
                       gpu->driver->name);
    }
    gpu->device_count = count < ST_DEVICES_MAX ? (uint32_t)count : ST_DEVICES_MAX;
    uint32_t usable = 0, incapable = 0;
    for (uint32_t i = 0; i < gpu->device_count; i++) {
        struct gpu_device *device = &gpu->devices[i];
        struct st_error why = {0};
        device->gpu = gpu;
        device->info.ordinal = i;
        atomic_store(&device->reason, "");
        if (device_open(device, &why) == ST_OK) {
            device_ask_multicast_granularity(device);
            usable++;
        } else {
            device_give_up(device, &why);
            incapable += why.reason == ST_REASON_NO_DRIVER;
        }
    }
    if (!usable) {
        return devices_fail(gpu, incapable, err);
    }
    int cache = device_attribute(gpu_device_any(gpu), CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    gpu->cache_bytes = cache > 0 ? (uint64_t)cache : 0;
    devices_read_peers(gpu);
    return ST_OK;
}

void gpu_devices_close(struct gpu *gpu)
{
    for (uint32_t i = 0; i < gpu->device_count; i++) {
        device_close(&gpu->devices[i]);
    }
    memset(gpu->devices, 0, sizeof(gpu->devices));
    gpu->device_count = 0;
    atomic_store(&gpu->lost, 0);
    atomic_store(&gpu->degraded, 0);
}

/* ---------------------------------------------------------------- use */

void gpu_device_allocation_prop(const struct gpu_device *device, enum gpu_memory_type type,
                                CUmemAllocationProp *ret_prop)
{
    const struct gpu_device_info *info = &device->info;
    unsigned handle_types = 0;
    if (type == GPU_MEMORY_SYMMETRIC) {
        handle_types = (info->posix_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0u) |
                       (info->fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0u);
    }
    *ret_prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)handle_types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)info->ordinal},
        .allocFlags = {.gpuDirectRDMACapable = info->rdma},
    };
}

unsigned long long gpu_device_multicast_handle_types(const struct gpu_device *device)
{
    return device->info.posix_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                 : CU_MEM_HANDLE_TYPE_NONE;
}

enum st_status gpu_device_enter(struct gpu_device *device, struct st_error *err)
{
    CUresult result = device->gpu->driver->cuCtxSetCurrent(device->context);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuCtxSetCurrent, result, err);
    }
    return ST_OK;
}

void gpu_device_enter_teardown(struct gpu_device *device)
{
    struct st_error unused;
    /* A second try, since what follows can run in no other context. */
    if (gpu_device_enter(device, &unused) != ST_OK) {
        device->gpu->driver->cuCtxSetCurrent(device->context);
    }
}

struct gpu_device *gpu_device_any(struct gpu *gpu)
{
    for (uint32_t i = 0; i < gpu->device_count; i++) {
        if (atomic_load(&gpu->devices[i].state) == GPU_DEVICE_OK) {
            return &gpu->devices[i];
        }
    }
    return NULL;
}

void gpu_device_refresh_free(struct gpu_device *device)
{
    struct st_error unused;
    size_t free_bytes = 0, total = 0;
    if (gpu_device_enter(device, &unused) == ST_OK &&
        device->gpu->driver->cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS) {
        atomic_store(&device->free_bytes, free_bytes);
    }
}

enum st_status gpu_device_describe(const struct gpu_device *device, const struct gpu_launch *launch,
                                   void **arguments, CUDA_KERNEL_NODE_PARAMS *ret_params,
                                   struct st_error *err)
{
    if (!device->kernels) {
        return st_fail(err, ST_REASON_NO_KERNELS, NULL, "%s", device->why_no_kernels);
    }
    *ret_params = (CUDA_KERNEL_NODE_PARAMS){
        .func = device->functions[launch->kernel],
        .gridDimX = gpu_kernel_blocks(device->processors, launch->traffic_bytes, launch->fine),
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = GPU_KERNEL_THREADS,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments,
    };
    return ST_OK;
}

enum st_status gpu_device_launch(struct gpu_device *device, CUstream stream,
                                 const struct gpu_launch *launch, struct st_error *err)
{
    void *arguments[] = {launch->params};
    CUDA_KERNEL_NODE_PARAMS params;
    enum st_status status = gpu_device_describe(device, launch, arguments, &params, err);
    if (status != ST_OK) {
        return status;
    }
    CUresult result = device->gpu->driver->cuLaunchKernel(
        params.func, params.gridDimX, 1, 1, params.blockDimX, 1, 1, 0, stream, arguments, NULL);
    return result == CUDA_SUCCESS ? ST_OK
                                  : gpu_result_fail(device, GPU_CALL_cuLaunchKernel, result, err);
}

enum st_status gpu_device_zero(struct gpu_device *device, uint64_t address, uint64_t bytes,
                               struct st_error *err)
{
    CUresult result = device->gpu->driver->cuMemsetD8Async(address, 0, bytes, device->service);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuMemsetD8Async, result, err);
    }
    return ST_OK;
}

static enum st_status device_settle_once(struct gpu_device *device, struct st_error *err)
{
    enum st_status status = gpu_device_enter(device, err);
    if (status != ST_OK) {
        return status;
    }
    CUresult result = device->gpu->driver->cuStreamSynchronize(device->service);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(device, GPU_CALL_cuStreamSynchronize, result, err);
    }
    return ST_OK;
}

enum st_status gpu_device_settle(struct gpu_device *device, struct st_error *err)
{
    enum st_status status = device_settle_once(device, err);
    if (status != ST_OK) {
        /* A second try, since memory that is still written to is taken back next. */
        struct st_error unused;
        (void)!device_settle_once(device, &unused);
    }
    return status;
}

/* ---------------------------------------------------------------- accounting */

enum st_status gpu_device_take_bytes(struct gpu_device *device, uint64_t bytes,
                                     struct st_error *err)
{
    uint64_t limit = device->info.limit_bytes;
    uint64_t owned = atomic_load(&device->owned_bytes);
    do {
        uint64_t taken = owned + atomic_load(&device->quarantined_bytes);
        if (taken > limit || bytes > limit - taken) {
            st_fail(err, ST_REASON_GPU_MEMORY_EXHAUSTED, NULL,
                    "device %u: no room for %llu bytes, %llu of %llu are in use",
                    device->info.ordinal, (unsigned long long)bytes, (unsigned long long)taken,
                    (unsigned long long)limit);
            st_error_add_detail(err, "device", "%u", device->info.ordinal);
            st_error_add_detail(err, "bytes", "%llu", (unsigned long long)bytes);
            return ST_RESOURCE_EXHAUSTED;
        }
    } while (!atomic_compare_exchange_weak(&device->owned_bytes, &owned, owned + bytes));
    atomic_fetch_add(&device->pending_bytes, bytes);
    return ST_OK;
}

void gpu_device_give_bytes(struct gpu_device *device, uint64_t bytes)
{
    atomic_fetch_sub(&device->owned_bytes, bytes);
}

void gpu_device_begin_bytes(struct gpu_device *device, uint64_t bytes)
{
    atomic_fetch_add(&device->pending_bytes, bytes);
}

void gpu_device_end_bytes(struct gpu_device *device, uint64_t bytes)
{
    atomic_fetch_sub(&device->pending_bytes, bytes);
}

void gpu_device_quarantine(struct gpu_device *device, uint64_t bytes)
{
    atomic_fetch_add(&device->quarantined_bytes, bytes);
}

void gpu_device_unquarantine(struct gpu_device *device, uint64_t bytes)
{
    atomic_fetch_sub(&device->quarantined_bytes, bytes);
}

/* ---------------------------------------------------------------- state */

/** What is lost or unavailable stays so. state_lock is held. */
static void device_set_state(struct gpu_device *device, enum gpu_device_state state,
                             const char *reason)
{
    struct gpu *gpu = device->gpu;
    uint64_t bit = 1ull << device->info.ordinal;
    if (atomic_load(&gpu->lost) & bit) {
        return;
    }
    atomic_store(&device->reason, reason);
    atomic_store(&device->state, (int)state);
    if (state == GPU_DEVICE_LOST) {
        atomic_fetch_or(&gpu->lost, bit);
    } else if (state == GPU_DEVICE_DEGRADED) {
        atomic_fetch_or(&gpu->degraded, bit);
    } else {
        atomic_fetch_and(&gpu->degraded, ~bit);
    }
}

void gpu_device_mark_lost(struct gpu_device *device, CUresult result)
{
    pthread_mutex_lock(&device->gpu->state_lock);
    device_set_state(device, GPU_DEVICE_LOST, gpu_driver_result_name(result));
    pthread_mutex_unlock(&device->gpu->state_lock);
}

void gpu_device_mark_degraded(struct gpu *gpu, uint32_t ordinal)
{
    struct gpu_device *device = &gpu->devices[ordinal];
    pthread_mutex_lock(&gpu->state_lock);
    device->hanging++;
    device_set_state(device, GPU_DEVICE_DEGRADED, "a driver call hangs");
    pthread_mutex_unlock(&gpu->state_lock);
}

void gpu_device_clear_degraded(struct gpu *gpu, uint32_t ordinal)
{
    struct gpu_device *device = &gpu->devices[ordinal];
    pthread_mutex_lock(&gpu->state_lock);
    device->hanging--;
    if (device->hanging == 0) {
        device_set_state(device, GPU_DEVICE_OK, "");
    }
    pthread_mutex_unlock(&gpu->state_lock);
}

void gpu_thread_progress(void (*progress)(void *arg), void *arg)
{
    gpu_driver_watch_thread(progress, arg);
}

enum st_status gpu_devices_usable(const struct gpu *gpu, uint64_t devices, struct st_error *err)
{
    uint64_t lost = atomic_load(&gpu->lost) & devices;
    uint64_t degraded = atomic_load(&gpu->degraded) & devices;
    if (!lost && !degraded) {
        return ST_OK;
    }
    static const enum st_reason reasons[] = {
        [GPU_DEVICE_OK] = ST_REASON_DEVICE_DEGRADED, /* just over */
        [GPU_DEVICE_DEGRADED] = ST_REASON_DEVICE_DEGRADED,
        [GPU_DEVICE_LOST] = ST_REASON_DEVICE_LOST,
        [GPU_DEVICE_UNAVAILABLE] = ST_REASON_DEVICE_UNAVAILABLE,
    };
    uint32_t ordinal = (uint32_t)__builtin_ctzll(lost ? lost : degraded);
    st_fail(err, reasons[gpu_device_state(gpu, ordinal)], NULL, "device %u: %s", ordinal,
            gpu_device_state_reason(gpu, ordinal));
    st_error_add_detail(err, "device", "%u", ordinal);
    return ST_UNAVAILABLE;
}

uint32_t gpu_device_count(const struct gpu *gpu)
{
    return gpu->device_count;
}

const struct gpu_device_info *gpu_device_info(const struct gpu *gpu, uint32_t ordinal)
{
    return &gpu->devices[ordinal].info;
}

void gpu_device_memory(const struct gpu *gpu, uint32_t ordinal, struct gpu_device_memory *ret)
{
    const struct gpu_device *device = &gpu->devices[ordinal];
    uint64_t owned = atomic_load(&device->owned_bytes);
    uint64_t stuck = 0;
    /* While a call hangs, what it works on is neither ours nor free. */
    if (atomic_load(&device->state) == GPU_DEVICE_DEGRADED) {
        uint64_t pending = atomic_load(&device->pending_bytes);
        stuck = pending < owned ? pending : owned;
    }
    *ret = (struct gpu_device_memory){
        .free_bytes = atomic_load(&device->free_bytes),
        .owned_bytes = owned - stuck,
        .quarantined_bytes = atomic_load(&device->quarantined_bytes) + stuck,
    };
}

enum gpu_device_state gpu_device_state(const struct gpu *gpu, uint32_t ordinal)
{
    return (enum gpu_device_state)atomic_load(&gpu->devices[ordinal].state);
}

const char *gpu_kernels_why(const struct gpu *gpu, uint32_t ordinal)
{
    return gpu->devices[ordinal].kernels ? "" : gpu->devices[ordinal].why_no_kernels;
}

const char *gpu_device_state_name(enum gpu_device_state state)
{
    static const char *const names[] = {
#define X(state, name, meaning) [GPU_DEVICE_##state] = name,
        GPU_DEVICE_STATES(X)
#undef X
    };
    return names[state];
}

const char *gpu_device_state_reason(const struct gpu *gpu, uint32_t ordinal)
{
    return atomic_load(&gpu->devices[ordinal].reason);
}

bool gpu_peer_access(const struct gpu *gpu, uint32_t a, uint32_t b)
{
    return gpu->devices[a].peers >> b & 1;
}
