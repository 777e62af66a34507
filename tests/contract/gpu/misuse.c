#include "tests/contract/gpu/misuse.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* A step that must succeed. What it answers otherwise shows as the row's result, moved out of the
 * way so that it is not taken for the answer to the wrong call. */
#define STEP(call)                                                                                 \
    do {                                                                                           \
        CUresult step_result = (call);                                                             \
        if (step_result != CUDA_SUCCESS) {                                                         \
            return (CUresult)(MISUSE_STEP_FAILED + (int)step_result);                              \
        }                                                                                          \
    } while (0)

/* ---------------------------------------------------------------- pieces */

static const CUmemLocation device_0 = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

static CUmemAllocationProp memory_prop(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

static CUresult map(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address, 2 * s->granularity, 0, s->memory, 0);
}

static CUresult allow(struct misuse_setup *s, int device)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return s->driver->cuMemSetAccess(s->address, 2 * s->granularity, &access, 1);
}

static CUresult create(struct misuse_setup *s, size_t size, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = s->driver->cuMemCreate(&handle, size, prop, flags);
    if (!result) {
        (void)s->driver->cuMemRelease(handle);
    }
    return result;
}

struct inside {
    const struct gpu_driver *driver;
    CUresult result;
};

static void call_inside(void *data)
{
    struct inside *inside = data;
    CUevent event;
    inside->result = inside->driver->cuEventCreate(&event, 0);
}

/** A launch that no driver accepts: the arguments are never looked at. */
static CUresult launch(struct misuse_setup *s, unsigned blocks, unsigned threads)
{
    static char arguments[4096];
    void *params[64];
    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
        params[i] = arguments;
    }
    return s->driver->cuLaunchKernel(s->function, blocks, 1, 1, threads, 1, 1, 0, s->stream, params,
                                     NULL);
}

static CUresult multicast_create(struct misuse_setup *s, unsigned devices, size_t size)
{
    CUmemGenericAllocationHandle handle;
    CUmulticastObjectProp prop = {.numDevices = devices,
                                  .size = size,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUresult result = s->driver->cuMulticastCreate(&handle, &prop);
    if (!result) {
        (void)s->driver->cuMemRelease(handle);
    }
    return result;
}

static CUresult add_all(struct misuse_setup *s)
{
    CUresult result = s->driver->cuMulticastAddDevice(s->multicast, 0);
    return result ? result : s->driver->cuMulticastAddDevice(s->multicast, 1);
}

static CUresult bind(struct misuse_setup *s, size_t offset, size_t size)
{
    return s->driver->cuMulticastBindMem(s->multicast, offset, s->memory, 0, size, 0);
}

static CUresult map_multicast(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address, 2 * s->granularity, 0, s->multicast, 0);
}

/* ---------------------------------------------------------------- the sequences */

static CUresult releasing_memory_twice(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle handle = s->memory;
    s->memory = 0;
    STEP(s->driver->cuMemRelease(handle));
    return s->driver->cuMemRelease(handle);
}

static CUresult mapping_where_something_is_mapped(struct misuse_setup *s)
{
    STEP(map(s));
    return map(s);
}

static CUresult freeing_addresses_while_mapped(struct misuse_setup *s)
{
    STEP(map(s));
    return s->driver->cuMemAddressFree(s->address, 4 * s->granularity);
}

static CUresult filling_memory_without_access(struct misuse_setup *s)
{
    STEP(map(s));
    return s->driver->cuMemsetD8Async(s->address, 1, 16, s->stream);
}

static CUresult creating_no_bytes(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(0);
    return create(s, 0, &prop, 0);
}

static CUresult creating_a_part_of_a_granule(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(0);
    return create(s, 6912, &prop, 0);
}

static CUresult creating_with_flags(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(0);
    return create(s, s->granularity, &prop, 1);
}

static CUresult creating_without_properties(struct misuse_setup *s)
{
    return create(s, s->granularity, NULL, 0);
}

static CUresult creating_memory_of_no_type(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(0);
    prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    return create(s, s->granularity, &prop, 0);
}

static CUresult creating_memory_nowhere(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(0);
    prop.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    return create(s, s->granularity, &prop, 0);
}

static CUresult creating_on_a_device_that_is_not_there(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(4096);
    return create(s, s->granularity, &prop, 0);
}

static CUresult creating_more_than_the_device_has(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(0);
    size_t total;
    STEP(s->driver->cuDeviceTotalMem(&total, 0));
    return create(s, (total / s->granularity + 1) * s->granularity, &prop, 0);
}

static CUresult asking_for_the_granularity_of_a_device_that_is_not_there(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(4096);
    size_t granularity;
    return s->driver->cuMemGetAllocationGranularity(&granularity, &prop,
                                                    CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

static CUresult mapping_from_an_offset(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address, s->granularity, s->granularity, s->memory, 0);
}

static CUresult mapping_more_than_there_is(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address, 3 * s->granularity, 0, s->memory, 0);
}

static CUresult mapping_at_half_a_granule(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address + s->granularity / 2, s->granularity, 0, s->memory, 0);
}

static CUresult mapping_no_bytes(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address, 0, 0, s->memory, 0);
}

static CUresult mapping_with_flags(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address, 2 * s->granularity, 0, s->memory, 1);
}

static CUresult mapping_past_the_reservation(struct misuse_setup *s)
{
    return s->driver->cuMemMap(s->address + 3 * s->granularity, 2 * s->granularity, 0, s->memory,
                               0);
}

static CUresult mapping_where_nothing_is_reserved(struct misuse_setup *s)
{
    STEP(s->driver->cuMemAddressFree(s->address, 4 * s->granularity));
    CUdeviceptr address = s->address;
    s->address = 0;
    return s->driver->cuMemMap(address, 2 * s->granularity, 0, s->memory, 0);
}

static CUresult mapping_released_memory(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle handle = s->memory;
    s->memory = 0;
    STEP(s->driver->cuMemRelease(handle));
    return s->driver->cuMemMap(s->address, 2 * s->granularity, 0, handle, 0);
}

static CUresult unmapping_what_is_not_mapped(struct misuse_setup *s)
{
    return s->driver->cuMemUnmap(s->address, s->granularity);
}

static CUresult unmapping_twice(struct misuse_setup *s)
{
    STEP(map(s));
    STEP(s->driver->cuMemUnmap(s->address, 2 * s->granularity));
    return s->driver->cuMemUnmap(s->address, 2 * s->granularity);
}

static CUresult unmapping_a_part_of_a_mapping(struct misuse_setup *s)
{
    STEP(map(s));
    return s->driver->cuMemUnmap(s->address, s->granularity);
}

static CUresult unmapping_more_than_is_mapped(struct misuse_setup *s)
{
    STEP(map(s));
    return s->driver->cuMemUnmap(s->address, 3 * s->granularity);
}

static CUresult allowing_access_to_nothing(struct misuse_setup *s)
{
    return allow(s, 0);
}

static CUresult allowing_access_to_a_part_of_a_mapping(struct misuse_setup *s)
{
    STEP(map(s));
    CUmemAccessDesc access = {device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return s->driver->cuMemSetAccess(s->address, s->granularity, &access, 1);
}

static CUresult allowing_access_past_a_mapping(struct misuse_setup *s)
{
    STEP(map(s));
    CUmemAccessDesc access = {device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return s->driver->cuMemSetAccess(s->address, 3 * s->granularity, &access, 1);
}

static CUresult allowing_access_to_nobody(struct misuse_setup *s)
{
    STEP(map(s));
    CUmemAccessDesc access = {device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return s->driver->cuMemSetAccess(s->address, 2 * s->granularity, &access, 0);
}

static CUresult allowing_access_to_a_device_that_is_not_there(struct misuse_setup *s)
{
    STEP(map(s));
    return allow(s, 4096);
}

static CUresult allowing_an_unknown_kind_of_access(struct misuse_setup *s)
{
    STEP(map(s));
    CUmemAccessDesc access = {device_0, (CUmemAccess_flags)2};
    return s->driver->cuMemSetAccess(s->address, 2 * s->granularity, &access, 1);
}

static CUresult asking_for_access_where_nothing_is_mapped(struct misuse_setup *s)
{
    unsigned long long flags;
    return s->driver->cuMemGetAccess(&flags, &device_0, s->address);
}

static CUresult reserving_no_addresses(struct misuse_setup *s)
{
    CUdeviceptr address;
    return s->driver->cuMemAddressReserve(&address, 0, 0, 0, 0);
}

static CUresult reserving_a_part_of_a_page(struct misuse_setup *s)
{
    CUdeviceptr address;
    return s->driver->cuMemAddressReserve(&address, 100, 0, 0, 0);
}

static CUresult reserving_with_an_alignment_that_is_no_power_of_two(struct misuse_setup *s)
{
    CUdeviceptr address;
    return s->driver->cuMemAddressReserve(&address, s->granularity, 3 * s->granularity, 0, 0);
}

static CUresult reserving_with_flags(struct misuse_setup *s)
{
    CUdeviceptr address;
    return s->driver->cuMemAddressReserve(&address, s->granularity, 0, 0, 1);
}

static CUresult freeing_a_part_of_a_reservation(struct misuse_setup *s)
{
    return s->driver->cuMemAddressFree(s->address, s->granularity);
}

static CUresult freeing_addresses_twice(struct misuse_setup *s)
{
    CUdeviceptr address = s->address;
    s->address = 0;
    STEP(s->driver->cuMemAddressFree(address, 4 * s->granularity));
    return s->driver->cuMemAddressFree(address, 4 * s->granularity);
}

static CUresult exporting_in_a_form_that_was_not_asked_for(struct misuse_setup *s)
{
    CUmemFabricHandle fabric;
    return s->driver->cuMemExportToShareableHandle(&fabric, s->memory, CU_MEM_HANDLE_TYPE_FABRIC,
                                                   0);
}

static CUresult exporting_released_memory(struct misuse_setup *s)
{
    int fd;
    CUmemGenericAllocationHandle handle = s->memory;
    s->memory = 0;
    STEP(s->driver->cuMemRelease(handle));
    return s->driver->cuMemExportToShareableHandle(&fd, handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult exporting_with_flags(struct misuse_setup *s)
{
    int fd;
    return s->driver->cuMemExportToShareableHandle(&fd, s->memory,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1);
}

static CUresult importing_a_closed_fd(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle handle;
    return s->driver->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)-1,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult importing_an_fd_that_is_no_memory(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle handle;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    CUresult result = s->driver->cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    return result;
}

static CUresult retaining_the_memory_of_an_address_without_any(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle handle;
    return s->driver->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)s->address);
}

static CUresult asking_for_the_properties_of_released_memory(struct misuse_setup *s)
{
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle = s->memory;
    s->memory = 0;
    STEP(s->driver->cuMemRelease(handle));
    return s->driver->cuMemGetAllocationPropertiesFromHandle(&prop, handle);
}

static CUresult filling_past_the_end_of_a_mapping(struct misuse_setup *s)
{
    STEP(map(s));
    STEP(allow(s, 0));
    return s->driver->cuMemsetD8Async(s->address + 2 * s->granularity - 8, 1, 16, s->stream);
}

static CUresult copying_to_reserved_addresses(struct misuse_setup *s)
{
    STEP(map(s));
    STEP(allow(s, 0));
    return s->driver->cuMemcpyDtoDAsync(s->address + 2 * s->granularity, s->address, 16, s->stream);
}

static CUresult copying_from_memory_without_access(struct misuse_setup *s)
{
    char bytes[16];
    STEP(map(s));
    return s->driver->cuMemcpyDtoHAsync(bytes, s->address, sizeof(bytes), s->stream);
}

static CUresult copying_to_read_only_memory(struct misuse_setup *s)
{
    STEP(map(s));
    CUmemAccessDesc access = {device_0, CU_MEM_ACCESS_FLAGS_PROT_READ};
    STEP(s->driver->cuMemSetAccess(s->address, 2 * s->granularity, &access, 1));
    return s->driver->cuMemsetD8Async(s->address, 1, 16, s->stream);
}

static CUresult using_a_destroyed_stream(struct misuse_setup *s)
{
    CUstream stream = s->stream;
    s->stream = NULL;
    STEP(s->driver->cuStreamDestroy(stream));
    return s->driver->cuStreamQuery(stream);
}

static CUresult using_the_default_stream(struct misuse_setup *s)
{
    return s->driver->cuStreamQuery(NULL);
}

static CUresult making_a_stream_with_unknown_flags(struct misuse_setup *s)
{
    CUstream stream;
    return s->driver->cuStreamCreateWithPriority(&stream, 0x80, 0);
}

static CUresult making_a_stream_without_a_context(struct misuse_setup *s)
{
    CUstream stream;
    STEP(s->driver->cuCtxSetCurrent(NULL));
    return s->driver->cuStreamCreateWithPriority(&stream, 0, 0);
}

static CUresult asking_for_free_memory_without_a_context(struct misuse_setup *s)
{
    size_t left;
    size_t total;
    STEP(s->driver->cuCtxSetCurrent(NULL));
    return s->driver->cuMemGetInfo(&left, &total);
}

static CUresult making_an_event_with_unknown_flags(struct misuse_setup *s)
{
    CUevent event;
    return s->driver->cuEventCreate(&event, 0x80);
}

static CUresult making_an_event_between_processes_that_keeps_time(struct misuse_setup *s)
{
    CUevent event;
    return s->driver->cuEventCreate(&event, CU_EVENT_INTERPROCESS);
}

static CUresult measuring_from_an_event_that_was_never_recorded(struct misuse_setup *s)
{
    CUevent events[2];
    float milliseconds;
    STEP(s->driver->cuEventCreate(&events[0], 0));
    STEP(s->driver->cuEventCreate(&events[1], 0));
    STEP(s->driver->cuEventRecord(events[1], s->stream));
    STEP(s->driver->cuStreamSynchronize(s->stream));
    CUresult result = s->driver->cuEventElapsedTime(&milliseconds, events[0], events[1]);
    STEP(s->driver->cuEventDestroy(events[0]));
    STEP(s->driver->cuEventDestroy(events[1]));
    return result;
}

static CUresult measuring_with_an_event_that_keeps_no_time(struct misuse_setup *s)
{
    CUevent event;
    float milliseconds;
    STEP(s->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    STEP(s->driver->cuEventRecord(event, s->stream));
    STEP(s->driver->cuStreamSynchronize(s->stream));
    CUresult result = s->driver->cuEventElapsedTime(&milliseconds, event, event);
    STEP(s->driver->cuEventDestroy(event));
    return result;
}

static CUresult waiting_for_an_event_with_unknown_flags(struct misuse_setup *s)
{
    CUevent event;
    STEP(s->driver->cuEventCreate(&event, 0));
    CUresult result = s->driver->cuStreamWaitEvent(s->stream, event, 0x80);
    STEP(s->driver->cuEventDestroy(event));
    return result;
}

static CUresult loading_no_image(struct misuse_setup *s)
{
    CUmodule module;
    return s->driver->cuModuleLoadData(&module, NULL);
}

static CUresult asking_for_a_function_that_is_not_there(struct misuse_setup *s)
{
    CUfunction function;
    return s->driver->cuModuleGetFunction(&function, s->module, "no_such_function");
}

static CUresult launching_no_threads(struct misuse_setup *s)
{
    return launch(s, 1, 0);
}

static CUresult launching_no_blocks(struct misuse_setup *s)
{
    return launch(s, 0, 32);
}

static CUresult launching_too_many_threads_a_block(struct misuse_setup *s)
{
    return launch(s, 1, 4096);
}

static CUresult calling_the_driver_from_a_host_function(struct misuse_setup *s)
{
    struct inside inside = {s->driver, CUDA_ERROR_UNKNOWN};
    STEP(s->driver->cuLaunchHostFunc(s->stream, call_inside, &inside));
    STEP(s->driver->cuStreamSynchronize(s->stream));
    return inside.result;
}

static CUresult pinning_no_bytes(struct misuse_setup *s)
{
    void *host;
    return s->driver->cuMemHostAlloc(&host, 0, 0);
}

static CUresult pinning_with_unknown_flags(struct misuse_setup *s)
{
    void *host;
    return s->driver->cuMemHostAlloc(&host, 4096, 0x80);
}

static CUresult unpinning_twice(struct misuse_setup *s)
{
    void *host;
    STEP(s->driver->cuMemHostAlloc(&host, 4096, 0));
    STEP(s->driver->cuMemFreeHost(host));
    return s->driver->cuMemFreeHost(host);
}

static CUresult unpinning_memory_of_the_stack(struct misuse_setup *s)
{
    char bytes[16];
    return s->driver->cuMemFreeHost(bytes);
}

static CUresult asking_for_an_unknown_attribute(struct misuse_setup *s)
{
    int value;
    return s->driver->cuDeviceGetAttribute(&value, (CUdevice_attribute)100000, 0);
}

static CUresult scheduling_in_an_unknown_way(struct misuse_setup *s)
{
    return s->driver->cuDevicePrimaryCtxSetFlags(0, 3);
}

static CUresult scheduling_on_a_device_that_is_not_there(struct misuse_setup *s)
{
    return s->driver->cuDevicePrimaryCtxSetFlags(4096, CU_CTX_SCHED_BLOCKING_SYNC);
}

static CUresult loading_what_is_no_function(struct misuse_setup *s)
{
    return s->driver->cuFuncLoad(NULL);
}

static CUresult asking_for_a_device_that_is_not_there(struct misuse_setup *s)
{
    CUdevice device;
    return s->driver->cuDeviceGet(&device, 4096);
}

static CUresult asking_for_a_negative_device(struct misuse_setup *s)
{
    CUdevice device;
    return s->driver->cuDeviceGet(&device, -1);
}

static CUresult asking_about_a_peer_that_is_not_there(struct misuse_setup *s)
{
    int can;
    return s->driver->cuDeviceCanAccessPeer(&can, 0, 4096);
}

static CUresult initialising_with_flags(struct misuse_setup *s)
{
    return s->driver->cuInit(1);
}

static CUresult making_an_unknown_context_current(struct misuse_setup *s)
{
    return s->driver->cuCtxSetCurrent((CUcontext)(uintptr_t)64);
}

static CUresult multicast_of_no_devices(struct misuse_setup *s)
{
    return multicast_create(s, 0, 2 * s->granularity);
}

static CUresult multicast_of_more_devices_than_there_are(struct misuse_setup *s)
{
    return multicast_create(s, 4096, 2 * s->granularity);
}

static CUresult multicast_of_no_bytes(struct misuse_setup *s)
{
    return multicast_create(s, 2, 0);
}

static CUresult multicast_of_a_part_of_a_granule(struct misuse_setup *s)
{
    return multicast_create(s, 2, s->granularity / 2);
}

static CUresult adding_a_device_twice(struct misuse_setup *s)
{
    STEP(s->driver->cuMulticastAddDevice(s->multicast, 0));
    return s->driver->cuMulticastAddDevice(s->multicast, 0);
}

static CUresult adding_a_device_when_all_are_there(struct misuse_setup *s)
{
    STEP(add_all(s));
    return s->driver->cuMulticastAddDevice(s->multicast, 1);
}

static CUresult adding_a_device_that_is_not_there(struct misuse_setup *s)
{
    return s->driver->cuMulticastAddDevice(s->multicast, 4096);
}

static CUresult adding_a_device_to_memory(struct misuse_setup *s)
{
    return s->driver->cuMulticastAddDevice(s->memory, 0);
}

static CUresult binding_before_all_devices_are_added(struct misuse_setup *s)
{
    STEP(s->driver->cuMulticastAddDevice(s->multicast, 0));
    return bind(s, 0, s->granularity);
}

static CUresult mapping_before_all_devices_are_added(struct misuse_setup *s)
{
    STEP(s->driver->cuMulticastAddDevice(s->multicast, 0));
    return map_multicast(s);
}

static CUresult binding_at_half_a_granule(struct misuse_setup *s)
{
    STEP(add_all(s));
    return bind(s, s->granularity / 2, s->granularity);
}

static CUresult binding_past_the_end_of_the_object(struct misuse_setup *s)
{
    STEP(add_all(s));
    return bind(s, s->granularity, 2 * s->granularity);
}

static CUresult binding_more_than_the_memory_has(struct misuse_setup *s)
{
    STEP(add_all(s));
    return s->driver->cuMulticastBindMem(s->multicast, 0, s->memory, s->granularity,
                                         2 * s->granularity, 0);
}

static CUresult binding_no_bytes(struct misuse_setup *s)
{
    STEP(add_all(s));
    return bind(s, 0, 0);
}

static CUresult binding_with_flags(struct misuse_setup *s)
{
    STEP(add_all(s));
    return s->driver->cuMulticastBindMem(s->multicast, 0, s->memory, 0, s->granularity, 1);
}

static CUresult binding_where_something_is_bound(struct misuse_setup *s)
{
    STEP(add_all(s));
    STEP(bind(s, 0, 2 * s->granularity));
    return bind(s, s->granularity, s->granularity);
}

static CUresult binding_memory_of_a_device_that_is_no_member(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle single;
    CUmulticastObjectProp prop = {.numDevices = 1, .size = s->granularity};
    STEP(s->driver->cuMulticastCreate(&single, &prop));
    STEP(s->driver->cuMulticastAddDevice(single, 0));
    CUresult result = s->driver->cuMulticastBindMem(single, 0, s->peer, 0, s->granularity, 0);
    STEP(s->driver->cuMemRelease(single));
    return result;
}

static CUresult binding_private_memory_to_a_shareable_object(struct misuse_setup *s)
{
    CUmemAllocationProp prop = memory_prop(0);
    CUmemGenericAllocationHandle private_memory;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    STEP(add_all(s));
    STEP(s->driver->cuMemCreate(&private_memory, s->granularity, &prop, 0));
    CUresult result =
        s->driver->cuMulticastBindMem(s->multicast, 0, private_memory, 0, s->granularity, 0);
    STEP(s->driver->cuMemRelease(private_memory));
    return result;
}

static CUresult unbinding_another_size_than_was_bound(struct misuse_setup *s)
{
    STEP(add_all(s));
    STEP(bind(s, 0, 2 * s->granularity));
    return s->driver->cuMulticastUnbind(s->multicast, 0, 0, s->granularity);
}

static CUresult unbinding_twice(struct misuse_setup *s)
{
    STEP(add_all(s));
    STEP(bind(s, 0, s->granularity));
    STEP(s->driver->cuMulticastUnbind(s->multicast, 0, 0, s->granularity));
    return s->driver->cuMulticastUnbind(s->multicast, 0, 0, s->granularity);
}

static CUresult allowing_access_to_an_object_for_a_device_that_is_no_member(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle single;
    CUmulticastObjectProp prop = {.numDevices = 1, .size = 2 * s->granularity};
    STEP(s->driver->cuMulticastCreate(&single, &prop));
    STEP(s->driver->cuMulticastAddDevice(single, 0));
    STEP(s->driver->cuMemMap(s->address, 2 * s->granularity, 0, single, 0));
    CUresult result = allow(s, 1);
    STEP(s->driver->cuMemRelease(single));
    return result;
}

static CUresult mapping_an_object_from_an_offset(struct misuse_setup *s)
{
    STEP(add_all(s));
    return s->driver->cuMemMap(s->address, s->granularity, s->granularity, s->multicast, 0);
}

static CUresult filling_through_a_multicast_address(struct misuse_setup *s)
{
    STEP(add_all(s));
    STEP(bind(s, 0, 2 * s->granularity));
    STEP(map_multicast(s));
    STEP(allow(s, 0));
    return s->driver->cuMemsetD8Async(s->address, 1, 16, s->stream);
}

static CUresult exporting_a_multicast_object(struct misuse_setup *s)
{
    int fd;
    return s->driver->cuMemExportToShareableHandle(&fd, s->multicast,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult releasing_a_multicast_object_twice(struct misuse_setup *s)
{
    CUmemGenericAllocationHandle handle = s->multicast;
    s->multicast = 0;
    STEP(s->driver->cuMemRelease(handle));
    return s->driver->cuMemRelease(handle);
}

/* ---------------------------------------------------------------- the table */

const struct misuse_row misuse_rows[] = {
    {"releasing memory twice", releasing_memory_twice, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"mapping where something is mapped", mapping_where_something_is_mapped,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"freeing addresses while mapped", freeing_addresses_while_mapped, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"filling memory without access", filling_memory_without_access, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"creating no bytes", creating_no_bytes, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"creating a part of a granule", creating_a_part_of_a_granule, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"creating with flags", creating_with_flags, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"creating without properties", creating_without_properties, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"creating memory of no type", creating_memory_of_no_type, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"creating memory nowhere", creating_memory_nowhere, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"creating on a device that is not there", creating_on_a_device_that_is_not_there,
     CUDA_ERROR_INVALID_DEVICE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"creating more than the device has", creating_more_than_the_device_has,
     CUDA_ERROR_OUT_OF_MEMORY, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"asking for the granularity of a device that is not there",
     asking_for_the_granularity_of_a_device_that_is_not_there, CUDA_ERROR_INVALID_DEVICE,
     MISUSE_STRICTER, MISUSE_NEEDS_NOTHING},
    {"mapping from an offset", mapping_from_an_offset, CUDA_ERROR_NOT_SUPPORTED, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"mapping more than there is", mapping_more_than_there_is, CUDA_ERROR_NOT_SUPPORTED,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"mapping at half a granule", mapping_at_half_a_granule, CUDA_ERROR_NOT_SUPPORTED, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"mapping no bytes", mapping_no_bytes, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"mapping with flags", mapping_with_flags, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"mapping past the reservation", mapping_past_the_reservation, CUDA_ERROR_INVALID_VALUE,
     MISUSE_STRICTER, MISUSE_NEEDS_NOTHING},
    {"mapping where nothing is reserved", mapping_where_nothing_is_reserved,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"mapping released memory", mapping_released_memory, CUDA_ERROR_INVALID_VALUE, MISUSE_CRASHES,
     MISUSE_NEEDS_NOTHING},
    {"unmapping what is not mapped", unmapping_what_is_not_mapped, CUDA_ERROR_INVALID_VALUE,
     MISUSE_STRICTER, MISUSE_NEEDS_NOTHING},
    {"unmapping twice", unmapping_twice, CUDA_ERROR_INVALID_VALUE, MISUSE_STRICTER,
     MISUSE_NEEDS_NOTHING},
    {"unmapping a part of a mapping", unmapping_a_part_of_a_mapping, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"unmapping more than is mapped", unmapping_more_than_is_mapped, CUDA_ERROR_INVALID_VALUE,
     MISUSE_STRICTER, MISUSE_NEEDS_NOTHING},
    {"allowing access to nothing", allowing_access_to_nothing, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"allowing access to a part of a mapping", allowing_access_to_a_part_of_a_mapping,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"allowing access past a mapping", allowing_access_past_a_mapping, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"allowing access to nobody", allowing_access_to_nobody, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"allowing access to a device that is not there", allowing_access_to_a_device_that_is_not_there,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"allowing an unknown kind of access", allowing_an_unknown_kind_of_access,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"asking for access where nothing is mapped", asking_for_access_where_nothing_is_mapped,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"reserving no addresses", reserving_no_addresses, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"reserving a part of a page", reserving_a_part_of_a_page, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"reserving with an alignment that is no power of two",
     reserving_with_an_alignment_that_is_no_power_of_two, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"reserving with flags", reserving_with_flags, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"freeing a part of a reservation", freeing_a_part_of_a_reservation, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"freeing addresses twice", freeing_addresses_twice, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"exporting in a form that was not asked for", exporting_in_a_form_that_was_not_asked_for,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"exporting released memory", exporting_released_memory, CUDA_ERROR_INVALID_VALUE,
     MISUSE_CRASHES, MISUSE_NEEDS_NOTHING},
    {"exporting with flags", exporting_with_flags, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"importing a closed fd", importing_a_closed_fd, CUDA_ERROR_UNKNOWN, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"importing an fd that is no memory", importing_an_fd_that_is_no_memory, CUDA_ERROR_UNKNOWN,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"retaining the memory of an address without any",
     retaining_the_memory_of_an_address_without_any, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"asking for the properties of released memory", asking_for_the_properties_of_released_memory,
     CUDA_ERROR_INVALID_VALUE, MISUSE_STRICTER, MISUSE_NEEDS_NOTHING},
    {"filling past the end of a mapping", filling_past_the_end_of_a_mapping,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"copying to reserved addresses", copying_to_reserved_addresses, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"copying from memory without access", copying_from_memory_without_access,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"copying to read-only memory", copying_to_read_only_memory, CUDA_ERROR_INVALID_VALUE,
     MISUSE_OURS, MISUSE_NEEDS_SOFTWARE},
    {"using a destroyed stream", using_a_destroyed_stream, CUDA_ERROR_INVALID_HANDLE, MISUSE_OURS,
     MISUSE_NEEDS_SOFTWARE},
    {"using the default stream", using_the_default_stream, CUDA_ERROR_INVALID_HANDLE, MISUSE_OURS,
     MISUSE_NEEDS_SOFTWARE},
    {"making a stream with unknown flags", making_a_stream_with_unknown_flags,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"making a stream without a context", making_a_stream_without_a_context,
     CUDA_ERROR_INVALID_CONTEXT, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"asking for free memory without a context", asking_for_free_memory_without_a_context,
     CUDA_ERROR_INVALID_CONTEXT, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"making an event with unknown flags", making_an_event_with_unknown_flags,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"making an event between processes that keeps time",
     making_an_event_between_processes_that_keeps_time, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"measuring from an event that was never recorded",
     measuring_from_an_event_that_was_never_recorded, CUDA_ERROR_INVALID_HANDLE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"measuring with an event that keeps no time", measuring_with_an_event_that_keeps_no_time,
     CUDA_ERROR_INVALID_HANDLE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"waiting for an event with unknown flags", waiting_for_an_event_with_unknown_flags,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"loading no image", loading_no_image, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"asking for a function that is not there", asking_for_a_function_that_is_not_there,
     CUDA_ERROR_NOT_FOUND, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"launching no threads", launching_no_threads, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"launching no blocks", launching_no_blocks, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"launching too many threads a block", launching_too_many_threads_a_block,
     CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"calling the driver from a host function", calling_the_driver_from_a_host_function,
     CUDA_ERROR_NOT_PERMITTED, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"pinning no bytes", pinning_no_bytes, CUDA_ERROR_INVALID_VALUE, MISUSE_STRICTER,
     MISUSE_NEEDS_NOTHING},
    {"pinning with unknown flags", pinning_with_unknown_flags, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"unpinning twice", unpinning_twice, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"unpinning memory of the stack", unpinning_memory_of_the_stack, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"asking for an unknown attribute", asking_for_an_unknown_attribute, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"scheduling in an unknown way", scheduling_in_an_unknown_way, CUDA_ERROR_INVALID_VALUE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"scheduling on a device that is not there", scheduling_on_a_device_that_is_not_there,
     CUDA_ERROR_INVALID_DEVICE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"loading what is no function", loading_what_is_no_function, CUDA_ERROR_INVALID_HANDLE,
     MISUSE_OURS, MISUSE_NEEDS_SOFTWARE},
    {"asking for a device that is not there", asking_for_a_device_that_is_not_there,
     CUDA_ERROR_INVALID_DEVICE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"asking for a negative device", asking_for_a_negative_device, CUDA_ERROR_INVALID_DEVICE,
     MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"asking about a peer that is not there", asking_about_a_peer_that_is_not_there,
     CUDA_ERROR_INVALID_DEVICE, MISUSE_SEEN, MISUSE_NEEDS_NOTHING},
    {"initialising with flags", initialising_with_flags, CUDA_ERROR_INVALID_VALUE, MISUSE_SEEN,
     MISUSE_NEEDS_NOTHING},
    {"making an unknown context current", making_an_unknown_context_current,
     CUDA_ERROR_INVALID_CONTEXT, MISUSE_OURS, MISUSE_NEEDS_SOFTWARE},
    {"multicast of no devices", multicast_of_no_devices, CUDA_ERROR_INVALID_VALUE,
     MISUSE_DOCUMENTED, MISUSE_NEEDS_MULTICAST},
    {"multicast of more devices than there are", multicast_of_more_devices_than_there_are,
     CUDA_ERROR_INVALID_VALUE, MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
    {"multicast of no bytes", multicast_of_no_bytes, CUDA_ERROR_INVALID_VALUE, MISUSE_DOCUMENTED,
     MISUSE_NEEDS_MULTICAST},
    {"multicast of a part of a granule", multicast_of_a_part_of_a_granule, CUDA_ERROR_INVALID_VALUE,
     MISUSE_DOCUMENTED, MISUSE_NEEDS_MULTICAST},
    {"adding a device twice", adding_a_device_twice, CUDA_ERROR_INVALID_VALUE, MISUSE_OURS,
     MISUSE_NEEDS_MULTICAST},
    {"adding a device when all are there", adding_a_device_when_all_are_there,
     CUDA_ERROR_INVALID_VALUE, MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
    {"adding a device that is not there", adding_a_device_that_is_not_there,
     CUDA_ERROR_INVALID_DEVICE, MISUSE_DOCUMENTED, MISUSE_NEEDS_MULTICAST},
    {"adding a device to memory", adding_a_device_to_memory, CUDA_ERROR_INVALID_VALUE, MISUSE_OURS,
     MISUSE_NEEDS_MULTICAST},
    {"binding before all devices are added (the real driver waits)",
     binding_before_all_devices_are_added, CUDA_ERROR_INVALID_VALUE, MISUSE_OURS,
     MISUSE_NEEDS_MULTICAST},
    {"mapping before all devices are added (the real driver waits)",
     mapping_before_all_devices_are_added, CUDA_ERROR_INVALID_VALUE, MISUSE_OURS,
     MISUSE_NEEDS_MULTICAST},
    {"binding at half a granule", binding_at_half_a_granule, CUDA_ERROR_INVALID_VALUE,
     MISUSE_DOCUMENTED, MISUSE_NEEDS_MULTICAST},
    {"binding past the end of the object", binding_past_the_end_of_the_object,
     CUDA_ERROR_INVALID_VALUE, MISUSE_DOCUMENTED, MISUSE_NEEDS_MULTICAST},
    {"binding more than the memory has", binding_more_than_the_memory_has, CUDA_ERROR_INVALID_VALUE,
     MISUSE_DOCUMENTED, MISUSE_NEEDS_MULTICAST},
    {"binding no bytes", binding_no_bytes, CUDA_ERROR_INVALID_VALUE, MISUSE_DOCUMENTED,
     MISUSE_NEEDS_MULTICAST},
    {"binding with flags", binding_with_flags, CUDA_ERROR_INVALID_VALUE, MISUSE_DOCUMENTED,
     MISUSE_NEEDS_MULTICAST},
    {"binding where something is bound", binding_where_something_is_bound, CUDA_ERROR_INVALID_VALUE,
     MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
    {"binding memory of a device that is no member", binding_memory_of_a_device_that_is_no_member,
     CUDA_ERROR_INVALID_DEVICE, MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
    {"binding private memory to a shareable object", binding_private_memory_to_a_shareable_object,
     CUDA_ERROR_INVALID_VALUE, MISUSE_DOCUMENTED, MISUSE_NEEDS_MULTICAST},
    {"unbinding another size than was bound", unbinding_another_size_than_was_bound,
     CUDA_ERROR_INVALID_VALUE, MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
    {"unbinding twice", unbinding_twice, CUDA_ERROR_INVALID_VALUE, MISUSE_OURS,
     MISUSE_NEEDS_MULTICAST},
    {"allowing access to an object for a device that is no member",
     allowing_access_to_an_object_for_a_device_that_is_no_member, CUDA_ERROR_INVALID_DEVICE,
     MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
    {"mapping an object from an offset", mapping_an_object_from_an_offset, CUDA_ERROR_NOT_SUPPORTED,
     MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
    {"filling through a multicast address", filling_through_a_multicast_address,
     CUDA_ERROR_INVALID_VALUE, MISUSE_OURS, MISUSE_NEEDS_SOFTWARE_MULTICAST},
    {"exporting a multicast object", exporting_a_multicast_object, CUDA_ERROR_NOT_SUPPORTED,
     MISUSE_OURS, MISUSE_NEEDS_SOFTWARE_MULTICAST},
    {"releasing a multicast object twice", releasing_a_multicast_object_twice,
     CUDA_ERROR_INVALID_VALUE, MISUSE_OURS, MISUSE_NEEDS_MULTICAST},
};
const size_t misuse_row_count = sizeof(misuse_rows) / sizeof(misuse_rows[0]);

/* ---------------------------------------------------------------- running a row */

static CUresult setup_multicast(struct misuse_setup *s)
{
    CUmulticastObjectProp prop = {.numDevices = 2,
                                  .size = 2 * s->granularity,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemAllocationProp peer = memory_prop(1);
    CUresult result = s->driver->cuMulticastCreate(&s->multicast, &prop);
    return result ? result : s->driver->cuMemCreate(&s->peer, 2 * s->granularity, &peer, 0);
}

static CUresult setup_make(const struct misuse_driver *driver, bool multicast,
                           struct misuse_setup *s)
{
    CUcontext context;
    CUmemAllocationProp prop = memory_prop(0);
    s->driver = driver->driver;
    STEP(s->driver->cuDevicePrimaryCtxRetain(&context, 0));
    STEP(s->driver->cuCtxSetCurrent(context));
    STEP(s->driver->cuMemGetAllocationGranularity(&s->granularity, &prop,
                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    STEP(s->driver->cuMemCreate(&s->memory, 2 * s->granularity, &prop, 0));
    STEP(s->driver->cuMemAddressReserve(&s->address, 4 * s->granularity, 0, 0, 0));
    STEP(s->driver->cuStreamCreateWithPriority(&s->stream, CU_STREAM_NON_BLOCKING, 0));
    STEP(s->driver->cuModuleLoadData(&s->module, driver->image));
    STEP(s->driver->cuModuleGetFunction(&s->function, s->module, driver->function));
    return multicast ? setup_multicast(s) : CUDA_SUCCESS;
}

/** Take back what is left: a row may have undone any of it, and then says so with a 0. */
static void setup_undo(struct misuse_setup *s)
{
    CUcontext context;
    (void)s->driver->cuDevicePrimaryCtxRetain(&context, 0);
    (void)s->driver->cuCtxSetCurrent(context);
    if (s->address) {
        (void)s->driver->cuMemUnmap(s->address, 2 * s->granularity);
        (void)s->driver->cuMemAddressFree(s->address, 4 * s->granularity);
    }
    CUmemGenericAllocationHandle handles[] = {s->multicast, s->memory, s->peer};
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
        if (handles[i]) {
            (void)s->driver->cuMemRelease(handles[i]);
        }
    }
    if (s->stream) {
        (void)s->driver->cuStreamDestroy(s->stream);
    }
    (void)s->driver->cuModuleUnload(s->module);
    (void)s->driver->cuDevicePrimaryCtxRelease(0);
    (void)s->driver->cuDevicePrimaryCtxRelease(0);
}

bool misuse_run(const struct misuse_driver *driver, const struct misuse_row *row,
                CUresult *ret_result)
{
    bool multicast = row->needs & MISUSE_NEEDS_MULTICAST;
    if ((multicast && !driver->multicast) ||
        ((row->needs & MISUSE_NEEDS_SOFTWARE) && !driver->software)) {
        return false;
    }
    struct misuse_setup setup = {0};
    CUresult result = setup_make(driver, multicast, &setup);
    *ret_result = result ? result : row->sequence(&setup);
    setup_undo(&setup);
    return true;
}
