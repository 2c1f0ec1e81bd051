#include "api/openai/logprob.h"
#include "api/responses/keep.h"
#include "base/hash.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The output is a list of items, which follow each other and never overlap. The same functions make a stream and a
 * whole response: items gather as JSON in call_choice.tool_calls, the text of the item at hand in call_choice.reason
 * and its log probabilities in call_choice.lp. Only a stream writes the events. The last event of a stream has all of
 * it again. */

enum { ENCRYPTED_VERSION = 1 };

struct item_kind {
    const char *prefix, *type; /* of its id; of the item */
    const char *part;          /* type of its only content part; NULL: it has none */
    const char *member;        /* the name of its text, in the item and in the done event */
    const char *delta, *done;  /* events of its text */
};
static const struct item_kind kinds[] = {
    [ITEM_MESSAGE] = { "msg_", "message", "output_text", "text", "response.output_text.delta",
                       "response.output_text.done" },
    [ITEM_REASONING] = { "rs_", "reasoning", "reasoning_text", "text", "response.reasoning_text.delta",
                         "response.reasoning_text.done" },
    [ITEM_FUNCTION] = { "fc_", "function_call", NULL, "arguments", "response.function_call_arguments.delta",
                        "response.function_call_arguments.done" },
    [ITEM_CUSTOM] = { "ctc_", "custom_tool_call", NULL, "input", "response.custom_tool_call_input.delta",
                      "response.custom_tool_call_input.done" },
};

static const struct item_kind *kind_of(const struct call *c) { return &kinds[responses_of(c)->open]; }
static struct buf             *item_text(struct call *c) { return &c->choice[0].reason; }

/* ---------------------------------------------------------------- frames */

static void event_open(struct call *c, const char *type, struct buf *out)
{
    buf_puts(out, "event: ");
    buf_puts(out, type);
    buf_puts(out, "\ndata: {\"type\":\"");
    buf_puts(out, type);
    buf_puts(out, "\",\"sequence_number\":");
    json_put_int(out, (int64_t)responses_of(c)->sequence++);
}

static void event_close(struct buf *out) { buf_puts(out, "}\n\n"); }

/* ,"output_index":..,"item_id":.. of the item at hand */
static void put_place(const struct call *c, struct buf *out)
{
    const struct responses_call *r = responses_of(c);
    buf_puts(out, ",\"output_index\":");
    json_put_int(out, r->n_item - 1);
    buf_puts(out, ",\"item_id\":\"");
    buf_puts(out, r->id);
    buf_putc(out, '"');
    if (kind_of(c)->part) buf_puts(out, ",\"content_index\":0");
}

/* ---------------------------------------------------------------- the item at hand */

static void put_logprobs(const struct buf *lp, struct buf *out)
{
    buf_puts(out, ",\"logprobs\":[");
    buf_put(out, text_of(lp), lp->n);
    buf_putc(out, ']');
}

static void put_part(struct call *c, bool full, struct buf *out)
{
    const struct item_kind *k = kind_of(c);
    const struct buf       *text = item_text(c);
    static const struct buf none = { 0 };
    buf_puts(out, "{\"type\":\"");
    buf_puts(out, k->part);
    buf_puts(out, "\",\"text\":");
    json_put_str(out, text_of(text), full ? text->n : 0);
    if (responses_of(c)->open == ITEM_MESSAGE) {
        buf_puts(out, ",\"annotations\":[]");
        put_logprobs(full ? &c->choice[0].lp : &none, out);
    }
    buf_putc(out, '}');
}

static void put_encrypted(const struct buf *text, struct buf *out)
{
    size_t         n = text->n + 1;
    unsigned char *plain = malloc(n);
    char          *to = plain ? buf_reserve(out, (n + 2) / 3 * 4 + 1) : NULL; /* and the zero that it writes */
    if (to) {
        plain[0] = ENCRYPTED_VERSION;
        memcpy(plain + 1, text_of(text), text->n);
        out->n += (size_t)EVP_EncodeBlock((unsigned char *)to, plain, (int)n);
    } else {
        out->failed = true;
    }
    free(plain);
}

static void put_item(struct call *c, const char *status, bool full, struct buf *out)
{
    const struct responses_call *r = responses_of(c);
    const struct item_kind      *k = kind_of(c);
    const struct buf            *text = item_text(c);
    buf_puts(out, "{\"id\":\"");
    buf_puts(out, r->id);
    buf_puts(out, "\",\"type\":\"");
    buf_puts(out, k->type);
    buf_puts(out, "\",\"status\":\"");
    buf_puts(out, status);
    buf_putc(out, '"');
    if (r->open == ITEM_MESSAGE) buf_puts(out, ",\"role\":\"assistant\"");
    if (r->open == ITEM_REASONING) buf_puts(out, ",\"summary\":[]");
    if (r->open == ITEM_REASONING && r->encrypts && full) {
        buf_puts(out, ",\"encrypted_content\":\"");
        put_encrypted(text, out);
        buf_putc(out, '"');
    }
    if (k->part) {
        buf_puts(out, ",\"content\":[");
        if (full) put_part(c, true, out);
        buf_puts(out, "]}");
        return;
    }
    buf_puts(out, r->call);
    buf_puts(out, ",\"");
    buf_puts(out, k->member);
    buf_puts(out, "\":");
    json_put_str(out, text_of(text), full ? text->n : 0);
    buf_putc(out, '}');
}

static void end_item(struct call *c, struct buf *out)
{
    struct responses_call  *r = responses_of(c);
    const struct item_kind *k = kind_of(c);
    struct buf             *items = &c->choice[0].tool_calls;
    const char             *status = r->is_cut ? "incomplete" : "completed";
    if (r->open == ITEM_NONE) return;
    if (c->stream) {
        event_open(c, k->done, out);
        put_place(c, out);
        buf_puts(out, ",\"");
        buf_puts(out, k->member);
        buf_puts(out, "\":");
        json_put_str(out, text_of(item_text(c)), item_text(c)->n);
        if (r->open == ITEM_MESSAGE) put_logprobs(&c->choice[0].lp, out);
        if (!k->part) buf_puts(out, r->call_name);
        event_close(out);
    }
    if (c->stream && k->part) {
        event_open(c, "response.content_part.done", out);
        put_place(c, out);
        buf_puts(out, ",\"part\":");
        put_part(c, true, out);
        event_close(out);
    }
    if (items->n) buf_putc(items, ',');
    size_t from = items->n;
    put_item(c, status, true, items);
    responses_keep_output(c, from);
    if (c->stream && !items->failed) {
        event_open(c, "response.output_item.done", out);
        buf_puts(out, ",\"output_index\":");
        json_put_int(out, r->n_item - 1);
        buf_puts(out, ",\"item\":");
        buf_put(out, items->data + from, items->n - from);
        event_close(out);
    }
    r->open = ITEM_NONE;
    buf_clear(item_text(c));
    buf_clear(&c->choice[0].lp);
}

/* Ids are fixed by the response's own and the item's number. */
static void make_item_id(struct call *c)
{
    struct responses_call *r = responses_of(c);
    struct hash128         h = hash128_bytes(c->id, strlen(c->id), r->n_item);
    snprintf(r->id, sizeof r->id, "%s%016llx%016llx", kind_of(c)->prefix, (unsigned long long)h.hi,
             (unsigned long long)h.lo);
}

static void begin_item(struct call *c, enum responses_item kind, struct buf *out)
{
    struct responses_call *r = responses_of(c);
    end_item(c, out);
    r->open = kind;
    r->n_item++;
    make_item_id(c);
    if (!c->stream) return;
    event_open(c, "response.output_item.added", out);
    buf_puts(out, ",\"output_index\":");
    json_put_int(out, r->n_item - 1);
    buf_puts(out, ",\"item\":");
    put_item(c, "in_progress", false, out);
    event_close(out);
    if (!kind_of(c)->part) return;
    event_open(c, "response.content_part.added", out);
    put_place(c, out);
    buf_puts(out, ",\"part\":");
    put_part(c, false, out);
    event_close(out);
}

/* ---------------------------------------------------------------- events of an answer */

static void put_beginning(struct call *c, struct buf *out)
{
    static const char *const types[] = { "response.created", "response.in_progress" };
    for (int k = 0; k < 2; k++) {
        event_open(c, types[k], out);
        buf_puts(out, ",\"response\":");
        responses_put(c, "in_progress", NULL, NULL, out);
        event_close(out);
    }
}

void responses_begin(struct call *c, uint32_t i, struct buf *out)
{
    (void)i;
    put_beginning(c, out);
}

static void add_text(struct call *c, const char *text, size_t n, struct buf *out)
{
    buf_put(item_text(c), text, n);
    if (!c->stream) return;
    event_open(c, kind_of(c)->delta, out);
    put_place(c, out);
    buf_puts(out, ",\"delta\":");
    json_put_str(out, text, n);
}

void responses_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct buf *lp = &c->choice[i].lp;
    if (!p->n) return;
    if (responses_of(c)->open != ITEM_MESSAGE) begin_item(c, ITEM_MESSAGE, out);
    add_text(c, p->text, p->n, out);
    size_t from = lp->n;
    for (uint32_t k = p->from; c->logprobs && k < p->to; k++) {
        if (lp->n) buf_putc(lp, ',');
        if (k == p->from) from = lp->n;
        logprob_chat_entry(c, i, k, lp);
    }
    buf_clear(&c->choice[i].text); /* it is in its item */
    if (!c->stream) return;
    buf_puts(out, ",\"logprobs\":[");
    buf_put(out, text_of(lp) + from, lp->n - from);
    buf_putc(out, ']');
    event_close(out);
}

void responses_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)i;
    if (!p->n) return;
    if (responses_of(c)->open != ITEM_REASONING) begin_item(c, ITEM_REASONING, out);
    add_text(c, p->text, p->n, out);
    if (c->stream) event_close(out);
}

/* ,"name":..,"namespace":..,"call_id":.. */
static enum status keep_call(struct call *c, const struct answer_tool *t)
{
    struct responses_call        *r = responses_of(c);
    struct buf                   *b = &c->token;
    const struct responses_named *x = r->named;
    while (x && (x->n != t->n || memcmp(x->name, t->text, t->n))) x = x->next;
    size_t skipped = x ? x->n_space + 2 : 0; /* the namespace and "__" */
    buf_clear(b);
    buf_puts(b, ",\"name\":");
    json_put_str(b, t->text + skipped, t->n - skipped);
    r->call_name = b->failed ? NULL : arena_strndup(&c->arena, b->data, b->n);
    if (x) buf_puts(b, ",\"namespace\":");
    if (x) json_put_str(b, x->name, x->n_space);
    buf_puts(b, ",\"call_id\":");
    json_put_str(b, t->id, strlen(t->id));
    r->call = b->failed ? NULL : arena_strndup(&c->arena, b->data, b->n);
    if (r->call && r->call_name) return ST_OK;
    r->call = r->call_name = "";
    return ST_NOMEM;
}

/* A call that the end of the answer cut off is closed all the same; its arguments are no JSON then. */
static bool is_whole(const struct buf *arguments)
{
    struct json_error je;
    json_t           *v = json_parse_bounded(text_of(arguments), arguments->n, &call_bounds, &je);
    bool              whole = json_is_object(v);
    json_decref(v);
    return whole;
}

void responses_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out)
{
    (void)i;
    switch (t->what) {
    case ANSWER_TOOL_OPEN:
        end_item(c, out);
        if (keep_call(c, t)) out->failed = true;
        begin_item(c, t->custom ? ITEM_CUSTOM : ITEM_FUNCTION, out);
        break;
    case ANSWER_TOOL_ARGS:
        add_text(c, t->text, t->n, out);
        if (c->stream) event_close(out);
        break;
    case ANSWER_TOOL_CLOSE:
        responses_of(c)->is_cut = c->choice[0].finish == ENG_LENGTH && (t->custom ? t->cut : !is_whole(item_text(c)));
        end_item(c, out);
        break;
    }
}

/* An answer without anything is one message with one empty part. */
void responses_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct responses_call *r = responses_of(c);
    responses_text(c, i, p, out);
    if (!r->n_item) begin_item(c, ITEM_MESSAGE, out);
    r->is_cut = answer_why(c, i).finish == ENG_LENGTH;
    end_item(c, out);
}

void responses_usage(struct call *c, struct buf *out)
{
    const struct call_choice *ch = &c->choice[0];
    bool                      cut = answer_why(c, 0).finish == ENG_LENGTH;
    const char               *status = cut ? "incomplete" : "completed";
    responses_keep(c, status); /* the client may ask for it as soon as it reads this */
    if (c->stream) {
        event_open(c, cut ? "response.incomplete" : "response.completed", out);
        buf_puts(out, ",\"response\":");
    }
    responses_put(c, status, &ch->tool_calls, NULL, out);
    if (c->stream) event_close(out);
    if (ch->tool_calls.failed || ch->reason.failed || ch->lp.failed || ch->text.failed) out->failed = true;
}

void responses_failed(struct call *c, struct buf *out, const struct api_error *e)
{
    responses_of(c)->stores = false;
    if (!responses_of(c)->sequence) put_beginning(c, out);
    event_open(c, "response.failed", out);
    buf_puts(out, ",\"response\":");
    responses_put(c, "failed", c->choice ? &c->choice[0].tool_calls : NULL, e, out);
    event_close(out);
}
