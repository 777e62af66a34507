#ifndef SYMTENSOR_GPU_ALGORITHMS_ALGORITHM_H
#define SYMTENSOR_GPU_ALGORITHMS_ALGORITHM_H

#include "gpu/collective.h"
#include "gpu/job.h"
#include "gpu/memory.h"

/**
 * What the algorithms share. An algorithm runs a collective's list of movements, in batches that
 * fit into one launch, on lanes of the team. Within one launch, and within one lane, nothing has to
 * be waited for; lanes that need each other's results call gpu_job_barrier().
 */
struct gpu_algorithm_run {
    struct gpu_team *team;
    struct gpu_job *job;
    const struct gpu_plan_input *plan;
    struct gpu_memory *input, *output, *scratch; /**< scratch: NULL where none is needed. */
    bool streaming; /**< What is read and written exceeds the last-level cache. */
};

/** The rows: gpu_NAME, defined in NAME.c. In the planner's order of preference. */
#define GPU_ALGORITHMS(X)                                                                          \
    X(two_shot)                                                                                    \
    X(one_shot)                                                                                    \
    X(copy_engine)                                                                                 \
    X(nvls)

#define X(name) extern const struct gpu_algorithm gpu_##name;
GPU_ALGORITHMS(X)
#undef X

/** Up to GPU_KERNEL_MOVEMENTS_MAX movements. */
struct gpu_movement_batch {
    uint32_t count;
    struct gpu_movement items[GPU_KERNEL_MOVEMENTS_MAX];
};

/** The movements from @p first on. @return false at the end of the list. */
bool gpu_algorithm_batch(const struct gpu_algorithm_run *run, uint32_t first,
                         struct gpu_movement_batch *ret_batch);

/** Whether every device has kernels and they reach what they need; if not, *ret_why says so. */
bool gpu_algorithm_launches(const struct gpu_plan_input *plan, const char **ret_why);
/** 0 bytes of scratch. */
uint64_t gpu_algorithm_no_scratch(const struct gpu_plan_input *plan);

/** Fill in what all launches of a run share: addresses, dtype, op, one part of one. */
void gpu_algorithm_params(const struct gpu_algorithm_run *run, struct gpu_move_params *ret_params);
/** Launch symtensor_move on a lane. No movements: nothing. */
ST_MUST_CHECK enum st_status gpu_algorithm_move(const struct gpu_algorithm_run *run,
                                                struct gpu_lane *lane,
                                                struct gpu_move_params *params,
                                                struct st_error *err);
/** Launch symtensor_multicast on a lane. No movements: nothing. */
ST_MUST_CHECK enum st_status gpu_algorithm_multicast(const struct gpu_algorithm_run *run,
                                                     struct gpu_lane *lane,
                                                     struct gpu_multicast_params *params,
                                                     struct st_error *err);

#endif
