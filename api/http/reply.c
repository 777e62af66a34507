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

static const char reply_json_type[] = "application/json";

static struct http_exchange *reply_exchange(struct api_request *request)
{
    return (struct http_exchange *)request;
}

static enum st_status reply_fail_memory(struct st_error *err)
{
    return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the reply");
}

void http_reply_drop(struct http_exchange *exchange)
{
    if (exchange->response) {
        MHD_destroy_response(exchange->response);
        exchange->response = NULL;
    }
    exchange->stream_read = NULL;
    exchange->header_count = 0;
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
    struct MHD_Response *response =
        text ? MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!response) {
        free(text);
    }
    return reply_set(reply_exchange(request), code, reply_json_type, length, response, err);
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
    return reply_set(reply_exchange(request), code, content_type, length,
                     MHD_create_response_from_buffer(length, body.out, MHD_RESPMEM_MUST_COPY), err);
}

enum st_status api_reply_empty(struct api_request *request, unsigned code, struct st_error *err)
{
    static char nothing[1];
    return reply_set(reply_exchange(request), code, NULL, 0,
                     MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT), err);
}

enum st_status api_reply_error_with(struct api_request *request, const struct st_error *error,
                                    const char *key, const char *json, struct st_error *err)
{
    struct http_exchange *exchange = reply_exchange(request);
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    http_error_write(&text, "error", error);
    if (key) {
        api_json_raw(&text, key, json);
    }
    api_json_end(&text);
    size_t length = 0;
    char *body = api_text_take(&text, &length);
    uint32_t retry_after_ms = http_error_retry_after_ms(error);
    if (retry_after_ms) {
        api_reply_header(request, "Retry-After", "%u", (retry_after_ms + 999) / 1000);
    }
    if (exchange->allow) {
        api_reply_header(request, "Allow", "%s", exchange->allow);
    }
    exchange->failed = true;
    exchange->error = *error;
    return api_reply_json(request, http_error_code(error), body, length, err);
}

void http_reply_error(struct http_exchange *exchange, const struct st_error *error)
{
    http_reply_drop(exchange);
    struct st_error unused;
    if (api_reply_error_with(&exchange->request, error, NULL, NULL, &unused) != ST_OK) {
        http_reply_drop(exchange); /* no memory even for that: the connection is closed instead */
    }
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

void http_reply_send_cut(struct http_exchange *exchange, const struct st_error *error)
{
    const struct http_front *front = exchange->connection->listener->front;
    struct api_text text = {0};
    size_t length = 0;
    char date[40], head[512];
    api_json_begin(&text, NULL);
    http_error_write(&text, "error", error);
    api_json_end(&text);
    char *body = api_text_take(&text, &length);
    if (!exchange->request_id[0]) {
        http_head_set_request_id(exchange);
    }
    exchange->told = exchange->failed = true;
    exchange->error = *error;
    exchange->code = http_error_code(error);
    reply_date(date);
    int head_length = snprintf(
        head, sizeof(head),
        "HTTP/1.1 %u %s\r\nDate: %s\r\nConnection: close\r\nContent-Type: %s\r\n"
        "Content-Length: %zu\r\nx-request-id: %s\r\n%s%s%s\r\n",
        exchange->code, MHD_get_reason_phrase_for(exchange->code), date, reply_json_type, length,
        exchange->request_id, atomic_load(&front->server) ? "x-symtensor-incarnation: " : "",
        front->incarnation, atomic_load(&front->server) ? "\r\n" : "");
    struct iovec parts[] = {{.iov_base = head, .iov_len = (size_t)head_length},
                            {.iov_base = body, .iov_len = exchange->request.head ? 0 : length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (body && head_length > 0 && (size_t)head_length < sizeof(head)) {
        /* A client that does not even have room for this goes without. */
        sendmsg(exchange->connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    free(body);
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

static bool reply_add_headers(struct http_exchange *exchange)
{
    struct MHD_Response *response = exchange->response;
    const struct http_front *front = exchange->connection->listener->front;
    bool added = MHD_add_response_header(response, "x-request-id", exchange->request_id) &&
                 (!atomic_load(&front->server) ||
                  MHD_add_response_header(response, "x-symtensor-incarnation", front->incarnation));
    for (uint32_t i = 0; added && i < exchange->header_count; i++) {
        added = MHD_add_response_header(response, exchange->headers[i].name,
                                        exchange->headers[i].value);
    }
    return added;
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
    if (!exchange->response || !reply_add_headers(exchange)) {
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
