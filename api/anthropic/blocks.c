#include "api/anthropic/anthropic.h"
#include "base/json.h"
#include <string.h>

/* The content of an answer is a list of blocks, which follow each other and never overlap. A stream tells where each
 * begins and ends. A whole message gathers its blocks as JSON in call_choice.tool_calls while tokens come, so that the
 * end of a long answer does not hold up its io thread, and the input of the open call in call_choice.reason. */

/* What a client needs of a signature is that it is there and comes back. */
static const char signature[] = "spillway";

static const struct json_bounds input_bounds = { .depth_max = JSON_DEPTH_MAX,
                                                 .members_max = CALL_MEMBERS_MAX,
                                                 .tree_bytes_max = 64 << 20 };

/* ---------------------------------------------------------------- of both forms */

static void put_usage(const struct call *c, bool begins, struct buf *out)
{
    const struct answer_usage u = answer_usage(c);
    buf_puts(out, "{\"input_tokens\":");
    json_put_int(out, (int64_t)(u.n_prompt - u.n_cached));
    buf_puts(out, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
    json_put_int(out, (int64_t)u.n_cached);
    buf_puts(out, ",\"output_tokens\":");
    json_put_int(out, begins ? 0 : (int64_t)u.n_completion);
    buf_putc(out, '}');
}

static const char *stop_reason(const struct call *c, const struct answer_why *why)
{
    bool cut = why->finish == ENG_LENGTH;
    if (why->string) return "stop_sequence";
    if (!cut && c->choice[0].n_call) return "tool_use";
    return cut ? "max_tokens" : "end_turn";
}

/* "stop_reason":..,"stop_sequence":.. */
static void put_stop(const struct call *c, struct buf *out)
{
    const struct answer_why why = answer_why(c, 0);
    buf_puts(out, "\"stop_reason\":\"");
    buf_puts(out, stop_reason(c, &why));
    buf_puts(out, "\",\"stop_sequence\":");
    if (why.string)
        json_put_str(out, why.string->text, why.string->n);
    else
        buf_puts(out, "null");
}

static void put_head(const struct call *c, struct buf *out)
{
    buf_puts(out, "{\"id\":");
    json_put_str(out, c->id, strlen(c->id));
    buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_put_str(out, c->served, strlen(c->served));
    buf_puts(out, ",\"content\":[");
}

/* The block's own members behind its type, up to what deltas add. An id of our own begins as Anthropic's do; one that
 * the model's family wants in another form stays. */
static void put_tool_head(const struct answer_tool *t, struct buf *out)
{
    static const char own[] = "call_";
    bool              is_own = !strncmp(t->id, own, sizeof own - 1);
    const char       *id = is_own ? t->id + sizeof own - 1 : t->id;
    buf_puts(out, is_own ? "\"id\":\"toolu_" : "\"id\":\"");
    json_put_str_body(out, id, strlen(id));
    buf_puts(out, "\",\"name\":");
    json_put_str(out, t->text, t->n);
    buf_puts(out, ",\"input\":");
}

/* ---------------------------------------------------------------- a stream */

static void event_open(const char *type, struct buf *out)
{
    buf_puts(out, "event: ");
    buf_puts(out, type);
    buf_puts(out, "\ndata: {\"type\":\"");
    buf_puts(out, type);
    buf_putc(out, '"');
}

static void event_close(struct buf *out) { buf_puts(out, "}\n\n"); }

/* Up to the members of the delta. The open block is the last one that was opened. */
static void delta_open(const struct call *c, const char *type, struct buf *out)
{
    event_open("content_block_delta", out);
    buf_puts(out, ",\"index\":");
    json_put_int(out, anthropic_of(c)->n_block - 1);
    buf_puts(out, ",\"delta\":{\"type\":\"");
    buf_puts(out, type);
    buf_putc(out, '"');
}

static void delta_close(struct buf *out)
{
    buf_putc(out, '}');
    event_close(out);
}

static void stream_input(const struct call *c, const char *text, size_t n, struct buf *out)
{
    delta_open(c, "input_json_delta", out);
    buf_puts(out, ",\"partial_json\":");
    json_put_str(out, text, n);
    delta_close(out);
}

static void stream_end_block(struct call *c, struct buf *out)
{
    struct anthropic_call *a = anthropic_of(c);
    if (a->open == BLOCK_NONE) return;
    if (a->open == BLOCK_THINKING) {
        delta_open(c, "signature_delta", out);
        buf_puts(out, ",\"signature\":");
        json_put_str(out, signature, sizeof signature - 1);
        delta_close(out);
    }
    if (a->open == BLOCK_TOOL && !a->has_args) stream_input(c, "{}", 2, out);
    event_open("content_block_stop", out);
    buf_puts(out, ",\"index\":");
    json_put_int(out, a->n_block - 1);
    event_close(out);
    a->open = BLOCK_NONE;
}

/* Up to the members of the block. */
static void stream_begin_block(struct call *c, enum anthropic_block kind, const char *type, struct buf *out)
{
    struct anthropic_call *a = anthropic_of(c);
    stream_end_block(c, out);
    a->open = kind;
    a->has_args = false;
    event_open("content_block_start", out);
    buf_puts(out, ",\"index\":");
    json_put_int(out, a->n_block++);
    buf_puts(out, ",\"content_block\":{\"type\":\"");
    buf_puts(out, type);
    buf_puts(out, "\",");
}

void anthropic_stream_begin(struct call *c, uint32_t i, struct buf *out)
{
    (void)i;
    event_open("message_start", out);
    buf_puts(out, ",\"message\":");
    put_head(c, out);
    buf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_usage(c, true, out);
    buf_putc(out, '}');
    event_close(out);
}

void anthropic_stream_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)i;
    if (!p->n) return;
    if (anthropic_of(c)->open != BLOCK_TEXT) {
        stream_begin_block(c, BLOCK_TEXT, "text", out);
        buf_puts(out, "\"text\":\"\"}");
        event_close(out);
    }
    delta_open(c, "text_delta", out);
    buf_puts(out, ",\"text\":");
    json_put_str(out, p->text, p->n);
    delta_close(out);
}

void anthropic_stream_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)i;
    if (!p->n) return;
    if (anthropic_of(c)->open != BLOCK_THINKING) {
        stream_begin_block(c, BLOCK_THINKING, "thinking", out);
        buf_puts(out, "\"thinking\":\"\",\"signature\":\"\"}");
        event_close(out);
    }
    if (anthropic_of(c)->hides_thinking) return;
    delta_open(c, "thinking_delta", out);
    buf_puts(out, ",\"thinking\":");
    json_put_str(out, p->text, p->n);
    delta_close(out);
}

void anthropic_stream_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out)
{
    (void)i;
    switch (t->what) {
    case ANSWER_TOOL_OPEN:
        stream_begin_block(c, BLOCK_TOOL, "tool_use", out);
        put_tool_head(t, out);
        buf_puts(out, "{}}");
        event_close(out);
        break;
    case ANSWER_TOOL_ARGS:
        if (!t->n) break;
        anthropic_of(c)->has_args = true;
        stream_input(c, t->text, t->n, out);
        break;
    case ANSWER_TOOL_CLOSE: stream_end_block(c, out); break;
    }
}

void anthropic_stream_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    anthropic_stream_text(c, i, p, out);
    stream_end_block(c, out);
}

void anthropic_stream_usage(struct call *c, struct buf *out)
{
    event_open("message_delta", out);
    buf_puts(out, ",\"delta\":{");
    put_stop(c, out);
    buf_puts(out, "},\"usage\":");
    put_usage(c, false, out);
    event_close(out);
    event_open("message_stop", out);
    event_close(out);
}

/* ---------------------------------------------------------------- a whole message */

/* The input of a call that was cut off is no JSON, and clients take an object only. */
static void whole_input(struct call_choice *ch, struct buf *b)
{
    struct json_error je;
    json_t           *v = json_parse_bounded(text_of(&ch->reason), ch->reason.n, &input_bounds, &je);
    if (json_is_object(v))
        buf_put(b, ch->reason.data, ch->reason.n);
    else
        buf_puts(b, "{}");
    json_decref(v);
    buf_clear(&ch->reason);
}

static void whole_end_block(struct call *c)
{
    struct anthropic_call *a = anthropic_of(c);
    struct call_choice    *ch = &c->choice[0];
    struct buf            *b = &ch->tool_calls;
    if (a->open == BLOCK_TEXT) buf_puts(b, "\"}");
    if (a->open == BLOCK_THINKING) {
        buf_puts(b, "\",\"signature\":");
        json_put_str(b, signature, sizeof signature - 1);
        buf_putc(b, '}');
    }
    if (a->open == BLOCK_TOOL) {
        whole_input(ch, b);
        buf_putc(b, '}');
    }
    a->open = BLOCK_NONE;
}

static struct buf *whole_begin_block(struct call *c, enum anthropic_block kind, const char *type)
{
    struct anthropic_call *a = anthropic_of(c);
    struct buf            *b = &c->choice[0].tool_calls;
    whole_end_block(c);
    a->open = kind;
    buf_puts(b, a->n_block++ ? ",{\"type\":\"" : "{\"type\":\"");
    buf_puts(b, type);
    buf_puts(b, "\",");
    return b;
}

void anthropic_whole_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)i;
    (void)out;
    if (!p->n) return;
    if (anthropic_of(c)->open != BLOCK_TEXT) buf_puts(whole_begin_block(c, BLOCK_TEXT, "text"), "\"text\":\"");
    json_put_str_body(&c->choice[0].tool_calls, p->text, p->n);
    buf_clear(&c->choice[0].text); /* it is in its block */
}

void anthropic_whole_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)i;
    (void)out;
    if (!p->n) return;
    if (anthropic_of(c)->open != BLOCK_THINKING)
        buf_puts(whole_begin_block(c, BLOCK_THINKING, "thinking"), "\"thinking\":\"");
    if (!anthropic_of(c)->hides_thinking) json_put_str_body(&c->choice[0].tool_calls, p->text, p->n);
}

void anthropic_whole_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out)
{
    (void)i;
    (void)out;
    switch (t->what) {
    case ANSWER_TOOL_OPEN: put_tool_head(t, whole_begin_block(c, BLOCK_TOOL, "tool_use")); break;
    case ANSWER_TOOL_ARGS: buf_put(&c->choice[0].reason, t->text, t->n); break;
    case ANSWER_TOOL_CLOSE: whole_end_block(c); break;
    }
}

void anthropic_whole_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    anthropic_whole_text(c, i, p, out);
    whole_end_block(c);
}

void anthropic_whole_usage(struct call *c, struct buf *out)
{
    const struct call_choice *ch = &c->choice[0];
    put_head(c, out);
    buf_put(out, text_of(&ch->tool_calls), ch->tool_calls.n);
    buf_puts(out, "],");
    put_stop(c, out);
    buf_puts(out, ",\"usage\":");
    put_usage(c, false, out);
    buf_putc(out, '}');
    if (ch->tool_calls.failed || ch->reason.failed || ch->text.failed) out->failed = true;
}
