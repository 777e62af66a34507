#ifndef SYMTENSOR_GPU_KERNELS_ARITHMETIC_H
#define SYMTENSOR_GPU_KERNELS_ARITHMETIC_H

#include <stdint.h>

/** Arithmetic that stops at UINT64_MAX: a range that would wrap then ends where nothing is mapped.
 */

static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t saturating_multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/** a / b rounded up; b > 0. */
static inline uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

#endif
