/**
 * Prints sizes, offsets and values of the CUDA types that the driver table uses. cuda_types.sh
 * compiles it twice, with a real cuda.h (PROBE_REAL) and with our own header, and compares what the
 * two print. With the real one the compiler also checks every signature of the table.
 */
#include <stddef.h>
#include <stdio.h>

#ifdef PROBE_REAL
#include <cuda.h>
#define SYMTENSOR_GPU_DRIVER_CUDA_TYPES_H /* the table is to be made of the real types */
#endif
#include "gpu/driver/cuda_values.h"
#include "gpu/driver/driver.h"

#ifdef PROBE_REAL
#define X(call, params, args)                                                                      \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&call),                                 \
                                                __typeof__(((struct gpu_driver *)0)->call)),       \
                   #call " has another signature");
GPU_DRIVER_CALLS(X)
#undef X
#endif

#define SIZE(type) printf("sizeof %s %zu align %zu\n", #type, sizeof(type), _Alignof(type))
#define OFFSET(type, field)                                                                        \
    printf("offsetof %s.%s %zu size %zu\n", #type, #field, offsetof(type, field),                  \
           sizeof(((type *)0)->field))
#define VALUE(name) printf("%s %lld\n", #name, (long long)(name))

static void print_values(void)
{
#define X(name, value)                                                                             \
    VALUE(name);                                                                                   \
    printf("listed %d\n", value);
    GPU_CUDA_RESULTS(X)
#undef X
#define X(name, value)                                                                             \
    VALUE(CU_DEVICE_ATTRIBUTE_##name);                                                             \
    printf("listed %d\n", value);
    GPU_CUDA_ATTRIBUTES(X)
#undef X
    VALUE(CU_STREAM_DEFAULT);
    VALUE(CU_STREAM_NON_BLOCKING);
    VALUE(CU_EVENT_DEFAULT);
    VALUE(CU_EVENT_BLOCKING_SYNC);
    VALUE(CU_EVENT_DISABLE_TIMING);
    VALUE(CU_EVENT_INTERPROCESS);
    VALUE(CU_MEMHOSTALLOC_PORTABLE);
    VALUE(CU_MEMHOSTALLOC_DEVICEMAP);
    VALUE(CU_MEMHOSTALLOC_WRITECOMBINED);
    VALUE(CU_MEM_HANDLE_TYPE_NONE);
    VALUE(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    VALUE(CU_MEM_HANDLE_TYPE_WIN32);
    VALUE(CU_MEM_HANDLE_TYPE_WIN32_KMT);
    VALUE(CU_MEM_HANDLE_TYPE_FABRIC);
    VALUE(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    VALUE(CU_MEM_ACCESS_FLAGS_PROT_READ);
    VALUE(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    VALUE(CU_MEM_LOCATION_TYPE_INVALID);
    VALUE(CU_MEM_LOCATION_TYPE_DEVICE);
    VALUE(CU_MEM_ALLOCATION_TYPE_INVALID);
    VALUE(CU_MEM_ALLOCATION_TYPE_PINNED);
    VALUE(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    VALUE(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    VALUE(CU_MULTICAST_GRANULARITY_MINIMUM);
    VALUE(CU_MULTICAST_GRANULARITY_RECOMMENDED);
}

static void print_layout(void)
{
    SIZE(CUresult);
    SIZE(CUdevice);
    SIZE(CUdevice_attribute);
    SIZE(CUdeviceptr);
    SIZE(CUmemGenericAllocationHandle);
    SIZE(CUcontext);
    SIZE(CUmodule);
    SIZE(CUfunction);
    SIZE(CUstream);
    SIZE(CUevent);
    SIZE(CUhostFn);
    SIZE(CUuuid);
    SIZE(CUmemAllocationHandleType);
    SIZE(CUmemFabricHandle);
    SIZE(CUmemLocation);
    OFFSET(CUmemLocation, type);
    OFFSET(CUmemLocation, id);
    SIZE(CUmemAllocationProp);
    OFFSET(CUmemAllocationProp, type);
    OFFSET(CUmemAllocationProp, requestedHandleTypes);
    OFFSET(CUmemAllocationProp, location);
    OFFSET(CUmemAllocationProp, win32HandleMetaData);
    OFFSET(CUmemAllocationProp, allocFlags.compressionType);
    OFFSET(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
    OFFSET(CUmemAllocationProp, allocFlags.usage);
    OFFSET(CUmemAllocationProp, allocFlags.reserved);
    SIZE(CUmemAccessDesc);
    OFFSET(CUmemAccessDesc, location);
    OFFSET(CUmemAccessDesc, flags);
    SIZE(CUmulticastObjectProp);
    OFFSET(CUmulticastObjectProp, numDevices);
    OFFSET(CUmulticastObjectProp, size);
    OFFSET(CUmulticastObjectProp, handleTypes);
    OFFSET(CUmulticastObjectProp, flags);
}

int main(void)
{
    print_values();
    print_layout();
    return 0;
}
