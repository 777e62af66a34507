#ifndef SYMTENSOR_GPU_SOFTWARE_SOFTWARE_H
#define SYMTENSOR_GPU_SOFTWARE_SOFTWARE_H

#include "base/error.h"
#include "gpu/driver/driver.h"

/**
 * The software driver: the entry points of the driver table on host memory. As strict as the real
 * one (tests/contract/gpu/misuse.c lists what wrong calls answer). What a caller must know beyond
 * CUDA's reference:
 *
 * - Work on an idle stream whose traffic is at most 256 KiB, event records and host functions run
 * on the calling thread, before the call returns. So a host function may run inside
 * cuLaunchHostFunc(): the caller must hold no lock that it takes.
 * - Copies from or to host memory that is not from cuMemHostAlloc() return when they are done.
 * - Device addresses are host addresses; memory is readable and writable by the process where any
 * device has that access. Multicast addresses are never accessible: only twins reach behind them.
 * - cuMemUnmap(), cuMulticastUnbind() and cuMemFreeHost() wait for commands that are running on the
 * memory; a command that starts later finds it gone, which is CUDA_ERROR_ILLEGAL_ADDRESS (700).
 * - An operand that a launch may not access makes its context answer 700 from then on. Destructors
 * and the calls for memory, which belong to no context, still do their work. Releasing the primary
 * context to 0 and retaining it again ends that state.
 * - There is no default stream (400) and no launch by packed parameters (1).
 * - cuMulticastBindMem() and cuMemMap() of an object with devices missing answer 1 instead of
 * waiting.
 * - A limit of the operating system is CUDA_ERROR_OPERATING_SYSTEM (304): no fd left in
 * cuMemCreate() or cuMemExportToShareableHandle(), no mapping left in cuMemMap() or
 * cuMulticastBindMem(). No address space or mapping left in cuMemAddressReserve() is 2.
 * - An exported fd is a sealed memfd (mode 0600) called "symtensor-device-N"; what other processes
 * hold of it is not counted once our own handles, mappings and bindings are gone. Fabric handles
 * work in one process.
 */

/** How the software driver's machine looks. Plain values. Zero means the default of each. */
struct gpu_software_options {
    uint32_t device_count; /**< 1..ST_DEVICES_MAX; default 4. */
    uint64_t memory_bytes; /**< Per device; default: a quarter of min(memory, cgroup limit) /
                                devices, rounded down to 2 MiB. */
    uint32_t threads; /**< Threads that run launches; default: the cores this process may use. */
    /* Conditions to test against. Each also by the environment, which wins: SYMTENSOR_SOFTWARE_...
     */
    bool no_multicast;        /**< NO_MULTICAST=1 */
    bool no_fabric;           /**< NO_FABRIC=1: cuMemCreate with FABRIC answers 800 while
                                   the attribute reads 1. */
    uint32_t multicast_slots; /**< MULTICAST_SLOTS=N: objects with memory bound; default
                                   128; the first bind of the next one is 2. */
    uint64_t multicast_recommended_bytes; /**< MULTICAST_RECOMMENDED=SIZE: recommended granularity;
                                               default 2 MiB, up to 512 MiB. */
    uint64_t launch_delay_ns; /**< LAUNCH_DELAY_US=N: added to every kernel launch's start. */
    uint64_t no_peer_pairs;   /**< NO_PEER=i:j,...: bit i*8+j of devices 0..7: i cannot reach j. */
};

/**
 * Open the software driver. One a process at a time. Also arms SYMTENSOR_SOFTWARE_HANG
 * (gpu_faults_parse_hangs()), which holds for calls of the wrapped table.
 * Thread: start-up. @param ret_driver the table; close with gpu_software_close().
 * @retval ST_INVALID_ARGUMENT an option or variable is malformed or outside its range; err names
 * it.
 * @retval ST_RESOURCE_EXHAUSTED no memory or threads. @retval ST_INTERNAL it is open already.
 */
ST_MUST_CHECK enum st_status gpu_software_open(const struct gpu_software_options *options,
                                               const struct gpu_driver **ret_driver,
                                               struct st_error *err);
/**
 * Whether the machine could ever hold what the devices promise together: its memory, or the limit
 * of the control group. For a server; tests open devices larger than that. Thread: any.
 * @retval ST_INVALID_ARGUMENT INVALID_OPTION: names the most that a device may have.
 */
ST_MUST_CHECK enum st_status gpu_software_check_room(const struct gpu_software_options *options,
                                                     struct st_error *err);
/** Wait for all work, join the threads and free everything that callers leaked. Thread: the opening
 * one. */
void gpu_software_close(void);

/** What callers hold at this moment; all zero after a complete teardown. For tests and accounting.
 */
struct gpu_software_usage {
    uint64_t allocations, allocated_bytes, reservations, mappings, multicast_objects, bindings,
        streams, events, host_allocations, contexts, graphs;
    /* An executable graph is also one of the events. */
};
/** Thread: any, while the driver is open. */
void gpu_software_usage(struct gpu_software_usage *ret_usage);

#endif
