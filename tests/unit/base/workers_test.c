#include "tests/support/leak_check.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/workers.h"

static void count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

/** A job that says that it runs, and then waits until it is let go. */
struct held {
    sem_t running;
    sem_t go;
};

static void hold(void *arg)
{
    struct held *held = arg;
    sem_post(&held->running);
    sem_wait(&held->go);
}

static void held_init(struct held *held)
{
    sem_init(&held->running, 0, 0);
    sem_init(&held->go, 0, 0);
}

static void held_done(struct held *held)
{
    sem_destroy(&held->running);
    sem_destroy(&held->go);
}

static struct st_workers *create_workers(unsigned threads, size_t capacity)
{
    struct st_workers *workers = NULL;
    assert_int_equal(st_workers_create("test", threads, capacity, &workers, NULL), ST_OK);
    return workers;
}

static void destroying_runs_what_is_queued(void **state)
{
    (void)state;
    atomic_int ran = 0;
    struct st_workers *workers = create_workers(3, 1000);
    for (int i = 0; i < 1000; i++) {
        assert_true(st_workers_submit(workers, count, &ran));
    }
    st_workers_destroy(workers);
    assert_int_equal(atomic_load(&ran), 1000);
}

static int order[100];
static int order_count;

static void note_order(void *arg)
{
    order[order_count++] = *(int *)arg;
}

static void one_thread_runs_jobs_in_the_order_of_submission(void **state)
{
    (void)state;
    int numbers[100];
    struct st_workers *workers = create_workers(1, 100);
    for (int i = 0; i < 100; i++) {
        numbers[i] = i;
        assert_true(st_workers_submit(workers, note_order, &numbers[i]));
    }
    st_workers_destroy(workers);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(order[i], i);
    }
}

static void a_full_queue_refuses_at_once(void **state)
{
    (void)state;
    atomic_int ran = 0;
    struct held held;
    held_init(&held);
    struct st_workers *workers = create_workers(1, 2);
    assert_true(st_workers_submit(workers, hold, &held));
    sem_wait(&held.running);
    assert_true(st_workers_submit(workers, count, &ran));
    assert_true(st_workers_submit(workers, count, &ran));
    assert_false(st_workers_submit(workers, count, &ran));
    sem_post(&held.go);
    st_workers_destroy(workers);
    assert_int_equal(atomic_load(&ran), 2);
    held_done(&held);
}

static void jobs_run_side_by_side_on_several_threads(void **state)
{
    (void)state;
    struct held held;
    held_init(&held);
    struct st_workers *workers = create_workers(3, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(st_workers_submit(workers, hold, &held));
    }
    for (int i = 0; i < 3; i++) {
        sem_wait(&held.running); /* all three run before any is let go */
    }
    for (int i = 0; i < 3; i++) {
        sem_post(&held.go);
    }
    st_workers_destroy(workers);
    held_done(&held);
}

static void a_held_thread_can_be_replaced(void **state)
{
    (void)state;
    struct held held;
    struct held second;
    held_init(&held);
    held_init(&second);
    struct st_workers *workers = create_workers(1, 4);
    assert_true(st_workers_submit(workers, hold, &held));
    sem_wait(&held.running);
    assert_true(st_workers_submit(workers, hold, &second));
    assert_true(st_workers_replace(workers));
    sem_wait(&second.running); /* while the first is still held */
    sem_post(&second.go);
    sem_post(&held.go);
    st_workers_destroy(workers);
    held_done(&held);
    held_done(&second);
}

static void replacements_are_bounded(void **state)
{
    (void)state;
    struct st_workers *workers = create_workers(1, 1);
    int replaced = 0;
    while (st_workers_replace(workers)) {
        replaced++;
        assert_true(replaced < 1000);
    }
    assert_true(replaced >= 64);
    st_workers_destroy(workers);
}

static void wrong_counts_are_refused(void **state)
{
    (void)state;
    static const struct {
        unsigned threads;
        size_t capacity;
        enum st_status status;
    } cases[] = {
        {0, 1, ST_INVALID_ARGUMENT},
        {65, 1, ST_INVALID_ARGUMENT},
        {1, 0, ST_INVALID_ARGUMENT},
        {1, SIZE_MAX / 2, ST_RESOURCE_EXHAUSTED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct st_workers *workers = NULL;
        struct st_error err = {0};
        assert_int_equal(
            st_workers_create("test", cases[i].threads, cases[i].capacity, &workers, &err),
            cases[i].status);
        assert_null(workers);
        assert_int_equal(err.status, cases[i].status);
    }
    st_workers_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroying_runs_what_is_queued),
        cmocka_unit_test(one_thread_runs_jobs_in_the_order_of_submission),
        cmocka_unit_test(a_full_queue_refuses_at_once),
        cmocka_unit_test(jobs_run_side_by_side_on_several_threads),
        cmocka_unit_test(a_held_thread_can_be_replaced),
        cmocka_unit_test(replacements_are_bounded),
        cmocka_unit_test(wrong_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
