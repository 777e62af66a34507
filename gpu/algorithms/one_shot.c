#include "gpu/algorithms/algorithm.h"

/**
 * Each device pulls what its own ranks need, whole; ranks of one device share a launch. A reduction
 * that every rank keeps in place would overwrite what other devices still read: it goes through
 * scratch.
 */

static bool one_shot_fits(const struct gpu_plan_input *input, const char **ret_why)
{
    return gpu_algorithm_launches(input, ret_why);
}

/** Whether some device would write over what another still reads. */
static bool one_shot_needs_scratch(const struct gpu_plan_input *plan)
{
    struct gpu_movement movement;
    return plan->shape.in_place && plan->device_count > 1 &&
           plan->collective->movements(&plan->shape, 0, 1, &movement) == 1 &&
           movement.kind == GPU_MOVEMENT_REDUCE && movement.destination_rank == GPU_RANK_ALL;
}

static uint64_t one_shot_scratch_bytes(const struct gpu_plan_input *plan)
{
    return one_shot_needs_scratch(plan) ? plan->large_bytes : 0;
}

/** Keep the movements that write to ranks of a lane. */
static void one_shot_select(const struct gpu_team *team, const struct gpu_movement_batch *batch,
                            uint32_t lane, struct gpu_move_params *params)
{
    params->movement_count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct gpu_movement *movement = &batch->items[i];
        if (movement->destination_rank == GPU_RANK_ALL ||
            team->lane_of_rank[movement->destination_rank] == lane) {
            params->movements[params->movement_count++] = *movement;
        }
    }
}

static uint32_t one_shot_first_rank(const struct gpu_team *team, uint32_t lane)
{
    uint32_t rank = 0;
    while (team->lane_of_rank[rank] != lane) {
        rank++;
    }
    return rank;
}

/** Leave only the outputs that a lane writes; an exchange needs both sides and names them itself.
 */
static void one_shot_mask(const struct gpu_algorithm_run *run, uint32_t lane, bool to_scratch,
                          struct gpu_move_params *params)
{
    const struct gpu_team *team = run->team;
    uint32_t first = one_shot_first_rank(team, lane);
    for (uint32_t rank = 0; rank < team->world_size; rank++) {
        bool own = team->lane_of_rank[rank] == lane;
        params->outputs[rank] = own ? gpu_memory_address(run->output, rank) : 0;
        if (to_scratch) { /* one result a device is enough */
            params->outputs[rank] = rank == first ? gpu_memory_address(run->scratch, rank) : 0;
        }
    }
}

/** The second half of a run through scratch: the result goes to all ranks of the lane. */
static void one_shot_hand_out(const struct gpu_algorithm_run *run, uint32_t lane,
                              struct gpu_move_params *params)
{
    uint32_t first = one_shot_first_rank(run->team, lane);
    params->inputs[first] = gpu_memory_address(run->scratch, first);
    for (uint32_t i = 0; i < params->movement_count; i++) {
        params->movements[i].kind = GPU_MOVEMENT_COPY;
        params->movements[i].source_rank = (uint16_t)first;
        params->movements[i].source_offset = params->movements[i].destination_offset;
    }
}

enum one_shot_phase { ONE_SHOT_DIRECT, ONE_SHOT_TO_SCRATCH, ONE_SHOT_FROM_SCRATCH };

static enum st_status one_shot_lane(const struct gpu_algorithm_run *run,
                                    const struct gpu_movement_batch *batch, uint32_t lane,
                                    enum one_shot_phase phase, struct st_error *err)
{
    struct gpu_move_params params;
    gpu_algorithm_params(run, &params);
    one_shot_select(run->team, batch, lane, &params);
    if (batch->items[0].kind != GPU_MOVEMENT_EXCHANGE) {
        one_shot_mask(run, lane, phase == ONE_SHOT_TO_SCRATCH, &params);
    }
    if (phase == ONE_SHOT_FROM_SCRATCH) {
        one_shot_hand_out(run, lane, &params);
    }
    return gpu_algorithm_move(run, &run->team->lanes[lane], &params, err);
}

static enum st_status one_shot_pass(const struct gpu_algorithm_run *run, enum one_shot_phase phase,
                                    struct st_error *err)
{
    struct gpu_movement_batch batch;
    enum st_status status = ST_OK;
    for (uint32_t first = 0; status == ST_OK && gpu_algorithm_batch(run, first, &batch);
         first += batch.count) {
        for (uint32_t lane = 0; lane < run->team->lane_count && status == ST_OK; lane++) {
            status = one_shot_lane(run, &batch, lane, phase, err);
        }
    }
    return status;
}

static enum st_status one_shot_launch(struct gpu_algorithm_run *run, struct st_error *err)
{
    if (!one_shot_needs_scratch(run->plan)) {
        return one_shot_pass(run, ONE_SHOT_DIRECT, err);
    }
    enum st_status status = one_shot_pass(run, ONE_SHOT_TO_SCRATCH, err);
    status = status == ST_OK ? gpu_job_barrier(run->job, err) : status;
    return status == ST_OK ? one_shot_pass(run, ONE_SHOT_FROM_SCRATCH, err) : status;
}

const struct gpu_algorithm gpu_one_shot = {
    .name = "one_shot",
    .summary = "Each device pulls all that its own ranks need, in one launch.",
    .deterministic = true,
    .fits = one_shot_fits,
    .scratch_bytes = one_shot_scratch_bytes,
    .launch = one_shot_launch,
};
