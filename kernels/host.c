#include "kernels/host.h"
#include "base/check.h"
#include "base/log.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { HOST_ALIGN = 256 }; /* as every device: a plan made for one holds on another */

static uint64_t ids_bytes(uint32_t n) { return ((uint64_t)n * 4 + HOST_ALIGN - 1) / HOST_ALIGN * HOST_ALIGN; }

uint64_t host_step_bytes(const struct device *d, const struct dev_limits *lim)
{
    (void)d;
    return ids_bytes(lim->rows_max) + ids_bytes(lim->hist_max) + ids_bytes(lim->seqs_max);
}

enum status host_init(struct host_dev *h, const struct dev_cfg *cfg, const struct dev_ops *ops,
                      uint64_t (*weight_bytes)(enum dtype t, uint32_t n, uint32_t k))
{
    size_t size = (cfg->arena_bytes + HOST_ALIGN - 1) / HOST_ALIGN * HOST_ALIGN;
    if (size == 0) size = HOST_ALIGN;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        LOG_ERROR("dev: the system refuses an arena of %zu bytes: %s, cannot start", size, strerror(errno));
        return ST_NOMEM;
    }
    (void)madvise(base, size, MADV_HUGEPAGE); /* speed only */
    *h = (struct host_dev){ .impl = { .dev = { .ops = ops, .act = DT_F32, .rank = cfg->rank, .n_rank = cfg->n_rank },
                                      .weight_bytes = weight_bytes,
                                      .step_bytes = host_step_bytes,
                                      .map = &host_map_ops },
                            .base = base,
                            .size = size,
                            .group = cfg->group };
    return ST_OK;
}

void host_free(struct host_dev *h)
{
    if (h->base) munmap(h->base, h->size);
    h->base = NULL;
}

enum status host_alloc(struct device *d, size_t bytes, void **out)
{
    struct host_dev *h = (struct host_dev *)d;
    if (bytes > h->size - h->used) {
        LOG_ERROR("dev: %zu bytes needed, %zu of %zu left in the arena", bytes, h->size - h->used, h->size);
        return ST_NOMEM;
    }
    *out = h->base + h->used;
    h->used += bytes;
    h->used = (h->used + HOST_ALIGN - 1) / HOST_ALIGN * HOST_ALIGN; /* size is a multiple too */
    return ST_OK;
}

size_t host_free_bytes(const struct device *d)
{
    const struct host_dev *h = (const struct host_dev *)d;
    return h->size - h->used;
}

void host_to_device(struct device *d, void *dst, const void *host, size_t bytes)
{
    (void)d;
    if (bytes) memcpy(dst, host, bytes);
}

void host_to_host(struct device *d, void *host, const void *src, size_t bytes)
{
    (void)d;
    if (bytes) memcpy(host, src, bytes);
}

enum status host_sync(struct device *d) { return ((struct host_dev *)d)->lost ? ST_DEVICE : ST_OK; }

/* ---- steps: the device reads what the host wrote, and has done everything when an op returns */

enum status host_step_init(struct device *d, const struct dev_limits *lim)
{
    struct host_dev *h = (struct host_dev *)d;
    void            *p;
    enum status      st = host_alloc(d, host_step_bytes(d, lim), &p);
    if (st) return st;
    h->id = p;
    h->seqs_max = lim->seqs_max;
    h->hist = h->id + ids_bytes(lim->rows_max) / 4;
    h->drawn = h->hist + ids_bytes(lim->hist_max) / 4;
    return ST_OK;
}

static const uint32_t *patched(const struct host_dev *h, uint32_t *copy, const uint32_t *from, uint32_t n,
                               const struct dev_patch *p, uint32_t n_patch)
{
    if (!n_patch) return from;
    memcpy(copy, from, n * sizeof *copy);
    for (uint32_t i = 0; i < n_patch; i++) copy[p[i].at] = h->drawn[p[i].from] == UINT32_MAX ? 0 : h->drawn[p[i].from];
    return copy;
}

enum dev_graph host_step_begin(struct device *d, const struct dev_step *s, struct dev_step *on)
{
    struct host_dev *h = (struct host_dev *)d;
    *on = *s;
    on->b.id = patched(h, h->id, s->b.id, s->b.n_row, s->patch_id, s->n_patch_id);
    on->hist = patched(h, h->hist, s->hist, s->n_hist, s->patch_hist, s->n_patch_hist);
    return DEV_EAGER;
}

/* The arrays of `on` are those that the host has written. */
enum dev_graph host_step_cut(struct device *d, const struct dev_step *s, struct dev_step *on)
{
    (void)d;
    (void)s;
    (void)on;
    return DEV_EAGER;
}

bool host_step_end(struct device *d, const struct dev_step *s, const struct dev_step *on)
{
    (void)on;
    struct host_dev *h = (struct host_dev *)d;
    CHECK(s->n_sample <= h->seqs_max);
    /* A copy: after step_wait the array is the host's, and the next step may begin later than that. */
    if (s->n_sample && !h->lost) memcpy(h->drawn, s->out.id, s->n_sample * sizeof *h->drawn);
    return true;
}

enum status host_step_wait(struct device *d, const struct dev_step *s)
{
    (void)s;
    return host_sync(d);
}

void host_gather(struct device *d, void *out, const void *x, const uint32_t *row, uint32_t n, uint32_t dim)
{
    (void)d;
    size_t bytes = dim * sizeof(float);
    for (uint32_t i = 0; i < n; i++) {
        if (row[i] == UINT32_MAX)
            memset((char *)out + i * bytes, 0, bytes);
        else
            memcpy((char *)out + i * bytes, (const char *)x + row[i] * bytes, bytes);
    }
}

void host_state(struct device *d, float *out, const void *x, size_t n)
{
    (void)d;
    memcpy(out, x, n * sizeof *out);
}

void host_columns(struct device *d, void *out, const void *x, const uint32_t *column, uint32_t n, uint32_t k)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        const float *from = (const float *)x + (size_t)i * k;
        float       *to = (float *)out + (size_t)i * k;
        for (uint32_t j = 0; j < k; j++) to[j] = from[column[j]];
    }
}

void host_block_copy(struct device *d, const struct dev_kv *kv, const uint32_t *src, const uint32_t *dst, uint32_t n)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(src[i] < kv->n_block + kv->n_guest);
        CHECK(dst[i] < kv->n_block);
        if (src[i] == dst[i]) continue;
        memcpy((char *)kv->base + dst[i] * kv->block_bytes, dev_kv_block(kv, src[i]), kv->block_bytes);
    }
}

/* Each rank sums its own slice of all the arrays, in rank order, and writes it to all of them. */
void host_allreduce(struct device *d, void *x, size_t n)
{
    struct host_dev *h = (struct host_dev *)d;
    if (d->n_rank == 1) return;
    if (h->lost) return;
    group_publish(h->group, d->rank, x, n);
    if (!group_meet(h->group)) goto lost;
    size_t begin = n * d->rank / d->n_rank, end = n * (d->rank + 1) / d->n_rank;
    enum { TILE = 256 };
    float sum[TILE];
    for (size_t i = begin; i < end; i += TILE) {
        size_t t = end - i < TILE ? end - i : TILE;
        memcpy(sum, (float *)group_peek(h->group, 0, n) + i, t * sizeof *sum);
        for (uint32_t r = 1; r < d->n_rank; r++) {
            const float *y = (const float *)group_peek(h->group, r, n) + i;
            for (size_t j = 0; j < t; j++) sum[j] += y[j];
        }
        for (uint32_t r = 0; r < d->n_rank; r++) memcpy((float *)group_peek(h->group, r, n) + i, sum, t * sizeof *sum);
    }
    if (!group_meet(h->group)) goto lost;
    return;
lost:
    h->lost = true;
}

void host_broadcast(struct device *d, void *x, size_t bytes)
{
    struct host_dev *h = (struct host_dev *)d;
    if (d->n_rank == 1 || h->lost) return;
    group_publish(h->group, d->rank, x, bytes);
    if (!group_meet(h->group)) goto lost;
    const void *from = group_peek(h->group, 0, bytes);
    if (from != x) memcpy(x, from, bytes);
    if (!group_meet(h->group)) goto lost;
    return;
lost:
    h->lost = true;
}

void host_allgather(struct device *d, float *out, const float *x, uint32_t m, uint32_t n_local)
{
    struct host_dev *h = (struct host_dev *)d;
    size_t           bytes = n_local * sizeof *x;
    if (d->n_rank == 1) {
        memcpy(out, x, m * bytes);
        return;
    }
    if (h->lost) return;
    union {
        const float *in;
        void        *any;
    } mine = { .in = x }; /* read only on the other side too */
    group_publish(h->group, d->rank, mine.any, (size_t)m * n_local);
    if (!group_meet(h->group)) goto lost;
    for (uint32_t r = 0; r < d->n_rank; r++) {
        const float *y = group_peek(h->group, r, (size_t)m * n_local);
        for (uint32_t i = 0; i < m; i++)
            memcpy(out + ((size_t)i * d->n_rank + r) * n_local, y + (size_t)i * n_local, bytes);
    }
    if (!group_meet(h->group)) goto lost;
    return;
lost:
    h->lost = true;
}
