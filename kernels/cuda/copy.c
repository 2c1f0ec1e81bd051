/* copy: KV between the GPU and host memory while steps run, by the copy engines: they take no SM from a step, and
 * nothing from a throughput that never hits (DMA beats a copy kernel from half a megabyte on, and a block is that
 * large).
 *
 * One stream for each way, so a load never stands behind a store and both directions of the link are used; in order,
 * and an event behind each copy. All copies are cudaMemcpyAsync in the order of their stream: nothing is read before it
 * is told to be, which is what the batch call with the access order "any" gets wrong. Errors: one that does not stick
 * fails its copy alone, whose rest is waited for; what sticks, or does not end, gives the device up like an error of a
 * step. */
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/cuda/cuda.h"
#include <stdatomic.h>
#include <stdlib.h>

struct copy_flight {
    cudaEvent_t done;
    uint64_t    begun_us;
    bool        failed;
};
struct way {
    cudaStream_t       stream;
    struct copy_flight flight[DEV_COPIES_MAX];
    uint64_t           begun, ended;
};
struct cuda_copy {
    struct way   way[DEV_WAYS];
    _Atomic bool told; /* that one failed */
};

static bool is_lost(struct cuda_dev *d) { return __atomic_load_n(&d->lost, __ATOMIC_RELAXED); }

static enum status copy_open(struct device *dev)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct cuda_copy *c = d->copy = calloc(1, sizeof *c);
    cudaError_t       e = c ? cudaSetDevice(d->ordinal) : cudaErrorMemoryAllocation;
    for (int w = 0; w < DEV_WAYS && e == cudaSuccess; w++) {
        e = cudaStreamCreateWithFlags(&c->way[w].stream, cudaStreamNonBlocking);
        for (int i = 0; i < DEV_COPIES_MAX && e == cudaSuccess; i++)
            e = cudaEventCreateWithFlags(&c->way[w].flight[i].done, cudaEventDisableTiming);
    }
    if (e == cudaSuccess) return ST_OK;
    (void)cudaGetLastError();
    LOG_ERROR("dev: gpu %d: no streams for KV copies: %s (%s)", d->ordinal, cuda_meaning(e), cudaGetErrorName(e));
    cuda_copy_free(d);
    return ST_DEVICE;
}

void cuda_copy_free(struct cuda_dev *d)
{
    struct cuda_copy *c = d->copy;
    if (!c) return;
    d->copy = NULL;
    for (int w = 0; w < DEV_WAYS; w++) {
        if (c->way[w].stream) (void)cudaStreamSynchronize(c->way[w].stream);
        for (int i = 0; i < DEV_COPIES_MAX; i++)
            if (c->way[w].flight[i].done) (void)cudaEventDestroy(c->way[w].flight[i].done);
        if (c->way[w].stream) (void)cudaStreamDestroy(c->way[w].stream);
    }
    (void)cudaGetLastError();
    free(c);
}

static cudaError_t run_begin(const struct dev_run *r, enum dev_way way, cudaStream_t s)
{
    enum cudaMemcpyKind kind = way == DEV_UP ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    void               *dst = way == DEV_UP ? r->dev : r->host;
    const void         *src = way == DEV_UP ? r->host : r->dev;
    if (r->n == 1) return cudaMemcpyAsync(dst, src, r->bytes, kind, s);
    size_t dst_step = way == DEV_UP ? r->dev_step : r->host_step, src_step = way == DEV_UP ? r->host_step : r->dev_step;
    return cudaMemcpy2DAsync(dst, dst_step, src, src_step, r->bytes, r->n, kind, s); /* one command for all pieces */
}

/* Does the error stay? Then every call returns it. */
static bool sticks(struct way *w)
{
    (void)cudaGetLastError();
    cudaError_t e = cudaStreamQuery(w->stream);
    (void)cudaGetLastError();
    return e != cudaSuccess && e != cudaErrorNotReady;
}

static void failed(struct cuda_dev *d, struct way *w, struct copy_flight *f, cudaError_t e)
{
    f->failed = true;
    if (sticks(w))
        cuda_give_up(d, e, "a KV copy");
    else if (!atomic_exchange(&d->copy->told, true)) /* once: what repeats is in the metrics */
        LOG_WARN("dev: gpu %d: a KV copy failed: %s (%s), what it carried is computed again", d->ordinal,
                 cuda_meaning(e), cudaGetErrorName(e));
}

static void copy_begin(struct device *dev, enum dev_way way, const struct dev_run *run, uint32_t n)
{
    struct cuda_dev *d = cuda_of(dev);
    CHECK(d->copy);
    struct way         *w = &d->copy->way[way];
    struct copy_flight *f = &w->flight[w->begun % DEV_COPIES_MAX];
    CHECK(w->begun - w->ended < DEV_COPIES_MAX);
    w->begun++;
    f->failed = false;
    f->begun_us = clock_us();
    if (is_lost(d)) return;
    cudaError_t e = cudaSetDevice(d->ordinal);
    for (uint32_t i = 0; i < n && e == cudaSuccess; i++) e = run_begin(&run[i], way, w->stream);
    if (e != cudaSuccess) failed(d, w, f, e);
    if (is_lost(d)) return;
    e = cudaEventRecord(f->done, w->stream); /* behind what was begun, whatever came of the rest */
    if (e != cudaSuccess) cuda_give_up(d, e, "the end of a KV copy");
}

static enum status copy_done(struct device *dev, enum dev_way way)
{
    struct cuda_dev    *d = cuda_of(dev);
    struct way         *w = &d->copy->way[way];
    struct copy_flight *f = &w->flight[w->ended % DEV_COPIES_MAX];
    CHECK(w->ended < w->begun);
    cudaError_t e = cudaErrorNotReady;
    if (!is_lost(d) && (e = cudaSetDevice(d->ordinal)) == cudaSuccess) e = cudaEventQuery(f->done);
    if (e == cudaErrorNotReady) (void)cudaGetLastError();
    if (e != cudaSuccess && e != cudaErrorNotReady) cuda_give_up(d, e, "a KV copy");
    if (!is_lost(d) && e == cudaErrorNotReady && clock_us() - f->begun_us > d->wait_limit_us) {
        __atomic_store_n(&d->hung, true, __ATOMIC_RELAXED);
        cuda_give_up(d, cudaErrorLaunchTimeout, "a KV copy that does not end");
    }
    if (!is_lost(d) && e == cudaErrorNotReady) return ST_AGAIN;
    w->ended++;
    if (is_lost(d)) return ST_DEVICE;
    return f->failed ? ST_IO : ST_OK;
}

/* Portable: one registration serves the GPUs of all ranks. In one piece, so that no copy ever crosses a border between
 * two. */
static bool copy_pin(struct device *dev, void *host, size_t bytes)
{
    struct cuda_dev *d = cuda_of(dev);
    cudaError_t      e = cudaSetDevice(d->ordinal);
    if (e == cudaSuccess) e = cudaHostRegister(host, bytes, cudaHostRegisterPortable);
    if (e == cudaSuccess) return true;
    (void)cudaGetLastError();
    LOG_WARN(
        "dev: gpu %d: %zu MiB of host memory for KV cannot be pinned: %s (ulimit -l?); copies go through the driver's buffers, slower",
        d->ordinal, bytes >> 20, cudaGetErrorName(e));
    return false;
}

static void copy_unpin(struct device *dev, void *host)
{
    struct cuda_dev *d = cuda_of(dev);
    if (d->hung) return; /* it would wait for ever */
    if (cudaSetDevice(d->ordinal) == cudaSuccess) (void)cudaHostUnregister(host);
    (void)cudaGetLastError();
}

/* A kernel reads pageable memory by itself only through the host's page tables: where it would migrate to the GPU
 * instead, its latency cannot be told. Pinned memory has one address for host and GPU where the driver says so. */
static bool copy_reaches(struct device *dev, const void *host)
{
    struct cuda_dev             *d = cuda_of(dev);
    int                          tables = 0, same = 0;
    struct cudaPointerAttributes a = { .type = cudaMemoryTypeUnregistered };
    cudaError_t                  e = cudaSetDevice(d->ordinal);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, d->ordinal);
    if (e == cudaSuccess && host)
        e = cudaDeviceGetAttribute(&same, cudaDevAttrCanUseHostPointerForRegisteredMem, d->ordinal);
    if (e == cudaSuccess && same) e = cudaPointerGetAttributes(&a, host);
    (void)cudaGetLastError();
    return e == cudaSuccess && (tables || (same && a.type == cudaMemoryTypeHost && a.devicePointer == host));
}

const struct dev_copy_ops cuda_copy_ops = { copy_open, copy_begin, copy_done, copy_pin, copy_unpin, copy_reaches };
