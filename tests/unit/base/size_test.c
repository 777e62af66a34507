#include "tests/support/leak_check.h"

#include <stdint.h>

#include "base/size.h"

static void sizes_have_binary_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool valid;
        uint64_t bytes;
    } cases[] = {
        {"0", true, 0},
        {"4096", true, 4096},
        {"64KiB", true, 65536},
        {"2MiB", true, 2 * ST_MIB},
        {"1GiB", true, ST_GIB},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"17179869183GiB", true, 17179869183ull * ST_GIB},
        {"17179869184GiB", false, 0},
        {"", false, 0},
        {"KiB", false, 0},
        {"-1", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1 KiB", false, 0},
        {"1kib", false, 0},
        {"1KB", false, 0},
        {"1K", false, 0},
        {"0x10", false, 0},
        {"1.5GiB", false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 77;
        bool valid = st_size_parse(cases[i].text, &bytes);
        if (valid != cases[i].valid || bytes != (valid ? cases[i].bytes : 77)) {
            fail_msg("\"%s\"", cases[i].text);
        }
    }
}

static void rounding_up_stops_at_overflow(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, unit;
        bool valid;
        uint64_t rounded;
    } cases[] = {
        {0, 4096, true, 0},
        {1, 4096, true, 4096},
        {4096, 4096, true, 4096},
        {4097, 4096, true, 8192},
        {10, 3, true, 12},
        {UINT64_MAX, 1, true, UINT64_MAX},
        {UINT64_MAX - 4095, 4096, true, UINT64_MAX - 4095},
        {UINT64_MAX - 4094, 4096, false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t rounded = 0;
        assert_int_equal(st_size_round_up(cases[i].bytes, cases[i].unit, &rounded), cases[i].valid);
        assert_true(rounded == cases[i].rounded);
    }
}

static void numbers_are_digits_within_their_limit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t max;
        bool valid;
        uint64_t value;
    } cases[] = {
        {"0", 0, true, 0},
        {"65535", 65535, true, 65535},
        {"65536", 65535, false, 0},
        {"", 9, false, 0},
        {"-0", 9, false, 0},
        {"+1", 9, false, 0},
        {"1 ", 9, false, 0},
        {"1e3", 9999, false, 0},
        {"0x1", 9, false, 0},
        {"18446744073709551615", UINT64_MAX, true, UINT64_MAX},
        {"18446744073709551616", UINT64_MAX, false, 0},
        {"99999999999999999999", UINT64_MAX, false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 0;
        assert_int_equal(st_uint_parse(cases[i].text, cases[i].max, &value), cases[i].valid);
        assert_true(value == cases[i].value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_binary_units),
        cmocka_unit_test(rounding_up_stops_at_overflow),
        cmocka_unit_test(numbers_are_digits_within_their_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
