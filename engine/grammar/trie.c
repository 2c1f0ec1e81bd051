/* trie: builds the tree in one pass over the tokens in order. */
#include "engine/grammar/trie.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint32_t common(struct token_bytes a, struct token_bytes b)
{
    uint32_t n = a.n < b.n ? a.n : b.n, i = 0;
    while (i < n && a.p[i] == b.p[i]) i++;
    return i;
}

/* The subtrees of open[from ..] are whole. */
static void close_nodes(struct trie *t, const uint32_t *open, uint32_t from, uint32_t n_open)
{
    for (uint32_t d = from; d < n_open; d++) t->node[open[d]].size_depth = (t->n - open[d]) << 8 | (d + 1);
}

enum status trie_make(const struct token_bytes *bytes, const uint32_t *token, uint32_t n_token, struct trie *t_out)
{
    struct trie        t = { NULL, 0, NULL };
    uint32_t           open[TRIE_DEPTH_MAX], n_open = 0;
    struct token_bytes last = { NULL, 0 };
    uint64_t           n_node = 0;
    for (uint32_t i = 0; i < n_token; i++) {
        struct token_bytes b = bytes[token[i]];
        if (b.n == 0 || b.n > TRIE_DEPTH_MAX) continue;
        n_node += b.n - common(last, b);
        last = b;
    }
    if (n_node >= TRIE_NONE) return ST_TOO_LARGE;
    t.node = malloc((n_node + 1) * sizeof *t.node);
    if (!t.node) return ST_NOMEM;
    last.n = 0;
    for (uint32_t i = 0; i < n_token; i++) {
        struct token_bytes b = bytes[token[i]];
        if (b.n == 0 || b.n > TRIE_DEPTH_MAX) continue;
        uint32_t same = common(last, b);
        if (same == b.n && same == last.n) continue; /* equal bytes */
        close_nodes(&t, open, same, n_open);
        for (uint32_t d = same; d < b.n; d++) {
            open[d] = t.n;
            t.node[t.n++].token_byte = (uint32_t)TRIE_NONE << 8 | b.p[d];
        }
        n_open = b.n;
        t.node[open[b.n - 1]].token_byte = token[i] << 8 | b.p[b.n - 1];
        last = b;
    }
    close_nodes(&t, open, 0, n_open);
    *t_out = t;
    return ST_OK;
}

uint32_t trie_find(const struct trie *t, const unsigned char *p, size_t n)
{
    uint32_t i = 0, end = t->n;
    for (size_t d = 0; d < n; d++) {
        if (d) end = i + trie_size(t->node[i]);
        if (d) i++;
        while (i < end && trie_byte(t->node[i]) != p[d]) i += trie_size(t->node[i]);
        if (i >= end) return TRIE_NONE;
    }
    return i;
}

enum status trie_index_make(struct trie *t)
{
    t->index = malloc(sizeof *t->index);
    if (!t->index) return ST_NOMEM;
    for (unsigned b = 0; b < 256; b++) {
        t->index->one[b] = TRIE_NONE;
        for (unsigned c = 0; c < 256; c++) t->index->two[b][c] = TRIE_NONE;
    }
    for (uint32_t i = 0; i < t->n; i += trie_size(t->node[i])) {
        uint32_t *two = t->index->two[trie_byte(t->node[i])], end = i + trie_size(t->node[i]);
        t->index->one[trie_byte(t->node[i])] = i;
        for (uint32_t k = i + 1; k < end; k += trie_size(t->node[k])) two[trie_byte(t->node[k])] = k;
    }
    return ST_OK;
}

void trie_free(struct trie *t)
{
    free(t->node);
    free(t->index);
    t->node = NULL;
    t->index = NULL;
    t->n = 0;
}
