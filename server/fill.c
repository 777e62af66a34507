#include "server/verb.h"

#include <stdio.h>

struct fill_operation {
    struct server_operation base;
    struct server_write write;
    struct gpu_fill_spec spec;
};

static struct fill_operation *fill_of(struct server_operation *operation)
{
    return (struct fill_operation *)operation;
}

static enum st_status fill_begin(struct server_operation *operation, struct st_error *err)
{
    return server_write_begin(&fill_of(operation)->write, err);
}

static void fill_run(struct server_operation *operation)
{
    struct fill_operation *fill = fill_of(operation);
    if (operation->bytes == 0) {
        server_operation_complete(operation, ST_OK, NULL);
        return;
    }
    fill->write.launched = true;
    gpu_fill_run(operation->group->team, &fill->spec, server_operation_completion(operation));
}

static void fill_end(struct server_operation *operation, enum st_status status)
{
    server_write_end(&fill_of(operation)->write, operation, status);
}

static void fill_destroy(struct server_operation *operation)
{
    (void)operation;
}

static const struct server_operation_class fill_class = {
    .verb = "fill",
    .size = sizeof(struct fill_operation),
    .pool = SERVER_POOL_LAUNCH,
    .cancel_running = true,
    .begin = fill_begin,
    .run = fill_run,
    .end = fill_end,
    .destroy = fill_destroy,
};

/* ---------------------------------------------------------------- the value */

/** A truth value comes as an integer, whichever of the two. */
static bool fill_truth(const struct server_fill_request *request)
{
    return request->int64_value != 0 || request->uint64_value != 0;
}

/** The value as text, for a message. @return @p buffer. */
static const char *fill_format_value(const struct server_fill_request *request,
                                     char buffer[static 40])
{
    switch (request->number) {
    case SERVER_NUMBER_BOOL:
        snprintf(buffer, 40, "%s", fill_truth(request) ? "true" : "false");
        break;
    case SERVER_NUMBER_INT64:
        snprintf(buffer, 40, "%lld", (long long)request->int64_value);
        break;
    case SERVER_NUMBER_UINT64:
        snprintf(buffer, 40, "%llu", (unsigned long long)request->uint64_value);
        break;
    default:
        snprintf(buffer, 40, "%.17g", request->double_value);
        break;
    }
    return buffer;
}

/** true and false are for bool, fractions, NaN and infinities for floats; integers are for all. */
static bool fill_fit(enum st_dtype dtype, const struct server_fill_request *request,
                     union st_scalar *ret_scalar)
{
    switch (request->number) {
    case SERVER_NUMBER_BOOL:
        return dtype == ST_DTYPE_BOOL &&
               st_dtype_from_uint64(dtype, fill_truth(request), ret_scalar);
    case SERVER_NUMBER_INT64:
        return st_dtype_from_int64(dtype, request->int64_value, ret_scalar);
    case SERVER_NUMBER_UINT64:
        return st_dtype_from_uint64(dtype, request->uint64_value, ret_scalar);
    default:
        return st_dtype_from_double(dtype, request->double_value, ret_scalar);
    }
}

static enum st_status fill_fit_value(const struct tensor *tensor,
                                     const struct server_fill_request *request,
                                     union st_scalar *ret_scalar, struct st_error *err)
{
    char text[40];
    union st_scalar scalar = {0};
    if (request->pattern == GPU_FILL_VALUE && !fill_fit(tensor->dtype, request, &scalar)) {
        return st_fail(err, ST_REASON_OUT_OF_RANGE_VALUE, "value", "%s does not fit %s",
                       fill_format_value(request, text), st_dtype_info(tensor->dtype)->name);
    }
    *ret_scalar = scalar;
    return ST_OK;
}

/* ---------------------------------------------------------------- accepting */

static enum st_status fill_check(struct server *server, const struct server_caller *caller,
                                 const struct server_fill_request *request,
                                 struct tensor **ret_tensor, struct st_error *err)
{
    struct tensor *tensor = NULL;
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        status = tensor_find(server, caller,
                             &(struct tensor_wanted){request->tensor, TENSOR_USE_WRITE, NULL},
                             &tensor, err);
    }
    if (status == ST_OK && request->rank >= 0 &&
        (uint32_t)request->rank >= tensor->group->world_size) {
        status = st_fail(err, ST_REASON_RANK_OUT_OF_RANGE, "rank", "must be below world_size %u",
                         tensor->group->world_size);
    }
    if (status == ST_OK) {
        status = tensor_check_idle(tensor, NULL, err);
    }
    if (status == ST_OK) {
        *ret_tensor = tensor;
    }
    return status;
}

static void fill_fill_in(struct fill_operation *fill, const struct server_fill_request *request,
                         struct tensor *tensor, union st_scalar value)
{
    struct server_operation *operation = &fill->base;
    bool all = request->rank < 0;
    fill->write = (struct server_write){
        .tensor = tensor,
        .shards = all ? tensor_shards_all(tensor) : order_rank((uint32_t)request->rank),
        .full = true,
        .expected_generation = request->expected_generation,
    };
    fill->spec = (struct gpu_fill_spec){
        .memory = tensor->memory,
        .rank = request->rank < 0 ? -1 : request->rank,
        .dtype = tensor->dtype,
        .shape = tensor->shape,
        .strides = tensor->strides,
        .pattern = request->pattern,
        .value = value,
    };
    operation->bytes = tensor->shard_bytes;
    operation->bytes_total = tensor->shard_bytes * (all ? tensor->group->world_size : 1);
    operation->small =
        tensor->shard_bytes <= ST_INLINE_BYTES / (all ? tensor->group->world_size : 1);
    server_operation_claim(operation, &tensor->group->order, GROUP_OPERATIONS, false);
    server_operation_claim(operation, &tensor->order, fill->write.shards, true);
}

/** Under the lock. @param ret_operation set also on failure when there is a handle to release. */
static enum st_status fill_accept(struct server *server, const struct server_caller *caller,
                                  const struct server_fill_request *request,
                                  struct server_operation **ret_operation, struct st_error *err)
{
    struct tensor *tensor = NULL;
    union st_scalar value = {0};
    enum st_status status = fill_check(server, caller, request, &tensor, err);
    if (status == ST_OK) {
        status = fill_fit_value(tensor, request, &value, err);
    }
    if (status == ST_OK) {
        status = server_verb_create(server, &fill_class, caller, tensor, ret_operation, err);
    }
    if (status != ST_OK) {
        return status;
    }
    fill_fill_in(fill_of(*ret_operation), request, tensor, value);
    return server_operation_accept(*ret_operation, err);
}

enum st_status server_fill(struct server *server, const struct server_caller *caller,
                           const struct server_fill_request *request,
                           struct server_operation **ret_operation, struct st_error *err)
{
    struct server_operation *operation = NULL;
    server_lock(server);
    enum st_status status = fill_accept(server, caller, request, &operation, err);
    server_unlock(server);
    return server_verb_start(operation, status, ret_operation);
}
