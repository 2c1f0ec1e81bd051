#include "api/openai/chat_parts.h"
#include "base/json.h"
#include <string.h>

/* Clients read reasoning under one of two names: both are sent. */

/* ---------------------------------------------------------------- a stream */

/* From behind a delta to the end of the frame; tokens [from, to) are told with it. */
static void close_delta(struct call *c, uint32_t i, uint32_t from, uint32_t to, struct buf *out)
{
    buf_puts(out, ",\"logprobs\":null,\"finish_reason\":null");
    if (c->return_token_ids) {
        buf_puts(out, ",\"token_ids\":");
        openai_put_ids(c->choice[i].eng.id + from, to - from, out);
    }
    buf_puts(out, "}]");
    chunk_close(c, i, out);
}

void chat_stream_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    chunk_open(c, i, out);
    buf_puts(out, ",\"delta\":{\"reasoning\":");
    json_put_str(out, p->text, p->n);
    buf_puts(out, ",\"reasoning_content\":");
    json_put_str(out, p->text, p->n);
    buf_putc(out, '}');
    close_delta(c, i, p->from, p->to, out);
}

static const char *kind_of(const struct answer_tool *t) { return t->custom ? "custom" : "function"; }

static void put_opening(const struct answer_tool *t, struct buf *out)
{
    buf_puts(out, "\"id\":");
    json_put_str(out, t->id, strlen(t->id));
    buf_puts(out, ",\"type\":\"");
    buf_puts(out, kind_of(t));
    buf_puts(out, "\",\"");
    buf_puts(out, kind_of(t));
    buf_puts(out, "\":{\"name\":");
    json_put_str(out, t->text, t->n);
    buf_puts(out, t->custom ? ",\"input\":\"" : ",\"arguments\":\"");
}

void chat_stream_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out)
{
    if (t->what == ANSWER_TOOL_CLOSE) return;
    chunk_open(c, i, out);
    buf_puts(out, ",\"delta\":{\"tool_calls\":[{\"index\":");
    json_put_int(out, t->index);
    buf_putc(out, ',');
    if (t->what == ANSWER_TOOL_OPEN) {
        put_opening(t, out);
    } else {
        if (t->custom) buf_puts(out, "\"type\":\"custom\",");
        buf_puts(out, t->custom ? "\"custom\":{\"input\":\"" : "\"function\":{\"arguments\":\"");
        json_put_str_body(out, t->text, t->n);
    }
    buf_puts(out, "\"}}]}");
    close_delta(c, i, t->from, t->to, out);
}

/* ---------------------------------------------------------------- a whole answer */

void chat_keep_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)out;
    buf_put(&c->choice[i].reason, p->text, p->n);
}

/* As JSON at once, so that the end of a long answer does not hold up its io thread. */
void chat_keep_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out)
{
    struct buf *b = &c->choice[i].tool_calls;
    (void)out;
    switch (t->what) {
    case ANSWER_TOOL_OPEN:
        buf_puts(b, b->n ? ",{" : "{");
        put_opening(t, b);
        break;
    case ANSWER_TOOL_ARGS: json_put_str_body(b, t->text, t->n); break;
    case ANSWER_TOOL_CLOSE: buf_puts(b, "\"}}"); break;
    }
}

void chat_put_parts(const struct call_choice *ch, struct buf *out)
{
    if (ch->reason.n) {
        buf_puts(out, ",\"reasoning\":");
        json_put_str(out, ch->reason.data, ch->reason.n);
        buf_puts(out, ",\"reasoning_content\":");
        json_put_str(out, ch->reason.data, ch->reason.n);
    }
    if (ch->tool_calls.n) {
        buf_puts(out, ",\"tool_calls\":[");
        buf_put(out, ch->tool_calls.data, ch->tool_calls.n);
        buf_putc(out, ']');
    }
    if (ch->reason.failed || ch->tool_calls.failed) out->failed = true;
}
