#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/operation.h"

#define KEPT_NS (ST_OPERATION_KEPT_SECONDS * ST_NS_PER_SECOND)
#define ID_PREFIX "op-"
#define ID_NUMBER_AT (sizeof(ID_PREFIX) - 1 + 8) /* behind the process's eight digits */
#define ID_LENGTH (ID_NUMBER_AT + 12)

static struct server_operation **records_bucket(struct server *server, uint64_t number)
{
    return &server->buckets[number % SERVER_OPERATION_BUCKETS];
}

static void records_remove(struct server *server, struct server_operation *operation)
{
    struct server_operation **link = records_bucket(server, operation->number);
    while (*link != operation) {
        link = &(*link)->next_in_bucket;
    }
    *link = operation->next_in_bucket;
    if (operation->previous) {
        operation->previous->next = operation->next;
    } else {
        server->operations_first = operation->next;
    }
    if (operation->next) {
        operation->next->previous = operation->previous;
    } else {
        server->operations_last = operation->previous;
    }
    server_operation_drop(operation);
}

/** Drop kept operations that are too many or too old. Looked at when somebody asks, so that an idle
 * node sleeps. */
static void records_trim(struct server *server)
{
    uint64_t now_ns = st_clock_now_ns();
    while (server->kept_first) {
        struct server_operation *oldest = server->kept_first;
        bool stays = server->figures.operations_kept <= ST_OPERATIONS_KEPT_MAX &&
                     server->kept_bytes <= ST_OPERATIONS_KEPT_BYTES &&
                     now_ns < oldest->ended_ns + KEPT_NS;
        if (stays) {
            return;
        }
        server->kept_first = oldest->next_kept;
        if (!server->kept_first) {
            server->kept_last = NULL;
        }
        server->figures.operations_kept--;
        server->kept_bytes -= oldest->kept_bytes;
        records_remove(server, oldest);
    }
}

void server_records_add(struct server *server, struct server_operation *operation)
{
    records_trim(server); /* here and not at an end: who walks the list may end operations */
    operation->number = ++server->operations_made;
    snprintf(operation->id, sizeof(operation->id), ID_PREFIX "%08" PRIx32 "%012" PRIx64,
             server->operations_prefix, operation->number);
    server_operation_retain(operation);
    struct server_operation **bucket = records_bucket(server, operation->number);
    operation->next_in_bucket = *bucket;
    *bucket = operation;
    operation->previous = server->operations_last;
    operation->next = NULL;
    if (server->operations_last) {
        server->operations_last->next = operation;
    } else {
        server->operations_first = operation;
    }
    server->operations_last = operation;
}

/** Bytes of an ended operation, its snapshot included. */
static size_t records_cost(const struct server_operation *operation)
{
    const struct server_result *result = &operation->result;
    size_t checksums = result->checksums ? result->count * sizeof(*result->checksums) : 0;
    return operation->class->size + sizeof(struct server_operation_view) + 2 * checksums +
           (result->resources ? result->resources->bytes : 0) +
           (operation->error ? sizeof(*operation->error) : 0);
}

void server_records_keep(struct server *server, struct server_operation *operation)
{
    operation->next_kept = NULL;
    if (server->kept_last) {
        server->kept_last->next_kept = operation;
    } else {
        server->kept_first = operation;
    }
    server->kept_last = operation;
    server->figures.operations_kept++;
    operation->kept_bytes = records_cost(operation);
    server->kept_bytes += operation->kept_bytes;
}

void server_records_done(struct server *server)
{
    server_lock(server);
    while (server->operations_first) {
        records_remove(server, server->operations_first);
    }
    server->kept_first = NULL;
    server->kept_last = NULL;
    server_unlock(server);
}

/** The number in an id; 0: it is none of ours. */
static uint64_t records_parse(const char *id)
{
    if (strlen(id) != ID_LENGTH || strncmp(id, ID_PREFIX, sizeof(ID_PREFIX) - 1) != 0) {
        return 0;
    }
    return strtoull(id + ID_NUMBER_AT, NULL, 16);
}

static struct server_operation *records_find(struct server *server, const char *id)
{
    uint64_t number = records_parse(id);
    struct server_operation *operation = *records_bucket(server, number);
    while (operation && (operation->number != number || strcmp(operation->id, id) != 0)) {
        operation = operation->next_in_bucket;
    }
    return operation;
}

enum st_status server_operation_find(struct server *server, const char *id,
                                     struct server_operation **ret_operation, struct st_error *err)
{
    enum st_status status = ST_OK;
    server_lock(server);
    records_trim(server);
    struct server_operation *operation = records_find(server, id);
    if (operation) {
        server_operation_retain(operation);
        *ret_operation = operation;
    } else {
        char quoted[80];
        status = st_fail(err, ST_REASON_OPERATION_NOT_FOUND, NULL,
                         "no operation %s, or it ended too long ago", st_error_quote(id, quoted));
    }
    server_unlock(server);
    return status;
}

/* ---------------------------------------------------------------- what is shown */

static void render_timing(const struct server_operation *operation,
                          struct server_operation_view *view)
{
    bool ended = server_operation_ended(operation);
    uint64_t now_ns = ended ? operation->ended_ns : st_clock_now_ns();
    uint64_t started_ns = operation->started_ns ? operation->started_ns : now_ns;
    view->queued_ns = started_ns - operation->accepted_ns;
    view->run_ns = now_ns - started_ns;
    bool has_rate = operation->bus_factor > 0 && view->run_ns > 0 &&
                    operation->state == SERVER_OPERATION_SUCCEEDED;
    if (has_rate) {
        view->algorithm_bytes_per_second =
            (double)operation->bytes * (double)ST_NS_PER_SECOND / (double)view->run_ns;
        view->bus_bytes_per_second = view->algorithm_bytes_per_second * operation->bus_factor;
    }
}

/** Checksums are copied behind the view, where there is room; ids are shared. */
static void render_result(const struct server_operation *operation,
                          struct server_operation_view *view)
{
    const struct server_result *result = &operation->result;
    view->result = *result;
    view->result.checksums = NULL;
    view->result.resources = server_ids_retain(result->resources);
    if (result->checksums) {
        view->result.checksums = (struct server_checksum *)(view + 1);
        memcpy(view + 1, result->checksums, result->count * sizeof(*result->checksums));
    }
}

static struct server_operation_view *view_allocate(const struct server_operation *operation)
{
    const struct server_result *result = &operation->result;
    size_t bytes = sizeof(struct server_operation_view);
    if (server_operation_ended(operation)) {
        bytes += result->checksums ? result->count * sizeof(*result->checksums) : 0;
    }
    return calloc(1, bytes);
}

static struct server_operation_view *view_build(struct server_operation *operation)
{
    struct server_operation_view *view = view_allocate(operation);
    if (!view) {
        return NULL;
    }
    bool ended = server_operation_ended(operation);
    view->base.references = 1;
    view->base.resource = SERVER_OPERATION;
    view->verb = operation->class->verb;
    view->state = operation->state;
    view->algorithm = operation->algorithm;
    view->deterministic = operation->deterministic;
    view->has_plan = operation->has_plan;
    view->bytes = operation->bytes;
    view->bytes_done = operation->bytes_done;
    view->bytes_total = operation->bytes_total;
    view->generation = ended ? operation->generation : 0;
    view->epoch = operation->epoch;
    view->create_time_ns = operation->create_time_ns;
    view->start_time_ns = operation->start_time_ns;
    view->end_time_ns = operation->end_time_ns;
    server_copy_text(view->id, sizeof(view->id), operation->id);
    snprintf(view->target, sizeof(view->target), "%s%s%s", operation->target_kind,
             operation->target_id ? "/" : "", operation->target_id ? operation->target_id : "");
    server_copy_text(view->owner, sizeof(view->owner), operation->owner);
    server_copy_text(view->request_id, sizeof(view->request_id), operation->request_id);
    server_copy_text(view->reason, sizeof(view->reason), operation->reason);
    render_timing(operation, view);
    if (ended) {
        render_result(operation, view);
        view->has_error = operation->state != SERVER_OPERATION_SUCCEEDED;
        view->error = operation->error ? *operation->error : view->error;
    }
    return view;
}

struct server_operation_view *server_operation_render(struct server_operation *operation)
{
    struct server_operation_view *view = operation->view;
    if (!view) {
        view = view_build(operation);
        /* Most are looked at once, by who waited: only then is it worth keeping. */
        bool keeps = view && operation->shown;
        operation->shown = server_operation_ended(operation);
        if (!keeps) {
            return view;
        }
        operation->view = view;
    }
    atomic_fetch_add_explicit(&view->base.references, 1, memory_order_relaxed);
    return view;
}

struct server_operation_view *server_operation_view(struct server_operation *operation)
{
    server_lock(operation->server);
    struct server_operation_view *view = server_operation_render(operation);
    server_unlock(operation->server);
    return view;
}

static bool records_match(const struct server_operation *operation,
                          const struct server_list_query *query)
{
    bool group = !query->group[0] || strcmp(query->group, operation->group_id) == 0;
    bool state = !query->state[0] ||
                 strcmp(query->state, server_operation_state_name(operation->state)) == 0;
    return group && state && query->label_count == 0;
}

/** The first record behind the one called @p after, which need not be there any more. */
static struct server_operation *records_behind(struct server *server, const char *after)
{
    uint64_t number = after[0] ? records_parse(after) : 0;
    struct server_operation *operation = number ? records_find(server, after) : NULL;
    if (operation) {
        return operation->next;
    }
    operation = server->operations_first;
    while (operation && operation->number <= number) {
        operation = operation->next;
    }
    return operation;
}

uint32_t server_operation_list(struct server *server, const struct server_list_query *query,
                               struct server_operation_view **ret, bool *ret_more)
{
    uint32_t count = 0;
    *ret_more = false;
    server_lock(server);
    records_trim(server);
    struct server_operation *operation = records_behind(server, query->after);
    for (; operation && !*ret_more; operation = operation->next) {
        if (!records_match(operation, query)) {
            continue;
        }
        if (count == query->max) {
            *ret_more = true;
        } else {
            ret[count] = server_operation_render(operation);
            count += ret[count] != NULL;
        }
    }
    server_unlock(server);
    return count;
}
