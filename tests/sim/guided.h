/* guided: a grammar for requests of the simulator: nested brackets "cabd" over a vocabulary of one and two letters a to
 * e, of which e stands in no text. With a gate a free text comes before it, up to a token "e", or, behind a token that
 * begins with d, to one that begins with e: then the marker is "xe", and the rest of the token must go on as the
 * grammar does. */
#pragma once
#include "engine/guide.h"
#include <stdlib.h>

enum { GUIDED_VOCAB = 1000 };

static inline struct gr_vocab *guided_vocab(void)
{
    static struct gr_vocab *v;
    if (v) return v;
    static unsigned char letter[GUIDED_VOCAB][2];
    struct token_bytes   b[GUIDED_VOCAB];
    for (uint32_t t = 0; t < GUIDED_VOCAB; t++) {
        letter[t][0] = (unsigned char)('a' + t % 5);
        letter[t][1] = (unsigned char)('a' + t / 5 % 5);
        b[t] = (struct token_bytes){ letter[t], t % 3 ? 1 : 2 };
        if (t == 1 || t == 3 || t == 7) b[t].n = 0; /* what ends a sequence is no text */
    }
    if (gr_vocab_create(b, GUIDED_VOCAB, &v)) abort();
    return v;
}

/* gated: the marker comes first. */
static inline struct grammar *guided_grammar(bool gated)
{
    static struct grammar *made[2];
    if (made[gated]) return made[gated];
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    char             err[GR_ERR];
    uint32_t         t[4], text = gr_rule(r), item = gr_rule(r), start = gr_rule(r);
    for (unsigned i = 0; i < 4; i++) t[i] = gr_terminal(r, rx_of_byte(gr_rx(r), 'a' + i));
    gr_alt(r, text, NULL, 0);
    gr_alt(r, text, (uint32_t[]){ text, item }, 2);
    gr_alt(r, item, &t[0], 1);
    gr_alt(r, item, &t[1], 1);
    gr_alt(r, item, (uint32_t[]){ t[2], text, t[3] }, 3);
    uint32_t mark[] = { gr_terminal(r, rx_of_byte(gr_rx(r), 'e')), gr_terminal(r, rx_of_bytes(gr_rx(r), "xe", 2)) };
    gr_alt(r, start, (uint32_t[]){ mark[0], text }, 2);
    gr_alt(r, start, (uint32_t[]){ mark[1], text }, 2);
    if (gr_build(r, gated ? start : text, &made[gated], err)) abort();
    return made[gated];
}

struct guided_gate {
    struct gate   base;
    bool          begun;
    unsigned char open[3];
};

static inline enum gate_phase guided_push(struct gate *base, uint32_t token, struct gate_open *open)
{
    struct guided_gate *g = (struct guided_gate *)base;
    struct token_bytes  b = gr_vocab_token(guided_vocab(), token);
    bool                was = g->begun, ends = b.n && b.p[0] == 'e' && (was || b.n == 1);
    g->begun = b.n && b.p[0] == 'd';
    if (!ends) return GATE_FREE;
    g->open[0] = 'x';
    g->open[1] = 'e';
    g->open[2] = b.n > 1 ? b.p[1] : 0;
    *open = (struct gate_open){ was ? g->open : g->open + 1, (was ? 1 : 0) + b.n };
    return GATE_BOUND;
}

static inline uint32_t guided_marks(const struct gate *base, struct gate_mark *out)
{
    const struct guided_gate *g = (const struct guided_gate *)base;
    *out = (struct gate_mark){ .text = "xe", .n = 2, .begun = g->begun, .token = UINT32_MAX, .near = g->begun };
    return 1;
}

static inline bool guided_forced(const struct gate *base, uint32_t *token_out)
{
    (void)base;
    (void)token_out;
    return false;
}

static inline void guided_gate_drop(struct gate *g) { free(g); }

static inline struct gate *guided_gate(const struct gate *of)
{
    static const struct gate_ops ops = {
        guided_push, NULL, guided_forced, guided_marks, guided_gate, guided_gate_drop
    };
    struct guided_gate *g = calloc(1, sizeof *g);
    (void)of;
    if (!g) abort();
    g->base = (struct gate){ .ops = &ops, .first = GATE_FREE };
    return &g->base;
}

static inline struct guide *guided_guide(const uint32_t *eos_id, uint32_t n_eos, bool gated)
{
    struct guide *u = NULL;
    struct gate  *gate = gated ? guided_gate(NULL) : NULL;
    if (guide_create(guided_grammar(gated), guided_vocab(), eos_id, n_eos, gate, &u)) abort();
    return u;
}

/* Whether a request of the simulator has a gate: half of them, by their seeds. */
static inline bool guided_gated(uint64_t seed) { return seed & 1; }
