#include "api/anthropic/anthropic.h"
#include "api/chat_prompt.h"
#include <inttypes.h>
#include <string.h>

/* POST /v1/messages and /v1/messages/count_tokens. */

/* ---------------------------------------------------------------- the request */

static enum status count_parse(struct call *c, struct api_error *e)
{
    enum status st = anthropic_open(c);
    if (!st) st = anthropic_history(c, e);
    if (!st) st = anthropic_tools(c, e);
    return st ? st : chat_prompt_parse(c, e);
}

static enum status messages_parse(struct call *c, struct api_error *e)
{
    if (c->ask.max_tokens < 1) return api_fail(e, 400, "max_tokens", "'max_tokens' is required");
    return count_parse(c, e);
}

static enum status too_long(const struct call *c, uint64_t n, struct api_error *e)
{
    return api_fail_code(e, 400, "messages", "context_length_exceeded",
                         "prompt is too long: %" PRIu64 " tokens > %u maximum", n, c->model->context - 1);
}

/* ---------------------------------------------------------------- errors */

static const char *type_of(int http)
{
    static const struct {
        int         http;
        const char *type;
    } types[] = {
        { 401, "authentication_error" }, { 403, "permission_error" }, { 404, "not_found_error" },
        { 413, "request_too_large" },    { 429, "rate_limit_error" }, { 503, "overloaded_error" },
        { 504, "timeout_error" },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].http == http) return types[i].type;
    return http < 500 ? "invalid_request_error" : "api_error";
}

/* Clients know only errors of a field as a text, so the text names it where it does not yet. */
static void error_body(struct buf *out, const struct api_error *e)
{
    buf_puts(out, "{\"type\":\"error\",\"error\":{\"type\":\"");
    buf_puts(out, type_of(e->http));
    buf_puts(out, "\",\"message\":");
    json_put_str(out, e->message, strlen(e->message));
    if (!strcmp(e->code, "thread_unsupported_request"))
        buf_puts(out, ",\"details\":{\"error_code\":\"thread_unsupported_request\",\"unsupported\":[\"thread\"]}");
    buf_puts(out, "},\"request_id\":");
    if (*e->request_id)
        json_put_str(out, e->request_id, strlen(e->request_id));
    else
        buf_puts(out, "null");
    buf_putc(out, '}');
}

static void error_event(struct call *c, struct buf *out, const struct api_error *e)
{
    (void)c;
    buf_puts(out, "event: error\ndata: ");
    error_body(out, e);
    buf_puts(out, "\n\n");
}

/* ---------------------------------------------------------------- the rows */

/* clang-format off */
#define ROW(parse_with)                                                                                             \
    .id_prefix = "msg_", .id_header = "request-id", .fields = &anthropic_fields, .fields_on = 1,                     \
    .prompt_param = "messages", .max_tokens_param = "max_tokens", .top_logprobs_param = "max_tokens",                \
    .max_tokens_default = -1, .clamps = true, .too_long = too_long, .parse = parse_with,                             \
    .prepare = chat_prompt_prepare, .keep_alive = "event: ping\ndata: {\"type\": \"ping\"}\n\n",                     \
    .error = error_body, .error_stream = error_event
/* clang-format on */

const struct dialect dialect_messages = {
    ROW(messages_parse),
    .stream = { .begin = anthropic_stream_begin,
                .text = anthropic_stream_text,
                .reason = anthropic_stream_reason,
                .tool = anthropic_stream_tool,
                .finish = anthropic_stream_finish,
                .usage = anthropic_stream_usage },
    .whole = { .text = anthropic_whole_text,
               .reason = anthropic_whole_reason,
               .tool = anthropic_whole_tool,
               .finish = anthropic_whole_finish,
               .usage = anthropic_whole_usage },
};
/* A request whose tokens are only counted: it may leave out max_tokens. */
const struct dialect dialect_messages_count = { ROW(count_parse) };

/* ---------------------------------------------------------------- the count */

enum status api_count_tokens(const struct api_model *m, const char *body, size_t n, struct buf *out,
                             struct api_error *e)
{
    struct call c;
    enum status st = call_parse(&c, &dialect_messages_count, m, body, n, NULL, e);
    buf_putc(out, '{');
    if (!st) st = chat_prompt_count(&c, out, e);
    buf_putc(out, '}');
    call_free(&c);
    return st;
}
