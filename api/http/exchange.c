#include "api/http/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "api/http/json_scan.h"
#include "base/clock.h"
#include "base/log.h"

/** A body up to here is read though its request was refused, so that the connection can be kept. */
#define EXCHANGE_DRAIN_BYTES (64u << 10)
/** Of a body whose request was refused while it came, no more than this is read. */
#define EXCHANGE_DISCARD_BYTES (16u << 20)
/** Pieces that a body may come in, beside one for each so many bytes: each chunk costs a call. */
#define EXCHANGE_PIECES_MAX 65536
#define EXCHANGE_PIECE_BYTES 256
#define EXCHANGE_BODY_FIRST 4096

/* ---------------------------------------------------------------- begin */

/**
 * Show the library an empty query. It would keep a record of each parameter in the connection's
 * memory, and when that is full it neither answers nor reads on (0.9.75 goes on in the state before
 * its refusal). Ours is the only reader of queries. The target lies in the library's own buffer,
 * where it writes itself next.
 */
static void target_hide_query(const char *target)
{
    union {
        const char *in;
        char *out;
    } text = {.in = strchr(target, '?')};
    if (text.in) {
        text.out[1] = '\0';
    }
}

void *http_exchange_uri_mhd(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http_listener *listener = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_connection *connection = info ? info->socket_context : NULL;
    if (!connection) {
        return NULL;
    }
    struct http_exchange *exchange = &connection->exchange;
    atomic_fetch_add(&listener->front->requests_active, 1);
    exchange->phase = HTTP_PHASE_HEAD;
    exchange->method = API_METHOD_COUNT; /* until the head was read */
    exchange->start_ns = st_clock_now_ns();
    /* The first head's time runs since the connection was accepted. */
    uint64_t deadline_ns = atomic_load(&connection->deadline_ns);
    uint64_t head_ns = exchange->start_ns + ST_HTTP_HEADER_SECONDS * ST_NS_PER_SECOND;
    http_connection_set_deadline(connection, deadline_ns < head_ns ? deadline_ns : head_ns,
                                 HTTP_WATCH_HEAD);
    size_t length = strlen(uri);
    exchange->target_end = uri + length;
    exchange->path = exchange->target;
    if (length >= sizeof(exchange->target)) {
        exchange->path = api_arena_alloc(&exchange->request.arena, length + 1);
    }
    if (exchange->path) {
        memcpy(exchange->path, uri, length + 1);
        exchange->path_length = strcspn(exchange->path, "?");
        if (exchange->path[exchange->path_length]) {
            exchange->path[exchange->path_length] = '\0';
            exchange->query = exchange->path + exchange->path_length + 1;
        }
    }
    target_hide_query(uri);
    return exchange;
}

static bool exchange_is_stream(const struct http_exchange *exchange)
{
    return exchange->request.route && exchange->request.route->body == API_BODY_STREAM;
}

static enum st_status exchange_fail_deadline(struct st_error *err)
{
    return st_fail(err, ST_REASON_OPERATION_DEADLINE, "grpc-timeout",
                   "the deadline passed before the request was accepted");
}

static enum st_status exchange_run_handler(struct http_exchange *exchange, struct st_error *err)
{
    if (st_clock_now_ns() >= exchange->request.caller.deadline_ns) {
        return exchange_fail_deadline(err);
    }
    http_connection_look(exchange->connection);
    return exchange->request.route->handler(&exchange->request, err);
}

/** Whether a reply in the first call, which closes the connection, is better than reading the body.
 */
static bool exchange_reply_at_once(const struct http_exchange *exchange)
{
    return exchange->must_close ||
           (exchange->has_body && (exchange->request.content_length > EXCHANGE_DRAIN_BYTES ||
                                   exchange->head.values[HTTP_HEAD_EXPECT]));
}

/** Cut the connection unless the body goes on within so many seconds, and before the request's own
 * deadline; 0: it may wait. */
static void exchange_watch_body(struct http_exchange *exchange, uint64_t seconds)
{
    uint64_t deadline_ns = ST_DEADLINE_NEVER;
    if (seconds) {
        uint64_t caller_ns = exchange->request.caller.deadline_ns;
        deadline_ns = st_clock_now_ns() + seconds * ST_NS_PER_SECOND;
        deadline_ns = caller_ns < deadline_ns ? caller_ns : deadline_ns;
    }
    http_connection_set_deadline(exchange->connection, deadline_ns, HTTP_WATCH_BODY);
}

/** The body that is thrown away must go on too: its client waits for a reply that is there. */
static void exchange_watch_discarded(struct http_exchange *exchange)
{
    uint64_t deadline_ns = st_clock_now_ns() + ST_TRANSFER_STALL_SECONDS * ST_NS_PER_SECOND;
    uint64_t end_ns = exchange->discard_end_ns;
    http_connection_set_deadline(exchange->connection, deadline_ns < end_ns ? deadline_ns : end_ns,
                                 HTTP_WATCH_BODY);
}

/** Throw away what comes of the body, of which the socket has still to bring @p awaited_bytes. */
static void exchange_discard(struct http_exchange *exchange, uint64_t awaited_bytes)
{
    exchange->discard = true;
    exchange->discard_end_ns = st_clock_now_ns() + ST_HTTP_IDLE_SECONDS * ST_NS_PER_SECOND;
    exchange_watch_discarded(exchange);
    http_connection_await(exchange->connection, awaited_bytes, true);
}

static enum MHD_Result exchange_begin(struct http_exchange *exchange, const char *method)
{
    struct http_front *front = exchange->connection->listener->front;
    struct st_error error;
    exchange->phase = HTTP_PHASE_BODY;
    enum st_status status = http_head_check(exchange, method, &error);
    if (status != ST_OK) {
        atomic_fetch_add_explicit(&front->rejected[error.reason], 1, memory_order_relaxed);
    } else if (exchange_is_stream(exchange)) {
        status = exchange_run_handler(exchange, &error);
        if (status == ST_OK && !exchange->response && !exchange->receiver) {
            status = st_fail(&error, ST_REASON_SYSTEM_ERROR, NULL, "the handler gave no answer");
        }
    }
    if (status != ST_OK) {
        http_reply_error(exchange, &error);
    }
    bool discard = status != ST_OK || exchange->response;
    if (discard && exchange_reply_at_once(exchange)) {
        return http_reply_queue(exchange);
    }
    uint64_t awaited_bytes = exchange->has_body ? exchange->request.content_length : 0;
    if (discard) {
        exchange_discard(exchange, awaited_bytes);
        return MHD_YES;
    }
    /* A stream's deadline moves with its pieces; no other body may take longer than this. */
    bool stream = exchange_is_stream(exchange);
    uint64_t seconds = stream ? ST_TRANSFER_CUT_SECONDS : ST_HTTP_IDLE_SECONDS;
    exchange_watch_body(exchange, exchange->has_body ? seconds : 0);
    http_connection_await(exchange->connection, awaited_bytes,
                          stream || exchange->request.caller.deadline_ns != ST_DEADLINE_NEVER);
    return MHD_YES;
}

/* ---------------------------------------------------------------- body */

static enum st_status exchange_keep(struct http_exchange *exchange, const char *data, size_t bytes,
                                    struct st_error *err)
{
    /* body_bytes counts these already. */
    if (exchange->body_bytes > ST_HTTP_JSON_BODY_MAX) {
        return st_fail(err, ST_REASON_BODY_TOO_LARGE, NULL,
                       "a JSON body must have at most %u bytes", ST_HTTP_JSON_BODY_MAX);
    }
    size_t needed = (size_t)exchange->body_bytes;
    if (needed > exchange->body_capacity) {
        size_t capacity =
            exchange->body_capacity ? exchange->body_capacity * 2 : EXCHANGE_BODY_FIRST;
        capacity = capacity < needed ? needed : capacity;
        char *body = realloc(exchange->body, capacity);
        if (!body) {
            return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the body");
        }
        exchange->body = body;
        exchange->body_capacity = capacity;
    }
    memcpy(exchange->body + needed - bytes, data, bytes);
    return ST_OK;
}

static enum st_status exchange_fail_ended(const struct http_exchange *exchange,
                                          struct st_error *err)
{
    return atomic_load(&exchange->connection->gone)
               ? st_fail(err, ST_REASON_TRANSFER_ABORTED, NULL, "the client went away")
               : st_fail(err, ST_REASON_NODE_DRAINING, NULL, "the server is ending");
}

/** Offer bytes until they are all taken, or the connection is suspended with some left. */
static enum st_status exchange_offer(struct http_exchange *exchange, const char *data, size_t bytes,
                                     size_t *ret_left, struct st_error *err)
{
    struct http_connection *connection = exchange->connection;
    *ret_left = bytes;
    while (*ret_left) {
        size_t taken = 0;
        http_connection_look(connection);
        enum st_status status = exchange->receiver->receive(
            &exchange->request, data + bytes - *ret_left, *ret_left, &taken, err);
        if (status != ST_OK) {
            return status;
        }
        *ret_left -= taken;
        /* With bytes left it is not the client that is waited for. */
        exchange_watch_body(exchange, *ret_left ? 0 : ST_TRANSFER_CUT_SECONDS);
        if (*ret_left && http_connection_suspend(connection)) {
            return ST_OK;
        }
        if (*ret_left && http_connection_must_end(connection)) {
            return exchange_fail_ended(exchange, err);
        }
    }
    return ST_OK;
}

/** Of the body the socket has still to bring what neither was received nor is in @p bytes. */
static void exchange_await(struct http_exchange *exchange, size_t bytes)
{
    uint64_t length = exchange->request.content_length;
    if (length != API_LENGTH_UNKNOWN) {
        http_connection_await(exchange->connection, length - exchange->body_bytes - bytes, false);
    }
}

/** @return false when the connection is to be cut. */
static bool exchange_count_piece(struct http_exchange *exchange)
{
    uint64_t pieces = EXCHANGE_PIECES_MAX + exchange->body_bytes / EXCHANGE_PIECE_BYTES;
    return ++exchange->body_calls <= pieces &&
           !(exchange->discard && exchange->body_bytes > EXCHANGE_DISCARD_BYTES);
}

static enum MHD_Result exchange_receive(struct http_exchange *exchange, const char *data,
                                        size_t *upload_bytes)
{
    struct st_error error;
    size_t left = 0;
    enum st_status status = ST_OK;
    if (!exchange_count_piece(exchange)) {
        atomic_fetch_add(&exchange->connection->listener->front->cut[HTTP_WATCH_BODY], 1);
        return MHD_NO;
    }
    exchange_await(exchange, *upload_bytes);
    if (exchange->discard) {
        exchange->body_bytes += *upload_bytes;
        exchange_watch_discarded(exchange);
    } else if (exchange->receiver) {
        status = exchange_offer(exchange, data, *upload_bytes, &left, &error);
        exchange->body_bytes += *upload_bytes - left;
    } else {
        exchange->body_bytes += *upload_bytes;
        status = exchange_keep(exchange, data, *upload_bytes, &error);
    }
    if (status != ST_OK) {
        /* The library takes no reply in the middle of a body: the rest is read and thrown away. */
        http_reply_error(exchange, &error);
        exchange_discard(exchange, atomic_load(&exchange->connection->awaited_bytes));
        left = 0;
    }
    *upload_bytes = left;
    return MHD_YES;
}

/* ---------------------------------------------------------------- run */

static enum st_status exchange_decode(struct http_exchange *exchange, struct st_error *err)
{
    struct api_request *request = &exchange->request;
    const struct api_route *route = request->route;
    json_t *object;
    enum st_status status =
        http_json_parse(exchange->body, (size_t)exchange->body_bytes, &object, err);
    if (status != ST_OK) {
        return status;
    }
    request->body = api_arena_array(&request->arena, 1, route->body_bytes);
    if (!request->body) {
        status = api_decode_fail_memory(err);
    } else {
        if (route->body_defaults) {
            memcpy(request->body, route->body_defaults, route->body_bytes);
        }
        struct api_decoding decoding = {.arena = &request->arena};
        status = api_fields_decode(&decoding, route->fields, object, request->body, err);
    }
    json_decref(object);
    return status;
}

/** Call what the request waits in. */
static enum st_status exchange_continue(struct http_exchange *exchange, struct st_error *err)
{
    enum st_status (*again)(struct api_request *, struct st_error *) = exchange->again;
    exchange->again = NULL;
    http_connection_look(exchange->connection);
    /* Waits answer with the operation as it is; nothing else can be finished any more. */
    if (!exchange->operation && http_connection_must_end(exchange->connection)) {
        return exchange_fail_ended(exchange, err);
    }
    return again(&exchange->request, err);
}

/** Go on until a reply is queued or the connection is suspended. */
static enum MHD_Result exchange_settle(struct http_exchange *exchange, enum st_status status,
                                       struct st_error *error)
{
    for (;;) {
        if (status == ST_OK && !exchange->response && !exchange->again) {
            status = st_fail(error, ST_REASON_SYSTEM_ERROR, NULL, "the handler gave no answer");
        }
        if (status != ST_OK) {
            http_reply_error(exchange, error);
            return http_reply_queue(exchange);
        }
        if (exchange->response) {
            return http_reply_queue(exchange);
        }
        /* What is suspended in the round of the library's loop in which its request ended is read
         * from when it goes on, and closed if its client ended its sending. So let the round end:
         * the next one comes at once. */
        if (!exchange->settled) {
            exchange->settled = true;
            return MHD_YES;
        }
        if (http_connection_suspend(exchange->connection)) {
            return MHD_YES;
        }
        status = exchange_continue(exchange, error);
    }
}

/** The request is complete. */
static enum MHD_Result exchange_complete(struct http_exchange *exchange)
{
    struct st_error error;
    enum st_status status = ST_OK;
    exchange->phase = HTTP_PHASE_RUN;
    http_connection_await(exchange->connection, 0, false);
    exchange_watch_body(exchange, 0);
    if (exchange->discard) {
        return http_reply_queue(exchange);
    }
    if (exchange->receiver) {
        http_connection_look(exchange->connection);
        status = exchange->receiver->finish(&exchange->request, &error);
    } else {
        if (exchange->request.route->body == API_BODY_JSON) {
            status = exchange_decode(exchange, &error);
        }
        if (status == ST_OK) {
            status = exchange_run_handler(exchange, &error);
        }
    }
    return exchange_settle(exchange, status, &error);
}

enum MHD_Result http_exchange_handle_mhd(void *cls, struct MHD_Connection *mhd, const char *url,
                                         const char *method, const char *version,
                                         const char *upload, size_t *upload_bytes,
                                         void **request_context)
{
    (void)cls;
    (void)mhd;
    (void)url; /* decoded and cut at NUL: the raw target was kept instead */
    struct http_exchange *exchange = *request_context;
    if (!exchange) {
        return MHD_NO;
    }
    if (exchange->phase == HTTP_PHASE_HEAD) {
        http_head_begin(exchange, version);
        return exchange_begin(exchange, method);
    }
    if (exchange->phase == HTTP_PHASE_BODY) {
        return *upload_bytes ? exchange_receive(exchange, upload, upload_bytes)
                             : exchange_complete(exchange);
    }
    if (exchange->phase == HTTP_PHASE_RUN && exchange->again) {
        struct st_error error;
        enum st_status status = exchange_continue(exchange, &error);
        return exchange_settle(exchange, status, &error);
    }
    return MHD_YES;
}

/* ---------------------------------------------------------------- end */

/** Why a request whose rest is not read ends, where its client does not know. */
static bool exchange_find_failure(struct http_exchange *exchange, struct st_error *ret_error)
{
    struct http_connection *connection = exchange->connection;
    bool head = exchange->phase == HTTP_PHASE_HEAD;
    if (!head && exchange->phase != HTTP_PHASE_BODY) {
        return false;
    }
    if (exchange->failed) { /* its reply waited for the end of the body */
        *ret_error = exchange->error;
        return true;
    }
    if (atomic_load(&connection->interrupted) && exchange->receiver &&
        exchange->receiver->check(&exchange->request, ret_error) != ST_OK) {
        return true;
    }
    if (atomic_load(&connection->overdue)) {
        if (!head && st_clock_now_ns() >= exchange->request.caller.deadline_ns) {
            return exchange_fail_deadline(ret_error) != ST_OK;
        }
        return st_fail(ret_error, ST_REASON_TRANSFER_STALLED, NULL,
                       "the %s of the request did not come in time",
                       head ? "head" : "body") != ST_OK;
    }
    return atomic_load(&connection->listener->front->stopping) &&
           exchange_fail_ended(exchange, ret_error) != ST_OK;
}

/** Code of the reply that the library has, ours or a page of its own; 0: it has sent nothing. */
static unsigned exchange_queued_code(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
    return info ? info->http_status : 0;
}

/** Tell the client why its request is cut, if it gets no reply. @return whether it was told. */
static bool exchange_answer_cut(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    struct st_error error = {0};
    if (!exchange_find_failure(exchange, &error)) {
        return false;
    }
    if (error.reason == ST_REASON_TRANSFER_STALLED && !atomic_load(&connection->overdue)) {
        atomic_fetch_add(&connection->listener->front->cut[HTTP_WATCH_BODY], 1);
    }
    http_reply_send_cut(exchange, &error);
    return exchange->told;
}

static void exchange_log(const struct http_exchange *exchange, const char *ended,
                         uint64_t duration_ns)
{
    bool mutating = exchange->method != API_GET;
    bool failed = exchange->failed || ended;
    if (!mutating && !failed) {
        return;
    }
    const char *reason = exchange->failed ? st_reason_info(exchange->error.reason)->name
                         : ended          ? ended
                                          : "";
    st_log(failed ? ST_LOG_WARNING : ST_LOG_INFO, "request",
           ST_LOG_TEXT("request_id", exchange->request_id),
           ST_LOG_TEXT("principal", exchange->connection->principal),
           ST_LOG_TEXT("method", api_method_name(exchange->method)),
           ST_LOG_TEXT("route", exchange->entry ? exchange->entry->path : "none"),
           ST_LOG_TEXT("target", exchange->request.ids[0]), ST_LOG_INT("code", exchange->code),
           ST_LOG_INT("duration_us", duration_ns / 1000),
           ST_LOG_INT("received_bytes", exchange->body_bytes), ST_LOG_TEXT("reason", reason),
           ST_LOG_TEXT("error", exchange->failed ? exchange->error.message : ""));
}

/** Forget the request, but for what is written anew for each one. */
static void exchange_reset(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    free(exchange->body);
    api_arena_done(&exchange->request.arena);
    /* Not the target's and the error's text: those are large, and set before they are read. */
    exchange->request = (struct api_request){0};
    exchange->connection = connection;
    connection->unsent = -1;
    exchange->phase = HTTP_PHASE_IDLE;
    exchange->entry = NULL;
    exchange->path = exchange->query = NULL;
    exchange->path_length = 0;
    exchange->request_id[0] = '\0';
    exchange->head = (struct http_head){0};
    exchange->allow = NULL;
    exchange->has_body = exchange->discard = exchange->must_close = false;
    exchange->settled = exchange->told = false;
    exchange->body_bytes = exchange->body_calls = 0;
    exchange->body = NULL;
    exchange->body_capacity = 0;
    exchange->receiver = NULL;
    exchange->again = NULL;
    exchange->on_end = NULL;
    exchange->stream_read = NULL;
    exchange->code = 0;
    exchange->failed = false;
}

void http_exchange_completed_mhd(void *cls, struct MHD_Connection *mhd, void **request_context,
                                 enum MHD_RequestTerminationCode code)
{
    static const char *const endings[] = {
        [MHD_REQUEST_TERMINATED_WITH_ERROR] = "CUT",
        [MHD_REQUEST_TERMINATED_TIMEOUT_REACHED] = "IDLE_TIMEOUT",
        [MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN] = "SERVER_ENDED",
        [MHD_REQUEST_TERMINATED_READ_ERROR] = "CLIENT_GONE",
        [MHD_REQUEST_TERMINATED_CLIENT_ABORT] = "CLIENT_GONE",
    };
    struct http_listener *listener = cls;
    struct http_exchange *exchange = *request_context;
    *request_context = NULL;
    if (!exchange || exchange->phase == HTTP_PHASE_IDLE) {
        return;
    }
    struct http_front *front = listener->front;
    /* A reply that closes the connection ends "with error" too; only an unsent one was cut. */
    bool sent = exchange->phase == HTTP_PHASE_SENT && code == MHD_REQUEST_TERMINATED_WITH_ERROR &&
                !exchange->stream_read;
    const char *ended =
        sent || (size_t)code >= sizeof(endings) / sizeof(endings[0]) ? NULL : endings[code];
    uint64_t now_ns = st_clock_now_ns();
    /* The library answers some faults itself, in the middle of a body too. */
    unsigned queued_code = exchange_queued_code(mhd);
    bool told = exchange->told || (!queued_code && exchange_answer_cut(exchange));
    http_wait_done(exchange);
    if (exchange->on_end) {
        exchange->on_end(&exchange->request);
    }
    http_reply_drop(exchange);
    if (ended && !told) {
        atomic_fetch_add(&front->aborted, 1);
    }
    exchange->code = told ? exchange->code : queued_code ? queued_code : 499;
    http_route_count(exchange->entry ? exchange->entry : http_router_entry(front->router, 0),
                     exchange->code, now_ns - exchange->start_ns);
    exchange_log(exchange, ended, now_ns - exchange->start_ns);
    exchange_reset(exchange);
    http_connection_set_deadline(exchange->connection,
                                 now_ns + ST_HTTP_IDLE_SECONDS * ST_NS_PER_SECOND, HTTP_WATCH_HEAD);
    atomic_fetch_sub(&front->requests_active, 1);
}

/* ---------------------------------------------------------------- what handlers ask for */

const char *api_request_header(struct api_request *request, const char *name)
{
    struct http_exchange *exchange = (struct http_exchange *)request;
    return MHD_lookup_connection_value(exchange->connection->mhd, MHD_HEADER_KIND, name);
}

void api_request_on_end(struct api_request *request, void (*end)(struct api_request *request))
{
    ((struct http_exchange *)request)->on_end = end;
}

void api_request_suspend(struct api_request *request,
                         enum st_status (*again)(struct api_request *request, struct st_error *err))
{
    ((struct http_exchange *)request)->again = again;
}

void api_request_interrupt(void *arg)
{
    struct http_connection *connection = ((struct http_exchange *)arg)->connection;
    if (atomic_load(&connection->awaited_bytes)) {
        http_connection_interrupt(connection);
    }
}

void api_request_receive(struct api_request *request, const struct api_receiver *receiver)
{
    ((struct http_exchange *)request)->receiver = receiver;
}
