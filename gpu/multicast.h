#ifndef SYMTENSOR_GPU_MULTICAST_H
#define SYMTENSOR_GPU_MULTICAST_H

#include "gpu/device.h"
#include "gpu/ranges.h"

/**
 * Multicast objects. Slots are scarce (about 128 a switch system, shared with every other program),
 * so a team binds its memories at offsets of few objects, called chunks: each is created over all
 * devices of the team, mapped once from offset 0, and given back with the last memory that is bound
 * to it.
 */

struct gpu_allocation;
struct gpu_team;

/** One multicast object of a team. Owned by the team; under its memory_lock. */
struct gpu_multicast_chunk {
    struct gpu_team *team;
    struct gpu_multicast_chunk *team_next; /**< In the team's list. */
    uint64_t size_bytes;
    uint64_t
        quarantined_bytes[ST_NODE_RANKS_MAX]; /**< By lane: memory that could not be unbound. */
    uint32_t bindings;                        /**< Live ones. */
    bool counted;                             /**< In gpu.chunks_count. */
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bool created, reserved, mapped;
    bool stays; /**< The driver did not take it back. */
    /* Below: under gpu.multicast_lock, for gpu_multicast_list(). */
    struct gpu_multicast_chunk *list_next;
    bool listed;
    uint32_t number, slot;
    struct gpu_ranges ranges;
    struct gpu_multicast_user *users;
};

/** A memory of the user that is bound, for the list. Embedded in struct gpu_memory. */
struct gpu_multicast_user {
    struct gpu_multicast_user *next;
    uint64_t serial;
};

/** Where the allocations of some shards are bound. */
struct gpu_multicast_binding {
    struct gpu_multicast_chunk *chunk;
    uint64_t offset, bytes;
    uint64_t bound; /**< Bit i: the i-th lane's device. */
    bool placed;    /**< The range is taken. */
};

/** Why a memory of the team has no multicast, as far as it is known beforehand; NONE: it should
 * have. Pure. */
enum gpu_multicast_reason gpu_multicast_wanted(const struct gpu_team *team,
                                               enum gpu_memory_type type,
                                               enum gpu_multicast_mode mode);
/** Why no memory of a team can have multicast, judged at its creation; fills its granularity. */
enum gpu_multicast_reason gpu_multicast_judge(struct gpu_team *team);
/** MULTICAST_UNAVAILABLE, with the reason in the details. */
enum st_status gpu_multicast_fail(enum gpu_multicast_reason reason, struct st_error *err);

/**
 * Bind the allocations of all ranks at one offset of a chunk, which is made if need be, and prove
 * by a self-test that what is written arrives. The tested bytes are zeroed again.
 *
 * Thread: a worker that holds the team's memory_lock. Blocks: for driver calls.
 * @param allocations [world_size], mapped and accessible to all devices.
 * @param ret_binding set for NONE only.
 * @return NONE, or why not; then nothing is left. A device may have been lost meanwhile.
 */
enum gpu_multicast_reason gpu_multicast_bind(struct gpu_team *team,
                                             const struct gpu_allocation *allocations,
                                             uint64_t bytes,
                                             struct gpu_multicast_binding **ret_binding);
/**
 * Unbind, before the memory is unmapped; the last binding of a chunk unmaps the object first and
 * releases it then. NULL: nothing.
 * @return lanes (bit i) whose memory the object still holds: the driver refused.
 */
uint64_t gpu_multicast_unbind(struct gpu_multicast_binding *binding);
/**
 * After gpu_multicast_unbind(), when the memory has been given back. NULL: nothing.
 * @param held lanes whose memory is counted nowhere else and still held by the object: it is
 * quarantined until the object goes.
 */
void gpu_multicast_binding_destroy(struct gpu_multicast_binding *binding, uint64_t held);
/** Address that reaches byte 0 of all shards. NULL: 0. */
uint64_t gpu_multicast_address(const struct gpu_multicast_binding *binding);

/** Objects that the driver has made for us and not taken back. Thread: any. Blocks: never. */
uint32_t gpu_multicast_slots_used(const struct gpu *gpu);

/** List a memory under its binding's chunk, or take it off. A NULL binding: nothing. */
void gpu_multicast_user_add(struct gpu_multicast_binding *binding, struct gpu_multicast_user *user);
void gpu_multicast_user_remove(struct gpu_multicast_binding *binding,
                               struct gpu_multicast_user *user);

#endif
