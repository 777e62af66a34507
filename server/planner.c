#include "server/planner.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

/** What a collective does with an element. */
enum planner_kind {
    PLANNER_ANY,
    PLANNER_REDUCES,
    PLANNER_REPLICATES, /**< Sends one element to every rank. */
    PLANNER_SENDS,      /**< Sends each element to one rank. */
};

/**
 * The planner's preferences: the first row whose kind and sizes match and whose algorithm fits
 * without scratch is taken. Behind the last row any that fits will do, in the order of
 * gpu_algorithms[].
 */
struct planner_row {
    const char *algorithm;
    enum planner_kind kind;
    uint64_t from_bytes;     /**< Least bytes of the larger side on one rank. */
    uint32_t devices_min;    /**< Distinct devices of the group. */
    bool needs_nvls_allowed; /**< Only with --nvls=on: until then it runs when named. */
    const char *why_reduce;  /**< With one %s: the share of a device. */
    const char *why_move;    /**< The same, for collectives that only move. */
};

/**
 * copy_engine and two_shot: measured 2026-12-01 on 2 cores of an AMD EPYC (32 MiB of last-level
 * cache), software driver, 4 ranks on 4 devices, float32, medians of three interleaved runs.
 * all_to_all, gather and scatter: equal at 16 KiB, copies 1.3 to 2 times as fast from 64 KiB to 1
 * MiB and 1.1 to 1.3 times at 64 MiB. broadcast and all_gather: within a quarter below 1 MiB,
 * two_shot 1.5 to 3 times as fast from 8 MiB on. one_shot was never the fastest by more than the
 * noise. nvls: not measured, see gpu.h; below some size a switch saves nothing over plain loads.
 */
static const struct planner_row planner_rows[] = {
    {"nvls", PLANNER_ANY, 256 * ST_KIB, 2, true, "the switch reduces what each device asks for, %s",
     "the switch replicates what each device writes, %s"},
    {"copy_engine", PLANNER_SENDS, 32 * ST_KIB, 2, false, "%s",
     "each piece goes to one rank by a plain copy, each device makes %s of them"},
    {"two_shot", PLANNER_ANY, 0, 1, false, "each device reduces %s and writes it where it goes",
     "each device moves %s to where it goes"},
};

static enum planner_kind planner_kind(const struct gpu_plan_input *input)
{
    struct gpu_movement movement = {0};
    if (input->collective->reduces) {
        return PLANNER_REDUCES;
    }
    input->collective->movements(&input->shape, 0, 1, &movement);
    return movement.destination_rank == GPU_RANK_ALL ? PLANNER_REPLICATES : PLANNER_SENDS;
}

static bool planner_order_matters(const struct gpu_plan_input *input)
{
    return input->collective->reduces && st_reduce_op_ordered(input->op, input->dtype);
}

static bool planner_allows(const struct gpu_plan_input *input,
                           const struct server_plan_request *request,
                           const struct gpu_algorithm *algorithm)
{
    return algorithm->deterministic || !request->deterministic || !planner_order_matters(input);
}

static bool planner_fits(const struct gpu_plan_input *input,
                         const struct server_plan_request *request,
                         const struct gpu_algorithm *algorithm)
{
    const char *why = "";
    return planner_allows(input, request, algorithm) && algorithm->fits(input, &why);
}

enum server_support server_plan_support(const struct gpu_algorithm *algorithm, enum st_dtype dtype,
                                        enum st_reduce_op op)
{
    if (!st_reduce_op_supports(op, dtype)) {
        return SERVER_SUPPORT_NONE;
    }
    uint64_t bytes = 64 * ST_MIB;
    const struct gpu_plan_input best = {
        .collective = gpu_collective_find("all_reduce"),
        .shape = {.world_size = 4, .slice_count = bytes / st_dtype_info(dtype)->size_bytes},
        .dtype = dtype,
        .op = op,
        .large_bytes = bytes,
        .device_count = 4,
        .peer_access = true,
        .kernels = true,
        .multicast_input = true,
        .multicast_output = true,
        .nvls_allowed = true,
    };
    const char *why = "";
    if (!algorithm->fits(&best, &why)) {
        return SERVER_SUPPORT_NONE;
    }
    return algorithm->deterministic || !st_reduce_op_ordered(op, dtype)
               ? SERVER_SUPPORT_DETERMINISTIC
               : SERVER_SUPPORT_ANY_ORDER;
}

/** "64 MiB", "1000 bytes": binary units where they are exact. @return @p buffer. */
static const char *planner_format_bytes(uint64_t bytes, char buffer[static 32])
{
    static const struct {
        uint64_t unit;
        const char *name;
    } units[] = {{ST_GIB, "GiB"}, {ST_MIB, "MiB"}, {ST_KIB, "KiB"}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (bytes >= units[i].unit && bytes % units[i].unit == 0) {
            snprintf(buffer, 32, "%llu %s", (unsigned long long)(bytes / units[i].unit),
                     units[i].name);
            return buffer;
        }
    }
    snprintf(buffer, 32, "%llu bytes", (unsigned long long)bytes);
    return buffer;
}

/** "everything", "a half", "1/5". @return static text or @p buffer. */
static const char *planner_format_share(uint32_t devices, char buffer[static 16])
{
    static const char *const names[] = {"everything", "everything", "a half", "a third",
                                        "a quarter"};
    if (devices < sizeof(names) / sizeof(names[0])) {
        return names[devices];
    }
    snprintf(buffer, 16, "1/%u", devices);
    return buffer;
}

/** The second half of the sentence. */
static void planner_explain_row(const struct gpu_plan_input *input, const struct planner_row *row,
                                char buffer[static SERVER_PLAN_REASON_BYTES])
{
    if (gpu_plan_is_small(input)) {
        snprintf(buffer, SERVER_PLAN_REASON_BYTES, "too little to share out, one device does it");
        return;
    }
    if (input->device_count == 1) { /* rows of several devices do not match */
        snprintf(buffer, SERVER_PLAN_REASON_BYTES,
                 "fused in one launch that reads each input once");
        return;
    }
    char share[16];
    const char *format = input->collective->reduces ? row->why_reduce : row->why_move;
    const char *hole = strstr(format, "%s");
    snprintf(buffer, SERVER_PLAN_REASON_BYTES, "%.*s%s%s", (int)(hole - format), format,
             planner_format_share(input->device_count, share), hole + 2);
}

static void planner_explain(const struct gpu_plan_input *input, const char *why,
                            struct server_plan *plan)
{
    char bytes[32];
    snprintf(plan->reason, sizeof(plan->reason), "%s over %u device%s%s: %s",
             planner_format_bytes(input->large_bytes, bytes), input->device_count,
             input->device_count == 1 ? "" : "s",
             input->device_count == 1 ? ""
             : input->peer_access     ? " with peer access"
                                      : " without peer access",
             why);
}

static void planner_choose(const struct gpu_plan_input *input,
                           const struct gpu_algorithm *algorithm, const char *why,
                           struct server_plan *ret_plan)
{
    ret_plan->algorithm = algorithm;
    ret_plan->deterministic = algorithm->deterministic || !planner_order_matters(input);
    planner_explain(input, why, ret_plan);
}

/** Names of the algorithms that fit, by comma: "two_shot,one_shot". */
static void planner_list(const struct gpu_plan_input *input,
                         const struct server_plan_request *request, char *buffer, size_t size)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (size_t i = 0; gpu_algorithms[i]; i++) {
        if (!planner_fits(input, request, gpu_algorithms[i]) || length + 1 >= size) {
            continue;
        }
        int written = snprintf(buffer + length, size - length, "%s%s", length > 0 ? "," : "",
                               gpu_algorithms[i]->name);
        length += (size_t)written;
    }
}

static enum st_status planner_check_named(const struct gpu_plan_input *input,
                                          const struct server_plan_request *request,
                                          struct st_error *err)
{
    const struct gpu_algorithm *algorithm = request->algorithm;
    const char *why = "";
    enum st_status status = ST_OK;
    if (!algorithm->fits(input, &why)) {
        status = st_fail(err, ST_REASON_UNSUPPORTED_ALGORITHM, "algorithm", "%s does not fit: %s",
                         algorithm->name, why);
    } else if (!planner_allows(input, request, algorithm)) {
        why = "it keeps another order of operands";
        status = st_fail(err, ST_REASON_NOT_DETERMINISTIC, "algorithm",
                         "%s of %s with %s keeps another order of operands and needs "
                         "\"deterministic\": false",
                         st_reduce_op_info(input->op)->name, st_dtype_info(input->dtype)->name,
                         algorithm->name);
    }
    if (status == ST_OK) {
        return ST_OK;
    }
    char fitting[sizeof(((struct st_error_detail *)0)->value)];
    planner_list(input, request, fitting, sizeof(fitting));
    st_error_add_detail(err, "why", "%s", why);
    st_error_add_detail(err, "algorithms", "%s", fitting);
    return status;
}

static bool planner_row_matches(const struct gpu_plan_input *input, const struct planner_row *row)
{
    return input->large_bytes >= row->from_bytes && input->device_count >= row->devices_min &&
           (row->kind == PLANNER_ANY || row->kind == planner_kind(input)) &&
           (!row->needs_nvls_allowed || input->nvls_allowed);
}

/** The first row that matches and fits. @return false when there is none. */
static bool planner_choose_by_rows(const struct gpu_plan_input *input,
                                   const struct server_plan_request *request,
                                   struct server_plan *ret_plan)
{
    for (size_t i = 0; i < sizeof(planner_rows) / sizeof(planner_rows[0]); i++) {
        const struct planner_row *row = &planner_rows[i];
        const struct gpu_algorithm *algorithm = gpu_algorithm_find(row->algorithm);
        if (algorithm && planner_row_matches(input, row) &&
            planner_fits(input, request, algorithm) && algorithm->scratch_bytes(input) == 0) {
            char why[SERVER_PLAN_REASON_BYTES];
            planner_explain_row(input, row, why);
            planner_choose(input, algorithm, why, ret_plan);
            return true;
        }
    }
    return false;
}

/** Whether some row keeps the algorithm for those who ask for it. */
static bool planner_only_named(const struct gpu_plan_input *input,
                               const struct gpu_algorithm *algorithm)
{
    for (size_t i = 0; i < sizeof(planner_rows) / sizeof(planner_rows[0]); i++) {
        if (planner_rows[i].needs_nvls_allowed && !input->nvls_allowed &&
            strcmp(planner_rows[i].algorithm, algorithm->name) == 0) {
            return true;
        }
    }
    return false;
}

enum st_status server_plan(const struct gpu_plan_input *input,
                           const struct server_plan_request *request, struct server_plan *ret_plan,
                           struct st_error *err)
{
    if (input->collective->reduces && !st_reduce_op_supports(input->op, input->dtype)) {
        return st_fail(err, ST_REASON_UNSUPPORTED_OP, "op", "%s is not defined for %s",
                       st_reduce_op_info(input->op)->name, st_dtype_info(input->dtype)->name);
    }
    if (input->collective->reduces && !input->kernels) {
        return st_fail(err, ST_REASON_NO_KERNELS, NULL, "%s needs kernels: %s",
                       input->collective->name, input->kernels_why);
    }
    if (request->algorithm) {
        enum st_status status = planner_check_named(input, request, err);
        if (status == ST_OK) {
            planner_choose(input, request->algorithm, "named by the request", ret_plan);
        }
        return status;
    }
    if (planner_choose_by_rows(input, request, ret_plan)) {
        return ST_OK;
    }
    for (size_t i = 0; gpu_algorithms[i]; i++) {
        if (planner_fits(input, request, gpu_algorithms[i]) &&
            !planner_only_named(input, gpu_algorithms[i])) {
            planner_choose(input, gpu_algorithms[i], "the first that fits", ret_plan);
            return ST_OK;
        }
    }
    return st_fail(err, ST_REASON_NO_PEER_ACCESS, NULL,
                   "no algorithm runs %s between these devices: they do not reach each other's "
                   "memory",
                   input->collective->name);
}
