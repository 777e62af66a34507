#ifndef SYMTENSOR_API_HTTP_JSON_SCAN_H
#define SYMTENSOR_API_HTTP_JSON_SCAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/**
 * Parse one JSON object of exactly @p length bytes (0 bytes: {}). Before jansson sees it, the text
 * is scanned for what jansson lets through or crashes on later: NUL bytes and nesting beyond
 * ST_HTTP_JSON_DEPTH_MAX.
 *
 * @param ret_object release with json_decref().
 * @retval ST_INVALID_ARGUMENT INVALID_JSON: malformed, a duplicate key, an integer beyond 2^63-1,
 * NaN, bytes behind the object, no object. The field is the path of the place ("tensors[3].shape").
 * Thread: any.
 */
ST_MUST_CHECK enum st_status http_json_parse(const char *text, size_t length, json_t **ret_object,
                                             struct st_error *err);

/**
 * Path of the value at byte @p position of a JSON text that need not be well formed: "shape[1]".
 * @return @p path.
 */
const char *http_json_path(const char *text, size_t length, size_t position,
                           char path[static ST_ERROR_FIELD_MAX]);

#endif
