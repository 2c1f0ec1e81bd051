/* tok_unigram: the Unigram model: finds the division of a piece into tokens with the highest sum of scores (Viterbi);
 * of equal sums, the first one found. Sums are doubles, added from the left, as in the `tokenizers` library.
 * load -> index -> encode* -> free.   Thread: one while it loads; then const and shared.
 * Time: for each byte of the piece, at most as many steps as the longest token has bytes. Memory: 4 bytes per byte of
 * the piece, in the tok_work's scratch. */
#pragma once
#include "api/token/tok_bpe_load.h"
#include "api/token/tok_tree.h"

struct tok_unigram {
    const struct tok_strs *text;
    const unsigned char   *flags; /* [n_id] enum tok_flag */
    struct tok_tree        tree;
    double                *score; /* [n_id of the model] */
    double                 unk_score;
    uint32_t               unk, n_score;
    bool                   byte_fallback, bytes_whole; /* bytes_whole: each of the 256 bytes has a token */
    int64_t                byte_id[256];               /* of <0x00>..<0xFF>; TOK_NONE */
    size_t                 longest;                    /* bytes of the longest token */
};

/* text: empty before; the function fills it with the vocabulary. ST_CONFIG: e has the reason. */
enum status tok_unigram_load(struct tok_unigram *m, struct tok_strs *text, const struct tok_model_parts *p,
                             const struct tok_err *e);
/* Makes the tree, after the added tokens are loaded. flags: [text->n_id], borrowed like text. */
enum status tok_unigram_index(struct tok_unigram *m, const struct tok_strs *text, const unsigned char *flags,
                              const struct tok_err *e);
enum status tok_unigram_encode(const struct tok_unigram *m, struct tok_work *w, const char *s, size_t n);
void        tok_unigram_free(struct tok_unigram *m);
