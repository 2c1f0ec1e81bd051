#include "engine/phase.h"

const uint32_t phase_bound_us[PHASE_TIMES - 1] = {
    5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 50000, 250000
};

static void count(_Atomic uint64_t *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }

static void times_add(struct phase_times *t, uint64_t us)
{
    uint32_t i = 0;
    while (i < PHASE_TIMES - 1 && us > phase_bound_us[i]) i++;
    count(&t->sum_us, us); /* before the bucket: who reads a count finds its part of the sum */
    atomic_fetch_add_explicit(&t->time[i], 1, memory_order_release);
}

void phase_begin(struct phases *p, uint64_t now_us)
{
    p->at_us = now_us;
    p->host_us = 0;
}

void phase_end(struct phases *p, enum phase which, uint64_t now_us)
{
    uint64_t us = now_us > p->at_us ? now_us - p->at_us : 0;
    count(&p->us[which], us);
    if (which != PHASE_WAIT) p->host_us += us;
    p->at_us = now_us;
}

void phase_turn(struct phases *p, bool stepped)
{
    if (stepped && p->on) times_add(&p->host, p->host_us);
}

void phase_gap(struct phases *p, uint64_t us)
{
    if (p->on) times_add(&p->gap, us);
}
