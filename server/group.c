#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/operation.h"
#include "server/registry.h"

/** A create or a delete of one group. */
struct group_operation {
    struct server_operation base;
    struct group *target; /**< NULL once it is gone. */
};

static struct group_operation *group_operation_of(struct server_operation *operation)
{
    return (struct group_operation *)operation;
}

/* ---------------------------------------------------------------- state */

static struct server_group *group_render(const struct group *group,
                                         const struct registry_meta *meta)
{
    size_t ranks_bytes = group->world_size * sizeof(struct server_rank);
    size_t labels_bytes = meta->labels->count * sizeof(struct server_label);
    struct server_group *view = calloc(1, sizeof(*view) + ranks_bytes + labels_bytes);
    if (!view) {
        return NULL;
    }
    view->base.references = 1;
    view->base.resource = SERVER_GROUP;
    server_copy_text(view->id, sizeof(view->id), group->id);
    server_copy_text(view->uid, sizeof(view->uid), meta->uid);
    server_copy_text(view->owner, sizeof(view->owner), group->owner);
    view->create_time_ns = meta->create_time_ns;
    view->version = group->version;
    view->state = group->state;
    view->epoch = group->epoch;
    view->world_size = group->world_size;
    view->multicast_reason = group_multicast_reason(group);
    view->tensors_count = group->tensors_count;
    view->ranks = (struct server_rank *)(view + 1);
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        view->ranks[rank].device = group->devices[rank];
    }
    view->labels.count = meta->labels->count;
    view->labels.items = (struct server_label *)(view->ranks + group->world_size);
    if (labels_bytes) {
        memcpy(view->labels.items, meta->labels->items, labels_bytes);
    }
    registry_sort_labels(&view->labels);
    return view;
}

/** The newest snapshot, with a reference. NULL: memory is out. */
static struct server_group *group_snapshot(struct group *group)
{
    if (group->stale) {
        struct registry_meta meta = {.create_time_ns = group->snapshot->create_time_ns,
                                     .labels = &group->snapshot->labels};
        server_copy_text(meta.uid, sizeof(meta.uid), group->snapshot->uid);
        struct server_group *fresh = group_render(group, &meta);
        if (!fresh) {
            return NULL;
        }
        server_snapshot_release(&group->snapshot->base);
        group->snapshot = fresh;
        group->stale = false;
    }
    atomic_fetch_add_explicit(&group->snapshot->base.references, 1, memory_order_relaxed);
    return group->snapshot;
}

void group_touch(struct group *group)
{
    group->stale = true;
}

static void group_set_state(struct group *group, enum server_state state)
{
    group->state = state;
    group->version++; /* which its tensors' versions follow */
    group_touch(group);
}

enum gpu_multicast_reason group_multicast_reason(const struct group *group)
{
    struct gpu_capabilities capabilities;
    gpu_capabilities(group->server->gpu, &capabilities);
    return group->multicast_reason != GPU_MULTICAST_NONE ? group->multicast_reason
                                                         : capabilities.multicast_reason;
}

enum st_status group_check_ready(const struct group *group, const char *field, struct st_error *err)
{
    if (group->state == SERVER_STATE_READY) {
        return ST_OK;
    }
    return st_failure(registry_fail_not_ready(err, ST_REASON_GROUP_NOT_READY, field, "group",
                                              group->id, group->state));
}

enum st_status group_check_moving(const struct group *group, struct st_error *err)
{
    if (!group->stuck) {
        return ST_OK;
    }
    return st_fail(err, ST_REASON_DEVICE_DEGRADED, NULL,
                   "a driver call for the memory of group %s does not return", group->id);
}

static enum st_status group_lookup(struct server *server, const char *id, const char *field,
                                   struct group **ret_group, struct st_error *err)
{
    struct group *group = st_index_find(&server->groups, id);
    if (!group) {
        char quoted[80];
        return st_fail(err, ST_REASON_GROUP_NOT_FOUND, field, "no group %s",
                       st_error_quote(id, quoted));
    }
    *ret_group = group;
    return ST_OK;
}

enum st_status group_find(struct server *server, const char *id, const char *field,
                          struct group **ret_group, struct st_error *err)
{
    struct group *group = NULL;
    enum st_status status = group_lookup(server, id, field, &group, err);
    if (status == ST_OK) {
        status = group_check_ready(group, field, err);
    }
    if (status == ST_OK) {
        *ret_group = group;
    }
    return status;
}

void group_free(struct group *group)
{
    if (!group) {
        return;
    }
    if (group->snapshot) {
        server_snapshot_release(&group->snapshot->base);
    }
    free(group);
}

/** The group is gone for good: its id is free. Under the lock. */
static void group_operation_remove(struct group_operation *operation)
{
    struct group *group = operation->target;
    operation->target = NULL;
    st_index_remove(&group->server->groups, group->id);
    server_holder_leave(&operation->base.holder);
    group_free(group);
}

static const char *group_operation_id(const void *arg, uint32_t number)
{
    (void)number; /* there is one */
    return ((const struct group_operation *)arg)->target->id;
}

static void group_operation_report(struct group_operation *operation)
{
    struct server_ids *ids = server_ids_create(1, group_operation_id, operation);
    if (!ids) {
        return; /* the work is done all the same */
    }
    operation->base.result =
        (struct server_result){.kind = SERVER_RESULT_RESOURCES, .count = 1, .resources = ids};
}

static void group_operation_destroy(struct server_operation *operation)
{
    (void)operation; /* the group is not the operation's */
}

static enum st_status group_operation_begin(struct server_operation *operation,
                                            struct st_error *err)
{
    (void)operation;
    (void)err;
    return ST_OK; /* everything was checked at acceptance */
}

/** Accept an operation on a group that claims all of it. Under the lock. */
static enum st_status group_operation_accept(struct server *server,
                                             const struct server_operation_spec *spec,
                                             void (*overran)(struct server_work *work),
                                             struct server_operation **ret_operation,
                                             struct st_error *err)
{
    struct server_operation *operation = server_operation_create(server, spec);
    if (!operation) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for an operation");
    }
    operation->work.overran = overran;
    group_operation_of(operation)->target = spec->group;
    server_operation_claim(operation, &spec->group->order, ORDER_ALL, true);
    *ret_operation = operation; /* also on failure: the caller releases it without the lock */
    return server_operation_accept(operation, err);
}

/** After the lock: start what was accepted, release what was not. */
static enum st_status group_operation_start(struct server_operation *operation,
                                            enum st_status status,
                                            struct server_operation **ret_operation)
{
    if (status != ST_OK) {
        server_operation_release(operation);
        return status;
    }
    server_operation_start(operation);
    *ret_operation = operation;
    return ST_OK;
}

/* ---------------------------------------------------------------- create */

static void group_create_run(struct server_operation *operation)
{
    struct group *group = group_operation_of(operation)->target;
    struct st_error err = {0};
    enum st_status status = gpu_team_create(operation->server->gpu, group->devices,
                                            group->world_size, &group->team, &err);
    if (status == ST_OK) {
        status = server_operation_settle(operation, &err);
        if (status != ST_OK) {
            gpu_team_destroy(group->team);
            group->team = NULL;
        }
    }
    server_operation_complete(operation, status, &err);
}

static void group_create_end(struct server_operation *operation, enum st_status status)
{
    struct group_operation *create = group_operation_of(operation);
    if (status == ST_OK) {
        create->target->multicast_reason = gpu_team_multicast_reason(create->target->team);
        group_set_state(create->target, SERVER_STATE_READY);
        group_operation_report(create);
    } else {
        group_operation_remove(create);
    }
}

static void group_create_overran(struct server_work *work)
{
    group_set_state(work->group, SERVER_STATE_FAILED);
    server_operation_overran(work);
}

static const struct server_operation_class group_create_class = {
    .verb = "create",
    .size = sizeof(struct group_operation),
    .pool = SERVER_POOL_MEMORY,
    .begin = group_operation_begin,
    .run = group_create_run,
    .end = group_create_end,
    .destroy = group_operation_destroy,
};

static enum st_status group_check_devices(struct server *server,
                                          const struct server_group_create *request,
                                          struct st_error *err)
{
    struct gpu_capabilities capabilities;
    gpu_capabilities(server->gpu, &capabilities);
    uint32_t most = capabilities.node_ranks_max < ST_NODE_RANKS_MAX ? capabilities.node_ranks_max
                                                                    : ST_NODE_RANKS_MAX;
    if (request->world_size < 1 || request->world_size > most) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "devices",
                       "a group has 1 to %u ranks on a node", most);
    }
    for (uint32_t rank = 0; rank < request->world_size; rank++) {
        if (request->devices[rank] >= gpu_device_count(server->gpu)) {
            char field[ST_ERROR_FIELD_MAX];
            snprintf(field, sizeof(field), "devices[%u]", rank);
            return st_fail(err, ST_REASON_DEVICE_NOT_FOUND, field, "there is no device %u",
                           request->devices[rank]);
        }
    }
    return ST_OK;
}

static enum st_status group_check_create(struct server *server, const struct server_caller *caller,
                                         const struct server_group_create *request,
                                         struct st_error *err)
{
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        status = group_check_devices(server, request, err);
    }
    if (status == ST_OK) {
        status = registry_check_labels(&request->labels, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct group *taken = request->id[0] ? st_index_find(&server->groups, request->id) : NULL;
    if (taken) {
        return registry_fail_taken(err, "group", taken->id, taken->snapshot->uid);
    }
    if (server->groups.count >= ST_GROUPS_MAX) {
        return st_fail(err, ST_REASON_TOO_MANY_RESOURCES, NULL, "the node has %d groups already",
                       ST_GROUPS_MAX);
    }
    return ST_OK;
}

/** Fill in what the request says. */
static enum st_status group_init(struct group *group, const struct server_caller *caller,
                                 const struct server_group_create *request, struct st_error *err)
{
    struct server *server = group->server;
    enum st_status status =
        registry_choose_id(&server->groups, "group", request->id, group->id, err);
    if (status != ST_OK) {
        return status;
    }
    server_copy_text(group->owner, sizeof(group->owner), caller->principal);
    group->world_size = request->world_size;
    group->state = SERVER_STATE_CREATING;
    group->epoch = 1;
    group->version = 1;
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        const struct gpu_device_info *info = gpu_device_info(server->gpu, request->devices[rank]);
        group->devices[rank] = request->devices[rank];
        if (info->granularity_minimum_bytes > group->granularity_bytes) {
            group->granularity_bytes = info->granularity_minimum_bytes;
        }
    }
    struct registry_meta meta = {.create_time_ns = st_clock_realtime_ns(),
                                 .labels = &request->labels};
    st_uid_make(meta.uid);
    group->snapshot = group_render(group, &meta);
    return group->snapshot ? ST_OK
                           : st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a group");
}

/** A group in state creating, in the index. Under the lock. */
static enum st_status group_make(struct server *server, const struct server_caller *caller,
                                 const struct server_group_create *request,
                                 struct group **ret_group, struct st_error *err)
{
    enum st_status status = group_check_create(server, caller, request, err);
    if (status != ST_OK) {
        return status;
    }
    struct group *group = calloc(1, sizeof(*group));
    if (!group) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a group");
    }
    group->server = server;
    status = group_init(group, caller, request, err);
    bool exists = false;
    if (status == ST_OK && !st_index_insert(&server->groups, group->id, group, &exists)) {
        status = st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a group");
    }
    if (status != ST_OK) {
        group_free(group);
        return status;
    }
    *ret_group = group;
    return ST_OK;
}

enum st_status server_group_create(struct server *server, const struct server_caller *caller,
                                   const struct server_group_create *request,
                                   struct server_operation **ret_operation, struct st_error *err)
{
    struct server_operation *operation = NULL;
    struct group *group = NULL;
    server_lock(server);
    enum st_status status = group_make(server, caller, request, &group, err);
    if (status == ST_OK) {
        const struct server_operation_spec spec = {.class = &group_create_class,
                                                   .caller = caller,
                                                   .group = group,
                                                   .target_kind = "groups",
                                                   .target_id = group->id};
        status = group_operation_accept(server, &spec, group_create_overran, &operation, err);
        if (!operation) {
            st_index_remove(&server->groups, group->id);
            group_free(group);
        }
    }
    server_unlock(server);
    return group_operation_start(operation, status, ret_operation);
}

/* ---------------------------------------------------------------- delete */

/** The ids of its tensors are free, bit by bit; their memory is gone. No lock. */
static void group_drop_tensors(struct group *group)
{
    struct server *server = group->server;
    struct tensor *gone = NULL;
    server_lock(server);
    while (group->tensors) {
        struct tensor *tensors[SERVER_HOLD_STEPS];
        uint32_t count = 0;
        for (struct tensor *t = group->tensors; t && count < SERVER_HOLD_STEPS; t = t->next) {
            tensors[count++] = t;
        }
        tensors_remove(server, tensors, count);
        while (count > 0) {
            tensors[--count]->next = gone;
            gone = tensors[count];
        }
        server_breathe(server);
    }
    server_unlock(server);
    while (gone) {
        struct tensor *next = gone->next;
        tensor_free(gone);
        gone = next;
    }
}

static void group_delete_run(struct server_operation *operation)
{
    struct group *group = group_operation_of(operation)->target;
    /* The claim is on everything, so the list stands still. */
    for (struct tensor *tensor = group->tensors; tensor; tensor = tensor->next) {
        gpu_memory_destroy(tensor->memory);
        tensor->memory = NULL;
    }
    server_scratch_destroy(group->scratch);
    group->scratch = NULL;
    gpu_team_destroy(group->team);
    group->team = NULL;
    group_drop_tensors(group);
    server_operation_complete(operation, ST_OK, NULL);
}

static void group_delete_end(struct server_operation *operation, enum st_status status)
{
    struct group_operation *delete = group_operation_of(operation);
    (void)status; /* what began succeeds: memory that does not go back is gpu/'s to account for */
    if (operation->began) {
        group_operation_remove(delete);
    } else {
        group_set_state(delete->target, SERVER_STATE_READY);
    }
}

static const struct server_operation_class group_delete_class = {
    .verb = "delete",
    .size = sizeof(struct group_operation),
    .pool = SERVER_POOL_MEMORY,
    .begin = group_operation_begin,
    .run = group_delete_run,
    .end = group_delete_end,
    .destroy = group_operation_destroy,
};

static enum st_status group_check_delete(struct server *server, const struct server_caller *caller,
                                         const struct group *group, bool force,
                                         struct st_error *err)
{
    enum st_status status = registry_check_force(caller, force, err);
    if (status == ST_OK) {
        status = registry_check_right(caller, group->owner, NULL, REGISTRY_WRITE, err);
    }
    if (status == ST_OK) {
        status = group_check_ready(group, NULL, err);
    }
    if (status == ST_OK) {
        status = group_check_moving(group, err);
    }
    if (status == ST_OK && group->tensors_count > 0 && !force) {
        return st_fail(err, ST_REASON_GROUP_NOT_EMPTY, NULL, "group %s has %u tensors", group->id,
                       group->tensors_count);
    }
    (void)server;
    return status;
}

enum st_status server_group_delete(struct server *server, const struct server_caller *caller,
                                   const char *id, bool force,
                                   struct server_operation **ret_operation, struct st_error *err)
{
    struct server_operation *operation = NULL;
    struct group *group = NULL;
    server_lock(server);
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        status = group_lookup(server, id, NULL, &group, err);
    }
    if (status == ST_OK) {
        status = group_check_delete(server, caller, group, force, err);
    }
    if (status == ST_OK) {
        const struct server_operation_spec spec = {.class = &group_delete_class,
                                                   .caller = caller,
                                                   .group = group,
                                                   .target_kind = "groups",
                                                   .target_id = group->id};
        group_set_state(group, SERVER_STATE_DELETING);
        status = group_operation_accept(server, &spec, server_operation_overran, &operation, err);
        if (!operation) {
            group_set_state(group, SERVER_STATE_READY);
        }
        if (status == ST_OK && force) {
            server_transfer_cancel_uploads(server, group, NULL);
        }
    }
    server_unlock(server);
    return group_operation_start(operation, status, ret_operation);
}

/* ---------------------------------------------------------------- reading */

enum st_status server_group_get(struct server *server, const char *id,
                                struct server_group **ret_group, struct st_error *err)
{
    struct group *group = NULL;
    struct server_group *snapshot = NULL;
    server_lock(server);
    enum st_status status = group_lookup(server, id, NULL, &group, err);
    if (status == ST_OK) {
        snapshot = group_snapshot(group);
        status = snapshot ? ST_OK : st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory");
    }
    server_unlock(server);
    if (status == ST_OK) {
        *ret_group = snapshot;
    }
    return status;
}

uint32_t server_group_list(struct server *server, const struct server_list_query *query,
                           struct server_group **ret, bool *ret_more)
{
    uint32_t count = 0;
    *ret_more = false;
    server_lock(server);
    const struct st_index *index = &server->groups;
    for (size_t i = st_index_after(index, query->after); i < index->count && !*ret_more; i++) {
        struct group *group = index->entries[i].value;
        bool shown =
            (!query->state[0] || strcmp(query->state, server_state_name(group->state)) == 0) &&
            registry_match_labels(&group->snapshot->labels, query);
        if (shown && count == query->max) {
            *ret_more = true;
        } else if (shown) {
            ret[count] = group_snapshot(group);
            count += ret[count] != NULL;
        }
    }
    server_unlock(server);
    return count;
}
