#include "gpu/copy.h"

enum st_status gpu_copy_on_lane(struct gpu_job *job, struct gpu_lane *lane, uint64_t to,
                                uint64_t from, uint64_t bytes, struct st_error *err)
{
    enum st_status status = gpu_job_enter(job, lane, err);
    if (status != ST_OK) {
        return status;
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

enum st_status gpu_copy_queue(struct gpu_job *job, const struct gpu_copy_spec *spec,
                              enum gpu_copy_side side, struct st_error *err)
{
    uint64_t from = gpu_memory_address(spec->source, spec->source_rank) + spec->source_offset;
    uint64_t to =
        gpu_memory_address(spec->destination, spec->destination_rank) + spec->destination_offset;
    if (spec->bytes == 0 || from == to) {
        return ST_OK;
    }
    struct gpu_lane *source = gpu_team_lane(spec->source->team, spec->source_rank);
    struct gpu_lane *destination = gpu_team_lane(spec->destination->team, spec->destination_rank);
    bool pushes = gpu_memory_reached(spec->destination, spec->destination_rank, source->device);
    bool pulls = gpu_memory_reached(spec->source, spec->source_rank, destination->device);
    if (!pushes && !pulls) {
        return gpu_copy_staged(job, spec, err);
    }
    struct gpu_lane *lane = side == GPU_COPY_PUSH ? source : destination;
    lane = !pulls ? source : !pushes ? destination : lane;
    return gpu_copy_on_lane(job, lane, to, from, spec->bytes, err);
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
