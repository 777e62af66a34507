#include <stdlib.h>
#include <string.h>

#include "gpu/software/internal.h"

#define INTERVALS_FIRST 64u /* capacity of a table when its first interval comes */

/** Number of intervals that start at or below @p at. */
static size_t intervals_upper(const struct software_intervals *table, uint64_t at)
{
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->items[middle].start <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

size_t software_intervals_floor(const struct software_intervals *table, uint64_t at)
{
    size_t upper = intervals_upper(table, at);
    return upper ? upper - 1 : table->count;
}

void *software_intervals_find(const struct software_intervals *table, uint64_t start,
                              uint64_t bytes)
{
    size_t index = software_intervals_floor(table, start);
    if (index == table->count || start >= table->items[index].end ||
        bytes > table->items[index].end - start) {
        return NULL;
    }
    return table->items[index].object;
}

bool software_intervals_overlap(const struct software_intervals *table, uint64_t start,
                                uint64_t end)
{
    size_t index = end ? software_intervals_floor(table, end - 1) : table->count;
    return index != table->count && table->items[index].end > start;
}

bool software_intervals_reserve(struct software_intervals *table)
{
    if (table->count < table->capacity) {
        return true;
    }
    size_t capacity = table->capacity ? 2 * table->capacity : INTERVALS_FIRST;
    struct software_interval *items = reallocarray(table->items, capacity, sizeof(*items));
    if (!items) {
        return false;
    }
    table->items = items;
    table->capacity = capacity;
    return true;
}

void software_intervals_insert(struct software_intervals *table, uint64_t start, uint64_t end,
                               void *object)
{
    size_t at = intervals_upper(table, start);
    memmove(&table->items[at + 1], &table->items[at], (table->count - at) * sizeof(*table->items));
    table->items[at] = (struct software_interval){start, end, object};
    table->count++;
}

void software_intervals_remove(struct software_intervals *table, uint64_t start)
{
    size_t at = software_intervals_floor(table, start);
    table->count--;
    memmove(&table->items[at], &table->items[at + 1], (table->count - at) * sizeof(*table->items));
}

void software_intervals_free(struct software_intervals *table)
{
    free(table->items);
    *table = (struct software_intervals){0};
}
