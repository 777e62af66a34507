#include "gpu/algorithms/algorithm.h"
#include "gpu/copy.h"

/**
 * One copy of the driver for each movement and destination: no kernel, and no peer access is needed
 * either, since gpu/copy.h goes through pinned memory where there is none. It cannot reduce. An
 * exchange goes through one slice of scratch on the first rank's device.
 */

static bool copy_engine_fits(const struct gpu_plan_input *input, const char **ret_why)
{
    if (input->collective->reduces) {
        *ret_why = "copies cannot reduce";
        return false;
    }
    return true;
}

/** What an exchange holds aside; those of one list are all of the same size. */
static uint64_t copy_engine_scratch_bytes(const struct gpu_plan_input *plan)
{
    struct gpu_movement movement;
    bool exchanges = plan->collective->movements(&plan->shape, 0, 1, &movement) == 1 &&
                     movement.kind == GPU_MOVEMENT_EXCHANGE;
    return exchanges ? movement.count * st_dtype_info(plan->dtype)->size_bytes : 0;
}

static struct gpu_copy_spec copy_engine_spec(const struct gpu_algorithm_run *run,
                                             const struct gpu_movement *movement)
{
    uint64_t element_bytes = st_dtype_info(run->plan->dtype)->size_bytes;
    return (struct gpu_copy_spec){
        .source = run->input,
        .destination = run->output,
        .source_rank = movement->source_rank,
        .destination_rank = movement->destination_rank,
        .source_offset = movement->source_offset * element_bytes,
        .destination_offset = movement->destination_offset * element_bytes,
        .bytes = movement->count * element_bytes,
    };
}

static enum st_status copy_engine_copy(const struct gpu_algorithm_run *run,
                                       const struct gpu_movement *movement, struct st_error *err)
{
    /* One source for many ranks is pulled by each, so that more than one copy engine works. */
    enum gpu_copy_side side =
        run->plan->collective->reads == GPU_SIDE_ROOT ? GPU_COPY_PULL : GPU_COPY_PUSH;
    struct gpu_copy_spec spec = copy_engine_spec(run, movement);
    if (movement->destination_rank != GPU_RANK_ALL) {
        return gpu_copy_queue(run->job, &spec, side, err);
    }
    enum st_status status = ST_OK;
    for (uint32_t rank = 0; rank < run->team->world_size && status == ST_OK; rank++) {
        spec.destination_rank = rank;
        status = gpu_copy_queue(run->job, &spec, side, err);
    }
    return status;
}

/** Copy within an exchange: on the first rank's lane, or staged, so that the three stay in order.
 */
static enum st_status copy_engine_step(const struct gpu_algorithm_run *run, bool reached,
                                       const struct gpu_copy_spec *step, struct st_error *err)
{
    if (!reached) {
        return gpu_copy_staged(run->job, step, err);
    }
    uint32_t rank =
        step->source_rank < step->destination_rank ? step->source_rank : step->destination_rank;
    return gpu_copy_on_lane(
        run->job, gpu_team_lane(run->team, rank),
        gpu_memory_address(step->destination, step->destination_rank) + step->destination_offset,
        gpu_memory_address(step->source, step->source_rank) + step->source_offset, step->bytes,
        err);
}

/** Mine to scratch, theirs to mine, scratch to theirs. */
static enum st_status copy_engine_exchange(const struct gpu_algorithm_run *run,
                                           const struct gpu_movement *movement,
                                           struct st_error *err)
{
    const struct gpu_copy_spec spec = copy_engine_spec(run, movement);
    uint32_t mine = spec.source_rank, theirs = spec.destination_rank;
    bool reached = gpu_memory_reached(run->output, theirs, gpu_team_lane(run->team, mine)->device);
    struct gpu_copy_spec save = {.source = run->output,
                                 .destination = run->scratch,
                                 .source_rank = mine,
                                 .destination_rank = mine,
                                 .source_offset = spec.source_offset,
                                 .bytes = spec.bytes};
    struct gpu_copy_spec fetch = {.source = run->output,
                                  .destination = run->output,
                                  .source_rank = theirs,
                                  .destination_rank = mine,
                                  .source_offset = spec.destination_offset,
                                  .destination_offset = spec.source_offset,
                                  .bytes = spec.bytes};
    struct gpu_copy_spec give = {.source = run->scratch,
                                 .destination = run->output,
                                 .source_rank = mine,
                                 .destination_rank = theirs,
                                 .destination_offset = spec.destination_offset,
                                 .bytes = spec.bytes};
    enum st_status status = copy_engine_step(run, true, &save, err);
    status = status == ST_OK ? copy_engine_step(run, reached, &fetch, err) : status;
    return status == ST_OK ? copy_engine_step(run, reached, &give, err) : status;
}

static enum st_status copy_engine_launch(struct gpu_algorithm_run *run, struct st_error *err)
{
    struct gpu_movement_batch batch;
    enum st_status status = ST_OK;
    for (uint32_t first = 0; status == ST_OK && gpu_algorithm_batch(run, first, &batch);
         first += batch.count) {
        for (uint32_t i = 0; i < batch.count && status == ST_OK; i++) {
            const struct gpu_movement *movement = &batch.items[i];
            status = movement->kind == GPU_MOVEMENT_EXCHANGE
                         ? copy_engine_exchange(run, movement, err)
                         : copy_engine_copy(run, movement, err);
        }
    }
    return status;
}

const struct gpu_algorithm gpu_copy_engine = {
    .name = "copy_engine",
    .summary = "Copies of the driver alone: no kernel, and no peer access needed.",
    .deterministic = true,
    .fits = copy_engine_fits,
    .scratch_bytes = copy_engine_scratch_bytes,
    .launch = copy_engine_launch,
};
