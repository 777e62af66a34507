#ifndef SYMTENSOR_API_HTTP_ERROR_BODY_H
#define SYMTENSOR_API_HTTP_ERROR_BODY_H

#include "api/text.h"
#include "base/error.h"

/**
 * The one place where a struct st_error becomes what a client sees. Thread: any.
 */

/** The HTTP code: the error's own, its reason's (411, 413, 415, ...), or its status's. */
unsigned http_error_code(const struct st_error *error);
/** Milliseconds after which to try again, or 0: the error's own, or a second where the status says
 * so. */
uint32_t http_error_retry_after_ms(const struct st_error *error);
/** Whether to simply try again is worth it. */
bool http_error_retryable(const struct st_error *error);
/** Write {"code","status","message","retryable","details":[{"reason","field",...}]} as a value. */
void http_error_write(struct api_text *text, const char *key, const struct st_error *error);

#endif
