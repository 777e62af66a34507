#include "tests/contract/gpu/rig.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/graph.h"
#include "gpu/team.h"

/** Collectives that come again: what is replayed, what is set anew, and when it is forgotten. */

#define RANKS 4
#define COUNT 1031 /* elements */
#define BYTES (COUNT * sizeof(int32_t))

static struct rig rig;

/** A team with an input and an output. */
struct stage {
    struct gpu_team *team;
    struct gpu_memory *input, *output;
    const char *collective, *algorithm;
    bool in_place;
};

static struct gpu_memory *memory_new(struct gpu_team *team)
{
    const struct gpu_memory_spec spec = {.size_bytes = BYTES};
    struct gpu_memory *memory = NULL;
    struct st_error err = {0};
    assert_status(gpu_memory_create(team, &spec, &memory, &err), ST_OK);
    return memory;
}

static struct stage stage_open(uint32_t devices)
{
    struct gpu_team *team = rig_team(&rig, RANKS, devices);
    return (struct stage){.team = team,
                          .input = memory_new(team),
                          .output = memory_new(team),
                          .collective = "all_reduce",
                          .algorithm = "two_shot"};
}

static void stage_close(struct stage *stage)
{
    gpu_memory_destroy(stage->input);
    gpu_memory_destroy(stage->output);
    gpu_team_destroy(stage->team);
}

static int32_t element(uint32_t round, uint32_t rank, uint32_t index)
{
    return (int32_t)(round * 1000003u + rank * 7919u + index * 31u);
}

static void write_inputs(const struct stage *stage, uint32_t round)
{
    int32_t values[COUNT];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            values[i] = element(round, rank, i);
        }
        rig_write(&rig, stage->team, stage->input, rank, values, BYTES);
    }
}

static struct gpu_collective_spec stage_spec(const struct stage *stage)
{
    struct gpu_memory *output = stage->in_place ? stage->input : stage->output;
    struct gpu_collective_spec spec = {
        .algorithm = gpu_algorithm_find(stage->algorithm),
        .plan = {.collective = gpu_collective_find(stage->collective),
                 .shape = {.world_size = RANKS, .slice_count = COUNT, .in_place = stage->in_place},
                 .dtype = ST_DTYPE_INT32,
                 .op = ST_OP_SUM,
                 .large_bytes = BYTES},
        .input = stage->input,
        .output = output,
    };
    gpu_plan_fill(stage->team, stage->input, output, &spec.plan);
    return spec;
}

static void assert_sums(const struct stage *stage, uint32_t round)
{
    int32_t found[COUNT];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        rig_read(&rig, stage->team, stage->in_place ? stage->input : stage->output, rank, found,
                 BYTES);
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t sum = 0;
            for (uint32_t source = 0; source < RANKS; source++) {
                sum += (uint32_t)element(round, source, i);
            }
            if ((uint32_t)found[i] != sum) {
                fail_msg("round %u, rank %u: element %u is %d instead of %d", round, rank, i,
                         found[i], (int32_t)sum);
            }
        }
    }
}

/** One run with data of its own, checked. @p scratch: NULL, or what the algorithm needs. */
static void run_round(const struct stage *stage, uint32_t round, struct gpu_memory *scratch)
{
    struct gpu_collective_spec spec = stage_spec(stage);
    struct rig_wait wait = RIG_WAIT_INIT;
    spec.scratch = scratch;
    write_inputs(stage, round);
    gpu_collective_run(stage->team, &spec, rig_completion(&wait));
    assert_int_equal(rig_await(&wait), ST_OK);
    assert_sums(stage, round);
}

static uint64_t launches(void)
{
    return gpu_faults_calls(GPU_CALL_cuGraphLaunch);
}

static uint64_t sets(void)
{
    return gpu_faults_calls(GPU_CALL_cuGraphExecKernelNodeSetParams);
}

/* ---------------------------------------------------------------- tests */

static void a_thousand_replays_see_the_data_of_their_time(void **state)
{
    (void)state;
    struct stage stage = stage_open(2);
    uint64_t lanes = stage.team->lane_count, before = launches();
    run_round(&stage, 0, NULL);
    assert_int_equal(launches(), before); /* the first one is direct */
    uint64_t made = gpu_faults_calls(GPU_CALL_cuGraphInstantiateWithFlags);
    for (uint32_t round = 1; round <= 1000; round++) {
        run_round(&stage, round, NULL);
    }
    /* A small run is one lane's. */
    uint64_t used = (launches() - before) / 1000;
    assert_true(used >= 1 && used <= lanes);
    assert_int_equal(launches() - before, 1000 * used);
    assert_int_equal(gpu_faults_calls(GPU_CALL_cuGraphInstantiateWithFlags) - made, used);
    stage_close(&stage);
}

static void a_graph_is_destroyed_before_the_memory_that_it_names(void **state)
{
    (void)state;
    struct stage stage = stage_open(2);
    uint64_t address = gpu_memory_address(stage.output, 0);
    for (uint32_t round = 0; round < 3; round++) {
        run_round(&stage, round, NULL);
    }
    uint64_t destroyed = gpu_faults_calls(GPU_CALL_cuGraphExecDestroy);
    gpu_memory_destroy(stage.output);
    assert_true(gpu_faults_calls(GPU_CALL_cuGraphExecDestroy) > destroyed);
    assert_int_equal(rig.gpu->graphs_count, 0);
    /* At the same address, with other memory behind it: it is another memory. */
    uint64_t before = launches();
    stage.output = memory_new(stage.team);
    assert_int_equal(gpu_memory_address(stage.output, 0), address);
    run_round(&stage, 3, NULL);
    assert_int_equal(launches(), before);
    for (uint32_t round = 4; round < 8; round++) {
        run_round(&stage, round, NULL);
    }
    assert_true(launches() > before);
    stage_close(&stage);
}

static void one_key_may_be_in_flight_many_times(void **state)
{
    (void)state;
    enum { FLIGHTS = 8 };
    struct stage stage = stage_open(2);
    for (uint32_t round = 0; round < 3; round++) {
        run_round(&stage, round, NULL);
    }
    struct gpu_collective_spec spec = stage_spec(&stage);
    for (uint32_t round = 3; round < 30; round++) {
        struct rig_wait waits[FLIGHTS];
        write_inputs(&stage, round);
        for (size_t i = 0; i < FLIGHTS; i++) {
            waits[i] = (struct rig_wait)RIG_WAIT_INIT;
            gpu_collective_run(stage.team, &spec, rig_completion(&waits[i]));
        }
        for (size_t i = 0; i < FLIGHTS; i++) {
            assert_int_equal(rig_await(&waits[i]), ST_OK);
        }
        assert_sums(&stage, round);
    }
    stage_close(&stage);
}

enum { OUTPUTS = 12 };

/** What a thread of the next test does: runs to outputs first, first + 3, ... in turn. */
struct runner {
    const struct stage *stage;
    struct gpu_memory *const *outputs; /**< [OUTPUTS] */
    uint32_t first;
};

static void *run_many(void *arg)
{
    const struct runner *runner = arg;
    for (unsigned i = 0; i < 300; i++) {
        struct stage stage = *runner->stage;
        stage.output = runner->outputs[(runner->first + 3 * i / 2) % OUTPUTS];
        struct gpu_collective_spec spec = stage_spec(&stage);
        struct rig_wait wait = RIG_WAIT_INIT;
        gpu_collective_run(stage.team, &spec, rig_completion(&wait));
        if (rig_await(&wait) != ST_OK) {
            return arg;
        }
    }
    return NULL;
}

static void threads_may_run_one_key_at_once(void **state)
{
    (void)state;
    pthread_t threads[3];
    struct gpu_memory *outputs[OUTPUTS];
    struct runner runners[3];
    struct stage stage = stage_open(2);
    struct gpu_memory *first = stage.output;
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        outputs[i] = memory_new(stage.team);
    }
    write_inputs(&stage, 1);
    for (uint32_t i = 0; i < 3; i++) {
        runners[i] = (struct runner){&stage, outputs, i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &runners[i]), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        stage.output = outputs[i];
        assert_sums(&stage, 1);
        gpu_memory_destroy(outputs[i]);
    }
    stage.output = first;
    stage_close(&stage);
}

static void further_memories_of_one_key_are_set_in_a_graph_that_is_there(void **state)
{
    (void)state;
    struct gpu_memory *outputs[OUTPUTS];
    struct stage stage = stage_open(2);
    struct gpu_memory *first = stage.output;
    uint64_t before = sets();
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        outputs[i] = memory_new(stage.team);
    }
    for (uint32_t round = 0; round < 4 * OUTPUTS; round++) {
        stage.output = outputs[round / 4]; /* four in a row: direct, recorded, replayed twice */
        run_round(&stage, round, NULL);
    }
    assert_true(sets() > before);
    assert_true(rig.gpu->graphs_count < OUTPUTS);
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        gpu_memory_destroy(outputs[i]);
    }
    assert_int_equal(rig.gpu->graphs_count, 0);
    stage.output = first;
    stage_close(&stage);
}

static void the_cache_is_bounded_and_the_oldest_goes(void **state)
{
    (void)state;
    struct stage stage = stage_open(1);
    struct gpu_collective_spec spec = stage_spec(&stage);
    write_inputs(&stage, 7);
    for (uint64_t count = 1; count <= ST_GRAPHS_MAX + 20; count++) {
        spec.plan.shape.slice_count = count;
        spec.plan.large_bytes = count * sizeof(int32_t);
        for (unsigned again = 0; again < 2; again++) {
            struct rig_wait wait = RIG_WAIT_INIT;
            gpu_collective_run(stage.team, &spec, rig_completion(&wait));
            assert_int_equal(rig_await(&wait), ST_OK);
        }
    }
    assert_int_equal(rig.gpu->graphs_count, ST_GRAPHS_MAX);
    uint64_t before = launches();
    for (unsigned again = 0; again < 2; again++) { /* the newest is still there */
        struct rig_wait wait = RIG_WAIT_INIT;
        gpu_collective_run(stage.team, &spec, rig_completion(&wait));
        assert_int_equal(rig_await(&wait), ST_OK);
    }
    assert_int_equal(launches() - before, 2);
    stage_close(&stage);
    assert_int_equal(rig.gpu->graphs_count, 0);
}

static void a_run_that_waits_between_its_lanes_is_not_recorded(void **state)
{
    (void)state;
    struct stage stage = stage_open(4);
    struct gpu_memory *scratch = memory_new(stage.team);
    stage.algorithm = "one_shot";
    stage.in_place = true;
    uint64_t before = launches();
    for (uint32_t round = 0; round < 4; round++) {
        run_round(&stage, round, scratch);
    }
    assert_int_equal(launches() - before, stage.team->lane_count > 1 ? 0 : 3);
    gpu_memory_destroy(scratch);
    stage_close(&stage);
}

/** Run to outputs of its own until one of them is set in the graph of another. */
static void run_until_set(struct stage *stage, struct gpu_memory **outputs)
{
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        outputs[i] = memory_new(stage->team);
        stage->output = outputs[i];
        for (uint32_t round = 0; round < 3; round++) {
            run_round(stage, 10 * i + round, NULL);
        }
    }
}

static void a_graph_that_was_set_goes_with_the_memory_that_it_was_recorded_with(void **state)
{
    (void)state;
    struct gpu_memory *outputs[OUTPUTS];
    struct stage stage = stage_open(1);
    struct gpu_memory *first = stage.output;
    run_until_set(&stage, outputs);
    uint32_t before = rig.gpu->graphs_count;
    gpu_memory_destroy(outputs[0]); /* another one's addresses are in its graph by now */
    assert_int_equal(rig.gpu->graphs_count, before - 1);
    for (uint32_t i = 1; i < OUTPUTS; i++) {
        stage.output = outputs[i];
        run_round(&stage, 1000 + i, NULL);
    }
    for (uint32_t i = 1; i < OUTPUTS; i++) {
        gpu_memory_destroy(outputs[i]);
    }
    stage.output = first;
    stage_close(&stage);
}

/** A broadcast by copies, checked. */
static void run_copies(const struct stage *stage, uint32_t round)
{
    struct gpu_collective_spec spec = stage_spec(stage);
    struct rig_wait wait = RIG_WAIT_INIT;
    int32_t found[COUNT];
    write_inputs(stage, round);
    gpu_collective_run(stage->team, &spec, rig_completion(&wait));
    assert_int_equal(rig_await(&wait), ST_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        rig_read(&rig, stage->team, stage->output, rank, found, BYTES);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(found[i], element(round, 0, i));
        }
    }
}

static struct stage copies_open(uint32_t devices)
{
    struct stage stage = stage_open(devices);
    stage.collective = "broadcast";
    stage.algorithm = "copy_engine";
    return stage;
}

static void copies_are_nodes_too(void **state)
{
    (void)state;
    struct stage stage = copies_open(2);
    uint64_t before = launches();
    for (uint32_t round = 0; round < 5; round++) {
        run_copies(&stage, round);
    }
    assert_int_equal(launches() - before, 4 * stage.team->lane_count);
    stage_close(&stage);
}

static void copies_are_set_too(void **state)
{
    (void)state;
    struct gpu_memory *outputs[OUTPUTS];
    struct stage stage = copies_open(2);
    struct gpu_memory *first = stage.output;
    uint64_t before = gpu_faults_calls(GPU_CALL_cuGraphExecMemcpyNodeSetParams);
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        outputs[i] = memory_new(stage.team);
    }
    for (uint32_t round = 0; round < 4 * OUTPUTS; round++) {
        stage.output = outputs[round / 4];
        run_copies(&stage, round);
    }
    assert_true(gpu_faults_calls(GPU_CALL_cuGraphExecMemcpyNodeSetParams) > before);
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        gpu_memory_destroy(outputs[i]);
    }
    stage.output = first;
    stage_close(&stage);
}

static void a_graph_is_set_while_its_last_launch_is_under_way(void **state)
{
    (void)state;
    struct gpu_memory *outputs[OUTPUTS];
    struct rig_wait waits[OUTPUTS];
    struct stage stage = stage_open(1);
    struct gpu_memory *first = stage.output;
    run_until_set(&stage, outputs);
    write_inputs(&stage, 77);
    for (uint32_t i = 0; i < OUTPUTS; i++) { /* none is waited for before all are queued */
        waits[i] = (struct rig_wait)RIG_WAIT_INIT;
        stage.output = outputs[i];
        struct gpu_collective_spec spec = stage_spec(&stage);
        gpu_collective_run(stage.team, &spec, rig_completion(&waits[i]));
    }
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        assert_int_equal(rig_await(&waits[i]), ST_OK);
    }
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        stage.output = outputs[i];
        assert_sums(&stage, 77);
        gpu_memory_destroy(outputs[i]);
    }
    stage.output = first;
    stage_close(&stage);
}

static void whatever_fails_while_a_graph_is_made_the_run_goes_without_it(void **state)
{
    (void)state;
    static const struct {
        enum gpu_driver_call call;
        bool copies;
    } rows[] = {
        {GPU_CALL_cuGraphCreate, false},       {GPU_CALL_cuGraphAddKernelNode, false},
        {GPU_CALL_cuGraphAddMemcpyNode, true}, {GPU_CALL_cuGraphInstantiateWithFlags, false},
        {GPU_CALL_cuGraphUpload, false},       {GPU_CALL_cuGraphLaunch, false},
        {GPU_CALL_cuGraphCreate, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage = rows[i].copies ? copies_open(2) : stage_open(2);
        for (uint32_t round = 0; round < 4; round++) {
            if (round == 1) {
                gpu_faults_arm(rows[i].call, 1, CUDA_ERROR_INVALID_VALUE);
            }
            if (rows[i].copies) {
                run_copies(&stage, round);
            } else {
                run_round(&stage, round, NULL);
            }
        }
        assert_true(gpu_faults_disarm());
        uint64_t before = launches();
        if (rows[i].copies) {
            run_copies(&stage, 9);
        } else {
            run_round(&stage, 9, NULL);
        }
        assert_int_equal(launches(), before); /* it is not tried again */
        stage_close(&stage);
        rig_assert_clean(&rig);
    }
}

static void whatever_fails_while_a_graph_is_set_the_run_goes_without_it(void **state)
{
    (void)state;
    struct gpu_memory *outputs[OUTPUTS];
    struct stage stage = copies_open(1); /* four nodes: the third fails, two are set already */
    struct gpu_memory *first = stage.output;
    gpu_faults_arm(GPU_CALL_cuGraphExecMemcpyNodeSetParams, 3, CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        outputs[i] = memory_new(stage.team);
        stage.output = outputs[i];
        for (uint32_t round = 0; round < 3; round++) {
            run_copies(&stage, 10 * i + round);
        }
    }
    assert_true(gpu_faults_disarm());
    for (uint32_t i = 0; i < OUTPUTS; i++) { /* also to those whose graph that was */
        stage.output = outputs[i];
        run_copies(&stage, 500 + i);
        gpu_memory_destroy(outputs[i]);
    }
    stage.output = first;
    stage_close(&stage);
}

static int open_rig(void **state)
{
    (void)state;
    const struct rig_options options = {.devices = 4, .graphs = GPU_GRAPHS_ON};
    rig_open(&rig, &options);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    rig_assert_clean(&rig);
    rig_close(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_replays_see_the_data_of_their_time),
        cmocka_unit_test(a_graph_is_destroyed_before_the_memory_that_it_names),
        cmocka_unit_test(one_key_may_be_in_flight_many_times),
        cmocka_unit_test(threads_may_run_one_key_at_once),
        cmocka_unit_test(further_memories_of_one_key_are_set_in_a_graph_that_is_there),
        cmocka_unit_test(the_cache_is_bounded_and_the_oldest_goes),
        cmocka_unit_test(a_run_that_waits_between_its_lanes_is_not_recorded),
        cmocka_unit_test(copies_are_nodes_too),
        cmocka_unit_test(whatever_fails_while_a_graph_is_made_the_run_goes_without_it),
        cmocka_unit_test(whatever_fails_while_a_graph_is_set_the_run_goes_without_it),
        cmocka_unit_test(a_graph_that_was_set_goes_with_the_memory_that_it_was_recorded_with),
        cmocka_unit_test(copies_are_set_too),
        cmocka_unit_test(a_graph_is_set_while_its_last_launch_is_under_way),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
