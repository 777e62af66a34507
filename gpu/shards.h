#ifndef SYMTENSOR_GPU_SHARDS_H
#define SYMTENSOR_GPU_SHARDS_H

#include "gpu/allocation.h"
#include "gpu/multicast.h"

struct gpu_team;

/** One allocation of equal size on every rank of a team, and perhaps a multicast mapping of all of
 * them. */
struct gpu_shards {
    struct gpu_team *team;
    enum gpu_memory_type type;
    uint64_t bytes;                          /**< Of each; > 0. */
    struct gpu_multicast_binding *multicast; /**< NULL: none. */
    enum gpu_multicast_reason multicast_reason;
    struct gpu_allocation allocations[]; /**< [world_size] */
};

/** What to allocate on every rank. */
struct gpu_shards_spec {
    enum gpu_memory_type type;
    uint64_t bytes; /**< As gpu_shards_measure() said. */
    enum gpu_multicast_mode multicast;
};

/**
 * Round up what one rank needs, as gpu.md section 2: to the largest minimum granularity that
 * applies, and to the recommended one where that adds at most 1/16. Pure.
 * @param bytes > 0. @return false on overflow.
 */
bool gpu_shards_measure(const struct gpu_team *team, enum gpu_memory_type type,
                        enum gpu_multicast_mode multicast, uint64_t bytes, uint64_t *ret_bytes);

/**
 * Allocate, map, share, bind and zero. Rolls back completely on failure.
 * Thread: a worker that holds the team's memory_lock. Blocks: for driver calls.
 */
ST_MUST_CHECK enum st_status gpu_shards_create(struct gpu_team *team,
                                               const struct gpu_shards_spec *spec,
                                               struct gpu_shards **ret_shards,
                                               struct st_error *err);
/** As gpu_shards_create(). NULL: nothing. */
void gpu_shards_destroy(struct gpu_shards *shards);
/** Write zeros to [offset, offset + bytes) of every rank and wait. */
ST_MUST_CHECK enum st_status gpu_shards_zero(struct gpu_shards *shards, uint64_t offset,
                                             uint64_t bytes, struct st_error *err);

#endif
