#include "gpu/job.h"
#include "gpu/kernels/params.h"
#include "gpu/memory.h"

/** Bytes in memory order. */
static enum st_status transfer_copy(struct gpu_job *job, struct gpu_lane *lane,
                                    const struct gpu_transfer_spec *spec, struct st_error *err)
{
    const struct gpu_driver *driver = job->gpu->driver;
    uint64_t shard = gpu_memory_address(spec->memory, spec->rank) + spec->offset_bytes;
    enum gpu_driver_call call;
    CUresult result;
    if (spec->to_shard) {
        call = GPU_CALL_cuMemcpyHtoDAsync;
        result = driver->cuMemcpyHtoDAsync(shard, spec->buffer, spec->bytes, lane->stream);
    } else {
        call = GPU_CALL_cuMemcpyDtoHAsync;
        result = driver->cuMemcpyDtoHAsync(spec->buffer, shard, spec->bytes, lane->stream);
    }
    return result == CUDA_SUCCESS ? ST_OK : gpu_result_fail(lane->device, call, result, err);
}

/** Elements in logical order: a kernel reads or writes the pinned buffer. */
static enum st_status transfer_permute(struct gpu_lane *lane, const struct gpu_transfer_spec *spec,
                                       struct st_error *err)
{
    struct gpu_permute_params params = {
        .shard = gpu_memory_address(spec->memory, spec->rank),
        .packed = (uint64_t)(uintptr_t)spec->buffer,
        .first_index = spec->offset_bytes / spec->element_bytes,
        .element_count = spec->bytes / spec->element_bytes,
        .shard_bytes = gpu_memory_info(spec->memory)->size_bytes,
        .dims_count = spec->shape.rank,
        .element_bytes = spec->element_bytes,
        .to_shard = spec->to_shard,
    };
    for (uint32_t i = 0; i < spec->shape.rank; i++) {
        params.dims[i] = spec->shape.dims[i];
        params.strides[i] = spec->strides.dims[i];
    }
    const struct gpu_launch launch = {GPU_KERNEL_PERMUTE, &params, 2 * spec->bytes, false};
    return gpu_device_launch(lane->device, lane->stream, &launch, err);
}

static enum st_status transfer_queue(struct gpu_job *job, struct gpu_team *team,
                                     const struct gpu_transfer_spec *spec, struct st_error *err)
{
    struct gpu_lane *lane = gpu_team_lane(team, spec->rank);
    enum st_status status = gpu_job_enter(job, lane, err);
    if (status != ST_OK) {
        return status;
    }
    bool permuted = spec->logical && !st_shape_is_row_major(&spec->shape, &spec->strides);
    status = permuted ? transfer_permute(lane, spec, err) : transfer_copy(job, lane, spec, err);
    job->touched = status == ST_OK;
    return status;
}

void gpu_transfer_run(struct gpu_team *team, const struct gpu_transfer_spec *spec,
                      struct gpu_completion completion)
{
    struct gpu_job *job = gpu_job_start(team, NULL, completion);
    if (job) {
        struct st_error err = {0};
        gpu_job_submit(job, transfer_queue(job, team, spec, &err), &err);
    }
}
