#include "gpu/team.h"

#include <assert.h>
#include <stdlib.h>

#include "gpu/graph.h"

/* ---------------------------------------------------------------- creation */

static enum st_status team_check(const struct gpu *gpu, const uint32_t *devices,
                                 uint32_t world_size, struct st_error *err)
{
    if (world_size < 1 || world_size > ST_NODE_RANKS_MAX) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "devices", "%u ranks on one node; 1 to %d fit",
                       world_size, ST_NODE_RANKS_MAX);
    }
    for (uint32_t rank = 0; rank < world_size; rank++) {
        if (devices[rank] >= gpu->device_count) {
            return st_fail(err, ST_REASON_DEVICE_NOT_FOUND, "devices",
                           "rank %u: no device %u; there are %u", rank, devices[rank],
                           gpu->device_count);
        }
    }
    return ST_OK;
}

/** The lane of a device, which is added if it is new. */
static uint32_t team_find_lane(struct gpu_team *team, struct gpu_device *device)
{
    for (uint32_t i = 0; i < team->lane_count; i++) {
        if (team->lanes[i].device == device) {
            return i;
        }
    }
    team->lanes[team->lane_count] = (struct gpu_lane){.device = device, .team = team};
    team->device_mask |= 1ull << device->info.ordinal;
    return team->lane_count++;
}

static void team_judge_peers(struct gpu_team *team)
{
    team->peer_access = true;
    for (uint32_t i = 0; i < team->lane_count && team->peer_access; i++) {
        uint64_t missing = team->device_mask & ~team->lanes[i].device->peers;
        if (missing) {
            team->peer_access = false;
            team->no_peer[0] = team->lanes[i].device->info.ordinal;
            team->no_peer[1] = (uint32_t)__builtin_ctzll(missing);
        }
    }
}

static void team_judge_kernels(struct gpu_team *team)
{
    team->kernels = true;
    for (uint32_t i = 0; i < team->lane_count; i++) {
        team->kernels &= team->lanes[i].device->kernels;
    }
}

static enum st_status lane_open(struct gpu_lane *lane, struct st_error *err)
{
    const struct gpu_driver *driver = lane->device->gpu->driver;
    enum st_status status = gpu_device_enter(lane->device, err);
    if (status != ST_OK) {
        return status;
    }
    CUresult result = driver->cuStreamCreateWithPriority(&lane->stream, CU_STREAM_NON_BLOCKING, 0);
    if (result != CUDA_SUCCESS) {
        lane->stream = NULL;
        return gpu_result_fail(lane->device, GPU_CALL_cuStreamCreateWithPriority, result, err);
    }
    result = driver->cuEventCreate(&lane->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        lane->event = NULL;
        return gpu_result_fail(lane->device, GPU_CALL_cuEventCreate, result, err);
    }
    return ST_OK;
}

static enum st_status team_build(struct gpu_team *team, const uint32_t *devices,
                                 struct st_error *err)
{
    for (uint32_t rank = 0; rank < team->world_size; rank++) {
        uint32_t lane = team_find_lane(team, &team->gpu->devices[devices[rank]]);
        team->lane_of_rank[rank] = lane;
        team->ranks_of_lane[lane]++;
    }
    enum st_status status = gpu_devices_usable(team->gpu, team->device_mask, err);
    for (uint32_t i = 0; i < team->lane_count && status == ST_OK; i++) {
        status = lane_open(&team->lanes[i], err);
    }
    if (status != ST_OK) {
        return status;
    }
    team_judge_peers(team);
    team_judge_kernels(team);
    team->multicast_reason = gpu_multicast_judge(team);
    return gpu_devices_usable(team->gpu, team->device_mask, err);
}

enum st_status gpu_team_create(struct gpu *gpu, const uint32_t *devices, uint32_t world_size,
                               struct gpu_team **ret_team, struct st_error *err)
{
    enum st_status status = team_check(gpu, devices, world_size, err);
    if (status != ST_OK) {
        return status;
    }
    struct gpu_team *team = calloc(1, sizeof(*team));
    if (!team) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a team");
    }
    team->gpu = gpu;
    team->world_size = world_size;
    pthread_mutex_init(&team->memory_lock, NULL);
    status = team_build(team, devices, err);
    if (status != ST_OK) {
        gpu_team_destroy(team);
        return status;
    }
    *ret_team = team;
    return ST_OK;
}

enum gpu_multicast_reason gpu_team_multicast_reason(const struct gpu_team *team)
{
    return team->multicast_reason;
}

/* ---------------------------------------------------------------- the end */

/** Wait until no job is left; the last moments of one come after its completion. */
static void team_wait_jobs(struct gpu_team *team)
{
    struct gpu *gpu = team->gpu;
    pthread_mutex_lock(&gpu->jobs_lock);
    while (team->jobs > 0) {
        pthread_cond_wait(&gpu->jobs_ended, &gpu->jobs_lock);
    }
    pthread_mutex_unlock(&gpu->jobs_lock);
}

void gpu_team_destroy(struct gpu_team *team)
{
    if (!team) {
        return;
    }
    team_wait_jobs(team);
    gpu_graphs_forget_team(team->gpu, team);
    assert(!team->chunks);
    const struct gpu_driver *driver = team->gpu->driver;
    for (uint32_t i = 0; i < team->lane_count; i++) {
        struct gpu_lane *lane = &team->lanes[i];
        if (!lane->stream) {
            continue;
        }
        gpu_device_enter_teardown(lane->device);
        if (lane->event) {
            driver->cuEventDestroy(lane->event);
        }
        driver->cuStreamDestroy(lane->stream);
    }
    pthread_mutex_destroy(&team->memory_lock);
    free(team);
}
