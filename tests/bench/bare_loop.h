#ifndef SYMTENSOR_TESTS_BENCH_BARE_LOOP_H
#define SYMTENSOR_TESTS_BENCH_BARE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The limit of a benchmark row on a CPU: the fastest loop that reads and writes the same number of
 * arrays, without arithmetic. Several ways of writing it are tried on the same buffers; the fastest
 * median is the limit.
 */

#define BARE_ARRAYS_MAX 64

/** The arrays of one row; writing them destroys what they hold. */
struct bare_work {
    uint32_t reads, writes;
    const char *input[BARE_ARRAYS_MAX]; /**< [reads] 64-byte aligned */
    char *output[BARE_ARRAYS_MAX];      /**< [writes] */
    size_t bytes;                       /**< Of each array; a multiple of 64. */
};

/** One way: threads, stores, and how many bytes of each array are touched in turn. */
struct bare_variant {
    unsigned threads;
    bool non_temporal;
    size_t block_bytes;
};

/** All variants for a machine with @p cores cores. @return how many (at most @p max). */
unsigned bare_variants(unsigned cores, struct bare_variant *ret, unsigned max);

/** Start the threads; call once. */
void bare_start(unsigned cores);

/** Run once. @return nanoseconds. */
uint64_t bare_run(const struct bare_work *work, const struct bare_variant *variant);

#endif
