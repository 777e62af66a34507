#ifndef SYMTENSOR_GPU_KERNELS_ELEMENT_CUH
#define SYMTENSOR_GPU_KERNELS_ELEMENT_CUH

#include "base/dtype.h"
#include "gpu/kernels/machine.cuh"

/**
 * Elements of the float dtypes to accumulators and back, the twin of gpu/kernels/lines_float.h,
 * where each step is explained. All follows from the row in ST_DTYPES. Encoding rounds once, to
 * nearest even, and writes the one positive quiet NaN of the format. The conversions of the
 * hardware are used only where they give exactly that; those to 8 bits saturate, so they are not.
 */

/** The integer types of a size. */
template <uint32_t bytes> struct Bits;
template <> struct Bits<1> {
    using Unsigned = uint8_t;
    using Signed = int8_t;
};
template <> struct Bits<2> {
    using Unsigned = uint16_t;
    using Signed = int16_t;
};
template <> struct Bits<4> {
    using Unsigned = uint32_t;
    using Signed = int32_t;
};
template <> struct Bits<8> {
    using Unsigned = uint64_t;
    using Signed = int64_t;
};

/** A float format of up to 2 bytes, which folds in float32. */
template <uint32_t bytes, uint32_t mantissa, st_float_specials specials> struct Float {
    using Code = typename Bits<bytes>::Unsigned;
    using Order = typename Bits<bytes>::Signed;
    using Accumulator = float;
    static constexpr uint32_t bits = 8 * bytes;
    static constexpr Code last_number = ST_FLOAT_LAST(bits, mantissa, specials);
    static constexpr Code nan = ST_FLOAT_NAN(bits, mantissa, specials);
    static constexpr uint32_t sign = static_cast<uint32_t>(ST_FLOAT_SIGN(bits));
    static constexpr uint32_t bias = static_cast<uint32_t>(ST_FLOAT_BIAS(bits, mantissa));
    static constexpr bool is_float16 = bytes == 2 && mantissa == 10;
    static constexpr bool is_bfloat16 = bytes == 2 && mantissa == 7;
    static_assert(bytes > 1 || mantissa >= 2, "an 8-bit float fits into a float16");

    __device__ static float decode(Code code)
    {
        if (is_bfloat16) { /* the upper half of a float32 */
            return machine_float(static_cast<uint32_t>(code) << 16);
        }
        if (is_float16) {
            return machine_float_from_half(code);
        }
        uint32_t magnitude = code & (sign - 1), negative = code & sign;
        if (bytes ==
            1) { /* fits into a float16, where it is less by the difference of the biases */
            constexpr uint32_t up = mantissa < 10 ? 10 - mantissa : 0;
            uint32_t special = magnitude > largest_finite ? 0x7c00 : 0;
            uint32_t half = magnitude << up | negative << 8 | special;
            return machine_float_from_half(static_cast<uint16_t>(half)) * power(15 - bias);
        }
        uint32_t special = magnitude > largest_finite ? 0x7f800000u : 0;
        float scaled = machine_float(magnitude << (23 - mantissa)) * power(127 - bias);
        return machine_float(machine_float_bits(scaled) | special | negative << (32 - bits));
    }

    __device__ static Code encode(float value)
    {
        uint32_t code;
        if (is_bfloat16) {
            uint32_t wide = machine_float_bits(value);
            code = (wide + 0x7fffu + ((wide >> 16) & 1)) >> 16;
        } else if (is_float16) {
            code = machine_half_from_float(value);
        } else {
            code = encode_any(value);
        }
        /* In a finite format the code above the largest number is NaN, and every NaN becomes it. */
        bool number = specials == ST_FLOAT_FINITE ? (code & (sign - 1)) != nan : value == value;
        return number ? static_cast<Code>(code) : nan;
    }

  private:
    static constexpr uint32_t largest_finite = last_number - (specials == ST_FLOAT_IEEE);

    /** 2^exponent; of this many bits the product is exact. */
    __device__ static float power(uint32_t exponent)
    {
        return machine_float((127 + exponent) << 23);
    }

    /** Rounded once; the code above the largest finite one when it is too large. */
    __device__ static uint32_t encode_any(float value)
    {
        constexpr uint32_t drop = 23 - mantissa;
        constexpr uint32_t above_largest =
            ((127 + bias + 1) << 23) +
            (specials == ST_FLOAT_FINITE ? ((1u << mantissa) - 1) << drop : 0);
        constexpr uint32_t smallest = (127 + 1 - bias) << 23; /* the smallest normal number */
        constexpr uint32_t last_place = smallest + (drop << 23);
        uint32_t wide = machine_float_bits(value);
        uint32_t magnitude = wide & 0x7fffffffu;
        magnitude = magnitude < above_largest ? magnitude : above_largest;
        uint32_t odd = (magnitude >> drop) & 1;
        uint32_t rounded = magnitude + (((1u << (drop - 1)) - 1) - smallest) + odd;
        uint32_t normal = (rounded >> drop) + (1u << mantissa);
        float sum = machine_float(magnitude) + machine_float(last_place);
        uint32_t subnormal = machine_float_bits(sum) - last_place;
        return (normal < subnormal ? normal : subnormal) | ((wide >> (32 - bits)) & sign);
    }
};

/** float32: folds in itself. */
template <uint32_t mantissa, st_float_specials specials> struct Float<4, mantissa, specials> {
    using Code = uint32_t;
    using Order = int32_t;
    using Accumulator = float;
    static constexpr Code last_number = ST_FLOAT_LAST(32, mantissa, specials);
    static constexpr Code nan = ST_FLOAT_NAN(32, mantissa, specials);

    __device__ static float decode(Code code)
    {
        return machine_float(code);
    }
    __device__ static Code encode(float value)
    {
        return value == value ? machine_float_bits(value) : nan;
    }
};

/** float64: folds in itself. */
template <uint32_t mantissa, st_float_specials specials> struct Float<8, mantissa, specials> {
    using Code = uint64_t;
    using Order = int64_t;
    using Accumulator = double;
    static constexpr Code last_number = ST_FLOAT_LAST(64, mantissa, specials);
    static constexpr Code nan = ST_FLOAT_NAN(64, mantissa, specials);

    __device__ static double decode(Code code)
    {
        return machine_double(code);
    }
    __device__ static Code encode(double value)
    {
        return value == value ? machine_double_bits(value) : nan;
    }
};

/* ------------------------------------------------------------------ dtypes */

/** Bytes of an element, four bits for each dtype. */
constexpr uint64_t element_sizes = 0
#define X(name, text, bytes, ...) | uint64_t{bytes} << (4 * ST_DTYPE_##name)
    ST_DTYPES(X)
#undef X
    ;
static_assert(ST_DTYPE_COUNT <= 16, "four bits for each dtype");

__device__ static inline uint32_t element_size(uint32_t dtype)
{
    return static_cast<uint32_t>(element_sizes >> (4 * dtype)) & 15;
}

/** The dtype of unsigned integers of a size, for ops that do not see the sign. */
__device__ static inline uint32_t element_unsigned(uint32_t size)
{
    return size == 1   ? ST_DTYPE_UINT8
           : size == 2 ? ST_DTYPE_UINT16
           : size == 4 ? ST_DTYPE_UINT32
                       : ST_DTYPE_UINT64;
}

/** Bit of each dtype of a kind. */
__host__ __device__ constexpr uint32_t element_kind(st_dtype_kind wanted)
{
    return 0
#define X(name, text, bytes, kind, ...) | uint32_t{kind == wanted} << ST_DTYPE_##name
        ST_DTYPES(X)
#undef X
            ;
}

#endif
