#include "base/json.h"
#include "engine/model/model.h"
#include "memory_source.h"
#include "tests_root.h"
#include <math.h>

/* Every set of RoPE parameters in rope.json, read as config.json has them, against transformers' inverse
 * frequencies. */
static void inverse_frequencies_are_those_of_transformers(void **state)
{
    (void)state;
    struct source golden = { .dir = TESTS_DATA "/golden" };
    char         *text, err[256];
    size_t        n, i, k;
    json_t       *entry, *x;
    assert_int_equal(source_text(&golden, "rope.json", 1 << 20, &text, &n), ST_OK);
    json_t *root = json_parse(text, n, 0, NULL);
    free(text);
    assert_true(json_array_size(root) >= 10);
    json_array_foreach(root, i, entry)
    {
        json_t *config =
            json_pack("{s:[s], s:i, s:i, s:i, s:i, s:i, s:O, s:O, s:O}", "architectures", "LlamaForCausalLM",
                      "hidden_size", 4096, "num_hidden_layers", 2, "num_attention_heads", 32, "intermediate_size", 64,
                      "vocab_size", 100, "head_dim", json_object_get(entry, "head_dim"), "max_position_embeddings",
                      json_object_get(entry, "max_position_embeddings"), "rope_parameters",
                      json_object_get(entry, "rope_parameters"));
        assert_non_null(config);
        struct memory_source m = { .src.n_embed = 0 };
        struct model_spec    spec;
        float                inv_freq[256];
        text = json_dumps(config, 0);
        memory_add_text(&m, "config.json", text);
        if (model_spec_load(&m.src, &spec, err, sizeof err)) fail_msg("%s: %s", text, err);
        const json_t *want = json_object_get(entry, "inv_freq");
        assert_int_equal(json_array_size(want), spec.rot / 2);
        double scale = (double)model_rope(&spec, inv_freq);
        assert_true(fabs(scale - json_number_value(json_object_get(entry, "scale"))) < 1e-6);
        json_array_foreach(want, k, x)
        {
            double w = json_number_value(x);
            /* torch takes the power in float: a few units in the last place */
            if (fabs((double)inv_freq[k] - w) > 1e-6 * w)
                fail_msg("%s: inv_freq[%zu] is %.9g, not %.9g", text, k, (double)inv_freq[k], w);
        }
        free(text);
        memory_free(&m);
        model_spec_free(&spec);
        json_decref(config);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(inverse_frequencies_are_those_of_transformers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
