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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_stay_sorted_and_are_found),
        cmocka_unit_test(a_taken_key_is_not_inserted_again),
        cmocka_unit_test(removal_returns_the_value_once),
        cmocka_unit_test(a_page_starts_behind_any_key),
    };
    return cmocka_run_group_tests(tests, fill_keys, NULL);
}
