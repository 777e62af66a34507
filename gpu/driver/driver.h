#ifndef SYMTENSOR_GPU_DRIVER_DRIVER_H
#define SYMTENSOR_GPU_DRIVER_DRIVER_H

#include "base/error.h"
#include "gpu/driver/cuda_types.h"

/**
 * The driver table: every CUDA Driver API entry point that the server uses, once. Two
 * implementations fill it: libcuda.so.1, opened at run time, and the software driver. All code in
 * gpu/ above this line calls through a `const struct gpu_driver *` and does not know which one it
 * has.
 *
 * X(name, (parameters), (arguments)). Signatures: CUDA Driver API reference, CUDA 12/13.
 */
#define GPU_DRIVER_CALLS(X)                                                                        \
    X(cuInit, (unsigned flags), (flags))                                                           \
    X(cuDriverGetVersion, (int *version), (version))                                               \
    X(cuDeviceGetCount, (int *count), (count))                                                     \
    X(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal))                            \
    X(cuDeviceGetName, (char *name, int len, CUdevice dev), (name, len, dev))                      \
    X(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev), (uuid, dev))                                 \
    X(cuDeviceTotalMem, (size_t * bytes, CUdevice dev), (bytes, dev))                              \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice dev),              \
      (value, attribute, dev))                                                                     \
    X(cuDeviceCanAccessPeer, (int *can, CUdevice dev, CUdevice peer), (can, dev, peer))            \
    X(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned flags), (dev, flags))                    \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice dev), (context, dev))               \
    X(cuDevicePrimaryCtxRelease, (CUdevice dev), (dev))                                            \
    X(cuCtxSetCurrent, (CUcontext context), (context))                                             \
    X(cuMemGetInfo, (size_t * free_bytes, size_t * total), (free_bytes, total))                    \
    X(cuMemGetAllocationGranularity,                                                               \
      (size_t * granularity, const CUmemAllocationProp *prop,                                      \
       CUmemAllocationGranularity_flags option),                                                   \
      (granularity, prop, option))                                                                 \
    X(cuMemCreate,                                                                                 \
      (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,        \
       unsigned long long flags),                                                                  \
      (handle, size, prop, flags))                                                                 \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))                               \
    X(cuMemAddressReserve,                                                                         \
      (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr hint,                     \
       unsigned long long flags),                                                                  \
      (address, size, alignment, hint, flags))                                                     \
    X(cuMemAddressFree, (CUdeviceptr address, size_t size), (address, size))                       \
    X(cuMemMap,                                                                                    \
      (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,       \
       unsigned long long flags),                                                                  \
      (address, size, offset, handle, flags))                                                      \
    X(cuMemUnmap, (CUdeviceptr address, size_t size), (address, size))                             \
    X(cuMemSetAccess,                                                                              \
      (CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count),               \
      (address, size, desc, count))                                                                \
    X(cuMemGetAccess,                                                                              \
      (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),             \
      (flags, location, address))                                                                  \
    X(cuMemGetAllocationPropertiesFromHandle,                                                      \
      (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle))           \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address),         \
      (handle, address))                                                                           \
    X(cuMemExportToShareableHandle,                                                                \
      (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,       \
       unsigned long long flags),                                                                  \
      (shareable, handle, type, flags))                                                            \
    X(cuMemImportFromShareableHandle,                                                              \
      (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type),    \
      (handle, shareable, type))                                                                   \
    X(cuMulticastCreate,                                                                           \
      (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *prop), (handle, prop))  \
    X(cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice dev), (handle, dev))    \
    X(cuMulticastBindMem,                                                                          \
      (CUmemGenericAllocationHandle handle, size_t multicast_offset,                               \
       CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,                     \
       unsigned long long flags),                                                                  \
      (handle, multicast_offset, memory, memory_offset, size, flags))                              \
    X(cuMulticastUnbind,                                                                           \
      (CUmemGenericAllocationHandle handle, CUdevice dev, size_t multicast_offset, size_t size),   \
      (handle, dev, multicast_offset, size))                                                       \
    X(cuMulticastGetGranularity,                                                                   \
      (size_t * granularity, const CUmulticastObjectProp *prop,                                    \
       CUmulticastGranularity_flags option),                                                       \
      (granularity, prop, option))                                                                 \
    X(cuMemHostAlloc, (void **host, size_t bytes, unsigned flags), (host, bytes, flags))           \
    X(cuMemFreeHost, (void *host), (host))                                                         \
    X(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),            \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),        \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyDtoHAsync, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),              \
      (to, from, bytes, stream))                                                                   \
    X(cuMemcpyDtoDAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),        \
      (to, from, bytes, stream))                                                                   \
    X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream),       \
      (to, value, bytes, stream))                                                                  \
    X(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),               \
      (stream, flags, priority))                                                                   \
    X(cuStreamDestroy, (CUstream stream), (stream))                                                \
    X(cuStreamQuery, (CUstream stream), (stream))                                                  \
    X(cuStreamSynchronize, (CUstream stream), (stream))                                            \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags)) \
    X(cuEventCreate, (CUevent * event, unsigned flags), (event, flags))                            \
    X(cuEventDestroy, (CUevent event), (event))                                                    \
    X(cuEventRecord, (CUevent event, CUstream stream), (event, stream))                            \
    X(cuEventQuery, (CUevent event), (event))                                                      \
    X(cuEventSynchronize, (CUevent event), (event))                                                \
    X(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end),                       \
      (milliseconds, start, end))                                                                  \
    X(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data),                          \
      (stream, function, data))                                                                    \
    X(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))                   \
    X(cuModuleUnload, (CUmodule module), (module))                                                 \
    X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),             \
      (function, module, name))                                                                    \
    X(cuFuncLoad, (CUfunction function), (function))                                               \
    X(cuLaunchKernel,                                                                              \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,  \
       void **extra),                                                                              \
      (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,  \
       extra))                                                                                     \
    X(cuGraphCreate, (CUgraph * graph, unsigned flags), (graph, flags))                            \
    X(cuGraphDestroy, (CUgraph graph), (graph))                                                    \
    X(cuGraphAddKernelNode,                                                                        \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,           \
       const CUDA_KERNEL_NODE_PARAMS *params),                                                     \
      (node, graph, dependencies, count, params))                                                  \
    X(cuGraphAddMemcpyNode,                                                                        \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,           \
       const CUDA_MEMCPY3D *copy, CUcontext context),                                              \
      (node, graph, dependencies, count, copy, context))                                           \
    X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),  \
      (exec, graph, flags))                                                                        \
    X(cuGraphExecDestroy, (CUgraphExec exec), (exec))                                              \
    X(cuGraphExecKernelNodeSetParams,                                                              \
      (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),                 \
      (exec, node, params))                                                                        \
    X(cuGraphExecMemcpyNodeSetParams,                                                              \
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),          \
      (exec, node, copy, context))                                                                 \
    X(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, stream))                          \
    X(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream))

/**
 * The same calls in the same order, with the CUDA version whose signature the table has and whether
 * a driver must have the call. X(name, version, need): a driver is asked for exactly this version,
 * since an older one refuses to look for a newer and a newer one may have changed the parameters
 * since. Where a call that need not be there is missing, the table answers
 * CUDA_ERROR_NOT_SUPPORTED. Source: cudaTypedefs.h of CUDA 13.0, which tests/lint/cuda_types
 * compares.
 */
#define GPU_DRIVER_VERSIONS(X)                                                                     \
    X(cuInit, 2000, REQUIRED)                                                                      \
    X(cuDriverGetVersion, 2020, REQUIRED)                                                          \
    X(cuDeviceGetCount, 2000, REQUIRED)                                                            \
    X(cuDeviceGet, 2000, REQUIRED)                                                                 \
    X(cuDeviceGetName, 2000, REQUIRED)                                                             \
    X(cuDeviceGetUuid, 11040, REQUIRED)                                                            \
    X(cuDeviceTotalMem, 3020, REQUIRED)                                                            \
    X(cuDeviceGetAttribute, 2000, REQUIRED)                                                        \
    X(cuDeviceCanAccessPeer, 4000, REQUIRED)                                                       \
    X(cuDevicePrimaryCtxSetFlags, 11000, REQUIRED)                                                 \
    X(cuDevicePrimaryCtxRetain, 7000, REQUIRED)                                                    \
    X(cuDevicePrimaryCtxRelease, 11000, REQUIRED)                                                  \
    X(cuCtxSetCurrent, 4000, REQUIRED)                                                             \
    X(cuMemGetInfo, 3020, REQUIRED)                                                                \
    X(cuMemGetAllocationGranularity, 10020, REQUIRED)                                              \
    X(cuMemCreate, 10020, REQUIRED)                                                                \
    X(cuMemRelease, 10020, REQUIRED)                                                               \
    X(cuMemAddressReserve, 10020, REQUIRED)                                                        \
    X(cuMemAddressFree, 10020, REQUIRED)                                                           \
    X(cuMemMap, 10020, REQUIRED)                                                                   \
    X(cuMemUnmap, 10020, REQUIRED)                                                                 \
    X(cuMemSetAccess, 10020, REQUIRED)                                                             \
    X(cuMemGetAccess, 10020, REQUIRED)                                                             \
    X(cuMemGetAllocationPropertiesFromHandle, 10020, REQUIRED)                                     \
    X(cuMemRetainAllocationHandle, 11000, REQUIRED)                                                \
    X(cuMemExportToShareableHandle, 10020, REQUIRED)                                               \
    X(cuMemImportFromShareableHandle, 10020, REQUIRED)                                             \
    X(cuMulticastCreate, 12010, OPTIONAL)                                                          \
    X(cuMulticastAddDevice, 12010, OPTIONAL)                                                       \
    X(cuMulticastBindMem, 12010, OPTIONAL)                                                         \
    X(cuMulticastUnbind, 12010, OPTIONAL)                                                          \
    X(cuMulticastGetGranularity, 12010, OPTIONAL)                                                  \
    X(cuMemHostAlloc, 2020, REQUIRED)                                                              \
    X(cuMemFreeHost, 2000, REQUIRED)                                                               \
    X(cuMemcpyAsync, 4000, REQUIRED)                                                               \
    X(cuMemcpyHtoDAsync, 3020, REQUIRED)                                                           \
    X(cuMemcpyDtoHAsync, 3020, REQUIRED)                                                           \
    X(cuMemcpyDtoDAsync, 3020, REQUIRED)                                                           \
    X(cuMemsetD8Async, 3020, REQUIRED)                                                             \
    X(cuStreamCreateWithPriority, 5050, REQUIRED)                                                  \
    X(cuStreamDestroy, 4000, REQUIRED)                                                             \
    X(cuStreamQuery, 2000, REQUIRED)                                                               \
    X(cuStreamSynchronize, 2000, REQUIRED)                                                         \
    X(cuStreamWaitEvent, 3020, REQUIRED)                                                           \
    X(cuEventCreate, 2000, REQUIRED)                                                               \
    X(cuEventDestroy, 4000, REQUIRED)                                                              \
    X(cuEventRecord, 2000, REQUIRED)                                                               \
    X(cuEventQuery, 2000, REQUIRED)                                                                \
    X(cuEventSynchronize, 2000, REQUIRED)                                                          \
    X(cuEventElapsedTime, 2000, REQUIRED)                                                          \
    X(cuLaunchHostFunc, 10000, REQUIRED)                                                           \
    X(cuModuleLoadData, 2000, REQUIRED)                                                            \
    X(cuModuleUnload, 2000, REQUIRED)                                                              \
    X(cuModuleGetFunction, 2000, REQUIRED)                                                         \
    X(cuFuncLoad, 12040, OPTIONAL)                                                                 \
    X(cuLaunchKernel, 4000, REQUIRED)                                                              \
    X(cuGraphCreate, 10000, OPTIONAL)                                                              \
    X(cuGraphDestroy, 10000, OPTIONAL)                                                             \
    X(cuGraphAddKernelNode, 12000, OPTIONAL)                                                       \
    X(cuGraphAddMemcpyNode, 10000, OPTIONAL)                                                       \
    X(cuGraphInstantiateWithFlags, 11040, OPTIONAL)                                                \
    X(cuGraphExecDestroy, 10000, OPTIONAL)                                                         \
    X(cuGraphExecKernelNodeSetParams, 12000, OPTIONAL)                                             \
    X(cuGraphExecMemcpyNodeSetParams, 10020, OPTIONAL)                                             \
    X(cuGraphUpload, 11010, OPTIONAL)                                                              \
    X(cuGraphLaunch, 10000, OPTIONAL)

/** The table. One function pointer a row; none is ever NULL in an opened driver. */
struct gpu_driver {
    const char
        *name; /**< "cuda" or "software": shown by capabilities, never compared above gpu/. */
#define X(call, params, args) CUresult(*call) params;
    GPU_DRIVER_CALLS(X)
#undef X
};

/** One value of enum gpu_driver_call a row of the table, in order. */
enum gpu_driver_call {
#define X(call, params, args) GPU_CALL_##call,
    GPU_DRIVER_CALLS(X)
#undef X
        GPU_CALL_COUNT
};

/** "cuMemCreate" and so on. @p call < GPU_CALL_COUNT. Thread: any. */
const char *gpu_driver_call_name(enum gpu_driver_call call);

/** Find a call by its name. @return false when there is none. Thread: any. */
bool gpu_driver_call_find(const char *name, enum gpu_driver_call *ret_call);

/** "CUDA_ERROR_INVALID_VALUE (1)"; static text; "unknown CUresult" for one that is not listed.
 * Thread: any. */
const char *gpu_driver_result_name(CUresult result);

/**
 * Fault injection, call counting and a call log (gpu/driver/faults.c), in every build. Every call
 * of the wrapped table is counted; one that matches an armed fault answers the fault's code without
 * reaching the driver. One wrapped driver a process.
 *
 * @param inner a complete table; kept.
 * @return the wrapped table. Without a fault or a log a call costs one relaxed add and one load
 * more. Thread: start-up.
 */
const struct gpu_driver *gpu_faults_wrap(const struct gpu_driver *inner);
/** Fail the @p nth (1 = the next) call of @p call with @p result. Thread: any. */
void gpu_faults_arm(enum gpu_driver_call call, uint64_t nth, CUresult result);
/**
 * Fail the @p nth call from now of any kind but the destructors (release, unmap, unbind, free,
 * destroy, unload), which can fail only when they are named. Thread: any.
 */
void gpu_faults_arm_any(uint64_t nth, CUresult result);
/** Hold the @p nth call of @p call for @p milliseconds before it reaches the driver. Thread: any.
 */
void gpu_faults_arm_hang(enum gpu_driver_call call, uint64_t nth, uint32_t milliseconds);
/** Disarm all. @return whether an armed fault or hang had fired since the last disarm. Thread: any.
 */
bool gpu_faults_disarm(void);
/** Calls of @p call since the process began. Thread: any. */
uint64_t gpu_faults_calls(enum gpu_driver_call call);
/**
 * Arm what SYMTENSOR_FAULTS says, "cuMemCreate:3=2,cuMulticastBindMem:1=802": call, n-th call from
 * now, CUresult; the call "any" is gpu_faults_arm_any(). Whoever opens a driver passes the
 * variable's value.
 * @param text NULL or "" arms nothing.
 * @return false, with nothing armed and a message in @p err, when it is malformed. Thread:
 * start-up.
 */
bool gpu_faults_parse(const char *text, struct st_error *err);
/** As gpu_faults_parse(), for hangs: "cuMemCreate:2:5000" is call, n-th call, milliseconds. */
bool gpu_faults_parse_hangs(const char *text, struct st_error *err);

/**
 * After every call of the wrapped table that returns on this thread, call returned(arg); NULL:
 * nothing more. @p returned is short and calls no driver. Thread: the one that is meant.
 */
void gpu_driver_watch_thread(void (*returned)(void *arg), void *arg);

/** One finished call, as the log sees it. */
struct gpu_call_record {
    enum gpu_driver_call call;
    CUresult result;
    bool injected;         /**< A fault answered; the driver was not reached. */
    uint32_t handle_types; /**< cuMemCreate: the requested handle types; else 0. */
};
/**
 * Have @p log called after every call of the wrapped table, on the calling thread; NULL stops it.
 * It must not call the driver or arm faults. Thread: any, while no call is in flight.
 */
void gpu_faults_log(void (*log)(void *arg, const struct gpu_call_record *record), void *arg);

#endif
