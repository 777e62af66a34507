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
    operation->tensors = calloc(capacity, sizeof(struct tensor *));
    /* At worst each tensor is of another group. */
    if (!operation->tensors || !server_operation_reserve_claims(base, 2 * capacity)) {
        server_operation_release(base);
        return NULL;
    }
    return operation;
}

/** Whether an earlier tensor is of the same group. */
static bool group_seen(const struct tensors_operation *operation, uint32_t before)
{
    const struct group *group = operation->tensors[before]->group;
    for (uint32_t i = before; i-- > 0;) {
        if (operation->tensors[i]->group == group) {
            return true;
        }
    }
    return false;
}

enum st_status tensors_operation_accept(struct tensors_operation *operation, struct st_error *err)
{
    struct server_operation *base = &operation->base;
    for (uint32_t i = 0; i < operation->count; i++) {
        if (!group_seen(operation, i)) {
            server_operation_claim(base, &operation->tensors[i]->group->order, GROUP_OPERATIONS,
                                   false);
        }
        server_operation_claim(base, &operation->tensors[i]->order, ORDER_ALL, true);
    }
    return server_operation_accept(base, err);
}

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

void tensors_operation_remove(struct tensors_operation *operation)
{
    /* Out of the lists first: giving the claims back lets others look at them. */
    for (uint32_t i = 0; i < operation->count; i++) {
        tensor_remove(operation->tensors[i]);
    }
    server_holder_leave(&operation->base.holder);
    for (uint32_t i = 0; i < operation->count; i++) {
        tensor_free(operation->tensors[i]);
    }
    free(operation->tensors);
    operation->tensors = NULL;
    operation->count = 0;
}

void tensors_operation_destroy(struct server_operation *operation)
{
    free(((struct tensors_operation *)operation)->tensors);
}
