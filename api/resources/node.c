#include <stdio.h>
#include <sys/resource.h>

#include "api/request.h"
#include "api/resources/output.h"

/* ---------------------------------------------------------------- limits */

/** Every bound of base/limits.h that a client can meet, and those of the devices. */
struct limit {
    const char *name;
    uint64_t value;
    const char *doc;
};
static const struct limit limits[] = {
    {"id_bytes", ST_ID_MAX, "Bytes of an id."},
    {"labels", ST_LABELS_MAX, "Labels of one resource."},
    {"label_key_bytes", ST_LABEL_KEY_MAX, "Bytes of a label's key."},
    {"label_value_bytes", ST_LABEL_VALUE_MAX, "Bytes of a label's value."},
    {"shape_rank", ST_SHAPE_RANK_MAX, "Dimensions of a shape."},
    {"json_integer", ST_JSON_INTEGER_MAX, "Largest integer in JSON."},
    {"world_size", ST_WORLD_SIZE_MAX, "Ranks of a group."},
    {"node_ranks", ST_NODE_RANKS_MAX, "Ranks of a group on one node."},
    {"devices", ST_DEVICES_MAX, "Devices of a node."},
    {"groups", ST_GROUPS_MAX, "Groups of a node."},
    {"tensors", ST_TENSORS_MAX, "Tensors of a node."},
    {"batch", ST_BATCH_MAX, "Items of one batch."},
    {"operations_queued", ST_OPERATIONS_QUEUED_MAX, "Unfinished operations of one group."},
    {"operations_kept", ST_OPERATIONS_KEPT_MAX, "Finished operations that stay readable."},
    {"operation_kept_seconds", ST_OPERATION_KEPT_SECONDS, "How long they stay."},
    {"waiters", ST_OPERATION_WAITERS_MAX, "Requests that wait for operations."},
    {"transfers", ST_TRANSFERS_MAX, "Data bodies in flight."},
    {"page_size", ST_PAGE_SIZE_MAX, "Items of one page."},
    {"wait_seconds", ST_WAIT_SECONDS_MAX, "Longest ?wait=."},
    {"transfer_stall_seconds", ST_TRANSFER_STALL_SECONDS,
     "A data body without progress for so long is cut."},
    {"driver_call_seconds", ST_DRIVER_CALL_SECONDS,
     "A driver call that takes longer makes its device degraded."},
    {"json_body_bytes", ST_HTTP_JSON_BODY_MAX, "Bytes of a JSON body."},
    {"json_depth", ST_HTTP_JSON_DEPTH_MAX, "Nesting of a JSON body."},
    {"connections", ST_HTTP_CONNECTIONS_MAX, "Connections of one listener."},
    {"connections_per_uid", ST_HTTP_CONNECTIONS_PER_UID_MAX,
     "Connections of one user to the Unix socket."},
    {"health_connections", ST_HTTP_HEALTH_CONNECTIONS_MAX,
     "Connections of the health listener; one more ends the oldest idle one."},
    {"query_parameters", ST_HTTP_QUERY_PARAMETERS_MAX, "Parameters of one query."},
    {"reply_seconds", ST_HTTP_REPLY_SECONDS,
     "A reply that is no stream must be read within so long, and one second more for each:"},
    {"reply_bytes_per_second", ST_HTTP_REPLY_BYTES_PER_SECOND, "Bytes of a reply."},
    {"replies_bytes", ST_HTTP_REPLIES_BYTES_MAX,
     "Bytes of large replies that wait to be read; more are refused."},
    {"page_bytes", ST_HTTP_PAGE_BYTES, "A page of a list ends with the item that passes it."},
    {"connection_memory_bytes", ST_HTTP_CONNECTION_MEMORY, "Bytes for the head of a request."},
    {"header_seconds", ST_HTTP_HEADER_SECONDS,
     "From connecting, or a later request line, to a complete head."},
    {"idle_seconds", ST_HTTP_IDLE_SECONDS, "A connection without requests is closed then."},
    {"data_json_elements", ST_DATA_JSON_ELEMENTS_MAX, "Elements of a JSON data reply."},
    {"staging_buffer_bytes", ST_STAGING_BYTES, "Bytes of one staging buffer of data bodies."},
    {"staging_buffers", ST_STAGING_BUFFERS_MAX, "Staging buffers of the node."},
    {"staging_copies", ST_STAGING_COPIES_MAX, "More, for copies between devices."},
    {"scratch_kept_bytes", ST_SCRATCH_KEPT_BYTES, "Scratch that a group keeps, per rank."},
};

/** Descriptors that the process may have. */
static uint64_t fds_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

/** Memory mappings that the system allows a process; 0: it does not say. */
static uint64_t mappings_limit(void)
{
    unsigned long long count = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (!file) {
        return 0;
    }
    int read = fscanf(file, "%llu", &count);
    fclose(file);
    return read == 1 ? count : 0;
}

/** What the rows below show. */
struct node_view {
    struct server_node node;
    const struct gpu *gpu;
    const char *version;
};

static void limits_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    const struct gpu_capabilities *can = &((const struct node_view *)object)->node.capabilities;
    api_json_begin(text, row->name);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        api_json_uint(text, limits[i].name, limits[i].value);
    }
    api_output_integer(text, "fds", fds_limit());
    api_json_uint(text, "allocations", can->allocations_limit);
    api_json_uint(text, "mappings", mappings_limit());
    api_json_end(text);
}
static const struct api_output_type output_limits = {
    "\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}", limits_write};

/* ---------------------------------------------------------------- capabilities */

/** What is known of one way to share memory over all devices. */
static void share_write(struct api_text *text, const char *key, uint32_t count, uint32_t able,
                        const char *reason)
{
    api_json_begin(text, key);
    api_json_bool(text, "usable", count > 0 && able == count);
    api_json_string(text, "reason", count > 0 && able == count ? "" : reason);
    api_json_end(text);
}

static void sharing_write(struct api_text *text, const struct api_output *row, const void *object,
                          const char *node)
{
    (void)node;
    const struct gpu *gpu = ((const struct node_view *)object)->gpu;
    uint32_t count = gpu_device_count(gpu), posix_fd = 0, fabric = 0, rdma = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct gpu_device_info *info = gpu_device_info(gpu, i);
        posix_fd += info->posix_fd;
        fabric += info->fabric;
        rdma += info->rdma;
    }
    api_json_begin(text, row->name);
    share_write(text, "posix_fd", count, posix_fd, "NOT_SUPPORTED_BY_DEVICE");
    share_write(text, "fabric_handles", count, fabric, "CANNOT_BE_CREATED");
    share_write(text, "rdma", count, rdma, "NOT_SUPPORTED_BY_DEVICE");
    api_json_end(text);
}
static const struct api_output_type output_sharing = {"\"type\":\"object\"", sharing_write};

static void multicast_write(struct api_text *text, const struct api_output *row, const void *object,
                            const char *node)
{
    (void)node;
    const struct gpu_capabilities *can = &((const struct node_view *)object)->node.capabilities;
    api_json_begin(text, row->name);
    api_json_bool(text, "usable", can->multicast_reason == GPU_MULTICAST_NONE);
    api_json_string(text, "reason", gpu_multicast_reason_name(can->multicast_reason));
    api_json_uint(text, "slots_limit", can->multicast_slots_limit);
    api_json_uint(text, "slots_used", can->multicast_slots_used);
    api_json_bool(text, "planned", can->nvls_planned);
    api_json_string(text, "planned_reason",
                    can->nvls_planned
                        ? "--nvls=on: the planner may pick nvls by itself"
                        : "nvls runs only when a call names it: it has not yet run on a switch");
    api_json_end(text);
}
static const struct api_output_type output_multicast = {"\"type\":\"object\"", multicast_write};

static const char *dtype_name(unsigned i)
{
    return i < ST_DTYPE_COUNT ? st_dtype_info((enum st_dtype)i)->name : NULL;
}
static const char *op_name(unsigned i)
{
    return i < ST_OP_COUNT ? st_reduce_op_info((enum st_reduce_op)i)->name : NULL;
}
static const char *collective_name(unsigned i)
{
    return gpu_collectives[i] ? gpu_collectives[i]->name : NULL;
}

static void names_put(struct api_text *text, const char *key, const char *(*name)(unsigned i))
{
    api_json_begin_array(text, key);
    for (unsigned i = 0; name(i); i++) {
        api_json_string(text, NULL, name(i));
    }
    api_json_end_array(text);
}

static void words_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)object;
    (void)node;
    api_json_begin(text, row->name);
    names_put(text, "dtypes", dtype_name);
    names_put(text, "ops", op_name);
    names_put(text, "collectives", collective_name);
    api_json_begin_array(text, "algorithms");
    for (size_t i = 0; gpu_algorithms[i]; i++) {
        api_json_begin(text, NULL);
        api_json_string(text, "name", gpu_algorithms[i]->name);
        api_json_bool(text, "deterministic", gpu_algorithms[i]->deterministic);
        api_json_string(text, "summary", gpu_algorithms[i]->summary);
        api_json_end(text);
    }
    api_json_end_array(text);
    api_json_end(text);
}
static const struct api_output_type output_words = {"\"type\":\"object\"", words_write};

/** The driver counts 1000 a major and 10 a minor version. */
static void driver_version_write(struct api_text *text, const struct api_output *row,
                                 const void *object, const char *node)
{
    (void)node;
    int version = ((const struct node_view *)object)->node.capabilities.driver_version;
    char words[32];
    snprintf(words, sizeof(words), "%d.%d", version / 1000, version % 1000 / 10);
    api_json_string(text, row->name, words);
}
static const struct api_output_type output_driver_version = {"\"type\":\"string\"",
                                                             driver_version_write};

#define MEMBER(member) offsetof(struct node_view, member)
static const struct api_output capabilities_output[] = {
    {"multicast", &output_multicast, 0, "Whether NVLS can be used, or why not.", NULL},
    {"sharing", &output_sharing, 0, "How memory can leave the process, or why not.", NULL},
    {"words", &output_words, 0, "What requests may name.", NULL},
    {"kernels_may_wait", &api_output_bool, MEMBER(node.capabilities.kernels_may_wait),
     "Whether kernels may wait for each other.", NULL},
    {"cache_bytes", &api_output_uint64, MEMBER(node.capabilities.cache_bytes),
     "Last-level cache that the planner counts with.", NULL},
    {0},
};
static const struct api_output node_output[] = {
    {"name", &api_output_static, MEMBER(node.name), "Name of the node.", NULL},
    {"uid", &api_output_text, MEMBER(node.uid), "Of the node.", NULL},
    {"incarnation", &api_output_text, MEMBER(node.incarnation), "New at every start.", NULL},
    {"version", &api_output_static, MEMBER(version), "Of the program.", NULL},
    {"start_time", &api_output_time, MEMBER(node.start_time_ns), "When it started.", NULL},
    {"draining", &api_output_bool, MEMBER(node.draining), "Whether changes are refused.", NULL},
    {"devices_count", &api_output_uint32, MEMBER(node.device_count), "Devices.", NULL},
    {"driver", &api_output_static, MEMBER(node.capabilities.driver), "cuda or software.", NULL},
    {"driver_version", &output_driver_version, 0, "As the driver numbers it: 13.0.", NULL},
    {"capabilities", &api_output_object, 0, "What it can do, or why not.", capabilities_output},
    {"limits", &output_limits, 0, "Every bound that a request can meet.", NULL},
    {0},
};
#undef MEMBER

static enum st_status node_get(struct api_request *request, struct st_error *err)
{
    struct node_view view = {.gpu = server_gpu(request->server), .version = SYMTENSOR_VERSION};
    server_node(request->server, &view.node);
    struct api_text text = {0};
    size_t length = 0;
    api_output_write(&text, NULL, node_output, &view, view.node.name);
    char *body = api_text_take(&text, &length);
    return api_reply_json(request, 200, body, length, err);
}

const struct api_route api_node_routes[] = {
    {.method = API_GET,
     .path = "/v1/node",
     .handler = node_get,
     .role = SERVER_ROLE_VIEWER,
     .summary = "Show the node: identity, driver, capabilities with reasons, every limit.",
     .success = "200"},
    {0},
};
