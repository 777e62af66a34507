#include "api/data/range.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static const char unit[] = "bytes=";

/** Read digits. @return behind them, or NULL when there are none. */
static const char *number_read(const char *text, uint64_t *ret_number)
{
    uint64_t number = 0;
    bool fits = true;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        fits = fits && !__builtin_mul_overflow(number, 10u, &number) &&
               !__builtin_add_overflow(number, (uint64_t)(*at - '0'), &number);
    }
    *ret_number = fits ? number : UINT64_MAX;
    return at > text ? at : NULL;
}

/** "-N": the last N bytes. */
static enum data_range suffix_parse(const char *text, uint64_t total, uint64_t *ret_first,
                                    uint64_t *ret_bytes)
{
    uint64_t bytes;
    const char *end = number_read(text, &bytes);
    if (!end || *end) {
        return DATA_RANGE_IGNORED;
    }
    bytes = bytes < total ? bytes : total;
    if (!bytes) {
        return DATA_RANGE_UNSATISFIABLE;
    }
    *ret_first = total - bytes;
    *ret_bytes = bytes;
    return DATA_RANGE_SATISFIABLE;
}

enum data_range data_range_parse(const char *header, uint64_t total, uint64_t *ret_first,
                                 uint64_t *ret_bytes)
{
    if (!header || strncasecmp(header, unit, strlen(unit)) != 0) {
        return DATA_RANGE_IGNORED;
    }
    const char *text = header + strlen(unit);
    if (*text == '-') {
        return suffix_parse(text + 1, total, ret_first, ret_bytes);
    }
    uint64_t first, last = UINT64_MAX;
    const char *at = number_read(text, &first);
    if (!at || *at != '-') {
        return DATA_RANGE_IGNORED;
    }
    const char *end = number_read(at + 1, &last);
    if (!end) {
        last = UINT64_MAX;
        end = at + 1;
    }
    if (*end || last < first) {
        return DATA_RANGE_IGNORED;
    }
    if (first >= total) {
        return DATA_RANGE_UNSATISFIABLE;
    }
    *ret_first = first;
    *ret_bytes = (last < total ? last : total - 1) - first + 1;
    return DATA_RANGE_SATISFIABLE;
}
