/* POST /classify: what becomes of a body, and of states. */
#define TINY_AFTER ",{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#include "api_world.h"
#include "engine/model/head.h"
#include <math.h>

enum { DIM = 2, LABELS = 3 };

static float             weight[LABELS * DIM] = { 1, 0, 0, 1, 1, 1 };
static char              names[LABELS][8] = { "calm", "an\"gry", "glad" };
static char             *label[LABELS] = { names[0], names[1], names[2] };
static struct model_head head = { .of = HEAD_CLASSES,
                                  .act = HEAD_SOFTMAX,
                                  .n_label = LABELS,
                                  .n_row = LABELS,
                                  .n_in = DIM,
                                  .label = label,
                                  .weight = weight,
                                  .scale = 1,
                                  .pad_id = UINT32_MAX };

static int classifies_open(void **state)
{
    int failed = world_open(state);
    world.m.task = TASK_CLASSIFY;
    world.m.state_dim = DIM;
    world.m.head = &head;
    return failed;
}

/* The state of text i is i, -1. */
static json_t *answered(const char *body)
{
    struct call c;
    struct buf  out;
    buf_init(&out, 1 << 20);
    ask_ok(&c, &dialect_classify, body);
    for (uint32_t i = c.n_choice; i--;) { /* they may come in any order */
        c.choice[i].state[0] = i;
        c.choice[i].state[1] = -1;
        answer_choice_end(&c, i, ENG_STOP, &out);
    }
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    call_free(&c);
    buf_free(&out);
    return v;
}

static double prob(const json_t *v, size_t i, size_t k)
{
    const json_t *row = json_array_get(json_object_get(v, "data"), i);
    assert_int_equal(json_integer_value(json_object_get(row, "index")), i);
    assert_int_equal(json_integer_value(json_object_get(row, "num_classes")), LABELS);
    assert_int_equal(json_array_size(json_object_get(row, "probs")), LABELS);
    return json_number_value(json_array_get(json_object_get(row, "probs"), k));
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-8)) fail_msg("found %.9g, needed is %.9g", a, b);
}

static void the_likeliest_label_is_named(void **state)
{
    (void)state;
    json_t *v = answered("{\"input\":[\"a\",\"b\",\"c\"]}"); /* logits i, -1, i - 1 */
    double  sum = exp(2) + exp(-1) + exp(1);
    assert_string_equal(str_at(v, "object"), "list");
    assert_memory_equal(str_at(v, "id"), "classify-", 9);
    assert_string_equal(str_at(v, "data.2.label"), "calm");
    near(prob(v, 2, 0), exp(2) / sum);
    near(prob(v, 2, 1), exp(-1) / sum);
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 9);
    assert_int_equal(int_at(v, "usage.total_tokens"), 9);
    json_decref(v);
    head.act = HEAD_SIGMOID;
    v = answered("{\"input\":\"a\"}");
    near(prob(v, 0, 0), 0.5);
    near(prob(v, 0, 1), 1 / (1 + exp(1)));
    json_decref(v);
    v = answered("{\"input\":\"a\",\"use_activation\":false}");
    assert_true(prob(v, 0, 1) == -1);
    json_decref(v);
    head.act = HEAD_SOFTMAX;
}

static void a_label_may_hold_any_character(void **state)
{
    (void)state;
    for (size_t k = 0; k < LABELS; k++) weight[2 * k + 1] = k == 1 ? -9 : 0;
    json_t *v = answered("{\"input\":\"a\"}");
    assert_string_equal(str_at(v, "data.0.label"), "an\"gry");
    json_decref(v);
    static const float back[] = { 1, 0, 0, 1, 1, 1 };
    memcpy(weight, back, sizeof weight);
}

static void padding_at_the_end_does_not_count(void **state)
{
    (void)state;
    struct call c;
    head.pad_id = 98;
    ask_ok(&c, &dialect_classify, "{\"input\":[[97,98,98],[98,97],[98,98],[97]]}");
    assert_string_equal(prompt_text(&c, 0), "a");
    assert_string_equal(prompt_text(&c, 1), "ba");
    assert_string_equal(prompt_text(&c, 2), "b");
    assert_string_equal(prompt_text(&c, 3), "a");
    call_free(&c);
    head.pad_id = EOS; /* which the tokenizer adds, as that of Qwen3 does */
    ask_ok(&c, &dialect_classify, "{\"input\":\"ab\"}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab");
    call_free(&c);
    head.pad_id = UINT32_MAX;
}

static void messages_are_classified_as_the_template_renders_them(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_classify, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    assert_string_equal(prompt_text(&c, 0), "[258]user\nHi[259]\n");
    call_free(&c);
}

static void refuses(const char *body, const char *param) { refuses_as(&dialect_classify, body, 400, param, ""); }

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refuses("{}", "input");
    refuses("{\"input\":[]}", "input");
    refuses("{\"input\":[\"a\",5]}", "input");
    refuses("{\"input\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", "input");
    refuses("{\"input\":\"a\",\"truncate_prompt_tokens\":-5}", "truncate_prompt_tokens");
    refuses("{\"input\":\"a\",\"use_activation\":3}", "use_activation");
    accepts(&dialect_classify, long_text("{\"input\":[\"a\"", ",\"a\"", EMBED_INPUTS_MAX - 1, "]}"));
    refuses(long_text("{\"input\":[\"a\"", ",\"a\"", EMBED_INPUTS_MAX, "]}"), "input");
    accepts(&dialect_classify, "{\"input\":\"a\",\"dimensions\":1,\"encoding_format\":\"base64\"}"); /* of vectors */
}

static void says(const struct dialect *d, const char *body, const char *word)
{
    struct call      c;
    struct api_error e;
    assert_int_equal(ask(&c, d, body, &e), ST_INVALID);
    assert_int_equal(e.http, 400);
    if (!strstr(e.message, word)) fail_msg("\"%s\" does not say \"%s\"", e.message, word);
    call_free(&c);
}

static void a_model_that_classifies_says_what_it_cannot_do(void **state)
{
    (void)state;
    says(&dialect_completion, with(&dialect_completion, ""), "does not generate; ask /classify");
    says(&dialect_embedding, "{\"input\":\"a\"}", "makes no embeddings; ask /classify");
    says(&dialect_rerank, "{\"query\":\"a\",\"documents\":[\"a\"]}", "scores no pairs of texts; ask /classify");
    accepts(&dialect_invocation, "{\"input\":\"a\"}");
    world.m.task = TASK_EMBED;
    says(&dialect_classify, "{\"input\":\"a\"}", "has no labels; ask /v1/embeddings");
    world.m.task = TASK_GENERATE;
    says(&dialect_classify, "{\"input\":\"a\"}", "ForSequenceClassification");
    world.m.task = TASK_CLASSIFY;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_likeliest_label_is_named),
                                        cmocka_unit_test(a_label_may_hold_any_character),
                                        cmocka_unit_test(padding_at_the_end_does_not_count),
                                        cmocka_unit_test(messages_are_classified_as_the_template_renders_them),
                                        cmocka_unit_test(what_is_wrong_is_named),
                                        cmocka_unit_test(a_model_that_classifies_says_what_it_cannot_do) };
    return cmocka_run_group_tests(tests, classifies_open, world_close);
}
