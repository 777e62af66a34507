#include "gpu/shards.h"

#include <stdlib.h>

#include "base/size.h"
#include "gpu/self_test.h"
#include "gpu/team.h"

static uint64_t shards_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool gpu_shards_measure(const struct gpu_team *team, enum gpu_memory_type type,
                        enum gpu_multicast_mode multicast, uint64_t bytes, uint64_t *ret_bytes)
{
    uint64_t minimum = 1, recommended = 1;
    for (uint32_t i = 0; i < team->lane_count; i++) {
        const struct gpu_granularity *granularity = &team->lanes[i].device->granularity[type];
        minimum = shards_max(minimum, granularity->minimum_bytes);
        recommended = shards_max(recommended, granularity->recommended_bytes);
    }
    if (gpu_multicast_wanted(team, type, multicast) == GPU_MULTICAST_NONE) {
        minimum = shards_max(minimum, team->multicast_granularity.minimum_bytes);
        recommended = shards_max(recommended, team->multicast_granularity.recommended_bytes);
    }
    uint64_t least, comfortable;
    if (!st_size_round_up(bytes, minimum, &least)) {
        return false;
    }
    bool fits = st_size_round_up(least, recommended, &comfortable);
    *ret_bytes = fits && comfortable - least <= least / 16 ? comfortable : least;
    return true;
}

/** Devices that can be given access to memory on @p device: all of the team's that reach it. */
static uint64_t shards_access(const struct gpu_team *team, const struct gpu_device *device)
{
    uint64_t access = 0;
    for (uint32_t i = 0; i < team->lane_count; i++) {
        const struct gpu_device *other = team->lanes[i].device;
        access |= (other->peers >> device->info.ordinal & 1) << other->info.ordinal;
    }
    return access;
}

static enum st_status shards_allocate(struct gpu_shards *shards, struct st_error *err)
{
    const struct gpu_team *team = shards->team;
    enum st_status status = ST_OK;
    for (uint32_t rank = 0; rank < team->world_size && status == ST_OK; rank++) {
        struct gpu_device *device = gpu_team_lane(team, rank)->device;
        const struct gpu_allocation_spec spec = {
            .device = device,
            .type = shards->type,
            .bytes = shards->bytes,
            .access = shards_access(team, device),
        };
        status = gpu_allocation_create(&spec, &shards->allocations[rank], err);
    }
    return status;
}

enum st_status gpu_shards_zero(struct gpu_shards *shards, uint64_t offset, uint64_t bytes,
                               struct st_error *err)
{
    const struct gpu_team *team = shards->team;
    enum st_status status = ST_OK;
    for (uint32_t rank = 0; rank < team->world_size && status == ST_OK; rank++) {
        struct gpu_allocation *allocation = &shards->allocations[rank];
        status = gpu_device_enter(allocation->device, err);
        if (status == ST_OK) {
            status = gpu_device_zero(allocation->device, allocation->address + offset, bytes, err);
        }
    }
    /* Also on failure: nothing may still write when the memory is taken back. */
    for (uint32_t i = 0; i < team->lane_count; i++) {
        struct st_error unused;
        enum st_status settled =
            gpu_device_settle(team->lanes[i].device, status == ST_OK ? err : &unused);
        status = status == ST_OK ? settled : status;
    }
    return status;
}

static enum st_status shards_bind(struct gpu_shards *shards, enum gpu_multicast_mode mode,
                                  struct st_error *err)
{
    shards->multicast_reason = gpu_multicast_wanted(shards->team, shards->type, mode);
    if (shards->multicast_reason == GPU_MULTICAST_NONE) {
        shards->multicast_reason = gpu_multicast_bind(shards->team, shards->allocations,
                                                      shards->bytes, &shards->multicast);
    }
    enum st_status status = gpu_devices_usable(shards->team->gpu, shards->team->device_mask, err);
    if (status == ST_OK && shards->multicast_reason == GPU_MULTICAST_SELF_TEST_FAILED) {
        status = gpu_shards_zero(shards, 0, GPU_SELF_TEST_BYTES, err); /* what the test left */
    }
    if (status == ST_OK && mode == GPU_MULTICAST_REQUIRED &&
        shards->multicast_reason != GPU_MULTICAST_NONE) {
        status = gpu_multicast_fail(shards->multicast_reason, err);
    }
    return status;
}

static enum st_status shards_build(struct gpu_shards *shards, const struct gpu_shards_spec *spec,
                                   struct st_error *err)
{
    enum st_status status = shards_allocate(shards, err);
    if (status == ST_OK && !shards->team->gpu->backend->memory_is_zeroed) {
        status = gpu_shards_zero(shards, 0, shards->bytes, err);
    }
    return status == ST_OK ? shards_bind(shards, spec->multicast, err) : status;
}

/** The bytes of all ranks are no longer worked on. */
static void shards_end_bytes(const struct gpu_shards *shards)
{
    for (uint32_t rank = 0; rank < shards->team->world_size; rank++) {
        const struct gpu_allocation *allocation = &shards->allocations[rank];
        if (allocation->bytes) {
            gpu_device_end_bytes(allocation->device, allocation->bytes);
        }
    }
}

/** Give back, while the bytes count as worked on. */
static void shards_release(struct gpu_shards *shards)
{
    const struct gpu_team *team = shards->team;
    uint64_t held = gpu_multicast_unbind(shards->multicast);
    for (uint32_t rank = 0; rank < team->world_size; rank++) {
        struct gpu_device *device = shards->allocations[rank].device;
        uint64_t bytes = shards->allocations[rank].bytes;
        if (!gpu_allocation_destroy(&shards->allocations[rank])) {
            held &= ~(1ull << team->lane_of_rank[rank]); /* it is in quarantine already */
        }
        if (bytes) {
            gpu_device_end_bytes(device, bytes);
        }
    }
    gpu_multicast_binding_destroy(shards->multicast, held);
    shards->multicast = NULL;
}

static void shards_refresh_free(const struct gpu_team *team)
{
    for (uint32_t i = 0; i < team->lane_count; i++) {
        gpu_device_refresh_free(team->lanes[i].device);
    }
}

enum st_status gpu_shards_create(struct gpu_team *team, const struct gpu_shards_spec *spec,
                                 struct gpu_shards **ret_shards, struct st_error *err)
{
    struct gpu_shards *shards =
        calloc(1, sizeof(*shards) + team->world_size * sizeof(shards->allocations[0]));
    if (!shards) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the shards");
    }
    shards->team = team;
    shards->type = spec->type;
    shards->bytes = spec->bytes;
    enum st_status status = shards_build(shards, spec, err);
    if (status != ST_OK) {
        shards_release(shards);
        shards_refresh_free(team);
        free(shards);
        return status;
    }
    shards_end_bytes(shards);
    shards_refresh_free(team);
    *ret_shards = shards;
    return ST_OK;
}

void gpu_shards_destroy(struct gpu_shards *shards)
{
    if (!shards) {
        return;
    }
    struct gpu_team *team = shards->team;
    for (uint32_t rank = 0; rank < team->world_size; rank++) {
        gpu_device_begin_bytes(shards->allocations[rank].device, shards->allocations[rank].bytes);
    }
    shards_release(shards);
    shards_refresh_free(team);
    free(shards);
}
