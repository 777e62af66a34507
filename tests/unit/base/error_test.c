#include "tests/support/leak_check.h"

#include <string.h>

#include "base/error.h"

static void a_failure_carries_the_status_of_its_reason(void **state)
{
    (void)state;
    struct st_error err;
    memset(&err, 0xff, sizeof(err));
    assert_int_equal(st_fail(&err, ST_REASON_TENSOR_NOT_FOUND, NULL, "no tensor \"%s\"", "w1"),
                     ST_NOT_FOUND);
    assert_int_equal(err.status, ST_NOT_FOUND);
    assert_int_equal(err.reason, ST_REASON_TENSOR_NOT_FOUND);
    assert_int_equal(err.http_code, 0);
    assert_int_equal(err.retry_after_ms, 0);
    assert_int_equal(err.detail_count, 0);
    assert_string_equal(err.field, "");
    assert_string_equal(err.message, "no tensor \"w1\"");
}

static void the_field_stands_before_the_message(void **state)
{
    (void)state;
    struct st_error err;
    assert_int_equal(st_fail(&err, ST_REASON_INVALID_VALUE, "shape[1]", "is %d", -1),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(err.field, "shape[1]");
    assert_string_equal(err.message, "shape[1]: is -1");
}

static void another_status_can_be_given(void **state)
{
    (void)state;
    struct st_error err;
    assert_int_equal(st_fail_as(&err, ST_ABORTED, ST_REASON_DRIVER_ERROR, "f", "again"),
                     ST_ABORTED);
    assert_int_equal(err.status, ST_ABORTED);
    assert_string_equal(err.message, "f: again");
}

static void without_an_error_the_status_is_still_returned(void **state)
{
    (void)state;
    assert_int_equal(st_fail(NULL, ST_REASON_ID_TAKEN, NULL, "x"), ST_ALREADY_EXISTS);
    assert_int_equal(st_fail_as(NULL, ST_ABORTED, ST_REASON_ID_TAKEN, NULL, "x"), ST_ABORTED);
    st_error_add_detail(NULL, "k", "v");
}

static void long_fields_and_messages_are_cut(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct st_error err;
    st_fail(&err, ST_REASON_INVALID_VALUE, text, "%s", text);
    assert_int_equal(strlen(err.field), ST_ERROR_FIELD_MAX - 1);
    assert_int_equal(strlen(err.message), ST_ERROR_MESSAGE_MAX - 1);
    st_error_add_detail(&err, "k", "%s", text);
    assert_int_equal(strlen(err.details[0].value), sizeof(err.details[0].value) - 1);
}

static void details_beyond_the_limit_are_dropped(void **state)
{
    (void)state;
    struct st_error err;
    st_fail(&err, ST_REASON_INVALID_VALUE, NULL, "m");
    for (int i = 0; i < 10; i++) {
        st_error_add_detail(&err, "limit", "%d", i);
    }
    assert_int_equal(err.detail_count, ST_ERROR_DETAILS_MAX);
    assert_string_equal(err.details[ST_ERROR_DETAILS_MAX - 1].value, "3");
}

static void quoted_text_is_printable_and_short(void **state)
{
    (void)state;
    static const char x64[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    char x65[66] = "x";
    memcpy(x65 + 1, x64, sizeof(x64));
    const struct {
        const char *text, *quoted;
    } cases[] = {
        {"", ""},
        {"weights.0", "weights.0"},
        {"a\nb\x7f\xff", "a\\x0ab\\x7f\\xff"},
        {x64, x64},
    };
    char buffer[80];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(st_error_quote(cases[i].text, buffer), cases[i].quoted);
    }
    assert_int_equal(strlen(st_error_quote(x65, buffer)), 67);
    assert_string_equal(buffer + 64, "...");
    char bytes[65];
    memset(bytes, 1, 64);
    bytes[64] = '\0';
    st_error_quote(bytes, buffer);
    assert_int_equal(strlen(buffer), 79); /* 19 escapes of 4 and the mark */
    assert_string_equal(buffer + 76, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_carries_the_status_of_its_reason),
        cmocka_unit_test(the_field_stands_before_the_message),
        cmocka_unit_test(another_status_can_be_given),
        cmocka_unit_test(without_an_error_the_status_is_still_returned),
        cmocka_unit_test(long_fields_and_messages_are_cut),
        cmocka_unit_test(details_beyond_the_limit_are_dropped),
        cmocka_unit_test(quoted_text_is_printable_and_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
