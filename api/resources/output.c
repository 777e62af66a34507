#include "api/resources/output.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/limits.h"
#include "server/server.h"

const void *api_output_member(const struct api_output *row, const void *object)
{
    return (const char *)object + row->offset;
}

void api_output_write(struct api_text *text, const char *key, const struct api_output *rows,
                      const void *object, const char *node)
{
    api_json_begin(text, key);
    for (const struct api_output *row = rows; row->name; row++) {
        row->type->write(text, row, object, node);
    }
    api_json_end(text);
}

void api_output_integer(struct api_text *text, const char *key, uint64_t value)
{
    if (value <= ST_JSON_INTEGER_MAX) {
        api_json_uint(text, key, value);
        return;
    }
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    api_json_string(text, key, digits);
}

static void text_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    api_json_string(text, row->name, api_output_member(row, object));
}
const struct api_output_type api_output_text = {"\"type\":\"string\"", text_write};

static void static_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    api_json_string(text, row->name, *(const char *const *)api_output_member(row, object));
}
const struct api_output_type api_output_static = {"\"type\":[\"string\",\"null\"]", static_write};

static void bool_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    api_json_bool(text, row->name, *(const bool *)api_output_member(row, object));
}
const struct api_output_type api_output_bool = {"\"type\":\"boolean\"", bool_write};

static void uint32_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    api_json_uint(text, row->name, *(const uint32_t *)api_output_member(row, object));
}
const struct api_output_type api_output_uint32 = {"\"type\":\"integer\",\"minimum\":0",
                                                  uint32_write};

static void uint64_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    api_output_integer(text, row->name, *(const uint64_t *)api_output_member(row, object));
}
const struct api_output_type api_output_uint64 = {"\"type\":[\"integer\",\"string\"]",
                                                  uint64_write};

static void some_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    uint64_t value = *(const uint64_t *)api_output_member(row, object);
    if (value) {
        api_output_integer(text, row->name, value);
    } else {
        api_json_null(text, row->name);
    }
}
const struct api_output_type api_output_some = {"\"type\":[\"integer\",\"string\",\"null\"]",
                                                some_write};

static void double_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    api_json_double(text, row->name, *(const double *)api_output_member(row, object));
}
const struct api_output_type api_output_double = {"\"type\":[\"number\",\"string\"]", double_write};

static void time_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    api_json_time(text, row->name, *(const uint64_t *)api_output_member(row, object));
}
const struct api_output_type api_output_time = {
    "\"type\":[\"string\",\"null\"],\"format\":\"date-time\"", time_write};

static void labels_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    const struct server_labels *labels = api_output_member(row, object);
    api_json_begin(text, row->name);
    for (uint32_t i = 0; i < labels->count; i++) {
        api_json_string(text, labels->items[i].key, labels->items[i].value);
    }
    api_json_end(text);
}
const struct api_output_type api_output_labels = {
    "\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}", labels_write};

static void multicast_write(struct api_text *text, const struct api_output *row, const void *object,
                            const char *node)
{
    (void)node;
    enum gpu_multicast_reason reason =
        *(const enum gpu_multicast_reason *)api_output_member(row, object);
    api_json_begin(text, row->name);
    api_json_bool(text, "usable", reason == GPU_MULTICAST_NONE);
    api_json_string(text, "reason", gpu_multicast_reason_name(reason));
    api_json_end(text);
}
const struct api_output_type api_output_multicast = {
    "\"type\":\"object\",\"properties\":{\"usable\":{\"type\":\"boolean\"},"
    "\"reason\":{\"type\":\"string\"}}",
    multicast_write};

static void state_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)node;
    enum server_state state = *(const enum server_state *)api_output_member(row, object);
    api_json_string(text, row->name, server_state_name(state));
}
const struct api_output_type api_output_state = {
    "\"type\":\"string\",\"enum\":[\"creating\",\"ready\",\"failed\",\"deleting\"]", state_write};

static void node_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)object;
    api_json_string(text, row->name, node);
}
const struct api_output_type api_output_node = {"\"type\":\"string\"", node_write};

static void object_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    api_output_write(text, row->name, row->rows, object, node);
}
const struct api_output_type api_output_object = {"\"type\":\"object\"", object_write};
