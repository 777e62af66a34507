#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gpu/software/internal.h"

/**
 * The threads that run streams' commands. They take streams that are ready first, and otherwise a
 * chunk of each running command in turn: one large command has all threads that nothing else needs,
 * and a short one does not wait for the end of a long one. A chunk's number is taken under
 * work_lock: with some 1 MiB a chunk that costs nothing, and no thread holds a command that it has
 * no chunk of.
 *
 * After work a thread looks for more for a short time before it sleeps: waking one takes tens of
 * microseconds. An idle pool sleeps and is never woken by time.
 */

#define POOL_SPIN_NS 20000  /* with pause */
#define POOL_YIELD_NS 50000 /* then with sched_yield, until so long after the last work */

static struct {
    pthread_t threads[SOFTWARE_THREADS_MAX];
    uint32_t thread_count;
    pthread_cond_t work; /**< With software.work_lock, as all of the following. */
    struct software_stream *ready_first, *ready_last;
    struct software_command *jobs_first, *jobs_last; /**< Commands with chunks to give away. */
    uint32_t sleepers;
    bool closing;
    _Atomic uint32_t offers; /**< Ready streams and jobs: what a spinning thread reads. */
} pool;

/** Wake up to @p count sleeping threads. work_lock is held. */
static void pool_wake(uint64_t count)
{
    if (pool.sleepers && count >= pool.sleepers) {
        pthread_cond_broadcast(&pool.work);
        return;
    }
    for (uint64_t i = 0; pool.sleepers && i < count; i++) {
        pthread_cond_signal(&pool.work);
    }
}

void software_pool_ready(struct software_stream *stream)
{
    stream->list_next = NULL;
    if (pool.ready_first) {
        pool.ready_last->list_next = stream;
    } else {
        pool.ready_first = stream;
    }
    pool.ready_last = stream;
    atomic_fetch_add_explicit(&pool.offers, 1, memory_order_relaxed);
    pool_wake(1);
}

/** work_lock is held. */
static void pool_append_job(struct software_command *command)
{
    command->job_next = NULL;
    if (pool.jobs_first) {
        pool.jobs_last->job_next = command;
    } else {
        pool.jobs_first = command;
    }
    pool.jobs_last = command;
}

void software_pool_run(struct software_command *command)
{
    uint64_t chunks = command->chunk_count;
    command->chunk_next = 0;
    atomic_store_explicit(&command->chunks_left, chunks, memory_order_relaxed);
    pthread_mutex_lock(&software.work_lock);
    pool_append_job(command);
    atomic_fetch_add_explicit(&pool.offers, 1, memory_order_relaxed);
    pool_wake(chunks);
    pthread_mutex_unlock(&software.work_lock);
}

/** work_lock is held. */
static struct software_stream *pool_take_ready(void)
{
    struct software_stream *stream = pool.ready_first;
    if (stream) {
        pool.ready_first = stream->list_next;
        atomic_fetch_sub_explicit(&pool.offers, 1, memory_order_relaxed);
    }
    return stream;
}

/**
 * A chunk of the first job, which then goes behind the others, so that they share the threads
 * evenly; it leaves the list with its last one. work_lock is held.
 */
static struct software_command *pool_take_chunk(uint64_t *ret_chunk)
{
    struct software_command *command = pool.jobs_first;
    if (!command) {
        return NULL;
    }
    pool.jobs_first = command->job_next;
    *ret_chunk = command->chunk_next++;
    if (command->chunk_next < command->chunk_count) {
        pool_append_job(command);
    } else {
        atomic_fetch_sub_explicit(&pool.offers, 1, memory_order_relaxed);
    }
    return command;
}

/** Run one chunk; whoever finishes the last one goes on with the stream. */
static void pool_run_chunk(struct software_command *command, uint64_t chunk)
{
    struct software_stream *stream = command->stream;
    command->kind->run(command, chunk);
    gpu_twin_publish();
    if (atomic_fetch_sub_explicit(&command->chunks_left, 1, memory_order_acq_rel) == 1) {
        software_stream_chunks_done(stream);
    }
}

/** Look for work without the lock for a short time. @return whether there seems to be some. */
static bool pool_spin(void)
{
    uint64_t start = st_clock_now_ns();
    for (uint64_t passed = 0; passed < POOL_YIELD_NS; passed = st_clock_now_ns() - start) {
        if (atomic_load_explicit(&pool.offers, memory_order_relaxed)) {
            return true;
        }
        if (passed < POOL_SPIN_NS) {
            software_cpu_relax();
        } else {
            sched_yield();
        }
    }
    return false;
}

/** Wait for work. work_lock is held, and given up meanwhile. */
static void pool_idle(bool spin)
{
    if (spin) {
        pthread_mutex_unlock(&software.work_lock);
        bool found = pool_spin();
        pthread_mutex_lock(&software.work_lock);
        if (found) {
            return;
        }
    }
    while (!atomic_load_explicit(&pool.offers, memory_order_relaxed) && !pool.closing) {
        pool.sleepers++;
        pthread_cond_wait(&pool.work, &software.work_lock);
        pool.sleepers--;
    }
}

static void *pool_thread(void *arg)
{
    (void)arg;
    bool worked = false;
    pthread_mutex_lock(&software.work_lock);
    while (!pool.closing) {
        uint64_t chunk;
        struct software_stream *stream = pool_take_ready();
        struct software_command *command = stream ? NULL : pool_take_chunk(&chunk);
        if (!stream && !command) {
            pool_idle(worked);
            worked = false;
            continue;
        }
        pthread_mutex_unlock(&software.work_lock);
        if (stream) {
            software_stream_advance(stream, true);
        } else {
            pool_run_chunk(command, chunk);
        }
        worked = true;
        pthread_mutex_lock(&software.work_lock);
    }
    pthread_mutex_unlock(&software.work_lock);
    return NULL;
}

enum st_status software_pool_open(uint32_t threads, struct st_error *err)
{
    pool.closing = false;
    pool.thread_count = 0;
    pthread_cond_init(&pool.work, NULL);
    enum st_status status = ST_OK;
    for (uint32_t i = 0; i < threads && status == ST_OK; i++) {
        status = st_thread_start("software-gpu", pool_thread, NULL, &pool.threads[i], err);
        pool.thread_count += status == ST_OK;
    }
    return status; /* the caller closes the pool, whatever came of it */
}

void software_pool_close(void)
{
    if (!pool.thread_count) {
        return;
    }
    pthread_mutex_lock(&software.work_lock);
    pool.closing = true;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&software.work_lock);
    for (uint32_t i = 0; i < pool.thread_count; i++) {
        pthread_join(pool.threads[i], NULL);
    }
    pool.thread_count = 0;
    pthread_cond_destroy(&pool.work);
}
