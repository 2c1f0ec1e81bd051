#include "base/log.h"
#include "unit/engine/hf_load.h"
#include <fcntl.h>
#include <math.h>

static void the_factors_of_granite_are_read_and_default_to_one(void **state)
{
    (void)state;
    struct model_spec s;
    load("GraniteForCausalLM", "{}", &s);
    assert_true(s.embed_scale == 1 && s.residual_scale == 1 && s.logit_scale == 1);
    assert_true(s.attn_scale == 1); /* not 1 / sqrt(head_dim) */
    model_spec_free(&s);
    load("GraniteForCausalLM",
         "{\"embedding_multiplier\": 12, \"attention_multiplier\": 0.0078125, \"residual_multiplier\": 0.25, "
         "\"logits_scaling\": 8}",
         &s);
    assert_true(s.embed_scale == 12 && s.attn_scale == 0.0078125f && s.residual_scale == 0.25f);
    assert_true(s.logit_scale == 0.125f);
    model_spec_free(&s);
    /* other families have no such keys in transformers, and look at none */
    load("LlamaForCausalLM", "{\"residual_multiplier\": 0.25, \"logits_scaling\": 8}", &s);
    assert_true(s.residual_scale == 1 && s.logit_scale == 1 && s.attn_scale == 0.25f);
    model_spec_free(&s);
}

static void factors_that_cannot_be_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const keys[] = { "embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                        "logits_scaling" };
    static const char *const values[] = { "0", "-1", "1e300", "\"1\"", "[]", "true" };
    char                     over[128];
    for (size_t k = 0; k < ARRAY_N(keys); k++)
        for (size_t v = 0; v < ARRAY_N(values); v++) {
            snprintf(over, sizeof over, "{\"%s\": %s}", keys[k], values[v]);
            refused("GraniteForCausalLM", over, keys[k]);
        }
}

static void alpha_of_hunyuan_stretches_the_base(void **state)
{
    (void)state;
    static const char *const over =
        "{\"rope_theta\": 10000, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 1.0, \"alpha\": 1000}}";
    struct model_spec s;
    load("HunYuanDenseV1ForCausalLM", over, &s); /* head_dim 16 */
    assert_true(fabs(s.rope_theta / (1e4 * pow(1000, 16.0 / 14)) - 1) < 1e-12);
    model_spec_free(&s);
    load("LlamaForCausalLM", over, &s); /* has no such key */
    assert_true(s.rope_theta == 1e4);
    model_spec_free(&s);
    refused("HunYuanDenseV1ForCausalLM", "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 1.0, \"alpha\": -1}}",
            "alpha is -1");
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_factors_of_granite_are_read_and_default_to_one),
        cmocka_unit_test(alpha_of_hunyuan_stretches_the_base),
        cmocka_unit_test(factors_that_cannot_be_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
