#ifndef SYMTENSOR_TESTS_UNIT_SERVER_COLLECTIVE_REFERENCE_H
#define SYMTENSOR_TESTS_UNIT_SERVER_COLLECTIVE_REFERENCE_H

#include "gpu/collective.h"

/**
 * What a collective's result is, written down element by element from the specification and from
 * nothing else: no movement lists, no vectors, no kernels.
 */
struct reference_run {
    const char *verb;
    enum st_dtype dtype;
    enum st_reduce_op op;
    uint32_t world_size, root;
    uint64_t slice_count; /**< Elements of the smaller side. */
    bool in_place;        /**< On the larger side. */
};

/** Elements of a rank's input and output. */
uint64_t reference_input_count(const struct reference_run *run);
uint64_t reference_output_count(const struct reference_run *run);
/** Whether the collective reduces; such results are compared by reference_equal(). */
bool reference_reduces(const struct reference_run *run);

/**
 * Compute the output of @p rank.
 * @param inputs [world_size] shards of reference_input_count() elements.
 * @param output what the shard held before (in place: the input); elements that the collective does
 * not write stay.
 */
void reference_output(const struct reference_run *run, uint32_t rank,
                      const unsigned char *const *inputs, unsigned char *output);

/** Bits are equal, or both are a NaN of a float dtype (payloads are not promised). */
bool reference_equal(enum st_dtype dtype, const unsigned char *a, const unsigned char *b);

/** Element @p index of a shard full of ordinary and of awkward values, the same for the same
 * arguments. */
union st_scalar reference_value(enum st_dtype dtype, uint64_t seed, uint32_t rank, uint64_t index);

#endif
