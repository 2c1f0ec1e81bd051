#include "engine/guide.h"
#include "base/check.h"
#include "base/thread.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct guide {
    struct gr_match *match;
    struct grammar  *grammar;
    uint32_t        *mask; /* [n_words] */
    uint32_t        *eos_id;
    uint32_t         n_words, n_eos, token; /* token: that is posted */
    _Atomic int      state;                 /* enum guide_state; release: the mask is written */
    _Atomic uint32_t n_user;                /* the submitter, and the thread that works on it */
};

/* One thread, and what it is to do. */
struct guide_worker {
    struct guides *of;
    struct ring    ring;
    pthread_t      thread;
    bool           started;
};

struct guides {
    struct ring        *wake;
    _Atomic bool        stop;
    uint32_t            n_worker, next;
    struct guide_worker worker[];
};

/* ---------------------------------------------------------------- one guide */

/* The mask of the next token; end-of-sequence ids where the text may end. */
static enum guide_state make_mask(struct guide *u)
{
    enum status st = gr_mask(u->match, u->mask);
    bool        any = false;
    if (st) return GUIDE_FAILED;
    for (uint32_t i = 0; i < u->n_eos; i++) {
        uint32_t id = u->eos_id[i];
        if (id / 32 >= u->n_words) continue;
        u->mask[id / 32] &= ~(1u << (id % 32));
        if (gr_is_end(u->match)) u->mask[id / 32] |= 1u << (id % 32);
    }
    for (uint32_t w = 0; w < u->n_words && !any; w++) any = u->mask[w] != 0;
    return any ? GUIDE_READY : GUIDE_FAILED;
}

static struct guide *guide_new(struct gr_match *match, struct grammar *g, uint32_t n_words, const uint32_t *eos_id,
                               uint32_t n_eos)
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
    u->grammar = gr_keep(g);
    u->n_words = n_words;
    u->n_eos = n_eos;
    if (n_eos) memcpy(u->eos_id, eos_id, n_eos * sizeof *eos_id);
    atomic_init(&u->n_user, 1);
    return u;
}

enum status guide_create(struct grammar *g, const struct gr_vocab *v, const uint32_t *eos_id, uint32_t n_eos,
                         struct guide **guide_out)
{
    uint32_t most = gr_vocab_n(v);
    for (uint32_t i = 0; i < n_eos; i++) most = eos_id[i] >= most ? eos_id[i] + 1 : most;
    struct gr_match *m = gr_match_create(g, v);
    struct guide    *u = m ? guide_new(m, g, gr_words(most), eos_id, n_eos) : NULL;
    if (!u) {
        gr_match_free(m);
        return ST_NOMEM;
    }
    enum guide_state state = make_mask(u);
    atomic_init(&u->state, (int)state);
    if (state == GUIDE_READY) {
        *guide_out = u;
        return ST_OK;
    }
    enum status st = gr_mask(m, u->mask) ? ST_TOO_LARGE : ST_INVALID;
    guide_drop(u);
    return st;
}

struct guide *guide_fork(const struct guide *guide)
{
    struct gr_match *m = gr_fork(guide->match);
    struct guide    *u = m ? guide_new(m, guide->grammar, guide->n_words, guide->eos_id, guide->n_eos) : NULL;
    if (!u) {
        gr_match_free(m);
        return NULL;
    }
    memcpy(u->mask, guide->mask, u->n_words * sizeof *u->mask);
    atomic_init(&u->state, (int)guide_state(guide));
    return u;
}

void guide_drop(struct guide *u)
{
    if (!u || atomic_fetch_sub_explicit(&u->n_user, 1, memory_order_acq_rel) > 1) return;
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
    *n_words_out = u->n_words;
    return u->mask;
}

/* ---------------------------------------------------------------- the threads */

static void advance(struct guide *u)
{
    enum guide_state state = GUIDE_FAILED;
    if (!gr_accept(u->match, u->token)) state = make_mask(u);
    atomic_store_explicit(&u->state, (int)state, memory_order_release);
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
        advance(u);
        guide_drop(u);
        ring_wake(w->of->wake);
    }
    for (struct guide *u; (u = ring_pop(&w->ring));) guide_drop(u);
    return NULL;
}

enum status guides_create(uint32_t n_thread, uint32_t n_guide, struct ring *wake, struct guides **g_out)
{
    struct guides *g = calloc(1, sizeof *g + n_thread * sizeof *g->worker);
    if (!g) return ST_NOMEM;
    g->wake = wake;
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
    free(g);
}

void guide_post(struct guides *g, struct guide *u, uint32_t token)
{
    CHECK(guide_state(u) == GUIDE_READY);
    u->token = token;
    if (g->n_worker == 0) {
        advance(u);
        return;
    }
    atomic_store_explicit(&u->state, GUIDE_BUSY, memory_order_relaxed);
    atomic_fetch_add_explicit(&u->n_user, 1, memory_order_relaxed);
    g->next = (g->next + 1) % g->n_worker;
    if (ring_push(&g->worker[g->next].ring, u)) return;
    advance(u); /* guides of requests that are gone fill the ring */
    guide_drop(u);
}
