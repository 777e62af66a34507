#ifndef SYMTENSOR_GPU_DEVICE_H
#define SYMTENSOR_GPU_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "gpu/driver/driver.h"
#include "gpu/gpu.h"

/**
 * What the files of gpu/ share about the driver and its devices. Nothing outside gpu/ includes
 * this.
 *
 * Locks, in the order in which they may be taken:
 *   gpu_team.memory_lock  one creation or destruction of memory a team at a time; held across
 * driver calls gpu.multicast_lock    the list of multicast objects and what is bound to them
 *   gpu.jobs_lock         work in flight
 *   gpu.graphs_lock       the graphs that are kept
 *   gpu.staging_lock      the pool of pinned buffers
 *   gpu.state_lock        states of devices
 * The last five are never held across a driver call or a caller's callback. What else is shared is
 * atomic.
 */

/** Kernels: name in the module and in gpu/kernels/params.h. */
#define GPU_KERNELS(X)                                                                             \
    X(MOVE, "symtensor_move")                                                                      \
    X(MULTICAST, "symtensor_multicast")                                                            \
    X(FILL, "symtensor_fill")                                                                      \
    X(PERMUTE, "symtensor_permute")

enum gpu_kernel {
#define X(name, symbol) GPU_KERNEL_##name,
    GPU_KERNELS(X)
#undef X
        GPU_KERNEL_COUNT
};

/** A driver that can be opened: one row of gpu_backends[] in gpu.c. */
struct gpu_backend {
    enum gpu_driver_choice choice;
    enum st_status (*open)(const struct gpu_options *options, const struct gpu_driver **ret_driver,
                           struct st_error *err);
    void (*close)(void);
    /** Fill err for a cuInit() that failed. */
    enum st_status (*fail_init)(CUresult result, struct st_error *err);
    const void *kernel_image; /**< For cuModuleLoadData. */
    bool memory_is_zeroed;    /**< Fresh cuMemCreate memory reads as zeros: no memset is needed. */
    bool kernels_may_wait;    /**< A kernel may wait for another device's kernel. */
    bool calls_may_block;     /**< See struct gpu_capabilities. */
    uint64_t small_traffic_bytes; /**< See struct gpu_plan_input. */
    uint32_t graph_after; /**< Direct runs of a collective before it is replayed; 0: it never is. */
};

/** Granularities of one kind of allocation on one device. */
struct gpu_granularity {
    uint64_t minimum_bytes, recommended_bytes;
};

/** One device. What is not atomic is constant after gpu_open(). */
struct gpu_device {
    struct gpu *gpu;
    struct gpu_device_info info;
    CUdevice device;
    CUcontext context; /**< NULL: not retained. */
    CUmodule module;   /**< NULL: not loaded. */
    CUfunction functions[GPU_KERNEL_COUNT];
    bool kernels;                              /**< All functions are there. */
    char why_no_kernels[ST_ERROR_MESSAGE_MAX]; /**< Else the reason. */
    CUstream service; /**< For zeroing, self-tests and the watch; NULL: none. */
    struct gpu_granularity granularity[2]; /**< By enum gpu_memory_type. */
    uint64_t peers;      /**< Bit i: reaches the memory of device i, itself included. */
    uint32_t processors; /**< Multiprocessors; at least 1. */
    _Atomic uint64_t owned_bytes, quarantined_bytes, free_bytes;
    _Atomic uint64_t
        pending_bytes;          /**< Of owned_bytes: a creation or destruction works on them now. */
    _Atomic int state;          /**< enum gpu_device_state. Written under gpu.state_lock. */
    const char *_Atomic reason; /**< Static text, or why_unavailable. */
    char why_unavailable[ST_ERROR_MESSAGE_MAX];
    uint32_t hanging; /**< Marked degraded, not cleared yet. gpu.state_lock. */
};

/** Pinned buffers, those that are kept for copies included. */
#define GPU_STAGING_MAX (ST_STAGING_BUFFERS_MAX + ST_STAGING_COPIES_MAX)

struct gpu_job;
/** Jobs chained by next and previous; empty: NULL. */
struct gpu_job_list {
    struct gpu_job *first, *last;
};

struct gpu {
    const struct gpu_backend *backend; /**< NULL: nothing is open. */
    const struct gpu_driver *driver;
    struct gpu_options options;
    int driver_version;
    uint32_t device_count;
    struct gpu_device devices[ST_DEVICES_MAX];
    enum gpu_multicast_reason multicast_reason; /**< NONE: usable in principle. */
    uint64_t cache_bytes;
    _Atomic uint64_t lost;        /**< Bit i: device i is, or is unavailable. */
    _Atomic uint64_t degraded;    /**< Bit i: device i is. */
    _Atomic uint64_t next_serial; /**< Of memories. */
    _Atomic uint32_t allocations; /**< Those that exist, or whose descriptor may. */

    pthread_mutex_t multicast_lock;
    struct gpu_multicast_chunk *chunks; /**< A list, ascending by id. */
    uint32_t chunks_count, chunks_made;

    pthread_mutex_t jobs_lock;
    pthread_cond_t jobs_ended;
    struct gpu_job_list jobs_running; /**< A host function will end them. */
    struct gpu_job_list jobs_polled; /**< Host functions are missing, or a device is lost: the watch
                                        asks for them. */
    struct gpu_job_list jobs_lost;   /**< Ended by the watch; their host function may never come. */
    struct st_timer watch;
    struct st_workers *watch_worker; /**< The thread that asks; NULL: nobody watches. */
    bool watch_armed, watch_stopped;

    uint32_t graph_after; /**< As of struct gpu_backend, or by options.graphs. */
    pthread_mutex_t graphs_lock;
    struct gpu_graph *graphs[ST_GRAPHS_MAX]; /**< [graphs_count] See gpu/graph.h. */
    uint32_t graphs_count;
    uint64_t graphs_clock;

    pthread_mutex_t state_lock;

    pthread_mutex_t staging_lock;
    void *staging_free[GPU_STAGING_MAX]; /**< [staging_free_count] */
    void *staging_made[GPU_STAGING_MAX]; /**< [staging_made_count], for gpu_close(). */
    uint32_t staging_free_count, staging_made_count;
    uint32_t staging_out; /**< Buffers that callers have, or that are being made for them. */
};

/* ---------------------------------------------------------------- device.c */

/**
 * Open the devices of gpu->driver. One that does not open is closed again and unavailable, which is
 * logged. On failure what was opened stays in the struct for gpu_devices_close().
 * @retval ST_FAILED_PRECONDITION NO_DRIVER: there is no device, or none that can do what we need.
 * @retval ST_UNAVAILABLE DEVICE_UNAVAILABLE: no device opens.
 */
ST_MUST_CHECK enum st_status gpu_devices_open(struct gpu *gpu, struct st_error *err);
/** Close what was opened; the struct then knows no device any more. */
void gpu_devices_close(struct gpu *gpu);

/** What a shard on the device is asked for with: handle types for symmetric memory, none for
 * global. */
void gpu_device_allocation_prop(const struct gpu_device *device, enum gpu_memory_type type,
                                CUmemAllocationProp *ret_prop);
/** Handle types of multicast objects: those of the peers (NCCL, PyTorch) on one node. */
unsigned long long gpu_device_multicast_handle_types(const struct gpu_device *device);
/** Make the device's context current on this thread. Thread: any. */
ST_MUST_CHECK enum st_status gpu_device_enter(struct gpu_device *device, struct st_error *err);
/** As gpu_device_enter() for teardown, which goes on whatever comes back. */
void gpu_device_enter_teardown(struct gpu_device *device);
/** A device that works, whose context will do where any will; NULL: none does. Thread: any. */
struct gpu_device *gpu_device_any(struct gpu *gpu);
/** Ask the driver how much is free, and keep it. Thread: any. */
void gpu_device_refresh_free(struct gpu_device *device);
/** The device reports an error that stays: it is lost from now on. Thread: any. */
void gpu_device_mark_lost(struct gpu_device *device, CUresult result);
/**
 * Whether all devices of a mask may be used.
 * @retval ST_UNAVAILABLE DEVICE_LOST, DEVICE_UNAVAILABLE or DEVICE_DEGRADED, with the device named.
 */
ST_MUST_CHECK enum st_status gpu_devices_usable(const struct gpu *gpu, uint64_t devices,
                                                struct st_error *err);

/**
 * Count @p bytes as ours before the driver is asked for them, and as worked on until
 * gpu_device_end_bytes().
 * @retval ST_RESOURCE_EXHAUSTED GPU_MEMORY_EXHAUSTED: our own limit would be passed.
 */
ST_MUST_CHECK enum st_status gpu_device_take_bytes(struct gpu_device *device, uint64_t bytes,
                                                   struct st_error *err);
void gpu_device_give_bytes(struct gpu_device *device, uint64_t bytes);
/** A creation or destruction works on the bytes: should it hang, they are in quarantine. */
void gpu_device_begin_bytes(struct gpu_device *device, uint64_t bytes);
void gpu_device_end_bytes(struct gpu_device *device, uint64_t bytes);
/** Bytes that should be free and are not. */
void gpu_device_quarantine(struct gpu_device *device, uint64_t bytes);
void gpu_device_unquarantine(struct gpu_device *device, uint64_t bytes);

/** A launch of a kernel. */
struct gpu_launch {
    enum gpu_kernel kernel;
    void *params;           /**< Its only parameter: the struct of gpu/kernels/params.h. */
    uint64_t traffic_bytes; /**< Read and written, roughly: sizes the grid. */
    bool fine;              /**< More blocks, for less each: gpu_move_params.fine. */
};
/**
 * What a launch comes to on a device.
 * @param arguments [1] launch->params, which @p ret_params points to.
 * @retval ST_FAILED_PRECONDITION NO_KERNELS.
 */
ST_MUST_CHECK enum st_status gpu_device_describe(const struct gpu_device *device,
                                                 const struct gpu_launch *launch, void **arguments,
                                                 CUDA_KERNEL_NODE_PARAMS *ret_params,
                                                 struct st_error *err);
/** Launch a kernel. The device's context is current. */
ST_MUST_CHECK enum st_status gpu_device_launch(struct gpu_device *device, CUstream stream,
                                               const struct gpu_launch *launch,
                                               struct st_error *err);
/** Write zeros on the service stream and do not wait. The device's context is current. */
ST_MUST_CHECK enum st_status gpu_device_zero(struct gpu_device *device, uint64_t address,
                                             uint64_t bytes, struct st_error *err);
/** Wait for the service stream. */
ST_MUST_CHECK enum st_status gpu_device_settle(struct gpu_device *device, struct st_error *err);

/* ---------------------------------------------------------------- result.c */

/**
 * Fill @p err from a driver call's failure; marks the device lost when the error is one that stays.
 * @param device NULL: the call was about no device.
 */
enum st_status gpu_result_fail(struct gpu_device *device, enum gpu_driver_call call,
                               CUresult result, struct st_error *err);
/** Whether @p result stays in a context once it has come. */
bool gpu_result_is_sticky(CUresult result);

/* ---------------------------------------------------------------- staging.c */

/** As gpu_staging_acquire(), for a copy: also one of those that transfers do not get. */
void *gpu_staging_acquire_for_copy(struct gpu *gpu);
/** Free every pinned buffer. All must have been released. */
void gpu_staging_close(struct gpu *gpu);

#endif
