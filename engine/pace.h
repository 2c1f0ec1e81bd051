/* pace: how long steps take, against what steps of their size usually take.   Thread: engine; the atomics: any.
 * A device that is throttled, shared or swapping gets slower and reports no error: this is where it shows. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

enum { PACE_SIZES = 14, PACE_TIMES = 17 };

struct pace {
    double           usual_us[PACE_SIZES], ratio; /* 0: no step yet */
    _Atomic uint64_t rows[PACE_SIZES], n_row;     /* steps by their rows; rows of all */
    _Atomic uint64_t time[PACE_TIMES], sum_us;    /* steps by their time */
    _Atomic uint32_t slow_milli;                  /* the last few steps took so many thousandths of what is usual; 0: no step yet */
};

/* A step of so many rows took us; 0: not measured. */
void pace_add(struct pace *p, uint32_t n_row, uint64_t us);
