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
    assert_int_equal(status_of(invoke("", "{\"input\":\"Hi\"}")), 200);
    says("\"object\":\"response\"");
    assert_int_equal(status_of(invoke("", "{\"query\":\"Hi\"}")), 400);
    says("--task embed");
    assert_int_equal(status_of(invoke("", "{}")), 400);
    says("'messages', 'prompt', 'input' and 'inputs'");
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

static int up_with_sessions(void **state)
{
    (void)state;
    serve_start("--stateful-sessions", NULL);
    return 0;
}

#define SESSION   "X-Amzn-SageMaker-Session-Id: "
#define VERB(v)   "{\"requestType\":\"" v "\"}"
#define NEW_FIELD "\r\nX-Amzn-SageMaker-New-Session-Id: "

/* The id that the last answer gave out. */
static const char *new_id(void)
{
    static char id[64];
    const char *at = strstr(got, NEW_FIELD);
    if (!at) fail_msg("no new session in %s", got);
    assert_int_equal(sscanf(at + strlen(NEW_FIELD), "%36[0-9a-f-]; Expires=", id), 1);
    int year, month, day, h, m, s, end = 0;
    sscanf(at + strlen(NEW_FIELD) + 36, "; Expires=%4d-%2d-%2dT%2d:%2d:%2dZ\r\n%n", &year, &month, &day, &h, &m, &s,
           &end);
    assert_true(end > 0 && year >= 2024 && month >= 1 && month <= 12 && day >= 1 && day <= 31);
    return id;
}

static void a_session_is_opened_used_and_closed(void **state)
{
    (void)state;
    char of_session[200];
    assert_int_equal(status_of(invoke(SESSION "NEW_SESSION\r\n", VERB("NEW_SESSION"))), 200);
    snprintf(of_session, sizeof of_session, SESSION "%s\r\n", new_id());
    says(new_id());
    assert_int_equal(status_of(invoke(of_session, PROMPT)), 200);
    says("text_completion");
    assert_null(strstr(got, "Session-Id"));
    assert_int_equal(status_of(invoke(of_session, INPUTS)), 200);
    assert_int_equal(status_of(invoke(of_session, VERB("CLOSE"))), 200);
    says("\r\nX-Amzn-SageMaker-Closed-Session-Id: ");
    assert_int_equal(status_of(invoke(of_session, PROMPT)), 424);
    says("424 Failed Dependency");
    says("ask for NEW_SESSION");
    assert_int_equal(status_of(invoke(of_session, VERB("CLOSE"))), 424);
}

static void a_generation_may_open_its_session_and_a_verb_needs_no_header(void **state)
{
    (void)state;
    assert_int_equal(status_of(invoke(SESSION "NEW_SESSION\r\n", PROMPT)), 200);
    says("text_completion");
    (void)new_id();
    assert_int_equal(status_of(invoke("", VERB("NEW_SESSION"))), 200);
    (void)new_id();
    assert_int_equal(status_of(invoke("", VERB("CLOSE"))), 400);
    says("needs the header");
    assert_int_equal(status_of(invoke("", VERB("OPEN"))), 400);
    says("found 'OPEN', allowed are NEW_SESSION and CLOSE");
    assert_int_equal(status_of(invoke("", "{\"requestType\":\"CLOSE\",\"x\":1}")), 400);
    says("must be the only field");
    assert_int_equal(status_of(invoke("", "{\"requestType\":1}")), 400);
    assert_int_equal(status_of(invoke(SESSION "12345678-1234-4234-8234-123456789abc\r\n", PROMPT)), 424);
}

static void without_sessions_their_header_is_refused(void **state)
{
    (void)state;
    assert_int_equal(status_of(invoke(SESSION "NEW_SESSION\r\n", PROMPT)), 400);
    says("SAGEMAKER_ENABLE_STATEFUL_SESSIONS=true");
    assert_int_equal(status_of(invoke("", VERB("NEW_SESSION"))), 400);
    says("--stateful-sessions");
    assert_int_equal(status_of(invoke("", PROMPT)), 200);
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
        cmocka_unit_test_setup_teardown(a_session_is_opened_used_and_closed, up_with_sessions, down),
        cmocka_unit_test_setup_teardown(a_generation_may_open_its_session_and_a_verb_needs_no_header, up_with_sessions,
                                        down),
        cmocka_unit_test_setup_teardown(without_sessions_their_header_is_refused, up, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
