/* device: which implementation dev_open means, and what does not depend on one. */
#include "kernels/device.h"
#include "base/check.h"
#include "base/log.h"
#include "kernels/impl.h"
#include <stdio.h>

enum status dev_open(const struct dev_cfg *cfg, struct device **d_out)
{
    struct dev_cfg c = *cfg;
    if (c.n_rank == 0) c.n_rank = 1;
    if (c.rank >= c.n_rank || (c.n_rank > 1 && (!c.group || group_n_rank(c.group) != c.n_rank))) {
        LOG_ERROR("dev: rank %u of %u does not fit its group, cannot start", c.rank, c.n_rank);
        return ST_CONFIG;
    }
    switch (c.kind) {
    case DEV_REF: return ref_open(&c, d_out);
    case DEV_CPU: return cpu_open(&c, d_out);
#ifdef WITH_CUDA
    case DEV_CUDA: return cuda_open(&c, d_out);
    case DEV_AUTO: return cuda_open(&c, d_out) == ST_OK ? ST_OK : cpu_open(&c, d_out);
#else
    case DEV_CUDA: LOG_ERROR("dev: this build has no cuda device, cannot start"); return ST_CONFIG;
    case DEV_AUTO: return cpu_open(&c, d_out);
#endif
    }
    LOG_ERROR("dev: no device of kind %d, cannot start", (int)c.kind);
    return ST_CONFIG;
}

void dev_close(struct device *d)
{
    if (d) d->ops->close(d);
}

uint64_t dev_kv_block_bytes(enum dtype t, uint32_t n_layer, uint32_t n_kv_head, uint32_t block_tokens, uint32_t head_dim)
{
    return (uint64_t)n_layer * 2 * n_kv_head * block_tokens * head_dim * dtype_bytes(t);
}

uint64_t dev_weight_bytes(const struct device *d, enum dtype t, uint32_t n, uint32_t k)
{
    return ((const struct dev_impl *)d)->weight_bytes(t, n, k);
}

uint64_t dev_step_bytes(const struct device *d, const struct dev_limits *lim)
{
    const struct dev_impl *i = (const struct dev_impl *)d;
    return i->step_bytes ? i->step_bytes(d, lim) : 0;
}

uint32_t dev_list(struct dev_info *out, uint32_t max, char *why, size_t why_bytes)
{
#ifdef WITH_CUDA
    return cuda_list(out, max, why, why_bytes);
#else
    (void)out, (void)max;
    snprintf(why, why_bytes, "this build has no cuda device");
    return 0;
#endif
}
