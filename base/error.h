#ifndef SYMTENSOR_BASE_ERROR_H
#define SYMTENSOR_BASE_ERROR_H

#include <stdbool.h>

#include "base/limits.h"
#include "base/status.h"

/** A key of the error's details object beside reason and field, such as "uid" or "limit". */
struct st_error_detail {
    const char *key; /**< Static text. */
    char value[128];
};

/** Why something failed. Filled once, by whoever decides; one JSON body and one log line come from
 * it. */
struct st_error {
    enum st_status status;
    enum st_reason reason;
    uint16_t http_code;      /**< 0: the status's own. Set by api/ only. */
    uint32_t retry_after_ms; /**< 0: none. */
    bool untouched; /**< Of device work: nothing was queued, no byte can have been written. */
    char field[ST_ERROR_FIELD_MAX]; /**< Field path such as "shape[1]", or empty. */
    char message[ST_ERROR_MESSAGE_MAX];
    uint32_t detail_count;
    struct st_error_detail details[ST_ERROR_DETAILS_MAX];
};

/**
 * Fill @p err from a reason's row and return its status: `return st_fail(err, ST_REASON_X,
 * "shape[1]", "...")`.
 *
 * @param err   may be NULL.
 * @param field path of the offending field, or NULL. The message is prefixed with "field: ".
 * Thread: any (the struct is the caller's).
 */
#define st_fail(...) st_failure(st_error_fill(__VA_ARGS__))
enum st_status st_error_fill(struct st_error *err, enum st_reason reason, const char *field,
                             const char *format, ...) ST_PRINTF(4, 5);

/** As st_fail(), with another status than the reason's own. */
#define st_fail_as(...) st_failure(st_error_fill_as(__VA_ARGS__))
enum st_status st_error_fill_as(struct st_error *err, enum st_status status, enum st_reason reason,
                                const char *field, const char *format, ...) ST_PRINTF(5, 6);

/** Lets compilers and analyzers see what every row of the reason table holds: a failure is not
 * ST_OK. */
static inline enum st_status st_failure(enum st_status status)
{
    if (status == ST_OK) {
        __builtin_unreachable();
    }
    return status;
}

/** Add a detail; the fifth and later ones are dropped. @p key is static text. */
void st_error_add_detail(struct st_error *err, const char *key, const char *format, ...)
    ST_PRINTF(3, 4);

/** Copy printable ASCII of @p text (at most 64 bytes, others as \xNN) into @p buffer for use in a
 * message. */
const char *st_error_quote(const char *text, char buffer[static 80]);

#endif
