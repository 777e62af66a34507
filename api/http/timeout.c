#include "api/http/timeout.h"

#include <string.h>

#include "base/clock.h"

#define TIMEOUT_DIGITS_MAX 8

bool http_timeout_parse(const char *text, uint64_t *ret_ns)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {
        {'H', 3600 * ST_NS_PER_SECOND},
        {'M', 60 * ST_NS_PER_SECOND},
        {'S', ST_NS_PER_SECOND},
        {'m', ST_NS_PER_MS},
        {'u', 1000},
        {'n', 1},
    };
    size_t digits = strspn(text, "0123456789");
    if (digits < 1 || digits > TIMEOUT_DIGITS_MAX || !text[digits] || text[digits + 1]) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (units[i].unit == text[digits]) {
            /* 99,999,999 hours are 3.6e20 ns, more than 64 bits hold. */
            if (__builtin_mul_overflow(value, units[i].ns, ret_ns)) {
                *ret_ns = ST_DEADLINE_NEVER;
            }
            return true;
        }
    }
    return false;
}
