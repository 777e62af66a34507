#include "server/workers.h"

#define WORKERS_JOBS_MAX 256 /* drainers on their way: at most one for each thread */
#define WATCH_FRACTION 4     /* the watchdog looks so often within the limit of a driver call */

/** One row for each pool. */
static const struct {
    const char *name;
    uint32_t threads;
    bool watched; /**< Its jobs call the driver, or wait for a device. */
} pool_rows[SERVER_POOL_COUNT] = {
    [SERVER_POOL_LAUNCH] = {"st-launch", 2, true},
    [SERVER_POOL_MEMORY] = {"st-memory", 4, true},
    [SERVER_POOL_HOST] = {"st-host", 2, true},
};

enum st_status server_pools_create(struct server *server, struct st_error *err)
{
    enum st_status status = ST_OK;
    for (int i = 0; i < SERVER_POOL_COUNT && status == ST_OK; i++) {
        struct server_pool_state *pool = &server->pools[i];
        pool->server = server;
        pool->limit = pool_rows[i].threads;
        pool->threads = pool_rows[i].threads;
        status = st_workers_create(pool_rows[i].name, pool->threads, WORKERS_JOBS_MAX,
                                   &pool->workers, err);
    }
    return status;
}

void server_pools_destroy(struct server *server)
{
    for (int i = 0; i < SERVER_POOL_COUNT; i++) {
        st_workers_destroy(server->pools[i].workers);
        server->pools[i].workers = NULL;
    }
    if (server->timers) {
        st_timer_stop(server->timers, &server->watchdog);
    }
}

static void watchdog_fire(void *arg);

/** Look again after a part of the limit. Under the lock. */
static void watchdog_start(struct server *server)
{
    server->watching = st_timer_start(server->timers, &server->watchdog,
                                      st_clock_now_ns() + server->driver_call_ns / WATCH_FRACTION,
                                      watchdog_fire, server);
}

static struct server_work *pool_pop(struct server_pool_state *pool)
{
    struct server_work *work = pool->first;
    if (!work) {
        return NULL;
    }
    pool->first = work->next;
    if (!pool->first) {
        pool->last = NULL;
    }
    work->previous = NULL;
    work->next = pool->active;
    if (pool->active) {
        pool->active->previous = work;
    }
    pool->active = work;
    work->active = true;
    return work;
}

static void pool_remove_active(struct server_pool_state *pool, struct server_work *work)
{
    if (work->previous) {
        work->previous->next = work->next;
    } else {
        pool->active = work->next;
    }
    if (work->next) {
        work->next->previous = work->previous;
    }
    work->active = false;
}

/** The next job of the group may go to the pool. Under the lock. */
static void group_memory_next(struct server *server, struct group *group)
{
    struct server_work *work = group->memory_first;
    group->memory_running = work;
    group->stuck = false;
    if (work) {
        group->memory_first = work->next;
        if (!group->memory_first) {
            group->memory_last = NULL;
        }
        server_work_submit(server, SERVER_POOL_MEMORY, work);
    }
}

void server_work_degrade(struct server_work *work, const struct group *group)
{
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        uint64_t device = UINT64_C(1) << group->devices[rank];
        if (!(work->degraded & device)) {
            gpu_device_mark_degraded(group->server->gpu, group->devices[rank]);
        }
        work->degraded |= device;
    }
}

/** The call that hung has returned after all. Under the lock. */
static void work_recover(struct server *server, struct server_work *work)
{
    for (; work->degraded; work->degraded &= work->degraded - 1) {
        gpu_device_clear_degraded(server->gpu, (uint32_t)__builtin_ctzll(work->degraded));
    }
}

/** Under the lock. */
static void work_returned(struct server_pool_state *pool, struct server_work *work)
{
    struct server *server = pool->server;
    pool_remove_active(pool, work);
    work_recover(server, work);
    if (work->extra) {
        work->extra = false;
        pool->limit--;
    }
    if (work->group) {
        struct group *group = work->group;
        work->group = NULL;
        group_memory_next(server, group);
    }
    server->works--;
    work->done(work);
    pthread_cond_broadcast(&server->idle);
}

/** A driver call has returned: the limit counts anew. */
static void work_progress(void *arg)
{
    struct server_work *work = arg;
    atomic_store_explicit(&work->started_ns, st_clock_now_ns(), memory_order_relaxed);
}

/** Take jobs until there is none. Thread: one of the pool's. */
static void pool_drain(void *arg)
{
    struct server_pool_state *pool = arg;
    struct server *server = pool->server;
    bool watched = pool_rows[pool - server->pools].watched;
    server_lock(server);
    while (pool->drainers <= pool->limit) {
        struct server_work *work = pool_pop(pool);
        if (!work) {
            break;
        }
        work_progress(work);
        if (watched && !server->watching) {
            watchdog_start(server);
        }
        server_unlock(server);
        gpu_thread_progress(watched ? work_progress : NULL, work);
        work->run(work);
        gpu_thread_progress(NULL, NULL);
        server_lock(server);
        work_returned(pool, work);
    }
    pool->drainers--;
    server_unlock(server);
}

static void pool_wake(struct server_pool_state *pool)
{
    if (pool->first && pool->drainers < pool->limit) {
        pool->drainers += st_workers_submit(pool->workers, pool_drain, pool);
    }
}

void server_work_submit(struct server *server, enum server_pool pool_index,
                        struct server_work *work)
{
    struct server_pool_state *pool = &server->pools[pool_index];
    if (!work->group) {
        work->late = false; /* a group's job may have been told while it waited there */
    }
    work->pool = pool_index;
    work->next = NULL;
    if (pool->last) {
        pool->last->next = work;
    } else {
        pool->first = work;
    }
    pool->last = work;
    server->works++;
    pool_wake(pool);
}

static void work_tell_late(struct server_work *work)
{
    if (!work->late) {
        work->late = true;
        if (work->overran) {
            work->overran(work);
        }
    }
}

void group_memory_submit(struct group *group, struct server_work *work)
{
    work->group = group;
    work->late = false;
    if (!group->memory_running) {
        group->memory_running = work;
        server_work_submit(group->server, SERVER_POOL_MEMORY, work);
        return;
    }
    work->next = NULL;
    if (group->memory_last) {
        group->memory_last->next = work;
    } else {
        group->memory_first = work;
    }
    group->memory_last = work;
    if (group->stuck) {
        work_tell_late(work);
    }
}

/**
 * A job overran: another thread takes its place, its owner and those that wait behind it are told.
 * Under the lock.
 */
static void work_overran(struct server_pool_state *pool, struct server_work *work)
{
    work->extra = true;
    pool->limit++;
    if (pool->limit > pool->threads) {
        pool->threads += st_workers_replace(pool->workers);
    }
    pool_wake(pool);
    if (work->group) {
        work->group->stuck = true;
        for (struct server_work *w = work->group->memory_first; w; w = w->next) {
            work_tell_late(w);
        }
    }
    work_tell_late(work);
}

/** Under the lock. @return whether jobs run that have to be watched. */
static bool pool_watch(struct server *server, struct server_pool_state *pool, uint64_t now_ns)
{
    bool busy = false;
    for (struct server_work *work = pool->active; work; work = work->next) {
        if (work->extra) {
            continue;
        }
        uint64_t started_ns = atomic_load_explicit(&work->started_ns, memory_order_relaxed);
        if (now_ns > started_ns && now_ns - started_ns >= server->driver_call_ns) {
            work_overran(pool, work);
        } else {
            busy = true;
        }
    }
    return busy;
}

static void watchdog_fire(void *arg)
{
    struct server *server = arg;
    server_lock(server);
    uint64_t now_ns = st_clock_now_ns();
    bool busy = false;
    for (int i = 0; i < SERVER_POOL_COUNT; i++) {
        if (pool_rows[i].watched) {
            busy |= pool_watch(server, &server->pools[i], now_ns);
        }
    }
    server->watching = false;
    if (busy) {
        watchdog_start(server);
    }
    server_unlock(server);
}

void server_set_driver_call_limit(struct server *server, uint64_t limit_ns)
{
    server_lock(server);
    server->driver_call_ns = limit_ns;
    if (server->watching) {
        watchdog_start(server); /* it may sleep by the old limit */
    }
    server_unlock(server);
}
