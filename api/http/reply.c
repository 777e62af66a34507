#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "api/http/error_body.h"
#include "api/http/exchange.h"
#include "base/clock.h"

/** What one call of a stream's read function is offered at most. */
#define REPLY_STREAM_BLOCK_BYTES (256u << 10)
/** Of a head that is sent past the library: a few headers, of which only the values vary. */
#define REPLY_HEAD_BYTES 1024

static const char reply_json_type[] = "application/json";

static struct http_exchange *reply_exchange(struct api_request *request)
{
    return (struct http_exchange *)request;
}

static enum st_status reply_fail_memory(struct st_error *err)
{
    return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the reply");
}

static void reply_uncount(struct http_exchange *exchange)
{
    if (exchange->counted_bytes) { /* seldom: the counter is everyone's */
        atomic_fetch_sub(&exchange->connection->listener->front->reply_bytes,
                         exchange->counted_bytes);
        exchange->counted_bytes = 0;
    }
}

void http_reply_drop(struct http_exchange *exchange)
{
    if (exchange->response) {
        MHD_destroy_response(exchange->response);
        exchange->response = NULL;
    }
    reply_uncount(exchange);
    exchange->stream_read = NULL;
    exchange->header_count = 0;
}

/**
 * Count a reply that is kept until it was read: many clients that do not read would take memory
 * without end. Refused is only what changed nothing, and not what says how the server is.
 */
static enum st_status reply_count(struct http_exchange *exchange, uint64_t bytes,
                                  struct st_error *err)
{
    struct http_front *front = exchange->connection->listener->front;
    const struct api_route *route = exchange->request.route;
    reply_uncount(exchange);
    if (bytes < ST_HTTP_REPLY_LARGE_BYTES) {
        return ST_OK;
    }
    bool may_refuse = route && route->method == API_GET && !(route->flags & API_ROUTE_HEALTH);
    exchange->counted_bytes = bytes;
    uint64_t before = atomic_fetch_add(&front->reply_bytes, bytes);
    if (!may_refuse || before + bytes <= ST_HTTP_REPLIES_BYTES_MAX) {
        return ST_OK;
    }
    reply_uncount(exchange);
    atomic_fetch_add_explicit(&front->rejected[ST_REASON_TOO_MANY_REPLIES], 1,
                              memory_order_relaxed);
    return st_fail(err, ST_REASON_TOO_MANY_REPLIES, NULL,
                   "%" PRIu64 " bytes of replies wait to be read, of at most %u; ask later, or "
                   "for less",
                   before, ST_HTTP_REPLIES_BYTES_MAX);
}

/** Make @p response (NULL: memory was out) the reply, of @p bytes that are there. */
static enum st_status reply_set(struct http_exchange *exchange, unsigned code,
                                const char *content_type, uint64_t bytes,
                                struct MHD_Response *response, struct st_error *err)
{
    if (!response) {
        return reply_fail_memory(err);
    }
    if (exchange->response) {
        MHD_destroy_response(exchange->response);
    }
    exchange->response = response;
    exchange->reply_bytes = bytes;
    exchange->code = code;
    bool added = !content_type || MHD_add_response_header(response, "Content-Type", content_type);
    return added ? ST_OK : reply_fail_memory(err);
}

void api_reply_header(struct api_request *request, const char *name, const char *format, ...)
{
    struct http_exchange *exchange = reply_exchange(request);
    char value[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof(value) ||
        exchange->header_count == HTTP_REPLY_HEADERS_MAX) {
        return;
    }
    struct http_reply_header *header = &exchange->headers[exchange->header_count];
    header->name = api_arena_copy(&request->arena, name, strlen(name));
    header->value = api_arena_copy(&request->arena, value, (size_t)length);
    exchange->header_count += header->name && header->value;
}

enum st_status api_reply_json(struct api_request *request, unsigned code, char *text, size_t length,
                              struct st_error *err)
{
    struct http_exchange *exchange = reply_exchange(request);
    enum st_status status = text ? reply_count(exchange, length, err) : reply_fail_memory(err);
    if (status != ST_OK) {
        free(text);
        return status;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
    }
    return reply_set(exchange, code, reply_json_type, length, response, err);
}

static void snapshot_free(void *cls)
{
    server_snapshot_release(cls);
}

enum st_status api_reply_snapshot(struct api_request *request, unsigned code,
                                  struct server_snapshot *snapshot, const char *text,
                                  struct st_error *err)
{
    /* The library does not write to it; its parameter has no const. */
    union {
        const char *in;
        char *out;
    } body = {.in = text};
    size_t length = text ? strlen(text) : 0;
    struct MHD_Response *response = text ? MHD_create_response_from_buffer_with_free_callback_cls(
                                               length, body.out, snapshot_free, snapshot)
                                         : NULL;
    if (!response) {
        server_snapshot_release(snapshot);
    }
    return reply_set(reply_exchange(request), code, reply_json_type, length, response, err);
}

enum st_status api_reply_copy(struct api_request *request, unsigned code, const char *content_type,
                              const char *text, size_t length, struct st_error *err)
{
    union {
        const char *in;
        char *out;
    } body = {.in = text};
    struct http_exchange *exchange = reply_exchange(request);
    enum st_status status = reply_count(exchange, length, err);
    if (status != ST_OK) {
        return status;
    }
    return reply_set(exchange, code, content_type, length,
                     MHD_create_response_from_buffer(length, body.out, MHD_RESPMEM_MUST_COPY), err);
}

enum st_status api_reply_empty(struct api_request *request, unsigned code, struct st_error *err)
{
    static char nothing[1];
    return reply_set(reply_exchange(request), code, NULL, 0,
                     MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT), err);
}

/**
 * Note a failure and what its reply is made of: headers, code, and the body that is returned, with
 * the member @p key, unless that is NULL. NULL: no memory.
 */
static char *reply_fail(struct http_exchange *exchange, const struct st_error *error,
                        const char *key, const char *json, size_t *ret_length)
{
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    http_error_write(&text, "error", error);
    if (key) {
        api_json_raw(&text, key, json);
    }
    api_json_end(&text);
    uint32_t retry_after_ms = http_error_retry_after_ms(error);
    if (retry_after_ms) {
        api_reply_header(&exchange->request, "Retry-After", "%u", (retry_after_ms + 999) / 1000);
    }
    if (exchange->allow) {
        api_reply_header(&exchange->request, "Allow", "%s", exchange->allow);
    }
    exchange->failed = true;
    exchange->error = *error;
    exchange->code = http_error_code(error);
    return api_text_take(&text, ret_length);
}

enum st_status api_reply_error_with(struct api_request *request, const struct st_error *error,
                                    const char *key, const char *json, struct st_error *err)
{
    struct http_exchange *exchange = reply_exchange(request);
    size_t length = 0;
    char *body = reply_fail(exchange, error, key, json, &length);
    return api_reply_json(request, exchange->code, body, length, err);
}

void http_reply_error(struct http_exchange *exchange, const struct st_error *error)
{
    http_reply_drop(exchange);
    struct st_error unused;
    if (api_reply_error_with(&exchange->request, error, NULL, NULL, &unused) != ST_OK) {
        http_reply_drop(exchange); /* no memory even for that: the connection is closed instead */
    }
}

/* ---------------------------------------------------------------- bodies made while they are sent
 */

static ssize_t stream_reader(void *cls, uint64_t position, char *buffer, size_t size)
{
    (void)position;
    struct http_exchange *exchange = cls;
    struct http_connection *connection = exchange->connection;
    for (;;) {
        http_connection_look(connection);
        ssize_t bytes = exchange->stream_read(&exchange->request, buffer, size);
        if (bytes > 0) {
            return bytes;
        }
        if (bytes < 0 || http_connection_must_end(connection)) {
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        if (http_connection_suspend(connection)) {
            return 0;
        }
    }
}

enum st_status api_reply_stream(
    struct api_request *request, unsigned code, const char *content_type, uint64_t bytes,
    ssize_t (*read)(struct api_request *request, char *buffer, size_t size), struct st_error *err)
{
    struct http_exchange *exchange = reply_exchange(request);
    exchange->stream_read = read;
    struct MHD_Response *response = MHD_create_response_from_callback(
        bytes, REPLY_STREAM_BLOCK_BYTES, stream_reader, exchange, NULL);
    return reply_set(exchange, code, content_type, 0, response, err);
}

/* ---------------------------------------------------------------- sending */

/** Call @p add for each header of the reply that is not the library's or of the body alone, until
 * it returns false. @return whether it never did. */
static bool reply_add_headers(const struct http_exchange *exchange,
                              bool (*add)(void *to, const char *name, const char *value), void *to)
{
    const struct http_front *front = exchange->connection->listener->front;
    bool added =
        add(to, "x-request-id", exchange->request_id) &&
        (!atomic_load(&front->server) || add(to, "x-symtensor-incarnation", front->incarnation));
    for (uint32_t i = 0; added && i < exchange->header_count; i++) {
        added = add(to, exchange->headers[i].name, exchange->headers[i].value);
    }
    return added;
}

static bool response_add_header(void *to, const char *name, const char *value)
{
    return MHD_add_response_header(to, name, value) == MHD_YES;
}

/** A stream is watched by its transfer. Everything else is in memory until it was read, so that a
 * client has a time for it which grows with the bytes. */
static uint64_t reply_deadline(const struct http_exchange *exchange)
{
    uint64_t seconds =
        ST_HTTP_REPLY_SECONDS + exchange->reply_bytes / ST_HTTP_REPLY_BYTES_PER_SECOND;
    return exchange->stream_read ? ST_DEADLINE_NEVER
                                 : st_clock_now_ns() + seconds * ST_NS_PER_SECOND;
}

enum MHD_Result http_reply_queue(struct http_exchange *exchange)
{
    if (!exchange->response ||
        !reply_add_headers(exchange, response_add_header, exchange->response)) {
        return MHD_NO;
    }
    struct MHD_Response *response = exchange->response;
    exchange->response = NULL;
    exchange->phase = HTTP_PHASE_SENT;
    http_connection_set_deadline(exchange->connection, reply_deadline(exchange), HTTP_WATCH_REPLY);
    enum MHD_Result result =
        MHD_queue_response(exchange->connection->mhd, exchange->code, response);
    MHD_destroy_response(response);
    return result;
}

/* ---------------------------------------------------------------- sending past the library */

/** A head that is being written. */
struct reply_head {
    char text[REPLY_HEAD_BYTES];
    size_t length; /**< sizeof(text): it has no room. */
};

static bool __attribute__((format(printf, 2, 3)))
reply_head_write(struct reply_head *head, const char *format, ...)
{
    size_t room = sizeof(head->text) - head->length;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(head->text + head->length, room, format, args);
    va_end(args);
    bool fits = length >= 0 && (size_t)length < room;
    head->length = fits ? head->length + (size_t)length : sizeof(head->text);
    return fits;
}

static bool reply_head_add_header(void *to, const char *name, const char *value)
{
    return reply_head_write(to, "%s: %s\r\n", name, value);
}

static void reply_date(char date[static 40])
{
    time_t now = time(NULL);
    struct tm utc;
    date[0] = '\0';
    if (gmtime_r(&now, &utc)) {
        strftime(date, 40, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    }
}

/** Write all of the head of a reply with a JSON body of @p length bytes, as the library would. */
static bool reply_head_write_all(struct reply_head *head, const struct http_exchange *exchange,
                                 size_t length)
{
    char date[40];
    reply_date(date);
    return reply_head_write(head,
                            "HTTP/1.1 %u %s\r\nDate: %s\r\nConnection: close\r\n"
                            "Content-Type: %s\r\nContent-Length: %zu\r\n",
                            exchange->code, MHD_get_reason_phrase_for(exchange->code), date,
                            reply_json_type, length) &&
           reply_add_headers(exchange, reply_head_add_header, head) &&
           reply_head_write(head, "\r\n");
}

void http_reply_send_cut(struct http_exchange *exchange, const struct st_error *error)
{
    struct reply_head head = {.length = 0};
    size_t length = 0;
    http_reply_drop(exchange);
    if (!exchange->request_id[0]) {
        http_head_set_request_id(exchange);
    }
    char *body = reply_fail(exchange, error, NULL, NULL, &length);
    if (body && reply_head_write_all(&head, exchange, length)) {
        struct iovec parts[] = {{.iov_base = head.text, .iov_len = head.length},
                                {.iov_base = body, .iov_len = exchange->request.head ? 0 : length}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        /* A client that does not even have room for this goes without. */
        exchange->told =
            sendmsg(exchange->connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    }
    free(body);
}
