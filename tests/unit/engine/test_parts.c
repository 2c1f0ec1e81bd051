/* What the parts of a model keep of its tokens, and where it lies in a block. */
#include "engine/model/parts.h"
#include "memory_source.h"

static void spec_of(const char *config, struct model_spec *spec)
{
    char                 err[256];
    struct memory_source m = { .src.n_embed = 0 };
    memory_add_text(&m, "config.json", config);
    if (model_spec_load(&m.src, spec, err, sizeof err)) fail_msg("%s: %s", config, err);
    memory_free(&m);
}

/* Folders of KV name their blocks by model and size, not by layout: this one may not move. */
static void plain_layers_lie_behind_each_other_k_before_v(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t    n_rank, block_tokens;
        enum dtype  kv;
        uint64_t    layer_bytes;
    } want[] = {
        { "qwen3-8b", 1, 16, DT_BF16, 64 << 10 }, /* the 2.25 MiB of docs/ARCHITECTURE.md are 36 of these */
        { "qwen3-8b", 1, 16, DT_F32, 128 << 10 },
        { "qwen3-8b", 4, 32, DT_BF16, 32 << 10 },
        { "qwen3-8b", 16, 16, DT_BF16, 8 << 10 }, /* more ranks than KV heads: one head each */
        { "llama-3.2-1b", 1, 64, DT_F16, 128 << 10 },
        { "qwen3-8b", 1, 16, DT_F8E4M3, 2 * 8 * 16 * (128 + 1) }, /* a byte a row for its scale */
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct source     src;
        struct model_spec spec;
        char              err[256];
        assert_true(model_shape(want[i].name, &src));
        assert_int_equal(model_spec_load(&src, &spec, err, sizeof err), ST_OK);
        struct dev_kv_layer *layer = calloc(spec.n_layer, sizeof *layer);
        uint64_t             bytes = parts_kv(&spec, want[i].n_rank, want[i].kv, want[i].block_tokens, layer, NULL);
        assert_int_equal(bytes, spec.n_layer * want[i].layer_bytes);
        assert_int_equal(model_kv_block_bytes(&spec, want[i].n_rank, want[i].kv, want[i].block_tokens), bytes);
        for (uint32_t l = 0; l < spec.n_layer; l++) {
            assert_int_equal(layer[l].offset, l * want[i].layer_bytes);
            assert_int_equal(layer[l].bytes, want[i].layer_bytes);
        }
        free(layer);
        model_spec_free(&spec);
    }
}

static void a_layer_that_reads_the_kv_of_another_keeps_none(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        uint32_t of;
    } want[] = {
        { 2 * 2 * 8 * 2, 0 }, { 2 * 2 * 16 * 2, 1 }, { 2 * 2 * 8 * 2, 2 }, { 2 * 2 * 16 * 2, 3 }, { 0, 2 }, { 0, 3 }
    };
    struct model_spec   spec;
    struct dev_kv_layer layer[6];
    spec_of(
        "{\"architectures\": [\"Gemma4ForCausalLM\"], \"hidden_size\": 64, \"num_hidden_layers\": 6, \"num_attention_heads\": 4,"
        " \"num_key_value_heads\": 2, \"head_dim\": 8, \"global_head_dim\": 16, \"intermediate_size\": 96, \"vocab_size\": 320,"
        " \"torch_dtype\": \"bfloat16\", \"num_kv_shared_layers\": 2, \"use_double_wide_mlp\": true, \"layer_types\": ["
        "\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]}",
        &spec);
    uint64_t all = parts_kv(&spec, 1, DT_BF16, 16, layer, NULL), at = 0;
    for (uint32_t l = 0; l < 6; l++) {
        struct kv_need need = parts_mix(&spec, l)->kv(&spec, l, 1, DT_BF16);
        assert_int_equal(need.bytes, want[l].bytes);
        assert_int_equal(spec_kv_layer(&spec, l), want[l].of);
        assert_int_equal(spec_inter(&spec, l), l < 4 ? 96 : 192);
        assert_int_equal(layer[l].offset, at);
        assert_int_equal(layer[l].bytes, want[l].bytes * 16);
        at += layer[l].bytes;
    }
    assert_int_equal(all, at);
    model_spec_free(&spec);
}

static void a_layer_that_slides_needs_its_window_and_no_more(void **state)
{
    (void)state;
    struct model_spec spec;
    spec_of(
        "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 4,"
        " \"num_key_value_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": 320, \"torch_dtype\": \"bfloat16\","
        " \"use_sliding_window\": true, \"sliding_window\": 48, \"max_window_layers\": 1}",
        &spec);
    for (uint32_t l = 0; l < 3; l++) {
        struct kv_need need = parts_mix(&spec, l)->kv(&spec, l, 1, DT_BF16);
        assert_int_equal(need.life, l ? KV_LIFE_WINDOW : KV_LIFE_ALL);
        assert_int_equal(need.window, l ? 48 : 0);
        assert_int_equal(need.bytes, 2 * 2 * 16 * 2); /* of a token, whatever becomes of it later */
    }
    model_spec_free(&spec);
}

/* Gemma 3 27B: 10 of 62 layers see all tokens. */
static void layers_with_a_window_have_blocks_of_their_own_beside_the_others(void **state)
{
    (void)state;
    struct model_spec      spec;
    struct model_kv_groups g = { .window = 0 };
    spec_of("{\"architectures\": [\"Gemma3ForCausalLM\"], \"model_type\": \"gemma3_text\", \"hidden_size\": 5376, "
            "\"num_hidden_layers\": 62, \"num_attention_heads\": 32, \"num_key_value_heads\": 16, \"head_dim\": 128, "
            "\"intermediate_size\": 21504, \"vocab_size\": 262208, \"sliding_window\": 1024, "
            "\"sliding_window_pattern\": 6, \"torch_dtype\": \"bfloat16\"}",
            &spec);
    assert_true(model_kv_groups(&spec, 1, DT_BF16, 16, &g));
    assert_int_equal(g.window, 1024);
    assert_int_equal(g.block_bytes, 16 * (80 << 10)); /* of a token beyond its windows, not 496 */
    assert_int_equal(g.window_bytes, 16 * (416 << 10));
    assert_int_equal(model_kv_block_bytes(&spec, 1, DT_BF16, 16), 16 * (496 << 10));
    uint64_t             window = 0;
    struct dev_kv_layer *layer = calloc(spec.n_layer, sizeof *layer);
    assert_int_equal(parts_kv(&spec, 1, DT_BF16, 16, layer, &window), g.block_bytes);
    uint64_t at[2] = { 0 };
    for (uint32_t l = 0; l < spec.n_layer; l++) {
        uint64_t *here = &at[(l + 1) % 6 == 0];
        assert_int_equal(layer[l].offset, *here);
        *here += layer[l].bytes;
    }
    assert_true(at[0] == window && at[1] == g.block_bytes);
    free(layer);
    model_spec_free(&spec);

    spec_of("{\"architectures\": [\"MistralForCausalLM\"], \"hidden_size\": 64, \"num_hidden_layers\": 3, "
            "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": 320, "
            "\"sliding_window\": 48}",
            &spec); /* all of its layers have one: one pool */
    assert_false(model_kv_groups(&spec, 1, DT_BF16, 16, &g));
    model_spec_free(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(plain_layers_lie_behind_each_other_k_before_v),
                                        cmocka_unit_test(a_layer_that_reads_the_kv_of_another_keeps_none),
                                        cmocka_unit_test(a_layer_that_slides_needs_its_window_and_no_more),
                                        cmocka_unit_test(
                                            layers_with_a_window_have_blocks_of_their_own_beside_the_others) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
