/* POST /v1/embeddings: what becomes of a body, and of vectors. */
#define TINY_AFTER ",{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#include "api_world.h"
#include "engine/model/dense.h"
#include <math.h>

enum { DIM = 6 };

static int embeds_open(void **state)
{
    int failed = world_open(state);
    world.m.task = TASK_EMBED;
    world.m.state_dim = DIM;
    world.m.state_of = ENG_STATE_LAST;
    world.m.normalizes = true;
    world.m.shortens = true;
    return failed;
}

static void refuses(const char *body, const char *param) { refuses_as(&dialect_embedding, body, 400, param, ""); }

/* ---------------------------------------------------------------- the request */

static void inputs_come_in_four_forms(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_embedding, "{\"input\":\"ab\"}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab[257]");
    call_free(&c);
    ask_ok(&c, &dialect_embedding, "{\"input\":[\"ab\",\"c\"],\"user\":\"u\",\"unknown\":1}");
    assert_int_equal(c.n_prompt, 2);
    assert_string_equal(prompt_text(&c, 1), "[256]c[257]");
    call_free(&c);
    ask_ok(&c, &dialect_embedding, "{\"input\":[97,258,0]}");
    assert_int_equal(c.n_prompt, 1);
    assert_true(c.prompt[0].n_id == 3 && c.prompt[0].id[1] == 258);
    call_free(&c);
    ask_ok(&c, &dialect_embedding, "{\"input\":[[97],[98,99]]}");
    assert_true(c.n_prompt == 2 && c.n_choice == 2 && c.prompt[1].n_id == 2);
    call_free(&c);
    ask_ok(&c, &dialect_embedding, "{\"input\":\"ab\",\"add_special_tokens\":false}");
    assert_string_equal(prompt_text(&c, 0), "ab");
    call_free(&c);
}

static void messages_are_rendered_without_the_beginning_of_an_answer(void **state)
{
    (void)state;
    struct call       c;
    static const char user[] = "[258]user\nHi[259]\n";
    ask_ok(&c, &dialect_embedding, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    assert_string_equal(prompt_text(&c, 0), user);
    call_free(&c);
    ask_ok(&c, &dialect_embedding,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":true}");
    assert_string_equal(prompt_text(&c, 0), "[258]user\nHi[259]\n[258]assistant\n");
    call_free(&c);
    refuses("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"input\":\"a\"}", "input");
    refuses("{\"messages\":[]}", "messages");
    refuses("{\"messages\":5}", "messages");
}

static void an_input_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "[]",           "[[]]",       "[[97],[]]", "[\"a\",97]",   "[97,\"a\"]",
                                       "[[97],\"a\"]", "[[97],97]",  "[[[97]]]",  "[[\"a\"]]",    "5",
                                       "{}",           "[null]",     "\"\"",      "[\"a\",\"\"]", "[261]",
                                       "[-1]",         "[[1],[261]]" };
    char                     body[100];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "{\"input\":%s}", bad[i]);
        refuses(body, "input");
    }
    refuses("{}", "input");
    refuses("{\"input\":null}", "input");
}

static void a_request_has_so_many_inputs_and_tokens(void **state)
{
    (void)state;
    accepts(&dialect_embedding, long_text("{\"input\":[\"a\"", ",\"a\"", EMBED_INPUTS_MAX - 1, "]}"));
    refuses(long_text("{\"input\":[\"a\"", ",\"a\"", EMBED_INPUTS_MAX, "]}"), "input");
    char one[1001];
    memset(one, 'x', sizeof one);
    memcpy(one, ",\"", 2);
    memcpy(one + sizeof one - 2, "\"", 2);
    refuses(long_text("{\"input\":[\"a\"", one, 305, "]}"), "input"); /* each fits into the context, all are too many */
}

static void a_text_may_fill_the_context_and_is_never_cut_unasked(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_embedding, long_text("{\"input\":\"", "x", CONTEXT - 2, "\"}"));
    assert_int_equal(c.prompt[0].n_id, CONTEXT);
    call_free(&c);
    refuses_as(&dialect_embedding, long_text("{\"input\":\"", "x", CONTEXT - 1, "\"}"), 400, "input",
               "context_length_exceeded");
    accepts(&dialect_embedding, long_text("{\"input\":[1", ",1", CONTEXT - 1, "]}"));
    refuses_as(&dialect_embedding, long_text("{\"input\":[1", ",1", CONTEXT, "]}"), 400, "input_tokens",
               "context_length_exceeded");
}

static void what_is_cut_keeps_the_tokens_around_it(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_embedding, "{\"input\":\"abcdefgh\",\"truncate_prompt_tokens\":5}");
    assert_string_equal(prompt_text(&c, 0), "[256]abc[257]");
    call_free(&c);
    ask_ok(&c, &dialect_embedding,
           "{\"input\":\"abcdefgh\",\"truncate_prompt_tokens\":5,\"truncation_side\":\"left\"}");
    assert_string_equal(prompt_text(&c, 0), "[256]fgh[257]");
    call_free(&c);
    ask_ok(&c, &dialect_embedding, "{\"input\":[97,98,99],\"truncate_prompt_tokens\":2}");
    assert_string_equal(prompt_text(&c, 0), "ab");
    call_free(&c);
    ask_ok(&c, &dialect_embedding, "{\"input\":\"ab\",\"truncate_prompt_tokens\":30}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab[257]");
    call_free(&c);
    ask_ok(&c, &dialect_embedding, long_text("{\"truncate_prompt_tokens\":-1,\"input\":\"", "y", 5 * CONTEXT, "\"}"));
    assert_int_equal(c.prompt[0].n_id, CONTEXT);
    assert_int_equal(c.prompt[0].id[CONTEXT - 1], EOS);
    call_free(&c);
    ask_ok(&c, &dialect_embedding, long_text("{\"truncate_prompt_tokens\":-1,\"input\":[1", ",1", CONTEXT, "]}"));
    assert_int_equal(c.prompt[0].n_id, CONTEXT);
    call_free(&c);
    refuses("{\"input\":\"abc\",\"truncate_prompt_tokens\":2}", "truncate_prompt_tokens");
    refuses("{\"input\":\"abc\",\"truncate_prompt_tokens\":-2}", "truncate_prompt_tokens");
    refuses("{\"input\":\"abc\",\"truncation_side\":\"middle\"}", "truncation_side");
}

static void fields_of_embeddings_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *field, *param;
    } bad[] = { { "\"encoding_format\":\"int8\"", "encoding_format" },
                { "\"encoding_format\":1", "encoding_format" },
                { "\"dimensions\":0", "dimensions" },
                { "\"dimensions\":7", "dimensions" },
                { "\"dimensions\":\"6\"", "dimensions" },
                { "\"normalize\":true", "normalize" },
                { "\"embed_dtype\":\"float16\"", "embed_dtype" },
                { "\"endianness\":\"big\"", "endianness" },
                { "\"use_activation\":1", "use_activation" },
                { "\"model\":5", "model" },
                { "\"cache_salt\":\"\"", "cache_salt" } };
    static const char *const good[] = { "\"encoding_format\":\"base64\"",
                                        "\"dimensions\":6",
                                        "\"dimensions\":1",
                                        "\"embed_dtype\":\"float32\"",
                                        "\"endianness\":\"little\"",
                                        "\"use_activation\":false",
                                        "\"dimensions\":null",
                                        "\"cache_salt\":\"s\"" };
    char                     body[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "{\"input\":\"a\",%s}", bad[i].field);
        refuses(body, bad[i].param);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(body, sizeof body, "{\"input\":\"a\",%s}", good[i]);
        accepts(&dialect_embedding, body);
    }
    world.m.shortens = false;
    refuses("{\"input\":\"a\",\"dimensions\":3}", "dimensions");
    accepts(&dialect_embedding, "{\"input\":\"a\",\"dimensions\":6}");
    world.m.shortens = true;
    refuses_as(&dialect_embedding, "{\"input\":\"a\",\"model\":\"gpt\"}", 404, "model", "model_not_found");
}

static void a_model_has_one_task(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    assert_int_equal(ask(&c, &dialect_chat, with(&dialect_chat, ""), &e), ST_INVALID);
    assert_int_equal(e.http, 400);
    assert_non_null(strstr(e.message, "/v1/embeddings"));
    call_free(&c);
    refuses_as(&dialect_completion, with(&dialect_completion, ""), 400, "model", "");
    refuses_as(&dialect_responses, "{\"input\":\"a\"}", 400, "model", "");
    accepts(&dialect_invocation, "{\"input\":\"a\"}");
    world.m.task = TASK_GENERATE;
    world.m.state_dim = 0;
    assert_int_equal(ask(&c, &dialect_embedding, "{\"input\":\"a\"}", &e), ST_INVALID);
    assert_int_equal(e.http, 400);
    assert_non_null(strstr(e.message, "--task embed"));
    call_free(&c);
    world.m.task = TASK_EMBED;
    world.m.state_dim = DIM;
}

/* ---------------------------------------------------------------- the answer */

/* Vector i of the call: 3, 4, 0, i, 0, 12. */
static json_t *answered(const char *body)
{
    struct call c;
    struct buf  out;
    buf_init(&out, 1 << 20);
    ask_ok(&c, &dialect_embedding, body);
    for (uint32_t i = c.n_choice; i--;) { /* they may come in any order */
        static const double x[DIM] = { 3, 4, 0, 0, 0, 12 };
        memcpy(c.choice[i].state, x, sizeof x);
        c.choice[i].state[3] = i;
        answer_choice_end(&c, i, ENG_STOP, &out);
    }
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    call_free(&c);
    buf_free(&out);
    return v;
}

static double number(const json_t *v, size_t i, size_t j)
{
    const json_t *row = json_array_get(json_object_get(v, "data"), i);
    assert_int_equal(json_integer_value(json_object_get(row, "index")), i);
    return json_number_value(json_array_get(json_object_get(row, "embedding"), j));
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6 * fabs(b))) fail_msg("found %.9g, needed is %.9g", a, b);
}

static void vectors_have_length_1_and_their_inputs_order(void **state)
{
    (void)state;
    json_t *v = answered("{\"input\":[\"a\",\"bc\"]}");
    assert_string_equal(str_at(v, "object"), "list");
    assert_string_equal(str_at(v, "model"), "tiny");
    assert_int_equal(json_array_size(json_object_get(v, "data")), 2);
    near(number(v, 0, 0), 3.0 / 13);
    near(number(v, 0, 5), 12.0 / 13);
    near(number(v, 1, 3), 1 / sqrt(170));
    const json_t *usage = json_object_get(v, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), 7);
    assert_int_equal(json_integer_value(json_object_get(usage, "total_tokens")), 7);
    json_decref(v);
}

static void a_vector_is_cut_before_it_is_made_of_length_1(void **state)
{
    (void)state;
    json_t *v = answered("{\"input\":\"a\",\"dimensions\":2}");
    near(number(v, 0, 0), 0.6);
    near(number(v, 0, 1), 0.8);
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(v, "data"), 0), "embedding")), 2);
    json_decref(v);
}

static void a_vector_may_be_asked_for_as_it_is(void **state)
{
    (void)state;
    json_t *v = answered("{\"input\":\"a\",\"use_activation\":false}");
    near(number(v, 0, 5), 12);
    json_decref(v);
    world.m.state_of = ENG_STATE_SUM;
    v = answered("{\"input\":\"ab\",\"use_activation\":false}"); /* the mean of four tokens */
    near(number(v, 0, 5), 3);
    json_decref(v);
    v = answered("{\"input\":\"ab\"}");
    near(number(v, 0, 5), 12.0 / 13);
    json_decref(v);
    world.m.state_of = ENG_STATE_LAST;
    world.m.normalizes = false;
    v = answered("{\"input\":\"a\"}");
    near(number(v, 0, 5), 12);
    json_decref(v);
    world.m.normalizes = true;
}

/* The vector has more numbers than the state, and there are others before it in memory. */
static void a_state_goes_through_the_layers_behind_it(void **state)
{
    (void)state;
    enum { WIDTH = 8 };
    static float       weight[DIM * WIDTH]; /* number o is the sum of numbers o and o - 2 */
    struct model_dense d = { .n_layer = 1, .layer[0] = { .n_in = DIM, .n_out = WIDTH, .act = fabs, .weight = weight } };
    for (uint32_t i = 0; i < DIM; i++) weight[i * WIDTH + i] = weight[i * WIDTH + i + 2] = -1;
    world.m.dense = &d;
    json_t *v = answered("{\"input\":[\"a\",\"bc\",\"d\"],\"use_activation\":false}");
    for (size_t i = 0; i < 3; i++) {
        static const double want[WIDTH] = { 3, 4, 3, 4, 0, 12, 0, 12 };
        for (size_t j = 0; j < WIDTH; j++) near(number(v, i, j), want[j] + (j == 3 || j == 5 ? (double)i : 0));
    }
    json_decref(v);
    v = answered("{\"input\":\"a\",\"dimensions\":7}"); /* below 8 of the vector, above 6 of the state */
    near(number(v, 0, 5), 12 / sqrt(9 + 16 + 9 + 16 + 144));
    json_decref(v);
    world.m.state_of = ENG_STATE_SUM;
    v = answered("{\"input\":\"ab\",\"use_activation\":false}"); /* the mean of four tokens */
    near(number(v, 0, 7), 3);
    json_decref(v);
    world.m.state_of = ENG_STATE_LAST;
    refuses("{\"input\":\"a\",\"dimensions\":9}", "dimensions");
    world.m.dense = NULL;
}

static uint32_t sextet(char c)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char       *at = strchr(digit, c);
    assert_non_null(at);
    return (uint32_t)(at - digit);
}

static size_t decode(const char *s, unsigned char *out)
{
    size_t n = 0;
    assert_int_equal(strlen(s) % 4, 0);
    for (; *s; s += 4) {
        uint32_t v = sextet(s[0]) << 18 | sextet(s[1]) << 12;
        if (s[2] != '=') v |= sextet(s[2]) << 6;
        if (s[3] != '=') v |= sextet(s[3]);
        out[n++] = (unsigned char)(v >> 16);
        if (s[2] != '=') out[n++] = (unsigned char)(v >> 8);
        if (s[3] != '=') out[n++] = (unsigned char)v;
    }
    return n;
}

static void base64_has_the_bytes_of_the_floats(void **state)
{
    (void)state;
    for (int n = 1; n <= DIM; n++) { /* all three lengths of a last group */
        unsigned char bytes[64];
        float         x[DIM];
        char          body[100];
        snprintf(body, sizeof body, "{\"input\":\"a\",\"dimensions\":%d}", n);
        json_t *floats = answered(body);
        snprintf(body, sizeof body, "{\"input\":\"a\",\"dimensions\":%d,\"encoding_format\":\"base64\"}", n);
        json_t *v = answered(body);
        assert_int_equal(decode(str_at(v, "data.0.embedding"), bytes), (size_t)n * sizeof *x);
        memcpy(x, bytes, (size_t)n * sizeof *x);
        for (int j = 0; j < n; j++) assert_true(x[j] == (float)number(floats, 0, (size_t)j));
        json_decref(v);
        json_decref(floats);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_come_in_four_forms),
        cmocka_unit_test(messages_are_rendered_without_the_beginning_of_an_answer),
        cmocka_unit_test(an_input_that_is_none_is_refused),
        cmocka_unit_test(a_request_has_so_many_inputs_and_tokens),
        cmocka_unit_test(a_text_may_fill_the_context_and_is_never_cut_unasked),
        cmocka_unit_test(what_is_cut_keeps_the_tokens_around_it),
        cmocka_unit_test(fields_of_embeddings_are_checked),
        cmocka_unit_test(a_model_has_one_task),
        cmocka_unit_test(vectors_have_length_1_and_their_inputs_order),
        cmocka_unit_test(a_vector_is_cut_before_it_is_made_of_length_1),
        cmocka_unit_test(a_vector_may_be_asked_for_as_it_is),
        cmocka_unit_test(a_state_goes_through_the_layers_behind_it),
        cmocka_unit_test(base64_has_the_bytes_of_the_floats),
    };
    return cmocka_run_group_tests(tests, embeds_open, world_close);
}
