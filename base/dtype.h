#ifndef SYMTENSOR_BASE_DTYPE_H
#define SYMTENSOR_BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/** What the values of a dtype are. */
enum st_dtype_kind { ST_KIND_BOOL, ST_KIND_UNSIGNED, ST_KIND_SIGNED, ST_KIND_FLOAT };

/**
 * The dtypes: NAME, text, bytes, kind, DLPack code and bits, npy descriptor (NULL: npy has none),
 * safetensors name. Adding a dtype is one row here; the kernels derive their variants from it.
 * Sources: dlpack.h 1.1 (DLDataTypeCode), numpy.lib.format, safetensors format.
 */
#define ST_DTYPES(X)                                                                               \
    X(BOOL, "bool", 1, ST_KIND_BOOL, 6, 8, "|b1", "BOOL")                                          \
    X(UINT8, "uint8", 1, ST_KIND_UNSIGNED, 1, 8, "|u1", "U8")                                      \
    X(INT8, "int8", 1, ST_KIND_SIGNED, 0, 8, "|i1", "I8")                                          \
    X(INT16, "int16", 2, ST_KIND_SIGNED, 0, 16, "<i2", "I16")                                      \
    X(UINT16, "uint16", 2, ST_KIND_UNSIGNED, 1, 16, "<u2", "U16")                                  \
    X(INT32, "int32", 4, ST_KIND_SIGNED, 0, 32, "<i4", "I32")                                      \
    X(UINT32, "uint32", 4, ST_KIND_UNSIGNED, 1, 32, "<u4", "U32")                                  \
    X(INT64, "int64", 8, ST_KIND_SIGNED, 0, 64, "<i8", "I64")                                      \
    X(UINT64, "uint64", 8, ST_KIND_UNSIGNED, 1, 64, "<u8", "U64")                                  \
    X(FLOAT16, "float16", 2, ST_KIND_FLOAT, 2, 16, "<f2", "F16")                                   \
    X(BFLOAT16, "bfloat16", 2, ST_KIND_FLOAT, 4, 16, NULL, "BF16")                                 \
    X(FLOAT32, "float32", 4, ST_KIND_FLOAT, 2, 32, "<f4", "F32")                                   \
    X(FLOAT64, "float64", 8, ST_KIND_FLOAT, 2, 64, "<f8", "F64")                                   \
    X(FLOAT8_E4M3FN, "float8_e4m3fn", 1, ST_KIND_FLOAT, 10, 8, NULL, "F8_E4M3")                    \
    X(FLOAT8_E5M2, "float8_e5m2", 1, ST_KIND_FLOAT, 12, 8, NULL, "F8_E5M2")

enum st_dtype {
#define X(name, text, bytes, kind, dlpack_code, dlpack_bits, npy, safetensors) ST_DTYPE_##name,
    ST_DTYPES(X)
#undef X
        ST_DTYPE_COUNT
};

/** One row of the dtype table. */
struct st_dtype_info {
    const char *name;
    uint32_t size_bytes;
    enum st_dtype_kind kind;
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
