#ifndef SYMTENSOR_TESTS_SUPPORT_REDUCE_REFERENCE_H
#define SYMTENSOR_TESTS_SUPPORT_REDUCE_REFERENCE_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/reduce_op.h"

/**
 * What a reduction must give, bit by bit: the rule of gpu/collective.h written down once more,
 * slowly and one element at a time. It shares no code with the kernels.
 *
 * Sources fold left to right as given; the accumulator is float32 for floats of up to 32 bits,
 * float64 for float64, the dtype itself for integers (wrapping) and 64 bits for their avg; avg
 * divides the sum once, integers toward zero; the result is rounded once, to nearest even. A NaN is
 * the dtype's positive quiet NaN.
 *
 * @param sources [source_count] each [count] elements, any alignment.
 * @param ret     [count] elements; may be one of the sources.
 */
void test_reduce(enum st_dtype dtype, enum st_reduce_op op, const void *const *sources,
                 uint32_t source_count, uint64_t count, void *ret);

/** Element @p index of an array of any alignment, zero-extended. */
uint64_t test_element_bits(enum st_dtype dtype, const void *array, uint64_t index);

/**
 * Fill @p ret with elements that provoke: zeros of both signs, subnormals, the largest and smallest
 * values, infinities, NaNs (quiet and signalling), any bits, and small numbers. The same for the
 * same @p seed.
 */
void test_random_elements(enum st_dtype dtype, uint64_t seed, uint64_t count, void *ret);

/** A number of a sequence that depends on *state only. */
uint64_t test_random(uint64_t *state);

#endif
