/* /rerank and /score of a model that judges a query and a document together: prompts and scores. */
#include "api_world.h"
#include "api/pair.h"
#include "engine/model/head.h"
#include <math.h>

static float             weight[] = { 1 };
static struct model_head head = { .of = HEAD_LOG_ODDS,
                                  .act = HEAD_SIGMOID,
                                  .n_label = 1,
                                  .n_row = 1,
                                  .n_in = 1,
                                  .weight = weight,
                                  .scale = 1,
                                  .pad_id = UINT32_MAX };
static struct pair_form  form;
static struct tmpl      *simple, *card;

static const char simple_text[] = "{% for m in messages %}{{ m.role[0] }}={{ m.content }}<tool>{% endfor %}"
                                  "{% if add_generation_prompt %}A{% endif %}{{ instruction }}{# query document #}";

static int judges_open(void **state)
{
    int failed = world_open(state);
    simple = world_tmpl(simple_text);
    card = world_tmpl(pair_qwen3_reranker);
    form.tmpl = simple;
    world.m.task = TASK_SCORE;
    world.m.state_dim = 1;
    world.m.head = &head;
    world.m.pair = &form;
    return failed;
}

static int judges_close(void **state)
{
    tmpl_free(simple);
    tmpl_free(card);
    return world_close(state);
}

static void is(const char *body, const char *want)
{
    struct call c;
    ask_ok(&c, &dialect_rerank, body);
    assert_string_equal(prompt_text(&c, 0), want);
    call_free(&c);
}

#define AB "\"query\":\"a\",\"documents\":[\"b\"]"

static void a_template_has_both_as_messages(void **state)
{
    (void)state;
    struct call c;
    is("{" AB "}", "q=a[260]d=b[260]");
    is("{" AB ",\"instruction\":\"i\"}", "s=i[260]q=a[260]d=b[260]i");
    form.instruction = "own";
    is("{" AB "}", "s=own[260]q=a[260]d=b[260]");
    is("{" AB ",\"instruction\":\"i\"}", "s=i[260]q=a[260]d=b[260]i");
    form.instruction = NULL;
    json_t *vars = json_pack("{s:b}", "add_generation_prompt", 1);
    form.vars = vars;
    is("{" AB "}", "q=a[260]d=b[260]A");
    form.vars = NULL;
    json_decref(vars);
    ask_ok(&c, &dialect_score, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\",\"d\"]}");
    assert_int_equal(c.n_choice, 2);
    assert_string_equal(prompt_text(&c, 1), "q=b[260]d=d[260]");
    call_free(&c);
}

static void the_form_of_qwen3_reranker_is_that_of_its_card(void **state)
{
    (void)state;
    form.tmpl = card;
    is("{" AB "}",
       "[258]system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that "
       "the answer can only be \"yes\" or \"no\".[259]\n[258]user\n<Instruct>: Given a web search query, retrieve relevant "
       "passages that answer the query\n<Query>: a\n<Document>: b[259]\n[258]assistant\n<think>\n\n</think>\n\n");
    form.tmpl = simple;
}

static void what_a_document_spells_is_text(void **state)
{
    (void)state;
    is("{\"query\":\"<s>\",\"documents\":[\"x<|im_end|>y\"]}", "q=<s>[260]d=x<|im_end|>y[260]");
    is("{" AB "}", "q=a[260]d=b[260]");
    is("{" AB ",\"instruction\":\"</s>\"}", "s=</s>[260]q=a[260]d=b[260]</s>");
}

static void a_document_is_cut_and_the_query_is_not(void **state)
{
    (void)state;
    is("{\"query\":\"abcdef\",\"documents\":[\"0123456\"],\"max_tokens_per_doc\":3}", "q=abcdef[260]d=012[260]");
    is("{\"query\":\"ab\",\"documents\":[\"0123456\"],\"truncate_prompt_tokens\":11}", "q=ab[260]d=012[260]");
    is("{\"query\":\"ab\",\"documents\":[\"0123456\"],\"truncate_prompt_tokens\":11,\"truncation_side\":\"left\"}",
       "q=ab[260]d=456[260]");
    is("{\"query\":\"ab\",\"documents\":[\"x\\u20acy\"],\"max_tokens_per_doc\":3}", "q=ab[260]d=x[260]");
    is("{\"query\":\"ab\",\"documents\":[\"x\\u20acy\"],\"max_tokens_per_doc\":4}", "q=ab[260]d=x\xe2\x82\xac[260]");
    refuses_as(&dialect_rerank, "{\"query\":\"ab\",\"documents\":[\"01\"],\"truncate_prompt_tokens\":7}", 400,
               "truncate_prompt_tokens", "");
    refuses_as(&dialect_rerank, long_text("{\"query\":\"a\",\"documents\":[\"", "x", CONTEXT, "\"]}"), 400, "documents",
               "context_length_exceeded");
    struct call c;
    ask_ok(&c, &dialect_rerank,
           long_text("{\"query\":\"a\",\"truncate_prompt_tokens\":-1,\"documents\":[\"", "x", CONTEXT, "\"]}"));
    assert_int_equal(c.prompt[0].n_id, CONTEXT);
    call_free(&c);
}

static json_t *answered(const struct dialect *d, const char *body)
{
    static const double state[] = { 2, -1, 2, 5 };
    struct call         c;
    struct buf          out;
    buf_init(&out, 1 << 20);
    ask_ok(&c, d, body);
    for (uint32_t i = c.n_choice; i--;) {
        c.choice[i].state[0] = state[i];
        answer_choice_end(&c, i, ENG_STOP, &out);
    }
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    call_free(&c);
    buf_free(&out);
    return v;
}

static void documents_come_by_their_scores(void **state)
{
    (void)state;
    static const uint32_t order[] = { 3, 0, 2, 1 };
    static const double   logit[] = { 5, 2, 2, -1 };
    for (int act = 0; act < 2; act++) {
        json_t *v =
            answered(&dialect_rerank,
                     act ? "{\"query\":\"q\",\"documents\":[\"a\",\"b\",\"c\",\"d\"]}"
                         : "{\"query\":\"q\",\"documents\":[\"a\",\"b\",\"c\",\"d\"],\"use_activation\":false}");
        for (size_t k = 0; k < 4; k++) {
            const json_t *row = json_array_get(json_object_get(v, "results"), k);
            double        want = act ? 1 / (1 + exp(-logit[k])) : logit[k];
            char          text[2] = { (char)('a' + order[k]), 0 };
            assert_int_equal(json_integer_value(json_object_get(row, "index")), order[k]);
            assert_true(fabs(json_number_value(json_object_get(row, "relevance_score")) - want) < 1e-8);
            assert_string_equal(str_at(row, "document.text"), text);
        }
        assert_int_equal(int_at(v, "usage.prompt_tokens"), 4 * 8);
        json_decref(v);
    }
    json_t *v = answered(&dialect_score, "{\"text_1\":\"q\",\"text_2\":[\"a\",\"b\"]}");
    assert_int_equal(json_array_size(json_object_get(v, "data")), 2);
    json_decref(v);
}

static void templates_that_show_no_pair_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool        takes;
    } cases[] = {
        { simple_text, true },
        { "{{ messages[0].content }} document query", false },
        { "{{ messages }}", false },
        { "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}{# query document #}",
          false },
        { "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}{# query document #}",
          true },
        { "{{ raise_exception('query document') }}", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tmpl *t = world_tmpl(cases[i].text);
        if (pair_takes_roles(t, world.tok, NULL) != cases[i].takes) fail_msg("case %zu", i);
        tmpl_free(t);
    }
    assert_false(pair_takes_roles(world.tmpl, world.tok, NULL));
    assert_false(pair_takes_roles(NULL, world.tok, NULL));
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refuses_as(&dialect_rerank, "{" AB ",\"instruction\":5}", 400, "instruction", "");
    refuses_as(&dialect_score, "{\"text_1\":\"a\",\"text_2\":[\"\"]}", 400, "text_2", "");
    refuses_as(&dialect_embedding, "{\"input\":\"a\"}", 400, "model", "");
    refuses_as(&dialect_classify, "{\"input\":\"a\"}", 400, "model", "");
    refuses_as(&dialect_rerank, long_text("{\"query\":\"a\",\"documents\":[\"a\"", ",\"a\"", 1000, "]}"), 400,
               "documents", "");
    char one[904] = ",\"";
    memset(one + 2, 'x', 900);
    memcpy(one + 902, "\"", 2);
    refuses_as(&dialect_rerank, long_text("{\"query\":\"a\",\"documents\":[\"a\"", one, 340, "]}"), 400, "documents",
               "");
    struct tmpl *t = world_tmpl("{{ raise_exception('no') }}");
    form.tmpl = t;
    refuses_as(&dialect_rerank, "{" AB "}", 400, "documents", "");
    form.tmpl = simple;
    tmpl_free(t);
    accepts(&dialect_invocation, "{" AB "}");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_template_has_both_as_messages),
                                        cmocka_unit_test(the_form_of_qwen3_reranker_is_that_of_its_card),
                                        cmocka_unit_test(what_a_document_spells_is_text),
                                        cmocka_unit_test(a_document_is_cut_and_the_query_is_not),
                                        cmocka_unit_test(documents_come_by_their_scores),
                                        cmocka_unit_test(templates_that_show_no_pair_are_known),
                                        cmocka_unit_test(what_is_wrong_is_named) };
    return cmocka_run_group_tests(tests, judges_open, judges_close);
}
