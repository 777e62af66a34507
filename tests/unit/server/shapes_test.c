#include "tests/support/leak_check.h"

#include <string.h>

#include "server/shapes.h"

/* Only the rule counts here. */
static const struct gpu_collective equal = {.name = "all_reduce", .rule = GPU_SHAPE_EQUAL};
static const struct gpu_collective gathered = {.name = "all_gather", .rule = GPU_SHAPE_GATHERED};
static const struct gpu_collective scattered = {.name = "scatter", .rule = GPU_SHAPE_SCATTERED};
static const struct gpu_collective sliced = {.name = "all_to_all", .rule = GPU_SHAPE_SLICED};

#define SHAPE(...)                                                                                 \
    {                                                                                              \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = { __VA_ARGS__ }        \
    }
#define SCALAR                                                                                     \
    {                                                                                              \
        .rank = 0                                                                                  \
    }

struct shapes_case {
    const char *name;
    const struct gpu_collective *collective;
    uint32_t world_size;
    bool in_place;
    struct st_shape input, output;
    bool accepted;
    uint64_t slice_count;
};

static const struct shapes_case cases[] = {
    {"equal shapes", &equal, 4, false, SHAPE(2, 3), SHAPE(2, 3), true, 6},
    {"equal in place takes any shape", &equal, 4, true, SHAPE(5, 7), SCALAR, true, 35},
    {"equal refuses another shape of as many elements", &equal, 4, false, SHAPE(2, 3), SHAPE(3, 2),
     false, 0},
    {"equal refuses another rank", &equal, 4, false, SHAPE(6), SHAPE(6, 1), false, 0},
    {"scalars are equal", &equal, 4, false, SCALAR, SCALAR, true, 1},
    {"a scalar in place", &equal, 4, true, SCALAR, SCALAR, true, 1},
    {"zero elements are equal", &equal, 4, false, SHAPE(0, 3), SHAPE(0, 3), true, 0},
    {"a gathered output is world_size times as long", &gathered, 4, false, SHAPE(2, 3), SHAPE(8, 3),
     true, 6},
    {"a gathered output may have world_size in front", &gathered, 4, false, SHAPE(2, 3),
     SHAPE(4, 2, 3), true, 6},
    {"a gathered output of half the length", &gathered, 4, false, SHAPE(2, 3), SHAPE(4, 3), false,
     0},
    {"a gathered output with world_size behind", &gathered, 4, false, SHAPE(2, 3), SHAPE(2, 12),
     false, 0},
    {"a gathered output with another number in front", &gathered, 4, false, SHAPE(2, 3),
     SHAPE(5, 2, 3), false, 0},
    {"a gathered output as small as the input", &gathered, 4, false, SHAPE(8, 3), SHAPE(8, 3),
     false, 0},
    {"scalars gather into a vector", &gathered, 4, false, SCALAR, SHAPE(4), true, 1},
    {"scalars do not gather into a scalar", &gathered, 4, false, SCALAR, SCALAR, false, 0},
    {"nothing gathers into nothing", &gathered, 4, false, SHAPE(0, 3), SHAPE(0, 3), true, 0},
    {"nothing gathers with world_size in front", &gathered, 4, false, SHAPE(0, 3), SHAPE(4, 0, 3),
     true, 0},
    {"one rank gathers into an equal shape", &gathered, 1, false, SHAPE(2, 3), SHAPE(2, 3), true,
     6},
    {"one rank gathers with a 1 in front", &gathered, 1, false, SHAPE(2, 3), SHAPE(1, 2, 3), true,
     6},
    {"gathered in place the tensor is the large side", &gathered, 4, true, SHAPE(8, 3), SCALAR,
     true, 6},
    {"gathered in place with world_size in front", &gathered, 4, true, SHAPE(4, 2, 3), SCALAR, true,
     6},
    {"gathered in place needs a multiple of world_size", &gathered, 4, true, SHAPE(6, 3), SCALAR,
     false, 0},
    {"a scalar does not gather in place", &gathered, 4, true, SCALAR, SCALAR, false, 0},
    {"nothing gathers in place", &gathered, 4, true, SHAPE(0, 3), SCALAR, true, 0},
    {"a scattered input is world_size times as long", &scattered, 4, false, SHAPE(8, 3),
     SHAPE(2, 3), true, 6},
    {"a scattered input may have world_size in front", &scattered, 4, false, SHAPE(4, 2, 3),
     SHAPE(2, 3), true, 6},
    {"a scattered output is not the larger side", &scattered, 4, false, SHAPE(2, 3), SHAPE(8, 3),
     false, 0},
    {"a vector scatters into scalars", &scattered, 4, false, SHAPE(4), SCALAR, true, 1},
    {"scattered in place", &scattered, 4, true, SHAPE(8, 3), SCALAR, true, 6},
    {"scattered in place needs a multiple of world_size", &scattered, 4, true, SHAPE(7), SCALAR,
     false, 0},
    {"slices of equal shapes", &sliced, 4, false, SHAPE(8, 3), SHAPE(8, 3), true, 6},
    {"slices in place", &sliced, 4, true, SHAPE(8, 3), SCALAR, true, 6},
    {"slices need a multiple of world_size", &sliced, 4, false, SHAPE(6, 3), SHAPE(6, 3), false, 0},
    {"slices need equal shapes", &sliced, 4, false, SHAPE(8, 3), SHAPE(4, 6), false, 0},
    {"a scalar has no slices", &sliced, 1, true, SCALAR, SCALAR, false, 0},
    {"no elements in slices", &sliced, 4, true, SHAPE(4, 0), SCALAR, true, 0},
    {"a length that overflows fits nothing", &gathered, 4, false, SHAPE(INT64_MAX / 2), SHAPE(8),
     false, 0},
};

static struct server_side side(const struct st_shape *shape)
{
    struct server_side side = {.dtype = ST_DTYPE_FLOAT32, .shape = *shape};
    st_shape_row_major(shape, &side.strides);
    return side;
}

static void each_shape_is_judged_by_its_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct shapes_case *row = &cases[i];
        struct server_side input = side(&row->input);
        struct server_side output = side(&row->output);
        uint64_t slice_count = 0;
        struct st_error err = {0};
        enum st_status status =
            server_shapes_check(row->collective, row->world_size, &input,
                                row->in_place ? NULL : &output, &slice_count, &err);
        if ((status == ST_OK) != row->accepted) {
            fail_msg("%s: %s", row->name, err.message);
        }
        if (row->accepted) {
            assert_int_equal(slice_count, row->slice_count);
        } else {
            assert_int_equal(err.reason, ST_REASON_SHAPE_MISMATCH);
            assert_string_equal(err.field, row->in_place ? "tensor" : "output");
            assert_non_null(strstr(err.message, row->collective->name));
        }
    }
}

static void a_mismatch_says_what_was_expected(void **state)
{
    (void)state;
    struct server_side input = side(&(struct st_shape)SHAPE(2, 3));
    struct server_side output = side(&(struct st_shape)SHAPE(3, 2));
    uint64_t slice_count = 0;
    struct st_error err = {0};
    assert_int_equal(server_shapes_check(&equal, 4, &input, &output, &slice_count, &err),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(err.details[0].key, "expected");
    assert_string_equal(err.details[0].value, "[2, 3]");
    assert_non_null(strstr(err.message, "[3, 2]"));
}

static void dtypes_must_be_equal(void **state)
{
    (void)state;
    struct server_side input = side(&(struct st_shape)SHAPE(2));
    struct server_side output = input;
    output.dtype = ST_DTYPE_INT32;
    uint64_t slice_count = 0;
    struct st_error err = {0};
    assert_int_equal(server_shapes_check(&equal, 2, &input, &output, &slice_count, &err),
                     ST_INVALID_ARGUMENT);
    assert_int_equal(err.reason, ST_REASON_DTYPE_MISMATCH);
    assert_string_equal(err.field, "output");
}

struct strides_case {
    const char *name;
    const struct gpu_collective *collective;
    bool in_place;
    struct st_shape input, output;
    struct st_strides input_strides, output_strides;
    bool accepted;
};

static const struct strides_case strides_cases[] = {
    {"equal columns", &equal, false, SHAPE(4, 4), SHAPE(4, 4), {{1, 4}}, {{1, 4}}, true},
    {"rows into columns", &equal, false, SHAPE(4, 4), SHAPE(4, 4), {{4, 1}}, {{1, 4}}, false},
    {"columns in place", &equal, true, SHAPE(4, 4), SCALAR, {{1, 4}}, {{0}}, true},
    {"gathered rows", &gathered, false, SHAPE(1, 4), SHAPE(2, 4), {{4, 1}}, {{4, 1}}, true},
    {"gathered into columns",
     &gathered,
     false,
     SHAPE(2, 4),
     SHAPE(4, 4),
     {{4, 1}},
     {{1, 4}},
     false},
    {"gathered from columns",
     &gathered,
     false,
     SHAPE(2, 4),
     SHAPE(4, 4),
     {{1, 2}},
     {{4, 1}},
     false},
    {"gathered in place in columns", &gathered, true, SHAPE(4, 4), SCALAR, {{1, 4}}, {{0}}, false},
    {"gathered in place, inner dimensions swapped",
     &gathered,
     true,
     SHAPE(2, 3, 4),
     SCALAR,
     {{12, 1, 3}},
     {{0}},
     true},
    {"slices of columns", &sliced, false, SHAPE(4, 4), SHAPE(4, 4), {{1, 4}}, {{1, 4}}, false},
    {"slices, inner dimensions swapped",
     &sliced,
     false,
     SHAPE(2, 3, 4),
     SHAPE(2, 3, 4),
     {{12, 1, 3}},
     {{12, 1, 3}},
     true},
};

static void strides_are_equal_or_row_major(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(strides_cases) / sizeof(strides_cases[0]); i++) {
        const struct strides_case *row = &strides_cases[i];
        struct server_side input = {ST_DTYPE_INT8, row->input, row->input_strides};
        struct server_side output = {ST_DTYPE_INT8, row->output, row->output_strides};
        uint64_t slice_count = 0;
        struct st_error err = {0};
        enum st_status status = server_shapes_check(
            row->collective, 2, &input, row->in_place ? NULL : &output, &slice_count, &err);
        if ((status == ST_OK) != row->accepted) {
            fail_msg("%s: %s", row->name, err.message);
        }
        assert_true(status == ST_OK || err.reason == ST_REASON_SHAPE_MISMATCH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_shape_is_judged_by_its_rule),
        cmocka_unit_test(a_mismatch_says_what_was_expected),
        cmocka_unit_test(dtypes_must_be_equal),
        cmocka_unit_test(strides_are_equal_or_row_major),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
