/* impl: what every device begins with, and the doors that dev_open knows.   Private to kernels/. */
#pragma once
#include "kernels/device.h"

struct dev_impl {
    struct device dev; /* first: the public face */
    uint64_t (*weight_bytes)(enum dtype t, uint32_t n, uint32_t k);
    uint64_t (*quant_bytes)(const struct dev_quant *q, uint32_t n, uint32_t k);   /* NULL: plain weights only */
    uint64_t (*step_bytes)(const struct device *d, const struct dev_limits *lim); /* NULL: 0 */
    bool (*step_times)(struct device *d, struct dev_times *out);                  /* NULL: cannot tell */
    double (*time)(struct device *d, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg); /* NULL: NAN */
    double (*probe)(struct device *d, enum dev_probe what);                                     /* NULL: cannot tell */
    /* as dev_weight_fill; NULL: it makes rows on the host for weight_set */
    void (*weight_fill)(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, uint64_t seed,
                        uint64_t src_row, uint64_t src_col, uint64_t src_len, float std);
    size_t (*doing)(const struct device *d, uint64_t now_us, char *text,
                    size_t text_bytes);                      /* as dev_doing; NULL: cannot tell */
    void (*touch)(struct device *d, void *at, size_t bytes); /* as dev_touch; NULL: nothing is to be done */
    /* as dev_arith; bytes of text */
    void (*arith)(const struct device *d, enum dtype weights, const struct dev_quant *q, enum dtype kv, char *text,
                  size_t bytes);
    const struct dev_copy_ops *copy; /* NULL: its memory is the process's own */
    const struct dev_map_ops  *map;  /* NULL: no file may hold its weights */
};
struct dev_map_ops { /* as dev_weight_form, dev_map, dev_unmap */
    uint64_t (*form)(struct device *d, enum dtype t, const struct dev_quant *q);
    bool (*map)(struct device *d, void *at, size_t bytes, int fd, uint64_t offset);
    enum status (*unmap)(struct device *d, void *at, size_t bytes);
};
struct dev_copy_ops { /* as dev_copy_open ... dev_unpin */
    enum status (*open)(struct device *d);
    void (*begin)(struct device *d, enum dev_way way, const struct dev_run *run, uint32_t n);
    enum status (*done)(struct device *d, enum dev_way way);
    bool (*pin)(struct device *d, void *host, size_t bytes);
    void (*unpin)(struct device *d, void *host);
};

enum status ref_open(const struct dev_cfg *cfg, struct device **d_out);
enum status cpu_open(const struct dev_cfg *cfg, struct device **d_out);
#ifdef WITH_CUDA
enum status cuda_open(const struct dev_cfg *cfg, struct device **d_out);
bool        cuda_serves(char *why, size_t why_bytes); /* is there a GPU that can? makes no context */
uint32_t    cuda_list(struct dev_info *out, uint32_t max, char *why, size_t why_bytes);
enum status cuda_comm_id(unsigned char id_out[DEV_COMM_ID]);
enum status cuda_tune(const struct dev_tune_cfg *cfg, char *out_path, size_t out_path_bytes);
#endif

/* Do the layer's bytes of a block have the size that op_qkv and op_attn of these heads give them? */
static inline bool kv_holds_heads(const struct dev_kv *kv, uint32_t layer, uint32_t n_kv_head, uint32_t head_dim)
{
    return layer < kv->n_layer &&
           kv->layer[layer].bytes == kv->block_tokens * dev_kv_heads_bytes(kv->dtype, n_kv_head, head_dim);
}

/* group: publish my pointer and size, meet the others, look at theirs. Ranks are threads of one process, counted from 0
 * in it. */
uint32_t group_n_rank(const struct dev_group *g);
void     group_publish(struct dev_group *g, uint32_t rank, void *x, size_t n);
void    *group_peek(const struct dev_group *g, uint32_t rank, size_t n); /* CHECKs that the sizes agree */
bool     group_meet(struct dev_group *g);                                /* false: the group was aborted */
/* One decision of the ranks: each casts what it came to, then looks until the verdict is not OPEN. v: given by rank 0,
 * which asks it; NULL: all ranks are in the group. FAILED where two differ. Once in a group's life. */
void            group_cast(struct dev_group *g, enum dev_ballot mine);
enum dev_ballot group_verdict(struct dev_group *g, uint32_t rank, uint32_t n_rank, const struct dev_vote *v,
                              unsigned char id_out[DEV_COMM_ID]);
bool            group_aborted(const struct dev_group *g);
/* true for the first rank that comes: it says why all are lost, the others are silent */
bool group_blame(struct dev_group *g);
/* fn(ctx) runs once the group is aborted: now, if that was before. fn NULL: no more, and none is running when this
 * returns. */
void group_at_abort(struct dev_group *g, uint32_t rank, void (*fn)(void *ctx), void *ctx);
