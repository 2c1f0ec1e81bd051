/* window: takes the memory, and gives it out. Registering is comm.c's. */
#include "kernels/cuda/window.h"
#include "base/log.h"
#include "kernels/cuda/comm.h"
#include <stdio.h>
#include <stdlib.h>

enum {
    GRANULE = 2 << 20, /* of the driver's mapping: what NCCL's MemAlloc rounds up to */
    /* that it may round up further (the granule of a multicast is the driver's): what device.c keeps free for it */
    EXCESS_MAX = 512 << 20
};

uint64_t cuda_window_bytes(const struct dev_cfg *cfg)
{
    if (!cfg->reduced_bytes || cfg->symmetric == DEV_SYMMETRIC_OFF || !cuda_comm_may_nccl(cfg)) return 0;
    return (WINDOW_STAGE + cfg->reduced_bytes + GRANULE - 1) / GRANULE * GRANULE;
}

/* Memory of NCCL's, as long as it does not take much more than what was planned. */
static bool take_nccl(struct cuda_dev *d, struct cuda_window *w)
{
    size_t                 before = 0, after = 0, total;
    void                  *p = NULL;
    char                   why[180];
    const struct nccl_api *api = nccl_api_get(why, sizeof why);
    if (!api || !nccl_has_windows(api, why, sizeof why)) {
        snprintf(w->why, sizeof w->why, "%s", why);
        return false;
    }
    bool known = cudaMemGetInfo(&before, &total) == cudaSuccess;
    int  r = api->MemAlloc(&p, w->bytes);
    if (r != NCCL_OK || !p) {
        (void)cudaGetLastError();
        snprintf(w->why, sizeof w->why, "gpu %d: NCCL gives no %zu bytes: %s", d->ordinal, w->bytes,
                 api->GetErrorString(r));
        return false;
    }
    known = known && cudaMemGetInfo(&after, &total) == cudaSuccess;
    if (known && before > after && before - after > w->bytes + EXCESS_MAX) {
        snprintf(w->why, sizeof w->why, "gpu %d: for %zu bytes NCCL takes %zu", d->ordinal, w->bytes, before - after);
        (void)api->MemFree(p);
        return false;
    }
    w->base = p;
    w->from = api;
    return true;
}

enum status cuda_window_open(struct cuda_dev *d, const struct dev_cfg *cfg)
{
    size_t bytes = (size_t)cuda_window_bytes(cfg);
    if (!bytes) return ST_OK;
    struct cuda_window *w = d->window = calloc(1, sizeof *w);
    if (!w) return ST_NOMEM;
    w->bytes = bytes;
    w->size = (size_t)cfg->reduced_bytes;
    if (cfg->plan_only || take_nccl(d, w)) return ST_OK;
    void       *p = NULL;
    cudaError_t e = cudaMalloc(&p, bytes);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        LOG_ERROR("dev: gpu %d: %zu bytes of GPU memory needed for what ranks add up: %s, cannot start", d->ordinal,
                  bytes, cudaGetErrorName(e));
        return ST_NOMEM;
    }
    w->base = p;
    return ST_OK;
}

void cuda_window_close(struct cuda_dev *d)
{
    struct cuda_window *w = d->window;
    if (!w) return;
    if (w->base && w->from)
        (void)w->from->MemFree(w->base);
    else if (w->base)
        (void)cudaFree(w->base);
    free(w);
    d->window = NULL;
}

enum status cuda_alloc_reduced(struct device *dev, size_t bytes, void **out)
{
    struct cuda_dev    *d = cuda_of(dev);
    struct cuda_window *w = d->window;
    if (!w) return cuda_alloc(dev, bytes, out);
    if (bytes > w->size - w->used) {
        LOG_ERROR("dev: gpu %d: %zu bytes needed for what ranks add up, %zu of %zu are left", d->ordinal, bytes,
                  w->size - w->used, w->size);
        return ST_NOMEM;
    }
    *out = w->base ? w->base + WINDOW_STAGE + w->used : NULL; /* NULL: plan_only */
    w->used += (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    if (w->used > w->size) w->used = w->size;
    if (!w->base || !bytes) return ST_OK;
    cuda_bind(d);
    return cuda_ok(d, cudaMemsetAsync(*out, 0, bytes, d->stream), "clearing memory") ? ST_OK : ST_DEVICE;
}
