#include "base/limits.h"
#include "gpu/job.h"
#include "gpu/kernels/params.h"
#include "gpu/memory.h"

_Static_assert(ST_SHAPE_RANK_MAX == 8, "kernel parameters hold 8 dimensions");

/** What is the same for all ranks. */
static void fill_params(const struct gpu_fill_spec *spec, uint64_t elements,
                        struct gpu_fill_params *ret_params)
{
    *ret_params = (struct gpu_fill_params){
        .element_count = elements,
        .value_bits = spec->value.bits,
        .dims_count = spec->shape.rank,
        .dtype = (uint32_t)spec->dtype,
        .pattern = (uint32_t)spec->pattern,
        .row_major = st_shape_is_row_major(&spec->shape, &spec->strides),
    };
    for (uint32_t i = 0; i < spec->shape.rank; i++) {
        ret_params->dims[i] = spec->shape.dims[i];
        ret_params->strides[i] = spec->strides.dims[i];
    }
}

/** The lane that fills a rank: the rank's own, or the first for all when little is to be written.
 */
static struct gpu_lane *fill_lane(struct gpu_team *team, const struct gpu_memory *memory,
                                  uint32_t rank, uint64_t bytes)
{
    bool small = bytes < team->gpu->backend->small_traffic_bytes / team->world_size;
    struct gpu_lane *first = &team->lanes[0];
    return small && gpu_memory_reached(memory, rank, first->device) ? first
                                                                    : gpu_team_lane(team, rank);
}

static enum st_status fill_queue(struct gpu_job *job, struct gpu_team *team,
                                 const struct gpu_fill_spec *spec, struct st_error *err)
{
    uint64_t elements = 0, bytes = 0;
    enum st_status status = st_shape_measure(&spec->shape, spec->dtype, &elements, &bytes, err);
    if (status != ST_OK || bytes == 0) {
        return status;
    }
    struct gpu_fill_params params;
    fill_params(spec, elements, &params);
    uint32_t first = spec->rank < 0 ? 0 : (uint32_t)spec->rank;
    uint32_t end = spec->rank < 0 ? team->world_size : first + 1;
    for (uint32_t rank = first; rank < end && status == ST_OK; rank++) {
        struct gpu_lane *lane = fill_lane(team, spec->memory, rank, bytes);
        params.address = gpu_memory_address(spec->memory, rank);
        params.value_bits = spec->pattern == GPU_FILL_RANK ? rank : params.value_bits;
        status = gpu_job_enter(job, lane, err);
        const struct gpu_launch launch = {GPU_KERNEL_FILL, &params, bytes, false};
        status =
            status == ST_OK ? gpu_device_launch(lane->device, lane->stream, &launch, err) : status;
        job->touched |= status == ST_OK;
    }
    return status;
}

void gpu_fill_run(struct gpu_team *team, const struct gpu_fill_spec *spec,
                  struct gpu_completion completion)
{
    struct gpu_job *job = gpu_job_start(team, NULL, completion);
    if (job) {
        struct st_error err = {0};
        gpu_job_submit(job, fill_queue(job, team, spec, &err), &err);
    }
}
