#include "tests/unit/server/registry_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/driver/driver.h"
#include "server/internal.h"

#define DEVICES 3
#define MEMORY (64u << 20)
#define SMALL 64           /* elements: a part of a slab */
#define LARGE (512u << 10) /* elements: memory of its own */
#define SWEEP_MAX 5000     /* driver calls of one request, at most */
#define RANDOM_STEPS 10000

static int setup(void **state)
{
    holdings_prepare();
    struct server *server = node_start(DEVICES, MEMORY);
    *state = server;
    return 0;
}

static int teardown(void **state)
{
    gpu_faults_disarm();
    node_stop(*state);
    return 0;
}

/* ---------------------------------------------------------------- the failing-call sweep */

static enum st_status sweep_group(struct server *server, struct st_error *err)
{
    return group_make(server, "swept", 4, err);
}
static void undo_group(struct server *server)
{
    assert_int_equal(group_drop(server, "swept", false, NULL), ST_OK);
}

static enum st_status sweep_large_tensor(struct server *server, struct st_error *err)
{
    return tensor_make(server, "g", "swept", LARGE, err);
}
static enum st_status sweep_small_tensor(struct server *server, struct st_error *err)
{
    return tensor_make(server, "g", "swept", SMALL, err);
}
static void undo_tensor(struct server *server)
{
    assert_int_equal(tensor_drop(server, "swept", NULL), ST_OK);
}

static enum st_status sweep_batch(struct server *server, struct st_error *err)
{
    return batch_make(server, "g", "swept", 5, LARGE, err);
}
static void undo_batch(struct server *server)
{
    assert_int_equal(batch_drop(server, "swept", 5, NULL), ST_OK);
}

static const struct sweep {
    enum st_status (*make)(struct server *server, struct st_error *err);
    void (*undo)(struct server *server);
} sweeps[] = {
    {sweep_group, undo_group},
    {sweep_large_tensor, undo_tensor},
    {sweep_small_tensor, undo_tensor},
    {sweep_batch, undo_batch},
};

/** Fail the 1st driver call, the 2nd, ... until none fails any more. */
static void sweep(struct server *server, const struct sweep *row)
{
    struct st_error err = {0};
    assert_int_equal(row->make(server, &err), ST_OK); /* warm up */
    row->undo(server);
    struct holdings before = holdings_of(server);
    uint64_t nth = 0;
    bool fired = true;
    while (fired) {
        assert_true(++nth < SWEEP_MAX);
        gpu_faults_arm_any(nth, CUDA_ERROR_OUT_OF_MEMORY);
        enum st_status status = row->make(server, &err);
        fired = gpu_faults_disarm();
        if (status == ST_OK) {
            row->undo(server); /* also when the call was one that it can do without */
        } else {
            assert_true(fired);
            assert_true(err.reason != ST_REASON_NONE && err.message[0]);
        }
        assert_holdings(server, &before);
    }
    assert_true(nth > 3);
}

static void a_driver_call_that_fails_leaves_nothing_behind(void **state)
{
    assert_int_equal(group_make(*state, "g", 4, NULL), ST_OK);
    for (size_t i = 0; i < sizeof(sweeps) / sizeof(sweeps[0]); i++) {
        sweep(*state, &sweeps[i]);
    }
}

static void a_batch_that_fails_in_the_middle_leaves_nothing_and_names_the_item(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(group_make(server, "g", 2, &err), ST_OK);
    assert_int_equal(batch_make(server, "g", "t", 4, LARGE, &err), ST_OK);
    assert_int_equal(batch_drop(server, "t", 4, &err), ST_OK);
    struct holdings before = holdings_of(server);
    gpu_faults_arm(GPU_CALL_cuMemCreate, 5, CUDA_ERROR_OUT_OF_MEMORY); /* two a tensor */
    assert_int_equal(batch_make(server, "g", "t", 4, LARGE, &err), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ST_REASON_GPU_MEMORY_EXHAUSTED);
    assert_string_equal(err.field, "tensors[2]");
    assert_true(gpu_faults_disarm());
    for (int i = 0; i < 4; i++) {
        char id[16];
        snprintf(id, sizeof(id), "t%d", i);
        assert_false(tensor_exists(server, id));
    }
    assert_holdings(server, &before);
    assert_int_equal(batch_make(server, "g", "t", 4, LARGE, &err), ST_OK); /* the ids are free */
}

static void a_batch_larger_than_the_device_is_taken_back(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(group_make(server, "g", 3, &err), ST_OK);
    struct holdings before = holdings_of(server);
    uint64_t elements = (8u << 20) / 4; /* a tensor takes an eighth of each device */
    assert_int_equal(batch_make(server, "g", "t", 9, elements, &err), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ST_REASON_GPU_MEMORY_EXHAUSTED);
    assert_holdings(server, &before);
}

/* ---------------------------------------------------------------- random requests */

#define RANDOM_IDS 12

static uint64_t random_state = 7;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

/** One request that may well fail; what must hold is checked by the caller. */
static void random_step(struct server *server)
{
    static const uint64_t sizes[] = {0, 1, SMALL, 4096, LARGE, 3 * LARGE, 16u << 20};
    static const uint32_t worlds[] = {1, 2, 3, 5};
    char group[16];
    char tensor[16];
    struct st_error err = {0};
    snprintf(group, sizeof(group), "g%u", random_below(4));
    snprintf(tensor, sizeof(tensor), "t%u", random_below(RANDOM_IDS));
    bool armed = random_below(4) == 0;
    if (armed) {
        gpu_faults_arm_any(1 + random_below(40), CUDA_ERROR_OUT_OF_MEMORY);
    }
    uint32_t kind = random_below(16);
    uint64_t size = sizes[random_below(sizeof(sizes) / sizeof(sizes[0]))];
    if (kind == 0) {
        (void)group_make(server, group, worlds[random_below(4)], &err);
    } else if (kind == 1) {
        (void)group_drop(server, group, random_below(2) == 0, &err);
    } else if (kind == 2) {
        (void)batch_make(server, group, "t", 1 + random_below(RANDOM_IDS), size, &err);
    } else if (kind == 3) {
        (void)batch_drop(server, "t", 1 + random_below(RANDOM_IDS), &err);
    } else if (kind < 10) {
        (void)tensor_make(server, group, tensor, size, &err);
    } else {
        (void)tensor_drop(server, tensor, &err);
    }
    if (armed) {
        gpu_faults_disarm();
    }
}

static void drop_everything(struct server *server)
{
    for (int i = 0; i < 4; i++) {
        char group[16];
        snprintf(group, sizeof(group), "g%d", i);
        if (group_exists(server, group)) {
            assert_int_equal(group_drop(server, group, true, NULL), ST_OK);
        }
    }
}

static void random_creates_failures_and_deletes_are_accounted_for_exactly(void **state)
{
    struct server *server = *state;
    for (int i = 0; i < 300; i++) {
        random_step(server); /* warm up */
    }
    drop_everything(server);
    struct holdings before = holdings_of(server);
    for (int i = 0; i < RANDOM_STEPS; i++) {
        random_step(server);
        if (i % 1000 == 999) {
            drop_everything(server);
            assert_holdings(server, &before);
        }
    }
}

/* ---------------------------------------------------------------- calls that hang */

static enum server_state state_of_tensor(struct server *server, const char *id)
{
    struct server_tensor *tensor = NULL;
    struct st_error err = {0};
    assert_int_equal(server_tensor_get(server, id, &tensor, &err), ST_OK);
    enum server_state state = tensor->state;
    server_snapshot_release(&tensor->base);
    return state;
}

static void wait_until_gone(struct server *server, const char *id)
{
    for (int i = 0; i < 20000 && tensor_exists(server, id); i++) {
        usleep(1000);
    }
    assert_false(tensor_exists(server, id));
}

/** A group on devices of its own. */
static void make_group_on(struct server *server, const char *id, uint32_t device)
{
    struct server_group_create request = {.world_size = 1, .devices = {device}};
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    snprintf(request.id, sizeof(request.id), "%s", id);
    assert_int_equal(server_group_create(server, &node_caller, &request, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
}

static struct server_operation *submit_create(struct server *server, const char *group,
                                              const char *id)
{
    struct server_tensor_create *request = tensor_request(group, id, LARGE);
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(server_tensor_create(server, &node_caller, request, &operation, &err), ST_OK);
    free(request);
    return operation;
}

static void a_hung_call_ends_in_time_and_other_groups_go_on(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    make_group_on(server, "stuck", 0);
    make_group_on(server, "fine", 1);
    assert_int_equal(tensor_make(server, "stuck", "old", SMALL, &err), ST_OK);
    struct holdings before = holdings_of(server);
    before.mappings = 0; /* a thread takes the place of the one that hangs */
    server_set_driver_call_limit(server, 100 * ST_NS_PER_MS);
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, 1500);
    uint64_t start_ns = st_clock_now_ns();
    struct server_operation *hung = submit_create(server, "stuck", "hung");
    struct server_operation *behind = submit_create(server, "stuck", "behind");
    usleep(20000);
    assert_int_equal(state_of_tensor(server, "hung"), SERVER_STATE_CREATING);
    assert_int_equal(tensor_make(server, "fine", "quick", LARGE, &err), ST_OK);
    assert_true(st_clock_now_ns() - start_ns < 1000 * ST_NS_PER_MS);

    assert_int_equal(node_finish_status(hung, &err), ST_DEADLINE_EXCEEDED);
    assert_int_equal(node_finish_status(behind, &err), ST_DEADLINE_EXCEEDED);
    assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
    assert_true(st_clock_now_ns() - start_ns < 1000 * ST_NS_PER_MS);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_DEGRADED);
    assert_int_equal(gpu_device_state(server_gpu(server), 1), GPU_DEVICE_OK);
    /* What it was making is there until the call returns: the id is not free yet. */
    assert_int_equal(state_of_tensor(server, "hung"), SERVER_STATE_FAILED);
    assert_int_equal(tensor_make(server, "fine", "hung", LARGE, &err), ST_ALREADY_EXISTS);
    assert_int_equal(tensor_make(server, "stuck", "more", LARGE, &err), ST_UNAVAILABLE);
    assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
    assert_int_equal(tensor_drop(server, "quick", &err), ST_OK);
    assert_int_equal(server_unfinished(server), 0);

    wait_until_gone(server, "hung");
    wait_until_gone(server, "behind");
    assert_holdings(server, &before);
    assert_int_equal(tensor_make(server, "fine", "hung", LARGE, &err), ST_OK);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_OK);
    assert_int_equal(tensor_make(server, "stuck", "again", LARGE, &err), ST_OK);
}

static void calls_that_are_slow_together_are_no_call_that_hangs(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(group_make(server, "g", 4, &err), ST_OK);
    server_set_driver_call_limit(server, 200 * ST_NS_PER_MS);
    for (uint64_t nth = 1; nth <= 4; nth++) {
        gpu_faults_arm_hang(GPU_CALL_cuMemCreate, nth, 100);
        gpu_faults_arm_hang(GPU_CALL_cuMemRelease, nth, 100);
    }
    assert_int_equal(tensor_make(server, "g", "t", LARGE, &err), ST_OK);
    assert_int_equal(tensor_drop(server, "t", &err), ST_OK);
    assert_true(gpu_faults_disarm());
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_OK);
}

static void a_group_says_what_its_team_found_about_multicast(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    struct server_group *group = NULL;
    gpu_faults_arm(GPU_CALL_cuMulticastGetGranularity, 1, CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(group_make(server, "g", 2, &err), ST_OK);
    assert_true(gpu_faults_disarm());
    assert_int_equal(server_group_get(server, "g", &group, &err), ST_OK);
    assert_int_equal(group->multicast_reason, GPU_MULTICAST_FABRIC_MANAGER_ERROR);
    server_snapshot_release(&group->base);
}

static void many_hung_groups_leave_a_thread_for_the_others(void **state)
{
    enum { STUCK = 6 }; /* more than there are threads for memory */
    struct server *server = *state;
    struct st_error err = {0};
    struct server_operation *hung[STUCK];
    server_set_driver_call_limit(server, 100 * ST_NS_PER_MS);
    make_group_on(server, "fine", 1);
    for (int i = 0; i < STUCK; i++) {
        char id[16];
        snprintf(id, sizeof(id), "s%d", i);
        make_group_on(server, id, 0);
    }
    for (int i = 0; i < STUCK; i++) {
        char id[16];
        snprintf(id, sizeof(id), "s%d", i);
        gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, 2000);
        hung[i] = submit_create(server, id, id);
        usleep(5000);
    }
    uint64_t start_ns = st_clock_now_ns();
    gpu_faults_disarm();
    assert_int_equal(tensor_make(server, "fine", "quick", LARGE, &err), ST_OK);
    assert_true(st_clock_now_ns() - start_ns < 1000 * ST_NS_PER_MS);
    for (int i = 0; i < STUCK; i++) {
        enum st_status status = node_finish_status(hung[i], &err);
        assert_true(status == ST_DEADLINE_EXCEEDED || status == ST_UNAVAILABLE || status == ST_OK);
    }
}

/** Streams that were made and are not destroyed. */
static uint64_t streams_open(void)
{
    return gpu_faults_calls(GPU_CALL_cuStreamCreateWithPriority) -
           gpu_faults_calls(GPU_CALL_cuStreamDestroy);
}

static void a_hung_group_create_fails_and_is_taken_back(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(group_make(server, "warm", 2, &err), ST_OK);
    assert_int_equal(group_drop(server, "warm", false, &err), ST_OK);
    struct holdings before = holdings_of(server);
    before.mappings = 0; /* a thread takes the place of the one that hangs */
    server_set_driver_call_limit(server, 50 * ST_NS_PER_MS);
    uint64_t streams = streams_open();
    gpu_faults_arm_hang(GPU_CALL_cuStreamCreateWithPriority, 1, 500);
    assert_int_equal(group_make(server, "g", 2, &err), ST_DEADLINE_EXCEEDED);
    struct server_group *group = NULL;
    assert_int_equal(server_group_get(server, "g", &group, &err), ST_OK);
    assert_int_equal(group->state, SERVER_STATE_FAILED);
    server_snapshot_release(&group->base);
    assert_int_equal(group_drop(server, "g", false, &err), ST_FAILED_PRECONDITION);
    for (int i = 0; i < 20000 && group_exists(server, "g"); i++) {
        usleep(1000);
    }
    assert_holdings(server, &before);
    assert_int_equal(streams_open(), streams);
}

static void a_create_that_is_cancelled_while_it_runs_is_taken_back(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    make_group_on(server, "g", 0);
    assert_int_equal(tensor_make(server, "g", "t", LARGE, &err), ST_OK); /* warm up */
    assert_int_equal(tensor_drop(server, "t", &err), ST_OK);
    struct holdings before = holdings_of(server);
    uint64_t streams = streams_open();
    struct server_group_create request = {.id = "x", .world_size = 1};
    struct server_operation *operations[2] = {NULL};
    gpu_faults_arm_hang(GPU_CALL_cuStreamCreateWithPriority, 1, 300);
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, 300);
    assert_int_equal(server_group_create(server, &node_caller, &request, &operations[0], &err),
                     ST_OK);
    operations[1] = submit_create(server, "g", "t");
    usleep(50000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(node_operation_state(operations[i]), SERVER_OPERATION_RUNNING);
        assert_int_equal(server_operation_cancel(operations[i], &node_caller, &err), ST_OK);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(node_finish_status(operations[i], &err), ST_CANCELLED);
    }
    assert_false(group_exists(server, "x") || tensor_exists(server, "t"));
    assert_holdings(server, &before);
    assert_int_equal(streams_open(), streams);
}

static void what_is_being_made_may_soon_be_used(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    struct server_group_create group = {.id = "x", .world_size = 1};
    struct server_fill_request fill = {
        .tensor = "t", .rank = -1, .expected_generation = SERVER_GENERATION_ANY};
    struct server_operation *creates[2] = {NULL}, *operation = NULL;
    make_group_on(server, "g", 0);
    gpu_faults_arm_hang(GPU_CALL_cuStreamCreateWithPriority, 1, 300);
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, 300);
    assert_int_equal(server_group_create(server, &node_caller, &group, &creates[0], &err), ST_OK);
    creates[1] = submit_create(server, "g", "t");
    assert_int_equal(server_fill(server, &node_caller, &fill, &operation, &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_TENSOR_NOT_READY);
    assert_true(err.retry_after_ms > 0);
    assert_int_equal(tensor_drop(server, "t", &err), ST_ABORTED);
    assert_int_equal(tensor_make(server, "x", "u", SMALL, &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_GROUP_NOT_READY);
    assert_true(err.retry_after_ms > 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(node_finish_status(creates[i], &err), ST_OK);
    }
    assert_int_equal(server_fill(server, &node_caller, &fill, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    assert_int_equal(tensor_make(server, "x", "u", SMALL, &err), ST_OK);
}

static void the_node_does_not_end_while_a_call_hangs(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    make_group_on(server, "g", 0);
    server_set_driver_call_limit(server, 50 * ST_NS_PER_MS);
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, 800);
    struct server_operation *hung = submit_create(server, "g", "t");
    assert_int_equal(node_finish_status(hung, &err), ST_DEADLINE_EXCEEDED);
    server_drain(server);
    assert_false(server_destroy(server, st_clock_now_ns() + 50 * ST_NS_PER_MS));
    /* It can be asked again: the teardown does that, when the call has returned. */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_driver_call_that_fails_leaves_nothing_behind),
        CASE(a_batch_that_fails_in_the_middle_leaves_nothing_and_names_the_item),
        CASE(a_batch_larger_than_the_device_is_taken_back),
        CASE(random_creates_failures_and_deletes_are_accounted_for_exactly),
        CASE(a_hung_call_ends_in_time_and_other_groups_go_on),
        CASE(calls_that_are_slow_together_are_no_call_that_hangs),
        CASE(a_group_says_what_its_team_found_about_multicast),
        CASE(many_hung_groups_leave_a_thread_for_the_others),
        CASE(a_hung_group_create_fails_and_is_taken_back),
        CASE(a_create_that_is_cancelled_while_it_runs_is_taken_back),
        CASE(what_is_being_made_may_soon_be_used),
        CASE(the_node_does_not_end_while_a_call_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
