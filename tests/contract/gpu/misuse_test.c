#include "tests/contract/gpu/misuse.h"

#include <string.h>

#include "tests/unit/gpu/software_fixture.h"

/* The table of misuse over the software driver. */

static void every_row_answers_as_the_table_says_and_leaves_nothing(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    struct fixture fixture;
    fixture_open(&fixture, &options);
    const struct misuse_driver driver = {.driver = fixture.driver,
                                         .image = "image",
                                         .function = "test_touch",
                                         .multicast = true,
                                         .software = true};
    struct gpu_software_usage before;
    gpu_software_usage(&before);
    unsigned fds = test_open_fds();
    unsigned wrong = 0;
    for (size_t i = 0; i < misuse_row_count; i++) {
        const struct misuse_row *row = &misuse_rows[i];
        CUresult result;
        struct gpu_software_usage after;
        assert_true(misuse_run(&driver, row, &result));
        gpu_software_usage(&after);
        if (result != row->expected) {
            print_error("%s: %s instead of %s\n", row->name, gpu_driver_result_name(result),
                        gpu_driver_result_name(row->expected));
            wrong++;
        }
        if (memcmp(&before, &after, sizeof(before)) || test_open_fds() != fds) {
            print_error("%s: left something behind\n", row->name);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
    fixture_close(&fixture);
}

static void rows_that_a_driver_cannot_run_are_left_out(void **state)
{
    (void)state;
    const struct misuse_driver driver = {0};
    for (size_t i = 0; i < misuse_row_count; i++) {
        CUresult result;
        if (misuse_rows[i].needs) {
            assert_false(misuse_run(&driver, &misuse_rows[i], &result));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_answers_as_the_table_says_and_leaves_nothing),
        cmocka_unit_test(rows_that_a_driver_cannot_run_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
