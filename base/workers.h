#ifndef SYMTENSOR_BASE_WORKERS_H
#define SYMTENSOR_BASE_WORKERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/** A fixed set of threads that run what blocks, in the order of submission. */
struct st_workers;

/** @param name thread name (15 bytes), @param threads 1..64, @param capacity jobs that may wait. */
ST_MUST_CHECK enum st_status st_workers_create(const char *name, unsigned threads, size_t capacity,
                                               struct st_workers **ret_workers,
                                               struct st_error *err);
/** Run what is queued, then join. */
void st_workers_destroy(struct st_workers *workers);
/** Queue run(arg); false when full or closing. Thread: any. Blocks: never. */
bool st_workers_submit(struct st_workers *workers, void (*run)(void *arg), void *arg);
/** Start one more thread in place of one that a driver call holds; false when it cannot. */
bool st_workers_replace(struct st_workers *workers);

#endif
