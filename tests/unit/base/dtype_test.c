#include "tests/support/leak_check.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

/* The reference knows a format only by its field widths and builds the values with ldexp(). */
struct reference {
    enum st_dtype dtype;
    int mantissa_bits;
    int bias;
    unsigned finite_codes; /* Codes 0..finite_codes-1 are the finite values from 0 upwards. */
    bool has_infinity;
    unsigned sign;
};

static const struct reference references[] = {
    {ST_DTYPE_FLOAT16, 10, 15, 0x7c00, true, 0x8000},
    {ST_DTYPE_BFLOAT16, 7, 127, 0x7f80, true, 0x8000},
    {ST_DTYPE_FLOAT8_E4M3FN, 3, 7, 0x7f, false, 0x80},
    {ST_DTYPE_FLOAT8_E5M2, 2, 15, 0x7c, true, 0x80},
};
#define REFERENCES (sizeof(references) / sizeof(references[0]))

static double reference_value(const struct reference *reference, unsigned code)
{
    int exponent = (int)(code >> reference->mantissa_bits);
    double fraction =
        ldexp((double)(code & ((1u << reference->mantissa_bits) - 1)), -reference->mantissa_bits);
    return exponent ? ldexp(1.0 + fraction, exponent - reference->bias)
                    : ldexp(fraction, 1 - reference->bias);
}

/** Nearest code by searching all values; finite_codes when it rounds past the largest. */
static unsigned reference_nearest(const struct reference *reference, long double value)
{
    unsigned low = 0;
    unsigned high = reference->finite_codes; /* one step past the largest finite value */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if ((long double)reference_value(reference, middle) <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    long double below = value - (long double)reference_value(reference, low);
    long double above = (long double)reference_value(reference, high) - value;
    if (below == above) {
        return low & 1 ? high : low;
    }
    return below < above ? low : high;
}

static void check_rounding(const struct reference *reference, double value)
{
    unsigned expected = reference_nearest(reference, (long double)value);
    for (int negative = 0; negative < 2; negative++) {
        union st_scalar scalar = {.bits = 0};
        bool fits = st_dtype_from_double(reference->dtype, negative ? -value : value, &scalar);
        if (fits != (expected < reference->finite_codes) ||
            (fits && scalar.bits != (expected | (negative ? reference->sign : 0)))) {
            fail_msg("%s of %a: fits %d, code 0x%llx, expected 0x%x",
                     st_dtype_info(reference->dtype)->name, value, fits,
                     (unsigned long long)scalar.bits, expected);
        }
    }
}

static void every_code_of_a_small_float_has_the_value_of_its_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < REFERENCES; i++) {
        const struct reference *reference = &references[i];
        for (unsigned code = 0; code < reference->sign; code++) {
            double plus = st_dtype_to_double(reference->dtype, (union st_scalar){.bits = code});
            double minus = st_dtype_to_double(reference->dtype,
                                              (union st_scalar){.bits = code | reference->sign});
            assert_true(signbit(plus) == 0 && signbit(minus) != 0);
            if (code < reference->finite_codes) {
                assert_true(plus == reference_value(reference, code));
                assert_true(minus == -plus);
            } else if (code == reference->finite_codes && reference->has_infinity) {
                assert_true(isinf(plus) && isinf(minus));
            } else {
                assert_true(isnan(plus) && isnan(minus));
            }
        }
    }
}

static void every_code_of_a_small_float_survives_a_round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < REFERENCES; i++) {
        const struct reference *reference = &references[i];
        for (unsigned code = 0; code < 2 * reference->sign; code++) {
            union st_scalar in = {.bits = code};
            union st_scalar out = {.bits = 0};
            double value = st_dtype_to_double(reference->dtype, in);
            assert_true(st_dtype_from_double(reference->dtype, value, &out));
            if (isnan(value)) {
                assert_true(isnan(st_dtype_to_double(reference->dtype, out)));
            } else {
                assert_int_equal(out.bits, code);
            }
        }
    }
}

static void doubles_round_to_the_nearest_small_float_and_ties_to_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < REFERENCES; i++) {
        const struct reference *reference = &references[i];
        for (unsigned code = 0; code < reference->finite_codes; code++) {
            double here = reference_value(reference, code);
            double tie = (here + reference_value(reference, code + 1)) / 2;
            check_rounding(reference, here);
            check_rounding(reference, tie);
            check_rounding(reference, nextafter(tie, 0));
            check_rounding(reference, nextafter(tie, INFINITY));
            check_rounding(reference, nextafter(here, INFINITY));
        }
        check_rounding(reference, 5e-324); /* the smallest double */
        check_rounding(reference, 1.7e308);
    }
}

static void random_doubles_round_like_the_reference(void **state)
{
    (void)state;
    srand48(1);
    for (size_t i = 0; i < REFERENCES; i++) {
        for (int n = 0; n < 20000; n++) {
            check_rounding(&references[i], ldexp(1 + drand48(), (int)(lrand48() % 300) - 150));
        }
    }
}

static void a_double_is_rounded_once_and_not_by_way_of_float32(void **state)
{
    (void)state;
    /* 1 + 2^-11 is halfway between two float16; the last bit decides and a float32 loses it. */
    static const struct {
        double value;
        unsigned code;
    } cases[] = {{1 + 0x1p-11, 0x3c00},
                 {1 + 0x1p-11 + 0x1p-40, 0x3c01},
                 {1 + 0x3p-11, 0x3c02},
                 {1 + 0x3p-11 - 0x1p-40, 0x3c01}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        union st_scalar scalar;
        assert_true(st_dtype_from_double(ST_DTYPE_FLOAT16, cases[i].value, &scalar));
        assert_int_equal(scalar.bits, cases[i].code);
    }
}

/** The compiler's own conversion is correctly rounded: an independent reference for float32. */
static void check_float32(double value)
{
    float expected = (float)value;
    union st_scalar scalar = {.bits = 0};
    bool fits = st_dtype_from_double(ST_DTYPE_FLOAT32, value, &scalar);
    assert_int_equal(fits, isinf(value) || !isinf(expected));
    if (fits) {
        uint32_t bits;
        memcpy(&bits, &expected, sizeof(bits));
        assert_int_equal(scalar.bits, bits);
        assert_true(st_dtype_to_double(ST_DTYPE_FLOAT32, scalar) == (double)expected);
    }
}

static void float32_rounds_like_the_hardware(void **state)
{
    (void)state;
    srand48(2);
    static const double cases[] = {0.0,
                                   -0.0,
                                   1.0,
                                   0x1p-149,
                                   0x1p-150,
                                   0x1.8p-150,
                                   0x1.8p-149,
                                   0x1p-126,
                                   0x1.fffffcp-127,
                                   INFINITY,
                                   0x1.fffffep127,
                                   0x1.fffffefffffffp127,
                                   0x1.ffffffp127,
                                   1e300};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_float32(cases[i]);
        check_float32(-cases[i]);
    }
    for (int n = 0; n < 300000; n++) {
        check_float32(ldexp(1 + drand48(), (int)(lrand48() % 300) - 155));
    }
}

static void float64_keeps_every_bit(void **state)
{
    (void)state;
    srand48(3);
    for (int n = 0; n < 300000; n++) {
        uint64_t bits = ((uint64_t)mrand48() << 32) ^ (uint64_t)(uint32_t)mrand48();
        bits &= n % 3 ? ~0ull : ~(0x7ffull << 52); /* every third is subnormal */
        double value;
        memcpy(&value, &bits, sizeof(value));
        union st_scalar scalar;
        assert_true(st_dtype_from_double(ST_DTYPE_FLOAT64, value, &scalar));
        if (!isnan(value)) {
            assert_true(scalar.bits == bits);
            assert_true(st_dtype_to_double(ST_DTYPE_FLOAT64, scalar) == value);
        }
    }
}

static void nan_is_quiet_and_infinity_fits_where_it_exists(void **state)
{
    (void)state;
    static const struct {
        enum st_dtype dtype;
        uint64_t nan, infinity; /* infinity 0: there is none */
    } cases[] = {
        {ST_DTYPE_FLOAT16, 0x7e00, 0x7c00},
        {ST_DTYPE_BFLOAT16, 0x7fc0, 0x7f80},
        {ST_DTYPE_FLOAT32, 0x7fc00000, 0x7f800000},
        {ST_DTYPE_FLOAT64, 0x7ff8000000000000ull, 0x7ff0000000000000ull},
        {ST_DTYPE_FLOAT8_E4M3FN, 0x7f, 0},
        {ST_DTYPE_FLOAT8_E5M2, 0x7e, 0x7c},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        union st_scalar scalar;
        assert_true(st_dtype_from_double(cases[i].dtype, NAN, &scalar));
        assert_true(scalar.bits == cases[i].nan);
        bool fits = st_dtype_from_double(cases[i].dtype, INFINITY, &scalar);
        assert_int_equal(fits, cases[i].infinity != 0);
        assert_true(!fits || scalar.bits == cases[i].infinity);
        fits = st_dtype_from_double(cases[i].dtype, -INFINITY, &scalar);
        unsigned top = st_dtype_info(cases[i].dtype)->size_bytes * 8 - 1;
        assert_true(!fits || scalar.bits == (cases[i].infinity | 1ull << top));
    }
}

static void a_double_is_refused_by_integer_dtypes(void **state)
{
    (void)state;
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        union st_scalar scalar;
        assert_int_equal(st_dtype_from_double((enum st_dtype)dtype, 1.0, &scalar),
                         st_dtype_info((enum st_dtype)dtype)->kind == ST_KIND_FLOAT);
    }
}

static void integers_fit_exactly_or_not_at_all(void **state)
{
    (void)state;
    static const struct {
        enum st_dtype dtype;
        int64_t lowest;
        uint64_t highest;
    } cases[] = {
        {ST_DTYPE_BOOL, 0, 1},
        {ST_DTYPE_UINT8, 0, UINT8_MAX},
        {ST_DTYPE_INT8, INT8_MIN, INT8_MAX},
        {ST_DTYPE_INT16, INT16_MIN, INT16_MAX},
        {ST_DTYPE_UINT16, 0, UINT16_MAX},
        {ST_DTYPE_INT32, INT32_MIN, INT32_MAX},
        {ST_DTYPE_UINT32, 0, UINT32_MAX},
        {ST_DTYPE_INT64, INT64_MIN, INT64_MAX},
        {ST_DTYPE_UINT64, 0, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum st_dtype dtype = cases[i].dtype;
        union st_scalar scalar;
        assert_true(st_dtype_from_uint64(dtype, cases[i].highest, &scalar));
        assert_true((uint64_t)st_dtype_to_int64(dtype, scalar) == cases[i].highest);
        assert_true(st_dtype_from_int64(dtype, cases[i].lowest, &scalar));
        assert_true(st_dtype_to_int64(dtype, scalar) == cases[i].lowest);
        if (cases[i].highest < UINT64_MAX) {
            assert_false(st_dtype_from_uint64(dtype, cases[i].highest + 1, &scalar));
        }
        if (cases[i].lowest > INT64_MIN) {
            assert_false(st_dtype_from_int64(dtype, cases[i].lowest - 1, &scalar));
        }
    }
}

static void every_code_of_a_small_integer_survives_a_round_trip(void **state)
{
    (void)state;
    static const enum st_dtype dtypes[] = {ST_DTYPE_UINT8, ST_DTYPE_INT8, ST_DTYPE_INT16,
                                           ST_DTYPE_UINT16};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        for (uint64_t code = 0; code < 1ull << st_dtype_info(dtypes[i])->dlpack_bits; code++) {
            union st_scalar out;
            int64_t value = st_dtype_to_int64(dtypes[i], (union st_scalar){.bits = code});
            assert_true(st_dtype_from_int64(dtypes[i], value, &out));
            assert_true(out.bits == code);
        }
    }
}

/** Wide floats against the compiler's conversion, small ones against the search. */
static void check_integer_rounding(uint64_t value)
{
    union st_scalar scalar;
    float as_float = (float)value;
    double as_double = (double)value;
    uint32_t float_bits;
    uint64_t double_bits;
    memcpy(&float_bits, &as_float, sizeof(float_bits));
    memcpy(&double_bits, &as_double, sizeof(double_bits));
    assert_true(st_dtype_from_uint64(ST_DTYPE_FLOAT32, value, &scalar));
    assert_true(scalar.bits == float_bits);
    assert_true(st_dtype_from_uint64(ST_DTYPE_FLOAT64, value, &scalar));
    assert_true(scalar.bits == double_bits);
    for (size_t i = 0; i < REFERENCES; i++) {
        unsigned expected = reference_nearest(&references[i], (long double)value);
        bool fits = st_dtype_from_uint64(references[i].dtype, value, &scalar);
        assert_int_equal(fits, expected < references[i].finite_codes);
        assert_true(!fits || scalar.bits == expected);
    }
}

static void integers_are_rounded_once_to_floats(void **state)
{
    (void)state;
    srand48(4);
    for (uint64_t value = 0; value < 70000; value++) {
        check_integer_rounding(value);
    }
    for (int n = 0; n < 50000; n++) {
        uint64_t value = ((uint64_t)mrand48() << 32) ^ (uint64_t)(uint32_t)mrand48();
        check_integer_rounding(value >> (lrand48() % 64));
    }
    static const uint64_t ties[] = {(1ull << 53) + 1,
                                    (1ull << 53) + 3,
                                    UINT64_MAX,
                                    (1ull << 63) + (1ull << 10),
                                    (1ull << 63) + (1ull << 55),
                                    (1ull << 63) + (1ull << 55) + 1};
    for (size_t i = 0; i < sizeof(ties) / sizeof(ties[0]); i++) {
        check_integer_rounding(ties[i]);
    }
    union st_scalar scalar;
    assert_true(st_dtype_from_int64(ST_DTYPE_FLOAT64, INT64_MIN, &scalar));
    assert_true(st_dtype_to_double(ST_DTYPE_FLOAT64, scalar) == -0x1p63);
    assert_true(st_dtype_from_int64(ST_DTYPE_BFLOAT16, -1, &scalar));
    assert_int_equal(scalar.bits, 0xbf80);
}

static void the_table_is_consistent_and_names_parse_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ST_DTYPE_COUNT; i++) {
        const struct st_dtype_info *info = st_dtype_info((enum st_dtype)i);
        enum st_dtype parsed;
        assert_true(st_dtype_parse(info->name, &parsed));
        assert_int_equal(parsed, i);
        assert_int_equal(info->dlpack_bits, info->size_bytes * 8);
        assert_non_null(info->safetensors);
        assert_true(!info->npy || info->npy[2] == (char)('0' + info->size_bytes));
    }
    static const char *const strangers[] = {"", "float", "Float32", "float32 ", "complex64"};
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        enum st_dtype parsed;
        assert_false(st_dtype_parse(strangers[i], &parsed));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_of_a_small_float_has_the_value_of_its_fields),
        cmocka_unit_test(every_code_of_a_small_float_survives_a_round_trip),
        cmocka_unit_test(doubles_round_to_the_nearest_small_float_and_ties_to_even),
        cmocka_unit_test(random_doubles_round_like_the_reference),
        cmocka_unit_test(a_double_is_rounded_once_and_not_by_way_of_float32),
        cmocka_unit_test(float32_rounds_like_the_hardware),
        cmocka_unit_test(float64_keeps_every_bit),
        cmocka_unit_test(nan_is_quiet_and_infinity_fits_where_it_exists),
        cmocka_unit_test(a_double_is_refused_by_integer_dtypes),
        cmocka_unit_test(integers_fit_exactly_or_not_at_all),
        cmocka_unit_test(every_code_of_a_small_integer_survives_a_round_trip),
        cmocka_unit_test(integers_are_rounded_once_to_floats),
        cmocka_unit_test(the_table_is_consistent_and_names_parse_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
