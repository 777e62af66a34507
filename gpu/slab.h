#ifndef SYMTENSOR_GPU_SLAB_H
#define SYMTENSOR_GPU_SLAB_H

#include "gpu/ranges.h"
#include "gpu/shards.h"

/**
 * Slabs: one granule per rank, shared by small memories of a team at equal offsets. They are never
 * exported. All functions: Thread: a worker that holds the team's memory_lock.
 */

#define GPU_SLAB_ALIGNMENT                                                                         \
    256u /**< Of a part: what vectorised kernels and copy engines like best. */

/** Memories that may share a slab. */
enum gpu_slab_kind { GPU_SLAB_GLOBAL, GPU_SLAB_UNICAST, GPU_SLAB_MULTICAST, GPU_SLAB_KIND_COUNT };

struct gpu_slab {
    struct gpu_slab *next;
    enum gpu_slab_kind kind;
    struct gpu_shards *shards;
    struct gpu_ranges ranges;
    uint64_t clean_from; /**< No part has reached this offset yet: it still reads as zeros. */
};

/** What part to take. */
struct gpu_slab_spec {
    enum gpu_memory_type type;
    enum gpu_multicast_mode multicast;
    uint64_t bytes; /**< 1..one granule. */
};

/** Bytes that a part of @p bytes takes. */
uint64_t gpu_slab_part_bytes(uint64_t bytes);
/**
 * Take a zeroed part of a slab, which is made if need be.
 * @param ret_offset the same on every rank.
 */
ST_MUST_CHECK enum st_status gpu_slab_take(struct gpu_team *team, const struct gpu_slab_spec *spec,
                                           struct gpu_slab **ret_slab, uint64_t *ret_offset,
                                           struct st_error *err);
/** Give a part back; an empty slab goes back to the driver at once. */
void gpu_slab_give(struct gpu_slab *slab, uint64_t offset);

#endif
