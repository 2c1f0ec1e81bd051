/* clock: monotonic microseconds for all waiting and measuring; wall time only for output that people read.   Thread:
 * any. */
#pragma once
#include <stdint.h>
#include <time.h>

/* Microseconds since an arbitrary start; they never go back. */
static inline uint64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}
/* Unix time in seconds; it may jump. */
static inline int64_t clock_wall_s(void) { return (int64_t)time(NULL); }
