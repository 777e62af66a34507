#include "gpu/ranges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define RANGES_CAPACITY_FIRST 16

static bool ranges_reserve_one(struct gpu_ranges *ranges)
{
    if (ranges->count < ranges->capacity) {
        return true;
    }
    size_t capacity = ranges->capacity ? 2 * ranges->capacity : RANGES_CAPACITY_FIRST;
    struct gpu_range *items = reallocarray(ranges->items, capacity, sizeof(*items));
    if (!items) {
        return false;
    }
    ranges->items = items;
    ranges->capacity = capacity;
    return true;
}

bool gpu_ranges_take(struct gpu_ranges *ranges, uint64_t bytes, uint64_t *ret_offset)
{
    uint64_t start = 0;
    size_t at = 0;
    while (at < ranges->count && ranges->items[at].offset - start < bytes) {
        start = ranges->items[at].offset + ranges->items[at].bytes;
        at++;
    }
    if (bytes > ranges->size_bytes - start || !ranges_reserve_one(ranges)) {
        return false;
    }
    memmove(&ranges->items[at + 1], &ranges->items[at],
            (ranges->count - at) * sizeof(ranges->items[0]));
    ranges->items[at] = (struct gpu_range){start, bytes};
    ranges->count++;
    ranges->used_bytes += bytes;
    *ret_offset = start;
    return true;
}

void gpu_ranges_give(struct gpu_ranges *ranges, uint64_t offset)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->items[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    assert(low < ranges->count && ranges->items[low].offset == offset);
    ranges->used_bytes -= ranges->items[low].bytes;
    ranges->count--;
    memmove(&ranges->items[low], &ranges->items[low + 1],
            (ranges->count - low) * sizeof(ranges->items[0]));
}

void gpu_ranges_done(struct gpu_ranges *ranges)
{
    free(ranges->items);
    *ranges = (struct gpu_ranges){0};
}
