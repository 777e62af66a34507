#ifndef SYMTENSOR_BASE_TIMER_H
#define SYMTENSOR_BASE_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/**
 * Deadlines: one thread that sleeps until the next one and never wakes when there is none.
 * A timer's function runs on that thread, must be short and must not block.
 */
struct st_timers;

/** A timer, embedded in its owner; zero-filled before first use. Its fields belong to timer.c. */
struct st_timer {
    uint64_t deadline_ns;
    void (*fire)(void *arg);
    void *arg;
    uint32_t heap_slot; /**< 1-based; 0: not started. */
};

ST_MUST_CHECK enum st_status st_timers_create(struct st_timers **ret_timers, struct st_error *err);
/** Join the thread. No timer may be started. */
void st_timers_destroy(struct st_timers *timers);
/** Start (or move) a timer: fire(arg) once at or after @p deadline_ns (monotonic). Thread: any.
 * False: memory is out. */
bool st_timer_start(struct st_timers *timers, struct st_timer *timer, uint64_t deadline_ns,
                    void (*fire)(void *arg), void *arg);
/**
 * Stop a timer. When this returns, fire is not running (called from the timer thread itself it does
 * not wait) and will not run. @return true when it had not fired. Thread: any; never with a lock
 * held that fire takes.
 */
bool st_timer_stop(struct st_timers *timers, struct st_timer *timer);

#endif
