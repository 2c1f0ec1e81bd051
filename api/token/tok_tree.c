#include "api/token/tok_tree.h"
#include <stdlib.h>
#include <string.h>

struct key {
    const char *p;
    uint32_t    n, id;
};

/* The keys that share the bytes on the way to a node. */
struct range {
    uint32_t from, to;
};

static int by_bytes(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int               c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static struct key *sorted_keys(const struct tok_strs *text, const unsigned char *flags, unsigned char which,
                               uint32_t *n_out, size_t *bytes_out)
{
    struct key *key = malloc(((size_t)text->n + 1) * sizeof *key);
    uint32_t    n = 0;
    size_t      bytes = 0;
    if (!key) return NULL;
    for (uint32_t id = 0; id < text->n_id; id++) {
        size_t      len = 0;
        const char *s = flags[id] & which ? tok_strs_get(text, id, &len) : NULL;
        if (!s || !len) continue;
        key[n++] = (struct key){ s, (uint32_t)len, id };
        bytes += len;
    }
    qsort(key, n, sizeof *key, by_bytes);
    *n_out = n;
    *bytes_out = bytes;
    return key;
}

/* Nodes behind each other, those of one depth after those of the one before. */
static void grow(struct tok_tree *t, const struct key *key, struct range *of)
{
    uint32_t depth = 0, level_end = 1;
    t->n_node = 1;
    t->byte[0] = 0;
    for (uint32_t node = 0; node < t->n_node; node++) {
        if (node == level_end) {
            depth++;
            level_end = t->n_node;
        }
        struct range r = of[node];
        t->child[node] = t->n_node;
        t->id[node] = TOK_NONE;
        if (r.from < r.to && key[r.from].n == depth) t->id[node] = (int32_t)key[r.from++].id;
        for (uint32_t i = r.from; i < r.to;) {
            unsigned char byte = (unsigned char)key[i].p[depth];
            uint32_t      first = i;
            while (i < r.to && (unsigned char)key[i].p[depth] == byte) i++;
            t->byte[t->n_node] = byte;
            of[t->n_node++] = (struct range){ first, i };
        }
    }
    t->child[t->n_node] = t->n_node;
}

bool tok_tree_build(struct tok_tree *t, const struct tok_strs *text, const unsigned char *flags, unsigned char which)
{
    uint32_t    n = 0;
    size_t      bytes = 0;
    struct key *key = sorted_keys(text, flags, which, &n, &bytes);
    *t = (struct tok_tree){ 0 };
    if (!key) return false;
    struct range *of = malloc((bytes + 1) * sizeof *of); /* a node per byte at most, and the root */
    t->child = malloc((bytes + 2) * sizeof *t->child);
    t->byte = malloc(bytes + 1);
    t->id = malloc((bytes + 1) * sizeof *t->id);
    bool ok = of && t->child && t->byte && t->id;
    if (ok) {
        of[0] = (struct range){ 0, n };
        grow(t, key, of);
        for (uint32_t i = t->child[0]; i < t->child[1]; i++) t->root[t->byte[i]] = i;
    }
    free(of);
    free(key);
    return ok; /* what there is, the owner's tok_tree_free takes */
}

void tok_tree_free(struct tok_tree *t)
{
    free(t->child);
    free(t->byte);
    free(t->id);
    *t = (struct tok_tree){ 0 };
}
