/* tok_wordpiece: the WordPiece model: takes the longest token at each position, from the left. Tokens after the first
 * one have a prefix ("##"). A piece that tokens do not cover to its end, or with too many characters, becomes one unk.
 * load -> index -> encode* -> free.   Thread: one while it loads; then const and shared. */
#pragma once
#include "api/token/tok_bpe_load.h"
#include "api/token/tok_tree.h"

struct tok_wordpiece {
    const struct tok_strs *text;
    const unsigned char   *flags; /* [n_id] enum tok_flag */
    struct tok_tree        tree;
    char                  *prefix; /* continuing_subword_prefix */
    size_t                 n_prefix, longest;
    uint32_t unk, inner; /* inner: the tree's node after the prefix; TOK_TREE_NOWHERE: no token has the prefix */
    int64_t  chars_max;  /* most characters of a piece that is not unk */
};

/* text: empty before; tok_wordpiece_load fills it with the vocabulary. ST_CONFIG: e has the reason. */
enum status tok_wordpiece_load(struct tok_wordpiece *m, struct tok_strs *text, const struct tok_model_parts *p,
                               const struct tok_err *e);
enum status tok_wordpiece_index(struct tok_wordpiece *m, const struct tok_strs *text, const unsigned char *flags,
                                const struct tok_err *e);
enum status tok_wordpiece_encode(const struct tok_wordpiece *m, struct tok_work *w, const char *s, size_t n);
void        tok_wordpiece_free(struct tok_wordpiece *m);
