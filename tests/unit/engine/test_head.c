#include "engine/model/head.h"
#include "tests/memory_source.h"
#include <math.h>

/* NULL: there is no such file. */
struct folder {
    const char *config, *modules, *score, *saved;
};

static enum status load(const struct folder *f, bool classifies, bool wanted, struct model_head **h, char err[512])
{
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    spec = { .family = model_family_find("Qwen3ForCausalLM", NULL),
                                  .hidden = 4,
                                  .vocab = 50,
                                  .classifies = classifies,
                                  .n_label = classifies ? 3 : 0 };
    if (f->config) memory_add_text(&m, "config.json", f->config);
    if (f->modules) memory_add_text(&m, "modules.json", f->modules);
    if (f->score) memory_add_text(&m, "1_LogitScore/config.json", f->score);
    if (f->saved) memory_add_text(&m, "config_sentence_transformers.json", f->saved);
    err[0] = 0;
    enum status st = model_head_read(&m.src, &spec, wanted, h, err, 512);
    memory_free(&m);
    return st;
}

#define TRANSFORMER "{\"type\":\"sentence_transformers.base.modules.transformer.Transformer\",\"path\":\"\"}"
#define LOGIT_SCORE                                                                                      \
    "[" TRANSFORMER ",{\"type\":\"sentence_transformers.cross_encoder.modules.logit_score.LogitScore\"," \
    "\"path\":\"1_LogitScore\"}]"

static void a_folder_says_what_scores_are_made_of(void **state)
{
    (void)state;
    static const struct {
        struct folder f;
        bool          classifies, wanted;
        enum head_of  of;
        enum head_act act;
        uint32_t      n_label, n_row, pad;
    } cases[] = {
        { { .config = "{}" }, true, false, HEAD_CLASSES, HEAD_SOFTMAX, 3, 3, UINT32_MAX },
        { { .config = "{\"pad_token_id\":7}" }, true, false, HEAD_CLASSES, HEAD_SOFTMAX, 3, 3, 7 },
        { { .config = "{\"problem_type\":\"multi_label_classification\",\"pad_token_id\":null}" },
          true,
          false,
          HEAD_CLASSES,
          HEAD_SIGMOID,
          3,
          3,
          UINT32_MAX },
        { { .config = "{\"problem_type\":\"regression\"}" }, true, false, HEAD_CLASSES, HEAD_PLAIN, 3, 3, UINT32_MAX },
        { { .config = "{\"problem_type\":\"regression\",\"sentence_transformers\":{\"activation_fn\":"
                      "\"torch.nn.modules.activation.Sigmoid\"}}" },
          true,
          false,
          HEAD_CLASSES,
          HEAD_SIGMOID,
          3,
          3,
          UINT32_MAX },
        { { .config = "{\"sbert_ce_default_activation_function\":\"torch.nn.modules.linear.Identity\"}" },
          true,
          false,
          HEAD_CLASSES,
          HEAD_PLAIN,
          3,
          3,
          UINT32_MAX },
        { { .config = "{\"sbert_ce_default_activation_function\":\"torch.nn.modules.linear.Identity\"}",
            .saved = "{\"activation_fn\":\"torch.nn.modules.activation.Softmax\"}" },
          true,
          false,
          HEAD_CLASSES,
          HEAD_SOFTMAX,
          3,
          3,
          UINT32_MAX },
        { { .config = "{\"classifier_from_token\":[\"no\",\"yes\"]}" },
          true,
          false,
          HEAD_LOG_ODDS,
          HEAD_SIGMOID,
          1,
          2,
          UINT32_MAX },
        { { .config = "{\"classifier_from_token\":[\"Yes\"],\"method\":\"no_post_processing\"}" },
          true,
          false,
          HEAD_TOKENS,
          HEAD_SIGMOID,
          1,
          1,
          UINT32_MAX },
        { { .config = "{}", .modules = LOGIT_SCORE, .score = "{\"true_token_id\":9,\"false_token_id\":8}" },
          false,
          false,
          HEAD_LOG_ODDS,
          HEAD_SIGMOID,
          1,
          2,
          UINT32_MAX },
        { { .config = "{}",
            LOGIT_SCORE,
            .score = "{\"true_token_id\":9,\"false_token_id\":null}",
            .saved = "{\"activation_fn\":\"torch.nn.modules.linear.Identity\"}" },
          false,
          false,
          HEAD_LOG_ODDS,
          HEAD_PLAIN,
          1,
          1,
          UINT32_MAX },
        { { .config = "{\"pad_token_id\":7}" }, false, true, HEAD_LOG_ODDS, HEAD_SIGMOID, 1, 2, UINT32_MAX },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_head *h;
        char               err[512];
        if (load(&cases[i].f, cases[i].classifies, cases[i].wanted, &h, err)) fail_msg("case %zu: %s", i, err);
        assert_non_null(h);
        assert_int_equal(h->of, cases[i].of);
        assert_int_equal(h->act, cases[i].act);
        assert_int_equal(h->n_label, cases[i].n_label);
        assert_int_equal(h->n_row, cases[i].n_row);
        assert_int_equal(h->pad_id, cases[i].pad);
        model_head_free(h);
    }
}

static void the_second_word_is_the_true_one(void **state)
{
    (void)state;
    struct model_head *h;
    char               err[512];
    assert_int_equal(
        load(&(struct folder){ .config = "{\"classifier_from_token\":[\"0\",\"1\"]}" }, true, false, &h, err), ST_OK);
    assert_string_equal(h->word[0], "1");
    assert_string_equal(h->word[1], "0");
    model_head_free(h);
    assert_int_equal(load(&(struct folder){ .config = "{}",
                                            .modules = LOGIT_SCORE,
                                            .score = "{\"true_token_id\":9,\"false_token_id\":8}" },
                          false, false, &h, err),
                     ST_OK);
    assert_null(h->word[0]);
    assert_true(h->token[0] == 9 && h->token[1] == 8);
    model_head_free(h);
    assert_int_equal(load(&(struct folder){ .config = "{}" }, false, true, &h, err), ST_OK);
    assert_string_equal(h->word[0], "yes");
    assert_string_equal(h->word[1], "no");
    model_head_free(h);
}

static void labels_have_the_names_of_the_folder(void **state)
{
    (void)state;
    struct model_head *h;
    char               err[512];
    assert_int_equal(load(&(struct folder){ .config = "{\"id2label\":{\"2\":\"c\",\"0\":\"a\",\"1\":\"b\"}}" }, true,
                          false, &h, err),
                     ST_OK);
    assert_string_equal(h->label[0], "a");
    assert_string_equal(h->label[2], "c");
    model_head_free(h);
    assert_int_equal(load(&(struct folder){ .config = "{}" }, true, false, &h, err), ST_OK);
    assert_string_equal(h->label[1], "LABEL_1");
    model_head_free(h);
}

static void a_folder_of_a_model_that_generates_has_no_head(void **state)
{
    (void)state;
    struct model_head *h;
    char               err[512];
    assert_int_equal(load(&(struct folder){ .config = "{}" }, false, false, &h, err), ST_OK);
    assert_null(h);
    assert_int_equal(load(&(struct folder){ .config = "{}", .modules = "[" TRANSFORMER "]" }, false, false, &h, err),
                     ST_OK);
    assert_null(h);
}

static void what_is_not_served_is_named_with_its_file(void **state)
{
    (void)state;
    static const struct {
        struct folder f;
        const char   *says[2];
    } cases[] = {
        { { .config = "not JSON" }, { "config.json", "not valid JSON" } },
        { { .config = "{\"problem_type\":\"ranking\"}" }, { "problem_type is 'ranking'", "regression" } },
        { { .config = "{\"problem_type\":5}" }, { "problem_type", "regression" } },
        { { .config = "{\"sbert_ce_default_activation_function\":\"torch.nn.modules.activation.Tanh\"}" },
          { "Tanh", "Sigmoid" } },
        { { .config = "{}", .saved = "{\"activation_fn\":\"evil.Sigmoid\"}" },
          { "config_sentence_transformers.json", "evil" } },
        { { .config = "{}", .saved = "[" }, { "config_sentence_transformers.json", "not valid JSON" } },
        { { .config = "{\"classifier_from_token\":[\"a\"]}" }, { "classifier_from_token has 1", "2 for from_2_way" } },
        { { .config = "{\"classifier_from_token\":[]}" }, { "classifier_from_token has 0", "needed" } },
        { { .config = "{\"classifier_from_token\":[1,2]}" }, { "classifier_from_token[0]", "no string" } },
        { { .config = "{\"classifier_from_token\":[\"a\",\"b\"],\"method\":\"mean\"}" },
          { "method is 'mean'", "no_post_processing" } },
    };
    static const struct folder of_logits[] = {
        { .config = "{}", .modules = LOGIT_SCORE, .score = "{}" },
        { .config = "{}", .modules = LOGIT_SCORE, .score = "{\"true_token_id\":50}" },
        { .config = "{}", .modules = LOGIT_SCORE, .score = "{\"true_token_id\":\"yes\"}" },
        { .config = "{}", .modules = LOGIT_SCORE, .score = "{\"true_token_id\":4,\"false_token_id\":-1}" },
        { .config = "{}", .modules = LOGIT_SCORE },
    };
    struct model_head *h;
    char               err[512];
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        if (load(&cases[i].f, true, false, &h, err) != ST_CONFIG) fail_msg("case %zu is taken", i);
        for (int k = 0; k < 2; k++)
            if (!strstr(err, cases[i].says[k])) fail_msg("case %zu: \"%s\" has no \"%s\"", i, err, cases[i].says[k]);
        assert_null(strchr(err, '\n'));
    }
    for (size_t i = 0; i < ARRAY_N(of_logits); i++) {
        if (load(&of_logits[i], false, false, &h, err) != ST_CONFIG) fail_msg("logits %zu are taken", i);
        assert_non_null(strstr(err, "1_LogitScore/config.json"));
    }
}

/* ---- scores */

static const float weight[] = { 1, 0, 2, 0, 0, 1, 0, 0, -1, 0, 0, 4 };

static struct model_head head(enum head_of of, enum head_act act, uint32_t n_label, uint32_t n_row)
{
    return (struct model_head){ .of = of,
                                .act = act,
                                .n_label = n_label,
                                .n_row = n_row,
                                .n_in = 4,
                                .weight = (float *)(uintptr_t)weight,
                                .scale = 1 };
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12)) fail_msg("found %.17g, needed is %.17g", a, b);
}

static void scores_are_what_the_activation_makes_of_logits(void **state)
{
    (void)state;
    static const double s[4] = { 1, 2, 3, 0.5 }; /* logits 7, 2, 1 */
    double              x[3];
    struct model_head   h = head(HEAD_CLASSES, HEAD_SOFTMAX, 3, 3);
    model_head_apply(&h, s, false, x);
    assert_true(x[0] == 7 && x[1] == 2 && x[2] == 1);
    model_head_apply(&h, s, true, x);
    near(x[0], 1 / (1 + exp(-5) + exp(-6)));
    near(x[0] + x[1] + x[2], 1);
    h.act = HEAD_SIGMOID;
    model_head_apply(&h, s, true, x);
    near(x[1], 1 / (1 + exp(-2)));
    h.act = HEAD_PLAIN;
    model_head_apply(&h, s, true, x);
    assert_true(x[0] == 7);
    h = head(HEAD_LOG_ODDS, HEAD_SIGMOID, 1, 2); /* the softmax of two logits */
    model_head_apply(&h, s, true, x);
    near(x[0], exp(7) / (exp(7) + exp(2)));
    h.cap = 4;
    h.scale = 0.5;
    model_head_apply(&h, s, false, x);
    near(x[0], 4 * tanh(3.5 / 4) - 4 * tanh(1.0 / 4));
    h = head(HEAD_LOG_ODDS, HEAD_PLAIN, 1, 1);
    model_head_apply(&h, s, true, x);
    assert_true(x[0] == 7);
}

static void scores_of_large_logits_are_finite(void **state)
{
    (void)state;
    static const double s[4] = { 1e4, -1e4, 0, 1e4 };
    double              x[3];
    struct model_head   h = head(HEAD_CLASSES, HEAD_SOFTMAX, 3, 3);
    model_head_apply(&h, s, true, x);
    near(x[2], 1);
    h.act = HEAD_SIGMOID;
    model_head_apply(&h, s, true, x);
    assert_true(x[0] == 1 && x[1] == 0 && isfinite(x[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_folder_says_what_scores_are_made_of),
                                        cmocka_unit_test(the_second_word_is_the_true_one),
                                        cmocka_unit_test(labels_have_the_names_of_the_folder),
                                        cmocka_unit_test(a_folder_of_a_model_that_generates_has_no_head),
                                        cmocka_unit_test(what_is_not_served_is_named_with_its_file),
                                        cmocka_unit_test(scores_are_what_the_activation_makes_of_logits),
                                        cmocka_unit_test(scores_of_large_logits_are_finite) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
