#include "tests/contract/gpu/collective_meaning.h"

#include <string.h>

static struct meaning_origin reduced(uint64_t element)
{
    return (struct meaning_origin){MEANING_REDUCED, 0, element};
}

static struct meaning_origin copied(uint64_t rank, uint64_t element)
{
    return (struct meaning_origin){MEANING_COPIED, (uint32_t)rank, element};
}

static struct meaning_origin untouched(void)
{
    return (struct meaning_origin){MEANING_UNTOUCHED, 0, 0};
}

static struct meaning_origin of_all_reduce(const struct gpu_collective_shape *shape, uint32_t rank,
                                           uint64_t element)
{
    (void)shape;
    (void)rank;
    return reduced(element);
}

static struct meaning_origin of_reduce(const struct gpu_collective_shape *shape, uint32_t rank,
                                       uint64_t element)
{
    return rank == shape->root ? reduced(element) : untouched();
}

static struct meaning_origin of_broadcast(const struct gpu_collective_shape *shape, uint32_t rank,
                                          uint64_t element)
{
    (void)rank;
    return copied(shape->root, element);
}

static struct meaning_origin of_all_gather(const struct gpu_collective_shape *shape, uint32_t rank,
                                           uint64_t element)
{
    (void)rank;
    uint64_t within = element % shape->slice_count;
    return copied(element / shape->slice_count, shape->in_place ? element : within);
}

static struct meaning_origin of_gather(const struct gpu_collective_shape *shape, uint32_t rank,
                                       uint64_t element)
{
    return rank == shape->root ? of_all_gather(shape, rank, element) : untouched();
}

/** Element of the larger side that a slice of @p rank has at @p element, or UINT64_MAX for
 * another's. */
static uint64_t scattered(const struct gpu_collective_shape *shape, uint32_t rank, uint64_t element)
{
    if (shape->in_place) {
        return element / shape->slice_count == rank ? element : UINT64_MAX;
    }
    return rank * shape->slice_count + element;
}

static struct meaning_origin of_reduce_scatter(const struct gpu_collective_shape *shape,
                                               uint32_t rank, uint64_t element)
{
    uint64_t at = scattered(shape, rank, element);
    return at == UINT64_MAX ? untouched() : reduced(at);
}

static struct meaning_origin of_scatter(const struct gpu_collective_shape *shape, uint32_t rank,
                                        uint64_t element)
{
    uint64_t at = scattered(shape, rank, element);
    return at == UINT64_MAX ? untouched() : copied(shape->root, at);
}

static struct meaning_origin of_all_to_all(const struct gpu_collective_shape *shape, uint32_t rank,
                                           uint64_t element)
{
    return copied(element / shape->slice_count,
                  rank * shape->slice_count + element % shape->slice_count);
}

const struct meaning meanings[MEANINGS_COUNT] = {
    {"all_reduce", of_all_reduce, true, true}, {"reduce", of_reduce, true, true},
    {"broadcast", of_broadcast, true, true},   {"all_gather", of_all_gather, true, false},
    {"gather", of_gather, true, false},        {"reduce_scatter", of_reduce_scatter, false, true},
    {"scatter", of_scatter, false, true},      {"all_to_all", of_all_to_all, true, true},
};

const struct meaning *meaning_find(const char *name)
{
    for (size_t i = 0; i < MEANINGS_COUNT; i++) {
        if (strcmp(meanings[i].name, name) == 0) {
            return &meanings[i];
        }
    }
    return NULL;
}

static uint64_t side_count(const struct meaning *meaning, const struct gpu_collective_shape *shape,
                           bool large)
{
    bool equal =
        meaning->input_is_large && meaning->output_is_large && meaning->origin != of_all_to_all;
    bool whole = !equal && (large || shape->in_place);
    return shape->slice_count * (whole ? shape->world_size : 1);
}

uint64_t meaning_output_count(const struct meaning *meaning,
                              const struct gpu_collective_shape *shape)
{
    return side_count(meaning, shape, meaning->output_is_large);
}

uint64_t meaning_input_count(const struct meaning *meaning,
                             const struct gpu_collective_shape *shape)
{
    return side_count(meaning, shape, meaning->input_is_large);
}
