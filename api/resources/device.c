#include "api/request.h"
#include "api/resources/list.h"
#include "api/resources/output.h"
#include "base/size.h"

/** What the rows below show of one device. */
struct device_view {
    const struct gpu *gpu;
    struct gpu_device_info info;
    struct gpu_device_memory memory;
    enum gpu_device_state state;
    const char *state_reason;
};

static void compute_write(struct api_text *text, const struct api_output *row, const void *object,
                          const char *node)
{
    (void)node;
    const struct device_view *device = object;
    api_json_begin(text, row->name);
    api_json_uint(text, "major", device->info.compute_major);
    api_json_uint(text, "minor", device->info.compute_minor);
    api_json_end(text);
}
static const struct api_output_type output_compute = {
    "\"type\":\"object\",\"properties\":{\"major\":{\"type\":\"integer\"},"
    "\"minor\":{\"type\":\"integer\"}}",
    compute_write};

static void peers_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)node;
    const struct device_view *device = object;
    uint32_t count = gpu_device_count(device->gpu);
    api_json_begin_array(text, row->name);
    for (uint32_t peer = 0; peer < count; peer++) {
        if (peer != device->info.ordinal &&
            gpu_peer_access(device->gpu, device->info.ordinal, peer)) {
            api_json_uint(text, NULL, peer);
        }
    }
    api_json_end_array(text);
}
static const struct api_output_type output_peers = {
    "\"type\":\"array\",\"items\":{\"type\":\"integer\"}", peers_write};

static void state_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)node;
    const struct device_view *device = object;
    api_json_string(text, row->name, gpu_device_state_name(device->state));
}
static const struct api_output_type output_state = {"\"type\":\"string\"", state_write};
/** "; ok: it works; ..." */
#define X(state, name, meaning) "; " name ": " meaning
#define STATE_MEANINGS GPU_DEVICE_STATES(X)

#define MEMBER(member) offsetof(struct device_view, member)
static const struct api_output memory_output[] = {
    {"total", &api_output_uint64, MEMBER(info.total_bytes), "Bytes of the device.", NULL},
    {"limit", &api_output_uint64, MEMBER(info.limit_bytes), "Most that the server takes.", NULL},
    {"free", &api_output_uint64, MEMBER(memory.free_bytes), "The driver's own figure.", NULL},
    {"owned", &api_output_uint64, MEMBER(memory.owned_bytes), "In use by the server.", NULL},
    {"quarantined", &api_output_uint64, MEMBER(memory.quarantined_bytes),
     "Held back, since something may still use it.", NULL},
    {"held_by_clients", &api_output_uint64, MEMBER(memory.held_by_clients_bytes),
     "Freed here, still mapped by clients.", NULL},
    {0},
};
static const struct api_output granularity_output[] = {
    {"minimum", &api_output_uint64, MEMBER(info.granularity_minimum_bytes),
     "Sizes are multiples of it.", NULL},
    {"recommended", &api_output_uint64, MEMBER(info.granularity_recommended_bytes),
     "Addresses are aligned to it.", NULL},
    {"multicast_minimum", &api_output_some, MEMBER(info.multicast_granularity_minimum_bytes),
     "Of multicast objects; null without multicast.", NULL},
    {"multicast_recommended", &api_output_some,
     MEMBER(info.multicast_granularity_recommended_bytes),
     "Of multicast objects; null without multicast.", NULL},
    {0},
};
static const struct api_output capabilities_output[] = {
    {"compute", &output_compute, 0, "Compute capability.", NULL},
    {"multicast", &api_output_bool, MEMBER(info.multicast), "The device has multicast.", NULL},
    {"posix_fd", &api_output_bool, MEMBER(info.posix_fd), "Memory can be shared by fd.", NULL},
    {"fabric", &api_output_bool, MEMBER(info.fabric),
     "Memory can be shared by fabric handle: one was really made.", NULL},
    {"rdma", &api_output_bool, MEMBER(info.rdma), "Network cards can reach its memory.", NULL},
    {"copy_engines", &api_output_uint32, MEMBER(info.copy_engines), "Copies at a time.", NULL},
    {"peers", &output_peers, 0, "Devices whose memory it reaches.", NULL},
    {0},
};
static const struct api_output device_output[] = {
    {"ordinal", &api_output_uint32, MEMBER(info.ordinal), "Number on this node.", NULL},
    {"uuid", &api_output_text, MEMBER(info.uuid), "The same whatever the ordinal.", NULL},
    {"node", &api_output_node, 0, "Node that has it.", NULL},
    {"model", &api_output_text, MEMBER(info.model), "As the driver calls it.", NULL},
    {"memory", &api_output_object, 0, "Bytes.", memory_output},
    {"granularity", &api_output_object, 0, "Bytes.", granularity_output},
    {"capabilities", &api_output_object, 0, "What it can do.", capabilities_output},
    {"state", &output_state, 0, "Whether it can be used" STATE_MEANINGS ".", NULL},
    {"state_reason", &api_output_static, MEMBER(state_reason), "Why it is not ok, or \"\".", NULL},
    {0},
};
#undef MEMBER
#undef X

struct device_list {
    const struct gpu *gpu;
    const char *node;
};

static void device_write(struct api_text *text, const void *things, uint32_t index)
{
    const struct device_list *list = things;
    struct device_view device = {
        .gpu = list->gpu,
        .info = *gpu_device_info(list->gpu, index),
        .state = gpu_device_state(list->gpu, index),
        .state_reason = gpu_device_state_reason(list->gpu, index),
    };
    gpu_device_memory(list->gpu, index, &device.memory);
    api_output_write(text, NULL, device_output, &device, list->node);
}

static struct device_list device_list_of(struct server *server)
{
    struct server_node node;
    server_node(server, &node);
    return (struct device_list){.gpu = server_gpu(server), .node = node.name};
}

static enum st_status devices_get(struct api_request *request, struct st_error *err)
{
    struct device_list things = device_list_of(request->server);
    struct api_numbered_list list = {"devices", gpu_device_count(things.gpu), device_write,
                                     &things};
    return api_numbered_list_reply(request, &list, err);
}

static enum st_status device_get(struct api_request *request, struct st_error *err)
{
    struct device_list things = device_list_of(request->server);
    uint32_t ordinal;
    if (!server_device_find(request->server, request->ids[0], &ordinal)) {
        return st_fail(err, ST_REASON_DEVICE_NOT_FOUND, "device", "this node has no device \"%s\"",
                       request->ids[0]);
    }
    struct api_text text = {0};
    size_t length = 0;
    device_write(&text, &things, ordinal);
    char *body = api_text_take(&text, &length);
    return api_reply_json(request, 200, body, length, err);
}

static const struct api_field devices_query[] = {API_LIST_PAGE_ROWS, {0}};

const struct api_route api_device_routes[] = {
    {.method = API_GET,
     .path = "/v1/devices",
     .handler = devices_get,
     .role = SERVER_ROLE_VIEWER,
     .query = devices_query,
     .query_bytes = sizeof(struct api_list_query),
     .summary = "List the devices of this node by ordinal.",
     .success = "200"},
    {.method = API_GET,
     .path = "/v1/devices/{device}",
     .handler = device_get,
     .role = SERVER_ROLE_VIEWER,
     .summary = "Show a device by ordinal or uuid.",
     .success = "200"},
    {0},
};
