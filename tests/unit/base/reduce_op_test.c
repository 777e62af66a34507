#include "tests/support/leak_check.h"

#include "base/reduce_op.h"

static void names_parse_back(void **state)
{
    (void)state;
    enum st_reduce_op parsed;
    for (unsigned op = 0; op < ST_OP_COUNT; op++) {
        assert_true(st_reduce_op_parse(st_reduce_op_info((enum st_reduce_op)op)->name, &parsed));
        assert_int_equal(parsed, op);
    }
    assert_false(st_reduce_op_parse("", &parsed));
    assert_false(st_reduce_op_parse("Sum", &parsed));
}

static void ops_are_defined_by_kind(void **state)
{
    (void)state;
    static const struct {
        enum st_reduce_op op;
        bool on_bool, on_unsigned, on_signed, on_float;
    } cases[] = {
        {ST_OP_SUM, false, true, true, true},    {ST_OP_AVG, false, true, true, true},
        {ST_OP_PROD, false, true, true, true},   {ST_OP_MIN, true, true, true, true},
        {ST_OP_MAX, true, true, true, true},     {ST_OP_BAND, false, true, true, false},
        {ST_OP_BOR, false, true, true, false},   {ST_OP_BXOR, false, true, true, false},
        {ST_OP_LAND, true, false, false, false}, {ST_OP_LOR, true, false, false, false},
    };
    assert_int_equal(sizeof(cases) / sizeof(cases[0]), ST_OP_COUNT);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum st_reduce_op op = cases[i].op;
        assert_int_equal(st_reduce_op_supports(op, ST_DTYPE_BOOL), cases[i].on_bool);
        assert_int_equal(st_reduce_op_supports(op, ST_DTYPE_UINT16), cases[i].on_unsigned);
        assert_int_equal(st_reduce_op_supports(op, ST_DTYPE_INT64), cases[i].on_signed);
        assert_int_equal(st_reduce_op_supports(op, ST_DTYPE_FLOAT8_E5M2), cases[i].on_float);
    }
}

static void only_float_arithmetic_depends_on_the_order(void **state)
{
    (void)state;
    for (unsigned op = 0; op < ST_OP_COUNT; op++) {
        bool arithmetic = op == ST_OP_SUM || op == ST_OP_AVG || op == ST_OP_PROD;
        assert_int_equal(st_reduce_op_ordered((enum st_reduce_op)op, ST_DTYPE_BFLOAT16),
                         arithmetic);
        assert_false(st_reduce_op_ordered((enum st_reduce_op)op, ST_DTYPE_INT32));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_parse_back),
        cmocka_unit_test(ops_are_defined_by_kind),
        cmocka_unit_test(only_float_arithmetic_depends_on_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
