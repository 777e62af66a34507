#include "tests/support/leak_check.h"

#include "api/data/range.h"

#define EVERYTHING UINT64_MAX

static const struct {
    const char *header;
    uint64_t total;
    enum data_range range;
    uint64_t first, bytes;
} cases[] = {
    {NULL, 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=0-0", 10, DATA_RANGE_SATISFIABLE, 0, 1},
    {"bytes=0-9", 10, DATA_RANGE_SATISFIABLE, 0, 10},
    {"bytes=3-5", 10, DATA_RANGE_SATISFIABLE, 3, 3},
    {"BYTES=3-5", 10, DATA_RANGE_SATISFIABLE, 3, 3},
    {"bytes=3-", 10, DATA_RANGE_SATISFIABLE, 3, 7},
    {"bytes=9-", 10, DATA_RANGE_SATISFIABLE, 9, 1},
    {"bytes=3-1000", 10, DATA_RANGE_SATISFIABLE, 3, 7},
    {"bytes=-4", 10, DATA_RANGE_SATISFIABLE, 6, 4},
    {"bytes=-1000", 10, DATA_RANGE_SATISFIABLE, 0, 10},
    {"bytes=0-99999999999999999999999", 10, DATA_RANGE_SATISFIABLE, 0, 10},
    {"bytes=-99999999999999999999999", 10, DATA_RANGE_SATISFIABLE, 0, 10},
    {"bytes=0-18446744073709551615", EVERYTHING, DATA_RANGE_SATISFIABLE, 0, EVERYTHING},
    {"bytes=18446744073709551614-", EVERYTHING, DATA_RANGE_SATISFIABLE, EVERYTHING - 1, 1},
    /* Nothing of it exists. */
    {"bytes=10-", 10, DATA_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=10-20", 10, DATA_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-0", 10, DATA_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=0-", 0, DATA_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-5", 0, DATA_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=18446744073709551615-", EVERYTHING, DATA_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=99999999999999999999-", 10, DATA_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=184467440737095516160-184467440737095516169", 10, DATA_RANGE_UNSATISFIABLE, 0, 0},
    /* No single valid range. */
    {"bytes=0-1,3-4", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=-1,-2", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=5-3", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=-", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=5", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=a-b", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=1-2x", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=+1-2", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes= 1-2", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes=--1", 10, DATA_RANGE_IGNORED, 0, 0},
    {"items=0-1", 10, DATA_RANGE_IGNORED, 0, 0},
    {"bytes", 10, DATA_RANGE_IGNORED, 0, 0},
    {"", 10, DATA_RANGE_IGNORED, 0, 0},
};

static void a_range_header_means_what_the_rfc_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t first = 0, bytes = 0;
        enum data_range range = data_range_parse(cases[i].header, cases[i].total, &first, &bytes);
        if (range != cases[i].range || first != cases[i].first || bytes != cases[i].bytes) {
            fail_msg("case %zu \"%s\": %d %llu+%llu", i, cases[i].header, range,
                     (unsigned long long)first, (unsigned long long)bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_header_means_what_the_rfc_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
