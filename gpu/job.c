#include "gpu/job.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/workers.h"
#include "gpu/graph.h"

#define JOB_WATCH_NS (200 * ST_NS_PER_MS)

/* ---------------------------------------------------------------- lists (jobs_lock is held) */

static void list_push(struct gpu_job_list *list, struct gpu_job *job)
{
    job->list = list;
    job->next = NULL;
    job->previous = list->last;
    if (list->last) {
        list->last->next = job;
    } else {
        list->first = job;
    }
    list->last = job;
}

static void list_remove(struct gpu_job *job)
{
    struct gpu_job_list *list = job->list;
    if (job->previous) {
        job->previous->next = job->next;
    } else {
        list->first = job->next;
    }
    if (job->next) {
        job->next->previous = job->previous;
    } else {
        list->last = job->previous;
    }
    job->list = NULL;
}

/* ---------------------------------------------------------------- the end */

/** Tell, then count it out. */
static void job_tell(struct gpu_job *job)
{
    struct gpu *gpu = job->gpu;
    job->err.untouched = !job->touched;
    job->completion.done(job->completion.arg, job->status, job->status == ST_OK ? NULL : &job->err);
    pthread_mutex_lock(&gpu->jobs_lock);
    for (size_t i = 0; i < 2 && job->teams[i]; i++) {
        job->teams[i]->jobs--;
    }
    pthread_cond_broadcast(&gpu->jobs_ended);
    pthread_mutex_unlock(&gpu->jobs_lock);
}

/** One of those that the job waits for is done; the last one ends it. No driver call in here. */
static void job_drop(struct gpu_job *job)
{
    struct gpu *gpu = job->gpu;
    if (atomic_fetch_sub(&job->pending, 1) != 1) {
        return;
    }
    pthread_mutex_lock(&gpu->jobs_lock);
    bool told = job->list == &gpu->jobs_lost;
    if (job->list && !told) {
        list_remove(job);
    }
    pthread_mutex_unlock(&gpu->jobs_lock);
    if (told) {
        return; /* whoever did may still be at it: gpu_jobs_free_lost() frees the job */
    }
    if (job->staging) {
        gpu_staging_release(gpu, job->staging);
    }
    job_tell(job);
    free(job);
}

/** Behind all that a lane got. It comes only when all of that went well. */
static void job_host_function(void *data)
{
    job_drop(data);
}

/** Keep the first failure. */
static void job_fail(struct gpu_job *job, enum st_status status, const struct st_error *err)
{
    if (job->status == ST_OK && status != ST_OK) {
        job->status = status;
        job->err = *err;
    }
}

/* ---------------------------------------------------------------- the watch */

/** The context of a device tells on any of its streams that it is in error. */
static void watch_device(struct gpu_device *device)
{
    struct st_error unused;
    if (atomic_load(&device->state) != GPU_DEVICE_OK ||
        gpu_device_enter(device, &unused) != ST_OK) {
        return;
    }
    CUresult result = device->gpu->driver->cuStreamQuery(device->service);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        gpu_result_fail(device, GPU_CALL_cuStreamQuery, result, &unused);
    }
}

/** Keep a job from ending by itself. @return false when it is doing so already. */
static bool watch_hold(struct gpu_job *job)
{
    uint32_t pending = atomic_load(&job->pending);
    while (pending > 0 && !atomic_compare_exchange_weak(&job->pending, &pending, pending + 1)) {
    }
    return pending > 0;
}

/** Jobs that use a lost device are asked for from now on: their host functions may never come. */
static void watch_take_lost(struct gpu *gpu)
{
    uint64_t lost = atomic_load(&gpu->lost);
    pthread_mutex_lock(&gpu->jobs_lock);
    struct gpu_job *job = lost ? gpu->jobs_running.first : NULL;
    while (job) {
        struct gpu_job *next = job->next;
        if (!job->launching && (job->devices & lost) && watch_hold(job)) {
            list_remove(job);
            list_push(&gpu->jobs_polled, job);
        }
        job = next;
    }
    pthread_mutex_unlock(&gpu->jobs_lock);
}

/** Its other lanes have ended; on the lost device nothing ends any more. */
static void watch_end_lost(struct gpu_job *job)
{
    struct gpu *gpu = job->gpu;
    struct st_error err = {0};
    enum st_status status = gpu_devices_usable(gpu, job->devices & atomic_load(&gpu->lost), &err);
    job_fail(job, status, &err);
    /* Its staging buffer stays out: a device that hangs might still write there. */
    job_tell(job);
}

/** Record an event behind all that a lane has got so far. Its context is current. @return NULL: it
 * could not be; the next round tries again. */
static CUevent watch_mark(const struct gpu_lane *lane)
{
    const struct gpu_driver *driver = lane->device->gpu->driver;
    CUevent event = NULL;
    if (driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return NULL;
    }
    if (driver->cuEventRecord(event, lane->stream) != CUDA_SUCCESS) {
        driver->cuEventDestroy(event);
        return NULL;
    }
    return event;
}

/** Whether what a job has queued on a lane has ended, well or not. */
static bool watch_lane_ended(const struct gpu_job *job, uint32_t at)
{
    struct gpu_device *device = job->lanes[at]->device;
    struct st_error unused;
    if (atomic_load(&device->state) == GPU_DEVICE_LOST) {
        return true;
    }
    if (gpu_device_enter(device, &unused) != ST_OK) {
        return false;
    }
    if (!job->marks[at]) {
        job->marks[at] = watch_mark(job->lanes[at]);
    }
    if (!job->marks[at]) {
        return false;
    }
    CUresult result = job->gpu->driver->cuEventQuery(job->marks[at]);
    return result == CUDA_SUCCESS || gpu_result_is_sticky(result);
}

/** Whether all that is queued for a job has ended, well or not. */
static bool watch_has_ended(struct gpu_job *job)
{
    if (!job->marks) {
        job->marks = calloc(job->lane_count, sizeof(CUevent));
    }
    bool ended = job->marks != NULL;
    for (uint32_t i = 0; i < job->lane_count && job->marks; i++) {
        ended &= watch_lane_ended(job, i); /* all of them, so that each gets its mark now */
    }
    return ended;
}

/** Before the end of the job is told: it owns nothing then. */
static void watch_free_marks(struct gpu_job *job)
{
    for (uint32_t i = 0; i < job->lane_count; i++) {
        if (job->marks[i]) {
            gpu_device_enter_teardown(job->lanes[i]->device);
            job->gpu->driver->cuEventDestroy(job->marks[i]);
        }
    }
    free(job->marks);
    job->marks = NULL;
}

/** All that is queued has ended: the host functions have come or are coming, but for lost devices.
 */
static void watch_end_ended(struct gpu_job *job)
{
    struct gpu *gpu = job->gpu;
    watch_free_marks(job);
    pthread_mutex_lock(&gpu->jobs_lock);
    bool lost = (job->devices & atomic_load(&gpu->lost)) && atomic_load(&job->pending) > 1;
    list_remove(job);
    list_push(lost ? &gpu->jobs_lost : &gpu->jobs_running, job);
    pthread_mutex_unlock(&gpu->jobs_lock);
    if (lost) {
        watch_end_lost(job);
    } else {
        job_drop(job);
    }
}

/** Only the watch takes jobs off this list, and each has a part that only the watch ends, so that
 * they may be looked at without the lock. */
static void watch_end_polled(struct gpu *gpu)
{
    pthread_mutex_lock(&gpu->jobs_lock);
    struct gpu_job *job = gpu->jobs_polled.first;
    pthread_mutex_unlock(&gpu->jobs_lock);
    while (job) {
        bool ended = watch_has_ended(job);
        pthread_mutex_lock(&gpu->jobs_lock);
        struct gpu_job *next = job->next;
        pthread_mutex_unlock(&gpu->jobs_lock);
        if (ended) {
            watch_end_ended(job);
        }
        job = next;
    }
}

static void watch_arm(struct gpu *gpu);

/** Thread: the watch's own, which a call that hangs may hold for ever. */
static void watch_run(void *arg)
{
    struct gpu *gpu = arg;
    for (uint32_t i = 0; i < gpu->device_count; i++) {
        watch_device(&gpu->devices[i]);
    }
    watch_take_lost(gpu);
    watch_end_polled(gpu);
    pthread_mutex_lock(&gpu->jobs_lock);
    gpu->watch_armed = false;
    if (gpu->jobs_running.first || gpu->jobs_polled.first) {
        watch_arm(gpu);
    }
    pthread_mutex_unlock(&gpu->jobs_lock);
}

/** The timer's thread is everybody's: it calls no driver. */
static void watch_fire(void *arg)
{
    struct gpu *gpu = arg;
    st_workers_submit(gpu->watch_worker, watch_run, gpu);
}

/** jobs_lock is held. The timer is left to run out when the jobs end: short ones do not wake
 * anybody. */
static void watch_arm(struct gpu *gpu)
{
    if (!gpu->watch_armed && gpu->watch_worker && !gpu->watch_stopped) {
        gpu->watch_armed = st_timer_start(gpu->options.timers, &gpu->watch,
                                          st_clock_now_ns() + JOB_WATCH_NS, watch_fire, gpu);
    }
}

enum st_status gpu_jobs_start_watch(struct gpu *gpu, struct st_error *err)
{
    return gpu->options.timers ? st_workers_create("st-watch", 1, 1, &gpu->watch_worker, err)
                               : ST_OK;
}

void gpu_jobs_stop_watch(struct gpu *gpu)
{
    if (!gpu->watch_worker) {
        return;
    }
    pthread_mutex_lock(&gpu->jobs_lock);
    gpu->watch_stopped = true;
    pthread_mutex_unlock(&gpu->jobs_lock);
    st_timer_stop(gpu->options.timers, &gpu->watch);
    st_workers_destroy(gpu->watch_worker);
    gpu->watch_worker = NULL;
}

void gpu_jobs_free_lost(struct gpu *gpu)
{
    struct gpu_job *job = gpu->jobs_lost.first;
    while (job) {
        struct gpu_job *next = job->next;
        free(job);
        job = next;
    }
}

/* ---------------------------------------------------------------- a job */

struct gpu_job *gpu_job_start(struct gpu_team *team, struct gpu_team *other,
                              struct gpu_completion completion)
{
    struct gpu *gpu = team->gpu;
    struct st_error err = {0};
    uint64_t devices = team->device_mask | (other ? other->device_mask : 0);
    enum st_status status = gpu_devices_usable(gpu, devices, &err);
    struct gpu_job *job = status == ST_OK ? calloc(1, sizeof(*job)) : NULL;
    if (!job) {
        if (status == ST_OK) {
            status = st_fail(&err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a job");
        }
        err.untouched = true;
        completion.done(completion.arg, status, &err);
        return NULL;
    }
    job->gpu = gpu;
    job->teams[0] = team;
    job->teams[1] = other != team ? other : NULL;
    job->completion = completion;
    job->devices = devices;
    pthread_mutex_lock(&gpu->jobs_lock);
    for (size_t i = 0; i < 2 && job->teams[i]; i++) {
        job->teams[i]->jobs++;
    }
    pthread_mutex_unlock(&gpu->jobs_lock);
    return job;
}

enum st_status gpu_job_enter(struct gpu_job *job, struct gpu_lane *lane, struct st_error *err)
{
    uint32_t at = 0;
    while (at < job->lane_count && job->lanes[at] != lane) {
        at++;
    }
    if (at == job->lane_count) {
        assert(at < sizeof(job->lanes) / sizeof(job->lanes[0]));
        job->lanes[job->lane_count++] = lane;
    }
    return gpu_device_enter(lane->device, err);
}

static enum st_status job_record(struct gpu_job *job, struct gpu_lane *lane, struct st_error *err)
{
    enum st_status status = gpu_job_enter(job, lane, err);
    if (status != ST_OK) {
        return status;
    }
    CUresult result = job->gpu->driver->cuEventRecord(lane->event, lane->stream);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(lane->device, GPU_CALL_cuEventRecord, result, err);
    }
    return ST_OK;
}

static enum st_status job_wait(struct gpu_job *job, struct gpu_lane *lane,
                               const struct gpu_lane *other, struct st_error *err)
{
    enum st_status status = gpu_job_enter(job, lane, err);
    if (status != ST_OK || lane == other) {
        return status;
    }
    CUresult result = job->gpu->driver->cuStreamWaitEvent(lane->stream, other->event, 0);
    if (result != CUDA_SUCCESS) {
        return gpu_result_fail(lane->device, GPU_CALL_cuStreamWaitEvent, result, err);
    }
    return ST_OK;
}

enum st_status gpu_job_follow(struct gpu_job *job, struct gpu_lane *lane, struct gpu_lane *other,
                              struct st_error *err)
{
    if (lane == other) {
        return ST_OK;
    }
    if (job->graph) {
        return gpu_graph_refuse(err); /* a chain waits for no other */
    }
    enum st_status status = job_record(job, other, err);
    return status == ST_OK ? job_wait(job, lane, other, err) : status;
}

enum st_status gpu_job_barrier(struct gpu_job *job, struct st_error *err)
{
    enum st_status status = ST_OK;
    if (job->lane_count < 2) {
        return ST_OK;
    }
    if (job->graph) {
        return gpu_graph_refuse(err);
    }
    for (uint32_t i = 0; i < job->lane_count && status == ST_OK; i++) {
        status = job_record(job, job->lanes[i], err);
    }
    for (uint32_t i = 0; i < job->lane_count; i++) {
        for (uint32_t j = 0; j < job->lane_count && status == ST_OK; j++) {
            status = job_wait(job, job->lanes[i], job->lanes[j], err);
        }
    }
    return status;
}

/** End each lane's part. @return whether a host function follows everything that was queued. */
static bool job_launch_ends(struct gpu_job *job)
{
    bool complete = true;
    for (uint32_t i = 0; i < job->lane_count; i++) {
        struct gpu_lane *lane = job->lanes[i];
        struct st_error err = {0};
        enum st_status status = gpu_device_enter(lane->device, &err);
        CUresult result = CUDA_SUCCESS;
        if (status == ST_OK) {
            result = job->gpu->driver->cuLaunchHostFunc(lane->stream, job_host_function, job);
        }
        if (result != CUDA_SUCCESS) {
            status = gpu_result_fail(lane->device, GPU_CALL_cuLaunchHostFunc, result, &err);
        }
        if (status != ST_OK) {
            job_fail(job, status, &err);
            atomic_fetch_sub(&job->pending, 1); /* never the last: the submitter's is left */
            complete = false;
        }
    }
    return complete;
}

/** Without a timer there is nobody to ask later: wait here. */
static void job_wait_here(struct gpu_job *job)
{
    for (uint32_t i = 0; i < job->lane_count; i++) {
        gpu_device_enter_teardown(job->lanes[i]->device);
        job->gpu->driver->cuStreamSynchronize(job->lanes[i]->stream);
    }
}

void gpu_job_submit(struct gpu_job *job, enum st_status status, const struct st_error *err)
{
    struct gpu *gpu = job->gpu;
    job_fail(job, status, err);
    atomic_store(&job->pending, job->lane_count + 1);
    if (job->lane_count == 0) {
        job_drop(job);
        return;
    }
    pthread_mutex_lock(&gpu->jobs_lock);
    job->launching = true;
    list_push(&gpu->jobs_running, job);
    watch_arm(gpu);
    pthread_mutex_unlock(&gpu->jobs_lock);
    bool complete = job_launch_ends(job);
    pthread_mutex_lock(&gpu->jobs_lock);
    job->launching = false;
    bool polled = !complete && gpu->watch_armed;
    if (polled) {
        list_remove(job);
        list_push(&gpu->jobs_polled, job);
    }
    pthread_mutex_unlock(&gpu->jobs_lock);
    if (!complete && !polled) {
        job_wait_here(job);
    }
    if (!polled) {
        job_drop(job);
    }
}
