#include "tests/support/leak_check.h"

#include <signal.h>
#include <string.h>

#include "base/thread.h"

struct seen {
    sigset_t mask;
};

static void *note_mask(void *arg)
{
    struct seen *seen = arg;
    pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
    return NULL;
}

static void a_thread_runs_with_signals_blocked_and_the_caller_keeps_its_mask(void **state)
{
    (void)state;
    struct seen seen;
    pthread_t thread;
    assert_int_equal(st_thread_start("test", note_mask, &seen, &thread, NULL), ST_OK);
    pthread_join(thread, NULL);
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE};
    sigset_t own;
    pthread_sigmask(SIG_SETMASK, NULL, &own);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        assert_int_equal(sigismember(&seen.mask, signals[i]), 1);
        assert_int_equal(sigismember(&own, signals[i]), 0);
    }
}

static void *wait_for_lock(void *arg)
{
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
    return NULL;
}

static void a_long_name_is_cut_to_fifteen_bytes(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    pthread_t thread;
    assert_int_equal(
        st_thread_start("a-name-that-is-too-long", wait_for_lock, &lock, &thread, NULL), ST_OK);
    char name[32];
    assert_int_equal(pthread_getname_np(thread, name, sizeof(name)), 0);
    assert_string_equal(name, "a-name-that-is-");
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_runs_with_signals_blocked_and_the_caller_keeps_its_mask),
        cmocka_unit_test(a_long_name_is_cut_to_fifteen_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
