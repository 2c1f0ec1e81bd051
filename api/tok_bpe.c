#include "api/tok_bpe.h"
#include "api/tok_unicode.h"
#include <stdatomic.h>
#include <string.h>

enum { SHORT = 32, CANON_YES = 1, CANON_NO = 2 };
static const uint32_t NO_RANK = UINT32_MAX, DEAD = UINT32_MAX;

uint32_t tok_bpe_rank(const struct tok_bpe *m, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t mask = (uint32_t)(UINT64_MAX >> m->merge_shift);
    for (uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> m->merge_shift);; at = (at + 1) & mask) {
        const struct tok_merge *e = &m->merge[at];
        if (e->rank == NO_RANK || (e->left == left && e->right == right)) return e->rank;
    }
}

/* As tok_bpe_rank; no_special: a merge that makes a special token does not exist. */
static inline uint32_t rank_of(const struct tok_bpe *m, bool no_special, uint32_t left, uint32_t right)
{
    uint32_t r = tok_bpe_rank(m, left, right);
    return no_special && r != NO_RANK && m->flags[m->merged[r]] & TOK_F_SPECIAL ? NO_RANK : r;
}

static inline bool no_special(const struct tok_bpe *m, const struct tok_work *w)
{
    return m->merges_special && w->flags & TOK_NO_SPECIAL_PARSE;
}

int64_t tok_bpe_char(const struct tok_bpe *m, const char *s, size_t n, uint32_t cp)
{
    if (cp < 0x10000) return (int64_t)m->char_id[cp] - 1;
    int64_t id = tok_strs_find(m->text, s, n);
    return id >= 0 && m->flags[id] & TOK_F_MODEL ? id : TOK_NONE;
}

/* ---- short pieces: rank[i] is of the pair (i, i + 1) */

static uint32_t merge_short(const struct tok_bpe *m, bool guard, uint32_t *id, uint32_t *rank, uint32_t n)
{
    while (n > 1) {
        uint32_t best = NO_RANK, at = 0;
        for (uint32_t i = 0; i + 1 < n; i++)
            if (rank[i] < best) best = rank[i], at = i;
        if (best == NO_RANK) break;
        id[at] = m->merged[best];
        for (uint32_t i = at + 1; i + 1 < n; i++) id[i] = id[i + 1], rank[i] = rank[i + 1];
        n--;
        if (at + 1 < n) rank[at] = rank_of(m, guard, id[at], id[at + 1]);
        if (at) rank[at - 1] = rank_of(m, guard, id[at - 1], id[at]);
    }
    return n;
}

static uint32_t merge_short_bytes(const struct tok_bpe *m, bool guard, const char *s, size_t n, uint32_t *id)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t             rank[SHORT];
    for (size_t i = 0; i < n; i++) id[i] = m->char_of_byte[p[i]];
    for (size_t i = 0; i + 1 < n; i++) {
        uint32_t r = m->pair_of_bytes[(size_t)p[i] << 8 | p[i + 1]];
        rank[i] = guard && r != NO_RANK && m->flags[m->merged[r]] & TOK_F_SPECIAL ? NO_RANK : r;
    }
    return merge_short(m, guard, id, rank, (uint32_t)n);
}

static uint32_t merge_short_ids(const struct tok_bpe *m, bool guard, uint32_t *id, uint32_t n)
{
    uint32_t rank[SHORT];
    for (uint32_t i = 0; i + 1 < n; i++) rank[i] = rank_of(m, guard, id[i], id[i + 1]);
    return merge_short(m, guard, id, rank, n);
}

static enum status emit_all(struct tok_work *w, const uint32_t *id, uint32_t n)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; i < n && !st; i++) st = tok_emit(w, id[i]);
    return st;
}

/* ---- long pieces: a heap of rank << 32 | position. A symbol is a span of cells; id and length stand in its first cell, the length
 * in its last one too, so that both neighbours are found. Cells inside a span are DEAD. */

struct span {
    uint32_t *id, *len;
    uint32_t  n;
};

static uint32_t span_rank(const struct tok_bpe *m, bool guard, const struct span *x, uint32_t at)
{
    uint32_t right = at + x->len[at];
    return right < x->n ? rank_of(m, guard, x->id[at], x->id[right]) : NO_RANK;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t v = heap[i];
    for (size_t child; (child = 4 * i + 1) < n; i = child) {
        size_t last = child + 4 < n ? child + 4 : n;
        for (size_t c = child + 1; c < last; c++)
            if (heap[c] < heap[child]) child = c;
        if (heap[child] >= v) break;
        heap[i] = heap[child];
    }
    heap[i] = v;
}

static void sift_up(uint64_t *heap, size_t i)
{
    uint64_t v = heap[i];
    for (; i && heap[(i - 1) / 4] > v; i = (i - 1) / 4) heap[i] = heap[(i - 1) / 4];
    heap[i] = v;
}

static void heapify(uint64_t *heap, size_t n)
{
    for (size_t i = n / 4 + 1; i-- > 0;)
        if (i < n) sift_down(heap, n, i);
}

static bool is_current(const struct tok_bpe *m, bool guard, const struct span *x, uint64_t entry)
{
    uint32_t at = (uint32_t)entry;
    return x->id[at] != DEAD && span_rank(m, guard, x, at) == entry >> 32;
}

/* Entries of pairs that are gone make room: at most as many stay as there are pairs. */
static size_t drop_stale(const struct tok_bpe *m, bool guard, const struct span *x, uint64_t *heap, size_t n)
{
    size_t keep = 0;
    for (size_t i = 0; i < n; i++)
        if (is_current(m, guard, x, heap[i])) heap[keep++] = heap[i];
    heapify(heap, keep);
    return keep;
}

static size_t long_cells(size_t n) { return n + n / 4 + 16; } /* of the heap */
static size_t long_bytes(size_t n) { return n * 2 * sizeof(uint32_t) + (long_cells(n) + 1) * sizeof(uint64_t); }

/* x->id is filled; the heap and len lie behind it in the same scratch. Returns with the ids that are left at the front of x->id. */
static uint32_t merge_long(const struct tok_bpe *m, bool guard, struct span *x, uint64_t *heap, size_t cap)
{
    size_t n_heap = 0;
    for (uint32_t i = 0; i < x->n; i++) x->len[i] = 1;
    for (uint32_t i = 0; i + 1 < x->n; i++) {
        uint32_t r = rank_of(m, guard, x->id[i], x->id[i + 1]);
        if (r != NO_RANK) heap[n_heap++] = (uint64_t)r << 32 | i;
    }
    heapify(heap, n_heap);
    while (n_heap) {
        uint64_t top = heap[0];
        heap[0] = heap[--n_heap];
        if (n_heap) sift_down(heap, n_heap, 0);
        if (!is_current(m, guard, x, top)) continue;
        uint32_t at = (uint32_t)top, right = at + x->len[at], len = x->len[at] + x->len[right];
        x->id[right] = DEAD;
        x->id[at] = m->merged[top >> 32];
        x->len[at] = x->len[at + len - 1] = len;
        if (n_heap + 2 > cap) n_heap = drop_stale(m, guard, x, heap, n_heap);
        uint32_t r = span_rank(m, guard, x, at);
        if (r != NO_RANK) {
            heap[n_heap] = (uint64_t)r << 32 | at;
            sift_up(heap, n_heap++);
        }
        if (!at) continue;
        uint32_t left = at - x->len[at - 1];
        if ((r = span_rank(m, guard, x, left)) != NO_RANK) {
            heap[n_heap] = (uint64_t)r << 32 | left;
            sift_up(heap, n_heap++);
        }
    }
    uint32_t n = 0;
    for (uint32_t i = 0, next; i < x->n; i = next) {
        next = i + x->len[i];
        x->id[n++] = x->id[i];
    }
    return n;
}

/* Scratch for n symbols; NULL: too many, or the arena is full. */
static uint32_t *long_ids(struct tok_work *w, size_t n)
{
    return n < UINT32_MAX / 4 ? (uint32_t *)(void *)tok_scratch(w, &w->bpe, long_bytes(n)) : NULL;
}

static enum status encode_long(const struct tok_bpe *m, struct tok_work *w, uint32_t *id, size_t n)
{
    struct span x = { id, id + n, (uint32_t)n };
    uint64_t   *heap = (uint64_t *)(void *)(id + 2 * n);
    uint32_t    left = merge_long(m, no_special(m, w), &x, heap, long_cells(n) - 8);
    return emit_all(w, id, left);
}

/* ---- pieces */

/* Would the model, given this token's own bytes (or characters), make it again? */
static bool is_canonical(const struct tok_bpe *m, uint32_t id, bool bytes)
{
    unsigned char known = atomic_load_explicit(&m->canon[id], memory_order_relaxed);
    if (known) return known == CANON_YES;
    uint32_t    ids[SHORT], k = 0;
    size_t      n = 0;
    const char *s = tok_strs_get(bytes ? &m->raw : m->text, id, &n);
    if (bytes) {
        k = merge_short_bytes(m, false, s, n, ids);
    } else {
        for (size_t i = 0; i < n && k < SHORT;) {
            size_t   at = i;
            uint32_t cp = tok_next(s, &i);
            int64_t  c = tok_bpe_char(m, s + at, i - at, cp);
            if (c < 0) break;
            ids[k++] = (uint32_t)c;
        }
        k = merge_short_ids(m, false, ids, k);
    }
    bool yes = k == 1 && ids[0] == id;
    atomic_store_explicit(&m->canon[id], yes ? CANON_YES : CANON_NO, memory_order_relaxed);
    return yes;
}

static bool may_be(const struct tok_bpe *m, const struct tok_work *w, int64_t id)
{
    return id >= 0 && m->flags[id] & TOK_F_MODEL && !(w->flags & TOK_NO_SPECIAL_PARSE && m->flags[id] & TOK_F_SPECIAL);
}

/* More ids than may be, whatever is in it: known before any work is done. */
static bool is_hopeless(const struct tok_bpe *m, const struct tok_work *w, size_t n) { return n / m->longest > w->ids_max - w->out->n; }

static enum status bytes_part(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n == 1) return tok_emit(w, m->char_of_byte[p[0]]);
    if (n <= SHORT) {
        int64_t id = tok_strs_find(&m->raw, s, n);
        if (may_be(m, w, id) && is_canonical(m, (uint32_t)id, true)) return tok_emit(w, (uint32_t)id);
        uint32_t ids[SHORT];
        return emit_all(w, ids, merge_short_bytes(m, no_special(m, w), s, n, ids));
    }
    if (is_hopeless(m, w, n)) return ST_TOO_LARGE;
    uint32_t *id = long_ids(w, n);
    if (!id) return ST_TOO_LARGE;
    for (size_t i = 0; i < n; i++) id[i] = m->char_of_byte[p[i]];
    return encode_long(m, w, id, n);
}

enum status tok_bpe_bytes(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n)
{
    if (m->ignore_merges && n <= m->longest) {
        int64_t id = tok_strs_find(&m->raw, s, n);
        if (may_be(m, w, id)) return tok_emit(w, (uint32_t)id);
    }
    if (n <= SHORT) return n ? bytes_part(m, w, s, n) : ST_OK;
    const unsigned char *p = (const unsigned char *)s;
    enum status          st = ST_OK;
    for (size_t i = 0, j; i < n && !st; i = j) {
        for (j = i + 1; j < n && m->byte_joins[p[j - 1]][p[j] >> 6] >> (p[j] & 63) & 1; j++) {}
        st = bytes_part(m, w, s + i, j - i);
    }
    return st;
}

/* ---- characters */

static bool joins(const struct tok_bpe *m, uint32_t a, uint32_t b)
{
    if ((a | b) < 128) return m->ascii_joins[a][b >> 6] >> (b & 63) & 1;
    uint64_t key = ((uint64_t)a << 21 | b) + 1;
    for (uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 40) & m->joins_mask;; at = (at + 1) & m->joins_mask) {
        if (m->joins[at] == key) return true;
        if (!m->joins[at]) return false;
    }
}

/* A run of known characters that merges may join: [at, end) of s, count of them; the first SHORT ids in id. */
static enum status text_part(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n, size_t count, uint32_t *id)
{
    if (count == 1) return tok_emit(w, id[0]);
    if (count <= SHORT) {
        int64_t whole = tok_strs_find(m->text, s, n);
        if (may_be(m, w, whole) && is_canonical(m, (uint32_t)whole, false)) return tok_emit(w, (uint32_t)whole);
        return emit_all(w, id, merge_short_ids(m, no_special(m, w), id, (uint32_t)count));
    }
    if (is_hopeless(m, w, n)) return ST_TOO_LARGE;
    uint32_t *ids = long_ids(w, count);
    if (!ids) return ST_TOO_LARGE;
    for (size_t i = 0, k = 0; i < n;) {
        size_t   at = i;
        uint32_t cp = tok_next(s, &i);
        ids[k++] = (uint32_t)tok_bpe_char(m, s + at, i - at, cp);
    }
    return encode_long(m, w, ids, count);
}

/* Symbols of a character that is no token, in the library's order: byte tokens at once; unk when the next known character comes,
 * or the next unk that does not fuse with it. */
struct unknown {
    bool pending;
};

static bool has_byte_tokens(const struct tok_bpe *m, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (m->byte_id[(unsigned char)s[i]] < 0) return false;
    return m->byte_fallback;
}

static enum status unknown_char(const struct tok_bpe *m, struct tok_work *w, struct unknown *u, const char *s, size_t n)
{
    enum status st = ST_OK;
    if (has_byte_tokens(m, s, n)) {
        for (size_t i = 0; i < n && !st; i++) st = tok_emit(w, (uint32_t)m->byte_id[(unsigned char)s[i]]);
        return st;
    }
    if (m->unk < 0) return ST_OK;
    if (u->pending && !m->fuse_unk) st = tok_emit(w, (uint32_t)m->unk);
    u->pending = true;
    return st;
}

static enum status unknown_flush(const struct tok_bpe *m, struct tok_work *w, struct unknown *u)
{
    if (!u->pending) return ST_OK;
    u->pending = false;
    return tok_emit(w, (uint32_t)m->unk);
}

/* The general case: all symbols first, with affixes, then merges over all of them. */
static enum status encode_exotic(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n)
{
    size_t per_char = 1 + m->n_prefix + m->n_suffix;
    if (n > SIZE_MAX / 64 / per_char) return ST_TOO_LARGE;
    uint32_t *id = long_ids(w, n * per_char + 1);
    char     *with = tok_scratch(w, &w->stage[TOK_STAGES_MAX - 1], per_char + 8); /* a stage that no chain reaches */
    if (!id || !with) return ST_TOO_LARGE;
    size_t k = 0;
    bool   pending = false;
    for (size_t i = 0; i < n;) {
        size_t at = i, len = 0;
        tok_next(s, &i);
        if (at && m->n_prefix) memcpy(with, m->prefix, len = m->n_prefix);
        memcpy(with + len, s + at, i - at), len += i - at;
        if (i == n && m->n_suffix) memcpy(with + len, m->suffix, m->n_suffix), len += m->n_suffix;
        int64_t c = tok_strs_find(m->text, with, len);
        if (c >= 0 && m->flags[c] & TOK_F_MODEL) {
            if (pending) id[k++] = (uint32_t)m->unk;
            pending = false;
            id[k++] = (uint32_t)c;
        } else if (has_byte_tokens(m, with, len)) {
            for (size_t b = 0; b < len; b++) id[k++] = (uint32_t)m->byte_id[(unsigned char)with[b]];
        } else if (m->unk >= 0) {
            if (pending && !m->fuse_unk) id[k++] = (uint32_t)m->unk;
            pending = true;
        }
    }
    if (pending) id[k++] = (uint32_t)m->unk;
    return k ? encode_long(m, w, id, k) : ST_OK;
}

enum status tok_bpe_text(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n)
{
    if (m->ignore_merges && n <= m->longest) {
        int64_t id = tok_strs_find(m->text, s, n);
        if (may_be(m, w, id)) return tok_emit(w, (uint32_t)id);
    }
    if (m->exotic) return n ? encode_exotic(m, w, s, n) : ST_OK;
    struct unknown u = { false };
    enum status    st = ST_OK;
    for (size_t i = 0; i < n && !st;) {
        size_t   at = i, count = 1, end;
        uint32_t ids[SHORT], cp = tok_next(s, &i);
        int64_t  id = tok_bpe_char(m, s + at, i - at, cp);
        if (id < 0) {
            st = unknown_char(m, w, &u, s + at, i - at);
            continue;
        }
        ids[0] = (uint32_t)id;
        for (end = i; end < n; i = end, count++) {
            uint32_t next = tok_next(s, &end);
            if (!joins(m, cp, next) || (id = tok_bpe_char(m, s + i, end - i, next)) < 0) break;
            if (count < SHORT) ids[count] = (uint32_t)id;
            cp = next;
        }
        st = unknown_flush(m, w, &u);
        if (!st) st = text_part(m, w, s + at, i - at, count, ids);
    }
    return st ? st : unknown_flush(m, w, &u);
}
