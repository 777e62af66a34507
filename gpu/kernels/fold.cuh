#ifndef SYMTENSOR_GPU_KERNELS_FOLD_CUH
#define SYMTENSOR_GPU_KERNELS_FOLD_CUH

#include <type_traits>

#include "base/reduce_op.h"
#include "gpu/kernels/element.cuh"

/**
 * The reductions. Each is a struct with
 *   Lane            what 16 bytes are cut into: an element, as unsigned bits
 *   bytewise        a lane is not an element: the op does not see where elements end, and those
 *                   that are left over at the ends come zero-extended to a lane
 *   Accumulator     what lanes are folded in
 *   load(lane)      -> Accumulator
 *   fold(a, b)      a holds the lower ranks
 *   finish(a)       -> Lane, rounded once
 * Ops that share their loading and their accumulator share a struct, whose fields tell them apart:
 * memory is what a reduction waits for, and the code stays small.
 */

/* ------------------------------------------------------------------ sums and products */

/** sum, prod and avg of a float format. */
template <typename F> struct FloatArithmetic {
    using Lane = typename F::Code;
    using Accumulator = typename F::Accumulator;
    static constexpr bool bytewise = false;
    bool multiplies, divides;
    Accumulator divisor;

    __device__ FloatArithmetic(uint32_t op, uint32_t, uint32_t world_size)
        : multiplies(op == ST_OP_PROD), divides(op == ST_OP_AVG),
          divisor(static_cast<Accumulator>(world_size))
    {
    }
    __device__ Accumulator load(Lane lane) const
    {
        return F::decode(lane);
    }
    __device__ Accumulator fold(Accumulator a, Accumulator b) const
    {
        return multiplies ? a * b : a + b;
    }
    __device__ Lane finish(Accumulator value) const
    {
        return F::encode(divides ? value / divisor : value);
    }
};

/** sum and prod of integers: neither sees the sign. */
template <typename T> struct IntegerArithmetic {
    using Lane = T;
    using Accumulator = T;
    static constexpr bool bytewise = false;
    bool multiplies;

    __device__ IntegerArithmetic(uint32_t op, uint32_t, uint32_t) : multiplies(op == ST_OP_PROD)
    {
    }
    __device__ T load(T lane) const
    {
        return lane;
    }
    __device__ T fold(T a, T b) const
    {
        return static_cast<T>(multiplies ? 1u * a * b
                                         : 1u * a + b); /* unsigned, so that it wraps */
    }
    __device__ T finish(T value) const
    {
        return value;
    }
};

/* ------------------------------------------------------------------ averages of integers */

/** An element as a wider integer: with the sign bit of a signed dtype, or 0. */
template <typename Wide, typename Lane>
__device__ static inline Wide integer_widen(Lane lane, Lane sign)
{
    return static_cast<Wide>(static_cast<Lane>(lane ^ sign)) - static_cast<Wide>(sign);
}

template <typename Lane> __device__ static inline Lane integer_sign(uint32_t dtype)
{
    bool is_signed = element_kind(ST_KIND_SIGNED) >> dtype & 1;
    return static_cast<Lane>(Lane{is_signed} << (8 * sizeof(Lane) - 1));
}

/**
 * avg is the 64-bit sum divided toward zero. Dividing floats gives exactly that for elements of up
 * to 32 bits: gpu/kernels/lines_body.h shows why.
 */
template <typename T, typename Sum, typename Quotient> struct IntegerAverage {
    using Lane = T;
    using Accumulator = Sum;
    static constexpr bool bytewise = false;
    Lane sign;
    Quotient divisor;

    __device__ IntegerAverage(uint32_t, uint32_t dtype, uint32_t world_size)
        : sign(integer_sign<Lane>(dtype)), divisor(static_cast<Quotient>(world_size))
    {
    }
    __device__ Sum load(Lane lane) const
    {
        return integer_widen<Sum>(lane, sign);
    }
    __device__ Sum fold(Sum a, Sum b) const
    {
        return a + b;
    }
    __device__ Lane finish(Sum sum) const
    {
        return static_cast<Lane>(static_cast<Sum>(static_cast<Quotient>(sum) / divisor));
    }
};

/** 64-bit elements divide for real; their sum wraps. */
struct LongAverage {
    using Lane = uint64_t;
    using Accumulator = uint64_t;
    static constexpr bool bytewise = false;
    uint64_t sign;
    uint32_t divisor;

    __device__ LongAverage(uint32_t, uint32_t dtype, uint32_t world_size)
        : sign(integer_sign<Lane>(dtype)), divisor(world_size)
    {
    }
    __device__ uint64_t load(uint64_t lane) const
    {
        return lane;
    }
    __device__ uint64_t fold(uint64_t a, uint64_t b) const
    {
        return a + b;
    }
    __device__ uint64_t finish(uint64_t sum) const
    {
        bool negative = (sum & sign) != 0;
        uint64_t quotient = (negative ? 0 - sum : sum) / divisor;
        return negative ? 0 - quotient : quotient;
    }
};

/* ------------------------------------------------------------------ min and max */

/** Turns the order round for max: both then look for the smallest. */
template <typename Lane> __device__ static inline Lane order_turn(uint32_t op)
{
    return static_cast<Lane>(op == ST_OP_MAX ? ~Lane{0} : Lane{0});
}

/** min and max of integers; T is signed, and unsigned ones are moved into its range. */
template <typename T> struct IntegerOrder {
    using Lane = std::make_unsigned_t<T>;
    using Accumulator = T;
    static constexpr bool bytewise = false;
    Lane turn;

    __device__ IntegerOrder(uint32_t op, uint32_t dtype, uint32_t)
    {
        Lane highest = static_cast<Lane>(Lane{1} << (8 * sizeof(Lane) - 1));
        turn = static_cast<Lane>(order_turn<Lane>(op) ^ highest ^ integer_sign<Lane>(dtype));
    }
    __device__ T load(Lane lane) const
    {
        return static_cast<T>(lane ^ turn);
    }
    __device__ T fold(T a, T b) const
    {
        return a < b ? a : b;
    }
    __device__ Lane finish(T value) const
    {
        return static_cast<Lane>(static_cast<Lane>(value) ^ turn);
    }
};

/**
 * min and max of floats, on integers of the element's size: with the lower bits of negative numbers
 * flipped, codes are in the order of their values, -0 below +0. A NaN becomes the smallest.
 */
template <typename F> struct FloatOrder {
    using Lane = typename F::Code;
    using Accumulator = typename F::Order;
    static constexpr bool bytewise = false;
    static constexpr Lane sign = static_cast<Lane>(Lane{1} << (8 * sizeof(Lane) - 1));
    static constexpr Lane below_sign = static_cast<Lane>(sign - 1);
    Lane turn;

    __device__ FloatOrder(uint32_t op, uint32_t, uint32_t) : turn(order_turn<Lane>(op))
    {
    }
    __device__ static Lane flip(Lane code)
    {
        return code & sign ? static_cast<Lane>(code ^ below_sign) : code;
    }
    __device__ static bool is_nan(Lane code)
    {
        return (code & below_sign) > F::last_number;
    }
    __device__ Accumulator load(Lane code) const
    {
        return static_cast<Accumulator>(is_nan(code) ? sign : static_cast<Lane>(flip(code) ^ turn));
    }
    __device__ Accumulator fold(Accumulator a, Accumulator b) const
    {
        return a < b ? a : b;
    }
    __device__ Lane finish(Accumulator value) const
    {
        Lane code = flip(static_cast<Lane>(static_cast<Lane>(value) ^ turn));
        return is_nan(code) ? F::nan : code;
    }
};

/* ------------------------------------------------------------------ bits and bools */

/** band, bor and bxor of any integers: bits that differ, and bits that both have. */
struct BitFold {
    using Lane = uint64_t;
    using Accumulator = uint64_t;
    static constexpr bool bytewise = true;
    uint64_t of_different, of_both;

    __device__ BitFold(uint32_t op, uint32_t, uint32_t)
        : of_different(op == ST_OP_BAND ? 0 : ~uint64_t{0}),
          of_both(op == ST_OP_BXOR ? 0 : ~uint64_t{0})
    {
    }
    __device__ uint64_t load(uint64_t lane) const
    {
        return lane;
    }
    __device__ uint64_t fold(uint64_t a, uint64_t b) const
    {
        return ((a ^ b) & of_different) | (a & b & of_both);
    }
    __device__ uint64_t finish(uint64_t value) const
    {
        return value;
    }
};

/** land and min, lor and max of bools, four at once: what is not 0 becomes 1. */
struct BoolFold {
    using Lane = uint32_t;
    using Accumulator = uint32_t;
    static constexpr bool bytewise = true;
    bool all;

    __device__ BoolFold(uint32_t op, uint32_t, uint32_t) : all(op == ST_OP_LAND || op == ST_OP_MIN)
    {
    }
    __device__ uint32_t load(uint32_t lane) const
    {
        uint32_t carried = (lane & 0x7f7f7f7fu) + 0x7f7f7f7fu;
        return ((carried | lane) >> 7) & 0x01010101u;
    }
    __device__ uint32_t fold(uint32_t a, uint32_t b) const
    {
        return all ? a & b : a | b;
    }
    __device__ uint32_t finish(uint32_t value) const
    {
        return value;
    }
};

/* ------------------------------------------------------------------ the table */

/** A row of ST_DTYPES. */
template <uint32_t dtype> struct Row;
#define X(name, text, size, kind_, mantissa_, specials_, ...)                                      \
    template <> struct Row<ST_DTYPE_##name> {                                                      \
        static constexpr uint32_t bytes = size, mantissa = mantissa_;                              \
        static constexpr st_dtype_kind kind = kind_;                                               \
        static constexpr st_float_specials specials = specials_;                                   \
    };
ST_DTYPES(X)
#undef X

/** The averages by size. */
template <uint32_t bytes> struct Averages;
template <> struct Averages<1> {
    using type = IntegerAverage<uint8_t, int32_t, float>;
};
template <> struct Averages<2> {
    using type = IntegerAverage<uint16_t, int32_t, float>;
};
template <> struct Averages<4> {
    using type = IntegerAverage<uint32_t, int64_t, double>;
};
template <> struct Averages<8> {
    using type = LongAverage;
};

enum fold_group {
    FOLD_NONE, /**< The dtype does not have the op. */
    FOLD_ARITHMETIC,
    FOLD_AVERAGE,
    FOLD_ORDER,
    FOLD_BITS,
    FOLD_BOOL,
};

__device__ static inline fold_group fold_group_of(uint32_t op, uint32_t dtype)
{
    uint32_t bit = uint32_t{1} << dtype;
    bool is_bool = element_kind(ST_KIND_BOOL) & bit, is_float = element_kind(ST_KIND_FLOAT) & bit;
    switch (op) {
    case ST_OP_SUM:
    case ST_OP_PROD:
        return is_bool ? FOLD_NONE : FOLD_ARITHMETIC;
    case ST_OP_AVG:
        return is_bool ? FOLD_NONE : is_float ? FOLD_ARITHMETIC : FOLD_AVERAGE;
    case ST_OP_MIN:
    case ST_OP_MAX:
        return is_bool ? FOLD_BOOL : FOLD_ORDER;
    case ST_OP_BAND:
    case ST_OP_BOR:
    case ST_OP_BXOR:
        return is_bool || is_float ? FOLD_NONE : FOLD_BITS;
    case ST_OP_LAND:
    case ST_OP_LOR:
        return is_bool ? FOLD_BOOL : FOLD_NONE;
    default:
        return FOLD_NONE;
    }
}

/** What fold_choose() calls its visitor with. */
template <typename F> struct Choice {
    using Fold = F;
};

template <uint32_t dtype, typename Visitor>
__device__ __forceinline__ void fold_choose_of(fold_group group, const Visitor &visit)
{
    using R = Row<dtype>;
    using T = Bits<R::bytes>;
    if constexpr (R::kind == ST_KIND_FLOAT) {
        using F = Float<R::bytes, R::mantissa, R::specials>;
        if (group == FOLD_ORDER) {
            visit(Choice<FloatOrder<F>>{});
        } else {
            visit(Choice<FloatArithmetic<F>>{});
        }
    } else if constexpr (R::kind == ST_KIND_UNSIGNED) {
        if (group == FOLD_ORDER) {
            visit(Choice<IntegerOrder<typename T::Signed>>{});
        } else if (group == FOLD_AVERAGE) {
            visit(Choice<typename Averages<R::bytes>::type>{});
        } else {
            visit(Choice<IntegerArithmetic<typename T::Unsigned>>{});
        }
    }
}

/**
 * Call visit(Choice) with the fold of an op and a dtype.
 * @return false when the dtype does not have the op.
 */
template <typename Visitor>
__device__ __forceinline__ bool fold_choose(uint32_t op, uint32_t dtype, const Visitor &visit)
{
    fold_group group = fold_group_of(op, dtype);
    if (group == FOLD_BITS) {
        visit(Choice<BitFold>{});
    } else if (group == FOLD_BOOL) {
        visit(Choice<BoolFold>{});
    } else if (group != FOLD_NONE) {
        bool is_signed = element_kind(ST_KIND_SIGNED) >> dtype & 1; /* shares the unsigned one's */
        switch (is_signed ? element_unsigned(element_size(dtype)) : dtype) {
#define X(name, ...)                                                                               \
    case ST_DTYPE_##name:                                                                          \
        fold_choose_of<ST_DTYPE_##name>(group, visit);                                             \
        break;
            ST_DTYPES(X)
#undef X
        default:
            break;
        }
    }
    return group != FOLD_NONE;
}

#endif
