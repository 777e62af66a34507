#include <stdlib.h>

#include "server/operation.h"

enum waiter_state {
    WAITER_WAITING,
    WAITER_TELLING, /**< Taken off its operation; notify runs or will. */
    WAITER_TOLD,    /**< notify has returned. */
};

struct server_waiter {
    struct server_operation *operation; /**< A reference. */
    void (*notify)(void *arg);
    void *arg;
    enum waiter_state state;
    struct server_waiter *next, *previous; /**< In operation->waiters, then operation->told. */
    struct st_timer timer;
    bool timer_started;
};

static void waiter_unlink(struct server_waiter *waiter)
{
    struct server_operation *operation = waiter->operation;
    if (waiter->previous) {
        waiter->previous->next = waiter->next;
    } else {
        operation->waiters = waiter->next;
    }
    if (waiter->next) {
        waiter->next->previous = waiter->previous;
    }
    operation->server->waiters--;
}

/** Call notify; the waiter belongs to its closer as soon as it is told. No lock. */
static void waiter_tell(struct server *server, struct server_waiter *waiter)
{
    waiter->notify(waiter->arg);
    server_lock(server);
    waiter->state = WAITER_TOLD;
    if (server->waiters_closing) {
        pthread_cond_broadcast(&server->waiter_told);
    }
    server_unlock(server);
}

void server_waiters_end(struct server_operation *operation)
{
    for (struct server_waiter *waiter = operation->waiters; waiter; waiter = waiter->next) {
        waiter->state = WAITER_TELLING;
        operation->server->waiters--;
    }
    operation->told = operation->waiters;
    operation->waiters = NULL;
}

void server_waiters_tell(struct server_operation *operation)
{
    struct server_waiter *waiter = operation->told;
    operation->told = NULL;
    while (waiter) {
        struct server_waiter *next = waiter->next;
        waiter_tell(operation->server, waiter);
        waiter = next;
    }
}

static void waiter_fire(void *arg)
{
    struct server_waiter *waiter = arg;
    struct server *server = waiter->operation->server;
    server_lock(server);
    bool first = waiter->state == WAITER_WAITING;
    if (first) {
        waiter_unlink(waiter);
        waiter->state = WAITER_TELLING;
    }
    server_unlock(server);
    if (first) {
        waiter_tell(server, waiter);
    }
}

static enum st_status waiter_add(struct server_waiter *waiter, uint64_t deadline_ns,
                                 struct st_error *err)
{
    struct server_operation *operation = waiter->operation;
    struct server *server = operation->server;
    if (server->waiters >= ST_OPERATION_WAITERS_MAX) {
        return st_fail(err, ST_REASON_TOO_MANY_OPERATIONS, NULL,
                       "%d requests wait for operations already", ST_OPERATION_WAITERS_MAX);
    }
    if (deadline_ns != ST_DEADLINE_NEVER &&
        !st_timer_start(server->timers, &waiter->timer, deadline_ns, waiter_fire, waiter)) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a timer");
    }
    waiter->timer_started = deadline_ns != ST_DEADLINE_NEVER;
    server_operation_retain(operation);
    waiter->next = operation->waiters;
    if (operation->waiters) {
        operation->waiters->previous = waiter;
    }
    operation->waiters = waiter;
    server->waiters++;
    return ST_OK;
}

enum st_status server_operation_wait(struct server_operation *operation, uint64_t deadline_ns,
                                     void (*notify)(void *arg), void *arg,
                                     struct server_waiter **ret_waiter, struct st_error *err)
{
    struct server *server = operation->server;
    struct server_waiter *waiter = calloc(1, sizeof(*waiter));
    if (!waiter) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a waiter");
    }
    waiter->operation = operation;
    waiter->notify = notify;
    waiter->arg = arg;
    server_lock(server);
    bool ended = server_operation_ended(operation);
    enum st_status status = ended ? ST_OK : waiter_add(waiter, deadline_ns, err);
    server_unlock(server);
    if (ended || status != ST_OK) {
        free(waiter);
        waiter = NULL;
    }
    if (status == ST_OK) {
        *ret_waiter = waiter;
    }
    return status;
}

void server_waiter_close(struct server_waiter *waiter)
{
    if (!waiter) {
        return;
    }
    struct server_operation *operation = waiter->operation;
    struct server *server = operation->server;
    server_lock(server);
    if (waiter->state == WAITER_WAITING) {
        waiter_unlink(waiter);
        waiter->state = WAITER_TOLD;
    }
    server->waiters_closing++;
    while (waiter->state != WAITER_TOLD) {
        pthread_cond_wait(&server->waiter_told, &server->lock);
    }
    server->waiters_closing--;
    server_unlock(server);
    if (waiter->timer_started) {
        st_timer_stop(server->timers,
                      &waiter->timer); /* its function may still be on its way out */
    }
    server_operation_release(operation);
    free(waiter);
}
