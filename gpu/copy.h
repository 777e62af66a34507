#ifndef SYMTENSOR_GPU_COPY_H
#define SYMTENSOR_GPU_COPY_H

#include "gpu/job.h"
#include "gpu/memory.h"

/** Which lane moves the bytes, if it reaches both sides. */
enum gpu_copy_side { GPU_COPY_PUSH, GPU_COPY_PULL };

/**
 * Queue a copy between two shards on a lane that reaches both, the wanted side's if it can. Where
 * none does, the bytes go through a pinned buffer, in order with the lanes of both sides.
 * @param spec of memories of the job's teams. bytes of 0, and a copy onto itself: nothing.
 * @retval ST_RESOURCE_EXHAUSTED TOO_MANY_TRANSFERS: no pinned buffer is free.
 */
ST_MUST_CHECK enum st_status gpu_copy_queue(struct gpu_job *job, const struct gpu_copy_spec *spec,
                                            enum gpu_copy_side side, struct st_error *err);
/** Queue a copy on a given lane, which reaches both addresses. */
ST_MUST_CHECK enum st_status gpu_copy_on_lane(struct gpu_job *job, struct gpu_lane *lane,
                                              uint64_t to, uint64_t from, uint64_t bytes,
                                              struct st_error *err);
/** Queue a copy through a pinned buffer whatever the devices reach. */
ST_MUST_CHECK enum st_status gpu_copy_staged(struct gpu_job *job, const struct gpu_copy_spec *spec,
                                             struct st_error *err);

#endif
