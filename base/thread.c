#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define THREAD_NAME_BYTES 16 /* The kernel's TASK_COMM_LEN. */

enum st_status st_thread_start(const char *name, void *(*run)(void *arg), void *arg,
                               pthread_t *ret_thread, struct st_error *err)
{
    /* A new thread inherits the mask: block before, so that no signal slips in between. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int code = pthread_create(&thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        enum st_reason reason = code == EAGAIN ? ST_REASON_OUT_OF_MEMORY : ST_REASON_SYSTEM_ERROR;
        return st_fail(err, reason, NULL, "cannot start thread \"%s\": %s", name, strerror(code));
    }
    char short_name[THREAD_NAME_BYTES];
    snprintf(short_name, sizeof(short_name), "%.15s", name);
    pthread_setname_np(thread, short_name);
    *ret_thread = thread;
    return ST_OK;
}
