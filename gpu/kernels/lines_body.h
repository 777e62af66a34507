/**
 * The body of one variant of gpu/kernels/lines.h. Included once by each lines_<variant>.c, which
 * defines LINES_VARIANT, its name, and LINES_VECTOR_BYTES, the width of its registers; the build
 * sets the instruction set. No include guard: it is code, not an interface.
 *
 * A kernel is made for each row of ST_DTYPES crossed with the ops of its kind (KERNELS_ST_KIND_* at
 * the end). What it needs of a dtype is how to load its elements into accumulators and how to store
 * accumulators: derived from kind and size, and for a float from its format
 * (gpu/kernels/lines_float.h).
 */

#include "gpu/kernels/lines.h"
#include "gpu/kernels/lines_float.h"

/* ------------------------------------------------------------------ loading and storing a line */

/** Registers that the elements of one line take, widened to accumulators. */
#define REGISTERS(bytes, accumulator_bytes)                                                        \
    (GPU_LINE_BYTES / (bytes) * (accumulator_bytes) / LINES_VECTOR_BYTES)

/** Register @p k of a line, as float_load_BYTES takes it. */
#define PART_1(line, k) vector_load_u8_quarter(line, k)
#define PART_2(line, k) vector_load_u16_half(line, k)
#define PART_4(line, k) vector_load_u32(line, k)
#define PART_8(line, k) vector_load_u64(line, k)

/** Codes in accumulators back to the bytes of a line. */
#define PACK_1(ret, codes) vector_narrow_32_8(ret, codes)
#define PACK_2(ret, codes) vector_narrow_32_16(ret, codes)
#define PACK_4(ret, codes) memcpy(ret, codes, GPU_LINE_BYTES)
#define PACK_8(ret, codes) memcpy(ret, codes, GPU_LINE_BYTES)

static inline void line_store(const struct gpu_lines *job, uint64_t at, const v_u8 *line)
{
    for (uint32_t i = 0; i < job->output_count; i++) {
        char *output = job->outputs[i] + at;
        for (unsigned k = 0; k < LINE_VECTORS; k++) {
            if (job->stream) {
                vector_stream(output + k * LINES_VECTOR_BYTES, line[k]);
            } else {
                memcpy(output + k * LINES_VECTOR_BYTES, &line[k], LINES_VECTOR_BYTES);
            }
        }
    }
}

/**
 * One kernel. v_acc: the accumulator's vector type, count: registers for a line; load(line, k),
 * fold(a, b) and finish(acc, divisor) -> codes of type v_code; pack(ret_line, codes).
 */
#define REDUCE_KERNEL(name, v_acc, count, load, fold, v_code, finish, pack)                        \
    static void name(const struct gpu_lines *job)                                                  \
    {                                                                                              \
        for (uint64_t at = 0; at < job->bytes; at += GPU_LINE_BYTES) {                             \
            v_acc acc[count];                                                                      \
            const char *source = job->sources[0] + at;                                             \
            for (unsigned k = 0; k < (count); k++) {                                               \
                acc[k] = load(source, k);                                                          \
            }                                                                                      \
            for (uint32_t i = 1; i < job->source_count; i++) {                                     \
                source = job->sources[i] + at;                                                     \
                for (unsigned k = 0; k < (count); k++) {                                           \
                    acc[k] = fold(acc[k], load(source, k));                                        \
                }                                                                                  \
            }                                                                                      \
            v_code codes[count];                                                                   \
            for (unsigned k = 0; k < (count); k++) {                                               \
                codes[k] = finish(acc[k], job->source_count);                                      \
            }                                                                                      \
            v_u8 line[LINE_VECTORS];                                                               \
            pack(line, codes);                                                                     \
            line_store(job, at, line);                                                             \
        }                                                                                          \
    }

/* ------------------------------------------------------------------ folding */

#define FOLD_SUM(a, b) ((a) + (b))
#define FOLD_PROD(a, b) ((a) * (b))
#define FOLD_BAND(a, b) ((a) & (b))
#define FOLD_BOR(a, b) ((a) | (b))
#define FOLD_BXOR(a, b) ((a) ^ (b))

/** min and max of integers: order is the signed or unsigned vector type to compare as. */
#define DEFINE_INTEGER_ORDER(suffix, v_bits, v_order)                                              \
    static inline v_bits fold_min_##suffix(v_bits a, v_bits b)                                     \
    {                                                                                              \
        v_bits less = (v_bits)((v_order)a < (v_order)b);                                           \
        return (a & less) | (b & ~less);                                                           \
    }                                                                                              \
    static inline v_bits fold_max_##suffix(v_bits a, v_bits b)                                     \
    {                                                                                              \
        v_bits less = (v_bits)((v_order)a < (v_order)b);                                           \
        return (b & less) | (a & ~less);                                                           \
    }

DEFINE_INTEGER_ORDER(ST_KIND_UNSIGNED_1, v_u8, v_u8)
DEFINE_INTEGER_ORDER(ST_KIND_UNSIGNED_2, v_u16, v_u16)
DEFINE_INTEGER_ORDER(ST_KIND_UNSIGNED_4, v_u32, v_u32)
DEFINE_INTEGER_ORDER(ST_KIND_UNSIGNED_8, v_u64, v_u64)
DEFINE_INTEGER_ORDER(ST_KIND_SIGNED_1, v_u8, v_s8)
DEFINE_INTEGER_ORDER(ST_KIND_SIGNED_2, v_u16, v_s16)
DEFINE_INTEGER_ORDER(ST_KIND_SIGNED_4, v_u32, v_s32)
DEFINE_INTEGER_ORDER(ST_KIND_SIGNED_8, v_u64, v_s64)

#define KEEP(acc, divisor) (acc)
#define PACK_SAME(ret, codes) memcpy(ret, codes, GPU_LINE_BYTES)

#define INTEGER_VECTOR_1 v_u8
#define INTEGER_VECTOR_2 v_u16
#define INTEGER_VECTOR_4 v_u32
#define INTEGER_VECTOR_8 v_u64
#define INTEGER_LOAD_1 vector_load_u8
#define INTEGER_LOAD_2 vector_load_u16
#define INTEGER_LOAD_4 vector_load_u32
#define INTEGER_LOAD_8 vector_load_u64

/* ------------------------------------------------------------------ floats */

/** Accumulators by size of the element. */
#define FLOAT_ACC_1 v_f32, v_u32, f32, 4
#define FLOAT_ACC_2 v_f32, v_u32, f32, 4
#define FLOAT_ACC_4 v_f32, v_u32, f32, 4
#define FLOAT_ACC_8 v_f64, v_u64, f64, 8

/** Loading and finishing for one float dtype. The divisor is exact in either accumulator. */
#define DEFINE_FLOAT_ELEMENT(dtype, bytes, mantissa, specials, ...)                                \
    DEFINE_FLOAT_ELEMENT_(dtype, bytes, mantissa, specials, __VA_ARGS__)
#define DEFINE_FLOAT_ELEMENT_(dtype, bytes, mantissa, specials, v_acc, v_code, acc_name,           \
                              acc_bytes)                                                           \
    _Static_assert((bytes) > 1 || (mantissa) >= 2, "an 8-bit float fits into a float16");          \
    _Static_assert((bytes) < 4 || (specials) == ST_FLOAT_IEEE, "folds in its own format");         \
    static const struct float_format format_##dtype = {8 * (bytes), mantissa, specials};           \
    static inline v_acc load_##dtype(const char *line, unsigned k)                                 \
    {                                                                                              \
        return float_load_##bytes(PART_##bytes(line, k), format_##dtype);                          \
    }                                                                                              \
    static inline v_code finish_##dtype(v_acc acc, uint32_t divisor)                               \
    {                                                                                              \
        (void)divisor;                                                                             \
        return float_code_##bytes(acc, format_##dtype);                                            \
    }                                                                                              \
    static inline v_code divide_##dtype(v_acc acc, uint32_t divisor)                               \
    {                                                                                              \
        return float_code_##bytes(acc / vector_all_##acc_name(divisor), format_##dtype);           \
    }

#define FLOAT_KERNEL(dtype, op, bytes, fold, finish, v_acc, v_code, acc_bytes)                     \
    REDUCE_KERNEL(reduce_##dtype##_##op, v_acc, REGISTERS(bytes, acc_bytes), load_##dtype, fold,   \
                  v_code, finish##_##dtype, PACK_##bytes)
#define FLOAT_KERNELS(dtype, bytes, ...) FLOAT_KERNELS_(dtype, bytes, __VA_ARGS__)
#define FLOAT_KERNELS_(dtype, bytes, v_acc, v_code, acc, acc_bytes)                                \
    FLOAT_KERNEL(dtype, SUM, bytes, FOLD_SUM, finish, v_acc, v_code, acc_bytes)                    \
    FLOAT_KERNEL(dtype, AVG, bytes, FOLD_SUM, divide, v_acc, v_code, acc_bytes)                    \
    FLOAT_KERNEL(dtype, PROD, bytes, FOLD_PROD, finish, v_acc, v_code, acc_bytes)

/**
 * min and max of floats, on integers of the element's size: with the lower bits of negative numbers
 * flipped, codes are in the order of their values, -0 below +0. A NaN is put at the end of the
 * range that wins.
 */
#define DEFINE_FLOAT_ORDER(dtype, bytes, mantissa, specials, ...)                                  \
    DEFINE_FLOAT_ORDER_(dtype, bytes, mantissa, specials, __VA_ARGS__)
#define DEFINE_FLOAT_ORDER_(dtype, bytes, mantissa, specials, v_bits, v_order, element)            \
    static inline v_bits order_flip_##dtype(v_bits bits)                                           \
    {                                                                                              \
        return bits ^ ((v_bits)((v_order)bits < 0) & INT##element##_MAX);                          \
    }                                                                                              \
    static inline v_bits order_nan_##dtype(v_bits bits)                                            \
    {                                                                                              \
        const int##element##_t last = ST_FLOAT_LAST(element, mantissa, specials);                  \
        return (v_bits)((v_order)(bits & INT##element##_MAX) > last);                              \
    }                                                                                              \
    static inline v_bits order_load_min_##dtype(const char *line, unsigned k)                      \
    {                                                                                              \
        v_bits bits = INTEGER_LOAD_##bytes(line, k), nan = order_nan_##dtype(bits);                \
        return (order_flip_##dtype(bits) & ~nan) | (nan & ~(v_bits){0} << (element - 1));          \
    }                                                                                              \
    static inline v_bits order_load_max_##dtype(const char *line, unsigned k)                      \
    {                                                                                              \
        v_bits bits = INTEGER_LOAD_##bytes(line, k), nan = order_nan_##dtype(bits);                \
        return (order_flip_##dtype(bits) & ~nan) | (nan & INT##element##_MAX);                     \
    }                                                                                              \
    static inline v_bits order_finish_##dtype(v_bits acc, uint32_t divisor)                        \
    {                                                                                              \
        (void)divisor;                                                                             \
        const uint##element##_t written = ST_FLOAT_NAN(element, mantissa, specials);               \
        v_bits bits = order_flip_##dtype(acc), nan = order_nan_##dtype(bits);                      \
        return (bits & ~nan) | (nan & written);                                                    \
    }

#define ORDER_VECTORS_1 v_u8, v_s8, 8
#define ORDER_VECTORS_2 v_u16, v_s16, 16
#define ORDER_VECTORS_4 v_u32, v_s32, 32
#define ORDER_VECTORS_8 v_u64, v_s64, 64

#define ORDER_KERNEL(dtype, op, bytes, order)                                                      \
    REDUCE_KERNEL(reduce_##dtype##_##op, INTEGER_VECTOR_##bytes, REGISTERS(bytes, bytes),          \
                  order_load_##order##_##dtype, fold_##order##_ST_KIND_SIGNED_##bytes,             \
                  INTEGER_VECTOR_##bytes, order_finish_##dtype, PACK_SAME)

/* ------------------------------------------------------------------ integers and bool */

#define INTEGER_KERNEL(dtype, op, bytes, fold)                                                     \
    REDUCE_KERNEL(reduce_##dtype##_##op, INTEGER_VECTOR_##bytes, REGISTERS(bytes, bytes),          \
                  INTEGER_LOAD_##bytes, fold, INTEGER_VECTOR_##bytes, KEEP, PACK_SAME)
#define INTEGER_KERNELS(dtype, kind, bytes)                                                        \
    INTEGER_KERNEL(dtype, SUM, bytes, FOLD_SUM)                                                    \
    INTEGER_KERNEL(dtype, PROD, bytes, FOLD_PROD)                                                  \
    INTEGER_KERNEL(dtype, MIN, bytes, fold_min_##kind##_##bytes)                                   \
    INTEGER_KERNEL(dtype, MAX, bytes, fold_max_##kind##_##bytes)                                   \
    INTEGER_KERNEL(dtype, BAND, bytes, FOLD_BAND)                                                  \
    INTEGER_KERNEL(dtype, BOR, bytes, FOLD_BOR)                                                    \
    INTEGER_KERNEL(dtype, BXOR, bytes, FOLD_BXOR)                                                  \
    AVERAGE_KERNEL(dtype, kind, bytes)

/**
 * avg of integers is the 64-bit sum divided toward zero. With at most 64 ranks the sum of 8- and
 * 16-bit integers is exact in float32 and that of 32-bit ones in float64. The exact quotient is at
 * least 1/64 away from the next integer or equal to it, while the rounding of the division is off
 * by less than 2^16 * 2^-24 or 2^32 * 2^-53; so truncating gives the exact result. 64-bit ones
 * divide for real.
 */
_Static_assert(GPU_KERNEL_RANKS_MAX <= 64, "sums of so many 16-bit integers are exact in float32");

#define AVERAGE_VECTORS_1 v_f32, v_u32, 4
#define AVERAGE_VECTORS_2 v_f32, v_u32, 4
#define AVERAGE_VECTORS_4 v_f64, v_u64, 8
#define AVERAGE_VECTORS_8 v_u64, v_u64, 8
#define AVERAGE_PACK_1(ret, codes) vector_narrow_32_8(ret, codes)
#define AVERAGE_PACK_2(ret, codes) vector_narrow_32_16(ret, codes)
#define AVERAGE_PACK_4(ret, codes) vector_narrow_64_32(ret, codes)
#define AVERAGE_PACK_8(ret, codes) memcpy(ret, codes, GPU_LINE_BYTES)

static inline v_f32 average_load_ST_KIND_UNSIGNED_1(const char *line, unsigned k)
{
    return vector_f32_from_s32((v_s32)vector_widen_8_32(PART_1(line, k)));
}

static inline v_f32 average_load_ST_KIND_SIGNED_1(const char *line, unsigned k)
{
    return vector_f32_from_s32((v_s32)(vector_widen_8_32(PART_1(line, k)) << 24) >> 24);
}

static inline v_f32 average_load_ST_KIND_UNSIGNED_2(const char *line, unsigned k)
{
    return vector_f32_from_s32((v_s32)vector_widen_16_32(PART_2(line, k)));
}

static inline v_f32 average_load_ST_KIND_SIGNED_2(const char *line, unsigned k)
{
    return vector_f32_from_s32((v_s32)(vector_widen_16_32(PART_2(line, k)) << 16) >> 16);
}

static inline v_f64 average_load_ST_KIND_UNSIGNED_4(const char *line, unsigned k)
{
    return vector_f64_from_u32(vector_widen_32_64(vector_load_u32_half(line, k)), 0);
}

static inline v_f64 average_load_ST_KIND_SIGNED_4(const char *line, unsigned k)
{
    /* Flipping the sign bit adds 2^31, which is taken off again. */
    v_u64 biased = vector_widen_32_64(vector_load_u32_half(line, k)) ^ 0x80000000u;
    return vector_f64_from_u32(biased, 0x80000000u);
}

#define average_load_ST_KIND_UNSIGNED_8 vector_load_u64
#define average_load_ST_KIND_SIGNED_8 vector_load_u64

static inline v_u32 average_finish_f32(v_f32 sum, uint32_t divisor)
{
    return (v_u32)vector_s32_from_f32(sum / vector_all_f32(divisor));
}

static inline v_u64 average_finish_f64(v_f64 sum, uint32_t divisor)
{
    return (v_u64)vector_s64_from_f64(sum / vector_all_f64(divisor));
}

static inline v_u64 average_finish_u64(v_u64 sum, uint32_t divisor)
{
    for (unsigned k = 0; k < LINES_VECTOR_BYTES / 8; k++) {
        sum[k] /= divisor;
    }
    return sum;
}

static inline v_u64 average_finish_s64(v_u64 sum, uint32_t divisor)
{
    for (unsigned k = 0; k < LINES_VECTOR_BYTES / 8; k++) {
        sum[k] = (uint64_t)((int64_t)sum[k] / (int64_t)divisor);
    }
    return sum;
}

#define AVERAGE_FINISH_ST_KIND_UNSIGNED_1 average_finish_f32
#define AVERAGE_FINISH_ST_KIND_UNSIGNED_2 average_finish_f32
#define AVERAGE_FINISH_ST_KIND_UNSIGNED_4 average_finish_f64
#define AVERAGE_FINISH_ST_KIND_UNSIGNED_8 average_finish_u64
#define AVERAGE_FINISH_ST_KIND_SIGNED_1 average_finish_f32
#define AVERAGE_FINISH_ST_KIND_SIGNED_2 average_finish_f32
#define AVERAGE_FINISH_ST_KIND_SIGNED_4 average_finish_f64
#define AVERAGE_FINISH_ST_KIND_SIGNED_8 average_finish_s64

#define AVERAGE_KERNEL(dtype, kind, bytes)                                                         \
    AVERAGE_KERNEL_(dtype, kind, bytes, AVERAGE_VECTORS_##bytes)
#define AVERAGE_KERNEL_(dtype, kind, bytes, ...) AVERAGE_KERNEL__(dtype, kind, bytes, __VA_ARGS__)
#define AVERAGE_KERNEL__(dtype, kind, bytes, v_acc, v_code, acc_bytes)                             \
    REDUCE_KERNEL(reduce_##dtype##_AVG, v_acc, REGISTERS(bytes, acc_bytes),                        \
                  average_load_##kind##_##bytes, FOLD_SUM, v_code,                                 \
                  AVERAGE_FINISH_##kind##_##bytes, AVERAGE_PACK_##bytes)

/** bool: any nonzero byte counts as 1. */
static inline v_u8 load_bool(const char *line, unsigned k)
{
    return (v_u8)(vector_load_u8(line, k) != 0) & 1;
}

#define BOOL_KERNEL(dtype, op, fold)                                                               \
    REDUCE_KERNEL(reduce_##dtype##_##op, v_u8, REGISTERS(1, 1), load_bool, fold, v_u8, KEEP,       \
                  PACK_SAME)

/* ------------------------------------------------------------------ the table */

/** The kernels of one dtype by its kind, then their entries; the test holds them against
 * ST_REDUCE_OPS. */
#define KERNELS_ST_KIND_BOOL(dtype, bytes, mantissa, specials)                                     \
    BOOL_KERNEL(dtype, MIN, FOLD_BAND)                                                             \
    BOOL_KERNEL(dtype, MAX, FOLD_BOR)                                                              \
    BOOL_KERNEL(dtype, LAND, FOLD_BAND)                                                            \
    BOOL_KERNEL(dtype, LOR, FOLD_BOR)
#define KERNELS_ST_KIND_UNSIGNED(dtype, bytes, mantissa, specials)                                 \
    INTEGER_KERNELS(dtype, ST_KIND_UNSIGNED, bytes)
#define KERNELS_ST_KIND_SIGNED(dtype, bytes, mantissa, specials)                                   \
    INTEGER_KERNELS(dtype, ST_KIND_SIGNED, bytes)
#define KERNELS_ST_KIND_FLOAT(dtype, bytes, mantissa, specials)                                    \
    DEFINE_FLOAT_ELEMENT(dtype, bytes, mantissa, specials, FLOAT_ACC_##bytes)                      \
    FLOAT_KERNELS(dtype, bytes, FLOAT_ACC_##bytes)                                                 \
    DEFINE_FLOAT_ORDER(dtype, bytes, mantissa, specials, ORDER_VECTORS_##bytes)                    \
    ORDER_KERNEL(dtype, MIN, bytes, min)                                                           \
    ORDER_KERNEL(dtype, MAX, bytes, max)

#define ENTRY(dtype, op) [ST_OP_##op] = reduce_##dtype##_##op
#define ENTRIES_INTEGER(dtype)                                                                     \
    ENTRY(dtype, SUM), ENTRY(dtype, AVG), ENTRY(dtype, PROD), ENTRY(dtype, MIN),                   \
        ENTRY(dtype, MAX), ENTRY(dtype, BAND), ENTRY(dtype, BOR), ENTRY(dtype, BXOR)
#define ENTRIES_ST_KIND_BOOL(dtype)                                                                \
    ENTRY(dtype, MIN), ENTRY(dtype, MAX), ENTRY(dtype, LAND), ENTRY(dtype, LOR)
#define ENTRIES_ST_KIND_UNSIGNED(dtype) ENTRIES_INTEGER(dtype)
#define ENTRIES_ST_KIND_SIGNED(dtype) ENTRIES_INTEGER(dtype)
#define ENTRIES_ST_KIND_FLOAT(dtype)                                                               \
    ENTRY(dtype, SUM), ENTRY(dtype, AVG), ENTRY(dtype, PROD), ENTRY(dtype, MIN), ENTRY(dtype, MAX)

#define X(dtype, text, bytes, kind, mantissa, specials, ...)                                       \
    KERNELS_##kind(dtype, bytes, mantissa, specials)
ST_DTYPES(X)
#undef X

static void lines_copy(const struct gpu_lines *job)
{
    for (uint64_t at = 0; at < job->bytes; at += GPU_LINE_BYTES) {
        v_u8 line[LINE_VECTORS];
        memcpy(line, job->sources[0] + at, GPU_LINE_BYTES);
        line_store(job, at, line);
    }
}

static void lines_fill(const struct gpu_lines *job)
{
    v_u8 line[LINE_VECTORS];
    memcpy(line, job->sources[0], GPU_LINE_BYTES);
    for (uint64_t at = 0; at < job->bytes; at += GPU_LINE_BYTES) {
        line_store(job, at, line);
    }
}

#define VARIANT_NAME(name) VARIANT_NAME_(name)
#define VARIANT_NAME_(name) gpu_lines_##name
#define VARIANT_USABLE(name) VARIANT_USABLE_(name)
#define VARIANT_USABLE_(name) gpu_lines_usable_##name
#define VARIANT_TEXT(name) VARIANT_TEXT_(name)
#define VARIANT_TEXT_(name) #name

const struct gpu_line_variant VARIANT_NAME(LINES_VARIANT) = {
    .name = VARIANT_TEXT(LINES_VARIANT),
    .usable = VARIANT_USABLE(LINES_VARIANT),
    .reduce =
        {
#define X(dtype, text, bytes, kind, ...) [ST_DTYPE_##dtype] = {ENTRIES_##kind(dtype)},
            ST_DTYPES(X)
#undef X
        },
    .copy = lines_copy,
    .fill = lines_fill,
};
