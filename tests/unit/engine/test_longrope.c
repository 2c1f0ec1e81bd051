/* longrope: two lists of factors, of which the served context chooses one. */
#include "unit/engine/hf_load.h"
#include <math.h>

/* 4 heads of 16, of which 0.25 rotate: two pairs */
#define LISTS "\"short_factor\": [1, 2], \"long_factor\": [4, 8.5]"
#define CONFIG(more)                                                                     \
    "{\"max_position_embeddings\": 131072, \"original_max_position_embeddings\": 4096, " \
    "\"partial_rotary_factor\": 0.25, \"rope_theta\": 10000, \"rope_scaling\": {" more "}}"

static void is_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want))) fail_msg("%.9g, not %.9g", got, want);
}

static void the_served_context_chooses_the_frequencies(void **state)
{
    (void)state;
    static const char *const configs[] = { CONFIG("\"type\": \"longrope\", " LISTS), CONFIG("\"type\": \"su\", " LISTS),
                                           CONFIG("\"rope_type\": \"yarn\", " LISTS) };
    for (size_t i = 0; i < ARRAY_N(configs); i++) {
        struct model_spec s;
        float             f[2];
        load("Phi3ForCausalLM", configs[i], &s);
        assert_int_equal(s.context, 131072);
        assert_int_equal(s.rot, 4);
        /* the whole context, until something else is said */
        is_near((double)model_rope(&s, f), sqrt(1 + log(32) / log(4096)));
        is_near((double)f[0], 1 / 4.0);
        is_near((double)f[1], 0.01 / 8.5);
        model_spec_serve(&s, 4096);
        is_near((double)model_rope(&s, f), sqrt(1 + log(32) / log(4096)));
        is_near((double)f[0], 1);
        is_near((double)f[1], 0.01 / 2);
        model_spec_serve(&s, 4097);
        model_rope(&s, f);
        is_near((double)f[0], 1 / 4.0);
        model_spec_free(&s);
    }
}

static void factors_of_the_file_go_before_the_ratio_of_contexts(void **state)
{
    (void)state;
    struct model_spec s;
    float             f[2];
    load("Phi3ForCausalLM", CONFIG("\"type\": \"longrope\", \"factor\": 8, " LISTS), &s);
    is_near((double)model_rope(&s, f), sqrt(1 + log(8) / log(4096)));
    model_spec_free(&s);
    load("Phi3ForCausalLM", CONFIG("\"type\": \"longrope\", \"attention_factor\": 1.25, " LISTS), &s);
    is_near((double)model_rope(&s, f), 1.25);
    model_spec_free(&s);
    load("Phi3ForCausalLM", CONFIG("\"type\": \"longrope\", \"factor\": 0.5, " LISTS), &s);
    is_near((double)model_rope(&s, f), 1);
    model_spec_free(&s);
}

static void lists_that_cannot_be_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } bad[] = {
        { CONFIG("\"type\": \"longrope\", \"short_factor\": [1, 2]"),
          "long_factor of rope type longrope has 0 numbers" },
        { CONFIG("\"type\": \"longrope\", \"long_factor\": [1, 2]"),
          "short_factor of rope type longrope has 0 numbers" },
        { CONFIG("\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1, 2]"), "must be a list of 2" },
        { CONFIG("\"type\": \"longrope\", \"short_factor\": [1, 2, 3], \"long_factor\": [1, 2]"), "has 3 numbers" },
        { CONFIG("\"type\": \"longrope\", \"short_factor\": [1, 0], \"long_factor\": [1, 2]"), "short_factor is 0" },
        { CONFIG("\"type\": \"longrope\", \"short_factor\": [1, 1], \"long_factor\": [\"a\", 2]"),
          "long_factor is \"a\"" },
        { CONFIG("\"type\": \"longrope\", \"factor\": \"x\", " LISTS), "factor is \"x\"" },
    };
    for (size_t i = 0; i < ARRAY_N(bad); i++) refused("Phi3ForCausalLM", bad[i].config, bad[i].says);
    refused("LlamaForCausalLM", "{\"rope_scaling\": {\"type\": \"longrope\"}}",
            "rope_type is \"longrope\", supported are");
    refused("LlamaForCausalLM", "{\"rope_scaling\": {\"type\": \"default\", \"long_factor\": [1]}}",
            "long_factor of the RoPE parameters is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_served_context_chooses_the_frequencies),
        cmocka_unit_test(factors_of_the_file_go_before_the_ratio_of_contexts),
        cmocka_unit_test(lists_that_cannot_be_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
