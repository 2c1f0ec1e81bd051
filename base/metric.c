#include "base/metric.h"
#include "base/num.h"
#include <math.h>
#include <string.h>

static double metric_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t metric_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void metric_set(struct metric *m, double v) { atomic_store_explicit(&m->value, metric_bits(v), memory_order_relaxed); }

double metric_get(const struct metric *m)
{
    return metric_double(atomic_load_explicit(&m->value, memory_order_relaxed));
}

void metric_observe(const struct metric_family *f, struct metric *m, double v)
{
    if (isnan(v)) return; /* one would spoil the sum for good */
    uint32_t i = 0;
    while (i < f->n_bound && v > f->bound[i]) i++;
    /* The sum goes first and the bucket releases it: whoever prints a count has its part of the sum too. */
    uint64_t old = atomic_load_explicit(&m->sum_bits, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&m->sum_bits, &old, metric_bits(metric_double(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed)) {}
    atomic_fetch_add_explicit(&m->bucket[i], 1, memory_order_release);
}

/* As the Python client of Prometheus prints: repr() of a Python float, and mantissa and exponent from one million
 * on. */
static void metric_put_num(struct buf *b, double v)
{
    if (!isfinite(v)) {
        if (isnan(v))
            buf_puts(b, "NaN");
        else
            buf_puts(b, v > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (v == 0) {
        buf_puts(b, signbit(v) ? "-0.0" : "0.0");
        return;
    }
    char digits[NUM_DIGITS_MAX + 1];
    int  point, n = num_digits(v, digits, &point);
    if (v < 0) buf_putc(b, '-');
    if (point > 16 || point < -3 || (v > 0 && point > 6)) {
        buf_putc(b, digits[0]);
        if (n > 1) buf_putc(b, '.');
        buf_put(b, digits + 1, (size_t)(n - 1));
        buf_printf(b, "e%c%02d", point > 0 ? '+' : '-', point > 0 ? point - 1 : 1 - point);
    } else if (point <= 0) {
        buf_printf(b, "0.%.*s%s", -point, "000", digits);
    } else {
        for (int i = 0; i < point; i++) buf_putc(b, i < n ? digits[i] : '0');
        buf_printf(b, ".%s", n > point ? digits + point : "0");
    }
}

/* name suffix {common,labels,le="bound"} value */
static void metric_put_sample(struct buf *b, const struct metric_family *f, const struct metric *m, const char *common,
                              const char *suffix, const double *le, double v)
{
    const char *part[] = { f->common_labels ? common : NULL, m->labels };
    const char *sep = "{";
    buf_puts(b, f->name);
    buf_puts(b, suffix);
    for (int i = 0; i < 2; i++) {
        if (!part[i] || !*part[i]) continue;
        buf_puts(b, sep);
        buf_puts(b, part[i]);
        sep = ",";
    }
    if (le) {
        buf_puts(b, sep);
        buf_puts(b, "le=\"");
        metric_put_num(b, *le);
        buf_putc(b, '"');
        sep = ",";
    }
    if (*sep == ',') buf_putc(b, '}');
    buf_putc(b, ' ');
    metric_put_num(b, v);
    buf_putc(b, '\n');
}

void metric_print(struct buf *b, const struct metric_family *f, const char *common)
{
    static const char *const type[] = { "counter", "counter", "gauge", "histogram", "summary" };
    buf_puts(b, "# HELP ");
    buf_puts(b, f->name);
    buf_putc(b, ' ');
    for (const char *p = f->help; *p; p++) {
        if (*p == '\\' || *p == '\n') buf_putc(b, '\\');
        buf_putc(b, *p == '\n' ? 'n' : *p);
    }
    buf_printf(b, "\n# TYPE %s %s\n", f->name, type[f->type]);
    for (uint32_t i = 0; i < f->n_metric; i++) {
        const struct metric *m = &f->metric[i];
        if (f->type == METRIC_COUNTER) {
            metric_put_sample(b, f, m, common, "", NULL, (double)atomic_load_explicit(&m->value, memory_order_relaxed));
        } else if (f->type == METRIC_GAUGE || f->type == METRIC_REAL) {
            metric_put_sample(b, f, m, common, "", NULL, metric_get(m));
        } else {
            uint64_t     count = 0;
            const double inf = INFINITY;
            for (uint32_t k = 0; k <= f->n_bound; k++) {
                count += atomic_load_explicit(&m->bucket[k], memory_order_acquire);
                if (f->type == METRIC_HISTOGRAM)
                    metric_put_sample(b, f, m, common, "_bucket", k < f->n_bound ? &f->bound[k] : &inf, (double)count);
            }
            metric_put_sample(b, f, m, common, "_count", NULL, (double)count);
            metric_put_sample(b, f, m, common, "_sum", NULL,
                              metric_double(atomic_load_explicit(&m->sum_bits, memory_order_relaxed)));
        }
    }
}
