#include "api/responses/responses.h"
#include <stdlib.h>
#include <string.h>

/* Clients insist on the whole object at each of its places, with what they have asked for. */

/* A member as the client gave it, or what stands for it. */
static void put_given(const struct call *c, const char *name, const char *otherwise, struct buf *b)
{
    const json_t *v = json_object_get(c->body, name);
    char         *text = v && !json_is_null(v) ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    buf_puts(b, ",\"");
    buf_puts(b, name);
    buf_puts(b, "\":");
    buf_puts(b, text ? text : otherwise);
    free(text);
}

static void put_number(const char *name, double v, struct buf *b)
{
    buf_puts(b, name);
    json_put_num(b, v);
}

static void put_tail(const struct call *c, struct buf *b)
{
    buf_puts(b, ",\"background\":false,\"conversation\":null,\"max_tool_calls\":null,\"service_tier\":null,\"model\":");
    json_put_str(b, c->served, strlen(c->served));
    put_given(c, "truncation", "\"disabled\"", b);
    put_given(c, "previous_response_id", "null", b);
    put_given(c, "instructions", "null", b);
    put_given(c, "max_output_tokens", "null", b);
    put_given(c, "metadata", "{}", b);
    put_given(c, "prompt_cache_key", "null", b);
    put_given(c, "safety_identifier", "null", b);
    put_given(c, "user", "null", b);
    put_given(c, "reasoning", "{\"effort\":null,\"summary\":null}", b);
    put_given(c, "text", "{\"format\":{\"type\":\"text\"}}", b);
    put_given(c, "tools", "[]", b);
    put_given(c, "tool_choice", "\"auto\"", b);
    buf_puts(b, c->ask.parallel ? ",\"parallel_tool_calls\":true" : ",\"parallel_tool_calls\":false");
    put_number(",\"temperature\":", c->ask.temperature, b);
    put_number(",\"top_p\":", c->ask.top_p, b);
    buf_puts(b, ",\"top_logprobs\":");
    json_put_int(b, c->ask.top_logprobs > 0 ? c->ask.top_logprobs : 0);
    buf_putc(b, '}');
}

enum status responses_skeleton(struct call *c)
{
    struct buf *b = &c->scratch;
    buf_clear(b);
    put_tail(c, b);
    if (b->failed || !(responses_of(c)->tail = arena_strndup(&c->arena, b->data, b->n))) return ST_NOMEM;
    return ST_OK;
}

static void put_usage(const struct call *c, struct buf *out)
{
    const struct answer_usage u = answer_usage(c);
    buf_puts(out, "{\"input_tokens\":");
    json_put_int(out, (int64_t)u.n_prompt);
    buf_puts(out, ",\"input_tokens_details\":{\"cached_tokens\":");
    json_put_int(out, (int64_t)u.n_cached);
    buf_puts(out, ",\"cache_write_tokens\":0},\"output_tokens\":");
    json_put_int(out, (int64_t)u.n_completion);
    buf_puts(out, ",\"output_tokens_details\":{\"reasoning_tokens\":");
    json_put_int(out, (int64_t)u.n_reasoning);
    buf_puts(out, "},\"total_tokens\":");
    json_put_int(out, (int64_t)(u.n_prompt + u.n_completion));
    buf_putc(out, '}');
}

void responses_put_head(const struct call *c, const char *status, const struct api_error *failed, struct buf *out)
{
    buf_puts(out, "{\"id\":");
    json_put_str(out, c->id, strlen(c->id));
    buf_puts(out, ",\"object\":\"response\",\"created_at\":");
    json_put_int(out, c->created);
    buf_puts(out, ",\"status\":\"");
    buf_puts(out, status);
    buf_puts(out, "\",\"error\":");
    if (failed) {
        buf_puts(out, "{\"code\":");
        json_put_str(out, *failed->code ? failed->code : "server_error",
                     strlen(*failed->code ? failed->code : "server_error"));
        buf_puts(out, ",\"message\":");
        json_put_str(out, failed->message, strlen(failed->message));
        buf_putc(out, '}');
    } else {
        buf_puts(out, "null");
    }
    buf_puts(out, ",\"incomplete_details\":");
    buf_puts(out, strcmp(status, "incomplete") ? "null" : "{\"reason\":\"max_output_tokens\"}");
    buf_puts(out, ",\"output\":[");
}

void responses_put_tail(const struct call *c, bool ended, struct buf *out)
{
    const struct responses_call *r = responses_of(c);
    buf_puts(out, "],\"usage\":");
    if (ended)
        put_usage(c, out);
    else
        buf_puts(out, "null");
    buf_puts(out, r->stores ? ",\"store\":true" : ",\"store\":false");
    buf_puts(out, r->tail);
}

void responses_put(const struct call *c, const char *status, const struct buf *output, const struct api_error *failed,
                   struct buf *out)
{
    responses_put_head(c, status, failed, out);
    if (output) buf_put(out, text_of(output), output->n);
    responses_put_tail(c, strcmp(status, "in_progress") && !failed, out);
}
