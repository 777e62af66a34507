#include "gpu/algorithms/algorithm.h"

/**
 * The switch reduces what is read through a multicast address and replicates what is written to
 * one. It keeps an order of its own, so sums of floats are not the group's tree.
 */

/** The pairs that multimem.ld_reduce has (PTX ISA, sm_90), 16-bit floats with a float32
 * accumulator. */
static const struct {
    enum st_reduce_op op;
    uint32_t dtypes; /**< Bit of each enum st_dtype. */
} nvls_reductions[] = {
#define B(name) (1u << ST_DTYPE_##name)
#define NVLS_INTEGERS (B(INT32) | B(UINT32) | B(INT64) | B(UINT64))
    {ST_OP_SUM, B(FLOAT16) | B(BFLOAT16) | B(FLOAT32) | B(FLOAT64) | NVLS_INTEGERS},
    {ST_OP_AVG, B(FLOAT16) | B(BFLOAT16) | B(FLOAT32)},
    {ST_OP_MIN, NVLS_INTEGERS},
    {ST_OP_MAX, NVLS_INTEGERS},
    /* Bitwise as b32. */
    {ST_OP_BAND, NVLS_INTEGERS},
    {ST_OP_BOR, NVLS_INTEGERS},
    {ST_OP_BXOR, NVLS_INTEGERS},
#undef NVLS_INTEGERS
#undef B
};

static bool nvls_reduces(enum st_reduce_op op, enum st_dtype dtype)
{
    for (size_t i = 0; i < sizeof(nvls_reductions) / sizeof(nvls_reductions[0]); i++) {
        if (nvls_reductions[i].op == op) {
            return nvls_reductions[i].dtypes >> dtype & 1;
        }
    }
    return false;
}

static bool nvls_fits(const struct gpu_plan_input *input, const char **ret_why)
{
    struct gpu_movement movement = {0};
    input->collective->movements(&input->shape, 0, 1, &movement);
    bool reduces = input->collective->reduces;
    bool replicates = movement.destination_rank == GPU_RANK_ALL;
    if (!reduces && !replicates) {
        *ret_why = "it neither reduces nor sends one thing to all";
    } else if (input->shape.world_size < 2 || input->device_count < input->shape.world_size) {
        *ret_why = "multicast needs two ranks or more, each on a device of its own";
    } else if (reduces && !input->multicast_input) {
        *ret_why = "the input has no multicast mapping";
    } else if (replicates && !input->multicast_output) {
        *ret_why = "the output has no multicast mapping";
    } else if (reduces && !nvls_reduces(input->op, input->dtype)) {
        *ret_why = "the switch cannot reduce this dtype with this op";
    } else {
        return gpu_algorithm_launches(input, ret_why);
    }
    return false;
}

/** Lanes that run a movement: all by parts where all need the result, else the one that is next to
 * it. */
static bool nvls_selects(const struct gpu_team *team, const struct gpu_movement *movement,
                         uint32_t lane, bool *ret_parts)
{
    bool reduces = movement->kind == GPU_MOVEMENT_REDUCE;
    *ret_parts = reduces && movement->destination_rank == GPU_RANK_ALL;
    uint32_t rank = reduces ? movement->destination_rank : movement->source_rank;
    return *ret_parts || team->lane_of_rank[rank] == lane;
}

static enum st_status nvls_lane(const struct gpu_algorithm_run *run,
                                const struct gpu_movement_batch *batch, uint32_t lane,
                                struct st_error *err)
{
    struct gpu_multicast_params params;
    gpu_algorithm_params(run, &params.move);
    params.multicast_input = gpu_memory_multicast_address(run->input);
    params.multicast_output = gpu_memory_multicast_address(run->output);
    bool parts = false;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (nvls_selects(run->team, &batch->items[i], lane, &parts)) {
            params.move.movements[params.move.movement_count++] = batch->items[i];
        }
    }
    /* The movements of a collective are all of one kind. */
    params.move.part_index = parts ? lane : 0;
    params.move.part_count = parts ? run->team->lane_count : 1;
    return gpu_algorithm_multicast(run, &run->team->lanes[lane], &params, err);
}

static enum st_status nvls_launch(struct gpu_algorithm_run *run, struct st_error *err)
{
    struct gpu_movement_batch batch;
    enum st_status status = ST_OK;
    for (uint32_t first = 0; status == ST_OK && gpu_algorithm_batch(run, first, &batch);
         first += batch.count) {
        for (uint32_t lane = 0; lane < run->team->lane_count && status == ST_OK; lane++) {
            status = nvls_lane(run, &batch, lane, err);
        }
    }
    return status;
}

const struct gpu_algorithm gpu_nvls = {
    .name = "nvls",
    .summary = "The NVLink switch reduces and replicates, through multicast addresses.",
    .deterministic = false,
    .fits = nvls_fits,
    .scratch_bytes = gpu_algorithm_no_scratch,
    .launch = nvls_launch,
};
