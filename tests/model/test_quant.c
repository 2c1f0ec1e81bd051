/* Models whose matrices are codes: checkpoints as AWQ, GPTQ and fp8 tools write them against the same numbers as plain
 * floats, and rounding at load against ref.
 * Over 500 lines: the same comparison for each format of codes, over checkpoints that are made alike. */
#include "base/rng.h"
#include "golden.h"
#include "memory_source.h"

enum {
    HIDDEN = 64,
    INTER = 128,
    LAYERS = 2,
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

static uint32_t draw(struct maker *m, uint32_t n) { return rng_philox(99, 1, m->seed++).x[0] % n; }

static void add(struct maker *m, const char *name, const char *suffix, const char *dtype, uint32_t a, uint32_t b,
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

static void add_floats(struct maker *m, const char *name, uint32_t a, uint32_t b, float centre, float width)
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
};
static struct codes codes;

static bool how_has(const struct maker *m, const char *word) { return strstr(m->how, word) != NULL; }

/* Inputs' groups: one after another; in an order that all matrices of k inputs share; in one of the matrix's own; of
 * uneven sizes. */
static void draw_groups(struct maker *m, struct codes *c)
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

static void draw_codes(struct maker *m, struct codes *c, uint32_t n, uint32_t k)
{
    bool fp8 = how_has(m, "fp8"), bytes = how_has(m, "int8") || how_has(m, "packed 8"), sym = how_has(m, "sym");
    c->n = n;
    c->k = k;
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

static void add_index(struct maker *m, const struct codes *c, const char *name, const char *suffix)
{
    add(m, name, suffix, "I32", c->k, 0, c->group_of, c->k * 4);
}

/* A byte each. */
static void add_bytes(struct maker *m, struct codes *c, const char *name)
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

/* As compressed-tensors packs: words along a row, zeros along the outputs. */
static void add_packed(struct maker *m, struct codes *c, const char *name)
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

static void add_words(struct maker *m, struct codes *c, const char *name)
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
static void add_codes(struct maker *m, const char *name, uint32_t n, uint32_t k)
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
    else
        add_words(m, &codes, name);
}

/* What the next folders have beside. */
static const char *folder_plain;
static bool        folder_biases;

static void folder(struct memory_source *s, const char *how, bool coded, const char *config)
{
    struct maker *m = &maker;
    char          text[1024], name[96];
    static const struct {
        const char *name;
        uint32_t    n, k;
    } linear[] = { { "self_attn.q_proj", HEADS * DIM, HIDDEN },
                   { "self_attn.k_proj", KV_HEADS * DIM, HIDDEN },
                   { "self_attn.v_proj", KV_HEADS * DIM, HIDDEN },
                   { "self_attn.o_proj", HIDDEN, HEADS * DIM },
                   { "mlp.gate_proj", INTER, HIDDEN },
                   { "mlp.up_proj", INTER, HIDDEN },
                   { "mlp.down_proj", HIDDEN, INTER } };
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
        for (size_t i = 0; i < ARRAY_N(linear); i++) {
            snprintf(name, sizeof name, "model.layers.%u.%s", l, linear[i].name);
            add_codes(m, name, linear[i].n, linear[i].k);
        }
    }
    m->n_header += (size_t)snprintf(m->header + m->n_header, HEADER_MAX - m->n_header, "}");
    snprintf(
        text, sizeof text,
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":%d,"
        "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"vocab_size\":%d,\"tie_word_embeddings\":true,\"torch_dtype\":\"float32\"%s%s}",
        HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, VOCAB, coded ? ",\"quantization_config\":" : "", coded ? config : "");
    static unsigned char file[8 + HEADER_MAX + DATA_MAX];
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)m->n_header >> 8 * i);
    memcpy(file + 8, m->header, m->n_header);
    memcpy(file + 8 + m->n_header, m->data, m->n);
    *s = (struct memory_source){ .src.n_embed = 0 };
    memory_add_text(s, "config.json", text);
    memory_add(s, "model.safetensors", file, 8 + m->n_header + m->n);
}

/* Logits of rows 0, 5 and 19 of 20. */
static void logits(struct memory_source *s, enum dev_kind device, uint32_t n_rank, float *out)
{
    struct model_spec spec;
    struct gold_run   r;
    uint32_t          ids[20], rows[3] = { 0, 5, 19 };
    for (uint32_t i = 0; i < 20; i++) ids[i] = i * 31 % VOCAB;
    if (model_spec_load(&s->src, &spec, err, sizeof err)) fail_msg("%s", err);
    gold_run_open(&r, &spec, &s->src, device, n_rank, DT_COUNT, DT_F32);
    gold_step(&r, ids, 0, 20, rows, 3, false);
    memcpy(out, rank_team_logits(r.team), 3 * VOCAB * sizeof *out);
    gold_run_close(&r);
    model_spec_free(&spec);
}

static double error(const float *got, const float *want, size_t n)
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
};

static const char *const isas[] = { "scalar",      "avx2", "avx-vnni", "avx512",   "avx512-vnni",
                                    "avx512-bf16", "amx",  "neon",     "neon-bf16" };

static void near(const char *what, const char *isa, const float *got, const float *want, double bound)
{
    if (bound == 0)
        assert_memory_equal(got, want, 3 * VOCAB * sizeof *want);
    else if (error(got, want, 3 * VOCAB) > bound)
        fail_msg("%s on %s: %g", what, isa, error(got, want, 3 * VOCAB));
}

/* The same numbers as codes and as plain floats: the same bits wherever arithmetic is of floats in the same order, near
 * them elsewhere. */
static void codes_are_plain(struct memory_source *plain, struct memory_source *coded, const char *how)
{
    static float want[3 * VOCAB], got[3 * VOCAB];
    bool         sorted = strstr(how, "order");
    logits(plain, DEV_REF, 1, want);
    logits(coded, DEV_REF, 1, got);
    near(how, "ref", got, want, sorted ? 1e-6 : 0);
    for (size_t k = 0; k < ARRAY_N(isas); k++)
        for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
            bool whole = strstr(how, "whole") && !strstr(how, "packed");
            if (!dev_cpu_has_isa(isas[k]) || (n_rank == 2 && (whole || strstr(how, "order")))) continue;
            /* zeros at random make weights that do not cancel as trained ones do */
            bool   is_fp8 = !strncmp(how, "fp8", 3), x86 = strstr(isas[k], "avx");
            double bound = sorted ? 1e-5 : 0;
            if (x86 && !is_fp8) bound = 2e-3;
            if (strstr(isas[k], "bf16") || !strcmp(isas[k], "amx")) bound = 5e-2;
            gold_isa = isas[k];
            logits(plain, DEV_CPU, n_rank, want);
            logits(coded, DEV_CPU, n_rank, got);
            near(how, isas[k], got, want, bound);
        }
    gold_isa = NULL;
}

/* The numbers that the codes mean, as plain floats. Arithmetic differs where activations are rounded to bf16, and on
 * x86, where whole numbers of 16 bits meet those of 4. */
static void checkpoints_of_codes_are_the_numbers_that_they_mean(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(checkpoints); i++) {
        struct memory_source plain, coded;
        folder(&plain, checkpoints[i].how, false, "");
        folder(&coded, checkpoints[i].how, true, checkpoints[i].config);
        codes_are_plain(&plain, &coded, checkpoints[i].how);
        memory_free(&plain);
        memory_free(&coded);
    }
}

/* Whatever projection is left out of the codes: alone in its matrix (o, down), or one of those that we join (q k v,
 * gate up). */
static void any_projection_may_be_left_out_of_the_codes(void **state)
{
    (void)state;
    static const char *const left_out[] = { "q_proj",    "v_proj",    "o_proj",    "gate_proj", "up_proj",
                                            "down_proj", "self_attn", "layers.1.", "proj" };
    static const char *const hows[] = { "awq",       "gptq sym", "gptq order",   "fp8",
                                        "fp8 block", "packed",   "packed order", "int8 group" };
    for (size_t h = 0; h < ARRAY_N(hows); h++)
        for (size_t i = 0; i < ARRAY_N(left_out); i++) {
            struct memory_source plain, coded;
            size_t               c = 0;
            while (strcmp(checkpoints[c].how, hows[h])) c++;
            folder_plain = left_out[i];
            folder(&plain, hows[h], false, "");
            folder(&coded, hows[h], true, checkpoints[c].config);
            folder_plain = NULL;
            codes_are_plain(&plain, &coded, hows[h]);
            memory_free(&plain);
            memory_free(&coded);
        }
}

/* Activations that config_groups rounds row by row are rounded here too. */
static void activations_of_8_bits_are_near_floats(void **state)
{
    (void)state;
    static const char config[] = WEIGHTS(
        "int-quantized", "\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"channel\"",
        ",\"input_activations\":{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"token\",\"dynamic\":true}");
    static float         want[3 * VOCAB], got[3 * VOCAB], ref[3 * VOCAB];
    struct memory_source plain, coded;
    folder(&plain, "int8", false, "");
    folder(&coded, "int8", true, config);
    logits(&plain, DEV_REF, 1, want);
    logits(&coded, DEV_REF, 1, ref);
    double e = error(ref, want, ARRAY_N(want));
    if (!(e > 1e-4 && e < 5e-2)) fail_msg("rounded activations are %g away", e);
    for (size_t k = 0; k < ARRAY_N(isas); k++) {
        if (!dev_cpu_has_isa(isas[k])) continue;
        gold_isa = isas[k];
        logits(&coded, DEV_CPU, 1, got);
        near("int8 by int8", isas[k], got, ref, 2e-2); /* a difference of one rounding may move a code by one */
    }
    gold_isa = NULL;
    memory_free(&plain);
    memory_free(&coded);
}

/* What rounds at load gives nearly what ref gives with the same codes, on one rank and on two (whose scales are their
 * own). */
static void rounding_at_load_agrees_with_ref(void **state)
{
    (void)state;
    static const struct dev_quant formats[] = { { DT_I8, 0, false, false, false },
                                                { DT_I8, 128, false, false, false },
                                                { DT_I8, 0, false, true, false },
                                                { DT_I4, 32, false, false, false },
                                                { DT_F8E4M3, 128, false, false, false } };
    static float                  want[3 * VOCAB], got[3 * VOCAB];
    struct memory_source          plain;
    folder(&plain, "awq", false, "");
    for (size_t i = 0; i < ARRAY_N(formats); i++)
        for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
            gold_quant = formats[i];
            logits(&plain, DEV_REF, n_rank, want);
            logits(&plain, DEV_CPU, n_rank, got);
            /* with 8-bit activations a difference of one rounding may move a code by one */
            if (error(got, want, ARRAY_N(got)) > 2e-2)
                fail_msg("format %zu, %u ranks: %g", i, n_rank, error(got, want, ARRAY_N(got)));
            gold_quant = (struct dev_quant){ .code = DT_F32 };
            logits(&plain, DEV_REF, n_rank, want);
            double e = error(got, want, ARRAY_N(got));
            printf("    format %zu, %u ranks: %.3f of the largest logit away from floats\n", i, n_rank, e);
            assert_true(e > 1e-5 && e < (formats[i].code == DT_I4 ? 0.5 : 0.1));
        }
    memory_free(&plain);
}

/* ---- what is refused, and with which words */

static void refused_with(struct memory_source *s, uint32_t n_rank, struct dev_quant q, enum dev_kind device,
                         const char *says)
{
    struct model_spec spec;
    struct rank_team *t;
    uint32_t          n_block;
    struct rank_cfg   cfg = GOLD_SMALL(.quant = q);
    cfg.n_rank = n_rank;
    cfg.device = device;
    enum status st = model_spec_load(&s->src, &spec, err, sizeof err);
    if (!st) {
        st = rank_team_create(&spec, &s->src, &cfg, &n_block, &t, err, sizeof err);
        model_spec_free(&spec);
    }
    if (st != ST_CONFIG) fail_msg("taken, or %d, instead of \"%s\"", (int)st, says);
    if (!strstr(err, says) || strchr(err, '\n')) fail_msg("\"%s\" does not say \"%s\"", err, says);
    memory_free(s);
}

/* The last tensor whose name holds `name`: bytes from `at` on become others. */
static void spoil(struct memory_source *s, const char *name, size_t at, const char *bytes, size_t n)
{
    const char *found = NULL, *p = maker.header;
    while ((p = strstr(p, name))) found = p++;
    assert_non_null(found);
    at += strtoul(strstr(found, "data_offsets") + strlen("data_offsets\":["), NULL, 10);
    memcpy(s->owned[1] + 8 + maker.n_header + at, bytes, n);
}
static void rename_tensor(struct memory_source *s, const char *from, const char *to)
{
    char *p = strstr((char *)s->owned[1] + 8, from);
    assert_non_null(p);
    memcpy(p, to, strlen(to));
}

/* Tools write a bias for each matrix, and zeros where the model has none; one that is not zero is another model. */
static void a_bias_of_zeros_is_none(void **state)
{
    (void)state;
    struct memory_source plain, coded;
    folder(&plain, "gptq sym", false, "");
    folder_biases = true;
    folder(&coded, "gptq sym", true, checkpoints[2].config);
    folder_biases = false;
    codes_are_plain(&plain, &coded, "gptq sym");
    memory_free(&plain);
    spoil(&coded, "mlp.down_proj.bias", 2, "\x00\x3c", 2);
    refused_with(&coded, 1, (struct dev_quant){ .code = DT_F32 }, DEV_CPU,
                 "1 tensors that LlamaForCausalLM does not have: model.layers.1.mlp.down_proj.bias");
}

static void an_unsupported_quantization_is_refused_in_one_line(void **state)
{
    (void)state;
    static const struct dev_quant none = { .code = DT_F32 }, int8 = { .code = DT_I8 };
    const char                   *awq = checkpoints[0].config, *gptq = checkpoints[1].config;
    struct memory_source          s;
    folder(&s, "awq", true, awq);
    refused_with(&s, 1, int8, DEV_CPU, "--quantization: the checkpoint is quantised already");
    folder(&s, "awq", true, awq);
    refused_with(&s, 1, none, DEV_CUDA, "the cuda device has bf16 and f16 weights only");
    folder(&s, "awq", false, "");
    refused_with(&s, 1, int8, DEV_CUDA, "--quantization: the cuda device has bf16 and f16 weights only");
    folder(&s, "gptq", true, awq);
    refused_with(&s, 1, none, DEV_CPU, "qweight has shape [8, 64], config.json makes it [64, 8]");
    folder(&s, "fp8", true, gptq);
    refused_with(&s, 1, none, DEV_CPU,
                 "has dtype F8_E4M3, supported are BF16, F16 and F32, and the codes that quantization_config names");
    folder(&s, "gptq", true, checkpoints[2].config);
    refused_with(&s, 1, none, DEV_CPU, "a zero is not 8");
    folder(&s, "awq", true, awq);
    refused_with(&s, 4, none, DEV_CPU,
                 "16 of 64 inputs of a matrix on each of 4 ranks are no whole number of its groups of 32");
    /* a code that is no number, a scale that is none, inputs in another order, a part that is missing */
    folder(&s, "fp8", true, checkpoints[4].config);
    spoil(&s, "self_attn.k_proj.weight\"", 5, "\x7f", 1);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.1.self_attn.k_proj.weight: NaN at output 0, input or group 5");
    folder(&s, "gptq", true, gptq);
    spoil(&s, "mlp.up_proj.scales", 2, "\x00\x7c", 2);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.1.mlp.up_proj.scales: a scale is not finite at output 1");
    folder(&s, "gptq", true, gptq);
    spoil(&s, "mlp.up_proj.g_idx", 8, "\x01", 1);
    refused_with(&s, 1, none, DEV_CPU,
                 "inputs are in another order, but quantization_config.desc_act is not true: at output 0");
    folder(&s, "gptq order", true, checkpoints[7].config);
    refused_with(&s, 2, none, DEV_CPU, "cannot be cut among 2 tensor-parallel ranks, allowed is 1");
    folder(&s, "gptq order", true, checkpoints[7].config);
    spoil(&s, "mlp.down_proj.g_idx", 8, "\x77", 1);
    refused_with(&s, 1, none, DEV_CPU,
                 "model.layers.1.mlp.down_proj.g_idx: a group that is not there at output 0, input or group 2");
    folder(&s, "gptq order", true, checkpoints[7].config);
    rename_tensor(&s, "layers.0.mlp.up_proj.g_idx", "layers.0.mlp.up_proj.g_idy");
    refused_with(&s, 1, none, DEV_CPU, "model.layers.0.mlp.up_proj.g_idy");
    folder(&s, "packed sym", true, checkpoints[11].config);
    refused_with(&s, 1, none, DEV_CPU, "missing tensors: model.layers.0.self_attn.q_proj.weight_zero_point");
    folder(&s, "packed", true, checkpoints[10].config);
    refused_with(&s, 1, none, DEV_CPU, "a zero is not 8");
    folder(&s, "awq", true, awq);
    rename_tensor(&s, "layers.0.mlp.down_proj.scales", "layers.0.mlp.down_proj.scalez");
    refused_with(&s, 1, none, DEV_CPU,
                 "1 tensors that LlamaForCausalLM does not have: model.layers.0.mlp.down_proj.scalez");
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false); /* not that some are kept as floats */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_of_codes_are_the_numbers_that_they_mean),
        cmocka_unit_test(any_projection_may_be_left_out_of_the_codes),
        cmocka_unit_test(a_bias_of_zeros_is_none),
        cmocka_unit_test(activations_of_8_bits_are_near_floats),
        cmocka_unit_test(rounding_at_load_agrees_with_ref),
        cmocka_unit_test(an_unsupported_quantization_is_refused_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
