#include "api_world.h"

typedef enum status endpoint(const struct api_model *m, const char *body, size_t n, struct buf *out,
                             struct api_error *e);

static json_t *post(endpoint *f, const char *body)
{
    struct api_error e;
    struct buf       out;
    buf_init(&out, 1 << 20);
    if (f(&world.m, body, strlen(body), &out, &e)) fail_msg("%s: %s", body, e.message);
    json_t *v = body_of(&out);
    buf_free(&out);
    return v;
}
static void post_fails(endpoint *f, const char *body, int http, const char *param)
{
    struct api_error e = { 0 };
    struct buf       out;
    buf_init(&out, 1 << 20);
    if (f(&world.m, body, strlen(body), &out, &e) == ST_OK) fail_msg("accepted: %s", body);
    assert_int_equal(e.http, http);
    assert_string_equal(e.param, param);
    assert_int_equal(out.n, 0);
    buf_free(&out);
}

static void text_is_counted_and_split(void **state)
{
    (void)state;
    json_t *v = post(api_tokenize, "{\"prompt\":\"a b\",\"return_token_strs\":true}");
    assert_int_equal(int_at(v, "count"), 4);
    assert_int_equal(int_at(v, "max_model_len"), CONTEXT);
    assert_int_equal(int_at(v, "tokens.0"), BOS);
    assert_string_equal(str_at(v, "token_strs.2"), "\xc4\xa0"); /* as the vocabulary writes a blank */
    json_decref(v);
    v = post(api_tokenize, "{\"prompt\":\"ab\",\"add_special_tokens\":false,\"model\":\"tiny\"}");
    assert_int_equal(int_at(v, "count"), 2);
    assert_true(null_at(v, "token_strs"));
    json_decref(v);
    v = post(api_tokenize, "{\"prompt\":\"\",\"add_special_tokens\":false}");
    assert_int_equal(int_at(v, "count"), 0);
    json_decref(v);
}

static void messages_are_rendered_first(void **state)
{
    (void)state;
    json_t *v = post(api_tokenize,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}],\"add_generation_prompt\":false}");
    assert_int_equal(int_at(v, "count"), 1 + 5 + 10 + 1 + 1); /* the user's control token is ten bytes of text */
    assert_int_equal(int_at(v, "tokens.0"), IM_START);
    json_decref(v);
    post_fails(api_tokenize, "{\"messages\":[]}", 400, "messages");
    post_fails(api_tokenize, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template\":\"x\"}", 400,
               "chat_template");
}

static void ids_become_text_again(void **state)
{
    (void)state;
    json_t *v = post(api_detokenize, "{\"tokens\":[256,72,105,195,169]}");
    assert_string_equal(str_at(v, "prompt"), "<s>Hi\xc3\xa9");
    json_decref(v);
    v = post(api_detokenize, "{\"tokens\":[]}");
    assert_string_equal(str_at(v, "prompt"), "");
    json_decref(v);
    v = post(api_detokenize, "{\"tokens\":[195]}");
    assert_string_equal(str_at(v, "prompt"), "\xef\xbf\xbd");
    json_decref(v);
}

static void B41_ids_out_of_the_vocabulary_and_wrong_shapes(void **state)
{
    (void)state;
    static const char *const bad[] = { "{\"tokens\":[261]}",
                                       "{\"tokens\":[-1]}",
                                       "{\"tokens\":[1.0]}",
                                       "{\"tokens\":[\"1\"]}",
                                       "{\"tokens\":5}",
                                       "{\"tokens\":[4294967296]}",
                                       "{}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) post_fails(api_detokenize, bad[i], 400, "tokens");
    post_fails(api_detokenize, "[]", 400, "");
    post_fails(api_detokenize, "{", 400, "");
    post_fails(api_detokenize, "{\"tokens\":[1],\"model\":\"x\"}", 404, "model");
    post_fails(api_tokenize, "{}", 400, "prompt");
    post_fails(api_tokenize, "{\"prompt\":5}", 400, "prompt");
    post_fails(api_tokenize, "{\"prompt\":\"x\",\"add_special_tokens\":1}", 400, "add_special_tokens");
    post_fails(api_tokenize, "{\"prompt\":\"x\",\"return_token_strs\":\"y\"}", 400, "return_token_strs");
    post_fails(api_tokenize, "{\"prompt\":\"x\",\"model\":\"y\"}", 404, "model");
}

static void B41_too_many_tokens_are_a_400(void **state)
{
    (void)state;
    post_fails(api_tokenize, long_text("{\"prompt\":\"", "0123456789abcdef", 300000, "\"}"), 400, "prompt");
}

static void models_are_listed_with_their_context(void **state)
{
    (void)state;
    struct api_error e;
    struct buf       out;
    buf_init(&out, 1 << 16);
    api_models(&world.m, &out);
    json_t *v = body_of(&out);
    assert_string_equal(str_at(v, "object"), "list");
    assert_string_equal(str_at(v, "data.0.id"), "tiny");
    assert_string_equal(str_at(v, "data.1.id"), "alias");
    assert_string_equal(str_at(v, "data.0.object"), "model");
    assert_int_equal(int_at(v, "data.0.max_model_len"), CONTEXT);
    json_decref(v);
    buf_clear(&out);
    assert_int_equal(api_model_card(&world.m, "alias", 5, &out, &e), ST_OK);
    v = body_of(&out);
    assert_string_equal(str_at(v, "id"), "alias");
    json_decref(v);
    assert_int_equal(api_model_card(&world.m, "ali", 3, &out, &e), ST_INVALID);
    assert_int_equal(e.http, 404);
    assert_string_equal(e.code, "model_not_found");
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_counted_and_split),
        cmocka_unit_test(messages_are_rendered_first),
        cmocka_unit_test(ids_become_text_again),
        cmocka_unit_test(B41_ids_out_of_the_vocabulary_and_wrong_shapes),
        cmocka_unit_test(B41_too_many_tokens_are_a_400),
        cmocka_unit_test(models_are_listed_with_their_context),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
