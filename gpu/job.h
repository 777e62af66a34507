#ifndef SYMTENSOR_GPU_JOB_H
#define SYMTENSOR_GPU_JOB_H

#include "gpu/device.h"
#include "gpu/team.h"

/**
 * A job: work on some lanes, whose end is told once. Behind its work every lane has a host
 * function, and the last of them ends the job. A host function does not come when its context is in
 * error (and another lane that waits for an event of that context may go on as if nothing had
 * happened), so while jobs are in flight a thread asks every 200 ms whether the devices are still
 * alive. A job that uses a lost device is ended when its work on the others has ended, since its
 * memory there is given back next. That is known by an event of its own behind the work of each
 * lane: the lane itself may never be idle, as others go on with it.
 */
struct gpu_job {
    struct gpu *gpu;
    struct gpu_team *teams[2]; /**< The second: of another team's memory, or NULL. */
    struct gpu_completion completion;
    enum st_status status; /**< What it will end with, as far as is known. */
    struct st_error err;
    struct gpu_lane *lanes[ST_NODE_RANKS_MAX + 1]; /**< Used so far. */
    uint32_t lane_count;
    uint64_t devices;              /**< Bit i: device i matters to it. */
    bool touched;                  /**< Something that writes was queued. */
    struct gpu_graph *graph;       /**< What would be queued becomes nodes of it; else NULL. */
    void *staging;                 /**< A buffer that it holds, or NULL. */
    struct gpu_lane *staging_lane; /**< Which used the buffer last. */
    _Atomic uint32_t pending;      /**< Host functions that are due, and the submitter. */
    /* Below: jobs_lock. */
    bool launching; /**< The submitter is not done: the watch must not end it. */
    struct gpu_job *previous, *next;
    struct gpu_job_list *list; /**< NULL: in none. */
    CUevent *marks; /**< [lane_count] of a job that is asked for, NULL where none is recorded yet;
                       NULL: none. The watch's own. */
};

/**
 * Start a job of a team.
 * @param other another team whose memory takes part, or NULL.
 * @return NULL when it cannot be: then the completion has been called.
 */
struct gpu_job *gpu_job_start(struct gpu_team *team, struct gpu_team *other,
                              struct gpu_completion completion);
/** Use a lane: makes its context current on this thread. Before every call on its stream. */
ST_MUST_CHECK enum st_status gpu_job_enter(struct gpu_job *job, struct gpu_lane *lane,
                                           struct st_error *err);
/** What @p lane gets from now on waits for what @p other has got so far. */
ST_MUST_CHECK enum st_status gpu_job_follow(struct gpu_job *job, struct gpu_lane *lane,
                                            struct gpu_lane *other, struct st_error *err);
/** Every lane used so far waits for every other. */
ST_MUST_CHECK enum st_status gpu_job_barrier(struct gpu_job *job, struct st_error *err);
/**
 * All work is queued, or as much as could be: end the job when it is done, with @p status. The job
 * must not be used any more.
 */
void gpu_job_submit(struct gpu_job *job, enum st_status status, const struct st_error *err);

/** Start the thread that looks after jobs, if there is a timer for it. Thread: start-up. */
ST_MUST_CHECK enum st_status gpu_jobs_start_watch(struct gpu *gpu, struct st_error *err);
/** Join it. No job may be running. Also when it was not started. */
void gpu_jobs_stop_watch(struct gpu *gpu);
/** Free the jobs whose host function can no longer come: the driver is closed. */
void gpu_jobs_free_lost(struct gpu *gpu);

#endif
