#include "tests/support/leak_check.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/queue.h"

#define PRODUCERS 4
#define CONSUMERS 4
#define ITEMS_EACH 5000

static void items_come_out_in_the_order_they_went_in(void **state)
{
    (void)state;
    struct st_queue *queue = st_queue_create(sizeof(int), 3);
    int next = 0;
    int expected = 0;
    for (int round = 0; round < 10; round++) { /* more than the capacity: the ring wraps */
        for (int i = 0; i < 2; i++, next++) {
            assert_true(st_queue_push(queue, &next));
        }
        assert_int_equal(st_queue_length(queue), 2);
        for (int i = 0; i < 2; i++, expected++) {
            int item;
            assert_true(st_queue_pop(queue, &item, 0));
            assert_int_equal(item, expected);
        }
    }
    st_queue_destroy(queue);
}

static void a_full_queue_says_so_at_once(void **state)
{
    (void)state;
    struct st_queue *queue = st_queue_create(sizeof(int), 2);
    int item = 1;
    assert_true(st_queue_push(queue, &item));
    assert_true(st_queue_push(queue, &item));
    assert_false(st_queue_push(queue, &item));
    assert_true(st_queue_pop(queue, &item, 0));
    assert_true(st_queue_push(queue, &item));
    st_queue_destroy(queue);
}

static void an_empty_pop_ends_at_its_deadline(void **state)
{
    (void)state;
    struct st_queue *queue = st_queue_create(sizeof(int), 2);
    int item = 7;
    uint64_t before = st_clock_now_ns();
    assert_false(st_queue_pop(queue, &item, before + 30 * ST_NS_PER_MS));
    assert_true(st_clock_now_ns() - before >= 30 * ST_NS_PER_MS);
    assert_false(st_queue_pop(queue, &item, 0));
    assert_int_equal(item, 7);
    st_queue_destroy(queue);
}

static void a_closed_queue_drains_and_then_answers_false(void **state)
{
    (void)state;
    struct st_queue *queue = st_queue_create(sizeof(int), 2);
    int item = 5;
    assert_true(st_queue_push(queue, &item));
    st_queue_close(queue);
    assert_false(st_queue_push(queue, &item));
    assert_true(st_queue_pop(queue, &item, ST_DEADLINE_NEVER));
    assert_false(st_queue_pop(queue, &item, ST_DEADLINE_NEVER));
    st_queue_destroy(queue);
}

static void a_size_that_overflows_is_refused(void **state)
{
    (void)state;
    assert_null(st_queue_create(SIZE_MAX / 2, 4));
    st_queue_destroy(NULL);
}

static void *close_later(void *arg)
{
    usleep(20000);
    st_queue_close(arg);
    return NULL;
}

static void closing_wakes_a_waiting_pop(void **state)
{
    (void)state;
    struct st_queue *queue = st_queue_create(sizeof(int), 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, close_later, queue), 0);
    int item;
    assert_false(st_queue_pop(queue, &item, ST_DEADLINE_NEVER));
    pthread_join(thread, NULL);
    st_queue_destroy(queue);
}

struct item {
    unsigned producer;
    unsigned number;
};

struct traffic {
    struct st_queue *queue;
    unsigned producer;
    unsigned char *seen; /* [PRODUCERS][ITEMS_EACH]; each cell is written by one consumer. */
};

static void *produce(void *arg)
{
    struct traffic *traffic = arg;
    for (unsigned i = 0; i < ITEMS_EACH; i++) {
        struct item item = {.producer = traffic->producer, .number = i};
        while (!st_queue_push(traffic->queue, &item)) {
            sched_yield();
        }
    }
    return NULL;
}

static void *consume(void *arg)
{
    struct traffic *traffic = arg;
    struct item item;
    while (st_queue_pop(traffic->queue, &item, ST_DEADLINE_NEVER)) {
        traffic->seen[item.producer * ITEMS_EACH + item.number]++;
    }
    return NULL;
}

static void every_item_arrives_exactly_once_between_threads(void **state)
{
    (void)state;
    struct st_queue *queue = st_queue_create(sizeof(struct item), 16);
    unsigned char *seen = calloc(PRODUCERS, ITEMS_EACH);
    struct traffic traffic[PRODUCERS];
    pthread_t producers[PRODUCERS];
    pthread_t consumers[CONSUMERS];
    for (unsigned i = 0; i < PRODUCERS; i++) {
        traffic[i] = (struct traffic){.queue = queue, .producer = i, .seen = seen};
    }
    for (unsigned i = 0; i < CONSUMERS; i++) {
        assert_int_equal(pthread_create(&consumers[i], NULL, consume, &traffic[0]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        assert_int_equal(pthread_create(&producers[i], NULL, produce, &traffic[i]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        pthread_join(producers[i], NULL);
    }
    st_queue_close(queue);
    for (unsigned i = 0; i < CONSUMERS; i++) {
        pthread_join(consumers[i], NULL);
    }
    for (unsigned i = 0; i < PRODUCERS * ITEMS_EACH; i++) {
        assert_int_equal(seen[i], 1);
    }
    free(seen);
    st_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_out_in_the_order_they_went_in),
        cmocka_unit_test(a_full_queue_says_so_at_once),
        cmocka_unit_test(an_empty_pop_ends_at_its_deadline),
        cmocka_unit_test(a_closed_queue_drains_and_then_answers_false),
        cmocka_unit_test(a_size_that_overflows_is_refused),
        cmocka_unit_test(closing_wakes_a_waiting_pop),
        cmocka_unit_test(every_item_arrives_exactly_once_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
