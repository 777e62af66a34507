#ifndef SYMTENSOR_GPU_RANGES_H
#define SYMTENSOR_GPU_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Which parts of [0, size) are taken; first fit. Zero-filled but for size before first use. Pure
 * but for the host memory of the list. Thread: its owner's.
 */
struct gpu_ranges {
    uint64_t size_bytes;
    uint64_t used_bytes;
    struct gpu_range *items; /**< [count], ascending, without overlap. */
    size_t count, capacity;
};

struct gpu_range {
    uint64_t offset, bytes;
};

/**
 * Take the first gap of @p bytes (> 0). Offsets are multiples of whatever unit all sizes are
 * multiples of.
 * @return false when there is no such gap, or no host memory.
 */
bool gpu_ranges_take(struct gpu_ranges *ranges, uint64_t bytes, uint64_t *ret_offset);
/** Give back what was taken at @p offset. */
void gpu_ranges_give(struct gpu_ranges *ranges, uint64_t offset);
/** Free the list. */
void gpu_ranges_done(struct gpu_ranges *ranges);

#endif
