#ifndef SYMTENSOR_GPU_KERNELS_LINES_VECTOR_H
#define SYMTENSOR_GPU_KERNELS_LINES_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/**
 * Vectors of LINES_VECTOR_BYTES, as GNU vector types: + - * / & | ^ and comparisons work lane by
 * lane, a comparison gives all ones or zeros. Only what those cannot say is here.
 */

#define VECTOR(type) type __attribute__((vector_size(LINES_VECTOR_BYTES)))
#define VECTOR_PART(type, parts) type __attribute__((vector_size(LINES_VECTOR_BYTES / (parts))))

typedef VECTOR(uint8_t) v_u8;
typedef VECTOR(uint16_t) v_u16;
typedef VECTOR(uint32_t) v_u32;
typedef VECTOR(uint64_t) v_u64;
typedef VECTOR(int8_t) v_s8;
typedef VECTOR(int16_t) v_s16;
typedef VECTOR(int32_t) v_s32;
typedef VECTOR(int64_t) v_s64;
typedef VECTOR(float) v_f32;
typedef VECTOR(double) v_f64;
typedef VECTOR_PART(uint8_t, 4) v_u8_quarter;
typedef VECTOR_PART(uint16_t, 2) v_u16_half;
typedef VECTOR_PART(uint32_t, 2) v_u32_half;

/** Write past the cache; @p to is aligned to the vector. */
static inline void vector_stream(char *to, v_u8 value)
{
#if LINES_VECTOR_BYTES == 64
    _mm512_stream_si512((void *)to, (__m512i)value);
#elif LINES_VECTOR_BYTES == 32
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)value);
#elif defined(__x86_64__)
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)value);
#else
    memcpy(to, &value, sizeof(value));
#endif
}

/** Register @p k of the elements of a line: a whole vector, or what fills one when widened. */
#define DEFINE_VECTOR_LOAD(name, v_part)                                                           \
    static inline v_part name(const char *line, unsigned k)                                        \
    {                                                                                              \
        v_part part;                                                                               \
        memcpy(&part, line + k * sizeof(part), sizeof(part));                                      \
        return part;                                                                               \
    }

DEFINE_VECTOR_LOAD(vector_load_u8, v_u8)
DEFINE_VECTOR_LOAD(vector_load_u16, v_u16)
DEFINE_VECTOR_LOAD(vector_load_u32, v_u32)
DEFINE_VECTOR_LOAD(vector_load_u64, v_u64)
DEFINE_VECTOR_LOAD(vector_load_u8_quarter, v_u8_quarter)
DEFINE_VECTOR_LOAD(vector_load_u16_half, v_u16_half)
DEFINE_VECTOR_LOAD(vector_load_u32_half, v_u32_half)

/* Zero extension of a part to a whole vector. gcc 12 splits the general form into single elements.
 */

static inline v_u32 vector_widen_8_32(v_u8_quarter part)
{
#if LINES_VECTOR_BYTES == 64
    return (v_u32)_mm512_cvtepu8_epi32((__m128i)part);
#elif LINES_VECTOR_BYTES == 32
    return (v_u32)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)part));
#else
    return __builtin_convertvector(part, v_u32);
#endif
}

static inline v_u16_half vector_widen_8_16(v_u8_quarter part)
{
#if LINES_VECTOR_BYTES == 64
    return (v_u16_half)_mm256_cvtepu8_epi16((__m128i)part);
#elif LINES_VECTOR_BYTES == 32
    return (v_u16_half)_mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)part));
#else
    return __builtin_convertvector(part, v_u16_half);
#endif
}

static inline v_u32 vector_widen_16_32(v_u16_half part)
{
#if LINES_VECTOR_BYTES == 64
    return (v_u32)_mm512_cvtepu16_epi32((__m256i)part);
#elif LINES_VECTOR_BYTES == 32
    return (v_u32)_mm256_cvtepu16_epi32((__m128i)part);
#else
    return __builtin_convertvector(part, v_u32);
#endif
}

static inline v_u64 vector_widen_32_64(v_u32_half part)
{
#if LINES_VECTOR_BYTES == 64
    return (v_u64)_mm512_cvtepu32_epi64((__m256i)part);
#elif LINES_VECTOR_BYTES == 32
    return (v_u64)_mm256_cvtepu32_epi64((__m128i)part);
#else
    return __builtin_convertvector(part, v_u64);
#endif
}

/** The smaller of unsigned lanes; compilers do not see the instruction in the general form. */
static inline v_u32 vector_min_u32(v_u32 a, v_u32 b)
{
#if LINES_VECTOR_BYTES == 64
    return (v_u32)_mm512_min_epu32((__m512i)a, (__m512i)b);
#elif LINES_VECTOR_BYTES == 32
    return (v_u32)_mm256_min_epu32((__m256i)a, (__m256i)b);
#else
    v_u32 less = (v_u32)(a < b);
    return (a & less) | (b & ~less);
#endif
}

/* Low halves of the lanes of several vectors, packed into a line. */

#define EVEN_4 0, 2, 4, 6
#define EVEN_8 EVEN_4, 8, 10, 12, 14
#define EVEN_16 EVEN_8, 16, 18, 20, 22, 24, 26, 28, 30
#define EVEN_32 EVEN_16, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62
#define EVEN_64                                                                                    \
    EVEN_32, 64, 66, 68, 70, 72, 74, 76, 78, 80, 82, 84, 86, 88, 90, 92, 94, 96, 98, 100, 102,     \
        104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126
#if LINES_VECTOR_BYTES == 64
#define EVEN_LANES_U8 EVEN_64
#define EVEN_LANES_U16 EVEN_32
#define EVEN_LANES_U32 EVEN_16
#elif LINES_VECTOR_BYTES == 32
#define EVEN_LANES_U8 EVEN_32
#define EVEN_LANES_U16 EVEN_16
#define EVEN_LANES_U32 EVEN_8
#else
#define EVEN_LANES_U8 EVEN_16
#define EVEN_LANES_U16 EVEN_8
#define EVEN_LANES_U32 EVEN_4
#endif

#define LINE_VECTORS (64 / LINES_VECTOR_BYTES)

static inline v_u16 vector_even_u16(v_u32 low, v_u32 high)
{
    return __builtin_shufflevector((v_u16)low, (v_u16)high, EVEN_LANES_U16);
}

static inline v_u8 vector_even_u8(v_u16 low, v_u16 high)
{
    return __builtin_shufflevector((v_u8)low, (v_u8)high, EVEN_LANES_U8);
}

/** @param codes [2 * LINE_VECTORS] */
static inline void vector_narrow_32_16(v_u8 *ret, const v_u32 *codes)
{
    for (unsigned k = 0; k < LINE_VECTORS; k++) {
        ret[k] = (v_u8)vector_even_u16(codes[2 * k], codes[2 * k + 1]);
    }
}

/** @param codes [4 * LINE_VECTORS] */
static inline void vector_narrow_32_8(v_u8 *ret, const v_u32 *codes)
{
    for (unsigned k = 0; k < LINE_VECTORS; k++) {
        v_u16 low = vector_even_u16(codes[4 * k], codes[4 * k + 1]);
        v_u16 high = vector_even_u16(codes[4 * k + 2], codes[4 * k + 3]);
        ret[k] = vector_even_u8(low, high);
    }
}

/** @param codes [2 * LINE_VECTORS] */
static inline void vector_narrow_64_32(v_u8 *ret, const v_u64 *codes)
{
    for (unsigned k = 0; k < LINE_VECTORS; k++) {
        ret[k] = (v_u8)__builtin_shufflevector((v_u32)codes[2 * k], (v_u32)codes[2 * k + 1],
                                               EVEN_LANES_U32);
    }
}

/* Between integers and floats. */

static inline v_f32 vector_all_f32(uint32_t value)
{
    return (v_f32){0} + (float)value;
}

static inline v_f64 vector_all_f64(uint32_t value)
{
    return (v_f64){0} + (double)value;
}

static inline v_f32 vector_f32_from_s32(v_s32 value)
{
    return __builtin_convertvector(value, v_f32);
}

/** Toward zero. */
static inline v_s32 vector_s32_from_f32(v_f32 value)
{
    return __builtin_convertvector(value, v_s32);
}

/** value - bias for 0 <= value < 2^32: the mantissa of 2^52 + value holds it. */
static inline v_f64 vector_f64_from_u32(v_u64 value, uint32_t bias)
{
    return (v_f64)(value | 0x4330000000000000u) - (0x1p52 + (double)bias);
}

/** Toward zero. */
static inline v_s64 vector_s64_from_f64(v_f64 value)
{
    return __builtin_convertvector(value, v_s64);
}

#endif
