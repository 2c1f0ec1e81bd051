/* host: the common part of devices that use the process's own memory: the bounded arena, copies, groups.   Private to
 * kernels/. The arena is one mapping, made at open. alloc only moves a mark; memory is freed at close. */
#pragma once
#include "base/check.h"
#include "kernels/impl.h"
#include <math.h>

/* The factor on q of a row at pos (struct op_qkv). */
static inline float qkv_q_scale(const struct op_qkv *o, uint32_t pos)
{
    return 1 + o->q_beta * logf((float)(1 + (pos + o->q_shift) / o->q_period));
}

struct host_dev {
    struct dev_impl   impl; /* first */
    char             *base;
    size_t            used, size;
    struct dev_group *group;
    uint32_t         *id,
        *hist;       /* [lim.rows_max], [lim.hist_max]: for steps with patches, copies of the arrays that get the ids */
    uint32_t *drawn; /* [seqs_max] the ids of the previous step */
    uint32_t  seqs_max;
    bool      scattered; /* its pages are spread over memory nodes by a policy that a mapped file would not follow */
    bool      lost;      /* the group was aborted: every sync returns ST_DEVICE from now on */
};

/* Maps the arena of cfg and makes the common part; weight_bytes is the device's own. ST_NOMEM with a line in the
 * log. host_free unmaps it. */
enum status host_init(struct host_dev *h, const struct dev_cfg *cfg, const struct dev_ops *ops,
                      uint64_t (*weight_bytes)(enum dtype t, uint32_t n, uint32_t k));
void        host_free(struct host_dev *h);

extern const struct dev_map_ops host_map_ops; /* image.c */

/* Entries of dev_ops, which kernels/device.h describes: */
enum status    host_alloc(struct device *d, size_t bytes, void **out);
uint64_t       host_step_bytes(const struct device *d, const struct dev_limits *lim);
size_t         host_free_bytes(const struct device *d);
void           host_to_device(struct device *d, void *dst, const void *host, size_t bytes);
void           host_to_host(struct device *d, void *host, const void *src, size_t bytes);
enum status    host_sync(struct device *d);
enum status    host_step_init(struct device *d, const struct dev_limits *lim);
enum dev_graph host_step_begin(struct device *d, const struct dev_step *s, struct dev_step *on);
enum dev_graph host_step_cut(struct device *d, const struct dev_step *s, struct dev_step *on);
bool           host_step_end(struct device *d, const struct dev_step *s, const struct dev_step *on);
enum status    host_step_wait(struct device *d, const struct dev_step *s);
void           host_gather(struct device *d, void *out, const void *x, const uint32_t *row, uint32_t n, uint32_t dim);
void           host_state(struct device *d, float *out, const void *x, size_t n);
void           host_columns(struct device *d, void *out, const void *x, const uint32_t *column, uint32_t n, uint32_t k);
void host_block_copy(struct device *d, const struct dev_kv *kv, const uint32_t *src, const uint32_t *dst, uint32_t n);
void host_allreduce(struct device *d, void *x, size_t n);
void host_broadcast(struct device *d, void *x, size_t bytes);
void host_allgather(struct device *d, float *out, const float *x, uint32_t m, uint32_t n_local);

/* The slot of row i of an op_lora; NONE: nothing is added to that row. */
#define HOST_LORA_NONE UINT32_MAX
static inline uint32_t host_lora_slot(const struct op_lora *o, uint32_t i)
{
    uint32_t at = o->row ? o->row[i] : i;
    if (at == UINT32_MAX || !o->adapter[at]) return HOST_LORA_NONE;
    uint32_t slot = o->adapter[at] - 1;
    CHECK(slot < o->w->n_slot);
    return o->w->scale[slot] != 0 ? slot : HOST_LORA_NONE;
}

/* Where the key of a token begins in the bytes of a layer. */
static inline size_t kv_row_at(const struct dev_kv *kv, uint32_t head, uint32_t token, uint32_t head_dim)
{
    return head * (size_t)kv->block_tokens * dev_kv_heads_bytes(kv->dtype, 1, head_dim) / 2 +
           token * (size_t)head_dim * dtype_bytes(kv->dtype);
}
/* Address of the key [head_dim] of a token of a block, in a layer of grouped heads. Its value is kv_value_bytes
 * further. */
/* For writing: of a block of the pool. */
static inline char *kv_key(const struct dev_kv *kv, uint32_t block, uint32_t layer, uint32_t head, uint32_t token,
                           uint32_t head_dim)
{
    return (char *)kv->base + block * kv->block_bytes + kv->layer[layer].offset + kv_row_at(kv, head, token, head_dim);
}
/* For reading: of any block. */
static inline const char *kv_key_read(const struct dev_kv *kv, uint32_t block, uint32_t layer, uint32_t head,
                                      uint32_t token, uint32_t head_dim)
{
    return dev_kv_block(kv, block) + kv->layer[layer].offset + kv_row_at(kv, head, token, head_dim);
}
static inline size_t kv_value_bytes(const struct dev_kv *kv, uint32_t layer) { return kv->layer[layer].bytes / 2; }
