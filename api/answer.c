#include "api/dialect.h"
#include "api/parts.h"
#include "engine/model/dense.h"
#include "engine/model/head.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- events of one choice */

static void begin(struct call *c, uint32_t i, struct buf *out)
{
    const struct writer *w = writer_of(c);
    if (c->choice[i].begun) return;
    c->choice[i].begun = true;
    if (w->begin) w->begin(c, i, out);
}

/* The last token known so far may turn out to end the choice: it waits for the next one, or for the end. */
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
    if (ch->parts) return parts_push(c, i, k, out);
    struct buf *text = answer_text_buf(c, ch);
    size_t      before = text->n;
    ch->n_said = ch->n_used = k + 1;
    bool stopped = detok_push(&ch->detok, ch->eng.id[k], k >= c->s.min_tokens, text);
    if (text->n == before && !c->logprobs && !c->return_token_ids) return stopped;
    const struct answer_piece piece = { text_of(text) + before, text->n - before, k, k + 1 };
    writer_of(c)->text(c, i, &piece, out);
    return stopped;
}

bool answer_feed(struct call *c, uint32_t i, uint32_t n_out, struct buf *out)
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

/* Its text has ended, by a stop string or behind its only call: tokens that the engine has made meanwhile do not
 * count. */
static bool is_over(const struct call_choice *ch) { return ch->detok.stopped || (ch->parts && parts_over(ch->parts)); }

uint64_t answer_settle_cost(const struct call *c)
{
    const struct api_model *m = c->model;
    if (!c->dialect->settle) return 0;
    if (m->dense) return model_dense_cost(m->dense);
    return m->head ? model_head_cost(m->head) : 0;
}

void answer_settle(struct call *c, uint32_t i)
{
    struct call_choice *ch = &c->choice[i];
    if (ch->settled || !ch->state || !c->dialect->settle) return;
    c->dialect->settle(c, i);
    ch->settled = true;
}

void answer_choice_end(struct call *c, uint32_t i, enum eng_finish finish, struct buf *out)
{
    struct call_choice *ch = &c->choice[i];
    struct detok       *d = &ch->detok;
    if (ch->ended) return;
    ch->finish = c->score_only ? ENG_LENGTH : finish;
    begin(c, i, out);
    struct buf *text = answer_text_buf(c, ch);
    size_t      before = text->n;
    uint32_t    from = ch->n_said, to = c->score_only ? from : ch->n_fed;
    for (uint32_t k = from; k < to && !is_over(ch); k++) {
        bool hidden = finish == ENG_STOP && k + 1 == ch->n_fed && !c->detok.include_stop;
        ch->n_said = k + 1;
        if (!hidden && ch->parts)
            parts_push(c, i, k, out);
        else if (!hidden)
            detok_push(d, ch->eng.id[k], k >= c->s.min_tokens, text);
    }
    if (ch->parts) {
        parts_end(c, i, &from, out);
        before = text->n; /* what there was has been told */
    } else if (!d->stopped && !c->score_only)
        detok_finish(d, text);
    ch->n_used = ch->n_said;
    ch->ended = true;
    answer_settle(c, i);
    const struct answer_piece piece = { text_of(text) + before, text->n - before, from, ch->n_said };
    writer_of(c)->finish(c, i, &piece, out);
}

/* ---------------------------------------------------------------- the end */

void answer_end(struct call *c, struct buf *out) { writer_of(c)->usage(c, out); }

bool answer_fails_in_stream(const struct call *c, const struct api_error *e)
{
    return c->stream && c->dialect->overflows_in_stream && !strcmp(e->code, "context_length_exceeded");
}

void answer_fail(struct call *c, const struct api_error *e, struct buf *out)
{
    struct api_error told = *e;
    snprintf(told.request_id, sizeof told.request_id, "%s", c->id + strlen(c->dialect->id_prefix));
    c->dialect->error_stream(c, out, &told);
}

const char *answer_stream_type(const struct call *c)
{
    return c->dialect->stream_type ? c->dialect->stream_type : "text/event-stream; charset=utf-8";
}

const char *answer_keep_alive(const struct call *c)
{
    return c->dialect->keep_alive ? c->dialect->keep_alive : ": keep-alive\n\n";
}

const char *answer_id_header(const struct dialect *d) { return d ? d->id_header : NULL; }

void answer_error(const struct dialect *d, const struct api_error *e, struct buf *out)
{
    if (d)
        d->error(out, e);
    else
        api_error_json(out, e);
}

/* ---------------------------------------------------------------- what writers ask for */

static void add_prompt(struct answer_usage *u, const struct call_prompt *p)
{
    u->n_prompt += p->n_id;
    u->n_cached += p->n_cached;
    for (uint32_t i = 0; i < KV_TIERS; i++) u->n_cached_from[i] += p->n_cached_from[i];
    u->n_pinned += p->n_pinned;
}

struct answer_usage answer_usage(const struct call *c)
{
    struct answer_usage u = { .pins = c->keep.pin_s > 0 };
    for (uint32_t p = 0; p < c->n_prompt; p++) add_prompt(&u, &c->prompt[p]);
    for (uint32_t i = 0; i < c->n_choice; i++) {
        u.n_completion += c->choice[i].n_used;
        u.n_reasoning += c->choice[i].n_reasoning;
    }
    return u;
}

struct answer_usage answer_choice_usage(const struct call *c, uint32_t i)
{
    struct answer_usage u = { .pins = c->keep.pin_s > 0,
                              .n_completion = c->choice[i].n_used,
                              .n_reasoning = c->choice[i].n_reasoning };
    add_prompt(&u, call_prompt_of(c, i));
    return u;
}

struct answer_why answer_why(const struct call *c, uint32_t i)
{
    const struct call_choice *ch = &c->choice[i];
    const struct detok       *d = &ch->detok;
    if (d->stopped) {
        bool known = d->stop_index >= 0 && (uint32_t)d->stop_index < c->detok.n_stop;
        return (struct answer_why){ .finish = ENG_STOP,
                                    .string = known ? &c->detok.stop[d->stop_index] : NULL,
                                    .called = ch->n_call > 0 && c->tools_mode != TOOLS_NAMED };
    }
    bool by_token = ch->finish == ENG_STOP && !ch->eng.stop_is_eos;
    bool called = ch->finish == ENG_STOP && ch->n_call > 0 && c->tools_mode != TOOLS_NAMED;
    return (struct answer_why){
        .finish = ch->finish, .by_token = by_token, .id = by_token ? ch->eng.stop_id : 0, .called = called
    };
}
