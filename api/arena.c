#include "api/arena.h"

#include <stdlib.h>
#include <string.h>

/** Small requests fit into one block; a large allocation gets a block of its own. */
#define ARENA_BLOCK_BYTES 4096

struct api_arena_block {
    struct api_arena_block *next;
    size_t used;
    size_t capacity;
    _Alignas(max_align_t) char bytes[];
};

void *api_arena_alloc(struct api_arena *arena, size_t bytes)
{
    const size_t unit = _Alignof(max_align_t);
    size_t rounded;
    if (__builtin_add_overflow(bytes, unit - 1, &rounded)) {
        return NULL;
    }
    rounded = rounded / unit * unit;
    struct api_arena_block *block = arena->blocks;
    if (!block || block->capacity - block->used < rounded) {
        size_t capacity = rounded > ARENA_BLOCK_BYTES ? rounded : ARENA_BLOCK_BYTES;
        size_t total;
        if (__builtin_add_overflow(capacity, sizeof(*block), &total)) {
            return NULL;
        }
        block = malloc(total);
        if (!block) {
            return NULL;
        }
        *block = (struct api_arena_block){.next = arena->blocks, .capacity = capacity};
        arena->blocks = block;
    }
    void *result = block->bytes + block->used;
    block->used += rounded;
    return memset(result, 0, rounded);
}

void *api_arena_array(struct api_arena *arena, size_t count, size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, item_bytes, &bytes)) {
        return NULL;
    }
    return api_arena_alloc(arena, bytes ? bytes : 1);
}

char *api_arena_copy(struct api_arena *arena, const char *text, size_t length)
{
    char *copy = api_arena_array(arena, length + 1, 1);
    return copy ? memcpy(copy, text, length) : NULL;
}

void api_arena_done(struct api_arena *arena)
{
    while (arena->blocks) {
        struct api_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
}
