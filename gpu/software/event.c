#include <stdlib.h>

#include "base/clock.h"
#include "gpu/software/internal.h"

/**
 * Events. Each cuEventRecord() makes a record of its own; who waits, waits for the record that was
 * current when it asked, whatever happens to the event afterwards. All fields: work_lock, but that
 * done may be read without.
 */

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

struct software_record {
    uint32_t uses; /**< The event, and commands and threads that refer to it. */
    _Atomic bool done;
    bool timed;
    uint64_t time_ns;
    struct software_stream *waiters; /**< By list_next. */
};

struct software_event {
    uint64_t handle;
    struct software_context *context;
    unsigned flags;
    struct software_record *record; /**< The latest; NULL before the first. */
};

/** work_lock is held. */
static void record_put(struct software_record *record)
{
    if (record && --record->uses == 0) {
        free(record);
    }
}

static bool record_done(const struct software_record *record)
{
    return !record || atomic_load_explicit(&record->done, memory_order_acquire);
}

/** Mark it done and let the waiting streams go on. work_lock is held. */
static void record_complete(struct software_record *record)
{
    record->time_ns = record->timed ? st_clock_now_ns() : 0;
    atomic_store_explicit(&record->done, true, memory_order_release);
    while (record->waiters) {
        struct software_stream *stream = record->waiters;
        record->waiters = stream->list_next;
        software_pool_ready(stream);
    }
    software_work_notify();
}

static enum software_start record_start(struct software_command *command)
{
    pthread_mutex_lock(&software.work_lock);
    record_complete(command->u.record);
    record_put(command->u.record);
    pthread_mutex_unlock(&software.work_lock);
    return SOFTWARE_START_DONE;
}

/* A dead context's records complete too: streams of other devices may wait for them. */
static const struct software_command_kind record_kind = {.start = record_start,
                                                         .survives_error = true};

static enum software_start wait_start(struct software_command *command)
{
    struct software_record *record = command->u.record;
    pthread_mutex_lock(&software.work_lock);
    bool done = record_done(record);
    if (done) {
        record_put(record);
    } else {
        command->stream->list_next = record->waiters;
        record->waiters = command->stream;
    }
    pthread_mutex_unlock(&software.work_lock);
    return done ? SOFTWARE_START_DONE : SOFTWARE_START_WAITING;
}

static const struct software_command_kind wait_kind = {.start = wait_start, .survives_error = true};

/* ---------------------------------------------------------------- entry points */

static CUresult event_make(struct software_context *context, unsigned flags, CUevent *ret_event)
{
    struct software_event *made = calloc(1, sizeof(*made));
    uint64_t handle = made ? software_handle_new(SOFTWARE_KIND_EVENT, made) : 0;
    if (!handle) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->handle = handle;
    made->context = context;
    made->flags = flags;
    *ret_event = (CUevent)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult software_cuEventCreate(CUevent *event, unsigned flags)
{
    struct software_context *context;
    CUresult result = software_enter_context(&context);
    if (result) {
        return result;
    }
    if (!event || (flags & ~(unsigned)EVENT_FLAGS) ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return event_make(context, flags, event);
}

CUresult software_event_new(struct software_context *context, CUevent *ret_event)
{
    return event_make(context, CU_EVENT_DISABLE_TIMING, ret_event);
}

static void event_destroy(struct software_event *event)
{
    software_handle_delete(event->handle);
    pthread_mutex_lock(&software.work_lock);
    record_put(event->record);
    pthread_mutex_unlock(&software.work_lock);
    free(event);
}

static bool event_belongs(void *object, void *context)
{
    return !context || ((struct software_event *)object)->context == context;
}

void software_events_clear(struct software_context *context)
{
    struct software_event *event;
    while ((event = software_handle_search(SOFTWARE_KIND_EVENT, event_belongs, context))) {
        event_destroy(event);
    }
}

/** @return 400 when it is no event. */
static CUresult event_find(CUevent handle, struct software_event **ret_event)
{
    *ret_event = software_handle_find((uintptr_t)handle, SOFTWARE_KIND_EVENT);
    return *ret_event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/** As event_find(), or the sticky error of the event's context. */
static CUresult event_enter(CUevent handle, struct software_event **ret_event)
{
    CUresult result = software_enter();
    result = result ? result : event_find(handle, ret_event);
    return result ? result : (CUresult)atomic_load(&(*ret_event)->context->error);
}

CUresult software_cuEventDestroy(CUevent event)
{
    struct software_event *found;
    CUresult result = software_enter();
    result = result ? result : event_find(event, &found);
    if (result) {
        return result;
    }
    result = (CUresult)atomic_load(&found->context->error);
    event_destroy(found);
    return result;
}

/** The record for the next cuEventRecord(), with one use for the command; NULL when memory is out.
 */
static struct software_record *event_renew(struct software_event *event)
{
    pthread_mutex_lock(&software.work_lock);
    struct software_record *record = event->record;
    if (!record || record->uses > 1) { /* else nobody but the event knows it: use it again */
        record = calloc(1, sizeof(*record));
        if (record) {
            record_put(event->record);
            record->uses = 1;
            event->record = record;
        }
    }
    if (record) {
        record->uses++;
        record->timed = !(event->flags & CU_EVENT_DISABLE_TIMING);
        atomic_store_explicit(&record->done, false, memory_order_relaxed);
    }
    pthread_mutex_unlock(&software.work_lock);
    return record;
}

CUresult software_cuEventRecord(CUevent event, CUstream stream)
{
    struct software_stream *on;
    struct software_event *found;
    CUresult result = software_enter_stream(stream, &on);
    result = result ? result : event_find(event, &found);
    if (result) {
        return result;
    }
    if (found->context != on->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct software_command command = {.kind = &record_kind};
    command.u.record = event_renew(found);
    if (!command.u.record) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = software_stream_submit(on, &command, 0, true);
    if (result) {
        (void)record_start(&command); /* nothing will come that could be waited for */
    }
    return result;
}

CUresult software_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct software_stream *on;
    struct software_event *found;
    CUresult result = software_enter_stream(stream, &on);
    result = result ? result : event_find(event, &found);
    if (result) {
        return result;
    }
    if (flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_command command = {.kind = &wait_kind};
    pthread_mutex_lock(&software.work_lock);
    bool done = record_done(found->record);
    if (!done) {
        command.u.record = found->record;
        command.u.record->uses++;
    }
    pthread_mutex_unlock(&software.work_lock);
    if (done) {
        return CUDA_SUCCESS;
    }
    result = software_stream_submit(on, &command, 0, false);
    if (result) {
        pthread_mutex_lock(&software.work_lock);
        record_put(command.u.record);
        pthread_mutex_unlock(&software.work_lock);
    }
    return result;
}

CUresult software_cuEventQuery(CUevent event)
{
    struct software_event *found;
    CUresult result = event_enter(event, &found);
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.work_lock);
    bool done = record_done(found->record);
    pthread_mutex_unlock(&software.work_lock);
    result = (CUresult)atomic_load(&found->context->error);
    return result ? result : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static bool event_wait_done(void *arg)
{
    return record_done(arg);
}

CUresult software_cuEventSynchronize(CUevent event)
{
    struct software_event *found;
    CUresult result = event_enter(event, &found);
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.work_lock);
    struct software_record *record = found->record;
    if (record) {
        record->uses++;
    }
    pthread_mutex_unlock(&software.work_lock);
    software_work_wait(event_wait_done, record);
    pthread_mutex_lock(&software.work_lock);
    record_put(record);
    pthread_mutex_unlock(&software.work_lock);
    return (CUresult)atomic_load(&found->context->error);
}

CUresult software_cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    struct software_event *from;
    struct software_event *to;
    CUresult result = event_enter(start, &from);
    result = result ? result : event_enter(end, &to);
    if (result) {
        return result;
    }
    if (!milliseconds) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&software.work_lock);
    const struct software_record *first = from->record;
    const struct software_record *last = to->record;
    if (!first || !last || !first->timed || !last->timed || from->context != to->context) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else if (!record_done(first) || !record_done(last)) {
        result = CUDA_ERROR_NOT_READY;
    } else {
        *milliseconds = (float)(int64_t)(last->time_ns - first->time_ns) / 1e6f;
    }
    pthread_mutex_unlock(&software.work_lock);
    return result;
}
