#ifndef SYMTENSOR_GPU_ALLOCATION_H
#define SYMTENSOR_GPU_ALLOCATION_H

#include "gpu/device.h"

/** The memory of one rank: a handle of the driver, mapped at one address. Owned by its shards. */
struct gpu_allocation {
    struct gpu_device *device;
    uint64_t bytes; /**< A multiple of the granularity; 0: nothing is there. */
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    _Atomic uint64_t access; /**< Bit i: device i may read and write. It only grows. */
    bool counted;            /**< In gpu.allocations. */
    bool created, reserved, mapped;
};

/** What to allocate. */
struct gpu_allocation_spec {
    struct gpu_device *device;
    enum gpu_memory_type type;
    uint64_t bytes;
    uint64_t access; /**< Devices that shall read and write; the own one among them. */
};

/**
 * Create, map and give access. The bytes count as worked on until gpu_device_end_bytes(), on
 * failure too. Thread: a worker. Blocks: for driver calls.
 * @param ret_allocation zero-filled; on failure it holds what gpu_allocation_destroy() must undo.
 * @retval ST_RESOURCE_EXHAUSTED GPU_MEMORY_EXHAUSTED, FD_LIMIT, MAP_LIMIT. @retval ST_UNAVAILABLE
 * DEVICE_LOST.
 */
ST_MUST_CHECK enum st_status gpu_allocation_create(const struct gpu_allocation_spec *spec,
                                                   struct gpu_allocation *ret_allocation,
                                                   struct st_error *err);
/**
 * Let another device read and write too, from now on. Work that is going on is not disturbed.
 * Thread: a worker. Blocks: for a driver call. @return false: the driver refuses.
 */
bool gpu_allocation_grant(struct gpu_allocation *allocation, const struct gpu_device *device);
/**
 * Undo exactly what was done. What the driver does not take back stays counted, as quarantined.
 * Thread: a worker. Blocks: for driver calls.
 * @return whether the driver took all back.
 */
bool gpu_allocation_destroy(struct gpu_allocation *allocation);

#endif
