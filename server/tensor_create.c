#include <stdlib.h>
#include <string.h>

#include "server/operation.h"
#include "server/registry.h"

/* ---------------------------------------------------------------- the work */

static struct tensors_operation *tensors_of(struct server_operation *operation)
{
    return (struct tensors_operation *)operation; /* its first member */
}

static enum st_status tensor_create_begin(struct server_operation *operation, struct st_error *err)
{
    (void)operation;
    (void)err;
    return ST_OK; /* everything was checked at acceptance */
}

static enum st_status tensor_allocate(struct tensor *tensor, struct st_error *err)
{
    const struct gpu_memory_spec spec = {
        .size_bytes = tensor->shard_bytes,
        .type = tensor->memory_type,
        .attachable = tensor->attachable,
        .multicast = tensor->multicast,
    };
    return gpu_memory_create(tensor->group->team, &spec, &tensor->memory, err);
}

/** Give back what was made, newest first. */
static void tensors_release_memory(struct tensors_operation *create, uint32_t made)
{
    for (uint32_t i = made; i-- > 0;) {
        create->base.working_on = create->tensors[i]->group;
        gpu_memory_destroy(create->tensors[i]->memory);
        create->tensors[i]->memory = NULL;
    }
}

static void tensor_create_run(struct server_operation *operation)
{
    struct tensors_operation *create = tensors_of(operation);
    struct st_error err = {0};
    enum st_status status = ST_OK;
    uint32_t made = 0;
    while (made < create->count && status == ST_OK && !operation->cancel_requested) {
        struct tensor *tensor = create->tensors[made];
        operation->working_on = tensor->group;
        status = tensor_allocate(tensor, &err);
        if (status == ST_OK) {
            operation->bytes_done += tensor->shard_bytes * tensor->group->world_size;
            made++;
        } else if (create->batch) {
            registry_prefix_error(&err, "tensors", made);
        }
    }
    if (status == ST_OK) {
        status = server_operation_settle(operation, &err);
    }
    if (status != ST_OK) {
        tensors_release_memory(create, made);
        server_lock(operation->server);
        tensors_operation_withdraw(create);
        server_unlock(operation->server);
    }
    server_operation_complete(operation, status, &err);
}

static void tensor_create_end(struct server_operation *operation, enum st_status status)
{
    struct tensors_operation *create = tensors_of(operation);
    if (status != ST_OK) {
        tensors_operation_remove(create);
        return;
    }
    for (uint32_t i = 0; i < create->count; i++) {
        struct tensor *tensor = create->tensors[i];
        const struct gpu_memory_info *info = gpu_memory_info(tensor->memory);
        tensor->memory_serial = info->serial;
        tensor->allocated_bytes = info->allocated_bytes;
        tensor->multicast_reason = info->multicast_reason;
        tensor->made = true;
        tensor_set_state(tensor, SERVER_STATE_READY);
    }
    tensors_operation_report(create);
    free(create->tensors); /* others may delete them from now on */
    create->tensors = NULL;
}

/** The operation ends; what it makes shows as failed until the call returns and it is taken back.
 */
static void tensor_create_overran(struct server_work *work)
{
    struct server_operation *operation =
        (struct server_operation *)((char *)work - offsetof(struct server_operation, work));
    struct tensors_operation *create = tensors_of(operation);
    if (!operation->settled) {
        for (uint32_t i = 0; i < create->count; i++) {
            tensor_set_state(create->tensors[i], SERVER_STATE_FAILED);
        }
    }
    server_operation_overran(work);
}

#define TENSOR_CREATE_CLASS(name)                                                                  \
    {                                                                                              \
        .verb = (name), .size = sizeof(struct tensors_operation), .pool = SERVER_POOL_MEMORY,      \
        .begin = tensor_create_begin, .run = tensor_create_run, .end = tensor_create_end,          \
        .destroy = tensors_operation_destroy,                                                      \
    }
static const struct server_operation_class create_class = TENSOR_CREATE_CLASS("create");
static const struct server_operation_class batch_class = TENSOR_CREATE_CLASS("batch_create");

/* ---------------------------------------------------------------- what is asked */

static enum st_status check_strides(const struct server_tensor_create *request,
                                    struct st_strides *ret_strides, struct st_error *err)
{
    if (!request->has_strides) {
        st_shape_row_major(&request->shape, ret_strides);
        return ST_OK;
    }
    if (request->strides_rank != request->shape.rank) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "strides",
                       "must have as many entries as the shape (%u)", request->shape.rank);
    }
    if (!st_shape_is_dense(&request->shape, &request->strides)) {
        return st_fail(err, ST_REASON_NOT_CONTIGUOUS, "strides",
                       "must be a permutation of dense strides");
    }
    *ret_strides = request->strides;
    return ST_OK;
}

/** Shape, strides and size, as far as they do not depend on the devices. */
static enum st_status tensor_init_shape(struct tensor *tensor,
                                        const struct server_tensor_create *request,
                                        struct st_error *err)
{
    enum st_status status = st_shape_measure(&request->shape, request->dtype, &tensor->elements,
                                             &tensor->shard_bytes, err);
    if (status == ST_OK) {
        status = check_strides(request, &tensor->strides, err);
    }
    tensor->dtype = request->dtype;
    tensor->shape = request->shape;
    return status;
}

static enum st_status tensor_init_memory(struct tensor *tensor,
                                         const struct server_tensor_create *request,
                                         struct st_error *err)
{
    bool symmetric = request->memory_type == GPU_MEMORY_SYMMETRIC;
    if (request->attachable == 1 && !symmetric) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "attachable",
                       "global memory cannot be attached");
    }
    tensor->memory_type = request->memory_type;
    tensor->multicast = request->multicast;
    tensor->attachable = request->attachable < 0
                             ? symmetric && tensor->shard_bytes >= tensor->group->granularity_bytes
                             : request->attachable == 1;
    const struct gpu_memory_spec spec = {
        .size_bytes = tensor->shard_bytes,
        .type = tensor->memory_type,
        .attachable = tensor->attachable,
        .multicast = tensor->multicast,
    };
    uint64_t allocated_bytes = 0;
    return gpu_memory_check(tensor->group->team, &spec, &allocated_bytes, err);
}

static enum st_status tensor_init_snapshot(struct tensor *tensor,
                                           const struct server_tensor_create *request,
                                           struct st_error *err)
{
    struct registry_meta meta = {.create_time_ns = st_clock_realtime_ns(),
                                 .labels = &request->labels,
                                 .access = &request->access};
    st_uid_make(meta.uid);
    tensor->snapshot = tensor_render(tensor, &meta);
    if (!tensor->snapshot) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a tensor");
    }
    return ST_OK;
}

static enum st_status tensor_init(struct tensor *tensor, const struct server_caller *caller,
                                  const struct server_tensor_create *request, struct st_error *err)
{
    struct server *server = tensor->group->server;
    tensor->state = SERVER_STATE_CREATING;
    tensor->version = 1;
    tensor->group_version = tensor->group->version;
    server_copy_text(tensor->owner, sizeof(tensor->owner), caller->principal);
    enum st_status status =
        registry_choose_id(&server->tensors, "tensor", request->id, tensor->id, err);
    if (status == ST_OK) {
        status = tensor_init_shape(tensor, request, err);
    }
    if (status == ST_OK) {
        status = tensor_init_memory(tensor, request, err);
    }
    if (status == ST_OK) {
        status = registry_check_labels(&request->labels, err);
    }
    if (status == ST_OK) {
        status = tensor_init_snapshot(tensor, request, err);
    }
    return status;
}

/** What can be said before there is an object. */
static enum st_status tensor_check_create(struct server *server,
                                          const struct server_tensor_create *request,
                                          struct group **ret_group, struct st_error *err)
{
    struct tensor *taken = request->id[0] ? st_index_find(&server->tensors, request->id) : NULL;
    if (taken) {
        return st_failure(registry_fail_taken(err, "tensor", taken->id, taken->snapshot->uid));
    }
    if (server->tensors.count >= ST_TENSORS_MAX) {
        return st_fail(err, ST_REASON_TOO_MANY_RESOURCES, NULL, "the node has %d tensors already",
                       ST_TENSORS_MAX);
    }
    enum st_status status = group_find(server, request->group, "group", ret_group, err);
    return status == ST_OK ? group_check_moving(*ret_group, err) : status;
}

/** A tensor in state creating, with its id reserved. Under the lock. */
static enum st_status tensor_make(struct server *server, const struct server_caller *caller,
                                  const struct server_tensor_create *request,
                                  struct tensor **ret_tensor, struct st_error *err)
{
    struct group *group = NULL;
    enum st_status status = tensor_check_create(server, request, &group, err);
    if (status != ST_OK) {
        return status;
    }
    struct tensor *tensor =
        calloc(1, sizeof(*tensor) + group->world_size * sizeof(struct tensor_shard));
    if (!tensor) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a tensor");
    }
    tensor->group = group;
    status = tensor_init(tensor, caller, request, err);
    if (status == ST_OK && !tensor_insert(tensor)) {
        status = st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a tensor");
    }
    if (status != ST_OK) {
        tensor_free(tensor);
        return status;
    }
    *ret_tensor = tensor;
    return ST_OK;
}

/* ---------------------------------------------------------------- accepting */

/** What one call asks for. */
struct create_call {
    const struct server_caller *caller;
    const struct server_tensor_create *requests; /**< [count] */
    uint32_t count;
    bool batch;
};

/** Make tensor by tensor; on failure those made are still there. Under the lock, which is let go of
 * in between. */
static enum st_status create_make_all(struct tensors_operation *create,
                                      const struct create_call *call, struct st_error *err)
{
    enum st_status status = ST_OK;
    while (create->count < call->count && status == ST_OK) {
        uint32_t i = create->count;
        struct tensor *tensor = NULL;
        status = tensor_make(create->base.server, call->caller, &call->requests[i], &tensor, err);
        if (status == ST_OK) {
            create->base.bytes_total += tensor->shard_bytes * tensor->group->world_size;
            tensors_operation_add(create, tensor);
        } else if (call->batch && err) {
            registry_prefix_error(err, "tensors", i);
        }
    }
    if (status == ST_OK && !call->batch &&
        !server_operation_set_target(&create->base, create->tensors[0]->id)) {
        status = st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    return status;
}

/** All tensors of the call, or none. */
static enum st_status create_accept_all(struct tensors_operation *create,
                                        const struct create_call *call, struct st_error *err)
{
    enum st_status status = create_make_all(create, call, err);
    if (status == ST_OK) {
        status = tensors_operation_accept(create, call->caller, err);
    } else {
        tensors_operation_withdraw(create);
        tensors_operation_remove(create);
    }
    tensors_operation_let_go(create);
    return status;
}

/** @param ret_create set also on failure if there is one to be released without the lock. */
static enum st_status create_accept(struct server *server, const struct create_call *call,
                                    struct tensors_operation **ret_create, struct st_error *err)
{
    struct group *group = NULL;
    enum st_status status = server_accept_check(server, call->caller, err);
    if (status == ST_OK) {
        status = group_find(server, call->requests[0].group, "group", &group, err);
        if (status != ST_OK && call->batch && err) {
            registry_prefix_error(err, "tensors", 0);
        }
    }
    if (status == ST_OK) {
        status = server_operation_check_room(group, err);
    }
    if (status != ST_OK) {
        return status;
    }
    const struct server_operation_spec spec = {
        .class = call->batch ? &batch_class : &create_class,
        .caller = call->caller,
        .group = group,
        .target_kind = "tensors",
    };
    struct tensors_operation *create = tensors_operation_create(server, &spec, call->count);
    if (!create) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    *ret_create = create;
    create->batch = call->batch;
    create->base.work.overran = tensor_create_overran;
    return create_accept_all(create, call, err);
}

static enum st_status create_submit(struct server *server, const struct create_call *call,
                                    struct server_operation **ret_operation, struct st_error *err)
{
    struct tensors_operation *create = NULL;
    server_lock(server);
    enum st_status status = create_accept(server, call, &create, err);
    server_unlock(server);
    if (status == ST_OK) {
        server_operation_start(&create->base);
        *ret_operation = &create->base;
    } else if (create) {
        server_operation_release(&create->base);
    }
    return status;
}

enum st_status server_tensor_create(struct server *server, const struct server_caller *caller,
                                    const struct server_tensor_create *request,
                                    struct server_operation **ret_operation, struct st_error *err)
{
    const struct create_call call = {.caller = caller, .requests = request, .count = 1};
    return create_submit(server, &call, ret_operation, err);
}

enum st_status server_tensor_batch_create(struct server *server, const struct server_caller *caller,
                                          const struct server_tensor_create *requests,
                                          uint32_t count, struct server_operation **ret_operation,
                                          struct st_error *err)
{
    if (count < 1 || count > ST_BATCH_MAX) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "tensors", "a batch has 1 to %d items",
                       ST_BATCH_MAX);
    }
    const struct create_call call = {
        .caller = caller, .requests = requests, .count = count, .batch = true};
    return create_submit(server, &call, ret_operation, err);
}
