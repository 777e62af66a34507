#include "gpu/copy.h"

#include "gpu/graph.h"

enum st_status gpu_copy_on_lane(struct gpu_job *job, struct gpu_lane *lane, uint64_t to,
                                uint64_t from, uint64_t bytes, struct st_error *err)
{
    enum st_status status = gpu_job_enter(job, lane, err);
    if (status != ST_OK) {
        return status;
    }
    if (job->graph) {
        return gpu_graph_add_copy(job->graph, lane, to, from, bytes, err);
    }
    CUresult result = job->gpu->driver->cuMemcpyDtoDAsync(to, from, bytes, lane->stream);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(lane->device, GPU_CALL_cuMemcpyDtoDAsync, result, err);
    }
    job->touched = true;
    return ST_OK;
}

/** A piece on its way: where it comes from and goes to. */
struct copy_piece {
    struct gpu_lane *from_lane, *to_lane;
    uint64_t from, to, bytes;
};

static enum st_status copy_piece_out(struct gpu_job *job, const struct copy_piece *piece,
                                     struct st_error *err)
{
    enum st_status status = ST_OK;
    if (job->staging_lane) { /* the buffer is free when the piece before has left it */
        status = gpu_job_follow(job, piece->from_lane, job->staging_lane, err);
    }
    status = status == ST_OK ? gpu_job_enter(job, piece->from_lane, err) : status;
    if (status != ST_OK) {
        return status;
    }
    CUresult result = job->gpu->driver->cuMemcpyDtoHAsync(job->staging, piece->from, piece->bytes,
                                                          piece->from_lane->stream);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(piece->from_lane->device, GPU_CALL_cuMemcpyDtoHAsync, result, err);
    }
    return ST_OK;
}

static enum st_status copy_piece_in(struct gpu_job *job, const struct copy_piece *piece,
                                    struct st_error *err)
{
    enum st_status status = gpu_job_follow(job, piece->to_lane, piece->from_lane, err);
    status = status == ST_OK ? gpu_job_enter(job, piece->to_lane, err) : status;
    if (status != ST_OK) {
        return status;
    }
    CUresult result = job->gpu->driver->cuMemcpyHtoDAsync(piece->to, job->staging, piece->bytes,
                                                          piece->to_lane->stream);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(piece->to_lane->device, GPU_CALL_cuMemcpyHtoDAsync, result, err);
    }
    job->touched = true;
    job->staging_lane = piece->to_lane;
    return ST_OK;
}

enum st_status gpu_copy_staged(struct gpu_job *job, const struct gpu_copy_spec *spec,
                               struct st_error *err)
{
    if (job->graph) {
        return gpu_graph_refuse(err);
    }
    if (!job->staging) {
        job->staging = gpu_staging_acquire_for_copy(job->gpu);
    }
    if (!job->staging) {
        return st_fail(err, ST_REASON_TOO_MANY_TRANSFERS, NULL,
                       "no pinned buffer is free for a copy between devices that do not reach "
                       "each other");
    }
    enum st_status status = ST_OK;
    struct copy_piece piece = {
        .from_lane = gpu_team_lane(spec->source->team, spec->source_rank),
        .to_lane = gpu_team_lane(spec->destination->team, spec->destination_rank),
        .from = gpu_memory_address(spec->source, spec->source_rank) + spec->source_offset,
        .to = gpu_memory_address(spec->destination, spec->destination_rank) +
              spec->destination_offset,
    };
    for (uint64_t left = spec->bytes; left > 0 && status == ST_OK; left -= piece.bytes) {
        piece.bytes = left < ST_STAGING_BYTES ? left : ST_STAGING_BYTES;
        status = copy_piece_out(job, &piece, err);
        status = status == ST_OK ? copy_piece_in(job, &piece, err) : status;
        piece.from += piece.bytes;
        piece.to += piece.bytes;
    }
    return status;
}

/* ---------------------------------------------------------------- who reaches what */

/** A side, as seen by the device of the other. */
struct copy_reach {
    struct gpu_lane *lane; /**< That would move the bytes. */
    struct gpu_memory *memory;
    uint32_t rank; /**< Of the shard that is not the lane's own. */
};

/** The source's lane writes to the destination. */
static struct copy_reach copy_push(const struct gpu_copy_spec *spec)
{
    return (struct copy_reach){gpu_team_lane(spec->source->team, spec->source_rank),
                               spec->destination, spec->destination_rank};
}

/** The destination's lane reads from the source. */
static struct copy_reach copy_pull(const struct gpu_copy_spec *spec)
{
    return (struct copy_reach){gpu_team_lane(spec->destination->team, spec->destination_rank),
                               spec->source, spec->source_rank};
}

static bool copy_reaches(const struct copy_reach *reach)
{
    return gpu_memory_reached(reach->memory, reach->rank, reach->lane->device);
}

static bool copy_can_reach(const struct copy_reach *reach)
{
    return gpu_memory_reachable(reach->memory, reach->rank, reach->lane->device);
}

bool gpu_copy_wants_access(const struct gpu_copy_spec *spec)
{
    const struct copy_reach push = copy_push(spec), pull = copy_pull(spec);
    return spec->bytes > 0 && !copy_reaches(&push) && !copy_reaches(&pull) &&
           (copy_can_reach(&push) || copy_can_reach(&pull));
}

/** The side that is to be made accessible: the destination where the source's device can reach it.
 */
static struct copy_reach copy_granted(const struct gpu_copy_spec *spec)
{
    const struct copy_reach push = copy_push(spec);
    return copy_can_reach(&push) ? push : copy_pull(spec);
}

bool gpu_copy_grants_destination(const struct gpu_copy_spec *spec)
{
    return copy_granted(spec).memory == spec->destination;
}

void gpu_copy_prepare(const struct gpu_copy_spec *spec)
{
    const struct copy_reach reach = copy_granted(spec);
    if (gpu_copy_wants_access(spec)) {
        (void)gpu_memory_grant(reach.memory, reach.rank, reach.lane->device);
    }
}

enum st_status gpu_copy_queue(struct gpu_job *job, const struct gpu_copy_spec *spec,
                              enum gpu_copy_side side, struct st_error *err)
{
    uint64_t from = gpu_memory_address(spec->source, spec->source_rank) + spec->source_offset;
    uint64_t to =
        gpu_memory_address(spec->destination, spec->destination_rank) + spec->destination_offset;
    if (spec->bytes == 0 || from == to) {
        return ST_OK;
    }
    const struct copy_reach push = copy_push(spec), pull = copy_pull(spec);
    bool pushes = copy_reaches(&push);
    bool pulls = copy_reaches(&pull);
    if (!pushes && !pulls) {
        return gpu_copy_staged(job, spec, err);
    }
    bool by_source = !pulls || (pushes && side == GPU_COPY_PUSH);
    return gpu_copy_on_lane(job, by_source ? push.lane : pull.lane, to, from, spec->bytes, err);
}

void gpu_copy_run(struct gpu_team *team, const struct gpu_copy_spec *spec,
                  struct gpu_completion completion)
{
    struct gpu_team *other =
        spec->source->team == team ? spec->destination->team : spec->source->team;
    struct gpu_job *job = gpu_job_start(team, other, completion);
    if (job) {
        struct st_error err = {0};
        gpu_job_submit(job, gpu_copy_queue(job, spec, GPU_COPY_PUSH, &err), &err);
    }
}
