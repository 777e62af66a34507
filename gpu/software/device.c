#include <stdio.h>
#include <string.h>

#include "gpu/software/internal.h"

#define DEVICE_DRIVER_VERSION 13000 /* CUDA 13.0, whose signatures the table has */

static _Thread_local struct software_context *device_current;
static _Thread_local bool device_in_host_function;

CUresult software_enter(void)
{
    if (device_in_host_function) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    bool initialised = atomic_load_explicit(&software.initialised, memory_order_relaxed);
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult software_enter_context(struct software_context **ret_context)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    struct software_context *context = device_current;
    if (!context || !atomic_load_explicit(&context->retained, memory_order_relaxed)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ret_context = context;
    return (CUresult)atomic_load_explicit(&context->error, memory_order_acquire);
}

CUresult software_enter_device(CUdevice device)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    bool exists = device >= 0 && (uint32_t)device < software.options.device_count;
    return exists ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

void software_host_call(CUhostFn function, void *data)
{
    bool outer = device_in_host_function;
    device_in_host_function = true;
    function(data);
    device_in_host_function = outer;
}

bool software_peer_access(int device, int peer)
{
    if (device >= 8 || peer >= 8) {
        return true;
    }
    return !(software.options.no_peer_pairs >> (device * 8 + peer) & 1);
}

/* ---------------------------------------------------------------- init and devices */

CUresult software_cuInit(unsigned flags)
{
    if (device_in_host_function) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    atomic_store(&software.initialised, true);
    return CUDA_SUCCESS;
}

CUresult software_cuDriverGetVersion(int *version)
{
    if (!version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = DEVICE_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult software_cuDeviceGetCount(int *count)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = (int)software.options.device_count;
    return CUDA_SUCCESS;
}

CUresult software_cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = software_enter_device(ordinal);
    if (result) {
        return result;
    }
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult software_cuDeviceGetName(char *name, int len, CUdevice dev)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    if (!name || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(name, (size_t)len, "software device %d", dev);
    return CUDA_SUCCESS;
}

CUresult software_cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    if (!uuid) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Form of version 8 (RFC 9562: vendor's own), the same on every machine. */
    static const unsigned char base[16] = {'s',  'y', 'm', 't', 'e', 'n', 0x80, 's',
                                           0x80, 'o', 'f', 't', 'w', 'a', 'r',  0};
    memcpy(uuid->bytes, base, sizeof(base));
    uuid->bytes[15] = (char)dev;
    return CUDA_SUCCESS;
}

CUresult software_cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    if (!bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *bytes = software.options.memory_bytes;
    return CUDA_SUCCESS;
}

/** Attributes that are the same on every software device. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} device_attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, UINT16_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, UINT16_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    /* No CUDA architecture: 0.0. */
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    /* As seen on an H200: the attribute says yes even where cuMemCreate then says 800. */
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 1},
    /* It is host memory: what registers host memory registers this. */
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0},
};

/** Attributes that depend on the options or the ordinal; false when @p attribute is none of them.
 */
static bool device_attribute_computed(CUdevice_attribute attribute, CUdevice device, int *ret_value)
{
    uint64_t cache = software.cache_bytes < INT32_MAX ? software.cache_bytes : INT32_MAX;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *ret_value = (int)cache;
        return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *ret_value = (int)software.options.threads;
        return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *ret_value = device;
        return true;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        *ret_value = !software.options.no_multicast;
        return true;
    default:
        return false;
    }
}

CUresult software_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    if (!value) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device_attribute_computed(attribute, dev, value)) {
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < sizeof(device_attributes) / sizeof(device_attributes[0]); i++) {
        if (device_attributes[i].attribute == attribute) {
            *value = device_attributes[i].value;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult software_cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    CUresult result = software_enter_device(dev);
    result = result ? result : software_enter_device(peer);
    if (result) {
        return result;
    }
    if (!can) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *can = dev != peer && software_peer_access(dev, peer); /* a device is not its own peer */
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- contexts */

void software_context_clear(struct software_context *context)
{
    software_streams_clear(context);
    software_events_clear(context);
    software_modules_clear(context);
}

CUresult software_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    unsigned scheduling = flags & CU_CTX_SCHED_MASK;
    bool known = scheduling == CU_CTX_SCHED_AUTO || scheduling == CU_CTX_SCHED_SPIN ||
                 scheduling == CU_CTX_SCHED_YIELD || scheduling == CU_CTX_SCHED_BLOCKING_SYNC;
    /* Whoever waits here sleeps in any case. */
    return known && scheduling == flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult software_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice dev)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    if (!context) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_context *primary = &software.devices[dev].context;
    primary->device = dev;
    atomic_fetch_add(&primary->retained, 1);
    *context = (CUcontext)primary;
    return CUDA_SUCCESS;
}

CUresult software_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    struct software_context *primary = &software.devices[dev].context;
    uint32_t retained = atomic_load(&primary->retained);
    do {
        if (!retained) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
    } while (!atomic_compare_exchange_weak(&primary->retained, &retained, retained - 1));
    if (retained == 1) {
        software_context_clear(primary);
        atomic_store(&primary->error, 0);
    }
    return CUDA_SUCCESS;
}

struct software_context *software_context_find(CUcontext context)
{
    for (uint32_t i = 0; context && i < software.options.device_count; i++) {
        struct software_context *primary = &software.devices[i].context;
        if ((CUcontext)primary == context && atomic_load(&primary->retained)) {
            return primary;
        }
    }
    return NULL;
}

CUresult software_cuCtxSetCurrent(CUcontext context)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    struct software_context *wanted = software_context_find(context);
    if (context && !wanted) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    device_current = wanted;
    return CUDA_SUCCESS;
}
