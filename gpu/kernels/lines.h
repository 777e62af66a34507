#ifndef SYMTENSOR_GPU_KERNELS_LINES_H
#define SYMTENSOR_GPU_KERNELS_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/reduce_op.h"
#include "gpu/kernels/params.h"

/**
 * The inner loops of the twins: arrays taken 64 bytes (a line) at a time. The same source
 * (lines_body.h) is compiled once for each instruction set; every variant gives the same bits.
 *
 * A line of every source is read, then the result goes from registers to every output, then the
 * next line. Measured beside blocks of 1 to 8 KiB that are staged in the first-level cache, this
 * keeps more memory requests in flight: it was the fastest for every number of arrays from 2 to 64.
 */

#define GPU_LINE_BYTES 64u

/** One piece of work. Everything lies where the pointers say; nothing is owned. */
struct gpu_lines {
    const char *sources[GPU_KERNEL_RANKS_MAX]; /**< [source_count], any alignment; in fold order. */
    char *outputs[GPU_KERNEL_RANKS_MAX];       /**< [output_count]; each may equal a source. */
    uint32_t source_count; /**< 1..GPU_KERNEL_RANKS_MAX; also the divisor of avg. */
    uint32_t output_count;
    uint64_t bytes; /**< Of each array. Kernels take whole lines only. */
    bool stream;    /**< Write past the cache. Kernels then want outputs on line borders. */
};

typedef void gpu_line_kernel(const struct gpu_lines *job);

/** One instruction set. */
struct gpu_line_variant {
    const char *name;
    bool (*usable)(void); /**< Whether this machine has the instructions. */
    /** Fold the sources left to right. NULL where the op is not defined for the dtype. */
    gpu_line_kernel *reduce[ST_DTYPE_COUNT][ST_OP_COUNT];
    gpu_line_kernel *copy; /**< The first source to every output, bits unchanged. */
    gpu_line_kernel *fill; /**< The first line of the first source to every line of every output. */
};

extern const struct gpu_line_variant gpu_lines_avx512;
extern const struct gpu_line_variant gpu_lines_avx2;
extern const struct gpu_line_variant gpu_lines_portable;

/* What their usable() calls; compiled without their instructions, unlike the rest of them. */
bool gpu_lines_usable_avx512(void);
bool gpu_lines_usable_avx2(void);
bool gpu_lines_usable_portable(void);

/** From the widest to the narrowest; ends with NULL. */
extern const struct gpu_line_variant *const gpu_line_variants[];

/** The widest variant that this machine can run, or the selected one. Thread: any. */
const struct gpu_line_variant *gpu_lines_variant(void);
/** Use @p variant from now on, in tests and benchmarks; NULL: the widest again. Thread: any, no
 * twin running. */
void gpu_lines_select(const struct gpu_line_variant *variant);

/**
 * Run a kernel over @p job->bytes of any size and alignment: the parts before and behind the whole
 * lines go through padded copies. Streams only when asked to and when all outputs reach a line
 * border together, on the border of an element.
 *
 * @param element_bytes 1, 2, 4 or 8; bytes is a multiple of it.
 */
void gpu_lines_run(gpu_line_kernel *kernel, const struct gpu_lines *job, uint32_t element_bytes);

#endif
