#ifndef SYMTENSOR_GPU_TEAM_H
#define SYMTENSOR_GPU_TEAM_H

#include "gpu/device.h"
#include "gpu/multicast.h"
#include "gpu/slab.h"

/**
 * A lane: one stream of one team on one device. Work of all lanes of a job is joined by events. Two
 * jobs are not ordered against each other, even on one team: whoever submits waits for one before
 * it submits another that needs its result.
 */
struct gpu_lane {
    struct gpu_device *device;
    struct gpu_team *team;
    CUstream stream; /**< NULL: none. */
    /**
     * Recorded and waited for within one submission. Another thread may record it in between: then
     * the wait is for later work of the same stream, which is longer than needed but never less.
     */
    CUevent event; /**< NULL: none. */
};

struct gpu_team {
    struct gpu *gpu;
    uint32_t world_size;
    uint32_t lane_count; /**< Distinct devices, in the order of their first rank. */
    struct gpu_lane lanes[ST_NODE_RANKS_MAX];
    uint32_t lane_of_rank[ST_NODE_RANKS_MAX];  /**< [world_size] */
    uint32_t ranks_of_lane[ST_NODE_RANKS_MAX]; /**< [lane_count] how many. */
    uint64_t device_mask;
    bool kernels;        /**< Every device has them. */
    bool peer_access;    /**< Every device reaches every other's memory. */
    uint32_t no_peer[2]; /**< Else: the first pair that does not. */
    enum gpu_multicast_reason multicast_reason;
    struct gpu_granularity multicast_granularity; /**< Where multicast_reason is NONE. */

    pthread_mutex_t memory_lock;
    struct gpu_slab *slabs[GPU_SLAB_KIND_COUNT]; /**< Lists. */
    struct gpu_multicast_chunk *chunks;          /**< A list. */

    uint32_t jobs; /**< Unfinished. gpu.jobs_lock. */
};

_Static_assert(ST_NODE_RANKS_MAX <= GPU_KERNEL_RANKS_MAX, "ranks ride in kernel parameters");

/** The lane of a rank. */
static inline struct gpu_lane *gpu_team_lane(const struct gpu_team *team, uint32_t rank)
{
    return (struct gpu_lane *)(uintptr_t)&team->lanes[team->lane_of_rank[rank]];
}

#endif
