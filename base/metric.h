/* metric: counters, gauges and histograms, written without locks, printed in Prometheus text form.   Thread: any.
 * Series are static: every family has a fixed, small set of label values, so hostile strings cannot grow memory. */
#pragma once
#include "base/buf.h"
#include <stdatomic.h>
#include <stdint.h>

/* REAL: a counter whose count is a double, seconds for example: written by metric_set. SUMMARY: count and sum alone. */
enum metric_type { METRIC_COUNTER, METRIC_REAL, METRIC_GAUGE, METRIC_HISTOGRAM, METRIC_SUMMARY };

enum { METRIC_BUCKETS_MAX = 40 };

/* One time series. labels: text between the braces without them ("finished_reason=\"stop\""), or NULL. The common
 * labels (model_name, engine) are put in front of it by metric_print for families that ask for them. */
struct metric {
    const char      *labels;
    _Atomic uint64_t value;                          /* counter: count; real, gauge: bits of a double */
    _Atomic uint64_t bucket[METRIC_BUCKETS_MAX + 1]; /* histogram: not cumulative; last: +Inf. summary: [0] */
    _Atomic uint64_t sum_bits;                       /* histogram: bits of a double */
};
struct metric_family {
    const char      *name, *help; /* name as scraped, e.g. "vllm:prompt_tokens_total" */
    enum metric_type type;
    int              common_labels; /* non-zero: model_name and engine in front */
    const double    *bound;         /* histogram: n_bound rising upper bounds */
    uint32_t         n_bound, n_metric;
    struct metric   *metric;
};

/* Counters: adds n. */
static inline void metric_add(struct metric *m, uint64_t n)
{
    atomic_fetch_add_explicit(&m->value, n, memory_order_relaxed);
}
/* Gauges and REAL: sets the value. metric_get: of any type but histograms and summaries, as a double. */
void   metric_set(struct metric *m, double v);
double metric_get(const struct metric *m);
/* Histograms and summaries: one more value, in the unit of the family's name. f: the family of m. */
void metric_observe(const struct metric_family *f, struct metric *m, double v);
/* HELP, TYPE and samples. Numbers as Python prints floats: 1.0, 0.5, +Inf; from one million 1e+06. */
void metric_print(struct buf *b, const struct metric_family *f, const char *common);
