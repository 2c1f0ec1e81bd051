#include "engine/guide.h"
#include "base/check.h"
#include "base/thread.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct guide {
    struct gr_match       *match;   /* NULL: no grammar, and all text is free */
    struct grammar        *grammar; /* or NULL */
    const struct gr_vocab *vocab;
    struct gate           *gate; /* or NULL */
    enum gate_phase        phase;
    struct gate_open       open;
    uint32_t    refused[GATE_MARKS]; /* [n_refused] tokens that are markers with which the grammar does not begin */
    uint32_t    n_refused;
    uint32_t    wrong; /* bits: of the gate's markers, in their order, those whose bytes begin no text of the grammar */
    bool        plain; /* the text is free, and there is no mask */
    uint32_t   *mask;  /* [n_words] */
    uint32_t   *eos_id;
    uint32_t    n_words, n_eos, token; /* token: that is posted */
    _Atomic int state;                 /* enum guide_state; release: the mask is written */
    _Atomic uint32_t n_user;           /* the submitter, and the thread that works on it */
};

/* One thread, and what it is to do. */
struct guide_worker {
    struct guides *of;
    struct ring    ring;
    pthread_t      thread;
    bool           started;
};

struct guides {
    struct ring     *wake;
    struct ring      awaited; /* carries nothing: guides_await sleeps on it */
    _Atomic bool     stop;
    _Atomic uint32_t n_busy; /* posted to a thread, and not done */
    _Atomic uint32_t enough; /* guides_await waits until no more than these are busy; UINT32_MAX: nobody waits there */
    uint32_t         n_worker, next;
    struct guide_worker worker[];
};

/* ---------------------------------------------------------------- masks */

static void forbid(struct guide *u, uint32_t token)
{
    if (token / 32 < u->n_words) u->mask[token / 32] &= ~(1u << (token % 32));
}

static bool is_empty(const struct guide *u)
{
    for (uint32_t w = 0; w < u->n_words; w++)
        if (u->mask[w]) return false;
    return true;
}

/* The mask of the next token; end-of-sequence ids where the text may end. */
static enum guide_state bound_mask(struct guide *u)
{
    if (gr_mask(u->match, u->mask)) return GUIDE_FAILED;
    for (uint32_t i = 0; i < u->n_eos; i++) {
        uint32_t id = u->eos_id[i];
        forbid(u, id);
        if (id / 32 < u->n_words && gr_is_end(u->match)) u->mask[id / 32] |= 1u << (id % 32);
    }
    return is_empty(u) ? GUIDE_FAILED : GUIDE_READY;
}

/* Tokens that complete a marker which is near, and with whose other bytes the grammar does not go on. */
static enum status forbid_wrong_ends(struct guide *u, const struct gate_mark *k)
{
    const char *left = k->text + k->begun;
    uint32_t    n = k->n - k->begun;
    enum status st = gr_accept_bytes(u->match, k->open ? k->open : k->text, k->open ? k->n_open : k->n);
    if (st == ST_INVALID) {
        gr_vocab_forbid(u->vocab, left, n, u->mask);
        return ST_OK;
    }
    if (!st) st = gr_mask_behind(u->match, left, n, u->mask);
    gr_restart(u->match);
    return st;
}

static enum guide_state mask_of_one(struct guide *u, uint32_t token)
{
    if (token / 32 >= u->n_words) return GUIDE_FAILED;
    memset(u->mask, 0, u->n_words * sizeof *u->mask);
    u->mask[token / 32] = 1u << (token % 32);
    return GUIDE_READY;
}

static bool is_wrong(const struct guide *u, uint32_t mark) { return mark < GATE_MARKS && u->wrong >> mark & 1; }

/* A free text has a mask only where a token is forced, or the next one might complete a marker wrongly. */
static enum guide_state free_mask(struct guide *u)
{
    struct gate_mark mark[GATE_NEAR];
    uint32_t         n = u->gate->ops->marks(u->gate, mark), n_near = 0, n_wrong = 0, token;
    if (u->gate->ops->forced(u->gate, &token)) return mask_of_one(u, token);
    for (uint32_t i = 0; i < n; i++) {
        n_near += mark[i].near;
        n_wrong += is_wrong(u, i) ? mark[i].n_whole : 0;
    }
    u->plain = !n_near && !n_wrong && !u->gate->n_odd;
    if (u->plain) return GUIDE_READY;
    memset(u->mask, 0xff, u->n_words * sizeof *u->mask);
    for (uint32_t i = 0; i < n; i++)
        if (mark[i].near && forbid_wrong_ends(u, &mark[i])) return GUIDE_FAILED;
    for (uint32_t i = 0; i < u->n_eos && !u->gate->again; i++) forbid(u, u->eos_id[i]);
    for (uint32_t i = 0; i < u->n_refused; i++) forbid(u, u->refused[i]);
    for (uint32_t i = 0; i < u->gate->n_odd; i++) forbid(u, u->gate->odd[i]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; is_wrong(u, i) && k < mark[i].n_whole; k++) forbid(u, mark[i].whole[k]);
    return is_empty(u) ? GUIDE_FAILED : GUIDE_READY;
}

static enum guide_state make_mask(struct guide *u)
{
    u->plain = false;
    return u->phase == GATE_FREE ? free_mask(u) : bound_mask(u);
}

/* ---------------------------------------------------------------- one guide */

static bool is_end(const struct guide *u, uint32_t token)
{
    for (uint32_t i = 0; i < u->n_eos; i++)
        if (u->eos_id[i] == token) return true;
    return false;
}

/* Looks which markers the grammar begins with. ST_INVALID: with none, or no token goes on behind them. */
static enum status try_marks(struct guide *u)
{
    struct gate_mark mark[GATE_MARKS];
    uint32_t         n = u->gate->ops->marks(u->gate, mark);
    bool             goes_on = false;
    for (uint32_t i = 0; i < n; i++) {
        bool        token = mark[i].token != UINT32_MAX;
        enum status st =
            token ? gr_accept(u->match, mark[i].token) : gr_accept_bytes(u->match, mark[i].text, mark[i].n);
        if (st == ST_TOO_LARGE) return st;
        if (st && token && !is_end(u, mark[i].token)) u->refused[u->n_refused++] = mark[i].token;
        if (!st && !goes_on) {
            if (gr_mask(u->match, u->mask)) return ST_TOO_LARGE;
            goes_on = !is_empty(u) || gr_is_end(u->match);
        }
        gr_restart(u->match);
        if (!mark[i].n_whole) continue;
        st = gr_accept_bytes(u->match, mark[i].text, mark[i].n);
        if (st == ST_TOO_LARGE) return st;
        if (st) u->wrong |= 1u << i;
        gr_restart(u->match);
    }
    return goes_on ? ST_OK : ST_INVALID;
}

static struct guide *guide_new(struct grammar *g, const struct gr_vocab *v, struct gr_match *match, uint32_t n_words,
                               const uint32_t *eos_id, uint32_t n_eos)
{
    struct guide *u = calloc(1, sizeof *u);
    if (!u) return NULL;
    u->mask = calloc(n_words + 1, sizeof *u->mask);
    u->eos_id = calloc(n_eos + 1, sizeof *u->eos_id);
    if (!u->mask || !u->eos_id) {
        free(u->mask);
        free(u->eos_id);
        free(u);
        return NULL;
    }
    u->match = match;
    u->vocab = v;
    u->grammar = g ? gr_keep(g) : NULL;
    u->n_words = n_words;
    u->n_eos = n_eos;
    u->phase = GATE_BOUND;
    if (n_eos) memcpy(u->eos_id, eos_id, n_eos * sizeof *eos_id);
    atomic_init(&u->n_user, 1);
    return u;
}

enum status guide_create(struct grammar *g, const struct gr_vocab *v, const uint32_t *eos_id, uint32_t n_eos,
                         struct gate *gate, struct guide **guide_out)
{
    uint32_t most = gr_vocab_n(v);
    for (uint32_t i = 0; i < n_eos; i++) most = eos_id[i] >= most ? eos_id[i] + 1 : most;
    struct gr_match *m = NULL;
    enum status      st = g ? gr_match_make(g, v, &m) : ST_OK;
    struct guide    *u = st ? NULL : guide_new(g, v, m, gr_words(most), eos_id, n_eos);
    if (!u) {
        gr_match_free(m);
        if (gate) gate->ops->drop(gate);
        return st ? st : ST_NOMEM;
    }
    u->gate = gate;
    u->phase = gate ? gate->first : GATE_BOUND;
    st = gate && m && !gate->late ? try_marks(u) : ST_OK;
    if (!st && make_mask(u) == GUIDE_FAILED) st = m && gr_mask(m, u->mask) ? ST_TOO_LARGE : ST_INVALID;
    atomic_init(&u->state, GUIDE_READY);
    if (st)
        guide_drop(u);
    else
        *guide_out = u;
    return st;
}

struct guide *guide_fork(const struct guide *guide)
{
    struct gr_match *m = guide->match ? gr_fork(guide->match) : NULL;
    struct guide    *u = NULL;
    if (m || !guide->match) u = guide_new(guide->grammar, guide->vocab, m, guide->n_words, guide->eos_id, guide->n_eos);
    if (!u) {
        gr_match_free(m);
        return NULL;
    }
    memcpy(u->mask, guide->mask, u->n_words * sizeof *u->mask);
    memcpy(u->refused, guide->refused, sizeof u->refused);
    u->n_refused = guide->n_refused;
    u->wrong = guide->wrong;
    u->phase = guide->phase;
    u->plain = guide->plain;
    atomic_init(&u->state, (int)guide_state(guide));
    if (!guide->gate || (u->gate = guide->gate->ops->fork(guide->gate))) return u;
    guide_drop(u);
    return NULL;
}

void guide_drop(struct guide *u)
{
    if (!u || atomic_fetch_sub_explicit(&u->n_user, 1, memory_order_acq_rel) > 1) return;
    if (u->gate) u->gate->ops->drop(u->gate);
    gr_match_free(u->match);
    gr_free(u->grammar);
    free(u->mask);
    free(u->eos_id);
    free(u);
}

enum guide_state guide_state(const struct guide *u)
{
    return (enum guide_state)atomic_load_explicit(&u->state, memory_order_acquire);
}

const uint32_t *guide_mask(const struct guide *u, uint32_t *n_words_out)
{
    *n_words_out = guide_state(u) == GUIDE_READY && u->plain ? 0 : u->n_words;
    return u->mask;
}

bool guide_may_end(const struct guide *u) { return u->gate && u->gate->again; }

const uint32_t *guide_refused(const struct guide *u, uint32_t *n_out)
{
    *n_out = u->n_refused;
    return u->refused;
}

uint32_t guide_words(const struct guide *u) { return u->n_words; }

/* ---------------------------------------------------------------- the threads */

static void push_gate(struct guide *u)
{
    enum gate_phase was = u->phase;
    u->open = (struct gate_open){ .n = 0 };
    u->phase = u->gate->ops->push(u->gate, u->token, &u->open);
    if (was != GATE_FREE && u->phase == GATE_FREE) gr_restart(u->match);
}

/* Takes the posted token. pushed: the gate has taken it already. */
static enum status take(struct guide *u, bool pushed)
{
    bool        was_free = pushed || u->phase == GATE_FREE;
    enum status st = was_free ? ST_OK : gr_accept(u->match, u->token);
    if (!st && !pushed && u->phase != GATE_BOUND) push_gate(u);
    if (st || u->phase == GATE_FREE) return st;
    if (was_free)
        st = u->open.bytes ? gr_accept_bytes(u->match, u->open.bytes, u->open.n) : gr_accept(u->match, u->token);
    bool over = !st && u->gate && u->gate->again && gr_is_end(u->match);
    if (over && u->gate->ops->restart(u->gate)) {
        gr_restart(u->match);
        u->phase = GATE_FREE;
    }
    return st;
}

static void advance(struct guide *u, bool pushed)
{
    enum guide_state state = GUIDE_FAILED;
    if (!take(u, pushed)) state = make_mask(u);
    atomic_store_explicit(&u->state, (int)state, memory_order_release);
}

/* A token of a free text without a mask is looked at by the engine's thread: it costs no more than to hand it over.
 * True: there is no mask for the next one either. */
static bool stays_plain(struct guide *u)
{
    struct gate_mark mark[GATE_NEAR];
    uint32_t         token;
    push_gate(u);
    if (u->phase != GATE_FREE || u->gate->ops->forced(u->gate, &token)) return false;
    uint32_t n = u->gate->ops->marks(u->gate, mark);
    for (uint32_t i = 0; i < n; i++)
        if (mark[i].near) return false;
    return true;
}

static void *work(void *arg)
{
    struct guide_worker *w = arg;
    while (!atomic_load(&w->of->stop)) {
        struct guide *u = ring_pop(&w->ring);
        if (!u) {
            ring_wait(&w->ring, -1);
            continue;
        }
        advance(u, u->plain);
        guide_drop(u);
        uint32_t left = atomic_fetch_sub(&w->of->n_busy, 1) - 1, enough = atomic_load(&w->of->enough);
        if (enough == UINT32_MAX)
            ring_wake(w->of->wake);
        else if (left <= enough)
            ring_wake(&w->of->awaited);
    }
    for (struct guide *u; (u = ring_pop(&w->ring));) guide_drop(u);
    return NULL;
}

enum status guides_create(uint32_t n_thread, uint32_t n_guide, struct ring *wake, struct guides **g_out)
{
    struct guides *g = calloc(1, sizeof *g + n_thread * sizeof *g->worker);
    if (!g) return ST_NOMEM;
    g->wake = wake;
    atomic_init(&g->enough, UINT32_MAX);
    if (ring_init(&g->awaited, 1)) {
        free(g);
        return ST_NOMEM;
    }
    for (uint32_t i = 0; i < n_thread; i++) {
        struct guide_worker *w = &g->worker[i];
        w->of = g;
        enum status st = ring_init(&w->ring, n_guide);
        if (st) {
            guides_free(g);
            return st;
        }
        g->n_worker++;
        st = thread_start(&w->thread, THREAD_GUIDE, "guide", work, w);
        w->started = st == ST_OK;
        if (st) {
            guides_free(g);
            return st;
        }
    }
    *g_out = g;
    return ST_OK;
}

void guides_free(struct guides *g)
{
    if (!g) return;
    atomic_store(&g->stop, true);
    for (uint32_t i = 0; i < g->n_worker; i++) {
        struct guide_worker *w = &g->worker[i];
        ring_wake(&w->ring);
        if (w->started) pthread_join(w->thread, NULL);
        ring_free(&w->ring);
    }
    ring_free(&g->awaited);
    free(g);
}

void guide_post(struct guides *g, struct guide *u, uint32_t token)
{
    CHECK(guide_state(u) == GUIDE_READY);
    u->token = token;
    if (u->plain && stays_plain(u)) return;
    if (g->n_worker == 0) {
        advance(u, u->plain);
        return;
    }
    atomic_store_explicit(&u->state, GUIDE_BUSY, memory_order_relaxed);
    atomic_fetch_add_explicit(&u->n_user, 1, memory_order_relaxed);
    atomic_fetch_add(&g->n_busy, 1);
    g->next = (g->next + 1) % g->n_worker;
    if (ring_push(&g->worker[g->next].ring, u)) return;
    atomic_fetch_sub(&g->n_busy, 1);
    advance(u, u->plain); /* guides of requests that are gone fill the ring */
    guide_drop(u);
}

void guides_await(struct guides *g, uint32_t enough, uint64_t timeout_us, uint64_t (*clock)(void))
{
    if (atomic_load(&g->n_busy) <= enough) return;
    uint64_t now = clock(), deadline = now + timeout_us;
    atomic_store(&g->enough, enough); /* before the look at n_busy: whoever counts down later sees it */
    while (atomic_load(&g->n_busy) > enough && now < deadline) {
        ring_wait(&g->awaited, (int64_t)(deadline - now));
        now = clock();
    }
    atomic_store(&g->enough, UINT32_MAX);
    /* Whoever was done before that store did not wake the reader of wake, and is seen by the look at n_busy: its mask
     * is ready for the plan that comes now. All others wake it. */
    (void)atomic_load(&g->n_busy);
}
