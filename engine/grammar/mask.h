/* mask: the part of a mask that depends only on a state of the automaton (lex.h): the tokens that stay within its
 * terminals, and the tokens that go past the end of a terminal, for which the rules decide. It is cached, within
 * bounds, for the states that are met again (inside a string, inside a number).   Thread: any, several at a time. */
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

/* An empty cache; its bytes now (any thread). mask_cache_free: when nobody holds a part any more; NULL is allowed.
 * ST_NOMEM. */
enum status mask_cache_create(struct mask_cache **c_out);
void        mask_cache_free(struct mask_cache *c);
size_t      mask_cache_bytes(struct mask_cache *c);
/* The part of a state, computed if it is not cached. The caller gives it back with mask_release. NULL: no memory, or
 * over the lexer's bounds. */
const struct mask_part *mask_get(struct mask_cache *c, struct lex *l, const struct gr_vocab *v, uint32_t state);
void                    mask_release(const struct mask_part *p);
/* The parts that all grammars over one vocabulary have in common; it belongs to the vocabulary. NULL: no memory. */
struct mask_shared *mask_shared_create(void);
void                mask_shared_free(struct mask_shared *m);
