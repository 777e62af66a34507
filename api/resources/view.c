#include "api/resources/view.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/** The rows of each kind of snapshot. */
static const struct api_output *const view_outputs[] = {
    [SERVER_GROUP] = api_group_output,
    [SERVER_TENSOR] = api_tensor_output,
    [SERVER_OPERATION] = api_operation_output,
};

const char *api_view_text(struct server *server, struct server_snapshot *snapshot)
{
    const char *kept = atomic_load_explicit(&snapshot->text, memory_order_acquire);
    if (kept) {
        return kept;
    }
    struct server_node node;
    server_node(server, &node);
    struct api_text text = {0};
    api_output_write(&text, NULL, view_outputs[snapshot->resource], snapshot, node.name);
    size_t length;
    char *rendered = api_text_take(&text, &length);
    return rendered ? server_snapshot_keep_text(snapshot, rendered) : NULL;
}

const char *api_view_etag(uint64_t version, const char *uid, char buffer[static API_ETAG_BYTES])
{
    snprintf(buffer, API_ETAG_BYTES, "\"%" PRIu64 "-%.8s\"", version, uid);
    return buffer;
}

/** Length of the entity tag at @p text, W/ included, or 0 when there is none. */
static size_t entity_tag_length(const char *text)
{
    size_t start = strncmp(text, "W/", 2) == 0 ? 2 : 0;
    if (text[start] != '"') {
        return 0;
    }
    const char *end = strchr(text + start + 1, '"');
    return end ? (size_t)(end - text) + 1 : 0;
}

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " \t");
}

enum st_status api_etag_match(const char *header, const char *value, const char *etag,
                              bool *ret_match, struct st_error *err)
{
    const char *at = skip_spaces(value);
    if (*at == '*' && !*skip_spaces(at + 1)) {
        *ret_match = true;
        return ST_OK;
    }
    bool match = false, weak = strcmp(header, "If-None-Match") == 0;
    for (;;) {
        size_t length = entity_tag_length(at);
        size_t prefix = weak && length && *at == 'W' ? 2 : 0;
        match = match || (length - prefix == strlen(etag) &&
                          memcmp(at + prefix, etag, length - prefix) == 0);
        at = skip_spaces(at + length);
        if (length && !*at) {
            *ret_match = match;
            return ST_OK;
        }
        if (!length || *at != ',') {
            return st_fail(err, ST_REASON_INVALID_HEADER, header,
                           "must be \"*\" or a list of quoted entity tags");
        }
        at = skip_spaces(at + 1);
    }
}
