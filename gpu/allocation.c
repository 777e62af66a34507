#include "gpu/allocation.h"

#include "base/log.h"

/** Ask for the memory, with FABRIC if that once worked; a domain can have gone since. */
static CUresult allocation_create_handle(const struct gpu_allocation_spec *spec,
                                         CUmemGenericAllocationHandle *ret_handle)
{
    const struct gpu_driver *driver = spec->device->gpu->driver;
    CUmemAllocationProp prop;
    gpu_device_allocation_prop(spec->device, spec->type, &prop);
    CUresult result = driver->cuMemCreate(ret_handle, spec->bytes, &prop, 0);
    unsigned types = (unsigned)prop.requestedHandleTypes;
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) &&
        (result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED)) {
        types &= ~(unsigned)CU_MEM_HANDLE_TYPE_FABRIC;
        prop.requestedHandleTypes = (CUmemAllocationHandleType)types;
        result = driver->cuMemCreate(ret_handle, spec->bytes, &prop, 0);
    }
    return result;
}

static enum st_status allocation_fail(const struct gpu_allocation *allocation,
                                      enum gpu_driver_call call, CUresult result,
                                      struct st_error *err)
{
    enum st_status status = gpu_result_fail(allocation->device, call, result, err);
    st_error_add_detail(err, "device", "%u", allocation->device->info.ordinal);
    st_error_add_detail(err, "bytes", "%llu", (unsigned long long)allocation->bytes);
    return status;
}

static enum st_status allocation_map(struct gpu_allocation *allocation, enum gpu_memory_type type,
                                     struct st_error *err)
{
    struct gpu_device *device = allocation->device;
    const struct gpu_driver *driver = device->gpu->driver;
    CUresult result = driver->cuMemAddressReserve(
        &allocation->address, allocation->bytes, device->granularity[type].recommended_bytes, 0, 0);
    if (result != CUDA_SUCCESS) {
        return allocation_fail(allocation, GPU_CALL_cuMemAddressReserve, result, err);
    }
    allocation->reserved = true;
    result = driver->cuMemMap(allocation->address, allocation->bytes, 0, allocation->handle, 0);
    if (result != CUDA_SUCCESS) {
        return allocation_fail(allocation, GPU_CALL_cuMemMap, result, err);
    }
    allocation->mapped = true;
    return ST_OK;
}

/** Give access to all devices in one call. */
static enum st_status allocation_share(struct gpu_allocation *allocation, struct st_error *err)
{
    CUmemAccessDesc access[ST_DEVICES_MAX];
    size_t count = 0;
    for (uint64_t left = allocation->access; left; left &= left - 1) {
        access[count++] = (CUmemAccessDesc){
            .location = {CU_MEM_LOCATION_TYPE_DEVICE, __builtin_ctzll(left)},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
    }
    CUresult result = allocation->device->gpu->driver->cuMemSetAccess(
        allocation->address, allocation->bytes, access, count);
    if (result != CUDA_SUCCESS) {
        return allocation_fail(allocation, GPU_CALL_cuMemSetAccess, result, err);
    }
    return ST_OK;
}

bool gpu_allocation_grant(struct gpu_allocation *allocation, const struct gpu_device *device)
{
    const CUmemAccessDesc access = {
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)device->info.ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    struct st_error unused;
    if (gpu_device_enter(allocation->device, &unused) != ST_OK) {
        return false;
    }
    CUresult result = allocation->device->gpu->driver->cuMemSetAccess(
        allocation->address, allocation->bytes, &access, 1);
    if (result != CUDA_SUCCESS) {
        (void)!allocation_fail(allocation, GPU_CALL_cuMemSetAccess, result, &unused);
        return false;
    }
    atomic_fetch_or(&allocation->access, 1ull << device->info.ordinal);
    return true;
}

/** Count it before the driver is asked, so that descriptors are left for those who would delete. */
static enum st_status allocation_count(struct gpu_allocation *allocation, struct st_error *err)
{
    struct gpu *gpu = allocation->device->gpu;
    uint32_t limit = gpu->options.allocations_max;
    uint32_t others = atomic_fetch_add(&gpu->allocations, 1);
    allocation->counted = true;
    if (!limit || others < limit) {
        return ST_OK;
    }
    return st_fail(err, ST_REASON_FD_LIMIT, NULL,
                   "the %u allocations for which there are file descriptors all exist", limit);
}

enum st_status gpu_allocation_create(const struct gpu_allocation_spec *spec,
                                     struct gpu_allocation *ret_allocation, struct st_error *err)
{
    struct gpu_allocation *allocation = ret_allocation;
    enum st_status status = gpu_device_take_bytes(spec->device, spec->bytes, err);
    if (status != ST_OK) {
        return status;
    }
    allocation->device = spec->device;
    allocation->bytes = spec->bytes;
    allocation->access = spec->access;
    status = allocation_count(allocation, err);
    status = status == ST_OK ? gpu_device_enter(spec->device, err) : status;
    if (status != ST_OK) {
        return status;
    }
    CUresult result = allocation_create_handle(spec, &allocation->handle);
    if (result != CUDA_SUCCESS) {
        return allocation_fail(allocation, GPU_CALL_cuMemCreate, result, err);
    }
    allocation->created = true;
    status = allocation_map(allocation, spec->type, err);
    return status == ST_OK ? allocation_share(allocation, err) : status;
}

/** Teardown has no caller to tell: it is logged, and the bytes stay counted. @return whether it
 * worked. */
static bool allocation_undo(const struct gpu_allocation *allocation, enum gpu_driver_call call,
                            CUresult result)
{
    if (result == CUDA_SUCCESS) {
        return true;
    }
    struct st_error err = {0};
    gpu_result_fail(allocation->device, call, result, &err);
    st_log_error(ST_LOG_WARNING, "memory was not given back", &err);
    return false;
}

bool gpu_allocation_destroy(struct gpu_allocation *allocation)
{
    if (!allocation->bytes) {
        return true;
    }
    struct gpu_device *device = allocation->device;
    const struct gpu_driver *driver = device->gpu->driver;
    bool gone = true;
    gpu_device_enter_teardown(device);
    if (allocation->mapped) {
        gone &= allocation_undo(allocation, GPU_CALL_cuMemUnmap,
                                driver->cuMemUnmap(allocation->address, allocation->bytes));
    }
    if (allocation->reserved && gone) {
        allocation_undo(allocation, GPU_CALL_cuMemAddressFree,
                        driver->cuMemAddressFree(allocation->address, allocation->bytes));
    }
    if (allocation->created) {
        gone &= allocation_undo(allocation, GPU_CALL_cuMemRelease,
                                driver->cuMemRelease(allocation->handle));
    }
    gpu_device_give_bytes(device, allocation->bytes);
    if (!gone) {
        gpu_device_quarantine(device, allocation->bytes);
    } else if (allocation->counted) {
        atomic_fetch_sub(&device->gpu->allocations, 1);
    }
    *allocation = (struct gpu_allocation){0};
    return gone;
}
