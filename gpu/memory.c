#include "gpu/memory.h"

#include <stdlib.h>

#include "gpu/graph.h"
#include "gpu/team.h"

/* ---------------------------------------------------------------- what it would take */

/** What a spec comes to on a team. */
struct memory_plan {
    uint64_t rank_bytes; /**< That the driver is asked for on each rank, if no slab has room. */
    bool slab;
};

static enum st_status memory_check_peers(const struct gpu_team *team, struct st_error *err)
{
    if (team->peer_access) {
        return ST_OK;
    }
    enum st_status status = st_fail(err, ST_REASON_NO_PEER_ACCESS, NULL,
                                    "device %u does not reach the memory of device %u",
                                    team->no_peer[0], team->no_peer[1]);
    st_error_add_detail(err, "devices", "%u,%u", team->no_peer[0], team->no_peer[1]);
    return status;
}

static enum st_status memory_fail_capacity(const struct gpu_lane *lane, uint32_t ranks,
                                           uint64_t size_bytes, struct st_error *err)
{
    const struct gpu_device_info *info = &lane->device->info;
    enum st_status status =
        st_fail(err, ST_REASON_EXCEEDS_DEVICE_CAPACITY, NULL,
                "device %u: %u x %llu bytes exceed its %llu", info->ordinal, ranks,
                (unsigned long long)size_bytes, (unsigned long long)info->limit_bytes);
    st_error_add_detail(err, "device", "%u", info->ordinal);
    st_error_add_detail(err, "limit_bytes", "%llu", (unsigned long long)info->limit_bytes);
    return status;
}

/** All ranks of one device must fit into it together. */
static enum st_status memory_check_capacity(const struct gpu_team *team, uint64_t rank_bytes,
                                            struct st_error *err)
{
    for (uint32_t i = 0; i < team->lane_count; i++) {
        uint64_t total;
        if (__builtin_mul_overflow(rank_bytes, team->ranks_of_lane[i], &total) ||
            total > team->lanes[i].device->info.limit_bytes) {
            return memory_fail_capacity(&team->lanes[i], team->ranks_of_lane[i], rank_bytes, err);
        }
    }
    return ST_OK;
}

static enum st_status memory_plan(const struct gpu_team *team, const struct gpu_memory_spec *spec,
                                  struct memory_plan *ret_plan, struct st_error *err)
{
    enum st_status status =
        spec->type == GPU_MEMORY_SYMMETRIC ? memory_check_peers(team, err) : ST_OK;
    if (status != ST_OK) {
        return status;
    }
    enum gpu_multicast_reason reason = gpu_multicast_wanted(team, spec->type, spec->multicast);
    if (spec->multicast == GPU_MULTICAST_REQUIRED && reason != GPU_MULTICAST_NONE) {
        return gpu_multicast_fail(reason, err);
    }
    struct memory_plan plan = {0};
    uint64_t granule;
    if (!gpu_shards_measure(team, spec->type, spec->multicast, 1, &granule) ||
        !gpu_shards_measure(team, spec->type, spec->multicast, spec->size_bytes,
                            &plan.rank_bytes)) {
        return memory_fail_capacity(&team->lanes[0], team->ranks_of_lane[0], spec->size_bytes, err);
    }
    bool alone = spec->type == GPU_MEMORY_SYMMETRIC && spec->attachable;
    plan.slab = !alone && spec->size_bytes > 0 && spec->size_bytes < granule;
    plan.rank_bytes = plan.slab ? granule : plan.rank_bytes;
    *ret_plan = plan;
    return memory_check_capacity(team, plan.rank_bytes, err);
}

static uint64_t memory_cost(const struct gpu_memory_spec *spec, const struct memory_plan *plan)
{
    return plan->slab ? gpu_slab_part_bytes(spec->size_bytes) : plan->rank_bytes;
}

enum st_status gpu_memory_check(const struct gpu_team *team, const struct gpu_memory_spec *spec,
                                uint64_t *ret_allocated_bytes, struct st_error *err)
{
    struct memory_plan plan = {0};
    enum st_status status = memory_plan(team, spec, &plan, err);
    if (status == ST_OK) {
        *ret_allocated_bytes = memory_cost(spec, &plan);
    }
    return status;
}

/* ---------------------------------------------------------------- the life of a memory */

/** The team's memory_lock is held. */
static enum st_status memory_build(struct gpu_memory *memory, const struct gpu_memory_spec *spec,
                                   const struct memory_plan *plan, struct st_error *err)
{
    struct gpu_team *team = memory->team;
    if (!plan->slab) {
        const struct gpu_shards_spec shards = {spec->type, plan->rank_bytes, spec->multicast};
        return gpu_shards_create(team, &shards, &memory->shards, err);
    }
    const struct gpu_slab_spec part = {spec->type, spec->multicast, spec->size_bytes};
    enum st_status status = gpu_slab_take(team, &part, &memory->slab, &memory->offset, err);
    if (status == ST_OK) {
        memory->shards = memory->slab->shards;
    }
    return status;
}

static struct gpu_memory *memory_new(struct gpu_team *team, const struct gpu_memory_spec *spec,
                                     const struct memory_plan *plan)
{
    struct gpu_memory *memory = calloc(1, sizeof(*memory));
    if (memory) {
        memory->team = team;
        memory->type = spec->type;
        memory->info = (struct gpu_memory_info){
            .serial = atomic_fetch_add(&team->gpu->next_serial, 1) + 1,
            .size_bytes = spec->size_bytes,
            .allocated_bytes = memory_cost(spec, plan),
            .slab = plan->slab,
            .multicast_reason = gpu_multicast_wanted(team, spec->type, spec->multicast),
        };
        memory->user.serial = memory->info.serial;
    }
    return memory;
}

enum st_status gpu_memory_create(struct gpu_team *team, const struct gpu_memory_spec *spec,
                                 struct gpu_memory **ret_memory, struct st_error *err)
{
    struct memory_plan plan = {0};
    enum st_status status = memory_plan(team, spec, &plan, err);
    status = status == ST_OK ? gpu_devices_usable(team->gpu, team->device_mask, err) : status;
    if (status != ST_OK) {
        return status;
    }
    struct gpu_memory *memory = memory_new(team, spec, &plan);
    if (!memory) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a memory");
    }
    if (spec->size_bytes > 0) {
        pthread_mutex_lock(&team->memory_lock);
        status = memory_build(memory, spec, &plan, err);
        pthread_mutex_unlock(&team->memory_lock);
    }
    if (status != ST_OK) {
        gpu_memory_destroy(memory);
        return status;
    }
    if (memory->shards) {
        memory->info.multicast_reason = memory->shards->multicast_reason;
        gpu_multicast_user_add(memory->shards->multicast, &memory->user);
    }
    *ret_memory = memory;
    return ST_OK;
}

void gpu_memory_destroy(struct gpu_memory *memory)
{
    if (!memory) {
        return;
    }
    gpu_graphs_forget_memory(memory->team->gpu, memory->info.serial);
    if (memory->shards) {
        gpu_multicast_user_remove(memory->shards->multicast, &memory->user);
        pthread_mutex_lock(&memory->team->memory_lock);
        if (memory->slab) {
            gpu_slab_give(memory->slab, memory->offset);
        } else {
            gpu_shards_destroy(memory->shards);
        }
        pthread_mutex_unlock(&memory->team->memory_lock);
    }
    free(memory);
}

/* ---------------------------------------------------------------- asking */

const struct gpu_memory_info *gpu_memory_info(const struct gpu_memory *memory)
{
    return &memory->info;
}

uint64_t gpu_memory_address(const struct gpu_memory *memory, uint32_t rank)
{
    return memory->shards ? memory->shards->allocations[rank].address + memory->offset : 0;
}

uint64_t gpu_memory_multicast_address(const struct gpu_memory *memory)
{
    uint64_t address = memory->shards ? gpu_multicast_address(memory->shards->multicast) : 0;
    return address ? address + memory->offset : 0;
}

bool gpu_memory_reached(const struct gpu_memory *memory, uint32_t rank,
                        const struct gpu_device *device)
{
    return memory->shards && (memory->shards->allocations[rank].access >> device->info.ordinal & 1);
}

bool gpu_memory_reachable(const struct gpu_memory *memory, uint32_t rank,
                          const struct gpu_device *device)
{
    return memory->shards &&
           (device->peers >> memory->shards->allocations[rank].device->info.ordinal & 1);
}

bool gpu_memory_grant(struct gpu_memory *memory, uint32_t rank, const struct gpu_device *device)
{
    return gpu_allocation_grant(&memory->shards->allocations[rank], device);
}
