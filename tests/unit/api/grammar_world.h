/* grammar_world: does a grammar accept a text? Byte by byte, by the matcher. */
#pragma once
#include "test.h"
#include "engine/grammar/match.h"

/* One token, which no text needs: texts are given as bytes. */
static inline const struct gr_vocab *no_vocab(void)
{
    static struct gr_vocab *v;
    struct token_bytes      one = { (const unsigned char *)"x", 1 };
    if (!v) assert_int_equal(gr_vocab_create(&one, 1, &v), ST_OK);
    return v;
}

/* 'y': a whole text of the grammar; 'p': the beginning of one; 'n': neither. */
static inline char verdict(struct grammar *g, const char *text)
{
    struct gr_match *m = gr_match_create(g, no_vocab());
    assert_non_null(m);
    enum status st = *text ? gr_accept_bytes(m, text, strlen(text)) : ST_OK;
    char        c = 'n';
    if (!st) c = gr_is_end(m) ? 'y' : 'p';
    gr_match_free(m);
    return c;
}
