#include <stddef.h>
#include <stdlib.h>

#include "server/registry.h"

struct tensors_operation *tensors_operation_create(struct server *server,
                                                   const struct server_operation_spec *spec,
                                                   uint32_t capacity)
{
    struct server_operation *base = server_operation_create(server, spec);
    if (!base) {
        return NULL;
    }
    struct tensors_operation *operation = (struct tensors_operation *)base;
    /* At worst each tensor is of another group. */
    operation->tensors = calloc(capacity, sizeof(struct tensor *));
    operation->groups = calloc(capacity, sizeof(struct tensors_group));
    bool made = operation->tensors && operation->groups &&
                server_operation_reserve_claims(base, 2 * capacity);
    if (!made) {
        server_operation_release(base);
        return NULL;
    }
    return operation;
}

/* ---------------------------------------------------------------- picking the tensors */

static void group_granted(struct server_holder *holder)
{
    (void)holder; /* it only stands in the way of whoever wants all of the group */
}

static bool group_is_kept(const struct tensors_operation *operation, const struct group *group)
{
    for (uint32_t i = operation->group_count; i-- > 0;) {
        if (operation->groups[i].group == group) {
            return true;
        }
    }
    return false;
}

void tensors_operation_add(struct tensors_operation *operation, struct tensor *tensor)
{
    struct group *group = tensor->group;
    operation->tensors[operation->count++] = tensor;
    if (!group_is_kept(operation, group)) {
        struct tensors_group *kept = &operation->groups[operation->group_count++];
        kept->group = group;
        kept->claim = (struct order_claim){.queue = &group->order, .shards = GROUP_OPERATIONS};
        kept->holder = (struct server_holder){.order = {.claims = &kept->claim, .count = 1},
                                              .server = operation->base.server,
                                              .granted = group_granted};
        /* Granted or not: the group was ready, so that a delete comes behind. Nobody waits for this
         * claim to be granted, so that it does not matter in which order groups are kept. */
        (void)server_holder_enter(&kept->holder);
    }
    if (operation->count % SERVER_HOLD_CHANGES == 0) {
        server_breathe(operation->base.server);
    }
}

void tensors_operation_let_go(struct tensors_operation *operation)
{
    while (operation->group_count > 0) {
        server_holder_leave(&operation->groups[--operation->group_count].holder);
    }
}

/** What may have changed since the first tensor was picked. */
static enum st_status tensors_operation_check(const struct tensors_operation *operation,
                                              const struct server_caller *caller,
                                              struct st_error *err)
{
    enum st_status status = server_accept_check(operation->base.server, caller, err);
    for (uint32_t i = 0; i < operation->group_count && status == ST_OK; i++) {
        status = group_check_ready(operation->groups[i].group, NULL, err);
    }
    return status;
}

enum st_status tensors_operation_accept(struct tensors_operation *operation,
                                        const struct server_caller *caller, struct st_error *err)
{
    struct server_operation *base = &operation->base;
    enum st_status status = tensors_operation_check(operation, caller, err);
    if (status != ST_OK) {
        base->class->end(base, status);
        return status;
    }
    for (uint32_t i = 0; i < operation->group_count; i++) {
        server_operation_claim(base, &operation->groups[i].group->order, GROUP_OPERATIONS, false);
    }
    for (uint32_t i = 0; i < operation->count; i++) {
        server_operation_claim(base, &operation->tensors[i]->order, ORDER_ALL, true);
    }
    return server_operation_accept(base, err);
}

/* ---------------------------------------------------------------- the end */

static const char *tensors_operation_id(const void *arg, uint32_t number)
{
    return ((const struct tensors_operation *)arg)->tensors[number]->id;
}

void tensors_operation_report(struct tensors_operation *operation)
{
    struct server_ids *ids = server_ids_create(operation->count, tensors_operation_id, operation);
    if (!ids) {
        return; /* the work is done all the same */
    }
    operation->base.result = (struct server_result){
        .kind = SERVER_RESULT_RESOURCES, .count = operation->count, .resources = ids};
}

void tensors_operation_withdraw(struct tensors_operation *operation)
{
    struct server *server = operation->base.server;
    for (uint32_t done = 0; done < operation->count;) {
        uint32_t left = operation->count - done;
        uint32_t count = left < SERVER_HOLD_STEPS ? left : SERVER_HOLD_STEPS;
        tensors_remove(server, operation->tensors + done, count);
        done += count;
        if (done < operation->count) {
            server_breathe(server);
        }
    }
    operation->withdrawn = true;
}

/** No lock. */
static void tensors_operation_free(struct server_after *after)
{
    struct tensors_operation *operation =
        (struct tensors_operation *)((char *)after - offsetof(struct tensors_operation, gone));
    for (uint32_t i = 0; i < operation->count; i++) {
        tensor_free(operation->tensors[i]);
    }
    free(operation->tensors);
    operation->tensors = NULL;
    operation->count = 0;
    server_operation_release(&operation->base);
}

void tensors_operation_remove(struct tensors_operation *operation)
{
    struct server *server = operation->base.server;
    /* Out of the lists first: giving the claims back lets others look at them. */
    if (!operation->withdrawn) {
        tensors_remove(server, operation->tensors, operation->count);
        operation->withdrawn = true;
    }
    server_holder_leave(&operation->base.holder);
    server_operation_retain(&operation->base);
    operation->gone.call = tensors_operation_free;
    server_after(server, &operation->gone);
}

void tensors_operation_destroy(struct server_operation *operation)
{
    struct tensors_operation *tensors = (struct tensors_operation *)operation;
    free(tensors->tensors);
    free(tensors->groups);
}
