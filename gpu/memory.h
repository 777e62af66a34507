#ifndef SYMTENSOR_GPU_MEMORY_H
#define SYMTENSOR_GPU_MEMORY_H

#include "gpu/slab.h"

/** A memory: a part of a slab, shards of its own, or nothing at all (size 0). */
struct gpu_memory {
    struct gpu_team *team;
    struct gpu_memory_info info;
    enum gpu_memory_type type;
    struct gpu_shards *shards; /**< Its own or the slab's; NULL for size 0. */
    struct gpu_slab *slab;     /**< NULL: the shards are its own. */
    uint64_t offset;           /**< In the shards. */
    struct gpu_multicast_user user;
};

/** Address of byte 0 of a rank's shard; 0 for size 0. */
uint64_t gpu_memory_address(const struct gpu_memory *memory, uint32_t rank);
/** Multicast address of byte 0, or 0. */
uint64_t gpu_memory_multicast_address(const struct gpu_memory *memory);
/** Whether kernels and copies of a device reach a rank's shard. */
bool gpu_memory_reached(const struct gpu_memory *memory, uint32_t rank,
                        const struct gpu_device *device);
/** Whether the device could be let reach it: gpu_memory_grant() may do so. */
bool gpu_memory_reachable(const struct gpu_memory *memory, uint32_t rank,
                          const struct gpu_device *device);
/** Let a device of another team reach a rank's shard, and what shares its memory. Thread: a worker.
 * Blocks: for a driver call. @return false: the driver refuses. */
bool gpu_memory_grant(struct gpu_memory *memory, uint32_t rank, const struct gpu_device *device);

#endif
