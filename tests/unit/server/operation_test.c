#include "tests/unit/server/node_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/internal.h"

#define DEVICES 2
#define MEMORY (64u << 20)
#define PATIENCE_NS (20 * ST_NS_PER_SECOND)

/* ---------------------------------------------------------------- an operation in the test's hands
 */

/** Its work does nothing but what the test says. */
struct hand_operation {
    struct server_operation base;
    bool complete_inside;        /**< run completes it. */
    enum st_reason begin_reason; /**< NONE: begin says yes. */
    enum st_reason run_reason;   /**< NONE: what complete_inside says is success. */
    uint32_t run_ms;             /**< run takes so long. */
    _Atomic int *runs, *ends;    /**< Counted, if there. */
    _Atomic int *order;          /**< Taken by run: its place among the others. */
    int place;
    enum st_status end_status;
};

static struct hand_operation *hand_of(struct server_operation *operation)
{
    return (struct hand_operation *)operation;
}

static enum st_status hand_begin(struct server_operation *operation, struct st_error *err)
{
    enum st_reason reason = hand_of(operation)->begin_reason;
    return reason == ST_REASON_NONE ? ST_OK : st_fail(err, reason, NULL, "begin says no");
}

static void hand_run(struct server_operation *operation)
{
    struct hand_operation *hand = hand_of(operation);
    if (hand->order) {
        hand->place = atomic_fetch_add(hand->order, 1);
    }
    usleep(hand->run_ms * 1000);
    if (hand->runs) {
        atomic_fetch_add(hand->runs, 1);
    }
    if (!hand->complete_inside) {
        return;
    }
    struct st_error err = {0};
    enum st_status status = hand->run_reason == ST_REASON_NONE
                                ? ST_OK
                                : st_fail(&err, hand->run_reason, NULL, "run failed");
    server_operation_complete(operation, status, &err);
}

static void hand_end(struct server_operation *operation, enum st_status status)
{
    struct hand_operation *hand = hand_of(operation);
    hand->end_status = status;
    operation->generation = 7;
    if (hand->ends) {
        atomic_fetch_add(hand->ends, 1);
    }
}

static void hand_destroy(struct server_operation *operation)
{
    (void)operation;
}

static const struct server_operation_class hand_class = {
    .verb = "hand",
    .size = sizeof(struct hand_operation),
    .pool = SERVER_POOL_LAUNCH,
    .cancel_running = true,
    .begin = hand_begin,
    .run = hand_run,
    .end = hand_end,
    .destroy = hand_destroy,
};

/* ---------------------------------------------------------------- fixture */

/** A node with two groups and two tensors in the first. */
struct fixture {
    struct server *server;
    struct server_caller caller;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    fixture->server = node_start(DEVICES, MEMORY);
    fixture->caller = node_caller;
    node_group(fixture->server, "g", 2, DEVICES);
    node_group(fixture->server, "h", 2, DEVICES);
    node_tensor(fixture->server, "g", "a", ST_DTYPE_FLOAT32, 16);
    node_tensor(fixture->server, "g", "b", ST_DTYPE_FLOAT32, 16);
    node_tensor(fixture->server, "h", "c", ST_DTYPE_FLOAT32, 16);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    node_stop(fixture->server);
    free(fixture);
    return 0;
}

/** An operation that will write @p tensor (in group g, or h for "c"). Not accepted yet. */
static struct hand_operation *hand_make(struct fixture *fixture, const char *tensor)
{
    struct server *server = fixture->server;
    server_lock(server);
    struct tensor *target = st_index_find(&server->tensors, tensor);
    const struct server_operation_spec spec = {.class = &hand_class,
                                               .caller = &fixture->caller,
                                               .group = target->group,
                                               .target_kind = "tensors",
                                               .target_id = tensor};
    struct server_operation *operation = server_operation_create(server, &spec);
    assert_non_null(operation);
    server_operation_claim(operation, &target->group->order, GROUP_OPERATIONS, false);
    server_operation_claim(operation, &target->order, ORDER_ALL, true);
    server_unlock(server);
    operation->small = true;
    return hand_of(operation);
}

static enum st_status hand_submit(struct hand_operation *hand, struct st_error *err)
{
    struct server *server = hand->base.server;
    server_lock(server);
    enum st_status status = server_operation_accept(&hand->base, err);
    server_unlock(server);
    if (status == ST_OK) {
        server_operation_start(&hand->base);
    } else {
        server_operation_release(&hand->base);
    }
    return status;
}

/** Make and submit one that the test will complete. */
static struct hand_operation *hand_start(struct fixture *fixture, const char *tensor)
{
    struct hand_operation *hand = hand_make(fixture, tensor);
    struct st_error err = {0};
    assert_int_equal(hand_submit(hand, &err), ST_OK);
    return hand;
}

static void hand_complete(struct hand_operation *hand)
{
    server_operation_complete(&hand->base, ST_OK, NULL);
}

static void hand_release(struct hand_operation *hand)
{
    server_operation_release(&hand->base);
}

static enum server_operation_state hand_state(struct hand_operation *hand)
{
    return node_operation_state(&hand->base);
}

/** Wait until run was called and has returned, on whichever thread. */
static void hand_wait_running(struct hand_operation *hand)
{
    struct server *server = hand->base.server;
    bool running = false;
    while (!running) {
        server_lock(server);
        running = hand->base.began && !hand->base.starting;
        server_unlock(server);
        usleep(100);
    }
}

/** Reason of its error, or NONE. */
static enum st_reason hand_reason(struct hand_operation *hand)
{
    struct server_operation_view *view = server_operation_view(&hand->base);
    enum st_reason reason = view->has_error ? view->error.reason : ST_REASON_NONE;
    server_snapshot_release(&view->base);
    return reason;
}

/** Counts calls of notify. */
struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    int rings;
    struct server_operation *looks_at; /**< notify asks for its state: no lock may be held. */
    enum server_operation_state seen;
};

static void bell_init(struct bell *bell)
{
    *bell = (struct bell){0};
    pthread_mutex_init(&bell->lock, NULL);
    pthread_cond_init(&bell->rung, NULL);
}

static void bell_ring(void *arg)
{
    struct bell *bell = arg;
    enum server_operation_state seen = SERVER_OPERATION_QUEUED;
    if (bell->looks_at) {
        seen = node_operation_state(bell->looks_at);
    }
    pthread_mutex_lock(&bell->lock);
    bell->rings++;
    bell->seen = seen;
    pthread_cond_signal(&bell->rung);
    pthread_mutex_unlock(&bell->lock);
}

static void bell_wait(struct bell *bell)
{
    pthread_mutex_lock(&bell->lock);
    while (bell->rings == 0) {
        pthread_cond_wait(&bell->rung, &bell->lock);
    }
    pthread_mutex_unlock(&bell->lock);
}

static struct server_waiter *wait_for(struct server_operation *operation, uint64_t deadline_ns,
                                      struct bell *bell)
{
    struct server_waiter *waiter = NULL;
    struct st_error err = {0};
    assert_int_equal(server_operation_wait(operation, deadline_ns, bell_ring, bell, &waiter, &err),
                     ST_OK);
    return waiter;
}

/* ---------------------------------------------------------------- running and order */

static void small_work_on_an_idle_group_has_run_when_the_submit_returns(void **state)
{
    struct hand_operation *hand = hand_make(*state, "a");
    struct st_error err = {0};
    hand->complete_inside = true;
    server_operation_retain(&hand->base);
    assert_int_equal(hand_submit(hand, &err), ST_OK);
    assert_int_equal(hand_state(hand), SERVER_OPERATION_SUCCEEDED);
    struct server_operation_view *view = server_operation_view(&hand->base);
    assert_string_equal(view->verb, "hand");
    assert_string_equal(view->target, "tensors/a");
    assert_string_equal(view->owner, "test");
    assert_int_equal(view->generation, 7);
    assert_true(view->end_time_ns >= view->start_time_ns);
    assert_true(view->start_time_ns >= view->create_time_ns && view->create_time_ns > 0);
    server_snapshot_release(&view->base);
    hand_release(hand);
    hand_release(hand);
}

static void operations_on_one_tensor_run_one_after_the_other_in_order_of_acceptance(void **state)
{
    enum { COUNT = 20 };
    struct fixture *fixture = *state;
    struct hand_operation *first = hand_start(fixture, "a");
    struct hand_operation *others[COUNT];
    _Atomic int order = 0;
    for (int i = 0; i < COUNT; i++) {
        struct st_error err = {0};
        others[i] = hand_make(fixture, "a");
        others[i]->complete_inside = true;
        others[i]->order = &order;
        assert_int_equal(hand_submit(others[i], &err), ST_OK);
        assert_int_equal(hand_state(others[i]), SERVER_OPERATION_QUEUED);
    }
    hand_complete(first);
    hand_release(first);
    for (int i = 0; i < COUNT; i++) {
        server_operation_retain(&others[i]->base);
        struct server_operation_view *view = node_finish(&others[i]->base);
        assert_int_equal(view->state, SERVER_OPERATION_SUCCEEDED);
        server_snapshot_release(&view->base);
        assert_int_equal(others[i]->place, i);
        hand_release(others[i]);
    }
}

static void operations_on_different_tensors_overlap(void **state)
{
    struct hand_operation *a = hand_start(*state, "a");
    struct hand_operation *b = hand_start(*state, "b");
    hand_wait_running(b);
    assert_int_equal(hand_state(a), SERVER_OPERATION_RUNNING);
    assert_int_equal(hand_state(b), SERVER_OPERATION_RUNNING);
    hand_complete(b);
    hand_complete(a);
    hand_release(a);
    hand_release(b);
}

static void a_check_that_fails_at_once_is_the_answer_and_leaves_no_operation(void **state)
{
    struct fixture *fixture = *state;
    struct server_metrics before, after;
    server_metrics(fixture->server, &before);
    struct hand_operation *hand = hand_make(fixture, "a");
    _Atomic int ends = 0;
    hand->ends = &ends;
    hand->begin_reason = ST_REASON_CONTENTS_UNDEFINED;
    struct st_error err = {0};
    assert_int_equal(hand_submit(hand, &err), ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_CONTENTS_UNDEFINED);
    assert_int_equal(ends, 1);
    server_metrics(fixture->server, &after);
    assert_memory_equal(&before, &after, sizeof(before));
    node_tensor_delete(fixture->server, "a"); /* no claim is left */
}

static void a_check_that_fails_later_ends_the_operation_and_the_next_one_runs(void **state)
{
    struct fixture *fixture = *state;
    struct hand_operation *first = hand_start(fixture, "a");
    struct hand_operation *second = hand_make(fixture, "a");
    second->begin_reason = ST_REASON_CONTENTS_UNDEFINED;
    struct st_error err = {0};
    assert_int_equal(hand_submit(second, &err), ST_OK);
    struct hand_operation *third = hand_start(fixture, "a");
    hand_complete(first);
    assert_int_equal(hand_state(second), SERVER_OPERATION_FAILED);
    assert_int_equal(hand_reason(second), ST_REASON_CONTENTS_UNDEFINED);
    hand_wait_running(third);
    hand_complete(third);
    hand_release(first);
    hand_release(second);
    hand_release(third);
}

static void work_that_fails_shows_its_error(void **state)
{
    struct hand_operation *hand = hand_make(*state, "a");
    hand->complete_inside = true;
    hand->run_reason = ST_REASON_DRIVER_ERROR;
    struct st_error err = {0};
    assert_int_equal(hand_submit(hand, &err), ST_OK);
    assert_int_equal(hand_state(hand), SERVER_OPERATION_FAILED);
    assert_int_equal(hand_reason(hand), ST_REASON_DRIVER_ERROR);
    assert_int_equal(hand->end_status, ST_INTERNAL);
    hand_release(hand);
}

static void a_full_queue_is_refused_and_other_groups_are_not_concerned(void **state)
{
    struct fixture *fixture = *state;
    struct hand_operation **hands =
        calloc(ST_OPERATIONS_QUEUED_MAX, sizeof(struct hand_operation *));
    assert_non_null(hands);
    for (int i = 0; i < ST_OPERATIONS_QUEUED_MAX; i++) {
        hands[i] = hand_start(fixture, "a");
    }
    struct st_error err = {0};
    assert_int_equal(hand_submit(hand_make(fixture, "b"), &err), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ST_REASON_TOO_MANY_OPERATIONS);
    assert_true(err.retry_after_ms > 0);
    struct hand_operation *elsewhere = hand_start(fixture, "c");
    hand_complete(elsewhere);
    hand_release(elsewhere);
    assert_int_equal(server_unfinished(fixture->server), ST_OPERATIONS_QUEUED_MAX);
    server_cancel_all(fixture->server);
    assert_int_equal(server_unfinished(fixture->server), 1);
    hand_complete(hands[0]);
    for (int i = 0; i < ST_OPERATIONS_QUEUED_MAX; i++) {
        assert_int_equal(hand_state(hands[i]),
                         i == 0 ? SERVER_OPERATION_SUCCEEDED : SERVER_OPERATION_CANCELLED);
        hand_release(hands[i]);
    }
    free(hands);
}

/* ---------------------------------------------------------------- cancel and deadlines */

static void a_queued_operation_is_cancelled_at_once_and_gives_its_place_up(void **state)
{
    struct fixture *fixture = *state;
    struct hand_operation *first = hand_start(fixture, "a");
    struct hand_operation *second = hand_start(fixture, "a");
    struct hand_operation *third = hand_start(fixture, "a");
    struct st_error err = {0};
    assert_int_equal(server_operation_cancel(&second->base, &node_caller, &err), ST_OK);
    assert_int_equal(hand_state(second), SERVER_OPERATION_CANCELLED);
    assert_int_equal(hand_reason(second), ST_REASON_OPERATION_CANCELLED);
    assert_int_equal(hand_state(third), SERVER_OPERATION_QUEUED);
    hand_complete(first);
    hand_wait_running(third);
    hand_complete(third);
    assert_int_equal(server_operation_cancel(&second->base, &node_caller, &err),
                     ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_OPERATION_DONE);
    hand_release(first);
    hand_release(second);
    hand_release(third);
}

static void a_running_operation_that_is_cancelled_ends_cancelled_when_its_work_ends(void **state)
{
    struct hand_operation *hand = hand_start(*state, "a");
    struct st_error err = {0};
    assert_int_equal(server_operation_cancel(&hand->base, &node_caller, &err), ST_OK);
    assert_int_equal(hand_state(hand), SERVER_OPERATION_RUNNING);
    hand_complete(hand);
    assert_int_equal(hand_state(hand), SERVER_OPERATION_CANCELLED);
    assert_int_equal(hand->end_status, ST_CANCELLED);
    hand_release(hand);
}

static void only_the_owner_or_an_operator_may_cancel(void **state)
{
    static const struct {
        const char *principal;
        enum server_role role;
        bool may;
    } rows[] = {
        {"stranger", SERVER_ROLE_USER, false},
        {"test", SERVER_ROLE_VIEWER, false},
        {"stranger", SERVER_ROLE_OPERATOR, true},
        {"test", SERVER_ROLE_USER, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hand_operation *hand = hand_start(*state, "a");
        struct server_caller caller = node_caller;
        caller.principal = rows[i].principal;
        caller.role = rows[i].role;
        struct st_error err = {0};
        enum st_status status = server_operation_cancel(&hand->base, &caller, &err);
        assert_int_equal(status, rows[i].may ? ST_OK : ST_PERMISSION_DENIED);
        hand_complete(hand);
        hand_release(hand);
    }
}

static void a_settled_operation_is_no_longer_cancelled(void **state)
{
    struct hand_operation *hand = hand_start(*state, "a");
    struct st_error err = {0};
    assert_int_equal(server_operation_settle(&hand->base, &err), ST_OK);
    assert_int_equal(server_operation_cancel(&hand->base, &node_caller, &err), ST_OK);
    hand_complete(hand);
    assert_int_equal(hand_state(hand), SERVER_OPERATION_SUCCEEDED);
    hand_release(hand);
    hand = hand_start(*state, "a");
    assert_int_equal(server_operation_cancel(&hand->base, &node_caller, &err), ST_OK);
    assert_int_equal(server_operation_settle(&hand->base, &err), ST_CANCELLED);
    hand_complete(hand);
    hand_release(hand);
}

static void the_callers_deadline_cancels_what_it_asked_for(void **state)
{
    struct fixture *fixture = *state;
    struct hand_operation *first = hand_start(fixture, "a");
    fixture->caller.deadline_ns = st_clock_now_ns() + 20 * ST_NS_PER_MS;
    struct hand_operation *queued = hand_start(fixture, "a");
    struct hand_operation *running = hand_start(fixture, "b");
    struct bell bell;
    bell_init(&bell);
    struct server_waiter *waiter = wait_for(&queued->base, ST_DEADLINE_NEVER, &bell);
    bell_wait(&bell);
    server_waiter_close(waiter);
    assert_int_equal(hand_state(queued), SERVER_OPERATION_CANCELLED);
    assert_int_equal(hand_reason(queued), ST_REASON_OPERATION_DEADLINE);
    hand_wait_running(running);
    while (!running->base.cancel_requested) {
        usleep(100);
    }
    hand_complete(running);
    assert_int_equal(hand_state(running), SERVER_OPERATION_CANCELLED);
    assert_int_equal(hand_reason(running), ST_REASON_OPERATION_DEADLINE);
    hand_complete(first);
    hand_release(first);
    hand_release(queued);
    hand_release(running);
}

static void an_operation_that_ends_before_its_deadline_forgets_it(void **state)
{
    struct fixture *fixture = *state;
    fixture->caller.deadline_ns = st_clock_now_ns() + 5 * ST_NS_PER_MS;
    for (int i = 0; i < 200; i++) {
        struct hand_operation *hand = hand_start(fixture, "a");
        usleep(i < 40 ? 200 : 0); /* some end around the deadline */
        hand_complete(hand);
        enum server_operation_state end = hand_state(hand);
        assert_true(end == SERVER_OPERATION_SUCCEEDED || end == SERVER_OPERATION_CANCELLED);
        hand_release(hand);
    }
}

static void an_expired_deadline_is_refused_without_effect(void **state)
{
    struct fixture *fixture = *state;
    struct server_caller late = node_caller;
    late.deadline_ns = st_clock_now_ns() - 1;
    struct st_error err = {0};
    struct server_operation *operation = NULL;
    assert_int_equal(server_tensor_delete(fixture->server, &late, "a", false, &operation, &err),
                     ST_DEADLINE_EXCEEDED);
    assert_int_equal(err.reason, ST_REASON_OPERATION_DEADLINE);
    node_tensor_delete(fixture->server, "a");
}

/* ---------------------------------------------------------------- waiting */

static void a_waiter_is_told_once_without_a_lock_when_the_operation_ends(void **state)
{
    struct hand_operation *hand = hand_start(*state, "a");
    struct bell bell, soon;
    bell_init(&bell);
    bell_init(&soon);
    bell.looks_at = &hand->base;
    struct server_waiter *waiter = wait_for(&hand->base, st_clock_now_ns() + PATIENCE_NS, &bell);
    struct server_waiter *short_one =
        wait_for(&hand->base, st_clock_now_ns() + 10 * ST_NS_PER_MS, &soon);
    bell_wait(&soon);
    assert_int_equal(hand_state(hand), SERVER_OPERATION_RUNNING);
    hand_complete(hand);
    bell_wait(&bell);
    assert_int_equal(bell.seen, SERVER_OPERATION_SUCCEEDED);
    server_waiter_close(waiter);
    server_waiter_close(short_one);
    assert_int_equal(bell.rings, 1);
    assert_int_equal(soon.rings, 1);
    assert_null(wait_for(&hand->base, ST_DEADLINE_NEVER, &bell)); /* it has ended */
    assert_int_equal(bell.rings, 1);
    hand_release(hand);
}

static void a_waiter_that_was_closed_is_not_told(void **state)
{
    struct hand_operation *hand = hand_start(*state, "a");
    struct bell bell;
    bell_init(&bell);
    for (int i = 0; i < 100; i++) {
        uint64_t deadline_ns = st_clock_now_ns() + (uint64_t)(i % 3) * ST_NS_PER_MS + PATIENCE_NS;
        server_waiter_close(wait_for(&hand->base, deadline_ns, &bell));
    }
    hand_complete(hand);
    assert_int_equal(bell.rings, 0);
    hand_release(hand);
}

static void so_many_may_wait_and_no_more(void **state)
{
    struct hand_operation *hand = hand_start(*state, "a");
    struct bell bell;
    bell_init(&bell);
    struct server_waiter **waiters =
        calloc(ST_OPERATION_WAITERS_MAX, sizeof(struct server_waiter *));
    assert_non_null(waiters);
    for (int i = 0; i < ST_OPERATION_WAITERS_MAX; i++) {
        waiters[i] = wait_for(&hand->base, ST_DEADLINE_NEVER, &bell);
    }
    struct server_waiter *refused = NULL;
    struct st_error err = {0};
    assert_int_equal(
        server_operation_wait(&hand->base, ST_DEADLINE_NEVER, bell_ring, &bell, &refused, &err),
        ST_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ST_REASON_TOO_MANY_OPERATIONS);
    hand_complete(hand);
    assert_int_equal(bell.rings, ST_OPERATION_WAITERS_MAX);
    for (int i = 0; i < ST_OPERATION_WAITERS_MAX; i++) {
        server_waiter_close(waiters[i]);
    }
    free(waiters);
    hand_release(hand);
}

/* ---------------------------------------------------------------- the list */

static struct server_list_query list_query(const char *after, uint32_t max)
{
    return (struct server_list_query){.after = after, .max = max, .group = "", .state = ""};
}

static void the_list_is_in_order_of_creation_page_by_page(void **state)
{
    enum { COUNT = 7 };
    struct fixture *fixture = *state;
    struct hand_operation *hands[COUNT];
    for (int i = 0; i < COUNT; i++) {
        hands[i] = hand_start(fixture, "c");
    }
    char after[ST_ID_MAX + 1] = "";
    int seen = 0;
    bool more = true;
    while (more) {
        struct server_operation_view *views[3];
        struct server_list_query query = list_query(after, 3);
        query.group = "h";
        query.state = "queued";
        uint32_t count = server_operation_list(fixture->server, &query, views, &more);
        for (uint32_t i = 0; i < count; i++) {
            assert_string_equal(views[i]->id, hands[++seen]->base.id); /* the first one runs */
            snprintf(after, sizeof(after), "%s", views[i]->id);
            server_snapshot_release(&views[i]->base);
        }
    }
    assert_int_equal(seen, COUNT - 1);
    server_cancel_all(fixture->server);
    hand_complete(hands[0]);
    for (int i = 0; i < COUNT; i++) {
        hand_release(hands[i]);
    }
}

static void the_newest_ten_thousand_are_kept(void **state)
{
    enum { EXTRA = 50 };
    struct fixture *fixture = *state;
    struct hand_operation *first = hand_make(fixture, "a");
    struct st_error err = {0};
    first->complete_inside = true;
    assert_int_equal(hand_submit(first, &err), ST_OK);
    for (int i = 0; i < ST_OPERATIONS_KEPT_MAX + EXTRA; i++) {
        struct hand_operation *hand = hand_make(fixture, "a");
        hand->complete_inside = true;
        assert_int_equal(hand_submit(hand, &err), ST_OK);
        hand_release(hand);
    }
    struct server_operation *found = NULL;
    assert_int_equal(server_operation_find(fixture->server, first->base.id, &found, &err),
                     ST_NOT_FOUND);
    assert_int_equal(err.reason, ST_REASON_OPERATION_NOT_FOUND);
    assert_int_equal(hand_state(first), SERVER_OPERATION_SUCCEEDED); /* the handle still reads it */
    struct server_metrics metrics;
    server_metrics(fixture->server, &metrics);
    assert_int_equal(metrics.operations_kept, ST_OPERATIONS_KEPT_MAX);
    /* A page token whose operation has gone continues behind it. */
    struct server_operation_view *view = NULL;
    bool more = false;
    struct server_list_query query = list_query(first->base.id, 1);
    assert_int_equal(server_operation_list(fixture->server, &query, &view, &more), 1);
    assert_true(more);
    assert_int_equal(server_operation_find(fixture->server, view->id, &found, &err), ST_OK);
    server_operation_release(found);
    server_snapshot_release(&view->base);
    hand_release(first);
}

static void old_operations_are_forgotten(void **state)
{
    struct fixture *fixture = *state;
    struct hand_operation *hand = hand_start(fixture, "a");
    hand_complete(hand);
    struct server_operation *found = NULL;
    struct st_error err = {0};
    assert_int_equal(server_operation_find(fixture->server, hand->base.id, &found, &err), ST_OK);
    server_operation_release(found);
    server_lock(fixture->server);
    for (struct server_operation *o = fixture->server->kept_first; o; o = o->next_kept) {
        o->ended_ns -=
            (ST_OPERATION_KEPT_SECONDS + 1) * ST_NS_PER_SECOND; /* as if time had passed */
    }
    server_unlock(fixture->server);
    assert_int_equal(server_operation_find(fixture->server, hand->base.id, &found, &err),
                     ST_NOT_FOUND);
    hand_release(hand);
}

static void foreign_ids_are_not_found(void **state)
{
    static const char *const ids[] = {
        "", "op-", "x", "op-00000000000000000001", "op-zzzzzzzz000000000001", "operation"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct server_operation *found = NULL;
        struct st_error err = {0};
        assert_int_equal(server_operation_find(fixture->server, ids[i], &found, &err),
                         ST_NOT_FOUND);
    }
}

/* ---------------------------------------------------------------- calls that hang */

static void a_call_that_overruns_ends_its_operation_and_keeps_its_place(void **state)
{
    struct fixture *fixture = *state;
    server_set_driver_call_limit(fixture->server, 60 * ST_NS_PER_MS);
    struct hand_operation *stuck = hand_make(fixture, "a");
    _Atomic int ends = 0;
    stuck->base.small = false;
    stuck->run_ms = 600;
    stuck->complete_inside = true;
    stuck->ends = &ends;
    struct st_error err = {0};
    uint64_t start_ns = st_clock_now_ns();
    assert_int_equal(hand_submit(stuck, &err), ST_OK);
    struct hand_operation *behind = hand_start(fixture, "a");
    server_operation_retain(&stuck->base);
    assert_int_equal(node_finish_status(&stuck->base, &err), ST_DEADLINE_EXCEEDED);
    assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
    assert_true(st_clock_now_ns() - start_ns < 400 * ST_NS_PER_MS);
    assert_int_equal(ends, 0); /* its work still runs */
    assert_int_equal(hand_state(behind), SERVER_OPERATION_QUEUED);
    hand_wait_running(behind);
    assert_int_equal(ends, 1);
    assert_int_equal(hand_state(stuck), SERVER_OPERATION_FAILED);
    hand_complete(behind);
    hand_release(behind);
    hand_release(stuck);
}

/* ---------------------------------------------------------------- many threads */

#define THREADS 4
#define ROUNDS 3000

struct crowd {
    struct fixture *fixture;
    _Atomic int inside[3]; /**< Operations that work on each tensor. */
    _Atomic bool clash;
};

/** One that marks its tensor while it works. */
struct crowd_operation {
    struct server_operation base;
    struct crowd *crowd;
    int tensor;
};

static void crowd_run(struct server_operation *operation)
{
    struct crowd_operation *one = (struct crowd_operation *)operation;
    _Atomic int *inside = &one->crowd->inside[one->tensor];
    if (atomic_fetch_add(inside, 1) != 0) {
        one->crowd->clash = true;
    }
    sched_yield();
    atomic_fetch_sub(inside, 1);
    server_operation_complete(operation, ST_OK, NULL);
}

static enum st_status crowd_begin(struct server_operation *operation, struct st_error *err)
{
    (void)operation;
    (void)err;
    return ST_OK;
}

static void crowd_end(struct server_operation *operation, enum st_status status)
{
    (void)operation;
    (void)status;
}

static const struct server_operation_class crowd_class = {
    .verb = "crowd",
    .size = sizeof(struct crowd_operation),
    .pool = SERVER_POOL_LAUNCH,
    .cancel_running = true,
    .begin = crowd_begin,
    .run = crowd_run,
    .end = crowd_end,
    .destroy = hand_destroy,
};

static struct server_operation *crowd_submit(struct crowd *crowd, int which, bool small)
{
    static const char *const names[] = {"a", "b", "c"};
    struct server *server = crowd->fixture->server;
    struct server_caller caller = node_caller;
    caller.deadline_ns = which == 1 ? st_clock_now_ns() + ST_NS_PER_MS : ST_DEADLINE_NEVER;
    server_lock(server);
    struct tensor *target = st_index_find(&server->tensors, names[which]);
    const struct server_operation_spec spec = {.class = &crowd_class,
                                               .caller = &caller,
                                               .group = target->group,
                                               .target_kind = "tensors",
                                               .target_id = names[which]};
    struct server_operation *operation = server_operation_create(server, &spec);
    struct crowd_operation *one = (struct crowd_operation *)operation;
    one->crowd = crowd;
    one->tensor = which;
    operation->small = small;
    server_operation_claim(operation, &target->group->order, GROUP_OPERATIONS, false);
    server_operation_claim(operation, &target->order, ORDER_ALL, true);
    enum st_status status = server_operation_accept(operation, NULL);
    server_unlock(server);
    if (status == ST_OK) {
        server_operation_start(operation);
        return operation;
    }
    server_operation_release(operation);
    return NULL;
}

static void *crowd_thread(void *arg)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct bell bell;
        bell_init(&bell);
        struct server_operation *operation = crowd_submit(crowd, i % 3, i % 2 == 0);
        if (!operation) {
            continue;
        }
        struct server_waiter *waiter = NULL;
        uint64_t deadline_ns = st_clock_now_ns() + (uint64_t)(i % 5) * ST_NS_PER_MS / 2;
        if (server_operation_wait(operation, deadline_ns, bell_ring, &bell, &waiter, NULL) ==
                ST_OK &&
            waiter) {
            if (i % 7 != 0) {
                bell_wait(&bell);
            }
            server_waiter_close(waiter);
        }
        if (i % 11 == 0) {
            (void)!server_operation_cancel(operation, &node_caller, NULL);
        }
        server_operation_release(operation);
    }
    return NULL;
}

static void many_threads_never_meet_in_one_tensor(void **state)
{
    struct crowd crowd = {.fixture = *state};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_thread, &crowd), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    uint64_t deadline_ns = st_clock_now_ns() + PATIENCE_NS;
    while (server_unfinished(crowd.fixture->server) > 0 && st_clock_now_ns() < deadline_ns) {
        usleep(1000);
    }
    assert_int_equal(server_unfinished(crowd.fixture->server), 0);
    assert_false(crowd.clash);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(small_work_on_an_idle_group_has_run_when_the_submit_returns),
        CASE(operations_on_one_tensor_run_one_after_the_other_in_order_of_acceptance),
        CASE(operations_on_different_tensors_overlap),
        CASE(a_check_that_fails_at_once_is_the_answer_and_leaves_no_operation),
        CASE(a_check_that_fails_later_ends_the_operation_and_the_next_one_runs),
        CASE(work_that_fails_shows_its_error),
        CASE(a_full_queue_is_refused_and_other_groups_are_not_concerned),
        CASE(a_queued_operation_is_cancelled_at_once_and_gives_its_place_up),
        CASE(a_running_operation_that_is_cancelled_ends_cancelled_when_its_work_ends),
        CASE(only_the_owner_or_an_operator_may_cancel),
        CASE(a_settled_operation_is_no_longer_cancelled),
        CASE(the_callers_deadline_cancels_what_it_asked_for),
        CASE(an_operation_that_ends_before_its_deadline_forgets_it),
        CASE(an_expired_deadline_is_refused_without_effect),
        CASE(a_waiter_is_told_once_without_a_lock_when_the_operation_ends),
        CASE(a_waiter_that_was_closed_is_not_told),
        CASE(so_many_may_wait_and_no_more),
        CASE(the_list_is_in_order_of_creation_page_by_page),
        CASE(the_newest_ten_thousand_are_kept),
        CASE(old_operations_are_forgotten),
        CASE(foreign_ids_are_not_found),
        CASE(a_call_that_overruns_ends_its_operation_and_keeps_its_place),
        CASE(many_threads_never_meet_in_one_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
