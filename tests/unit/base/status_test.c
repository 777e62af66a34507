#include "tests/support/leak_check.h"

#include <string.h>

#include "base/status.h"

static void statuses_have_the_numbers_and_codes_of_grpc(void **state)
{
    (void)state;
    /* google/rpc/code.proto, copied by hand so that a slip in the table shows. */
    static const struct {
        const char *name;
        uint16_t http;
    } codes[17] = {
        {"OK", 200},
        {"CANCELLED", 499},
        {"UNKNOWN", 500},
        {"INVALID_ARGUMENT", 400},
        {"DEADLINE_EXCEEDED", 504},
        {"NOT_FOUND", 404},
        {"ALREADY_EXISTS", 409},
        {"PERMISSION_DENIED", 403},
        {"RESOURCE_EXHAUSTED", 429},
        {"FAILED_PRECONDITION", 400},
        {"ABORTED", 409},
        {"OUT_OF_RANGE", 400},
        {"UNIMPLEMENTED", 501},
        {"INTERNAL", 500},
        {"UNAVAILABLE", 503},
        {"DATA_LOSS", 500},
        {"UNAUTHENTICATED", 401},
    };
    for (unsigned i = 0; i < 17; i++) {
        const struct st_status_info *info = st_status_info((enum st_status)i);
        assert_string_equal(info->name, codes[i].name);
        assert_int_equal(info->http, codes[i].http);
        assert_true(strlen(info->text) > 0);
    }
}

static void only_passing_conditions_are_retryable(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 17; i++) {
        bool passing = i == ST_RESOURCE_EXHAUSTED || i == ST_ABORTED || i == ST_UNAVAILABLE;
        assert_int_equal(st_status_info((enum st_status)i)->retryable, passing);
    }
}

static void every_reason_has_a_name_a_status_and_a_text(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ST_REASON_COUNT; i++) {
        const struct st_reason_info *info = st_reason_info((enum st_reason)i);
        assert_int_equal(strspn(info->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"),
                         strlen(info->name));
        assert_int_not_equal(info->status, ST_OK);
        assert_true(strlen(info->text) > 0);
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(info->name, st_reason_info((enum st_reason)j)->name);
        }
    }
    assert_int_equal(st_reason_info(ST_REASON_TENSOR_BUSY)->status, ST_ABORTED);
}

static void values_outside_the_tables_are_unknown(void **state)
{
    (void)state;
    assert_string_equal(st_status_info((enum st_status)17)->name, "UNKNOWN");
    assert_string_equal(st_status_info((enum st_status) - 1)->name, "UNKNOWN");
    assert_string_equal(st_reason_info(ST_REASON_COUNT)->name, "NONE");
    assert_string_equal(st_reason_info((enum st_reason) - 1)->name, "NONE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_the_numbers_and_codes_of_grpc),
        cmocka_unit_test(only_passing_conditions_are_retryable),
        cmocka_unit_test(every_reason_has_a_name_a_status_and_a_text),
        cmocka_unit_test(values_outside_the_tables_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
