/* quant_folder: small models in memory whose matrices are codes, as AWQ, GPTQ, fp8, compressed-tensors and ModelOpt write
 * them, or the same numbers as plain floats; their logits. */
#pragma once
#include "base/rng.h"
#include "memory_source.h"
#include "model/golden.h"

enum {
    HIDDEN = 64,
    INTER = 128,
    LAYERS = 2,
    EXPERTS = 4,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 16,
    VOCAB = 96,
    DATA_MAX = 1 << 20,
    HEADER_MAX = 1 << 15
};

/* ---- a checkpoint in memory */

struct maker {
    char          header[HEADER_MAX];
    unsigned char data[DATA_MAX];
    size_t        n_header, n;
    const char   *method; /* NULL: plain floats that the codes mean */
    const char   *how;    /* of the codes */
    const char   *plain;  /* matrices whose name holds this are no codes; NULL: all are */
    bool          biases; /* each matrix has a bias of zeros */
    uint64_t      seed;
};
static struct maker maker;
static char         err[512];

static inline uint32_t draw(struct maker *m, uint32_t n) { return rng_philox(99, 1, m->seed++).x[0] % n; }

static inline void add(struct maker *m, const char *name, const char *suffix, const char *dtype, uint32_t a, uint32_t b,
                       const void *bytes, size_t n)
{
    char shape[32];
    snprintf(shape, sizeof shape, b ? "[%u,%u]" : "[%u]", a, b);
    assert_true(m->n + n <= DATA_MAX);
    m->n_header += (size_t)snprintf(m->header + m->n_header, HEADER_MAX - m->n_header,
                                    "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                                    m->n ? "," : "{", name, suffix, dtype, shape, m->n, m->n + n);
    assert_true(m->n_header < HEADER_MAX);
    memcpy(m->data + m->n, bytes, n);
    m->n += n;
}

static inline void add_floats(struct maker *m, const char *name, uint32_t a, uint32_t b, float centre, float width)
{
    static float x[INTER * INTER];
    uint32_t     n = a * (b ? b : 1);
    assert_true(n <= ARRAY_N(x));
    for (uint32_t i = 0; i < n; i++) x[i] = centre + width * ((float)draw(m, 2001) / 1000 - 1);
    add(m, name, ".weight", "F32", a, b, x, n * sizeof *x);
}

/* A matrix [n, k] of codes: w = (code - zero) * scale, the group of an input being group_of. */
struct codes {
    uint32_t n, k, group, groups;
    uint8_t  code[INTER * INTER], zero[INTER * 4];
    f16      half[INTER * 4];
    float    scale[INTER * 4], x[INTER * INTER];
    uint32_t group_of[INTER], word[INTER * INTER];
    float    global; /* of NVFP4, as it is stored; its scales are bytes, in `zero` */
};
static struct codes codes;

static inline bool how_has(const struct maker *m, const char *word) { return strstr(m->how, word) != NULL; }

/* Inputs' groups: one after another; in an order that all matrices of k inputs share; in one of the matrix's own; of
 * uneven sizes. */
static inline void draw_groups(struct maker *m, struct codes *c)
{
    for (uint32_t i = 0; i < c->k; i++) c->group_of[i] = i / c->group;
    uint32_t own = how_has(m, "orders") ? draw(m, 1000) : 0;
    for (uint32_t i = c->k - 1; i > 0 && how_has(m, "order"); i--) {
        uint32_t j = rng_philox(7, own, i).x[0] % (i + 1), t = c->group_of[i];
        c->group_of[i] = c->group_of[j];
        c->group_of[j] = t;
    }
    if (how_has(m, "uneven")) c->group_of[0] = c->groups - 1;
}

/* NVFP4: each matrix has a scale of its own beside those of its groups. */
static inline void draw_floats4(struct maker *m, struct codes *c)
{
    bool  divides = !how_has(m, "modelopt");
    float by = 100 + (float)draw(m, 300);
    c->global = divides ? by : 1 / by;
    by = divides ? (float)(1 / (double)c->global) : c->global;
    c->group = 16;
    c->groups = c->k / c->group;
    for (uint32_t i = 0; i < c->n * c->groups; i++) c->zero[i] = (uint8_t)(0x2a + draw(m, 0x20));
    for (uint32_t i = 0; i < c->n * c->k; i++) {
        c->code[i] = (uint8_t)draw(m, 16);
        c->x[i] = f4e2m1_to_f32(c->code[i]) * (f8e4m3_to_f32(c->zero[i / c->group]) * by);
    }
}

static inline void draw_codes(struct maker *m, struct codes *c, uint32_t n, uint32_t k)
{
    bool fp8 = how_has(m, "fp8"), bytes = how_has(m, "int8") || how_has(m, "packed 8"), sym = how_has(m, "sym");
    c->n = n;
    c->k = k;
    if (how_has(m, "nvfp4")) {
        draw_floats4(m, c);
        return;
    }
    c->group =
        how_has(m, "whole") || (fp8 && !how_has(m, "block")) || (how_has(m, "int8") && !how_has(m, "group")) ? k : 32;
    c->groups = k / c->group;
    draw_groups(m, c);
    for (uint32_t i = 0; i < n * k; i++) {
        c->code[i] = (uint8_t)draw(m, fp8 || bytes ? 256 : 16);
        if (fp8 && (c->code[i] & 0x7f) == 0x7f) c->code[i] = 0x11;
    }
    if (bytes) c->code[1] = 0x80;
    float unit = bytes ? 0.002f : 0.02f;
    if (fp8) unit = 0.0003f;
    for (uint32_t i = 0; i < n * c->groups; i++) {
        c->half[i] = f32_to_f16(unit * (1 + (float)draw(m, 100) / 100));
        c->scale[i] = f16_to_f32(c->half[i]);
        c->zero[i] = sym ? 8 : (uint8_t)(1 + draw(m, 15));
        if (how_has(m, "one")) c->scale[i] = c->scale[0];
        if (how_has(m, "block"))
            c->scale[i] = c->scale[i / c->groups / 16 * 16 * c->groups + i % c->groups]; /* blocks of 16 outputs */
    }
    for (uint32_t i = 0; i < n * k; i++) {
        uint32_t g = i / k * c->groups + c->group_of[i % k];
        float    number = bytes ? (float)(int8_t)c->code[i] : (float)c->code[i] - (float)c->zero[g];
        if (fp8) number = f8e4m3_to_f32(c->code[i]);
        c->x[i] = number * c->scale[g];
    }
}

static inline void add_index(struct maker *m, const struct codes *c, const char *name, const char *suffix)
{
    add(m, name, suffix, "I32", c->k, 0, c->group_of, c->k * 4);
}

/* A byte each. */
static inline void add_bytes(struct maker *m, struct codes *c, const char *name)
{
    add(m, name, ".weight", how_has(m, "fp8") ? "F8_E4M3" : "I8", c->n, c->k, c->code, c->n * c->k);
    if (how_has(m, "one"))
        add(m, name, ".weight_scale", "F32", 1, 0, c->scale, 4);
    else if (!how_has(m, "block"))
        add(m, name, ".weight_scale", "F32", c->n, c->groups, c->scale, c->n * c->groups * 4);
    else {
        for (uint32_t b = 0; b < c->n / 16; b++)
            memmove(c->scale + b * c->groups, c->scale + b * 16 * c->groups, c->groups * sizeof *c->scale);
        add(m, name, ".weight_scale_inv", "F32", c->n / 16, c->groups, c->scale,
            c->n / 16 * c->groups * sizeof *c->scale);
    }
    add(m, name, ".input_scale", "F32", 1, 0, c->scale, 4);
}

/* Pairs of 4-bit floats, and a scale of E4M3 for each 16. */
static inline void add_nvfp4(struct maker *m, struct codes *c, const char *name)
{
    static uint8_t pair[INTER * INTER / 2];
    bool           modelopt = how_has(m, "modelopt");
    for (uint32_t i = 0; i < c->n * c->k; i += 2) pair[i / 2] = (uint8_t)(c->code[i] | c->code[i + 1] << 4);
    add(m, name, modelopt ? ".weight" : ".weight_packed", "U8", c->n, c->k / 2, pair, c->n * c->k / 2);
    add(m, name, ".weight_scale", "F8_E4M3", c->n, c->groups, c->zero, c->n * c->groups);
    add(m, name, modelopt ? ".weight_scale_2" : ".weight_global_scale", "F32", 1, 0, &c->global, sizeof c->global);
    add(m, name, modelopt ? ".input_scale" : ".input_global_scale", "F32", 1, 0, &c->global, sizeof c->global);
}

/* As compressed-tensors packs: words along a row, zeros along the outputs. */
static inline void add_packed(struct maker *m, struct codes *c, const char *name)
{
    uint32_t bits = how_has(m, "packed 8") ? 8 : 4, per = 32 / bits;
    uint64_t shape[2] = { c->n, c->k };
    memset(c->word, 0, sizeof c->word);
    for (uint32_t i = 0; i < c->n * c->k; i++)
        c->word[i / per] |= (uint32_t)(bits == 8 ? c->code[i] ^ 0x80 : c->code[i]) << i % per * bits;
    add(m, name, ".weight_packed", "I32", c->n, c->k / per, c->word, c->n * c->k * bits / 8);
    add(m, name, ".weight_scale", "F16", c->n, c->groups, c->half, c->n * c->groups * sizeof *c->half);
    add(m, name, ".weight_shape", "I64", 2, 0, shape, sizeof shape);
    if (how_has(m, "order")) add_index(m, c, name, ".weight_g_idx");
    if (how_has(m, "sym")) return;
    memset(c->word, 0, sizeof c->word);
    for (uint32_t i = 0; i < c->n * c->groups; i++) {
        uint32_t row = i / c->groups, g = i % c->groups;
        c->word[row / 8 * c->groups + g] |= (uint32_t)c->zero[i] << row % 8 * 4;
    }
    add(m, name, ".weight_zero_point", "I32", c->n / 8, c->groups, c->word, c->n / 8 * c->groups * 4);
}

static inline void add_words(struct maker *m, struct codes *c, const char *name)
{
    static const uint8_t awq_output[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }; /* that half byte i of a word holds */
    static f16           turned[INTER * 4];
    uint32_t             n = c->n, k = c->k;
    bool                 awq = how_has(m, "awq");
    memset(c->word, 0, sizeof c->word);
    for (uint32_t i = 0; i < n * k; i++) { /* i: half byte */
        if (awq) {
            uint32_t row = i / n, o = i % n / 8 * 8 + awq_output[i % 8];
            c->word[i / 8] |= (uint32_t)c->code[o * k + row] << i % 8 * 4;
        } else {
            uint32_t w = i / 8, in = w / n * 8 + i % 8, o = w % n;
            c->word[w] |= (uint32_t)c->code[o * k + in] << i % 8 * 4;
        }
    }
    add(m, name, ".qweight", "I32", awq ? k : k / 8, awq ? n / 8 : n, c->word, n * k / 2);
    memset(c->word, 0, sizeof c->word);
    for (uint32_t i = 0; i < n * c->groups; i++) {
        uint32_t o = i % n / 8 * 8 + (awq ? awq_output[i % 8] : i % 8);
        c->word[i / 8] |= (uint32_t)(c->zero[o * c->groups + i / n] - !awq) << i % 8 * 4;
    }
    add(m, name, ".qzeros", "I32", c->groups, n / 8, c->word, n * c->groups / 2);
    for (uint32_t i = 0; i < n * c->groups; i++) turned[i] = c->half[i % n * c->groups + i / n];
    add(m, name, ".scales", "F16", c->groups, n, turned, n * c->groups * sizeof *turned);
    if (!awq) add_index(m, c, name, ".g_idx");
}

/* The codes of a matrix [n, k], as they are or as floats. */
static inline void add_codes(struct maker *m, const char *name, uint32_t n, uint32_t k)
{
    static const f16 zeros[INTER];
    draw_codes(m, &codes, n, k);
    if (m->biases && m->method) add(m, name, ".bias", "F16", n, 0, zeros, n * sizeof *zeros);
    if (!m->method || (m->plain && strstr(name, m->plain)))
        add(m, name, ".weight", "F32", n, k, codes.x, n * k * sizeof *codes.x);
    else if (how_has(m, "fp8") || how_has(m, "int8"))
        add_bytes(m, &codes, name);
    else if (how_has(m, "packed"))
        add_packed(m, &codes, name);
    else if (how_has(m, "nvfp4"))
        add_nvfp4(m, &codes, name);
    else
        add_words(m, &codes, name);
}

/* What the next folders have beside. */
static const char *folder_plain;
static bool        folder_biases;
static bool        folder_experts __attribute__((unused)); /* a Mixtral, whose experts are codes */

struct folder_matrix {
    const char *name;
    uint32_t    n, k;
};
static const struct folder_matrix folder_attn[] = { { "self_attn.q_proj", HEADS *DIM, HIDDEN },
                                                    { "self_attn.k_proj", KV_HEADS *DIM, HIDDEN },
                                                    { "self_attn.v_proj", KV_HEADS *DIM, HIDDEN },
                                                    { "self_attn.o_proj", HIDDEN, HEADS *DIM } };
static const struct folder_matrix folder_mlp[] = { { "mlp.gate_proj", INTER, HIDDEN },
                                                   { "mlp.up_proj", INTER, HIDDEN },
                                                   { "mlp.down_proj", HIDDEN, INTER } };
static const struct folder_matrix folder_expert[] = { { "w1", INTER, HIDDEN },
                                                      { "w3", INTER, HIDDEN },
                                                      { "w2", HIDDEN, INTER } };

static inline void folder_matrices(struct maker *m, const char *prefix, const struct folder_matrix *a, size_t n)
{
    char name[160];
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s.%s", prefix, a[i].name);
        add_codes(m, name, a[i].n, a[i].k);
    }
}

static inline void folder_moe(struct maker *m, const char *layer)
{
    char name[96];
    snprintf(name, sizeof name, "%s.block_sparse_moe.gate", layer);
    add_floats(m, name, EXPERTS, HIDDEN, 0, 0.3f);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, "%s.block_sparse_moe.experts.%u", layer, e);
        folder_matrices(m, name, folder_expert, ARRAY_N(folder_expert));
    }
}

static inline void folder(struct memory_source *s, const char *how, bool coded, const char *config)
{
    struct maker *m = &maker;
    char          text[1024], name[96], layer[32];
    memset(m, 0, sizeof *m);
    m->how = how;
    m->method = coded ? config : NULL;
    m->plain = folder_plain;
    m->biases = folder_biases;
    add_floats(m, "model.embed_tokens", VOCAB, HIDDEN, 0, 1);
    add_floats(m, "model.norm", HIDDEN, 0, 1, 0.1f);
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof name, "model.layers.%u.input_layernorm", l);
        add_floats(m, name, HIDDEN, 0, 1, 0.1f);
        snprintf(name, sizeof name, "model.layers.%u.post_attention_layernorm", l);
        add_floats(m, name, HIDDEN, 0, 1, 0.1f);
        snprintf(layer, sizeof layer, "model.layers.%u", l);
        folder_matrices(m, layer, folder_attn, ARRAY_N(folder_attn));
        if (folder_experts)
            folder_moe(m, layer);
        else
            folder_matrices(m, layer, folder_mlp, ARRAY_N(folder_mlp));
    }
    m->n_header += (size_t)snprintf(m->header + m->n_header, HEADER_MAX - m->n_header, "}");
    snprintf(
        text, sizeof text,
        "{\"architectures\":[\"%s\"],\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":%d,"
        "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"vocab_size\":%d,\"tie_word_embeddings\":true,\"torch_dtype\":\"float32\"%s%s%s}",
        folder_experts ? "MixtralForCausalLM" : "LlamaForCausalLM", HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, VOCAB,
        folder_experts ? ",\"num_local_experts\":4,\"num_experts_per_tok\":2" : "",
        coded ? ",\"quantization_config\":" : "", coded ? config : "");
    static unsigned char file[8 + HEADER_MAX + DATA_MAX];
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)m->n_header >> 8 * i);
    memcpy(file + 8, m->header, m->n_header);
    memcpy(file + 8 + m->n_header, m->data, m->n);
    *s = (struct memory_source){ .src.n_embed = 0 };
    memory_add_text(s, "config.json", text);
    memory_add(s, "model.safetensors", file, 8 + m->n_header + m->n);
}

/* Of the cuda device's activations. */
static enum dtype folder_act __attribute__((unused)) = DT_BF16;
/* Rows of the prompt, all in one step. */
static uint32_t folder_rows __attribute__((unused)) = 20;

/* Logits of rows 0, 5 and the last. */
static inline void logits(struct memory_source *s, enum dev_kind device, uint32_t n_rank, float *out)
{
    struct model_spec spec;
    struct gold_run   r;
    uint32_t          ids[GOLD_TOKENS_MAX], rows[3] = { 0, 5, folder_rows - 1 };
    for (uint32_t i = 0; i < folder_rows; i++) ids[i] = i * 31 % VOCAB;
    if (model_spec_load(&s->src, &spec, err, sizeof err)) fail_msg("%s", err);
    if (device == DEV_CUDA)
        gold_run_open(&r, &spec, &s->src, device, n_rank, folder_act, DT_COUNT);
    else
        gold_run_open(&r, &spec, &s->src, device, n_rank, DT_COUNT, DT_F32);
    gold_step(&r, ids, 0, folder_rows, rows, 3, false);
    struct device *d = rank_team_device(r.team);
    d->ops->to_host(d, out, rank_team_logits(r.team), 3 * VOCAB * sizeof *out);
    gold_run_close(&r);
    model_spec_free(&spec);
}

static inline double error(const float *got, const float *want, size_t n)
{
    double worst = 0, max = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(got[i]));
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        max = fmax(max, fabs((double)want[i]));
    }
    return worst / max;
}

#define WEIGHTS(format, weights, rest)                              \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format \
    "\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],"  \
    "\"weights\":{" weights "}" rest "}},\"ignore\":[\"lm_head\"]}"
#define GROUP32 "\"strategy\":\"group\",\"group_size\":32"
static const struct {
    const char *how, *config;
} checkpoints[] = {
    { "awq", "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"zero_point\":true,\"version\":\"gemm\"}" },
    { "gptq", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false,\"desc_act\":false}" },
    { "gptq sym", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true}" },
    { "gptq whole", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-1,\"sym\":false}" },
    { "fp8", WEIGHTS("float-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"", "") },
    { "fp8 one", "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}" },
    { "fp8 block", "{\"quant_method\":\"fp8\",\"weight_block_size\":[16,32]}" },
    { "gptq order", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false,\"desc_act\":true}" },
    { "gptq orders", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false,\"desc_act\":true}" },
    { "gptq uneven", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false,\"desc_act\":true}" },
    { "packed sym", WEIGHTS("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"symmetric\":true," GROUP32, "") },
    { "packed", WEIGHTS("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"symmetric\":false," GROUP32, "") },
    { "packed whole",
      WEIGHTS("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"symmetric\":false,\"strategy\":\"channel\"", "") },
    { "packed order",
      WEIGHTS("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"symmetric\":false,\"actorder\":\"group\"," GROUP32,
              "") },
    { "packed sym orders",
      WEIGHTS("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"symmetric\":true,\"actorder\":\"group\"," GROUP32,
              "") },
    { "packed 8 sym", WEIGHTS("pack-quantized", "\"num_bits\":8,\"type\":\"int\",\"symmetric\":true," GROUP32, "") },
    { "int8",
      WEIGHTS("int-quantized", "\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"channel\"", "") },
    { "int8 one",
      WEIGHTS("int-quantized", "\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"tensor\"", "") },
    { "int8 group", WEIGHTS("int-quantized", "\"num_bits\":8,\"type\":\"int\",\"symmetric\":true," GROUP32, "") },
    { "nvfp4", WEIGHTS("nvfp4-pack-quantized",
                       "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16",
                       ",\"input_activations\":{\"num_bits\":4,\"type\":\"float\",\"dynamic\":\"local\"}") },
    { "nvfp4 modelopt", "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"ignore\":[\"lm_head\"]}" },
};
