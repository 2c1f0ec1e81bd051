/* image: weights in the host's memory as bytes of a file: how they are laid out, and a file's pages in their place. */
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "kernels/host.h"
#include "kernels/quant.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The matrix of a form: whole panels and a part of one, groups of every size and a part of one. */
enum { FORM_N = 40, FORM_K = 1100, FORM_BYTES = 1 << 20 };

static uint64_t host_form(struct device *d, enum dtype t, const struct dev_quant *q)
{
    struct host_dev  *h = (struct host_dev *)d;
    struct dev_weight w;
    size_t            mark = h->used;
    if (h->size - h->used < FORM_BYTES || (q && (!d->ops->quant_alloc || !quant_ok(q, FORM_K)))) return 0;
    if (q ? d->ops->quant_alloc(d, q, FORM_N, FORM_K, &w) : d->ops->weight_alloc(d, t, FORM_N, FORM_K, &w)) return 0;
    char *begin = h->base + mark;
    CHECK(h->used - mark <= FORM_BYTES);
    float *x = malloc(sizeof *x * FORM_N * FORM_K);
    CHECK(x);
    for (uint32_t i = 0; i < FORM_N * FORM_K; i++) x[i] = rng_unit(rng_philox(1, 2, i).x[0]) - 0.5f;
    d->ops->weight_set(d, &w, 0, FORM_N, x, FORM_K * sizeof *x, DT_F32);
    free(x);
    uint64_t sum =
        hash_combine(hash_bytes(begin, h->used - mark, 1), hash_bytes(d->ops->name, strlen(d->ops->name), 1));
    memset(begin, 0, h->used - mark); /* as fresh pages are */
    h->used = mark;
    return sum ? sum : 1;
}

static void aligned(const struct host_dev *h, const void *at, size_t bytes)
{
    CHECK((uintptr_t)at % DEV_MAP_ALIGN == 0 && bytes % DEV_MAP_ALIGN == 0);
    CHECK((const char *)at >= h->base && bytes <= h->size && (size_t)((const char *)at - h->base) <= h->size - bytes);
}

static bool host_map(struct device *d, void *at, size_t bytes, int fd, uint64_t offset)
{
    struct host_dev *h = (struct host_dev *)d;
    aligned(h, at, bytes);
    CHECK(offset % DEV_MAP_ALIGN == 0);
    if (h->scattered) return false;
    if (mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == MAP_FAILED) {
        LOG_DEBUG("dev: a file of weights cannot be mapped, it is read: %s", strerror(errno));
        return false;
    }
    (void)madvise(
        at, bytes,
        MADV_HUGEPAGE); /* speed only: ext4 and xfs have pages of 2 MiB where a file was written in such pieces */
    return true;
}

static enum status host_unmap(struct device *d, void *at, size_t bytes)
{
    struct host_dev *h = (struct host_dev *)d;
    aligned(h, at, bytes);
    /* Of scattered memory, which was never mapped over, only the pages go: the policy stays. */
    if (h->scattered && !madvise(at, bytes, MADV_DONTNEED)) return ST_OK;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        LOG_ERROR("dev: the system refuses %zu bytes: %s, cannot start", bytes, strerror(errno));
        return ST_NOMEM;
    }
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    return ST_OK;
}

const struct dev_map_ops host_map_ops = { .form = host_form, .map = host_map, .unmap = host_unmap };
