#include "base/size.h"

#include <string.h>

/** Read decimal digits; false when there is none or the number overflows. */
static bool size_read_digits(const char *text, uint64_t *ret_value, const char **ret_rest)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            return false;
        }
    }
    if (at == text) {
        return false;
    }
    *ret_value = value;
    *ret_rest = at;
    return true;
}

bool st_size_parse(const char *text, uint64_t *ret_bytes)
{
    static const struct {
        const char *suffix;
        uint64_t bytes;
    } units[] = {{"", 1}, {"KiB", ST_KIB}, {"MiB", ST_MIB}, {"GiB", ST_GIB}};
    uint64_t number;
    const char *rest;
    if (!size_read_digits(text, &number, &rest)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        uint64_t bytes;
        if (strcmp(rest, units[i].suffix) == 0 &&
            !__builtin_mul_overflow(number, units[i].bytes, &bytes)) {
            *ret_bytes = bytes;
            return true;
        }
    }
    return false;
}

bool st_size_round_up(uint64_t bytes, uint64_t unit, uint64_t *ret_bytes)
{
    uint64_t rest = bytes % unit;
    uint64_t rounded;
    if (__builtin_add_overflow(bytes, rest ? unit - rest : 0, &rounded)) {
        return false;
    }
    *ret_bytes = rounded;
    return true;
}

bool st_uint_parse(const char *text, uint64_t max, uint64_t *ret_value)
{
    uint64_t value;
    const char *rest;
    if (!size_read_digits(text, &value, &rest) || *rest || value > max) {
        return false;
    }
    *ret_value = value;
    return true;
}
