#include "tests/support/leak_check.h"

#include "base/clock.h"

static void the_format_is_rfc_3339_in_utc_with_microseconds(void **state)
{
    (void)state;
    static const struct {
        uint64_t realtime_ns;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000000Z"},
        {999, "1970-01-01T00:00:00.000000Z"},
        {1000, "1970-01-01T00:00:00.000001Z"},
        {951782400ull * ST_NS_PER_SECOND, "2000-02-29T00:00:00.000000Z"},
        {1796126400ull * ST_NS_PER_SECOND + 123456789, "2026-12-01T12:00:00.123456Z"},
        {UINT64_MAX, "2554-07-21T23:34:33.709551Z"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char buffer[32];
        assert_string_equal(st_clock_format(cases[i].realtime_ns, buffer), cases[i].text);
    }
}

static void the_monotonic_clock_never_goes_back(void **state)
{
    (void)state;
    uint64_t before = st_clock_now_ns();
    for (int i = 0; i < 10000; i++) {
        uint64_t now = st_clock_now_ns();
        assert_true(now >= before);
        before = now;
    }
}

static void the_realtime_clock_is_past_2024(void **state)
{
    (void)state;
    assert_true(st_clock_realtime_ns() > 1704067200ull * ST_NS_PER_SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_format_is_rfc_3339_in_utc_with_microseconds),
        cmocka_unit_test(the_monotonic_clock_never_goes_back),
        cmocka_unit_test(the_realtime_clock_is_past_2024),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
