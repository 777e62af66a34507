#include <math.h>
#include <string.h>

#include "gpu/kernels/arithmetic.h"
#include "gpu/kernels/lines.h"
#include "gpu/kernels/strided.h"
#include "gpu/kernels/twin_table.h"

#define FILL_CHUNK_BYTES (1u << 20)
/** From here on a fill bypasses the cache: nobody finds so much there afterwards. */
#define FILL_STREAM_BYTES (16u << 20)
/** What is made at once before it is written. */
#define FILL_BLOCK_BYTES 4096u

/* ------------------------------------------------------------------ elements from integers */

/** Write start, start + step, ... as @p count elements: integers wrap, floats round, bool is "not
 * 0". */
typedef void fill_sequence(enum st_dtype dtype, uint64_t start, uint64_t step, size_t count,
                           void *ret);

#define DEFINE_SEQUENCE(name, type, expression)                                                    \
    static void name(enum st_dtype dtype, uint64_t start, uint64_t step, size_t count, void *ret)  \
    {                                                                                              \
        (void)dtype;                                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            uint64_t index = start + i * step;                                                     \
            type element = (expression);                                                           \
            memcpy((char *)ret + i * sizeof(type), &element, sizeof(type));                        \
        }                                                                                          \
    }

/** A float that no C type holds; what is too large becomes infinity, or NaN where there is none. */
static uint64_t small_float_bits(enum st_dtype dtype, uint64_t index)
{
    union st_scalar scalar = {0};
    if (st_dtype_from_uint64(dtype, index, &scalar) ||
        st_dtype_from_double(dtype, INFINITY, &scalar) ||
        st_dtype_from_double(dtype, NAN, &scalar)) {
        return scalar.bits;
    }
    return 0;
}

DEFINE_SEQUENCE(sequence_ST_KIND_BOOL_1, uint8_t, index != 0)
DEFINE_SEQUENCE(sequence_integer_1, uint8_t, (uint8_t)index)
DEFINE_SEQUENCE(sequence_integer_2, uint16_t, (uint16_t)index)
DEFINE_SEQUENCE(sequence_integer_4, uint32_t, (uint32_t)index)
DEFINE_SEQUENCE(sequence_integer_8, uint64_t, index)
DEFINE_SEQUENCE(sequence_ST_KIND_FLOAT_1, uint8_t, (uint8_t)small_float_bits(dtype, index))
DEFINE_SEQUENCE(sequence_ST_KIND_FLOAT_2, uint16_t, (uint16_t)small_float_bits(dtype, index))
DEFINE_SEQUENCE(sequence_ST_KIND_FLOAT_4, float, (float)index)
DEFINE_SEQUENCE(sequence_ST_KIND_FLOAT_8, double, (double)index)

#define sequence_ST_KIND_UNSIGNED_1 sequence_integer_1
#define sequence_ST_KIND_UNSIGNED_2 sequence_integer_2
#define sequence_ST_KIND_UNSIGNED_4 sequence_integer_4
#define sequence_ST_KIND_UNSIGNED_8 sequence_integer_8
#define sequence_ST_KIND_SIGNED_1 sequence_integer_1
#define sequence_ST_KIND_SIGNED_2 sequence_integer_2
#define sequence_ST_KIND_SIGNED_4 sequence_integer_4
#define sequence_ST_KIND_SIGNED_8 sequence_integer_8

static fill_sequence *const fill_sequences[ST_DTYPE_COUNT] = {
#define SEQUENCE(kind, bytes) sequence_##kind##_##bytes
#define X(name, text, bytes, kind, ...) [ST_DTYPE_##name] = SEQUENCE(kind, bytes),
    ST_DTYPES(X)
#undef X
};

/* ------------------------------------------------------------------ what a launch says */

static uint32_t fill_element_bytes(const struct gpu_fill_params *fill)
{
    return st_dtype_info((enum st_dtype)fill->dtype)->size_bytes;
}

static bool fill_valid(const struct gpu_fill_params *fill)
{
    if (fill->dtype >= ST_DTYPE_COUNT || fill->pattern > GPU_FILL_IOTA) {
        return false;
    }
    return fill->pattern != GPU_FILL_IOTA || fill->row_major || fill->element_count == 0 ||
           strided_is_dense(fill->dims, fill->strides, fill->dims_count, fill->element_count);
}

static uint64_t fill_traffic_bytes(const void *params)
{
    const struct gpu_fill_params *fill = params;
    if (!fill_valid(fill)) {
        return 0;
    }
    return saturating_multiply(fill->element_count, fill_element_bytes(fill));
}

static uint32_t fill_operands(const void *params, struct gpu_operand *ret)
{
    const struct gpu_fill_params *fill = params;
    if (!fill_valid(fill)) {
        *ret = (struct gpu_operand){0, UINT64_MAX, true, false};
        return 1;
    }
    uint64_t end = saturating_add(fill->address, fill_traffic_bytes(fill));
    *ret = (struct gpu_operand){fill->address, end - fill->address, true, false};
    return fill->element_count != 0;
}

static uint64_t fill_chunks(const void *params)
{
    uint64_t chunks = divide_up(fill_traffic_bytes(params), FILL_CHUNK_BYTES);
    chunks = chunks < UINT32_MAX ? chunks : UINT32_MAX; /* gpu_movement_part() counts in 32 bits */
    return chunks ? chunks : 1;
}

/* ------------------------------------------------------------------ running */

/** Every element the same: one line, repeated from the first line border on. */
static void fill_same(const struct gpu_fill_params *fill, char *output, uint64_t bytes)
{
    uint32_t element_bytes = fill_element_bytes(fill);
    union st_scalar scalar = {.bits = fill->value_bits};
    char line[GPU_LINE_BYTES];
    if (fill->pattern == GPU_FILL_RANK) {
        fill_sequences[fill->dtype]((enum st_dtype)fill->dtype, fill->value_bits, 0, 1, &scalar);
    }
    for (uint32_t at = 0; at < GPU_LINE_BYTES; at += element_bytes) {
        memcpy(line + at, scalar.bytes, element_bytes);
    }
    uint64_t head = (GPU_LINE_BYTES - (uintptr_t)output % GPU_LINE_BYTES) % GPU_LINE_BYTES;
    struct gpu_lines job;
    job.stream = fill_traffic_bytes(fill) >= FILL_STREAM_BYTES && head % element_bytes == 0;
    head = job.stream ? head : 0;
    head = head < bytes ? head : bytes;
    uint64_t tail = (bytes - head) % GPU_LINE_BYTES;
    memcpy(output, line, head);
    job.sources[0] = line;
    job.source_count = 1;
    job.outputs[0] = output + head;
    job.output_count = 1;
    job.bytes = bytes - head - tail;
    gpu_lines_variant()->fill(&job);
    memcpy(output + bytes - tail, line, tail);
}

/** Write one block of the walk; its runs lie one behind the other in memory. */
static void fill_iota_block(const struct gpu_fill_params *fill, struct strided_walk *walk,
                            char *output, uint64_t count)
{
    _Alignas(GPU_LINE_BYTES) char block[FILL_BLOCK_BYTES];
    uint32_t element_bytes = fill_element_bytes(fill);
    for (uint64_t done = 0; done < count;) {
        uint64_t run = strided_walk_run(walk);
        run = run < count - done ? run : count - done;
        fill_sequences[fill->dtype]((enum st_dtype)fill->dtype, walk->value,
                                    walk->steps[walk->rank - 1], run, block + done * element_bytes);
        strided_walk_advance(walk, run);
        done += run;
    }
    struct gpu_lines job;
    job.sources[0] = block;
    job.source_count = 1;
    job.outputs[0] = output;
    job.output_count = 1;
    job.bytes = count * element_bytes;
    job.stream = fill_traffic_bytes(fill) >= FILL_STREAM_BYTES;
    gpu_lines_run(gpu_lines_variant()->copy, &job, element_bytes);
}

static void fill_iota(const struct gpu_fill_params *fill, uint64_t first, uint64_t count)
{
    uint32_t element_bytes = fill_element_bytes(fill);
    struct strided_walk walk;
    if (fill->row_major) {
        int64_t dim = (int64_t)fill->element_count, step = 1;
        strided_walk_init(&walk, &dim, &step, 1, first);
    } else {
        strided_walk_init_memory(&walk, fill->dims, fill->strides, fill->dims_count, first);
    }
    for (uint64_t done = 0; done < count;) {
        uint64_t block = FILL_BLOCK_BYTES / element_bytes;
        block = block < count - done ? block : count - done;
        uint64_t address = fill->address + (first + done) * element_bytes;
        fill_iota_block(fill, &walk, (char *)(uintptr_t)address, block);
        done += block;
    }
}

static void fill_run(const void *params, uint64_t chunk, const struct gpu_twin_services *services)
{
    (void)services;
    const struct gpu_fill_params *fill = params;
    if (!fill_valid(fill)) {
        return;
    }
    uint64_t first, count;
    gpu_movement_part(fill->element_count, (uint32_t)chunk, (uint32_t)fill_chunks(fill), &first,
                      &count);
    if (count == 0) {
        return;
    }
    if (fill->pattern == GPU_FILL_IOTA) {
        fill_iota(fill, first, count);
        return;
    }
    uint64_t element_bytes = fill_element_bytes(fill);
    fill_same(fill, (char *)(uintptr_t)(fill->address + first * element_bytes),
              count * element_bytes);
}

const struct gpu_twin gpu_twin_fill = {
    .name = "symtensor_fill",
    .params_bytes = sizeof(struct gpu_fill_params),
    .operands = fill_operands,
    .traffic_bytes = fill_traffic_bytes,
    .chunks = fill_chunks,
    .run = fill_run,
};
