/* guided: a grammar for requests of the simulator: nested brackets "cabd" over a vocabulary of one and two letters a to e, of
 * which e stands in no text. */
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

static inline struct grammar *guided_grammar(void)
{
    static struct grammar *g;
    if (g) return g;
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    char             err[GR_ERR];
    uint32_t         t[4], text = gr_rule(r), item = gr_rule(r);
    for (unsigned i = 0; i < 4; i++) t[i] = gr_terminal(r, rx_of_byte(gr_rx(r), 'a' + i));
    gr_alt(r, text, NULL, 0);
    gr_alt(r, text, (uint32_t[]){ text, item }, 2);
    gr_alt(r, item, &t[0], 1);
    gr_alt(r, item, &t[1], 1);
    gr_alt(r, item, (uint32_t[]){ t[2], text, t[3] }, 3);
    if (gr_build(r, text, &g, err)) abort();
    return g;
}

static inline struct guide *guided_guide(const uint32_t *eos_id, uint32_t n_eos)
{
    struct guide *u = NULL;
    if (guide_create(guided_grammar(), guided_vocab(), eos_id, n_eos, &u)) abort();
    return u;
}
