#include <stdlib.h>

#include "server/operation.h"
#include "server/registry.h"

static struct tensors_operation *tensors_of(struct server_operation *operation)
{
    return (struct tensors_operation *)operation; /* its first member */
}

static enum st_status tensor_delete_begin(struct server_operation *operation, struct st_error *err)
{
    (void)operation;
    (void)err;
    return ST_OK; /* everything was checked at acceptance */
}

static void tensor_delete_run(struct server_operation *operation)
{
    struct tensors_operation *delete = tensors_of(operation);
    for (uint32_t i = 0; i < delete->count; i++) {
        operation->working_on = delete->tensors[i]->group;
        gpu_memory_destroy(delete->tensors[i]->memory);
        delete->tensors[i]->memory = NULL;
    }
    server_operation_complete(operation, ST_OK, NULL);
}

static void tensor_delete_end(struct server_operation *operation, enum st_status status)
{
    struct tensors_operation *delete = tensors_of(operation);
    (void)status; /* what began succeeds: memory that does not go back is gpu/'s to account for */
    if (operation->began) {
        tensors_operation_report(delete);
        tensors_operation_remove(delete);
        return;
    }
    for (uint32_t i = 0; i < delete->count; i++) {
        tensor_set_state(delete->tensors[i], SERVER_STATE_READY);
    }
    free(delete->tensors);
    delete->tensors = NULL;
}

#define TENSOR_DELETE_CLASS(name)                                                                  \
    {                                                                                              \
        .verb = (name), .size = sizeof(struct tensors_operation), .pool = SERVER_POOL_MEMORY,      \
        .begin = tensor_delete_begin, .run = tensor_delete_run, .end = tensor_delete_end,          \
        .destroy = tensors_operation_destroy,                                                      \
    }
static const struct server_operation_class delete_class = TENSOR_DELETE_CLASS("delete");
static const struct server_operation_class batch_class = TENSOR_DELETE_CLASS("batch_delete");

/** What one call asks for. */
struct delete_call {
    const struct server_caller *caller;
    const char *id;                   /**< Of a single delete. */
    const char (*ids)[ST_ID_MAX + 1]; /**< [count] of a batch, or NULL. */
    uint32_t count;
    bool force;
};

static enum st_status delete_find(struct server *server, const struct delete_call *call,
                                  const char *id, struct tensor **ret_tensor, struct st_error *err)
{
    struct tensor *tensor = NULL;
    enum st_status status = tensor_find(
        server, call->caller, &(struct tensor_wanted){id, TENSOR_USE_WRITE, NULL}, &tensor, err);
    if (status == ST_OK) {
        status = group_check_moving(tensor->group, err);
    }
    if (status == ST_OK) {
        *ret_tensor = tensor;
    }
    return status;
}

/** All tensors of the call, now deleting, or none. Under the lock. */
static enum st_status delete_find_all(struct server *server, const struct delete_call *call,
                                      struct tensor **tensors, struct st_error *err)
{
    enum st_status status = ST_OK;
    uint32_t found = 0;
    while (found < call->count && status == ST_OK) {
        const char *id = call->ids ? call->ids[found] : call->id;
        status = delete_find(server, call, id, &tensors[found], err);
        if (status == ST_OK) {
            /* At once, so that an id that stands twice is not found again. */
            tensor_set_state(tensors[found++], SERVER_STATE_DELETING);
        } else if (call->ids && err) {
            registry_prefix_error(err, "tensors", found);
        }
    }
    for (uint32_t i = 0; status != ST_OK && i < found; i++) {
        tensor_set_state(tensors[i], SERVER_STATE_READY);
    }
    return status;
}

/** @param ret_delete set also on failure if there is one to be released without the lock. */
static enum st_status delete_accept_found(struct server *server, const struct delete_call *call,
                                          struct tensor **tensors,
                                          struct tensors_operation **ret_delete,
                                          struct st_error *err)
{
    const struct server_operation_spec spec = {
        .class = call->ids ? &batch_class : &delete_class,
        .caller = call->caller,
        .group = tensors[0]->group,
        .target_kind = "tensors",
        .target_id = call->ids ? NULL : call->id,
    };
    struct tensors_operation *delete = tensors_operation_create(server, &spec, call->count);
    if (!delete) {
        for (uint32_t i = 0; i < call->count; i++) {
            tensor_set_state(tensors[i], SERVER_STATE_READY);
        }
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    delete->batch = call->ids != NULL;
    delete->count = call->count;
    for (uint32_t i = 0; i < call->count; i++) {
        delete->tensors[i] = tensors[i];
    }
    *ret_delete = delete;
    return tensors_operation_accept(delete, err);
}

static enum st_status delete_accept(struct server *server, const struct delete_call *call,
                                    struct tensors_operation **ret_delete, struct st_error *err)
{
    enum st_status status = server_accept_check(server, call->caller, err);
    if (status == ST_OK) {
        status = registry_check_force(call->caller, call->force, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct tensor **tensors = calloc(call->count, sizeof(struct tensor *));
    if (!tensors) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    status = delete_find_all(server, call, tensors, err);
    if (status == ST_OK) {
        status = delete_accept_found(server, call, tensors, ret_delete, err);
    }
    free(tensors);
    return status;
}

static enum st_status delete_submit(struct server *server, const struct delete_call *call,
                                    struct server_operation **ret_operation, struct st_error *err)
{
    struct tensors_operation *delete = NULL;
    server_lock(server);
    enum st_status status = delete_accept(server, call, &delete, err);
    server_unlock(server);
    if (status == ST_OK) {
        server_operation_start(&delete->base);
        *ret_operation = &delete->base;
    } else if (delete) {
        server_operation_release(&delete->base);
    }
    return status;
}

enum st_status server_tensor_delete(struct server *server, const struct server_caller *caller,
                                    const char *id, bool force,
                                    struct server_operation **ret_operation, struct st_error *err)
{
    const struct delete_call call = {.caller = caller, .id = id, .count = 1, .force = force};
    return delete_submit(server, &call, ret_operation, err);
}

enum st_status server_tensor_batch_delete(struct server *server, const struct server_caller *caller,
                                          const struct server_tensor_batch_delete *request,
                                          struct server_operation **ret_operation,
                                          struct st_error *err)
{
    if (request->count < 1 || request->count > ST_BATCH_MAX) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "tensors", "a batch has 1 to %d items",
                       ST_BATCH_MAX);
    }
    const struct delete_call call = {
        .caller = caller, .ids = request->ids, .count = request->count, .force = request->force};
    return delete_submit(server, &call, ret_operation, err);
}
