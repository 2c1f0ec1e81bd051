/* host: what devices whose memory is the process's own share: the bounded arena, copies, groups.   Private to kernels/.
 * The arena is one mapping taken at open; alloc only moves a mark, nothing is given back before close. */
#pragma once
#include "kernels/impl.h"

struct host_dev {
    struct dev_impl   impl; /* first */
    char             *base;
    size_t            used, size;
    struct dev_group *group;
    uint32_t         *id, *hist; /* of a step with patches: copies to patch; [lim.rows_max], [lim.hist_max] */
    uint32_t         *drawn;     /* the ids of the step before; [seqs_max] */
    uint32_t          seqs_max;
    bool              scattered; /* its pages lie on several memory nodes by a policy that a file's pages would not follow */
    bool              lost;      /* the group was aborted: every sync says ST_DEVICE from here on */
};

enum status host_init(struct host_dev *h, const struct dev_cfg *cfg, const struct dev_ops *ops,
                      uint64_t (*weight_bytes)(enum dtype t, uint32_t n, uint32_t k));
void        host_free(struct host_dev *h);

extern const struct dev_map_ops host_map_ops; /* image.c */

/* entries of dev_ops */
enum status    host_alloc(struct device *d, size_t bytes, void **out);
size_t         host_free_bytes(const struct device *d);
void           host_to_device(struct device *d, void *dst, const void *host, size_t bytes);
void           host_to_host(struct device *d, void *host, const void *src, size_t bytes);
enum status    host_sync(struct device *d);
enum status    host_step_init(struct device *d, const struct dev_limits *lim);
enum dev_graph host_step_begin(struct device *d, const struct dev_step *s, struct dev_step *on);
bool           host_step_end(struct device *d, const struct dev_step *s, const struct dev_step *on);
enum status    host_step_wait(struct device *d, const struct dev_step *s);
void           host_gather(struct device *d, void *out, const void *x, const uint32_t *row, uint32_t n, uint32_t dim);
void           host_columns(struct device *d, void *out, const void *x, const uint32_t *column, uint32_t n, uint32_t k);
void           host_block_copy(struct device *d, const struct dev_kv *kv, const uint32_t *src, const uint32_t *dst, uint32_t n);
void           host_allreduce(struct device *d, void *x, size_t n);
void           host_broadcast(struct device *d, void *x, size_t bytes);
void           host_allgather(struct device *d, float *out, const float *x, uint32_t m, uint32_t n_local);

/* The KV slot of position pos of sequence s: its k; its v lies kv_v_offset elements behind. */
static inline size_t kv_v_offset(const struct dev_kv *kv) { return (size_t)kv->n_kv_head * kv->block_tokens * kv->head_dim; }
static inline size_t kv_offset(const struct dev_kv *kv, uint32_t block, uint32_t layer, uint32_t head, uint32_t token)
{
    return (((size_t)block * kv->n_layer + layer) * 2 * kv->n_kv_head + head) * kv->block_tokens * kv->head_dim +
           (size_t)token * kv->head_dim;
}
static inline void *kv_at(const struct dev_kv *kv, size_t offset) { return (char *)kv->base + offset * dtype_bytes(kv->dtype); }
