#include "gpu/slab.h"

#include <stdlib.h>

#include "gpu/team.h"

uint64_t gpu_slab_part_bytes(uint64_t bytes)
{
    return (bytes + GPU_SLAB_ALIGNMENT - 1) / GPU_SLAB_ALIGNMENT * GPU_SLAB_ALIGNMENT;
}

static enum gpu_slab_kind slab_kind(const struct gpu_team *team, const struct gpu_slab_spec *spec)
{
    if (spec->type == GPU_MEMORY_GLOBAL) {
        return GPU_SLAB_GLOBAL;
    }
    bool wanted = gpu_multicast_wanted(team, spec->type, spec->multicast) == GPU_MULTICAST_NONE;
    return wanted ? GPU_SLAB_MULTICAST : GPU_SLAB_UNICAST;
}

static void slab_destroy(struct gpu_slab *slab)
{
    gpu_shards_destroy(slab->shards);
    gpu_ranges_done(&slab->ranges);
    free(slab);
}

static enum st_status slab_create(struct gpu_team *team, const struct gpu_slab_spec *spec,
                                  struct gpu_slab **ret_slab, struct st_error *err)
{
    struct gpu_shards_spec shards = {.type = spec->type, .multicast = spec->multicast};
    if (!gpu_shards_measure(team, spec->type, spec->multicast, 1, &shards.bytes)) {
        return st_fail(err, ST_REASON_EXCEEDS_DEVICE_CAPACITY, NULL, "a granule overflows");
    }
    struct gpu_slab *slab = calloc(1, sizeof(*slab));
    if (!slab) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a slab");
    }
    slab->kind = slab_kind(team, spec);
    slab->ranges.size_bytes = shards.bytes;
    enum st_status status = gpu_shards_create(team, &shards, &slab->shards, err);
    if (status != ST_OK) {
        slab_destroy(slab);
        return status;
    }
    *ret_slab = slab;
    return ST_OK;
}

/** Take a part of a slab that exists. @return NULL when none has room. */
static struct gpu_slab *slab_find(struct gpu_team *team, const struct gpu_slab_spec *spec,
                                  uint64_t *ret_offset)
{
    for (struct gpu_slab *slab = team->slabs[slab_kind(team, spec)]; slab; slab = slab->next) {
        /* A slab that once got no multicast is no answer to a memory that requires it. */
        if (spec->multicast == GPU_MULTICAST_REQUIRED && !slab->shards->multicast) {
            continue;
        }
        if (gpu_ranges_take(&slab->ranges, gpu_slab_part_bytes(spec->bytes), ret_offset)) {
            return slab;
        }
    }
    return NULL;
}

/** Zero the part, as far as it may hold what another left. */
static enum st_status slab_clean(struct gpu_slab *slab, uint64_t offset, uint64_t bytes,
                                 struct st_error *err)
{
    uint64_t end = offset + bytes;
    if (offset < slab->clean_from) {
        uint64_t dirty = (end < slab->clean_from ? end : slab->clean_from) - offset;
        enum st_status status = gpu_shards_zero(slab->shards, offset, dirty, err);
        if (status != ST_OK) {
            return status;
        }
    }
    slab->clean_from = end > slab->clean_from ? end : slab->clean_from;
    return ST_OK;
}

enum st_status gpu_slab_take(struct gpu_team *team, const struct gpu_slab_spec *spec,
                             struct gpu_slab **ret_slab, uint64_t *ret_offset, struct st_error *err)
{
    uint64_t bytes = gpu_slab_part_bytes(spec->bytes);
    uint64_t offset = 0;
    struct gpu_slab *slab = slab_find(team, spec, &offset);
    if (!slab) {
        enum st_status status = slab_create(team, spec, &slab, err);
        if (status != ST_OK) {
            return status;
        }
        slab->next = team->slabs[slab->kind];
        team->slabs[slab->kind] = slab;
        if (!gpu_ranges_take(&slab->ranges, bytes, &offset)) {
            team->slabs[slab->kind] = slab->next;
            slab_destroy(slab);
            return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a slab");
        }
    }
    enum st_status status = slab_clean(slab, offset, bytes, err);
    if (status != ST_OK) {
        gpu_slab_give(slab, offset);
        return status;
    }
    *ret_slab = slab;
    *ret_offset = offset;
    return ST_OK;
}

void gpu_slab_give(struct gpu_slab *slab, uint64_t offset)
{
    gpu_ranges_give(&slab->ranges, offset);
    if (slab->ranges.used_bytes > 0) {
        return;
    }
    struct gpu_slab **at = &slab->shards->team->slabs[slab->kind];
    while (*at != slab) {
        at = &(*at)->next;
    }
    *at = slab->next;
    slab_destroy(slab);
}
