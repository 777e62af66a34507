#include "server/verb.h"

enum st_status server_verb_create(struct server *server, const struct server_operation_class *class,
                                  const struct server_caller *caller, struct tensor *tensor,
                                  struct server_operation **ret_operation, struct st_error *err)
{
    const struct server_operation_spec spec = {
        .class = class,
        .caller = caller,
        .group = tensor->group,
        .target_kind = "tensors",
        .target_id = tensor->id,
    };
    struct server_operation *operation = server_operation_create(server, &spec);
    if (!operation) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    *ret_operation = operation;
    return ST_OK;
}

enum st_status server_verb_start(struct server_operation *operation, enum st_status status,
                                 struct server_operation **ret_operation)
{
    if (status == ST_OK) {
        server_operation_start(operation);
        *ret_operation = operation;
    } else if (operation) {
        server_operation_release(operation);
    }
    return status;
}

enum st_status server_write_begin(struct server_write *write, struct st_error *err)
{
    enum st_status status = tensor_generation_check(write->tensor, write->expected_generation, err);
    if (status == ST_OK) {
        tensor_contents_begin(write->tensor, write->shards);
    }
    return status;
}

void server_write_end(struct server_write *write, struct server_operation *operation,
                      enum st_status status)
{
    if (!operation->began) {
        return;
    }
    if (status == ST_OK) {
        tensor_contents_commit(write->tensor, write->shards, write->full);
        operation->generation = tensor_generation(write->tensor, write->shards);
    } else if (write->launched && !operation->untouched) {
        tensor_contents_fail(write->tensor, write->shards);
    } else {
        tensor_contents_restore(write->tensor, write->shards);
    }
}
