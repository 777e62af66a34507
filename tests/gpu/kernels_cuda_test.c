#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reduce_op.h"
#include "base/shape.h"
#include "gpu/kernels/twin.h"
#include "tests/gpu/kernels_device.h"
#include "tests/support/reduce_reference.h"

/*
 * The CUDA kernels beside their twins: the same parameters over copies of the same memory, compared
 * byte by byte, with the bytes around the buffers. kernels_cuda_test [IMAGE]: a cubin or fat binary
 * to test instead of the embedded one.
 */

#define EXIT_SKIPPED 77
#define ARENA_BYTES ((size_t)96 << 20)
#define GUARD 256u /* bytes between buffers that nobody may touch */
#define FAILURES_SHOWN 20u

static const uint32_t grids[] = {1, 7, 61};
#define GRIDS (sizeof(grids) / sizeof(grids[0]))

/** The memory of all cases, three times: on the device, as the twin leaves it, as the device did.
 */
struct arena {
    struct kernels_device device;
    unsigned char *twin, *seen;
    size_t used;
    unsigned cases, failures;
};

static struct arena arena;

/* ------------------------------------------------------------------ memory */

static size_t arena_take(size_t bytes, size_t shift)
{
    size_t at = arena.used + GUARD + shift;
    arena.used = (at + bytes + GUARD + 255) / 256 * 256;
    if (arena.used > ARENA_BYTES) {
        printf("the arena is too small\n");
        exit(1);
    }
    return at;
}

/** Begin a case: everything taken so far is filled from a seed, the same on both sides. */
static void arena_fill(enum st_dtype dtype, uint64_t seed)
{
    test_random_elements(dtype, seed, arena.used / st_dtype_info(dtype)->size_bytes, arena.twin);
    kernels_device_upload(&arena.device, 0, arena.twin, arena.used);
}

static uint64_t twin_address(size_t at)
{
    return (uintptr_t)arena.twin + at;
}

/** Run the twin over its copy, in the order of its chunks. */
static void twin_run(enum gpu_kernel kernel, const void *params)
{
    static const char *const symbols[GPU_KERNEL_COUNT] = {
#define X(name, symbol) symbol,
        GPU_KERNELS(X)
#undef X
    };
    const struct gpu_twin *twin = gpu_twin_find(symbols[kernel]);
    for (uint64_t chunk = 0; chunk < twin->chunks(params); chunk++) {
        twin->run(params, chunk, NULL);
    }
    gpu_twin_publish();
}

/** End a case: what both left must be the same. */
static void arena_compare(const char *what)
{
    arena.cases++;
    if (!kernels_device_wait(&arena.device)) {
        printf("%s\n", what);
        exit(1);
    }
    kernels_device_download(&arena.device, 0, arena.seen, arena.used);
    if (memcmp(arena.seen, arena.twin, arena.used) == 0) {
        return;
    }
    size_t at = 0, wrong = 0;
    for (size_t i = arena.used; i > 0; i--) {
        if (arena.seen[i - 1] != arena.twin[i - 1]) {
            at = i - 1;
            wrong++;
        }
    }
    if (arena.failures++ < FAILURES_SHOWN) {
        printf("WRONG %s: %zu bytes, the first at %zu is %02x, not %02x\n", what, wrong, at,
               arena.seen[at], arena.twin[at]);
    }
}

/* ------------------------------------------------------------------ movements */

/** One launch of symtensor_move, with the offsets of the ranks' buffers in the arena. */
struct move_case {
    struct gpu_move_params params; /**< inputs and outputs are offsets; SIZE_MAX: not written. */
    uint32_t parts;
    uint32_t grid;
    char what[160];
};

/** The parameters over memory that begins at @p base. */
static struct gpu_move_params move_over(const struct move_case *test, uint64_t base, uint32_t part)
{
    struct gpu_move_params params = test->params;
    for (uint32_t rank = 0; rank < params.world_size; rank++) {
        params.inputs[rank] += base;
        params.outputs[rank] = params.outputs[rank] == SIZE_MAX ? 0 : params.outputs[rank] + base;
    }
    params.part_index = part;
    params.part_count = test->parts;
    return params;
}

static void move_check(const struct move_case *test, uint64_t seed)
{
    arena_fill((enum st_dtype)test->params.dtype, seed);
    for (uint32_t part = 0; part < test->parts; part++) {
        struct gpu_move_params device = move_over(test, arena.device.address, part);
        struct gpu_move_params twin = move_over(test, twin_address(0), part);
        kernels_device_launch(&arena.device, GPU_KERNEL_MOVE, &device, test->grid);
        twin_run(GPU_KERNEL_MOVE, &twin);
    }
    arena_compare(test->what);
}

/** Buffers of all ranks. @param shifts bytes off a border, of inputs and of outputs. */
static void move_take(struct move_case *test, size_t input_bytes, size_t output_bytes,
                      const size_t *shifts)
{
    arena.used = 0;
    for (uint32_t rank = 0; rank < test->params.world_size; rank++) {
        test->params.inputs[rank] = arena_take(input_bytes, shifts[0]);
    }
    for (uint32_t rank = 0; rank < test->params.world_size; rank++) {
        test->params.outputs[rank] =
            output_bytes ? arena_take(output_bytes, shifts[1]) : test->params.inputs[rank];
    }
}

static void move_add(struct move_case *test, const struct gpu_movement *movement)
{
    test->params.movements[test->params.movement_count++] = *movement;
}

/** Both aligned; equally off a border, so that vectors fit; differently, so that none does. */
static const size_t shifts_in_elements[][2] = {{0, 0}, {3, 3}, {1, 0}};
#define SHIFTS (sizeof(shifts_in_elements) / sizeof(shifts_in_elements[0]))

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 7, 8, 64};
#define WORLDS (sizeof(worlds) / sizeof(worlds[0]))

/* ------------------------------------------------------------------ reductions */

struct reduce_case {
    enum st_dtype dtype;
    enum st_reduce_op op;
    uint32_t world_size;
    uint64_t count;
};

/** All alignments, in place or not, streaming or not. */
static void reduce_check(const struct reduce_case *reduce)
{
    uint64_t size = st_dtype_info(reduce->dtype)->size_bytes;
    for (unsigned i = 0; i < 2 * SHIFTS; i++) {
        bool in_place = i & 1;
        size_t shifts[] = {shifts_in_elements[i / 2][0] * size,
                           shifts_in_elements[i / 2][1] * size};
        struct move_case test = {.parts = 1, .grid = grids[(i + reduce->count) % GRIDS]};
        test.params.world_size = reduce->world_size;
        test.params.dtype = reduce->dtype;
        test.params.op = reduce->op;
        test.params.streaming = i / 2 % 2;
        test.params.fine = (i + reduce->count) % 2;
        move_take(&test, reduce->count * size, in_place ? 0 : reduce->count * size, shifts);
        move_add(&test, &(struct gpu_movement){.count = reduce->count,
                                               .source_rank = GPU_RANK_ALL,
                                               .destination_rank = GPU_RANK_ALL,
                                               .kind = GPU_MOVEMENT_REDUCE});
        snprintf(test.what, sizeof(test.what), "%s %s, world %u, count %llu, shift %u%s",
                 st_reduce_op_info(reduce->op)->name, st_dtype_info(reduce->dtype)->name,
                 reduce->world_size, (unsigned long long)reduce->count, i / 2,
                 in_place ? ", in place" : "");
        move_check(&test, reduce->count + reduce->world_size);
    }
}

/** Every pair over every world, with counts around a vector, and some of several tiles. */
static void every_pair_folds_like_its_twin(void)
{
    static const uint64_t counts[] = {0, 1, 17, 1000, 40001};
    for (unsigned pair = 0; pair < ST_DTYPE_COUNT * (unsigned)ST_OP_COUNT; pair++) {
        struct reduce_case reduce = {.dtype = (enum st_dtype)(pair / ST_OP_COUNT),
                                     .op = (enum st_reduce_op)(pair % ST_OP_COUNT)};
        if (!st_reduce_op_supports(reduce.op, reduce.dtype)) {
            continue;
        }
        for (unsigned i = 0; i < WORLDS * sizeof(counts) / sizeof(counts[0]); i++) {
            reduce.world_size = worlds[i % WORLDS];
            reduce.count = counts[i / WORLDS];
            if (reduce.count < 10000 || reduce.world_size == 3) {
                reduce_check(&reduce);
            }
        }
    }
}

/** A reduction to one rank, of slices, in parts: what two_shot and reduce_scatter launch. */
static void parts_and_slices_join(void)
{
    static const enum st_dtype dtypes[] = {ST_DTYPE_FLOAT32, ST_DTYPE_BFLOAT16, ST_DTYPE_UINT8};
    for (unsigned i = 0; i < WORLDS * 3; i++) {
        struct move_case test = {.parts = 1 + i % 3, .grid = grids[i % GRIDS]};
        uint64_t size = st_dtype_info(dtypes[i % 3])->size_bytes, count = 1237;
        test.params.world_size = worlds[i / 3];
        test.params.dtype = dtypes[i % 3];
        test.params.op = ST_OP_SUM;
        move_take(&test, test.params.world_size * count * size, count * size, (size_t[]){0, 0});
        for (uint32_t rank = 0; rank < test.params.world_size; rank++) {
            move_add(&test, &(struct gpu_movement){.source_offset = rank * count,
                                                   .count = count,
                                                   .source_rank = GPU_RANK_ALL,
                                                   .destination_rank = (uint16_t)rank,
                                                   .kind = GPU_MOVEMENT_REDUCE});
        }
        snprintf(test.what, sizeof(test.what), "reduce_scatter %s, world %u, %u parts",
                 st_dtype_info(dtypes[i % 3])->name, test.params.world_size, test.parts);
        move_check(&test, i);
    }
}

/* ------------------------------------------------------------------ copies */

enum copy_list { COPY_GATHER, COPY_GATHER_IN_PLACE, COPY_TO_ONE, COPY_ALL_TO_ALL, COPY_EXCHANGE };

/** The list's movements, as many as one launch takes. */
static void copy_list(struct move_case *test, enum copy_list list, uint64_t count)
{
    uint32_t world_size = test->params.world_size;
    for (uint32_t i = 0; i < world_size * world_size; i++) {
        uint32_t source = i / world_size, destination = i % world_size;
        bool to_all = list == COPY_GATHER || list == COPY_GATHER_IN_PLACE;
        struct gpu_movement movement = {
            .source_offset = list == COPY_GATHER || list == COPY_TO_ONE ? 0 : destination * count,
            .destination_offset = source * count,
            .count = count,
            .source_rank = (uint16_t)source,
            .destination_rank = (uint16_t)(to_all ? GPU_RANK_ALL : destination),
            .kind = list == COPY_EXCHANGE ? GPU_MOVEMENT_EXCHANGE : GPU_MOVEMENT_COPY,
        };
        bool wanted = to_all || list == COPY_TO_ONE ? destination == 0 : true;
        wanted = list == COPY_EXCHANGE ? source < destination : wanted;
        if (list == COPY_GATHER_IN_PLACE) {
            movement.source_offset = movement.destination_offset;
        }
        if (wanted && test->params.movement_count < GPU_KERNEL_MOVEMENTS_MAX) {
            move_add(test, &movement);
        }
    }
}

static void copy_check(enum st_dtype dtype, enum copy_list list, uint32_t world_size,
                       uint64_t count)
{
    static const char *const names[] = {"all_gather", "all_gather in place", "gather", "all_to_all",
                                        "exchange"};
    uint64_t size = st_dtype_info(dtype)->size_bytes;
    bool in_place = list == COPY_GATHER_IN_PLACE || list == COPY_EXCHANGE;
    for (unsigned i = 0; i < SHIFTS * GRIDS; i++) {
        size_t shifts[] = {shifts_in_elements[i % SHIFTS][0] * size,
                           shifts_in_elements[i % SHIFTS][1] * size};
        struct move_case test = {.parts = 1 + i / SHIFTS, .grid = grids[i / SHIFTS]};
        test.params.world_size = world_size;
        test.params.dtype = dtype;
        test.params.streaming = i & 1;
        test.params.fine = i >> 1 & 1;
        move_take(&test, world_size * count * size, in_place ? 0 : world_size * count * size,
                  shifts);
        if (list == COPY_TO_ONE) {
            for (uint32_t rank = 1; rank < world_size; rank++) {
                test.params.outputs[rank] = SIZE_MAX;
            }
        }
        copy_list(&test, list, count);
        snprintf(test.what, sizeof(test.what), "%s %s, world %u, count %llu, shift %u, grid %u",
                 names[list], st_dtype_info(dtype)->name, world_size, (unsigned long long)count,
                 i % (unsigned)SHIFTS, test.grid);
        move_check(&test, count + i);
    }
}

static void every_list_of_copies_moves_like_its_twin(void)
{
    static const enum st_dtype dtypes[] = {ST_DTYPE_BOOL, ST_DTYPE_FLOAT16, ST_DTYPE_FLOAT32,
                                           ST_DTYPE_INT64};
    static const uint64_t counts[] = {1, 16, 257, 4096, 33333};
    for (unsigned i = 0; i < 4 * 5 * 5 * WORLDS; i++) {
        uint32_t world_size = worlds[i / 100];
        uint64_t count = counts[i / 4 % 5];
        if (world_size < 64 && (count < 10000 || world_size == 3)) {
            copy_check(dtypes[i % 4], (enum copy_list)(i / 20 % 5), world_size, count);
        }
    }
}

/* ------------------------------------------------------------------ fills and permutes */

/** A shape and the strides of a permutation of its dimensions. */
struct layout {
    struct st_shape shape;
    struct st_strides strides;
};

static const struct layout layouts[] = {
    {{.rank = 1, .dims = {1}}, {{1}}},
    {{.rank = 1, .dims = {4099}}, {{1}}},
    {{.rank = 2, .dims = {37, 113}}, {{113, 1}}},
    {{.rank = 2, .dims = {113, 37}}, {{1, 113}}},
    {{.rank = 3, .dims = {5, 1, 301}}, {{1, 9999, 5}}},
    {{.rank = 4, .dims = {7, 11, 13, 17}}, {{11, 1, 77 * 17, 77}}},
    {{.rank = 8, .dims = {2, 3, 2, 5, 2, 3, 2, 7}}, {{2, 4, 1, 12, 60, 120, 360, 720}}},
    {{.rank = 0}, {{0}}},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static uint64_t layout_count(const struct layout *layout, int64_t dims[8], int64_t strides[8])
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < layout->shape.rank; i++) {
        dims[i] = layout->shape.dims[i];
        strides[i] = layout->strides.dims[i];
        count *= (uint64_t)dims[i];
    }
    return count;
}

static void fill_check(const struct gpu_fill_params *fill, uint32_t grid, const char *what)
{
    struct gpu_fill_params device = *fill, twin = *fill;
    arena_fill((enum st_dtype)fill->dtype, 7);
    device.address += arena.device.address;
    twin.address += twin_address(0);
    kernels_device_launch(&arena.device, GPU_KERNEL_FILL, &device, grid);
    twin_run(GPU_KERNEL_FILL, &twin);
    arena_compare(what);
}

static void every_pattern_fills_like_its_twin(void)
{
    uint64_t state = 3;
    for (unsigned i = 0; i < ST_DTYPE_COUNT * 3 * 2 * LAYOUTS; i++) {
        const struct layout *layout = &layouts[i % LAYOUTS];
        struct gpu_fill_params fill = {.dtype = i / LAYOUTS / 6, .pattern = i / LAYOUTS % 3};
        uint64_t size = st_dtype_info((enum st_dtype)fill.dtype)->size_bytes;
        char what[96];
        fill.dims_count = layout->shape.rank;
        fill.element_count = layout_count(layout, fill.dims, fill.strides);
        fill.row_major = i / LAYOUTS / 3 % 2 || fill.pattern != GPU_FILL_IOTA;
        fill.value_bits = test_random(&state) >> (i % 64);
        fill.value_bits &=
            fill.pattern == GPU_FILL_VALUE ? UINT64_MAX >> (64 - 8 * size) : UINT64_MAX;
        arena.used = 0;
        fill.address = arena_take(fill.element_count * size, i % 5 * size);
        snprintf(what, sizeof(what), "fill %s, pattern %u, layout %u, bits %llx",
                 st_dtype_info((enum st_dtype)fill.dtype)->name, fill.pattern,
                 i % (unsigned)LAYOUTS, (unsigned long long)fill.value_bits);
        fill_check(&fill, grids[i % GRIDS], what);
    }
}

/** Integers of all sizes, and long runs of them, round like the twin's. */
static void integers_round_once(void)
{
    uint64_t state = 5;
    for (unsigned i = 0; i < ST_DTYPE_COUNT * 400; i++) {
        struct gpu_fill_params fill = {.dtype = i % ST_DTYPE_COUNT,
                                       .pattern =
                                           i < ST_DTYPE_COUNT ? GPU_FILL_IOTA : GPU_FILL_RANK,
                                       .row_major = 1};
        char what[96];
        fill.element_count = i < ST_DTYPE_COUNT ? 1000003 : 3;
        fill.value_bits = test_random(&state) >> (test_random(&state) % 64);
        if (i % 3 == 0) { /* near the middle between two floats */
            fill.value_bits &= UINT64_MAX << (i / ST_DTYPE_COUNT % 56);
            fill.value_bits += i % 2;
        }
        arena.used = 0;
        fill.address = arena_take(fill.element_count * 8, 0);
        snprintf(what, sizeof(what), "integer %llx as %s", (unsigned long long)fill.value_bits,
                 st_dtype_info((enum st_dtype)fill.dtype)->name);
        fill_check(&fill, 61, what);
    }
}

static void every_layout_permutes_like_its_twin(void)
{
    for (unsigned i = 0; i < LAYOUTS * 4 * 2 * 3; i++) {
        struct gpu_permute_params permute = {.to_shard = i & 1, .element_bytes = 1u << (i / 2 % 4)};
        const struct layout *layout = &layouts[i / 8 % LAYOUTS];
        uint64_t count = layout_count(layout, permute.dims, permute.strides);
        char what[96];
        permute.dims_count = layout->shape.rank;
        permute.shard_bytes = count * permute.element_bytes;
        permute.first_index = i / 8 / LAYOUTS == 0 ? 0 : count / 3;
        permute.element_count = i / 8 / LAYOUTS == 2 ? count / 2 : count - permute.first_index;
        arena.used = 0;
        permute.shard = arena_take(permute.shard_bytes, 0);
        permute.packed = arena_take(permute.element_count * permute.element_bytes, 8);
        arena_fill(ST_DTYPE_UINT8, i);
        snprintf(what, sizeof(what), "permute of %u bytes, layout %u, %s shard, case %u",
                 permute.element_bytes, i / 8 % (unsigned)LAYOUTS, i & 1 ? "to" : "from", i);
        struct gpu_permute_params device = permute, twin = permute;
        device.shard += arena.device.address;
        device.packed += arena.device.address;
        twin.shard += twin_address(0);
        twin.packed += twin_address(0);
        kernels_device_launch(&arena.device, GPU_KERNEL_PERMUTE, &device, grids[i % GRIDS]);
        twin_run(GPU_KERNEL_PERMUTE, &twin);
        arena_compare(what);
    }
}

/* ------------------------------------------------------------------ all */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
#define X(name) {#name, name},
        X(every_pair_folds_like_its_twin) X(parts_and_slices_join)
            X(every_list_of_copies_moves_like_its_twin) X(every_pattern_fills_like_its_twin)
                X(integers_round_once) X(every_layout_permutes_like_its_twin)
#undef X
    };
    if (!kernels_device_open(argc > 1 ? argv[1] : NULL, ARENA_BYTES, &arena.device)) {
        return EXIT_SKIPPED;
    }
    arena.twin = aligned_alloc(4096, ARENA_BYTES);
    arena.seen = malloc(ARENA_BYTES);
    if (!arena.twin || !arena.seen) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        unsigned cases = arena.cases, failures = arena.failures;
        tests[i].run();
        printf("%s: %u cases, %u wrong\n", tests[i].name, arena.cases - cases,
               arena.failures - failures);
        fflush(stdout);
    }
    free(arena.twin);
    free(arena.seen);
    return arena.failures ? 1 : 0;
}
