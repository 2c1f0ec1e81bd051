/* mask: the part of a mask that depends only on a state of the automaton (lex.h): the tokens that stay within its
 * terminals, and the tokens that go past the end of a terminal, for which the rules decide. It is cached, within
 * bounds: for the states that are met again (inside a string, inside a number), and with each state of which little is
 * to be said (a name, a bracket).   Thread: any, several at a time. */
#pragma once
#include "engine/grammar/lex.h"
#include "engine/grammar/vocab.h"

struct mask_cache;

/* A node of the tree at which a terminal may end and below which there are tokens: those may go past its end. */
struct mask_root {
    uint64_t follow; /* the bytes below the node that may follow, as mask_bit */
    uint32_t node;
    uint32_t n_same; /* how many levels of the way to it are those of the way to the root before */
};
/* Bytes of plain characters, and of parts of those. */
static inline bool mask_plain(uint8_t byte)
{
    return byte >= ' ' && byte != '"' && byte != '\\' && byte != '<' && byte != 0x7F;
}
static inline uint64_t mask_bit(uint8_t byte) { return 1ull << (byte % 64); }

/* All such nodes of a tree. */
struct mask_walk {
    const struct trie *tree; /* of the vocabulary: all tokens, or those that no slice has settled */
    struct mask_root  *root; /* [n_root] in the order of the tree */
    unsigned char     *path; /* [n_path] of each root in turn: the bytes that lead to it, from n_same on */
    uint32_t           n_root, n_path;
};

/* The tokens at one state. */
enum { MASK_WALKS = 2 };
struct mask_part {
    /* Tokens whose bytes all stay within: as bits, or, where few do, as their numbers. */
    uint32_t        *inside; /* [gr_words]; NULL: see few */
    const uint32_t  *few;    /* [n_few] */
    uint32_t         n_few;
    struct mask_walk walk[MASK_WALKS]; /* [n_walk] of some of the state's items each */
    uint32_t         n_walk;
};

/* An empty cache; its bytes now (any thread). mask_cache_free: when nobody holds a part any more; NULL is allowed.
 * ST_NOMEM. */
enum status mask_cache_create(struct mask_cache **c_out);
void        mask_cache_free(struct mask_cache *c);
size_t      mask_cache_bytes(struct mask_cache *c);
/* Whether many texts may stand here, and end here or behind plain characters (rx_json_plain): then it counts what may
 * follow. */
bool mask_asks(struct lex *l, uint32_t state);
/* The part of a state, computed if it is not cached. apart: where a terminal has ended no plain character follows, so
 * that no token of such characters goes past its end. The caller gives it back with mask_release. NULL: no memory, or
 * over the lexer's bounds. */
const struct mask_part *mask_get(struct mask_cache *c, struct lex *l, const struct gr_vocab *v, uint32_t state,
                                 bool apart);
void                    mask_release(const struct mask_part *p);
/* The parts that all grammars over one vocabulary have in common; it belongs to the vocabulary. NULL: no memory. */
struct mask_shared *mask_shared_create(void);
void                mask_shared_free(struct mask_shared *m);
