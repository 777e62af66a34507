#include "base/timer.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

#define TIMERS_CAPACITY_FIRST 64

struct st_timers {
    pthread_mutex_t lock;
    pthread_cond_t changed;  /**< The first deadline changed, or closing. By CLOCK_MONOTONIC. */
    pthread_cond_t returned; /**< A fire function returned. */
    struct st_timer **heap;  /**< [count], a binary heap by deadline; slot s is heap[s - 1]. */
    uint32_t count;
    uint32_t capacity;
    struct st_timer *firing; /**< Whose function runs now; compared, never followed. */
    unsigned stopping; /**< Threads that wait in st_timer_stop() for the function to return. */
    bool closing;
    bool started; /**< thread is there to be joined. */
    pthread_t thread;
};

static void heap_put(struct st_timers *timers, uint32_t slot, struct st_timer *timer)
{
    timers->heap[slot - 1] = timer;
    timer->heap_slot = slot;
}

/** Move @p timer from the free slot @p slot towards the root until its parent is not later. */
static void heap_sift_up(struct st_timers *timers, uint32_t slot, struct st_timer *timer)
{
    while (slot > 1 && timers->heap[slot / 2 - 1]->deadline_ns > timer->deadline_ns) {
        heap_put(timers, slot, timers->heap[slot / 2 - 1]);
        slot /= 2;
    }
    heap_put(timers, slot, timer);
}

/** Move @p timer from the free slot @p slot away from the root until no child is earlier. */
static void heap_sift_down(struct st_timers *timers, uint32_t slot, struct st_timer *timer)
{
    while (slot <= timers->count / 2) {
        uint32_t child = slot * 2;
        if (child < timers->count &&
            timers->heap[child]->deadline_ns < timers->heap[child - 1]->deadline_ns) {
            child++;
        }
        if (timers->heap[child - 1]->deadline_ns >= timer->deadline_ns) {
            break;
        }
        heap_put(timers, slot, timers->heap[child - 1]);
        slot = child;
    }
    heap_put(timers, slot, timer);
}

/** Put a timer whose deadline changed where it belongs; its own slot is free. */
static void heap_place(struct st_timers *timers, uint32_t slot, struct st_timer *timer)
{
    if (slot > 1 && timers->heap[slot / 2 - 1]->deadline_ns > timer->deadline_ns) {
        heap_sift_up(timers, slot, timer);
    } else {
        heap_sift_down(timers, slot, timer);
    }
}

static void heap_remove(struct st_timers *timers, struct st_timer *timer)
{
    uint32_t slot = timer->heap_slot;
    struct st_timer *last = timers->heap[--timers->count];
    timer->heap_slot = 0;
    if (last != timer) {
        heap_place(timers, slot, last);
    }
}

static bool heap_reserve_one(struct st_timers *timers)
{
    if (timers->count < timers->capacity) {
        return true;
    }
    uint32_t capacity = timers->capacity ? timers->capacity * 2 : TIMERS_CAPACITY_FIRST;
    struct st_timer **heap = reallocarray(timers->heap, capacity, sizeof(*heap));
    if (!heap) {
        return false;
    }
    timers->heap = heap;
    timers->capacity = capacity;
    return true;
}

/** Sleep until something changes or the first deadline comes. The caller holds the lock. */
static void timers_sleep(struct st_timers *timers)
{
    uint64_t deadline_ns = timers->count ? timers->heap[0]->deadline_ns : ST_DEADLINE_NEVER;
    if (deadline_ns == ST_DEADLINE_NEVER) {
        pthread_cond_wait(&timers->changed, &timers->lock);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / ST_NS_PER_SECOND),
                             .tv_nsec = (long)(deadline_ns % ST_NS_PER_SECOND)};
    pthread_cond_timedwait(&timers->changed, &timers->lock, &until);
}

/** Fire the first timer. The caller holds the lock, which is released meanwhile. */
static void timers_fire_first(struct st_timers *timers)
{
    struct st_timer *timer = timers->heap[0];
    void (*fire)(void *) = timer->fire;
    void *arg = timer->arg;
    heap_remove(timers, timer);
    timers->firing = timer;
    pthread_mutex_unlock(&timers->lock);
    fire(arg); /* may free the timer */
    pthread_mutex_lock(&timers->lock);
    timers->firing = NULL;
    pthread_cond_broadcast(&timers->returned);
    /* Whoever waits goes first: a function that starts its timer anew must not outrun its stop. */
    while (timers->stopping) {
        pthread_cond_wait(&timers->changed, &timers->lock);
    }
}

static void *timers_run(void *arg)
{
    struct st_timers *timers = arg;
    pthread_mutex_lock(&timers->lock);
    while (!timers->closing) {
        if (timers->count && timers->heap[0]->deadline_ns <= st_clock_now_ns()) {
            timers_fire_first(timers);
        } else {
            timers_sleep(timers);
        }
    }
    pthread_mutex_unlock(&timers->lock);
    return NULL;
}

enum st_status st_timers_create(struct st_timers **ret_timers, struct st_error *err)
{
    struct st_timers *timers = calloc(1, sizeof(*timers));
    if (!timers) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the timers");
    }
    pthread_mutex_init(&timers->lock, NULL);
    pthread_cond_init(&timers->returned, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&timers->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    /* The thread's number is written under the lock: st_timer_stop() compares with it. */
    pthread_mutex_lock(&timers->lock);
    enum st_status status = st_thread_start("timers", timers_run, timers, &timers->thread, err);
    timers->started = status == ST_OK;
    pthread_mutex_unlock(&timers->lock);
    if (status != ST_OK) {
        st_timers_destroy(timers);
        return status;
    }
    *ret_timers = timers;
    return ST_OK;
}

void st_timers_destroy(struct st_timers *timers)
{
    if (!timers) {
        return;
    }
    if (timers->started) {
        pthread_mutex_lock(&timers->lock);
        timers->closing = true;
        pthread_cond_signal(&timers->changed);
        pthread_mutex_unlock(&timers->lock);
        pthread_join(timers->thread, NULL);
    }
    pthread_cond_destroy(&timers->returned);
    pthread_cond_destroy(&timers->changed);
    pthread_mutex_destroy(&timers->lock);
    free(timers->heap);
    free(timers);
}

bool st_timer_start(struct st_timers *timers, struct st_timer *timer, uint64_t deadline_ns,
                    void (*fire)(void *arg), void *arg)
{
    pthread_mutex_lock(&timers->lock);
    bool started = timer->heap_slot || heap_reserve_one(timers);
    if (started) {
        uint32_t slot = timer->heap_slot ? timer->heap_slot : ++timers->count;
        timer->deadline_ns = deadline_ns;
        timer->fire = fire;
        timer->arg = arg;
        heap_place(timers, slot, timer);
        /* Only a new first deadline concerns the thread; a later one wakes nobody. */
        if (timer->heap_slot == 1) {
            pthread_cond_signal(&timers->changed);
        }
    }
    pthread_mutex_unlock(&timers->lock);
    return started;
}

/**
 * Wait until the function that runs has returned, and undo the start that it may have made.
 * The caller holds the lock. @return true when there was one.
 */
static bool timers_wait_for_return(struct st_timers *timers, struct st_timer *timer)
{
    timers->stopping++;
    while (timers->firing == timer) {
        pthread_cond_wait(&timers->returned, &timers->lock);
    }
    timers->stopping--;
    pthread_cond_signal(&timers->changed);
    bool started_anew = timer->heap_slot != 0;
    if (started_anew) {
        heap_remove(timers, timer);
    }
    return started_anew;
}

bool st_timer_stop(struct st_timers *timers, struct st_timer *timer)
{
    bool stopped = false;
    pthread_mutex_lock(&timers->lock);
    bool on_thread = pthread_equal(timers->thread, pthread_self());
    if (timer->heap_slot) {
        heap_remove(timers, timer);
        stopped = true;
    }
    if (timers->firing == timer && !on_thread) {
        stopped |= timers_wait_for_return(timers, timer);
    }
    pthread_mutex_unlock(&timers->lock);
    return stopped;
}
