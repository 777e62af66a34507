#include "gpu/algorithms/algorithm.h"

/**
 * Every device runs its part of every movement: it reads the part from the source ranks and writes
 * it where it goes. For a reduction that is a reduce_scatter and an all_gather in one pass, each
 * input read once.
 */

static bool two_shot_fits(const struct gpu_plan_input *input, const char **ret_why)
{
    return gpu_algorithm_launches(input, ret_why);
}

static enum st_status two_shot_launch(struct gpu_algorithm_run *run, struct st_error *err)
{
    /* No two parts touch the same element of any rank, so the lanes need not wait for each other.
     */
    uint32_t parts = gpu_plan_is_small(run->plan) ? 1 : run->team->lane_count;
    struct gpu_move_params params;
    gpu_algorithm_params(run, &params);
    params.part_count = parts;
    enum st_status status = ST_OK;
    uint32_t first = 0;
    for (;;) {
        params.movement_count = run->plan->collective->movements(
            &run->plan->shape, first, GPU_KERNEL_MOVEMENTS_MAX, params.movements);
        if (params.movement_count == 0) {
            return status;
        }
        for (uint32_t part = 0; part < parts && status == ST_OK; part++) {
            params.part_index = part;
            status = gpu_algorithm_move(run, &run->team->lanes[part], &params, err);
        }
        if (status != ST_OK) {
            return status;
        }
        first += params.movement_count;
    }
}

const struct gpu_algorithm gpu_two_shot = {
    .name = "two_shot",
    .summary = "Each device moves or reduces an equal part of everything, with peer loads and "
               "stores.",
    .deterministic = true,
    .fits = two_shot_fits,
    .scratch_bytes = gpu_algorithm_no_scratch,
    .launch = two_shot_launch,
};
