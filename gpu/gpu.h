#ifndef SYMTENSOR_GPU_GPU_H
#define SYMTENSOR_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/timer.h"
#include "gpu/collective.h"

/**
 * The devices of this node, the memory on them and the work that runs on it. Nothing above this
 * header sees a driver, an address or a handle; only capabilities, sizes and opaque objects cross.
 */

/* ---------------------------------------------------------------- the node's devices */

enum gpu_driver_choice { GPU_DRIVER_AUTO, GPU_DRIVER_CUDA, GPU_DRIVER_SOFTWARE };
enum gpu_nvls_mode { GPU_NVLS_AUTO, GPU_NVLS_ON, GPU_NVLS_OFF };
/** Whether collectives that come again are replayed as graphs: AUTO where that is faster. */
enum gpu_graphs_mode { GPU_GRAPHS_AUTO, GPU_GRAPHS_ON, GPU_GRAPHS_OFF };

/** Options of gpu_open. Plain values. */
struct gpu_options {
    enum gpu_driver_choice driver;
    uint32_t software_devices;      /**< 0: default 4. */
    uint64_t software_memory_bytes; /**< Per device; 0: default. */
    uint64_t device_memory_limit;   /**< Per device, most that we take; 0: no limit of ours. */
    enum gpu_nvls_mode nvls;        /**< NCCL_NVLS_ENABLE=0 in the environment makes it OFF. */
    uint32_t nvls_slots;            /**< Multicast objects that we may hold; 0: default 16. */
    uint32_t allocations_max;       /**< Allocations that we may hold, since each can take a
                                         descriptor of the process; 0: no limit of ours. */
    enum gpu_graphs_mode graphs;
    struct st_timers *timers; /**< For watching work that never completes; outlives the gpu. Only
                                 the time comes from it: the driver is asked on a thread of ours. */
};

struct gpu;

/**
 * Open a driver and its devices. A device that does not open is unavailable and the others are
 * used.
 * Thread: start-up. Blocks: for the driver's initialisation.
 * @retval ST_FAILED_PRECONDITION NO_DRIVER: the chosen driver is not there or has no device that
 * could do (AUTO then falls back to software and logs that).
 * @retval ST_UNAVAILABLE DEVICE_UNAVAILABLE: there are devices, but none opens now; err says what
 * the first one answered (AUTO does not fall back). @retval ST_INTERNAL DRIVER_ERROR: the driver
 * is there but does not start.
 */
ST_MUST_CHECK enum st_status gpu_open(const struct gpu_options *options, struct gpu **ret_gpu,
                                      struct st_error *err);
/** Close. All teams must be gone. */
void gpu_close(struct gpu *gpu);

/**
 * States of a device: name in replies, meaning. One row serves replies and documentation. Of one
 * that is unavailable only the ordinal and what was learnt before the failure is set in its info.
 */
#define GPU_DEVICE_STATES(X)                                                                       \
    X(OK, "ok", "it works")                                                                        \
    X(DEGRADED, "degraded", "a driver call hangs")                                                 \
    X(LOST, "lost", "it reported an error that stays")                                             \
    X(UNAVAILABLE, "unavailable", "it did not open at start")

enum gpu_device_state {
#define X(state, name, meaning) GPU_DEVICE_##state,
    GPU_DEVICE_STATES(X)
#undef X
        GPU_DEVICE_STATE_COUNT
};

/** Multicast reasons: why it is not used. NONE: it is. One row serves replies and documentation. */
#define GPU_MULTICAST_REASONS(X)                                                                   \
    X(NONE, "", "multicast is usable")                                                             \
    X(NOT_SUPPORTED_BY_DEVICE, "NOT_SUPPORTED_BY_DEVICE", "a device has no multicast")             \
    X(DISABLED_BY_CONFIG, "DISABLED_BY_CONFIG", "switched off by --nvls or NCCL_NVLS_ENABLE")      \
    X(NOT_REQUESTED, "NOT_REQUESTED", "the tensor was made with multicast disabled, or is global") \
    X(SHARED_DEVICE, "SHARED_DEVICE", "two ranks of the group share a device")                     \
    X(SINGLE_RANK, "SINGLE_RANK", "the group has one rank")                                        \
    X(DIFFERENT_DOMAIN, "DIFFERENT_DOMAIN", "the devices are not in one NVLink domain")            \
    X(FABRIC_MANAGER_ERROR, "FABRIC_MANAGER_ERROR", "the driver answers 401: fabric manager")      \
    X(NOT_READY, "NOT_READY", "the driver answers 802: the fabric is not ready")                   \
    X(SLOTS_EXHAUSTED, "SLOTS_EXHAUSTED", "no multicast slot is free")                             \
    X(DENIED, "DENIED", "the driver refuses, as in a container without the capability device")     \
    X(SELF_TEST_FAILED, "SELF_TEST_FAILED", "what was written through multicast did not arrive")   \
    X(NO_KERNELS, "NO_KERNELS", "the driver cannot load the kernels")                              \
    X(DRIVER_TOO_OLD, "DRIVER_TOO_OLD", "the driver lacks the multicast calls")

enum gpu_multicast_reason {
#define X(name, text, meaning) GPU_MULTICAST_##name,
    GPU_MULTICAST_REASONS(X)
#undef X
        GPU_MULTICAST_REASON_COUNT
};
/** "" for NONE. */
const char *gpu_multicast_reason_name(enum gpu_multicast_reason reason);

/** What does not change about a device. */
struct gpu_device_info {
    uint32_t ordinal;
    char uuid[ST_UID_BYTES]; /**< "GPU-..." form without the prefix: plain UUID text. */
    char model[64];
    uint64_t total_bytes;
    uint64_t limit_bytes; /**< min(total, --device-memory-limit). */
    uint64_t granularity_minimum_bytes;
    uint64_t granularity_recommended_bytes;
    uint64_t multicast_granularity_minimum_bytes; /**< 0: no multicast. */
    uint64_t multicast_granularity_recommended_bytes;
    uint32_t compute_major, compute_minor;
    uint32_t copy_engines;
    bool multicast; /**< The attribute. */
    bool posix_fd;
    bool fabric; /**< A handle was really created with it. */
    bool rdma;
};

/** What changes. Read from counters that the allocation code keeps: never waits for a driver call.
 */
struct gpu_device_memory {
    uint64_t free_bytes;        /**< The driver's own figure after our last call that changed it. */
    uint64_t owned_bytes;       /**< What the driver has given us and we still use. */
    uint64_t quarantined_bytes; /**< Held back: a hung driver call or a foreign library may still
                                   use it. */
    uint64_t held_by_clients_bytes;
};

uint32_t gpu_device_count(const struct gpu *gpu);
/** @param ordinal < gpu_device_count(). Thread: any. Blocks: never. */
const struct gpu_device_info *gpu_device_info(const struct gpu *gpu, uint32_t ordinal);
void gpu_device_memory(const struct gpu *gpu, uint32_t ordinal, struct gpu_device_memory *ret);
enum gpu_device_state gpu_device_state(const struct gpu *gpu, uint32_t ordinal);
/** The state's name in replies. */
const char *gpu_device_state_name(enum gpu_device_state state);
/** "", or why the device has no kernels and which driver would load them. */
const char *gpu_kernels_why(const struct gpu *gpu, uint32_t ordinal);
/** "", or why the device is degraded, lost or unavailable. */
const char *gpu_device_state_reason(const struct gpu *gpu, uint32_t ordinal);
/**
 * Mark a device degraded: called by the watchdog when a driver call overran. Once for each call
 * that hangs: the device is degraded until each has been cleared. Thread: any. Blocks: never.
 */
void gpu_device_mark_degraded(struct gpu *gpu, uint32_t ordinal);
/** One of the calls that hung has returned; undoes one gpu_device_mark_degraded(). A device that
 * was lost meanwhile stays lost. Thread: any. Blocks: never. */
void gpu_device_clear_degraded(struct gpu *gpu, uint32_t ordinal);
/**
 * From now on call progress(arg) after every driver call that this thread makes in gpu/, so that
 * whoever watches it can tell many calls from one that hangs; NULL: nothing more. @p progress is
 * short and does not call into gpu/. Thread: the one that is watched. Blocks: never.
 */
void gpu_thread_progress(void (*progress)(void *arg), void *arg);
/** Whether two devices reach each other's memory (true for equal ordinals). */
bool gpu_peer_access(const struct gpu *gpu, uint32_t a, uint32_t b);

/** What the node can do. */
struct gpu_capabilities {
    const char *driver; /**< "cuda" or "software", to be shown only. */
    int driver_version; /**< As cuDriverGetVersion: 13000. */
    bool kernels_may_wait;
    bool calls_may_block; /**< A call that only queues work can hang in the driver: no thread may
                             make one that others depend on. */
    enum gpu_multicast_reason multicast_reason; /**< NONE: usable on this node in principle. */
    bool nvls_planned; /**< --nvls=on: the planner may pick nvls by itself. */
    uint32_t multicast_slots_limit, multicast_slots_used;
    uint32_t allocations_limit;   /**< Of gpu_options; 0: none. */
    uint64_t small_traffic_bytes; /**< See struct gpu_plan_input. */
    uint64_t cache_bytes;         /**< Last-level cache. */
    uint32_t node_ranks_max;      /**< Ranks of a group on this node. */
};
void gpu_capabilities(const struct gpu *gpu, struct gpu_capabilities *ret);

/** One multicast object, for GET /v1/multicast_groups. */
struct gpu_multicast_info {
    char id[32];
    uint32_t device_count;
    uint32_t devices[ST_DEVICES_MAX];
    uint64_t granularity_bytes, size_bytes, used_bytes;
    uint32_t slot;
    bool usable;
    enum gpu_multicast_reason reason;
    uint32_t bound_count;    /**< Tensor memories bound at this moment. */
    uint64_t bound_ids[256]; /**< [min(bound_count, 256)] gpu_memory_info.serial of each. */
};
/** Copy up to @p max infos, ordered by id. @return how many exist. Thread: any. Blocks: never for
 * the driver. */
uint32_t gpu_multicast_list(const struct gpu *gpu, struct gpu_multicast_info *ret, uint32_t max);

/* ---------------------------------------------------------------- teams and memory */

/** The devices of a group in rank order, with a lane (a stream) on each, slabs and multicast
 * chunks. */
struct gpu_team;

/**
 * @param devices [world_size] ordinal of each rank; repeats allowed.
 * Thread: a worker. Blocks: for driver calls.
 */
ST_MUST_CHECK enum st_status gpu_team_create(struct gpu *gpu, const uint32_t *devices,
                                             uint32_t world_size, struct gpu_team **ret_team,
                                             struct st_error *err);
/** All memory of the team must be destroyed and all work completed. Thread: a worker. NULL:
 * nothing. */
void gpu_team_destroy(struct gpu_team *team);

/**
 * Why no memory of the team can have multicast, as far as the team's devices tell; NONE: it should
 * have. Thread: any. Blocks: never.
 */
enum gpu_multicast_reason gpu_team_multicast_reason(const struct gpu_team *team);

enum gpu_memory_type { GPU_MEMORY_SYMMETRIC, GPU_MEMORY_GLOBAL };
enum gpu_multicast_mode { GPU_MULTICAST_AUTO, GPU_MULTICAST_REQUIRED, GPU_MULTICAST_DISABLED };

/** What to allocate on every rank. */
struct gpu_memory_spec {
    uint64_t size_bytes; /**< Per rank; 0 is allowed: no memory, every address is 0. */
    enum gpu_memory_type type;
    bool attachable; /**< Symmetric only: its own allocation, never a slab. */
    enum gpu_multicast_mode multicast;
};

/** One memory: world_size shards of equal size, zeroed. */
struct gpu_memory;

/** What came of it. Constant while the memory lives. */
struct gpu_memory_info {
    uint64_t serial;          /**< Unique in this process. */
    uint64_t size_bytes;      /**< As asked. */
    uint64_t allocated_bytes; /**< Per rank, what it costs: for a slab part, its rounded part. */
    bool slab;
    enum gpu_multicast_reason multicast_reason; /**< NONE: has a multicast mapping. */
};

/**
 * Bytes per rank that gpu_memory_create() would allocate, and whether it can ever fit. Pure but for
 * the devices' constants.
 * @retval ST_FAILED_PRECONDITION EXCEEDS_DEVICE_CAPACITY (all ranks of one device counted
 * together), NO_PEER_ACCESS, or MULTICAST_UNAVAILABLE with the reason in the details.
 */
ST_MUST_CHECK enum st_status gpu_memory_check(const struct gpu_team *team,
                                              const struct gpu_memory_spec *spec,
                                              uint64_t *ret_allocated_bytes, struct st_error *err);

/**
 * Allocate, map, give access, bind multicast where wanted, zero. Rolls back completely on failure.
 * Thread: a worker; calls for one team are serialised inside. Blocks: for driver calls.
 * @retval ST_RESOURCE_EXHAUSTED  GPU_MEMORY_EXHAUSTED (names device and bytes), FD_LIMIT,
 * MAP_LIMIT.
 * @retval ST_FAILED_PRECONDITION as gpu_memory_check().
 * @retval ST_UNAVAILABLE         DEVICE_LOST or DEVICE_DEGRADED.
 */
ST_MUST_CHECK enum st_status gpu_memory_create(struct gpu_team *team,
                                               const struct gpu_memory_spec *spec,
                                               struct gpu_memory **ret_memory,
                                               struct st_error *err);
/** Give it back: multicast unmapped and unbound first. No work may use it. Thread: a worker. NULL:
 * nothing. */
void gpu_memory_destroy(struct gpu_memory *memory);
const struct gpu_memory_info *gpu_memory_info(const struct gpu_memory *memory);

/* ---------------------------------------------------------------- work */

/**
 * Called exactly once when the work has ended, also when it could not be started. @p err is NULL on
 * ST_OK; else err->untouched says that nothing was queued, so that no byte can have been written.
 * Thread: any, also the submitting one before the submitting call returns; must be short,
 * must not call into gpu/ except from a thread of the caller's own.
 */
struct gpu_completion {
    void (*done)(void *arg, enum st_status status, const struct st_error *err);
    void *arg;
};

/** One run of a collective. Input and output are of the same team; equal when in place. */
struct gpu_collective_spec {
    const struct gpu_algorithm *algorithm; /**< One that fits. */
    struct gpu_plan_input plan;
    struct gpu_memory *input, *output;
    struct gpu_memory
        *scratch; /**< At least algorithm->scratch_bytes(&plan) per rank, or NULL for 0. */
};
/** Fill in the team's part of a plan input: device_count, peer_access, multicast_*, nvls_allowed,
 * small_traffic_bytes. */
void gpu_plan_fill(const struct gpu_team *team, const struct gpu_memory *input,
                   const struct gpu_memory *output, struct gpu_plan_input *plan);
/** Thread: any. Blocks: never for the result; small work may run inside. */
void gpu_collective_run(struct gpu_team *team, const struct gpu_collective_spec *spec,
                        struct gpu_completion completion);

/** Fill ranks of a memory. */
struct gpu_fill_spec {
    struct gpu_memory *memory;
    int32_t rank; /**< One rank, or -1: all. */
    enum st_dtype dtype;
    struct st_shape shape;
    struct st_strides strides;
    enum gpu_fill_pattern pattern;
    union st_scalar value; /**< VALUE only. */
};
void gpu_fill_run(struct gpu_team *team, const struct gpu_fill_spec *spec,
                  struct gpu_completion completion);

/** Copy bytes between shards, also of different teams of the node. Ranges were checked by the
 * caller. One copy between the devices where one of them has access to both sides, see
 * gpu_copy_prepare(). Else a pinned buffer is needed: ST_STAGING_COPIES_MAX are kept for this
 * beside those of transfers. */
struct gpu_copy_spec {
    struct gpu_memory *source, *destination;
    uint32_t source_rank, destination_rank;
    uint64_t source_offset, destination_offset, bytes;
};
void gpu_copy_run(struct gpu_team *team, const struct gpu_copy_spec *spec,
                  struct gpu_completion completion);
/** Whether a copy would go through the host, though a device of one side can reach the other:
 * memory is mapped for its own team's devices. Thread: any. Blocks: never. */
bool gpu_copy_wants_access(const struct gpu_copy_spec *spec);
/** Whether gpu_copy_prepare() makes the destination's memory accessible; else it is the source's.
 */
bool gpu_copy_grants_destination(const struct gpu_copy_spec *spec);
/**
 * Give that device access to the other side's memory, for as long as it lives. Where the driver
 * refuses, the copy goes through the host after all.
 * Thread: a worker. Blocks: for a driver call.
 */
void gpu_copy_prepare(const struct gpu_copy_spec *spec);

/* ---------------------------------------------------------------- bytes to and from the host */

/** A pinned host buffer of ST_STAGING_BYTES. NULL when ST_STAGING_BUFFERS_MAX are out: try after a
 * release. Thread: any. Blocks: never after the first use of each buffer (then for one driver
 * call). */
void *gpu_staging_acquire(struct gpu *gpu);
void gpu_staging_release(struct gpu *gpu, void *buffer);

/** Move bytes between a staging buffer and a shard. */
struct gpu_transfer_spec {
    struct gpu_memory *memory;
    uint32_t rank;
    bool to_shard;
    void *buffer;          /**< From gpu_staging_acquire(). */
    uint64_t offset_bytes; /**< In the shard (memory order), or in logical order when @p logical. */
    uint64_t bytes;        /**< 1..ST_STAGING_BYTES; whole elements when logical. */
    bool logical;          /**< Offsets count in row-major logical order of shape and strides. */
    uint32_t element_bytes;
    struct st_shape shape;
    struct st_strides strides;
};
void gpu_transfer_run(struct gpu_team *team, const struct gpu_transfer_spec *spec,
                      struct gpu_completion completion);

#endif
