#include "tests/support/leak_check.h"

#include <stdio.h>
#include <string.h>

#include "server/planner.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct planner_case {
    const char *name;
    const char *collective;
    enum st_dtype dtype;
    enum st_reduce_op op;
    uint32_t world_size, device_count;
    uint64_t bytes; /**< Of the larger side. */
    bool peer_access, multicast, nvls_allowed, in_place;
    const char *named; /**< NULL: the planner chooses. */
    bool deterministic;
    enum st_reason reason; /**< NONE: a plan. */
    const char *algorithm; /**< Of the plan. */
    bool plan_deterministic;
};

static const struct planner_case cases[] = {
    {"a large sum is shared out", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 64 << 20, true,
     false, false, true, NULL, true, ST_REASON_NONE, "two_shot", true},
    {"ranks of one device are fused", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 1, 64 << 20,
     true, false, false, true, NULL, true, ST_REASON_NONE, "two_shot", true},
    {"a broadcast is shared out", "broadcast", ST_DTYPE_INT8, ST_OP_SUM, 4, 4, 64 << 20, true,
     false, false, false, NULL, true, ST_REASON_NONE, "two_shot", true},
    {"pieces for one rank each are copied", "all_to_all", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4,
     64 << 20, true, false, false, false, NULL, true, ST_REASON_NONE, "copy_engine", true},
    {"little ones are not", "all_to_all", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 16 << 10, true, false,
     false, false, NULL, true, ST_REASON_NONE, "two_shot", true},
    {"an exchange in place is none of copies", "all_to_all", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4,
     64 << 20, true, false, false, true, NULL, true, ST_REASON_NONE, "two_shot", true},
    {"a switch is not used unasked", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 64 << 20,
     true, true, false, true, NULL, false, ST_REASON_NONE, "two_shot", true},
    {"with --nvls=on it is, when the order may change", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM,
     4, 4, 64 << 20, true, true, true, true, NULL, false, ST_REASON_NONE, "nvls", false},
    {"and not when it may not", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 64 << 20, true,
     true, true, true, NULL, true, ST_REASON_NONE, "two_shot", true},
    {"integers have no order", "all_reduce", ST_DTYPE_INT32, ST_OP_SUM, 4, 4, 64 << 20, true, true,
     true, true, NULL, true, ST_REASON_NONE, "nvls", true},
    {"nvls by name", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 64 << 20, true, true, false,
     true, "nvls", false, ST_REASON_NONE, "nvls", false},
    {"nvls by name without leave to change the order", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4,
     4, 64 << 20, true, true, false, true, "nvls", true, ST_REASON_NOT_DETERMINISTIC, NULL, false},
    {"nvls without multicast", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 64 << 20, true,
     false, false, true, "nvls", false, ST_REASON_UNSUPPORTED_ALGORITHM, NULL, false},
    {"nvls has no float max", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_MAX, 4, 4, 64 << 20, true, true,
     false, true, "nvls", false, ST_REASON_UNSUPPORTED_ALGORITHM, NULL, false},
    {"nvls has no float8", "all_reduce", ST_DTYPE_FLOAT8_E5M2, ST_OP_SUM, 4, 4, 64 << 20, true,
     true, false, true, "nvls", false, ST_REASON_UNSUPPORTED_ALGORITHM, NULL, false},
    {"copy engines do not add", "all_reduce", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 64 << 20, true,
     false, false, true, "copy_engine", true, ST_REASON_UNSUPPORTED_ALGORITHM, NULL, false},
    {"copy engines copy", "all_gather", ST_DTYPE_FLOAT32, ST_OP_SUM, 4, 4, 64 << 20, true, false,
     false, false, "copy_engine", true, ST_REASON_NONE, "copy_engine", true},
    {"without peer access copies go through copy engines", "all_gather", ST_DTYPE_FLOAT32,
     ST_OP_SUM, 4, 4, 64 << 20, false, false, false, false, NULL, true, ST_REASON_NONE,
     "copy_engine", true},
    {"bool has no sum", "all_reduce", ST_DTYPE_BOOL, ST_OP_SUM, 4, 4, 4096, true, false, false,
     true, NULL, true, ST_REASON_UNSUPPORTED_OP, NULL, false},
    {"floats have no bits", "reduce_scatter", ST_DTYPE_FLOAT16, ST_OP_BXOR, 4, 4, 4096, true, false,
     false, false, "two_shot", true, ST_REASON_UNSUPPORTED_OP, NULL, false},
};

static struct gpu_plan_input plan_input(const struct planner_case *row)
{
    struct gpu_plan_input input = {
        .collective = gpu_collective_find(row->collective),
        .shape = {.world_size = row->world_size, .in_place = row->in_place},
        .dtype = row->dtype,
        .op = row->op,
        .large_bytes = row->bytes,
        .device_count = row->device_count,
        .peer_access = row->peer_access,
        .kernels = true,
        .kernels_why = "",
        .multicast_input = row->multicast,
        .multicast_output = row->multicast,
        .nvls_allowed = row->nvls_allowed,
    };
    assert_non_null(input.collective);
    uint64_t elements = row->bytes / st_dtype_info(row->dtype)->size_bytes;
    input.shape.slice_count =
        input.collective->rule == GPU_SHAPE_EQUAL ? elements : elements / row->world_size;
    return input;
}

static void each_request_gets_its_algorithm_or_its_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct planner_case *row = &cases[i];
        struct gpu_plan_input input = plan_input(row);
        struct server_plan_request request = {
            .algorithm = row->named ? gpu_algorithm_find(row->named) : NULL,
            .deterministic = row->deterministic,
        };
        assert_true(!row->named || request.algorithm);
        struct server_plan plan = {0};
        struct st_error err = {0};
        enum st_status status = server_plan(&input, &request, &plan, &err);
        if (err.reason != row->reason) {
            fail_msg("%s: %s %s", row->name, st_reason_info(err.reason)->name, err.message);
        }
        assert_int_equal(status, row->reason == ST_REASON_NONE ? ST_OK : ST_INVALID_ARGUMENT);
        if (status == ST_OK) {
            if (strcmp(plan.algorithm->name, row->algorithm) != 0) {
                fail_msg("%s: got %s", row->name, plan.algorithm->name);
            }
            assert_int_equal(plan.deterministic, row->plan_deterministic);
        }
    }
}

static void a_reason_reads_as_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *collective;
        uint64_t bytes, small_traffic_bytes;
        uint32_t devices;
        const char *named, *reason;
    } sentences[] = {
        {"all_reduce", 64 << 20, 0, 4, NULL,
         "64 MiB over 4 devices with peer access: each device reduces a quarter and writes it "
         "where "
         "it goes"},
        {"broadcast", 1 << 10, 0, 5, NULL,
         "1 KiB over 5 devices with peer access: each device moves 1/5 to where it goes"},
        {"scatter", 5 << 20, 0, 4, NULL,
         "5 MiB over 4 devices with peer access: each piece goes to one rank by a plain copy, each "
         "device makes a quarter of them"},
        {"all_reduce", 4096, 1 << 20, 4, NULL,
         "4 KiB over 4 devices with peer access: too little to share out, one device does it"},
        {"all_reduce", 1000, 0, 1, NULL,
         "1000 bytes over 1 device: fused in one launch that reads each input once"},
        {"all_reduce", 1 << 30, 0, 4, "two_shot",
         "1 GiB over 4 devices with peer access: named by the request"},
    };
    for (size_t i = 0; i < COUNT(sentences); i++) {
        struct planner_case row = {.collective = sentences[i].collective,
                                   .dtype = ST_DTYPE_FLOAT32,
                                   .op = ST_OP_SUM,
                                   .world_size = 5,
                                   .device_count = sentences[i].devices,
                                   .bytes = sentences[i].bytes,
                                   .peer_access = true};
        struct gpu_plan_input input = plan_input(&row);
        input.small_traffic_bytes = sentences[i].small_traffic_bytes;
        struct server_plan_request request = {.deterministic = true};
        if (sentences[i].named) {
            request.algorithm = gpu_algorithm_find(sentences[i].named);
        }
        struct server_plan plan = {0};
        assert_int_equal(server_plan(&input, &request, &plan, NULL), ST_OK);
        assert_string_equal(plan.reason, sentences[i].reason);
    }
}

static bool order_matters(const struct gpu_plan_input *input)
{
    return input->collective->reduces && st_reduce_op_ordered(input->op, input->dtype);
}

/** Each name in the details fits, and each algorithm that is not there does not. */
static void check_listed(const struct gpu_plan_input *input, bool deterministic,
                         const struct st_error *err)
{
    const char *listed = NULL;
    for (uint32_t i = 0; i < err->detail_count; i++) {
        listed = strcmp(err->details[i].key, "algorithms") == 0 ? err->details[i].value : listed;
    }
    assert_non_null(listed);
    char padded[160];
    snprintf(padded, sizeof(padded), ",%s,", listed);
    for (size_t i = 0; gpu_algorithms[i]; i++) {
        char name[80];
        snprintf(name, sizeof(name), ",%s,", gpu_algorithms[i]->name);
        const char *why = NULL;
        bool fits = gpu_algorithms[i]->fits(input, &why) &&
                    (!deterministic || !order_matters(input) || gpu_algorithms[i]->deterministic);
        assert_int_equal(strstr(padded, name) != NULL, fits);
    }
}

static void check_error(const struct gpu_plan_input *input,
                        const struct server_plan_request *request, const struct st_error *err)
{
    const char *why = NULL;
    switch (err->reason) {
    case ST_REASON_UNSUPPORTED_OP:
        assert_true(input->collective->reduces);
        assert_false(st_reduce_op_supports(input->op, input->dtype));
        return;
    case ST_REASON_UNSUPPORTED_ALGORITHM:
        assert_false(request->algorithm->fits(input, &why));
        check_listed(input, request->deterministic, err);
        return;
    case ST_REASON_NOT_DETERMINISTIC:
        assert_true(request->deterministic && order_matters(input));
        assert_false(request->algorithm->deterministic);
        check_listed(input, request->deterministic, err);
        return;
    case ST_REASON_NO_KERNELS:
        assert_true(input->collective->reduces);
        assert_false(input->kernels);
        assert_non_null(strstr(err->message, input->collective->name));
        assert_non_null(strstr(err->message, input->kernels_why));
        return;
    case ST_REASON_NO_PEER_ACCESS:
        assert_null(request->algorithm);
        assert_false(input->peer_access);
        return;
    default:
        fail_msg("%s: %s", st_reason_info(err->reason)->name, err->message);
    }
}

static void check_plan(const struct gpu_plan_input *input,
                       const struct server_plan_request *request)
{
    struct server_plan plan = {0};
    struct st_error err = {0};
    if (server_plan(input, request, &plan, &err) != ST_OK) {
        check_error(input, request, &err);
        return;
    }
    const char *why = NULL;
    assert_true(!input->collective->reduces || st_reduce_op_supports(input->op, input->dtype));
    assert_true(plan.algorithm->fits(input, &why));
    assert_true(!request->algorithm || plan.algorithm == request->algorithm);
    assert_int_equal(plan.deterministic, plan.algorithm->deterministic || !order_matters(input));
    assert_true(plan.deterministic || !request->deterministic);
    assert_true(request->algorithm || input->nvls_allowed ||
                strcmp(plan.algorithm->name, "nvls") != 0);
    assert_true(strlen(plan.reason) > 0 && strlen(plan.reason) < sizeof(plan.reason) - 1);
}

/** Every algorithm and none, with and without leave to change the order. */
static void check_requests(const struct gpu_plan_input *input)
{
    for (unsigned deterministic = 0; deterministic < 2; deterministic++) {
        struct server_plan_request request = {.deterministic = deterministic != 0};
        check_plan(input, &request);
        for (size_t i = 0; gpu_algorithms[i]; i++) {
            request.algorithm = gpu_algorithms[i];
            check_plan(input, &request);
        }
    }
}

/** Every device count, size, and set of what devices and memory offer. */
static void check_environments(struct gpu_plan_input *input)
{
    static const uint64_t slices[] = {0, 1, 33, 1u << 20};
    for (unsigned bits = 0; bits < 32; bits++) {
        input->shape.in_place = bits & 1;
        input->peer_access = bits & 2;
        input->multicast_input = bits & 4;
        input->multicast_output = bits & 8;
        input->nvls_allowed = bits & 16;
        input->kernels = bits % 7 != 0;
        input->kernels_why = input->kernels ? "" : "they need a driver of CUDA 12.2 or later";
        input->device_count = bits % 3 == 0 ? 1 : input->shape.world_size;
        input->shape.slice_count = slices[(bits / 2) % COUNT(slices)];
        input->large_bytes = gpu_collective_large_count(input->collective, &input->shape) *
                             st_dtype_info(input->dtype)->size_bytes;
        input->small_traffic_bytes = bits % 5 == 0 ? 1u << 20 : 0;
        check_requests(input);
    }
}

static void every_combination_gives_a_plan_that_fits_or_an_error_that_says_why(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 4, 5, 7, 8, 16, 64};
    for (size_t c = 0; gpu_collectives[c]; c++) {
        for (int dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
            for (int op = 0; op < ST_OP_COUNT; op++) {
                struct gpu_plan_input input = {.collective = gpu_collectives[c],
                                               .dtype = (enum st_dtype)dtype,
                                               .op = (enum st_reduce_op)op};
                for (size_t w = 0; w < COUNT(worlds); w++) {
                    input.shape.world_size = worlds[w];
                    check_environments(&input);
                }
            }
        }
    }
}

static void every_op_of_every_dtype_has_a_deterministic_algorithm(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < ST_OP_COUNT; op++) {
            enum server_support best = SERVER_SUPPORT_NONE;
            for (size_t i = 0; gpu_algorithms[i]; i++) {
                enum server_support support = server_plan_support(
                    gpu_algorithms[i], (enum st_dtype)dtype, (enum st_reduce_op)op);
                best = support > best ? support : best;
            }
            bool defined = st_reduce_op_supports((enum st_reduce_op)op, (enum st_dtype)dtype);
            assert_int_equal(best, defined ? SERVER_SUPPORT_DETERMINISTIC : SERVER_SUPPORT_NONE);
        }
    }
}

static void the_switch_reduces_what_the_hardware_does(void **state)
{
    (void)state;
    const struct gpu_algorithm *nvls = gpu_algorithm_find("nvls");
    assert_non_null(nvls);
    static const struct {
        enum st_dtype dtype;
        enum st_reduce_op op;
        enum server_support support;
    } rows[] = {
        {ST_DTYPE_FLOAT32, ST_OP_SUM, SERVER_SUPPORT_ANY_ORDER},
        {ST_DTYPE_BFLOAT16, ST_OP_AVG, SERVER_SUPPORT_ANY_ORDER},
        {ST_DTYPE_FLOAT64, ST_OP_SUM, SERVER_SUPPORT_ANY_ORDER},
        {ST_DTYPE_FLOAT32, ST_OP_PROD, SERVER_SUPPORT_NONE},
        {ST_DTYPE_FLOAT32, ST_OP_MIN, SERVER_SUPPORT_NONE},
        {ST_DTYPE_FLOAT8_E4M3FN, ST_OP_SUM, SERVER_SUPPORT_NONE},
        {ST_DTYPE_INT32, ST_OP_SUM, SERVER_SUPPORT_DETERMINISTIC},
        {ST_DTYPE_UINT64, ST_OP_MAX, SERVER_SUPPORT_DETERMINISTIC},
        {ST_DTYPE_INT32, ST_OP_BXOR, SERVER_SUPPORT_DETERMINISTIC},
        {ST_DTYPE_BOOL, ST_OP_SUM, SERVER_SUPPORT_NONE},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(server_plan_support(nvls, rows[i].dtype, rows[i].op), rows[i].support);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_gets_its_algorithm_or_its_error),
        cmocka_unit_test(a_reason_reads_as_a_sentence),
        cmocka_unit_test(every_combination_gives_a_plan_that_fits_or_an_error_that_says_why),
        cmocka_unit_test(every_op_of_every_dtype_has_a_deterministic_algorithm),
        cmocka_unit_test(the_switch_reduces_what_the_hardware_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
