#include "api/token/tok_merge.h"
#include "api/token/tok_unicode.h"
#include <stdatomic.h>
#include <string.h>

enum { SHORT = 32, CANON_YES = 1, CANON_NO = 2 };
static const uint32_t NO_RANK = TOK_NO_RANK;

/* ---- short pieces: rank[i] is of the pair (i, i + 1) */

static uint32_t merge_short(const struct tok_bpe *m, bool guard, uint32_t *id, uint32_t *rank, uint32_t n)
{
    while (n > 1) {
        uint32_t best = NO_RANK, at = 0;
        for (uint32_t i = 0; i + 1 < n; i++)
            if (rank[i] < best) {
                best = rank[i];
                at = i;
            }
        if (best == NO_RANK) break;
        id[at] = m->merged[best];
        for (uint32_t i = at + 1; i + 1 < n; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
        }
        n--;
        if (at + 1 < n) rank[at] = tok_bpe_rank_of(m, guard, id[at], id[at + 1]);
        if (at) rank[at - 1] = tok_bpe_rank_of(m, guard, id[at - 1], id[at]);
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
    for (uint32_t i = 0; i + 1 < n; i++) rank[i] = tok_bpe_rank_of(m, guard, id[i], id[i + 1]);
    return merge_short(m, guard, id, rank, n);
}

static enum status emit_all(struct tok_work *w, const uint32_t *id, uint32_t n)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; i < n && !st; i++) st = tok_emit(w, id[i]);
    return st;
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
static bool is_hopeless(const struct tok_bpe *m, const struct tok_work *w, size_t n)
{
    return n / m->longest > w->ids_max - w->out->n;
}

static enum status bytes_part(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n == 1) return tok_emit(w, m->char_of_byte[p[0]]);
    if (n <= SHORT) {
        int64_t id = tok_strs_find(&m->raw, s, n);
        if (may_be(m, w, id) && is_canonical(m, (uint32_t)id, true)) return tok_emit(w, (uint32_t)id);
        uint32_t ids[SHORT];
        return emit_all(w, ids, merge_short_bytes(m, tok_bpe_guard(m, w), s, n, ids));
    }
    if (is_hopeless(m, w, n)) return ST_TOO_LARGE;
    return tok_merge_long(m, w, &(struct tok_symbols){ .kind = SYMBOLS_BYTES, .s = s, .n = n });
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
static enum status text_part(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n, size_t count,
                             uint32_t *id)
{
    if (count == 1) return tok_emit(w, id[0]);
    if (count <= SHORT) {
        int64_t whole = tok_strs_find(m->text, s, n);
        if (may_be(m, w, whole) && is_canonical(m, (uint32_t)whole, false)) return tok_emit(w, (uint32_t)whole);
        return emit_all(w, id, merge_short_ids(m, tok_bpe_guard(m, w), id, (uint32_t)count));
    }
    if (is_hopeless(m, w, n)) return ST_TOO_LARGE;
    return tok_merge_long(m, w, &(struct tok_symbols){ .kind = SYMBOLS_CHARS, .s = s, .n = n });
}

/* Symbols of a character that is no token, in the library's order: byte tokens at once; unk when the next known
 * character comes, or the next unk that does not fuse with it. */
struct unknown {
    bool pending;
};

static bool has_byte_tokens(const struct tok_bpe *m, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (m->byte_id[(unsigned char)s[i]] < 0) return false;
    return m->byte_fallback;
}

static bool is_dropped(const struct tok_bpe *m, const char *s, size_t n)
{
    return m->unk < 0 && !has_byte_tokens(m, s, n);
}

static enum status unknown_char(const struct tok_bpe *m, struct tok_work *w, struct unknown *u, const char *s, size_t n)
{
    enum status st = ST_OK;
    if (has_byte_tokens(m, s, n)) {
        for (size_t i = 0; i < n && !st; i++) st = tok_emit(w, (uint32_t)m->byte_id[(unsigned char)s[i]]);
        return st;
    }
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
    uint32_t *id = (uint32_t *)(void *)tok_scratch(w, &w->stage[TOK_STAGES_MAX - 2], (n * per_char + 1) * sizeof *id);
    char     *with = tok_scratch(w, &w->stage[TOK_STAGES_MAX - 1], per_char + 8); /* stages that no chain reaches */
    if (!id || !with) return ST_TOO_LARGE;
    size_t k = 0;
    bool   pending = false;
    for (size_t i = 0; i < n;) {
        size_t at = i, len = 0;
        tok_next(s, &i);
        if (at && m->n_prefix) memcpy(with, m->prefix, len = m->n_prefix);
        memcpy(with + len, s + at, i - at);
        len += i - at;
        if (i == n && m->n_suffix) {
            memcpy(with + len, m->suffix, m->n_suffix);
            len += m->n_suffix;
        }
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
    return k ? tok_merge_long(m, w, &(struct tok_symbols){ .kind = SYMBOLS_IDS, .id = id, .n = k }) : ST_OK;
}

/* The symbols of s in order, merged where they may join. *drops: a character leaves nothing behind, so what stands here
 * does not count. */
static enum status encode_chars(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n, bool *drops)
{
    struct unknown u = { false };
    enum status    st = ST_OK;
    for (size_t i = 0; i < n && !st;) {
        size_t   at = i, count = 1, end;
        uint32_t ids[SHORT], cp = tok_next(s, &i);
        int64_t  id = tok_bpe_char(m, s + at, i - at, cp);
        if (id < 0) {
            *drops = is_dropped(m, s + at, i - at);
            if (*drops) return ST_OK;
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

/* A character that is neither a token nor bytes of it nor unk is as if it were not there: the library merges what
 * stands beside it. */
static enum status encode_kept(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n)
{
    char  *kept = tok_scratch(w, &w->stage[TOK_STAGES_MAX - 2], n); /* of a stage that no chain reaches */
    size_t k = 0;
    bool   drops = false;
    if (!kept) return ST_TOO_LARGE;
    for (size_t i = 0; i < n;) {
        size_t   at = i;
        uint32_t cp = tok_next(s, &i);
        if (tok_bpe_char(m, s + at, i - at, cp) < 0 && is_dropped(m, s + at, i - at)) continue;
        memcpy(kept + k, s + at, i - at);
        k += i - at;
    }
    return encode_chars(m, w, kept, k, &drops);
}

enum status tok_bpe_text(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n)
{
    if (m->ignore_merges && n <= m->longest) {
        int64_t id = tok_strs_find(m->text, s, n);
        if (may_be(m, w, id)) return tok_emit(w, (uint32_t)id);
    }
    if (m->exotic) return n ? encode_exotic(m, w, s, n) : ST_OK;
    size_t      mark = w->out->n;
    bool        drops = false;
    enum status st = encode_chars(m, w, s, n, &drops);
    if (st || !drops) return st;
    w->out->n = mark;
    return encode_kept(m, w, s, n);
}
