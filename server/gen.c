/* Over 500 lines: the way of one generation from its call to the last byte, whose functions hand it on in turn. */
#include "server/gen.h"
#include "api/answer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "server/metrics.h"
#include "server/sagemaker.h"
#include "server/settle.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* A stream that says nothing for so long gets a comment. It is looked at every 3 s, so 15 s is never passed. */
    KEEP_ALIVE_US = 9000000,
    FRAMES_KEEP = 1 << 20, /* scratch above this is given back */
    POOLED_LIVE_MAX = 256, /* a step takes at most so many sequences, if nothing else was asked for */
};

struct gen {
    struct conn_work      work;
    struct text_job       job;
    struct settle         settle; /* states that a text thread has */
    struct call           call;
    struct io            *io;
    struct conn          *conn; /* NULL: answered, or the client is gone */
    struct list           node;
    const struct dialect *dialect; /* the route's, and once the body was looked at, the body's */
    enum lmi_form         form;
    struct buf            body;
    struct call_past      past;    /* what the body goes on from */
    uint64_t              charge;  /* of the body, taken from server.bodies */
    _Atomic bool          unheard; /* the client is gone: a text thread need not begin */
    struct eng_request   *req;     /* [n_req] one per prompt */
    struct eng_choice
        *choice; /* [call.n_choice], those of one prompt side by side as the engine wants them; arrays are the call's */
    uint32_t             n_req, n_live, n_ended; /* live: with the engine; ended: choices */
    const char          *route;                  /* its label */
    struct trace_context trace;
    char                *trace_state, *adapter;               /* malloc'd, or NULL; adapter: as in struct call_from */
    bool                 in_text, parsed, begun, paused, cut; /* cut: a choice was ended here, by its text */
    enum status          st;                                  /* of parse and prepare */
    struct api_error     err;
    char                 id[129];
    uint64_t             tenant, seed;
    uint64_t             t_start_us, t_first_us, t_put_us;
};

/* ---- end of life ---- */

static void gen_release(struct gen *g)
{
    if (g->conn || g->in_text || g->n_live || g->settle.busy) return;
    list_del(&g->node);
    if (g->parsed) call_free(&g->call);
    conn_give_body(g->io->srv, &g->body, g->charge);
    free(g->trace_state);
    free(g->adapter);
    settle_free(&g->settle);
    free(g->choice);
    free(g->req);
    free(g);
}

static const char *finish_name(enum eng_finish f)
{
    static const char *const name[] = { "none", "stop", "length", "abort", "timeout", "error", "cache_threshold" };
    static_assert(sizeof name / sizeof *name == ENG_FINISHES, "every finish has a name");
    return name[f];
}

static enum gen_how how_ended(const struct server *s, int status, enum eng_finish finish)
{
    bool dead = s->eng.alive && !s->eng.alive(s->eng.ctx, clock_us());
    if (status == 200) return server_state(s) >= SRV_HANDED ? GEN_DRAINED : GEN_FINISHED;
    if (status == 499) return GEN_CANCELED;
    if (finish == ENG_TIMEOUT) return GEN_EXPIRED;
    if (status == 429) return GEN_REFUSED;
    if (status < 500) return GEN_INVALID;
    if (atomic_load_explicit(&s->fail_all, memory_order_relaxed) && !dead) return GEN_CUT;
    return GEN_FAILED;
}

/* As the GenAI convention of OpenTelemetry has it. */
static const char *operation(const struct gen *g)
{
    if (g->io->srv->model->state_dim) return "embeddings";
    return strstr(g->route, "chat") ? "chat" : "text_completion";
}

/* What a trace tells of it, handed over. */
/* The name of the adapter that answers; "": the model alone, or nobody knows yet. */
static const char *adapter_of(const struct gen *g)
{
    return !g->in_text && g->parsed && g->call.adapter ? g->call.adapter->name : "";
}

static void trace_request(struct gen *g, int status, enum eng_finish finish, const struct metrics_gen *m, uint64_t now)
{
    struct server        *s = g->io->srv;
    struct trace_request *t = g->trace.on && s->trace ? calloc(1, sizeof *t) : NULL;
    if (!t) return;
    t->c = g->trace;
    t->state = g->trace_state;
    g->trace_state = NULL;
    t->start_us = g->t_start_us;
    t->end_us = now;
    t->first_us = g->t_first_us;
    t->n_prompt = m->n_prompt;
    t->n_cached = m->n_cached;
    t->n_output = m->n_output;
    t->n = m->n;
    t->max_tokens = m->max_tokens;
    t->status = status;
    snprintf(t->op, sizeof t->op, "%s", operation(g));
    snprintf(t->id, sizeof t->id, "%s", g->id);
    snprintf(t->model, sizeof t->model, "%s", s->model->served_name[0]);
    snprintf(t->adapter, sizeof t->adapter, "%s", adapter_of(g));
    snprintf(t->finish, sizeof t->finish, "%s", finish_name(finish));
    if (m->n) { /* it was understood, and the engine has it or had it */
        const struct eng_request *r = &g->req[0];
        t->stream = g->call.stream;
        t->has_seed = g->call.has_seed;
        t->seed = r->s.seed;
        t->temperature = r->s.temperature;
        t->top_p = r->s.top_p;
        t->top_k = r->s.top_k;
        t->submit_us = r->t_submit_us;
        if (g->t_first_us) { /* what the engine writes before the first token may be read from then on */
            /* The engine's step began a moment before the request came in; the parts begin one behind the other. */
            t->load_us = !r->t_load_us || r->t_load_us > t->submit_us ? r->t_load_us : t->submit_us;
            t->sched_us = r->t_sched_us > t->submit_us ? r->t_sched_us : t->submit_us;
        }
    }
    trace_end(s->trace, t);
}

/* The one line per request, and its metrics. */
/* e: why it failed, or NULL. */
static void gen_report(struct gen *g, int status, enum eng_finish finish, const struct api_error *e)
{
    struct server     *s = g->io->srv;
    uint64_t           now = clock_us();
    struct metrics_gen m = { .finish = finish, .how = how_ended(s, status, finish), .e2e_us = now - g->t_start_us };
    if (!g->in_text && g->st == ST_OK && g->req) {
        const struct call *c = &g->call;
        for (uint32_t p = 0; p < c->n_prompt; p++) {
            m.n_prompt += c->prompt[p].n_id;
            m.n_cached += c->prompt[p].n_cached;
        }
        for (uint32_t i = 0; i < c->n_choice; i++) {
            uint32_t n = c->choice[i].n_fed;
            m.n_output += n;
            if (n > m.n_output_max) m.n_output_max = n;
        }
        m.n = c->n;
        m.max_tokens = g->req[0].s.max_tokens;
        if (g->t_first_us) {
            const struct eng_request *r = &g->req[0];
            m.ttft_us = g->t_first_us - g->t_start_us;
            m.queue_us = r->t_sched_us > r->t_submit_us ? r->t_sched_us - r->t_submit_us : 0;
            m.prefill_us = g->t_first_us > r->t_sched_us ? g->t_first_us - r->t_sched_us : 0;
            m.decode_us = now - g->t_first_us;
        }
    }
    metrics_gen_end(s->metrics, &m);
    trace_request(g, status, finish, &m, now);
    atomic_fetch_sub(&s->n_gen, 1);
    const char *name = adapter_of(g); /* of bytes that a log line may have (adapters_name_ok) */
    char        with[LORA_NAME_MAX + 10] = "";
    if (*name) snprintf(with, sizeof with, " adapter=%s", name);
    char key[40] = ""; /* of prompt_cache_key: a client's words do not go into the log as they are */
    if (!g->in_text && g->call.cache_key) snprintf(key, sizeof key, " cache_key=%016" PRIx64, g->call.cache_key);
    if (e) {
        char why[ERROR_WHY_MAX];
        LOG_INFO_BURST(ERROR_LINES_PER_SECOND,
                       "req: id=%s model=%s%s prompt=%u cached=%u output=%u e2e_ms=%.1f finish=%s status=%d%s%s", g->id,
                       s->model->served_name[0], with, m.n_prompt, m.n_cached, m.n_output, (double)m.e2e_us / 1e3,
                       finish_name(finish), status, key, conn_error_why(e, why, sizeof why));
        return;
    }
    LOG_INFO(
        "req: id=%s model=%s%s prompt=%u cached=%u output=%u queue_ms=%.1f ttft_ms=%.1f e2e_ms=%.1f finish=%s status=%d%s",
        g->id, s->model->served_name[0], with, m.n_prompt, m.n_cached, m.n_output, (double)m.queue_us / 1e3,
        (double)m.ttft_us / 1e3, (double)m.e2e_us / 1e3, finish_name(finish), status, key);
}

static void gen_cancel_live(struct gen *g)
{
    const struct gen_engine *e = &g->io->srv->eng;
    for (uint32_t p = 0; g->n_live && p < g->n_req; p++) e->cancel(e->ctx, &g->req[p]);
}

/* Lets go of the connection; what is to be answered has been answered by the caller right after. */
static struct conn *gen_detach(struct gen *g)
{
    struct conn *c = g->conn;
    g->conn = NULL;
    c->work = NULL;
    return c;
}

static struct gen *of_work(struct conn_work *w)
{
    return (struct gen *)(void *)((char *)w - offsetof(struct gen, work));
}

static void gen_gone(struct conn_work *w)
{
    struct gen *g = of_work(w);
    g->conn = NULL;
    atomic_store_explicit(&g->unheard, true, memory_order_relaxed);
    if (g->n_live) gen_cancel_live(g);
    gen_report(g, 499, ENG_CANCELED, NULL);
    gen_release(g);
}

/* The request ends in an error: as the answer, or as an event where headers are out. */
static void gen_fail(struct gen *g, const struct api_error *e, enum eng_finish finish)
{
    gen_cancel_live(g);
    atomic_store_explicit(&g->unheard, true, memory_order_relaxed);
    gen_report(g, e->http, finish, e);
    bool whole = !g->begun && g->parsed && answer_fails_in_stream(&g->call, e); /* a stream of nothing but the error */
    if (whole) conn_stream_begin(g->conn, answer_stream_type(&g->call));
    g->begun |= whole;
    struct conn *c = gen_detach(g);
    if (g->begun) {
        buf_clear(&g->io->frames);
        answer_fail(&g->call, e, &g->io->frames);
        conn_stream_put(c, g->io->frames.data, g->io->frames.n);
        conn_stream_end(c, whole);
    } else {
        conn_error_unlogged(c, e);
    }
    gen_release(g);
}

void gen_fail_all(struct io *io)
{
    struct api_error e;
    bool             dead = io->srv->eng.alive && !io->srv->eng.alive(io->srv->eng.ctx, clock_us());
    api_fail(&e, 503, "", dead ? "the engine has failed" : "the server is shutting down");
    LIST_EACH(it, &io->gens) {
        struct gen *g = LIST_ENTRY(it, struct gen, node);
        if (!g->conn) continue;
        g->conn->req.keep_alive = false;
        gen_fail(g, &e, dead ? ENG_ERROR : ENG_CANCELED);
    }
}

/* ---- up: tokens -> bytes ---- */

static void gen_flush(struct gen *g)
{
    struct buf *f = &g->io->frames;
    if (!f->n || !g->call.stream) return;
    if (!g->begun) conn_stream_begin(g->conn, answer_stream_type(&g->call));
    g->begun = true;
    conn_stream_put(g->conn, f->data, f->n);
    g->t_put_us = clock_us();
    buf_clear(f);
}

/* For return_timings, as this thread saw the tokens come. */
static void note_timing(struct gen *g)
{
    struct call              *c = &g->call;
    const struct eng_request *r = &g->req[0];
    uint64_t                  last_us = g->t_first_us;
    if (!c->return_timings || !g->t_first_us) return;
    c->timing.queue_us = r->t_sched_us > r->t_submit_us ? r->t_sched_us - r->t_submit_us : 0;
    c->timing.prompt_us = g->t_first_us > r->t_sched_us ? g->t_first_us - r->t_sched_us : 0;
    for (uint32_t i = 0; i < c->n_choice; i++) {
        const struct call_choice *ch = &c->choice[i];
        if (ch->t_last_us > last_us) last_us = ch->t_last_us;
        if (ch->n_fed > ch->n_first) c->timing.n_timed += ch->n_fed - ch->n_first;
    }
    c->timing.output_us = last_us - g->t_first_us;
}

static void gen_complete(struct gen *g)
{
    struct buf *f = &g->io->frames;
    gen_flush(g);
    note_timing(g);
    answer_end(&g->call, f);
    if (f->failed) {
        struct api_error e;
        api_fail(&e, 500, "", "the answer is too large");
        gen_fail(g, &e, ENG_ERROR);
        return;
    }
    enum eng_finish finish = (enum eng_finish)atomic_load_explicit(&g->choice[0].finish, memory_order_acquire);
    if (finish == ENG_NONE || finish == ENG_CANCELED)
        finish = ENG_STOP; /* a stop string ended it before the engine knew */
    if (g->call.stream) gen_flush(g);
    gen_report(g, 200, finish, NULL);
    struct conn *c = gen_detach(g);
    if (g->begun)
        conn_stream_end(c, true);
    else
        conn_respond(c, 200, "application/json", f->data, f->n);
    if (f->cap > FRAMES_KEEP) buf_free(f);
    gen_release(g);
}

static const char *failure_of(enum status st)
{
    switch (st) {
    case ST_DEVICE: return "the engine has failed";
    case ST_STEP: return "the device could not run this request";
    case ST_TOO_LARGE: return "the form that was asked for came to a bound of this server";
    case ST_NOT_FOUND:
        return "the request leaves no token to draw: its form, 'allowed_token_ids', 'bad_words' and 'min_tokens' exclude "
               "all of them";
    default: return "the model gave no valid result";
    }
}

static int code_of(enum status st)
{
    switch (st) {
    case ST_DEVICE: return 503;
    case ST_NOT_FOUND: return 400;
    default: return 500;
    }
}

static void gen_broken(struct gen *g, const struct eng_request *r, enum eng_finish finish)
{
    struct api_error e;
    if (finish == ENG_TIMEOUT)
        api_fail(&e, 503, "", "the request took longer than the server's --request-timeout");
    else if (finish == ENG_CANCELED)
        api_fail(&e, 503, "", "the request was canceled by the server");
    else
        api_fail(&e, code_of(r->status), "", "%s", failure_of(r->status));
    gen_fail(g, &e, finish);
}

static void note_tokens(struct gen *g, struct call_choice *ch, struct eng_request *r, uint32_t p, uint32_t n_out,
                        uint64_t now)
{
    struct metrics *m = g->io->srv->metrics;
    if (!g->t_first_us) {
        g->t_first_us = now;
        metrics_first_token(m, now - g->t_start_us);
    }
    if (ch->t_last_us)
        metrics_next_token(m, now - ch->t_last_us);
    else {
        struct call_prompt *cp = &g->call.prompt[p];
        cp->n_cached = r->n_cached;
        memcpy(cp->n_cached_from, r->n_cached_from, sizeof cp->n_cached_from);
        cp->n_pinned = r->n_pinned;
        ch->n_first = n_out;
    }
    ch->t_last_us = now;
}

/* A vector has come: there are no tokens to be noted. */
static void note_state(struct gen *g, const struct eng_request *r, uint32_t p, uint64_t now)
{
    struct call_prompt *cp = &g->call.prompt[p];
    if (!g->t_first_us) {
        g->t_first_us = now;
        metrics_first_token(g->io->srv->metrics, now - g->t_start_us);
    }
    cp->n_cached = r->n_cached;
    memcpy(cp->n_cached_from, r->n_cached_from, sizeof cp->n_cached_from);
}

static void end_choice(struct gen *g, uint32_t i, enum eng_finish finish)
{
    answer_choice_end(&g->call, i, finish, &g->io->frames);
    g->call.choice[i].ended = true;
    g->n_ended++;
}

/* What has come for choices is written. False: g is gone. */
static bool gen_told(struct gen *g)
{
    struct buf *f = &g->io->frames;
    if (f->failed) {
        struct api_error e;
        api_fail(&e, 503, "", "out of memory");
        gen_fail(g, &e, ENG_ERROR);
        return false;
    }
    /* With the last message the blocks are where the answer says, and the engine has counted what it did. A text that
     * was ended here need not wait for the engine to hear of it. */
    bool told = !g->n_live || (g->cut && !g->call.transfer.keeps);
    if (g->n_ended < g->call.n_choice || !told) {
        gen_flush(g);
        return true;
    }
    gen_complete(g);
    return false;
}

/* A text thread gives states back. */
static bool states_settled(struct settle *s, const uint32_t *choice, uint32_t n)
{
    struct gen *g = (struct gen *)(void *)((char *)s - offsetof(struct gen, settle));
    if (!g->conn) {
        gen_release(g);
        return false;
    }
    buf_clear(&g->io->frames);
    for (uint32_t k = 0; k < n; k++) end_choice(g, choice[k], ENG_STOP);
    return gen_told(g);
}

/* True: a text thread makes of the state of choice i what is to be written. */
static bool lend_state(struct gen *g, uint32_t i)
{
    struct call *c = &g->call;
    if (!settle_is_dear(c)) return false;
    c->choice[i].lent = settle_add(&g->settle, i);
    return c->choice[i].lent;
}

/* Brings the choices of one request up to what the engine wrote. False: g is gone. */
static bool gen_feed(struct gen *g, uint32_t p, uint64_t now)
{
    struct eng_request *r = &g->req[p];
    struct call        *c = &g->call;
    struct buf         *f = &g->io->frames;
    for (uint32_t i = p * c->n; i < (p + 1) * c->n; i++) {
        struct call_choice *ch = &c->choice[i];
        struct eng_choice  *e = &g->choice[i];
        if (ch->ended || ch->lent) continue;
        enum eng_finish finish = (enum eng_finish)atomic_load_explicit(&e->finish, memory_order_acquire);
        uint32_t        n_out = atomic_load_explicit(&e->n_out, memory_order_acquire);
        if (n_out > ch->n_fed) note_tokens(g, ch, r, p, n_out, now);
        while (n_out > ch->n_fed && !ch->ended) {
            if (c->stream && conn_pending(g->conn) + f->n > OUT_PAUSE) {
                gen_flush(g);
                g->paused = true;
                metrics_paused(g->io->srv->metrics);
                conn_set_low_water(g->conn, OUT_RESUME);
                return true;
            }
            uint32_t to = n_out - ch->n_fed > GEN_FEED_TOKENS ? ch->n_fed + GEN_FEED_TOKENS : n_out;
            if (!answer_feed(c, i, to, f)) continue;
            atomic_store_explicit(&e->canceled, true, memory_order_release);
            answer_choice_end(c, i, ENG_STOP, f);
            ch->ended = g->cut = true;
            g->n_ended++;
        }
        if (ch->ended || finish == ENG_NONE) continue;
        if (finish == ENG_STOP || finish == ENG_LENGTH || finish == ENG_UNCACHED) {
            if (ch->state) note_state(g, r, p, now);
            ch->eng.stop_id = e->stop_id;
            ch->eng.stop_is_eos = e->stop_is_eos;
            if (ch->state && finish == ENG_STOP && lend_state(g, i)) continue;
            end_choice(g, i, finish);
        } else {
            gen_flush(g);
            gen_broken(g, r, finish);
            return false;
        }
    }
    return gen_told(g);
}

static bool submit_more(struct gen *g);

void gen_message(struct io *io, void *msg)
{
    struct eng_request *r = eng_msg_request(msg);
    struct gen         *g = r->user;
    if (eng_msg_is_final(msg)) {
        CHECK(g->n_live > 0);
        g->n_live--;
        io->n_request--;
    } else {
        atomic_store(&r->notified, false); /* before n_out is read: what comes later is announced again */
    }
    if (!g->conn) {
        gen_release(g);
        return;
    }
    if (g->paused) return;
    if (g->n_req < g->call.n_prompt && !submit_more(g)) return;
    buf_clear(&io->frames);
    gen_feed(g, (uint32_t)(r - g->req), clock_us());
}

static void gen_writable(struct conn_work *w)
{
    struct gen *g = of_work(w);
    if (!g->paused || conn_pending(g->conn) > OUT_RESUME) return;
    g->paused = false;
    conn_set_low_water(g->conn, 0);
    buf_clear(&g->io->frames);
    uint64_t now = clock_us();
    for (uint32_t p = 0; p < g->n_req; p++)
        if (!gen_feed(g, p, now) || g->paused) return;
}

static void gen_tick(struct conn_work *w, uint64_t now)
{
    struct gen *g = of_work(w);
    if (g->in_text || !g->req || !g->call.stream || g->paused || now - g->t_put_us < KEEP_ALIVE_US) return;
    if (!g->begun) conn_stream_begin(g->conn, answer_stream_type(&g->call));
    g->begun = true;
    g->t_put_us = now;
    const char *alive = answer_keep_alive(&g->call);
    conn_stream_put(g->conn, alive, strlen(alive));
}

/* ---- down: call -> engine ---- */

/* What the engine's lines call it: the first 16 digits of an id of our own making, else a hash. */
static uint64_t number_of(const char *id)
{
    char head[17];
    snprintf(head, sizeof head, "%.16s", id);
    return strspn(head, "0123456789abcdef") == 16 ? strtoull(head, NULL, 16) : hash_bytes(id, strlen(id), 0);
}

static struct kv_salt salt_of(const struct gen *g)
{
    const struct server *s = g->io->srv;
    struct kv_salt       salt = g->call.salt;
    if (auth_enabled(s->auth) && !s->cfg->share_prefix)
        auth_salt(s->auth, g->tenant, g->call.salt.lo, g->call.salt.hi, &salt.lo, &salt.hi);
    return adapter_salt(g->call.adapter, salt);
}

/* The call ends before the engine has it. If it was to pull another server's blocks, that server need not keep them.
 * What was refused before its prompt became tokens names no block: that parcel ends at its time limit. */
static void refuse_claim(struct gen *g)
{
    const struct gen_engine *e = &g->io->srv->eng;
    struct call             *c = &g->call;
    if (!g->parsed || !c->transfer.pulls || !c->n_prompt || !c->prompt || !c->prompt[0].n_id || !e->refuse) return;
    struct eng_request r = { .prompt = c->prompt[0].id, .n_prompt = c->prompt[0].n_id, .salt = salt_of(g) };
    transfer_request(c, &r);
    e->refuse(e->ctx, &r);
}

static void fill_request(struct gen *g, uint32_t p, uint64_t seed)
{
    struct server      *s = g->io->srv;
    struct call        *c = &g->call;
    struct eng_request *r = &g->req[p];
    uint32_t            room = s->model->context > c->prompt[p].n_id ? s->model->context - c->prompt[p].n_id : 0;
    r->id = number_of(g->id) + p;
    r->prompt = c->prompt[p].id;
    r->n_prompt = c->prompt[p].n_id;
    r->second = c->prompt[p].second;
    r->state_from = c->prompt[p].state_from;
    r->s = c->s;
    if (r->s.max_tokens > room) r->s.max_tokens = room;
    if (s->model->state_dim) { /* a prompt may fill the whole context */
        r->s.max_tokens = 1;
        r->s.state_of = s->model->state_of;
        r->state = c->choice[p].state;
    }
    if (!c->has_seed) r->s.seed = seed + p;
    r->n_choice = c->n;
    r->choice = &g->choice[p * c->n];
    for (uint32_t i = p * c->n; i < (p + 1) * c->n; i++) {
        g->choice[i].id = c->choice[i].eng.id;
        g->choice[i].logprob = c->choice[i].eng.logprob;
        g->choice[i].top = c->choice[i].eng.top;
        g->choice[i].guide = c->choice[i].eng.guide;
    }
    r->priority = c->priority;
    r->tenant = g->tenant;
    r->salt = salt_of(g);
    r->adapter = c->adapter;
    r->keep = c->keep;
    r->hit_share = c->transfer.keeps ? 0 : c->hit_share; /* who computes for others is to compute */
    if (s->cfg->request_timeout_s) r->deadline_us = g->t_start_us + (uint64_t)s->cfg->request_timeout_s * 1000000u;
    if (p == 0) transfer_request(c, r);
    r->outbox = &g->io->outbox;
    r->user = g;
    r->prompt_logprob = c->prompt[p].lp;
    r->prompt_rank = c->prompt[p].lp_rank;
    r->prompt_top = c->prompt[p].lp_top;
}

static void submit_failed(struct gen *g, enum status st)
{
    struct api_error e;
    switch (st) {
    case ST_AGAIN: api_fail(&e, 429, "", "too many requests are waiting; try again later"); break;
    case ST_TOO_LARGE:
        api_fail(&e, 400, "max_tokens", "the request can never fit into the KV cache of this server");
        break;
    case ST_INVALID: api_fail(&e, 400, "", "the engine refuses this combination of parameters"); break;
    case ST_DEVICE: api_fail(&e, 503, "", "the engine has failed"); break;
    default: api_fail(&e, 500, "", "internal error"); break;
    }
    gen_fail(g, &e, st == ST_AGAIN ? ENG_CANCELED : ENG_ERROR);
}

/* Of a call for vectors, which has up to EMBED_INPUTS_MAX prompts, few enough are with the engine at a time that its
 * queue has room for other clients. */
static bool has_enough_live(const struct gen *g) { return g->call.model->state_dim && g->n_live >= POOLED_LIVE_MAX; }

/* Gives the engine prompts that it does not have yet. False: g is gone. */
static bool submit_more(struct gen *g)
{
    struct io               *io = g->io;
    const struct gen_engine *e = &io->srv->eng;
    struct call             *c = &g->call;
    while (g->n_req < c->n_prompt && !has_enough_live(g)) {
        uint32_t p = g->n_req;
        fill_request(g, p, g->seed);
        enum status st = io->n_request < io->n_request_max ? e->submit(e->ctx, &g->req[p]) : ST_AGAIN;
        if (st == ST_AGAIN && c->model->state_dim && g->n_live) return true; /* again when one of its own has ended */
        if (st) {
            if (p == 0) refuse_claim(g);
            submit_failed(g, st); /* the earlier prompts of this call are canceled */
            return false;
        }
        g->n_req++;
        g->n_live++;
        io->n_request++;
    }
    return true;
}

static void gen_submit(struct gen *g)
{
    struct call *c = &g->call;
    g->req = calloc(c->n_prompt, sizeof *g->req);
    g->choice = calloc(c->n_choice, sizeof *g->choice);
    if (!g->req || !g->choice) {
        submit_failed(g, ST_NOMEM);
        return;
    }
    if (!c->has_seed) g->seed = hash_seed();
    if (submit_more(g)) g->t_put_us = clock_us();
}

/* ---- text: body -> call ---- */

/* What the body's tree will take comes out of the budget of bodies, as the body itself does. */
static enum status take_tree(struct gen *g, uint64_t *tree_out)
{
    struct budget *all = &g->io->srv->bodies;
    enum status    st = call_weigh(g->dialect, g->body.data, g->body.n, tree_out, &g->err);
    if (st) return st;
    *tree_out += g->past.tree_bytes + g->past.lines.n;
    if (budget_take(all, *tree_out)) return ST_OK;
    if (*tree_out > all->bytes_max)
        api_fail(&g->err, 413, "",
                 "the values of the body would take %" PRIu64 " bytes of memory, this server has %" PRIu64 " for all",
                 *tree_out, all->bytes_max);
    else
        api_fail(&g->err, 503, "", "too many large bodies are being read");
    *tree_out = 0;
    return ST_TOO_LARGE;
}

static void text_run(struct text_job *j)
{
    struct gen *g = (struct gen *)(void *)((char *)j - offsetof(struct gen, job));
    uint64_t    tree = 0, begin_us = clock_us();

    const struct api_model *model = g->io->srv->model;
    g->st = ST_CANCELED;
    if (!atomic_load_explicit(&g->unheard, memory_order_relaxed)) {
        const struct call_shape shape = { model, g->body.data, g->body.n, g->form };
        g->st = call_pick(&g->dialect, &shape, &g->err);
        if (g->st == ST_OK)
            g->st = call_recall(g->dialect, model, g->tenant, g->body.data, g->body.n, &g->past, &g->err);
        if (g->st == ST_OK && (j->bytes >= TEXT_INLINE_MAX || g->past.lines.n)) g->st = take_tree(g, &tree);
        if (g->st == ST_OK) {
            const struct call_from from = {
                .request_id = g->id, .tenant = g->tenant, .past = &g->past.lines, .adapter = g->adapter
            };
            g->parsed = true;
            g->st = call_parse(&g->call, g->dialect, model, g->body.data, g->body.n, &from, &g->err);
        }
        buf_free(&g->past.lines);
    }
    conn_give_body(g->io->srv, &g->body, g->charge);
    g->charge = 0;
    if (g->st == ST_OK) g->st = call_prepare(&g->call, &g->err);
    metrics_text(g->io->srv->metrics, clock_us() - begin_us);
    if (!tree) return;
    call_drop_body(&g->call); /* what was refused has it still */
    budget_give(&g->io->srv->bodies, tree);
    atomic_fetch_add_explicit(&g->io->srv->n_freed, tree, memory_order_relaxed);
}

/* What a schema asks for and the answer does not promise stands in a header of the answer. */
static void say_ignored(struct gen *g)
{
    struct api_error e;
    if (!*g->call.schema_ignored) return;
    LOG_INFO_BURST(ERROR_LINES_PER_SECOND, "request %s: keywords of its schema that are not enforced: %s", g->id,
                   g->call.schema_ignored);
    sagemaker_answer_line(g->conn, &e, "x-schema-ignored: %s", g->call.schema_ignored);
}

static void text_done(struct text_job *j)
{
    struct gen *g = (struct gen *)(void *)((char *)j - offsetof(struct gen, job));
    g->in_text = false;
    if (!g->conn || g->st) refuse_claim(g);
    if (!g->conn) {
        gen_release(g);
    } else if (g->st) {
        if (!g->err.http) api_fail(&g->err, g->st == ST_NOMEM ? 503 : 400, "", "the request is refused");
        struct api_error e = g->err;
        gen_fail(g, &e, ENG_ERROR);
    } else if (g->call.stream && g->conn->answer) {
        struct api_error e;
        api_fail(&e, 400, "stream", "'stream': this request comes over no connection, its answer cannot be a stream");
        refuse_claim(g);
        gen_fail(g, &e, ENG_ERROR);
    } else {
        if (g->call.n_unknown_fields) metrics_unknown_fields(g->io->srv->metrics, g->call.n_unknown_fields);
        say_ignored(g);
        gen_submit(g);
    }
}

void gen_handle(struct conn *c)
{
    struct io  *io = c->io;
    struct gen *g = calloc(1, sizeof *g);
    if (!g) {
        conn_fail(c, 503, "", "out of memory");
        return;
    }
    g->io = io;
    g->conn = c;
    g->dialect = c->req.route->dialect;
    g->form = c->req.events && io->srv->cfg->lmi_form == LMI_LINES ? LMI_EVENTS : io->srv->cfg->lmi_form;
    g->charge = conn_take_body(c, &g->body);
    g->job = (struct text_job){ .io = io, .run = text_run, .done = text_done, .who = conn_who(c), .bytes = g->body.n };
    g->job.bytes = call_text_bytes(g->dialect, io->srv->model, c->req.tenant, g->body.data, g->body.n);
    g->settle = (struct settle){ .call = &g->call, .unheard = &g->unheard, .done = states_settled };
    settle_init(&g->settle, io, g->job.who);
    memcpy(g->id, c->req.id, sizeof g->id);
    g->route = c->req.route->label;
    g->trace = c->req.trace;
    g->trace_state = c->req.trace_state;
    c->req.trace_state = NULL;
    g->adapter = c->req.adapter;
    c->req.adapter = NULL;
    g->tenant = c->req.tenant;
    g->t_start_us = c->req.t_start_us;
    g->work = (struct conn_work){ .gone = gen_gone, .writable = gen_writable, .tick = gen_tick };
    c->work = &g->work;
    list_add_tail(&io->gens, &g->node);
    atomic_fetch_add(&io->srv->n_gen, 1);
    g->in_text = true;
    if (g->job.bytes < TEXT_INLINE_MAX) {
        text_run(&g->job);
        text_done(&g->job);
    } else if (!text_submit(io->srv->text, &g->job)) {
        g->in_text = false;
        g->st = ST_AGAIN;
        submit_failed(g, ST_AGAIN);
    }
}
