#include "tests/unit/server/node_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/driver/driver.h"
#include "server/internal.h"

/** Driver calls that hang: who is kept waiting, who is told, which devices are blamed. */

#define DEVICES 2u
#define DEVICE_BYTES (64ull << 20)
#define PATIENCE_MS 30000u
#define LIMIT_NS (100 * ST_NS_PER_MS)
#define HANG_MS 1500u
#define SOON_NS (1000 * ST_NS_PER_MS)
#define LARGE (2ull << 20) /* bytes: memory of its own */

static void node_group_on(struct server *server, const char *id, uint32_t device)
{
    struct server_group_create request = {.world_size = 1, .devices = {device}};
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    snprintf(request.id, sizeof(request.id), "%s", id);
    assert_int_equal(server_group_create(server, &node_caller, &request, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
}

/** A group over both devices and one on each; a tensor in each. */
static int start(void **state)
{
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", 2, DEVICES);
    node_group_on(server, "a", 0);
    node_group_on(server, "b", 1);
    node_tensor(server, "g", "t", ST_DTYPE_FLOAT32, 1024);
    node_tensor(server, "a", "in_a", ST_DTYPE_UINT8, 4096);
    node_tensor(server, "b", "in_b", ST_DTYPE_UINT8, 4096);
    *state = server;
    return 0;
}

static int stop(void **state)
{
    node_stop(*state);
    gpu_faults_disarm();
    return 0;
}

static struct server_operation *submit_fill(struct server *server, const char *tensor)
{
    struct server_fill_request request = {
        .pattern = GPU_FILL_IOTA, .rank = -1, .expected_generation = SERVER_GENERATION_ANY};
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    assert_int_equal(server_fill(server, &node_caller, &request, &operation, &err), ST_OK);
    return operation;
}

static struct server_operation *submit_checksum(struct server *server, const char *tensor)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(
        server_checksum(server, &node_caller, tensor, SERVER_CHECKSUM_CRC32C, &operation, &err),
        ST_OK);
    return operation;
}

static void wait_until_idle(struct server *server)
{
    uint64_t deadline_ns = st_clock_now_ns() + PATIENCE_MS * ST_NS_PER_MS;
    bool idle = false;
    while (!idle && st_clock_now_ns() < deadline_ns) {
        usleep(2000);
        server_lock(server);
        idle = server->works == 0;
        server_unlock(server);
    }
    assert_true(idle);
}

/* ---------------------------------------------------------------- callers' threads */

static void where_calls_may_block_no_caller_makes_one(void **state)
{
    struct server *server = *state;
    server->calls_may_block = true;
    struct st_error err = {0};
    gpu_faults_arm_hang(GPU_CALL_cuLaunchHostFunc, 1, 300);
    uint64_t start_ns = st_clock_now_ns();
    struct server_operation *fill = submit_fill(server, "in_a");
    assert_true(st_clock_now_ns() - start_ns < 200 * ST_NS_PER_MS);
    assert_int_equal(node_finish_status(fill, &err), ST_OK);

    static unsigned char data[4096], back[4096];
    memset(data, 7, sizeof(data));
    struct server_transfer_request request = node_transfer_request("in_a", 0);
    struct node_transfer upload;
    gpu_faults_arm_hang(GPU_CALL_cuMemcpyHtoDAsync, 1, 300);
    assert_int_equal(node_upload_open(server, &request, &upload, &err), ST_OK);
    start_ns = st_clock_now_ns();
    assert_int_equal(server_upload_write(upload.transfer, data, sizeof(data)), sizeof(data));
    server_upload_finish(upload.transfer);
    assert_true(st_clock_now_ns() - start_ns < 200 * ST_NS_PER_MS);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
    node_transfer_close(&upload);
    assert_int_equal(node_get(server, "in_a", 0, back, sizeof(back), &err), ST_OK);
    assert_memory_equal(back, data, sizeof(data));
}

static void a_body_whose_launch_hangs_fails_in_time(void **state)
{
    struct server *server = *state;
    server->calls_may_block = true;
    server_set_driver_call_limit(server, LIMIT_NS);
    struct server_transfer_request request = node_transfer_request("in_a", 0);
    struct node_transfer upload;
    struct st_error err = {0};
    gpu_faults_arm_hang(GPU_CALL_cuMemcpyHtoDAsync, 1, HANG_MS);
    uint64_t start_ns = st_clock_now_ns();
    assert_int_equal(node_upload_open(server, &request, &upload, &err), ST_OK);
    assert_int_equal(server_upload_write(upload.transfer, "abcd", 4), 4);
    assert_int_equal(node_transfer_wait(&upload, 10, &err), SERVER_TRANSFER_READY);
    while (node_transfer_wait(&upload, 10, &err) == SERVER_TRANSFER_READY) {
        usleep(5000);
    }
    assert_int_equal(node_transfer_wait(&upload, 10, &err), SERVER_TRANSFER_FAILED);
    assert_int_equal(err.status, ST_DEADLINE_EXCEEDED);
    assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
    assert_true(st_clock_now_ns() - start_ns < SOON_NS);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_DEGRADED);
    assert_int_equal(gpu_device_state(server_gpu(server), 1), GPU_DEVICE_OK);
    node_transfer_close(&upload);
    wait_until_idle(server);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_OK);
    assert_int_equal(node_contents(server, "in_a", 0).state, SERVER_CONTENTS_UNDEFINED);
}

static void a_running_verb_that_is_cancelled_ends_so_and_leaves_its_output_undefined(void **state)
{
    struct server *server = *state;
    server->calls_may_block = true;
    struct st_error err = {0};
    gpu_faults_arm_hang(GPU_CALL_cuLaunchHostFunc, 1, 300);
    struct server_operation *fill = submit_fill(server, "in_a");
    usleep(50000);
    assert_int_equal(node_operation_state(fill), SERVER_OPERATION_RUNNING);
    assert_int_equal(server_operation_cancel(fill, &node_caller, &err), ST_OK);
    assert_int_equal(node_finish_status(fill, &err), ST_CANCELLED);
    assert_int_equal(node_contents(server, "in_a", 0).state, SERVER_CONTENTS_UNDEFINED);
    assert_int_equal(node_contents(server, "in_a", 0).generation, 1); /* of other bytes, perhaps */
}

/* ---------------------------------------------------------------- checksums */

static void checksums_that_hang_leave_a_thread_for_the_others(void **state)
{
    enum { HUNG = 2 }; /* as many as the pool has threads */
    struct server *server = *state;
    struct server_operation *hung[HUNG];
    struct st_error err = {0};
    server_set_driver_call_limit(server, LIMIT_NS);
    for (uint64_t nth = 1; nth <= HUNG; nth++) {
        gpu_faults_arm_hang(GPU_CALL_cuMemcpyDtoHAsync, nth, HANG_MS);
    }
    uint64_t start_ns = st_clock_now_ns();
    for (unsigned i = 0; i < HUNG; i++) {
        hung[i] = submit_checksum(server, "in_a");
    }
    for (unsigned i = 0; i < HUNG; i++) {
        assert_int_equal(node_finish_status(hung[i], &err), ST_DEADLINE_EXCEEDED);
        assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
    }
    assert_int_equal(node_finish_status(submit_checksum(server, "in_b"), &err), ST_OK);
    assert_true(st_clock_now_ns() - start_ns < SOON_NS);
    wait_until_idle(server);
    assert_int_equal(node_finish_status(submit_checksum(server, "in_a"), &err), ST_OK);
}

/* ---------------------------------------------------------------- memory */

/** On a new tensor "large", so that the scratch is memory of its own. */
static struct server_collective_request request_with_scratch(struct server *server)
{
    struct server_collective_request request =
        node_collective_request("all_reduce", "large", NULL, ST_OP_SUM, 0);
    request.algorithm = gpu_algorithm_find("one_shot");
    node_tensor(server, "g", "large", ST_DTYPE_UINT8, LARGE);
    return request;
}

static void scratch_that_is_not_made_in_time_ends_its_collective(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    server_set_driver_call_limit(server, LIMIT_NS);
    struct server_collective_request request = request_with_scratch(server);
    struct server_operation *operation = NULL;
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, HANG_MS);
    uint64_t start_ns = st_clock_now_ns();
    assert_int_equal(server_collective(server, &node_caller, &request, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_DEADLINE_EXCEEDED);
    assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
    assert_true(st_clock_now_ns() - start_ns < SOON_NS);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_DEGRADED);
    wait_until_idle(server);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_OK);
    assert_int_equal(node_contents(server, "large", 0).state, SERVER_CONTENTS_VALID);
    node_collective(server, &request);
}

/** A large tensor in each of the groups, in this order. */
static void
a_collective_that_ends_while_its_scratch_is_made_says_why_and_writes_nothing(void **state)
{
    static const struct {
        const char *name;
        uint32_t timeout_ms; /**< Of the caller; 0: it is cancelled. */
        enum st_status status;
        enum st_reason reason;
    } cases[] = {
        {"cancelled", 0, ST_CANCELLED, ST_REASON_OPERATION_CANCELLED},
        {"out of time", 50, ST_DEADLINE_EXCEEDED, ST_REASON_OPERATION_DEADLINE},
    };
    struct server *server = *state;
    struct server_collective_request request = request_with_scratch(server);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_caller caller = node_caller;
        struct server_operation *operation = NULL;
        struct st_error err = {0};
        print_message("%s\n", cases[i].name);
        if (cases[i].timeout_ms) {
            caller.deadline_ns = st_clock_now_ns() + cases[i].timeout_ms * ST_NS_PER_MS;
        }
        gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, 300);
        /* Without what the case before left, so that it is made again. */
        server_lock(server);
        struct group *group = st_index_find(&server->groups, "g");
        server_scratch_destroy(group->scratch);
        group->scratch = NULL;
        server_unlock(server);
        assert_int_equal(server_collective(server, &caller, &request, &operation, &err), ST_OK);
        usleep(20000);
        assert_int_equal(node_operation_state(operation), SERVER_OPERATION_RUNNING);
        if (!cases[i].timeout_ms) {
            assert_int_equal(server_operation_cancel(operation, &node_caller, &err), ST_OK);
        }
        assert_int_equal(node_finish_status(operation, &err), cases[i].status);
        assert_int_equal(err.reason, cases[i].reason);
        assert_int_equal(node_contents(server, "large", 0).state, SERVER_CONTENTS_VALID);
        assert_int_equal(node_contents(server, "large", 0).generation, 0);
    }
}

static struct server_operation *submit_pair(struct server *server, const char *first,
                                            const char *second)
{
    struct server_tensor_create *requests = calloc(2, sizeof(*requests));
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_non_null(requests);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(requests[i].group, sizeof(requests[i].group), "%s", i == 0 ? first : second);
        requests[i].dtype = ST_DTYPE_UINT8;
        requests[i].shape = (struct st_shape){.rank = 1, .dims = {(int64_t)LARGE}};
        requests[i].attachable = 1;
    }
    assert_int_equal(
        server_tensor_batch_create(server, &node_caller, requests, 2, &operation, &err), ST_OK);
    free(requests);
    return operation;
}

static void a_batch_blames_the_group_whose_call_hangs(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    server_set_driver_call_limit(server, LIMIT_NS);
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 2, HANG_MS);
    struct server_operation *batch = submit_pair(server, "a", "b");
    assert_int_equal(node_finish_status(batch, &err), ST_DEADLINE_EXCEEDED);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_OK);
    assert_int_equal(gpu_device_state(server_gpu(server), 1), GPU_DEVICE_DEGRADED);
    wait_until_idle(server);
    assert_int_equal(gpu_device_state(server_gpu(server), 1), GPU_DEVICE_OK);
}

static void a_batch_that_waits_for_another_groups_call_blames_nobody(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    server_set_driver_call_limit(server, LIMIT_NS);
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, HANG_MS);
    struct server_operation *hung = submit_pair(server, "b", "b");
    usleep(20000);
    struct server_operation *waits = submit_pair(server, "a", "b");
    assert_int_equal(node_finish_status(hung, &err), ST_DEADLINE_EXCEEDED);
    assert_int_equal(node_finish_status(waits, &err), ST_DEADLINE_EXCEEDED);
    assert_int_equal(gpu_device_state(server_gpu(server), 0), GPU_DEVICE_OK);
    assert_int_equal(gpu_device_state(server_gpu(server), 1), GPU_DEVICE_DEGRADED);
    wait_until_idle(server);
    assert_int_equal(gpu_device_state(server_gpu(server), 1), GPU_DEVICE_OK);
}

/* ---------------------------------------------------------------- copies that need access */

/** One device of two cannot reach the other: groups "a" and "b" of one each are made on them. */
static struct server *start_apart(const char *no_peer)
{
    setenv("SYMTENSOR_SOFTWARE_NO_PEER", no_peer, 1);
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    unsetenv("SYMTENSOR_SOFTWARE_NO_PEER");
    node_group_on(server, "a", 0);
    node_group_on(server, "b", 1);
    node_tensor(server, "a", "in_a", ST_DTYPE_UINT8, 4096);
    node_tensor(server, "b", "in_b", ST_DTYPE_UINT8, 4096);
    return server;
}

static struct server_operation *submit_copy(struct server *server, uint64_t deadline_ns)
{
    struct server_caller caller = node_caller;
    struct server_copy_request request = {
        .tensor = "in_a", .dst_tensor = "in_b", .expected_generation = SERVER_GENERATION_ANY};
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    caller.deadline_ns = deadline_ns;
    assert_int_equal(server_copy(server, &caller, &request, &operation, &err), ST_OK);
    return operation;
}

/** Something that is done to a copy while it waits for a call of its destination's group. */
struct waiting_case {
    const char *name;
    uint64_t limit_ns;   /**< Of a driver call; 0: as usual. */
    uint32_t timeout_ms; /**< Of the copy's caller; 0: none. */
    bool cancel;
    enum st_status status;
    enum st_reason reason;
};

static void check_waiting(struct server *server, const struct waiting_case *row)
{
    static unsigned char data[4096], back[4096];
    struct st_error err = {0};
    print_message("%s\n", row->name);
    memset(data, 7, sizeof(data));
    assert_int_equal(node_put(server, "in_a", 0, data, sizeof(data), &err), ST_OK);
    uint64_t generation = node_contents(server, "in_b", 0).generation;
    if (row->limit_ns) {
        server_set_driver_call_limit(server, row->limit_ns);
    }
    gpu_faults_arm_hang(GPU_CALL_cuMemCreate, 1, 600);
    struct server_operation *hung = submit_pair(server, "b", "b");
    usleep(20000);
    struct server_operation *copy =
        submit_copy(server, row->timeout_ms ? st_clock_now_ns() + row->timeout_ms * ST_NS_PER_MS
                                            : ST_DEADLINE_NEVER);
    usleep(20000);
    assert_int_equal(node_operation_state(copy), SERVER_OPERATION_RUNNING);
    if (row->cancel) {
        assert_int_equal(server_operation_cancel(copy, &node_caller, &err), ST_OK);
    }
    assert_int_equal(node_finish_status(copy, &err), row->status);
    assert_int_equal(err.reason, row->reason);
    (void)node_finish_status(hung, &err);
    wait_until_idle(server);
    assert_int_equal(node_contents(server, "in_b", 0).state, SERVER_CONTENTS_VALID);
    assert_int_equal(node_contents(server, "in_b", 0).generation, generation);
    assert_int_equal(node_get(server, "in_b", 0, back, sizeof(back), &err), ST_OK);
    memset(data, 0, sizeof(data));
    assert_memory_equal(back, data, sizeof(data));
}

static void a_copy_that_ends_while_it_waits_for_access_writes_nothing(void **state)
{
    static const struct waiting_case cases[] = {
        {"cancelled", 0, 0, true, ST_CANCELLED, ST_REASON_OPERATION_CANCELLED},
        {"out of time", 0, 100, false, ST_DEADLINE_EXCEEDED, ST_REASON_OPERATION_DEADLINE},
        {"overran", LIMIT_NS, 0, false, ST_DEADLINE_EXCEEDED, ST_REASON_DEVICE_DEGRADED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_waiting(*state, &cases[i]);
    }
}

static void a_copy_blames_the_group_whose_memory_is_given_access_to(void **state)
{
    (void)state;
    static const struct {
        const char *no_peer;
        uint32_t degraded; /**< Device; in_a is on 0, in_b on 1. */
    } cases[] = {
        {"", 1},    /* the source's device writes */
        {"1:0", 1}, /* it alone can */
        {"0:1", 0}, /* the destination's device reads */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server *server = start_apart(cases[i].no_peer);
        struct st_error err = {0};
        uint32_t degraded = cases[i].degraded;
        server_set_driver_call_limit(server, LIMIT_NS);
        gpu_faults_arm_hang(GPU_CALL_cuMemSetAccess, 1, 600);
        struct server_operation *copy = submit_copy(server, ST_DEADLINE_NEVER);
        assert_int_equal(node_finish_status(copy, &err), ST_DEADLINE_EXCEEDED);
        assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
        assert_non_null(strstr(err.message, degraded == 0 ? "group a" : "group b"));
        assert_int_equal(gpu_device_state(server_gpu(server), degraded), GPU_DEVICE_DEGRADED);
        assert_int_equal(gpu_device_state(server_gpu(server), 1 - degraded), GPU_DEVICE_OK);
        wait_until_idle(server);
        assert_int_equal(gpu_device_state(server_gpu(server), degraded), GPU_DEVICE_OK);
        assert_int_equal(node_contents(server, "in_b", 0).state, SERVER_CONTENTS_VALID);
        node_stop(server);
        gpu_faults_disarm();
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(where_calls_may_block_no_caller_makes_one),
        T(a_body_whose_launch_hangs_fails_in_time),
        T(a_running_verb_that_is_cancelled_ends_so_and_leaves_its_output_undefined),
        T(checksums_that_hang_leave_a_thread_for_the_others),
        T(scratch_that_is_not_made_in_time_ends_its_collective),
        T(a_collective_that_ends_while_its_scratch_is_made_says_why_and_writes_nothing),
        T(a_batch_blames_the_group_whose_call_hangs),
        T(a_batch_that_waits_for_another_groups_call_blames_nobody),
        T(a_copy_that_ends_while_it_waits_for_access_writes_nothing),
        cmocka_unit_test(a_copy_blames_the_group_whose_memory_is_given_access_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
