#ifndef SYMTENSOR_TESTS_CONTRACT_GPU_COLLECTIVE_MEANING_H
#define SYMTENSOR_TESTS_CONTRACT_GPU_COLLECTIVE_MEANING_H

#include "gpu/collective.h"

/** What collectives mean, written down a second time and without movements: for tests. */

enum meaning_how { MEANING_UNTOUCHED, MEANING_COPIED, MEANING_REDUCED };

/** Where an output element comes from. */
struct meaning_origin {
    enum meaning_how how;
    uint32_t rank;    /**< COPIED: whose input. */
    uint64_t element; /**< Of that input, or of all inputs. */
};

/** One row a collective. */
struct meaning {
    const char *name;
    /** @p element of the output of @p rank; below the output's size, as meaning_output_count()
     * says. */
    struct meaning_origin (*origin)(const struct gpu_collective_shape *shape, uint32_t rank,
                                    uint64_t element);
    bool output_is_large; /**< Out of place. */
    bool input_is_large;
};

#define MEANINGS_COUNT 8
extern const struct meaning meanings[MEANINGS_COUNT];

const struct meaning *meaning_find(const char *name);
/** Elements of the output of one rank. */
uint64_t meaning_output_count(const struct meaning *meaning,
                              const struct gpu_collective_shape *shape);
uint64_t meaning_input_count(const struct meaning *meaning,
                             const struct gpu_collective_shape *shape);

#endif
