#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "api/resources/list.h"
#include "api/resources/output.h"

/** Objects that are listed at most: more than a node can have slots for. */
#define OBJECTS_MAX 1024

/** A memory that is bound, and the tensor that owns it. */
struct bound {
    uint64_t serial;
    const char *id; /**< In the request's arena; NULL: it is being made or is going. */
};

struct multicast_list {
    struct gpu_multicast_info *infos;
    uint32_t count;
    struct bound *bounds; /**< [bound_count] of all objects, ascending by serial. */
    uint32_t bound_count;
    struct api_arena *arena;
    const char *node;
};

/** What the rows show. */
struct multicast_view {
    struct gpu_multicast_info info;
    const struct multicast_list *list;
};

static int bound_compare(const void *a, const void *b)
{
    uint64_t left = ((const struct bound *)a)->serial, right = ((const struct bound *)b)->serial;
    return (left > right) - (left < right);
}

static struct bound *bound_find(const struct multicast_list *list, uint64_t serial)
{
    const struct bound wanted = {.serial = serial};
    return list->bound_count
               ? bsearch(&wanted, list->bounds, list->bound_count, sizeof(wanted), bound_compare)
               : NULL;
}

static uint32_t bound_ids_count(const struct gpu_multicast_info *info)
{
    const uint32_t max = sizeof(info->bound_ids) / sizeof(info->bound_ids[0]);
    return info->bound_count < max ? info->bound_count : max;
}

static void tensors_write(struct api_text *text, const struct api_output *row, const void *object,
                          const char *node)
{
    (void)node;
    const struct multicast_view *view = object;
    api_json_begin_array(text, row->name);
    for (uint32_t i = 0; i < bound_ids_count(&view->info); i++) {
        const struct bound *bound = bound_find(view->list, view->info.bound_ids[i]);
        if (bound && bound->id) {
            api_json_string(text, NULL, bound->id);
        }
    }
    api_json_end_array(text);
}
static const struct api_output_type output_tensors = {
    "\"type\":\"array\",\"items\":{\"type\":\"string\"}", tensors_write};

static void devices_write(struct api_text *text, const struct api_output *row, const void *object,
                          const char *node)
{
    (void)node;
    const struct gpu_multicast_info *info = &((const struct multicast_view *)object)->info;
    api_json_begin_array(text, row->name);
    for (uint32_t i = 0; i < info->device_count; i++) {
        api_json_uint(text, NULL, info->devices[i]);
    }
    api_json_end_array(text);
}
static const struct api_output_type output_devices = {
    "\"type\":\"array\",\"items\":{\"type\":\"integer\"}", devices_write};

static void reason_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    const struct gpu_multicast_info *info = &((const struct multicast_view *)object)->info;
    api_json_string(text, row->name, gpu_multicast_reason_name(info->reason));
}
static const struct api_output_type output_reason = {"\"type\":\"string\"", reason_write};

#define MEMBER(member) offsetof(struct multicast_view, info.member)
static const struct api_output multicast_output[] = {
    {"id", &api_output_text, MEMBER(id), "Made by the server.", NULL},
    {"node", &api_output_node, 0, "Node that has it: objects do not span nodes.", NULL},
    {"devices", &output_devices, 0, "Ordinals of the members.", NULL},
    {"granularity", &api_output_uint64, MEMBER(granularity_bytes), "Bytes.", NULL},
    {"size", &api_output_uint64, MEMBER(size_bytes), "Bytes of its address range.", NULL},
    {"used", &api_output_uint64, MEMBER(used_bytes), "Bytes of it that are bound.", NULL},
    {"slot", &api_output_uint32, MEMBER(slot), "Which of the node's slots it takes.", NULL},
    {"bound_count", &api_output_uint32, MEMBER(bound_count), "Memories that are bound.", NULL},
    {"tensors", &output_tensors, 0, "Tensors that own them, the first 256.", NULL},
    {"usable", &api_output_bool, MEMBER(usable), "Whether it passed its self-test.", NULL},
    {"reason", &output_reason, 0, "Why it is not usable, or \"\".", NULL},
    {0},
};
#undef MEMBER

static void bound_found(void *arg, uint64_t serial, const char *id)
{
    struct multicast_list *list = arg;
    struct bound *bound = bound_find(list, serial);
    if (bound) {
        bound->id = api_arena_copy(list->arena, id, strlen(id));
    }
}

/** Find the tensors that own what is bound. */
static enum st_status multicast_find_tensors(struct api_request *request,
                                             struct multicast_list *list, struct st_error *err)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        count += bound_ids_count(&list->infos[i]);
    }
    list->arena = &request->arena;
    list->bounds = api_arena_array(&request->arena, count, sizeof(*list->bounds));
    if (!list->bounds) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
    }
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t j = 0; j < bound_ids_count(&list->infos[i]); j++) {
            list->bounds[list->bound_count++] =
                (struct bound){.serial = list->infos[i].bound_ids[j]};
        }
    }
    if (count) {
        qsort(list->bounds, count, sizeof(*list->bounds), bound_compare);
        server_tensor_each_multicast(request->server, bound_found, list);
    }
    return ST_OK;
}

/** Look at all objects; they live in the request's arena. */
static enum st_status multicast_look(struct api_request *request, struct multicast_list *list,
                                     struct st_error *err)
{
    struct server_node node;
    server_node(request->server, &node);
    const struct gpu *gpu = server_gpu(request->server);
    uint32_t exist = gpu_multicast_list(gpu, NULL, 0);
    uint32_t room = exist < OBJECTS_MAX ? exist : OBJECTS_MAX;
    list->node = node.name;
    list->infos = api_arena_array(&request->arena, room, sizeof(*list->infos));
    if (!list->infos) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
    }
    exist = room ? gpu_multicast_list(gpu, list->infos, room) : 0;
    list->count = exist < room ? exist : room;
    return multicast_find_tensors(request, list, err);
}

static void multicast_write(struct api_text *text, const void *things, uint32_t index)
{
    const struct multicast_list *list = things;
    const struct multicast_view view = {.info = list->infos[index], .list = list};
    api_output_write(text, NULL, multicast_output, &view, list->node);
}

static enum st_status multicasts_get(struct api_request *request, struct st_error *err)
{
    struct multicast_list things = {0};
    enum st_status status = multicast_look(request, &things, err);
    if (status != ST_OK) {
        return status;
    }
    struct api_numbered_list list = {"multicast_groups", things.count, multicast_write, &things};
    return api_numbered_list_reply(request, &list, err);
}

static enum st_status multicast_get(struct api_request *request, struct st_error *err)
{
    struct multicast_list things = {0};
    enum st_status status = multicast_look(request, &things, err);
    if (status != ST_OK) {
        return status;
    }
    for (uint32_t i = 0; i < things.count; i++) {
        if (strcmp(things.infos[i].id, request->ids[0]) == 0) {
            struct api_text text = {0};
            size_t length = 0;
            multicast_write(&text, &things, i);
            char *body = api_text_take(&text, &length);
            return api_reply_json(request, 200, body, length, err);
        }
    }
    return st_fail(err, ST_REASON_MULTICAST_GROUP_NOT_FOUND, "multicast_group",
                   "there is no multicast object \"%s\"", request->ids[0]);
}

static const struct api_field multicasts_query[] = {API_LIST_PAGE_ROWS, {0}};

const struct api_route api_multicast_routes[] = {
    {.method = API_GET,
     .path = "/v1/multicast_groups",
     .handler = multicasts_get,
     .role = SERVER_ROLE_VIEWER,
     .query = multicasts_query,
     .query_bytes = sizeof(struct api_list_query),
     .summary = "List the multicast objects that exist.",
     .success = "200"},
    {.method = API_GET,
     .path = "/v1/multicast_groups/{multicast_group}",
     .handler = multicast_get,
     .role = SERVER_ROLE_VIEWER,
     .summary = "Show a multicast object.",
     .success = "200"},
    {0},
};
