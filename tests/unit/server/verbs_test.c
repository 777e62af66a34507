#include "tests/unit/server/node_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/driver/driver.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 2u
#define DEVICE_BYTES (128ull << 20)
#define SHORT_MS 50u

static int start(void **state)
{
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", 2, DEVICES);
    node_group(server, "h", 3, DEVICES);
    *state = server;
    return 0;
}

static int stop(void **state)
{
    node_stop(*state);
    return 0;
}

/* ---------------------------------------------------------------- fill */

struct fill_case {
    enum st_dtype dtype;
    enum server_number number;
    double double_value;
    int64_t int64_value;
    uint64_t uint64_value;
    bool fits;
    uint64_t bits;
};

#define OF_DOUBLE(value) SERVER_NUMBER_DOUBLE, (value), 0, 0
#define OF_INT64(value) SERVER_NUMBER_INT64, 0, (value), 0
#define OF_UINT64(value) SERVER_NUMBER_UINT64, 0, 0, (value)
#define OF_BOOL(value) SERVER_NUMBER_BOOL, 0, 0, (value)

static const struct fill_case fill_cases[] = {
    {ST_DTYPE_UINT8, OF_INT64(255), true, 255},
    {ST_DTYPE_UINT8, OF_INT64(256), false, 0},
    {ST_DTYPE_UINT8, OF_INT64(-1), false, 0},
    {ST_DTYPE_INT8, OF_INT64(-128), true, 0x80},
    {ST_DTYPE_INT8, OF_INT64(-129), false, 0},
    {ST_DTYPE_INT64, OF_UINT64(UINT64_MAX), false, 0},
    {ST_DTYPE_INT64, OF_INT64(INT64_MIN), true, 0x8000000000000000u},
    {ST_DTYPE_UINT64, OF_UINT64(UINT64_MAX), true, UINT64_MAX},
    {ST_DTYPE_INT32, OF_DOUBLE(1.5), false, 0},
    {ST_DTYPE_INT32, OF_DOUBLE(NAN), false, 0},
    {ST_DTYPE_BOOL, OF_BOOL(1), true, 1},
    {ST_DTYPE_BOOL, OF_BOOL(0), true, 0},
    {ST_DTYPE_BOOL, OF_INT64(1), true, 1},
    {ST_DTYPE_BOOL, OF_INT64(2), false, 0},
    {ST_DTYPE_INT8, OF_BOOL(1), false, 0},
    {ST_DTYPE_FLOAT32, OF_BOOL(1), false, 0},
    {ST_DTYPE_FLOAT32, OF_DOUBLE(0.1), true, 0x3dcccccd},
    {ST_DTYPE_FLOAT32, OF_INT64(16777217), true, 0x4b800000},
    {ST_DTYPE_FLOAT32, OF_DOUBLE(1e39), false, 0},
    {ST_DTYPE_FLOAT32, OF_DOUBLE(INFINITY), true, 0x7f800000},
    {ST_DTYPE_FLOAT16, OF_DOUBLE(65504), true, 0x7bff},
    {ST_DTYPE_FLOAT16, OF_DOUBLE(65520), false, 0},
    {ST_DTYPE_BFLOAT16, OF_DOUBLE(-2), true, 0xc000},
    {ST_DTYPE_FLOAT64, OF_DOUBLE(1e300), true, 0x7e37e43c8800759c},
    {ST_DTYPE_FLOAT8_E4M3FN, OF_DOUBLE(448), true, 0x7e},
    {ST_DTYPE_FLOAT8_E4M3FN, OF_DOUBLE(500), false, 0},
    {ST_DTYPE_FLOAT8_E4M3FN, OF_DOUBLE(INFINITY), false, 0},
    {ST_DTYPE_FLOAT8_E5M2, OF_DOUBLE(-INFINITY), true, 0xfc},
};

static struct server_fill_request fill_request(const char *tensor, enum gpu_fill_pattern pattern)
{
    struct server_fill_request request = {
        .pattern = pattern, .rank = -1, .expected_generation = SERVER_GENERATION_ANY};
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    return request;
}

static enum st_status fill(struct server *server, const struct server_fill_request *request,
                           struct st_error *err)
{
    struct server_operation *operation = NULL;
    enum st_status status = server_fill(server, &node_caller, request, &operation, err);
    return status == ST_OK ? node_finish_status(operation, err) : status;
}

static void a_value_is_filled_in_or_refused(void **state)
{
    for (size_t i = 0; i < COUNT(fill_cases); i++) {
        const struct fill_case *row = &fill_cases[i];
        uint32_t size = st_dtype_info(row->dtype)->size_bytes;
        struct server_fill_request request = fill_request("t", GPU_FILL_VALUE);
        request.number = row->number;
        request.double_value = row->double_value;
        request.int64_value = row->int64_value;
        request.uint64_value = row->uint64_value;
        node_tensor(*state, "g", "t", row->dtype, 5);
        unsigned char back[5 * 8];
        struct st_error err = {0};
        enum st_status status = fill(*state, &request, &err);
        if ((status == ST_OK) != row->fits) {
            fail_msg("row %zu: %s", i, err.message);
        }
        if (!row->fits) {
            assert_int_equal(err.reason, ST_REASON_OUT_OF_RANGE_VALUE);
            assert_string_equal(err.field, "value");
        }
        for (uint32_t rank = 0; rank < 2; rank++) {
            assert_int_equal(node_get(*state, "t", rank, back, 5 * size, &err), ST_OK);
            assert_memory_equal(back, &row->bits, size);
            assert_memory_equal(back + 4 * size, &row->bits, size);
        }
        node_tensor_delete(*state, "t");
    }
}

static void rank_and_iota_wrap(void **state)
{
    unsigned char back[300];
    struct st_error err = {0};
    node_tensor(*state, "h", "t", ST_DTYPE_UINT8, sizeof(back));
    struct server_fill_request request = fill_request("t", GPU_FILL_IOTA);
    assert_int_equal(fill(*state, &request, &err), ST_OK);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(node_get(*state, "t", rank, back, sizeof(back), &err), ST_OK);
        for (size_t i = 0; i < sizeof(back); i++) {
            assert_int_equal(back[i], i % 256);
        }
    }
    request = fill_request("t", GPU_FILL_RANK);
    assert_int_equal(fill(*state, &request, &err), ST_OK);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(node_get(*state, "t", rank, back, sizeof(back), &err), ST_OK);
        assert_int_equal(back[0], rank);
        assert_int_equal(back[sizeof(back) - 1], rank);
    }
}

static void one_rank_is_filled_alone(void **state)
{
    unsigned char back[8];
    struct st_error err = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(back));
    struct server_fill_request request = fill_request("t", GPU_FILL_VALUE);
    request.number = SERVER_NUMBER_INT64;
    request.int64_value = 7;
    request.rank = 1;
    assert_int_equal(fill(*state, &request, &err), ST_OK);
    assert_int_equal(node_get(*state, "t", 0, back, sizeof(back), &err), ST_OK);
    assert_int_equal(back[0], 0);
    assert_int_equal(node_get(*state, "t", 1, back, sizeof(back), &err), ST_OK);
    assert_int_equal(back[7], 7);
    assert_int_equal(node_contents(*state, "t", 0).generation, 0);
    assert_int_equal(node_contents(*state, "t", 1).generation, 1);
    request.rank = 2;
    assert_int_equal(fill(*state, &request, &err), ST_OUT_OF_RANGE);
    assert_int_equal(err.reason, ST_REASON_RANK_OUT_OF_RANGE);
    request.rank = 1;
    request.expected_generation = 0;
    assert_int_equal(fill(*state, &request, &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_GENERATION_MISMATCH);
    request.expected_generation = 1;
    assert_int_equal(fill(*state, &request, &err), ST_OK);
}

static void nothing_is_filled_well(void **state)
{
    struct st_error err = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_FLOAT32, 0);
    struct server_fill_request request = fill_request("t", GPU_FILL_IOTA);
    assert_int_equal(fill(*state, &request, &err), ST_OK);
    assert_int_equal(node_contents(*state, "t", 0).generation, 1);
}

/* ---------------------------------------------------------------- copy */

struct copy_case {
    const char *name, *source, *destination;
    uint32_t src_rank, dst_rank;
    uint64_t src_offset, dst_offset;
    bool has_bytes;
    uint64_t bytes;
    enum st_reason reason;
};

/* "a" and "b" are 64 bytes in group g (2 ranks), "c" is 32 bytes in group h (3 ranks). */
static const struct copy_case copy_cases[] = {
    {"a shard to another rank", "a", "", 0, 1, 0, 0, false, 0, ST_REASON_NONE},
    {"a shard to another tensor", "a", "b", 1, 0, 0, 0, false, 0, ST_REASON_NONE},
    {"between groups", "a", "c", 1, 2, 32, 0, false, 0, ST_REASON_NONE},
    {"a piece", "a", "b", 0, 0, 3, 7, true, 11, ST_REASON_NONE},
    {"within a shard", "a", "a", 0, 0, 0, 32, true, 32, ST_REASON_NONE},
    {"onto itself", "a", "a", 0, 0, 8, 8, true, 32, ST_REASON_NONE},
    {"nothing", "a", "b", 0, 0, 64, 64, true, 0, ST_REASON_NONE},
    {"all behind the end is nothing", "a", "b", 0, 0, 64, 0, false, 0, ST_REASON_NONE},
    {"an overlap", "a", "a", 0, 0, 0, 1, true, 32, ST_REASON_OVERLAP},
    {"an overlap the other way", "a", "", 1, 1, 31, 0, true, 32, ST_REASON_OVERLAP},
    {"too much for the destination", "a", "c", 0, 0, 0, 0, false, 0, ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"behind the source", "a", "b", 0, 0, 65, 0, false, 0, ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"more than the source", "c", "a", 0, 0, 0, 0, true, 33, ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"more than there is", "a", "b", 0, 0, 1, 0, true, UINT64_MAX, ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"behind the destination", "a", "b", 0, 0, 0, UINT64_MAX, true, 1,
     ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"from no rank", "a", "b", 2, 0, 0, 0, false, 0, ST_REASON_RANK_OUT_OF_RANGE},
    {"to no rank", "a", "c", 0, 3, 32, 0, false, 0, ST_REASON_RANK_OUT_OF_RANGE},
    {"to no tensor", "a", "nothing", 0, 0, 0, 0, false, 0, ST_REASON_TENSOR_NOT_FOUND},
};

/** Different bytes in every shard. */
static void put_marks(struct server *server, const char *tensor, uint32_t ranks, uint64_t bytes)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        unsigned char data[64];
        struct st_error err = {0};
        for (size_t i = 0; i < bytes; i++) {
            data[i] = (unsigned char)(i + 64 * rank + 13u * (unsigned char)tensor[0]);
        }
        assert_int_equal(node_put(server, tensor, rank, data, bytes, &err), ST_OK);
    }
}

static uint64_t bytes_of(const char *tensor)
{
    return tensor[0] == 'c' ? 32 : 64;
}

static void check_copied(struct server *server, const struct copy_case *row)
{
    const char *destination = row->destination[0] ? row->destination : row->source;
    uint64_t bytes = row->has_bytes ? row->bytes : bytes_of(row->source) - row->src_offset;
    unsigned char from[64], before[64], after[64];
    struct server_copy_request request = {.src_rank = row->src_rank,
                                          .dst_rank = row->dst_rank,
                                          .src_offset = row->src_offset,
                                          .dst_offset = row->dst_offset,
                                          .has_bytes = row->has_bytes,
                                          .bytes = row->bytes,
                                          .expected_generation = SERVER_GENERATION_ANY};
    snprintf(request.tensor, sizeof(request.tensor), "%s", row->source);
    snprintf(request.dst_tensor, sizeof(request.dst_tensor), "%s", row->destination);
    struct st_error err = {0};
    bool good = row->reason == ST_REASON_NONE;
    if (good) {
        node_get(server, row->source, row->src_rank, from, bytes_of(row->source), &err);
        node_get(server, destination, row->dst_rank, before, bytes_of(destination), &err);
    }
    struct server_operation *operation = NULL;
    enum st_status status = server_copy(server, &node_caller, &request, &operation, &err);
    if (status == ST_OK) {
        status = node_finish_status(operation, &err);
    }
    if ((status == ST_OK) != good || err.reason != row->reason) {
        fail_msg("%s: %s", row->name, err.message);
    }
    if (good) {
        memcpy(before + row->dst_offset, from + row->src_offset, bytes);
        node_get(server, destination, row->dst_rank, after, bytes_of(destination), &err);
        assert_memory_equal(after, before, bytes_of(destination));
    }
}

static void bytes_are_copied_between_shards_tensors_and_groups(void **state)
{
    node_tensor(*state, "g", "a", ST_DTYPE_UINT8, 64);
    node_tensor(*state, "g", "b", ST_DTYPE_FLOAT32, 16);
    node_tensor(*state, "h", "c", ST_DTYPE_INT16, 16);
    for (size_t i = 0; i < COUNT(copy_cases); i++) {
        put_marks(*state, "a", 2, 64);
        put_marks(*state, "b", 2, 64);
        put_marks(*state, "c", 3, 32);
        check_copied(*state, &copy_cases[i]);
    }
}

/** A shard whose upload was given up half-way. */
/** A group of one rank on a device, with a tensor of the same name. */
static void make_alone(struct server *server, const char *id, uint32_t device, uint64_t bytes)
{
    struct server_group_create request = {.world_size = 1, .devices = {device}};
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    snprintf(request.id, sizeof(request.id), "%s", id);
    assert_int_equal(server_group_create(server, &node_caller, &request, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    node_tensor(server, id, id, ST_DTYPE_UINT8, bytes);
}

static void a_copy_between_groups_of_two_devices_does_not_pass_through_the_host(void **state)
{
    enum { BYTES = 3 << 20 };
    struct st_error err = {0};
    unsigned char *data = malloc(BYTES), *found = malloc(BYTES);
    make_alone(*state, "a", 0, BYTES);
    make_alone(*state, "b", 1, BYTES);
    for (int round = 0; round < 2; round++) { /* the second time access is there */
        memset(data, round + 1, BYTES);
        assert_int_equal(node_put(*state, "a", 0, data, BYTES, &err), ST_OK);
        struct server_copy_request request = {
            .tensor = "a", .dst_tensor = "b", .expected_generation = SERVER_GENERATION_ANY};
        struct server_operation *operation = NULL;
        gpu_faults_arm(GPU_CALL_cuMemcpyDtoHAsync, 1, CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(server_copy(*state, &node_caller, &request, &operation, &err), ST_OK);
        assert_int_equal(node_finish_status(operation, &err), ST_OK);
        assert_false(gpu_faults_disarm());
        assert_int_equal(node_get(*state, "b", 0, found, BYTES, &err), ST_OK);
        assert_memory_equal(found, data, BYTES);
    }
    free(data);
    free(found);
}

static void a_copy_that_is_refused_access_goes_through_the_host(void **state)
{
    enum { BYTES = 3 << 20 };
    struct st_error err = {0};
    make_alone(*state, "a", 0, BYTES);
    make_alone(*state, "b", 1, BYTES);
    struct server_copy_request request = {
        .tensor = "a", .dst_tensor = "b", .expected_generation = SERVER_GENERATION_ANY};
    struct server_operation *operation = NULL;
    gpu_faults_arm(GPU_CALL_cuMemSetAccess, 1, CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(server_copy(*state, &node_caller, &request, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    assert_true(gpu_faults_disarm());
    assert_int_equal(node_contents(*state, "b", 0).generation, 1);
}

static void undefine(struct server *server, const char *tensor, uint32_t rank)
{
    struct server_transfer_request request = node_transfer_request(tensor, rank);
    struct node_transfer upload;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(server, &request, &upload, &err), ST_OK);
    assert_true(node_upload_bytes(&upload, "a", 1, &err));
    node_transfer_close(&upload);
    assert_int_equal(node_contents(server, tensor, rank).state, SERVER_CONTENTS_UNDEFINED);
}

static enum st_status copy(struct server *server, uint32_t src_rank, uint32_t dst_rank,
                           uint64_t bytes, struct st_error *err)
{
    struct server_copy_request request = {.tensor = "a",
                                          .src_rank = src_rank,
                                          .dst_rank = dst_rank,
                                          .has_bytes = true,
                                          .bytes = bytes,
                                          .expected_generation = SERVER_GENERATION_ANY};
    struct server_operation *operation = NULL;
    enum st_status status = server_copy(server, &node_caller, &request, &operation, err);
    return status == ST_OK ? node_finish_status(operation, err) : status;
}

static void only_a_full_copy_makes_an_undefined_shard_valid(void **state)
{
    struct st_error err = {0};
    node_tensor(*state, "g", "a", ST_DTYPE_UINT8, 64);
    undefine(*state, "a", 1);
    assert_int_equal(copy(*state, 1, 0, 64, &err), ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_CONTENTS_UNDEFINED);
    assert_int_equal(copy(*state, 0, 1, 63, &err), ST_OK);
    assert_int_equal(node_contents(*state, "a", 1).state, SERVER_CONTENTS_UNDEFINED);
    assert_int_equal(copy(*state, 0, 1, 64, &err), ST_OK);
    assert_int_equal(node_contents(*state, "a", 1).state, SERVER_CONTENTS_VALID);
}

/* ---------------------------------------------------------------- checksum */

static struct server_operation *submit_checksum(struct server *server, const char *tensor,
                                                enum server_checksum_algorithm algorithm)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    if (server_checksum(server, &node_caller, tensor, algorithm, &operation, &err) != ST_OK) {
        fail_msg("checksum: %s", err.message);
    }
    return operation;
}

static void checksums_are_those_of_the_bytes(void **state)
{
    static const char *const hex[] = {
        [SERVER_CHECKSUM_CRC32C] = "e3069283",
        [SERVER_CHECKSUM_SHA256] =
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
    };
    struct st_error err = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 9);
    assert_int_equal(node_put(*state, "t", 1, "123456789", 9, &err), ST_OK);
    for (size_t i = 0; i < COUNT(hex); i++) {
        struct server_operation_view *view =
            node_finish(submit_checksum(*state, "t", (enum server_checksum_algorithm)i));
        assert_int_equal(view->state, SERVER_OPERATION_SUCCEEDED);
        assert_int_equal(view->result.kind, SERVER_RESULT_CHECKSUMS);
        assert_int_equal(view->result.count, 2);
        assert_int_equal(view->result.checksums[1].rank, 1);
        assert_string_equal(view->result.checksums[1].hex, hex[i]);
        assert_string_not_equal(view->result.checksums[0].hex, hex[i]);
        assert_int_equal(view->bytes_total, 18);
        assert_int_equal(view->bytes_done, 18);
        server_snapshot_release(&view->base);
    }
}

static void a_large_shard_and_an_empty_one_have_checksums(void **state)
{
    /* The value comes from a bytewise table of the polynomial 0x82f63b78. */
    node_tensor(*state, "g", "large", ST_DTYPE_UINT8, 5 * ST_STAGING_BYTES + 1);
    node_tensor(*state, "g", "empty", ST_DTYPE_UINT8, 0);
    struct server_operation_view *view =
        node_finish(submit_checksum(*state, "large", SERVER_CHECKSUM_CRC32C));
    assert_int_equal(view->state, SERVER_OPERATION_SUCCEEDED);
    assert_string_equal(view->result.checksums[0].hex, "f2f3951f");
    server_snapshot_release(&view->base);
    view = node_finish(submit_checksum(*state, "empty", SERVER_CHECKSUM_CRC32C));
    assert_string_equal(view->result.checksums[1].hex, "00000000");
    server_snapshot_release(&view->base);
}

static void a_running_checksum_can_be_cancelled(void **state)
{
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 48ull << 20);
    struct server_operation *operation = submit_checksum(*state, "t", SERVER_CHECKSUM_SHA256);
    struct st_error err = {0};
    enum st_status cancelled = server_operation_cancel(operation, &node_caller, &err);
    struct server_operation_view *view = node_finish(operation);
    if (cancelled == ST_OK) {
        assert_int_equal(view->state, SERVER_OPERATION_CANCELLED);
        assert_int_equal(view->error.reason, ST_REASON_OPERATION_CANCELLED);
        assert_int_equal(view->result.kind, SERVER_RESULT_NONE);
    }
    server_snapshot_release(&view->base);
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_VALID);
}

/* ---------------------------------------------------------------- barrier */

static void a_barrier_waits_for_the_operations_before_it_and_holds_up_those_behind(void **state)
{
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 64);
    node_tensor(*state, "g", "u", ST_DTYPE_UINT8, 64);
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer download;
    struct st_error err = {0};
    struct server_operation *fills[2] = {NULL}, *barrier = NULL;
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    struct server_fill_request fill_t = fill_request("t", GPU_FILL_RANK);
    struct server_fill_request fill_u = fill_request("u", GPU_FILL_RANK);
    assert_int_equal(server_fill(*state, &node_caller, &fill_t, &fills[0], &err), ST_OK);
    assert_int_equal(server_group_barrier(*state, &node_caller, "g", &barrier, &err), ST_OK);
    assert_int_equal(server_fill(*state, &node_caller, &fill_u, &fills[1], &err), ST_OK);
    usleep(SHORT_MS * 1000);
    assert_int_equal(node_operation_state(barrier), SERVER_OPERATION_QUEUED);
    assert_int_equal(node_operation_state(fills[1]), SERVER_OPERATION_QUEUED);
    node_transfer_close(&download);
    assert_int_equal(node_finish_status(fills[1], &err), ST_OK);
    assert_int_equal(node_operation_state(barrier), SERVER_OPERATION_SUCCEEDED);
    assert_int_equal(node_finish_status(barrier, &err), ST_OK);
    assert_int_equal(node_finish_status(fills[0], &err), ST_OK);
    assert_int_equal(server_group_barrier(*state, &node_caller, "none", &barrier, &err),
                     ST_NOT_FOUND);
}

/* ---------------------------------------------------------------- progress */

/** What moved, on all ranks together; h has three ranks, small 8 bytes a shard, large 24. */
static const struct progress_case {
    const char *verb; /**< A collective; NULL: a copy or a fill. */
    const char *input, *output;
    int32_t fill_rank;
    uint64_t copy_bytes; /**< 0: a fill. */
    uint64_t total;
} progress_cases[] = {
    {"all_reduce", "large", "", 0, 0, 72},
    {"all_gather", "small", "large", 0, 0, 72},
    {"gather", "small", "large", 0, 0, 24},
    {"reduce_scatter", "large", "small", 0, 0, 24},
    {"reduce_scatter", "large", "", 0, 0, 24},
    {"scatter", "large", "small", 0, 0, 24},
    {"broadcast", "large", "large2", 0, 0, 72},
    {"reduce", "large", "large2", 0, 0, 24},
    {"all_to_all", "large", "large2", 0, 0, 72},
    {NULL, "large", "large2", 0, 5, 5},
    {NULL, "large", NULL, -1, 0, 72},
    {NULL, "large", NULL, 1, 0, 24},
    {"all_reduce", "empty", "", 0, 0, 0},
};

static struct server_operation *progress_submit(struct server *server,
                                                const struct progress_case *row)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    enum st_status status = ST_OK;
    if (row->verb) {
        struct server_collective_request request =
            node_collective_request(row->verb, row->input, row->output, ST_OP_SUM, 0);
        status = server_collective(server, &node_caller, &request, &operation, &err);
    } else if (row->copy_bytes) {
        struct server_copy_request request = {.dst_rank = 1,
                                              .has_bytes = true,
                                              .bytes = row->copy_bytes,
                                              .expected_generation = SERVER_GENERATION_ANY};
        snprintf(request.tensor, sizeof(request.tensor), "%s", row->input);
        snprintf(request.dst_tensor, sizeof(request.dst_tensor), "%s", row->output);
        status = server_copy(server, &node_caller, &request, &operation, &err);
    } else {
        struct server_fill_request request = fill_request(row->input, GPU_FILL_RANK);
        request.rank = row->fill_rank;
        status = server_fill(server, &node_caller, &request, &operation, &err);
    }
    if (status != ST_OK) {
        fail_msg("%s: %s", row->verb ? row->verb : "copy or fill", err.message);
    }
    return operation;
}

static void what_has_ended_well_shows_all_bytes_of_all_ranks(void **state)
{
    node_tensor(*state, "h", "small", ST_DTYPE_UINT8, 8);
    node_tensor(*state, "h", "large", ST_DTYPE_UINT8, 24);
    node_tensor(*state, "h", "large2", ST_DTYPE_UINT8, 24);
    node_tensor(*state, "h", "empty", ST_DTYPE_UINT8, 0);
    for (size_t i = 0; i < COUNT(progress_cases); i++) {
        const struct progress_case *row = &progress_cases[i];
        struct server_operation_view *view = node_finish(progress_submit(*state, row));
        assert_int_equal(view->state, SERVER_OPERATION_SUCCEEDED);
        if (view->bytes_total != row->total || view->bytes_done != row->total) {
            fail_msg("row %zu: %llu of %llu, not %llu", i, (unsigned long long)view->bytes_done,
                     (unsigned long long)view->bytes_total, (unsigned long long)row->total);
        }
        server_snapshot_release(&view->base);
    }
}

static void what_is_queued_or_cancelled_has_moved_nothing(void **state)
{
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 64);
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct server_fill_request rank = fill_request("t", GPU_FILL_RANK);
    struct node_transfer download;
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    assert_int_equal(server_fill(*state, &node_caller, &rank, &operation, &err), ST_OK);
    for (unsigned i = 0; i < 2; i++) {
        struct server_operation_view *view = server_operation_view(operation);
        assert_int_equal(view->state, i ? SERVER_OPERATION_CANCELLED : SERVER_OPERATION_QUEUED);
        assert_int_equal(view->bytes_done, 0);
        assert_int_equal(view->bytes_total, 128);
        server_snapshot_release(&view->base);
        assert_int_equal(server_operation_cancel(operation, &node_caller, &err),
                         i ? ST_FAILED_PRECONDITION : ST_OK);
    }
    node_transfer_close(&download);
    server_operation_release(operation);
}

/* ---------------------------------------------------------------- draining */

static void a_draining_node_reads_and_does_not_write(void **state)
{
    unsigned char back[8];
    struct st_error err = {0};
    struct server_operation *operation = NULL;
    struct node_transfer upload;
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(back));
    server_drain(*state);
    struct server_fill_request request = fill_request("t", GPU_FILL_IOTA);
    assert_int_equal(fill(*state, &request, &err), ST_UNAVAILABLE);
    assert_int_equal(err.reason, ST_REASON_NODE_DRAINING);
    assert_int_equal(server_group_barrier(*state, &node_caller, "g", &operation, &err),
                     ST_UNAVAILABLE);
    struct server_transfer_request put = node_transfer_request("t", 0);
    assert_int_equal(node_upload_open(*state, &put, &upload, &err), ST_UNAVAILABLE);
    assert_int_equal(node_get(*state, "t", 0, back, sizeof(back), &err), ST_OK);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(a_value_is_filled_in_or_refused),
        T(rank_and_iota_wrap),
        T(one_rank_is_filled_alone),
        T(nothing_is_filled_well),
        T(bytes_are_copied_between_shards_tensors_and_groups),
        T(a_copy_between_groups_of_two_devices_does_not_pass_through_the_host),
        T(a_copy_that_is_refused_access_goes_through_the_host),
        T(only_a_full_copy_makes_an_undefined_shard_valid),
        T(checksums_are_those_of_the_bytes),
        T(a_large_shard_and_an_empty_one_have_checksums),
        T(a_running_checksum_can_be_cancelled),
        T(a_barrier_waits_for_the_operations_before_it_and_holds_up_those_behind),
        T(what_has_ended_well_shows_all_bytes_of_all_ranks),
        T(what_is_queued_or_cancelled_has_moved_nothing),
        T(a_draining_node_reads_and_does_not_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
