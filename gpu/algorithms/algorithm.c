#include "gpu/algorithms/algorithm.h"

#include "gpu/graph.h"
#include "gpu/kernels/image.h"

/* ---------------------------------------------------------------- what the algorithms share */

bool gpu_algorithm_batch(const struct gpu_algorithm_run *run, uint32_t first,
                         struct gpu_movement_batch *ret_batch)
{
    ret_batch->count = run->plan->collective->movements(&run->plan->shape, first,
                                                        GPU_KERNEL_MOVEMENTS_MAX, ret_batch->items);
    return ret_batch->count > 0;
}

bool gpu_plan_is_small(const struct gpu_plan_input *plan)
{
    uint64_t traffic;
    return !__builtin_mul_overflow(plan->large_bytes, 2ull * plan->shape.world_size, &traffic) &&
           traffic < plan->small_traffic_bytes;
}

bool gpu_algorithm_launches(const struct gpu_plan_input *plan, const char **ret_why)
{
    if (!plan->kernels) {
        *ret_why = "the driver of a device loads none of the kernels of this build";
        return false;
    }
    bool reaches = plan->peer_access || plan->device_count == 1;
    if (!reaches) {
        *ret_why = "a device does not reach another's memory";
    }
    return reaches;
}

uint64_t gpu_algorithm_no_scratch(const struct gpu_plan_input *plan)
{
    (void)plan;
    return 0;
}

void gpu_algorithm_params(const struct gpu_algorithm_run *run, struct gpu_move_params *ret_params)
{
    const struct gpu_plan_input *plan = run->plan;
    ret_params->movement_count = 0;
    ret_params->world_size = plan->shape.world_size;
    ret_params->dtype = (uint32_t)plan->dtype;
    ret_params->op = (uint32_t)plan->op;
    ret_params->part_index = 0;
    ret_params->part_count = 1;
    ret_params->streaming = run->streaming;
    ret_params->fine = 0;
    for (uint32_t rank = 0; rank < plan->shape.world_size; rank++) {
        ret_params->inputs[rank] = gpu_memory_address(run->input, rank);
        ret_params->outputs[rank] = gpu_memory_address(run->output, rank);
    }
}

/** Bytes read and written by one rank on each side: it only sizes the grid. */
static uint64_t algorithm_traffic(const struct gpu_algorithm_run *run,
                                  const struct gpu_move_params *params)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < params->movement_count; i++) {
        count += params->movements[i].count;
    }
    return 2 * count * st_dtype_info(run->plan->dtype)->size_bytes / params->part_count;
}

static enum st_status algorithm_launch(const struct gpu_algorithm_run *run, struct gpu_lane *lane,
                                       enum gpu_kernel kernel, struct gpu_move_params *params,
                                       struct st_error *err)
{
    if (params->movement_count == 0) {
        return ST_OK;
    }
    uint64_t traffic = algorithm_traffic(run, params);
    params->fine = gpu_kernel_is_fine(lane->device->processors, traffic);
    const struct gpu_launch launch = {kernel, params, traffic, params->fine};
    enum st_status status = gpu_job_enter(run->job, lane, err);
    if (status != ST_OK) {
        return status;
    }
    if (run->job->graph) {
        return gpu_graph_add_kernel(run->job->graph, lane, &launch, err);
    }
    status = gpu_device_launch(lane->device, lane->stream, &launch, err);
    run->job->touched |= status == ST_OK;
    return status;
}

enum st_status gpu_algorithm_move(const struct gpu_algorithm_run *run, struct gpu_lane *lane,
                                  struct gpu_move_params *params, struct st_error *err)
{
    return algorithm_launch(run, lane, GPU_KERNEL_MOVE, params, err);
}

enum st_status gpu_algorithm_multicast(const struct gpu_algorithm_run *run, struct gpu_lane *lane,
                                       struct gpu_multicast_params *params, struct st_error *err)
{
    _Static_assert(offsetof(struct gpu_multicast_params, move) == 0, "one begins with the other");
    return algorithm_launch(run, lane, GPU_KERNEL_MULTICAST, &params->move, err);
}

/* ---------------------------------------------------------------- runs */

void gpu_plan_fill(const struct gpu_team *team, const struct gpu_memory *input,
                   const struct gpu_memory *output, struct gpu_plan_input *plan)
{
    plan->device_count = team->lane_count;
    plan->peer_access = team->peer_access;
    plan->kernels = team->kernels;
    plan->kernels_why = "";
    for (uint32_t i = 0; i < team->lane_count && !*plan->kernels_why; i++) {
        plan->kernels_why = gpu_kernels_why(team->gpu, team->lanes[i].device->info.ordinal);
    }
    plan->multicast_input = gpu_memory_multicast_address(input) != 0;
    plan->multicast_output = gpu_memory_multicast_address(output) != 0;
    plan->nvls_allowed = team->gpu->options.nvls == GPU_NVLS_ON;
    plan->small_traffic_bytes = team->gpu->backend->small_traffic_bytes;
}

/** Whether the memory that the run touches is more than a cache holds. */
static bool run_streams(const struct gpu_team *team, const struct gpu_plan_input *plan)
{
    uint64_t sides = plan->shape.in_place ? 1 : 2;
    uint64_t bytes;
    /* Half, since others use the cache too and what is read passes through it. */
    return __builtin_mul_overflow(plan->large_bytes, sides * plan->shape.world_size, &bytes) ||
           bytes > team->gpu->cache_bytes / 2;
}

void gpu_collective_run(struct gpu_team *team, const struct gpu_collective_spec *spec,
                        struct gpu_completion completion)
{
    struct gpu_job *job = gpu_job_start(team, NULL, completion);
    if (!job) {
        return;
    }
    struct gpu_algorithm_run run = {
        .team = team,
        .job = job,
        .plan = &spec->plan,
        .input = spec->input,
        .output = spec->output,
        .scratch = spec->scratch,
        .streaming = run_streams(team, &spec->plan),
    };
    struct st_error err = {0};
    enum st_status status = ST_OK;
    if (spec->plan.shape.slice_count > 0) {
        status = gpu_graph_run(&run, spec->algorithm, &err);
    }
    gpu_job_submit(job, status, &err);
}
