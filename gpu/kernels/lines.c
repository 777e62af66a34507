#include "gpu/kernels/lines.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

const struct gpu_line_variant *const gpu_line_variants[] = {
#if defined(__x86_64__)
    &gpu_lines_avx512,
    &gpu_lines_avx2,
#endif
    &gpu_lines_portable,
    NULL,
};

bool gpu_lines_usable_portable(void)
{
    return true;
}

#if defined(__x86_64__)

/** Conversion of float16; clang 14 has no name for it in __builtin_cpu_supports(). */
static bool lines_converts_float16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool gpu_lines_usable_avx2(void)
{
    __builtin_cpu_init(); /* also asks whether the system saves the wide registers */
    return __builtin_cpu_supports("avx2") && lines_converts_float16();
}

bool gpu_lines_usable_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           lines_converts_float16();
}

#endif

static const struct gpu_line_variant *_Atomic selected_variant;

const struct gpu_line_variant *gpu_lines_variant(void)
{
    const struct gpu_line_variant *variant =
        atomic_load_explicit(&selected_variant, memory_order_relaxed);
    if (variant) {
        return variant;
    }
    const struct gpu_line_variant *const *candidate = gpu_line_variants;
    while (candidate[1] && !(*candidate)->usable()) { /* the last one always is */
        candidate++;
    }
    atomic_store_explicit(&selected_variant, *candidate, memory_order_relaxed);
    return *candidate;
}

void gpu_lines_select(const struct gpu_line_variant *variant)
{
    atomic_store_explicit(&selected_variant, variant, memory_order_relaxed);
}

/** Run less than a line, at @p offset of every array, through padded copies. */
static void lines_run_partial(gpu_line_kernel *kernel, const struct gpu_lines *job, uint64_t offset,
                              size_t bytes)
{
    char padded[GPU_KERNEL_RANKS_MAX][GPU_LINE_BYTES];
    char result[GPU_LINE_BYTES];
    struct gpu_lines line;
    line.source_count = job->source_count;
    line.output_count = 1;
    line.outputs[0] = result;
    line.bytes = GPU_LINE_BYTES;
    line.stream = false;
    for (uint32_t i = 0; i < job->source_count; i++) {
        memcpy(padded[i], job->sources[i] + offset, bytes);
        memset(padded[i] + bytes, 0, GPU_LINE_BYTES - bytes);
        line.sources[i] = padded[i];
    }
    kernel(&line);
    for (uint32_t i = 0; i < job->output_count; i++) {
        memcpy(job->outputs[i] + offset, result, bytes);
    }
}

/** Bytes before the first line border that all outputs share; GPU_LINE_BYTES when there is none. */
static uint32_t lines_head(const struct gpu_lines *job, uint32_t element_bytes)
{
    uintptr_t past = (uintptr_t)job->outputs[0] % GPU_LINE_BYTES;
    for (uint32_t i = 1; i < job->output_count; i++) {
        if ((uintptr_t)job->outputs[i] % GPU_LINE_BYTES != past) {
            return GPU_LINE_BYTES;
        }
    }
    if (past % element_bytes) {
        return GPU_LINE_BYTES;
    }
    return (uint32_t)((GPU_LINE_BYTES - past) % GPU_LINE_BYTES);
}

void gpu_lines_run(gpu_line_kernel *kernel, const struct gpu_lines *job, uint32_t element_bytes)
{
    if (job->bytes == 0 || job->output_count == 0) {
        return;
    }
    struct gpu_lines whole = *job;
    uint64_t head = 0;
    if (job->stream) {
        head = lines_head(job, element_bytes);
        whole.stream = head < GPU_LINE_BYTES;
        head = whole.stream ? head : 0;
    }
    head = head < job->bytes ? head : job->bytes;
    uint64_t tail = (job->bytes - head) % GPU_LINE_BYTES;
    whole.bytes = job->bytes - head - tail;
    if (head) {
        lines_run_partial(kernel, job, 0, head);
    }
    if (whole.bytes) {
        for (uint32_t i = 0; i < job->source_count; i++) {
            whole.sources[i] += head;
        }
        for (uint32_t i = 0; i < job->output_count; i++) {
            whole.outputs[i] += head;
        }
        kernel(&whole);
    }
    if (tail) {
        lines_run_partial(kernel, job, job->bytes - tail, tail);
    }
}
