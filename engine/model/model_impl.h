/* model_impl: the inside of struct model.   Private to engine/model/. Thread: the loading thread writes it, afterwards
 * the rank's thread reads it. */
#pragma once
#include "engine/model/adapter.h"
#include "engine/model/ident.h"
#include "engine/model/model.h"
#include <stdatomic.h>

struct model;
struct kept_rows {
    const uint32_t *row; /* [n] as dev_step.logit_row; in device memory; UINT32_MAX is padding */
    uint32_t        n;
};
struct layer {
    /* m->h [n_row, hidden] -> m->delta [n_row, hidden], summed over the ranks. With keep, the KV of all rows is
     * written, but delta is [keep->n, hidden], for the rows of keep alone; keep->n 0 leaves delta unchanged */
    void (*mix)(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
    void (*ffn)(struct model *m, uint32_t n_row, uint32_t l);
    float *mix_norm, *ffn_norm; /* [hidden]; NULL: the part takes the stream itself */
    float *mix_bias, *ffn_bias; /* [hidden] of mix_norm and ffn_norm; NULL: none */
    float *mix_post, *ffn_post; /* [hidden] of what the part made; NULL: none */
    struct {
        struct dev_weight qkv; /* [(n_head + 2 n_kv_head) head_dim, hidden]: q, k, v rows of this rank */
        struct dev_weight o;   /* [hidden, n_head head_dim]: columns of this rank */
        float            *qkv_bias, *o_bias, *q_norm,
            *k_norm; /* or NULL; [head_dim], or of whole projections; o_bias on rank 0 only, so that the sum contains it once */
        uint32_t *qkv_order, *o_order; /* [k] the input at each place of the matrix; NULL: in their own order */
        uint32_t  window, n_kv_head, head_dim, rot; /* heads of this rank */
        uint32_t  kv_layer;                         /* whose KV it reads; has none of its own if that is another */
        float    *v_norm;                           /* [head_dim] or NULL */
        float     q_beta;                           /* struct op_qkv */
        float    *sinks;                            /* [n_head] or NULL */
        float    *inv_freq;                         /* one of those of struct model; NULL: no rotation */
        bool      local;                            /* it is inv_freq_local */
    } gqa;
    struct {
        struct dev_weight gate_up, down; /* [2 inter, hidden]: gate rows, then up rows; [hidden, inter] */
        uint32_t          inter;         /* of this rank */
        float            *post;          /* [hidden] of what it made, with experts beside it */
        float            *gate_up_bias, *down_bias;
        uint32_t         *gate_up_order, *down_order; /* as above */
    } dense; /* the feed-forward, or the shared expert of a layer with experts */
    struct {
        struct dev_weight  router;         /* [n_expert, hidden], whole on every rank */
        struct dev_weight *gate_up, *down; /* [experts here] of [2 inter, hidden] and [hidden, inter] */
        float             *bias;           /* [n_expert], whole on every rank; or NULL */
        struct dev_weight  shared;         /* [1, hidden], of the shared expert's weight; data NULL: that is 1 */
        /* [n_expert], [experts here, 2 inter] and [experts here, hidden]; or NULL. Of slices rank 0 alone has the last,
         * so that the sum contains it once */
        float *logit_bias, *gate_up_bias, *down_bias;
        /* [hidden], [n_expert], [hidden], [hidden] beside a dense feed-forward */
        float *router_scale, *expert_scale, *norm, *post;
    } moe;
    struct {
        struct dev_weight gate, back; /* [ple_dim, hidden], [hidden, ple_dim]: whole on every rank */
        float            *post;       /* [hidden] */
    } ple;
    float           *scalar; /* [1] on the device; NULL: none */
    float            by;     /* the same */
    struct dev_lora *lora;   /* [LORA_TARGETS], n 0 where there is no such matrix; NULL: no adapters are served */
};

/* What a target of adapters is on one rank: the matrix [n, k], and where this rank's part of an adapter begins. */
struct lora_shape {
    uint32_t n, k;     /* n 0: the layer has no such matrix */
    uint32_t row, col; /* first row of B, first column of A */
    uint32_t k_whole;  /* columns of A over all ranks */
};

struct model {
    struct device *dev;
    /* of this rank */
    uint32_t      n_layer, hidden, n_head, inter, moe_inter, shared_inter, vocab, n_expert, top_k_expert;
    uint32_t      ple_dim; /* as in struct model_spec */
    bool          scalars; /* layers have a scalar */
    bool          qk_norm_late, qk_norm_mean;
    bool          pools;       /* a step's results are the wanted rows' states; there are no head and no logits */
    bool          layernorm;   /* norms take the mean off; their sums go without it */
    bool          parallel;    /* struct model_family */
    bool          norm_stream; /* the same: m->h is then the stream itself, m->x or m->top_x */
    enum op_act   act;
    struct op_moe route; /* how experts are chosen and weighed: the fields that are the same in every layer */
    float         eps, rope_scale;
    uint32_t      q_period, q_shift;
    bool          chunked;   /* struct op_attn */
    uint32_t      n_one;     /* of `ones` */
    float        *ones;      /* [n_one] weights of norms that have none; or NULL */
    float         ple_scale; /* of the tokens' part of ple */
    float         embed_scale, attn_scale, residual_scale, logit_scale; /* as in struct model_spec */
    float *inv_freq, *inv_freq_local; /* [rot / 2], [rot_local / 2] of layers with a window, NULL: as the others */
    float  attn_cap, logit_cap;
    struct layer        *layer;
    struct dev_weight    embed;                   /* [vocab, hidden], whole on every rank */
    struct dev_weight    ple_embed, ple_proj;     /* [vocab, n_layer * ple_dim], [n_layer * ple_dim, hidden], whole */
    float               *ple_norm;                /* [ple_dim] */
    struct dev_weight    pos_embed, type_embed;   /* [context, hidden], from the first position on; data NULL: none */
    struct dev_weight    head;                    /* [vocab or vocab / n_rank, hidden]; data NULL: tied, use embed */
    bool                 head_split;              /* head holds only this rank's rows of the vocabulary */
    float               *norm, *norm_bias;        /* of the head; bias NULL: none */
    float               *embed_norm, *embed_bias; /* of the sum of the embeddings; or NULL */
    struct dev_kv        kv, kv_window;           /* kv_window: of layers with a window; n_block 0: they lie in kv */
    struct dev_kv_layer *kv_layer;                /* [n_layer], of kv */
    uint32_t             rows_max, logit_rows_max;
    /* workspaces of activations, [rows_max, .] and [logit_rows_max, .]. wide: qkv, then gate_up; narrow: output of the
     * attention, then of the gate */
    void *x, *h, *delta, *wide, *narrow, *router, *top_x, *top_delta;
    void *shared; /* [rows_max, hidden] what the shared expert made, or what experts read; or NULL */
    void *stream; /* of this layer's feed-forward: x, or those of its rows that are wanted */
    /* Parts whose products the device joins with what stands around them (join.h): */
    bool         joins;           /* in this step the sums and norms of the stream may be joined with products */
    const float *norm_due;        /* [hidden]: m->h is still to be made, the norm of m->stream; NULL: it is made */
    void        *sum;             /* the stream, which the part may add to instead of making delta; NULL: it may not */
    bool         summed;          /* .. and so it did */
    void        *ple, *ple_token; /* [rows_max, n_layer * ple_dim] inputs of the layers; of the tokens alone; or NULL */
    void        *sorted;          /* inputs in a matrix's order; NULL if no matrix has an order */
    float       *square, *square_all;  /* F32 [rows_max, 2], [rows_max, n_rank, 2]: op squares; or NULL */
    float       *logits, *logits_part; /* F32 [logit_rows_max, vocab], [logit_rows_max, vocab / n_rank] */
    struct {
        uint32_t           n_slot, rank, k_max; /* n_slot 0: no adapters are served */
        bool               turns;               /* rows of q and k change places at load (place_runs), */
        uint32_t           head, rot;           /* in heads of so many rows, of which so many rotate */
        struct dev_lora   *all;                 /* [n_layer][LORA_TARGETS] */
        struct lora_shape *shape;               /* the same */
        struct dev_weight *weight;              /* [n_layer][LORA_TARGETS][a, b][n_slot] */
        float             *scale, *scales;      /* [n_layer][LORA_TARGETS][n_slot], of the device and of the host */
        float             *wide, *zeros;        /* for adapt_set */
        float             *mid;                 /* struct op_lora */
        /* of this step */
        bool            any;     /* a row may have an adapter */
        const uint32_t *adapter; /* dev_batch.adapter */
        const uint32_t *row;     /* of struct op_lora: the rows of m->h and m->delta from here on */
    } lora;
    unsigned char         ident[IDENT_BYTES];
    _Atomic(const char *) at_part; /* for model_where: static text */
    _Atomic uint32_t      at_layer;
    struct dev_step       on;     /* the last step submitted, as the device reads it */
    bool                  direct; /* its wanted rows are all its rows: they are taken where they lie */
};

/* Where layers with a window have their KV. */
static inline const struct dev_kv *model_windows(const struct model *m)
{
    return m->kv_window.n_block ? &m->kv_window : &m->kv;
}

/* KV heads of layer l on each of n_rank ranks. If there are fewer heads than ranks, several ranks hold the same
 * head. */
static inline uint32_t model_kv_heads(const struct model_spec *s, uint32_t l, uint32_t n_rank)
{
    uint32_t n = spec_n_kv_head(s, l);
    return n > n_rank ? n / n_rank : 1;
}

/* x [n_row, k], activations, in the order of a matrix's inputs: in m->sorted, or x itself. */
static inline const void *model_in_order(struct model *m, const void *x, const uint32_t *order, uint32_t n_row,
                                         uint32_t k)
{
    if (!order) return x;
    m->dev->ops->columns(m->dev, m->sorted, x, order, n_row, k);
    return m->sorted;
}

/* What the rows' adapters add to columns [first, ...) of out [n_row, out_dim], a product of x with the target's
 * matrix. */
static inline void model_lora(struct model *m, const struct layer *y, enum lora_target t, void *out, uint32_t out_dim,
                              uint32_t first, const void *x, uint32_t n_row)
{
    if (!m->lora.any || !y->lora[t].n) return;
    struct op_lora o = { .out = out,
                         .x = x,
                         .w = &y->lora[t],
                         .adapter = m->lora.adapter,
                         .row = m->lora.row,
                         .mid = m->lora.mid,
                         .n_row = n_row,
                         .out_dim = out_dim,
                         .first = first };
    m->dev->ops->lora(m->dev, &o);
}
