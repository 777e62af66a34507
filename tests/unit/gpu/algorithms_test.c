#include "tests/support/leak_check.h"

#include <stdio.h>
#include <string.h>

#include "gpu/collective.h"

/** What the algorithms say that they can do: pure functions of the plan. */

static struct gpu_plan_input plan(const char *collective)
{
    const struct gpu_collective *row = gpu_collective_find(collective);
    return (struct gpu_plan_input){
        .collective = row,
        .shape = {.world_size = 4, .slice_count = row->rule == GPU_SHAPE_EQUAL ? 1024 : 256},
        .dtype = ST_DTYPE_FLOAT32,
        .op = ST_OP_SUM,
        .large_bytes = 4096,
        .device_count = 4,
        .peer_access = true,
        .kernels = true,
        .multicast_input = true,
        .multicast_output = true,
    };
}

static bool fits(const char *algorithm, const struct gpu_plan_input *input)
{
    const char *why = NULL;
    bool fit = gpu_algorithm_find(algorithm)->fits(input, &why);
    assert_true(fit || (why && strlen(why) > 0));
    return fit;
}

static void every_algorithm_is_found_by_its_name(void **state)
{
    (void)state;
    static const char *const names[] = {"two_shot", "one_shot", "copy_engine", "nvls"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_ptr_equal(gpu_algorithms[i], gpu_algorithm_find(names[i]));
        assert_int_equal(gpu_algorithms[i]->deterministic, strcmp(names[i], "nvls") != 0);
    }
    assert_null(gpu_algorithms[4]);
    assert_null(gpu_algorithm_find("three_shot"));
}

static void which_algorithm_fits_which_collective(void **state)
{
    (void)state;
    static const struct {
        const char *collective;
        bool copy_engine, nvls;
    } rows[] = {
        {"all_reduce", false, true},     {"reduce", false, true},     {"broadcast", true, true},
        {"all_gather", true, true},      {"gather", true, false},     {"scatter", true, false},
        {"reduce_scatter", false, true}, {"all_to_all", true, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_plan_input input = plan(rows[i].collective);
        assert_true(fits("two_shot", &input));
        assert_true(fits("one_shot", &input));
        assert_int_equal(fits("copy_engine", &input), rows[i].copy_engine);
        assert_int_equal(fits("nvls", &input), rows[i].nvls);
    }
}

static void without_peer_access_only_copies_are_left(void **state)
{
    (void)state;
    struct gpu_plan_input input = plan("broadcast");
    input.peer_access = false;
    assert_false(fits("two_shot", &input));
    assert_false(fits("one_shot", &input));
    assert_false(fits("nvls", &input));
    assert_true(fits("copy_engine", &input));
    input.device_count = 1; /* all ranks on one device need none */
    assert_true(fits("two_shot", &input));
    assert_true(fits("one_shot", &input));
}

static void nvls_needs_multicast_where_the_switch_works(void **state)
{
    (void)state;
    static const struct {
        const char *collective;
        bool input, output; /**< Whether it needs the mapping. */
    } rows[] = {
        {"all_reduce", true, true}, {"reduce", true, false},     {"reduce_scatter", true, false},
        {"broadcast", false, true}, {"all_gather", false, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_plan_input input = plan(rows[i].collective);
        input.multicast_input = false;
        assert_int_equal(fits("nvls", &input), !rows[i].input);
        input = plan(rows[i].collective);
        input.multicast_output = false;
        assert_int_equal(fits("nvls", &input), !rows[i].output);
        input = plan(rows[i].collective);
        input.device_count = 3;
        assert_false(fits("nvls", &input));
    }
}

/** gpu.md section 3, written out. */
static const char *const nvls_pairs =
    "sum:float32 sum:float16 sum:bfloat16 avg:float32 avg:float16 avg:bfloat16 sum:float64 "
    "sum:int32 sum:uint32 sum:int64 sum:uint64 min:int32 min:uint32 min:int64 min:uint64 "
    "max:int32 max:uint32 max:int64 max:uint64 band:int32 band:uint32 band:int64 band:uint64 "
    "bor:int32 bor:uint32 bor:int64 bor:uint64 bxor:int32 bxor:uint32 bxor:int64 bxor:uint64 ";

static void nvls_reduces_only_what_the_switch_can(void **state)
{
    (void)state;
    for (int op = 0; op < ST_OP_COUNT; op++) {
        for (int dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
            char pair[64];
            snprintf(pair, sizeof(pair), "%s:%s ", st_reduce_op_info((enum st_reduce_op)op)->name,
                     st_dtype_info((enum st_dtype)dtype)->name);
            struct gpu_plan_input input = plan("all_reduce");
            input.op = (enum st_reduce_op)op;
            input.dtype = (enum st_dtype)dtype;
            assert_int_equal(fits("nvls", &input), strstr(nvls_pairs, pair) != NULL);
        }
    }
}

static void scratch_is_asked_for_where_results_would_meet_inputs(void **state)
{
    (void)state;
    static const struct {
        const char *algorithm, *collective;
        bool in_place;
        uint32_t devices;
        uint64_t bytes;
    } rows[] = {
        {"one_shot", "all_reduce", true, 4, 4096},    {"one_shot", "all_reduce", false, 4, 0},
        {"one_shot", "all_reduce", true, 1, 0},       {"one_shot", "reduce_scatter", true, 4, 0},
        {"one_shot", "all_to_all", true, 4, 0},       {"two_shot", "all_reduce", true, 4, 0},
        {"copy_engine", "all_to_all", true, 4, 1024}, {"copy_engine", "all_to_all", false, 4, 0},
        {"copy_engine", "all_gather", true, 4, 0},    {"nvls", "all_reduce", true, 4, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_plan_input input = plan(rows[i].collective);
        input.shape.in_place = rows[i].in_place;
        input.device_count = rows[i].devices;
        assert_int_equal(gpu_algorithm_find(rows[i].algorithm)->scratch_bytes(&input),
                         rows[i].bytes);
    }
}

static void without_kernels_only_copies_fit(void **state)
{
    (void)state;
    struct gpu_plan_input input = plan("broadcast");
    input.kernels = false;
    assert_true(fits("copy_engine", &input));
    assert_false(fits("two_shot", &input));
    assert_false(fits("one_shot", &input));
    assert_false(fits("nvls", &input));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_kernels_only_copies_fit),
        cmocka_unit_test(every_algorithm_is_found_by_its_name),
        cmocka_unit_test(which_algorithm_fits_which_collective),
        cmocka_unit_test(without_peer_access_only_copies_are_left),
        cmocka_unit_test(nvls_needs_multicast_where_the_switch_works),
        cmocka_unit_test(nvls_reduces_only_what_the_switch_can),
        cmocka_unit_test(scratch_is_asked_for_where_results_would_meet_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
