/* Tensors that hold a matrix of every expert: files that are damaged are refused with one line, and MXFP4 is exactly
 * the numbers that it means. */
#include "engine/model/bind.h"
#include "engine/model/mxfp4.h"
#include "golden.h"
#include "memory_source.h"

static struct memory_source m;
static unsigned char       *file;
static size_t               file_bytes;

/* A checkpoint in memory, whose bytes a test may change before it adds them. more: keys of config.json. */
static void begin_with(const char *name, const char *more)
{
    char               dir[512], config[8192];
    struct source      src = { .dir = dir };
    struct source_file f;
    char              *text;
    size_t             n;
    memset(&m, 0, sizeof m);
    snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, name);
    assert_int_equal(source_text(&src, "config.json", 1 << 20, &text, &n), ST_OK);
    assert_int_equal(text[0], '{');
    assert_true((size_t)snprintf(config, sizeof config, "{%s%s", more, text + 1) < sizeof config);
    memory_add_text(&m, "config.json", config);
    free(text);
    assert_int_equal(source_open(&src, "model.safetensors", &f), ST_OK);
    file_bytes = f.bytes;
    assert_non_null(file = malloc(file_bytes));
    assert_int_equal(source_read(&f, 0, file, file_bytes), ST_OK);
    source_close(&f);
}

static void begin(void) { begin_with("gpt-oss-mxfp4", ""); }

static uint64_t header_bytes(void)
{
    uint64_t n;
    memcpy(&n, file, 8);
    return n;
}

/* Replaces a text of the header by another of the same length. */
static void patch(const char *from, const char *to)
{
    assert_int_equal(strlen(from), strlen(to));
    unsigned char *at = memmem(file + 8, header_bytes(), from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
}

/* Where the data of a tensor begins, and its bytes. */
static unsigned char *data_of(const char *name, size_t *bytes_out)
{
    json_t       *header = json_parse((const char *)file + 8, header_bytes(), 0, NULL);
    const json_t *at = json_object_get(json_object_get(header, name), "data_offsets");
    assert_non_null(at);
    size_t from = (size_t)json_integer_value(json_array_get(at, 0)), to = json_integer_value(json_array_get(at, 1));
    json_decref(header);
    *bytes_out = to - from;
    return file + 8 + header_bytes() + from;
}

/* Loads what was made; the line of the error goes to err. */
static enum status load(char *err, size_t err_bytes)
{
    struct model_spec spec;
    struct rank_team *team = NULL;
    uint32_t          n_block;
    struct rank_cfg   cfg = GOLD_SMALL();
    memory_add(&m, "model.safetensors", file, file_bytes);
    enum status st = model_spec_load(&m.src, &spec, err, err_bytes);
    if (!st) {
        st = rank_team_create(&spec, &m.src, &cfg, &n_block, &team, err, err_bytes);
        model_spec_free(&spec);
    }
    if (team) rank_team_free(team);
    memory_free(&m);
    free(file);
    return st;
}

static void refused(const char *says)
{
    char err[1024] = "";
    assert_int_equal(load(err, sizeof err), ST_CONFIG);
    if (!strstr(err, says)) fail_msg("\"%s\" does not say \"%s\"", err, says);
    assert_null(strchr(err, '\n'));
}

static void a_stack_of_another_shape_type_or_name_is_refused(void **state)
{
    (void)state;
    char err[1024];
    begin();
    if (load(err, sizeof err)) fail_msg("%s", err);
    begin();
    patch("1.mlp.experts.down_proj_scales", "1.mlp.experts.down_proj_scalez");
    refused("model.layers.1.mlp.experts.down_proj_scalez");
    begin();
    patch("layers.1.mlp.experts.down_proj_scales", "layers.2.mlp.experts.down_proj_scales"); /* there are two layers */
    refused("model.layers.2.mlp.experts.down_proj_scales");
    begin();
    patch("\"model.layers.0.mlp.experts.down_proj_blocks\":{\"dtype\":\"U8\",\"shape\":[4,64,2,16]",
          "\"model.layers.0.mlp.experts.down_proj_blocks\":{\"dtype\":\"U8\",\"shape\":[4,2,64,16]");
    refused(
        "model.layers.0.mlp.experts.down_proj_blocks has shape [4, 2, 64, 16], config.json makes it [4, 64, 2, 16]");
    begin();
    patch("\"model.layers.0.mlp.experts.gate_up_proj_scales\":{\"dtype\":\"U8\"",
          "\"model.layers.0.mlp.experts.gate_up_proj_scales\":{\"dtype\":\"I8\"");
    refused("gate_up_proj_scales has dtype I8, supported is U8");
}

static void scales_that_are_missing_or_no_number_are_named(void **state)
{
    (void)state;
    size_t n;
    begin();
    data_of("model.layers.1.mlp.experts.down_proj_scales", &n)[n - 1] = MXFP4_NAN;
    refused("model.layers.1.mlp.experts.down_proj_scales: a scale of expert 3, output 63 is 255, which is no number");
    begin(); /* a name that nobody reads */
    patch("model.layers.0.mlp.experts.down_proj_scales", "model.layer.0.self_attn.rotary_emb.inv_freq");
    refused("model.layers.0.mlp.experts.down_proj_blocks's scales");
}

static void experts_in_one_tensor_are_refused_as_codes_or_in_another_shape(void **state)
{
    (void)state;
    static const char *const int8 =
        "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"int-quantized\", "
        "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\"}}}},";
    char err[1024];
    begin_with("qwen3-vl-moe", int8); /* plain beside codes is taken */
    if (load(err, sizeof err)) fail_msg("%s", err);
    begin_with("qwen3-vl-moe", int8);
    patch("layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[6,64,48]",
          "layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"I8\",\"shape\":[6,64,96]  ");
    refused("layers.0.mlp.experts.gate_up_proj holds codes of all experts, supported are codes of a tensor for each");
    begin_with("qwen3-vl-moe-rows", int8);
    patch("layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[4,48,32]",
          "layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"I8\",\"shape\":[4,48,64]  ");
    refused("layers.0.mlp.experts.gate_up_proj holds codes of all experts, supported are codes of a tensor for each");
    begin_with("qwen3-vl-moe", "");
    patch("layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[6,64,48]",
          "layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[4,64,72]");
    refused("layers.0.mlp.experts.gate_up_proj has shape [4, 64, 72], config.json makes it [6, 64, 48]");
}

static void a_tensor_of_all_experts_that_is_missing_is_named_once(void **state)
{
    (void)state;
    begin_with("qwen3-vl-moe", "");
    patch("model.language_model.layers.2.mlp.experts.down_proj", "model.visual.language_model.2.mlp.experts.down_proj");
    char err[1024] = "";
    assert_int_equal(load(err, sizeof err), ST_CONFIG);
    const char *missing = strstr(err, "missing tensors: ");
    assert_non_null(missing);
    assert_string_equal(missing, "missing tensors: model.layers.2.mlp.experts.down_proj");
}

/* Bytes of one rank's weights. */
static uint64_t weights_of(const struct model_spec *spec, enum dev_kind kind, uint32_t n_rank, enum dtype t)
{
    struct model_load_cfg lc = {
        .weight_dtype = t, .kv_dtype = t, .batch_rows_max = 1, .logit_rows_max = 1, .block_tokens = 16
    };
    struct model_plan plan;
    struct device    *d;
    assert_int_equal(dev_paper(kind, 0, n_rank, DT_BF16, &d), ST_OK);
    assert_int_equal(model_plan(spec, &lc, d, &plan), ST_OK);
    dev_close(d);
    return plan.weight_bytes;
}

/* 2 layers of 4 experts, each [2 x 64, 64] and [64, 64]: half a byte a number and a byte for each 32, in pieces of 256
 * bytes. Of 4 ranks each has 16 inputs of the second, half a block. */
static void experts_of_mxfp4_take_the_bytes_that_they_have_in_the_file(void **state)
{
    (void)state;
    struct gold g;
    gold_open(&g, "gpt-oss-mxfp4");
    struct model_spec wide = g.spec;
    assert_true(g.spec.mxfp4);
    wide.mxfp4 = false;
    assert_int_equal(weights_of(&wide, DEV_CPU, 1, DT_BF16) - weights_of(&g.spec, DEV_CPU, 1, DT_BF16),
                     8 * (2 * 128 * 64 - (64 + 4) * 64) + 8 * (2 * 64 * 64 - (32 + 4) * 64));
    assert_int_equal(weights_of(&wide, DEV_CPU, 4, DT_BF16) - weights_of(&g.spec, DEV_CPU, 4, DT_BF16),
                     8 * (2 * 32 * 64 - (16 + 4) * 64));
    gold_close(&g);
    gold_open(&g, "gpt-oss");
    assert_false(g.spec.mxfp4);
    gold_close(&g);
}

/* Whole blocks on each rank, or not: the same numbers, and so on ref the same bits. */
static void experts_that_stay_mxfp4_compute_what_those_that_became_floats_do(void **state)
{
    (void)state;
    struct gold g;
    float      *first = NULL;
    gold_open(&g, "gpt-oss-mxfp4");
    for (int kept = 0; kept < 2; kept++) {
        struct model_spec spec = g.spec;
        struct gold_run   r;
        spec.mxfp4 = kept;
        gold_run_open(&r, &spec, &g.src, DEV_REF, 1, DT_F32, DT_F32);
        gold_step(&r, g.prompt[1], 0, g.n[1], NULL, 0, true);
        size_t bytes = spec.vocab * sizeof(float);
        if (!first)
            first = memcpy(malloc(bytes), rank_team_logits(r.team), bytes);
        else
            assert_memory_equal(first, rank_team_logits(r.team), bytes);
        gold_run_close(&r);
    }
    free(first);
    gold_close(&g);
}

static void numbers_of_mxfp4_are_signs_powers_and_halves(void **state)
{
    (void)state;
    static const float want[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    for (uint32_t scale = 0; scale < MXFP4_NAN; scale++)
        for (uint32_t code = 0; code < 16; code++) {
            double x = ldexp(want[code & 7], (int)scale - 127) * (code & 8 ? -1 : 1);
            float  got = mxfp4_to_f32(code, (uint8_t)scale);
            assert_true((double)got == x || (scale > 252 && isinf(got)));
            if (scale >= 3 && scale <= 252) assert_true(bf16_to_f32(f32_to_bf16(got)) == got);
            assert_int_equal(signbit(got) != 0, code >> 3);
        }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stack_of_another_shape_type_or_name_is_refused),
        cmocka_unit_test(scales_that_are_missing_or_no_number_are_named),
        cmocka_unit_test(experts_in_one_tensor_are_refused_as_codes_or_in_another_shape),
        cmocka_unit_test(a_tensor_of_all_experts_that_is_missing_is_named_once),
        cmocka_unit_test(experts_of_mxfp4_take_the_bytes_that_they_have_in_the_file),
        cmocka_unit_test(experts_that_stay_mxfp4_compute_what_those_that_became_floats_do),
        cmocka_unit_test(numbers_of_mxfp4_are_signs_powers_and_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
