#ifndef SYMTENSOR_BASE_THREAD_H
#define SYMTENSOR_BASE_THREAD_H

#include <pthread.h>

#include "base/error.h"

/**
 * Start a joinable thread with all signals blocked, so that signals reach only the threads that
 * wait for them, and with a name that debuggers and /proc show.
 *
 * @param name at most 15 bytes; longer names are cut.
 * @retval ST_RESOURCE_EXHAUSTED reason OUT_OF_MEMORY: the system has no room for a thread.
 * @retval ST_INTERNAL           reason SYSTEM_ERROR: it refused for another cause.
 * Thread: any.
 */
ST_MUST_CHECK enum st_status st_thread_start(const char *name, void *(*run)(void *arg), void *arg,
                                             pthread_t *ret_thread, struct st_error *err);

#endif
