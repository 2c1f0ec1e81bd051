/* quantization_config of NVFP4, as compressed-tensors and ModelOpt write it: what is taken, and what is refused. */
#include "base/log.h"
#include "unit/engine/hf_load.h"
#include <fcntl.h>

#define COMPRESSED(format, weights)                                                              \
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"" format \
    "\", \"config_groups\": {\"group_0\": "                                                      \
    "{\"targets\": [\"Linear\"], \"weights\": {" weights "}}}}}"
#define NVFP4 "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"tensor_group\", \"group_size\": 16"

static void nvfp4_of_another_kind_is_refused_by_the_name_of_its_key(void **state)
{
    (void)state;
    static const struct {
        const char *over, *says;
    } cases[] = {
        { COMPRESSED("nvfp4-pack-quantized", "\"num_bits\": 8, \"type\": \"float\""),
          "supported of nvfp4-pack-quantized are 4-bit floats, symmetric, not dynamic" },
        { COMPRESSED("nvfp4-pack-quantized", "\"num_bits\": 4, \"type\": \"int\""),
          "supported of nvfp4-pack-quantized are 4-bit floats" },
        { COMPRESSED("nvfp4-pack-quantized", NVFP4 ", \"symmetric\": false"),
          "supported of nvfp4-pack-quantized are 4-bit floats" },
        { COMPRESSED("nvfp4-pack-quantized", NVFP4 ", \"dynamic\": true"), "supported of nvfp4-pack-quantized are" },
        { COMPRESSED("nvfp4-pack-quantized", NVFP4 ", \"scale_dtype\": \"torch.uint8\""),
          "scale_dtype is \"torch.uint8\", supported of nvfp4-pack-quantized is torch.float8_e4m3fn" },
        { COMPRESSED("nvfp4-pack-quantized",
                     "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"tensor_group\", \"group_size\": 32"),
          "group_size is 32, supported of nvfp4-pack-quantized is 16" },
        { COMPRESSED("nvfp4-pack-quantized", "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"tensor_group\""),
          "group_size is missing, supported of nvfp4-pack-quantized is 16" },
        { COMPRESSED("nvfp4-pack-quantized",
                     "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"group\", \"group_size\": 16"),
          "strategy is \"group\", supported of nvfp4-pack-quantized is tensor_group" },
        { "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", "
          "\"config_groups\": {\"group_0\": {\"weights\": null, \"input_activations\": {\"dynamic\": \"local\"}}}}}",
          "config_groups.group_0.weights is missing" },
        { "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}}",
          "quantization_config.quant_algo is \"FP8\", supported are NVFP4 and W4A16_NVFP4" },
        { "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4_AWQ\"}}",
          "quant_algo is \"NVFP4_AWQ\", supported are NVFP4" },
        { "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", "
          "\"quantized_layers\": {}}}",
          "quant_algo is \"MIXED_PRECISION\"" },
        { "{\"quantization_config\": {\"quant_method\": \"modelopt\"}}", "quant_algo is missing" },
        { "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"group_size\": 32}}",
          "quantization_config.group_size is 32, supported is 16" },
        { "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"config_groups\": "
          "{\"group_0\": {\"weights\": {\"num_bits\": 4, \"group_size\": 128}}}}}",
          "config_groups: weights.group_size is 128, supported is 16" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) refused("LlamaForCausalLM", cases[i].over, cases[i].says);
}

static void is_nvfp4(const char *over, enum model_quant_method method)
{
    struct model_spec s;
    load("LlamaForCausalLM", over, &s);
    assert_int_equal(s.quant.method, method);
    assert_int_equal(s.quant.q.code, DT_F4E2M1);
    assert_int_equal(s.quant.q.group, 16);
    assert_false(s.quant.q.act8 || s.quant.q.zero || s.quant.indexed);
    model_spec_free(&s);
}

/* Whatever is said of activations, of KV, and of what is left out. */
static void nvfp4_is_read_as_its_tools_write_it(void **state)
{
    (void)state;
    is_nvfp4(COMPRESSED("nvfp4-pack-quantized", NVFP4), QUANT_NVFP4);
    is_nvfp4(COMPRESSED("nvfp4-pack-quantized",
                        NVFP4 ", \"symmetric\": true, \"dynamic\": false, \"scale_dtype\": \"torch.float8_e4m3fn\", "
                              "\"observer\": \"static_minmax\""),
             QUANT_NVFP4);
    is_nvfp4(
        "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"mixed-precision\", "
        "\"kv_cache_scheme\": {\"num_bits\": 8}, \"ignore\": [\"lm_head\"], \"config_groups\": {\"group_0\": {\"format\": "
        "\"nvfp4-pack-quantized\", \"weights\": {" NVFP4 "}, \"input_activations\": {\"num_bits\": 4, \"dynamic\": "
        "\"local\"}}}}}",
        QUANT_NVFP4);
    is_nvfp4(
        "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"kv_cache_scheme\": "
        "{\"num_bits\": 8}, \"ignore\": [\"lm_head\"], \"config_groups\": {\"group_0\": {\"weights\": {\"group_size\": 16}, "
        "\"input_activations\": {\"dynamic\": false}}}}}",
        QUANT_MODELOPT);
    is_nvfp4("{\"quantization_config\": {\"quant_method\": \"modelopt_fp4\", \"quant_algo\": \"W4A16_NVFP4\", "
             "\"group_size\": 16}}",
             QUANT_MODELOPT);
}

/* Loads a configuration without quantization_config, or with it, beside a file of ModelOpt's. */
static enum status load_beside(const char *config, const char *file, struct model_spec *s)
{
    struct memory_source m = { .src.n_embed = 0 };
    memory_add_text(&m, "config.json", config);
    memory_add_text(&m, "hf_quant_config.json", file);
    enum status st = model_spec_load(&m.src, s, err, sizeof err);
    memory_free(&m);
    return st;
}

static void older_exports_of_modelopt_have_a_file_of_their_own(void **state)
{
    (void)state;
#define SMALL                                                                                    \
    "\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, \"num_hidden_layers\": 2, " \
    "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 320"
    static const struct {
        const char *file, *says;
    } wrong[] = {
        { "{\"quantization\": {\"quant_algo\": \"FP8\"}}",
          "hf_quant_config.json: quantization.quant_algo is \"FP8\", supported are NVFP4 and W4A16_NVFP4" },
        { "{\"quantization\": {\"quant_algo\": \"NVFP4\", \"group_size\": 32}}",
          "hf_quant_config.json: quantization.group_size is 32, supported is 16" },
        { "{}", "hf_quant_config.json: quantization.quant_algo is missing" },
        { "[]", "hf_quant_config.json: is not a JSON object" },
        { "{", "hf_quant_config.json: not valid JSON" },
    };
    struct model_spec s;
    assert_int_equal(
        load_beside("{" SMALL "}",
                    "{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": {\"quant_algo\": \"NVFP4\", "
                    "\"kv_cache_quant_algo\": \"FP8\", \"group_size\": 16, \"exclude_modules\": [\"lm_head\"]}}",
                    &s),
        ST_OK);
    assert_int_equal(s.quant.method, QUANT_MODELOPT);
    assert_int_equal(s.quant.q.group, 16);
    model_spec_free(&s);
    for (size_t i = 0; i < ARRAY_N(wrong); i++) {
        assert_int_equal(load_beside("{" SMALL "}", wrong[i].file, &s), ST_CONFIG);
        if (!strstr(err, wrong[i].says)) fail_msg("\"%s\" does not say \"%s\"", err, wrong[i].says);
    }
    /* scales of the KV cache alone: the weights are plain */
    assert_int_equal(
        load_beside("{" SMALL "}", "{\"quantization\": {\"quant_algo\": null, \"kv_cache_quant_algo\": \"FP8\"}}", &s),
        ST_OK);
    assert_int_equal(s.quant.method, QUANT_NONE);
    model_spec_free(&s);
    /* what config.json says itself counts */
    assert_int_equal(load_beside("{" SMALL ", \"quantization_config\": {\"quant_method\": \"fp8\"}}", "{", &s), ST_OK);
    assert_int_equal(s.quant.method, QUANT_FP8);
    model_spec_free(&s);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = { cmocka_unit_test(nvfp4_of_another_kind_is_refused_by_the_name_of_its_key),
                                        cmocka_unit_test(nvfp4_is_read_as_its_tools_write_it),
                                        cmocka_unit_test(older_exports_of_modelopt_have_a_file_of_their_own) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
