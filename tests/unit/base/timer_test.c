#include "tests/support/leak_check.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/timer.h"

#define MANY 3000

static struct st_timers *timers;

static int create_timers(void **state)
{
    (void)state;
    return st_timers_create(&timers, NULL) == ST_OK ? 0 : -1;
}

static int destroy_timers(void **state)
{
    (void)state;
    st_timers_destroy(timers);
    return 0;
}

static uint64_t in_ms(uint64_t ms)
{
    return st_clock_now_ns() + ms * ST_NS_PER_MS;
}

static void wait_for(const atomic_int *counter, int value)
{
    uint64_t deadline = in_ms(20000);
    while (atomic_load(counter) < value && st_clock_now_ns() < deadline) {
        usleep(1000);
    }
    assert_int_equal(atomic_load(counter), value);
}

static void count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

/** Holds the timer thread, so that a test can arrange timers without being raced. */
struct gate {
    struct st_timer timer;
    sem_t entered;
    sem_t open;
};

static void fire_gate(void *arg)
{
    struct gate *gate = arg;
    sem_post(&gate->entered);
    sem_wait(&gate->open);
}

static void gate_close(struct gate *gate)
{
    *gate = (struct gate){.timer = {0}};
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->open, 0, 0);
    assert_true(st_timer_start(timers, &gate->timer, 0, fire_gate, gate));
    sem_wait(&gate->entered);
}

static void gate_open(struct gate *gate)
{
    sem_post(&gate->open);
    st_timer_stop(timers, &gate->timer);
    sem_destroy(&gate->entered);
    sem_destroy(&gate->open);
}

static void a_timer_fires_once_and_not_early(void **state)
{
    (void)state;
    atomic_int fired = 0;
    struct st_timer timer = {0};
    uint64_t deadline = in_ms(30);
    assert_true(st_timer_start(timers, &timer, deadline, count, &fired));
    wait_for(&fired, 1);
    assert_true(st_clock_now_ns() >= deadline);
    usleep(20000);
    assert_int_equal(atomic_load(&fired), 1);
    assert_false(st_timer_stop(timers, &timer));
}

static void a_stopped_timer_does_not_fire(void **state)
{
    (void)state;
    atomic_int fired = 0;
    struct gate gate;
    struct st_timer timer = {0};
    assert_false(st_timer_stop(timers, &timer));
    gate_close(&gate);
    assert_true(st_timer_start(timers, &timer, 1, count, &fired));
    assert_true(st_timer_stop(timers, &timer));
    assert_false(st_timer_stop(timers, &timer));
    gate_open(&gate);
    usleep(20000);
    assert_int_equal(atomic_load(&fired), 0);
}

static void a_started_timer_can_be_moved_both_ways(void **state)
{
    (void)state;
    atomic_int early = 0;
    atomic_int late = 0;
    struct gate gate;
    struct st_timer a = {0};
    struct st_timer b = {0};
    gate_close(&gate);
    assert_true(st_timer_start(timers, &a, in_ms(60000), count, &early));
    assert_true(st_timer_start(timers, &b, 1, count, &late));
    assert_true(st_timer_start(timers, &a, 2, count, &early));
    assert_true(st_timer_start(timers, &b, in_ms(60000), count, &late));
    gate_open(&gate);
    wait_for(&early, 1);
    usleep(20000);
    assert_int_equal(atomic_load(&late), 0);
    assert_true(st_timer_stop(timers, &b));
}

static void a_deadline_in_the_past_fires_at_once(void **state)
{
    (void)state;
    atomic_int fired = 0;
    struct st_timer timer = {0};
    assert_true(st_timer_start(timers, &timer, 1, count, &fired));
    wait_for(&fired, 1);
}

/* Many timers: each notes when it came in the sequence of all. */
struct numbered {
    struct st_timer timer;
    uint64_t deadline_ns;
    int times;
};

static struct numbered many[MANY];
static atomic_int many_fired;
static uint64_t many_last_ns;
static atomic_int many_out_of_order;

static void fire_numbered(void *arg)
{
    struct numbered *numbered = arg;
    numbered->times++;
    if (numbered->deadline_ns < many_last_ns) {
        atomic_fetch_add(&many_out_of_order, 1);
    }
    many_last_ns = numbered->deadline_ns;
    atomic_fetch_add(&many_fired, 1);
}

static void many_timers_fire_in_the_order_of_their_deadlines(void **state)
{
    (void)state;
    srand48(5);
    struct gate gate;
    gate_close(&gate);
    for (int round = 0; round < 2; round++) { /* the second round moves every timer */
        for (int i = 0; i < MANY; i++) {
            many[i].deadline_ns = 1 + (uint64_t)(lrand48() % 100000000);
            assert_true(st_timer_start(timers, &many[i].timer, many[i].deadline_ns, fire_numbered,
                                       &many[i]));
        }
    }
    int stopped = 0;
    for (int i = 0; i < MANY; i += 3, stopped++) {
        assert_true(st_timer_stop(timers, &many[i].timer));
    }
    gate_open(&gate);
    wait_for(&many_fired, MANY - stopped);
    usleep(5000);
    assert_int_equal(atomic_load(&many_out_of_order), 0);
    for (int i = 0; i < MANY; i++) {
        assert_false(st_timer_stop(timers, &many[i].timer));
        assert_int_equal(many[i].times, i % 3 != 0);
    }
}

/* A fire function that is slow, and says when it runs and when it is done. */
struct slow {
    struct st_timer timer;
    atomic_int entered;
    atomic_int done;
    bool again;
    bool stop_inside;
};

static void fire_slowly(void *arg)
{
    struct slow *slow = arg;
    atomic_fetch_add(&slow->entered, 1);
    usleep(50000);
    if (slow->again) {
        st_timer_start(timers, &slow->timer, 0, fire_slowly, slow);
    }
    if (slow->stop_inside) {
        st_timer_stop(timers, &slow->timer);
    }
    atomic_fetch_add(&slow->done, 1);
}

static void stopping_waits_for_a_running_fire(void **state)
{
    (void)state;
    struct slow slow = {.again = false};
    assert_true(st_timer_start(timers, &slow.timer, 0, fire_slowly, &slow));
    wait_for(&slow.entered, 1);
    assert_false(st_timer_stop(timers, &slow.timer));
    assert_int_equal(atomic_load(&slow.done), 1);
}

static void stopping_beats_a_fire_that_starts_itself_again(void **state)
{
    (void)state;
    struct slow slow = {.again = true};
    assert_true(st_timer_start(timers, &slow.timer, 0, fire_slowly, &slow));
    wait_for(&slow.entered, 1);
    st_timer_stop(timers, &slow.timer);
    int entered = atomic_load(&slow.entered);
    assert_int_equal(atomic_load(&slow.done), entered);
    usleep(80000);
    assert_int_equal(atomic_load(&slow.entered), entered);
}

static void a_fire_may_stop_its_own_timer(void **state)
{
    (void)state;
    struct slow slow = {.again = true, .stop_inside = true};
    assert_true(st_timer_start(timers, &slow.timer, 0, fire_slowly, &slow));
    wait_for(&slow.done, 1);
    usleep(20000);
    assert_int_equal(atomic_load(&slow.entered), 1);
    assert_false(st_timer_stop(timers, &slow.timer));
}

static void free_and_count(void *arg)
{
    atomic_int *fired = *(atomic_int **)((char *)arg + sizeof(struct st_timer));
    free(arg);
    atomic_fetch_add(fired, 1);
}

static void a_fire_may_free_its_own_timer(void **state)
{
    (void)state;
    atomic_int fired = 0;
    struct owner {
        struct st_timer timer;
        atomic_int *fired;
    } *owner = calloc(1, sizeof(*owner));
    assert_non_null(owner);
    owner->fired = &fired;
    assert_true(st_timer_start(timers, &owner->timer, 0, free_and_count, owner));
    wait_for(&fired, 1);
}

/** Voluntary context switches of the timer thread so far: one for each time it slept. */
static long timer_thread_sleeps(void)
{
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    long sleeps = -1;
    for (const struct dirent *task = readdir(tasks); task; task = readdir(tasks)) {
        char path[300];
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        FILE *file = fopen(path, "r");
        char line[256];
        bool ours = false;
        while (file && fgets(line, sizeof(line), file)) {
            ours |= strcmp(line, "Name:\ttimers\n") == 0;
            if (ours && strncmp(line, "voluntary_ctxt_switches:", 24) == 0) {
                sleeps = strtol(line + 24, NULL, 10);
            }
        }
        if (file) {
            fclose(file);
        }
    }
    closedir(tasks);
    assert_true(sleeps >= 0);
    return sleeps;
}

/** As timer_thread_sleeps(), once the thread has gone to sleep after what was just asked of it. */
static long settled_sleeps(void)
{
    long before = -1;
    long now = timer_thread_sleeps();
    while (now != before) {
        usleep(50000);
        before = now;
        now = timer_thread_sleeps();
    }
    return now;
}

static void nothing_wakes_the_thread_while_no_deadline_comes(void **state)
{
    (void)state;
    atomic_int fired = 0;
    struct st_timer distant = {0};
    struct st_timer more_distant = {0};
    long before = settled_sleeps();
    usleep(300000);
    assert_int_equal(timer_thread_sleeps(), before); /* no timer at all */
    assert_true(st_timer_start(timers, &distant, in_ms(60000), count, &fired));
    before = settled_sleeps();
    assert_true(st_timer_start(timers, &more_distant, in_ms(70000), count, &fired));
    usleep(300000);
    assert_int_equal(timer_thread_sleeps(), before); /* none that is due */
    assert_true(st_timer_stop(timers, &distant));
    assert_true(st_timer_stop(timers, &more_distant));
}

static atomic_int race_fired;

static void *start_and_stop(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2000; i++) {
        struct st_timer timer = {0};
        st_timer_start(timers, &timer, i % 2 ? 0 : in_ms(1000), count, &race_fired);
        if (i % 3 == 0) {
            sched_yield();
        }
        st_timer_stop(timers, &timer); /* the timer is on this stack: it must be let go */
    }
    return NULL;
}

static void starting_and_stopping_from_several_threads_is_safe(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, start_and_stop, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(atomic_load(&race_fired) <= 4 * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timer_fires_once_and_not_early),
        cmocka_unit_test(a_stopped_timer_does_not_fire),
        cmocka_unit_test(a_started_timer_can_be_moved_both_ways),
        cmocka_unit_test(a_deadline_in_the_past_fires_at_once),
        cmocka_unit_test(many_timers_fire_in_the_order_of_their_deadlines),
        cmocka_unit_test(stopping_waits_for_a_running_fire),
        cmocka_unit_test(stopping_beats_a_fire_that_starts_itself_again),
        cmocka_unit_test(a_fire_may_stop_its_own_timer),
        cmocka_unit_test(a_fire_may_free_its_own_timer),
        cmocka_unit_test(nothing_wakes_the_thread_while_no_deadline_comes),
        cmocka_unit_test(starting_and_stopping_from_several_threads_is_safe),
    };
    return cmocka_run_group_tests(tests, create_timers, destroy_timers);
}
