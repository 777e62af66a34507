#include "tests/support/leak_check.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define CAPTURE_BYTES 65536

/** Standard error, diverted into a pipe while a test writes. */
struct capture {
    int saved;
    int reader;
    char text[CAPTURE_BYTES];
};

static void capture_begin(struct capture *capture)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    capture->reader = ends[0];
    capture->saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
}

static void capture_end(struct capture *capture)
{
    dup2(capture->saved, STDERR_FILENO);
    close(capture->saved);
    size_t length = 0;
    ssize_t got;
    while ((got = read(capture->reader, capture->text + length, CAPTURE_BYTES - 1 - length)) > 0) {
        length += (size_t)got;
    }
    capture->text[length] = '\0';
    close(capture->reader);
}

/** Parse the one line that was captured. */
static json_t *capture_line(struct capture *capture)
{
    capture_end(capture);
    size_t length = strlen(capture->text);
    assert_true(length > 0 && capture->text[length - 1] == '\n');
    assert_ptr_equal(strchr(capture->text, '\n'), capture->text + length - 1);
    json_error_t error;
    json_t *line = json_loads(capture->text, JSON_REJECT_DUPLICATES, &error);
    if (!line) {
        fail_msg("no JSON: %s in %s", error.text, capture->text);
    }
    return line;
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "(absent)";
}

static void a_line_is_one_json_object(void **state)
{
    (void)state;
    struct capture capture;
    capture_begin(&capture);
    st_log(ST_LOG_INFO, "listening", ST_LOG_TEXT("address", "127.0.0.1"), ST_LOG_INT("port", 7412),
           ST_LOG_INT("lowest", INT64_MIN), ST_LOG_TEXT("none", NULL));
    json_t *line = capture_line(&capture);
    assert_int_equal(json_object_size(line), 7);
    assert_int_equal(strlen(text_of(line, "time")), 27);
    assert_string_equal(text_of(line, "level"), "info");
    assert_string_equal(text_of(line, "message"), "listening");
    assert_string_equal(text_of(line, "address"), "127.0.0.1");
    assert_string_equal(text_of(line, "none"), "");
    assert_true(json_integer_value(json_object_get(line, "port")) == 7412);
    assert_true(json_integer_value(json_object_get(line, "lowest")) == INT64_MIN);
    json_decref(line);
}

static void text_is_escaped_and_bad_utf8_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *text, *read;
    } cases[] = {
        {"quote \" backslash \\ newline \n tab \t", "quote \" backslash \\ newline \n tab \t"},
        {"\x01\x1f\x7f", "\x01\x1f\x7f"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff", "\xef\xbf\xbd"},
        {"\xc3", "\xef\xbf\xbd"},
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct capture capture;
        capture_begin(&capture);
        st_log(ST_LOG_ERROR, cases[i].text, ST_LOG_TEXT("text", cases[i].text));
        json_t *line = capture_line(&capture);
        assert_string_equal(text_of(line, "message"), cases[i].read);
        assert_string_equal(text_of(line, "text"), cases[i].read);
        json_decref(line);
    }
}

static void a_line_that_is_too_long_is_cut_and_still_json(void **state)
{
    (void)state;
    static char text[5000];
    /* Every length around the limit, so that the cut falls on each piece of the line once. */
    for (size_t length = 3900; length < 4100; length++) {
        for (int quoted = 0; quoted < 2; quoted++) {
            memset(text, quoted ? '"' : 'x', length);
            text[length] = '\0';
            struct capture capture;
            capture_begin(&capture);
            st_log(ST_LOG_INFO, text + (quoted ? length / 2 : 0), ST_LOG_TEXT("next", "short"),
                   ST_LOG_INT("number", 123456), ST_LOG_TEXT("long", text));
            json_t *line = capture_line(&capture);
            assert_true(strlen(capture.text) <= 4096);
            json_decref(line);
        }
    }
}

static void levels_below_the_set_one_are_silent(void **state)
{
    (void)state;
    for (unsigned set = 0; set < ST_LOG_LEVEL_COUNT; set++) {
        st_log_set_level((enum st_log_level)set);
        assert_int_equal(st_log_level(), set);
        for (unsigned level = 0; level < ST_LOG_LEVEL_COUNT; level++) {
            struct capture capture;
            capture_begin(&capture);
            st_log((enum st_log_level)level, "m");
            capture_end(&capture);
            assert_int_equal(capture.text[0] != '\0', level >= set);
        }
    }
    st_log_set_level(ST_LOG_INFO);
}

static void level_names_parse_back(void **state)
{
    (void)state;
    enum st_log_level parsed;
    for (unsigned level = 0; level < ST_LOG_LEVEL_COUNT; level++) {
        assert_true(st_log_level_parse(st_log_level_name((enum st_log_level)level), &parsed));
        assert_int_equal(parsed, level);
    }
    assert_false(st_log_level_parse("", &parsed));
    assert_false(st_log_level_parse("INFO", &parsed));
}

static void an_error_is_logged_with_all_it_says(void **state)
{
    (void)state;
    struct st_error err;
    st_fail(&err, ST_REASON_INVALID_VALUE, "shape[1]", "is negative");
    st_error_add_detail(&err, "limit", "%d", 8);
    struct capture capture;
    capture_begin(&capture);
    st_log_error(ST_LOG_WARNING, "create failed", &err);
    json_t *line = capture_line(&capture);
    assert_string_equal(text_of(line, "message"), "create failed");
    assert_string_equal(text_of(line, "status"), "INVALID_ARGUMENT");
    assert_string_equal(text_of(line, "reason"), "INVALID_VALUE");
    assert_string_equal(text_of(line, "error"), "shape[1]: is negative");
    assert_string_equal(text_of(line, "field"), "shape[1]");
    assert_string_equal(text_of(line, "limit"), "8");
    json_decref(line);
}

static void logging_keeps_errno(void **state)
{
    (void)state;
    struct capture capture;
    capture_begin(&capture);
    close(STDERR_FILENO);
    errno = ENOSPC;
    st_log(ST_LOG_INFO, "into nothing");
    assert_int_equal(errno, ENOSPC);
    capture_end(&capture);
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < 50; i++) {
        st_log(ST_LOG_INFO, "from a thread", ST_LOG_INT("thread", *(int *)arg));
    }
    return NULL;
}

static void lines_of_several_threads_never_mix(void **state)
{
    (void)state;
    struct capture capture;
    capture_begin(&capture);
    pthread_t threads[4];
    int numbers[4];
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &numbers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    capture_end(&capture);
    int lines = 0;
    char *rest = capture.text;
    for (char *line = strsep(&rest, "\n"); rest; line = strsep(&rest, "\n")) {
        json_t *parsed = json_loads(line, 0, NULL);
        assert_non_null(parsed);
        json_decref(parsed);
        lines++;
    }
    assert_int_equal(lines, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_one_json_object),
        cmocka_unit_test(text_is_escaped_and_bad_utf8_replaced),
        cmocka_unit_test(a_line_that_is_too_long_is_cut_and_still_json),
        cmocka_unit_test(levels_below_the_set_one_are_silent),
        cmocka_unit_test(level_names_parse_back),
        cmocka_unit_test(an_error_is_logged_with_all_it_says),
        cmocka_unit_test(logging_keeps_errno),
        cmocka_unit_test(lines_of_several_threads_never_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
