#include "engine/model/pooling.h"
#include "tests/memory_source.h"

#define TRANSFORMER "{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"}"
#define POOLING     "{\"idx\":1,\"name\":\"1\",\"path\":\"1_Pooling\",\"type\":\"sentence_transformers.models.Pooling\"}"
#define NORMALIZE \
    "{\"idx\":2,\"name\":\"2\",\"path\":\"2_Normalize\",\"type\":\"sentence_transformers.models.Normalize\"}"
#define DENSE_AT(path) "{\"type\":\"sentence_transformers.models.Dense\",\"path\":\"" path "\"}"
#define DENSE          "{\"in_features\":64,\"out_features\":64,\"bias\":true}"
#define ALL            "[" TRANSFORMER "," POOLING "," NORMALIZE "]"
#define LAST           "{\"word_embedding_dimension\":64,\"pooling_mode_lasttoken\":true,\"pooling_mode_mean_tokens\":false}"

static const char *arch = "Qwen3ForCausalLM";

/* NULL: there is no such file. */
static enum status load(const char *config, const char *modules, const char *pooling, bool wanted,
                        struct model_pooling *p, char err[512])
{
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    spec = { .hidden = 64, .family = model_family_find(arch, NULL) };
    if (config) memory_add_text(&m, "config.json", config);
    if (modules) memory_add_text(&m, "modules.json", modules);
    if (pooling) memory_add_text(&m, "1_Pooling/config.json", pooling);
    memory_add_text(&m, "2_Dense/config.json", DENSE);
    err[0] = 0;
    enum status st = model_pooling_load(&m.src, &spec, wanted, p, err, 512);
    memory_free(&m);
    return st;
}

static void a_folder_says_how_its_vectors_are_made(void **state)
{
    (void)state;
    static const struct {
        const char     *config, *modules, *pooling;
        bool            found;
        enum model_pool pool;
        bool            normalize, shortens;
    } cases[] = {
        { "{}", NULL, NULL, false, POOL_LAST, true, false },
        { "{}", ALL, LAST, true, POOL_LAST, true, false },
        { "{}", "[" TRANSFORMER "," POOLING "]", LAST, true, POOL_LAST, false, false },
        { "{}", ALL, "{\"pooling_mode_mean_tokens\":true}", true, POOL_MEAN, true, false },
        { "{}", ALL, "{\"embedding_dimension\":64,\"pooling_mode\":\"mean\"}", true, POOL_MEAN, true, false },
        { "{}", ALL, "{\"pooling_mode\":\"lasttoken\",\"include_prompt\":true}", true, POOL_LAST, true, false },
        { "{}", ALL, "{\"pooling_mode\":\"mean\",\"include_prompt\":false}", true, POOL_MEAN, true, false },
        { "{}", ALL, "{\"pooling_mode_cls_token\":true}", true, POOL_CLS, true, false },
        { "{\"is_matryoshka\":true}", ALL, LAST, true, POOL_LAST, true, true },
        { "{\"matryoshka_dimensions\":[32,64]}", ALL, LAST, true, POOL_LAST, true, true },
        { "{\"is_matryoshka\":false,\"matryoshka_dimensions\":[]}", ALL, LAST, true, POOL_LAST, true, false },
        { "{}",
          "[{\"type\":\"sentence_transformers.base.modules.transformer.Transformer\"},"
          "{\"type\":\"x.Pooling\",\"path\":\"1_Pooling\"}]",
          LAST, true, POOL_LAST, false, false },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_pooling p;
        char                 err[512];
        if (load(cases[i].config, cases[i].modules, cases[i].pooling, false, &p, err)) fail_msg("case %zu: %s", i, err);
        assert_int_equal(p.found, cases[i].found);
        assert_int_equal(p.pool, cases[i].pool);
        assert_int_equal(p.normalize, cases[i].normalize);
        assert_int_equal(p.shortens, cases[i].shortens);
        assert_int_equal(p.skips, cases[i].pooling && strstr(cases[i].pooling, "\"include_prompt\":false"));
    }
}

static void what_is_not_served_is_named_with_its_file(void **state)
{
    (void)state;
    static const struct {
        const char *config, *modules, *pooling;
        bool        wanted;
        const char *says[2];
    } cases[] = {
        { "{}", "{}", LAST, false, { "modules.json", "list" } },
        { "{}", "[1]", LAST, false, { "modules.json", "served are Transformer" } },
        { "{}", "not JSON", LAST, false, { "modules.json", "not valid JSON" } },
        { "{}",
          "[" TRANSFORMER "," POOLING "," NORMALIZE "," DENSE_AT("2_Dense") "]",
          LAST,
          false,
          { "models.Dense", "in this order" } },
        { "{}", "[" TRANSFORMER "," DENSE_AT("2_Dense") "," POOLING "]", LAST, false, { "models.Dense", "order" } },
        { "{}", "[" POOLING "," DENSE_AT("../2_Dense") "]", LAST, false, { "../2_Dense", "folder" } },
        { "{}", "[" POOLING ",{\"type\":\"x.Dense\"}]", LAST, false, { "x.Dense", "folder" } },
        { "{}", "[" POOLING "," DENSE_AT("3_Dense") "]", LAST, false, { "3_Dense/config.json", "no such file" } },
        { "{}", "[" POOLING "," DENSE_AT("2_Dense") ",{\"type\":\"x.Dropout\"}]", LAST, false, { "x.Dropout", "" } },
        { "{\"is_causal\":false}", "[" POOLING "," DENSE_AT("2_Dense") "]", LAST, false, { "is_causal", "" } },
        { "{}", "[" POOLING "," POOLING "]", LAST, false, { "modules.json", "one Pooling" } },
        { "{}", "[{\"type\":\"x.Pooling\",\"path\":\"../1_Pooling\"}]", LAST, false, { "../1_Pooling", "folder" } },
        { "{}", "[{\"type\":\"x.Pooling\",\"path\":\"..\"}]", LAST, false, { "modules.json", "folder" } },
        { "{}", "[{\"type\":\"x.Pooling\"}]", LAST, false, { "modules.json", "folder" } },
        { "{}", ALL, NULL, false, { "1_Pooling/config.json", "no such file" } },
        { "{}", ALL, "{}", false, { "1_Pooling/config.json", "no kind" } },
        { "{}", ALL, "[]", false, { "1_Pooling/config.json", "no kind" } },
        { "{}",
          ALL,
          "{\"pooling_mode_max_tokens\":true}",
          false,
          { "pooling_mode_max_tokens", "pooling_mode_lasttoken" } },
        { "{}",
          ALL,
          "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_lasttoken\":true}",
          false,
          { "1_Pooling", "above one" } },
        { "{}",
          ALL,
          "{\"word_embedding_dimension\":65,\"pooling_mode_lasttoken\":true}",
          false,
          { "is 65", "hidden_size is 64" } },
        { "{}",
          ALL,
          "{\"embedding_dimension\":63,\"pooling_mode\":\"lasttoken\"}",
          false,
          { "embedding_dimension is 63", "hidden_size is 64" } },
        { "{\"is_causal\":false}", ALL, LAST, false, { "is_causal", "both ways" } },
        { "{\"use_bidirectional_attention\":true}", NULL, NULL, true, { "use_bidirectional_attention", "causal" } },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_pooling p;
        char                 err[512];
        if (load(cases[i].config, cases[i].modules, cases[i].pooling, cases[i].wanted, &p, err) != ST_CONFIG)
            fail_msg("case %zu is taken", i);
        for (int k = 0; k < 2; k++)
            if (!strstr(err, cases[i].says[k]))
                fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err, cases[i].says[k]);
        assert_null(strchr(err, '\n'));
    }
}

static void a_model_that_generates_is_not_judged_by_keys_of_embedders(void **state)
{
    (void)state;
    struct model_pooling p;
    char                 err[512];
    assert_int_equal(load("{\"use_bidirectional_attention\":true}", NULL, NULL, false, &p, err), ST_OK);
    assert_false(p.found);
}

/* It looks both ways whatever a key says, and pools by its first token where nothing says how. */
static void an_encoder_may_say_that_it_looks_both_ways(void **state)
{
    (void)state;
    struct model_pooling p;
    char                 err[512];
    arch = "BertModel";
    assert_int_equal(load("{\"is_causal\":false}", NULL, NULL, true, &p, err), ST_OK);
    assert_true(!p.found && p.pool == POOL_CLS && p.normalize);
    assert_int_equal(load("{\"is_causal\":false}", ALL, "{\"pooling_mode_mean_tokens\":true}", true, &p, err), ST_OK);
    assert_true(p.found && p.pool == POOL_MEAN);
    arch = "Qwen3ForCausalLM";
    assert_int_equal(load("{\"is_causal\":false}", NULL, NULL, true, &p, err), ST_CONFIG);
}

static void a_pooled_state_goes_through_dense_modules(void **state)
{
    (void)state;
    struct model_pooling p;
    char                 err[512];
    assert_int_equal(
        load("{}", "[" POOLING "," DENSE_AT("2_Dense") "," DENSE_AT("2_Dense") "," NORMALIZE "]", LAST, false, &p, err),
        ST_OK);
    assert_true(p.normalize && p.dense && p.dense->n_layer == 2);
    assert_string_equal(p.dense->layer[1].path, "2_Dense");
    model_dense_free(p.dense);
    assert_int_equal(load("{}", ALL, LAST, false, &p, err), ST_OK);
    assert_null(p.dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_folder_says_how_its_vectors_are_made),
                                        cmocka_unit_test(what_is_not_served_is_named_with_its_file),
                                        cmocka_unit_test(a_pooled_state_goes_through_dense_modules),
                                        cmocka_unit_test(a_model_that_generates_is_not_judged_by_keys_of_embedders),
                                        cmocka_unit_test(an_encoder_may_say_that_it_looks_both_ways) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
