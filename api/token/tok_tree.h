/* tok_tree: a byte trie over a vocabulary, for models that need all tokens that begin at a position. The nodes lie in
 * breadth-first order, so the children of a node are adjacent; they are sorted by byte.
 * build -> step* -> free.   Thread: const after build. */
#pragma once
#include "api/token/tok_vocab.h"

struct tok_tree {
    uint32_t      *child; /* [n_node + 1] first child of each node; the next node's first child ends the list */
    unsigned char *byte;  /* [n_node] byte on the edge to the node */
    int32_t       *id;    /* [n_node] id of the token that ends at the node, or TOK_NONE */
    uint32_t       n_node, root[256]; /* root: child of the root by byte, or TOK_TREE_NOWHERE */
};

enum { TOK_TREE_NOWHERE = 0 }; /* no node: 0 is the root, which is never a child */

/* The tree gets the tokens of text whose flags have the bit `which`. flags: [text->n_id]. False: out of memory. */
bool tok_tree_build(struct tok_tree *t, const struct tok_strs *text, const unsigned char *flags, unsigned char which);
void tok_tree_free(struct tok_tree *t);

/* The child of node (0: the root) by a byte, or TOK_TREE_NOWHERE. */
static inline uint32_t tok_tree_step(const struct tok_tree *t, uint32_t node, unsigned char byte)
{
    if (!node) return t->root[byte];
    uint32_t lo = t->child[node], hi = t->child[node + 1];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->byte[mid] == byte) return mid;
        if (t->byte[mid] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return TOK_TREE_NOWHERE;
}
