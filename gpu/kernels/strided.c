#include "gpu/kernels/strided.h"

#include <string.h>

#include "base/shape.h"

_Static_assert(ST_SHAPE_RANK_MAX == STRIDED_DIMS_MAX, "a shape fits into kernel parameters");

bool strided_is_dense(const int64_t *dims, const int64_t *strides, uint32_t dims_count,
                      uint64_t count)
{
    struct st_shape shape = {.rank = dims_count};
    struct st_strides shape_strides = {{0}};
    uint64_t product = 1;
    if (dims_count > STRIDED_DIMS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < dims_count; i++) {
        if (dims[i] < 1 || __builtin_mul_overflow(product, (uint64_t)dims[i], &product)) {
            return false;
        }
        shape.dims[i] = dims[i];
        shape_strides.dims[i] = strides[i];
    }
    return product == count && product <= INT64_MAX && st_shape_is_dense(&shape, &shape_strides);
}

void strided_walk_init(struct strided_walk *walk, const int64_t *dims, const int64_t *steps,
                       uint32_t dims_count, uint64_t position)
{
    memset(walk, 0, sizeof(*walk));
    for (uint32_t i = 0; i < dims_count; i++) {
        uint64_t dim = (uint64_t)dims[i], step = (uint64_t)steps[i];
        if (dim == 1) {
            continue;
        }
        uint32_t last = walk->rank - 1;
        if (walk->rank && walk->steps[last] == step * dim) {
            walk->dims[last] *= dim;
            walk->steps[last] = step;
            continue;
        }
        walk->dims[walk->rank] = dim;
        walk->steps[walk->rank] = step;
        walk->rank++;
    }
    if (walk->rank == 0) {
        walk->dims[0] = 1;
        walk->rank = 1;
    }
    for (uint32_t i = walk->rank; i > 0; i--) {
        walk->coordinates[i - 1] = position % walk->dims[i - 1];
        position /= walk->dims[i - 1];
        walk->value += walk->coordinates[i - 1] * walk->steps[i - 1];
    }
}

void strided_walk_init_memory(struct strided_walk *walk, const int64_t *dims,
                              const int64_t *strides, uint32_t dims_count, uint64_t position)
{
    int64_t sorted_dims[STRIDED_DIMS_MAX], sorted_steps[STRIDED_DIMS_MAX];
    int64_t sorted_strides[STRIDED_DIMS_MAX];
    int64_t step = 1;
    uint32_t count = 0;
    for (uint32_t i = dims_count; i > 0; i--) { /* logical steps grow from the innermost outwards */
        int64_t dim = dims[i - 1], stride = strides[i - 1];
        if (dim == 1) {
            continue; /* its stride says nothing */
        }
        uint32_t at = count++;
        while (at > 0 && sorted_strides[at - 1] < stride) {
            sorted_dims[at] = sorted_dims[at - 1];
            sorted_steps[at] = sorted_steps[at - 1];
            sorted_strides[at] = sorted_strides[at - 1];
            at--;
        }
        sorted_dims[at] = dim;
        sorted_steps[at] = step;
        sorted_strides[at] = stride;
        step *= dim;
    }
    strided_walk_init(walk, sorted_dims, sorted_steps, count, position);
}

void strided_walk_advance(struct strided_walk *walk, uint64_t count)
{
    uint32_t i = walk->rank - 1;
    walk->coordinates[i] += count;
    walk->value += count * walk->steps[i];
    while (i > 0 && walk->coordinates[i] == walk->dims[i]) {
        walk->value -= walk->dims[i] * walk->steps[i];
        walk->coordinates[i] = 0;
        i--;
        walk->coordinates[i]++;
        walk->value += walk->steps[i];
    }
}
