#include "tests/unit/server/node_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 2u
#define DEVICE_BYTES (64ull << 20)
#define PATIENCE_MS 30000u
#define SHORT_MS 50u

/** Every test starts from a node with a group of two ranks. */
static int start(void **state)
{
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", 2, DEVICES);
    *state = server;
    return 0;
}

static int stop(void **state)
{
    node_stop(*state);
    return 0;
}

static unsigned char *pattern(uint64_t bytes, unsigned seed)
{
    unsigned char *data = malloc(bytes + 1);
    assert_non_null(data);
    for (uint64_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)((i * 2654435761u) >> 13) ^ (unsigned char)seed;
    }
    return data;
}

static struct server_operation *submit_fill(struct server *server, const char *tensor,
                                            int64_t value)
{
    struct server_fill_request request = {.pattern = GPU_FILL_VALUE,
                                          .number = SERVER_NUMBER_INT64,
                                          .int64_value = value,
                                          .rank = -1,
                                          .expected_generation = SERVER_GENERATION_ANY};
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    if (server_fill(server, &node_caller, &request, &operation, &err) != ST_OK) {
        fail_msg("fill: %s", err.message);
    }
    return operation;
}

static enum st_reason refuse_fill(struct server *server, const char *tensor)
{
    struct server_fill_request request = {
        .pattern = GPU_FILL_IOTA, .rank = -1, .expected_generation = SERVER_GENERATION_ANY};
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_not_equal(server_fill(server, &node_caller, &request, &operation, &err), ST_OK);
    return err.reason;
}

static void what_was_put_is_what_is_got(void **state)
{
    static const uint64_t sizes[] = {0,
                                     1,
                                     77,
                                     ST_STAGING_BYTES - 1,
                                     ST_STAGING_BYTES,
                                     ST_STAGING_BYTES + 1,
                                     5 * ST_STAGING_BYTES + 4097};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char *data = pattern(sizes[i], (unsigned)i);
        unsigned char *back = malloc(sizes[i] + 1);
        struct st_error err = {0};
        assert_non_null(back);
        node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizes[i]);
        assert_int_equal(node_put(*state, "t", 1, data, sizes[i], &err), ST_OK);
        assert_int_equal(node_get(*state, "t", 1, back, sizes[i], &err), ST_OK);
        assert_memory_equal(back, data, sizes[i]);
        assert_int_equal(node_contents(*state, "t", 1).generation, 1);
        assert_int_equal(node_contents(*state, "t", 0).generation, 0);
        assert_int_equal(node_get(*state, "t", 0, back, sizes[i], &err), ST_OK);
        for (uint64_t k = 0; k < sizes[i]; k++) {
            assert_int_equal(back[k], 0);
        }
        node_tensor_delete(*state, "t");
        free(data);
        free(back);
    }
}

static void bytes_may_come_in_pieces_of_any_size(void **state)
{
    static const uint64_t pieces[] = {1, 3, 4096, 65537, 700001};
    uint64_t bytes = 2 * ST_STAGING_BYTES + 12345;
    unsigned char *data = pattern(bytes, 1);
    unsigned char *back = calloc(1, bytes);
    assert_non_null(back);
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, bytes);
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer transfer;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(*state, &request, &transfer, &err), ST_OK);
    for (uint64_t sent = 0, i = 0; sent < bytes; i++) {
        uint64_t piece = pieces[i % COUNT(pieces)];
        piece = piece < bytes - sent ? piece : bytes - sent;
        assert_true(node_upload_bytes(&transfer, data + sent, piece, &err));
        sent += piece;
    }
    server_upload_finish(transfer.transfer);
    assert_int_equal(node_transfer_wait(&transfer, PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
    assert_int_equal(server_transfer_generation(transfer.transfer), 1);
    node_transfer_close(&transfer);

    assert_int_equal(node_download_open(*state, &request, &transfer, &err), ST_OK);
    for (uint64_t got = 0, i = 2; got < bytes; i++) {
        uint64_t piece = pieces[i % COUNT(pieces)];
        piece = piece < bytes - got ? piece : bytes - got;
        assert_true(node_download_bytes(&transfer, back + got, piece, &err));
        got += piece;
    }
    assert_int_equal(node_transfer_wait(&transfer, PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
    assert_int_equal(server_transfer_generation(transfer.transfer), 1);
    node_transfer_close(&transfer);
    assert_memory_equal(back, data, bytes);
    free(data);
    free(back);
}

static void a_range_changes_its_bytes_only(void **state)
{
    unsigned char data[64], back[64];
    memset(data, 7, sizeof(data));
    struct st_error err = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    struct server_transfer_request request = node_transfer_request("t", 0);
    request.has_range = true;
    request.offset = 10;
    request.bytes = 20;
    assert_int_equal(node_put_request(*state, &request, data, 20, &err), ST_OK);
    assert_int_equal(node_get(*state, "t", 0, back, sizeof(back), &err), ST_OK);
    for (size_t i = 0; i < sizeof(back); i++) {
        assert_int_equal(back[i], i >= 10 && i < 30 ? 7 : 0);
    }
}

struct open_case {
    const char *name, *tensor;
    uint32_t rank;
    bool has_range, logical;
    uint64_t offset, bytes, expected_generation;
    enum st_reason reason;
};

static const struct open_case open_cases[] = {
    {"no such tensor", "none", 0, false, false, 0, 0, SERVER_GENERATION_ANY,
     ST_REASON_TENSOR_NOT_FOUND},
    {"no such rank", "t", 2, false, false, 0, 0, SERVER_GENERATION_ANY,
     ST_REASON_RANK_OUT_OF_RANGE},
    {"an offset behind the end", "t", 0, true, false, 65, 0, SERVER_GENERATION_ANY,
     ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"bytes behind the end", "t", 0, true, false, 60, 5, SERVER_GENERATION_ANY,
     ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"bytes that overflow", "t", 0, true, false, 8, UINT64_MAX, SERVER_GENERATION_ANY,
     ST_REASON_RANGE_OUT_OF_BOUNDS},
    {"half an element in logical order", "t", 0, true, true, 2, 4, SERVER_GENERATION_ANY,
     ST_REASON_INVALID_VALUE},
    {"another generation", "t", 0, false, false, 0, 0, 5, ST_REASON_GENERATION_MISMATCH},
};

static void an_upload_that_does_not_fit_is_not_opened(void **state)
{
    node_tensor(*state, "g", "t", ST_DTYPE_FLOAT32, 16);
    for (size_t i = 0; i < COUNT(open_cases); i++) {
        const struct open_case *row = &open_cases[i];
        struct server_transfer_request request = node_transfer_request(row->tensor, row->rank);
        request.has_range = row->has_range;
        request.logical = row->logical;
        request.offset = row->offset;
        request.bytes = row->bytes;
        request.expected_generation = row->expected_generation;
        struct node_transfer transfer;
        struct st_error err = {0};
        if (node_upload_open(*state, &request, &transfer, &err) == ST_OK ||
            err.reason != row->reason) {
            fail_msg("%s: %s", row->name, err.message);
        }
    }
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_VALID);
}

static void while_a_shard_is_uploaded_it_is_busy_and_others_are_not(void **state)
{
    unsigned char data[256] = {1}, back[256];
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    node_tensor(*state, "g", "other", ST_DTYPE_UINT8, sizeof(data));
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer upload, second;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_true(node_upload_bytes(&upload, data, 100, &err));
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_WRITING);

    assert_int_equal(node_upload_open(*state, &request, &second, &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_TENSOR_BUSY);
    assert_int_equal(node_download_open(*state, &request, &second, &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_TENSOR_BUSY);
    assert_int_equal(refuse_fill(*state, "t"), ST_REASON_TENSOR_BUSY);
    struct server_collective_request collective =
        node_collective_request("all_reduce", "other", "t", ST_OP_SUM, 0);
    struct server_operation *operation = NULL;
    assert_int_equal(server_collective(*state, &node_caller, &collective, &operation, &err),
                     ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_TENSOR_BUSY);

    assert_int_equal(node_put(*state, "t", 1, data, sizeof(data), &err), ST_OK);
    assert_int_equal(node_get(*state, "t", 1, back, sizeof(back), &err), ST_OK);
    struct server_operation *fill = submit_fill(*state, "other", 3);
    assert_int_equal(node_finish_status(fill, &err), ST_OK);

    assert_true(node_upload_bytes(&upload, data + 100, sizeof(data) - 100, &err));
    server_upload_finish(upload.transfer);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
    node_transfer_close(&upload);
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_VALID);
    assert_int_equal(node_get(*state, "t", 0, back, sizeof(back), &err), ST_OK);
    assert_memory_equal(back, data, sizeof(data));
}

/** Open, write half of it, close. */
static void abort_upload(struct server *server, const char *tensor, uint32_t rank, uint64_t bytes)
{
    unsigned char *data = pattern(bytes, 9);
    struct server_transfer_request request = node_transfer_request(tensor, rank);
    struct node_transfer upload;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(server, &request, &upload, &err), ST_OK);
    assert_true(node_upload_bytes(&upload, data, bytes / 2, &err));
    node_transfer_close(&upload);
    free(data);
}

/** The last piece of an aborted upload may still be on its way. */
static enum server_contents_state settled_contents(struct server *server, uint32_t rank)
{
    enum server_contents_state contents = SERVER_CONTENTS_WRITING;
    uint64_t deadline_ns = st_clock_now_ns() + PATIENCE_MS * ST_NS_PER_MS;
    while (contents == SERVER_CONTENTS_WRITING && st_clock_now_ns() < deadline_ns) {
        contents = node_contents(server, "t", rank).state;
    }
    return contents;
}

static void an_upload_that_is_cut_leaves_its_shard_undefined(void **state)
{
    static const uint64_t sizes[] = {100, 3 * ST_STAGING_BYTES};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char *data = pattern(sizes[i], 3);
        struct st_error err = {0};
        node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizes[i]);
        abort_upload(*state, "t", 0, sizes[i]);
        assert_int_equal(settled_contents(*state, 0), SERVER_CONTENTS_UNDEFINED);
        assert_int_equal(node_contents(*state, "t", 1).state, SERVER_CONTENTS_VALID);

        assert_int_equal(node_get(*state, "t", 0, data, sizes[i], &err), ST_FAILED_PRECONDITION);
        assert_int_equal(err.reason, ST_REASON_CONTENTS_UNDEFINED);
        struct server_collective_request collective =
            node_collective_request("all_reduce", "t", NULL, ST_OP_SUM, 0);
        struct server_operation *operation = NULL;
        assert_int_equal(server_collective(*state, &node_caller, &collective, &operation, &err),
                         ST_FAILED_PRECONDITION);
        assert_int_equal(err.reason, ST_REASON_CONTENTS_UNDEFINED);
        struct server_transfer_request request = node_transfer_request("t", 0);
        request.allow_undefined = true;
        struct node_transfer download;
        assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
        assert_true(node_download_bytes(&download, data, sizes[i], &err));
        node_transfer_close(&download);

        request.has_range = true;
        request.bytes = sizes[i] - 1;
        assert_int_equal(node_put_request(*state, &request, data, request.bytes, &err), ST_OK);
        assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_UNDEFINED);
        assert_int_equal(node_put(*state, "t", 0, data, sizes[i], &err), ST_OK);
        assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_VALID);
        node_tensor_delete(*state, "t");
        free(data);
    }
}

static void an_upload_that_never_moved_a_byte_changes_nothing(void **state)
{
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 64);
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer upload;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_WRITING);
    node_transfer_close(&upload);
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_VALID);
    assert_int_equal(node_contents(*state, "t", 0).generation, 0);
}

static void an_upload_that_breaks_off_leaves_another_generation(void **state)
{
    unsigned char data[64] = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct st_error err = {0};
    assert_int_equal(node_put(*state, "t", 0, data, sizeof(data), &err), ST_OK);
    abort_upload(*state, "t", 0, sizeof(data));
    assert_int_equal(settled_contents(*state, 0), SERVER_CONTENTS_UNDEFINED);
    request.expected_generation = 1; /* of bytes that are there no more */
    assert_int_equal(node_put_request(*state, &request, data, sizeof(data), &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_GENERATION_MISMATCH);
    assert_int_equal(node_contents(*state, "t", 0).generation, 2);
}

static void one_generation_counts_the_writes_of_all_shards(void **state)
{
    unsigned char data[64] = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct st_error err = {0};
    assert_int_equal(node_put(*state, "t", 1, data, sizeof(data), &err), ST_OK);
    request.expected_generation = 0; /* of this shard, but not of the tensor */
    assert_int_equal(node_put_request(*state, &request, data, sizeof(data), &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_GENERATION_MISMATCH);
    request.expected_generation = 1;
    assert_int_equal(node_put_request(*state, &request, data, sizeof(data), &err), ST_OK);
    assert_int_equal(node_contents(*state, "t", 0).generation, 2);
}

static void a_broadcast_over_an_undefined_shard_makes_it_valid(void **state)
{
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 64);
    abort_upload(*state, "t", 1, 64);
    assert_int_equal(settled_contents(*state, 1), SERVER_CONTENTS_UNDEFINED);
    struct server_collective_request scatter =
        node_collective_request("scatter", "t", NULL, ST_OP_SUM, 0);
    node_collective(*state, &scatter);
    assert_int_equal(node_contents(*state, "t", 1).state, SERVER_CONTENTS_UNDEFINED);
    struct server_collective_request broadcast =
        node_collective_request("broadcast", "t", NULL, ST_OP_SUM, 0);
    node_collective(*state, &broadcast);
    assert_int_equal(node_contents(*state, "t", 1).state, SERVER_CONTENTS_VALID);
}

static void an_upload_that_ends_short_fails(void **state)
{
    unsigned char data[64] = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer upload;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_true(node_upload_bytes(&upload, data, 63, &err));
    server_upload_finish(upload.transfer);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_FAILED);
    assert_int_equal(err.reason, ST_REASON_BODY_LENGTH_MISMATCH);
    node_transfer_close(&upload);
    assert_int_equal(settled_contents(*state, 0), SERVER_CONTENTS_UNDEFINED);
}

static void an_upload_takes_no_more_than_it_announced(void **state)
{
    unsigned char data[100] = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 64);
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer upload;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_int_equal(server_upload_write(upload.transfer, data, sizeof(data)), 64);
    server_upload_finish(upload.transfer);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
    node_transfer_close(&upload);
}

static void a_get_sees_the_writes_before_it(void **state)
{
    uint64_t bytes = 8 * ST_STAGING_BYTES;
    unsigned char *back = malloc(bytes);
    assert_non_null(back);
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, bytes);
    for (int value = 1; value <= 20; value++) {
        struct server_operation *fill = submit_fill(*state, "t", value);
        struct st_error err = {0};
        assert_int_equal(node_get(*state, "t", value % 2, back, bytes, &err), ST_OK);
        assert_int_equal(back[0], value);
        assert_int_equal(back[bytes / 2], value);
        assert_int_equal(back[bytes - 1], value);
        assert_int_equal(node_finish_status(fill, &err), ST_OK);
    }
    free(back);
}

static void a_write_waits_for_the_readers_before_it(void **state)
{
    unsigned char back[64];
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(back));
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer download, upload;
    struct st_error err = {0};
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    struct server_operation *fill = submit_fill(*state, "t", 5);
    usleep(SHORT_MS * 1000);
    assert_int_equal(node_operation_state(fill), SERVER_OPERATION_QUEUED);
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_int_equal(node_transfer_wait(&upload, SHORT_MS, &err), SERVER_TRANSFER_WAITING);
    assert_true(node_download_bytes(&download, back, sizeof(back), &err));
    for (size_t i = 0; i < sizeof(back); i++) {
        assert_int_equal(back[i], 0);
    }
    assert_int_equal(node_finish_status(fill, &err), ST_OK);
    memset(back, 9, sizeof(back));
    assert_true(node_upload_bytes(&upload, back, sizeof(back), &err));
    server_upload_finish(upload.transfer);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
    assert_int_equal(server_transfer_generation(upload.transfer), 2);
    node_transfer_close(&upload);
    node_transfer_close(&download);
}

static void a_queued_write_can_be_cancelled_and_changes_nothing(void **state)
{
    unsigned char back[64];
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(back));
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer download;
    struct st_error err = {0};
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    struct server_operation *fill = submit_fill(*state, "t", 5);
    struct server_operation *behind = submit_fill(*state, "t", 6);
    assert_int_equal(server_operation_cancel(fill, &node_caller, &err), ST_OK);
    assert_int_equal(node_operation_state(fill), SERVER_OPERATION_CANCELLED);
    assert_int_equal(node_finish_status(fill, &err), ST_CANCELLED);
    assert_int_equal(err.reason, ST_REASON_OPERATION_CANCELLED);
    assert_int_equal(node_operation_state(behind), SERVER_OPERATION_QUEUED);
    node_transfer_close(&download);
    assert_int_equal(node_finish_status(behind, &err), ST_OK);
    assert_int_equal(node_contents(*state, "t", 0).generation, 1);
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_VALID);
}

static void the_generation_is_that_of_the_place_in_the_order(void **state)
{
    unsigned char data[64] = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer download, upload;
    struct st_error err = {0};
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    struct server_operation *fill = submit_fill(*state, "t", 5);
    request.expected_generation = 0; /* true now, and no longer when it is its turn */
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    node_transfer_close(&download);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_FAILED);
    assert_int_equal(err.reason, ST_REASON_GENERATION_MISMATCH);
    node_transfer_close(&upload);
    assert_int_equal(node_finish_status(fill, &err), ST_OK);
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_VALID);
    assert_int_equal(node_contents(*state, "t", 0).generation, 1);
}

static void logical_order_is_row_major_whatever_the_strides(void **state)
{
    struct server_tensor_create *create = calloc(1, sizeof(*create));
    assert_non_null(create);
    *create = (struct server_tensor_create){.id = "columns",
                                            .group = "g",
                                            .dtype = ST_DTYPE_UINT16,
                                            .shape = {.rank = 2, .dims = {3, 4}},
                                            .has_strides = true,
                                            .strides = {.dims = {1, 3}},
                                            .strides_rank = 2,
                                            .attachable = -1};
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(server_tensor_create(*state, &node_caller, create, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    free(create);

    uint16_t logical[12], memory[12], back[12];
    for (uint16_t i = 0; i < 12; i++) {
        logical[i] = (uint16_t)(100 + i);
    }
    struct server_transfer_request request = node_transfer_request("columns", 0);
    request.logical = true;
    struct node_transfer transfer;
    assert_int_equal(node_upload_open(*state, &request, &transfer, &err), ST_OK);
    const char *bytes = (const char *)logical;
    assert_true(
        node_upload_bytes(&transfer, bytes, 7, &err)); /* a cut element waits for its rest */
    assert_true(node_upload_bytes(&transfer, bytes + 7, sizeof(logical) - 7, &err));
    server_upload_finish(transfer.transfer);
    assert_int_equal(node_transfer_wait(&transfer, PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
    node_transfer_close(&transfer);
    assert_int_equal(node_get(*state, "columns", 0, memory, sizeof(memory), &err), ST_OK);
    for (uint16_t row = 0; row < 3; row++) {
        for (uint16_t column = 0; column < 4; column++) {
            assert_int_equal(memory[row + 3 * column], logical[4 * row + column]);
        }
    }
    request.has_range = true;
    request.offset = 10;
    request.bytes = 8;
    assert_int_equal(node_download_open(*state, &request, &transfer, &err), ST_OK);
    assert_true(node_download_bytes(&transfer, back, 8, &err));
    node_transfer_close(&transfer);
    assert_memory_equal(back, logical + 5, 8);
}

static void a_delete_waits_for_the_transfers_before_it(void **state)
{
    unsigned char back[64];
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(back));
    struct server_transfer_request request = node_transfer_request("t", 1);
    struct node_transfer download;
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    assert_int_equal(server_tensor_delete(*state, &node_caller, "t", false, &operation, &err),
                     ST_OK);
    usleep(SHORT_MS * 1000);
    assert_int_equal(node_operation_state(operation), SERVER_OPERATION_QUEUED);
    assert_true(node_download_bytes(&download, back, sizeof(back), &err));
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    node_transfer_close(&download);
}

/** More readers that stop in the middle than there are staging buffers: others must get on. */
static void readers_that_stop_do_not_keep_the_staging_buffers(void **state)
{
    enum { READERS = 100 };
    uint64_t bytes = 3 * ST_STAGING_BYTES;
    unsigned char *data = pattern(bytes, 5);
    unsigned char *back = malloc(bytes);
    struct node_transfer readers[READERS];
    struct st_error err = {0};
    assert_non_null(back);
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, bytes);
    node_tensor(*state, "g", "u", ST_DTYPE_UINT8, bytes);
    assert_int_equal(node_put(*state, "t", 0, data, bytes, &err), ST_OK);
    struct server_transfer_request request = node_transfer_request("t", 0);
    for (unsigned i = 0; i < READERS; i++) {
        assert_int_equal(node_download_open(*state, &request, &readers[i], &err), ST_OK);
        assert_true(node_download_bytes(&readers[i], back, 1000, &err));
    }
    assert_int_equal(node_put(*state, "u", 0, data, bytes, &err), ST_OK);
    for (unsigned i = 0; i < READERS; i++) {
        memcpy(back, data, 1000);
        assert_true(node_download_bytes(&readers[i], back + 1000, bytes - 1000, &err));
        assert_memory_equal(back, data, bytes);
        node_transfer_close(&readers[i]);
    }
    free(data);
    free(back);
}

static void writers_that_stop_do_not_keep_the_staging_buffers(void **state)
{
    enum { WRITERS = 100 };
    unsigned char data[64] = {1};
    struct node_transfer writers[WRITERS];
    struct st_error err = {0};
    for (unsigned i = 0; i < WRITERS; i++) {
        char id[16];
        snprintf(id, sizeof(id), "w%u", i);
        node_tensor(*state, "g", id, ST_DTYPE_UINT8, sizeof(data));
        struct server_transfer_request request = node_transfer_request(id, 0);
        assert_int_equal(node_upload_open(*state, &request, &writers[i], &err), ST_OK);
        assert_true(node_upload_bytes(&writers[i], data, 32, &err));
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        assert_true(node_upload_bytes(&writers[i], data + 32, 32, &err));
        server_upload_finish(writers[i].transfer);
        assert_int_equal(node_transfer_wait(&writers[i], PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
        node_transfer_close(&writers[i]);
    }
}

static void a_body_without_progress_is_cut(void **state)
{
    unsigned char data[64] = {0};
    uint64_t bytes = 4 * ST_STAGING_BYTES;
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    node_tensor(*state, "g", "u", ST_DTYPE_UINT8, bytes);
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer upload, download, patient;
    struct st_error err = {0};
    uint64_t start_ns = st_clock_now_ns();
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_true(node_upload_bytes(&upload, data, 10, &err));
    request = node_transfer_request("u", 0);
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    assert_true(node_download_bytes(&download, data, 10, &err));
    struct server_operation *fill = submit_fill(*state, "u", 1);
    request = node_transfer_request("u", 1); /* waits for its place: that is not its fault */
    assert_int_equal(node_download_open(*state, &request, &patient, &err), ST_OK);

    assert_int_equal(node_finish_status(fill, &err), ST_OK);
    uint64_t waited_ns = st_clock_now_ns() - start_ns;
    assert_true(waited_ns >= ST_TRANSFER_STALL_SECONDS * ST_NS_PER_SECOND);
    assert_true(waited_ns < 2 * ST_TRANSFER_STALL_SECONDS * ST_NS_PER_SECOND);
    assert_int_equal(node_transfer_wait(&download, PATIENCE_MS, &err), SERVER_TRANSFER_FAILED);
    assert_int_equal(err.reason, ST_REASON_TRANSFER_STALLED);
    assert_int_equal(node_transfer_wait(&patient, PATIENCE_MS, &err), SERVER_TRANSFER_READY);
    sleep(1);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_FAILED);
    assert_int_equal(err.reason, ST_REASON_TRANSFER_STALLED);
    assert_int_equal(server_upload_write(upload.transfer, data, 10), 0);
    assert_int_equal(node_contents(*state, "t", 0).state, SERVER_CONTENTS_UNDEFINED);
    node_transfer_close(&upload);
    node_transfer_close(&download);
    node_transfer_close(&patient);
}

static void cancel_all_ends_every_transfer(void **state)
{
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 64);
    struct server_transfer_request request = node_transfer_request("t", 0);
    struct node_transfer upload;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_int_equal(server_unfinished(*state), 1);
    server_cancel_all(*state);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_FAILED);
    assert_int_equal(err.reason, ST_REASON_OPERATION_CANCELLED);
    assert_int_equal(server_unfinished(*state), 0);
    node_transfer_close(&upload);
}

static void a_download_names_the_generation_that_a_write_is_compared_with(void **state)
{
    unsigned char data[16] = {0};
    struct node_transfer download;
    struct st_error err = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, sizeof(data));
    assert_int_equal(node_put(*state, "t", 0, data, sizeof(data), &err), ST_OK);
    assert_int_equal(node_put(*state, "t", 1, data, sizeof(data), &err), ST_OK);
    assert_int_equal(node_contents(*state, "t", 0).generation, 1);
    struct server_transfer_request request = node_transfer_request("t", 0);
    assert_int_equal(node_download_open(*state, &request, &download, &err), ST_OK);
    uint64_t generation = server_transfer_generation(download.transfer);
    node_transfer_close(&download);
    assert_int_equal(generation, 2);
    request.expected_generation = generation;
    assert_int_equal(node_put_request(*state, &request, data, sizeof(data), &err), ST_OK);
    assert_int_equal(node_put_request(*state, &request, data, sizeof(data), &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_GENERATION_MISMATCH);
    assert_int_equal(node_contents(*state, "t", 0).generation, 3);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(what_was_put_is_what_is_got),
        T(bytes_may_come_in_pieces_of_any_size),
        T(a_range_changes_its_bytes_only),
        T(an_upload_that_does_not_fit_is_not_opened),
        T(while_a_shard_is_uploaded_it_is_busy_and_others_are_not),
        T(an_upload_that_is_cut_leaves_its_shard_undefined),
        T(a_broadcast_over_an_undefined_shard_makes_it_valid),
        T(an_upload_that_ends_short_fails),
        T(an_upload_takes_no_more_than_it_announced),
        T(a_get_sees_the_writes_before_it),
        T(a_write_waits_for_the_readers_before_it),
        T(a_queued_write_can_be_cancelled_and_changes_nothing),
        T(the_generation_is_that_of_the_place_in_the_order),
        T(logical_order_is_row_major_whatever_the_strides),
        T(a_delete_waits_for_the_transfers_before_it),
        T(an_upload_that_never_moved_a_byte_changes_nothing),
        T(a_download_names_the_generation_that_a_write_is_compared_with),
        T(an_upload_that_breaks_off_leaves_another_generation),
        T(one_generation_counts_the_writes_of_all_shards),
        T(readers_that_stop_do_not_keep_the_staging_buffers),
        T(writers_that_stop_do_not_keep_the_staging_buffers),
        T(a_body_without_progress_is_cut),
        T(cancel_all_ends_every_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
