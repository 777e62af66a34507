#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/operation.h"
#include "server/registry.h"
#include "server/workers.h"

/* ---------------------------------------------------------------- creation */

static void server_name(struct server *server, const char *name)
{
    if (name) {
        server_copy_text(server->name, sizeof(server->name), name);
    } else if (gethostname(server->name, sizeof(server->name) - 1) != 0) {
        server_copy_text(server->name, sizeof(server->name), "localhost");
    }
}

static void server_init(struct server *server, const struct server_options *options)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&server->lock, NULL);
    pthread_mutex_init(&server->gate, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->idle, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_cond_init(&server->waiter_told, NULL);
    st_uid_make(server->uid);
    st_uid_make(server->incarnation);
    /* Ids of operations begin with digits of the incarnation, so that an old id is not taken for a
     * new one. */
    server->operations_prefix = (uint32_t)strtoul(server->incarnation, NULL, 16);
    server_name(server, options->node_name);
    server->start_time_ns = st_clock_realtime_ns();
    server->deterministic = options->deterministic;
    server->driver_call_ns = ST_DRIVER_CALL_SECONDS * ST_NS_PER_SECOND;
}

/**
 * Pinned buffers are made by a driver call when they are first taken. Where one can hang they are
 * all made now, so that no caller's thread makes it. Those that cannot be made are tried again
 * later.
 */
static void server_warm_staging(struct server *server)
{
    void *buffers[ST_STAGING_BUFFERS_MAX];
    uint32_t count = 0;
    while (server->calls_may_block && count < ST_STAGING_BUFFERS_MAX &&
           (buffers[count] = gpu_staging_acquire(server->gpu)) != NULL) {
        count++;
    }
    while (count > 0) {
        gpu_staging_release(server->gpu, buffers[--count]);
    }
}

/** What server_create() does that can fail. */
static enum st_status server_build(struct server *server, const struct server_options *options,
                                   struct st_error *err)
{
    server->buckets = calloc(SERVER_OPERATION_BUCKETS, sizeof(struct server_operation *));
    if (!server->buckets) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the node");
    }
    enum st_status status = st_timers_create(&server->timers, err);
    if (status == ST_OK) {
        status = server_pools_create(server, err);
    }
    if (status == ST_OK) {
        struct gpu_options gpu = options->gpu;
        gpu.timers = server->timers;
        status = gpu_open(&gpu, &server->gpu, err);
    }
    if (status == ST_OK) {
        struct gpu_capabilities capabilities;
        gpu_capabilities(server->gpu, &capabilities);
        server->calls_may_block = capabilities.calls_may_block;
        server_warm_staging(server);
    }
    return status;
}

/** Undo server_create(): the registry is empty or what is in it has no memory any more; nothing
 * runs. */
static void server_free(struct server *server)
{
    server_pools_destroy(server);
    if (server->gpu) {
        gpu_close(server->gpu);
    }
    st_timers_destroy(server->timers);
    for (size_t i = 0; i < server->tensors.count; i++) {
        tensor_free(server->tensors.entries[i].value);
    }
    for (size_t i = 0; i < server->groups.count; i++) {
        group_free(server->groups.entries[i].value);
    }
    st_index_done(&server->tensors);
    st_index_done(&server->groups);
    if (server->buckets) {
        server_records_done(server);
    }
    free(server->buckets);
    server_transfers_destroy(server->transfers);
    pthread_cond_destroy(&server->idle);
    pthread_cond_destroy(&server->waiter_told);
    pthread_mutex_destroy(&server->gate);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

enum st_status server_create(const struct server_options *options, struct server **ret_server,
                             struct st_error *err)
{
    struct server *server = calloc(1, sizeof(*server));
    if (!server) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the node");
    }
    server_init(server, options);
    enum st_status status = server_build(server, options, err);
    if (status != ST_OK) {
        server_free(server);
        return status;
    }
    *ret_server = server;
    return ST_OK;
}

/* ---------------------------------------------------------------- the end */

void server_drain(struct server *server)
{
    server_lock(server);
    server->draining = true;
    server_unlock(server);
}

static uint32_t unfinished(const struct server *server)
{
    const struct server_metrics *figures = &server->figures;
    return figures->operations_queued + figures->operations_running + figures->transfers;
}

uint32_t server_unfinished(struct server *server)
{
    server_lock(server);
    uint32_t count = unfinished(server);
    server_unlock(server);
    return count;
}

void server_cancel_all(struct server *server)
{
    server_lock(server);
    /* Ending one may start or end others, but none leaves the list before it is asked for. */
    struct server_operation *operation = server->operations_first;
    while (operation) {
        struct server_operation *next = operation->next;
        if (operation->state == SERVER_OPERATION_QUEUED) {
            server_operation_stop(operation, false);
        }
        operation = next;
    }
    server_transfer_cancel_all(server);
    server_unlock(server);
}

/** Wait until nothing is accepted or runs. Under the lock, which is off meanwhile. @return false:
 * not in time. */
static bool wait_idle(struct server *server, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / ST_NS_PER_SECOND),
                             .tv_nsec = (long)(deadline_ns % ST_NS_PER_SECOND)};
    int rc = 0;
    while (rc == 0 && (unfinished(server) > 0 || server->works > 0 || server->telling > 0)) {
        rc = pthread_cond_timedwait(&server->idle, &server->lock, &until);
    }
    return rc == 0;
}

/** Gives everything back that a group has. */
struct group_teardown {
    struct server_work work;
    struct group *group;
};

static void teardown_run(struct server_work *work)
{
    struct group *group = ((struct group_teardown *)work)->group;
    for (struct tensor *tensor = group->tensors; tensor; tensor = tensor->next) {
        gpu_memory_destroy(tensor->memory);
        tensor->memory = NULL;
    }
    server_scratch_destroy(group->scratch);
    group->scratch = NULL;
    gpu_team_destroy(group->team);
    group->team = NULL;
}

static void teardown_done(struct server_work *work)
{
    free(work); /* its first member */
}

/** Under the lock. False: memory is out. */
static bool teardown_submit(struct group *group)
{
    struct group_teardown *teardown = calloc(1, sizeof(*teardown));
    if (!teardown) {
        return false;
    }
    teardown->group = group;
    teardown->work.run = teardown_run;
    teardown->work.done = teardown_done;
    group_memory_submit(group, &teardown->work);
    return true;
}

bool server_destroy(struct server *server, uint64_t deadline_ns)
{
    server_lock(server);
    server->draining = true;
    bool idle = wait_idle(server, deadline_ns);
    for (size_t i = 0; i < server->groups.count && idle; i++) {
        idle = teardown_submit(server->groups.entries[i].value);
    }
    idle = idle && wait_idle(server, deadline_ns);
    server_unlock(server);
    if (idle) {
        server_free(server);
    }
    return idle;
}

/* ---------------------------------------------------------------- the node */

void server_node(struct server *server, struct server_node *ret)
{
    *ret = (struct server_node){.name = server->name,
                                .start_time_ns = server->start_time_ns,
                                .device_count = gpu_device_count(server->gpu)};
    server_copy_text(ret->uid, sizeof(ret->uid), server->uid);
    server_copy_text(ret->incarnation, sizeof(ret->incarnation), server->incarnation);
    gpu_capabilities(server->gpu, &ret->capabilities);
    server_lock(server);
    ret->draining = server->draining;
    server_unlock(server);
}

const struct gpu *server_gpu(const struct server *server)
{
    return server->gpu;
}

bool server_device_find(const struct server *server, const char *text, uint32_t *ret_ordinal)
{
    static const char prefix[] = "GPU-";
    const char *uuid =
        strncmp(text, prefix, sizeof(prefix) - 1) == 0 ? text + sizeof(prefix) - 1 : text;
    for (uint32_t ordinal = 0; ordinal < gpu_device_count(server->gpu); ordinal++) {
        char decimal[16];
        snprintf(decimal, sizeof(decimal), "%u", ordinal);
        bool found = strcmp(text, decimal) == 0 ||
                     strcmp(uuid, gpu_device_info(server->gpu, ordinal)->uuid) == 0;
        if (found) {
            *ret_ordinal = ordinal;
            return true;
        }
    }
    return false;
}

void server_metrics(struct server *server, struct server_metrics *ret)
{
    server_lock(server);
    *ret = server->figures;
    ret->groups = (uint32_t)server->groups.count;
    ret->tensors = (uint32_t)server->tensors.count;
    ret->waiters = server->waiters;
    server_unlock(server);
}
