#ifndef SYMTENSOR_API_ARENA_H
#define SYMTENSOR_API_ARENA_H

#include <stddef.h>

/**
 * Memory of one request: what its decoded body and its reply's headers need, freed at once at its
 * end. Zero-filled before first use. Thread: the request's.
 */
struct api_arena {
    struct api_arena_block *blocks; /**< Newest first. */
};

/** Zeroed and aligned for any type. @return NULL when memory is out. */
void *api_arena_alloc(struct api_arena *arena, size_t bytes);
/** An array, checked for overflow. @return NULL when memory is out; never NULL for a count of 0. */
void *api_arena_array(struct api_arena *arena, size_t count, size_t item_bytes);
/** Copy of @p length bytes with a terminator. */
char *api_arena_copy(struct api_arena *arena, const char *text, size_t length);
/** Free everything. */
void api_arena_done(struct api_arena *arena);

#endif
