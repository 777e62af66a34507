#include "tests/support/leak_check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/kernels/lines.h"
#include "gpu/kernels/twin.h"
#include "tests/support/reduce_reference.h"

/* ------------------------------------------------------------------ buffers of a group */

#define GUARD 192u /* bytes around each buffer that nobody may touch */
#define GUARD_BYTE 0xa5

/** world_size inputs and outputs at chosen misalignments, and what the outputs must become. */
struct group {
    enum st_dtype dtype;
    uint32_t element_bytes, world_size;
    uint64_t count;
    size_t shift;             /* bytes off a line border: inputs by shift, outputs by 2 * shift */
    unsigned char *memory[2]; /* inputs, outputs: [world_size][slot] */
    unsigned char *expected;  /* [world_size][slot], as outputs */
    size_t slot;
};

static unsigned char *group_input(const struct group *group, uint32_t rank)
{
    return group->memory[0] + rank * group->slot + GUARD + group->shift;
}

static unsigned char *group_output(const struct group *group, uint32_t rank)
{
    return group->memory[1] + rank * group->slot + GUARD + 2 * group->shift;
}

static unsigned char *group_expected(const struct group *group, uint32_t rank)
{
    return group->expected + (group_output(group, rank) - group->memory[1]);
}

static void group_create(struct group *group, enum st_dtype dtype, uint32_t world_size,
                         uint64_t count, size_t shift)
{
    group->dtype = dtype;
    group->element_bytes = st_dtype_info(dtype)->size_bytes;
    group->world_size = world_size;
    group->count = count;
    group->shift = shift;
    group->slot = (count * group->element_bytes + 2 * GUARD + 2 * shift + 63) / 64 * 64;
    for (unsigned i = 0; i < 2; i++) {
        group->memory[i] = aligned_alloc(64, world_size * group->slot);
        assert_non_null(group->memory[i]);
        memset(group->memory[i], GUARD_BYTE, world_size * group->slot);
    }
    group->expected = malloc(world_size * group->slot);
    assert_non_null(group->expected);
    memset(group->expected, GUARD_BYTE, world_size * group->slot);
    for (uint32_t rank = 0; rank < world_size; rank++) {
        test_random_elements(dtype, 1000 * count + rank, count, group_input(group, rank));
    }
}

static void group_destroy(struct group *group)
{
    free(group->memory[0]);
    free(group->memory[1]);
    free(group->expected);
}

/** Make the outputs the inputs: the same values, in place from now on. */
static void group_reset_in_place(const struct group *group)
{
    memset(group->memory[1], GUARD_BYTE, group->world_size * group->slot);
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        memcpy(group_output(group, rank), group_input(group, rank),
               group->count * group->element_bytes);
    }
}

static void group_reset(const struct group *group)
{
    memset(group->memory[1], GUARD_BYTE, group->world_size * group->slot);
}

static void group_params(const struct group *group, bool in_place, struct gpu_move_params *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        ret->outputs[rank] = (uintptr_t)group_output(group, rank);
        ret->inputs[rank] = in_place ? ret->outputs[rank] : (uintptr_t)group_input(group, rank);
    }
    ret->world_size = group->world_size;
    ret->dtype = group->dtype;
    ret->part_count = 1;
}

static void group_inputs(const struct group *group, const void **ret)
{
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        ret[rank] = group_input(group, rank);
    }
}

/** Every rank's output, and no byte beside it, is as expected. */
static void group_check(const struct group *group, const char *what)
{
    size_t bytes = group->world_size * group->slot;
    if (memcmp(group->memory[1], group->expected, bytes) == 0) {
        return;
    }
    size_t at = 0;
    while (group->memory[1][at] == group->expected[at]) {
        at++;
    }
    fail_msg("%s: %s, world %u, count %llu: rank %zu byte %zd is 0x%02x, not 0x%02x", what,
             st_dtype_info(group->dtype)->name, group->world_size, (unsigned long long)group->count,
             at / group->slot, (ssize_t)(at % group->slot) - (ssize_t)(GUARD + 2 * group->shift),
             group->memory[1][at], group->expected[at]);
}

/** Half of a launch: every second chunk, the last one first. */
struct half {
    const struct gpu_twin *twin;
    const void *params;
    const struct gpu_twin_services *services;
    uint64_t first;
};

static void *run_half(void *arg)
{
    const struct half *half = arg;
    for (uint64_t chunk = half->twin->chunks(half->params); chunk > 0; chunk--) {
        if (chunk % 2 == half->first) {
            half->twin->run(half->params, chunk - 1, half->services);
        }
    }
    gpu_twin_publish();
    return NULL;
}

/** Run all chunks, on two threads where there are several. */
static void run_twin(const char *name, const void *params, const struct gpu_twin_services *services)
{
    const struct gpu_twin *twin = gpu_twin_find(name);
    assert_non_null(twin);
    struct half odd = {twin, params, services, 1}, even = {twin, params, services, 0};
    pthread_t thread;
    bool several = twin->chunks(params) > 1;
    if (several) {
        assert_int_equal(pthread_create(&thread, NULL, run_half, &even), 0);
    }
    run_half(&odd);
    if (several) {
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

static void run_move(const struct gpu_move_params *params)
{
    run_twin("symtensor_move", params, NULL);
}

static struct gpu_movement reduce_to_all(uint64_t count)
{
    return (struct gpu_movement){
        .count = count,
        .source_rank = GPU_RANK_ALL,
        .destination_rank = GPU_RANK_ALL,
        .kind = GPU_MOVEMENT_REDUCE,
    };
}

/* ------------------------------------------------------------------ the table */

static void every_supported_pair_has_a_kernel_in_every_variant(void **state)
{
    (void)state;
    for (const struct gpu_line_variant *const *v = gpu_line_variants; *v; v++) {
        for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
            for (unsigned op = 0; op < ST_OP_COUNT; op++) {
                bool supported = st_reduce_op_supports((enum st_reduce_op)op, (enum st_dtype)dtype);
                assert_int_equal((*v)->reduce[dtype][op] != NULL, supported);
            }
        }
    }
}

static void twins_are_found_by_name(void **state)
{
    (void)state;
    for (const struct gpu_twin *const *twin = gpu_twins; *twin; twin++) {
        assert_ptr_equal(gpu_twin_find((*twin)->name), *twin);
        assert_true((*twin)->params_bytes <= GPU_KERNEL_PARAMS_MAX);
    }
    assert_non_null(gpu_twin_find("symtensor_move"));
    assert_non_null(gpu_twin_find("symtensor_multicast"));
    assert_non_null(gpu_twin_find("symtensor_fill"));
    assert_non_null(gpu_twin_find("symtensor_permute"));
    assert_null(gpu_twin_find("symtensor_"));
}

/* ------------------------------------------------------------------ reductions */

/** Call @p check for each variant that this machine can run. */
static void for_each_variant(void (*check)(const char *variant, void *arg), void *arg)
{
    for (const struct gpu_line_variant *const *v = gpu_line_variants; *v; v++) {
        if ((*v)->usable()) {
            gpu_lines_select(*v);
            check((*v)->name, arg);
        }
    }
    gpu_lines_select(NULL);
}

struct reduce_case {
    const struct group *group;
    enum st_reduce_op op;
};

static void check_reduce(const char *variant, void *arg)
{
    const struct reduce_case *reduce = arg;
    char what[64];
    snprintf(what, sizeof(what), "%s %s", variant, st_reduce_op_info(reduce->op)->name);
    for (unsigned i = 0; i < 4; i++) {
        struct gpu_move_params params;
        bool in_place = i & 1;
        group_params(reduce->group, in_place, &params);
        params.op = reduce->op;
        params.streaming = i >> 1;
        params.movement_count = 1;
        params.movements[0] = reduce_to_all(reduce->group->count);
        if (in_place) {
            group_reset_in_place(reduce->group);
        } else {
            group_reset(reduce->group);
        }
        run_move(&params);
        group_check(reduce->group, what);
    }
}

/** All ops of a group's dtype, in all variants, streaming or not, in place or not. */
static void check_ops(const struct group *group)
{
    const void *inputs[GPU_KERNEL_RANKS_MAX];
    group_inputs(group, inputs);
    for (unsigned op = 0; op < ST_OP_COUNT; op++) {
        struct reduce_case reduce = {group, (enum st_reduce_op)op};
        if (!st_reduce_op_supports(reduce.op, group->dtype)) {
            continue;
        }
        test_reduce(group->dtype, reduce.op, inputs, group->world_size, group->count,
                    group_expected(group, 0));
        for (uint32_t rank = 1; rank < group->world_size; rank++) {
            memcpy(group_expected(group, rank), group_expected(group, 0),
                   group->count * group->element_bytes);
        }
        for_each_variant(check_reduce, &reduce);
    }
}

static void check_sizes(enum st_dtype dtype, uint32_t world_size)
{
    static const uint64_t counts[] = {0, 1, 2, 7, 63, 64, 65, 331, 1003};
    uint32_t element_bytes = st_dtype_info(dtype)->size_bytes;
    const size_t shifts[] = {0, element_bytes, 3 * element_bytes, 3};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (world_size > 8 && counts[i] > 331) {
            continue;
        }
        struct group group;
        size_t shift = shifts[(i + world_size) % 4];
        group_create(&group, dtype, world_size, counts[i], shift);
        check_ops(&group);
        group_destroy(&group);
    }
}

static void reductions_give_the_bits_of_the_rule(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 5, 7, 8, 64};
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
            check_sizes((enum st_dtype)dtype, worlds[i]);
        }
    }
}

static void every_pair_of_one_byte_elements_reduces_by_the_rule(void **state)
{
    (void)state;
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        if (st_dtype_info((enum st_dtype)dtype)->size_bytes != 1) {
            continue;
        }
        struct group group;
        group_create(&group, (enum st_dtype)dtype, 2, 1u << 16, 0);
        for (unsigned i = 0; i < 1u << 16; i++) {
            group_input(&group, 0)[i] = (unsigned char)i;
            group_input(&group, 1)[i] = (unsigned char)(i >> 8);
        }
        check_ops(&group);
        group_destroy(&group);
    }
}

static void every_two_byte_element_meets_every_scale(void **state)
{
    (void)state;
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        if (st_dtype_info((enum st_dtype)dtype)->size_bytes != 2) {
            continue;
        }
        for (unsigned step = 0; step < 16; step++) {
            struct group group;
            group_create(&group, (enum st_dtype)dtype, 3, 1u << 16, 0);
            for (unsigned i = 0; i < 1u << 16; i++) {
                uint16_t codes[] = {(uint16_t)i, (uint16_t)(i * 40503u + step * 4096),
                                    (uint16_t)(step << 12 | (i & 0x8001))};
                for (uint32_t rank = 0; rank < 3; rank++) {
                    memcpy(group_input(&group, rank) + 2 * i, &codes[rank], 2);
                }
            }
            check_ops(&group);
            group_destroy(&group);
        }
    }
}

static void averages_of_integers_are_exact_at_the_borders(void **state)
{
    (void)state;
    static const enum st_dtype dtypes[] = {ST_DTYPE_INT32, ST_DTYPE_UINT32, ST_DTYPE_INT16,
                                           ST_DTYPE_UINT16};
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        for (uint32_t world_size = 1; world_size <= 64; world_size++) {
            /* Sums just below, at and just above multiples of world_size, at both ends of the
             * range. */
            struct group group;
            group_create(&group, dtypes[d], world_size, 256, 0);
            uint32_t bytes = group.element_bytes;
            for (uint64_t i = 0; i < 256; i++) {
                for (uint32_t rank = 0; rank < world_size; rank++) {
                    uint64_t low = (i & 1) ? (1ull << (8 * bytes - 1)) : 0;
                    uint64_t value = low - (i & 2 ? 1 : 0) - (i & 4 ? 2 : 0);
                    value += rank == 0 ? (i >> 3) - 16 : 0;
                    memcpy(group_input(&group, rank) + i * bytes, &value, bytes);
                }
            }
            check_ops(&group);
            group_destroy(&group);
        }
    }
}

/* ------------------------------------------------------------------ parts, chunks, destinations */

static void parts_write_their_own_elements_and_all_of_them(void **state)
{
    (void)state;
    static const uint32_t part_counts[] = {1, 2, 3, 7, 64};
    struct group group;
    group_create(&group, ST_DTYPE_BFLOAT16, 3, 1003, 2);
    const void *inputs[3];
    group_inputs(&group, inputs);
    unsigned char sum[2 * 1003];
    test_reduce(ST_DTYPE_BFLOAT16, ST_OP_SUM, inputs, 3, 1003, sum);
    for (size_t i = 0; i < sizeof(part_counts) / sizeof(part_counts[0]); i++) {
        group_reset(&group);
        memcpy(group.expected, group.memory[1], 3 * group.slot);
        for (uint32_t part = 0; part < part_counts[i]; part++) {
            struct gpu_move_params params;
            group_params(&group, false, &params);
            params.op = ST_OP_SUM;
            params.part_index = part;
            params.part_count = part_counts[i];
            params.movement_count = 1;
            params.movements[0] = reduce_to_all(1003);
            run_move(&params);
            uint64_t first, count;
            gpu_movement_part(1003, part, part_counts[i], &first, &count);
            for (uint32_t rank = 0; rank < 3; rank++) {
                memcpy(group_expected(&group, rank) + 2 * first, sum + 2 * first, 2 * count);
            }
            group_check(&group, "part");
        }
        assert_memory_equal(group_output(&group, 2), sum, sizeof(sum));
    }
    group_destroy(&group);
}

static void chunks_of_large_launches_write_everything(void **state)
{
    (void)state;
    const uint64_t count = 300001;
    struct group group;
    group_create(&group, ST_DTYPE_INT32, 4, count, 4);
    const void *inputs[4];
    group_inputs(&group, inputs);
    for (unsigned streaming = 0; streaming < 2; streaming++) {
        struct gpu_move_params params;
        group_params(&group, false, &params);
        group_reset(&group);
        memcpy(group.expected, group.memory[1], 4 * group.slot);
        params.op = ST_OP_SUM;
        params.streaming = streaming;
        params.movement_count = 5;
        /* A list of large and small ones: [0, 5) copied, [5, 200000) reduced, and so on. */
        const uint64_t borders[] = {0, 5, 200000, 200001, 200070, count};
        for (uint32_t i = 0; i < 5; i++) {
            bool reduce = i % 2 == 1;
            uint64_t size = borders[i + 1] - borders[i];
            params.movements[i] = (struct gpu_movement){
                .source_offset = borders[i],
                .destination_offset = borders[i],
                .count = size,
                .source_rank = reduce ? GPU_RANK_ALL : 2,
                .destination_rank = i == 3 ? 1 : GPU_RANK_ALL,
                .kind = reduce ? GPU_MOVEMENT_REDUCE : GPU_MOVEMENT_COPY,
            };
            const void *at[4];
            for (uint32_t rank = 0; rank < 4; rank++) {
                at[rank] = (const char *)inputs[rank] + 4 * borders[i];
            }
            for (uint32_t rank = i == 3 ? 1 : 0; rank < (i == 3 ? 2u : 4u); rank++) {
                unsigned char *to = group_expected(&group, rank) + 4 * borders[i];
                if (reduce) {
                    test_reduce(ST_DTYPE_INT32, ST_OP_SUM, at, 4, size, to);
                } else {
                    memcpy(to, at[2], 4 * size);
                }
            }
        }
        const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
        uint64_t traffic = 4 * ((5 + 1 + count - 200070) * 5 + 199995 * 8 + 69 * 5);
        assert_int_equal(twin->traffic_bytes(&params), traffic);
        assert_int_equal(twin->chunks(&params), (traffic + (1u << 20) - 1) >> 20);
        run_move(&params);
        group_check(&group, "chunks");
    }
    group_destroy(&group);
}

static void check_copies(const char *variant, void *arg)
{
    struct group *group = arg;
    for (unsigned i = 0; i < 8; i++) {
        bool in_place = i & 1, all = i & 2;
        struct gpu_move_params params;
        group_params(group, in_place, &params);
        if (in_place) {
            group_reset_in_place(group);
        } else {
            group_reset(group);
        }
        memcpy(group->expected, group->memory[1], group->world_size * group->slot);
        params.streaming = i >> 2;
        params.movement_count = 1;
        uint64_t count = group->count - 3;
        params.movements[0] = (struct gpu_movement){
            .source_offset = all ? 2 : 3,
            .destination_offset = 2,
            .count = count,
            .source_rank = 1,
            .destination_rank = all ? GPU_RANK_ALL : 2,
            .kind = GPU_MOVEMENT_COPY,
        };
        uint32_t size = group->element_bytes;
        for (uint32_t rank = 0; rank < group->world_size; rank++) {
            if (all || rank == 2) {
                memcpy(group_expected(group, rank) + 2 * size,
                       group_input(group, 1) + params.movements[0].source_offset * size,
                       count * size);
            }
        }
        run_move(&params);
        group_check(group, variant);
    }
}

static void copies_move_any_bits_unchanged(void **state)
{
    (void)state;
    static const uint64_t counts[] = {4, 67, 1000, 5003};
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            struct group group;
            size_t size = st_dtype_info((enum st_dtype)dtype)->size_bytes;
            group_create(&group, (enum st_dtype)dtype, 4, counts[i], i == 3 ? 1 : i * size);
            for_each_variant(check_copies, &group);
            group_destroy(&group);
        }
    }
}

static void copies_in_place_do_not_write_their_source(void **state)
{
    (void)state;
    const size_t bytes = 4096;
    unsigned char *source = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char other[4096];
    assert_true(source != MAP_FAILED);
    for (unsigned streaming = 0; streaming < 2; streaming++) {
        struct gpu_move_params params = {.inputs = {(uintptr_t)other, (uintptr_t)source},
                                         .outputs = {(uintptr_t)other, (uintptr_t)source},
                                         .world_size = 2,
                                         .dtype = ST_DTYPE_UINT8,
                                         .part_count = 1,
                                         .movement_count = 1,
                                         .streaming = streaming};
        params.movements[0] = (struct gpu_movement){
            .count = bytes, .source_rank = 1, .destination_rank = GPU_RANK_ALL};
        memset(other, 1, sizeof(other));
        run_move(&params); /* writing to the source would crash */
        assert_memory_equal(other, source, bytes);
    }
    munmap(source, bytes);
}

static void exchanges_swap_both_places(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 100, 5000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint32_t part_count = 1; part_count <= 3; part_count++) {
            struct group group;
            uint64_t count = counts[i];
            group_create(&group, ST_DTYPE_FLOAT32, 3, 2 * count, 4);
            struct gpu_move_params params;
            group_params(&group, true, &params);
            group_reset_in_place(&group);
            memcpy(group.expected, group.memory[1], 3 * group.slot);
            memcpy(group_expected(&group, 0) + 4 * count, group_input(&group, 2), 4 * count);
            memcpy(group_expected(&group, 2), group_input(&group, 0) + 4 * count, 4 * count);
            params.movement_count = 1;
            params.part_count = part_count;
            params.movements[0] = (struct gpu_movement){
                .source_offset = count,
                .count = count,
                .source_rank = 0,
                .destination_rank = 2,
                .kind = GPU_MOVEMENT_EXCHANGE,
            };
            for (params.part_index = 0; params.part_index < part_count; params.part_index++) {
                run_move(&params);
            }
            group_check(&group, "exchange");
            group_destroy(&group);
        }
    }
}

static void outputs_without_an_address_are_left_out(void **state)
{
    (void)state;
    for (unsigned streaming = 0; streaming < 2; streaming++) {
        struct group group;
        group_create(&group, ST_DTYPE_FLOAT64, 5, 333, 0);
        struct gpu_move_params params;
        group_params(&group, false, &params);
        params.streaming = streaming;
        params.op = ST_OP_MAX;
        params.outputs[0] = params.outputs[3] = 0;
        params.movement_count = 1;
        params.movements[0] = reduce_to_all(333);
        const void *inputs[5];
        group_inputs(&group, inputs);
        for (uint32_t rank = 0; rank < 5; rank++) {
            if (params.outputs[rank]) {
                test_reduce(ST_DTYPE_FLOAT64, ST_OP_MAX, inputs, 5, 333,
                            group_expected(&group, rank));
            }
        }
        run_move(&params);
        group_check(&group, "three of five");
        group_destroy(&group);
    }
}

static void slices_of_different_ranks_reduce_in_place(void **state)
{
    (void)state;
    /* reduce_scatter of odd slices: slice r of every rank into slice r of rank r. */
    const uint64_t slice = 77;
    for (unsigned streaming = 0; streaming < 2; streaming++) {
        struct group group;
        group_create(&group, ST_DTYPE_FLOAT16, 5, 5 * slice, 0);
        const void *inputs[5];
        struct gpu_move_params params;
        group_params(&group, true, &params);
        group_reset_in_place(&group);
        memcpy(group.expected, group.memory[1], 5 * group.slot);
        params.streaming = streaming;
        params.op = ST_OP_PROD;
        params.movement_count = 5;
        for (uint32_t rank = 0; rank < 5; rank++) {
            params.movements[rank] = reduce_to_all(slice);
            params.movements[rank].source_offset = rank * slice;
            params.movements[rank].destination_offset = rank * slice;
            params.movements[rank].destination_rank = (uint16_t)rank;
            for (uint32_t i = 0; i < 5; i++) {
                inputs[i] = group_input(&group, i) + 2 * rank * slice;
            }
            test_reduce(ST_DTYPE_FLOAT16, ST_OP_PROD, inputs, 5, slice,
                        group_expected(&group, rank) + 2 * rank * slice);
        }
        run_move(&params);
        group_check(&group, "reduce_scatter");
        group_destroy(&group);
    }
}

/* ------------------------------------------------------------------ multicast */

#define MULTICAST_INPUT 0x100000000ull
#define MULTICAST_OUTPUT 0x200000000ull

/** Two multicast ranges over the inputs and outputs of a group. */
static bool resolve_group(void *context, uint64_t address, uint64_t bytes,
                          struct gpu_twin_members *ret)
{
    const struct group *group = context;
    bool output = address >= MULTICAST_OUTPUT;
    uint64_t offset = address - (output ? MULTICAST_OUTPUT : MULTICAST_INPUT);
    if (offset + bytes > group->count * group->element_bytes) {
        return false;
    }
    ret->count = group->world_size;
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->addresses[i] = (output ? group_output(group, i) : group_input(group, i)) + offset;
    }
    return true;
}

static void multicast_reduces_in_another_order_and_reaches_every_member(void **state)
{
    (void)state;
    const uint64_t count = 400;
    struct group group;
    group_create(&group, ST_DTYPE_FLOAT32, 4, count, 0);
    const void *forward[4], *backward[4];
    group_inputs(&group, forward);
    for (uint32_t i = 0; i < 4; i++) {
        backward[i] = (const char *)forward[3 - i] + 4 * 100;
    }
    struct gpu_multicast_params params = {.multicast_input = MULTICAST_INPUT,
                                          .multicast_output = MULTICAST_OUTPUT};
    group_params(&group, false, &params.move);
    params.move.op = ST_OP_SUM;
    params.move.movement_count = 3;
    /* All to all; all to one rank; one to all. */
    params.move.movements[0] = reduce_to_all(100);
    params.move.movements[0].source_offset = 100;
    params.move.movements[1] = params.move.movements[0];
    params.move.movements[1].destination_rank = 3;
    params.move.movements[1].destination_offset = 100;
    params.move.movements[2] = (struct gpu_movement){.source_offset = 7,
                                                     .destination_offset = 200,
                                                     .count = 200,
                                                     .source_rank = 1,
                                                     .destination_rank = GPU_RANK_ALL,
                                                     .kind = GPU_MOVEMENT_COPY};
    for (uint32_t rank = 0; rank < 4; rank++) {
        test_reduce(ST_DTYPE_FLOAT32, ST_OP_SUM, backward, 4, 100, group_expected(&group, rank));
        memcpy(group_expected(&group, rank) + 4 * 200, group_input(&group, 1) + 4 * 7, 4 * 200);
    }
    test_reduce(ST_DTYPE_FLOAT32, ST_OP_SUM, backward, 4, 100, group_expected(&group, 3) + 4 * 100);
    struct gpu_twin_services services = {resolve_group, &group};
    run_twin("symtensor_multicast", &params, &services);
    group_check(&group, "multicast");

    unsigned char in_order[4 * 100];
    for (uint32_t i = 0; i < 4; i++) {
        forward[i] = (const char *)forward[i] + 4 * 100;
    }
    test_reduce(ST_DTYPE_FLOAT32, ST_OP_SUM, forward, 4, 100, in_order);
    assert_memory_not_equal(in_order, group_output(&group, 0), sizeof(in_order));
    group_destroy(&group);
}

static void multicast_operands_name_the_multicast_ranges(void **state)
{
    (void)state;
    struct group group;
    group_create(&group, ST_DTYPE_FLOAT32, 4, 400, 0);
    struct gpu_multicast_params params = {.multicast_input = MULTICAST_INPUT,
                                          .multicast_output = MULTICAST_OUTPUT};
    group_params(&group, false, &params.move);
    params.move.op = ST_OP_SUM;
    params.move.movement_count = 2;
    params.move.movements[0] = reduce_to_all(100);
    params.move.movements[0].source_offset = 10;
    params.move.movements[1] = params.move.movements[0];
    params.move.movements[1].destination_rank = 3;
    struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
    const struct gpu_twin *twin = gpu_twin_find("symtensor_multicast");
    assert_int_equal(twin->operands(&params, operands), 3);
    assert_true(operands[0].write && !operands[0].multicast);
    assert_int_equal(operands[0].address, params.move.outputs[3]);
    assert_int_equal(operands[0].bytes, 400);
    assert_true(!operands[1].write && operands[1].multicast);
    assert_int_equal(operands[1].address, MULTICAST_INPUT + 40);
    assert_int_equal(operands[1].bytes, 400);
    assert_true(operands[2].write && operands[2].multicast);
    assert_int_equal(operands[2].address, MULTICAST_OUTPUT);
    assert_int_equal(operands[2].bytes, 400);
    group_destroy(&group);
}

/* ------------------------------------------------------------------ operands */

static void operands_are_the_ranges_that_are_touched(void **state)
{
    (void)state;
    struct gpu_move_params params = {
        .inputs = {1000, 2000, 3000},
        .outputs = {4000, 0, 6000},
        .world_size = 3,
        .dtype = ST_DTYPE_INT16,
        .op = ST_OP_SUM,
        .part_index = 1,
        .part_count = 2,
        .movement_count = 2,
    };
    params.movements[0] = reduce_to_all(150); /* part 1: elements 128..149 */
    params.movements[0].source_offset = 5;
    params.movements[1] = (struct gpu_movement){.count = 10, /* all of it is part 0 */
                                                .destination_offset = 500,
                                                .source_rank = 1,
                                                .destination_rank = 2};
    struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
    const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
    static const struct gpu_operand expected[] = {
        {4000 + 256, 44, true, false},  {1000 + 266, 44, false, false},
        {2000 + 266, 44, false, false}, {6000 + 256, 44, true, false},
        {3000 + 266, 44, false, false},
    };
    assert_int_equal(twin->operands(&params, operands), 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(operands[i].address, expected[i].address);
        assert_int_equal(operands[i].bytes, expected[i].bytes);
        assert_int_equal(operands[i].write, expected[i].write);
        assert_false(operands[i].multicast);
    }
    params.part_index = 0;
    assert_int_equal(twin->operands(&params, operands), 5);
    assert_int_equal(operands[3].address, 6000);
    assert_int_equal(operands[3].bytes, 1020);
}

static void operands_of_the_largest_launch_fit(void **state)
{
    (void)state;
    struct gpu_move_params params = {
        .world_size = 64, .dtype = ST_DTYPE_FLOAT32, .part_count = 1, .movement_count = 64};
    for (uint32_t i = 0; i < 64; i++) {
        params.inputs[i] = (i + 1) << 20;
        params.outputs[i] = (i + 1) << 24;
        params.movements[i] = (struct gpu_movement){.count = 10,
                                                    .destination_offset = 10 * i,
                                                    .source_rank = (uint16_t)i,
                                                    .destination_rank = GPU_RANK_ALL};
    }
    struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
    const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
    assert_int_equal(twin->operands(&params, operands), 128);
    assert_int_equal(operands[0].bytes, 4 * 640);
    assert_int_equal(operands[1].bytes, 40);
}

static void in_place_ranges_appear_once_as_written(void **state)
{
    (void)state;
    struct gpu_move_params params = {.inputs = {1000, 2000},
                                     .outputs = {1000, 2000},
                                     .world_size = 2,
                                     .dtype = ST_DTYPE_BOOL,
                                     .op = ST_OP_LOR,
                                     .part_count = 1,
                                     .movement_count = 1};
    params.movements[0] = reduce_to_all(9);
    struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
    const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
    assert_int_equal(twin->operands(&params, operands), 2);
    assert_true(operands[0].write && operands[1].write);
}

static void spoil_dtype(struct gpu_move_params *params)
{
    params->dtype = ST_DTYPE_COUNT;
}

static void spoil_op(struct gpu_move_params *params)
{
    params->op = ST_OP_COUNT;
}

static void spoil_pair(struct gpu_move_params *params)
{
    params->op = ST_OP_BXOR;
}

static void spoil_world_size(struct gpu_move_params *params)
{
    params->world_size = GPU_KERNEL_RANKS_MAX + 1;
}

static void spoil_empty_world(struct gpu_move_params *params)
{
    params->world_size = 0;
}

static void spoil_part(struct gpu_move_params *params)
{
    params->part_index = params->part_count;
}

static void spoil_movement_count(struct gpu_move_params *params)
{
    params->movement_count = GPU_KERNEL_MOVEMENTS_MAX + 1;
}

static void spoil_kind(struct gpu_move_params *params)
{
    params->movements[0].kind = 3;
}

static void spoil_destination(struct gpu_move_params *params)
{
    params->movements[0].destination_rank = 2;
}

static void spoil_source(struct gpu_move_params *params)
{
    params->movements[0].kind = GPU_MOVEMENT_COPY;
    params->movements[0].source_rank = GPU_RANK_ALL;
}

static void spoil_exchange(struct gpu_move_params *params)
{
    params->movements[0].kind = GPU_MOVEMENT_EXCHANGE;
    params->movements[0].source_rank = 0;
    params->movements[0].destination_rank = GPU_RANK_ALL;
}

static void nonsense_is_refused_by_a_range_that_nobody_maps(void **state)
{
    (void)state;
    static void (*const spoilers[])(struct gpu_move_params *) = {
        spoil_dtype,       spoil_op,     spoil_pair,           spoil_world_size,
        spoil_empty_world, spoil_part,   spoil_movement_count, spoil_kind,
        spoil_destination, spoil_source, spoil_exchange};
    const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
    for (size_t i = 0; i < sizeof(spoilers) / sizeof(spoilers[0]); i++) {
        struct gpu_move_params params = {.world_size = 2,
                                         .dtype = ST_DTYPE_FLOAT32,
                                         .op = ST_OP_SUM,
                                         .part_count = 1,
                                         .movement_count = 1};
        params.movements[0] = reduce_to_all(9);
        spoilers[i](&params);
        struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
        assert_int_equal(twin->operands(&params, operands), 1);
        assert_int_equal(operands[0].address, 0);
        assert_true(operands[0].bytes == UINT64_MAX && operands[0].write);
        assert_int_equal(twin->chunks(&params), 1);
        twin->run(&params, 0, NULL); /* touches nothing: address 0 would crash */
    }
}

static void operands_that_would_wrap_end_at_the_last_address(void **state)
{
    (void)state;
    static const struct gpu_movement movements[] = {
        {.source_offset = UINT64_MAX, .count = 10, .source_rank = 0},
        {.source_offset = UINT64_MAX / 2, .count = 10, .source_rank = 0},
        {.source_offset = 0, .count = UINT64_MAX, .source_rank = 0},
        {.source_offset = 0, .count = UINT64_MAX / 2, .source_rank = 0},
    };
    for (size_t i = 0; i < sizeof(movements) / sizeof(movements[0]); i++) {
        struct gpu_move_params params = {.inputs = {4096},
                                         .outputs = {1u << 30},
                                         .world_size = 1,
                                         .dtype = ST_DTYPE_FLOAT64,
                                         .part_count = 1,
                                         .movement_count = 1,
                                         .movements = {movements[i]}};
        struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
        const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
        uint32_t count = twin->operands(&params, operands);
        uint64_t last = 0;
        for (uint32_t k = 0; k < count; k++) {
            uint64_t end;
            assert_false(__builtin_add_overflow(operands[k].address, operands[k].bytes, &end));
            last = end > last ? end : last;
        }
        assert_true(last == UINT64_MAX);
        assert_true(twin->chunks(&params) >= 1);
    }
}

static void nothing_to_do_needs_nothing(void **state)
{
    (void)state;
    for (uint32_t world_size = 1; world_size <= 64; world_size++) {
        struct gpu_move_params params = {.world_size = world_size,
                                         .dtype = ST_DTYPE_FLOAT32,
                                         .op = ST_OP_AVG,
                                         .part_count = 3,
                                         .movement_count = 1};
        params.movements[0] = reduce_to_all(0);
        struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
        const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
        for (params.part_index = 0; params.part_index < 3; params.part_index++) {
            assert_int_equal(twin->operands(&params, operands), 0);
            assert_int_equal(twin->traffic_bytes(&params), 0);
            assert_int_equal(twin->chunks(&params), 1);
            run_move(&params);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_supported_pair_has_a_kernel_in_every_variant),
        cmocka_unit_test(twins_are_found_by_name),
        cmocka_unit_test(reductions_give_the_bits_of_the_rule),
        cmocka_unit_test(every_pair_of_one_byte_elements_reduces_by_the_rule),
        cmocka_unit_test(every_two_byte_element_meets_every_scale),
        cmocka_unit_test(averages_of_integers_are_exact_at_the_borders),
        cmocka_unit_test(parts_write_their_own_elements_and_all_of_them),
        cmocka_unit_test(chunks_of_large_launches_write_everything),
        cmocka_unit_test(copies_move_any_bits_unchanged),
        cmocka_unit_test(copies_in_place_do_not_write_their_source),
        cmocka_unit_test(exchanges_swap_both_places),
        cmocka_unit_test(outputs_without_an_address_are_left_out),
        cmocka_unit_test(slices_of_different_ranks_reduce_in_place),
        cmocka_unit_test(multicast_reduces_in_another_order_and_reaches_every_member),
        cmocka_unit_test(multicast_operands_name_the_multicast_ranges),
        cmocka_unit_test(operands_are_the_ranges_that_are_touched),
        cmocka_unit_test(operands_of_the_largest_launch_fit),
        cmocka_unit_test(in_place_ranges_appear_once_as_written),
        cmocka_unit_test(nonsense_is_refused_by_a_range_that_nobody_maps),
        cmocka_unit_test(operands_that_would_wrap_end_at_the_last_address),
        cmocka_unit_test(nothing_to_do_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
