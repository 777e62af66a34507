#ifndef SYMTENSOR_SERVER_PLANNER_H
#define SYMTENSOR_SERVER_PLANNER_H

#include "gpu/collective.h"

/**
 * Which algorithm runs a collective, and why. A pure function of what is known about the group and
 * of the request: no state, no clock, no driver. Thread: any. Blocks: never.
 */

#define SERVER_PLAN_REASON_BYTES 160

/** What the request says about the algorithm. */
struct server_plan_request {
    const struct gpu_algorithm *algorithm; /**< NULL: the planner chooses. */
    bool deterministic;                    /**< The result must keep the group's reduction tree. */
};

struct server_plan {
    const struct gpu_algorithm *algorithm;
    bool deterministic;                    /**< The bits are those of the group's reduction tree. */
    char reason[SERVER_PLAN_REASON_BYTES]; /**< One readable sentence. */
};

/** What an algorithm does for a dtype and an op. */
enum server_support {
    SERVER_SUPPORT_NONE,
    SERVER_SUPPORT_ANY_ORDER, /**< Only when the call says "deterministic": false. */
    SERVER_SUPPORT_DETERMINISTIC,
};

/**
 * One cell of the table dtype x op x algorithm, judged for reductions where devices and memory
 * offer everything. Derived from the tables of dtypes, ops and algorithms: nothing is listed by
 * hand.
 */
enum server_support server_plan_support(const struct gpu_algorithm *algorithm, enum st_dtype dtype,
                                        enum st_reduce_op op);

/**
 * Choose or check the algorithm of one run.
 *
 * @retval ST_INVALID_ARGUMENT UNSUPPORTED_OP: the dtype has no such op. UNSUPPORTED_ALGORITHM: the
 * named one does not fit; details "why" and "algorithms" (those that do, by comma).
 * NOT_DETERMINISTIC: the named one would keep another order than the request asks for.
 * @retval ST_FAILED_PRECONDITION NO_PEER_ACCESS: no algorithm fits between these devices.
 *         NO_KERNELS: it reduces, and a driver loads none of the kernels; err says which driver
 *         would.
 */
ST_MUST_CHECK enum st_status server_plan(const struct gpu_plan_input *input,
                                         const struct server_plan_request *request,
                                         struct server_plan *ret_plan, struct st_error *err);

#endif
