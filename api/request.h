#ifndef SYMTENSOR_API_REQUEST_H
#define SYMTENSOR_API_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/arena.h"
#include "api/route.h"
#include "server/server.h"

/**
 * One request, as its handler sees it. Everything here is called on the listener's thread, from the
 * handler or a function it was asked to continue with, except api_request_notify().
 */
#define API_PATH_IDS_MAX 3
#define API_LENGTH_UNKNOWN UINT64_MAX

struct api_request {
    struct server *server;
    const struct api_route *route;
    const struct gpu_collective *collective; /**< Of an API_ROUTE_COLLECTIVES route. */
    struct server_caller caller;
    const char *ids[API_PATH_IDS_MAX]; /**< What stands for the names in braces of the path, in
                                          order; each a valid id. */
    void *body;              /**< struct of route->body_bytes, decoded; NULL for other kinds. */
    void *query;             /**< struct of route->query_bytes. */
    uint32_t media;          /**< Stream: index into route->media. */
    uint64_t content_length; /**< Stream: announced bytes, or API_LENGTH_UNKNOWN when chunked. */
    bool head;               /**< HEAD: answer as for GET; the body is not sent. */
    uint64_t wait_ns;        /**< ?wait= of an API_ROUTE_WAITS route. */
    struct api_arena arena;  /**< Freed at the request's end. */
    void *context;           /**< The handler's own; see api_request_on_end(). */
};

/** A header's value, or NULL. Names are compared without case. A repeated header gives the first.
 */
const char *api_request_header(struct api_request *request, const char *name);
/** Run end(request) once when the request is over, however it ended. Set it before anything is kept
 * in context that must be released: transfers, snapshots, waiters. */
void api_request_on_end(struct api_request *request, void (*end)(struct api_request *request));

/* ---- answering. Exactly one of these, once. On failure (memory) they return it and nothing was
 * sent. */

/** Add a header to the reply that comes. Both are copied. */
void api_reply_header(struct api_request *request, const char *name, const char *format, ...)
    ST_PRINTF(3, 4);
/** JSON text, malloc'd, owned from now on also on failure; NULL: OUT_OF_MEMORY. */
ST_MUST_CHECK enum st_status api_reply_json(struct api_request *request, unsigned code, char *text,
                                            size_t length, struct st_error *err);
/** The text kept with a snapshot; the reference is taken over, also on failure. */
ST_MUST_CHECK enum st_status api_reply_snapshot(struct api_request *request, unsigned code,
                                                struct server_snapshot *snapshot, const char *text,
                                                struct st_error *err);
/** Any text that lives as long as the program, or a copy of it. */
ST_MUST_CHECK enum st_status api_reply_copy(struct api_request *request, unsigned code,
                                            const char *content_type, const char *text,
                                            size_t length, struct st_error *err);
/** Without a body: 204. */
ST_MUST_CHECK enum st_status api_reply_empty(struct api_request *request, unsigned code,
                                             struct st_error *err);
/**
 * An error that carries more than itself: {"error":{...},<extra>}, such as "operation":{...}.
 * @param key NULL: none. @param json one JSON value.
 */
ST_MUST_CHECK enum st_status api_reply_error_with(struct api_request *request,
                                                  const struct st_error *error, const char *key,
                                                  const char *json, struct st_error *err);
/**
 * A body that is made while it is sent.
 * @param bytes its exact length (MHD_SIZE_UNKNOWN is not used here).
 * @param read  fill @p buffer; @return bytes; 0: nothing now, api_request_notify() will come; -1:
 * the connection is cut (the length cannot be kept).
 */
ST_MUST_CHECK enum st_status api_reply_stream(
    struct api_request *request, unsigned code, const char *content_type, uint64_t bytes,
    ssize_t (*read)(struct api_request *request, char *buffer, size_t size), struct st_error *err);

/* ---- waiting without holding the thread */

/** Something changed: continue the request if it is suspended. Thread: any. arg is the struct
 * api_request. This is the notify function for server_*_open() and server_operation_wait(). */
void api_request_notify(void *arg);
/** Whether the client took bytes of a reply since the last call. Thread: the timers'. arg is the
 * struct api_request. This is the moved function for server_download_open(). */
bool api_request_moved(void *arg);
/**
 * Stop here and call again(request) on the listener's thread after the next api_request_notify(). A
 * notify that came since the handler (or the last continuation) began counts, so none is lost; one
 * that came for nothing is possible: look again, and suspend again.
 */
void api_request_suspend(struct api_request *request,
                         enum st_status (*again)(struct api_request *request,
                                                 struct st_error *err));
/**
 * Wait up to request->wait_ns for an operation, then call done(request, operation's view) on the
 * listener's thread, at once when it has ended already. The handle is taken over (also on failure);
 * the view is released after done() unless done() takes it (returns with *view = NULL). A server
 * that is shutting down ends waits early: done() then sees an unfinished operation.
 */
ST_MUST_CHECK enum st_status api_request_wait_operation(
    struct api_request *request, struct server_operation *operation,
    enum st_status (*done)(struct api_request *request, struct server_operation_view **view,
                           struct st_error *err),
    struct st_error *err);

/* ---- uploads: route->body is API_BODY_STREAM */

/** What becomes of the body. */
struct api_receiver {
    /**
     * Take bytes. Fewer than @p bytes (also 0): the rest is offered again after
     * api_request_notify().
     */
    enum st_status (*receive)(struct api_request *request, const char *data, size_t bytes,
                              size_t *ret_taken, struct st_error *err);
    /** The body is complete: answer, or api_request_suspend(). */
    enum st_status (*finish)(struct api_request *request, struct st_error *err);
    /** After api_request_interrupt(), before the body is complete: the failure that is sent. */
    enum st_status (*check)(struct api_request *request, struct st_error *err);
};
/**
 * Nobody wants the rest of the body: when what has come is read, its receiver's check() is asked
 * for the reason, which is sent, and the connection is closed. Nothing happens if the body is
 * complete. Thread: any, while api_request_notify() may be called. arg is the struct api_request.
 */
void api_request_interrupt(void *arg);
/** From the handler: go on with the body. A failure that receive() returns is sent and the
 * connection closed. */
void api_request_receive(struct api_request *request, const struct api_receiver *receiver);

#endif
