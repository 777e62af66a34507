#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gpu/software/internal.h"

/**
 * A stream is a list of commands of which the first runs. While it has any it is busy, and then one
 * party owns it: the thread that advances it, the pool (its head's chunks are being run), the ready
 * queue, an event record that it waits for, or the launch delay's timer. Only the owner starts the
 * head or takes it off, so commands run one after another without a lock held.
 *
 * On an idle stream the submitting thread itself is the first owner. It runs small work to the end,
 * which saves two hand-overs between threads, and starts large work, so that all sleeping threads
 * of the pool are woken at once.
 */

#define STREAM_WAIT_SPIN_NS 20000 /* before a waiting thread sleeps */
#define STREAM_ADVANCE_MAX 32     /* commands of one stream before a thread looks at others */

CUresult software_enter_stream(CUstream handle, struct software_stream **ret_stream)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    struct software_stream *stream = software_handle_find((uintptr_t)handle, SOFTWARE_KIND_STREAM);
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *ret_stream = stream;
    return (CUresult)atomic_load_explicit(&stream->context->error, memory_order_acquire);
}

/* ---------------------------------------------------------------- waiting */

void software_work_notify(void)
{
    if (software.work_waiters) {
        pthread_cond_broadcast(&software.work_finished);
    }
}

void software_work_wait(bool (*done)(void *arg), void *arg)
{
    for (uint64_t until = st_clock_now_ns() + STREAM_WAIT_SPIN_NS; st_clock_now_ns() < until;) {
        if (done(arg)) {
            return;
        }
        software_cpu_relax();
    }
    pthread_mutex_lock(&software.work_lock);
    software.work_waiters++;
    while (!done(arg)) {
        pthread_cond_wait(&software.work_finished, &software.work_lock);
    }
    software.work_waiters--;
    pthread_mutex_unlock(&software.work_lock);
}

/** Wait for the commands of a stream up to one number. */
struct stream_wait {
    const struct software_stream *stream;
    uint64_t target;
};

static bool stream_reached(void *arg)
{
    const struct stream_wait *wait = arg;
    return atomic_load_explicit(&wait->stream->completed, memory_order_acquire) >= wait->target;
}

CUresult software_stream_wait(struct software_stream *stream)
{
    struct stream_wait wait = {stream, atomic_load(&stream->submitted)};
    software_work_wait(stream_reached, &wait);
    return (CUresult)atomic_load(&stream->context->error);
}

static bool streams_idle(void *arg)
{
    (void)arg;
    return atomic_load(&software.streams_busy) == 0;
}

void software_streams_drain(void)
{
    software_work_wait(streams_idle, NULL);
}

/* ---------------------------------------------------------------- running commands */

/** Take an idle stream; false when it has work. */
static bool stream_claim(struct software_stream *stream)
{
    pthread_mutex_lock(&software.work_lock);
    bool idle = !stream->busy;
    if (idle) {
        stream->busy = true;
        atomic_fetch_add(&software.streams_busy, 1);
        atomic_fetch_add_explicit(&stream->submitted, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&software.work_lock);
    return idle;
}

/** The owner has nothing left to run: make the stream idle. work_lock is held, and given up. */
static void stream_idle(struct software_stream *stream)
{
    bool destroyed = stream->destroyed;
    stream->busy = false;
    atomic_fetch_sub(&software.streams_busy, 1);
    software_work_notify();
    pthread_mutex_unlock(&software.work_lock);
    if (destroyed) {
        free(stream);
    }
}

/** Start a command, unless its context is dead. */
static enum software_start command_start(struct software_command *command)
{
    bool dead = atomic_load_explicit(&command->stream->context->error, memory_order_acquire) != 0;
    if (dead && !command->kind->survives_error) {
        return SOFTWARE_START_DONE;
    }
    return command->kind->start(command);
}

static void command_run_all(struct software_command *command)
{
    for (uint64_t chunk = 0; chunk < command->chunk_count; chunk++) {
        command->kind->run(command, chunk);
    }
    gpu_twin_publish();
}

/** Run the caller's own command to its end, on a stream that it has claimed. */
static void stream_run_inline(struct software_stream *stream, struct software_command *command)
{
    command->stream = stream;
    software_pins_init(&command->pins);
    if (command_start(command) == SOFTWARE_START_CHUNKS) {
        command_run_all(command);
    }
    software_pins_release(&command->pins);
    pthread_mutex_lock(&software.work_lock);
    atomic_fetch_add_explicit(&stream->completed, 1, memory_order_release);
    if (stream->head) {
        software_pool_ready(stream);
        software_work_notify();
        pthread_mutex_unlock(&software.work_lock);
    } else {
        stream_idle(stream);
    }
}

static struct software_command *command_copy(const struct software_command *prototype,
                                             size_t params_bytes)
{
    struct software_command *command = malloc(sizeof(*command) + params_bytes);
    if (!command) {
        return NULL;
    }
    *command = *prototype;
    command->next = NULL;
    software_pins_init(&command->pins);
    if (params_bytes) {
        memcpy(command + 1, prototype->u.launch.params, params_bytes);
        command->u.launch.params = command + 1;
    }
    return command;
}

CUresult software_stream_submit(struct software_stream *stream, struct software_command *prototype,
                                size_t params_bytes, bool small)
{
    if (small && stream_claim(stream)) {
        stream_run_inline(stream, prototype);
        return CUDA_SUCCESS;
    }
    struct software_command *command = command_copy(prototype, params_bytes);
    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    command->stream = stream;
    pthread_mutex_lock(&software.work_lock);
    bool owner = !stream->busy;
    if (owner) {
        stream->busy = true;
        atomic_fetch_add(&software.streams_busy, 1);
    }
    if (stream->head) {
        stream->tail->next = command;
    } else {
        stream->head = command;
    }
    stream->tail = command;
    atomic_fetch_add_explicit(&stream->submitted, 1, memory_order_relaxed);
    pthread_mutex_unlock(&software.work_lock);
    if (owner) {
        software_stream_advance(stream, false);
    }
    return CUDA_SUCCESS;
}

/**
 * Take the finished head off.
 * @return the next command; NULL: the stream became idle, or went to the ready queue as @p more is
 * false.
 */
static struct software_command *stream_next(struct software_stream *stream, bool more)
{
    struct software_command *done = stream->head;
    software_pins_release(&done->pins);
    pthread_mutex_lock(&software.work_lock);
    struct software_command *next = done->next;
    stream->head = next;
    atomic_fetch_add_explicit(&stream->completed, 1, memory_order_release);
    if (!next) {
        stream_idle(stream);
    } else {
        if (!more) {
            software_pool_ready(stream);
        }
        software_work_notify();
        pthread_mutex_unlock(&software.work_lock);
    }
    free(done);
    return more ? next : NULL;
}

void software_stream_advance(struct software_stream *stream, bool on_pool)
{
    const unsigned limit = on_pool ? STREAM_ADVANCE_MAX : 1;
    struct software_command *command = stream->head;
    for (unsigned started = 1; command; started++) {
        enum software_start start = command_start(command);
        if (start == SOFTWARE_START_WAITING) {
            return; /* the stream is no longer ours */
        }
        if (start == SOFTWARE_START_CHUNKS && (command->chunk_count > 1 || !on_pool)) {
            software_pool_run(command);
            return;
        }
        if (start == SOFTWARE_START_CHUNKS) {
            command_run_all(command);
        }
        command = stream_next(stream, started < limit);
    }
}

void software_stream_chunks_done(struct software_stream *stream)
{
    if (stream_next(stream, true)) {
        software_stream_advance(stream, true);
    }
}

/* ---------------------------------------------------------------- entry points */

CUresult software_cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    struct software_context *context;
    CUresult result = software_enter_context(&context);
    if (result) {
        return result;
    }
    (void)priority; /* as CUDA does, clamp it: the range here has one value */
    if (!stream || flags > CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_stream *made = calloc(1, sizeof(*made));
    uint64_t handle = made ? software_handle_new(SOFTWARE_KIND_STREAM, made) : 0;
    if (!handle) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->handle = handle;
    made->context = context;
    *stream = (CUstream)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static void stream_destroy(struct software_stream *stream)
{
    software_handle_delete(stream->handle);
    pthread_mutex_lock(&software.work_lock);
    stream->destroyed = true; /* what it still has runs to the end */
    bool busy = stream->busy;
    pthread_mutex_unlock(&software.work_lock);
    if (!busy) {
        free(stream);
    }
}

static bool stream_belongs(void *object, void *context)
{
    return !context || ((struct software_stream *)object)->context == context;
}

void software_streams_clear(struct software_context *context)
{
    struct software_stream *stream;
    while ((stream = software_handle_search(SOFTWARE_KIND_STREAM, stream_belongs, context))) {
        (void)software_stream_wait(stream);
        stream_destroy(stream);
    }
}

CUresult software_cuStreamDestroy(CUstream stream)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    struct software_stream *found = software_handle_find((uintptr_t)stream, SOFTWARE_KIND_STREAM);
    if (!found) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    result = (CUresult)atomic_load(&found->context->error);
    stream_destroy(found);
    return result;
}

CUresult software_cuStreamQuery(CUstream stream)
{
    struct software_stream *found;
    CUresult result = software_enter_stream(stream, &found);
    if (result) {
        return result;
    }
    uint64_t submitted = atomic_load(&found->submitted);
    bool done = atomic_load_explicit(&found->completed, memory_order_acquire) >= submitted;
    result = (CUresult)atomic_load(&found->context->error); /* set by what completed */
    return result ? result : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult software_cuStreamSynchronize(CUstream stream)
{
    struct software_stream *found;
    CUresult result = software_enter_stream(stream, &found);
    return result ? result : software_stream_wait(found);
}
