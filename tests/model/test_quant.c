/* Models whose matrices are codes: checkpoints as AWQ, GPTQ and fp8 tools write them against the same numbers as plain
 * floats, and rounding at load against ref. */
#include "model/quant_folder.h"

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
    static const struct dev_quant w8a8 = { .code = DT_I8, .act8 = true };
    const char                   *awq = checkpoints[0].config, *gptq = checkpoints[1].config;
    struct memory_source          s;
    folder(&s, "awq", true, awq);
    refused_with(&s, 1, int8, DEV_CPU, "--quantization: the checkpoint is quantised already");
    folder(&s, "awq", false, "");
    refused_with(&s, 1, w8a8, DEV_CUDA,
                 "--quantization: a GPU multiplies codes with activations of 16 bits, allowed are");
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
    const char *nvfp4 = checkpoints[ARRAY_N(checkpoints) - 2].config,
               *modelopt = checkpoints[ARRAY_N(checkpoints) - 1].config;
    folder(&s, "nvfp4", true, nvfp4);
    spoil(&s, "mlp.up_proj.weight_scale\"", 5, "\xff", 1);
    refused_with(&s, 1, none, DEV_CPU,
                 "model.layers.1.mlp.up_proj.weight_scale: a scale is not finite at output 1, input or group 1");
    folder(&s, "nvfp4", true, nvfp4);
    spoil(&s, "mlp.up_proj.weight_global_scale", 0, "\x00\x00\x00\x00", 4);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.1.mlp.up_proj.weight_global_scale: the scale of all");
    folder(&s, "nvfp4 modelopt", true, modelopt);
    spoil(&s, "mlp.up_proj.weight_scale_2", 0, "\x00\x00\x80\x7f", 4);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.1.mlp.up_proj.weight_scale_2: the scale of all");
    folder(&s, "nvfp4", true, nvfp4);
    rename_tensor(&s, "layers.1.mlp.up_proj.weight_global_scale", "layers.1.mlp.up_proj.input_global_scalex");
    refused_with(&s, 1, none, DEV_CPU, "model.layers.1.mlp.up_proj.input_global_scalex");
    folder(&s, "nvfp4", true, nvfp4);
    refused_with(&s, 1, int8, DEV_CPU, "--quantization: the checkpoint is quantised already");
    folder(&s, "nvfp4", true, nvfp4);
    refused_with(&s, 8, none, DEV_CPU, "num_attention_heads is 4, which does not divide among 8");
    folder(&s, "nvfp4 modelopt", true, nvfp4);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.0.self_attn.q_proj.weight");
    folder(&s, "nvfp4", true, modelopt);
    refused_with(&s, 1, none, DEV_CPU, "model.layers.0.self_attn.q_proj.weight_packed");
    folder(&s, "packed sym", true, nvfp4);
    refused_with(&s, 1, none, DEV_CPU, "weight_packed has dtype I32, quantization_config makes it U8");
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
