/* POST /rerank and /score of a model that makes embeddings: what becomes of a body, and of vectors. */
#define TINY_AFTER ",{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#include "api_world.h"
#include "engine/model/dense.h"
#include <math.h>

enum { DIM = 2 };

static int embeds_open(void **state)
{
    int failed = world_open(state);
    world.m.task = TASK_EMBED;
    world.m.state_dim = DIM;
    return failed;
}

/* The vector of a text of n bytes points to an angle of n / 10. */
static json_t *answered(const struct dialect *d, const char *body)
{
    struct call c;
    struct buf  out;
    buf_init(&out, 1 << 20);
    ask_ok(&c, d, body);
    for (uint32_t i = c.n_choice; i--;) { /* they may come in any order */
        double angle = (c.prompt[i].n_id - 2) / 10.0;
        c.choice[i].state[0] = 3 * cos(angle);
        c.choice[i].state[1] = 3 * sin(angle);
        answer_choice_end(&c, i, ENG_STOP, &out);
    }
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    call_free(&c);
    buf_free(&out);
    return v;
}

static const json_t *row_of(const json_t *v, const char *list, size_t i)
{
    const json_t *row = json_array_get(json_object_get(v, list), i);
    assert_non_null(row);
    return row;
}

static void near(const json_t *v, double want)
{
    if (!(fabs(json_number_value(v) - want) < 1e-7)) fail_msg("found %.9g, needed is %.9g", json_number_value(v), want);
}

#define QUERY "\"query\":\"abc\",\"documents\":[\"ab\",\"a\",\"xyz\",{\"text\":\"0123456\"},\"cba\"]"

static void results_are_sorted_and_equal_ones_keep_their_order(void **state)
{
    (void)state;
    static const uint32_t    order[] = { 2, 4, 0, 1, 3 };
    static const double      distance[] = { 0, 0, 0.1, 0.2, 0.4 };
    static const char *const text[] = { "xyz", "cba", "ab", "a", "0123456" };
    json_t                  *v = answered(&dialect_rerank, "{" QUERY "}");
    assert_int_equal(json_array_size(json_object_get(v, "results")), 5);
    for (size_t k = 0; k < 5; k++) {
        const json_t *row = row_of(v, "results", k);
        assert_int_equal(json_integer_value(json_object_get(row, "index")), order[k]);
        near(json_object_get(row, "relevance_score"), cos(distance[k]));
        assert_string_equal(json_string_value(json_object_get(json_object_get(row, "document"), "text")), text[k]);
    }
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "usage"), "total_tokens")), 19 + 12);
    assert_true(!strncmp(str_at(v, "id"), "rerank-", 7));
    json_decref(v);
}

static void so_many_results_as_asked_for(void **state)
{
    (void)state;
    json_t *v = answered(&dialect_rerank, "{" QUERY ",\"top_n\":2,\"return_documents\":false}");
    assert_int_equal(json_array_size(json_object_get(v, "results")), 2);
    assert_null(json_object_get(row_of(v, "results", 0), "document"));
    json_decref(v);
    v = answered(&dialect_rerank, "{" QUERY ",\"top_n\":0}");
    assert_int_equal(json_array_size(json_object_get(v, "results")), 5);
    json_decref(v);
    v = answered(&dialect_rerank, "{" QUERY ",\"top_n\":9}");
    assert_int_equal(json_array_size(json_object_get(v, "results")), 5);
    json_decref(v);
}

static void documents_are_cut_and_the_query_is_not(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_rerank, "{\"query\":\"abcdef\",\"documents\":[\"ghijkl\",\"m\"],\"max_tokens_per_doc\":4}");
    assert_string_equal(prompt_text(&c, 0), "[256]abcdef[257]");
    assert_string_equal(prompt_text(&c, 1), "[256]gh[257]");
    assert_string_equal(prompt_text(&c, 2), "[256]m[257]");
    call_free(&c);
    ask_ok(&c, &dialect_rerank,
           long_text("{\"max_tokens_per_doc\":5000,\"query\":\"a\",\"documents\":[\"", "y", 3 * CONTEXT, "\"]}"));
    assert_int_equal(c.prompt[1].n_id, CONTEXT);
    call_free(&c);
    refuses_as(&dialect_rerank, long_text("{\"query\":\"a\",\"documents\":[\"", "y", CONTEXT, "\"]}"), 400, "documents",
               "context_length_exceeded");
    ask_ok(&c, &dialect_rerank,
           "{\"query\":\"abcdef\",\"documents\":[\"ghijkl\"],\"max_tokens_per_doc\":5,\"truncate_prompt_tokens\":4}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab[257]");
    assert_string_equal(prompt_text(&c, 1), "[256]gh[257]");
    call_free(&c);
}

static void a_score_is_of_one_with_each_or_of_pairs(void **state)
{
    (void)state;
    static const char *const bodies[] = { "{\"text_1\":\"a\",\"text_2\":[\"ab\",\"abc\"]}",
                                          "{\"data_1\":[\"a\",\"ab\"],\"data_2\":[\"ab\",\"abcd\"]}",
                                          "{\"queries\":[\"a\"],\"documents\":[\"ab\",\"abc\"]}",
                                          "{\"queries\":\"a\",\"items\":[{\"text\":\"ab\"},\"abc\"],\"text_1\":null}" };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        json_t *v = answered(&dialect_score, bodies[i]);
        assert_string_equal(str_at(v, "object"), "list");
        assert_int_equal(json_array_size(json_object_get(v, "data")), 2);
        for (size_t k = 0; k < 2; k++) {
            const json_t *row = row_of(v, "data", k);
            assert_int_equal(json_integer_value(json_object_get(row, "index")), k);
            assert_string_equal(json_string_value(json_object_get(row, "object")), "score");
            near(json_object_get(row, "score"), cos(0.1 * (double)(k + 1)));
        }
        json_decref(v);
    }
    json_t *v = answered(&dialect_score, "{\"text_1\":\"a\",\"text_2\":\"abc\"}");
    assert_int_equal(json_array_size(json_object_get(v, "data")), 1);
    json_decref(v);
}

static double as_it_is(double x) { return x; }

static void layers_behind_a_state_count_in_the_score(void **state)
{
    (void)state;
    static float       weight[DIM * 3] = { 0, 1, 0, 0, 0, 2 }; /* [cos, sin] becomes [0, cos, 2 sin] */
    struct model_dense d = { .n_layer = 1, .layer[0] = { .n_in = DIM, .n_out = 3, .act = as_it_is, .weight = weight } };
    world.m.dense = &d;
    json_t *v = answered(&dialect_score, "{\"text_1\":\"abcd\",\"text_2\":[\"ab\",\"abcd\"]}");
    double  a[] = { cos(0.4), 2 * sin(0.4) }, b[] = { cos(0.2), 2 * sin(0.2) };
    near(json_object_get(row_of(v, "data", 0), "score"),
         (a[0] * b[0] + a[1] * b[1]) / sqrt((a[0] * a[0] + a[1] * a[1]) * (b[0] * b[0] + b[1] * b[1])));
    near(json_object_get(row_of(v, "data", 1), "score"), 1);
    json_decref(v);
    world.m.dense = NULL;
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const struct dialect *d;
        const char           *body, *param;
    } bad[] = { { &dialect_rerank, "{\"documents\":[\"a\"]}", "query" },
                { &dialect_rerank, "{\"query\":\"\",\"documents\":[\"a\"]}", "query" },
                { &dialect_rerank, "{\"query\":[\"a\"],\"documents\":[\"a\"]}", "query" },
                { &dialect_rerank, "{\"query\":\"a\"}", "documents" },
                { &dialect_rerank, "{\"query\":\"a\",\"documents\":[]}", "documents" },
                { &dialect_rerank, "{\"query\":\"a\",\"documents\":[\"\"]}", "documents" },
                { &dialect_rerank, "{\"query\":\"a\",\"documents\":[5]}", "documents" },
                { &dialect_rerank, "{\"query\":\"a\",\"documents\":[{\"image\":\"a\"}]}", "documents" },
                { &dialect_rerank, "{\"query\":\"a\",\"documents\":\"a\"}", "documents" },
                { &dialect_rerank, "{\"query\":\"a\",\"documents\":[\"a\"],\"top_n\":-1}", "top_n" },
                { &dialect_rerank, "{\"query\":\"a\",\"documents\":[\"a\"],\"max_tokens_per_doc\":-1}",
                  "max_tokens_per_doc" },
                { &dialect_score, "{\"text_1\":\"a\"}", "text_1" },
                { &dialect_score, "{\"text_1\":\"a\",\"data_2\":\"b\"}", "text_1" },
                { &dialect_score, "{\"text_1\":[],\"text_2\":\"b\"}", "text_1" },
                { &dialect_score, "{\"text_1\":\"a\",\"text_2\":[]}", "text_2" },
                { &dialect_score, "{\"text_1\":\"a\",\"text_2\":[[1]]}", "text_2" },
                { &dialect_score, "{\"data_1\":[\"a\",\"b\"],\"data_2\":[\"a\"]}", "data_1" } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuses_as(bad[i].d, bad[i].body, 400, bad[i].param, "");
    accepts(&dialect_rerank, long_text("{\"query\":\"a\",\"documents\":[\"a\"", ",\"a\"", 999, "]}"));
    refuses_as(&dialect_rerank, long_text("{\"query\":\"a\",\"documents\":[\"a\"", ",\"a\"", 1000, "]}"), 400,
               "documents", "");
    accepts(&dialect_invocation, "{\"query\":\"a\",\"documents\":[\"a\"]}");
    accepts(&dialect_invocation, "{\"text_1\":\"a\",\"text_2\":[\"a\"]}");
    world.m.task = TASK_GENERATE;
    refuses_as(&dialect_rerank, "{\"query\":\"a\",\"documents\":[\"a\"]}", 400, "model", "");
    world.m.task = TASK_EMBED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_sorted_and_equal_ones_keep_their_order),
        cmocka_unit_test(so_many_results_as_asked_for),
        cmocka_unit_test(documents_are_cut_and_the_query_is_not),
        cmocka_unit_test(a_score_is_of_one_with_each_or_of_pairs),
        cmocka_unit_test(layers_behind_a_state_count_in_the_score),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, embeds_open, world_close);
}
