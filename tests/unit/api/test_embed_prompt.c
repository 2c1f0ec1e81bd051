/* Prompts by name before texts that become vectors or scores: where they stand, whose they are, and what does not have
 * them. */
#define TINY_AFTER ",{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#include "api/pair.h"
#include "api_world.h"
#include "engine/model/prompts.h"

static struct model_prompt  row[] = { { (char[]){ "query" }, (char[]){ "q: " }, 3 },
                                      { (char[]){ "document" }, (char[]){ "" }, 0 },
                                      { (char[]){ "sts" }, (char[]){ "same? " }, 6 } };
static struct model_prompts prompts = { .n = 3, .row = row, .of = { NULL, &row[0], &row[1] } };

static int prompts_open(void **state)
{
    int failed = world_open(state);
    world.m.task = TASK_EMBED;
    world.m.state_dim = 2;
    world.m.prompts = &prompts;
    return failed;
}

/* A test leaves the world as it was. */
static int prompts_reset(void **state)
{
    (void)state;
    prompts.of[PROMPT_ANY] = NULL;
    world.m.skips_prompt = false;
    world.m.state_of = ENG_STATE_LAST;
    return 0;
}

static void prompt_is(const struct dialect *d, const char *body, uint32_t i, const char *want)
{
    struct call c;
    ask_ok(&c, d, body);
    assert_string_equal(prompt_text(&c, i), want);
    call_free(&c);
}

static void refuses(const struct dialect *d, const char *body, const char *param, const char *says)
{
    struct call      c;
    struct api_error e;
    assert_int_equal(ask(&c, d, body, &e), ST_INVALID);
    call_free(&c);
    assert_int_equal(e.http, 400);
    assert_string_equal(e.param, param);
    if (!strstr(e.message, says)) fail_msg("%s: %s", body, e.message);
}

static void a_named_prompt_stands_before_each_text(void **state)
{
    (void)state;
    prompt_is(&dialect_embedding, "{\"input\":\"ab\",\"prompt_name\":\"query\"}", 0, "[256]q: ab[257]");
    prompt_is(&dialect_embedding, "{\"input\":[\"ab\",\"c\"],\"prompt_name\":\"sts\"}", 1, "[256]same? c[257]");
    prompt_is(&dialect_embedding, "{\"input\":\"ab\",\"prompt_name\":\"document\"}", 0, "[256]ab[257]");
    prompt_is(&dialect_embedding, "{\"input\":\"ab\",\"prompt_name\":\"query\",\"add_special_tokens\":false}", 0,
              "q: ab");
    prompt_is(&dialect_invocation, "{\"input\":\"ab\",\"prompt_name\":\"query\"}", 0, "[256]q: ab[257]");
}

static void without_a_name_there_is_the_default_or_none(void **state)
{
    (void)state;
    prompt_is(&dialect_embedding, "{\"input\":\"ab\"}", 0, "[256]ab[257]");
    prompt_is(&dialect_embedding, "{\"input\":\"ab\",\"prompt_name\":null}", 0, "[256]ab[257]");
    prompts.of[PROMPT_ANY] = &row[2];
    prompt_is(&dialect_embedding, "{\"input\":\"ab\"}", 0, "[256]same? ab[257]");
    prompt_is(&dialect_embedding, "{\"input\":\"ab\",\"prompt_name\":\"document\"}", 0, "[256]ab[257]");
    prompt_is(&dialect_embedding, "{\"input\":[97,98]}", 0, "ab"); /* token ids are a whole prompt */
    prompt_is(&dialect_embedding, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", 0, "[258]user\nHi[259]\n");
}

static void what_has_no_prompt_is_refused(void **state)
{
    (void)state;
    const struct dialect *d = &dialect_embedding;
    refuses(d, "{\"input\":\"a\",\"prompt_name\":\"Query\"}", "prompt_name",
            "'Query', which is no prompt of this model; allowed are 'query', 'document', 'sts'");
    refuses(d, "{\"input\":\"a\",\"prompt_name\":\"\"}", "prompt_name", "allowed are");
    refuses(d, "{\"input\":\"a\",\"prompt_name\":[\"query\"]}", "prompt_name", "string");
    refuses(d, "{\"input\":[97],\"prompt_name\":\"query\"}", "prompt_name", "token ids");
    refuses(d, "{\"input\":[[97],[98]],\"prompt_name\":\"document\"}", "prompt_name", "token ids");
    refuses(d, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"prompt_name\":\"query\"}", "prompt_name",
            "'input'");
    world.m.prompts = NULL;
    refuses(d, "{\"input\":\"a\",\"prompt_name\":\"query\"}", "prompt_name", "no prompts");
    world.m.prompts = &prompts;
}

#define AB "\"query\":\"a\",\"documents\":[\"b\",\"c\"]"
static void a_query_and_documents_have_prompts_of_their_own(void **state)
{
    (void)state;
    prompts.of[PROMPT_ANY] = &row[2];
    prompt_is(&dialect_rerank, "{" AB "}", 0, "[256]q: a[257]");
    prompt_is(&dialect_rerank, "{" AB "}", 2, "[256]c[257]");
    prompt_is(&dialect_rerank, "{" AB ",\"prompt_name\":\"sts\"}", 0, "[256]same? a[257]");
    prompt_is(&dialect_rerank, "{" AB ",\"prompt_name\":\"sts\"}", 1, "[256]same? b[257]");
    prompt_is(&dialect_score, "{\"queries\":\"a\",\"documents\":\"b\"}", 0, "[256]q: a[257]");
    prompt_is(&dialect_score, "{\"queries\":\"a\",\"items\":\"b\"}", 1, "[256]b[257]");
    prompt_is(&dialect_score, "{\"text_1\":\"a\",\"text_2\":\"b\"}", 0, "[256]same? a[257]");
    prompt_is(&dialect_score, "{\"data_1\":\"a\",\"data_2\":\"b\"}", 1, "[256]same? b[257]");
    refuses(&dialect_rerank, "{" AB ",\"prompt_name\":\"x\"}", "prompt_name", "allowed are");
}

static void a_cut_leaves_the_prompt(void **state)
{
    (void)state;
    const struct dialect *d = &dialect_embedding;
    prompt_is(d, "{\"input\":\"abcdef\",\"prompt_name\":\"query\",\"truncate_prompt_tokens\":7}", 0, "[256]q: ab[257]");
    prompt_is(
        d, "{\"input\":\"abcdef\",\"prompt_name\":\"query\",\"truncate_prompt_tokens\":7,\"truncation_side\":\"left\"}",
        0, "[256]q: ef[257]");
    refuses(d, "{\"input\":\"abcdef\",\"prompt_name\":\"query\",\"truncate_prompt_tokens\":5}",
            "truncate_prompt_tokens", "must be at least 6: 5 tokens of the tokenizer and the prompt");
    refuses(d, long_text("{\"prompt_name\":\"sts\",\"input\":\"", "x", CONTEXT - 7, "\"}"), "input", "1001 tokens");
    accepts(d, long_text("{\"prompt_name\":\"sts\",\"input\":\"", "x", CONTEXT - 8, "\"}"));
}

/* As sentence-transformers counts: what the tokenizer puts before a prompt goes with it. */
static void pooling_may_leave_the_prompts_tokens_out(void **state)
{
    (void)state;
    static const struct {
        enum eng_state_of of;
        bool              skips;
        const char       *body;
        uint32_t          from;
    } cases[] = {
        { ENG_STATE_SUM, true, "{\"input\":\"ab\",\"prompt_name\":\"query\"}", 4 },
        { ENG_STATE_SUM, true, "{\"input\":\"ab\",\"prompt_name\":\"query\",\"add_special_tokens\":false}", 3 },
        { ENG_STATE_FIRST, true, "{\"input\":\"ab\",\"prompt_name\":\"sts\"}", 7 },
        { ENG_STATE_SUM, true, "{\"input\":\"ab\",\"prompt_name\":\"document\"}", 0 },
        { ENG_STATE_SUM, true, "{\"input\":\"ab\"}", 0 },
        { ENG_STATE_SUM, true, "{\"input\":[97,98]}", 0 },
        { ENG_STATE_SUM, false, "{\"input\":\"ab\",\"prompt_name\":\"query\"}", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct call c;
        struct buf  out;
        world.m.state_of = cases[i].of;
        world.m.skips_prompt = cases[i].skips;
        ask_ok(&c, &dialect_embedding, cases[i].body);
        assert_int_equal(c.prompt[0].state_from, cases[i].from);
        buf_init(&out, 1 << 16);
        c.choice[0].state[0] = 6; /* of a sum it is the mean of those that count */
        c.use_activation = false;
        answer_choice_end(&c, 0, ENG_STOP, &out);
        answer_end(&c, &out);
        json_t *v = body_of(&out), *x = json_array_get(json_object_get(v, "data"), 0);
        double  got = json_number_value(json_array_get(json_object_get(x, "embedding"), 0));
        double  n = cases[i].of == ENG_STATE_SUM ? c.prompt[0].n_id - cases[i].from : 1;
        assert_true(got > 5.999 / n && got < 6.001 / n);
        json_decref(v);
        buf_free(&out);
        call_free(&c);
    }
}

/* A model that judges pairs has one text, in which the prompt stands as an instruction does. */
static void of_a_pair_a_prompt_is_the_instruction(void **state)
{
    (void)state;
    static const char text[] =
        "{% for m in messages %}{{ m.role[0] }}={{ m.content }};{% endfor %}{# query document #}{{ instruction }}";
    struct pair_form form = { .tmpl = world_tmpl(text), .instruction = "own" };
    world.m.pair = &form;
    prompt_is(&dialect_rerank, "{" AB "}", 0, "s=own;q=a;d=b;");
    prompt_is(&dialect_rerank, "{" AB ",\"prompt_name\":\"sts\"}", 1, "s=same? ;q=a;d=c;");
    prompt_is(&dialect_score, "{\"text_1\":\"a\",\"text_2\":\"b\",\"instruction\":\"i\"}", 0, "s=i;q=a;d=b;i");
    refuses(&dialect_score, "{\"text_1\":\"a\",\"text_2\":\"b\",\"instruction\":\"i\",\"prompt_name\":\"sts\"}",
            "prompt_name", "both");
    refuses(&dialect_rerank, "{" AB ",\"instruction\":\"i\",\"prompt_name\":\"sts\"}", "prompt_name", "both");
    world.m.pair = NULL;
    tmpl_free((struct tmpl *)(uintptr_t)form.tmpl);
}

static bool card_has(const char *part)
{
    struct buf out;
    buf_init(&out, 1 << 16);
    api_models(&world.m, &out);
    bool has = memmem(out.data, out.n, part, strlen(part)) != NULL;
    buf_free(&out);
    return has;
}

static void the_models_card_has_the_names(void **state)
{
    (void)state;
    assert_true(card_has("\"prompts\":[\"query\",\"document\",\"sts\"],\"default_prompt_name\":null}"));
    prompts.of[PROMPT_ANY] = &row[2];
    assert_true(card_has("\"default_prompt_name\":\"sts\"}"));
    world.m.prompts = NULL;
    assert_false(card_has("prompt"));
    world.m.prompts = &prompts;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_named_prompt_stands_before_each_text, prompts_reset),
        cmocka_unit_test_setup(without_a_name_there_is_the_default_or_none, prompts_reset),
        cmocka_unit_test_setup(what_has_no_prompt_is_refused, prompts_reset),
        cmocka_unit_test_setup(a_query_and_documents_have_prompts_of_their_own, prompts_reset),
        cmocka_unit_test_setup(a_cut_leaves_the_prompt, prompts_reset),
        cmocka_unit_test_setup(pooling_may_leave_the_prompts_tokens_out, prompts_reset),
        cmocka_unit_test_setup(of_a_pair_a_prompt_is_the_instruction, prompts_reset),
        cmocka_unit_test_setup(the_models_card_has_the_names, prompts_reset),
    };
    return cmocka_run_group_tests(tests, prompts_open, world_close);
}
