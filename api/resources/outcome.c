#include "api/resources/outcome.h"

#include <string.h>

#include "api/resources/view.h"

bool api_operation_has_ended(const struct server_operation_view *view)
{
    return view->state >= SERVER_OPERATION_SUCCEEDED;
}

enum st_status api_snapshot_reply(struct api_request *request, unsigned code,
                                  struct server_snapshot *snapshot, struct st_error *err)
{
    const char *text = api_view_text(request->server, snapshot);
    if (!text) {
        server_snapshot_release(snapshot);
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
    }
    return api_reply_snapshot(request, code, snapshot, text, err);
}

enum st_status api_group_reply(struct api_request *request, unsigned code,
                               struct server_group *group, struct st_error *err)
{
    char etag[API_ETAG_BYTES];
    api_reply_header(request, "ETag", "%s", api_view_etag(group->version, group->uid, etag));
    return api_snapshot_reply(request, code, &group->base, err);
}

enum st_status api_tensor_reply(struct api_request *request, unsigned code,
                                struct server_tensor *tensor, struct st_error *err)
{
    char etag[API_ETAG_BYTES];
    api_reply_header(request, "ETag", "%s", api_view_etag(tensor->version, tensor->uid, etag));
    return api_snapshot_reply(request, code, &tensor->base, err);
}

enum st_status api_if_match(struct api_request *request, const char *etag, struct st_error *err)
{
    const char *header = api_request_header(request, "If-Match");
    bool match = true;
    enum st_status status = header ? api_etag_match("If-Match", header, etag, &match, err) : ST_OK;
    if (status == ST_OK && !match) {
        status = st_fail(err, ST_REASON_ETAG_MISMATCH, "If-Match", "the etag is %s", etag);
        err->http_code = 412;
    }
    return status;
}

enum st_status api_if_none_match(struct api_request *request, const char *etag, bool *ret_match,
                                 struct st_error *err)
{
    static const char name[] = "If-None-Match";
    const char *header = api_request_header(request, name);
    *ret_match = false;
    return header ? api_etag_match(name, header, etag, ret_match, err) : ST_OK;
}

/** The operation itself as the reply; its reference goes over. */
static enum st_status outcome_reply(struct api_request *request, unsigned code,
                                    struct server_operation_view **view, struct st_error *err)
{
    struct server_operation_view *taken = *view;
    *view = NULL;
    return api_snapshot_reply(request, code, &taken->base, err);
}

/** The answer to an operation that has not succeeded (or not yet). */
static enum st_status outcome_other(struct api_request *request,
                                    struct server_operation_view **view, struct st_error *err)
{
    if (!api_operation_has_ended(*view)) {
        api_reply_header(request, "Location", "/v1/operations/%s", (*view)->id);
        return outcome_reply(request, 202, view, err);
    }
    const char *text = api_view_text(request->server, &(*view)->base);
    if (!text) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
    }
    return api_reply_error_with(request, &(*view)->error, "operation", text, err);
}

static bool has_succeeded(const struct server_operation_view *view)
{
    return view->state == SERVER_OPERATION_SUCCEEDED;
}

enum st_status api_outcome_verb(struct api_request *request, struct server_operation_view **view,
                                struct st_error *err)
{
    return has_succeeded(*view) ? outcome_reply(request, 200, view, err)
                                : outcome_other(request, view, err);
}

enum st_status api_outcome_ended(struct api_request *request, struct server_operation_view **view,
                                 struct st_error *err)
{
    return api_operation_has_ended(*view) ? outcome_reply(request, 200, view, err)
                                          : outcome_other(request, view, err);
}

enum st_status api_outcome_deleted(struct api_request *request, struct server_operation_view **view,
                                   struct st_error *err)
{
    return has_succeeded(*view) ? api_reply_empty(request, 204, err)
                                : outcome_other(request, view, err);
}

/** The id in a target such as "tensors/x". */
static const char *target_id(const struct server_operation_view *view)
{
    const char *slash = strchr(view->target, '/');
    return slash ? slash + 1 : view->target;
}

enum st_status api_outcome_group(struct api_request *request, struct server_operation_view **view,
                                 struct st_error *err)
{
    if (!has_succeeded(*view)) {
        return outcome_other(request, view, err);
    }
    struct server_group *group;
    api_reply_header(request, "Location", "/v1/groups/%s", target_id(*view));
    if (server_group_get(request->server, target_id(*view), &group, NULL) != ST_OK) {
        /* Deleted again by someone else since: what was made is still said. */
        return outcome_reply(request, 201, view, err);
    }
    return api_group_reply(request, 201, group, err);
}

enum st_status api_outcome_tensor(struct api_request *request, struct server_operation_view **view,
                                  struct st_error *err)
{
    if (!has_succeeded(*view)) {
        return outcome_other(request, view, err);
    }
    struct server_tensor *tensor;
    api_reply_header(request, "Location", "/v1/tensors/%s", target_id(*view));
    if (server_tensor_get(request->server, target_id(*view), &tensor, NULL) != ST_OK) {
        return outcome_reply(request, 201, view, err);
    }
    return api_tensor_reply(request, 201, tensor, err);
}
