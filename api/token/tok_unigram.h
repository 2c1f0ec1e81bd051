/* tok_unigram: the Unigram model: of all ways to cut a piece into tokens, the one whose scores sum highest (Viterbi),
 * the earliest found of equals; sums are doubles, added from the left, as in the `tokenizers` library.
 * load -> index -> encode* -> free.   Thread: load: one; then const and shared.
 * Time: per byte at most a step per byte of the longest token. Memory: 4 bytes per byte of the piece, in the tok_work's
 * scratch. */
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
    bool                   byte_fallback, bytes_whole; /* bytes_whole: every byte has its token */
    int64_t                byte_id[256];               /* of <0x00>..<0xFF>; TOK_NONE */
    size_t                 longest;                    /* bytes */
};

/* text: filled with the vocabulary (empty before). */
enum status tok_unigram_load(struct tok_unigram *m, struct tok_strs *text, const struct tok_model_parts *p,
                             const struct tok_err *e);
/* When the added tokens are known too. flags: [text->n_id]. */
enum status tok_unigram_index(struct tok_unigram *m, const struct tok_strs *text, const unsigned char *flags,
                              const struct tok_err *e);
enum status tok_unigram_encode(const struct tok_unigram *m, struct tok_work *w, const char *s, size_t n);
void        tok_unigram_free(struct tok_unigram *m);
