#include "api/http/exchange.h"
#include "base/clock.h"

static struct http_exchange *wait_exchange(struct api_request *request)
{
    return (struct http_exchange *)request;
}

void http_wait_done(struct http_exchange *exchange)
{
    server_waiter_close(exchange->waiter);
    exchange->waiter = NULL;
    if (exchange->operation) {
        server_operation_release(exchange->operation);
        exchange->operation = NULL;
    }
}

/** The wait is over: hand the operation as it is to who asked. */
static enum st_status wait_deliver(struct http_exchange *exchange, struct st_error *err)
{
    struct server_operation_view *view = server_operation_view(exchange->operation);
    http_wait_done(exchange);
    if (!view) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the operation's state");
    }
    enum st_status status = exchange->wait_done(&exchange->request, &view, err);
    if (view) {
        server_snapshot_release(&view->base);
    }
    return status;
}

static bool operation_ended(struct server_operation *operation)
{
    struct server_operation_view *view = server_operation_view(operation);
    bool ended = view && view->state >= SERVER_OPERATION_SUCCEEDED;
    if (view) {
        server_snapshot_release(&view->base);
    }
    return ended;
}

static enum st_status wait_again(struct api_request *request, struct st_error *err)
{
    struct http_exchange *exchange = wait_exchange(request);
    if (operation_ended(exchange->operation) || st_clock_now_ns() >= exchange->wait_deadline_ns ||
        http_connection_must_end(exchange->connection)) {
        return wait_deliver(exchange, err);
    }
    api_request_suspend(request, wait_again);
    return ST_OK;
}

enum st_status api_request_wait_operation(
    struct api_request *request, struct server_operation *operation,
    enum st_status (*done)(struct api_request *request, struct server_operation_view **view,
                           struct st_error *err),
    struct st_error *err)
{
    struct http_exchange *exchange = wait_exchange(request);
    exchange->operation = operation;
    exchange->wait_done = done;
    if (request->wait_ns == 0) {
        return wait_deliver(exchange, err);
    }
    exchange->wait_deadline_ns = st_clock_now_ns() + request->wait_ns;
    /* Too many wait already: the operation was accepted, so its state is the answer, not a refusal.
     */
    if (server_operation_wait(operation, exchange->wait_deadline_ns, api_request_notify, request,
                              &exchange->waiter, err) != ST_OK ||
        !exchange->waiter) {
        return wait_deliver(exchange, err);
    }
    api_request_suspend(request, wait_again);
    return ST_OK;
}
