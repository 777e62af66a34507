#include "tests/unit/server/node_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/transfer.h"

/** What one client can hold of the node, and for how long. */

#define DEVICES 2u
#define DEVICE_BYTES (64ull << 20)
#define PATIENCE_MS 30000u
#define BATCH 20u

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

/* ---------------------------------------------------------------- data bodies */

static void tell_nobody(void *arg)
{
    (void)arg;
}

static enum st_status open_as(struct server *server, const char *principal,
                              struct server_transfer **ret_transfer, struct st_error *err)
{
    struct server_caller caller = node_caller;
    caller.principal = principal;
    struct server_transfer_request request = node_transfer_request("t", 0);
    request.notify = tell_nobody;
    struct server_tensor *tensor = NULL;
    enum st_status status =
        server_download_open(server, &caller, &request, ret_transfer, &tensor, err);
    if (status == ST_OK) {
        server_snapshot_release(&tensor->base);
    }
    return status;
}

static void transfers_are_bounded_for_each_principal_and_for_all(void **state)
{
    struct server_transfer *transfers[ST_TRANSFERS_MAX];
    struct server_transfer *one = NULL;
    struct st_error err = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 64);
    for (unsigned i = 0; i < ST_TRANSFERS_MAX; i++) {
        bool first = i < ST_TRANSFERS_PRINCIPAL_MAX;
        if (i == ST_TRANSFERS_PRINCIPAL_MAX) {
            assert_int_equal(open_as(*state, "greedy", &one, &err), ST_RESOURCE_EXHAUSTED);
            assert_int_equal(err.reason, ST_REASON_TOO_MANY_TRANSFERS);
        }
        assert_int_equal(open_as(*state, first ? "greedy" : "other", &transfers[i], &err), ST_OK);
    }
    assert_int_equal(open_as(*state, "third", &one, &err), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ST_REASON_TOO_MANY_TRANSFERS);
    server_transfer_close(transfers[0]);
    assert_int_equal(open_as(*state, "third", &one, &err), ST_OK);
    server_transfer_close(one);
    for (unsigned i = 1; i < ST_TRANSFERS_MAX; i++) {
        server_transfer_close(transfers[i]);
    }
}

static void make_columns(struct server *server, const char *id)
{
    struct server_tensor_create *create = calloc(1, sizeof(*create));
    assert_non_null(create);
    *create = (struct server_tensor_create){.group = "g",
                                            .dtype = ST_DTYPE_UINT32,
                                            .shape = {.rank = 2, .dims = {2, 2}},
                                            .has_strides = true,
                                            .strides = {.dims = {1, 2}},
                                            .strides_rank = 2,
                                            .attachable = -1};
    snprintf(create->id, sizeof(create->id), "%s", id);
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(server_tensor_create(server, &node_caller, create, &operation, &err), ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    free(create);
}

/** More bodies than there are buffers stop inside an element. */
static void a_begun_element_keeps_no_staging_buffer(void **state)
{
    enum { WRITERS = 100 };
    static const uint64_t begun[4] = {1, 2, 3, 5}; /* mostly less than an element */
    static const uint32_t logical[4] = {0x11111111, 0x22222222, 0x33333333, 0x44444444};
    const char *bytes = (const char *)logical;
    struct node_transfer writers[WRITERS];
    uint32_t memory[4];
    struct st_error err = {0};
    char id[16];
    for (unsigned i = 0; i < WRITERS; i++) {
        snprintf(id, sizeof(id), "w%u", i);
        make_columns(*state, id);
        struct server_transfer_request request = node_transfer_request(id, 0);
        request.logical = true;
        assert_int_equal(node_upload_open(*state, &request, &writers[i], &err), ST_OK);
        assert_true(node_upload_bytes(&writers[i], bytes, begun[i % 4], &err));
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        snprintf(id, sizeof(id), "w%u", i);
        uint64_t sent = begun[i % 4];
        assert_true(node_upload_bytes(&writers[i], bytes + sent, sizeof(logical) - sent, &err));
        server_upload_finish(writers[i].transfer);
        assert_int_equal(node_transfer_wait(&writers[i], PATIENCE_MS, &err), SERVER_TRANSFER_DONE);
        node_transfer_close(&writers[i]);
        assert_int_equal(node_get(*state, id, 0, memory, sizeof(memory), &err), ST_OK);
        assert_true(memory[0] == logical[0] && memory[1] == logical[2] && memory[2] == logical[1] &&
                    memory[3] == logical[3]);
    }
}

/** Progress alone does not do: it has been this body's turn for a minute. */
static void a_body_that_only_trickles_is_cut(void **state)
{
    struct node_transfer upload;
    struct st_error err = {0};
    node_tensor(*state, "g", "t", ST_DTYPE_UINT8, 4096);
    struct server_transfer_request request = node_transfer_request("t", 0);
    assert_int_equal(node_upload_open(*state, &request, &upload, &err), ST_OK);
    assert_true(node_upload_bytes(&upload, "a", 1, &err));
    pthread_mutex_lock(&upload.transfer->lock);
    upload.transfer->turns_ns += 60 * ST_NS_PER_SECOND;
    pthread_mutex_unlock(&upload.transfer->lock);
    sleep(ST_TRANSFER_STALL_SECONDS / 2);
    assert_true(node_upload_bytes(&upload, "b", 1, &err));
    sleep(ST_TRANSFER_STALL_SECONDS / 2 + 1);
    assert_int_equal(node_transfer_wait(&upload, PATIENCE_MS, &err), SERVER_TRANSFER_FAILED);
    assert_int_equal(err.reason, ST_REASON_TRANSFER_STALLED);
    node_transfer_close(&upload);
}

/* ---------------------------------------------------------------- kept operations */

static struct server_operation *submit_batch(struct server *server)
{
    struct server_tensor_create *requests = calloc(BATCH, sizeof(*requests));
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_non_null(requests);
    for (uint32_t i = 0; i < BATCH; i++) {
        snprintf(requests[i].id, sizeof(requests[i].id), "t%u", i);
        snprintf(requests[i].group, sizeof(requests[i].group), "g");
        requests[i].dtype = ST_DTYPE_UINT8;
        requests[i].shape = (struct st_shape){.rank = 1, .dims = {0}};
        requests[i].attachable = -1;
    }
    assert_int_equal(
        server_tensor_batch_create(server, &node_caller, requests, BATCH, &operation, &err), ST_OK);
    free(requests);
    return operation;
}

static void an_ended_batch_keeps_its_ids_once_and_no_claims(void **state)
{
    struct server *server = *state;
    struct server_operation *operation = submit_batch(server);
    server_operation_retain(operation);
    struct server_operation_view *first = node_finish(operation);
    struct server_operation_view *second = server_operation_view(operation);
    assert_ptr_equal(first->result.resources, second->result.resources);
    assert_int_equal(first->result.count, BATCH);
    assert_string_equal(first->result.resources->items[0], "t0");
    assert_string_equal(first->result.resources->items[BATCH - 1], "t19");
    server_lock(server);
    assert_ptr_equal(operation->holder.order.claims, operation->claims);
    assert_true(operation->kept_bytes < 16384);
    server_unlock(server);
    server_snapshot_release(&first->base);
    server_operation_release(operation);
    assert_string_equal(second->result.resources->items[1], "t1");
    server_snapshot_release(&second->base);
}

static void kept_operations_are_bounded_by_their_bytes(void **state)
{
    struct server *server = *state;
    struct server_operation_view *view = node_finish(submit_batch(server));
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(server_operation_find(server, view->id, &operation, &err), ST_OK);
    server_lock(server);
    assert_true(server->kept_bytes > 0);
    operation->kept_bytes += ST_OPERATIONS_KEPT_BYTES; /* as if it were that large */
    server->kept_bytes += ST_OPERATIONS_KEPT_BYTES;
    server_unlock(server);
    server_operation_release(operation);
    assert_int_equal(server_operation_find(server, view->id, &operation, &err), ST_NOT_FOUND);
    server_lock(server);
    assert_true(server->kept_bytes < ST_OPERATIONS_KEPT_BYTES);
    server_unlock(server);
    server_snapshot_release(&view->base);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(transfers_are_bounded_for_each_principal_and_for_all),
        T(a_begun_element_keeps_no_staging_buffer),
        T(a_body_that_only_trickles_is_cut),
        T(an_ended_batch_keeps_its_ids_once_and_no_claims),
        T(kept_operations_are_bounded_by_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
