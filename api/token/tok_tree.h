/* tok_tree: a vocabulary by its first bytes, for models that want every token that begins at a place: a tree, its nodes
 * in breadth-first order, so that the children of one lie side by side and are sorted.
 * build -> step* -> free.   Thread: const after build. */
#pragma once
#include "api/token/tok_vocab.h"

struct tok_tree {
    uint32_t      *child; /* [n_node + 1] first child of each node; it ends where the next one's begin */
    unsigned char *byte;  /* [n_node] what leads to the node */
    int32_t       *id;    /* [n_node] of the token that ends there, or TOK_NONE */
    uint32_t       n_node, root[256];
};

enum { TOK_TREE_NOWHERE = 0 }; /* the root is nobody's child */

/* flags: [text->n_id]; the tokens with the bit `which`. False: no memory. */
bool tok_tree_build(struct tok_tree *t, const struct tok_strs *text, const unsigned char *flags, unsigned char which);
void tok_tree_free(struct tok_tree *t);

/* From node (0: the root) by a byte: a node, or TOK_TREE_NOWHERE. */
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
