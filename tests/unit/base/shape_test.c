#include "tests/support/leak_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/shape.h"

#define P32 (1ll << 32)
#define P50 (1ll << 50)

static void shapes_are_measured_and_checked(void **state)
{
    (void)state;
    static const struct {
        struct st_shape shape;
        enum st_dtype dtype;
        uint64_t elements, bytes;
        enum st_reason reason; /* NONE: accepted */
        const char *field;
    } cases[] = {
        {{0, {0}}, ST_DTYPE_FLOAT32, 1, 4, ST_REASON_NONE, ""},
        {{2, {2, 3}}, ST_DTYPE_FLOAT16, 6, 12, ST_REASON_NONE, ""},
        {{3, {2, 0, 3}}, ST_DTYPE_FLOAT64, 0, 0, ST_REASON_NONE, ""},
        {{8, {2, 2, 2, 2, 2, 2, 2, 2}}, ST_DTYPE_INT8, 256, 256, ST_REASON_NONE, ""},
        {{1, {ST_JSON_INTEGER_MAX}},
         ST_DTYPE_UINT8,
         ST_JSON_INTEGER_MAX,
         ST_JSON_INTEGER_MAX,
         ST_REASON_NONE,
         ""},
        {{1, {ST_JSON_INTEGER_MAX}}, ST_DTYPE_INT16, 0, 0, ST_REASON_SHAPE_OVERFLOW, "shape"},
        {{1, {ST_JSON_INTEGER_MAX + 1}}, ST_DTYPE_UINT8, 0, 0, ST_REASON_SHAPE_OVERFLOW, "shape"},
        {{1, {P50}}, ST_DTYPE_FLOAT32, P50, 4 * P50, ST_REASON_NONE, ""},
        {{1, {P50}}, ST_DTYPE_FLOAT64, 0, 0, ST_REASON_SHAPE_OVERFLOW, "shape"},
        {{2, {P32, P32}}, ST_DTYPE_UINT8, 0, 0, ST_REASON_SHAPE_OVERFLOW, "shape"},
        {{3, {P32, 0, P32}}, ST_DTYPE_UINT8, 0, 0, ST_REASON_SHAPE_OVERFLOW, "shape"},
        {{3, {0, INT64_MAX, INT64_MAX}}, ST_DTYPE_UINT8, 0, 0, ST_REASON_SHAPE_OVERFLOW, "shape"},
        {{1, {-1}}, ST_DTYPE_UINT8, 0, 0, ST_REASON_INVALID_VALUE, "shape[0]"},
        {{3, {0, 1, INT64_MIN}}, ST_DTYPE_UINT8, 0, 0, ST_REASON_INVALID_VALUE, "shape[2]"},
        {{9, {0}}, ST_DTYPE_UINT8, 0, 0, ST_REASON_INVALID_VALUE, "shape"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t elements = 77;
        uint64_t bytes = 77;
        struct st_error err = {0};
        enum st_status status =
            st_shape_measure(&cases[i].shape, cases[i].dtype, &elements, &bytes, &err);
        if (cases[i].reason == ST_REASON_NONE) {
            assert_int_equal(status, ST_OK);
            assert_true(elements == cases[i].elements && bytes == cases[i].bytes);
        } else {
            assert_int_equal(status, ST_INVALID_ARGUMENT);
            assert_true(elements == 77 && bytes == 77);
            assert_int_equal(err.reason, cases[i].reason);
            assert_string_equal(err.field, cases[i].field);
        }
    }
}

static void strides_are_classified(void **state)
{
    (void)state;
    static const struct {
        struct st_shape shape;
        struct st_strides strides;
        bool row_major, dense;
    } cases[] = {
        {{0, {0}}, {{0}}, true, true},
        {{2, {2, 3}}, {{3, 1}}, true, true},
        {{2, {2, 3}}, {{1, 2}}, false, true},
        {{3, {2, 3, 4}}, {{4, 8, 1}}, false, true},
        {{3, {2, 3, 4}}, {{1, 2, 6}}, false, true},
        {{2, {2, 3}}, {{4, 1}}, false, false}, /* a gap */
        {{2, {2, 3}}, {{2, 1}}, false, false}, /* an overlap */
        {{2, {2, 3}}, {{1, 1}}, false, false}, /* an overlap */
        {{1, {4}}, {{2}}, false, false},       /* a gap from the first element on */
        {{1, {4}}, {{0}}, false, false},       /* broadcast */
        {{1, {4}}, {{-1}}, false, false},
        {{3, {2, 1, 3}}, {{3, 99, 1}}, true, true}, /* extent 1: any stride */
        {{2, {1, 1}}, {{5, -7}}, true, true},
        {{3, {2, 1, 3}}, {{1, 0, 2}}, false, true},
        {{2, {0, 3}}, {{99, 99}}, true, true}, /* empty: any strides */
        {{3, {4, 0, 4}}, {{0, 0, 0}}, true, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (st_shape_is_row_major(&cases[i].shape, &cases[i].strides) != cases[i].row_major ||
            st_shape_is_dense(&cases[i].shape, &cases[i].strides) != cases[i].dense) {
            fail_msg("case %zu", i);
        }
    }
}

static void row_major_strides_are_row_major_and_dense(void **state)
{
    (void)state;
    static const struct {
        struct st_shape shape;
        struct st_strides strides;
    } cases[] = {
        {{0, {0}}, {{0}}},
        {{1, {5}}, {{1}}},
        {{3, {2, 3, 4}}, {{12, 4, 1}}},
        {{3, {2, 1, 4}}, {{4, 4, 1}}},
        {{3, {2, 0, 4}}, {{4, 4, 1}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct st_strides strides = {{0}};
        st_shape_row_major(&cases[i].shape, &strides);
        assert_true(st_strides_equal(&cases[i].shape, &strides, &cases[i].strides));
        assert_true(st_shape_is_row_major(&cases[i].shape, &strides));
        assert_true(st_shape_is_dense(&cases[i].shape, &strides));
    }
}

/** Strides of @p shape when the dimensions lie in memory in the order @p order, outermost first. */
static struct st_strides permuted_strides(const struct st_shape *shape, const unsigned *order)
{
    struct st_strides strides = {{0}};
    int64_t stride = 1;
    for (unsigned i = shape->rank; i-- > 0;) {
        strides.dims[order[i]] = stride;
        stride *= shape->dims[order[i]];
    }
    return strides;
}

static void every_permutation_is_dense_and_its_offsets_hit_each_element_once(void **state)
{
    (void)state;
    static const struct st_shape shape = {4, {2, 3, 1, 5}};
    unsigned permutations = 0;
    for (unsigned code = 0; code < 256; code++) {
        unsigned order[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3};
        unsigned used = 1u << order[0] | 1u << order[1] | 1u << order[2] | 1u << order[3];
        if (used != 15) {
            continue;
        }
        permutations++;
        struct st_strides strides = permuted_strides(&shape, order);
        assert_true(st_shape_is_dense(&shape, &strides));
        unsigned char seen[30] = {0};
        for (uint64_t index = 0; index < 30; index++) {
            uint64_t offset = st_shape_offset(&shape, &strides, index);
            assert_true(offset < 30 && !seen[offset]);
            seen[offset] = 1;
        }
    }
    assert_int_equal(permutations, 24);
}

static void offsets_follow_the_strides(void **state)
{
    (void)state;
    static const struct st_shape shape = {2, {2, 3}};
    static const struct st_strides row = {{3, 1}};
    static const struct st_strides column = {{1, 2}};
    static const uint64_t by_column[6] = {0, 2, 4, 1, 3, 5};
    for (uint64_t index = 0; index < 6; index++) {
        assert_int_equal(st_shape_offset(&shape, &row, index), index);
        assert_int_equal(st_shape_offset(&shape, &column, index), by_column[index]);
    }
    static const struct st_shape scalar = {0, {0}};
    assert_int_equal(st_shape_offset(&scalar, &row, 0), 0);
}

static void equality_sees_only_the_dimensions_in_use(void **state)
{
    (void)state;
    static const struct st_shape a = {2, {2, 3, 9}};
    static const struct st_shape same = {2, {2, 3, 8}};
    static const struct st_shape longer = {3, {2, 3, 9}};
    static const struct st_shape other = {2, {2, 4}};
    assert_true(st_shape_equal(&a, &same));
    assert_false(st_shape_equal(&a, &longer));
    assert_false(st_shape_equal(&a, &other));
    static const struct st_strides s = {{3, 1, 7}};
    static const struct st_strides t = {{3, 1, 6}};
    assert_true(st_strides_equal(&a, &s, &t));
    assert_false(st_strides_equal(&longer, &s, &t));
}

static void shapes_print_as_lists(void **state)
{
    (void)state;
    char buffer[200];
    static const struct st_shape scalar = {0, {0}};
    static const struct st_shape matrix = {2, {2, 3}};
    struct st_shape widest = {.rank = 8};
    for (int i = 0; i < 8; i++) {
        widest.dims[i] = INT64_MIN;
    }
    assert_string_equal(st_shape_format(&scalar, buffer), "[]");
    assert_string_equal(st_shape_format(&matrix, buffer), "[2, 3]");
    assert_int_equal(strlen(st_shape_format(&widest, buffer)), 8 * 20 + 7 * 2 + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_measured_and_checked),
        cmocka_unit_test(strides_are_classified),
        cmocka_unit_test(row_major_strides_are_row_major_and_dense),
        cmocka_unit_test(every_permutation_is_dense_and_its_offsets_hit_each_element_once),
        cmocka_unit_test(offsets_follow_the_strides),
        cmocka_unit_test(equality_sees_only_the_dimensions_in_use),
        cmocka_unit_test(shapes_print_as_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
