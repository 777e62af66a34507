#include "tests/unit/server/node_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/driver/driver.h"

/**
 * Fail the first driver call of each verb, then the second, and so on until it succeeds. After each
 * the error is the driver's, the contents say what happened, and the next full write makes all good
 * again.
 */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 3u
#define DEVICE_BYTES (64ull << 20)
#define BYTES (3ull << 20) /* three staging buffers: more than a transfer has */
#define SWEEP_MAX 5000u

static unsigned char data[BYTES], back[BYTES];

static enum st_status finish(enum st_status status, struct server_operation *operation,
                             struct st_error *err)
{
    return status == ST_OK ? node_finish_status(operation, err) : status;
}

static enum st_status sweep_put(struct server *server, struct st_error *err)
{
    return node_put(server, "t", 1, data, BYTES, err);
}

static enum st_status sweep_get(struct server *server, struct st_error *err)
{
    return node_get(server, "t", 1, back, BYTES, err);
}

static enum st_status sweep_fill(struct server *server, struct st_error *err)
{
    struct server_fill_request request = {.tensor = "t",
                                          .pattern = GPU_FILL_IOTA,
                                          .rank = -1,
                                          .expected_generation = SERVER_GENERATION_ANY};
    struct server_operation *operation = NULL;
    enum st_status status = server_fill(server, &node_caller, &request, &operation, err);
    return finish(status, operation, err);
}

static enum st_status sweep_copy(struct server *server, struct st_error *err)
{
    struct server_copy_request request = {.tensor = "u",
                                          .dst_tensor = "t",
                                          .dst_rank = 1,
                                          .expected_generation = SERVER_GENERATION_ANY};
    struct server_operation *operation = NULL;
    enum st_status status = server_copy(server, &node_caller, &request, &operation, err);
    return finish(status, operation, err);
}

static enum st_status sweep_all_reduce(struct server *server, const char *algorithm,
                                       struct st_error *err)
{
    struct server_collective_request request =
        node_collective_request("all_reduce", "t", NULL, ST_OP_SUM, 0);
    request.algorithm = gpu_algorithm_find(algorithm);
    struct server_operation *operation = NULL;
    enum st_status status = server_collective(server, &node_caller, &request, &operation, err);
    return finish(status, operation, err);
}

static enum st_status sweep_two_shot(struct server *server, struct st_error *err)
{
    return sweep_all_reduce(server, "two_shot", err);
}

static enum st_status sweep_one_shot(struct server *server, struct st_error *err)
{
    return sweep_all_reduce(server, "one_shot", err); /* in place: through scratch */
}

static enum st_status sweep_checksum(struct server *server, struct st_error *err)
{
    struct server_operation *operation = NULL;
    enum st_status status =
        server_checksum(server, &node_caller, "t", SERVER_CHECKSUM_CRC32C, &operation, err);
    return finish(status, operation, err);
}

static const struct {
    const char *name;
    enum st_status (*run)(struct server *server, struct st_error *err);
    bool writes;
} sweeps[] = {
    {"put", sweep_put, true},
    {"get", sweep_get, false},
    {"fill", sweep_fill, true},
    {"copy", sweep_copy, true},
    {"two_shot", sweep_two_shot, true},
    {"one_shot", sweep_one_shot, true},
    {"checksum", sweep_checksum, false},
};

static void mend(struct server *server)
{
    for (uint32_t rank = 0; rank < DEVICES; rank++) {
        struct st_error err = {0};
        if (node_put(server, "t", rank, data, BYTES, &err) != ST_OK) {
            fail_msg("the node does not recover: %s", err.message);
        }
        assert_int_equal(node_contents(server, "t", rank).state, SERVER_CONTENTS_VALID);
    }
}

static uint64_t owned_bytes(struct server *server)
{
    struct gpu_device_memory memory;
    uint64_t owned = 0;
    for (uint32_t device = 0; device < DEVICES; device++) {
        gpu_device_memory(server_gpu(server), device, &memory);
        owned += memory.owned_bytes;
    }
    return owned;
}

/** @return how many calls were failed. */
static unsigned sweep(struct server *server, size_t row)
{
    for (unsigned n = 1; n < SWEEP_MAX; n++) {
        struct st_error err = {0};
        gpu_faults_arm_any(n, CUDA_ERROR_INVALID_VALUE);
        enum st_status status = sweeps[row].run(server, &err);
        bool fired = gpu_faults_disarm();
        if (status != ST_OK && (!fired || err.reason != ST_REASON_DRIVER_ERROR)) {
            fail_msg("%s, call %u: %s %s", sweeps[row].name, n, st_reason_info(err.reason)->name,
                     err.message);
        }
        bool undefined = false;
        for (uint32_t rank = 0; rank < DEVICES; rank++) {
            undefined |= node_contents(server, "t", rank).state == SERVER_CONTENTS_UNDEFINED;
        }
        assert_false(undefined && (status == ST_OK || !sweeps[row].writes));
        mend(server);
        if (!fired) {
            return n - 1;
        }
    }
    fail_msg("%s never succeeds", sweeps[row].name);
    return 0;
}

static void each_failing_driver_call_is_reported_and_mended(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", DEVICES, DEVICES);
    node_tensor(server, "g", "t", ST_DTYPE_UINT8, BYTES);
    node_group(server, "h", 2, 2);
    node_tensor(server, "h", "u", ST_DTYPE_UINT8, BYTES);
    memset(data, 3, sizeof(data));
    mend(server);
    struct st_error err = {0};
    assert_int_equal(sweep_one_shot(server, &err), ST_OK); /* the group keeps its scratch now */
    uint64_t owned = owned_bytes(server);
    for (size_t row = 0; row < COUNT(sweeps); row++) {
        assert_true(sweep(server, row) > 0);
    }
    assert_int_equal(owned_bytes(server), owned);
    assert_int_equal(server_unfinished(server), 0);
    node_stop(server);
}

/** A body that failed is shown as failed a moment before its shard is. */
static enum server_contents_state settled_contents(struct server *server, uint32_t rank)
{
    enum server_contents_state contents = SERVER_CONTENTS_WRITING;
    for (unsigned i = 0; i < 10000 && contents == SERVER_CONTENTS_WRITING; i++) {
        contents = node_contents(server, "t", rank).state;
        usleep(100);
    }
    return contents;
}

/** One piece only: nothing else of the body is on its way. */
static enum st_status put_little(struct server *server, struct st_error *err)
{
    struct server_transfer_request request = node_transfer_request("t", 1);
    request.has_range = true;
    request.bytes = 100;
    return node_put_request(server, &request, data, request.bytes, err);
}

static void a_write_of_which_nothing_was_queued_leaves_the_contents(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", DEVICES, DEVICES);
    node_tensor(server, "g", "t", ST_DTYPE_UINT8, BYTES);
    node_group(server, "h", 2, 2);
    node_tensor(server, "h", "u", ST_DTYPE_UINT8, BYTES);
    for (size_t row = 0; row < COUNT(sweeps); row++) {
        struct st_error err = {0};
        mend(server); /* and make the buffers and the scratch that are kept */
        enum st_status (*run)(struct server *, struct st_error *) =
            sweeps[row].run == sweep_put ? put_little : sweeps[row].run;
        assert_int_equal(run(server, &err), ST_OK);
        gpu_faults_arm_any(1, CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(run(server, &err), ST_INTERNAL);
        assert_true(gpu_faults_disarm());
        for (uint32_t rank = 0; rank < DEVICES; rank++) {
            if (settled_contents(server, rank) != SERVER_CONTENTS_VALID) {
                fail_msg("%s: shard %u is not as before", sweeps[row].name, rank);
            }
        }
    }
    node_stop(server);
}

static void a_failed_write_leaves_the_shard_undefined(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", DEVICES, DEVICES);
    node_tensor(server, "g", "t", ST_DTYPE_UINT8, BYTES);
    struct st_error err = {0};
    gpu_faults_arm(GPU_CALL_cuMemcpyHtoDAsync, 2, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sweep_put(server, &err), ST_INTERNAL);
    assert_true(gpu_faults_disarm());
    assert_int_equal(node_contents(server, "t", 1).state, SERVER_CONTENTS_UNDEFINED);
    assert_int_equal(node_contents(server, "t", 0).state, SERVER_CONTENTS_VALID);
    gpu_faults_arm(GPU_CALL_cuMemcpyDtoHAsync, 2, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(node_get(server, "t", 0, back, BYTES, &err), ST_INTERNAL);
    assert_true(gpu_faults_disarm());
    assert_int_equal(node_contents(server, "t", 0).state, SERVER_CONTENTS_VALID);
    node_stop(server);
}

/** Reductions are refused; what the driver's own copies can do works. */
static void without_kernels_a_reduction_names_the_driver_that_it_needs(void **state)
{
    (void)state;
    struct st_error err = {0};
    gpu_faults_arm(GPU_CALL_cuModuleLoadData, 2, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    assert_true(gpu_faults_disarm());
    node_group(server, "g", DEVICES, DEVICES);
    node_tensor(server, "g", "t", ST_DTYPE_FLOAT32, 1024);
    struct server_collective_request request =
        node_collective_request("all_reduce", "t", NULL, ST_OP_SUM, 0);
    struct server_operation *operation = NULL;
    assert_int_equal(server_collective(server, &node_caller, &request, &operation, &err),
                     ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_NO_KERNELS);
    assert_non_null(strstr(err.message, "device 1"));
    assert_non_null(strstr(err.message, "need a driver of CUDA "));
    request = node_collective_request("broadcast", "t", NULL, ST_OP_SUM, 0);
    node_collective(server, &request);
    node_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failing_driver_call_is_reported_and_mended),
        cmocka_unit_test(a_write_of_which_nothing_was_queued_leaves_the_contents),
        cmocka_unit_test(a_failed_write_leaves_the_shard_undefined),
        cmocka_unit_test(without_kernels_a_reduction_names_the_driver_that_it_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
