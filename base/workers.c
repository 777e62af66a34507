#include "base/workers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/queue.h"
#include "base/thread.h"

#define WORKERS_THREADS_MAX 64
/** Room for one replacement of every thread. */
#define WORKERS_SLOTS (2 * WORKERS_THREADS_MAX)

struct st_workers {
    char name[16];
    struct st_queue *jobs; /**< Of struct worker_job. */
    pthread_mutex_t lock;  /**< Of threads and thread_count. */
    pthread_t threads[WORKERS_SLOTS];
    unsigned thread_count;
};

struct worker_job {
    void (*run)(void *arg);
    void *arg;
};

static void *workers_run(void *arg)
{
    struct st_workers *workers = arg;
    struct worker_job job;
    while (st_queue_pop(workers->jobs, &job, ST_DEADLINE_NEVER)) {
        job.run(job.arg);
    }
    return NULL;
}

static enum st_status workers_start_one(struct st_workers *workers, struct st_error *err)
{
    pthread_mutex_lock(&workers->lock);
    enum st_status status;
    if (workers->thread_count == WORKERS_SLOTS) {
        status = st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "%s already has %d threads",
                         workers->name, WORKERS_SLOTS);
    } else {
        status = st_thread_start(workers->name, workers_run, workers,
                                 &workers->threads[workers->thread_count], err);
        workers->thread_count += status == ST_OK;
    }
    pthread_mutex_unlock(&workers->lock);
    return status;
}

enum st_status st_workers_create(const char *name, unsigned threads, size_t capacity,
                                 struct st_workers **ret_workers, struct st_error *err)
{
    if (threads < 1 || threads > WORKERS_THREADS_MAX || capacity < 1) {
        return st_fail(err, ST_REASON_INVALID_VALUE, NULL,
                       "%s: 1 to %d threads and room for a job are needed", name,
                       WORKERS_THREADS_MAX);
    }
    struct st_workers *workers = calloc(1, sizeof(*workers));
    if (!workers) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for workers");
    }
    snprintf(workers->name, sizeof(workers->name), "%s", name);
    pthread_mutex_init(&workers->lock, NULL);
    workers->jobs = st_queue_create(sizeof(struct worker_job), capacity);
    enum st_status status = ST_OK;
    if (!workers->jobs) {
        status = st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for %zu jobs", capacity);
    }
    for (unsigned i = 0; i < threads && status == ST_OK; i++) {
        status = workers_start_one(workers, err);
    }
    if (status != ST_OK) {
        st_workers_destroy(workers);
        return status;
    }
    *ret_workers = workers;
    return ST_OK;
}

void st_workers_destroy(struct st_workers *workers)
{
    if (!workers) {
        return;
    }
    if (workers->jobs) {
        st_queue_close(workers->jobs);
    }
    for (unsigned i = 0; i < workers->thread_count; i++) {
        pthread_join(workers->threads[i], NULL);
    }
    st_queue_destroy(workers->jobs);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

bool st_workers_submit(struct st_workers *workers, void (*run)(void *arg), void *arg)
{
    struct worker_job job = {.run = run, .arg = arg};
    return st_queue_push(workers->jobs, &job);
}

bool st_workers_replace(struct st_workers *workers)
{
    return workers_start_one(workers, NULL) == ST_OK;
}
