/* impl: the beginning of every device's struct, and the functions that dev_open calls.   Private to kernels/. */
#pragma once
#include "kernels/device.h"

struct dev_impl {
    struct device dev; /* first: the public face */
    uint64_t (*weight_bytes)(enum dtype t, uint32_t n, uint32_t k);
    uint64_t (*quant_bytes)(const struct dev_quant *q, uint32_t n, uint32_t k);   /* NULL: plain weights only */
    uint64_t (*step_bytes)(const struct device *d, const struct dev_limits *lim); /* NULL: 0 */
    void (*graphs)(const struct device *d, struct dev_graphs *out);               /* as dev_graphs; NULL: none */
    bool (*step_times)(struct device *d, struct dev_times *out);                  /* NULL: cannot tell */
    double (*time)(struct device *d, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg); /* NULL: NAN */
    double (*probe)(struct device *d, enum dev_probe what);                                     /* NULL: cannot tell */
    /* as dev_weight_fill; NULL: it makes rows on the host for weight_set */
    void (*weight_fill)(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, uint64_t seed,
                        uint64_t src_row, uint64_t src_col, uint64_t src_len, float std);
    size_t (*doing)(const struct device *d, uint64_t now_us, char *text,
                    size_t text_bytes);                           /* as dev_doing; NULL: cannot tell */
    bool (*place)(const struct device *d, struct dev_place *out); /* as dev_place; NULL: no GPU */
    void (*touch)(struct device *d, void *at, size_t bytes);      /* as dev_touch; NULL: no-op */
    /* as dev_arith; writes text [bytes] */
    void (*arith)(const struct device *d, enum dtype weights, const struct dev_quant *q, enum dtype kv, char *text,
                  size_t bytes);
    const struct dev_copy_ops *copy; /* NULL: the device uses the process's own memory */
    const struct dev_map_ops  *map;  /* NULL: its weights cannot be kept in a file */
};
struct dev_map_ops { /* as dev_weight_form, dev_map, dev_unmap */
    uint64_t (*form)(struct device *d, enum dtype t, const struct dev_quant *q);
    bool (*map)(struct device *d, void *at, size_t bytes, int fd, uint64_t offset);
    enum status (*unmap)(struct device *d, void *at, size_t bytes);
};
struct dev_copy_ops { /* as dev_copy_open ... dev_unpin, dev_reaches */
    enum status (*open)(struct device *d);
    void (*begin)(struct device *d, enum dev_way way, const struct dev_run *run, uint32_t n);
    enum status (*done)(struct device *d, enum dev_way way);
    bool (*pin)(struct device *d, void *host, size_t bytes);
    void (*unpin)(struct device *d, void *host);
    bool (*reaches)(struct device *d, const void *host);
};

/* Open one device of each kind (dev_open); *d_out is the caller's, who ends it by its close. ST_CONFIG, ST_NOMEM or
 * ST_DEVICE, logged: */
enum status ref_open(const struct dev_cfg *cfg, struct device **d_out);
enum status cpu_open(const struct dev_cfg *cfg, struct device **d_out);
#ifdef WITH_CUDA
/* The same of a GPU, and what dev_list, dev_comm_id and dev_tune ask of this kind: */
enum status cuda_open(const struct dev_cfg *cfg, struct device **d_out);
bool        cuda_serves(char *why, size_t why_bytes); /* true if a usable GPU is there; makes no context */
uint32_t    cuda_list(struct dev_info *out, uint32_t max, char *why, size_t why_bytes);
enum status cuda_comm_id(unsigned char id_out[DEV_COMM_ID]);
enum status cuda_tune(const struct dev_tune_cfg *cfg, char *out_path, size_t out_path_bytes);
#endif

/* True if the layer's part of a block has the size that op_qkv and op_attn need for these heads. */
static inline bool kv_holds_heads(const struct dev_kv *kv, uint32_t layer, uint32_t n_kv_head, uint32_t head_dim)
{
    return layer < kv->n_layer &&
           kv->layer[layer].bytes == kv->block_tokens * dev_kv_heads_bytes(kv->dtype, n_kv_head, head_dim);
}

/* Heads of a row of op_attn.qkv. */
static inline uint32_t op_attn_heads(const struct op_attn *o)
{
    return o->q_only ? o->n_head : o->n_head + 2 * o->n_kv_head;
}

/* group: each rank publishes a pointer and its size, meets the others, and then reads theirs. Ranks are threads of one
 * process; `rank` counts from 0 within it. */
uint32_t group_n_rank(const struct dev_group *g);
void     group_publish(struct dev_group *g, uint32_t rank, void *x, size_t n);
void    *group_peek(const struct dev_group *g, uint32_t rank, size_t n); /* CHECKs that the sizes agree */
bool     group_meet(struct dev_group *g);                                /* false: the group was aborted */
/* One common decision of the ranks, once in a group's life. Each rank casts its result, then polls until the verdict is
 * not OPEN. v: from rank 0, which asks it for the verdict of all nodes; NULL: all ranks are in the group. FAILED if two
 * ranks differ. */
void            group_cast(struct dev_group *g, enum dev_ballot mine);
enum dev_ballot group_verdict(struct dev_group *g, uint32_t rank, uint32_t n_rank, const struct dev_vote *v,
                              unsigned char id_out[DEV_COMM_ID]);
bool            group_aborted(const struct dev_group *g);
/* True for the first caller, which logs why all ranks are lost; the others log nothing. */
bool group_blame(struct dev_group *g);
/* Registers fn(ctx), which is called when the group is aborted, or at once if it already was. fn NULL: unregisters;
 * after the return no call is running. */
void group_at_abort(struct dev_group *g, uint32_t rank, void (*fn)(void *ctx), void *ctx);
