/* tok_wordpiece: the WordPiece model: from the left, always the longest token; those behind the first are looked for
 * with a prefix ("##"). A piece that cannot be spelled to its end, or has too many characters, is one unk.
 * load -> index -> encode* -> free.   Thread: load: one; then const and shared. */
#pragma once
#include "api/token/tok_bpe_load.h"
#include "api/token/tok_tree.h"

struct tok_wordpiece {
    const struct tok_strs *text;
    const unsigned char   *flags; /* [n_id] enum tok_flag */
    struct tok_tree        tree;
    char                  *prefix; /* continuing_subword_prefix */
    size_t                 n_prefix, longest;
    uint32_t unk, inner; /* inner: the tree's node behind the prefix; TOK_TREE_NOWHERE: no token begins with it */
    int64_t  chars_max;  /* of a piece */
};

/* text: filled with the vocabulary (empty before). */
enum status tok_wordpiece_load(struct tok_wordpiece *m, struct tok_strs *text, const struct tok_model_parts *p,
                               const struct tok_err *e);
enum status tok_wordpiece_index(struct tok_wordpiece *m, const struct tok_strs *text, const unsigned char *flags,
                                const struct tok_err *e);
enum status tok_wordpiece_encode(const struct tok_wordpiece *m, struct tok_work *w, const char *s, size_t n);
void        tok_wordpiece_free(struct tok_wordpiece *m);
