#include "tests/unit/server/node_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/**
 * Two groups over the same devices, random operations and transfers from several threads at once,
 * beside an upload that has stopped. Each thread knows what its own tensors must hold; they also
 * take part in copies and collectives of a shared tensor, whose order only the server knows.
 */

#define DEVICES 3u
#define DEVICE_BYTES (128ull << 20)
#define THREADS 4u
#define WORLD 3u
#define ELEMENTS 100003u /* too much to run inside the submitting call */
#define BYTES (ELEMENTS * sizeof(int32_t))

static unsigned rounds(void)
{
    const char *text = getenv("MIXED_ROUNDS");
    return text ? (unsigned)strtoul(text, NULL, 10) : 1000;
}

struct mixed_thread {
    struct server *server;
    unsigned index;
    uint64_t random;
    char own[16], pair[16];                      /**< Two tensors that nobody else touches. */
    int32_t own_value[WORLD], pair_value[WORLD]; /**< Every element of a shard. */
    int32_t back[ELEMENTS];
    const char *failure; /**< NULL: none. cmocka's own failures belong to the main thread. */
    struct st_error err;
};

static uint32_t draw(struct mixed_thread *thread, uint32_t below)
{
    thread->random = thread->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(thread->random >> 33) % below;
}

static void note(struct mixed_thread *thread, bool good, const char *what)
{
    if (!good && !thread->failure) {
        thread->failure = what;
    }
}

static enum st_status finish(struct mixed_thread *thread, enum st_status status,
                             struct server_operation *operation)
{
    return status == ST_OK ? node_finish_status(operation, &thread->err) : status;
}

static void mixed_put(struct mixed_thread *thread)
{
    uint32_t rank = draw(thread, WORLD);
    int32_t value = (int32_t)draw(thread, 1000);
    for (unsigned i = 0; i < ELEMENTS; i++) {
        thread->back[i] = value;
    }
    note(thread,
         node_put(thread->server, thread->own, rank, thread->back, BYTES, &thread->err) == ST_OK,
         "put");
    thread->own_value[rank] = value;
}

/** Looked at in steps: there are many of them. */
static void check_values(struct mixed_thread *thread, int32_t value, const char *what)
{
    for (unsigned i = 0; i < ELEMENTS; i += 97) {
        note(thread, thread->back[i] == value, what);
    }
    note(thread, thread->back[ELEMENTS - 1] == value, what);
}

static void mixed_get(struct mixed_thread *thread)
{
    uint32_t rank = draw(thread, WORLD);
    bool own = draw(thread, 2) == 0;
    const char *tensor = own ? thread->own : thread->pair;
    int32_t value = own ? thread->own_value[rank] : thread->pair_value[rank];
    note(thread, node_get(thread->server, tensor, rank, thread->back, BYTES, &thread->err) == ST_OK,
         "get");
    check_values(thread, value, "a get saw other bytes");
}

static void mixed_fill(struct mixed_thread *thread)
{
    struct server_fill_request request = {.pattern = GPU_FILL_VALUE,
                                          .number = SERVER_NUMBER_INT64,
                                          .int64_value = draw(thread, 1000),
                                          .rank = (int32_t)draw(thread, WORLD + 1) - 1,
                                          .expected_generation = SERVER_GENERATION_ANY};
    snprintf(request.tensor, sizeof(request.tensor), "%s", thread->own);
    struct server_operation *operation = NULL;
    enum st_status status =
        server_fill(thread->server, &node_caller, &request, &operation, &thread->err);
    note(thread, finish(thread, status, operation) == ST_OK, "fill");
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        if (request.rank < 0 || (uint32_t)request.rank == rank) {
            thread->own_value[rank] = (int32_t)request.int64_value;
        }
    }
}

/** The get comes behind the collective in the order, which need not have run yet. */
static void mixed_collective(struct mixed_thread *thread)
{
    struct server_collective_request request = {
        .collective = gpu_collective_find("all_reduce"),
        .op = ST_OP_SUM,
        .deterministic = -1,
        .expected_generation = SERVER_GENERATION_ANY,
    };
    snprintf(request.tensor, sizeof(request.tensor), "%s", thread->own);
    snprintf(request.output, sizeof(request.output), "%s", thread->pair);
    struct server_operation *operation = NULL;
    enum st_status status =
        server_collective(thread->server, &node_caller, &request, &operation, &thread->err);
    int32_t sum = 0;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        sum += thread->own_value[rank];
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        thread->pair_value[rank] = sum;
    }
    note(thread,
         node_get(thread->server, thread->pair, WORLD - 1, thread->back, BYTES, &thread->err) ==
             ST_OK,
         "get behind all_reduce");
    check_values(thread, sum, "a get behind all_reduce saw bytes from before it");
    note(thread, finish(thread, status, operation) == ST_OK, "all_reduce");
}

/** To and from tensors of both groups that all threads use: each shard is always of one value. */
static void mixed_shared(struct mixed_thread *thread)
{
    static const char *const shared[] = {"shared0", "shared1"};
    struct server_copy_request request = {.src_rank = draw(thread, WORLD),
                                          .dst_rank = draw(thread, WORLD),
                                          .expected_generation = SERVER_GENERATION_ANY};
    bool out = draw(thread, 2) == 0;
    const char *from = out ? thread->own : shared[draw(thread, 2)];
    snprintf(request.tensor, sizeof(request.tensor), "%s", from);
    snprintf(request.dst_tensor, sizeof(request.dst_tensor), "%s", shared[draw(thread, 2)]);
    struct server_operation *operation = NULL;
    enum st_status status =
        server_copy(thread->server, &node_caller, &request, &operation, &thread->err);
    note(thread, finish(thread, status, operation) == ST_OK, "copy");
    note(thread,
         node_get(thread->server, request.dst_tensor, request.dst_rank, thread->back, BYTES,
                  &thread->err) == ST_OK,
         "get of a shared tensor");
    check_values(thread, thread->back[0], "a get saw half a write");
}

static void mixed_barrier(struct mixed_thread *thread)
{
    struct server_operation *operation = NULL;
    enum st_status status = server_group_barrier(
        thread->server, &node_caller, thread->index % 2 ? "g1" : "g0", &operation, &thread->err);
    note(thread, finish(thread, status, operation) == ST_OK, "barrier");
}

static void *mixed_run(void *arg)
{
    static void (*const steps[])(struct mixed_thread * thread) = {
        mixed_put, mixed_get, mixed_get, mixed_fill, mixed_collective, mixed_shared, mixed_barrier,
    };
    struct mixed_thread *thread = arg;
    unsigned count = rounds();
    for (unsigned i = 0; i < count && !thread->failure; i++) {
        steps[draw(thread, sizeof(steps) / sizeof(steps[0]))](thread);
    }
    return NULL;
}

static void many_threads_and_a_stalled_upload_neither_deadlock_nor_mix_up_bytes(void **state)
{
    (void)state;
    struct server *server = node_start(DEVICES, DEVICE_BYTES);
    node_group(server, "g0", WORLD, DEVICES);
    node_group(server, "g1", WORLD, 2);
    node_tensor(server, "g0", "shared0", ST_DTYPE_INT32, ELEMENTS);
    node_tensor(server, "g1", "shared1", ST_DTYPE_INT32, ELEMENTS);
    node_tensor(server, "g0", "stalled", ST_DTYPE_INT32, ELEMENTS);

    struct server_transfer_request request = node_transfer_request("stalled", 1);
    struct node_transfer stalled;
    struct st_error err = {0};
    assert_int_equal(node_upload_open(server, &request, &stalled, &err), ST_OK);
    assert_true(node_upload_bytes(&stalled, "12345678", 8, &err));

    struct mixed_thread *threads = calloc(THREADS, sizeof(*threads));
    pthread_t handles[THREADS];
    assert_non_null(threads);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i].server = server;
        threads[i].index = i;
        threads[i].random = i + 1;
        snprintf(threads[i].own, sizeof(threads[i].own), "own%u", i);
        snprintf(threads[i].pair, sizeof(threads[i].pair), "pair%u", i);
        node_tensor(server, i % 2 ? "g1" : "g0", threads[i].own, ST_DTYPE_INT32, ELEMENTS);
        node_tensor(server, i % 2 ? "g1" : "g0", threads[i].pair, ST_DTYPE_INT32, ELEMENTS);
        assert_int_equal(pthread_create(&handles[i], NULL, mixed_run, &threads[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(handles[i], NULL);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (threads[i].failure) {
            fail_msg("%s: %s", threads[i].failure, threads[i].err.message);
        }
    }
    node_transfer_close(&stalled);
    free(threads);
    node_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_and_a_stalled_upload_neither_deadlock_nor_mix_up_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
