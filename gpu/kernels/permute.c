#include <string.h>

#include "gpu/kernels/arithmetic.h"
#include "gpu/kernels/strided.h"
#include "gpu/kernels/twin_table.h"

#define PERMUTE_CHUNK_BYTES (1u << 20)

/** Copy @p count elements, both sides with a step in bytes. */
typedef void permute_copy(char *to, uint64_t to_step, const char *from, uint64_t from_step,
                          uint64_t count);

/** memcpy() of a constant size is one load and one store, for any alignment. */
#define DEFINE_COPY(name, bytes)                                                                   \
    static void name(char *to, uint64_t to_step, const char *from, uint64_t from_step,             \
                     uint64_t count)                                                               \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            memcpy(to + i * to_step, from + i * from_step, bytes);                                 \
        }                                                                                          \
    }

DEFINE_COPY(permute_copy_1, 1)
DEFINE_COPY(permute_copy_2, 2)
DEFINE_COPY(permute_copy_4, 4)
DEFINE_COPY(permute_copy_8, 8)

static permute_copy *const permute_copies[] = {
    [1] = permute_copy_1,
    [2] = permute_copy_2,
    [4] = permute_copy_4,
    [8] = permute_copy_8,
};
#define PERMUTE_COPIES (sizeof(permute_copies) / sizeof(permute_copies[0]))

static bool permute_valid(const struct gpu_permute_params *permute)
{
    if (permute->element_bytes >= PERMUTE_COPIES || !permute_copies[permute->element_bytes]) {
        return false;
    }
    uint64_t last = saturating_add(permute->first_index, permute->element_count);
    uint64_t total = permute->shard_bytes / permute->element_bytes;
    return permute->element_count == 0 ||
           (last <= total &&
            strided_is_dense(permute->dims, permute->strides, permute->dims_count, total));
}

static uint64_t permute_packed_bytes(const struct gpu_permute_params *permute)
{
    return saturating_multiply(permute->element_count, permute->element_bytes);
}

static uint32_t permute_operands(const void *params, struct gpu_operand *ret)
{
    const struct gpu_permute_params *permute = params;
    if (!permute_valid(permute)) {
        *ret = (struct gpu_operand){0, UINT64_MAX, true, false};
        return 1;
    }
    if (permute->element_count == 0) {
        return 0;
    }
    uint64_t shard_end = saturating_add(permute->shard, permute->shard_bytes);
    uint64_t packed_end = saturating_add(permute->packed, permute_packed_bytes(permute));
    bool to_shard = permute->to_shard != 0;
    ret[0] = (struct gpu_operand){permute->shard, shard_end - permute->shard, to_shard, false};
    ret[1] = (struct gpu_operand){permute->packed, packed_end - permute->packed, !to_shard, false};
    return 2;
}

static uint64_t permute_traffic_bytes(const void *params)
{
    const struct gpu_permute_params *permute = params;
    return permute_valid(permute) ? saturating_multiply(2, permute_packed_bytes(permute)) : 0;
}

static uint64_t permute_chunks(const void *params)
{
    uint64_t chunks = divide_up(permute_traffic_bytes(params), PERMUTE_CHUNK_BYTES);
    chunks = chunks < UINT32_MAX ? chunks : UINT32_MAX; /* gpu_movement_part() counts in 32 bits */
    return chunks ? chunks : 1;
}

/** @p count elements from the position of @p walk on, within its run. */
static void permute_run_piece(const struct gpu_permute_params *permute,
                              const struct strided_walk *walk, char *packed, uint64_t count)
{
    uint64_t element_bytes = permute->element_bytes;
    uint64_t step = walk->steps[walk->rank - 1] * element_bytes;
    char *shard = (char *)(uintptr_t)(permute->shard + walk->value * element_bytes);
    char *to = permute->to_shard ? shard : packed;
    char *from = permute->to_shard ? packed : shard;
    if (step == element_bytes) {
        memcpy(to, from, count * element_bytes);
        return;
    }
    uint64_t to_step = permute->to_shard ? step : element_bytes;
    uint64_t from_step = permute->to_shard ? element_bytes : step;
    permute_copies[element_bytes](to, to_step, from, from_step, count);
}

static void permute_run(const void *params, uint64_t chunk,
                        const struct gpu_twin_services *services)
{
    (void)services;
    const struct gpu_permute_params *permute = params;
    if (permute->element_count == 0 || !permute_valid(permute)) {
        return;
    }
    uint64_t first, count;
    gpu_movement_part(permute->element_count, (uint32_t)chunk, (uint32_t)permute_chunks(permute),
                      &first, &count);
    struct strided_walk walk;
    strided_walk_init(&walk, permute->dims, permute->strides, permute->dims_count,
                      permute->first_index + first);
    char *packed = (char *)(uintptr_t)(permute->packed + first * permute->element_bytes);
    for (uint64_t done = 0; done < count;) {
        uint64_t run = strided_walk_run(&walk);
        run = run < count - done ? run : count - done;
        permute_run_piece(permute, &walk, packed + done * permute->element_bytes, run);
        strided_walk_advance(&walk, run);
        done += run;
    }
}

const struct gpu_twin gpu_twin_permute = {
    .name = "symtensor_permute",
    .params_bytes = sizeof(struct gpu_permute_params),
    .operands = permute_operands,
    .traffic_bytes = permute_traffic_bytes,
    .chunks = permute_chunks,
    .run = permute_run,
};
