#include "serve.h"

static char text[65536];

static char *invoke(const char *fields, const char *body)
{
    post(text, sizeof text, "/invocations", fields, body);
    return ask_bytes(text, strlen(text));
}
static void says(const char *what)
{
    if (!strstr(got, what)) fail_msg("'%s' is not in %s", what, got);
}
static int up(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    return 0;
}
static int down(void **state)
{
    (void)state;
    serve_down();
    return 0;
}

#define PROMPT "{\"prompt\":\"Hi\",\"max_tokens\":2,\"ignore_eos\":true}"
#define INPUTS "{\"inputs\":\"Hi\",\"parameters\":{\"max_new_tokens\":2,\"ignore_eos\":true},\"stream\":true}"
#define CUSTOM "X-Amzn-SageMaker-Custom-Attributes: "

static void the_form_of_the_body_decides_the_answer(void **state)
{
    (void)state;
    assert_int_equal(status_of(invoke("", PROMPT)), 200);
    says("\"object\":\"text_completion\"");
    assert_int_equal(status_of(invoke("", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":2}")),
                     200);
    says("\"object\":\"chat.completion\"");
    assert_int_equal(status_of(invoke("", "{\"inputs\":\"Hi\",\"parameters\":{\"max_new_tokens\":2}}")), 200);
    says("{\"generated_text\":\"");
    assert_int_equal(status_of(invoke("", "{\"input\":\"Hi\"}")), 400);
    says("embeddings");
    assert_int_equal(status_of(invoke("", "{}")), 400);
    says("'messages', 'prompt' and 'inputs'");
}

static void a_stream_of_inputs_is_lines_or_events(void **state)
{
    (void)state;
    assert_int_equal(status_of(invoke("", INPUTS)), 200);
    says("Content-Type: application/jsonlines\r\n");
    says("Transfer-Encoding: chunked\r\n");
    assert_int_equal(status_of(invoke("Accept: text/event-stream, */*\r\n", INPUTS)), 200);
    says("Content-Type: text/event-stream; charset=utf-8\r\n");
    says("data: {\"token\"");
    assert_int_equal(status_of(invoke("X-Amzn-SageMaker-Accept: text/event-stream\r\n", INPUTS)), 200);
    says("data: {\"token\"");
    assert_int_equal(status_of(invoke("Accept: application/json\r\n", INPUTS)), 200);
    says("Content-Type: application/jsonlines\r\n");
}

static void route_sends_the_body_to_another_route(void **state)
{
    (void)state;
    assert_int_equal(status_of(invoke(CUSTOM "route=/v1/completions\r\n", PROMPT)), 200);
    says("text_completion");
    assert_int_equal(status_of(invoke(CUSTOM "a=b; route=/tokenize ,c\r\n", "{\"prompt\":\"Hi\"}")), 200);
    says("\"tokens\":[");
    assert_int_equal(status_of(invoke(CUSTOM "route=/v1/chat/completions\r\n", PROMPT)), 400);
    says("\"param\":\"messages\"");
    assert_int_equal(status_of(invoke(CUSTOM "route=/invocations\r\n", PROMPT)), 200);
    static const char *const wrong[] = { "/health", "/metrics", "/v1/models", "/v1/models/x",
                                         "/",       "/nope",    "nope",       "/ping" };
    for (size_t i = 0; i < ARRAY_N(wrong); i++) {
        char fields[200];
        snprintf(fields, sizeof fields, CUSTOM "route=%s\r\n", wrong[i]);
        assert_int_equal(status_of(invoke(fields, PROMPT)), 404);
        says("POST /v1/completions");
    }
}

static void custom_attributes_come_back(void **state)
{
    (void)state;
    assert_int_equal(status_of(invoke(CUSTOM "trace-7; route=/v1/completions\r\n", PROMPT)), 200);
    says("\r\n" CUSTOM "trace-7; route=/v1/completions\r\n");
    assert_int_equal(status_of(invoke(CUSTOM "trace-8\r\n", INPUTS)), 200);
    says("\r\n" CUSTOM "trace-8\r\n");
    assert_int_equal(status_of(invoke(CUSTOM "trace-9\r\n", "{}")), 400);
    says("\r\n" CUSTOM "trace-9\r\n");
    assert_int_equal(status_of(invoke("", PROMPT)), 200);
    assert_null(strstr(got, "SageMaker"));
}

static void headers_have_bounds(void **state)
{
    (void)state;
    char long_one[1400];
    memset(long_one, 'x', sizeof long_one);
    snprintf(long_one + 1100, sizeof long_one - 1100, "\r\n");
    memcpy(long_one, CUSTOM, strlen(CUSTOM));
    assert_int_equal(status_of(invoke(long_one, PROMPT)), 400);
    says("allowed are 1024");
    assert_int_equal(status_of(invoke(CUSTOM "a\r\n" CUSTOM "b\r\n", PROMPT)), 400);
    says("is given twice");
    assert_int_equal(status_of(invoke(CUSTOM "caf\xc3\xa9\r\n", PROMPT)), 400);
    says("byte 3 is not visible ASCII");
    assert_int_equal(status_of(invoke("X-Amzn-SageMaker-Adapter-Identifier: my-lora\r\n", PROMPT)), 400);
    says("found 'my-lora', but adapters are not served");
    assert_int_equal(status_of(invoke("X-Amzn-SageMaker-Target-Variant: v\r\nX-Amzn-Something: y\r\n", PROMPT)), 200);
}

static void an_inference_id_is_the_id_of_the_request(void **state)
{
    (void)state;
    assert_int_equal(status_of(invoke("X-Amzn-SageMaker-Inference-Id: inf-1\r\n", PROMPT)), 200);
    says("\r\nx-request-id: inf-1\r\n");
    says("\"id\":\"cmpl-inf-1\"");
    assert_int_equal(status_of(invoke("X-Request-Id: mine\r\nX-Amzn-SageMaker-Inference-Id: inf-1\r\n", PROMPT)), 200);
    says("\r\nx-request-id: mine\r\n");
    assert_int_equal(status_of(invoke("X-Amzn-SageMaker-Inference-Id: a b\r\n", PROMPT)), 200);
    assert_null(strstr(got, "a b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_form_of_the_body_decides_the_answer, up, down),
        cmocka_unit_test_setup_teardown(a_stream_of_inputs_is_lines_or_events, up, down),
        cmocka_unit_test_setup_teardown(route_sends_the_body_to_another_route, up, down),
        cmocka_unit_test_setup_teardown(custom_attributes_come_back, up, down),
        cmocka_unit_test_setup_teardown(headers_have_bounds, up, down),
        cmocka_unit_test_setup_teardown(an_inference_id_is_the_id_of_the_request, up, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
