#include "api/resources/list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/resources/page_token.h"
#include "api/resources/view.h"
#include "api/text.h"
#include "base/size.h"

static const char *group_state_name(unsigned value)
{
    return server_state_name((enum server_state)value);
}
const struct api_names api_group_state_names = {group_state_name, SERVER_STATE_DELETING + 1};

static const char *operation_state_name(unsigned value)
{
    return server_operation_state_name((enum server_operation_state)value);
}
const struct api_names api_operation_state_names = {operation_state_name,
                                                    SERVER_OPERATION_CANCELLED + 1};

/** What a token is bound to: the list's name and its filters, each with its terminator. */
static void scope_write(struct api_text *scope, const char *name,
                        const struct api_list_query *query)
{
    api_text_append(scope, name, strlen(name) + 1);
    api_text_append(scope, query->group, strlen(query->group) + 1);
    api_text_format(scope, "%d", query->has_state ? (int)query->state : -1);
    for (uint32_t i = 0; i < query->labels.count; i++) {
        const struct server_label *label = &query->labels.items[i];
        api_text_append(scope, "", 1);
        api_text_append(scope, label->key, strlen(label->key) + 1);
        api_text_append(scope, label->value, strlen(label->value));
    }
}

static enum st_status fail_memory(struct st_error *err)
{
    return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
}

/** Where the page starts: behind @p ret_after, which is "" on the first page. */
static enum st_status page_start(const struct api_list_query *query, const char *name,
                                 char ret_after[static ST_ID_MAX + 1], struct st_error *err)
{
    ret_after[0] = '\0';
    if (!query->page_token || !query->page_token[0]) {
        return ST_OK;
    }
    struct api_text scope = {0};
    scope_write(&scope, name, query);
    bool good = !scope.failed &&
                api_page_token_read(scope.data, scope.length, query->page_token, ret_after);
    api_text_done(&scope);
    return good ? ST_OK
                : st_fail(err, ST_REASON_INVALID_PAGE_TOKEN, "page_token",
                          "is not one of this list with these filters; start without it");
}

static enum st_status page_end(struct api_text *text, const struct api_list_query *query,
                               const char *name, const char *last, struct st_error *err)
{
    char token[API_PAGE_TOKEN_BYTES] = "";
    if (last) {
        struct api_text scope = {0};
        scope_write(&scope, name, query);
        bool made = !scope.failed && api_page_token_make(scope.data, scope.length, last, token);
        api_text_done(&scope);
        if (!made) {
            return fail_memory(err);
        }
    }
    api_json_string(text, "next_page_token", token);
    api_json_end(text);
    return ST_OK;
}

static enum st_status page_reply(struct api_request *request, struct api_text *text,
                                 struct st_error *err)
{
    size_t length = 0;
    char *body = api_text_take(text, &length);
    return api_reply_json(request, 200, body, length, err);
}

static uint32_t page_size(const struct api_list_query *query)
{
    if (!query->page_size) {
        return ST_PAGE_SIZE_DEFAULT;
    }
    return query->page_size < ST_PAGE_SIZE_MAX ? query->page_size : ST_PAGE_SIZE_MAX;
}

/** Write items until the page is large enough; a text that cannot be had makes the whole fail.
 * @return how many were written. */
static uint32_t items_write(struct api_text *text, struct server *server,
                            struct server_snapshot *const *items, uint32_t count)
{
    uint32_t i = 0;
    for (; i < count && text->length < ST_HTTP_PAGE_BYTES; i++) {
        const char *item = api_view_text(server, items[i]);
        if (item) {
            api_json_raw(text, NULL, item);
        } else {
            text->failed = true;
        }
    }
    return i;
}

enum st_status api_list_reply(struct api_request *request, const struct api_list *list,
                              struct st_error *err)
{
    const struct api_list_query *query = request->query;
    char after[ST_ID_MAX + 1];
    enum st_status status = page_start(query, list->name, after, err);
    if (status != ST_OK) {
        return status;
    }
    struct server_list_query server_query = {
        .after = after,
        .max = page_size(query),
        .group = query->group,
        .state = query->has_state ? list->states->name(query->state) : "",
        .label_count = query->labels.count,
        .labels = query->labels.items,
    };
    struct server_snapshot **items =
        api_arena_array(&request->arena, server_query.max, sizeof(struct server_snapshot *));
    if (!items) {
        return fail_memory(err);
    }
    bool more = false;
    uint32_t count = list->list(request->server, &server_query, items, &more);
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    api_json_begin_array(&text, list->name);
    uint32_t written = items_write(&text, request->server, items, count);
    more = (more || written < count) && written;
    api_json_end_array(&text);
    status = page_end(&text, query, list->name, more ? list->id(items[written - 1]) : NULL, err);
    for (uint32_t i = 0; i < count; i++) {
        server_snapshot_release(items[i]);
    }
    if (status != ST_OK) {
        api_text_done(&text);
        return status;
    }
    return page_reply(request, &text, err);
}

enum st_status api_numbered_list_reply(struct api_request *request,
                                       const struct api_numbered_list *list, struct st_error *err)
{
    const struct api_list_query *query = request->query;
    char after[ST_ID_MAX + 1];
    enum st_status status = page_start(query, list->name, after, err);
    if (status != ST_OK) {
        return status;
    }
    uint64_t first = 0;
    if (after[0] && st_uint_parse(after, UINT32_MAX - 1, &first)) {
        first++;
    }
    uint64_t end = first + page_size(query);
    end = end < list->count ? end : list->count;
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    api_json_begin_array(&text, list->name);
    uint64_t next = first;
    for (; next < end && text.length < ST_HTTP_PAGE_BYTES; next++) {
        list->write(&text, list->things, (uint32_t)next);
    }
    api_json_end_array(&text);
    char last[24];
    snprintf(last, sizeof(last), "%" PRIu64, next - 1);
    status =
        page_end(&text, query, list->name, first < next && next < list->count ? last : NULL, err);
    if (status != ST_OK) {
        api_text_done(&text);
        return status;
    }
    return page_reply(request, &text, err);
}
