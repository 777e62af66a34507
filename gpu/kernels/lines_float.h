#ifndef SYMTENSOR_GPU_KERNELS_LINES_FLOAT_H
#define SYMTENSOR_GPU_KERNELS_LINES_FLOAT_H

#include "base/dtype.h"
#include "gpu/kernels/lines_vector.h"

/**
 * Elements of the float dtypes to accumulators, and accumulators to codes that have the
 * accumulator's width. All follows from the row in ST_DTYPES; the branches are on constants and
 * choose the instruction that a format has. Encoding rounds to nearest even and writes the one
 * positive quiet NaN of base/dtype.h whatever the payload was, so that the bits do not depend on
 * the order in which a compiler puts operands.
 */

/** A format of 1 sign bit, then exponent, then mantissa. */
struct float_format {
    unsigned bits, mantissa;
    enum st_float_specials specials;
};

#define FLOAT16_FORMAT ((struct float_format){16, 10, ST_FLOAT_IEEE})

/* A value that is not equal to itself is a NaN. NOLINTBEGIN(misc-redundant-expression) */

static inline v_u32 float_select(v_s32 condition, v_u32 yes, v_u32 no)
{
    return ((v_u32)condition & yes) | (~(v_u32)condition & no);
}

/** 2^power as a float32, for powers of normal numbers. */
static inline v_f32 float_power(int power)
{
    return (v_f32)((v_u32){0} + ((uint32_t)(127 + power) << 23));
}

/* ------------------------------------------------------------------ to accumulators */

/**
 * Moving the fields into place gives the value times a power of 2, the difference of the biases;
 * the multiplication puts that right and is exact, for subnormals too.
 */
static inline v_f32 float_decode(v_u32 code, struct float_format format)
{
    uint32_t sign = (uint32_t)ST_FLOAT_SIGN(format.bits);
    uint32_t last = (uint32_t)ST_FLOAT_LAST(format.bits, format.mantissa, format.specials) -
                    (format.specials == ST_FLOAT_IEEE);
    v_u32 magnitude = code & (sign - 1);
    v_f32 moved = (v_f32)(magnitude << (23 - format.mantissa));
    v_f32 scaled = moved * float_power(127 - ST_FLOAT_BIAS(format.bits, format.mantissa));
    v_u32 special = (v_u32)(magnitude > last) & 0x7f800000u;
    return (v_f32)((v_u32)scaled | special | (code & sign) << (32 - format.bits));
}

static inline v_f32 float_load_2(v_u16_half code, struct float_format format)
{
    if (format.mantissa == 7) { /* the upper half of a float32 */
        return (v_f32)(vector_widen_16_32(code) << 16);
    }
#if LINES_VECTOR_BYTES > 16
    if (format.mantissa == 10) { /* the instruction keeps subnormals, whatever MXCSR says of them */
#if LINES_VECTOR_BYTES == 64
        return (v_f32)_mm512_cvtph_ps((__m256i)code);
#else
        return (v_f32)_mm256_cvtph_ps((__m128i)code);
#endif
    }
#endif
    return float_decode(vector_widen_16_32(code), format);
}

/** With up to 5 exponent bits, moved into a float16, the value is less by the difference of the
 * biases. */
static inline v_f32 float_load_1(v_u8_quarter part, struct float_format format)
{
    v_u16_half code = vector_widen_8_16(part);
    if (format.mantissa == 2 && format.specials == ST_FLOAT_IEEE) { /* its upper half */
        return float_load_2(code << 8, FLOAT16_FORMAT);
    }
    /* Infinity and what follows, or the one NaN: an equality is the cheaper test. */
    uint16_t last = (uint16_t)ST_FLOAT_LAST(8, format.mantissa, format.specials);
    v_u16_half magnitude = code & 0x7f;
    v_u16_half special = format.specials == ST_FLOAT_FINITE ? (v_u16_half)(magnitude == 0x7f)
                                                            : (v_u16_half)(magnitude >= last);
    special &= 0x7c00;
    v_u16_half half = (magnitude << (10 - format.mantissa)) | ((code & 0x80) << 8) | special;
    return float_load_2(half, FLOAT16_FORMAT) * float_power(15 - ST_FLOAT_BIAS(8, format.mantissa));
}

static inline v_f32 float_load_4(v_u32 code, struct float_format format)
{
    (void)format;
    return (v_f32)code;
}

static inline v_f64 float_load_8(v_u64 code, struct float_format format)
{
    (void)format;
    return (v_f64)code;
}

/* ------------------------------------------------------------------ to codes */

/**
 * Code of a value, rounded once; the code above the largest finite one when it is too large. NaN
 * gives any code.
 *
 * From the smallest normal number up: rounding in place and moving the fields; below it this wraps
 * to something huge. Below the smallest normal number: adding a number whose last place is the
 * format's smallest one lets the addition round; above it this is no smaller than the first. So
 * the right one is always the smaller.
 */
static inline v_u32 float_encode(v_f32 value, struct float_format format)
{
    uint32_t bias = (uint32_t)ST_FLOAT_BIAS(format.bits, format.mantissa);
    unsigned drop = 23 - format.mantissa;
    /* What the code above the largest finite one would stand for, as a float32. */
    uint32_t overflow = (127 + bias + 1) << 23;
    if (format.specials == ST_FLOAT_FINITE) {
        overflow += ((1u << format.mantissa) - 1) << drop;
    }
    v_u32 bits = (v_u32)value;
    v_u32 magnitude = vector_min_u32(bits & 0x7fffffffu, (v_u32){0} + overflow);
    uint32_t smallest = (127u + 1 - bias) << 23; /* the smallest normal number */
    v_u32 odd = (magnitude >> drop) & 1;
    v_u32 above = magnitude + (((1u << (drop - 1)) - 1) - smallest) + odd;
    v_u32 normal = (above >> drop) + (1u << format.mantissa);
    v_u32 last_place = (v_u32){0} + (smallest + (drop << 23));
    v_u32 small = (v_u32)((v_f32)magnitude + (v_f32)last_place) - last_place;
    v_u32 sign = (bits >> (32 - format.bits)) & (1u << (format.bits - 1));
    return vector_min_u32(normal, small) | sign;
}

/** @p code where the value is a number, else the NaN. */
static inline v_u32 float_finish(v_f32 value, v_u32 code, struct float_format format)
{
    uint32_t nan = (uint32_t)ST_FLOAT_NAN(format.bits, format.mantissa, format.specials);
    if (format.specials == ST_FLOAT_FINITE) {
        /* The code above the largest finite one is NaN, and a NaN's magnitude becomes one by
         * itself. */
        v_u32 magnitude = code & (uint32_t)(ST_FLOAT_SIGN(format.bits) - 1);
        return float_select((v_s32)(magnitude == nan), (v_u32){0} + nan, code);
    }
    return float_select(value == value, code, (v_u32){0} + nan);
}

static inline v_u32 float_code_1(v_f32 value, struct float_format format)
{
    return float_finish(value, float_encode(value, format), format);
}

static inline v_u32 float_code_2(v_f32 value, struct float_format format)
{
    v_u32 bits = (v_u32)value;
    if (format.mantissa == 7) {
        return float_finish(value, (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16, format);
    }
#if LINES_VECTOR_BYTES > 16
    if (format.mantissa == 10) {
#if LINES_VECTOR_BYTES == 64
        v_u16_half half = (v_u16_half)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
#else
        v_u16_half half = (v_u16_half)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
#endif
        return float_finish(value, vector_widen_16_32(half), format);
    }
#endif
    return float_finish(value, float_encode(value, format), format);
}

static inline v_u32 float_code_4(v_f32 value, struct float_format format)
{
    return float_finish(value, (v_u32)value, format);
}

static inline v_u64 float_code_8(v_f64 value, struct float_format format)
{
    v_u64 number = (v_u64)(value == value);
    return ((v_u64)value & number) | (~number & ST_FLOAT_NAN(64, format.mantissa, format.specials));
}

/* NOLINTEND(misc-redundant-expression) */

#endif
