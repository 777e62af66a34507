#ifndef SYMTENSOR_BASE_DTYPE_H
#define SYMTENSOR_BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/** What the values of a dtype are. */
enum st_dtype_kind { ST_KIND_BOOL, ST_KIND_UNSIGNED, ST_KIND_SIGNED, ST_KIND_FLOAT };

/** Which values a float format has beside the finite ones. */
enum st_float_specials {
    ST_FLOAT_NONE,  /**< Not a float. */
    ST_FLOAT_IEEE,  /**< The highest exponent holds infinity and NaNs (IEEE 754-2019). */
    ST_FLOAT_FINITE /**< Only the code of all ones is NaN; there is no infinity (OCP FP8 "fn"). */
};

/**
 * The dtypes: NAME, text, bytes, kind, mantissa bits and specials of a float (its exponent takes
 * the other bits, biased by half its range), DLPack code and bits, npy descriptor (NULL: npy has
 * none), safetensors name. Adding a dtype is one row here; scalars, kernels, decoders,
 * documentation and tests derive their variants from it. Floats of 1 and 2 bytes fold in float32,
 * others in their own format, so a format of 4 or 8 bytes is IEEE 754's. Sources: dlpack.h 1.1
 * (DLDataTypeCode), numpy.lib.format, safetensors format.
 */
#define ST_DTYPES(X)                                                                               \
    X(BOOL, "bool", 1, ST_KIND_BOOL, 0, ST_FLOAT_NONE, 6, 8, "|b1", "BOOL")                        \
    X(UINT8, "uint8", 1, ST_KIND_UNSIGNED, 0, ST_FLOAT_NONE, 1, 8, "|u1", "U8")                    \
    X(INT8, "int8", 1, ST_KIND_SIGNED, 0, ST_FLOAT_NONE, 0, 8, "|i1", "I8")                        \
    X(INT16, "int16", 2, ST_KIND_SIGNED, 0, ST_FLOAT_NONE, 0, 16, "<i2", "I16")                    \
    X(UINT16, "uint16", 2, ST_KIND_UNSIGNED, 0, ST_FLOAT_NONE, 1, 16, "<u2", "U16")                \
    X(INT32, "int32", 4, ST_KIND_SIGNED, 0, ST_FLOAT_NONE, 0, 32, "<i4", "I32")                    \
    X(UINT32, "uint32", 4, ST_KIND_UNSIGNED, 0, ST_FLOAT_NONE, 1, 32, "<u4", "U32")                \
    X(INT64, "int64", 8, ST_KIND_SIGNED, 0, ST_FLOAT_NONE, 0, 64, "<i8", "I64")                    \
    X(UINT64, "uint64", 8, ST_KIND_UNSIGNED, 0, ST_FLOAT_NONE, 1, 64, "<u8", "U64")                \
    X(FLOAT16, "float16", 2, ST_KIND_FLOAT, 10, ST_FLOAT_IEEE, 2, 16, "<f2", "F16")                \
    X(BFLOAT16, "bfloat16", 2, ST_KIND_FLOAT, 7, ST_FLOAT_IEEE, 4, 16, NULL, "BF16")               \
    X(FLOAT32, "float32", 4, ST_KIND_FLOAT, 23, ST_FLOAT_IEEE, 2, 32, "<f4", "F32")                \
    X(FLOAT64, "float64", 8, ST_KIND_FLOAT, 52, ST_FLOAT_IEEE, 2, 64, "<f8", "F64")                \
    X(FLOAT8_E4M3FN, "float8_e4m3fn", 1, ST_KIND_FLOAT, 3, ST_FLOAT_FINITE, 10, 8, NULL,           \
      "F8_E4M3")                                                                                   \
    X(FLOAT8_E5M2, "float8_e5m2", 1, ST_KIND_FLOAT, 2, ST_FLOAT_IEEE, 12, 8, NULL, "F8_E5M2")

/*
 * What follows from a float's row, for @p bits wide codes with @p mantissa bits. The sign is the
 * highest bit.
 */
#define ST_FLOAT_SIGN(bits) (UINT64_C(1) << ((bits)-1))
#define ST_FLOAT_BIAS(bits, mantissa) ((1 << ((bits) - (mantissa)-2)) - 1)
/** Code of infinity; of a FINITE format, the one that would be. */
#define ST_FLOAT_INFINITY(bits, mantissa) (ST_FLOAT_SIGN(bits) - (UINT64_C(1) << (mantissa)))
/** Code of the one NaN that is written: quiet, positive. */
#define ST_FLOAT_NAN(bits, mantissa, specials)                                                     \
    ((specials) == ST_FLOAT_IEEE                                                                   \
         ? ST_FLOAT_INFINITY(bits, mantissa) | UINT64_C(1) << ((mantissa)-1)                       \
         : ST_FLOAT_SIGN(bits) - 1)
/** Code of the largest number, infinity where there is one; NaNs follow. */
#define ST_FLOAT_LAST(bits, mantissa, specials)                                                    \
    ((specials) == ST_FLOAT_IEEE ? ST_FLOAT_INFINITY(bits, mantissa) : ST_FLOAT_SIGN(bits) - 2)

enum st_dtype {
#define X(name, ...) ST_DTYPE_##name,
    ST_DTYPES(X)
#undef X
        ST_DTYPE_COUNT
};

/** One row of the dtype table. */
struct st_dtype_info {
    const char *name;
    uint32_t size_bytes;
    enum st_dtype_kind kind;
    uint8_t mantissa_bits; /**< Of a float; else 0. */
    enum st_float_specials specials;
    uint8_t dlpack_code;
    uint8_t dlpack_bits;
    const char *npy;         /**< Descriptor in an npy header, or NULL. */
    const char *safetensors; /**< Name in a safetensors header. */
};

/** The row of @p dtype, which must be one of the table. Thread: any. */
const struct st_dtype_info *st_dtype_info(enum st_dtype dtype);
/** Find a dtype by its name. @return false when there is none. Thread: any. */
bool st_dtype_parse(const char *name, enum st_dtype *ret_dtype);

/** Little-endian bits of one element, in the low bytes. */
union st_scalar {
    uint64_t bits;
    uint8_t bytes[8];
};

/**
 * Scalars between text, numbers and bits. Rounding is to nearest even; overflow is NaN for e4m3fn
 * and infinity for e5m2, float16, bfloat16 and float32 when it comes from arithmetic; here, a
 * finite value that does not fit is refused instead.
 */
/**
 * Bits of @p value in a float dtype, rounded once. A NaN gives the dtype's positive quiet NaN.
 * @return false when it is finite and overflows, when it is infinite and the dtype is e4m3fn, and
 * for a dtype that is no float. Thread: any.
 */
bool st_dtype_from_double(enum st_dtype dtype, double value, union st_scalar *ret_scalar);
/** Bits of an integer in any dtype. Integers must fit exactly; floats are rounded once. bool: 0
 * or 1.
 */
bool st_dtype_from_int64(enum st_dtype dtype, int64_t value, union st_scalar *ret_scalar);
bool st_dtype_from_uint64(enum st_dtype dtype, uint64_t value, union st_scalar *ret_scalar);
/** Value of a float dtype's element; exact. */
double st_dtype_to_double(enum st_dtype dtype, union st_scalar scalar);
/** Value of an integer or bool element; exact. For uint64, cast the result. */
int64_t st_dtype_to_int64(enum st_dtype dtype, union st_scalar scalar);

#endif
