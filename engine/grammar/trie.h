/* trie: the bytes of tokens as a tree in one array, in depth-first order, so that all tokens are stepped through
 * together and a subtree that leads nowhere is skipped by an addition.   Thread: any once it is made. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum {
    TRIE_NONE = 0xffffff, /* no token ends here; so tokens are below this number */
    TRIE_DEPTH_MAX = 255, /* longer tokens are in no trie: they are never offered */
};

struct trie_node {
    uint32_t token_byte; /* token << 8 | byte */
    uint32_t size_depth; /* nodes of the subtree, this one among them << 8 | depth, the first byte's being 1 */
};
/* The four numbers that a node packs: */
static inline uint32_t trie_token(struct trie_node n) { return n.token_byte >> 8; }
static inline uint8_t  trie_byte(struct trie_node n) { return (uint8_t)n.token_byte; }
static inline uint32_t trie_size(struct trie_node n) { return n.size_depth >> 8; }
static inline uint32_t trie_depth(struct trie_node n) { return n.size_depth & 0xff; }

/* Of a byte b, and of two bytes b, c: the nodes that they lead to; TRIE_NONE: none. */
struct trie_index {
    uint32_t one[256], two[256][256];
};

struct trie {
    struct trie_node  *node;
    uint32_t           n;
    struct trie_index *index; /* NULL: trie_index_make was not called */
};

/* The bytes that a token appends to a text; n = 0: none, and the token is in no trie. */
struct token_bytes {
    const unsigned char *p;
    uint32_t             n;
};

/* Makes the trie of token [n_token], indexes into bytes[] in ascending order of their bytes; of tokens with equal
 * bytes only the first is in the trie. The caller frees it with trie_free. ST_NOMEM; ST_TOO_LARGE: 2^24 nodes or more.
 * */
enum status trie_make(const struct token_bytes *bytes, const uint32_t *token, uint32_t n_token, struct trie *t_out);
void        trie_free(struct trie *t);
/* Makes t->index. A tree is as wide as 256 nodes at its first two levels, each in another line of memory. ST_NOMEM. */
enum status trie_index_make(struct trie *t);
/* The node to which these n > 0 bytes lead; TRIE_NONE: no token begins with them. */
uint32_t trie_find(const struct trie *t, const unsigned char *p, size_t n);
