#include "tests/support/leak_check.h"

#include <string.h>

#include "api/data/accept.h"
#include "api/data/digest.h"

static void accept_chooses_the_best_type_of_the_list(void **state)
{
    (void)state;
    static const char *const types[] = {"application/octet-stream", "application/x-npy",
                                        "application/json", NULL};
    static const struct {
        const char *header;
        int choice;
    } rows[] = {
        {NULL, 0},
        {"", 0},
        {"*/*", 0},
        {"application/*", 0},
        {"application/x-npy", 1},
        {"APPLICATION/X-NPY", 1},
        {"application/json", 2},
        {"application/json; charset=utf-8", 2},
        {"application/json, application/x-npy", 1},
        {"application/json;q=0.9, application/x-npy;q=0.8", 2},
        {"application/json;q=1.000,*/*;q=0.001", 2},
        {"*/*;q=0.1,application/octet-stream;q=0", 1},
        {"application/*;q=0, application/json", 2},
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", 0},
        {" application/json , text/plain", 2},
        {"application/json;Q=0.5,application/x-npy;q=0.25", 2},
        {"text/plain", -1},
        {"application/json;q=0", -1},
        {"*/*;q=0.000", -1},
        {"image/*", -1},
        {",,;,", -1},
        {"application", -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int choice = data_accept_choose(rows[i].header, types);
        if (choice != rows[i].choice) {
            fail_msg("%s: %d", rows[i].header, choice);
        }
    }
}

/* Of "hello\n", by coreutils' sha256sum and sha512sum. */
#define HELLO_256 "WJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM="
#define HELLO_512                                                                                  \
    "58IrmUxZ2c8rSOVJseJGZmNgRZMNPafBrLKZ0cO3+TH5Sq5B7dosKyB6NuEPi8uNRSI+VIePWzFufOO2vAGWKQ=="

static const struct {
    const char *header;
    enum st_reason begin, verify; /**< NONE: accepted. */
} digests[] = {
    {NULL, ST_REASON_NONE, ST_REASON_NONE},
    {"sha-256=:" HELLO_256 ":", ST_REASON_NONE, ST_REASON_NONE},
    {"unixsum=:AAA=:, sha-256=:" HELLO_256 ":", ST_REASON_NONE, ST_REASON_NONE},
    {"sha-256=:" HELLO_256 ":,sha-512=:AA==:", ST_REASON_NONE, ST_REASON_NONE},
    {"sha-512=:" HELLO_512 ":", ST_REASON_NONE, ST_REASON_NONE},
    {"sha-256=:LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=:", ST_REASON_NONE,
     ST_REASON_DIGEST_MISMATCH},
    {"sha-256=:AAAA:", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"sha-256=::", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"sha-512=:AAAA:", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"md5=:AAAA:", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"sha-256=" HELLO_256, ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"sha-256=:" HELLO_256, ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"sha-256=:" HELLO_256 ": x", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"sha-256=:" HELLO_256 ":,", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
    {"SHA-256=:" HELLO_256 ":", ST_REASON_INVALID_HEADER, ST_REASON_NONE},
};

static void a_content_digest_is_verified_over_the_body(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(digests) / sizeof(digests[0]); i++) {
        struct data_digest digest = {0};
        struct st_error error = {.reason = ST_REASON_NONE};
        enum st_status status = data_digest_expect(&digest, digests[i].header, &error);
        if (error.reason != digests[i].begin) {
            fail_msg("%s: %s", digests[i].header, error.message);
        }
        if (status == ST_OK) {
            data_digest_update(&digest, "hel", 3);
            data_digest_update(&digest, "lo\n", 3);
            if (data_digest_verify(&digest, &error) == ST_OK) {
                error.reason = ST_REASON_NONE;
            }
            assert_int_equal(error.reason, digests[i].verify);
        }
        data_digest_done(&digest);
    }
}

static void a_digest_too_long_for_any_algorithm_is_no_overrun(void **state)
{
    (void)state;
    char header[400] = "sha-256=:";
    memset(header + 9, 'A', 300);
    strcat(header, ":");
    struct data_digest digest = {0};
    struct st_error error;
    assert_int_equal(data_digest_expect(&digest, header, &error), ST_INVALID_ARGUMENT);
    data_digest_done(&digest);
}

static void a_wanted_digest_is_named_with_a_weight_or_without(void **state)
{
    (void)state;
    assert_false(data_digest_is_wanted(NULL));
    assert_false(data_digest_is_wanted("sha-512=10"));
    assert_false(data_digest_is_wanted("sha-256=0"));
    assert_false(data_digest_is_wanted("xsha-256=3"));
    assert_true(data_digest_is_wanted("sha-256=1"));
    assert_true(data_digest_is_wanted("sha-512=3, sha-256=10"));
    char text[64];
    assert_true(data_digest_format("hello\n", 6, text));
    assert_string_equal(text, "sha-256=:" HELLO_256 ":");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accept_chooses_the_best_type_of_the_list),
        cmocka_unit_test(a_content_digest_is_verified_over_the_body),
        cmocka_unit_test(a_digest_too_long_for_any_algorithm_is_no_overrun),
        cmocka_unit_test(a_wanted_digest_is_named_with_a_weight_or_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
