#include <stdio.h>
#include <string.h>

#include "api/request.h"
#include "api/resources/list.h"
#include "api/resources/outcome.h"
#include "api/resources/view.h"
#include "base/size.h"

/* ---------------------------------------------------------------- what a group shows */

static void ranks_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    const struct server_group *group = object;
    api_json_begin_array(text, row->name);
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        api_json_begin(text, NULL);
        api_json_uint(text, "rank", rank);
        api_json_string(text, "node", node);
        api_json_uint(text, "device", group->ranks[rank].device);
        api_json_end(text);
    }
    api_json_end_array(text);
}
static const struct api_output_type output_ranks = {
    "\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
    "\"rank\":{\"type\":\"integer\"},\"node\":{\"type\":\"string\"},"
    "\"device\":{\"type\":\"integer\"}}}",
    ranks_write};

/** All ranks are on this node: a group that failed has failed everywhere. */
static void failed_ranks_write(struct api_text *text, const struct api_output *row,
                               const void *object, const char *node)
{
    (void)node;
    const struct server_group *group = object;
    uint32_t failed = group->state == SERVER_STATE_FAILED ? group->world_size : 0;
    api_json_begin_array(text, row->name);
    for (uint32_t rank = 0; rank < failed; rank++) {
        api_json_uint(text, NULL, rank);
    }
    api_json_end_array(text);
}
static const struct api_output_type output_failed_ranks = {
    "\"type\":\"array\",\"items\":{\"type\":\"integer\"}", failed_ranks_write};

static void etag_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    const struct server_group *group = object;
    char etag[API_ETAG_BYTES];
    api_json_string(text, row->name, api_view_etag(group->version, group->uid, etag));
}
static const struct api_output_type output_etag = {"\"type\":\"string\"", etag_write};

#define MEMBER(member) offsetof(struct server_group, member)
const struct api_output api_group_output[] = {
    {"id", &api_output_text, MEMBER(id), "Name, unique on the node.", NULL},
    {"uid", &api_output_text, MEMBER(uid), "Never used again, unlike the id.", NULL},
    {"world_size", &api_output_uint32, MEMBER(world_size), "Number of ranks.", NULL},
    {"ranks", &output_ranks, 0, "Node and device of each rank, in rank order.", NULL},
    {"state", &api_output_state, MEMBER(state), "creating, ready, failed or deleting.", NULL},
    {"failed_ranks", &output_failed_ranks, 0, "Ranks that cannot be reached.", NULL},
    {"epoch", &api_output_uint64, MEMBER(epoch), "Grows when the membership changes.", NULL},
    {"multicast", &api_output_multicast, MEMBER(multicast_reason),
     "Whether multicast objects can span the devices, or why not.", NULL},
    {"tensors_count", &api_output_uint32, MEMBER(tensors_count), "Tensors of the group.", NULL},
    {"labels", &api_output_labels, MEMBER(labels), "Free key/value pairs.", NULL},
    {"owner", &api_output_text, MEMBER(owner), "Principal that made it.", NULL},
    {"create_time", &api_output_time, MEMBER(create_time_ns), "When it was made.", NULL},
    {"etag", &output_etag, 0, "Changes with the resource.", NULL},
    {0},
};
#undef MEMBER

/* ---------------------------------------------------------------- what a request may say */

/** A device as requests name it: its ordinal, or text (uuid). */
struct device_name {
    char text[ST_UID_BYTES + 8];
};

static enum st_status device_decode(struct api_decoding *decoding, const struct api_field *field,
                                    const json_t *value, void *target, struct st_error *err)
{
    struct device_name *device = target;
    if (json_is_integer(value)) {
        json_int_t ordinal = json_integer_value(value);
        if (ordinal < 0 || ordinal > UINT32_MAX) {
            return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE, "must be from 0 to %u",
                                   UINT32_MAX);
        }
        snprintf(device->text, sizeof(device->text), "%u", (unsigned)ordinal);
        return ST_OK;
    }
    if (!json_is_string(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    if (json_string_length(value) >= sizeof(device->text)) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE, "is no uuid");
    }
    snprintf(device->text, sizeof(device->text), "%s", json_string_value(value));
    return ST_OK;
}
static const struct api_type type_device = {
    .name = "integer or string",
    .schema = "\"type\":[\"integer\",\"string\"]",
    .decode = device_decode,
};

/** "devices": "all", or a list. */
struct device_names {
    bool all;
    uint32_t count;
    struct device_name *items; /**< [count] */
};

static enum st_status devices_decode(struct api_decoding *decoding, const struct api_field *field,
                                     const json_t *value, void *target, struct st_error *err)
{
    struct device_names *devices = target;
    if (json_is_string(value) && strcmp(json_string_value(value), "all") == 0) {
        devices->all = true;
        return ST_OK;
    }
    if (!json_is_array(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    size_t count = json_array_size(value);
    if (count < 1 || count > ST_NODE_RANKS_MAX) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must have 1 to %d devices, not %zu", ST_NODE_RANKS_MAX, count);
    }
    devices->items = api_arena_array(decoding->arena, count, sizeof(*devices->items));
    if (!devices->items) {
        return api_decode_fail_memory(err);
    }
    devices->count = (uint32_t)count;
    enum st_status status = ST_OK;
    for (size_t i = 0; i < count && status == ST_OK; i++) {
        size_t mark = api_path_push_index(decoding, i);
        status = device_decode(decoding, field, json_array_get(value, i), &devices->items[i], err);
        api_path_pop(decoding, mark);
    }
    return status;
}
static const struct api_type type_devices = {
    .name = "\"all\" or array of device ordinals and uuids",
    .schema = "\"oneOf\":[{\"const\":\"all\"},{\"type\":\"array\",\"items\":"
              "{\"type\":[\"integer\",\"string\"]}}]",
    .decode = devices_decode,
};

static enum st_status nodes_decode(struct api_decoding *decoding, const struct api_field *field,
                                   const json_t *value, void *target, struct st_error *err)
{
    if (!json_is_string(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    if (strcmp(json_string_value(value), "all") != 0) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE, "must be \"all\"");
    }
    *(bool *)target = true;
    return ST_OK;
}
static const struct api_type type_nodes = {
    .name = "\"all\"",
    .schema = "\"const\":\"all\"",
    .decode = nodes_decode,
};

struct rank_body {
    const char *node;
    struct device_name device;
};
static const struct api_field rank_fields[] = {
    {.name = "node",
     .type = &api_type_text,
     .offset = offsetof(struct rank_body, node),
     .doc = "Name or uid of the node, or \"local\"; default this node."},
    {.name = "device",
     .type = &type_device,
     .offset = offsetof(struct rank_body, device),
     .flags = API_REQUIRED,
     .doc = "Device of the rank by ordinal or uuid."},
    {0},
};

struct group_body {
    char id[ST_ID_MAX + 1];
    bool has_ranks, has_devices, all_nodes;
    struct api_array ranks; /**< struct rank_body */
    struct device_names devices;
    struct server_labels labels;
};
static const struct api_field group_fields[] = {
    {.name = "id",
     .type = &api_type_id,
     .offset = offsetof(struct group_body, id),
     .doc = "Name; made by the server when omitted."},
    {.name = "devices",
     .type = &type_devices,
     .offset = offsetof(struct group_body, devices),
     .has = API_HAS(struct group_body, has_devices),
     .doc = "Devices of this node in rank order, by ordinal or uuid, or \"all\".",
     .example = "[0,1,2,3]"},
    {.name = "ranks",
     .type = &api_type_objects,
     .offset = offsetof(struct group_body, ranks),
     .has = API_HAS(struct group_body, has_ranks),
     .min = 1,
     .max = ST_NODE_RANKS_MAX,
     .fields = rank_fields,
     .item_bytes = sizeof(struct rank_body),
     .doc = "Node and device of each rank, in rank order."},
    {.name = "nodes",
     .type = &type_nodes,
     .offset = offsetof(struct group_body, all_nodes),
     .doc = "\"all\": every device of every node, in the order of nodes, then ordinals."},
    {.name = "labels",
     .type = &api_type_labels,
     .offset = offsetof(struct group_body, labels),
     .doc = "Free key/value pairs."},
    {0},
};

/* ---------------------------------------------------------------- names to ordinals */

static enum st_status device_resolve(struct server *server, const struct device_name *device,
                                     const char *field, uint32_t *ret_ordinal, struct st_error *err)
{
    char quoted[80];
    if (!server_device_find(server, device->text, ret_ordinal)) {
        return st_fail(err, ST_REASON_DEVICE_NOT_FOUND, field, "this node has no device \"%s\"",
                       st_error_quote(device->text, quoted));
    }
    return ST_OK;
}

static enum st_status resolve_ranks(struct server *server, const struct group_body *body,
                                    struct server_group_create *create, struct st_error *err)
{
    const struct rank_body *ranks = body->ranks.items;
    struct server_node node;
    server_node(server, &node);
    create->world_size = body->ranks.count;
    for (uint32_t rank = 0; rank < create->world_size; rank++) {
        const char *name = ranks[rank].node;
        char field[ST_ERROR_FIELD_MAX], quoted[80];
        if (name && strcmp(name, "local") != 0 && strcmp(name, node.name) != 0 &&
            strcmp(name, node.uid) != 0) {
            snprintf(field, sizeof(field), "ranks[%u].node", rank);
            return st_fail(err, ST_REASON_NODE_NOT_FOUND, field, "no node is called \"%s\"",
                           st_error_quote(name, quoted));
        }
        snprintf(field, sizeof(field), "ranks[%u].device", rank);
        enum st_status status =
            device_resolve(server, &ranks[rank].device, field, &create->devices[rank], err);
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

static enum st_status resolve_devices(struct server *server, const struct group_body *body,
                                      struct server_group_create *create, struct st_error *err)
{
    create->world_size = body->devices.count;
    for (uint32_t rank = 0; rank < create->world_size; rank++) {
        char field[ST_ERROR_FIELD_MAX];
        snprintf(field, sizeof(field), "devices[%u]", rank);
        enum st_status status =
            device_resolve(server, &body->devices.items[rank], field, &create->devices[rank], err);
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

static void resolve_all(struct server *server, struct server_group_create *create)
{
    create->world_size = gpu_device_count(server_gpu(server));
    for (uint32_t rank = 0; rank < create->world_size; rank++) {
        create->devices[rank] = rank;
    }
}
_Static_assert(ST_DEVICES_MAX <= ST_NODE_RANKS_MAX, "a group can hold every device of a node");

static enum st_status group_resolve(struct server *server, const struct group_body *body,
                                    struct server_group_create *create, struct st_error *err)
{
    int ways = body->has_ranks + body->has_devices + body->all_nodes;
    if (ways == 0) {
        return st_fail(err, ST_REASON_MISSING_FIELD, "devices",
                       "one of \"devices\", \"ranks\" and \"nodes\" is required");
    }
    if (ways > 1) {
        return st_fail(err, ST_REASON_INVALID_VALUE,
                       body->has_ranks && body->has_devices ? "ranks" : "nodes",
                       "only one of \"devices\", \"ranks\" and \"nodes\" may be given");
    }
    if (body->has_ranks) {
        return resolve_ranks(server, body, create, err);
    }
    if (body->has_devices && !body->devices.all) {
        return resolve_devices(server, body, create, err);
    }
    resolve_all(server, create);
    return ST_OK;
}

/* ---------------------------------------------------------------- handlers */

static enum st_status group_create(struct api_request *request, struct st_error *err)
{
    const struct group_body *body = request->body;
    struct server_group_create create = {.labels = body->labels};
    struct server_operation *operation;
    memcpy(create.id, body->id, sizeof(create.id));
    enum st_status status = group_resolve(request->server, body, &create, err);
    if (status == ST_OK) {
        status = server_group_create(request->server, &request->caller, &create, &operation, err);
    }
    return status == ST_OK ? api_request_wait_operation(request, operation, api_outcome_group, err)
                           : status;
}

static enum st_status group_get(struct api_request *request, struct st_error *err)
{
    struct server_group *group;
    enum st_status status = server_group_get(request->server, request->ids[0], &group, err);
    return status == ST_OK ? api_group_reply(request, 200, group, err) : status;
}

struct group_delete_query {
    bool force;
};
static const struct api_field group_delete_query[] = {
    {.name = "force",
     .type = &api_type_bool,
     .offset = offsetof(struct group_delete_query, force),
     .doc = "Delete the group's tensors too."},
    {0},
};

static enum st_status group_if_match(struct api_request *request, struct st_error *err)
{
    struct server_group *group;
    if (!api_request_header(request, "If-Match")) {
        return ST_OK;
    }
    enum st_status status = server_group_get(request->server, request->ids[0], &group, err);
    if (status != ST_OK) {
        return status;
    }
    char etag[API_ETAG_BYTES];
    status = api_if_match(request, api_view_etag(group->version, group->uid, etag), err);
    server_snapshot_release(&group->base);
    return status;
}

static enum st_status group_delete(struct api_request *request, struct st_error *err)
{
    const struct group_delete_query *query = request->query;
    struct server_operation *operation;
    enum st_status status = group_if_match(request, err);
    if (status == ST_OK) {
        status = server_group_delete(request->server, &request->caller, request->ids[0],
                                     query->force, &operation, err);
    }
    return status == ST_OK
               ? api_request_wait_operation(request, operation, api_outcome_deleted, err)
               : status;
}

static enum st_status group_barrier(struct api_request *request, struct st_error *err)
{
    struct server_operation *operation;
    enum st_status status =
        server_group_barrier(request->server, &request->caller, request->ids[0], &operation, err);
    return status == ST_OK ? api_request_wait_operation(request, operation, api_outcome_verb, err)
                           : status;
}

static uint32_t group_list(struct server *server, const struct server_list_query *query,
                           struct server_snapshot **ret, bool *ret_more)
{
    struct server_group *groups[ST_PAGE_SIZE_MAX]; /* 8 kB: no page is larger */
    uint32_t count = server_group_list(server, query, groups, ret_more);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = &groups[i]->base;
    }
    return count;
}

static const char *group_id(const struct server_snapshot *snapshot)
{
    return ((const struct server_group *)snapshot)->id;
}

static enum st_status groups_get(struct api_request *request, struct st_error *err)
{
    static const struct api_list list = {"groups", &api_group_state_names, group_list, group_id};
    return api_list_reply(request, &list, err);
}

static const struct api_field groups_query[] = {
    API_LIST_PAGE_ROWS,
    API_LIST_STATE_ROW(api_group_state_names),
    API_LIST_LABELS_ROW,
    {0},
};

static const struct api_field no_fields[] = {{0}};

const struct api_route api_group_routes[] = {
    {.method = API_POST,
     .path = "/v1/groups",
     .handler = group_create,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = group_fields,
     .body_bytes = sizeof(struct group_body),
     .summary = "Make a group: an ordered set of ranks.",
     .success = "201 202"},
    {.method = API_GET,
     .path = "/v1/groups",
     .handler = groups_get,
     .role = SERVER_ROLE_VIEWER,
     .query = groups_query,
     .query_bytes = sizeof(struct api_list_query),
     .summary = "List groups in the order of their ids.",
     .success = "200"},
    {.method = API_GET,
     .path = "/v1/groups/{group}",
     .handler = group_get,
     .role = SERVER_ROLE_VIEWER,
     .summary = "Show a group.",
     .success = "200"},
    {.method = API_DELETE,
     .path = "/v1/groups/{group}",
     .handler = group_delete,
     .role = SERVER_ROLE_USER,
     .flags = API_ROUTE_WAITS | API_ROUTE_IF_MATCH,
     .query = group_delete_query,
     .query_bytes = sizeof(struct group_delete_query),
     .summary = "Delete a group; with force its tensors too.",
     .success = "204 202"},
    {.method = API_POST,
     .path = "/v1/groups/{group}:barrier",
     .handler = group_barrier,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = no_fields,
     .summary = "Wait until everything accepted before has ended, on every rank.",
     .success = "200 202"},
    {0},
};
