#include "base/index.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_CAPACITY_FIRST 16

/** Position of the first key >= @p key. */
static size_t index_lower_bound(const struct st_index *index, const char *key)
{
    size_t low = 0;
    size_t high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(index->entries[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool index_holds(const struct st_index *index, size_t at, const char *key)
{
    return at < index->count && strcmp(index->entries[at].key, key) == 0;
}

static bool index_reserve_one(struct st_index *index)
{
    if (index->count < index->capacity) {
        return true;
    }
    size_t capacity = index->capacity ? index->capacity * 2 : INDEX_CAPACITY_FIRST;
    struct st_index_entry *entries = reallocarray(index->entries, capacity, sizeof(*entries));
    if (!entries) {
        return false;
    }
    index->entries = entries;
    index->capacity = capacity;
    return true;
}

bool st_index_insert(struct st_index *index, const char *key, void *value, bool *ret_exists)
{
    size_t at = index_lower_bound(index, key);
    *ret_exists = index_holds(index, at, key);
    if (*ret_exists || !index_reserve_one(index)) {
        return false;
    }
    struct st_index_entry *entry = &index->entries[at];
    memmove(entry + 1, entry, (index->count - at) * sizeof(*entry));
    *entry = (struct st_index_entry){.key = key, .value = value};
    index->count++;
    return true;
}

void *st_index_find(const struct st_index *index, const char *key)
{
    size_t at = index_lower_bound(index, key);
    return index_holds(index, at, key) ? index->entries[at].value : NULL;
}

void *st_index_remove(struct st_index *index, const char *key)
{
    size_t at = index_lower_bound(index, key);
    if (!index_holds(index, at, key)) {
        return NULL;
    }
    struct st_index_entry *entry = &index->entries[at];
    void *value = entry->value;
    index->count--;
    memmove(entry, entry + 1, (index->count - at) * sizeof(*entry));
    return value;
}

static int position_compare(const void *a, const void *b)
{
    size_t left = *(const size_t *)a;
    size_t right = *(const size_t *)b;
    return left < right ? -1 : left > right;
}

/** Positions of the keys that are there, ascending, each once. @return how many. */
static size_t index_find_positions(const struct st_index *index, const char *const *keys,
                                   size_t count, size_t *ret_positions)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = index_lower_bound(index, keys[i]);
        ret_positions[found] = at;
        found += index_holds(index, at, keys[i]);
    }
    qsort(ret_positions, found, sizeof(*ret_positions), position_compare);
    size_t distinct = 0;
    for (size_t i = 0; i < found; i++) {
        if (distinct == 0 || ret_positions[i] != ret_positions[distinct - 1]) {
            ret_positions[distinct++] = ret_positions[i];
        }
    }
    return distinct;
}

/** Close the gaps at some positions, ascending and distinct, in one pass. */
static void index_close_gaps(struct st_index *index, const size_t *positions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t from = positions[i] + 1;
        size_t end = i + 1 < count ? positions[i + 1] : index->count;
        memmove(&index->entries[positions[i] - i], &index->entries[from],
                (end - from) * sizeof(*index->entries));
    }
    index->count -= count;
}

size_t st_index_remove_many(struct st_index *index, const char *const *keys, size_t count)
{
    size_t positions[ST_INDEX_PASS_KEYS];
    size_t before = index->count;
    for (size_t done = 0; done < count; done += ST_INDEX_PASS_KEYS) {
        size_t left = count - done;
        size_t pass = left < ST_INDEX_PASS_KEYS ? left : ST_INDEX_PASS_KEYS;
        size_t found = index_find_positions(index, keys + done, pass, positions);
        index_close_gaps(index, positions, found);
    }
    return before - index->count;
}

size_t st_index_after(const struct st_index *index, const char *key)
{
    if (!key || !key[0]) {
        return 0;
    }
    size_t at = index_lower_bound(index, key);
    return index_holds(index, at, key) ? at + 1 : at;
}

void st_index_done(struct st_index *index)
{
    free(index->entries);
    *index = (struct st_index){0};
}
