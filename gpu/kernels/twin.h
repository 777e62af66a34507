#ifndef SYMTENSOR_GPU_KERNELS_TWIN_H
#define SYMTENSOR_GPU_KERNELS_TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/kernels/params.h"

/**
 * Software twins of the kernels: the same name, the same parameter struct, the same bits. The
 * software driver finds them in gpu_twins[]; nothing else calls them.
 */

/** One operand of a launch, for the access check. */
struct gpu_operand {
    uint64_t address;
    uint64_t bytes;
    bool write;     /**< Else read; an operand that is both appears as write. */
    bool multicast; /**< The address is a multicast one: every member is reached. */
};

/** Most operands that any twin reports for one launch. */
#define GPU_TWIN_OPERANDS_MAX (4u * GPU_KERNEL_MOVEMENTS_MAX + 4u * GPU_KERNEL_RANKS_MAX)

/** Members of a multicast address, for twins that go through one. */
struct gpu_twin_members {
    uint32_t count;
    void *addresses[GPU_KERNEL_RANKS_MAX]; /**< Host addresses, in the order in which devices were
                                              added. */
};

/** What a running twin may ask of the driver. */
struct gpu_twin_services {
    /** Resolve multicast address + bytes to the members' memory; false when it is none. Thread:
     * any. */
    bool (*resolve)(void *context, uint64_t address, uint64_t bytes, struct gpu_twin_members *ret);
    void *context;
};

/** One twin. Each function is pure but for the memory that the operands name. */
struct gpu_twin {
    const char *name; /**< As in the module: "symtensor_move". */
    size_t params_bytes;
    /** Bounding ranges of what the launch touches. @return count written to @p ret
     * [GPU_TWIN_OPERANDS_MAX]. */
    uint32_t (*operands)(const void *params, struct gpu_operand *ret);
    /** Bytes read + written: the driver's measure of whether a launch is small. */
    uint64_t (*traffic_bytes)(const void *params);
    /**
     * Number of independent chunks (>= 1) the launch is cut into; any thread may run any chunk, in
     * any order, at the same time. Derived from the parameters alone, never from the grid. A chunk
     * should move about 1 MiB, so that two cores share a launch evenly.
     */
    uint64_t (*chunks)(const void *params);
    void (*run)(const void *params, uint64_t chunk, const struct gpu_twin_services *services);
};

extern const struct gpu_twin *const gpu_twins[]; /**< Ends with NULL. */

/** The twin called @p name, or NULL. */
const struct gpu_twin *gpu_twin_find(const char *name);

/** Make non-temporal stores of this thread visible before completion is published (sfence). */
void gpu_twin_publish(void);

#endif
