#include "server/verb.h"

/** A barrier writes what every operation of the group reads: its place in the order is all there is
 * to it. */

static enum st_status barrier_begin(struct server_operation *operation, struct st_error *err)
{
    (void)operation;
    (void)err;
    return ST_OK;
}

static void barrier_run(struct server_operation *operation)
{
    server_operation_complete(operation, ST_OK, NULL);
}

static void barrier_end(struct server_operation *operation, enum st_status status)
{
    (void)operation;
    (void)status;
}

static void barrier_destroy(struct server_operation *operation)
{
    (void)operation;
}

static const struct server_operation_class barrier_class = {
    .verb = "barrier",
    .size = sizeof(struct server_operation),
    .pool = SERVER_POOL_LAUNCH,
    .begin = barrier_begin,
    .run = barrier_run,
    .end = barrier_end,
    .destroy = barrier_destroy,
};

/** Under the lock. @param ret_operation set also on failure when there is a handle to release. */
static enum st_status barrier_accept(struct server *server, const struct server_caller *caller,
                                     const char *id, struct server_operation **ret_operation,
                                     struct st_error *err)
{
    struct group *group = NULL;
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        status = group_find(server, id, NULL, &group, err);
    }
    if (status != ST_OK) {
        return status;
    }
    const struct server_operation_spec spec = {
        .class = &barrier_class,
        .caller = caller,
        .group = group,
        .target_kind = "groups",
        .target_id = group->id,
    };
    struct server_operation *operation = server_operation_create(server, &spec);
    if (!operation) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    *ret_operation = operation;
    operation->small = true;
    server_operation_claim(operation, &group->order, GROUP_OPERATIONS, true);
    return server_operation_accept(operation, err);
}

enum st_status server_group_barrier(struct server *server, const struct server_caller *caller,
                                    const char *id, struct server_operation **ret_operation,
                                    struct st_error *err)
{
    struct server_operation *operation = NULL;
    server_lock(server);
    enum st_status status = barrier_accept(server, caller, id, &operation, err);
    server_unlock(server);
    return server_verb_start(operation, status, ret_operation);
}
