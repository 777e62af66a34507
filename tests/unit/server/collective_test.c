#include "tests/unit/server/node_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/driver/driver.h"
#include "tests/unit/server/collective_reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 4u
#define DEVICE_BYTES (256ull << 20)

/* Whose shards a test keeps a copy of. */
enum mirror_name { MIRROR_SMALL, MIRROR_LARGE, MIRROR_SMALL_OUT, MIRROR_LARGE_OUT, MIRRORS };
static const char *const mirror_names[MIRRORS] = {"small", "large", "small_out", "large_out"};

struct mirror {
    unsigned char *shards[ST_NODE_RANKS_MAX];
    uint64_t count;
};

/** One group with four tensors of a dtype, and what their bytes must be. */
struct bench {
    struct server *server;
    uint32_t world_size;
    enum st_dtype dtype;
    uint64_t slice_count;
    struct mirror mirrors[MIRRORS];
    unsigned char *shard; /**< For one read. */
};

static uint64_t mirror_bytes(const struct bench *bench, enum mirror_name name)
{
    return bench->mirrors[name].count * st_dtype_info(bench->dtype)->size_bytes;
}

/** Put new values into every shard. */
static void bench_write(struct bench *bench, enum mirror_name name, uint64_t seed)
{
    uint32_t size = st_dtype_info(bench->dtype)->size_bytes;
    struct mirror *mirror = &bench->mirrors[name];
    for (uint32_t rank = 0; rank < bench->world_size; rank++) {
        for (uint64_t i = 0; i < mirror->count; i++) {
            union st_scalar value = reference_value(bench->dtype, seed, rank, i);
            memcpy(mirror->shards[rank] + i * size, value.bytes, size);
        }
        struct st_error err = {0};
        assert_int_equal(node_put(bench->server, mirror_names[name], rank, mirror->shards[rank],
                                  mirror_bytes(bench, name), &err),
                         ST_OK);
    }
}

static void bench_open(struct bench *bench)
{
    for (int name = 0; name < MIRRORS; name++) {
        struct mirror *mirror = &bench->mirrors[name];
        bool large = name == MIRROR_LARGE || name == MIRROR_LARGE_OUT;
        mirror->count = bench->slice_count * (large ? bench->world_size : 1);
        node_tensor(bench->server, "g", mirror_names[name], bench->dtype, mirror->count);
        for (uint32_t rank = 0; rank < bench->world_size; rank++) {
            mirror->shards[rank] = calloc(1, mirror_bytes(bench, (enum mirror_name)name) + 1);
            assert_non_null(mirror->shards[rank]);
        }
        bench_write(bench, (enum mirror_name)name, (uint64_t)name + 1);
    }
    bench->shard = calloc(1, mirror_bytes(bench, MIRROR_LARGE) + 1);
    assert_non_null(bench->shard);
}

static void bench_close(struct bench *bench)
{
    for (int name = 0; name < MIRRORS; name++) {
        node_tensor_delete(bench->server, mirror_names[name]);
        for (uint32_t rank = 0; rank < bench->world_size; rank++) {
            free(bench->mirrors[name].shards[rank]);
        }
    }
    free(bench->shard);
}

/** Compare every shard of a tensor with what it must be. */
static void bench_compare(struct bench *bench, enum mirror_name name, const char *what)
{
    uint32_t size = st_dtype_info(bench->dtype)->size_bytes;
    struct mirror *mirror = &bench->mirrors[name];
    for (uint32_t rank = 0; rank < bench->world_size; rank++) {
        struct st_error err = {0};
        assert_int_equal(node_get(bench->server, mirror_names[name], rank, bench->shard,
                                  mirror_bytes(bench, name), &err),
                         ST_OK);
        for (uint64_t i = 0; i < mirror->count; i++) {
            if (!reference_equal(bench->dtype, bench->shard + i * size,
                                 mirror->shards[rank] + i * size)) {
                fail_msg("%s of %s, world %u, slice %llu: rank %u, element %llu is wrong", what,
                         st_dtype_info(bench->dtype)->name, bench->world_size,
                         (unsigned long long)bench->slice_count, rank, (unsigned long long)i);
            }
        }
    }
}

/** Bring the mirror of the output to what the run must give. */
static void bench_expect(struct bench *bench, const struct reference_run *run,
                         enum mirror_name input, enum mirror_name output)
{
    uint64_t bytes = mirror_bytes(bench, input);
    unsigned char *inputs[ST_NODE_RANKS_MAX];
    const unsigned char *const_inputs[ST_NODE_RANKS_MAX];
    for (uint32_t rank = 0; rank < bench->world_size; rank++) {
        inputs[rank] = malloc(bytes + 1);
        assert_non_null(inputs[rank]);
        memcpy(inputs[rank], bench->mirrors[input].shards[rank], bytes);
        const_inputs[rank] = inputs[rank];
    }
    for (uint32_t rank = 0; rank < bench->world_size; rank++) {
        reference_output(run, rank, const_inputs, bench->mirrors[output].shards[rank]);
    }
    for (uint32_t rank = 0; rank < bench->world_size; rank++) {
        free(inputs[rank]);
    }
}

static enum mirror_name input_of(const struct gpu_collective *collective)
{
    return collective->rule == GPU_SHAPE_SCATTERED || collective->rule == GPU_SHAPE_SLICED
               ? MIRROR_LARGE
               : MIRROR_SMALL;
}

static enum mirror_name output_of(const struct gpu_collective *collective)
{
    return collective->rule == GPU_SHAPE_GATHERED || collective->rule == GPU_SHAPE_SLICED
               ? MIRROR_LARGE_OUT
               : MIRROR_SMALL_OUT;
}

/** In place on the larger side, for the collectives that have one. */
static enum mirror_name in_place_of(const struct gpu_collective *collective)
{
    return collective->rule == GPU_SHAPE_EQUAL ? MIRROR_SMALL : MIRROR_LARGE;
}

/** Run it. @return false when the algorithm does not fit. */
static bool bench_submit(struct bench *bench, const struct server_collective_request *request)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    enum st_status status =
        server_collective(bench->server, &node_caller, request, &operation, &err);
    if (status != ST_OK) {
        if (!request->algorithm || err.reason != ST_REASON_UNSUPPORTED_ALGORITHM) {
            fail_msg("%s: %s", request->collective->name, err.message);
        }
        return false;
    }
    struct server_operation_view *view = node_finish(operation);
    if (view->state != SERVER_OPERATION_SUCCEEDED) {
        fail_msg("%s: %s", request->collective->name, view->error.message);
    }
    assert_true(view->has_plan && view->deterministic);
    assert_true(!request->algorithm || strcmp(view->algorithm, request->algorithm->name) == 0);
    server_snapshot_release(&view->base);
    return true;
}

static void bench_run(struct bench *bench, const struct gpu_collective *collective,
                      enum st_reduce_op op, const struct gpu_algorithm *algorithm, bool in_place)
{
    struct reference_run run = {
        .verb = collective->name,
        .dtype = bench->dtype,
        .op = op,
        .world_size = bench->world_size,
        .root = collective->rooted ? bench->world_size - 1 : 0,
        .slice_count = bench->slice_count,
        .in_place = in_place,
    };
    enum mirror_name input = in_place ? in_place_of(collective) : input_of(collective);
    enum mirror_name output = in_place ? input : output_of(collective);
    struct server_collective_request request =
        node_collective_request(collective->name, mirror_names[input],
                                in_place ? NULL : mirror_names[output], op, run.root);
    request.algorithm = algorithm;
    if (bench_submit(bench, &request)) {
        bench_expect(bench, &run, input, output);
        bench_compare(bench, output, collective->name);
        if (in_place) {
            bench_write(bench, input, (uint64_t)input + 1);
        }
    }
}

/** Every op that the dtype has, or one run of a collective that only moves. */
static void bench_run_ops(struct bench *bench, const struct gpu_collective *collective,
                          const struct gpu_algorithm *algorithm)
{
    for (int op = 0; op < (collective->reduces ? ST_OP_COUNT : 1); op++) {
        if (!collective->reduces || st_reduce_op_supports((enum st_reduce_op)op, bench->dtype)) {
            bench_run(bench, collective, (enum st_reduce_op)op, algorithm, false);
            bench_run(bench, collective, (enum st_reduce_op)op, algorithm, true);
        }
    }
}

static void run_matrix(struct server *server, uint32_t world_size, enum st_dtype dtype,
                       bool algorithms)
{
    static const uint64_t slices[] = {0, 1, 33, 517};
    for (size_t i = 0; i < COUNT(slices); i++) {
        struct bench bench = {
            .server = server, .world_size = world_size, .dtype = dtype, .slice_count = slices[i]};
        bench_open(&bench);
        for (size_t c = 0; gpu_collectives[c]; c++) {
            bench_run_ops(&bench, gpu_collectives[c], NULL);
            for (size_t a = 0; algorithms && gpu_algorithms[a]; a++) {
                if (gpu_algorithms[a]->deterministic) {
                    bench_run_ops(&bench, gpu_collectives[c], gpu_algorithms[a]);
                }
            }
        }
        bench_close(&bench);
    }
}

static void every_collective_gives_the_bits_of_the_specification(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 5, 7, 8};
    for (size_t w = 0; w < COUNT(worlds); w++) {
        struct server *server = node_start(DEVICES, DEVICE_BYTES);
        node_group(server, "g", worlds[w], DEVICES);
        for (int dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
            run_matrix(server, worlds[w], (enum st_dtype)dtype, false);
        }
        node_stop(server);
    }
}

static void every_algorithm_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 4, 7};
    static const enum st_dtype dtypes[] = {ST_DTYPE_FLOAT32, ST_DTYPE_BFLOAT16,
                                           ST_DTYPE_FLOAT8_E4M3FN, ST_DTYPE_INT16};
    for (size_t w = 0; w < COUNT(worlds); w++) {
        struct server *server = node_start(DEVICES, DEVICE_BYTES);
        node_group(server, "g", worlds[w], DEVICES);
        for (size_t d = 0; d < COUNT(dtypes); d++) {
            run_matrix(server, worlds[w], dtypes[d], true);
        }
        node_stop(server);
    }
}

static void sixty_four_ranks_work_as_few_do(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", 64, DEVICES);
    run_matrix(server, 64, ST_DTYPE_FLOAT32, false);
    run_matrix(server, 64, ST_DTYPE_FLOAT8_E5M2, false);
    node_stop(server);
}

static void large_tensors_give_the_same_bits_on_one_device_and_on_four(void **state)
{
    (void)state;
    uint64_t elements = (3ull << 20) + 5;
    unsigned char *results[2] = {malloc(4 * elements), malloc(4 * elements)};
    unsigned char *input = malloc(4 * elements);
    assert_true(results[0] && results[1] && input);
    for (unsigned i = 0; i < 2; i++) {
        struct server *server = node_start(DEVICES, DEVICE_BYTES);
        struct st_error err = {0};
        node_group(server, "g", 3, i == 0 ? 1 : DEVICES);
        node_tensor(server, "g", "t", ST_DTYPE_FLOAT32, elements);
        for (uint32_t rank = 0; rank < 3; rank++) {
            for (uint64_t k = 0; k < elements; k++) {
                union st_scalar value = reference_value(ST_DTYPE_FLOAT32, 7, rank, k);
                memcpy(input + 4 * k, value.bytes, 4);
            }
            assert_int_equal(node_put(server, "t", rank, input, 4 * elements, &err), ST_OK);
        }
        struct server_collective_request request =
            node_collective_request("all_reduce", "t", NULL, ST_OP_SUM, 0);
        node_collective(server, &request);
        assert_int_equal(node_get(server, "t", 2, results[i], 4 * elements, &err), ST_OK);
        node_stop(server);
    }
    for (uint64_t k = 0; k < elements; k++) {
        assert_true(reference_equal(ST_DTYPE_FLOAT32, results[0] + 4 * k, results[1] + 4 * k));
    }
    free(results[0]);
    free(results[1]);
    free(input);
}

struct refusal_case {
    const char *name, *verb, *tensor, *output;
    enum st_reduce_op op;
    uint32_t root;
    uint64_t expected_generation;
    enum st_reason reason;
    const char *field;
};

static const struct refusal_case refusals[] = {
    {"no such tensor", "all_reduce", "nothing", NULL, ST_OP_SUM, 0, SERVER_GENERATION_ANY,
     ST_REASON_TENSOR_NOT_FOUND, ""},
    {"no such output", "all_reduce", "small", "nothing", ST_OP_SUM, 0, SERVER_GENERATION_ANY,
     ST_REASON_TENSOR_NOT_FOUND, "output"},
    {"another group", "all_reduce", "small", "foreign", ST_OP_SUM, 0, SERVER_GENERATION_ANY,
     ST_REASON_GROUP_MISMATCH, "output"},
    {"another dtype", "all_reduce", "small", "bits", ST_OP_SUM, 0, SERVER_GENERATION_ANY,
     ST_REASON_DTYPE_MISMATCH, "output"},
    {"another shape", "all_reduce", "small", "large", ST_OP_SUM, 0, SERVER_GENERATION_ANY,
     ST_REASON_SHAPE_MISMATCH, "output"},
    {"no such root", "broadcast", "small", NULL, ST_OP_SUM, 3, SERVER_GENERATION_ANY,
     ST_REASON_RANK_OUT_OF_RANGE, "root"},
    {"no such op", "all_reduce", "bits", NULL, ST_OP_SUM, 0, SERVER_GENERATION_ANY,
     ST_REASON_UNSUPPORTED_OP, "op"},
    {"another generation", "all_reduce", "small", NULL, ST_OP_SUM, 0, 77,
     ST_REASON_GENERATION_MISMATCH, "expected_generation"},
};

static void what_does_not_fit_is_refused_with_its_reason(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", 3, DEVICES);
    node_group(server, "h", 3, DEVICES);
    node_tensor(server, "g", "small", ST_DTYPE_FLOAT32, 4);
    node_tensor(server, "g", "large", ST_DTYPE_FLOAT32, 12);
    node_tensor(server, "g", "bits", ST_DTYPE_BOOL, 4);
    node_tensor(server, "h", "foreign", ST_DTYPE_FLOAT32, 4);
    for (size_t i = 0; i < COUNT(refusals); i++) {
        const struct refusal_case *row = &refusals[i];
        struct server_collective_request request =
            node_collective_request(row->verb, row->tensor, row->output, row->op, row->root);
        request.expected_generation = row->expected_generation;
        struct server_operation *operation = NULL;
        struct st_error err = {0};
        enum st_status status = server_collective(server, &node_caller, &request, &operation, &err);
        if (status == ST_OK) {
            status = node_finish_status(operation, &err);
        }
        if (status == ST_OK || err.reason != row->reason || strcmp(err.field, row->field) != 0) {
            fail_msg("%s: %s %s", row->name, st_reason_info(err.reason)->name, err.message);
        }
    }
    node_stop(server);
}

static void a_result_has_a_generation_and_figures(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", 4, DEVICES);
    node_tensor(server, "g", "t", ST_DTYPE_FLOAT32, 1 << 20);
    struct server_collective_request request =
        node_collective_request("all_reduce", "t", NULL, ST_OP_SUM, 0);
    request.expected_generation = 0;
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(server_collective(server, &node_caller, &request, &operation, &err), ST_OK);
    struct server_operation_view *view = node_finish(operation);
    assert_int_equal(view->state, SERVER_OPERATION_SUCCEEDED);
    assert_string_equal(view->verb, "all_reduce");
    assert_string_equal(view->target, "tensors/t");
    assert_int_equal(view->bytes, 4 << 20);
    assert_true(view->generation > 0);
    assert_true(view->run_ns > 0);
    assert_true(view->algorithm_bytes_per_second > 0);
    assert_true(view->bus_bytes_per_second > view->algorithm_bytes_per_second * 1.49);
    assert_true(view->bus_bytes_per_second < view->algorithm_bytes_per_second * 1.51);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(node_contents(server, "t", rank).generation, view->generation);
        assert_int_equal(node_contents(server, "t", rank).state, SERVER_CONTENTS_VALID);
    }
    server_snapshot_release(&view->base);
    node_stop(server);
}

static void reduce_and_gather_change_the_root_only(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g", 4, DEVICES);
    node_tensor(server, "g", "t", ST_DTYPE_INT32, 16);
    static const char *const verbs[] = {"reduce", "gather"};
    for (size_t i = 0; i < COUNT(verbs); i++) {
        uint64_t before[4];
        for (uint32_t rank = 0; rank < 4; rank++) {
            before[rank] = node_contents(server, "t", rank).generation;
        }
        struct server_collective_request request =
            node_collective_request(verbs[i], "t", NULL, ST_OP_SUM, 2);
        node_collective(server, &request);
        for (uint32_t rank = 0; rank < 4; rank++) {
            uint64_t after = node_contents(server, "t", rank).generation;
            assert_int_equal(after > before[rank], rank == 2);
        }
    }
    node_stop(server);
}

static uint64_t owned_bytes(struct server *server)
{
    uint64_t owned = 0;
    for (uint32_t device = 0; device < DEVICES; device++) {
        struct gpu_device_memory memory;
        gpu_device_memory(server_gpu(server), device, &memory);
        owned += memory.owned_bytes;
    }
    return owned;
}

static struct server_operation *submit_one_shot(struct server *server, const char *tensor)
{
    struct server_collective_request request =
        node_collective_request("all_reduce", tensor, NULL, ST_OP_SUM, 0);
    request.algorithm = gpu_algorithm_find("one_shot"); /* in place: through scratch */
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    assert_int_equal(server_collective(server, &node_caller, &request, &operation, &err), ST_OK);
    return operation;
}

static void scratch_is_given_back(void **state)
{
    (void)state;
    static const uint64_t elements[] = {1u << 20,
                                        5u << 20}; /* kept by the group, too much to keep */
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    struct st_error err = {0};
    node_group(server, "g", DEVICES, DEVICES);
    for (size_t i = 0; i < COUNT(elements); i++) {
        node_tensor(server, "g", "t", ST_DTYPE_FLOAT32, elements[i]);
        node_tensor(server, "g", "u", ST_DTYPE_FLOAT32, elements[i]);
        struct server_operation *first = submit_one_shot(server, "t");
        assert_int_equal(node_finish_status(first, &err), ST_OK);
        uint64_t before = owned_bytes(server);
        uint64_t created = gpu_faults_calls(GPU_CALL_cuMemCreate);
        assert_int_equal(node_finish_status(submit_one_shot(server, "t"), &err), ST_OK);
        created = gpu_faults_calls(GPU_CALL_cuMemCreate) - created;
        assert_int_equal(created > 0, 4 * elements[i] > ST_SCRATCH_KEPT_BYTES);
        struct server_operation *operations[4];
        for (size_t k = 0; k < COUNT(operations); k++) {
            operations[k] = submit_one_shot(server, k % 2 ? "u" : "t");
        }
        for (size_t k = 0; k < COUNT(operations); k++) {
            assert_int_equal(node_finish_status(operations[k], &err), ST_OK);
        }
        assert_int_equal(owned_bytes(server), before);
        node_tensor_delete(server, "t");
        node_tensor_delete(server, "u");
    }
    struct server_operation *deletion = NULL;
    assert_int_equal(server_group_delete(server, &node_caller, "g", false, &deletion, &err), ST_OK);
    assert_int_equal(node_finish_status(deletion, &err), ST_OK);
    assert_int_equal(owned_bytes(server), 0);
    node_stop(server);
}

static void without_room_for_scratch_it_fails_and_nothing_changes(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, 32ull << 20);
    node_group(server, "g", DEVICES, DEVICES);
    node_tensor(server, "g", "t", ST_DTYPE_UINT8, 18u << 20);
    for (unsigned i = 0; i < 2; i++) {
        struct st_error err = {0};
        struct server_operation *operation = submit_one_shot(server, "t");
        assert_int_equal(node_finish_status(operation, &err), ST_RESOURCE_EXHAUSTED);
        assert_int_equal(err.reason, ST_REASON_GPU_MEMORY_EXHAUSTED);
        assert_int_equal(node_contents(server, "t", 0).state, SERVER_CONTENTS_VALID);
        assert_int_equal(node_contents(server, "t", 0).generation, 0);
    }
    node_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused_with_its_reason),
        cmocka_unit_test(a_result_has_a_generation_and_figures),
        cmocka_unit_test(reduce_and_gather_change_the_root_only),
        cmocka_unit_test(scratch_is_given_back),
        cmocka_unit_test(without_room_for_scratch_it_fails_and_nothing_changes),
        cmocka_unit_test(every_algorithm_gives_the_same_bits),
        cmocka_unit_test(every_collective_gives_the_bits_of_the_specification),
        cmocka_unit_test(sixty_four_ranks_work_as_few_do),
        cmocka_unit_test(large_tensors_give_the_same_bits_on_one_device_and_on_four),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
