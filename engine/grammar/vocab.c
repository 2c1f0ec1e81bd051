/* vocab: copies and sorts the tokens, and builds their trees. */
#include "engine/grammar/mask.h"
#include "engine/grammar/vocab_impl.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sorted {
    struct token_bytes bytes;
    uint32_t           token;
};

static int by_bytes(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    uint32_t             n = x->bytes.n < y->bytes.n ? x->bytes.n : y->bytes.n;
    int                  c = n ? memcmp(x->bytes.p, y->bytes.p, n) : 0;
    if (c) return c;
    if (x->bytes.n != y->bytes.n) return x->bytes.n < y->bytes.n ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

static enum status copy(struct gr_vocab *v, const struct token_bytes *bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < v->n; i++) v->pool_bytes += bytes[i].n;
    v->token = calloc(v->n + 1, sizeof *v->token);
    v->pool = malloc(v->pool_bytes + 1);
    if (!v->token || !v->pool) return ST_NOMEM;
    for (uint32_t i = 0; i < v->n; i++) {
        if (bytes[i].n) memcpy(v->pool + at, bytes[i].p, bytes[i].n);
        v->token[i] = (struct token_bytes){ v->pool + at, bytes[i].n };
        at += bytes[i].n;
    }
    return ST_OK;
}

/* order: all tokens, by their bytes; rest: room for as many. */
static enum status slice(struct gr_vocab *v, uint32_t chars_max, const uint32_t *order, uint32_t *rest,
                         struct vocab_slice *s)
{
    uint32_t n_rest = 0;
    s->chars_max = chars_max;
    for (uint32_t i = 0; i < v->n; i++)
        if (v->n_plain[order[i]] - 1u >= chars_max) rest[n_rest++] = order[i]; /* 0 characters are none of the slice */
    return trie_make(v->token, rest, n_rest, &s->rest);
}

static enum status slices(struct gr_vocab *v, const uint32_t *order)
{
    static const uint32_t chars_max[SLICES] = { RX_MANY, 30, 10 };
    uint32_t             *rest = malloc((v->n + 1) * sizeof *rest);
    enum status           st = rest ? vocab_plain_make(v) : ST_NOMEM;
    for (int i = 0; i < SLICES && !st; i++) st = slice(v, chars_max[i], order, rest, &v->slice[i]);
    free(rest);
    return st;
}

static enum status sort(struct gr_vocab *v)
{
    struct sorted *s = malloc((v->n + 1) * sizeof *s);
    uint32_t      *order = malloc((v->n + 1) * sizeof *order);
    v->alias = malloc((v->n + 1) * sizeof *v->alias);
    enum status st = ST_NOMEM;
    if (!s || !order || !v->alias) goto out;
    for (uint32_t i = 0; i < v->n; i++) s[i] = (struct sorted){ v->token[i], i };
    qsort(s, v->n, sizeof *s, by_bytes);
    for (uint32_t i = 0, first = 0; i < v->n; i++) {
        order[i] = s[i].token;
        bool same = i > 0 && s[i].bytes.n == s[first].bytes.n && s[i].bytes.n > 0 &&
                    memcmp(s[i].bytes.p, s[first].bytes.p, s[i].bytes.n) == 0;
        if (!same) first = i;
        if (same) v->alias[v->n_alias++] = (struct vocab_alias){ s[first].token, s[i].token };
    }
    st = trie_make(v->token, order, v->n, &v->all);
    if (!st) st = trie_index_make(&v->all);
    if (!st) st = slices(v, order);
    if (!st) st = vocab_plain_tree(v);
out:
    free(s);
    free(order);
    return st;
}

enum status gr_vocab_create(const struct token_bytes *bytes, uint32_t n_token, struct gr_vocab **v_out)
{
    if (n_token >= TRIE_NONE) return ST_TOO_LARGE;
    struct gr_vocab *v = calloc(1, sizeof *v);
    if (!v) return ST_NOMEM;
    v->n = n_token;
    v->shared = mask_shared_create();
    enum status st = v->shared ? copy(v, bytes) : ST_NOMEM;
    if (!st) st = sort(v);
    if (st)
        gr_vocab_free(v);
    else
        *v_out = v;
    return st;
}

void gr_vocab_free(struct gr_vocab *v)
{
    if (!v) return;
    mask_shared_free(v->shared);
    trie_free(&v->all);
    for (int i = 0; i < SLICES; i++) trie_free(&v->slice[i].rest);
    free(v->n_plain);
    free(v->plain_below);
    free(v->plain);
    free(v->longer);
    free(v->token);
    free(v->pool);
    free(v->alias);
    free(v);
}

uint32_t gr_vocab_n(const struct gr_vocab *v) { return v->n; }

struct token_bytes gr_vocab_token(const struct gr_vocab *v, uint32_t token)
{
    return token < v->n ? v->token[token] : (struct token_bytes){ .n = 0 };
}

void gr_vocab_forbid(const struct gr_vocab *v, const void *bytes, size_t n, uint32_t *bits)
{
    uint32_t root = trie_find(&v->all, bytes, n);
    uint32_t end = root == TRIE_NONE ? 0 : root + trie_size(v->all.node[root]);
    for (uint32_t i = root; i < end; i++) {
        uint32_t token = trie_token(v->all.node[i]);
        if (token != TRIE_NONE) bits[token / 32] &= ~(1u << (token % 32));
    }
    vocab_equal_bits(v, bits);
}

void vocab_equal_bits(const struct gr_vocab *v, uint32_t *bits)
{
    for (uint32_t i = 0; i < v->n_alias; i++) {
        uint32_t from = v->alias[i].first, to = v->alias[i].second;
        bits[to / 32] = (bits[to / 32] & ~(1u << (to % 32))) | (bits[from / 32] >> (from % 32) & 1) << (to % 32);
    }
}

size_t gr_vocab_bytes(const struct gr_vocab *v)
{
    size_t nodes = v->all.n, flags = v->all.n, words = (PLAIN_MAX + 1) * gr_words(v->n);
    for (int i = 0; i < SLICES; i++) nodes += v->slice[i].rest.n;
    return sizeof *v + sizeof *v->all.index + v->n * (sizeof *v->token + sizeof *v->alias) + v->pool_bytes +
           nodes * sizeof *v->all.node + flags + words * sizeof(uint32_t);
}
