#ifndef SYMTENSOR_GPU_SOFTWARE_SOFTWARE_H
#define SYMTENSOR_GPU_SOFTWARE_SOFTWARE_H

#include "base/error.h"
#include "gpu/driver/driver.h"

/** How the software driver's machine looks. Plain values. Zero means the default of each. */
struct gpu_software_options {
    uint32_t device_count; /**< 1..ST_DEVICES_MAX; default 4. */
    uint64_t memory_bytes; /**< Per device; default: a quarter of min(memory, cgroup limit) /
                              devices, rounded down to 2 MiB. */
    uint32_t threads; /**< Threads that run launches; default: the cores this process may use. */
    /* Conditions to test against; all also by environment SYMTENSOR_SOFTWARE_... (software.c lists
     * them). */
    bool no_multicast;
    bool no_fabric; /**< cuMemCreate with FABRIC answers 800 while the attribute reads 1. */
    uint32_t
        multicast_slots; /**< Live multicast objects; default 128; the next create is 2 at bind. */
    uint64_t
        multicast_recommended_bytes; /**< Recommended granularity; default 2 MiB, up to 512 MiB. */
    uint64_t launch_delay_ns;        /**< Added to every kernel launch's start. */
    uint64_t no_peer_pairs;          /**< Bit i*8+j of devices 0..7: i cannot reach j. */
};

/**
 * Open the software driver. One a process at a time.
 * Thread: start-up. @param ret_driver the table; close with gpu_software_close().
 * @retval ST_INVALID_ARGUMENT an option is outside its range; @retval ST_RESOURCE_EXHAUSTED no
 * threads.
 */
ST_MUST_CHECK enum st_status gpu_software_open(const struct gpu_software_options *options,
                                               const struct gpu_driver **ret_driver,
                                               struct st_error *err);
/** Join the threads and free everything that callers leaked. */
void gpu_software_close(void);

/** What callers hold at this moment; all zero after a complete teardown. For tests and accounting.
 */
struct gpu_software_usage {
    uint64_t allocations, allocated_bytes, reservations, mappings, multicast_objects, bindings,
        streams, events, host_allocations, contexts;
};
void gpu_software_usage(struct gpu_software_usage *ret_usage);

#endif
