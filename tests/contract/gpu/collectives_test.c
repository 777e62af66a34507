#include "tests/contract/gpu/rig.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/team.h"
#include "tests/contract/gpu/collective_meaning.h"
#include "tests/support/reduce_reference.h"

/**
 * Every collective by every algorithm that fits, against what it means. Each run is between
 * memories that are larger than needed: what lies behind must stay as it was.
 */

#define MEMORY_BYTES (4 * ST_MIB)
#define MARGIN 64 /* bytes behind the output that are looked at */
#define DEVICES 8

static struct rig rig;

/** A team and its memories, with copies of their contents on the host. */
struct stage {
    struct gpu_team *team;
    uint32_t world_size;
    struct gpu_memory *input, *output, *scratch;
    unsigned char *inputs[ST_NODE_RANKS_MAX], *outputs[ST_NODE_RANKS_MAX];
    unsigned char *found;
    unsigned runs;
    const struct gpu_lane *slow; /**< Held up before each run; NULL: none. */
};

static void stage_open(struct stage *stage, uint32_t ranks, uint32_t devices,
                       enum gpu_memory_type type)
{
    *stage = (struct stage){.team = rig_team(&rig, ranks, devices), .world_size = ranks};
    struct gpu_memory **memories[] = {&stage->input, &stage->output, &stage->scratch};
    for (size_t i = 0; i < 3; i++) {
        const struct gpu_memory_spec spec = {.size_bytes = MEMORY_BYTES, .type = type};
        struct st_error err = {0};
        assert_status(gpu_memory_create(stage->team, &spec, memories[i], &err), ST_OK);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        stage->inputs[rank] = calloc(1, MEMORY_BYTES);
        stage->outputs[rank] = calloc(1, MEMORY_BYTES);
    }
    stage->found = calloc(1, MEMORY_BYTES);
}

static void stage_close(struct stage *stage)
{
    gpu_memory_destroy(stage->input);
    gpu_memory_destroy(stage->output);
    gpu_memory_destroy(stage->scratch);
    gpu_team_destroy(stage->team);
    for (uint32_t rank = 0; rank < stage->world_size; rank++) {
        free(stage->inputs[rank]);
        free(stage->outputs[rank]);
    }
    free(stage->found);
}

/** One run. */
struct run {
    const struct gpu_algorithm *algorithm;
    const struct meaning *meaning;
    struct gpu_plan_input plan;
};

/** Random elements; for the switch's own order small integers, whose sums are exact in any order.
 */
static void fill_host(const struct run *run, uint64_t seed, uint64_t count, unsigned char *data)
{
    uint64_t bytes = st_dtype_info(run->plan.dtype)->size_bytes;
    if (run->algorithm->deterministic) {
        test_random_elements(run->plan.dtype, seed, count, data);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        union st_scalar scalar;
        int64_t value = (int64_t)(test_random(&seed) % (run->plan.dtype == ST_DTYPE_BOOL ? 2 : 16));
        assert_true(st_dtype_from_int64(run->plan.dtype, value, &scalar));
        memcpy(data + i * bytes, scalar.bytes, bytes);
    }
}

static void write_sides(struct stage *stage, const struct run *run, uint64_t output_bytes)
{
    uint64_t count = meaning_input_count(run->meaning, &run->plan.shape);
    uint64_t bytes = count * st_dtype_info(run->plan.dtype)->size_bytes;
    bool in_place = run->plan.shape.in_place;
    for (uint32_t rank = 0; rank < stage->world_size; rank++) {
        memset(stage->inputs[rank], 0x5a, bytes + MARGIN);
        fill_host(run, 1000 * stage->runs + rank, count, stage->inputs[rank]);
        rig_write(&rig, stage->team, stage->input, rank, stage->inputs[rank], bytes + MARGIN);
        memset(stage->outputs[rank], 0xa5, output_bytes + MARGIN);
        if (in_place) {
            memcpy(stage->outputs[rank], stage->inputs[rank], bytes + MARGIN);
        } else {
            rig_write(&rig, stage->team, stage->output, rank, stage->outputs[rank],
                      output_bytes + MARGIN);
        }
    }
}

static void expect_reduced(const struct stage *stage, const struct run *run, uint64_t element,
                           unsigned char *to)
{
    const void *sources[ST_NODE_RANKS_MAX];
    for (uint32_t rank = 0; rank < stage->world_size; rank++) {
        sources[rank] = stage->inputs[rank] + element * st_dtype_info(run->plan.dtype)->size_bytes;
    }
    test_reduce(run->plan.dtype, run->plan.op, sources, stage->world_size, 1, to);
}

/** Put what must come out into stage->outputs. */
static void expect(struct stage *stage, const struct run *run)
{
    const struct gpu_collective_shape *shape = &run->plan.shape;
    uint64_t bytes = st_dtype_info(run->plan.dtype)->size_bytes;
    uint64_t count = meaning_output_count(run->meaning, shape);
    for (uint32_t rank = 0; rank < stage->world_size; rank++) {
        for (uint64_t i = 0; i < count; i++) {
            const struct meaning_origin origin = run->meaning->origin(shape, rank, i);
            unsigned char *to = stage->outputs[rank] + i * bytes;
            if (origin.how == MEANING_COPIED) {
                memcpy(to, stage->inputs[origin.rank] + origin.element * bytes, bytes);
            } else if (origin.how == MEANING_REDUCED) {
                expect_reduced(stage, run, origin.element, to);
            }
        }
    }
}

static void compare(struct stage *stage, const struct run *run, uint64_t output_bytes)
{
    struct gpu_memory *output = run->plan.shape.in_place ? stage->input : stage->output;
    for (uint32_t rank = 0; rank < stage->world_size; rank++) {
        rig_read(&rig, stage->team, output, rank, stage->found, output_bytes + MARGIN);
        uint64_t at = 0;
        while (at < output_bytes + MARGIN && stage->found[at] == stage->outputs[rank][at]) {
            at++;
        }
        if (at < output_bytes + MARGIN) {
            fail_msg("%s by %s, %u ranks, root %u, %s, %s %s, %llu elements: rank %u differs at "
                     "byte %llu of %llu",
                     run->meaning->name, run->algorithm->name, stage->world_size,
                     run->plan.shape.root, run->plan.shape.in_place ? "in place" : "out of place",
                     st_dtype_info(run->plan.dtype)->name, st_reduce_op_info(run->plan.op)->name,
                     (unsigned long long)run->plan.shape.slice_count, rank, (unsigned long long)at,
                     (unsigned long long)output_bytes);
        }
    }
}

static void sleep_on_lane(void *arg)
{
    (void)arg;
    const struct timespec rest = {.tv_nsec = 20000000};
    nanosleep(&rest, NULL);
}

/** Hold a lane up: what is queued on it next starts when the other lanes have long gone on. */
static void hold_lane(const struct gpu_lane *lane)
{
    struct st_error err = {0};
    assert_status(gpu_device_enter(lane->device, &err), ST_OK);
    assert_int_equal(lane->device->gpu->driver->cuLaunchHostFunc(lane->stream, sleep_on_lane, NULL),
                     CUDA_SUCCESS);
}

static void run_spec(struct stage *stage, struct run *run, const struct gpu_collective_spec *spec)
{
    uint64_t bytes = meaning_output_count(run->meaning, &run->plan.shape) *
                     st_dtype_info(run->plan.dtype)->size_bytes;
    write_sides(stage, run, bytes);
    expect(stage, run);
    if (stage->slow) {
        hold_lane(stage->slow);
    }
    struct rig_wait wait = RIG_WAIT_INIT;
    gpu_collective_run(stage->team, spec, rig_completion(&wait));
    assert_int_equal(rig_await(&wait), ST_OK);
    compare(stage, run, bytes);
}

static void run_one(struct stage *stage, struct run *run)
{
    struct gpu_plan_input *plan = &run->plan;
    struct gpu_memory *output = plan->shape.in_place ? stage->input : stage->output;
    const char *why = NULL;
    uint64_t bytes = st_dtype_info(plan->dtype)->size_bytes;
    plan->large_bytes = gpu_collective_large_count(plan->collective, &plan->shape) * bytes;
    gpu_plan_fill(stage->team, stage->input, output, plan);
    if (!run->algorithm->fits(plan, &why)) {
        return;
    }
    assert_true(run->algorithm->scratch_bytes(plan) <= MEMORY_BYTES);
    struct gpu_collective_spec spec = {
        .algorithm = run->algorithm,
        .plan = *plan,
        .input = stage->input,
        .output = output,
        .scratch = run->algorithm->scratch_bytes(plan) ? stage->scratch : NULL,
    };
    /* Where graphs are made: directly, recorded, replayed. */
    for (int again = rig.gpu->graph_after ? 3 : 1; again > 0; again--) {
        run_spec(stage, run, &spec);
    }
    stage->runs++;
}

static const struct {
    enum st_dtype dtype;
    enum st_reduce_op op;
} elements[] = {
    {ST_DTYPE_FLOAT32, ST_OP_SUM}, {ST_DTYPE_BFLOAT16, ST_OP_AVG},
    {ST_DTYPE_INT32, ST_OP_MAX},   {ST_DTYPE_FLOAT8_E4M3FN, ST_OP_PROD},
    {ST_DTYPE_FLOAT64, ST_OP_SUM}, {ST_DTYPE_INT64, ST_OP_AVG},
    {ST_DTYPE_UINT8, ST_OP_BXOR},  {ST_DTYPE_BOOL, ST_OP_LOR},
};

/** All roots that differ in kind, in place and out of place. */
static void run_shapes(struct stage *stage, struct run *run, uint64_t count)
{
    uint32_t roots = run->plan.collective->rooted && stage->world_size > 1 ? 2 : 1;
    for (uint32_t i = 0; i < 2 * roots; i++) {
        run->plan.shape = (struct gpu_collective_shape){
            .world_size = stage->world_size,
            .root = i / 2 ? stage->world_size - 1 : 0,
            .slice_count = count,
            .in_place = i % 2,
        };
        run_one(stage, run);
    }
}

/** Every collective and algorithm; dtypes in turn, so that each meets each over the counts and
 * teams. */
static void run_all(struct stage *stage)
{
    static const uint64_t counts[] = {0, 1, 77, 1031};
    static size_t turn;
    for (size_t c = 0; gpu_collectives[c]; c++) {
        for (size_t a = 0; gpu_algorithms[a]; a++) {
            for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
                size_t e = turn++ % (sizeof(elements) / sizeof(elements[0]));
                struct run run = {
                    .algorithm = gpu_algorithms[a],
                    .meaning = meaning_find(gpu_collectives[c]->name),
                    .plan = {.collective = gpu_collectives[c],
                             .dtype = elements[e].dtype,
                             .op = elements[e].op},
                };
                run_shapes(stage, &run, counts[n]);
            }
        }
    }
}

static void every_collective_by_every_algorithm_means_what_it_says(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks, devices;
    } teams[] = {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {7, 7}, {8, 8}, {4, 1}, {5, 2}, {8, 3}};
    for (size_t i = 0; i < sizeof(teams) / sizeof(teams[0]); i++) {
        struct stage stage;
        stage_open(&stage, teams[i].ranks, teams[i].devices, GPU_MEMORY_SYMMETRIC);
        run_all(&stage);
        assert_true(stage.runs >= 2 * 4 * (8 + 8 + 5));
        stage_close(&stage);
    }
}

static void global_memory_takes_part_like_symmetric_memory(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, 4, 4, GPU_MEMORY_GLOBAL);
    run_all(&stage);
    assert_true(stage.runs > 0);
    stage_close(&stage);
}

static void all_dtypes_and_ops_reduce_alike_by_two_shot_and_one_shot(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, 3, 3, GPU_MEMORY_SYMMETRIC);
    for (int i = 0; i < ST_DTYPE_COUNT * ST_OP_COUNT * 2; i++) {
        struct run run = {
            .algorithm = gpu_algorithms[i % 2],
            .meaning = meaning_find("all_reduce"),
            .plan = {.collective = gpu_collective_find("all_reduce"),
                     .dtype = (enum st_dtype)(i / 2 / ST_OP_COUNT),
                     .op = (enum st_reduce_op)(i / 2 % ST_OP_COUNT)},
        };
        if (st_reduce_op_supports(run.plan.op, run.plan.dtype)) {
            run_shapes(&stage, &run, 301);
        }
    }
    assert_true(stage.runs > 200);
    stage_close(&stage);
}

static void large_runs_are_shared_out_over_the_lanes(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, 4, 4, GPU_MEMORY_SYMMETRIC);
    for (size_t c = 0; gpu_collectives[c]; c++) {
        for (size_t a = 0; gpu_algorithms[a]; a++) {
            bool equal = gpu_collectives[c]->rule == GPU_SHAPE_EQUAL;
            struct run run = {
                .algorithm = gpu_algorithms[a],
                .meaning = meaning_find(gpu_collectives[c]->name),
                .plan = {.collective = gpu_collectives[c],
                         .dtype = ST_DTYPE_FLOAT32,
                         .op = ST_OP_SUM},
            };
            run_shapes(&stage, &run, equal ? 200001 : 50001);
        }
    }
    stage_close(&stage);
}

static void a_team_of_64_ranks_runs_all_to_all(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, 64, DEVICES, GPU_MEMORY_SYMMETRIC);
    for (size_t a = 0; a < 3; a++) {
        struct run run = {
            .algorithm = gpu_algorithms[a],
            .meaning = meaning_find("all_to_all"),
            .plan = {.collective = gpu_collective_find("all_to_all"), .dtype = ST_DTYPE_INT16},
        };
        run_shapes(&stage, &run, 33);
    }
    assert_int_equal(stage.runs, 6);
    stage_close(&stage);
}

static void no_lane_overwrites_what_a_slow_one_still_reads(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, 3, 3, GPU_MEMORY_SYMMETRIC);
    for (size_t c = 0; gpu_collectives[c]; c++) {
        for (size_t a = 0; gpu_algorithms[a]; a++) {
            for (uint32_t slow = 0; slow < stage.team->lane_count; slow++) {
                struct run run = {
                    .algorithm = gpu_algorithms[a],
                    .meaning = meaning_find(gpu_collectives[c]->name),
                    .plan = {.collective = gpu_collectives[c],
                             .shape = {.world_size = 3, .slice_count = 20000, .in_place = true},
                             .dtype = ST_DTYPE_INT32,
                             .op = ST_OP_SUM},
                };
                stage.slow = &stage.team->lanes[slow];
                run_one(&stage, &run);
            }
        }
    }
    stage_close(&stage);
}

static int open_rig(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.devices = DEVICES, .memory_bytes = 160 * ST_MIB});
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    rig_close(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_by_every_algorithm_means_what_it_says),
        cmocka_unit_test(global_memory_takes_part_like_symmetric_memory),
        cmocka_unit_test(all_dtypes_and_ops_reduce_alike_by_two_shot_and_one_shot),
        cmocka_unit_test(large_runs_are_shared_out_over_the_lanes),
        cmocka_unit_test(a_team_of_64_ranks_runs_all_to_all),
        cmocka_unit_test(no_lane_overwrites_what_a_slow_one_still_reads),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
