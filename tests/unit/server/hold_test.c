#include "tests/unit/server/registry_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/internal.h"

/** How long the lock of the registry is held, and what stays true while it is let go of. */

#define DEVICES 2
#define MEMORY (64u << 20)
#define WATCH_NS (20 * ST_NS_PER_SECOND) /* at most; the first rounds do as a rule */
#define MANY (2 * SERVER_HOLD_STEPS + 5)

static int setup(void **state)
{
    struct server *server = node_start(DEVICES, MEMORY);
    node_group(server, "g", 2, DEVICES);
    *state = server;
    return 0;
}

static int teardown(void **state)
{
    node_stop(*state);
    return 0;
}

/* ---------------------------------------------------------------- who has the lock */

struct visitor {
    struct server *server;
    _Atomic bool was_there;
};

static void *visit(void *arg)
{
    struct visitor *visitor = arg;
    server_lock(visitor->server);
    visitor->was_there = true;
    server_unlock(visitor->server);
    return NULL;
}

/** Somebody is at the gate while the lock is held. */
static bool somebody_waits(struct server *server)
{
    if (pthread_mutex_trylock(&server->gate) != 0) {
        return true;
    }
    pthread_mutex_unlock(&server->gate);
    return false;
}

static void whoever_waits_has_the_lock_before_it_is_taken_again(void **state)
{
    struct server *server = *state;
    for (int round = 0; round < 50; round++) {
        struct visitor visitor = {.server = server};
        pthread_t thread;
        server_lock(server);
        assert_int_equal(pthread_create(&thread, NULL, visit, &visitor), 0);
        while (!somebody_waits(server)) {
            sched_yield();
        }
        assert_false(visitor.was_there);
        server_breathe(server);
        bool was_there = visitor.was_there;
        server_unlock(server);
        pthread_join(thread, NULL);
        assert_true(was_there);
    }
}

struct left {
    struct server_after after;
    pthread_t done_by;
    _Atomic unsigned calls;
};

static void left_done(struct server_after *after)
{
    struct left *left = (struct left *)after; /* first member */
    left->done_by = pthread_self();
    left->calls++;
}

static void whoever_has_the_lock_in_between_does_what_was_left(void **state)
{
    struct server *server = *state;
    struct visitor visitor = {.server = server};
    struct left left = {.after.call = left_done};
    pthread_t thread;
    server_lock(server);
    server_after(server, &left.after);
    assert_int_equal(pthread_create(&thread, NULL, visit, &visitor), 0);
    while (!somebody_waits(server)) {
        sched_yield();
    }
    server_breathe(server);
    server_unlock(server);
    pthread_join(thread, NULL);
    assert_int_equal(left.calls, 1);
    assert_true(pthread_equal(left.done_by, thread));
}

/** Looks for numbers of tensors that there are only in the middle of a batch. */
struct watcher {
    struct server *server;
    uint32_t few, many;
    _Atomic unsigned phase; /**< Counts the calls: even while one makes, odd while one deletes. */
    _Atomic bool seen[2], stop;
};

static void *watch(void *arg)
{
    struct watcher *watcher = arg;
    while (!watcher->stop) {
        struct server_metrics metrics;
        unsigned phase = watcher->phase;
        server_metrics(watcher->server, &metrics);
        if (metrics.tensors > watcher->few && metrics.tensors < watcher->many &&
            phase == watcher->phase) {
            watcher->seen[phase % 2] = true;
        }
        usleep(20); /* a thread that wakes interrupts the batch, on a single core too */
    }
    return NULL;
}

static void others_have_the_lock_in_the_middle_of_a_batch(void **state)
{
    struct watcher watcher = {.server = *state, .many = MANY};
    struct st_error err = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
    uint64_t end = st_clock_now_ns() + WATCH_NS;
    while (st_clock_now_ns() < end && !(watcher.seen[0] && watcher.seen[1])) {
        assert_int_equal(batch_make(*state, "g", "t", MANY, 4, &err), ST_OK);
        watcher.phase++;
        assert_int_equal(batch_drop(*state, "t", MANY, &err), ST_OK);
        watcher.phase++;
    }
    watcher.stop = true;
    pthread_join(thread, NULL);
    assert_true(watcher.seen[0]);
    assert_true(watcher.seen[1]);
}

/* ---------------------------------------------------------------- what stays true */

/** Tensors of the list, which must be in order; *ret_ready: all are ready. */
static uint32_t count_listed(struct server *server, bool *ret_ready)
{
    struct server_tensor *page[50];
    char after[ST_ID_MAX + 1] = "";
    uint32_t count = 0;
    bool more = true;
    *ret_ready = true;
    while (more) {
        const struct server_list_query query = {
            .after = after, .max = 50, .group = "", .state = ""};
        uint32_t found = server_tensor_list(server, &query, page, &more);
        for (uint32_t i = 0; i < found; i++) {
            assert_true(strcmp(after, page[i]->id) < 0);
            snprintf(after, sizeof(after), "%s", page[i]->id);
            *ret_ready &= page[i]->state == SERVER_STATE_READY;
            server_snapshot_release(&page[i]->base);
        }
        count += found;
    }
    return count;
}

static void assert_listed(struct server *server, uint32_t count)
{
    bool ready = false;
    assert_int_equal(count_listed(server, &ready), count);
    assert_true(ready);
}

static void a_batch_of_many_holds_is_made_and_deleted_as_one(void **state)
{
    struct server *server = *state;
    struct st_error err = {0};
    char field[32], last[16];
    snprintf(field, sizeof(field), "tensors[%u]", MANY);
    snprintf(last, sizeof(last), "t%u", MANY);
    assert_int_equal(tensor_make(server, "g", "a", 4, &err), ST_OK);
    assert_int_equal(tensor_make(server, "g", "t5x", 4, &err), ST_OK);
    assert_int_equal(tensor_make(server, "g", "z", 4, &err), ST_OK);
    assert_int_equal(tensor_make(server, "g", last, 4, &err), ST_OK);
    assert_int_equal(batch_make(server, "g", "t", MANY + 1, 4, &err), ST_ALREADY_EXISTS);
    assert_memory_equal(err.field, field, strlen(field));
    assert_listed(server, 4);
    assert_int_equal(tensor_drop(server, last, &err), ST_OK);
    assert_int_equal(batch_make(server, "g", "t", MANY, 4, &err), ST_OK);
    assert_listed(server, MANY + 3);
    assert_int_equal(batch_drop(server, "t", MANY + 1, &err), ST_NOT_FOUND);
    assert_string_equal(err.field, field);
    assert_listed(server, MANY + 3);
    assert_int_equal(batch_drop(server, "t", MANY, &err), ST_OK);
    assert_listed(server, 3);
    assert_true(tensor_exists(server, "a") && tensor_exists(server, "t5x") &&
                tensor_exists(server, "z"));
}

static void a_queued_batch_that_is_cancelled_leaves_nothing(void **state)
{
    struct server *server = *state;
    struct server_holder holder = {.server = server};
    struct order_claim claim = {.shards = GROUP_OPERATIONS, .write = true};
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    struct server_tensor_create *requests = calloc(MANY, sizeof(*requests));
    assert_non_null(requests);
    for (uint32_t i = 0; i < MANY; i++) {
        struct server_tensor_create *one = tensor_request("g", "", 4);
        requests[i] = *one;
        free(one);
    }
    server_lock(server);
    claim.queue = &((struct group *)st_index_find(&server->groups, "g"))->order;
    holder.order = (struct order_holder){.claims = &claim, .count = 1};
    assert_true(server_holder_enter(&holder)); /* as a barrier would */
    server_unlock(server);
    assert_int_equal(
        server_tensor_batch_create(server, &node_caller, requests, MANY, &operation, &err), ST_OK);
    free(requests);
    assert_int_equal(node_operation_state(operation), SERVER_OPERATION_QUEUED);
    bool ready = true;
    assert_int_equal(count_listed(server, &ready), MANY);
    assert_int_equal(server_operation_cancel(operation, &node_caller, &err), ST_OK);
    assert_int_equal(count_listed(server, &ready), 0);
    server_operation_release(operation);
    server_lock(server);
    server_holder_leave(&holder);
    server_unlock(server);
}

/* ---------------------------------------------------------------- groups that go meanwhile */

struct crowd {
    struct server *server;
    _Atomic bool stop;
    _Atomic uint32_t made, deleted;
    const char *_Atomic failure;
};

static void note(struct crowd *crowd, bool good, const char *what)
{
    if (!good) {
        crowd->failure = what;
    }
}

static void *crowd_batches(void *arg)
{
    struct crowd *crowd = arg;
    struct st_error err = {0};
    while (!crowd->stop) {
        enum st_status status =
            batch_make(crowd->server, "s", "t", 3 * SERVER_HOLD_CHANGES, 4, &err);
        note(crowd,
             status == ST_OK || err.reason == ST_REASON_GROUP_NOT_FOUND ||
                 err.reason == ST_REASON_GROUP_NOT_READY || err.reason == ST_REASON_ID_TAKEN,
             "create");
        crowd->made += status == ST_OK;
        status = batch_drop(crowd->server, "t", 3 * SERVER_HOLD_CHANGES, &err);
        note(crowd,
             status == ST_OK || err.reason == ST_REASON_TENSOR_NOT_FOUND ||
                 err.reason == ST_REASON_GROUP_NOT_READY ||
                 err.reason == ST_REASON_TENSOR_NOT_READY,
             "delete");
        crowd->deleted += status == ST_OK;
    }
    return NULL;
}

static void *crowd_groups(void *arg)
{
    struct crowd *crowd = arg;
    struct st_error err = {0};
    while (!crowd->stop) {
        note(crowd, group_make(crowd->server, "s", 2, &err) == ST_OK, "group create");
        struct server_operation *barrier = NULL;
        note(crowd, server_group_barrier(crowd->server, &node_caller, "s", &barrier, &err) == ST_OK,
             "barrier");
        server_operation_release(barrier);
        usleep(2000);
        note(crowd, group_drop(crowd->server, "s", true, &err) == ST_OK, "group delete");
        note(crowd, !group_exists(crowd->server, "s"), "a group stays");
    }
    return NULL;
}

static void groups_go_while_batches_are_made_and_deleted(void **state)
{
    struct crowd crowd = {.server = *state};
    pthread_t threads[3];
    struct st_error err = {0};
    bool ready = false;
    assert_int_equal(pthread_create(&threads[0], NULL, crowd_batches, &crowd), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, crowd_batches, &crowd), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, crowd_groups, &crowd), 0);
    for (int i = 0; i < 300; i++) {
        (void)count_listed(*state, &ready);
        usleep(2000);
    }
    crowd.stop = true;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    if (crowd.failure) {
        fail_msg("%s", crowd.failure);
    }
    assert_true(crowd.made > 0);
    assert_int_equal(batch_drop(*state, "t", 1, &err), ST_NOT_FOUND);
    assert_int_equal(count_listed(*state, &ready), 0);
    struct server_metrics metrics;
    server_metrics(*state, &metrics);
    assert_int_equal(metrics.groups, 1);
    assert_int_equal(metrics.operations_queued + metrics.operations_running, 0);
}

static void a_batch_of_many_groups_is_made_and_deleted(void **state)
{
    enum { GROUPS = 20 };
    struct server *server = *state;
    char ids[GROUPS][ST_ID_MAX + 1];
    struct server_tensor_create requests[GROUPS];
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    for (uint32_t i = 0; i < GROUPS; i++) {
        snprintf(ids[i], sizeof(ids[i]), "x%u", i);
        assert_int_equal(group_make(server, ids[i], 2, &err), ST_OK);
        struct server_tensor_create *one = tensor_request(ids[i], ids[i], 4);
        requests[i] = *one;
        free(one);
    }
    assert_int_equal(
        server_tensor_batch_create(server, &node_caller, requests, GROUPS, &operation, &err),
        ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    assert_listed(server, GROUPS);
    const struct server_tensor_batch_delete request = {.ids = (const char(*)[ST_ID_MAX + 1]) ids,
                                                       .count = GROUPS};
    assert_int_equal(server_tensor_batch_delete(server, &node_caller, &request, &operation, &err),
                     ST_OK);
    assert_int_equal(node_finish_status(operation, &err), ST_OK);
    assert_listed(server, 0);
    for (uint32_t i = 0; i < GROUPS; i++) {
        assert_int_equal(group_drop(server, ids[i], false, &err), ST_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(whoever_waits_has_the_lock_before_it_is_taken_again),
        T(whoever_has_the_lock_in_between_does_what_was_left),
        T(others_have_the_lock_in_the_middle_of_a_batch),
        T(a_batch_of_many_holds_is_made_and_deleted_as_one),
        T(a_queued_batch_that_is_cancelled_leaves_nothing),
        T(groups_go_while_batches_are_made_and_deleted),
        T(a_batch_of_many_groups_is_made_and_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
