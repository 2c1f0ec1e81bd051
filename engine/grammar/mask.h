/* mask: what a state of the automaton says of all tokens, once and for all: which ones stay within its terminals, and which
 * ones go past the end of one, so that the rules must be asked. Kept for the states that come again (a string's inside, a
 * number's), within bounds.   Thread: any, several at a time. */
#pragma once
#include "engine/grammar/lex.h"
#include "engine/grammar/vocab.h"

struct mask_cache;

/* A node of the tree at which a terminal may end and below which there are tokens: for those the rules are asked. */
struct mask_root {
    uint32_t node, path; /* path: where the bytes that lead to it begin in mask_part.path, as many as its depth */
};

/* The tokens at one state. */
struct mask_part {
    uint32_t          *inside; /* [gr_words] tokens whose bytes all stay within */
    const struct trie *tree;   /* of the vocabulary: all tokens, or those that no slice has settled */
    struct mask_root  *root;   /* [n_root] in the order of the tree; none lies below another */
    unsigned char     *path;
    uint32_t           n_root, n_path;
};

enum status mask_cache_create(struct mask_cache **c_out);
void        mask_cache_free(struct mask_cache *c);
size_t      mask_cache_bytes(struct mask_cache *c);
/* What is known of the state; computed if need be. Released by mask_release. NULL: no memory, or over the lexer's bounds. */
const struct mask_part *mask_get(struct mask_cache *c, struct lex *l, const struct gr_vocab *v, uint32_t state);
void                    mask_release(struct mask_cache *c, const struct mask_part *p);
