#include <jansson.h>
#include <microhttpd.h>
#include <stdlib.h>

#include "api/http/exchange.h"
#include "api/metrics.h"
#include "api/request.h"
#include "api/text.h"

/*
 * Probes, versions and figures. None of them touches a device: a driver call that hangs must not
 * make the process look dead.
 */

struct ready_query {
    bool verbose;
};

static const struct api_field ready_query_fields[] = {
    {.name = "verbose",
     .type = &api_type_bool,
     .offset = offsetof(struct ready_query, verbose),
     .doc = "Show each check, and the driver."},
    {0},
};

static enum st_status reply_text(struct api_request *request, struct api_text *text,
                                 struct st_error *err)
{
    size_t length = 0;
    char *body = api_text_take(text, &length);
    return api_reply_json(request, 200, body, length, err);
}

static enum st_status live_handler(struct api_request *request, struct st_error *err)
{
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    api_json_string(&text, "status", "live");
    api_json_end(&text);
    return reply_text(request, &text, err);
}

/** The health listener answers before there is a server. */
static enum st_status fail_starting(struct st_error *err)
{
    return st_fail(err, ST_REASON_NODE_STARTING, NULL, "the devices are being opened");
}

/** Devices that are ok or degraded: those come back without a new start. */
static uint32_t devices_usable(const struct gpu *gpu)
{
    uint32_t usable = 0;
    for (uint32_t device = 0; device < gpu_device_count(gpu); device++) {
        enum gpu_device_state state = gpu_device_state(gpu, device);
        usable += state == GPU_DEVICE_OK || state == GPU_DEVICE_DEGRADED;
    }
    return usable;
}

static void ready_write_devices(struct api_text *text, const struct gpu *gpu)
{
    api_json_begin_array(text, "devices");
    for (uint32_t device = 0; device < gpu_device_count(gpu); device++) {
        api_json_begin(text, NULL);
        api_json_uint(text, "ordinal", device);
        api_json_string(text, "state", gpu_device_state_name(gpu_device_state(gpu, device)));
        api_json_end(text);
    }
    api_json_end_array(text);
}

static enum st_status ready_handler(struct api_request *request, struct st_error *err)
{
    const struct ready_query *query = request->query;
    if (!request->server) {
        return fail_starting(err);
    }
    const struct gpu *gpu = server_gpu(request->server);
    struct server_node node;
    server_node(request->server, &node);
    if (node.draining) {
        return st_fail(err, ST_REASON_NODE_DRAINING, NULL, "the node is draining");
    }
    if (!devices_usable(gpu)) {
        return st_fail(err, ST_REASON_DEVICE_LOST, NULL, "no device is usable");
    }
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    api_json_string(&text, "status", "ready");
    if (query->verbose) {
        api_json_string(&text, "driver", node.capabilities.driver);
        api_json_string(&text, "node", node.name);
        api_json_bool(&text, "draining", node.draining);
        ready_write_devices(&text, gpu);
    }
    api_json_end(&text);
    return reply_text(request, &text, err);
}

static enum st_status version_handler(struct api_request *request, struct st_error *err)
{
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    api_json_string(&text, "version", SYMTENSOR_VERSION);
    api_json_begin_array(&text, "api_versions");
    api_json_string(&text, NULL, "v1");
    api_json_end_array(&text);
    api_json_begin(&text, "libraries");
    api_json_string(&text, "libmicrohttpd", MHD_get_version());
    api_json_string(&text, "jansson", jansson_version_str());
    api_json_end(&text);
    api_json_end(&text);
    return reply_text(request, &text, err);
}

static enum st_status metrics_handler(struct api_request *request, struct st_error *err)
{
    if (!request->server) {
        return fail_starting(err);
    }
    const struct http_front *front = ((struct http_exchange *)request)->connection->listener->front;
    struct api_metrics_source source = {.server = request->server, .router = front->router};
    http_front_metrics(front, &source.front);
    struct api_text text = {0};
    api_metrics_write(&text, &source);
    size_t length = 0;
    char *body = api_text_take(&text, &length);
    if (!body) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the metrics");
    }
    enum st_status status =
        api_reply_copy(request, 200, "text/plain; version=0.0.4; charset=utf-8", body, length, err);
    free(body);
    return status;
}

const struct api_route api_probe_routes[] = {
    {.method = API_GET,
     .path = "/livez",
     .handler = live_handler,
     .flags = API_ROUTE_PUBLIC | API_ROUTE_HEALTH,
     .summary = "Whether the process answers.",
     .success = "200"},
    {.method = API_GET,
     .path = "/readyz",
     .handler = ready_handler,
     .flags = API_ROUTE_PUBLIC | API_ROUTE_HEALTH,
     .query = ready_query_fields,
     .query_bytes = sizeof(struct ready_query),
     .summary = "Whether the node takes work.",
     .success = "200"},
    {.method = API_GET,
     .path = "/version",
     .handler = version_handler,
     .flags = API_ROUTE_PUBLIC | API_ROUTE_HEALTH,
     .summary = "Versions of the server, its interface and its libraries.",
     .success = "200"},
    {.method = API_GET,
     .path = "/metrics",
     .handler = metrics_handler,
     .role = SERVER_ROLE_VIEWER,
     .flags = API_ROUTE_HEALTH,
     .summary = "Figures as Prometheus text.",
     .success = "200"},
    {0},
};
