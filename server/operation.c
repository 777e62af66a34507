#include "server/operation.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_AFTER_QUEUE_MS 1000
#define OPERATION_REQUEST_ID_MAX (sizeof(((struct server_operation_view *)0)->request_id) - 1)

static struct server_operation *operation_of_work(struct server_work *work)
{
    return (struct server_operation *)((char *)work - offsetof(struct server_operation, work));
}

bool server_operation_ended(const struct server_operation *operation)
{
    return operation->state >= SERVER_OPERATION_SUCCEEDED;
}

/* ---------------------------------------------------------------- making and freeing */

static void operation_granted(struct server_holder *holder);
static void operation_work_run(struct server_work *work);
static void operation_work_done(struct server_work *work);

bool server_operation_set_target(struct server_operation *operation, const char *id)
{
    free(operation->target_id);
    operation->target_id = strdup(id);
    return operation->target_id != NULL;
}

/** Copy @p text to *at and move on behind it. @return the copy. */
static const char *text_put(char **at, const char *text, size_t length)
{
    char *copy = *at;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *at += length + 1;
    return copy;
}

/** @return false: memory is out. */
static bool operation_write_texts(struct server_operation *operation,
                                  const struct server_operation_spec *spec)
{
    const char *request_id = spec->caller->request_id ? spec->caller->request_id : "";
    size_t group_length = strlen(spec->group->id);
    size_t owner_length = strnlen(spec->caller->principal, ST_ID_MAX);
    size_t request_length = strnlen(request_id, OPERATION_REQUEST_ID_MAX);
    char *at = malloc(group_length + owner_length + request_length + 3);
    operation->texts = at;
    operation->target_kind = spec->target_kind;
    if (!at) {
        return false;
    }
    operation->group_id = text_put(&at, spec->group->id, group_length);
    operation->owner = text_put(&at, spec->caller->principal, owner_length);
    operation->request_id = text_put(&at, request_id, request_length);
    return !spec->target_id || server_operation_set_target(operation, spec->target_id);
}

struct server_operation *server_operation_create(struct server *server,
                                                 const struct server_operation_spec *spec)
{
    struct server_operation *operation = calloc(1, spec->class->size);
    if (!operation) {
        return NULL;
    }
    operation->references = 1;
    operation->class = spec->class;
    operation->server = server;
    operation->group = spec->group;
    operation->deadline_ns = spec->caller->deadline_ns;
    operation->holder.server = server;
    operation->holder.granted = operation_granted;
    operation->holder.order.claims = operation->claims;
    operation->claims_capacity = SERVER_OPERATION_CLAIMS;
    operation->work.run = operation_work_run;
    operation->work.done = operation_work_done;
    operation->work.overran = server_operation_overran;
    if (!operation_write_texts(operation, spec)) {
        server_operation_release(operation);
        return NULL;
    }
    return operation;
}

/** No claim is held any more. */
static void operation_free_claims(struct server_operation *operation)
{
    struct order_holder *order = &operation->holder.order;
    if (order->claims != operation->claims) {
        free(order->claims);
        order->claims = operation->claims;
        order->count = 0;
    }
}

static void operation_free(struct server_operation *operation)
{
    operation->class->destroy(operation);
    operation_free_claims(operation);
    if (operation->view) {
        server_snapshot_release(&operation->view->base);
    }
    free(operation->result.checksums);
    server_ids_release(operation->result.resources);
    free(operation->error);
    free(operation->target_id);
    free(operation->texts);
    free(operation);
}

static bool operation_unreference(struct server_operation *operation)
{
    return atomic_fetch_sub_explicit(&operation->references, 1, memory_order_acq_rel) == 1;
}

void server_operation_retain(struct server_operation *operation)
{
    atomic_fetch_add_explicit(&operation->references, 1, memory_order_relaxed);
}

void server_operation_release(struct server_operation *operation)
{
    if (operation && operation_unreference(operation)) {
        operation_free(operation);
    }
}

static void operation_free_later(struct server_after *after)
{
    operation_free(
        (struct server_operation *)((char *)after - offsetof(struct server_operation, free_after)));
}

void server_operation_drop(struct server_operation *operation)
{
    if (operation_unreference(operation)) {
        operation->free_after.call = operation_free_later;
        server_after(operation->server, &operation->free_after);
    }
}

bool server_operation_reserve_claims(struct server_operation *operation, uint32_t count)
{
    if (count <= operation->claims_capacity) {
        return true;
    }
    struct order_claim *claims = calloc(count, sizeof(*claims));
    if (!claims) {
        return false;
    }
    operation->holder.order.claims = claims;
    operation->claims_capacity = count;
    return true;
}

void server_operation_claim(struct server_operation *operation, struct order_queue *queue,
                            uint64_t shards, bool write)
{
    struct order_holder *order = &operation->holder.order;
    order->claims[order->count++] =
        (struct order_claim){.queue = queue, .shards = shards, .write = write};
}

/* ---------------------------------------------------------------- the end */

static void operation_ended_after(struct server_after *after)
{
    struct server_operation *operation =
        (struct server_operation *)((char *)after - offsetof(struct server_operation, after));
    if (operation->timer_started) {
        st_timer_stop(operation->server->timers, &operation->timer);
    }
    server_waiters_tell(operation);
    server_operation_release(operation);
}

static void operation_set_error(struct server_operation *operation, const struct st_error *err)
{
    if (!operation->error) {
        operation->error = malloc(sizeof(*operation->error));
    }
    if (operation->error && err) {
        *operation->error = *err;
    }
}

static enum server_operation_state operation_final_state(const struct st_error *err)
{
    if (!err) {
        return SERVER_OPERATION_SUCCEEDED;
    }
    bool cancelled =
        err->reason == ST_REASON_OPERATION_CANCELLED || err->reason == ST_REASON_OPERATION_DEADLINE;
    return cancelled ? SERVER_OPERATION_CANCELLED : SERVER_OPERATION_FAILED;
}

/** The state becomes final and everybody is told. Under the lock. @param err NULL: it succeeded. */
static void operation_end_state(struct server_operation *operation, const struct st_error *err)
{
    struct server *server = operation->server;
    struct server_metrics *figures = &server->figures;
    uint32_t *counted = operation->state == SERVER_OPERATION_QUEUED ? &figures->operations_queued
                                                                    : &figures->operations_running;
    (*counted)--;
    if (err) {
        operation_set_error(operation, err);
    }
    operation->state = operation_final_state(err);
    figures->operations_total[operation->state]++;
    operation->ended_ns = st_clock_now_ns();
    operation->end_time_ns = st_clock_realtime_ns();
    if (!err) {
        operation->bytes_done = operation->bytes_total;
    }
    server_waiters_end(operation);
    server_records_keep(server, operation);
    server_operation_retain(operation);
    operation->after.call = operation_ended_after;
    server_after(server, &operation->after);
    pthread_cond_broadcast(&server->idle);
}

/** Work is over, or never began: undo or commit, give the claims back. Under the lock. @param err
 * NULL: success. */
static void operation_over(struct server_operation *operation, const struct st_error *err)
{
    operation->over = true;
    operation->group->operations--;
    operation->group->running -= operation->began;
    operation->class->end(operation, err ? err->status : ST_OK);
    server_holder_leave(&operation->holder);
    operation_free_claims(operation); /* the record is kept for long */
    operation->group = NULL;
    if (!server_operation_ended(operation)) {
        operation_end_state(operation, err);
    }
    server_operation_drop(operation);
}

static void operation_fill_cancelled(const struct server_operation *operation, struct st_error *err)
{
    if (operation->deadline_passed) {
        st_fail(err, ST_REASON_OPERATION_DEADLINE, NULL,
                "the deadline of the request passed; the operation was cancelled");
    } else {
        st_fail(err, ST_REASON_OPERATION_CANCELLED, NULL, "the operation was cancelled");
    }
}

/** Run has returned and the work is complete. Under the lock. */
static void operation_finish(struct server_operation *operation)
{
    struct st_error err = {0};
    bool failed = operation->status != ST_OK;
    bool cancelled = operation->cancel_requested && operation->class->cancel_running;
    if (failed && operation->error) {
        err = *operation->error;
    } else if (failed) {
        st_fail(&err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the error");
        err.status = operation->status;
    } else if (cancelled) {
        operation_fill_cancelled(operation, &err);
    }
    operation_over(operation, failed || cancelled ? &err : NULL);
}

void server_operation_complete(struct server_operation *operation, enum st_status status,
                               const struct st_error *err)
{
    struct server *server = operation->server;
    server_lock(server);
    operation->status = status;
    operation->untouched = status != ST_OK && err && err->untouched;
    if (status != ST_OK && !server_operation_ended(operation)) {
        operation_set_error(operation, err);
    }
    operation->completed = true;
    if (!operation->starting) {
        operation_finish(operation);
    }
    server_unlock(server);
}

static void completion_done(void *arg, enum st_status status, const struct st_error *err)
{
    server_operation_complete(arg, status, err);
}

struct gpu_completion server_operation_completion(struct server_operation *operation)
{
    return (struct gpu_completion){.done = completion_done, .arg = operation};
}

enum st_status server_operation_settle(struct server_operation *operation, struct st_error *err)
{
    server_lock(operation->server);
    operation->settled = !operation->cancel_requested;
    bool settled = operation->settled;
    if (!settled) {
        operation_fill_cancelled(operation, err);
    }
    server_unlock(operation->server);
    return settled ? ST_OK : err ? err->status : ST_CANCELLED;
}

/* ---------------------------------------------------------------- running */

/** Run has returned. Under the lock. */
static void operation_returned(struct server_operation *operation)
{
    operation->starting = false;
    if (operation->completed) {
        operation_finish(operation);
    }
}

static void operation_work_run(struct server_work *work)
{
    struct server_operation *operation = operation_of_work(work);
    operation->class->run(operation);
}

static void operation_work_done(struct server_work *work)
{
    operation_returned(operation_of_work(work));
}

/** The claims are granted and begin said yes. Under the lock. @param may_inline the submitter will
 * run it. */
static void operation_run(struct server_operation *operation, bool may_inline)
{
    struct server *server = operation->server;
    struct group *group = operation->group;
    bool idle = group->running == 0;
    operation->began = true;
    operation->starting = true;
    operation->state = SERVER_OPERATION_RUNNING;
    operation->started_ns = st_clock_now_ns();
    operation->start_time_ns =
        operation->create_time_ns + (operation->started_ns - operation->accepted_ns);
    group->running++;
    server->figures.operations_running++;
    if (operation->class->pool == SERVER_POOL_MEMORY) {
        group_memory_submit(group, &operation->work);
    } else if (may_inline && operation->small && idle && !server->calls_may_block) {
        operation->inline_start = true;
    } else {
        operation->work.group = NULL;
        server_work_submit(server, operation->class->pool, &operation->work);
    }
}

/** Its turn has come after it had to wait. Under the lock. */
static void operation_granted(struct server_holder *holder)
{
    struct server_operation *operation = (struct server_operation *)holder; /* first member */
    struct st_error err = {0};
    enum st_status status = operation->class->begin(operation, &err);
    if (status != ST_OK) {
        operation_over(operation, &err);
        return;
    }
    operation->server->figures.operations_queued--;
    operation_run(operation, false);
}

/** Not accepted after all. Under the lock. */
static enum st_status operation_refuse(struct server_operation *operation, enum st_status status)
{
    operation->over = true;
    operation->class->end(operation, status);
    server_holder_leave(&operation->holder);
    return status;
}

enum st_status server_operation_check_room(const struct group *group, struct st_error *err)
{
    if (group->operations < ST_OPERATIONS_QUEUED_MAX) {
        return ST_OK;
    }
    enum st_status status = st_fail(err, ST_REASON_TOO_MANY_OPERATIONS, NULL,
                                    "group %s has %d unfinished operations already", group->id,
                                    ST_OPERATIONS_QUEUED_MAX);
    if (err) {
        err->retry_after_ms = RETRY_AFTER_QUEUE_MS;
    }
    return status;
}

enum st_status server_operation_accept(struct server_operation *operation, struct st_error *err)
{
    struct server *server = operation->server;
    struct group *group = operation->group;
    enum st_status room = server_operation_check_room(group, err);
    if (room != ST_OK) {
        return operation_refuse(operation, room);
    }
    bool granted = server_holder_enter(&operation->holder);
    if (granted) {
        enum st_status status = operation->class->begin(operation, err);
        if (status != ST_OK) {
            return operation_refuse(operation, status);
        }
    }
    operation->accepted_ns = st_clock_now_ns();
    operation->create_time_ns = st_clock_realtime_ns();
    operation->epoch = group->epoch;
    operation->accepted = true;
    server_operation_retain(operation); /* the engine's, until it is over */
    server_records_add(server, operation);
    group->operations++;
    if (granted) {
        operation_run(operation, true);
    } else {
        operation->state = SERVER_OPERATION_QUEUED;
        server->figures.operations_queued++;
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- deadlines, cancel, overran */

void server_operation_stop(struct server_operation *operation, bool by_deadline)
{
    if (server_operation_ended(operation) || operation->settled) {
        return;
    }
    operation->cancel_requested = true;
    operation->deadline_passed = by_deadline;
    if (operation->state == SERVER_OPERATION_QUEUED) {
        struct st_error err = {0};
        operation_fill_cancelled(operation, &err);
        operation_over(operation, &err);
    }
}

static void deadline_fire(void *arg)
{
    struct server_operation *operation = arg;
    struct server *server = operation->server;
    server_lock(server);
    server_operation_stop(operation, true);
    server_unlock(server); /* the operation may be gone now */
}

static void operation_watch_deadline(struct server_operation *operation)
{
    struct server *server = operation->server;
    server_lock(server);
    if (!server_operation_ended(operation)) {
        operation->timer_started = st_timer_start(server->timers, &operation->timer,
                                                  operation->deadline_ns, deadline_fire, operation);
    }
    server_unlock(server);
}

void server_operation_start(struct server_operation *operation)
{
    struct server *server = operation->server;
    if (operation->inline_start) {
        operation->class->run(operation);
        server_lock(server);
        operation_returned(operation);
        server_unlock(server);
    }
    if (operation->deadline_ns != ST_DEADLINE_NEVER) {
        operation_watch_deadline(operation);
    }
}

void server_operation_end_early(struct server_operation *operation)
{
    struct st_error err = {0};
    server_lock(operation->server);
    if (!server_operation_ended(operation)) {
        operation_fill_cancelled(operation, &err);
        operation_end_state(operation, &err);
    }
    server_unlock(operation->server);
}

/** Whether the job's own call hangs: others only wait, behind it in their group's list or, in the
 * middle of a batch, for the memory of another group that has a job of its own. */
static bool work_hangs(const struct server_work *work, const struct group *group)
{
    return work->active && (!work->group || group == work->group || !group->memory_running);
}

void server_operation_overran_by(struct server_operation *operation, struct server_work *work)
{
    struct group *working_on = operation->working_on;
    struct group *group = working_on ? working_on : operation->group;
    if (work_hangs(work, group)) {
        server_work_degrade(work, group);
    }
    if (server_operation_ended(operation) || operation->settled) {
        return;
    }
    struct st_error err = {0};
    st_fail_as(&err, ST_DEADLINE_EXCEEDED, ST_REASON_DEVICE_DEGRADED, NULL,
               "a driver call of group %s does not return", group->id);
    operation->cancel_requested = true;
    operation_end_state(operation, &err);
}

void server_operation_overran(struct server_work *work)
{
    server_operation_overran_by(operation_of_work(work), work);
}

enum st_status server_operation_cancel(struct server_operation *operation,
                                       const struct server_caller *caller, struct st_error *err)
{
    struct server *server = operation->server;
    bool may =
        caller->role == SERVER_ROLE_OPERATOR ||
        (caller->role == SERVER_ROLE_USER && strcmp(caller->principal, operation->owner) == 0);
    if (!may) {
        return st_fail(err, ST_REASON_ROLE_REQUIRED, NULL,
                       "only the operation's owner or an operator may cancel it");
    }
    enum st_status status = ST_OK;
    server_lock(server);
    if (server_operation_ended(operation)) {
        status = st_fail(err, ST_REASON_OPERATION_DONE, NULL, "operation %s has ended already",
                         operation->id);
    } else {
        server_operation_stop(operation, false);
    }
    server_unlock(server);
    return status;
}
