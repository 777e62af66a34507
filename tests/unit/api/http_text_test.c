#include "tests/support/leak_check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http/error_body.h"
#include "api/http/json_scan.h"
#include "api/http/timeout.h"
#include "api/text.h"
#include "base/clock.h"

/* ---------------------------------------------------------------- writing JSON */

static void json_is_written_with_commas_where_they_belong(void **state)
{
    (void)state;
    struct api_text text = {0};
    api_json_begin(&text, NULL);
    api_json_string(&text, "a", "b\"\\\n\x01\xff\xc3\xa9\x7f");
    api_json_uint(&text, "u", UINT64_MAX);
    api_json_int(&text, "i", INT64_MIN);
    api_json_begin_array(&text, "list");
    api_json_bool(&text, NULL, true);
    api_json_null(&text, NULL);
    api_json_begin(&text, NULL);
    api_json_end(&text);
    api_json_raw(&text, NULL, "{\"r\":1}");
    api_json_end_array(&text);
    api_json_string(&text, "none", NULL);
    api_json_time(&text, "never", 0);
    api_json_time(&text, "then", 1000);
    api_json_end(&text);
    size_t length;
    char *json = api_text_take(&text, &length);
    assert_string_equal(json, "{\"a\":\"b\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9\\u007f\","
                              "\"u\":18446744073709551615,\"i\":-9223372036854775808,"
                              "\"list\":[true,null,{},{\"r\":1}],\"none\":null,\"never\":null,"
                              "\"then\":\"1970-01-01T00:00:00.000001Z\"}");
    assert_int_equal(length, strlen(json));
    free(json);
}

static void doubles_read_back_as_they_were(void **state)
{
    (void)state;
    static const double values[] = {0, 0.1, 1e300, -5e-324, 123456789.25, 1.0 / 3, DBL_MAX};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct api_text text = {0};
        api_json_double(&text, NULL, values[i]);
        assert_true(strtod(text.data, NULL) == values[i]);
        api_text_done(&text);
    }
    static const struct {
        double value;
        const char *text;
    } specials[] = {{NAN, "\"NaN\""}, {INFINITY, "\"Infinity\""}, {-INFINITY, "\"-Infinity\""}};
    for (size_t i = 0; i < 3; i++) {
        struct api_text text = {0};
        api_json_double(&text, NULL, specials[i].value);
        assert_string_equal(text.data, specials[i].text);
        api_text_done(&text);
    }
}

/* ---------------------------------------------------------------- errors */

static void an_error_becomes_one_body(void **state)
{
    (void)state;
    struct st_error err = {0};
    (void)st_fail(&err, ST_REASON_ID_TAKEN, "id", "the id \"%s\" is taken", "x");
    st_error_add_detail(&err, "uid", "%s", "u-1");
    struct api_text text = {0};
    http_error_write(&text, NULL, &err);
    assert_string_equal(text.data,
                        "{\"code\":409,\"status\":\"ALREADY_EXISTS\",\"message\":\"id: the id "
                        "\\\"x\\\" is taken\",\"retryable\":false,\"details\":[{\"reason\":"
                        "\"ID_TAKEN\",\"field\":\"id\",\"uid\":\"u-1\"}]}");
    api_text_done(&text);
}

static void http_codes_follow_from_reason_and_status(void **state)
{
    (void)state;
    static const struct {
        enum st_reason reason;
        unsigned code;
        bool retryable;
        uint32_t retry_after_ms;
    } rows[] = {
        {ST_REASON_INVALID_VALUE, 400, false, 0},
        {ST_REASON_LENGTH_REQUIRED, 411, false, 0},
        {ST_REASON_UNSUPPORTED_MEDIA_TYPE, 415, false, 0},
        {ST_REASON_BODY_TOO_LARGE, 413, false, 0},
        {ST_REASON_RANGE_NOT_SATISFIABLE, 416, false, 0},
        {ST_REASON_METHOD_NOT_ALLOWED, 405, false, 0},
        {ST_REASON_NOT_AVAILABLE_YET, 501, false, 0},
        {ST_REASON_TOO_MANY_OPERATIONS, 429, true, 1000},
        {ST_REASON_GPU_MEMORY_EXHAUSTED, 429, true, 1000},
        {ST_REASON_EXCEEDS_DEVICE_CAPACITY, 400, false, 0},
        {ST_REASON_NODE_DRAINING, 503, true, 1000},
        {ST_REASON_TENSOR_BUSY, 409, true, 0},
        {ST_REASON_FOREIGN_HOST, 403, false, 0},
        {ST_REASON_OPERATION_DEADLINE, 504, false, 0},
        {ST_REASON_OPERATION_CANCELLED, 499, false, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct st_error err = {0};
        (void)st_fail(&err, rows[i].reason, NULL, "x");
        assert_int_equal(http_error_code(&err), rows[i].code);
        assert_int_equal(http_error_retryable(&err), rows[i].retryable);
        assert_int_equal(http_error_retry_after_ms(&err), rows[i].retry_after_ms);
        err.http_code = 412;
        assert_int_equal(http_error_code(&err), 412);
    }
}

/* ---------------------------------------------------------------- grpc-timeout */

static void timeouts_are_parsed_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"1S", 1000000000},
                {"0n", 0},
                {"250m", 250000000},
                {"99999999u", 99999999000},
                {"1H", 3600000000000},
                {"2M", 120000000000},
                {"99999999H", ST_DEADLINE_NEVER}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint64_t ns;
        assert_true(http_timeout_parse(good[i].text, &ns));
        assert_true(ns == good[i].ns);
    }
    static const char *const bad[] = {"",     "S",   "1",    "1s",  "1 S",        "-1S", "+1S",
                                      "1.5S", "1SS", "0x1S", "1S ", "100000000S", "mS"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t ns;
        assert_false(http_timeout_parse(bad[i], &ns));
    }
}

/* ---------------------------------------------------------------- JSON bodies */

static void expect_refused(const char *text, size_t length, const char *field, const char *message)
{
    json_t *object = NULL;
    struct st_error err = {0};
    assert_int_equal(http_json_parse(text, length, &object, &err), ST_INVALID_ARGUMENT);
    if (err.reason != ST_REASON_INVALID_JSON || strcmp(err.field, field) != 0 ||
        !strstr(err.message, message)) {
        fail_msg("%.40s gives field \"%s\": %s", text, err.field, err.message);
    }
}

static void bodies_that_are_no_object_are_refused_with_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field, *message;
    } rows[] = {
        {"[]", "", "one JSON object"},
        {"5", "", "'['"},
        {"{\"a\":1}x", "", "end of file expected"},
        {"{\"a\":1,\"a\":2}", "a", "duplicate"},
        {"{\"a\":{\"b\":[0,1,9223372036854775808]}}", "a.b[2]", "too big integer"},
        {"{\"shape\":[1,NaN]}", "shape[1]", "invalid token"},
        {"{\"a\":01}", "a", "invalid token"},
        {"{\"a\":1e400}", "a", "overflow"},
        {"{'a':1}", "", "line 1"},
        {"{\"a\":\"\\u0000\"}", "a", "\\u0000"},
        {"{\"a\":\"\xff\"}", "a", "unable to decode byte"},
        {"\xef\xbb\xbf{}", "", "line 1"},
        {"{\"a\":1", "a", "line 1"},
        {"{\"a\":1,}", "", "line 1"},
        {"{} {}", "", "end of file expected"},
        {" ", "", "line 1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        expect_refused(rows[i].text, strlen(rows[i].text), rows[i].field, rows[i].message);
    }
    expect_refused("{\"a\":1}\0", 8, "", "NUL");
    expect_refused("{\"a\":\"b\0c\"}", 11, "", "NUL");
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    char text[256];
    for (int depth = ST_HTTP_JSON_DEPTH_MAX; depth <= ST_HTTP_JSON_DEPTH_MAX + 1; depth++) {
        size_t length = (size_t)snprintf(text, sizeof(text), "{\"a\":");
        for (int i = 1; i < depth; i++) {
            text[length++] = '[';
        }
        for (int i = 1; i < depth; i++) {
            text[length++] = ']';
        }
        text[length++] = '}';
        text[length] = '\0';
        json_t *object = NULL;
        struct st_error err = {0};
        enum st_status status = http_json_parse(text, length, &object, &err);
        assert_int_equal(status, depth <= ST_HTTP_JSON_DEPTH_MAX ? ST_OK : ST_INVALID_ARGUMENT);
        json_decref(object);
    }
    /* Brackets inside of strings do not count. */
    json_t *object = NULL;
    const char *strings = "{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[\"}";
    assert_int_equal(http_json_parse(strings, strlen(strings), &object, NULL), ST_OK);
    json_decref(object);
}

static void zero_keeps_its_sign(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"{\"a\":-0}", "{\"a\":-0.0}"},
        {"{\"a\":[-0,0,-0 ,\n-0]}", "{\"a\":[-0.0,0,-0.0,-0.0]}"},
        {"{\"a\":-0.0,\"b\":-0.5,\"c\":-0e1}", "{\"a\":-0.0,\"b\":-0.5,\"c\":-0.0}"},
        {"{\"-0\":\"-0,\\\"-0\",\"a\":-0}", "{\"-0\":\"-0,\\\"-0\",\"a\":-0.0}"},
        {"{\"a\":1e-0,\"b\":-10}", "{\"a\":1.0,\"b\":-10}"},
        {"{\"a\":-01}", NULL},
        {"{\"a\":-0", NULL},
        {"{-0}", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *object = NULL;
        struct st_error err = {0};
        enum st_status status = http_json_parse(rows[i].text, strlen(rows[i].text), &object, &err);
        char *shown = status == ST_OK ? json_dumps(object, JSON_COMPACT) : NULL;
        if ((shown == NULL) != (rows[i].shown == NULL) ||
            (shown && strcmp(shown, rows[i].shown) != 0)) {
            fail_msg("%s is %s", rows[i].text, shown ? shown : "refused");
        }
        free(shown);
        json_decref(object);
    }
}

static void no_body_is_an_empty_object(void **state)
{
    (void)state;
    json_t *object = NULL;
    assert_int_equal(http_json_parse(NULL, 0, &object, NULL), ST_OK);
    assert_int_equal(json_object_size(object), 0);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_keeps_its_sign),
        cmocka_unit_test(json_is_written_with_commas_where_they_belong),
        cmocka_unit_test(doubles_read_back_as_they_were),
        cmocka_unit_test(an_error_becomes_one_body),
        cmocka_unit_test(http_codes_follow_from_reason_and_status),
        cmocka_unit_test(timeouts_are_parsed_strictly),
        cmocka_unit_test(bodies_that_are_no_object_are_refused_with_the_place),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(no_body_is_an_empty_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
