#include "engine/pace.h"

/* Upper bounds of the classes of steps by rows, and of the classes of times; the last class has none. */
static const uint32_t pace_rows[PACE_SIZES - 1] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };
static const uint32_t pace_us[PACE_TIMES - 1] = { 100,   250,    500,    1000,   2500,    5000,    10000,   25000,
                                                  50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000 };

/* What is usual lies near the quickest steps: it comes down by a sixteenth of the way, and goes up by so little that
 * 1,000 steps in a row that take five times as long move it by less than the double. */
enum { DOWN = 16, UP = 4096, LAST = 8 };

static uint32_t class_of(const uint32_t *bound, uint32_t n, uint64_t v)
{
    uint32_t i = 0;
    while (i < n && v > bound[i]) i++;
    return i;
}

static void count(_Atomic uint64_t *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }

void pace_add(struct pace *p, uint32_t n_row, uint64_t us)
{
    uint32_t size = class_of(pace_rows, PACE_SIZES - 1, n_row);
    count(&p->rows[size], 1);
    count(&p->n_row, n_row);
    if (!us) return;
    count(&p->time[class_of(pace_us, PACE_TIMES - 1, us)], 1);
    count(&p->sum_us, us);
    double *usual = &p->usual_us[size], is = (double)us;
    if (*usual == 0) *usual = is;
    if (is < *usual)
        *usual -= (*usual - is) / DOWN;
    else
        *usual += *usual / UP < is - *usual ? *usual / UP : is - *usual;
    double ratio = is / *usual;
    p->ratio = p->ratio == 0 ? ratio : p->ratio + (ratio - p->ratio) / LAST;
    atomic_store_explicit(&p->slow_milli, (uint32_t)(p->ratio < 1e6 ? p->ratio * 1000 : 1e9), memory_order_relaxed);
}
