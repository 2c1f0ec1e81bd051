/* Models whose matrices are codes: checkpoints as AWQ, GPTQ and fp8 tools write them against the same numbers as plain floats, and
 * rounding at load against ref. */
#include "base/rng.h"
#include "golden.h"
#include "memory_source.h"

enum { HIDDEN = 64, INTER = 128, LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 16, VOCAB = 96, DATA_MAX = 1 << 20, HEADER_MAX = 1 << 15 };

/* ---- a checkpoint in memory */

struct maker {
    char          header[HEADER_MAX];
    unsigned char data[DATA_MAX];
    size_t        n_header, n;
    const char   *method; /* NULL: plain floats that the codes mean */
    const char   *how;    /* of the codes */
    uint64_t      seed;
};
static struct maker maker;
static char         err[512];

static uint32_t draw(struct maker *m, uint32_t n) { return rng_philox(99, 1, m->seed++).x[0] % n; }

static void add(struct maker *m, const char *name, const char *suffix, const char *dtype, uint32_t a, uint32_t b, const void *bytes,
                size_t n)
{
    char shape[32];
    snprintf(shape, sizeof shape, b ? "[%u,%u]" : "[%u]", a, b);
    assert_true(m->n + n <= DATA_MAX);
    m->n_header += (size_t)snprintf(m->header + m->n_header, HEADER_MAX - m->n_header,
                                    "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", m->n ? "," : "{", name, suffix,
                                    dtype, shape, m->n, m->n + n);
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

/* The codes of a matrix [n, k], as they are or as floats. */
static void add_codes(struct maker *m, const char *name, uint32_t n, uint32_t k)
{
    static uint8_t  code[INTER * INTER], zero[INTER * 4];
    static float    scale[INTER * 4], x[INTER * INTER];
    static uint32_t word[INTER * INTER / 8];
    static f16      half[INTER * 4];
    bool            is_fp8 = !strncmp(m->how, "fp8", 3), awq = !strcmp(m->how, "awq"), sym = !strcmp(m->how, "gptq sym"),
         whole = !strcmp(m->how, "gptq whole"), block = !strcmp(m->how, "fp8 block"), one = !strcmp(m->how, "fp8 one");
    uint32_t group = is_fp8 ? (block ? 32 : k) : whole ? k : 32, groups = k / group;
    for (uint32_t i = 0; i < n * k; i++) {
        code[i] = (uint8_t)draw(m, is_fp8 ? 256 : 16);
        if (is_fp8 && (code[i] & 0x7f) == 0x7f) code[i] = 0x11;
    }
    for (uint32_t i = 0; i < n * groups; i++) {
        half[i] = f32_to_f16((is_fp8 ? 0.0003f : 0.02f) * (1 + (float)draw(m, 100) / 100));
        scale[i] = f16_to_f32(half[i]), zero[i] = sym ? 8 : (uint8_t)(1 + draw(m, 15));
        if (one) scale[i] = scale[0];
        if (block) scale[i] = scale[i / groups / 16 * 16 * groups + i % groups]; /* blocks of 16 outputs */
    }
    for (uint32_t i = 0; i < n * k; i++) {
        uint32_t g = i / k * groups + i % k / group;
        x[i] = is_fp8 ? f8e4m3_to_f32(code[i]) * scale[g] : ((float)code[i] - (float)zero[g]) * scale[g];
    }
    if (!m->method) {
        add(m, name, ".weight", "F32", n, k, x, n * k * sizeof *x);
        return;
    }
    if (is_fp8) {
        add(m, name, ".weight", "F8_E4M3", n, k, code, n * k);
        if (one)
            add(m, name, ".weight_scale", "F32", 1, 0, scale, 4);
        else if (!block)
            add(m, name, ".weight_scale", "F32", n, 1, scale, n * 4);
        else {
            for (uint32_t b = 0; b < n / 16; b++) memmove(scale + b * groups, scale + b * 16 * groups, groups * sizeof *scale);
            add(m, name, ".weight_scale_inv", "F32", n / 16, groups, scale, n / 16 * groups * sizeof *scale);
        }
        add(m, name, ".input_scale", "F32", 1, 0, scale, 4);
        return;
    }
    static const uint8_t awq_output[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }; /* that half byte i of a word holds */
    memset(word, 0, sizeof word);
    for (uint32_t i = 0; i < n * k; i++) { /* i: half byte */
        if (awq) {
            uint32_t row = i / n, o = i % n / 8 * 8 + awq_output[i % 8];
            word[i / 8] |= (uint32_t)code[o * k + row] << i % 8 * 4;
        } else {
            uint32_t w = i / 8, in = w / n * 8 + i % 8, o = w % n;
            word[w] |= (uint32_t)code[o * k + in] << i % 8 * 4;
        }
    }
    add(m, name, ".qweight", "I32", awq ? k : k / 8, awq ? n / 8 : n, word, n * k / 2);
    memset(word, 0, sizeof word);
    for (uint32_t i = 0; i < n * groups; i++) {
        uint32_t o = i % n / 8 * 8 + (awq ? awq_output[i % 8] : i % 8);
        word[i / 8] |= (uint32_t)(zero[o * groups + i / n] - !awq) << i % 8 * 4;
    }
    add(m, name, ".qzeros", "I32", groups, n / 8, word, n * groups / 2);
    static f16 turned[INTER * 4];
    for (uint32_t i = 0; i < n * groups; i++) turned[i] = half[i % n * groups + i / n];
    add(m, name, ".scales", "F16", groups, n, turned, n * groups * sizeof *turned);
    if (awq) return;
    for (uint32_t i = 0; i < k; i++) word[i] = i / group;
    add(m, name, ".g_idx", "I32", k, 0, word, k * 4);
}

static void folder(struct memory_source *s, const char *how, bool codes, const char *config)
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
    m->how = how, m->method = codes ? config : NULL;
    add_floats(m, "model.embed_tokens", VOCAB, HIDDEN, 0, 1);
    add_floats(m, "model.norm", HIDDEN, 0, 1, 0.1f);
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof name, "model.layers.%u.input_layernorm", l), add_floats(m, name, HIDDEN, 0, 1, 0.1f);
        snprintf(name, sizeof name, "model.layers.%u.post_attention_layernorm", l), add_floats(m, name, HIDDEN, 0, 1, 0.1f);
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
        HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, VOCAB, codes ? ",\"quantization_config\":" : "", codes ? config : "");
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
        worst = fmax(worst, fabs((double)got[i] - (double)want[i])), max = fmax(max, fabs((double)want[i]));
    }
    return worst / max;
}

static const struct {
    const char *how, *config;
} checkpoints[] = {
    { "awq", "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"zero_point\":true,\"version\":\"gemm\"}" },
    { "gptq", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false,\"desc_act\":false}" },
    { "gptq sym", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true}" },
    { "gptq whole", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-1,\"sym\":false}" },
    { "fp8",
      "{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],"
      "\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"}}}}" },
    { "fp8 one", "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}" },
    { "fp8 block", "{\"quant_method\":\"fp8\",\"weight_block_size\":[16,32]}" },
};

/* The numbers that the codes mean, as plain floats: the same bits wherever arithmetic is of floats, near them elsewhere: where activations
 * are rounded to bf16, and on x86, where whole numbers of 16 bits meet those of 4. */
static void checkpoints_of_codes_are_the_numbers_that_they_mean(void **state)
{
    (void)state;
    static float             want[3 * VOCAB], got[3 * VOCAB];
    static const char *const isas[] = { "scalar", "avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx", "neon", "neon-bf16" };
    for (size_t i = 0; i < ARRAY_N(checkpoints); i++) {
        struct memory_source plain, codes;
        folder(&plain, checkpoints[i].how, false, ""), folder(&codes, checkpoints[i].how, true, checkpoints[i].config);
        logits(&plain, DEV_REF, 1, want), logits(&codes, DEV_REF, 1, got);
        assert_memory_equal(got, want, sizeof want);
        for (size_t k = 0; k < ARRAY_N(isas); k++)
            for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
                if (!dev_cpu_has_isa(isas[k]) || (n_rank == 2 && !strcmp(checkpoints[i].how, "gptq whole"))) continue;
                /* zeros at random make weights that do not cancel as trained ones do */
                bool   is_fp8 = !strncmp(checkpoints[i].how, "fp8", 3), x86 = strstr(isas[k], "avx");
                double bound = strstr(isas[k], "bf16") || !strcmp(isas[k], "amx") ? 5e-2 : x86 && !is_fp8 ? 2e-3 : 0;
                gold_isa = isas[k];
                logits(&plain, DEV_CPU, n_rank, want), logits(&codes, DEV_CPU, n_rank, got);
                if (bound == 0)
                    assert_memory_equal(got, want, sizeof want);
                else if (error(got, want, ARRAY_N(got)) > bound)
                    fail_msg("%s on %s: %g", checkpoints[i].how, isas[k], error(got, want, ARRAY_N(got)));
            }
        gold_isa = NULL;
        memory_free(&plain), memory_free(&codes);
    }
}

/* What rounds at load gives nearly what ref gives with the same codes, on one rank and on two (whose scales are their own). */
static void rounding_at_load_agrees_with_ref(void **state)
{
    (void)state;
    static const struct dev_quant formats[] = { { DT_I8, 0, false, false },
                                                { DT_I8, 128, false, false },
                                                { DT_I8, 0, false, true },
                                                { DT_I4, 32, false, false },
                                                { DT_F8E4M3, 128, false, false } };
    static float                  want[3 * VOCAB], got[3 * VOCAB];
    struct memory_source          plain;
    folder(&plain, "awq", false, "");
    for (size_t i = 0; i < ARRAY_N(formats); i++)
        for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
            gold_quant = formats[i];
            logits(&plain, DEV_REF, n_rank, want), logits(&plain, DEV_CPU, n_rank, got);
            /* with 8-bit activations a difference of one rounding may move a code by one */
            if (error(got, want, ARRAY_N(got)) > 2e-2) fail_msg("format %zu, %u ranks: %g", i, n_rank, error(got, want, ARRAY_N(got)));
            gold_quant = (struct dev_quant){ .code = DT_F32 };
            logits(&plain, DEV_REF, n_rank, want);
            double e = error(got, want, ARRAY_N(got));
            printf("    format %zu, %u ranks: %.3f of the largest logit away from floats\n", i, n_rank, e);
            assert_true(e > 1e-5 && e < (formats[i].code == DT_I4 ? 0.5 : 0.1));
        }
    memory_free(&plain);
}

/* ---- what is refused, and with which words */

static void refused_with(struct memory_source *s, uint32_t n_rank, struct dev_quant q, enum dev_kind device, const char *says)
{
    struct model_spec spec;
    struct rank_team *t;
    uint32_t          n_block;
    struct rank_cfg   cfg = { .n_rank = n_rank,
                              .device = device,
                              .n_thread = 1,
                              .load = { .quant = q,
                                        .weight_dtype = DT_COUNT,
                                        .kv_dtype = DT_COUNT,
                                        .batch_rows_max = 8,
                                        .logit_rows_max = 2,
                                        .n_block = 2,
                                        .block_tokens = 16 } };
    enum status       st = model_spec_load(&s->src, &spec, err, sizeof err);
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

static void what_does_not_fit_is_refused_in_one_line(void **state)
{
    (void)state;
    static const struct dev_quant none = { .code = DT_F32 }, int8 = { .code = DT_I8 };
    const char                   *awq = checkpoints[0].config, *gptq = checkpoints[1].config;
    struct memory_source          s;
    folder(&s, "awq", true, awq), refused_with(&s, 1, int8, DEV_CPU, "--quantization: the checkpoint is quantised already");
    folder(&s, "awq", true, awq), refused_with(&s, 1, none, DEV_CUDA, "the cuda device has bf16 and f16 weights only");
    folder(&s, "awq", false, ""), refused_with(&s, 1, int8, DEV_CUDA, "--quantization: the cuda device has bf16 and f16 weights only");
    folder(&s, "gptq", true, awq), refused_with(&s, 1, none, DEV_CPU, "qweight has shape [8, 64], config.json makes it [64, 8]");
    folder(&s, "fp8", true, gptq), refused_with(&s, 1, none, DEV_CPU, "has dtype F8_E4M3, quantization_config makes it I32");
    folder(&s, "gptq", true, checkpoints[2].config), refused_with(&s, 1, none, DEV_CPU, "a zero is not 8");
    folder(&s, "awq", true, awq),
        refused_with(&s, 4, none, DEV_CPU, "16 of 64 inputs of a matrix on each of 4 ranks are no whole number of its groups of 32");
    /* a code that is no number, a scale that is none, inputs in another order, a part that is missing */
    folder(&s, "fp8", true, checkpoints[4].config), spoil(&s, "self_attn.k_proj.weight\"", 5, "\x7f", 1);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.1.self_attn.k_proj.weight: NaN at output 0, input or group 5");
    folder(&s, "gptq", true, gptq), spoil(&s, "mlp.up_proj.scales", 2, "\x00\x7c", 2);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.1.mlp.up_proj.scales: a scale is not finite at output 1");
    folder(&s, "gptq", true, gptq), spoil(&s, "mlp.up_proj.g_idx", 8, "\x01", 1);
    refused_with(&s, 1, none, DEV_CPU, "inputs are in another order (desc_act), which is not supported, at output 0, input or group 2");
    folder(&s, "awq", true, awq), rename_tensor(&s, "layers.0.mlp.down_proj.scales", "layers.0.mlp.down_proj.scalez");
    refused_with(&s, 1, none, DEV_CPU, "1 tensors that LlamaForCausalLM does not have: model.layers.0.mlp.down_proj.scalez");
}

int main(void)
{
    log_init(LOG_LEVEL_WARN, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_of_codes_are_the_numbers_that_they_mean),
        cmocka_unit_test(rounding_at_load_agrees_with_ref),
        cmocka_unit_test(what_does_not_fit_is_refused_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
