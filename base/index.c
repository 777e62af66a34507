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
