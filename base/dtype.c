#include "base/dtype.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static const struct st_dtype_info dtype_table[] = {
#define X(name, ...) [ST_DTYPE_##name] = {__VA_ARGS__},
    ST_DTYPES(X)
#undef X
};

/**
 * A binary floating-point format. Sources: IEEE 754-2019 for the wide ones; the OCP 8-bit floating
 * point specification 1.0 for the FP8 ones, where e4m3fn gives the codes of infinity to finite
 * values.
 */
struct float_format {
    uint8_t mantissa_bits;
    int16_t bias;
    uint64_t sign;       /**< The sign bit. */
    uint64_t max_finite; /**< Code of the largest finite value. */
    uint64_t infinity;   /**< Code, or 0 when the format has none. */
    uint64_t nan;        /**< The quiet NaN that is written. */
};

#define FORMAT_ST_KIND_BOOL(bits, mantissa, specials)                                              \
    {                                                                                              \
        0                                                                                          \
    }
#define FORMAT_ST_KIND_UNSIGNED FORMAT_ST_KIND_BOOL
#define FORMAT_ST_KIND_SIGNED FORMAT_ST_KIND_BOOL
#define FORMAT_ST_KIND_FLOAT(bits, mantissa, specials)                                             \
    {                                                                                              \
        mantissa, ST_FLOAT_BIAS(bits, mantissa), ST_FLOAT_SIGN(bits),                              \
            ST_FLOAT_LAST(bits, mantissa, specials) - ((specials) == ST_FLOAT_IEEE),               \
            (specials) == ST_FLOAT_IEEE ? ST_FLOAT_INFINITY(bits, mantissa) : 0,                   \
            ST_FLOAT_NAN(bits, mantissa, specials),                                                \
    }

static const struct float_format float_formats[] = {
#define X(name, text, bytes, kind, mantissa, specials, ...)                                        \
    [ST_DTYPE_##name] = FORMAT_##kind(8 * (bytes), mantissa, specials),
    ST_DTYPES(X)
#undef X
};

const struct st_dtype_info *st_dtype_info(enum st_dtype dtype)
{
    return &dtype_table[dtype];
}

bool st_dtype_parse(const char *name, enum st_dtype *ret_dtype)
{
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        if (strcmp(dtype_table[dtype].name, name) == 0) {
            *ret_dtype = (enum st_dtype)dtype;
            return true;
        }
    }
    return false;
}

static uint64_t low_bits(unsigned count)
{
    return (1ull << count) - 1;
}

/** significand >> shift, to nearest, ties to even; any shift of 1 and more. */
static uint64_t shift_right_rounded(uint64_t significand, unsigned shift)
{
    if (shift > 64) {
        return 0; /* less than half of the last place */
    }
    uint64_t kept = shift == 64 ? 0 : significand >> shift;
    uint64_t dropped = shift == 64 ? significand : significand & low_bits(shift);
    uint64_t half = 1ull << (shift - 1);
    bool up = dropped > half || (dropped == half && (kept & 1));
    return kept + up;
}

/**
 * Code of significand * 2^exponent, rounded once.
 * @param significand > 0. @return false when the result is above the largest finite value.
 */
static bool float_encode(const struct float_format *format, uint64_t significand, int exponent,
                         uint64_t *ret_code)
{
    int lead = __builtin_clzll(significand);
    significand <<= lead;
    int biased = exponent - lead + 63 + format->bias; /* of the leading bit */
    unsigned shift = 63u - format->mantissa_bits;
    if (biased < 1) { /* subnormal: the leading bit is stored, further to the right */
        shift += (unsigned)(1 - biased);
        biased = 1;
    }
    /* The leading bit adds 1 to the exponent field, and a carry out of the mantissa does so again.
     */
    uint64_t code =
        ((uint64_t)(biased - 1) << format->mantissa_bits) + shift_right_rounded(significand, shift);
    if (code > format->max_finite) {
        return false;
    }
    *ret_code = code;
    return true;
}

bool st_dtype_from_double(enum st_dtype dtype, double value, union st_scalar *ret_scalar)
{
    const struct float_format *format = &float_formats[dtype];
    if (dtype_table[dtype].kind != ST_KIND_FLOAT) {
        return false;
    }
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint64_t sign = bits >> 63 ? format->sign : 0;
    unsigned exponent = (unsigned)(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & low_bits(52);
    uint64_t code = 0;
    if (exponent == 0x7ff && mantissa) {
        ret_scalar->bits = format->nan;
        return true;
    }
    if (exponent == 0x7ff) {
        if (!format->infinity) {
            return false;
        }
        code = format->infinity;
    } else if (exponent || mantissa) {
        uint64_t significand = exponent ? mantissa | (1ull << 52) : mantissa;
        int power = (int)(exponent ? exponent : 1) - 1023 - 52;
        if (!float_encode(format, significand, power, &code)) {
            return false;
        }
    }
    ret_scalar->bits = sign | code;
    return true;
}

/** Bits of an integer given as sign and magnitude. */
static bool scalar_from_integer(enum st_dtype dtype, bool negative, uint64_t magnitude,
                                union st_scalar *ret_scalar)
{
    const struct st_dtype_info *info = &dtype_table[dtype];
    unsigned width = info->size_bytes * 8;
    uint64_t limit = width == 64 ? UINT64_MAX : low_bits(width);
    if (info->kind == ST_KIND_FLOAT) {
        uint64_t code = 0;
        if (magnitude && !float_encode(&float_formats[dtype], magnitude, 0, &code)) {
            return false;
        }
        ret_scalar->bits = negative ? code | float_formats[dtype].sign : code;
        return true;
    }
    uint64_t largest = limit;
    if (info->kind == ST_KIND_BOOL) {
        largest = 1;
    } else if (info->kind == ST_KIND_SIGNED) {
        largest = (limit >> 1) + negative;
    }
    if (magnitude > largest || (negative && info->kind != ST_KIND_SIGNED)) {
        return false;
    }
    ret_scalar->bits = (negative ? 0 - magnitude : magnitude) & limit;
    return true;
}

bool st_dtype_from_int64(enum st_dtype dtype, int64_t value, union st_scalar *ret_scalar)
{
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    return scalar_from_integer(dtype, value < 0, magnitude, ret_scalar);
}

bool st_dtype_from_uint64(enum st_dtype dtype, uint64_t value, union st_scalar *ret_scalar)
{
    return scalar_from_integer(dtype, false, value, ret_scalar);
}

static double double_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

double st_dtype_to_double(enum st_dtype dtype, union st_scalar scalar)
{
    assert(dtype_table[dtype].kind == ST_KIND_FLOAT);
    const struct float_format *format = &float_formats[dtype];
    uint64_t sign = scalar.bits & format->sign ? 1ull << 63 : 0;
    uint64_t code = scalar.bits & (format->sign - 1);
    if (format->infinity && code == format->infinity) {
        return double_from_bits(sign | float_formats[ST_DTYPE_FLOAT64].infinity);
    }
    if (code > format->max_finite) {
        return double_from_bits(sign | float_formats[ST_DTYPE_FLOAT64].nan);
    }
    if (code == 0) {
        return double_from_bits(sign);
    }
    unsigned exponent = (unsigned)(code >> format->mantissa_bits);
    uint64_t significand = code & low_bits(format->mantissa_bits);
    if (exponent) {
        significand |= 1ull << format->mantissa_bits;
    }
    int power = (int)(exponent ? exponent : 1) - format->bias - format->mantissa_bits;
    uint64_t result = 0;
    /* A double holds every value of every format, so nothing is rounded here. */
    bool fits = float_encode(&float_formats[ST_DTYPE_FLOAT64], significand, power, &result);
    assert(fits);
    (void)fits;
    return double_from_bits(sign | result);
}

int64_t st_dtype_to_int64(enum st_dtype dtype, union st_scalar scalar)
{
    const struct st_dtype_info *info = &dtype_table[dtype];
    assert(info->kind != ST_KIND_FLOAT);
    unsigned unused = 64 - info->size_bytes * 8;
    uint64_t bits = scalar.bits << unused;
    if (info->kind == ST_KIND_BOOL) {
        return bits != 0;
    }
    return info->kind == ST_KIND_SIGNED ? (int64_t)bits >> unused : (int64_t)(bits >> unused);
}
