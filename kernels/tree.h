/* tree: rows of a sequence that are nodes of a tree of drafts.   Plain functions, C17 and CUDA C++.
 * The tokens of a sequence up to `base` are history: the token at position t lies in slot t of its blocks. From there on
 * lie the nodes of the tree, at most 64: node i in slot base + i, behind the nodes that it follows from. Siblings have
 * one position, and slots of their own. A row's word (dev_batch.tree) has a bit for each node that it follows from and
 * its own, so its bits in order are the tokens at positions base .. pos of the path that it ends: the rest follows from
 * the word and the position. 0 is a row without a tree, and means what 1 means. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#ifdef __CUDACC__
#define TREE_BOTH __host__ __device__
#else
#define TREE_BOTH
#endif

enum { TREE_NODES = 64 };
/* Bits that are set. */
static inline TREE_BOTH uint32_t tree_count(uint64_t tree)
{
#ifdef __CUDA_ARCH__
    return (uint32_t)__popcll(tree);
#else
    return (uint32_t)__builtin_popcountll(tree);
#endif
}
/* Bits up to the highest one that is set. */
static inline TREE_BOTH uint32_t tree_width(uint64_t tree)
{
#ifdef __CUDA_ARCH__
    return 64 - (uint32_t)__clzll((long long)tree);
#else
    return tree ? 64 - (uint32_t)__builtin_clzll(tree) : 0;
#endif
}
/* The slot of node 0; of a row without a tree the one behind its own. */
static inline TREE_BOTH uint32_t tree_base(uint32_t pos, uint64_t tree) { return pos + 1 - tree_count(tree); }
/* The slot of the row's own key. */
static inline TREE_BOTH uint32_t tree_slot(uint32_t pos, uint64_t tree)
{
    return tree_base(pos, tree) + tree_width(tree) - 1;
}
/* Is there a node before the row's own that it does not see? Where there is none it sees what it would see without a
 * tree. */
static inline TREE_BOTH bool tree_holes(uint64_t tree) { return (tree & (tree + 1)) != 0; }

/* What a row sees: slots [first, base), and base + i for each bit i. */
struct tree_sight {
    uint32_t first, base;
    uint64_t bits;
};
/* first: the first position that it may see, of its window. */
static inline TREE_BOTH struct tree_sight tree_sight_of(uint32_t pos, uint64_t tree, uint32_t first)
{
    struct tree_sight s;
    s.base = tree_base(pos, tree);
    s.first = first < s.base ? first : s.base;
    s.bits = tree;
    for (uint32_t p = s.base; p < first; p++) s.bits &= s.bits - 1; /* the window ends inside the tree */
    return s;
}
/* n ones from bit 0 on; n of 64 and more: all. */
static inline TREE_BOTH uint64_t tree_ones(uint32_t n) { return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0; }
/* The same of slots t .. t + 63: bit i is slot t + i. */
static inline TREE_BOTH uint64_t tree_tile(struct tree_sight s, uint32_t t)
{
    uint32_t before = s.first > t ? s.first - t : 0, history = s.base > t ? s.base - t : 0, past = t - s.base;
    uint64_t seen = tree_ones(history) & ~tree_ones(before);
    if (s.base >= t) return history < 64 ? seen | s.bits << history : seen;
    return past < 64 ? s.bits >> past : 0;
}
