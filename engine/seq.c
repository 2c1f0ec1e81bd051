#include "engine/seq.h"
#include "base/check.h"
#include "engine/sample.h"
#include <string.h>

void seq_init(struct seq *s, struct req *q, uint32_t choice)
{
    struct eng_request *r = q->r;
    *s = (struct seq){ .q = q, .r = r, .c = &r->choice[choice], .choice = choice, .state = SEQ_WAITING };
    s->n_prompt = s->n_token = r->n_prompt;
    s->n_max = r->n_prompt + r->s.max_tokens;
    s->on_host = sample_on_host(&r->s);
    list_init(&s->link);
    list_add_tail(&q->seqs, &s->of_req);
}

void seq_load(struct seq *s, uint32_t *ids)
{
    s->id = ids;
    memcpy(ids, s->r->prompt, s->n_prompt * sizeof *ids);
    if (seq_n_out(s)) memcpy(ids + s->n_prompt, s->c->id, seq_n_out(s) * sizeof *ids);
}

void seq_check(const struct seq *s)
{
    CHECK(s->n_cached <= s->n_computed);
    CHECK(s->n_computed <= s->n_token);
    CHECK(seq_next(s) <= seq_n_ahead(s));
    CHECK(seq_n_ahead(s) <= s->n_max);
    CHECK(s->state == SEQ_RUNNING || seq_next(s) + s->fly_token == 0);
    CHECK(!s->fly_token || s->id[s->n_token] == SEQ_PENDING);
}

static bool contains(const uint32_t *ids, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

enum eng_finish seq_append(struct seq *s, const struct seq_token *t, const struct seq_limits *lim)
{
    struct eng_choice         *c = s->c;
    const struct eng_sampling *p = &s->r->s;
    uint32_t                   k = seq_n_out(s);
    CHECK(s->n_token < s->n_max);
    s->id[s->n_token++] = t->id;
    c->id[k] = t->id;
    if (p->logprobs) {
        if (c->logprob) c->logprob[k] = t->logprob;
        for (uint32_t i = 0; c->top && i < p->n_top; i++)
            c->top[(size_t)k * p->n_top + i] = (struct eng_top){ t->top_id[i], t->top_logprob[i] };
    }
    enum eng_finish f = ENG_NONE;
    if (k >= p->min_tokens) { /* before that they are banned; a device that draws one all the same must not end it */
        bool eos = !p->ignore_eos && contains(lim->eos_id, lim->n_eos, t->id);
        if (eos || contains(p->stop_id, p->n_stop_id, t->id)) {
            c->stop_id = t->id;
            c->stop_is_eos = eos;
            f = ENG_STOP;
        }
    }
    if (f == ENG_NONE && (k + 1 == p->max_tokens || s->n_token == lim->context_max)) f = ENG_LENGTH;
    atomic_store_explicit(&c->n_out, k + 1, memory_order_release);
    return f;
}
