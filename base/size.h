#ifndef SYMTENSOR_BASE_SIZE_H
#define SYMTENSOR_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#define ST_KIB (1ull << 10)
#define ST_MIB (1ull << 20)
#define ST_GIB (1ull << 30)

/** Parse "4096", "64KiB", "2MiB", "1GiB" into bytes; false on anything else or overflow. */
bool st_size_parse(const char *text, uint64_t *ret_bytes);
/** Round up to a multiple of @p unit (> 0); false on overflow. */
bool st_size_round_up(uint64_t bytes, uint64_t unit, uint64_t *ret_bytes);
/** Strict decimal digits only, no sign, no spaces; false when it is none or above @p max. */
bool st_uint_parse(const char *text, uint64_t max, uint64_t *ret_value);

#endif
