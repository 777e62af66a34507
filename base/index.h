#ifndef SYMTENSOR_BASE_INDEX_H
#define SYMTENSOR_BASE_INDEX_H

#include <stdbool.h>
#include <stddef.h>

/**
 * An ordered map from id text to a pointer: a sorted array, so that lists come out in the order of
 * ids and a page can start behind any id. Not thread-safe: its owner locks. The key is not copied;
 * it lives in the value.
 */
struct st_index {
    struct st_index_entry *entries; /**< [count], ascending by strcmp of key. */
    size_t count;
    size_t capacity;
};

#define ST_INDEX_PASS_KEYS 64u

struct st_index_entry {
    const char *key;
    void *value;
};

/** Insert; false when the key is there already, or memory is out (then *ret_exists is false). */
bool st_index_insert(struct st_index *index, const char *key, void *value, bool *ret_exists);
/** Find, or NULL. */
void *st_index_find(const struct st_index *index, const char *key);
/** Remove and return the value, or NULL. */
void *st_index_remove(struct st_index *index, const char *key);
/**
 * Remove many keys, in any order, with one pass over the array for each ST_INDEX_PASS_KEYS of them.
 * A key that is not there, or that is named again, takes nothing out. @param keys [count]; they
 * may live in the values. @return how many were removed.
 */
size_t st_index_remove_many(struct st_index *index, const char *const *keys, size_t count);
/** Position of the first key > @p key ("" or NULL: 0). */
size_t st_index_after(const struct st_index *index, const char *key);
/** Free the array (not the values). */
void st_index_done(struct st_index *index);

#endif
