#include "gpu/multicast.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/size.h"
#include "gpu/self_test.h"
#include "gpu/team.h"

/* A chunk costs a slot and address space, not memory: large enough that one serves a team. */
#define MULTICAST_CHUNK_BYTES (16 * ST_GIB)

/* ---------------------------------------------------------------- reasons */

/** What a failing call means. The first row that matches; call GPU_CALL_COUNT is any. */
static const struct {
    enum gpu_driver_call call;
    CUresult result;
    enum gpu_multicast_reason reason;
} multicast_failures[] = {
    /* Sources: NVIDIA's documents and what users of NCCL, PyTorch and MSCCL++ met. */
    {GPU_CALL_COUNT, CUDA_ERROR_ILLEGAL_STATE, GPU_MULTICAST_FABRIC_MANAGER_ERROR},
    {GPU_CALL_COUNT, CUDA_ERROR_SYSTEM_NOT_READY, GPU_MULTICAST_NOT_READY},
    {GPU_CALL_COUNT, CUDA_ERROR_NOT_SUPPORTED, GPU_MULTICAST_NOT_SUPPORTED_BY_DEVICE},
    {GPU_CALL_COUNT, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, GPU_MULTICAST_DRIVER_TOO_OLD},
    {GPU_CALL_COUNT, CUDA_ERROR_INVALID_DEVICE, GPU_MULTICAST_DIFFERENT_DOMAIN},
    {GPU_CALL_cuMulticastCreate, CUDA_ERROR_OUT_OF_MEMORY, GPU_MULTICAST_SLOTS_EXHAUSTED},
    {GPU_CALL_cuMulticastBindMem, CUDA_ERROR_OUT_OF_MEMORY, GPU_MULTICAST_SLOTS_EXHAUSTED},
};

/** A call failed: remember it for those who look, and say why there is no multicast. */
static enum gpu_multicast_reason multicast_failed(struct gpu_device *device,
                                                  enum gpu_driver_call call, CUresult result)
{
    struct st_error err = {0};
    gpu_result_fail(device, call, result, &err);
    st_log_error(ST_LOG_DEBUG, "no multicast", &err);
    for (size_t i = 0; i < sizeof(multicast_failures) / sizeof(multicast_failures[0]); i++) {
        bool call_matches =
            multicast_failures[i].call == call || multicast_failures[i].call == GPU_CALL_COUNT;
        if (call_matches && multicast_failures[i].result == result) {
            return multicast_failures[i].reason;
        }
    }
    return GPU_MULTICAST_DENIED;
}

/** Teardown has no caller to tell. @return whether it worked. */
static bool multicast_undo(struct gpu_device *device, enum gpu_driver_call call, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        return true;
    }
    struct st_error err = {0};
    gpu_result_fail(device, call, result, &err);
    st_log_error(ST_LOG_WARNING, "multicast was not taken down", &err);
    return false;
}

enum st_status gpu_multicast_fail(enum gpu_multicast_reason reason, struct st_error *err)
{
    static const char *const meanings[GPU_MULTICAST_REASON_COUNT] = {
#define X(name, text, meaning) meaning,
        GPU_MULTICAST_REASONS(X)
#undef X
    };
    enum st_status status = st_fail(err, ST_REASON_MULTICAST_UNAVAILABLE, "multicast", "%s: %s",
                                    gpu_multicast_reason_name(reason), meanings[reason]);
    st_error_add_detail(err, "multicast_reason", "%s", gpu_multicast_reason_name(reason));
    return status;
}

enum gpu_multicast_reason gpu_multicast_wanted(const struct gpu_team *team,
                                               enum gpu_memory_type type,
                                               enum gpu_multicast_mode mode)
{
    if (type != GPU_MEMORY_SYMMETRIC || mode == GPU_MULTICAST_DISABLED) {
        return GPU_MULTICAST_NOT_REQUESTED;
    }
    return team->multicast_reason;
}

/** Size of a chunk that must hold @p bytes. */
static uint64_t chunk_size(const struct gpu_team *team, uint64_t bytes, uint64_t recommended)
{
    uint64_t size = MULTICAST_CHUNK_BYTES;
    for (uint32_t i = 0; i < team->lane_count; i++) {
        uint64_t limit = team->lanes[i].device->info.limit_bytes;
        size = limit < size ? limit : size;
    }
    size = bytes > size ? bytes : size;
    uint64_t rounded = size;
    return st_size_round_up(size, recommended, &rounded) ? rounded : size;
}

static CUmulticastObjectProp chunk_prop(const struct gpu_team *team, uint64_t size)
{
    return (CUmulticastObjectProp){
        .numDevices = team->lane_count,
        .size = size,
        .handleTypes = gpu_device_multicast_handle_types(team->lanes[0].device),
    };
}

enum gpu_multicast_reason gpu_multicast_judge(struct gpu_team *team)
{
    const struct gpu *gpu = team->gpu;
    const struct gpu_driver *driver = gpu->driver;
    if (gpu->options.nvls == GPU_NVLS_OFF) {
        return GPU_MULTICAST_DISABLED_BY_CONFIG;
    }
    if (team->world_size == 1) {
        return GPU_MULTICAST_SINGLE_RANK;
    }
    if (team->lane_count < team->world_size) {
        return GPU_MULTICAST_SHARED_DEVICE;
    }
    if (gpu->multicast_reason != GPU_MULTICAST_NONE) {
        return gpu->multicast_reason;
    }
    for (uint32_t i = 0; i < team->lane_count; i++) {
        const struct gpu_device *device = team->lanes[i].device;
        if (device->info.multicast_granularity_minimum_bytes == 0) {
            return GPU_MULTICAST_NOT_SUPPORTED_BY_DEVICE;
        }
        if (!device->kernels) {
            return GPU_MULTICAST_NO_KERNELS;
        }
    }
    if (!team->peer_access) {
        return GPU_MULTICAST_DIFFERENT_DOMAIN;
    }
    const CUmulticastObjectProp prop = chunk_prop(
        team,
        chunk_size(team, 1, team->lanes[0].device->info.multicast_granularity_recommended_bytes));
    size_t minimum = 0, recommended = 0;
    CUresult result =
        driver->cuMulticastGetGranularity(&minimum, &prop, CU_MULTICAST_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) {
        result = driver->cuMulticastGetGranularity(&recommended, &prop,
                                                   CU_MULTICAST_GRANULARITY_RECOMMENDED);
    }
    if (result != CUDA_SUCCESS) {
        return multicast_failed(team->lanes[0].device, GPU_CALL_cuMulticastGetGranularity, result);
    }
    team->multicast_granularity = (struct gpu_granularity){minimum, recommended};
    return GPU_MULTICAST_NONE;
}

/* ---------------------------------------------------------------- the list */

/** Count one more object; false when none may be added. */
static bool chunk_count(struct gpu_multicast_chunk *chunk)
{
    struct gpu *gpu = chunk->team->gpu;
    pthread_mutex_lock(&gpu->multicast_lock);
    chunk->counted = gpu->chunks_count < gpu->options.nvls_slots;
    gpu->chunks_count += chunk->counted;
    pthread_mutex_unlock(&gpu->multicast_lock);
    return chunk->counted;
}

/** The lowest slot that no listed chunk has. multicast_lock is held. */
static uint32_t chunk_free_slot(const struct gpu *gpu)
{
    uint32_t slot = 0;
    bool taken = true;
    while (taken) {
        taken = false;
        for (const struct gpu_multicast_chunk *at = gpu->chunks; at && !taken; at = at->list_next) {
            taken = at->slot == slot;
        }
        slot += taken;
    }
    return slot;
}

static void chunk_list(struct gpu_multicast_chunk *chunk)
{
    struct gpu *gpu = chunk->team->gpu;
    pthread_mutex_lock(&gpu->multicast_lock);
    chunk->slot = chunk_free_slot(gpu);
    chunk->number = ++gpu->chunks_made;
    struct gpu_multicast_chunk **end = &gpu->chunks;
    while (*end) {
        end = &(*end)->list_next;
    }
    *end = chunk;
    chunk->listed = true;
    pthread_mutex_unlock(&gpu->multicast_lock);
}

/** Take it off the list, and off the count when @p uncount. */
static void chunk_unlist(struct gpu_multicast_chunk *chunk, bool uncount)
{
    struct gpu *gpu = chunk->team->gpu;
    pthread_mutex_lock(&gpu->multicast_lock);
    struct gpu_multicast_chunk **at = &gpu->chunks;
    while (chunk->listed && *at != chunk) {
        at = &(*at)->list_next;
    }
    if (chunk->listed) {
        *at = chunk->list_next;
        chunk->listed = false;
    }
    if (uncount && chunk->counted) {
        gpu->chunks_count--;
        chunk->counted = false;
    }
    pthread_mutex_unlock(&gpu->multicast_lock);
}

static void chunk_describe(const struct gpu_multicast_chunk *chunk,
                           struct gpu_multicast_info *ret_info)
{
    const struct gpu_team *team = chunk->team;
    *ret_info = (struct gpu_multicast_info){
        .device_count = team->lane_count,
        .granularity_bytes = team->multicast_granularity.minimum_bytes,
        .size_bytes = chunk->size_bytes,
        .used_bytes = chunk->ranges.used_bytes,
        .slot = chunk->slot,
        .usable = true,
        .reason = GPU_MULTICAST_NONE,
    };
    snprintf(ret_info->id, sizeof(ret_info->id), "multicast-%010u", chunk->number);
    for (uint32_t i = 0; i < team->lane_count; i++) {
        ret_info->devices[i] = team->lanes[i].device->info.ordinal;
    }
    const uint32_t max = sizeof(ret_info->bound_ids) / sizeof(ret_info->bound_ids[0]);
    for (const struct gpu_multicast_user *user = chunk->users; user; user = user->next) {
        if (ret_info->bound_count < max) {
            ret_info->bound_ids[ret_info->bound_count] = user->serial;
        }
        ret_info->bound_count++;
    }
}

uint32_t gpu_multicast_slots_used(const struct gpu *gpu)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&gpu->multicast_lock;
    pthread_mutex_lock(lock);
    uint32_t count = gpu->chunks_count;
    pthread_mutex_unlock(lock);
    return count;
}

uint32_t gpu_multicast_list(const struct gpu *gpu, struct gpu_multicast_info *ret, uint32_t max)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&gpu->multicast_lock;
    uint32_t count = 0;
    pthread_mutex_lock(lock);
    for (const struct gpu_multicast_chunk *at = gpu->chunks; at; at = at->list_next) {
        if (count < max) {
            chunk_describe(at, &ret[count]);
        }
        count++;
    }
    pthread_mutex_unlock(lock);
    return count;
}

void gpu_multicast_user_add(struct gpu_multicast_binding *binding, struct gpu_multicast_user *user)
{
    if (!binding) {
        return;
    }
    struct gpu *gpu = binding->chunk->team->gpu;
    pthread_mutex_lock(&gpu->multicast_lock);
    user->next = binding->chunk->users;
    binding->chunk->users = user;
    pthread_mutex_unlock(&gpu->multicast_lock);
}

void gpu_multicast_user_remove(struct gpu_multicast_binding *binding,
                               struct gpu_multicast_user *user)
{
    if (!binding) {
        return;
    }
    struct gpu *gpu = binding->chunk->team->gpu;
    pthread_mutex_lock(&gpu->multicast_lock);
    struct gpu_multicast_user **at = &binding->chunk->users;
    while (*at && *at != user) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = user->next;
    }
    pthread_mutex_unlock(&gpu->multicast_lock);
}

/* ---------------------------------------------------------------- chunks */

/** Undo exactly what was done; everything that was bound is unbound, or goes with the object. */
static void chunk_take_down(struct gpu_multicast_chunk *chunk)
{
    struct gpu_device *device = chunk->team->lanes[0].device;
    const struct gpu_driver *driver = chunk->team->gpu->driver;
    chunk->stays = chunk->mapped;
    if (chunk->created) {
        chunk->stays |=
            !multicast_undo(device, GPU_CALL_cuMemRelease, driver->cuMemRelease(chunk->handle));
        chunk->created = false;
    }
    if (chunk->reserved && !chunk->mapped) {
        multicast_undo(device, GPU_CALL_cuMemAddressFree,
                       driver->cuMemAddressFree(chunk->address, chunk->size_bytes));
    }
    chunk->reserved = false;
}

/** An object that stays takes its slot and its memory along: both stay counted. */
static void chunk_destroy(struct gpu_multicast_chunk *chunk)
{
    struct gpu_team *team = chunk->team;
    struct gpu_multicast_chunk **at = &team->chunks;
    while (*at && *at != chunk) {
        at = &(*at)->team_next;
    }
    if (*at) {
        *at = chunk->team_next;
    }
    if (chunk->created) {
        chunk_take_down(chunk);
    }
    for (uint32_t i = 0; i < team->lane_count && !chunk->stays; i++) {
        gpu_device_unquarantine(team->lanes[i].device, chunk->quarantined_bytes[i]);
    }
    chunk_unlist(chunk, !chunk->stays);
    gpu_ranges_done(&chunk->ranges);
    free(chunk);
}

/** Create the object and add all devices; only then may anything be bound. */
static enum gpu_multicast_reason chunk_build(struct gpu_multicast_chunk *chunk)
{
    struct gpu_team *team = chunk->team;
    const struct gpu_driver *driver = team->gpu->driver;
    const CUmulticastObjectProp prop = chunk_prop(team, chunk->size_bytes);
    if (!chunk_count(chunk)) {
        return GPU_MULTICAST_SLOTS_EXHAUSTED;
    }
    struct st_error unused;
    if (gpu_device_enter(team->lanes[0].device, &unused) != ST_OK) {
        return GPU_MULTICAST_DENIED;
    }
    CUresult result = driver->cuMulticastCreate(&chunk->handle, &prop);
    if (result != CUDA_SUCCESS) {
        return multicast_failed(team->lanes[0].device, GPU_CALL_cuMulticastCreate, result);
    }
    chunk->created = true;
    for (uint32_t i = 0; i < team->lane_count; i++) {
        struct gpu_device *device = team->lanes[i].device;
        result = driver->cuMulticastAddDevice(chunk->handle, device->device);
        if (result != CUDA_SUCCESS) {
            return multicast_failed(device, GPU_CALL_cuMulticastAddDevice, result);
        }
    }
    return GPU_MULTICAST_NONE;
}

static enum gpu_multicast_reason chunk_create(struct gpu_team *team, uint64_t bytes,
                                              struct gpu_multicast_chunk **ret_chunk)
{
    struct gpu_multicast_chunk *chunk = calloc(1, sizeof(*chunk));
    if (!chunk) {
        return GPU_MULTICAST_DENIED;
    }
    chunk->team = team;
    chunk->size_bytes = chunk_size(team, bytes, team->multicast_granularity.recommended_bytes);
    chunk->ranges.size_bytes = chunk->size_bytes;
    enum gpu_multicast_reason reason = chunk_build(chunk);
    if (reason != GPU_MULTICAST_NONE) {
        chunk_destroy(chunk);
        return reason;
    }
    chunk->team_next = team->chunks;
    team->chunks = chunk;
    *ret_chunk = chunk;
    return GPU_MULTICAST_NONE;
}

/** Map all of it from offset 0, which is the only offset that drivers accept, for all devices. */
static enum gpu_multicast_reason chunk_map(struct gpu_multicast_chunk *chunk)
{
    struct gpu_team *team = chunk->team;
    struct gpu_device *device = team->lanes[0].device;
    const struct gpu_driver *driver = team->gpu->driver;
    CUresult result = driver->cuMemAddressReserve(
        &chunk->address, chunk->size_bytes, team->multicast_granularity.recommended_bytes, 0, 0);
    if (result != CUDA_SUCCESS) {
        return multicast_failed(device, GPU_CALL_cuMemAddressReserve, result);
    }
    chunk->reserved = true;
    result = driver->cuMemMap(chunk->address, chunk->size_bytes, 0, chunk->handle, 0);
    if (result != CUDA_SUCCESS) {
        return multicast_failed(device, GPU_CALL_cuMemMap, result);
    }
    chunk->mapped = true;
    CUmemAccessDesc access[ST_NODE_RANKS_MAX];
    for (uint32_t i = 0; i < team->lane_count; i++) {
        access[i] = (CUmemAccessDesc){
            .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)team->lanes[i].device->info.ordinal},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
    }
    result = driver->cuMemSetAccess(chunk->address, chunk->size_bytes, access, team->lane_count);
    if (result != CUDA_SUCCESS) {
        return multicast_failed(device, GPU_CALL_cuMemSetAccess, result);
    }
    return GPU_MULTICAST_NONE;
}

static void chunk_unmap(struct gpu_multicast_chunk *chunk)
{
    struct gpu_team *team = chunk->team;
    if (chunk->mapped) {
        chunk->mapped =
            !multicast_undo(team->lanes[0].device, GPU_CALL_cuMemUnmap,
                            team->gpu->driver->cuMemUnmap(chunk->address, chunk->size_bytes));
    }
}

/* ---------------------------------------------------------------- bindings */

static bool binding_take_range(struct gpu_multicast_binding *binding,
                               struct gpu_multicast_chunk *chunk)
{
    struct gpu *gpu = chunk->team->gpu;
    pthread_mutex_lock(&gpu->multicast_lock);
    binding->placed = gpu_ranges_take(&chunk->ranges, binding->bytes, &binding->offset);
    pthread_mutex_unlock(&gpu->multicast_lock);
    if (binding->placed) {
        binding->chunk = chunk;
        chunk->bindings++;
    }
    return binding->placed;
}

/** Find room in a chunk of the team, or make one. */
static enum gpu_multicast_reason binding_place(struct gpu_multicast_binding *binding,
                                               struct gpu_team *team)
{
    for (struct gpu_multicast_chunk *at = team->chunks; at; at = at->team_next) {
        if (binding_take_range(binding, at)) {
            return GPU_MULTICAST_NONE;
        }
    }
    struct gpu_multicast_chunk *chunk = NULL;
    enum gpu_multicast_reason reason = chunk_create(team, binding->bytes, &chunk);
    if (reason != GPU_MULTICAST_NONE) {
        return reason;
    }
    if (!binding_take_range(binding, chunk)) {
        chunk_destroy(chunk);
        return GPU_MULTICAST_DENIED;
    }
    return GPU_MULTICAST_NONE;
}

static enum gpu_multicast_reason binding_bind(struct gpu_multicast_binding *binding,
                                              const struct gpu_allocation *allocations)
{
    struct gpu_multicast_chunk *chunk = binding->chunk;
    const struct gpu_team *team = chunk->team;
    for (uint32_t i = 0; i < team->lane_count; i++) {
        CUresult result = team->gpu->driver->cuMulticastBindMem(
            chunk->handle, binding->offset, allocations[i].handle, 0, binding->bytes, 0);
        if (result != CUDA_SUCCESS) {
            return multicast_failed(team->lanes[i].device, GPU_CALL_cuMulticastBindMem, result);
        }
        binding->bound |= 1ull << i;
    }
    return GPU_MULTICAST_NONE;
}

static enum gpu_multicast_reason binding_build(struct gpu_multicast_binding *binding,
                                               struct gpu_team *team,
                                               const struct gpu_allocation *allocations)
{
    enum gpu_multicast_reason reason = binding_place(binding, team);
    reason = reason == GPU_MULTICAST_NONE ? binding_bind(binding, allocations) : reason;
    if (reason != GPU_MULTICAST_NONE) {
        return reason;
    }
    struct gpu_multicast_chunk *chunk = binding->chunk;
    bool fresh = !chunk->mapped;
    reason = fresh ? chunk_map(chunk) : GPU_MULTICAST_NONE;
    if (reason != GPU_MULTICAST_NONE) {
        return reason;
    }
    /* Of a fresh mapping every device's path is tried, later the first device's stands for all. */
    if (!gpu_self_test(team, allocations, gpu_multicast_address(binding),
                       fresh ? team->lane_count : 1)) {
        return GPU_MULTICAST_SELF_TEST_FAILED;
    }
    if (fresh) {
        chunk_list(chunk);
    }
    return GPU_MULTICAST_NONE;
}

enum gpu_multicast_reason gpu_multicast_bind(struct gpu_team *team,
                                             const struct gpu_allocation *allocations,
                                             uint64_t bytes,
                                             struct gpu_multicast_binding **ret_binding)
{
    struct gpu_multicast_binding *binding = calloc(1, sizeof(*binding));
    if (!binding) {
        return GPU_MULTICAST_DENIED;
    }
    binding->bytes = bytes;
    enum gpu_multicast_reason reason = binding_build(binding, team, allocations);
    if (reason != GPU_MULTICAST_NONE) {
        gpu_multicast_binding_destroy(binding, gpu_multicast_unbind(binding));
        return reason;
    }
    *ret_binding = binding;
    return GPU_MULTICAST_NONE;
}

/** Unbind from every device. @return the lanes where that failed. */
static uint64_t binding_unbind(struct gpu_multicast_binding *binding)
{
    struct gpu_multicast_chunk *chunk = binding->chunk;
    const struct gpu_team *team = chunk->team;
    uint64_t stuck = 0;
    for (uint64_t left = binding->bound; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        struct gpu_device *device = team->lanes[i].device;
        bool undone =
            multicast_undo(device, GPU_CALL_cuMulticastUnbind,
                           team->gpu->driver->cuMulticastUnbind(chunk->handle, device->device,
                                                                binding->offset, binding->bytes));
        stuck |= (uint64_t)!undone << i;
    }
    return stuck;
}

/** What the object alone still holds is in quarantine until the object goes. */
static void binding_quarantine(struct gpu_multicast_binding *binding, uint64_t held)
{
    struct gpu_multicast_chunk *chunk = binding->chunk;
    for (uint64_t left = held; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        chunk->quarantined_bytes[i] += binding->bytes;
        gpu_device_quarantine(chunk->team->lanes[i].device, binding->bytes);
    }
}

uint64_t gpu_multicast_unbind(struct gpu_multicast_binding *binding)
{
    if (!binding || !binding->placed) {
        return 0;
    }
    struct gpu_multicast_chunk *chunk = binding->chunk;
    bool last = chunk->bindings == 1;
    if (last) {
        chunk_unlist(chunk, false);
        chunk_unmap(chunk);
    }
    binding->bound = binding_unbind(binding);
    if (last) {
        chunk_take_down(chunk);
        binding->bound = chunk->stays ? binding->bound : 0;
    }
    return binding->bound;
}

void gpu_multicast_binding_destroy(struct gpu_multicast_binding *binding, uint64_t held)
{
    if (!binding) {
        return;
    }
    struct gpu_multicast_chunk *chunk = binding->chunk;
    if (binding->placed) {
        binding_quarantine(binding, held);
        if (!binding->bound) { /* what is still bound keeps its place too */
            pthread_mutex_lock(&chunk->team->gpu->multicast_lock);
            gpu_ranges_give(&chunk->ranges, binding->offset);
            pthread_mutex_unlock(&chunk->team->gpu->multicast_lock);
        }
        chunk->bindings--;
        if (chunk->bindings == 0) {
            chunk_destroy(chunk);
        }
    }
    free(binding);
}

uint64_t gpu_multicast_address(const struct gpu_multicast_binding *binding)
{
    return binding ? binding->chunk->address + binding->offset : 0;
}
