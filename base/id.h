#ifndef SYMTENSOR_BASE_ID_H
#define SYMTENSOR_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>

#include "base/limits.h"

/**
 * Whether @p id matches [A-Za-z0-9_][A-Za-z0-9_.-]{0,254}, without ".." and without a trailing ".".
 * @param length bytes, so that a NUL inside is seen.
 */
bool st_id_is_valid(const char *id, size_t length);

/** Write a random UUID (version 4, RFC 9562) as text. Blocks: never after boot (getrandom). */
void st_uid_make(char uid[static ST_UID_BYTES]);

/** Write "<prefix>-<16 hex digits>", random: an id that the server makes. */
void st_id_make(const char *prefix, char *buffer, size_t size);

#endif
