#include "api/metrics.h"

#include <inttypes.h>
#include <string.h>

struct metric;

/** What is read once for all metrics. */
struct metrics_snapshot {
    const struct api_metrics_source *source;
    struct server_metrics server;
    struct server_node node;
    const struct gpu *gpu;
};

/** One metric family. */
struct metric {
    const char *name;
    const char *type; /**< "counter", "gauge", "histogram" */
    const char *help;
    void (*write)(const struct metric *metric, const struct metrics_snapshot *snapshot,
                  struct api_text *text);
};

/** One sample. @p labels without braces, or "". */
static void metric_sample(struct api_text *text, const char *name, const char *labels,
                          uint64_t value)
{
    api_text_format(text, labels[0] ? "%s{%s} %" PRIu64 "\n" : "%s%s %" PRIu64 "\n", name, labels,
                    value);
}

/* ---------------------------------------------------------------- the node */

static void metric_build_info(const struct metric *metric, const struct metrics_snapshot *snapshot,
                              struct api_text *text)
{
    api_text_format(text, "%s{version=\"%s\",driver=\"%s\",uid=\"%s\",incarnation=\"%s\"} 1\n",
                    metric->name, SYMTENSOR_VERSION, snapshot->node.capabilities.driver,
                    snapshot->node.uid, snapshot->node.incarnation);
}

/** Metrics that are one figure. */
#define METRIC_PLAIN(function, expression)                                                         \
    static void function(const struct metric *metric, const struct metrics_snapshot *snapshot,     \
                         struct api_text *text)                                                    \
    {                                                                                              \
        metric_sample(text, metric->name, "", (uint64_t)(expression));                             \
    }

METRIC_PLAIN(metric_draining, snapshot->node.draining)
METRIC_PLAIN(metric_start_time, snapshot->node.start_time_ns / 1000000000u)
METRIC_PLAIN(metric_groups, snapshot->server.groups)
METRIC_PLAIN(metric_tensors, snapshot->server.tensors)
METRIC_PLAIN(metric_transfers, snapshot->server.transfers)
METRIC_PLAIN(metric_waiters, snapshot->server.waiters)
METRIC_PLAIN(metric_collective_bytes, snapshot->server.collective_bytes_total)
METRIC_PLAIN(metric_uploaded, snapshot->server.uploaded_bytes_total)
METRIC_PLAIN(metric_downloaded, snapshot->server.downloaded_bytes_total)
METRIC_PLAIN(metric_connections, snapshot->source->front.connections)
METRIC_PLAIN(metric_active, snapshot->source->front.requests_active)
METRIC_PLAIN(metric_aborted, snapshot->source->front.aborted)

static void metric_operations(const struct metric *metric, const struct metrics_snapshot *snapshot,
                              struct api_text *text)
{
    metric_sample(text, metric->name, "state=\"queued\"", snapshot->server.operations_queued);
    metric_sample(text, metric->name, "state=\"running\"", snapshot->server.operations_running);
    metric_sample(text, metric->name, "state=\"kept\"", snapshot->server.operations_kept);
}

static void metric_operations_ended(const struct metric *metric,
                                    const struct metrics_snapshot *snapshot, struct api_text *text)
{
    for (unsigned state = SERVER_OPERATION_SUCCEEDED; state <= SERVER_OPERATION_CANCELLED;
         state++) {
        api_text_format(text, "%s{state=\"%s\"} %" PRIu64 "\n", metric->name,
                        server_operation_state_name(state),
                        snapshot->server.operations_total[state]);
    }
}

static void metric_cut(const struct metric *metric, const struct metrics_snapshot *snapshot,
                       struct api_text *text)
{
    metric_sample(text, metric->name, "phase=\"head\"", snapshot->source->front.cut_head);
    metric_sample(text, metric->name, "phase=\"body\"", snapshot->source->front.cut_body);
    metric_sample(text, metric->name, "phase=\"reply\"", snapshot->source->front.cut_reply);
}

static void metric_slots(const struct metric *metric, const struct metrics_snapshot *snapshot,
                         struct api_text *text)
{
    const struct gpu_capabilities *capabilities = &snapshot->node.capabilities;
    metric_sample(text, metric->name, "kind=\"limit\"", capabilities->multicast_slots_limit);
    metric_sample(text, metric->name, "kind=\"used\"", capabilities->multicast_slots_used);
}

/* ---------------------------------------------------------------- devices */

static void metric_device_memory(const struct metric *metric,
                                 const struct metrics_snapshot *snapshot, struct api_text *text)
{
    for (uint32_t device = 0; device < gpu_device_count(snapshot->gpu); device++) {
        const struct gpu_device_info *info = gpu_device_info(snapshot->gpu, device);
        struct gpu_device_memory memory;
        gpu_device_memory(snapshot->gpu, device, &memory);
        const struct {
            const char *kind;
            uint64_t bytes;
        } rows[] = {
            {"total", info->total_bytes},
            {"limit", info->limit_bytes},
            {"free", memory.free_bytes},
            {"owned", memory.owned_bytes},
            {"quarantined", memory.quarantined_bytes},
            {"held_by_clients", memory.held_by_clients_bytes},
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            api_text_format(text,
                            "%s{device=\"%" PRIu32 "\",uuid=\"%s\",kind=\"%s\"} %" PRIu64 "\n",
                            metric->name, device, info->uuid, rows[i].kind, rows[i].bytes);
        }
    }
}

static void metric_device_ok(const struct metric *metric, const struct metrics_snapshot *snapshot,
                             struct api_text *text)
{
    for (uint32_t device = 0; device < gpu_device_count(snapshot->gpu); device++) {
        api_text_format(text, "%s{device=\"%" PRIu32 "\"} %d\n", metric->name, device,
                        gpu_device_state(snapshot->gpu, device) == GPU_DEVICE_OK);
    }
}

/* ---------------------------------------------------------------- requests */

static const char *entry_method(const struct http_route_entry *entry)
{
    return entry->route ? api_method_name(entry->route->method) : "any";
}

static void metric_requests(const struct metric *metric, const struct metrics_snapshot *snapshot,
                            struct api_text *text)
{
    const struct http_route_entry *entry;
    for (size_t i = 0; (entry = http_router_entry(snapshot->source->router, i)); i++) {
        for (size_t code = 0; code < HTTP_CODES_COUNT; code++) {
            uint64_t count =
                atomic_load_explicit(&entry->counters.codes[code], memory_order_relaxed);
            if (count) {
                api_text_format(text, "%s{method=\"%s\",route=\"%s\",code=\"%u\"} %" PRIu64 "\n",
                                metric->name, entry_method(entry), entry->path, http_codes[code],
                                count);
            }
        }
    }
}

static void metric_duration(const struct metric *metric, const struct http_route_entry *entry,
                            struct api_text *text)
{
    uint64_t buckets[HTTP_DURATION_BUCKETS];
    uint64_t total = 0;
    for (size_t i = 0; i < HTTP_DURATION_BUCKETS; i++) {
        total += atomic_load_explicit(&entry->counters.durations[i], memory_order_relaxed);
        buckets[i] = total;
    }
    if (!total) {
        return;
    }
    for (size_t i = 0; i < HTTP_DURATION_BUCKETS - 1; i++) {
        api_text_format(text, "%s_bucket{method=\"%s\",route=\"%s\",le=\"%g\"} %" PRIu64 "\n",
                        metric->name, entry_method(entry), entry->path,
                        http_duration_bounds_us[i] / 1e6, buckets[i]);
    }
    api_text_format(text, "%s_bucket{method=\"%s\",route=\"%s\",le=\"+Inf\"} %" PRIu64 "\n",
                    metric->name, entry_method(entry), entry->path, total);
    uint64_t sum_us =
        atomic_load_explicit(&entry->counters.duration_us_total, memory_order_relaxed);
    api_text_format(text, "%s_sum{method=\"%s\",route=\"%s\"} %g\n", metric->name,
                    entry_method(entry), entry->path, (double)sum_us / 1e6);
    api_text_format(text, "%s_count{method=\"%s\",route=\"%s\"} %" PRIu64 "\n", metric->name,
                    entry_method(entry), entry->path, total);
}

static void metric_durations(const struct metric *metric, const struct metrics_snapshot *snapshot,
                             struct api_text *text)
{
    const struct http_route_entry *entry;
    for (size_t i = 0; (entry = http_router_entry(snapshot->source->router, i)); i++) {
        metric_duration(metric, entry, text);
    }
}

static void metric_rejected(const struct metric *metric, const struct metrics_snapshot *snapshot,
                            struct api_text *text)
{
    for (unsigned reason = 0; reason < ST_REASON_COUNT; reason++) {
        if (snapshot->source->front.rejected[reason]) {
            api_text_format(text, "%s{reason=\"%s\"} %" PRIu64 "\n", metric->name,
                            st_reason_info(reason)->name, snapshot->source->front.rejected[reason]);
        }
    }
}

/* ---------------------------------------------------------------- the table */

static const struct metric metrics[] = {
    {"symtensor_build_info", "gauge", "Version, driver and identity; always 1.", metric_build_info},
    {"symtensor_start_time_seconds", "gauge", "Start of the process, seconds since 1970.",
     metric_start_time},
    {"symtensor_draining", "gauge", "1 while the node refuses changes.", metric_draining},
    {"symtensor_groups", "gauge", "Groups.", metric_groups},
    {"symtensor_tensors", "gauge", "Tensors.", metric_tensors},
    {"symtensor_operations", "gauge", "Operations by state; kept ones have ended.",
     metric_operations},
    {"symtensor_operations_total", "counter", "Operations that ended, by state.",
     metric_operations_ended},
    {"symtensor_transfers", "gauge", "Data bodies in flight.", metric_transfers},
    {"symtensor_waiters", "gauge", "Requests that wait for operations.", metric_waiters},
    {"symtensor_collective_bytes_total", "counter", "Bytes of collectives, larger side of a rank.",
     metric_collective_bytes},
    {"symtensor_uploaded_bytes_total", "counter", "Bytes received into shards.", metric_uploaded},
    {"symtensor_downloaded_bytes_total", "counter", "Bytes sent from shards.", metric_downloaded},
    {"symtensor_device_memory_bytes", "gauge", "Memory of a device, by kind.",
     metric_device_memory},
    {"symtensor_device_ok", "gauge", "0 when the device is degraded or lost.", metric_device_ok},
    {"symtensor_multicast_slots", "gauge", "Multicast objects that may be held, and are.",
     metric_slots},
    {"symtensor_http_connections", "gauge", "Open connections.", metric_connections},
    {"symtensor_http_requests_active", "gauge", "Requests in progress.", metric_active},
    {"symtensor_http_requests_total", "counter", "Requests by route and code.", metric_requests},
    {"symtensor_http_request_duration_seconds", "histogram", "Time of requests, waits included.",
     metric_durations},
    {"symtensor_http_rejected_total", "counter", "Requests refused by their head, by reason.",
     metric_rejected},
    {"symtensor_http_cut_connections_total", "counter", "Connections cut for being too slow.",
     metric_cut},
    {"symtensor_http_aborted_total", "counter", "Requests that ended without their whole reply.",
     metric_aborted},
};

void api_metrics_write(struct api_text *text, const struct api_metrics_source *source)
{
    struct metrics_snapshot snapshot = {.source = source, .gpu = server_gpu(source->server)};
    server_metrics(source->server, &snapshot.server);
    server_node(source->server, &snapshot.node);
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        api_text_format(text, "# HELP %s %s\n# TYPE %s %s\n", metrics[i].name, metrics[i].help,
                        metrics[i].name, metrics[i].type);
        metrics[i].write(&metrics[i], &snapshot, text);
    }
}
