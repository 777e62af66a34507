#include "tests/unit/server/registry_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/internal.h"

#define DEVICES 2
#define MEMORY (64u << 20)
#define GRANULE_ELEMENTS (512u << 10) /* float32 in one granule of the software driver */

static int setup(void **state)
{
    holdings_prepare();
    struct server *server = node_start(DEVICES, MEMORY);
    node_group(server, "g", 2, DEVICES);
    *state = server;
    return 0;
}

static int teardown(void **state)
{
    node_stop(*state);
    return 0;
}

static struct server_tensor *get(struct server *server, const char *id)
{
    struct server_tensor *tensor = NULL;
    struct st_error err = {0};
    assert_int_equal(server_tensor_get(server, id, &tensor, &err), ST_OK);
    return tensor;
}

static struct server_caller caller_as(const char *principal, enum server_role role)
{
    struct server_caller caller = node_caller;
    caller.principal = principal;
    caller.role = role;
    return caller;
}

static enum st_status create_as(struct server *server, const struct server_caller *caller,
                                const struct server_tensor_create *request, struct st_error *err)
{
    struct server_operation *operation = NULL;
    enum st_status status = server_tensor_create(server, caller, request, &operation, err);
    return status == ST_OK ? node_finish_status(operation, err) : status;
}

static enum st_status delete_as(struct server *server, const struct server_caller *caller,
                                const char *id, bool force, struct st_error *err)
{
    struct server_operation *operation = NULL;
    enum st_status status = server_tensor_delete(server, caller, id, force, &operation, err);
    return status == ST_OK ? node_finish_status(operation, err) : status;
}

/* ---------------------------------------------------------------- creating */

static void a_new_tensor_is_ready_valid_and_of_generation_zero(void **state)
{
    struct server *server = *state;
    struct server_tensor_create *request = tensor_request("g", "t", 6);
    request->shape = (struct st_shape){.rank = 2, .dims = {2, 3}};
    struct st_error err = {0};
    assert_int_equal(create_as(server, &node_caller, request, &err), ST_OK);
    free(request);
    struct server_tensor *tensor = get(server, "t");
    assert_int_equal(tensor->state, SERVER_STATE_READY);
    assert_string_equal(tensor->owner, "test");
    assert_string_equal(tensor->group, "g");
    assert_int_equal(tensor->shard_bytes, 24);
    assert_true(tensor->allocated_bytes >= 24);
    assert_int_equal(tensor->strides.dims[0], 3);
    assert_int_equal(tensor->strides.dims[1], 1);
    assert_int_equal(tensor->world_size, 2);
    assert_int_equal(tensor->ranks[1].device, 1);
    assert_int_equal(tensor->contents.state, SERVER_CONTENTS_VALID);
    assert_int_equal(tensor->shard_contents[1].generation, 0);
    assert_true(tensor->create_time_ns > 0 && tensor->version > 0);
    assert_int_equal(strlen(tensor->uid), ST_UID_BYTES - 1);
    server_snapshot_release(&tensor->base);
}

static void attachable_defaults_to_true_from_one_granule_up(void **state)
{
    static const struct {
        uint64_t elements;
        int asked;
        enum gpu_memory_type type;
        bool attachable;
    } rows[] = {
        {GRANULE_ELEMENTS, -1, GPU_MEMORY_SYMMETRIC, true},
        {GRANULE_ELEMENTS - 1, -1, GPU_MEMORY_SYMMETRIC, false},
        {1, 1, GPU_MEMORY_SYMMETRIC, true},
        {GRANULE_ELEMENTS, 0, GPU_MEMORY_SYMMETRIC, false},
        {GRANULE_ELEMENTS, -1, GPU_MEMORY_GLOBAL, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct server_tensor_create *request = tensor_request("g", "t", rows[i].elements);
        struct st_error err = {0};
        request->attachable = rows[i].asked;
        request->memory_type = rows[i].type;
        assert_int_equal(create_as(*state, &node_caller, request, &err), ST_OK);
        struct server_tensor *tensor = get(*state, "t");
        assert_int_equal(tensor->attachable, rows[i].attachable);
        server_snapshot_release(&tensor->base);
        assert_int_equal(tensor_drop(*state, "t", &err), ST_OK);
        free(request);
    }
}

/** One way to ask for something that cannot be. */
struct refusal {
    void (*spoil)(struct server_tensor_create *request);
    enum st_reason reason;
    const char *field;
};

static void spoil_id(struct server_tensor_create *request)
{
    snprintf(request->id, sizeof(request->id), "a..b");
}
static void spoil_group(struct server_tensor_create *request)
{
    snprintf(request->group, sizeof(request->group), "nowhere");
}
static void spoil_dimension(struct server_tensor_create *request)
{
    request->shape.dims[0] = -1;
}
static void spoil_size(struct server_tensor_create *request)
{
    request->shape = (struct st_shape){.rank = 2, .dims = {INT64_MAX / 2, 4}};
}
static void spoil_capacity(struct server_tensor_create *request)
{
    request->shape.dims[0] = 1 << 30;
}
static void spoil_strides_rank(struct server_tensor_create *request)
{
    request->has_strides = true;
    request->strides_rank = 2;
    request->strides.dims[0] = 1;
}
static void spoil_strides(struct server_tensor_create *request)
{
    request->has_strides = true;
    request->strides_rank = 1;
    request->strides.dims[0] = 2;
}
static void spoil_attachable(struct server_tensor_create *request)
{
    request->memory_type = GPU_MEMORY_GLOBAL;
    request->attachable = 1;
}
static void spoil_labels(struct server_tensor_create *request)
{
    static struct server_label twice[2] = {{.key = "k", .value = "1"}, {.key = "k", .value = "2"}};
    request->labels = (struct server_labels){.count = 2, .items = twice};
}

static const struct refusal refusals[] = {
    {spoil_id, ST_REASON_INVALID_ID, "id"},
    {spoil_group, ST_REASON_GROUP_NOT_FOUND, "group"},
    {spoil_dimension, ST_REASON_INVALID_VALUE, "shape[0]"},
    {spoil_size, ST_REASON_SHAPE_OVERFLOW, "shape"},
    {spoil_capacity, ST_REASON_EXCEEDS_DEVICE_CAPACITY, NULL},
    {spoil_strides_rank, ST_REASON_INVALID_VALUE, "strides"},
    {spoil_strides, ST_REASON_NOT_CONTIGUOUS, "strides"},
    {spoil_attachable, ST_REASON_INVALID_VALUE, "attachable"},
    {spoil_labels, ST_REASON_INVALID_VALUE, "labels"},
};

static void what_cannot_be_is_refused_with_the_field_and_changes_nothing(void **state)
{
    struct server *server = *state;
    struct holdings before = holdings_of(server);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct server_tensor_create *request = tensor_request("g", "t", 4);
        struct st_error err = {0};
        refusals[i].spoil(request);
        assert_int_not_equal(create_as(server, &node_caller, request, &err), ST_OK);
        assert_int_equal(err.reason, refusals[i].reason);
        if (refusals[i].field) {
            assert_string_equal(err.field, refusals[i].field);
        }
        free(request);
        assert_holdings(server, &before);
    }
}

static void a_batch_names_the_item_that_is_refused_and_makes_none(void **state)
{
    struct server *server = *state;
    struct holdings before = holdings_of(server);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct server_tensor_create requests[3];
        for (int k = 0; k < 3; k++) {
            struct server_tensor_create *one = tensor_request("g", "", 4);
            requests[k] = *one;
            free(one);
        }
        refusals[i].spoil(&requests[2]);
        struct server_operation *operation = NULL;
        struct st_error err = {0};
        assert_int_not_equal(
            server_tensor_batch_create(server, &node_caller, requests, 3, &operation, &err), ST_OK);
        assert_int_equal(err.reason, refusals[i].reason);
        char field[64];
        snprintf(field, sizeof(field), "tensors[2].%s", refusals[i].field ? refusals[i].field : "");
        if (refusals[i].field) {
            assert_string_equal(err.field, field);
            assert_memory_equal(err.message, field, strlen(field));
        }
        assert_holdings(server, &before);
    }
}

static void an_id_that_is_taken_is_refused_with_the_uid_of_who_has_it(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_OK);
    struct server_tensor *tensor = get(server, "t");
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_ALREADY_EXISTS);
    assert_int_equal(err.reason, ST_REASON_ID_TAKEN);
    assert_string_equal(err.details[0].key, "uid");
    assert_string_equal(err.details[0].value, tensor->uid);
    char uid[ST_UID_BYTES];
    snprintf(uid, sizeof(uid), "%s", tensor->uid);
    server_snapshot_release(&tensor->base);
    assert_int_equal(tensor_drop(server, "t", &err), ST_OK);
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_OK);
    tensor = get(server, "t");
    assert_string_not_equal(tensor->uid, uid);
    server_snapshot_release(&tensor->base);
    assert_int_equal(group_make(server, "g", 1, &err), ST_ALREADY_EXISTS);
}

static void the_server_makes_ids_when_none_is_given(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    struct server_tensor_create *request = tensor_request("g", "", 4);
    char made[2][ST_ID_MAX + 1];
    for (int i = 0; i < 2; i++) {
        struct server_operation *operation = NULL;
        assert_int_equal(server_tensor_create(server, &node_caller, request, &operation, &err),
                         ST_OK);
        struct server_operation_view *view = node_finish(operation);
        assert_int_equal(view->state, SERVER_OPERATION_SUCCEEDED);
        assert_int_equal(view->result.kind, SERVER_RESULT_RESOURCES);
        assert_int_equal(view->result.count, 1);
        snprintf(made[i], sizeof(made[i]), "%s", view->result.resources->items[0]);
        assert_true(tensor_exists(server, made[i]));
        assert_memory_equal(view->target, "tensors/", strlen("tensors/"));
        assert_string_equal(view->target + strlen("tensors/"), made[i]);
        server_snapshot_release(&view->base);
    }
    assert_string_not_equal(made[0], made[1]);
    free(request);
}

static void devices_of_a_group_are_checked(void **state)
{
    static const struct {
        uint32_t world_size, device;
        enum st_reason reason;
        const char *field;
    } rows[] = {
        {0, 0, ST_REASON_INVALID_VALUE, "devices"},
        {ST_NODE_RANKS_MAX + 1, 0, ST_REASON_INVALID_VALUE, "devices"},
        {2, DEVICES, ST_REASON_DEVICE_NOT_FOUND, "devices[1]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct server_group_create request = {.world_size = rows[i].world_size,
                                              .devices = {0, rows[i].device}};
        struct server_operation *operation = NULL;
        struct st_error err = {0};
        assert_int_not_equal(server_group_create(*state, &node_caller, &request, &operation, &err),
                             ST_OK);
        assert_int_equal(err.reason, rows[i].reason);
        assert_string_equal(err.field, rows[i].field);
    }
}

static void a_full_registry_is_refused(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    uint32_t made = 1;
    enum st_status status = ST_OK;
    while (status == ST_OK && made <= ST_GROUPS_MAX) {
        status = group_make(server, "", 1, &err);
        made += status == ST_OK;
    }
    assert_int_equal(status, ST_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ST_REASON_TOO_MANY_RESOURCES);
    assert_int_equal(made, ST_GROUPS_MAX);
}

/* ---------------------------------------------------------------- deleting */

static void a_group_with_tensors_goes_only_by_force(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    struct holdings before = holdings_of(server);
    assert_int_equal(group_make(server, "x", 2, &err), ST_OK);
    assert_int_equal(batch_make(server, "x", "t", 3, 100, &err), ST_OK);
    assert_int_equal(tensor_make(server, "x", "big", GRANULE_ELEMENTS, &err), ST_OK);
    assert_int_equal(group_drop(server, "x", false, &err), ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_GROUP_NOT_EMPTY);
    struct server_group *group = NULL;
    assert_int_equal(server_group_get(server, "x", &group, &err), ST_OK);
    assert_int_equal(group->state, SERVER_STATE_READY);
    assert_int_equal(group->tensors_count, 4);
    server_snapshot_release(&group->base);
    struct server_caller user = caller_as("test", SERVER_ROLE_USER);
    struct server_operation *operation = NULL;
    assert_int_equal(server_group_delete(server, &user, "x", true, &operation, &err),
                     ST_PERMISSION_DENIED);
    assert_int_equal(group_drop(server, "x", true, &err), ST_OK);
    assert_false(tensor_exists(server, "big") || group_exists(server, "x"));
    assert_holdings(server, &before);
}

static void a_batch_delete_takes_all_or_none(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(batch_make(server, "g", "t", 3, 100, &err), ST_OK);
    assert_int_equal(batch_drop(server, "t", 4, &err), ST_NOT_FOUND);
    assert_string_equal(err.field, "tensors[3]");
    char twice[2][ST_ID_MAX + 1] = {"t1", "t1"};
    struct server_operation *operation = NULL;
    const struct server_tensor_batch_delete request = {.ids = (const char(*)[ST_ID_MAX + 1]) twice,
                                                       .count = 2};
    assert_int_equal(server_tensor_batch_delete(server, &node_caller, &request, &operation, &err),
                     ST_FAILED_PRECONDITION);
    assert_string_equal(err.field, "tensors[1]");
    struct server_tensor *tensor = get(server, "t1");
    assert_int_equal(tensor->state, SERVER_STATE_READY);
    server_snapshot_release(&tensor->base);
    assert_int_equal(batch_drop(server, "t", 3, &err), ST_OK);
    assert_false(tensor_exists(server, "t0") || tensor_exists(server, "t2"));
}

/** Holds a tensor as an operation would, until told. */
static void hold(struct server *server, const char *id, struct server_holder *holder,
                 struct order_claim claims[2])
{
    server_lock(server);
    struct tensor *tensor = st_index_find(&server->tensors, id);
    claims[0] = (struct order_claim){.queue = &tensor->group->order, .shards = GROUP_OPERATIONS};
    claims[1] = (struct order_claim){.queue = &tensor->order, .shards = ORDER_ALL};
    *holder = (struct server_holder){.order = {.claims = claims, .count = 2}, .server = server};
    assert_true(server_holder_enter(holder));
    server_unlock(server);
}

static void let_go(struct server_holder *holder)
{
    server_lock(holder->server);
    server_holder_leave(holder);
    server_unlock(holder->server);
}

static void a_delete_waits_for_what_was_accepted_and_can_be_cancelled_until_then(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    struct server_holder holder;
    struct order_claim claims[2];
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_OK);
    hold(server, "t", &holder, claims);
    for (int round = 0; round < 2; round++) {
        struct server_operation *operation = NULL;
        assert_int_equal(server_tensor_delete(server, &node_caller, "t", false, &operation, &err),
                         ST_OK);
        assert_int_equal(node_operation_state(operation), SERVER_OPERATION_QUEUED);
        struct server_tensor *tensor = get(server, "t");
        assert_int_equal(tensor->state, SERVER_STATE_DELETING);
        server_snapshot_release(&tensor->base);
        assert_int_equal(tensor_drop(server, "t", &err), ST_FAILED_PRECONDITION);
        assert_int_equal(err.reason, ST_REASON_TENSOR_NOT_READY);
        assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_ALREADY_EXISTS);
        if (round == 0) {
            assert_int_equal(server_operation_cancel(operation, &node_caller, &err), ST_OK);
            assert_int_equal(node_finish_status(operation, &err), ST_CANCELLED);
            tensor = get(server, "t");
            assert_int_equal(tensor->state, SERVER_STATE_READY);
            server_snapshot_release(&tensor->base);
        } else {
            let_go(&holder);
            assert_int_equal(node_finish_status(operation, &err), ST_OK);
            assert_false(tensor_exists(server, "t"));
        }
    }
}

static void a_group_that_goes_takes_nothing_new_and_shows_its_tensors_as_going(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    struct server_holder holder;
    struct order_claim claims[2];
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_OK);
    hold(server, "t", &holder, claims);
    struct server_operation *operation = NULL;
    assert_int_equal(server_group_delete(server, &node_caller, "g", true, &operation, &err), ST_OK);
    struct server_tensor *tensor = get(server, "t");
    assert_int_equal(tensor->state, SERVER_STATE_DELETING);
    server_snapshot_release(&tensor->base);
    assert_int_equal(tensor_make(server, "g", "u", 4, &err), ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_GROUP_NOT_READY);
    assert_int_equal(tensor_drop(server, "t", &err), ST_FAILED_PRECONDITION);
    assert_int_equal(server_operation_cancel(operation, &node_caller, &err), ST_OK);
    tensor = get(server, "t");
    assert_int_equal(tensor->state, SERVER_STATE_READY);
    server_snapshot_release(&tensor->base);
    server_operation_release(operation);
    assert_int_equal(server_group_delete(server, &node_caller, "g", true, &operation, &err), ST_OK);
    let_go(&holder);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    assert_false(group_exists(server, "g") || tensor_exists(server, "t"));
}

static void a_draining_node_refuses_changes_and_still_answers(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_OK);
    server_drain(server);
    assert_int_equal(tensor_make(server, "g", "u", 4, &err), ST_UNAVAILABLE);
    assert_int_equal(err.reason, ST_REASON_NODE_DRAINING);
    assert_int_equal(tensor_drop(server, "t", &err), ST_UNAVAILABLE);
    assert_int_equal(group_make(server, "h", 1, &err), ST_UNAVAILABLE);
    assert_true(tensor_exists(server, "t") && group_exists(server, "g"));
    struct server_node node;
    server_node(server, &node);
    assert_true(node.draining);
}

/* ---------------------------------------------------------------- who may */

static void the_rights_are_those_of_owner_grants_and_role(void **state)
{
    static const struct {
        const char *principal;
        enum server_role role;
        bool may_read, may_write, may_manage;
    } rows[] = {
        {"alice", SERVER_ROLE_USER, true, true, true},
        {"alice", SERVER_ROLE_VIEWER, false, false, false},
        {"reader", SERVER_ROLE_USER, true, false, false},
        {"writer", SERVER_ROLE_USER, true, true, false},
        {"nobody", SERVER_ROLE_USER, false, false, false},
        {"nobody", SERVER_ROLE_OPERATOR, true, true, true},
    };
    struct server *server = *state;
    struct server_caller alice = caller_as("alice", SERVER_ROLE_USER);
    struct server_tensor_create *request = tensor_request("g", "t", 4);
    char readers[1][ST_ID_MAX + 1] = {"reader"};
    char writers[1][ST_ID_MAX + 1] = {"writer"};
    struct st_error err = {0};
    request->access = (struct server_access){1, 1, readers, writers};
    assert_int_equal(create_as(server, &alice, request, &err), ST_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct server_caller caller = caller_as(rows[i].principal, rows[i].role);
        struct tensor *tensor = NULL;
        server_lock(server);
        enum st_status reads = tensor_find(
            server, &caller, &(struct tensor_wanted){"t", TENSOR_USE_READ, NULL}, &tensor, &err);
        enum st_status writes = tensor_find(
            server, &caller, &(struct tensor_wanted){"t", TENSOR_USE_WRITE, NULL}, &tensor, &err);
        server_unlock(server);
        assert_int_equal(reads, rows[i].may_read ? ST_OK : ST_PERMISSION_DENIED);
        assert_int_equal(writes, rows[i].may_write ? ST_OK : ST_PERMISSION_DENIED);
        struct server_tensor *patched = NULL;
        struct server_tensor_patch patch = {.has_read = true, .access = request->access};
        enum st_status manages = server_tensor_patch(server, &caller, "t", &patch, &patched, &err);
        assert_int_equal(manages, rows[i].may_manage ? ST_OK : ST_PERMISSION_DENIED);
        server_snapshot_release(patched ? &patched->base : NULL);
        if (!rows[i].may_write) {
            assert_int_equal(delete_as(server, &caller, "t", false, &err), ST_PERMISSION_DENIED);
        }
    }
    assert_int_equal(delete_as(server, &alice, "t", true, &err), ST_PERMISSION_DENIED); /* force */
    struct server_caller viewer = caller_as("v", SERVER_ROLE_VIEWER);
    snprintf(request->id, sizeof(request->id), "u");
    assert_int_equal(create_as(server, &viewer, request, &err), ST_PERMISSION_DENIED);
    assert_int_equal(delete_as(server, &alice, "t", false, &err), ST_OK);
    free(request);
}

/* ---------------------------------------------------------------- reading and patching */

static void a_snapshot_is_shared_until_something_changes(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_OK);
    struct server_tensor *first = get(server, "t");
    struct server_tensor *second = get(server, "t");
    assert_ptr_equal(first, second);
    const char *text = server_snapshot_keep_text(&first->base, strdup("one"));
    assert_string_equal(text, "one");
    assert_ptr_equal(server_snapshot_keep_text(&second->base, strdup("two")), text);
    server_lock(server);
    struct tensor *tensor = st_index_find(&server->tensors, "t");
    tensor_contents_begin(tensor, order_rank(1));
    server_unlock(server);
    struct server_tensor *writing = get(server, "t");
    assert_ptr_not_equal(writing, first);
    assert_int_equal(writing->contents.state, SERVER_CONTENTS_WRITING);
    assert_int_equal(writing->shard_contents[0].state, SERVER_CONTENTS_VALID);
    assert_int_equal(writing->version, first->version); /* contents are not part of the etag */
    assert_string_equal(writing->uid, first->uid);
    assert_int_equal(first->contents.state, SERVER_CONTENTS_VALID);
    server_snapshot_release(&first->base);
    server_snapshot_release(&second->base);
    server_snapshot_release(&writing->base);
}

static void contents_follow_what_was_written(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(tensor_make(server, "g", "t", 4, &err), ST_OK);
    server_lock(server);
    struct tensor *tensor = st_index_find(&server->tensors, "t");
    uint64_t all = tensor_shards_all(tensor);
    assert_int_equal(all, 3);
    tensor_contents_begin(tensor, all);
    tensor_contents_commit(tensor, all, true);
    assert_int_equal(tensor_generation(tensor, all), 1);
    tensor_contents_begin(tensor, order_rank(1));
    tensor_contents_fail(tensor, order_rank(1));
    assert_int_equal(tensor_contents_check(tensor, order_rank(0), NULL, &err), ST_OK);
    assert_int_equal(tensor_contents_check(tensor, all, "output", &err), ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_CONTENTS_UNDEFINED);
    assert_string_equal(err.details[0].value, "1");
    assert_int_equal(tensor->shards[0].generation, 1);
    assert_int_equal(tensor->shards[1].generation, 2); /* bytes may have changed */
    tensor_contents_begin(tensor, order_rank(1));
    tensor_contents_commit(tensor, order_rank(1), false); /* a part does not make it valid */
    assert_int_equal(tensor->shards[1].state, SERVER_CONTENTS_UNDEFINED);
    assert_int_equal(tensor->shards[1].generation, 3);
    tensor_contents_begin(tensor, order_rank(1));
    tensor_contents_restore(tensor, order_rank(1));
    assert_int_equal(tensor->shards[1].state, SERVER_CONTENTS_UNDEFINED);
    tensor_contents_begin(tensor, order_rank(1));
    tensor_contents_commit(tensor, order_rank(1), true);
    assert_int_equal(tensor_contents_check(tensor, all, NULL, &err), ST_OK);
    assert_int_equal(tensor_generation_check(tensor, 4, &err), ST_OK);
    assert_int_equal(tensor_generation_check(tensor, SERVER_GENERATION_ANY, &err), ST_OK);
    assert_int_equal(tensor_generation_check(tensor, 1, &err), ST_ABORTED);
    assert_int_equal(err.reason, ST_REASON_GENERATION_MISMATCH);
    server_unlock(server);
}

static void a_patch_merges_labels_and_moves_the_version(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    struct server_tensor_create *request = tensor_request("g", "t", 4);
    struct server_label labels[2] = {{.key = "b", .value = "2"}, {.key = "a", .value = "1"}};
    request->labels = (struct server_labels){.count = 2, .items = labels};
    assert_int_equal(create_as(server, &node_caller, request, &err), ST_OK);
    free(request);
    struct server_tensor *before = get(server, "t");
    assert_string_equal(before->labels.items[0].key, "a"); /* sorted */
    struct server_label set[2] = {{.key = "b", .value = "new"}, {.key = "c", .value = "3"}};
    char removed[1][ST_LABEL_KEY_MAX + 1] = {"a"};
    struct server_tensor_patch patch = {.if_version = before->version,
                                        .set_count = 2,
                                        .set = set,
                                        .remove_count = 1,
                                        .remove = (const char(*)[ST_LABEL_KEY_MAX + 1]) removed};
    struct server_tensor *after = NULL;
    assert_int_equal(server_tensor_patch(server, &node_caller, "t", &patch, &after, &err), ST_OK);
    assert_int_equal(after->labels.count, 2);
    assert_string_equal(after->labels.items[0].value, "new");
    assert_string_equal(after->labels.items[1].key, "c");
    assert_true(after->version > before->version);
    struct server_tensor *unused = NULL;
    assert_int_equal(server_tensor_patch(server, &node_caller, "t", &patch, &unused, &err),
                     ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_ETAG_MISMATCH);
    server_snapshot_release(&before->base);
    server_snapshot_release(&after->base);
    patch = (struct server_tensor_patch){.clear_labels = true};
    assert_int_equal(server_tensor_patch(server, &node_caller, "t", &patch, &after, &err), ST_OK);
    assert_int_equal(after->labels.count, 0);
    server_snapshot_release(&after->base);
}

static void too_many_labels_are_refused_by_a_patch(void **state)
{
    struct server_label set[ST_LABELS_MAX + 1];
    struct server_tensor *unused = NULL;
    struct st_error err = {0};
    assert_int_equal(tensor_make(*state, "g", "t", 4, &err), ST_OK);
    for (int i = 0; i <= ST_LABELS_MAX; i++) {
        set[i] = (struct server_label){.value = "v"};
        snprintf(set[i].key, sizeof(set[i].key), "k%d", i);
    }
    struct server_tensor_patch patch = {.set_count = ST_LABELS_MAX + 1, .set = set};
    assert_int_equal(server_tensor_patch(*state, &node_caller, "t", &patch, &unused, &err),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(err.field, "labels");
}

static void lists_are_filtered_and_come_in_pages(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    assert_int_equal(group_make(server, "h", 1, &err), ST_OK);
    assert_int_equal(batch_make(server, "g", "t", 5, 4, &err), ST_OK);
    assert_int_equal(tensor_make(server, "h", "other", 4, &err), ST_OK);
    struct server_label label = {.key = "k", .value = "v"};
    struct server_tensor_patch patch = {.set_count = 1, .set = &label};
    struct server_tensor *tensor = NULL;
    assert_int_equal(server_tensor_patch(server, &node_caller, "t3", &patch, &tensor, &err), ST_OK);
    server_snapshot_release(&tensor->base);
    static const struct {
        const char *group, *state;
        bool label;
        uint32_t count;
    } rows[] = {
        {"", "", false, 6}, {"g", "", false, 5},         {"h", "ready", false, 1},
        {"g", "", true, 1}, {"g", "deleting", false, 0}, {"none", "", false, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char after[ST_ID_MAX + 1] = "";
        uint32_t seen = 0;
        bool more = true;
        while (more) {
            struct server_tensor *page[2];
            struct server_list_query query = {.after = after,
                                              .max = 2,
                                              .group = rows[i].group,
                                              .state = rows[i].state,
                                              .label_count = rows[i].label,
                                              .labels = &label};
            uint32_t count = server_tensor_list(server, &query, page, &more);
            for (uint32_t k = 0; k < count; k++) {
                assert_true(strcmp(page[k]->id, after) > 0);
                snprintf(after, sizeof(after), "%s", page[k]->id);
                server_snapshot_release(&page[k]->base);
                seen++;
            }
        }
        assert_int_equal(seen, rows[i].count);
    }
    struct server_group *groups[4];
    bool more = true;
    struct server_list_query query = {.after = "", .max = 4, .group = "", .state = "ready"};
    assert_int_equal(server_group_list(server, &query, groups, &more), 2);
    assert_false(more);
    assert_string_equal(groups[1]->id, "h");
    server_snapshot_release(&groups[0]->base);
    server_snapshot_release(&groups[1]->base);
}

static void the_node_finds_its_devices_by_ordinal_and_uuid(void **state)
{
    struct server *server = *state;
    uint32_t ordinal = 99;
    char uuid[ST_UID_BYTES + 4];
    snprintf(uuid, sizeof(uuid), "GPU-%s", gpu_device_info(server_gpu(server), 1)->uuid);
    assert_true(server_device_find(server, "1", &ordinal) && ordinal == 1);
    assert_true(server_device_find(server, uuid, &ordinal) && ordinal == 1);
    assert_true(server_device_find(server, uuid + 4, &ordinal) && ordinal == 1);
    assert_false(server_device_find(server, "2", &ordinal));
    assert_false(server_device_find(server, "01", &ordinal));
    assert_false(server_device_find(server, "", &ordinal));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_new_tensor_is_ready_valid_and_of_generation_zero),
        CASE(attachable_defaults_to_true_from_one_granule_up),
        CASE(what_cannot_be_is_refused_with_the_field_and_changes_nothing),
        CASE(a_batch_names_the_item_that_is_refused_and_makes_none),
        CASE(an_id_that_is_taken_is_refused_with_the_uid_of_who_has_it),
        CASE(the_server_makes_ids_when_none_is_given),
        CASE(devices_of_a_group_are_checked),
        CASE(a_full_registry_is_refused),
        CASE(a_group_with_tensors_goes_only_by_force),
        CASE(a_batch_delete_takes_all_or_none),
        CASE(a_delete_waits_for_what_was_accepted_and_can_be_cancelled_until_then),
        CASE(a_group_that_goes_takes_nothing_new_and_shows_its_tensors_as_going),
        CASE(a_draining_node_refuses_changes_and_still_answers),
        CASE(the_rights_are_those_of_owner_grants_and_role),
        CASE(a_snapshot_is_shared_until_something_changes),
        CASE(contents_follow_what_was_written),
        CASE(a_patch_merges_labels_and_moves_the_version),
        CASE(too_many_labels_are_refused_by_a_patch),
        CASE(lists_are_filtered_and_come_in_pages),
        CASE(the_node_finds_its_devices_by_ordinal_and_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
