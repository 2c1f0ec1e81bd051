#include "api/dialect.h"
#include "api/sse.h"
#include <string.h>

/* What the engine says becomes bytes. A token whose role is not clear yet, because it may be the one that ends the choice, waits:
 * then its text and the finish reason go out in one chunk, and a stop token never shows. */

/* ---------------------------------------------------------------- usage */

struct cached {
    uint64_t n, n_host, n_store; /* tokens; of them from lower tiers */
    uint64_t n_pinned;
    bool     pins; /* kv_pin was asked for: then n_pinned is said */
};

static void add_cached(struct cached *c, const struct call_prompt *p)
{
    c->n += p->n_cached, c->n_host += p->n_cached_host, c->n_store += p->n_cached_store;
    c->n_pinned += p->n_pinned;
}

static void put_usage(struct buf *out, uint64_t n_prompt, uint64_t n_used, struct cached c)
{
    buf_puts(out, "{\"prompt_tokens\":");
    json_put_int(out, (int64_t)n_prompt);
    buf_puts(out, ",\"total_tokens\":");
    json_put_int(out, (int64_t)(n_prompt + n_used));
    buf_puts(out, ",\"completion_tokens\":");
    json_put_int(out, (int64_t)n_used);
    buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_put_int(out, (int64_t)c.n);
    if (c.n_host + c.n_store) { /* an extension; nobody sees it who has no tiers */
        buf_puts(out, ",\"cached_tokens_by_tier\":{\"device\":");
        json_put_int(out, (int64_t)(c.n - c.n_host - c.n_store));
        buf_puts(out, ",\"host\":");
        json_put_int(out, (int64_t)c.n_host);
        buf_puts(out, ",\"nvme\":");
        json_put_int(out, (int64_t)c.n_store);
        buf_putc(out, '}');
    }
    if (c.pins) {
        buf_puts(out, ",\"pinned_tokens\":");
        json_put_int(out, (int64_t)c.n_pinned);
    }
    buf_puts(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":0}}");
}

static void put_usage_all(const struct call *c, struct buf *out)
{
    uint64_t      n_prompt = 0, n_used = 0;
    struct cached cached = { .pins = c->keep.pin_s > 0 };
    for (uint32_t p = 0; p < c->n_prompt; p++) {
        n_prompt += c->prompt[p].n_id;
        add_cached(&cached, &c->prompt[p]);
    }
    for (uint32_t i = 0; i < c->n_choice; i++) n_used += c->choice[i].n_used;
    put_usage(out, n_prompt, n_used, cached);
}

void reply_ids(const uint32_t *id, size_t n, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) buf_putc(out, ',');
        json_put_int(out, id[i]);
    }
    buf_putc(out, ']');
}

/* ---------------------------------------------------------------- chunks */

void reply_begin(struct call *c)
{
    if (!c->stream) return;
    sse_head(&c->head, c->id, c->dialect->chunk_object, c->created, c->served);
    buf_puts(&c->tail, c->dialect->close);
    buf_puts(&c->tail, ",\"logprobs\":null,\"finish_reason\":null}]");
    if (c->include_usage) buf_puts(&c->tail, ",\"usage\":null");
    sse_end(&c->tail);
}

void reply_chunk_open(struct call *c, uint32_t i, struct buf *out)
{
    buf_put(out, c->head.data, c->head.n);
    buf_puts(out, "{\"index\":");
    json_put_int(out, i);
}

void reply_chunk_close(struct call *c, uint32_t i, struct buf *out)
{
    const struct call_prompt *p = call_prompt_of(c, i);
    if (c->continuous_usage) {
        buf_puts(out, ",\"usage\":");
        struct cached cached = { .pins = c->keep.pin_s > 0 };
        add_cached(&cached, p);
        put_usage(out, p->n_id, c->choice[i].n_used, cached);
    } else if (c->include_usage) {
        buf_puts(out, ",\"usage\":null");
    }
    sse_end(out);
}

static void put_finish(const struct call *c, const struct call_choice *ch, struct buf *out)
{
    const struct detok *d = &ch->detok;
    const char         *why = d->stopped || ch->finish == ENG_STOP ? "stop"
                              : ch->finish == ENG_LENGTH           ? "length"
                              : ch->finish == ENG_CANCELED         ? "abort"
                                                                   : "error";
    buf_puts(out, ",\"finish_reason\":\"");
    buf_puts(out, why);
    buf_puts(out, "\",\"stop_reason\":");
    if (d->stopped && d->stop_index >= 0 && (uint32_t)d->stop_index < c->detok.n_stop)
        json_put_str(out, c->detok.stop[d->stop_index].text, c->detok.stop[d->stop_index].n);
    else if (!d->stopped && ch->finish == ENG_STOP && !ch->eng.stop_is_eos)
        json_put_int(out, ch->eng.stop_id);
    else
        buf_puts(out, "null");
}

/* A chunk of c->scratch and tokens [from, to); the last one of its choice says why it ended. */
static void put_chunk(struct call *c, uint32_t i, uint32_t from, uint32_t to, bool last, struct buf *out)
{
    const struct call_dialect *d = c->dialect;
    struct call_choice        *ch = &c->choice[i];
    reply_chunk_open(c, i, out);
    if (c->scratch.n || !last) {
        buf_puts(out, d->open);
        json_put_str_body(out, text_of(&c->scratch), c->scratch.n);
        buf_puts(out, d->close);
    } else {
        buf_puts(out, d->empty);
    }
    buf_puts(out, ",\"logprobs\":");
    if (c->logprobs && to > from)
        d->logprobs(c, i, from, to, out);
    else
        buf_puts(out, "null");
    if (last)
        put_finish(c, ch, out);
    else
        buf_puts(out, ",\"finish_reason\":null");
    if (c->return_token_ids) {
        buf_puts(out, ",\"token_ids\":");
        reply_ids(ch->eng.id + from, to - from, out);
    }
    buf_puts(out, "}]");
    if (last && c->model->fingerprint) {
        buf_puts(out, ",\"system_fingerprint\":");
        json_put_str(out, c->model->fingerprint, strlen(c->model->fingerprint));
    }
    reply_chunk_close(c, i, out);
}

/* ---------------------------------------------------------------- tokens */

static bool may_end(const struct call *c, const struct call_choice *ch, uint32_t k)
{
    uint32_t id = ch->eng.id[k];
    if (k + 1 >= ch->room || tok_is_special(c->model->tok, id)) return true;
    for (uint32_t j = 0; j < c->s.n_stop_id; j++)
        if (c->s.stop_id[j] == id) return true;
    return false;
}

/* Token k: true when a stop string ended it. */
static bool say(struct call *c, uint32_t i, uint32_t k, struct buf *out)
{
    struct call_choice *ch = &c->choice[i];
    bool                check = k >= c->s.min_tokens;
    ch->n_said = ch->n_used = k + 1;
    if (!c->stream) {
        if (c->logprobs) c->dialect->step(c, i, k, &ch->lp);
        return detok_push(&ch->detok, ch->eng.id[k], check, &ch->text);
    }
    buf_clear(&c->scratch);
    bool stopped = detok_push(&ch->detok, ch->eng.id[k], check, &c->scratch);
    if (c->logprobs || c->return_token_ids || c->continuous_usage) {
        if (c->scratch.n || c->logprobs || c->return_token_ids) put_chunk(c, i, k, k + 1, false, out);
    } else if (c->scratch.n) {
        const struct sse_form f = { &c->head, &c->tail, c->dialect->open, strlen(c->dialect->open) };
        sse_chunk(out, &f, i, c->scratch.data, c->scratch.n);
    }
    return stopped;
}

static void begin(struct call *c, uint32_t i, struct buf *out)
{
    if (!c->stream || c->choice[i].role_sent) return;
    c->choice[i].role_sent = true;
    c->dialect->begin(c, i, out);
}

bool call_feed(struct call *c, uint32_t i, uint32_t n_out, struct buf *out)
{
    struct call_choice *ch = &c->choice[i];
    bool                stopped = false;
    if (n_out > ch->room) n_out = ch->room;
    if (n_out <= ch->n_fed || ch->ended || ch->detok.stopped) {
        if (n_out > ch->n_fed) ch->n_fed = n_out;
        return false;
    }
    begin(c, i, out);
    ch->n_fed = n_out;
    if (c->score_only) return false;
    uint32_t to = may_end(c, ch, n_out - 1) ? n_out - 1 : n_out;
    while (ch->n_said < to && !stopped) stopped = say(c, i, ch->n_said, out);
    return stopped;
}

void call_choice_end(struct call *c, uint32_t i, enum eng_finish finish, struct buf *out)
{
    struct call_choice *ch = &c->choice[i];
    struct detok       *d = &ch->detok;
    if (ch->ended) return;
    ch->finish = c->score_only ? ENG_LENGTH : finish;
    begin(c, i, out);
    struct buf *text = c->stream ? &c->scratch : &ch->text;
    uint32_t    from = ch->n_said, to = c->score_only || d->stopped ? from : ch->n_fed;
    if (c->stream) buf_clear(text);
    for (uint32_t k = from; k < to && !d->stopped; k++) {
        bool hidden = finish == ENG_STOP && k + 1 == ch->n_fed && !c->detok.include_stop;
        ch->n_said = k + 1;
        if (!c->stream && c->logprobs) c->dialect->step(c, i, k, &ch->lp);
        if (!hidden) detok_push(d, ch->eng.id[k], k >= c->s.min_tokens, text);
    }
    if (!d->stopped && !c->score_only) detok_finish(d, text);
    ch->n_used = ch->n_said;
    ch->ended = true;
    if (c->stream) put_chunk(c, i, from, ch->n_said, true, out);
}

/* ---------------------------------------------------------------- the end */

static void put_choice(struct call *c, uint32_t i, struct buf *out)
{
    struct call_choice *ch = &c->choice[i];
    buf_puts(out, i ? ",{\"index\":" : "{\"index\":");
    json_put_int(out, i);
    c->dialect->choice(c, i, out);
    put_finish(c, ch, out);
    if (c->return_token_ids) {
        buf_puts(out, ",\"token_ids\":");
        reply_ids(ch->eng.id, ch->n_used, out);
    }
    if (c->dialect->extra) c->dialect->extra(c, i, out);
    buf_putc(out, '}');
    if (ch->text.failed || ch->lp.failed) out->failed = true;
}

static void put_body(struct call *c, struct buf *out)
{
    buf_puts(out, "{\"id\":");
    json_put_str(out, c->id, strlen(c->id));
    buf_puts(out, ",\"object\":\"");
    buf_puts(out, c->dialect->object);
    buf_puts(out, "\",\"created\":");
    json_put_int(out, c->created);
    buf_puts(out, ",\"model\":");
    json_put_str(out, c->served, strlen(c->served));
    buf_puts(out, ",\"choices\":[");
    for (uint32_t i = 0; i < c->n_choice; i++) put_choice(c, i, out);
    buf_puts(out, "],\"usage\":");
    put_usage_all(c, out);
    buf_puts(out, ",\"system_fingerprint\":");
    if (c->model->fingerprint)
        json_put_str(out, c->model->fingerprint, strlen(c->model->fingerprint));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"service_tier\":null");
    if (c->kind == CALL_CHAT && c->prompt_logprobs >= 0) {
        buf_puts(out, ",\"prompt_logprobs\":");
        logprob_prompt(c, &c->prompt[0], out);
    }
    if (c->kind == CALL_CHAT && c->return_token_ids) {
        buf_puts(out, ",\"prompt_token_ids\":");
        reply_ids(c->prompt[0].id, c->prompt[0].n_id, out);
    }
    if (c->return_prompt_text && c->prompt[0].text) {
        buf_puts(out, ",\"prompt_text\":");
        json_put_str(out, c->prompt[0].text, c->prompt[0].n_text);
    }
    buf_putc(out, '}');
}

void call_end(struct call *c, struct buf *out)
{
    if (!c->stream) {
        put_body(c, out);
        return;
    }
    if (c->include_usage) {
        buf_put(out, c->head.data, c->head.n);
        buf_puts(out, "],\"usage\":");
        put_usage_all(c, out);
        sse_end(out);
    }
    sse_done(out);
}

void call_fail_stream(struct call *c, const struct api_error *e, struct buf *out)
{
    (void)c;
    buf_puts(out, "data: ");
    api_error_json(out, e);
    buf_puts(out, "\n\n");
}
