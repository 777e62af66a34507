#ifndef SYMTENSOR_API_RESOURCES_PAGE_TOKEN_H
#define SYMTENSOR_API_RESOURCES_PAGE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/limits.h"
#include "base/status.h"

/**
 * Page tokens: base64url of a keyed check (HMAC-SHA-256, cut to 16 bytes) and the last id that was
 * shown. The check covers the list's name and filters too, so that a token is good for the list it
 * was made for only. The key is random and lives as long as the process: after a restart a token is
 * refused, since the list is another one.
 */
#define API_PAGE_TOKEN_BYTES ((16 + ST_ID_MAX) * 4 / 3 + 4)

/**
 * @param scope       [scope_bytes] the list's name and filters in an unambiguous form.
 * @param last        id of the last item shown.
 * @return false when the library that computes the check refuses.
 * Thread: any. Blocks: never after boot.
 */
ST_MUST_CHECK bool api_page_token_make(const char *scope, size_t scope_bytes, const char *last,
                                       char ret_token[static API_PAGE_TOKEN_BYTES]);

/** @return false when @p token was not made by this process for this scope. */
ST_MUST_CHECK bool api_page_token_read(const char *scope, size_t scope_bytes, const char *token,
                                       char ret_last[static ST_ID_MAX + 1]);

#endif
