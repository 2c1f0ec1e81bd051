#include "api/token/tok_added.h"
#include "api/token/tok_unicode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- trie: edges in an open-addressing table keyed by (node, byte) */

static uint32_t edge_at(const struct tok_trie *t, uint32_t from, unsigned char byte)
{
    uint64_t key = (uint64_t)from << 8 | byte;
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & t->mask;
    while (t->edge[at].from1 && (t->edge[at].from1 != from + 1 || t->edge[at].byte != byte)) at = (at + 1) & t->mask;
    return at;
}

static bool grow_edges(struct tok_trie *t)
{
    struct tok_trie old = *t;
    uint32_t        slots = old.edge ? (old.mask + 1) * 2 : 256;
    t->edge = calloc(slots, sizeof *t->edge);
    if (!t->edge) {
        t->edge = old.edge;
        return false;
    }
    t->mask = slots - 1;
    for (uint32_t i = 0; old.edge && i <= old.mask; i++)
        if (old.edge[i].from1) t->edge[edge_at(t, old.edge[i].from1 - 1, old.edge[i].byte)] = old.edge[i];
    free(old.edge);
    return true;
}

static bool new_node(struct tok_trie *t)
{
    if (t->n_node == t->node_cap) {
        uint32_t cap = t->node_cap ? t->node_cap * 2 : 64;
        int32_t *token = realloc(t->token, cap * sizeof *token);
        if (!token) return false;
        t->token = token;
        t->node_cap = cap;
    }
    t->token[t->n_node++] = -1;
    return true;
}

static bool trie_add(struct tok_trie *t, const char *s, size_t n, int32_t token, bool special)
{
    if (!t->n_node && !new_node(t)) return false;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        if ((!t->edge || 2 * (t->n_edge + 1) > t->mask) && !grow_edges(t)) return false;
        struct tok_trie_edge *e = &t->edge[edge_at(t, node, (unsigned char)s[i])];
        if (!e->from1) {
            if (!new_node(t)) return false;
            *e = (struct tok_trie_edge){ node + 1, t->n_node - 1, (unsigned char)s[i], false };
            t->n_edge++;
        }
        e->special = e->special || special;
        node = e->to;
    }
    if (n) t->first[(unsigned char)s[0]] = true;
    if (n && t->token[node] < 0) t->token[node] = token; /* of equal texts the first one */
    return true;
}

static void trie_free(struct tok_trie *t)
{
    free(t->edge);
    free(t->token);
    *t = (struct tok_trie){ 0 };
}

/* The longest token that begins at s; its bytes in *len. */
static int32_t trie_longest(const struct tok_trie *t, const char *s, size_t n, size_t *len)
{
    int32_t  best = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tok_trie_edge *e = &t->edge[edge_at(t, node, (unsigned char)s[i])];
        if (!e->from1) break;
        node = e->to;
        if (t->token[node] >= 0) {
            best = t->token[node];
            *len = i + 1;
        }
    }
    return best;
}

/* ---- finding */

static bool is_word(uint32_t cp) { return tok_is(cp, TRAIT_WORD); }

static bool stands_alone(const struct tok_find *f, size_t begin, size_t end)
{
    size_t before = begin, after = end;
    if (begin && is_word(tok_prev(f->s, &before))) return false;
    return end >= f->n || !is_word(tok_next(f->s, &after));
}

static size_t skip_spaces(struct tok_find *f, size_t i)
{
    if (i < f->spaces_end) return f->spaces_end; /* walked already: tokens inside a run of spaces stay linear */
    for (size_t next = i; i < f->n && tok_is(tok_next(f->s, &next), TRAIT_SPACE); i = next) {}
    f->spaces_end = i;
    return i;
}

static size_t spaces_before(const struct tok_find *f, size_t i)
{
    for (size_t prev = i; prev > f->done && tok_is(tok_prev(f->s, &prev), TRAIT_SPACE); i = prev) {}
    return i;
}

bool tok_find_next(struct tok_find *f, struct tok_found *out)
{
    if (f->waits) {
        f->waits = false;
        *out = f->next;
        return true;
    }
    const struct tok_trie *t = f->trie;
    while (t->n_edge && f->at < f->n) {
        size_t len = 0, begin = f->at;
        while (begin < f->n && !t->first[(unsigned char)f->s[begin]]) begin++;
        int32_t index = begin < f->n ? trie_longest(t, f->s + begin, f->n - begin, &len) : -1;
        f->at = begin + (index < 0 ? 1 : len);
        if (index < 0) continue;
        const struct tok_added_token *k = &f->x->token[index];
        size_t                        end = begin + len;
        if ((k->special && f->no_special) || (k->single_word && !stands_alone(f, begin, end))) continue;
        if (k->lstrip && begin > f->done) begin = spaces_before(f, begin);
        if (k->rstrip) end = skip_spaces(f, end);
        size_t done = f->done;
        f->done = end;
        f->next = (struct tok_found){ k->id, begin, end };
        if (begin <= done) {
            *out = f->next;
            return true;
        }
        f->waits = true;
        *out = (struct tok_found){ TOK_NONE, done, begin };
        return true;
    }
    f->at = f->n;
    if (f->done >= f->n) return false;
    *out = (struct tok_found){ TOK_NONE, f->done, f->n };
    f->done = f->n;
    return true;
}

const struct tok_added_token *tok_added_of(const struct tok_added *x, uint32_t id)
{
    uint32_t lo = 0, hi = x->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (x->token[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < x->n && x->token[lo].id == id ? &x->token[lo] : NULL;
}

/* The longest special token at s; a longer token that is not special hides it, as in tok_find_next. */
static bool special_at(const struct tok_added *x, const struct tok_trie *t, const char *s, size_t n, size_t *len)
{
    int32_t index = t->n_edge && t->first[(unsigned char)*s] ? trie_longest(t, s, n, len) : -1;
    return index >= 0 && x->token[index].special;
}

bool tok_added_special(const struct tok_added *x, const char *s, size_t n, size_t from, size_t *begin, size_t *end)
{
    for (size_t i = from, len; i < n; i++) {
        if (!special_at(x, &x->raw, s + i, n - i, &len) && !special_at(x, &x->normed, s + i, n - i, &len)) continue;
        *begin = i;
        *end = i + len;
        return true;
    }
    return false;
}

static bool trie_begins(const struct tok_trie *t, const char *s, size_t n)
{
    uint32_t node = 0;
    if (!t->n_edge || !t->first[(unsigned char)*s]) return false;
    for (size_t i = 0; i < n; i++) {
        const struct tok_trie_edge *e = &t->edge[edge_at(t, node, (unsigned char)s[i])];
        if (!e->from1) return false;
        node = e->to;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        const struct tok_trie_edge *e = &t->edge[edge_at(t, node, (unsigned char)byte)];
        if (e->from1 && e->special) return true;
    }
    return false;
}

bool tok_added_begins(const struct tok_added *x, const char *s, size_t n)
{
    return n && (trie_begins(&x->raw, s, n) || trie_begins(&x->normed, s, n));
}

void tok_added_free(struct tok_added *x)
{
    for (uint32_t i = 0; i < x->n; i++) free(x->token[i].normed);
    free(x->token);
    trie_free(&x->raw);
    trie_free(&x->normed);
    *x = (struct tok_added){ 0 };
}

/* ---- loading */

static int by_id(const void *a, const void *b)
{
    uint32_t x = ((const struct tok_added_token *)a)->id, y = ((const struct tok_added_token *)b)->id;
    return (x > y) - (x < y);
}

static enum status load_token(struct tok_added_token *k, const json_t *o, uint32_t i, struct tok_strs *text,
                              const struct tok_err *e)
{
    char            field[40];
    struct tok_span s;
    int64_t         id = -1;
    enum status     st;
    snprintf(field, sizeof field, "added_tokens[%u]", i);
    if (!json_is_object(o)) return tok_fail(e, "%s: must be an object", field);
    if (json_get_int(o, "id", 0, TOK_ID_BOUND - 1, &id))
        return tok_fail(e, "%s.id: must be an integer below %d", field, TOK_ID_BOUND);
    if ((st = tok_want_str(e, field, o, "content", &s))) return st;
    if (!s.n || s.n > ADDED_BYTES_MAX)
        return tok_fail(e, "%s.content: must have 1 to %d bytes", field, ADDED_BYTES_MAX);
    if ((st = tok_want_bool(e, field, o, "single_word", false, &k->single_word))) return st;
    if ((st = tok_want_bool(e, field, o, "lstrip", false, &k->lstrip))) return st;
    if ((st = tok_want_bool(e, field, o, "rstrip", false, &k->rstrip))) return st;
    if ((st = tok_want_bool(e, field, o, "special", false, &k->special))) return st;
    if ((st = tok_want_bool(e, field, o, "normalized", !k->special, &k->normalized))) return st;
    k->id = (uint32_t)id;
    int64_t known = tok_strs_find(text, s.p, s.n);
    int     show = s.n < 40 ? (int)s.n : 40;
    if (known == id) return ST_OK;
    if (known >= 0)
        return tok_fail(e, "%s.id: %d, but \"%.*s\" has the id %d already", field, (int)id, show, s.p, (int)known);
    switch (tok_strs_add(text, s.p, s.n, k->id)) {
    case TOK_ADDED: return ST_OK;
    case TOK_ADD_ID_TWICE:
        return tok_fail(e, "%s.id: %d of \"%.*s\" belongs to another token too", field, (int)id, show, s.p);
    default: return tok_fail(e, "%s: out of memory", field);
    }
}

/* Where the token is looked for, and as what. */
static enum status index_token(struct tok_added *x, uint32_t i, const struct tok_strs *text,
                               const struct tok_norm *norm, const struct tok_err *e)
{
    struct tok_added_token *k = &x->token[i];
    size_t                  n = 0;
    const char             *s = tok_strs_get(text, k->id, &n);
    x->swallows |= k->lstrip || k->rstrip;
    if (i && x->token[i - 1].id == k->id) return tok_fail(e, "added_tokens: id %u appears twice", k->id);
    if (!k->normalized) {
        if (n > x->longest) x->longest = n;
        return trie_add(&x->raw, s, n, (int32_t)i, k->special) ? ST_OK : tok_fail(e, "added_tokens: out of memory");
    }
    struct arena    a;
    struct tok_work w = { .a = &a };
    struct tok_text t = { s, n, true };
    arena_init(&a, 1 << 24);
    enum status st = tok_norm_run(norm, &w, &t);
    bool        same = !st && t.n == n && !memcmp(t.p, s, n);
    if (!st && !same && (k->normed = malloc(t.n + 1))) {
        memcpy(k->normed, t.p, t.n);
        k->n_normed = t.n;
    }
    if (t.n > x->longest) x->longest = t.n;
    if (!st && ((!same && !k->normed) || !trie_add(&x->normed, t.p, t.n, (int32_t)i, k->special))) st = ST_NOMEM;
    tok_regex_done(&w);
    arena_free(&a);
    return st ? tok_fail(e, "added_tokens: token %u cannot be normalized", k->id) : ST_OK;
}

enum status tok_added_load(struct tok_added *x, const json_t *list, struct tok_strs *text, const struct tok_norm *norm,
                           const struct tok_err *e)
{
    x->longest = 1;
    if (!list || json_is_null(list)) return ST_OK;
    if (!json_is_array(list)) return tok_fail(e, "added_tokens: must be an array");
    x->token = calloc(json_array_size(list) + 1, sizeof *x->token);
    if (!x->token) return tok_fail(e, "added_tokens: out of memory");
    enum status st = ST_OK;
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        st = load_token(&x->token[i], json_array_get(list, i), (uint32_t)i, text, e);
        x->n++;
    }
    if (st) return st;
    if (x->n) qsort(x->token, x->n, sizeof *x->token, by_id);
    for (uint32_t i = 0; i < x->n && !st; i++) st = index_token(x, i, text, norm, e);
    return st;
}
