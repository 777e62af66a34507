#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "api/resources/list.h"
#include "api/resources/outcome.h"
#include "api/resources/tensor_body.h"
#include "api/resources/view.h"

/* ---------------------------------------------------------------- one */

static enum st_status tensor_create(struct api_request *request, struct st_error *err)
{
    struct server_tensor_create create;
    struct server_operation *operation;
    api_tensor_create_fill(request->body, &create);
    enum st_status status =
        server_tensor_create(request->server, &request->caller, &create, &operation, err);
    return status == ST_OK ? api_request_wait_operation(request, operation, api_outcome_tensor, err)
                           : status;
}

static enum st_status tensor_get(struct api_request *request, struct st_error *err)
{
    struct server_tensor *tensor;
    enum st_status status = server_tensor_get(request->server, request->ids[0], &tensor, err);
    return status == ST_OK ? api_tensor_reply(request, 200, tensor, err) : status;
}

/**
 * Check If-Match. A tag that is not the current one fails here; a change in between is seen by the
 * server where it is given the version.
 * @param ret_version 0 without the header.
 */
static enum st_status tensor_if_match(struct api_request *request, uint64_t *ret_version,
                                      struct st_error *err)
{
    struct server_tensor *tensor;
    *ret_version = 0;
    if (!api_request_header(request, "If-Match")) {
        return ST_OK;
    }
    enum st_status status = server_tensor_get(request->server, request->ids[0], &tensor, err);
    if (status != ST_OK) {
        return status;
    }
    char etag[API_ETAG_BYTES];
    status = api_if_match(request, api_view_etag(tensor->version, tensor->uid, etag), err);
    *ret_version = tensor->version;
    server_snapshot_release(&tensor->base);
    return status;
}

static enum st_status tensor_patch(struct api_request *request, struct st_error *err)
{
    const struct api_tensor_patch_body *body = request->body;
    struct server_tensor_patch patch = {
        .set_count = body->labels.set_count,
        .remove_count = body->labels.remove_count,
        .set = body->labels.set,
        .remove = body->labels.remove,
        .clear_labels = body->labels.clear,
        .has_read = body->access.has_read,
        .has_write = body->access.has_write,
        .access = {.read_count = body->access.read.count,
                   .write_count = body->access.write.count,
                   .read = body->access.read.items,
                   .write = body->access.write.items},
    };
    struct server_tensor *tensor;
    enum st_status status = tensor_if_match(request, &patch.if_version, err);
    if (status == ST_OK) {
        status = server_tensor_patch(request->server, &request->caller, request->ids[0], &patch,
                                     &tensor, err);
    }
    if (status == ST_OK) {
        return api_tensor_reply(request, 200, tensor, err);
    }
    if (err->reason == ST_REASON_ETAG_MISMATCH) {
        err->http_code = 412;
    }
    return status;
}

struct force_query {
    bool force;
};
static const struct api_field force_query[] = {
    {.name = "force",
     .type = &api_type_bool,
     .offset = offsetof(struct force_query, force),
     .doc = "Delete also what is in use: the name goes at once, the memory at the last release."},
    {0},
};

static enum st_status tensor_delete(struct api_request *request, struct st_error *err)
{
    const struct force_query *query = request->query;
    struct server_operation *operation;
    uint64_t version;
    enum st_status status = tensor_if_match(request, &version, err);
    if (status == ST_OK) {
        status = server_tensor_delete(request->server, &request->caller, request->ids[0],
                                      query->force, &operation, err);
    }
    return status == ST_OK
               ? api_request_wait_operation(request, operation, api_outcome_deleted, err)
               : status;
}

/* ---------------------------------------------------------------- many */

struct batch_body {
    struct api_array tensors;
};

static const struct api_field batch_create_fields[] = {
    {.name = "tensors",
     .type = &api_type_objects,
     .offset = offsetof(struct batch_body, tensors),
     .flags = API_REQUIRED,
     .min = 1,
     .max = ST_BATCH_MAX,
     .fields = api_tensor_fields,
     .item_bytes = sizeof(struct api_tensor_body),
     .doc = "What to make, each as the body of POST /v1/tensors; all or nothing."},
    {0},
};

static enum st_status tensors_create(struct api_request *request, struct st_error *err)
{
    const struct batch_body *body = request->body;
    const struct api_tensor_body *bodies = body->tensors.items;
    uint32_t count = body->tensors.count;
    struct server_tensor_create *creates =
        api_arena_array(&request->arena, count, sizeof(*creates));
    if (!creates) {
        return api_decode_fail_memory(err);
    }
    for (uint32_t i = 0; i < count; i++) {
        api_tensor_create_fill(&bodies[i], &creates[i]);
    }
    struct server_operation *operation;
    enum st_status status = server_tensor_batch_create(request->server, &request->caller, creates,
                                                       count, &operation, err);
    return status == ST_OK ? api_request_wait_operation(request, operation, api_outcome_verb, err)
                           : status;
}

static const struct api_field batch_delete_fields[] = {
    {.name = "tensors",
     .type = &api_type_ids,
     .offset = offsetof(struct batch_body, tensors),
     .flags = API_REQUIRED,
     .min = 1,
     .max = ST_BATCH_MAX,
     .doc = "Ids of the tensors to delete; all or nothing."},
    {0},
};

static int id_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/** The server would find an id that stands twice to be deleting already. */
static enum st_status ids_check(struct api_request *request, const struct api_array *ids,
                                struct st_error *err)
{
    const char(*given)[ST_ID_MAX + 1] = ids->items;
    const char **sorted = api_arena_array(&request->arena, ids->count, sizeof(*sorted));
    if (!sorted) {
        return api_decode_fail_memory(err);
    }
    for (uint32_t i = 0; i < ids->count; i++) {
        sorted[i] = given[i];
    }
    qsort(sorted, ids->count, sizeof(*sorted), id_compare);
    for (uint32_t i = 1; i < ids->count; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) == 0) {
            return st_fail(err, ST_REASON_INVALID_VALUE, "tensors", "\"%.80s\" stands twice",
                           sorted[i]);
        }
    }
    return ST_OK;
}

static enum st_status tensors_delete(struct api_request *request, struct st_error *err)
{
    const struct batch_body *body = request->body;
    const struct force_query *query = request->query;
    struct server_operation *operation;
    const struct server_tensor_batch_delete batch = {
        .ids = body->tensors.items, .count = body->tensors.count, .force = query->force};
    enum st_status status = ids_check(request, &body->tensors, err);
    if (status == ST_OK) {
        status =
            server_tensor_batch_delete(request->server, &request->caller, &batch, &operation, err);
    }
    return status == ST_OK ? api_request_wait_operation(request, operation, api_outcome_verb, err)
                           : status;
}

/* ---------------------------------------------------------------- the list */

static uint32_t tensor_list(struct server *server, const struct server_list_query *query,
                            struct server_snapshot **ret, bool *ret_more)
{
    struct server_tensor *tensors[ST_PAGE_SIZE_MAX]; /* 8 kB: no page is larger */
    uint32_t count = server_tensor_list(server, query, tensors, ret_more);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = &tensors[i]->base;
    }
    return count;
}

static const char *tensor_id(const struct server_snapshot *snapshot)
{
    return ((const struct server_tensor *)snapshot)->id;
}

static enum st_status tensors_get(struct api_request *request, struct st_error *err)
{
    static const struct api_list list = {"tensors", &api_group_state_names, tensor_list, tensor_id};
    return api_list_reply(request, &list, err);
}

static const struct api_field tensors_query[] = {
    API_LIST_PAGE_ROWS,
    API_LIST_GROUP_ROW,
    API_LIST_STATE_ROW(api_group_state_names),
    API_LIST_LABELS_ROW,
    {0},
};

const struct api_route api_tensor_routes[] = {
    {.method = API_POST,
     .path = "/v1/tensors",
     .handler = tensor_create,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = api_tensor_fields,
     .body_bytes = sizeof(struct api_tensor_body),
     .summary = "Make a tensor: one zeroed shard on every rank of a group.",
     .success = "201 202"},
    {.method = API_GET,
     .path = "/v1/tensors",
     .handler = tensors_get,
     .role = SERVER_ROLE_VIEWER,
     .query = tensors_query,
     .query_bytes = sizeof(struct api_list_query),
     .summary = "List tensors in the order of their ids.",
     .success = "200"},
    {.method = API_GET,
     .path = "/v1/tensors/{tensor}",
     .handler = tensor_get,
     .role = SERVER_ROLE_VIEWER,
     .summary = "Show a tensor.",
     .success = "200"},
    {.method = API_PATCH,
     .path = "/v1/tensors/{tensor}",
     .handler = tensor_patch,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_IF_MATCH,
     .fields = api_tensor_patch_fields,
     .body_bytes = sizeof(struct api_tensor_patch_body),
     .summary = "Change labels and access; with If-Match only of the version that was read.",
     .success = "200"},
    {.method = API_DELETE,
     .path = "/v1/tensors/{tensor}",
     .handler = tensor_delete,
     .role = SERVER_ROLE_USER,
     .flags = API_ROUTE_WAITS | API_ROUTE_IF_MATCH,
     .query = force_query,
     .query_bytes = sizeof(struct force_query),
     .summary = "Delete a tensor when everything accepted before has ended.",
     .success = "204 202"},
    {.method = API_POST,
     .path = "/v1/tensors:batch_create",
     .handler = tensors_create,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = batch_create_fields,
     .body_bytes = sizeof(struct batch_body),
     .summary = "Make up to 1,000 tensors, all or nothing.",
     .success = "200 202"},
    {.method = API_POST,
     .path = "/v1/tensors:batch_delete",
     .handler = tensors_delete,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = batch_delete_fields,
     .body_bytes = sizeof(struct batch_body),
     .query = force_query,
     .query_bytes = sizeof(struct force_query),
     .summary = "Delete up to 1,000 tensors, all or nothing.",
     .success = "200 202"},
    {0},
};
