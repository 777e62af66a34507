#include "tests/support/leak_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/index.h"

#define KEYS 1000

static char keys[KEYS][16];

static int fill_keys(void **state)
{
    (void)state;
    for (int i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%04d", i);
    }
    return 0;
}

/** Insert every key, in an order that is neither ascending nor descending. */
static void fill_index(struct st_index *index)
{
    for (int i = 0; i < KEYS; i++) {
        int k = i * 379 % KEYS; /* 379 and 1000 have no common divisor */
        bool exists = true;
        assert_true(st_index_insert(index, keys[k], keys[k], &exists));
        assert_false(exists);
    }
}

static void entries_stay_sorted_and_are_found(void **state)
{
    (void)state;
    struct st_index index = {0};
    fill_index(&index);
    assert_int_equal(index.count, KEYS);
    for (int i = 0; i < KEYS; i++) {
        assert_string_equal(index.entries[i].key, keys[i]);
        assert_ptr_equal(st_index_find(&index, keys[i]), keys[i]);
    }
    assert_null(st_index_find(&index, "k"));
    assert_null(st_index_find(&index, "z"));
    st_index_done(&index);
}

static void a_taken_key_is_not_inserted_again(void **state)
{
    (void)state;
    struct st_index index = {0};
    bool exists = false;
    assert_true(st_index_insert(&index, "a", keys[0], &exists));
    assert_false(st_index_insert(&index, "a", keys[1], &exists));
    assert_true(exists);
    assert_int_equal(index.count, 1);
    assert_ptr_equal(st_index_find(&index, "a"), keys[0]);
    st_index_done(&index);
}

static void removal_returns_the_value_once(void **state)
{
    (void)state;
    struct st_index index = {0};
    fill_index(&index);
    for (int i = 0; i < KEYS; i += 2) {
        assert_ptr_equal(st_index_remove(&index, keys[i]), keys[i]);
        assert_null(st_index_remove(&index, keys[i]));
    }
    assert_int_equal(index.count, KEYS / 2);
    for (int i = 0; i < KEYS; i++) {
        assert_ptr_equal(st_index_find(&index, keys[i]), i % 2 ? keys[i] : NULL);
    }
    st_index_done(&index);
}

static void a_page_starts_behind_any_key(void **state)
{
    (void)state;
    struct st_index index = {0};
    fill_index(&index);
    static const struct {
        const char *key;
        size_t position;
    } cases[] = {{NULL, 0},      {"", 0},         {"a", 0},        {"k0000", 1},
                 {"k0500", 501}, {"k05001", 501}, {"k0999", KEYS}, {"z", KEYS}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(st_index_after(&index, cases[i].key), cases[i].position);
    }
    st_index_done(&index);
    assert_int_equal(index.count, 0);
    assert_int_equal(st_index_after(&index, "a"), 0);
    assert_null(st_index_find(&index, "a"));
    assert_null(st_index_remove(&index, "a"));
}

/** Take out the keys whose number leaves @p rest when divided by @p divisor, and look at the
 * others. */
static void check_removal_of_many(int divisor, int rest)
{
    struct st_index index = {0};
    const char *gone[KEYS];
    size_t count = 0;
    fill_index(&index);
    for (int i = 0; i < KEYS; i++) {
        int k = i * 379 % KEYS;
        if (k % divisor == rest) {
            gone[count++] = keys[k];
        }
    }
    assert_int_equal(st_index_remove_many(&index, gone, count), count);
    assert_int_equal(index.count, KEYS - count);
    for (size_t i = 1; i < index.count; i++) {
        assert_true(strcmp(index.entries[i - 1].key, index.entries[i].key) < 0);
    }
    for (int i = 0; i < KEYS; i++) {
        assert_ptr_equal(st_index_find(&index, keys[i]), i % divisor == rest ? NULL : keys[i]);
    }
    st_index_done(&index);
}

static void many_are_removed_and_the_others_stay(void **state)
{
    (void)state;
    static const struct {
        int divisor, rest;
    } cases[] = {{1, 0}, {2, 0}, {2, 1}, {7, 3}, {KEYS, 0}, {KEYS, KEYS - 1}, {KEYS, KEYS}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_removal_of_many(cases[i].divisor, cases[i].rest);
    }
}

static void removing_what_is_not_there_takes_nothing_else(void **state)
{
    (void)state;
    struct st_index index = {0};
    static const char *const absent[] = {"a", "k00005", "k0999x", "z"};
    static const char *const twice[] = {"k0007", "k0003", "z", "k0007", "k0003"};
    assert_int_equal(st_index_remove_many(&index, absent, 4), 0);
    fill_index(&index);
    assert_int_equal(st_index_remove_many(&index, absent, 4), 0);
    assert_int_equal(index.count, KEYS);
    assert_int_equal(st_index_remove_many(&index, twice, 5), 2);
    assert_int_equal(index.count, KEYS - 2);
    for (int i = 0; i < KEYS; i++) {
        assert_ptr_equal(st_index_find(&index, keys[i]), i == 3 || i == 7 ? NULL : keys[i]);
    }
    st_index_done(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_stay_sorted_and_are_found),
        cmocka_unit_test(a_taken_key_is_not_inserted_again),
        cmocka_unit_test(removal_returns_the_value_once),
        cmocka_unit_test(a_page_starts_behind_any_key),
        cmocka_unit_test(many_are_removed_and_the_others_stay),
        cmocka_unit_test(removing_what_is_not_there_takes_nothing_else),
    };
    return cmocka_run_group_tests(tests, fill_keys, NULL);
}
