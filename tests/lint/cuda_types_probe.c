/**
 * Prints sizes, offsets and values of the CUDA types that the driver table uses. cuda_types.sh
 * compiles it twice, with a real cuda.h (PROBE_REAL) and with our own header, and compares what the
 * two print. With the real one the compiler also checks every signature of the table.
 */
#include <stddef.h>
#include <stdio.h>

#ifdef PROBE_REAL
#include <cuda.h>
#include <cudaTypedefs.h>
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
/* The version that a driver is asked for is one that has this signature. */
#define X(call, version, need)                                                                     \
    _Static_assert(__builtin_types_compatible_p(PFN_##call##_v##version,                           \
                                                __typeof__(((struct gpu_driver *)0)->call)),       \
                   #call " has another signature in version " #version);
GPU_DRIVER_VERSIONS(X)
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
    VALUE(CU_CTX_SCHED_AUTO);
    VALUE(CU_CTX_SCHED_SPIN);
    VALUE(CU_CTX_SCHED_YIELD);
    VALUE(CU_CTX_SCHED_BLOCKING_SYNC);
    VALUE(CU_CTX_SCHED_MASK);
    VALUE(CU_COMPUTEMODE_DEFAULT);
    VALUE(CU_COMPUTEMODE_PROHIBITED);
    VALUE(CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
    VALUE(CU_GET_PROC_ADDRESS_DEFAULT);
    VALUE(CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    VALUE(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    VALUE(CU_GET_PROC_ADDRESS_SUCCESS);
    VALUE(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    VALUE(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    VALUE(CU_EVENT_DEFAULT);
    VALUE(CU_EVENT_BLOCKING_SYNC);
    VALUE(CU_EVENT_DISABLE_TIMING);
    VALUE(CU_EVENT_INTERPROCESS);
    VALUE(CU_MEMHOSTALLOC_PORTABLE);
    VALUE(CU_MEMHOSTALLOC_DEVICEMAP);
    VALUE(CU_MEMHOSTALLOC_WRITECOMBINED);
    VALUE(CU_MEMORYTYPE_HOST);
    VALUE(CU_MEMORYTYPE_DEVICE);
    VALUE(CU_MEMORYTYPE_ARRAY);
    VALUE(CU_MEMORYTYPE_UNIFIED);
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

static void print_graph_layout(void)
{
    SIZE(CUgraph);
    SIZE(CUgraphNode);
    SIZE(CUgraphExec);
    SIZE(CUarray);
    SIZE(CUkernel);
    SIZE(CUmemorytype);
    SIZE(CUDA_KERNEL_NODE_PARAMS);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, func);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, gridDimX);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, gridDimY);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, gridDimZ);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, blockDimX);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, blockDimY);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, blockDimZ);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, kernelParams);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, extra);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, kern);
    OFFSET(CUDA_KERNEL_NODE_PARAMS, ctx);
    SIZE(CUDA_MEMCPY3D);
    OFFSET(CUDA_MEMCPY3D, srcXInBytes);
    OFFSET(CUDA_MEMCPY3D, srcY);
    OFFSET(CUDA_MEMCPY3D, srcZ);
    OFFSET(CUDA_MEMCPY3D, srcLOD);
    OFFSET(CUDA_MEMCPY3D, srcMemoryType);
    OFFSET(CUDA_MEMCPY3D, srcHost);
    OFFSET(CUDA_MEMCPY3D, srcDevice);
    OFFSET(CUDA_MEMCPY3D, srcArray);
    OFFSET(CUDA_MEMCPY3D, reserved0);
    OFFSET(CUDA_MEMCPY3D, srcPitch);
    OFFSET(CUDA_MEMCPY3D, srcHeight);
    OFFSET(CUDA_MEMCPY3D, dstXInBytes);
    OFFSET(CUDA_MEMCPY3D, dstY);
    OFFSET(CUDA_MEMCPY3D, dstZ);
    OFFSET(CUDA_MEMCPY3D, dstLOD);
    OFFSET(CUDA_MEMCPY3D, dstMemoryType);
    OFFSET(CUDA_MEMCPY3D, dstHost);
    OFFSET(CUDA_MEMCPY3D, dstDevice);
    OFFSET(CUDA_MEMCPY3D, dstArray);
    OFFSET(CUDA_MEMCPY3D, reserved1);
    OFFSET(CUDA_MEMCPY3D, dstPitch);
    OFFSET(CUDA_MEMCPY3D, dstHeight);
    OFFSET(CUDA_MEMCPY3D, WidthInBytes);
    OFFSET(CUDA_MEMCPY3D, Height);
    OFFSET(CUDA_MEMCPY3D, Depth);
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
    SIZE(CUdriverProcAddressQueryResult);
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
    print_graph_layout();
}

int main(void)
{
    print_values();
    print_layout();
    return 0;
}
