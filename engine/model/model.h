/* model: hparams, weights and the forward of one rank.   Thread: load: any; forward: its rank thread.
 * model_spec_load (config.json -> hparams) -> per rank: model_load -> (model_submit, model_wait)* -> model_free. */
#pragma once
#include "base/status.h"
#include "engine/batch.h"
#include "engine/model/source.h"
#include "kernels/device.h"

enum model_norm { NORM_RMS };
enum model_mix { MIX_GQA };
enum model_ffn { FFN_GLU, FFN_MOE };
enum model_rope_scaling {
    ROPE_SCALE_DEFAULT,
    ROPE_SCALE_LINEAR,
    ROPE_SCALE_LLAMA3,
    ROPE_SCALE_YARN,
    ROPE_SCALE_DYNAMIC
};

/* What a key of config.json means when it is absent: as in the family's own configuration class of transformers. */
struct model_defaults {
    uint32_t n_kv_head;                          /* 0: as many as heads   */
    uint32_t head_dim;                           /* 0: hidden / heads      */
    uint32_t context, window, max_window_layers; /* window 0: none */
    uint32_t n_expert, top_k_expert, moe_inter;  /* moe_inter 0: intermediate_size */
    float    rms_eps;
    double   rope_theta;
    uint32_t bos_id, eos_id; /* UINT32_MAX: none */
    bool     norm_topk;
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
    const struct model_defaults *def;
    const struct model_names    *names;
};

/* Matrices that the checkpoint holds as codes (hf_quant.c): of the linear ones, those that layer_codes names. */
enum model_quant_method { QUANT_NONE, QUANT_FP8, QUANT_INT8, QUANT_AWQ, QUANT_GPTQ, QUANT_PACKED };
struct model_quant {
    enum model_quant_method method;
    struct dev_quant        q;
    uint32_t                block_rows;  /* fp8: outputs that share a scale; 0: none, or all */
    bool                    zero_plus_1; /* gptq: zeros are stored one less */
    bool indexed; /* inputs have their groups in any order (desc_act, actorder): a tensor names each one's */
};

/* What the tensors say of a layer's linear matrices (peek_codes.c). Bit s: slot s, of all experts alike. */
struct model_layer_codes {
    uint32_t codes; /* the checkpoint has codes */
    uint32_t
        floats; /* they become the numbers that they mean, F32: the matrix that they are a part of has parts of another kind */
    uint32_t sorted; /* the matrix takes its inputs in another order, group by group */
};

struct model_spec {
    const struct model_family *family;
    bool     wrapper; /* the text part of a larger model: names carry language_model., the rest is left out */
    uint32_t n_layer, hidden, n_head, n_kv_head, head_dim, inter, vocab;
    uint32_t context; /* max_position_embeddings (times the rope factor where the config says so) */
    float    rms_eps;
    double   rope_theta;
    enum model_rope_scaling rope_scaling;
    double rope_factor, rope_low_freq, rope_high_freq, rope_beta_fast, rope_beta_slow, rope_attn_factor, rope_mscale,
        rope_mscale_all_dim;
    uint32_t                  rope_orig_context;
    bool                      rope_truncate;  /* yarn: round the correction range */
    uint32_t                  rot;            /* dimensions that rotate           */
    uint32_t                  window;         /* 0: none                          */
    unsigned char            *layer_windowed; /* [n_layer] 1: this layer slides; NULL: all or none by window */
    bool                      tied, qkv_bias, o_bias, mlp_bias;
    uint32_t                  n_expert, top_k_expert, moe_inter;
    unsigned char            *layer_moe; /* [n_layer] 1: MoE ffn; NULL: as the family says */
    bool                      norm_topk;
    enum op_act               act; /* of the feed-forward's gate */
    struct model_quant        quant;
    struct model_layer_codes *layer_codes; /* [n_layer]; NULL: all linear matrices are as quant says */
    enum dtype                dtype;       /* of the checkpoint (torch_dtype / dtype; else as the tensors say) */
    unsigned char             config[32];  /* digest of what config.json says (ident_config) */
    uint32_t eos_id[16], n_eos, bos_id;    /* config.json + generation_config.json; bos UINT32_MAX: none */
    /* generation_config.json defaults; NaN / -1: not given */
    float   gen_temperature, gen_top_p, gen_min_p, gen_repetition;
    int64_t gen_top_k, gen_max_new_tokens;
};

/* err: one line that names file and key, what was found and what is allowed. ST_CONFIG, ST_IO, ST_NOT_FOUND. */
enum status model_spec_load(const struct source *src, struct model_spec *spec_out, char *err, size_t err_bytes);
void        model_spec_free(struct model_spec *spec);

/* families.c: by architecture, else by model_type (either may be NULL); NULL: not supported. */
const struct model_family *model_family_find(const char *arch, const char *model_type);
/* "LlamaForCausalLM, ...": every architecture that can be served; returns text. */
const char *model_family_list(char *text, size_t text_bytes);

/* rope.c: inv_freq_out [rot / 2]; returns the factor on cos and sin (1 unless yarn). */
float model_rope(const struct model_spec *spec, float *inv_freq_out);

/* Every file, name, type and shape of the checkpoint against the spec, and whether it divides among n_rank; headers
 * alone are read and no device is needed. ST_CONFIG or ST_IO with one line in err. */
enum status model_check(const struct model_spec *spec, const struct source *src, uint32_t n_rank, char *err,
                        size_t err_bytes);

struct model_load_cfg {
    enum dtype weight_dtype; /* DT_COUNT: as the checkpoint; F32, BF16 */
    struct dev_quant
         quant; /* code F32: as the checkpoint; else its matrices are rounded to this while loading (not the router) */
    bool quant_head;           /* embedding and head to quant too; else they become int8 */
    enum dtype       kv_dtype; /* DT_COUNT: BF16 for 16-bit weights, F32 for f32 */
    uint32_t         batch_rows_max, logit_rows_max, n_block, block_tokens; /* workspaces and the KV pool */
    struct batch_cfg step;     /* bounds of a step's arrays (eng_batch_cfg); 0: ample */
    uint64_t         kv_touch; /* bytes of the pool whose pages are asked for while loading */
    uint32_t         n_thread; /* readers; 0: auto */
    void (*progress)(void *ctx, uint64_t bytes_done, uint64_t bytes_total); /* may be NULL */
    void *progress_ctx;
    const char
            *packed_dir; /* folder where weights are kept as the device packed them (packed.h); NULL or "": not kept */
    uint64_t packed_bytes_max; /* of all files there */
    bool
        ident; /* model_ident is asked for: loading makes a digest of all that it reads, and sees to it that the checkpoint
                 * does not change meanwhile. Without it, and without packed_dir, the identity is a random one */
};
/* Bytes of device memory for rank r of n: weights, workspaces, and one KV block. Closed form, before anything is
 * read. */
struct model_plan {
    uint64_t weight_bytes, work_bytes, block_bytes;
};
enum status model_plan(const struct model_spec *spec, const struct model_load_cfg *cfg, const struct device *dev,
                       struct model_plan *plan_out);

/* The type of the KV's numbers on a device whose activations have type act (F32, or one of 16 bits); of cfg
 * weight_dtype and kv_dtype are read. */
enum dtype model_kv_dtype(const struct model_spec *spec, const struct model_load_cfg *cfg, enum dtype act);
/* Numbers of the matrices, over all ranks: all of them; those that a token is multiplied with; those that a step of n_seq
 * tokens reads (experts that nobody chose are not). attend: operations of a token for each token that it sees. */
struct model_work {
    double params, active, read, attend;
};
struct model_work model_work(const struct model_spec *spec, uint32_t n_seq);

/* The bytes of a KV block of block_tokens tokens on each of n_rank ranks, in numbers of type kv: the sum of what the
 * layers' parts need. */
uint64_t model_kv_block_bytes(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens);

/* Of the workspaces, what ranks add up or gather: dev_cfg.reduced_bytes. act: of the device's activations. */
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
void model_quant_of(enum model_format f, struct dev_quant *q_out, bool *head_out);
/* A format by its name ("auto": none); false: no such name. */
bool model_quant_named(const char *name, struct dev_quant *q_out, bool *head_out);
/* Can a device of this kind, in n_rank slices, hold the checkpoint's codes, or make those that cfg asks for? ST_CONFIG,
 * one line in err. */
enum status model_quant_check(const struct model_spec *spec, const struct model_load_cfg *cfg, enum dev_kind kind,
                              uint32_t n_rank, char *err, size_t err_bytes);

struct model; /* one rank's weights, workspaces and KV pool */
enum status model_load(const struct model_spec *spec, const struct source *src, const struct model_load_cfg *cfg,
                       struct device *dev, struct model **m_out, char *err, size_t err_bytes);
/* Enqueues block copies, forward, sampling, prompt logprobs. b stays as it is until model_wait has brought the results
 * of the oldest step to its b->out (rank 0); at most DEV_STEPS_MAX lie between. logit rows beyond logit_rows_max go in
 * several rounds. */
void        model_submit(struct model *m, const struct batch *b);
enum status model_wait(struct model *m, const struct batch *b);
/* Tests: F32 logits [n_logit, vocab] of the last forward whose n_logit <= logit_rows_max; the device's memory
 * (ops->to_host), which on the cpu and ref devices is the host's; valid until the next. */
size_t               model_where(const struct model *m, char *text,
                                 size_t text_bytes); /* any thread: which part of a step is computed or enqueued */
const float         *model_logits(const struct model *m);
const struct dev_kv *model_kv(const struct model *m); /* the pool */
/* [32] Which model this rank's share is of (ident.h). The model's. */
const unsigned char *model_ident(const struct model *m);
void                 model_free(struct model *m);

/* The matrices that a rank multiplies with, each kind once, for dev_tune: at most `max`; returns how many. */
uint32_t model_matrices(const struct model_spec *spec, uint32_t n_rank, struct dev_matrix *out, uint32_t max);

/* shapes.c: config.json of well-known models, for sources without weights. False: no such shape; names: all of them,
 * for a message. */
bool        model_shape(const char *name, struct source *src_out);
const char *model_shape_names(void);
