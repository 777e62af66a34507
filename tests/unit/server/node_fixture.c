#include "tests/unit/server/node_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define NODE_DEADLINE_NS (60 * ST_NS_PER_SECOND)
#define NODE_PATIENCE_MS 60000u

const struct server_caller node_caller = {
    .principal = "test",
    .role = SERVER_ROLE_OPERATOR,
    .request_id = "test",
    .deadline_ns = ST_DEADLINE_NEVER,
};

/** A thread that sleeps until it is told; what is told stays until it is heard. */
struct node_signal {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool set;
};

static struct node_signal *signal_create(void)
{
    struct node_signal *signal = calloc(1, sizeof(*signal));
    assert_non_null(signal);
    pthread_mutex_init(&signal->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&signal->cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return signal;
}

static void signal_destroy(struct node_signal *signal)
{
    pthread_cond_destroy(&signal->cond);
    pthread_mutex_destroy(&signal->lock);
    free(signal);
}

static void signal_set(void *arg)
{
    struct node_signal *signal = arg;
    pthread_mutex_lock(&signal->lock);
    signal->set = true;
    pthread_cond_signal(&signal->cond);
    pthread_mutex_unlock(&signal->lock);
}

static bool signal_wait(struct node_signal *signal, uint32_t timeout_ms)
{
    uint64_t deadline_ns = st_clock_now_ns() + timeout_ms * ST_NS_PER_MS;
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / ST_NS_PER_SECOND),
                                .tv_nsec = (long)(deadline_ns % ST_NS_PER_SECOND)};
    int rc = 0;
    pthread_mutex_lock(&signal->lock);
    while (!signal->set && rc == 0) {
        rc = pthread_cond_timedwait(&signal->cond, &signal->lock, &deadline);
    }
    bool was_set = signal->set;
    signal->set = false;
    pthread_mutex_unlock(&signal->lock);
    return was_set;
}

static void check(enum st_status status, const struct st_error *err)
{
    if (status != ST_OK) {
        fail_msg("%s %s: %s", st_status_info(status)->name, st_reason_info(err->reason)->name,
                 err->message);
    }
}

struct server *node_start(uint32_t devices, uint64_t device_memory_bytes)
{
    struct server_options options = {
        .gpu = {.driver = GPU_DRIVER_SOFTWARE,
                .software_devices = devices,
                .software_memory_bytes = device_memory_bytes},
        .node_name = "test",
        .deterministic = true,
    };
    struct server *server = NULL;
    struct st_error err = {0};
    check(server_create(&options, &server, &err), &err);
    return server;
}

void node_stop(struct server *server)
{
    server_drain(server);
    assert_true(server_destroy(server, st_clock_now_ns() + NODE_DEADLINE_NS));
}

struct server_operation_view *node_finish(struct server_operation *operation)
{
    struct node_signal *signal = signal_create();
    struct server_waiter *waiter = NULL;
    struct st_error err = {0};
    check(server_operation_wait(operation, st_clock_now_ns() + NODE_DEADLINE_NS, signal_set, signal,
                                &waiter, &err),
          &err);
    if (waiter) {
        assert_true(signal_wait(signal, NODE_PATIENCE_MS));
        server_waiter_close(waiter);
    }
    signal_destroy(signal);
    struct server_operation_view *view = server_operation_view(operation);
    assert_true(view->state >= SERVER_OPERATION_SUCCEEDED);
    server_operation_release(operation);
    return view;
}

enum st_status node_finish_status(struct server_operation *operation, struct st_error *err)
{
    struct server_operation_view *view = node_finish(operation);
    enum st_status status = view->has_error ? view->error.status : ST_OK;
    if (status != ST_OK) {
        *err = view->error;
    }
    assert_int_equal(view->state == SERVER_OPERATION_SUCCEEDED, status == ST_OK);
    server_snapshot_release(&view->base);
    return status;
}

static void finish_well(struct server_operation *operation)
{
    struct st_error err = {0};
    check(node_finish_status(operation, &err), &err);
}

void node_group(struct server *server, const char *id, uint32_t world_size, uint32_t devices)
{
    struct server_group_create request = {.world_size = world_size};
    snprintf(request.id, sizeof(request.id), "%s", id);
    for (uint32_t rank = 0; rank < world_size; rank++) {
        request.devices[rank] = rank % devices;
    }
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_group_create(server, &node_caller, &request, &operation, &err), &err);
    finish_well(operation);
}

void node_tensor_shaped(struct server *server, const char *group, const char *id,
                        enum st_dtype dtype, const struct st_shape *shape)
{
    struct server_tensor_create *request = calloc(1, sizeof(*request));
    assert_non_null(request);
    snprintf(request->id, sizeof(request->id), "%s", id);
    snprintf(request->group, sizeof(request->group), "%s", group);
    request->dtype = dtype;
    request->shape = *shape;
    request->attachable = -1;
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_tensor_create(server, &node_caller, request, &operation, &err), &err);
    free(request);
    finish_well(operation);
}

void node_tensor(struct server *server, const char *group, const char *id, enum st_dtype dtype,
                 uint64_t elements)
{
    node_tensor_shaped(server, group, id, dtype,
                       &(struct st_shape){.rank = 1, .dims = {(int64_t)elements}});
}

void node_tensor_delete(struct server *server, const char *id)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_tensor_delete(server, &node_caller, id, false, &operation, &err), &err);
    finish_well(operation);
}

struct server_collective_request node_collective_request(const char *verb, const char *tensor,
                                                         const char *output, enum st_reduce_op op,
                                                         uint32_t root)
{
    struct server_collective_request request = {
        .collective = gpu_collective_find(verb),
        .op = op,
        .root = root,
        .deterministic = -1,
        .expected_generation = SERVER_GENERATION_ANY,
    };
    assert_non_null(request.collective);
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    snprintf(request.output, sizeof(request.output), "%s", output ? output : "");
    return request;
}

void node_collective(struct server *server, const struct server_collective_request *request)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_collective(server, &node_caller, request, &operation, &err), &err);
    finish_well(operation);
}

struct server_transfer_request node_transfer_request(const char *tensor, uint32_t rank)
{
    struct server_transfer_request request = {.rank = rank,
                                              .expected_generation = SERVER_GENERATION_ANY};
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    return request;
}

static enum st_status open_side(bool upload, struct server *server,
                                const struct server_transfer_request *request,
                                struct node_transfer *ret, struct st_error *err)
{
    struct node_transfer opened = {.signal = signal_create()};
    struct server_tensor *tensor = NULL;
    struct server_transfer_request noisy = *request;
    noisy.notify = signal_set;
    noisy.notify_arg = opened.signal;
    enum st_status status =
        upload ? server_upload_open(server, &node_caller, &noisy, &opened.transfer, &tensor, err)
               : server_download_open(server, &node_caller, &noisy, &opened.transfer, &tensor, err);
    if (status != ST_OK) {
        signal_destroy(opened.signal);
        return status;
    }
    assert_string_equal(tensor->id, request->tensor);
    server_snapshot_release(&tensor->base);
    *ret = opened;
    return ST_OK;
}

enum st_status node_upload_open(struct server *server,
                                const struct server_transfer_request *request,
                                struct node_transfer *ret, struct st_error *err)
{
    return open_side(true, server, request, ret, err);
}

enum st_status node_download_open(struct server *server,
                                  const struct server_transfer_request *request,
                                  struct node_transfer *ret, struct st_error *err)
{
    return open_side(false, server, request, ret, err);
}

enum server_transfer_state node_transfer_wait(struct node_transfer *transfer, uint32_t timeout_ms,
                                              struct st_error *err)
{
    uint64_t deadline_ns = st_clock_now_ns() + timeout_ms * ST_NS_PER_MS;
    enum server_transfer_state state = server_transfer_state(transfer->transfer, err);
    while (state == SERVER_TRANSFER_WAITING) {
        uint64_t now_ns = st_clock_now_ns();
        if (now_ns >= deadline_ns) {
            return state;
        }
        signal_wait(transfer->signal, (uint32_t)((deadline_ns - now_ns) / ST_NS_PER_MS) + 1);
        state = server_transfer_state(transfer->transfer, err);
    }
    return state;
}

bool node_upload_bytes(struct node_transfer *transfer, const void *data, uint64_t bytes,
                       struct st_error *err)
{
    const char *from = data;
    for (uint64_t sent = 0; sent < bytes;) {
        enum server_transfer_state state = node_transfer_wait(transfer, NODE_PATIENCE_MS, err);
        if (state != SERVER_TRANSFER_READY) {
            assert_int_equal(state, SERVER_TRANSFER_FAILED);
            return false;
        }
        sent += server_upload_write(transfer->transfer, from + sent, bytes - sent);
    }
    return true;
}

bool node_download_bytes(struct node_transfer *transfer, void *data, uint64_t bytes,
                         struct st_error *err)
{
    char *to = data;
    for (uint64_t got = 0; got < bytes;) {
        enum server_transfer_state state = node_transfer_wait(transfer, NODE_PATIENCE_MS, err);
        if (state != SERVER_TRANSFER_READY) {
            assert_int_equal(state, SERVER_TRANSFER_FAILED);
            return false;
        }
        got += server_download_read(transfer->transfer, to + got, bytes - got);
    }
    return true;
}

void node_transfer_close(struct node_transfer *transfer)
{
    server_transfer_close(transfer->transfer);
    signal_destroy(transfer->signal);
}

enum st_status node_put_request(struct server *server,
                                const struct server_transfer_request *request, const void *data,
                                uint64_t bytes, struct st_error *err)
{
    struct node_transfer transfer;
    enum st_status status = node_upload_open(server, request, &transfer, err);
    if (status != ST_OK) {
        return status;
    }
    if (node_upload_bytes(&transfer, data, bytes, err)) {
        server_upload_finish(transfer.transfer);
    }
    enum server_transfer_state state = node_transfer_wait(&transfer, NODE_PATIENCE_MS, err);
    assert_true(state == SERVER_TRANSFER_DONE || state == SERVER_TRANSFER_FAILED);
    node_transfer_close(&transfer);
    return state == SERVER_TRANSFER_DONE ? ST_OK : err->status;
}

enum st_status node_put(struct server *server, const char *tensor, uint32_t rank, const void *data,
                        uint64_t bytes, struct st_error *err)
{
    struct server_transfer_request request = node_transfer_request(tensor, rank);
    return node_put_request(server, &request, data, bytes, err);
}

enum st_status node_get(struct server *server, const char *tensor, uint32_t rank, void *data,
                        uint64_t bytes, struct st_error *err)
{
    struct server_transfer_request request = node_transfer_request(tensor, rank);
    struct node_transfer transfer;
    enum st_status status = node_download_open(server, &request, &transfer, err);
    if (status != ST_OK) {
        return status;
    }
    bool complete = node_download_bytes(&transfer, data, bytes, err);
    if (complete) {
        assert_int_equal(node_transfer_wait(&transfer, NODE_PATIENCE_MS, err),
                         SERVER_TRANSFER_DONE);
    }
    node_transfer_close(&transfer);
    return complete ? ST_OK : err->status;
}

struct server_contents node_contents(struct server *server, const char *tensor, uint32_t rank)
{
    struct server_tensor *snapshot = NULL;
    struct st_error err = {0};
    check(server_tensor_get(server, tensor, &snapshot, &err), &err);
    struct server_contents contents = snapshot->shard_contents[rank];
    server_snapshot_release(&snapshot->base);
    return contents;
}

enum server_operation_state node_operation_state(struct server_operation *operation)
{
    struct server_operation_view *view = server_operation_view(operation);
    enum server_operation_state state = view->state;
    server_snapshot_release(&view->base);
    return state;
}
