#ifndef SYMTENSOR_API_TEXT_H
#define SYMTENSOR_API_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/**
 * A growing text, and JSON written into it. Commas are set by the writer: between two values of an
 * object or array one is added where it is missing. When memory is out, `failed` stays set and
 * nothing more is added; it is checked once, at the end. Zero-filled before first use. Not
 * thread-safe.
 */
struct api_text {
    char *data; /**< malloc'd, always terminated once something was added. */
    size_t length;
    size_t capacity;
    bool failed;
};

void api_text_done(struct api_text *text);
/** Give the malloc'd text away and reset. @return NULL when it failed (nothing is left allocated).
 */
char *api_text_take(struct api_text *text, size_t *ret_length);
/** Raw bytes, no comma. */
void api_text_append(struct api_text *text, const char *data, size_t length);
/** Formatted raw bytes, no comma. */
void api_text_format(struct api_text *text, const char *format, ...) ST_PRINTF(2, 3);

/** Whether a terminated text is UTF-8 (RFC 3629). */
bool api_text_is_utf8(const char *text);

/*
 * JSON. @p key NULL: a value of an array, or the top. Order of calls is the order of members.
 */
void api_json_begin(struct api_text *text, const char *key);       /**< { */
void api_json_end(struct api_text *text);                          /**< } */
void api_json_begin_array(struct api_text *text, const char *key); /**< [ */
void api_json_end_array(struct api_text *text);                    /**< ] */
/** Escaped; bytes that are no UTF-8 become U+FFFD. NULL value: null. */
void api_json_string(struct api_text *text, const char *key, const char *value);
void api_json_uint(struct api_text *text, const char *key, uint64_t value);
void api_json_int(struct api_text *text, const char *key, int64_t value);
void api_json_bool(struct api_text *text, const char *key, bool value);
void api_json_null(struct api_text *text, const char *key);
/** Shortest text that reads back as @p value; not finite: "NaN", "Infinity", "-Infinity" as
 * strings. */
void api_json_double(struct api_text *text, const char *key, double value);
/** RFC 3339 UTC of CLOCK_REALTIME nanoseconds; 0: null. */
void api_json_time(struct api_text *text, const char *key, uint64_t realtime_ns);
/** Text that is one JSON value already, such as a snapshot's. */
void api_json_raw(struct api_text *text, const char *key, const char *json);

#endif
