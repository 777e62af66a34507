#include "tests/support/leak_check.h"

#include <string.h>

#include "api/resources/page_token.h"

static const char scope[] = "tensors\0g\0-1\0env\0prod";

static void a_token_gives_back_the_id_it_was_made_of(void **state)
{
    (void)state;
    for (size_t length = 1; length <= ST_ID_MAX; length++) {
        char id[ST_ID_MAX + 1] = "", token[API_PAGE_TOKEN_BYTES], last[ST_ID_MAX + 1];
        memset(id, 'a' + (int)(length % 26), length);
        assert_true(api_page_token_make(scope, sizeof(scope), id, token));
        assert_int_equal(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789-_"),
                         strlen(token));
        assert_true(api_page_token_read(scope, sizeof(scope), token, last));
        assert_string_equal(last, id);
    }
}

static void a_token_is_good_for_its_own_list_only(void **state)
{
    (void)state;
    static const char other[] = "tensors\0g\0-1\0env\0test";
    char token[API_PAGE_TOKEN_BYTES], last[ST_ID_MAX + 1];
    assert_true(api_page_token_make(scope, sizeof(scope), "layer.0", token));
    assert_false(api_page_token_read(other, sizeof(other), token, last));
    assert_false(api_page_token_read(scope, sizeof(scope) - 2, token, last));
    assert_true(api_page_token_read(scope, sizeof(scope), token, last));
}

static void a_changed_token_is_refused(void **state)
{
    (void)state;
    char token[API_PAGE_TOKEN_BYTES], last[ST_ID_MAX + 1] = "untouched";
    assert_true(api_page_token_make(scope, sizeof(scope), "layer.0", token));
    for (size_t i = 0; token[i]; i++) {
        static const char replacements[] = "AB_-9=+ \xff";
        for (size_t k = 0; replacements[k]; k++) {
            char changed[API_PAGE_TOKEN_BYTES];
            strcpy(changed, token);
            if (changed[i] == replacements[k]) {
                continue;
            }
            changed[i] = replacements[k];
            assert_false(api_page_token_read(scope, sizeof(scope), changed, last));
        }
    }
    assert_string_equal(last, "untouched");
}

static void what_is_no_token_is_refused(void **state)
{
    (void)state;
    char token[API_PAGE_TOKEN_BYTES + 8], last[ST_ID_MAX + 1];
    static const char *const texts[] = {"", "A", "AAAA", "AAAAAAAAAAAAAAAAAAAAAA", "=", "%00"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_false(api_page_token_read(scope, sizeof(scope), texts[i], last));
    }
    assert_true(api_page_token_make(scope, sizeof(scope), "layer.0", token));
    strcat(token, "AAAA");
    assert_false(api_page_token_read(scope, sizeof(scope), token, last));
    char endless[2048];
    memset(endless, 'A', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_false(api_page_token_read(scope, sizeof(scope), endless, last));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_gives_back_the_id_it_was_made_of),
        cmocka_unit_test(a_token_is_good_for_its_own_list_only),
        cmocka_unit_test(a_changed_token_is_refused),
        cmocka_unit_test(what_is_no_token_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
