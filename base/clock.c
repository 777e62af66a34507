#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * ST_NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t st_clock_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t st_clock_realtime_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

const char *st_clock_format(uint64_t realtime_ns, char buffer[static 32])
{
    time_t seconds = (time_t)(realtime_ns / ST_NS_PER_SECOND);
    unsigned microseconds = (unsigned)(realtime_ns % ST_NS_PER_SECOND / 1000u);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t length = strftime(buffer, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(buffer + length, 32 - length, ".%06uZ", microseconds);
    return buffer;
}
