#ifndef SYMTENSOR_GPU_KERNELS_LINES_FLOAT_H
#define SYMTENSOR_GPU_KERNELS_LINES_FLOAT_H

#include "gpu/kernels/lines_vector.h"

/**
 * decode_NAME and encode_NAME of every float dtype: elements to accumulators, and accumulators to
 * codes that have the accumulator's width. encode rounds to nearest even and writes the one
 * positive quiet NaN of base/dtype.c whatever the payload was, so that the bits do not depend on
 * the order in which a compiler puts operands. Formats: IEEE 754-2019; OCP 8-bit floating point
 * specification 1.0.
 */

/** Code, without the sign, of the last number before the NaNs begin: infinity where there is one.
 */
#define LAST_NUMBER_FLOAT16 0x7c00
#define LAST_NUMBER_BFLOAT16 0x7f80
#define LAST_NUMBER_FLOAT32 0x7f800000
#define LAST_NUMBER_FLOAT64 0x7ff0000000000000
#define LAST_NUMBER_FLOAT8_E4M3FN 0x7e
#define LAST_NUMBER_FLOAT8_E5M2 0x7c

/** Code of the NaN that is written. */
#define NAN_FLOAT16 0x7e00u
#define NAN_BFLOAT16 0x7fc0u
#define NAN_FLOAT32 0x7fc00000u
#define NAN_FLOAT64 0x7ff8000000000000u
#define NAN_FLOAT8_E4M3FN 0x7fu
#define NAN_FLOAT8_E5M2 0x7eu

/* A value that is not equal to itself is a NaN. NOLINTBEGIN(misc-redundant-expression) */

static inline v_u32 float_select(v_s32 condition, v_u32 yes, v_u32 no)
{
    return ((v_u32)condition & yes) | (~(v_u32)condition & no);
}

static inline v_f32 decode_FLOAT32(v_u32 code)
{
    return (v_f32)code;
}

static inline v_u32 encode_FLOAT32(v_f32 value)
{
    return float_select(value == value, (v_u32)value, (v_u32){0} + NAN_FLOAT32);
}

static inline v_f64 decode_FLOAT64(v_u64 code)
{
    return (v_f64)code;
}

static inline v_u64 encode_FLOAT64(v_f64 value)
{
    v_u64 number = (v_u64)(value == value);
    return ((v_u64)value & number) | (~number & NAN_FLOAT64);
}

static inline v_f32 decode_BFLOAT16(v_u16_half code)
{
    return (v_f32)(vector_widen_16_32(code) << 16);
}

static inline v_u32 encode_BFLOAT16(v_f32 value)
{
    v_u32 bits = (v_u32)value;
    v_u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return float_select(value == value, rounded, (v_u32){0} + NAN_BFLOAT16);
}

/* ------------------------------------------------------------------ float16 to float32 */

#if LINES_VECTOR_BYTES > 16

/* The instruction keeps subnormals, whatever MXCSR says of them. */
static inline v_f32 decode_FLOAT16(v_u16_half code)
{
#if LINES_VECTOR_BYTES == 64
    return (v_f32)_mm512_cvtph_ps((__m256i)code);
#else
    return (v_f32)_mm256_cvtph_ps((__m128i)code);
#endif
}

#else

/**
 * Moving the fields into place gives the value times 2^-112, the difference of the biases; the
 * multiplication puts that right and is exact, for subnormals too.
 */
static inline v_f32 decode_FLOAT16(v_u16_half part)
{
    v_u32 code = vector_widen_16_32(part);
    v_f32 scaled = (v_f32)((code & 0x7fffu) << 13) * 0x1p112f;
    v_u32 special = (v_u32)((code & 0x7fffu) >= 0x7c00u) & 0x7f800000u;
    return (v_f32)((v_u32)scaled | special | (code >> 15) << 31);
}

#endif

/* ------------------------------------------------------------------ float8 to float32 */

/** float8_e5m2 is the upper half of a float16. */
static inline v_f32 decode_FLOAT8_E5M2(v_u8_quarter code)
{
    return decode_FLOAT16(vector_widen_8_16(code) << 8);
}

/** Moved into a float16, a float8_e4m3fn is the value times 2^-8, the difference of the biases. */
static inline v_f32 decode_FLOAT8_E4M3FN(v_u8_quarter part)
{
    v_u16_half code = vector_widen_8_16(part);
    v_u16_half magnitude = code & 0x7f;
    v_u16_half special = (v_u16_half)(magnitude == 0x7f) & 0x7c00;
    return decode_FLOAT16((magnitude << 7) | ((code & 0x80) << 8) | special) * 256.0f;
}

/* ------------------------------------------------------------------ float32 to smaller ones */

/** A format of 1 sign bit, then exponent, then mantissa. */
struct float_target {
    unsigned width, mantissa;
    uint32_t bias;
    float overflow; /**< What the code above the largest finite one would stand for. */
};

/**
 * Code of a value, rounded once; the code above the largest finite one when it is too large. NaN
 * gives any code.
 *
 * From the smallest normal number up: rounding in place and moving the fields; below it this wraps
 * to something huge. Below the smallest normal number: adding a number whose last place is the
 * format's smallest one lets the addition round; above it this is no smaller than the first. So
 * the right one is always the smaller.
 */
static inline v_u32 float_encode(v_f32 value, struct float_target target)
{
    v_u32 bits = (v_u32)value;
    v_u32 limit = (v_u32)((v_f32){0} + target.overflow);
    v_u32 magnitude = vector_min_u32(bits & 0x7fffffffu, limit);
    unsigned drop = 23 - target.mantissa;
    uint32_t smallest = (127u + 1 - target.bias) << 23; /* the smallest normal number */
    v_u32 odd = (magnitude >> drop) & 1;
    v_u32 above = magnitude + (((1u << (drop - 1)) - 1) - smallest) + odd;
    v_u32 normal = (above >> drop) + (1u << target.mantissa);
    v_u32 last_place = (v_u32){0} + (smallest + (drop << 23));
    v_u32 small = (v_u32)((v_f32)magnitude + (v_f32)last_place) - last_place;
    v_u32 sign = (bits >> (32 - target.width)) & (1u << (target.width - 1));
    return vector_min_u32(normal, small) | sign;
}

#if LINES_VECTOR_BYTES > 16

static inline v_u32 encode_FLOAT16(v_f32 value)
{
#if LINES_VECTOR_BYTES == 64
    v_u16_half half = (v_u16_half)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
#else
    v_u16_half half = (v_u16_half)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
#endif
    return float_select(value == value, vector_widen_16_32(half), (v_u32){0} + NAN_FLOAT16);
}

#else

static inline v_u32 encode_FLOAT16(v_f32 value)
{
    v_u32 code = float_encode(value, (struct float_target){16, 10, 15, 65536.0f});
    return float_select(value == value, code, (v_u32){0} + NAN_FLOAT16);
}

#endif

static inline v_u32 encode_FLOAT8_E5M2(v_f32 value)
{
    v_u32 code = float_encode(value, (struct float_target){8, 2, 15, 65536.0f});
    return float_select(value == value, code, (v_u32){0} + NAN_FLOAT8_E5M2);
}

/** The code above the largest finite one is NaN, and so a NaN's magnitude becomes one by itself. */
static inline v_u32 encode_FLOAT8_E4M3FN(v_f32 value)
{
    v_u32 code = float_encode(value, (struct float_target){8, 3, 7, 480.0f});
    return float_select((v_s32)((code & 0x7fu) == 0x7fu), (v_u32){0} + NAN_FLOAT8_E4M3FN, code);
}

/* NOLINTEND(misc-redundant-expression) */

#endif
