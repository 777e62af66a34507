#include "tests/support/leak_check.h"

#include <string.h>

#include "base/id.h"

static void ids_follow_the_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        size_t length;
        bool valid;
    } cases[] = {
        {"a", 1, true},     {"_", 1, true},
        {"0", 1, true},     {"model.layers.0.mlp-up_proj.weight", 33, true},
        {"a--b", 4, true},  {"", 0, false},
        {".a", 2, false},   {"-a", 2, false},
        {"a.", 2, false},   {"a..b", 4, false},
        {"..", 2, false},   {"a/b", 3, false},
        {"a b", 3, false},  {"a:b", 3, false},
        {"a\0b", 3, false}, {"\xc3\xa9", 2, false},
        {"a%2e", 4, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (st_id_is_valid(cases[i].id, cases[i].length) != cases[i].valid) {
            fail_msg("\"%s\" should be %d", cases[i].id, cases[i].valid);
        }
    }
}

static void every_byte_is_either_in_the_grammar_or_refused(void **state)
{
    (void)state;
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    for (int c = 1; c < 256; c++) {
        char id[3] = {(char)c, 'a', '\0'};
        assert_int_equal(st_id_is_valid(id, 2), strchr(first, c) != NULL);
        char second[4] = {'a', (char)c, 'a', '\0'};
        assert_int_equal(st_id_is_valid(second, 3), strchr(first, c) || c == '.' || c == '-');
    }
}

static void ids_have_at_most_255_bytes(void **state)
{
    (void)state;
    char id[300];
    memset(id, 'a', sizeof(id));
    assert_true(st_id_is_valid(id, ST_ID_MAX));
    assert_false(st_id_is_valid(id, ST_ID_MAX + 1));
}

static void uids_are_random_uuids_of_version_4(void **state)
{
    (void)state;
    char last[ST_UID_BYTES] = "";
    for (int i = 0; i < 1000; i++) {
        char uid[ST_UID_BYTES];
        st_uid_make(uid);
        assert_int_equal(strlen(uid), ST_UID_BYTES - 1);
        assert_int_equal(strspn(uid, "0123456789abcdef-"), ST_UID_BYTES - 1);
        assert_true(uid[8] == '-' && uid[13] == '-' && uid[18] == '-' && uid[23] == '-');
        assert_int_equal(uid[14], '4');
        assert_non_null(strchr("89ab", uid[19]));
        assert_string_not_equal(uid, last);
        memcpy(last, uid, sizeof(last));
    }
}

static void made_ids_are_valid_and_differ(void **state)
{
    (void)state;
    char a[32];
    char b[32];
    st_id_make("op", a, sizeof(a));
    st_id_make("op", b, sizeof(b));
    assert_int_equal(strlen(a), 19);
    assert_memory_equal(a, "op-", 3);
    assert_true(st_id_is_valid(a, strlen(a)));
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_follow_the_grammar),
        cmocka_unit_test(every_byte_is_either_in_the_grammar_or_refused),
        cmocka_unit_test(ids_have_at_most_255_bytes),
        cmocka_unit_test(uids_are_random_uuids_of_version_4),
        cmocka_unit_test(made_ids_are_valid_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
