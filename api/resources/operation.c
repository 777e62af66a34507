#include "api/request.h"
#include "api/resources/list.h"
#include "api/resources/outcome.h"

static enum st_status operation_get(struct api_request *request, struct st_error *err)
{
    struct server_operation *operation;
    enum st_status status =
        server_operation_find(request->server, request->ids[0], &operation, err);
    if (status != ST_OK) {
        return status;
    }
    struct server_operation_view *view = server_operation_view(operation);
    server_operation_release(operation);
    return view ? api_snapshot_reply(request, 200, &view->base, err)
                : st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
}

static enum st_status operation_wait(struct api_request *request, struct st_error *err)
{
    struct server_operation *operation;
    enum st_status status =
        server_operation_find(request->server, request->ids[0], &operation, err);
    return status == ST_OK ? api_request_wait_operation(request, operation, api_outcome_verb, err)
                           : status;
}

static enum st_status operation_cancel(struct api_request *request, struct st_error *err)
{
    struct server_operation *operation;
    enum st_status status =
        server_operation_find(request->server, request->ids[0], &operation, err);
    if (status != ST_OK) {
        return status;
    }
    status = server_operation_cancel(operation, &request->caller, err);
    if (status != ST_OK) {
        server_operation_release(operation);
        return status;
    }
    return api_request_wait_operation(request, operation, api_outcome_ended, err);
}

static uint32_t operation_list(struct server *server, const struct server_list_query *query,
                               struct server_snapshot **ret, bool *ret_more)
{
    struct server_operation_view *views[ST_PAGE_SIZE_MAX]; /* 8 kB: no page is larger */
    uint32_t count = server_operation_list(server, query, views, ret_more);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = &views[i]->base;
    }
    return count;
}

static const char *operation_id(const struct server_snapshot *snapshot)
{
    return ((const struct server_operation_view *)snapshot)->id;
}

static enum st_status operations_get(struct api_request *request, struct st_error *err)
{
    static const struct api_list list = {"operations", &api_operation_state_names, operation_list,
                                         operation_id};
    return api_list_reply(request, &list, err);
}

static const struct api_field operations_query[] = {
    API_LIST_PAGE_ROWS,
    API_LIST_GROUP_ROW,
    API_LIST_STATE_ROW(api_operation_state_names),
    {0},
};

static const struct api_field no_fields[] = {{0}};

const struct api_route api_operation_routes[] = {
    {.method = API_GET,
     .path = "/v1/operations",
     .handler = operations_get,
     .role = SERVER_ROLE_VIEWER,
     .query = operations_query,
     .query_bytes = sizeof(struct api_list_query),
     .summary = "List operations in the order of their acceptance.",
     .success = "200"},
    {.method = API_GET,
     .path = "/v1/operations/{operation}",
     .handler = operation_get,
     .role = SERVER_ROLE_VIEWER,
     .summary = "Show an operation, however it ended.",
     .success = "200"},
    {.method = API_POST,
     .path = "/v1/operations/{operation}:wait",
     .handler = operation_wait,
     .role = SERVER_ROLE_VIEWER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = no_fields,
     .summary = "Wait for an operation; answers as the verb itself would have.",
     .success = "200 202"},
    {.method = API_POST,
     .path = "/v1/operations/{operation}:cancel",
     .handler = operation_cancel,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = no_fields,
     .summary = "Cancel an operation; what ran in part leaves its outputs undefined.",
     .success = "200 202"},
    {0},
};
