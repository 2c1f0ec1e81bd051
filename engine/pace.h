/* pace: compares the time of a step with the usual time of steps of its size.   Thread: engine; the atomics: any.
 * A device that is throttled, shared or swapping becomes slower and reports no error. This ratio shows it. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

enum { PACE_SIZES = 14, PACE_TIMES = 17 };

struct pace {
    double           usual_us[PACE_SIZES], ratio; /* 0: no step yet */
    _Atomic uint64_t rows[PACE_SIZES], n_row;     /* steps by their rows; rows of all */
    _Atomic uint64_t time[PACE_TIMES], sum_us;    /* steps by their time */
    _Atomic uint32_t slow_milli;                  /* time of recent steps / usual time, in 1/1000; 0: no step yet */
};

/* Adds a step of n_row rows that took `us`; us 0: not measured. */
void pace_add(struct pace *p, uint32_t n_row, uint64_t us);
