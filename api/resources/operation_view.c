#include <stdio.h>
#include <string.h>

#include "api/http/error_body.h"
#include "api/resources/outcome.h"
#include "api/resources/view.h"

/** What an operation shows. */

static void name_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    const struct server_operation_view *view = object;
    char name[sizeof(view->id) + sizeof("operations/")];
    snprintf(name, sizeof(name), "operations/%s", view->id);
    api_json_string(text, row->name, name);
}
static const struct api_output_type output_name = {"\"type\":\"string\"", name_write};

static void state_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)node;
    const struct server_operation_view *view = object;
    api_json_string(text, row->name, server_operation_state_name(view->state));
}
static const struct api_output_type output_state = {
    "\"enum\":[\"queued\",\"running\",\"succeeded\",\"failed\",\"cancelled\"]", state_write};

static void done_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    api_json_bool(text, row->name, api_operation_has_ended(object));
}
static const struct api_output_type output_done = {"\"type\":\"boolean\"", done_write};

/** What only an operation with a plan has; null otherwise. */
static void reason_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    const struct server_operation_view *view = object;
    api_json_string(text, row->name, view->has_plan && view->reason[0] ? view->reason : NULL);
}
static const struct api_output_type output_reason = {"\"type\":[\"string\",\"null\"]",
                                                     reason_write};

static void deterministic_write(struct api_text *text, const struct api_output *row,
                                const void *object, const char *node)
{
    (void)node;
    const struct server_operation_view *view = object;
    if (view->has_plan) {
        api_json_bool(text, row->name, view->deterministic);
    } else {
        api_json_null(text, row->name);
    }
}
static const struct api_output_type output_deterministic = {"\"type\":[\"boolean\",\"null\"]",
                                                            deterministic_write};

#define MEMBER(member) offsetof(struct server_operation_view, member)
static const struct api_output progress_output[] = {
    {"bytes_done", &api_output_uint64, MEMBER(bytes_done), "Bytes moved so far.", NULL},
    {"bytes_total", &api_output_uint64, MEMBER(bytes_total), "Bytes that it moves in all.", NULL},
    {0},
};
static const struct api_output timing_output[] = {
    {"queued_ns", &api_output_uint64, MEMBER(queued_ns), "Time from acceptance to start.", NULL},
    {"run_ns", &api_output_uint64, MEMBER(run_ns), "Time from start to end.", NULL},
    {0},
};
static const struct api_output bandwidth_output[] = {
    {"algorithm_bytes_per_second", &api_output_double, MEMBER(algorithm_bytes_per_second),
     "Bytes over time.", NULL},
    {"bus_bytes_per_second", &api_output_double, MEMBER(bus_bytes_per_second),
     "As nccl-tests counts: comparable between collectives and group sizes.", NULL},
    {0},
};

static void bandwidth_write(struct api_text *text, const struct api_output *row, const void *object,
                            const char *node)
{
    const struct server_operation_view *view = object;
    if (view->algorithm_bytes_per_second > 0) {
        api_output_write(text, row->name, bandwidth_output, object, node);
    } else {
        api_json_null(text, row->name);
    }
}
static const struct api_output_type output_bandwidth = {"\"type\":[\"object\",\"null\"]",
                                                        bandwidth_write};

static void checksums_write(struct api_text *text, const struct server_result *result)
{
    api_json_string(text, "algorithm", server_checksum_name(result->checksum_algorithm));
    api_json_begin_array(text, "shards");
    for (uint32_t i = 0; i < result->count; i++) {
        api_json_begin(text, NULL);
        api_json_uint(text, "rank", result->checksums[i].rank);
        api_json_string(text, "checksum", result->checksums[i].hex);
        api_json_end(text);
    }
    api_json_end_array(text);
}

static void resources_write(struct api_text *text, const struct server_result *result)
{
    api_json_begin_array(text, "tensors");
    for (uint32_t i = 0; i < result->count; i++) {
        api_json_string(text, NULL, result->resources->items[i]);
    }
    api_json_end_array(text);
}

static void result_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    static void (*const writes[])(struct api_text *, const struct server_result *) = {
        [SERVER_RESULT_NONE] = NULL,
        [SERVER_RESULT_CHECKSUMS] = checksums_write,
        [SERVER_RESULT_RESOURCES] = resources_write,
    };
    const struct server_result *result = &((const struct server_operation_view *)object)->result;
    if (!writes[result->kind]) {
        api_json_null(text, row->name);
        return;
    }
    api_json_begin(text, row->name);
    writes[result->kind](text, result);
    api_json_end(text);
}
static const struct api_output_type output_result = {"\"type\":[\"object\",\"null\"]",
                                                     result_write};

static void error_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)node;
    const struct server_operation_view *view = object;
    if (view->has_error) {
        http_error_write(text, row->name, &view->error);
    } else {
        api_json_null(text, row->name);
    }
}
static const struct api_output_type output_error = {"\"type\":[\"object\",\"null\"]", error_write};

const struct api_output api_operation_output[] = {
    {"name", &output_name, 0, "operations/{id}.", NULL},
    {"id", &api_output_text, MEMBER(id), "Made by the server.", NULL},
    {"verb", &api_output_static, MEMBER(verb), "What runs: all_reduce, create, ...", NULL},
    {"state", &output_state, 0, "queued, running, succeeded, failed or cancelled.", NULL},
    {"done", &output_done, 0, "Whether it has ended.", NULL},
    {"target", &api_output_text, MEMBER(target), "Resource that it acts on.", NULL},
    {"algorithm", &api_output_static, MEMBER(algorithm), "Algorithm of a collective.", NULL},
    {"reason", &output_reason, 0, "Why this algorithm.", NULL},
    {"deterministic", &output_deterministic, 0,
     "Whether the bits depend on inputs, op, dtype and placement only.", NULL},
    {"bytes", &api_output_uint64, MEMBER(bytes), "Of the larger side on one rank.", NULL},
    {"progress", &api_output_object, 0, "How far it is.", progress_output},
    {"timing", &api_output_object, 0, "Where the time went.", timing_output},
    {"bandwidth", &output_bandwidth, 0, "Of a collective that moved something.", NULL},
    {"generation", &api_output_some, MEMBER(generation), "Of the output after success.", NULL},
    {"epoch", &api_output_uint64, MEMBER(epoch), "Of the group when it was accepted.", NULL},
    {"request_id", &api_output_text, MEMBER(request_id), "x-request-id of its request.", NULL},
    {"owner", &api_output_text, MEMBER(owner), "Principal that asked for it.", NULL},
    {"create_time", &api_output_time, MEMBER(create_time_ns), "When it was accepted.", NULL},
    {"start_time", &api_output_time, MEMBER(start_time_ns), "When it began to run.", NULL},
    {"end_time", &api_output_time, MEMBER(end_time_ns), "When it ended.", NULL},
    {"result", &output_result, 0, "What the verb answers: checksums, ids.", NULL},
    {"error", &output_error, 0, "Why it failed, as an error body has it.", NULL},
    {0},
};
