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
    return float_select(value == value, (v_u32)value, (v_u32){0} + 0x7fc00000u);
}

static inline v_f64 decode_FLOAT64(v_u64 code)
{
    return (v_f64)code;
}

static inline v_u64 encode_FLOAT64(v_f64 value)
{
    v_u64 number = (v_u64)(value == value);
    return ((v_u64)value & number) | (~number & 0x7ff8000000000000u);
}

static inline v_f32 decode_BFLOAT16(v_u16_half code)
{
    return (v_f32)(vector_widen_16_32(code) << 16);
}

static inline v_u32 encode_BFLOAT16(v_f32 value)
{
    v_u32 bits = (v_u32)value;
    v_u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return float_select(value == value, rounded, (v_u32){0} + 0x7fc0u);
}

/**
 * Value of a code of 1 sign bit, then exponent (@p bias) and @p mantissa bits, @p width bits in
 * all, but for the codes of infinity and NaN. Moving the fields into place gives the value times
 * 2^(bias - 127); the multiplication puts that right and is exact, for subnormals too.
 */
static inline v_f32 float_decode(v_u32 code, unsigned width, unsigned mantissa, uint32_t bias)
{
    v_u32 magnitude = (code & ((1u << (width - 1)) - 1)) << (23 - mantissa);
    v_f32 scale = (v_f32)((v_u32){0} + ((254u - bias) << 23));
    v_u32 sign = (code >> (width - 1)) << 31;
    return (v_f32)((v_u32)((v_f32)magnitude * scale) | sign);
}

/** A format that float_encode writes. */
struct float_target {
    unsigned width, mantissa;
    uint32_t bias;
    uint32_t overflow; /**< Code of what is too large: infinity, or NaN where there is none. */
    uint32_t nan;
};

/**
 * Code of a value, rounded once. From the smallest normal number up, rounding in place and moving
 * the fields; below it, adding a number whose last place is the format's smallest one lets the
 * addition round.
 */
static inline v_u32 float_encode(v_f32 value, struct float_target target)
{
    v_u32 bits = (v_u32)value;
    v_u32 magnitude = bits & 0x7fffffffu;
    unsigned drop = 23 - target.mantissa;
    uint32_t rebias = (127u - target.bias) << 23;
    v_u32 odd = (magnitude >> drop) & 1;
    v_u32 normal = (magnitude - rebias + ((1u << (drop - 1)) - 1) + odd) >> drop;
    v_u32 last_place = (v_u32){0} + ((127u + 1 - target.bias - target.mantissa + 23) << 23);
    v_u32 small = (v_u32)((v_f32)magnitude + (v_f32)last_place) - last_place;
    v_s32 is_small = (v_s32)magnitude < (int32_t)(rebias + (1u << 23));
    v_s32 is_large = (v_s32)normal > (int32_t)target.overflow;
    v_u32 code = float_select(is_large, (v_u32){0} + target.overflow, normal);
    code = float_select(is_small, small, code) | ((bits >> 31) << (target.width - 1));
    return float_select(value == value, code, (v_u32){0} + target.nan);
}

#if LINES_VECTOR_BYTES > 16

/* The instruction rounds to nearest even here and keeps subnormals, whatever MXCSR says of them. */

static inline v_f32 decode_FLOAT16(v_u16_half code)
{
#if LINES_VECTOR_BYTES == 64
    return (v_f32)_mm512_cvtph_ps((__m256i)code);
#else
    return (v_f32)_mm256_cvtph_ps((__m128i)code);
#endif
}

static inline v_u32 encode_FLOAT16(v_f32 value)
{
#if LINES_VECTOR_BYTES == 64
    v_u16_half half = (v_u16_half)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
#else
    v_u16_half half = (v_u16_half)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
#endif
    return float_select(value == value, vector_widen_16_32(half), (v_u32){0} + 0x7e00u);
}

#else

static inline v_f32 decode_FLOAT16(v_u16_half part)
{
    v_u32 code = vector_widen_16_32(part);
    v_u32 special = (v_u32)((code & 0x7fffu) >= 0x7c00u) & 0x7f800000u;
    return (v_f32)((v_u32)float_decode(code, 16, 10, 15) | special);
}

static inline v_u32 encode_FLOAT16(v_f32 value)
{
    return float_encode(value, (struct float_target){16, 10, 15, 0x7c00, 0x7e00});
}

#endif

static inline v_f32 decode_FLOAT8_E4M3FN(v_u8_quarter part)
{
    v_u32 code = vector_widen_8_32(part);
    v_u32 special = (v_u32)((code & 0x7fu) == 0x7fu) & 0x7fc00000u;
    return (v_f32)((v_u32)float_decode(code, 8, 3, 7) | special);
}

static inline v_u32 encode_FLOAT8_E4M3FN(v_f32 value)
{
    /* The sign of a value that is too large goes with it: its NaN is as any other. */
    v_u32 code = float_encode(value, (struct float_target){8, 3, 7, 0x7f, 0x7f});
    return float_select((v_s32)(code & 0x7fu) == 0x7f, (v_u32){0} + 0x7fu, code);
}

static inline v_f32 decode_FLOAT8_E5M2(v_u8_quarter part)
{
    v_u32 code = vector_widen_8_32(part);
    v_u32 special = (v_u32)((code & 0x7fu) >= 0x7cu) & 0x7f800000u;
    return (v_f32)((v_u32)float_decode(code, 8, 2, 15) | special);
}

static inline v_u32 encode_FLOAT8_E5M2(v_f32 value)
{
    return float_encode(value, (struct float_target){8, 2, 15, 0x7c, 0x7e});
}

#endif
