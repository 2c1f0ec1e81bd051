/* device: which implementation dev_open means, and what does not depend on one. */
#include "kernels/device.h"
#include "base/check.h"
#include "kernels/cpu/copy.h"
#include "base/log.h"
#include "kernels/fill.h"
#include "kernels/impl.h"
#include "kernels/quant.h"
#include <stdatomic.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dev_serves(enum dev_kind kind, char *why, size_t why_bytes)
{
    *why = 0;
    if (kind != DEV_CUDA) return true;
#ifdef WITH_CUDA
    return cuda_serves(why, why_bytes);
#else
    snprintf(why, why_bytes, "this build has no cuda device");
    return false;
#endif
}

enum dev_kind dev_resolve(enum dev_kind kind)
{
    static _Atomic bool told;
    char                why[200];
    if (kind != DEV_AUTO) return kind;
    if (dev_serves(DEV_CUDA, why, sizeof why)) return DEV_CUDA;
    if (!atomic_exchange(&told, true)) LOG_INFO("dev: %s; the cpu computes", why);
    return DEV_CPU;
}

enum status dev_open(const struct dev_cfg *cfg, struct device **d_out)
{
    struct dev_cfg c = *cfg;
    if (c.n_rank == 0) c.n_rank = 1;
    if (c.n_local == 0) c.n_local = c.n_rank;
    if (c.rank >= c.n_rank || c.rank < c.first || c.rank - c.first >= c.n_local || c.n_local > c.n_rank ||
        (c.n_rank > 1 && (!c.group || group_n_rank(c.group) != c.n_local))) {
        LOG_ERROR("dev: rank %u of %u does not fit its group, cannot start", c.rank, c.n_rank);
        return ST_CONFIG;
    }
    c.kind = dev_resolve(c.kind);
    if (c.n_local < c.n_rank && c.kind != DEV_CUDA) {
        LOG_ERROR("dev: ranks on several nodes need the cuda device, cannot start");
        return ST_CONFIG;
    }
    switch (c.kind) {
    case DEV_AUTO: break;
    case DEV_REF: return ref_open(&c, d_out);
    case DEV_CPU: return cpu_open(&c, d_out);
#ifdef WITH_CUDA
    case DEV_CUDA: return cuda_open(&c, d_out);
#else
    case DEV_CUDA: LOG_ERROR("dev: this build has no cuda device, cannot start"); return ST_CONFIG;
#endif
    }
    LOG_ERROR("dev: no device of kind %d, cannot start", (int)c.kind);
    return ST_CONFIG;
}

void dev_close(struct device *d)
{
    if (d) d->ops->close(d);
}

uint64_t dev_weight_bytes(const struct device *d, enum dtype t, uint32_t n, uint32_t k)
{
    return ((const struct dev_impl *)d)->weight_bytes(t, n, k);
}

uint64_t dev_quant_bytes(const struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->quant_bytes && quant_ok(q, k) ? i->quant_bytes(q, n, k) : 0;
}

uint64_t dev_step_bytes(const struct device *d, const struct dev_limits *lim)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->step_bytes ? i->step_bytes(d, lim) : 0;
}

void dev_graphs(const struct device *d, struct dev_graphs *out)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    *out = (struct dev_graphs){ .n = 0 };
    if (i->graphs) i->graphs(d, out);
}

uint32_t dev_list(struct dev_info *out, uint32_t max, char *why, size_t why_bytes)
{
#ifdef WITH_CUDA
    return cuda_list(out, max, why, why_bytes);
#else
    (void)out;
    (void)max;
    snprintf(why, why_bytes, "this build has no cuda device");
    return 0;
#endif
}

enum status dev_tune(const struct dev_tune_cfg *cfg, char *out_path, size_t out_path_bytes)
{
#ifdef WITH_CUDA
    return cuda_tune(cfg, out_path, out_path_bytes);
#else
    (void)cfg;
    (void)out_path;
    (void)out_path_bytes;
    LOG_ERROR("tune: this build has no cuda device");
    return ST_CONFIG;
#endif
}

bool dev_fills(const struct device *d, const struct dev_weight *w)
{
    return ((const struct dev_impl *)d)->weight_fill && !dev_weight_is_quant(w);
}

void dev_weight_fill(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, uint64_t seed,
                     uint64_t src_row, uint64_t src_col, uint64_t src_len, float std)
{
    enum { TOGETHER = 64 }; /* rows that weight_set is given at a time: each call of it costs a copy to a GPU */
    if (dev_fills(d, w)) {
        const struct dev_impl *i = (const struct dev_impl *)d;
        i->weight_fill(d, w, row0, n_row, seed, src_row, src_col, src_len, std);
        return;
    }
    float *rows = malloc((size_t)(n_row < TOGETHER ? n_row : TOGETHER) * w->k * sizeof *rows);
    CHECK(rows);
    for (uint32_t r = 0, n; r < n_row; r += n) {
        n = n_row - r < TOGETHER ? n_row - r : TOGETHER;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t c = 0; c < w->k; c++)
                rows[(size_t)i * w->k + c] = fill_number(seed, (src_row + r + i) * src_len + src_col + c, std);
        d->ops->weight_set(d, w, row0 + r, n, rows, w->k * sizeof *rows, DT_F32);
    }
    free(rows);
}

enum status dev_comm_id(enum dev_kind kind, unsigned char id_out[DEV_COMM_ID])
{
    if (dev_resolve(kind) != DEV_CUDA) {
        LOG_ERROR("dev: ranks on several nodes need the cuda device");
        return ST_CONFIG;
    }
#ifdef WITH_CUDA
    return cuda_comm_id(id_out);
#else
    (void)id_out;
    LOG_ERROR("dev: this build has no cuda device");
    return ST_CONFIG;
#endif
}

static const struct dev_map_ops *map_ops(const struct device *d) { return ((const struct dev_impl *)d)->map; }

void dev_touch(struct device *d, void *at, size_t bytes)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    if (i->touch && bytes) i->touch(d, at, bytes);
}

void dev_arith(const struct device *d, enum dtype weights, const struct dev_quant *q, enum dtype kv,
               char text[DEV_ARITH])
{
    ((const struct dev_impl *)d)->arith(d, weights, q, kv, text, DEV_ARITH);
}

uint64_t dev_weight_form(struct device *d, enum dtype t, const struct dev_quant *q)
{
    return map_ops(d) ? map_ops(d)->form(d, t, q) : 0;
}

bool dev_map(struct device *d, void *at, size_t bytes, int fd, uint64_t offset)
{
    return map_ops(d) && map_ops(d)->map(d, at, bytes, fd, offset);
}

enum status dev_unmap(struct device *d, void *at, size_t bytes)
{
    return map_ops(d) ? map_ops(d)->unmap(d, at, bytes) : ST_INVALID;
}

size_t dev_doing(const struct device *d, uint64_t now_us, char *text, size_t text_bytes)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->doing ? i->doing(d, now_us, text, text_bytes) : 0;
}

bool dev_place(const struct device *d, struct dev_place *out)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->place && i->place(d, out);
}

bool dev_step_times(struct device *d, struct dev_times *out)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->step_times && i->step_times(d, out);
}

double dev_probe(struct device *d, enum dev_probe what)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->probe ? i->probe(d, what) : (double)NAN;
}

double dev_time(struct device *d, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->time ? i->time(d, n, fn, arg) : (double)NAN;
}

/* ---------------------------------------------------------------- copies beside the steps */

static const struct dev_copy_ops *copy_ops(const struct device *d) { return ((const struct dev_impl *)d)->copy; }

enum status dev_copy_open(struct device *d) { return copy_ops(d) ? copy_ops(d)->open(d) : ST_OK; }

void dev_copy_begin(struct device *d, enum dev_way way, const struct dev_run *run, uint32_t n)
{
    if (copy_ops(d)) {
        copy_ops(d)->begin(d, way, run, n);
        return;
    }
    for (const struct dev_run *r = run; r < run + n; r++)
        for (size_t i = 0; i < r->n; i++) {
            char *dev = (char *)r->dev + i * r->dev_step, *host = (char *)r->host + i * r->host_step;
            if (way == DEV_UP)
                copy_stream(dev, host, r->bytes);
            else
                memcpy(host, dev, r->bytes); /* its digest is made next, from the cache */
        }
}

enum status dev_copy_done(struct device *d, enum dev_way way)
{
    return copy_ops(d) ? copy_ops(d)->done(d, way) : ST_OK;
}
bool dev_pin(struct device *d, void *host, size_t bytes) { return !copy_ops(d) || copy_ops(d)->pin(d, host, bytes); }
bool dev_reaches(struct device *d, const void *host) { return !copy_ops(d) || copy_ops(d)->reaches(d, host); }
void dev_unpin(struct device *d, void *host)
{
    if (copy_ops(d)) copy_ops(d)->unpin(d, host);
}
