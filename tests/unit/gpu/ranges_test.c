#include "tests/support/leak_check.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/ranges.h"

static void the_first_gap_that_fits_is_taken(void **state)
{
    (void)state;
    struct gpu_ranges ranges = {.size_bytes = 100};
    uint64_t a, b, c, d;
    assert_true(gpu_ranges_take(&ranges, 30, &a));
    assert_true(gpu_ranges_take(&ranges, 30, &b));
    assert_true(gpu_ranges_take(&ranges, 30, &c));
    assert_int_equal(a, 0);
    assert_int_equal(b, 30);
    assert_int_equal(c, 60);
    assert_false(gpu_ranges_take(&ranges, 11, &d));
    gpu_ranges_give(&ranges, b);
    assert_true(gpu_ranges_take(&ranges, 10, &d));
    assert_int_equal(d, 30);
    assert_true(gpu_ranges_take(&ranges, 20, &b));
    assert_int_equal(b, 40);
    assert_int_equal(ranges.used_bytes, 90);
    gpu_ranges_done(&ranges);
}

static void what_exceeds_all_of_it_is_refused(void **state)
{
    (void)state;
    struct gpu_ranges ranges = {.size_bytes = 100};
    uint64_t at;
    assert_false(gpu_ranges_take(&ranges, 101, &at));
    assert_false(gpu_ranges_take(&ranges, UINT64_MAX, &at));
    assert_true(gpu_ranges_take(&ranges, 100, &at));
    assert_false(gpu_ranges_take(&ranges, 1, &at));
    gpu_ranges_done(&ranges);
}

static void taking_and_giving_at_random_never_overlaps_and_ends_empty(void **state)
{
    (void)state;
    static unsigned char owner[4096]; /* who holds each unit */
    static struct {
        uint64_t offset, bytes;
    } held[256];
    struct gpu_ranges ranges = {.size_bytes = sizeof(owner)};
    srand(1);
    for (int step = 0; step < 20000; step++) {
        size_t i = (size_t)rand() % 256;
        if (held[i].bytes) {
            for (uint64_t at = 0; at < held[i].bytes; at++) {
                assert_int_equal(owner[held[i].offset + at], 1);
                owner[held[i].offset + at] = 0;
            }
            gpu_ranges_give(&ranges, held[i].offset);
            held[i].bytes = 0;
        } else if (gpu_ranges_take(&ranges, 1 + (uint64_t)rand() % 64, &held[i].offset)) {
            held[i].bytes = 1;
            for (size_t k = 0; k < ranges.count; k++) {
                held[i].bytes = ranges.items[k].offset == held[i].offset ? ranges.items[k].bytes
                                                                         : held[i].bytes;
            }
            for (uint64_t at = 0; at < held[i].bytes; at++) {
                assert_int_equal(owner[held[i].offset + at], 0);
                owner[held[i].offset + at] = 1;
            }
        }
    }
    for (size_t i = 0; i < 256; i++) {
        if (held[i].bytes) {
            gpu_ranges_give(&ranges, held[i].offset);
        }
    }
    assert_int_equal(ranges.used_bytes, 0);
    assert_int_equal(ranges.count, 0);
    gpu_ranges_done(&ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_gap_that_fits_is_taken),
        cmocka_unit_test(what_exceeds_all_of_it_is_refused),
        cmocka_unit_test(taking_and_giving_at_random_never_overlaps_and_ends_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
