#ifndef SYMTENSOR_GPU_COLLECTIVE_H
#define SYMTENSOR_GPU_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/reduce_op.h"
#include "gpu/kernels/params.h"

/**
 * What a collective means, apart from how it is run: a list of movements between the ranks'
 * buffers. Everything here is pure. A collective is one file in gpu/collectives/ and one row in
 * gpu/collectives/table.c; routes, documentation, planner and tests are derived from the row.
 */

/** How the output's shape follows from the input's, per rank; w is world_size, d0 the first
 * dimension. */
enum gpu_shape_rule {
    GPU_SHAPE_EQUAL,     /**< The same shape. */
    GPU_SHAPE_GATHERED,  /**< Output [w * d0, ...] (or [w, d0, ...]) of an input [d0, ...]. */
    GPU_SHAPE_SCATTERED, /**< Input [w * d0, ...] (or [w, d0, ...]), output [d0, ...]. */
    GPU_SHAPE_SLICED,    /**< The same shape; d0 a multiple of w: w slices. */
};

/** Which ranks take part on a side. */
enum gpu_side { GPU_SIDE_ALL, GPU_SIDE_ROOT };

/** The sizes of one run. */
struct gpu_collective_shape {
    uint32_t world_size;  /**< 1..GPU_KERNEL_RANKS_MAX. */
    uint32_t root;        /**< < world_size; 0 for collectives without one. */
    uint64_t slice_count; /**< Elements of the smaller side: of all of it for EQUAL, of one slice
                             otherwise. */
    bool
        in_place; /**< Output and input are the same memory (the larger side where sizes differ). */
};

/** One row of the collective table. */
struct gpu_collective {
    const char *name;    /**< The verb: "all_reduce". */
    const char *summary; /**< One sentence for the documentation. */
    enum gpu_shape_rule rule;
    bool reduces;         /**< Takes an op. */
    bool rooted;          /**< Takes a root. */
    enum gpu_side reads;  /**< Whose input is read. */
    enum gpu_side writes; /**< Whose output is written. */
    /**
     * Write movements [first, first + max) of the list to @p ret, in order. A list has movements of
     * one kind only, and its exchanges are of one size.
     * @return how many were written; 0 past the end.
     */
    uint32_t (*movements)(const struct gpu_collective_shape *shape, uint32_t first, uint32_t max,
                          struct gpu_movement *ret);
    /**
     * Bus bandwidth is algorithm bandwidth times this (the convention of nccl-tests: bytes of the
     * larger side over time, times the factor).
     */
    double (*bus_factor)(uint32_t world_size);
};

extern const struct gpu_collective *const gpu_collectives[]; /**< Ends with NULL. */

/** The collective called @p name, or NULL. Thread: any. */
const struct gpu_collective *gpu_collective_find(const char *name);

/** Elements of the larger side on one rank. */
uint64_t gpu_collective_large_count(const struct gpu_collective *collective,
                                    const struct gpu_collective_shape *shape);

/** What the planner knows when it judges an algorithm. */
struct gpu_plan_input {
    const struct gpu_collective *collective;
    struct gpu_collective_shape shape;
    enum st_dtype dtype;
    enum st_reduce_op op;  /**< Only if the collective reduces. */
    uint64_t large_bytes;  /**< Bytes of the larger side on one rank. */
    uint32_t device_count; /**< Distinct devices of the group. */
    bool peer_access;      /**< Every device reaches every other's memory. */
    bool kernels;          /**< Every device has the kernels; without, only the driver's copies. */
    const char *kernels_why; /**< gpu_kernels_why() of the first device without, else "". */
    bool multicast_input;    /**< Input has a usable multicast mapping. */
    bool multicast_output;
    bool nvls_allowed;            /**< --nvls=on, so that the planner may pick it unasked. */
    uint64_t small_traffic_bytes; /**< Launches that move less run on one device: the hand-over
                                     costs more. */
};

/** Whether less is read and written than handing work to a second device costs: then one lane does
 * all. */
bool gpu_plan_is_small(const struct gpu_plan_input *plan);

struct gpu_algorithm_run; /* gpu/algorithms/algorithm.h */

/**
 * One row of the algorithm table: one file in gpu/algorithms/ and one row in
 * gpu/algorithms/table.c.
 */
struct gpu_algorithm {
    const char *name;    /**< "two_shot" */
    const char *summary; /**< One sentence for the documentation. */
    bool deterministic;  /**< Keeps the group's reduction tree (gpu/collective.h: left to right). */
    /** Whether it can run this; if not, *ret_why is a static sentence. */
    bool (*fits)(const struct gpu_plan_input *input, const char **ret_why);
    /** Scratch bytes per rank that the run needs. */
    uint64_t (*scratch_bytes)(const struct gpu_plan_input *input);
    /** Put everything on the team's streams. Implemented with gpu/algorithms/algorithm.h. */
    enum st_status (*launch)(struct gpu_algorithm_run *run, struct st_error *err);
};

extern const struct gpu_algorithm
    *const gpu_algorithms[]; /**< In order of preference; ends with NULL. */
const struct gpu_algorithm *gpu_algorithm_find(const char *name);

#endif
