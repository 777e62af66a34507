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
    server_lock(operation->server);
    tensors_operation_withdraw(delete);
    server_unlock(operation->server);
    server_operation_complete(operation, ST_OK, NULL);
}

/** They were picked, and stay after all. */
static void delete_give_up(struct tensors_operation *delete)
{
    for (uint32_t i = 0; i < delete->count; i++) {
        tensor_set_state(delete->tensors[i], SERVER_STATE_READY);
    }
    free(delete->tensors);
    delete->tensors = NULL;
    delete->count = 0;
}

static void tensor_delete_end(struct server_operation *operation, enum st_status status)
{
    struct tensors_operation *delete = tensors_of(operation);
    (void)status; /* what began succeeds: memory that does not go back is gpu/'s to account for */
    if (operation->began) {
        tensors_operation_report(delete);
        tensors_operation_remove(delete);
    } else {
        delete_give_up(delete);
    }
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

static enum st_status delete_find(struct server *server, const struct delete_call *call, uint32_t i,
                                  struct tensor **ret_tensor, struct st_error *err)
{
    struct tensor *tensor = NULL;
    const struct tensor_wanted wanted = {call->ids ? call->ids[i] : call->id, TENSOR_USE_WRITE,
                                         NULL};
    enum st_status status = tensor_find(server, call->caller, &wanted, &tensor, err);
    if (status == ST_OK) {
        status = group_check_moving(tensor->group, err);
    }
    if (status == ST_OK) {
        *ret_tensor = tensor;
    } else if (call->ids && err) {
        registry_prefix_error(err, "tensors", i);
    }
    return status;
}

/** All tensors of the call, now deleting, or none. Under the lock, which is let go of in between.
 */
static enum st_status delete_accept_all(struct tensors_operation *delete,
                                        const struct delete_call *call, struct st_error *err)
{
    enum st_status status = ST_OK;
    while (delete->count < call->count && status == ST_OK) {
        struct tensor *tensor = NULL;
        status = delete_find(delete->base.server, call, delete->count, &tensor, err);
        if (status == ST_OK) {
            /* At once, so that an id that stands twice is not found again. */
            tensor_set_state(tensor, SERVER_STATE_DELETING);
            tensors_operation_add(delete, tensor);
        }
    }
    if (status == ST_OK) {
        status = tensors_operation_accept(delete, call->caller, err);
        for (uint32_t i = 0; status == ST_OK && call->force && i < delete->count; i++) {
            if (delete->tensors[i]->uploads) {
                server_transfer_cancel_uploads(delete->base.server, delete->tensors[i]->group,
                                               delete->tensors[i]);
            }
        }
    } else {
        delete_give_up(delete);
    }
    tensors_operation_let_go(delete);
    return status;
}

/** @param ret_delete set also on failure if there is one to be released without the lock. */
static enum st_status delete_accept(struct server *server, const struct delete_call *call,
                                    struct tensors_operation **ret_delete, struct st_error *err)
{
    struct tensor *first = NULL;
    enum st_status status = server_accept_check(server, call->caller, err);
    if (status == ST_OK) {
        status = registry_check_force(call->caller, call->force, err);
    }
    if (status == ST_OK) {
        status = delete_find(server, call, 0, &first, err);
    }
    if (status == ST_OK) {
        status = server_operation_check_room(first->group, err);
    }
    if (status != ST_OK) {
        return status;
    }
    const struct server_operation_spec spec = {
        .class = call->ids ? &batch_class : &delete_class,
        .caller = call->caller,
        .group = first->group,
        .target_kind = "tensors",
        .target_id = call->ids ? NULL : call->id,
    };
    struct tensors_operation *delete = tensors_operation_create(server, &spec, call->count);
    if (!delete) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    *ret_delete = delete;
    delete->batch = call->ids != NULL;
    return delete_accept_all(delete, call, err);
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
