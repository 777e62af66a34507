#ifndef SYMTENSOR_BASE_CLOCK_H
#define SYMTENSOR_BASE_CLOCK_H

#include <stdint.h>

#define ST_NS_PER_SECOND 1000000000ull
#define ST_NS_PER_MS 1000000ull
#define ST_DEADLINE_NEVER UINT64_MAX

/** CLOCK_MONOTONIC in nanoseconds. Thread: any. */
uint64_t st_clock_now_ns(void);
/** CLOCK_REALTIME in nanoseconds since 1970. Thread: any. */
uint64_t st_clock_realtime_ns(void);
/** RFC 3339 UTC with microseconds: "2026-12-01T12:00:00.000000Z". @return @p buffer. */
const char *st_clock_format(uint64_t realtime_ns, char buffer[static 32]);

#endif
