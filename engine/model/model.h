/* model: hparams, weights and the forward of one rank.   Thread: load: any; forward: its rank thread.
 * model_spec_load (config.json -> hparams) -> per rank: model_load -> (model_submit, model_wait)* -> model_free. */
#pragma once
#include "base/status.h"
#include "engine/batch.h"
#include "engine/model/source.h"
#include "kernels/device.h"

enum model_norm { NORM_RMS, NORM_LAYER, NORM_LAYER_BIAS };
enum model_mix { MIX_GQA, MIX_MUTUAL /* both ways, without KV: an encoder */ };
enum model_ffn { FFN_GLU, FFN_MOE, FFN_MLP /* without a gate */, FFN_BESIDE /* GLU, and experts beside it */ };
/* What becomes of the last hidden states: logits, or one vector of the whole prompt (docs/OPERATIONS.md). */
enum model_pool { POOL_NONE, POOL_LAST, POOL_MEAN, POOL_CLS /* the first token */ };
enum model_rope_scaling {
    ROPE_SCALE_DEFAULT,
    ROPE_SCALE_LINEAR,
    ROPE_SCALE_LLAMA3,
    ROPE_SCALE_YARN,
    ROPE_SCALE_DYNAMIC,
    ROPE_SCALE_LONG,
    ROPE_SCALE_PROPORTIONAL /* whole heads rotate, of which a part has frequencies above 0 */
};

/* Values of absent keys of config.json, as in the family's configuration class of transformers. */
struct model_defaults {
    uint32_t    n_kv_head;                          /* 0: the number of heads */
    uint32_t    head_dim;                           /* 0: hidden / heads      */
    uint32_t    context, window, max_window_layers; /* window 0: none */
    uint32_t    n_expert, top_k_expert, moe_inter;  /* moe_inter 0: intermediate_size */
    uint32_t    shared_inter;                       /* of the shared expert, where it has a size of its own */
    uint32_t    n_shared;                           /* shared experts of moe_inter each */
    uint32_t    first_dense;                        /* first_k_dense_replace, moe_layer_start_index */
    uint32_t    n_extra_layer;                      /* num_nextn_predict_layers */
    double      route_scale;                        /* routed_scaling_factor; 0: 1 */
    float       rms_eps;
    double      rope_theta;
    double      rope_part;      /* partial_rotary_factor; 0: 1 */
    uint32_t    bos_id, eos_id; /* UINT32_MAX: none */
    uint32_t    pad_id;         /* where positions begin behind it */
    uint32_t    n_type;         /* type_vocab_size */
    uint32_t    eos_more[2];    /* beside eos_id; 0: no more */
    bool        norm_topk;
    bool        tied;             /* tie_word_embeddings */
    enum op_act act;              /* hidden_act */
    const char *rope;             /* rope_parameters, JSON; NULL: none */
    uint32_t    window_pattern;   /* without layer_types: every n-th layer sees all tokens; 0: none does */
    double      rope_local_theta; /* of layers with a window; 0: rope_theta */
    uint32_t    dense_inter;      /* of layers without experts, where they have a size of their own */
    uint32_t    inter;            /* intermediate_size, of a configuration that has none; 0: it must be there */
    uint32_t    ple_dim;          /* hidden_size_per_layer_input */
    float       attn_cap, logit_cap,
        query_scalar; /* attn_logit_softcapping, final_logit_softcapping; query_pre_attn_scalar */
};

/* The keys of config.json that say where biases are. NULL: no key, no such bias. */
struct model_bias_keys {
    const char *qkv, *o, *mlp;
    bool        qkv_default, o_default, mlp_default; /* values of absent keys */
};

/* How a family routes to experts, and the keys of config.json that say it. NULL: no such key. */
struct model_moe_keys {
    enum op_route score;
    bool          bias;                 /* a correction of the scores by which experts are chosen, kept in F32 */
    bool          f32;                  /* the router's logits are not rounded to the activations' type */
    bool          renorm;               /* divides by the sum of the chosen, whatever norm_topk_prob says */
    float         sum_min, sum_add;     /* struct op_moe */
    const char   *n_expert, *top_k;     /* the numbers of experts */
    const char   *shared_inter;         /* the size of the shared expert */
    const char   *dense_inter;          /* the size of layers without experts; intermediate_size is the experts' */
    const char   *layers;               /* a list of the layers with experts, before `every` */
    const char   *n_shared;             /* ... or how many experts large it is */
    const char   *first, *last, *every; /* layers with experts: first_k_dense_replace and the like; last -1: all */
    const char   *sum_min_key;
    bool          weigh_input; /* struct op_moe */
    bool          groups;      /* honours n_group, topk_group and routed_scaling_factor */
};

/* One row per architecture (families.c): data, no code. */
struct model_family {
    const char     *arch;       /* config.json architectures[0] */
    const char     *model_type; /* the second selector: text_config of a wrapper, or no architectures at all */
    enum model_norm norm;
    enum model_mix  mix;
    enum model_ffn  ffn;
    bool            qkv_bias, qk_norm;
    bool            bias_keys;     /* honours attention_bias and mlp_bias                                      */
    bool            window;        /* honours sliding_window                                                   */
    bool            window_gate;   /* ... only with use_sliding_window                                         */
    bool            window_layers; /* ... without layer_types: from layer max_window_layers on, else everywhere */
    bool            norm_topk;     /* renormalises the chosen experts whatever the config says                 */
    bool            nope;          /* honours no_rope_layers and no_rope_layer_interval: layers that do not rotate */
    bool            window_nope;   /* the window, without layer_types, is of the layers that do not rotate */
    bool            q_scale;       /* honours llama_4_scaling_beta: queries grow with their position */
    bool            q_scale_nope;  /* honours attn_temperature_tuning: those of layers that do not rotate grow */
    bool            chunks;        /* honours attention_chunk_size: layers that rotate see a chunk each */
    bool            rope_part;     /* honours partial_rotary_factor; no other rope_type than default */
    bool            rope_pairs;    /* q and k rotate in pairs (0, 1), (2, 3) ...: their rows change places at load */
    bool            wrapper;       /* arch is a larger model, of which this row serves text_config */
    bool            mrope;         /* positions of several axes (mrope_section), which are equal in text */
    bool            qk_norm_whole; /* qk_norm spans all heads instead of each                                       */
    bool qk_norm_late; /* qk_norm follows RoPE instead of preceding it                                         */
    bool qk_norm_mean; /* qk_norm takes the mean of a head off first, and each head has weights of its own */
    bool qk_norm_unit; /* honours use_qk_norm: norms without weights behind RoPE, of layers that rotate */
    bool norm_plus_1;  /* norms multiply by 1 + weight */
    bool
         gemma; /* honours query_pre_attn_scalar and the soft caps; gates by hidden_activation alone; embedding times sqrt(hidden) */
    bool gemma4;      /* layers without a window have heads of their own; honours the keys of hf_gemma4.c; with gemma */
    bool window_key;  /* honours sliding_window_pattern */
    bool rope_local;  /* layers with a window rotate by plain frequencies of a base of their own */
    bool nope_full;   /* beside layers with a window, those without do not rotate */
    bool rope_alpha;  /* honours alpha of rope_type dynamic, which stretches the base */
    bool no_pre_norm; /* parts take the stream itself, not a norm of it                                     */
    bool post_norm;   /* what a part made is normed before it is added                                      */
    bool sinks;       /* each head has a sink (struct op_attn) */
    bool expert_bias; /* router and experts have biases */
    bool
        clamped; /* experts have the gate OP_CLAMPED, whatever hidden_act says; swiglu_limit and swiglu_alpha are its */
    bool        mxfp4;       /* experts may be MXFP4 (quant_method mxfp4) */
    bool        longrope;    /* honours rope_type longrope, which su and yarn mean too */
    bool        parallel;    /* attention and feed-forward take the same norm of the stream, and both are added to it */
    bool        nope_rest;   /* layers without a window do not rotate, whatever the others have */
    bool        logit_scale; /* honours logit_scale, 0.0625 without the key; refuses use_qk_norm but as qk_norm_key */
    bool        scales; /* honours embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling */
    const char *qk_norm_key; /* says whether there is qk_norm; NULL: it is as above */
    bool        shared_gate; /* rows take as much of the shared expert as the sigmoid of a product says */
    bool local; /* local_attention is twice the reach of layers with a window; the others are the first of every few */
    bool published;     /* reads the keys of the code that was published beside its first files */
    bool dense_head;    /* classes are made of tanh of a product with the first token's state, with biases */
    bool norm_stream;   /* what a part made is added to the stream, and then the stream becomes its norm */
    bool embed_norm;    /* the stream begins as a norm of the embeddings */
    bool learned_pos;   /* positions have embeddings instead of rotating */
    bool pos_after_pad; /* ... whose first is that of pad_token_id + 1 */
    bool typed;         /* the first and the second text of a pair have embeddings */
    bool gte;           /* reads the keys of the code that was published beside GTE's first files, and rope_type ntk */
    bool down_bias;     /* of a feed-forward's biases that of `down` alone is there */
    bool token_weights; /* files of embedders may hold weights of tokens too (...ForTokenClassification), unread here */
    const char *arch_old;               /* arch as it was first published; NULL: the same */
    const char *arch_other;             /* honours use_bidirectional_attention: arch of the row with the other mix */
    bool        window_below;           /* the window, without layer_types, is of layers before max_window_layers */
    const struct model_moe_keys  *moe;  /* of routers that are no plain softmax, and of shared experts; NULL: neither */
    const struct model_bias_keys *bias; /* honours these keys of biases instead of bias_keys */
    const char                   *served;   /* the models' name, as people know it */
    const char                   *variants; /* which of them */
    const struct model_defaults  *def;
    const struct model_names     *names;
};

/* How the checkpoint stores linear matrices as codes (hf_quant.c); layer_codes says which of them are codes. */
enum model_quant_method {
    QUANT_NONE,
    QUANT_FP8,
    QUANT_INT8,
    QUANT_AWQ,
    QUANT_GPTQ,
    QUANT_PACKED,
    QUANT_NVFP4,   /* as compressed-tensors writes it: the scale of a tensor divides */
    QUANT_MODELOPT /* the same of ModelOpt: it multiplies */
};
struct model_quant {
    enum model_quant_method method;
    struct dev_quant        q;
    uint32_t                block_rows;  /* fp8: outputs that share a scale; 0: none, or all */
    bool                    zero_plus_1; /* gptq: zeros are stored minus one */
    bool                    indexed;     /* a tensor names the group of each input (desc_act, actorder) */
};

/* A layer's linear matrices according to the tensors (peek_codes.c). Bit s stands for slot s; all experts are alike. */
struct model_layer_codes {
    uint64_t codes;  /* stored as codes */
    uint64_t floats; /* codes that are expanded to F32, because another part of the same matrix is of another kind */
    uint64_t sorted; /* the matrix takes its inputs in another order, sorted by group */
};

struct model_spec {
    const struct model_family *family;
    bool     wrapper; /* the text part of a larger model: names contain language_model.; other parts are ignored */
    uint32_t n_layer, hidden, n_head, n_kv_head, head_dim, inter, vocab;
    uint32_t full_n_kv_head, full_head_dim; /* of layers without a window; 0: as the others (spec_head_dim) */
    bool     k_is_v;                        /* layers without a window make values of what keys are made of */
    bool     v_norm;                        /* values have a norm without weights */
    uint32_t n_shared;     /* the last so many layers read the KV of an earlier layer (spec_kv_layer) */
    bool     shared_wide;  /* and have a feed-forward twice as wide */
    bool     layer_scalar; /* the stream is multiplied behind each layer */
    uint32_t ple_vocab;    /* rows of the table of them */
    uint32_t ple_dim;      /* inputs that each layer has for itself; 0: none */
    uint32_t context;      /* max_position_embeddings (times the rope factor where the config says so) */
    float    rms_eps;
    double   rope_theta;
    enum model_rope_scaling rope_scaling;
    double rope_factor, rope_low_freq, rope_high_freq, rope_beta_fast, rope_beta_slow, rope_attn_factor, rope_mscale,
        rope_mscale_all_dim;
    uint32_t       rope_orig_context;
    float         *rope_short, *rope_long; /* [rot / 2] longrope: what the frequencies are divided by; else NULL */
    bool           rope_is_long;           /* rope_long is in use (model_spec_serve) */
    double         q_beta;                 /* llama_4_scaling_beta; 0: none (struct op_qkv) */
    uint32_t       q_period, q_shift;      /* struct op_qkv */
    bool           q_nope;                 /* q_beta is of layers that do not rotate */
    bool           rope_truncate;          /* yarn: round the correction range */
    uint32_t       rot;                    /* dimensions that rotate           */
    uint32_t       rot_local;              /* of layers with a window, where rope_local_theta is not 0 */
    uint32_t       rope_turned;            /* pairs with frequencies above 0 of ROPE_SCALE_PROPORTIONAL */
    uint32_t       window;                 /* 0: none                          */
    bool           chunked;                /* the windows do not slide (struct op_attn) */
    unsigned char *layer_windowed;         /* [n_layer] 1: sliding window; NULL: all layers if window > 0 */
    unsigned char *layer_nope;             /* [n_layer] 1: q and k do not rotate; NULL: all do */
    double         rope_local_theta; /* base of plain frequencies for layers with a window; 0: they are as the others */
    bool           tied, qkv_bias, o_bias, mlp_bias;
    uint32_t       n_expert, top_k_expert, moe_inter;
    const char    *n_expert_key; /* of config.json, which says n_expert; static text */
    unsigned char *layer_moe;    /* [n_layer] 1: MoE ffn; NULL: by the family */
    bool           moe_beside;   /* those layers have a dense feed-forward too */
    bool           norm_topk;
    uint32_t       shared_inter;  /* width of the shared expert; 0: none */
    uint32_t       n_extra_layer; /* behind the others: they predict further tokens, and are not read */
    bool           qk_norm, qk_norm_unit;
    bool           router_bias;                /* struct op_moe */
    uint32_t       n_group, group_keep;        /* n_group 0: none */
    float          route_scale, route_sum_min; /* route_scale 0: 1 */
    enum op_act    act;                        /* activation of the feed-forward's gate */
    float          ple_scale;                  /* factor of the table of the layers' own inputs */
    float          embed_scale, residual_scale,
        logit_scale; /* factors of the embedding, of what a part adds, of the logits; else 1 */
    float                     attn_cap, logit_cap; /* soft caps of scores and of logits; 0: none */
    float                     attn_scale;          /* factor of the scores of attention */
    bool                      classifies;          /* architectures[0] is a ...ForSequenceClassification */
    uint32_t                  n_label;             /* rows of its score.weight; 0: there is none */
    uint32_t                  n_type, pos_first;   /* rows of the embedding of types; where positions begin in theirs */
    enum model_pool           pool;                /* other than NONE: no head, no logits (model_pooling) */
    struct model_quant        quant;
    struct model_layer_codes *layer_codes; /* [n_layer]; NULL: quant holds for all linear matrices */
    bool                      mxfp4;       /* the checkpoint's experts are MXFP4 (plan_experts) */
    bool                      own_biases;  /* each expert's biases are tensors of their own (peek.c) */
    enum dtype                dtype;       /* of the checkpoint (torch_dtype or dtype; else the type of the tensors) */
    unsigned char             config[32];  /* digest of config.json (ident_config) */
    uint32_t eos_id[16], n_eos, bos_id;    /* config.json + generation_config.json; bos UINT32_MAX: none */
    /* generation_config.json defaults; NaN / -1: not given */
    float   gen_temperature, gen_top_p, gen_min_p, gen_repetition;
    int64_t gen_top_k, gen_max_new_tokens;
};

/* Does layer l see all tokens before it? */
static inline bool spec_is_full(const struct model_spec *s, uint32_t l)
{
    return !s->layer_windowed || !s->layer_windowed[l];
}
static inline uint32_t spec_head_dim(const struct model_spec *s, uint32_t l)
{
    return s->full_head_dim && spec_is_full(s, l) ? s->full_head_dim : s->head_dim;
}
static inline uint32_t spec_n_kv_head(const struct model_spec *s, uint32_t l)
{
    return s->full_n_kv_head && spec_is_full(s, l) ? s->full_n_kv_head : s->n_kv_head;
}
/* The layer whose KV layer l reads: itself, or the last of its kind before those that share. */
static inline uint32_t spec_kv_layer(const struct model_spec *s, uint32_t l)
{
    uint32_t of = l, first = s->n_layer - s->n_shared;
    if (l < first) return l;
    while (of >= first || spec_is_full(s, of) != spec_is_full(s, l))
        of--; /* hf_gemma4.c has seen to it that there is one */
    return of;
}
static inline uint32_t spec_inter(const struct model_spec *s, uint32_t l)
{
    return s->shared_wide && spec_kv_layer(s, l) != l ? 2 * s->inter : s->inter;
}
static inline bool spec_k_is_v(const struct model_spec *s, uint32_t l) { return s->k_is_v && spec_is_full(s, l); }

/* An encoder makes vectors alone: all rows of a text stand in one step, and nothing is kept of them. */
static inline bool model_is_encoder(const struct model_spec *s) { return s->family->mix == MIX_MUTUAL; }

/* Reads the hyperparameters. err: one line with file, key, the value found and the values allowed. ST_CONFIG, ST_IO,
 * ST_NOT_FOUND. */
enum status model_spec_load(const struct source *src, struct model_spec *spec_out, char *err, size_t err_bytes);
void        model_spec_free(struct model_spec *spec);
/* Sequences of up to so many tokens will be served; before the first model_load. Of a longrope model, this chooses the
 * frequencies of all sequences: the long ones where the context is more than rope_orig_context. Without this call it is
 * the whole context of the model. */
void model_spec_serve(struct model_spec *spec, uint32_t context);

/* families.c: the row of an architecture ("Qwen3ForCausalLM", or with another end "Qwen3Model" and
 * "Qwen3ForSequenceClassification"), else of a model_type. Either may be NULL. NULL: not supported. */
const struct model_family *model_family_find(const char *arch, const char *model_type);
/* The row of models like those of f that look one way or, mutual, both ways: f where it has no other. */
const struct model_family *model_family_facing(const struct model_family *f, bool mutual);
/* Row i of the table; NULL: there are no more. */
const struct model_family *model_family_at(uint32_t i);
/* "LlamaForCausalLM, ...": all supported architectures. Returns text. */
const char *model_family_list(char *text, size_t text_bytes);

/* rope.c: inv_freq_out [rot / 2]; returns the factor on cos and sin (1 unless yarn). */
float model_rope(const struct model_spec *spec, float *inv_freq_out);
/* The same for layers with a window, where rope_local_theta is not 0, [rot_local / 2]; their factor is 1. */
void model_rope_local(const struct model_spec *spec, float *inv_freq_out);

/* Checks every file, name, type and shape of the checkpoint against the spec, and that the model divides among n_rank
 * ranks; expert_parallel: as in struct model_load_cfg. Reads headers only and needs no device. ST_CONFIG or ST_IO with
 * one line in err. */
enum status model_check(const struct model_spec *spec, const struct source *src, uint32_t n_rank, bool expert_parallel,
                        char *err, size_t err_bytes);

struct model_load_cfg {
    enum dtype weight_dtype; /* DT_COUNT: as the checkpoint; F32, BF16 */
    struct dev_quant
         quant; /* code F32: none; else linear matrices are rounded to this format while loading (not the router) */
    bool quant_head;      /* embedding and head are rounded to quant too; else to int8 */
    bool expert_parallel; /* each rank has some experts whole, instead of a slice of every one */
    enum dtype kv_dtype;  /* DT_COUNT: F32 for f32 weights, F16 on a GPU with f16 weights, else BF16 */
    uint32_t   batch_rows_max, logit_rows_max, n_block, block_tokens; /* workspaces and the KV pool */
    uint32_t   n_window;   /* blocks of layers with a window, where they have a pool of their own; 0: they have none */
    struct batch_cfg step; /* bounds of a step's arrays (eng_batch_cfg); 0: ample */
    uint64_t         kv_touch; /* bytes of the pool whose pages are touched while loading */
    uint32_t         n_thread; /* reading threads; 0: auto */
    void (*progress)(void *ctx, uint64_t bytes_done, uint64_t bytes_total); /* may be NULL */
    void       *progress_ctx;
    const char *packed_dir;       /* folder for weights as the device packed them (packed.h); NULL or "": none */
    uint64_t    packed_bytes_max; /* limit for all files there */
    /* Other processes compare model_ident: loading makes a digest of everything that it reads, and checks that the
     * checkpoint does not change meanwhile. Without ident and packed_dir, the identity is a random number. */
    bool     ident;
    uint32_t lora_slots, lora_rank; /* adapters on the device at once (adapter.h), and their highest rank; 0: none */
};
/* Bytes of device memory of one rank: weights, workspaces, and one KV block. Computed before anything is read. */
struct model_plan {
    uint64_t weight_bytes, work_bytes, block_bytes;
    uint64_t window_bytes; /* of a block of layers with a window; 0: they lie in the others */
    uint64_t lora_bytes;   /* part of work_bytes: the slots of adapters */
};
enum status model_plan(const struct model_spec *spec, const struct model_load_cfg *cfg, const struct device *dev,
                       struct model_plan *plan_out);

/* The type of the KV's numbers on a device whose activations have type act (F32, or a type of 16 bits). Reads only
 * weight_dtype and kv_dtype of cfg. */
enum dtype model_kv_dtype(const struct model_spec *spec, const struct model_load_cfg *cfg, enum dtype act);
/* Numbers of the matrices, over all ranks: all of them; those that a token is multiplied with; those that a step of
 * n_seq tokens reads (experts that nobody chose are not). attend: operations of a token for each token that it sees. */
struct model_work {
    double params, active, read, attend;
};
struct model_work model_work(const struct model_spec *spec, uint32_t n_seq);

/* Bytes of a KV block of block_tokens tokens on each of n_rank ranks, in numbers of type kv: the sum over the layers'
 * parts. */
uint64_t model_kv_block_bytes(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens);

/* The same where layers with a window have blocks of their own. */
struct model_kv_groups {
    uint64_t block_bytes, window_bytes; /* of a block of the other layers; of a block of those */
    uint32_t window;                    /* the longest: a token sees itself and the window - 1 before it */
};
/* False: the model does not have both kinds of layers. */
bool model_kv_groups(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens,
                     struct model_kv_groups *out);

/* Bytes of the workspaces that ranks add up or gather (dev_cfg.reduced_bytes). act: type of the device's
 * activations. */
uint64_t model_reduced_bytes(const struct model_spec *spec, const struct model_load_cfg *cfg, uint32_t n_rank,
                             enum dtype act);

/* Formats that matrices are rounded to while loading: identifier, name on the command line, whether embedding and head
 * get it too (else they become int8), and the members of struct dev_quant. */
#define MODEL_FORMAT_LIST(X)                                         \
    X(AUTO, "auto", false, .code = DT_F32)                           \
    X(INT8, "int8", false, .code = DT_I8)                            \
    X(INT8_G128, "int8-g128", false, .code = DT_I8, .group = 128)    \
    X(W8A8, "w8a8", false, .code = DT_I8, .act8 = true)              \
    X(INT4, "int4", false, .code = DT_I4, .group = 32)               \
    X(INT4_ALL, "int4-all", true, .code = DT_I4, .group = 32)        \
    X(W4A8, "w4a8", false, .code = DT_I4, .group = 32, .act8 = true) \
    X(INT4_G128, "int4-g128", false, .code = DT_I4, .group = 128)    \
    X(FP8, "fp8", false, .code = DT_F8E4M3, .group = 128)
enum model_format {
#define MODEL_FORMAT_ID(id, ...) MODEL_FORMAT_##id,
    MODEL_FORMAT_LIST(MODEL_FORMAT_ID)
#undef MODEL_FORMAT_ID
};
/* How the format keeps matrices, and whether the matrix of the logits is kept so as well. */
void model_quant_of(enum model_format f, struct dev_quant *q_out, bool *head_out);
/* A format by its name ("auto": none); false: no such name. */
bool model_quant_named(const char *name, struct dev_quant *q_out, bool *head_out);
/* Checks that n_rank devices of this kind can hold the checkpoint's codes, or make the codes that cfg asks for.
 * ST_CONFIG: one line in err. */
enum status model_quant_check(const struct model_spec *spec, const struct model_load_cfg *cfg, enum dev_kind kind,
                              uint32_t n_rank, char *err, size_t err_bytes);

struct model; /* the weights, workspaces and KV pool of one rank */
/* Takes the memory of one rank and fills it with its part of the weights. spec and src are borrowed for the call,
 * dev until model_free. On an error err has one line and nothing is held. */
enum status model_load(const struct model_spec *spec, const struct source *src, const struct model_load_cfg *cfg,
                       struct device *dev, struct model **m_out, char *err, size_t err_bytes);
/* Enqueues a step: block copies, forward, sampling, prompt logprobs. b must not change until model_wait(b) has put the
 * results into b->out (rank 0). Steps are waited for in order; at most DEV_STEPS_MAX are in flight. More logit rows
 * than logit_rows_max are computed in several rounds. */
void        model_submit(struct model *m, const struct batch *b);
enum status model_wait(struct model *m, const struct batch *b);
/* Enqueues the draws of b, which was submitted last and has late masks (batch.h); from now on b must not change. Where
 * the device can draw late. */
void model_draw(struct model *m, const struct batch *b);
bool model_can_draw_late(const struct model *m);
/* Tests: F32 logits [n_logit, vocab] of the last forward whose n_logit <= logit_rows_max; the device's memory
 * (ops->to_host), which on the cpu and ref devices is the host's; valid until the next. */
size_t               model_where(const struct model *m, char *text,
                                 size_t text_bytes); /* any thread: the part of a step that is being computed or enqueued */
const float         *model_logits(const struct model *m);
const struct dev_kv *model_kv(const struct model *m); /* the pool */
/* That of layers with a window; the same pool where they have none of their own. */
const struct dev_kv *model_kv_window(const struct model *m);
/* n guests behind the pool's blocks, step bytes apart (struct dev_kv). Before the first step. */
void model_kv_guests(struct model *m, const unsigned char *first, uint64_t step, uint32_t n);
/* The identity of this rank's share [32] (ident.h). Owned by the model. */
const unsigned char *model_ident(const struct model *m);
void                 model_free(struct model *m);

/* The shapes of the matrices that a rank multiplies with, each once, for dev_tune. expert_parallel: as in struct
 * model_load_cfg. At most `max`; returns their number. */
uint32_t model_matrices(const struct model_spec *spec, uint32_t n_rank, bool expert_parallel, struct dev_matrix *out,
                        uint32_t max);

/* shapes.c: config.json of well-known models, for sources without weights. False: no such shape. model_shape_names: all
 * names, for a message. */
bool        model_shape(const char *name, struct source *src_out);
const char *model_shape_names(void);
