#ifndef SYMTENSOR_BASE_LOG_H
#define SYMTENSOR_BASE_LOG_H

#include <stdint.h>

#include "base/error.h"

/** Levels of the log; a line below the set level is not written. */
#define ST_LOG_LEVELS(X) X(DEBUG, "debug") X(INFO, "info") X(WARNING, "warning") X(ERROR, "error")
enum st_log_level {
#define X(name, text) ST_LOG_##name,
    ST_LOG_LEVELS(X)
#undef X
        ST_LOG_LEVEL_COUNT
};

/** A text that is never NULL, as a field needs it. */
static inline const char *st_log_text(const char *text)
{
    return text ? text : "";
}

/** One key of a log line. Make them with the ST_LOG_* macros; an array ends with {0}. */
struct st_log_field {
    const char *key;  /**< snake_case, static. */
    const char *text; /**< Set: a string (escaped when written). NULL: the number is written. */
    int64_t number;
};
#define ST_LOG_TEXT(k, v) ((struct st_log_field){.key = (k), .text = st_log_text(v)})
#define ST_LOG_INT(k, v) ((struct st_log_field){.key = (k), .number = (int64_t)(v)})

/** Set the lowest level that is written. Thread: any. */
void st_log_set_level(enum st_log_level level);
enum st_log_level st_log_level(void);
/** Parse "debug|info|warning|error"; false when it is none. */
bool st_log_level_parse(const char *text, enum st_log_level *ret_level);
const char *st_log_level_name(enum st_log_level level);

/**
 * Write one JSON line to standard error: {"time","level","message", fields...}. One write() a line,
 * so that lines of several threads never mix. Thread: any. Blocks: for the write. Use:
 * st_log(ST_LOG_INFO, "listening", ST_LOG_TEXT("address", a), ST_LOG_INT("port", p));
 */
void st_log_write(enum st_log_level level, const char *message, const struct st_log_field *fields);
#define st_log(level, message, ...)                                                                \
    st_log_write((level), (message), (const struct st_log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}})

/** Log a failure with its status, reason, field and message. */
void st_log_error(enum st_log_level level, const char *what, const struct st_error *err);

#endif
