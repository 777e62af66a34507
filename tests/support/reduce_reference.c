#include "tests/support/reduce_reference.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ------------------------------------------------------------------ elements */

uint64_t test_element_bits(enum st_dtype dtype, const void *array, uint64_t index)
{
    uint32_t size = st_dtype_info(dtype)->size_bytes;
    uint64_t bits = 0;
    memcpy(&bits, (const char *)array + index * size, size);
    return bits;
}

static void element_write(enum st_dtype dtype, void *array, uint64_t index, uint64_t bits)
{
    uint32_t size = st_dtype_info(dtype)->size_bytes;
    memcpy((char *)array + index * size, &bits, size);
}

/* ------------------------------------------------------------------ floats */

static bool is_negative(double value)
{
    return signbit(value) != 0;
}

/** The one of two values that min (or max) keeps. */
static double keep_extreme(double a, double b, bool max)
{
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    if (a == 0 && b == 0) {
        return is_negative(a) == max ? b : a;
    }
    return (a > b) == max ? a : b;
}

static float fold_float32(enum st_reduce_op op, float a, float b)
{
    switch (op) {
    case ST_OP_PROD:
        return a * b;
    case ST_OP_MIN:
    case ST_OP_MAX:
        return (float)keep_extreme(a, b, op == ST_OP_MAX);
    default:
        return a + b;
    }
}

static double fold_float64(enum st_reduce_op op, double a, double b)
{
    switch (op) {
    case ST_OP_PROD:
        return a * b;
    case ST_OP_MIN:
    case ST_OP_MAX:
        return keep_extreme(a, b, op == ST_OP_MAX);
    default:
        return a + b;
    }
}

static uint64_t round_to_bits(enum st_dtype dtype, double value)
{
    union st_scalar scalar = {0};
    if (st_dtype_from_double(dtype, value, &scalar)) {
        return scalar.bits;
    }
    double overflow = value < 0 ? -INFINITY : INFINITY;
    if (!st_dtype_from_double(dtype, overflow, &scalar)) {
        (void)st_dtype_from_double(dtype, NAN, &scalar); /* no infinity in this dtype */
    }
    return scalar.bits;
}

static double value_of(enum st_dtype dtype, const void *source, uint64_t index)
{
    union st_scalar scalar = {.bits = test_element_bits(dtype, source, index)};
    return st_dtype_to_double(dtype, scalar);
}

static uint64_t reduce_float(enum st_dtype dtype, enum st_reduce_op op, const void *const *sources,
                             uint32_t source_count, uint64_t index)
{
    double wide = value_of(dtype, sources[0], index);
    float narrow = (float)wide;
    for (uint32_t i = 1; i < source_count; i++) {
        double next = value_of(dtype, sources[i], index);
        wide = fold_float64(op, wide, next);
        narrow = fold_float32(op, narrow, (float)next);
    }
    if (op == ST_OP_AVG) {
        wide = wide / source_count;
        narrow = narrow / (float)source_count;
    }
    return round_to_bits(dtype, dtype == ST_DTYPE_FLOAT64 ? wide : (double)narrow);
}

/* ------------------------------------------------------------------ integers and bool */

static int64_t signed_of(enum st_dtype dtype, uint64_t bits)
{
    unsigned unused = 64 - 8 * st_dtype_info(dtype)->size_bytes;
    return (int64_t)(bits << unused) >> unused;
}

static bool integer_less(enum st_dtype dtype, uint64_t a, uint64_t b)
{
    if (st_dtype_info(dtype)->kind == ST_KIND_SIGNED) {
        return signed_of(dtype, a) < signed_of(dtype, b);
    }
    return a < b;
}

static uint64_t fold_integer(enum st_dtype dtype, enum st_reduce_op op, uint64_t a, uint64_t b)
{
    switch (op) {
    case ST_OP_PROD:
        return a * b;
    case ST_OP_MIN:
        return integer_less(dtype, b, a) ? b : a;
    case ST_OP_MAX:
        return integer_less(dtype, a, b) ? b : a;
    case ST_OP_BAND:
        return a & b;
    case ST_OP_BOR:
        return a | b;
    case ST_OP_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static uint64_t reduce_average(enum st_dtype dtype, const void *const *sources,
                               uint32_t source_count, uint64_t index)
{
    bool is_signed = st_dtype_info(dtype)->kind == ST_KIND_SIGNED;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < source_count; i++) {
        uint64_t bits = test_element_bits(dtype, sources[i], index);
        sum += is_signed ? (uint64_t)signed_of(dtype, bits) : bits;
    }
    return is_signed ? (uint64_t)((int64_t)sum / (int64_t)source_count) : sum / source_count;
}

static uint64_t reduce_integer(enum st_dtype dtype, enum st_reduce_op op,
                               const void *const *sources, uint32_t source_count, uint64_t index)
{
    if (op == ST_OP_AVG) {
        return reduce_average(dtype, sources, source_count, index);
    }
    unsigned unused = 64 - 8 * st_dtype_info(dtype)->size_bytes;
    uint64_t acc = test_element_bits(dtype, sources[0], index);
    for (uint32_t i = 1; i < source_count; i++) {
        acc = fold_integer(dtype, op, acc, test_element_bits(dtype, sources[i], index));
        acc = acc << unused >> unused;
    }
    return acc;
}

static uint64_t reduce_bool(enum st_reduce_op op, const void *const *sources, uint32_t source_count,
                            uint64_t index)
{
    uint32_t true_count = 0;
    for (uint32_t i = 0; i < source_count; i++) {
        true_count += test_element_bits(ST_DTYPE_BOOL, sources[i], index) != 0;
    }
    bool all = op == ST_OP_LAND || op == ST_OP_MIN;
    return all ? true_count == source_count : true_count > 0;
}

void test_reduce(enum st_dtype dtype, enum st_reduce_op op, const void *const *sources,
                 uint32_t source_count, uint64_t count, void *ret)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits;
        if (st_dtype_info(dtype)->kind == ST_KIND_FLOAT) {
            bits = reduce_float(dtype, op, sources, source_count, i);
        } else if (st_dtype_info(dtype)->kind == ST_KIND_BOOL) {
            bits = reduce_bool(op, sources, source_count, i);
        } else {
            bits = reduce_integer(dtype, op, sources, source_count, i);
        }
        element_write(dtype, ret, i, bits);
    }
}

/* ------------------------------------------------------------------ provoking elements */

uint64_t test_random(uint64_t *state)
{
    /* splitmix64: Steele, Lea, Flood 2014 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t special_float(enum st_dtype dtype, uint64_t choice)
{
    static const double values[] = {0,     -0.0,  1,       -1,      INFINITY, -INFINITY,
                                    NAN,   1e30,  0x1p-30, 448,     464,      57344,
                                    61440, 65504, 65520,   0x1p-24, 0x1p-25,  3.4e38};
    size_t count = sizeof(values) / sizeof(values[0]);
    uint64_t bits = round_to_bits(dtype, values[choice % count]);
    /* Beside them: the next code is a subnormal, an infinity, a signalling NaN, ... */
    return choice / count % 3 == 0 ? bits ^ 1 : bits;
}

static uint64_t special_integer(enum st_dtype dtype, uint64_t choice)
{
    uint64_t top = 1ull << (8 * st_dtype_info(dtype)->size_bytes - 1);
    const uint64_t values[] = {0, 1, 2, UINT64_MAX, top, top - 1, top + 1, top / 2};
    return values[choice % (sizeof(values) / sizeof(values[0]))];
}

static uint64_t small_number(enum st_dtype dtype, uint64_t random)
{
    int64_t number = (int64_t)(random % 15) - 7;
    if (st_dtype_info(dtype)->kind == ST_KIND_FLOAT) {
        return round_to_bits(dtype, (double)number * 0.375);
    }
    return (uint64_t)number;
}

void test_random_elements(enum st_dtype dtype, uint64_t seed, uint64_t count, void *ret)
{
    uint64_t state = seed;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = test_random(&state);
        uint64_t choice = random >> 8;
        uint64_t bits = choice;
        if (random % 8 >= 5) {
            bits = small_number(dtype, choice);
        } else if (random % 8 >= 3) {
            bits = st_dtype_info(dtype)->kind == ST_KIND_FLOAT ? special_float(dtype, choice)
                                                               : special_integer(dtype, choice);
        }
        element_write(dtype, ret, i, bits);
    }
}
