#include "api/token/tok_bpe_load.h"
#include "api/token/tok_unicode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MERGES_MAX = 1 << 23, SHOWN = 40 };

static int         shown(struct tok_span s) { return s.n < SHOWN ? (int)s.n : SHOWN; }
static enum status no_memory(const struct tok_err *e) { return tok_fail(e, "model: out of memory"); }

/* ---- merges: ["a b", ...] or [["a", "b"], ...] */

static enum status add_merge(const struct tok_strs *text, struct tok_merges *m, const char *place,
                             const struct tok_span *side, const struct tok_err *e)
{
    int64_t id[2];
    for (int i = 0; i < 2; i++)
        if ((id[i] = tok_strs_find(text, side[i].p, side[i].n)) < 0)
            return tok_fail(e, "%s: names the token \"%.*s\", which is not in model.vocab", place, shown(side[i]),
                            side[i].p);
    if (m->n == m->cap) {
        uint32_t  cap = m->cap ? m->cap * 2 : 4096;
        uint32_t *pair = m->n < MERGES_MAX ? realloc(m->pair, (size_t)cap * 2 * sizeof *pair) : NULL;
        if (!pair) return m->n < MERGES_MAX ? no_memory(e) : tok_fail(e, "model.merges: more than %d", MERGES_MAX);
        m->pair = pair;
        m->cap = cap;
    }
    m->pair[2 * m->n] = (uint32_t)id[0];
    m->pair[2 * m->n + 1] = (uint32_t)id[1];
    m->n++;
    return ST_OK;
}

static enum status read_merge(struct tok_json *j, const struct tok_strs *text, struct tok_merges *m, struct buf *first,
                              const struct tok_err *e)
{
    char            place[40];
    struct tok_span side[2], whole;
    snprintf(place, sizeof place, "model.merges[%u]", m->n);
    if (tok_json_peek(j) == '[') {
        struct tok_json_walk w;
        tok_json_begin(j, &w, '[');
        for (int i = 0; i < 2; i++) {
            if (!tok_json_next(j, &w) || !tok_json_string(j, &side[i]))
                return tok_fail(e, "%s: must be two strings", place);
            if (!i) {
                buf_clear(first);
                buf_put(first, side[0].p, side[0].n);
                if (first->failed) return no_memory(e);
                side[0].p = first->data ? first->data : "";
            }
        }
        if (tok_json_next(j, &w) || !w.ok) return tok_fail(e, "%s: must be two strings", place);
        return add_merge(text, m, place, side, e);
    }
    if (!tok_json_string(j, &whole)) return tok_fail(e, "%s: must be a string or two", place);
    const char *space = memchr(whole.p, ' ', whole.n);
    if (!space || memchr(space + 1, ' ', whole.n - (size_t)(space - whole.p) - 1))
        return tok_fail(e, "%s: must be two tokens with one space between them", place);
    side[0] = (struct tok_span){ whole.p, (size_t)(space - whole.p) };
    side[1] = (struct tok_span){ space + 1, whole.n - side[0].n - 1 };
    return add_merge(text, m, place, side, e);
}

static enum status load_merges(const struct tok_strs *text, struct tok_merges *m, struct tok_span span,
                               const struct tok_err *e)
{
    struct tok_json      j;
    struct tok_json_walk w;
    struct buf           first;
    enum status          st = ST_OK;
    bool                 version = false; /* "#version: 0.2" lines of merges.txt are skipped, as the library does */
    tok_json_init(&j, span.p, span.n);
    buf_init(&first, span.n);
    if (!tok_json_begin(&j, &w, '[')) st = tok_fail(e, "model.merges: must be an array");
    while (!st && tok_json_next(&j, &w)) {
        version = tok_json_peek(&j) == '"' && j.end - j.p > 9 && !memcmp(j.p, "\"#version", 9);
        if (version) {
            struct tok_span line;
            if (!tok_json_string(&j, &line)) st = tok_fail(e, "model.merges[%u]: bad JSON", m->n);
        } else {
            st = read_merge(&j, text, m, &first, e);
        }
    }
    if (!st && !w.ok) st = tok_fail(e, "model.merges: bad JSON after %u entries", m->n);
    buf_free(&first);
    tok_json_free(&j);
    return st;
}

/* ---- the model object */

static enum status load_options(struct tok_bpe *m, const struct tok_strs *text, const json_t *o,
                                const struct tok_err *e)
{
    struct tok_span unk, prefix, suffix;
    enum status     st;
    double          dropout = 0;
    if ((st = tok_want_bool(e, "model", o, "fuse_unk", false, &m->fuse_unk))) return st;
    if ((st = tok_want_bool(e, "model", o, "byte_fallback", false, &m->byte_fallback))) return st;
    if ((st = tok_want_bool(e, "model", o, "ignore_merges", false, &m->ignore_merges))) return st;
    if ((st = tok_want_str(e, "model", o, "unk_token", &unk))) return st;
    if ((st = tok_want_str(e, "model", o, "continuing_subword_prefix", &prefix))) return st;
    if ((st = tok_want_str(e, "model", o, "end_of_word_suffix", &suffix))) return st;
    if (json_get_num(o, "dropout", 0, 0, &dropout) == ST_INVALID)
        return tok_fail(e, "model.dropout: must be null or 0, serving is exact");
    m->unk = unk.p ? tok_strs_find(text, unk.p, unk.n) : TOK_NONE;
    if (unk.p && m->unk < 0) return tok_fail(e, "model.unk_token: \"%.*s\" is not in model.vocab", shown(unk), unk.p);
    if (prefix.n > TOK_TOKEN_BYTES_MAX || suffix.n > TOK_TOKEN_BYTES_MAX)
        return tok_fail(e, "model: affix longer than %d bytes", TOK_TOKEN_BYTES_MAX);
    m->prefix = prefix.n ? strndup(prefix.p, prefix.n) : NULL;
    m->suffix = suffix.n ? strndup(suffix.p, suffix.n) : NULL;
    m->n_prefix = m->prefix ? strlen(m->prefix) : 0;
    m->n_suffix = m->suffix ? strlen(m->suffix) : 0;
    return ST_OK;
}

enum status tok_bpe_load(struct tok_bpe *m, struct tok_strs *text, struct tok_merges *merges,
                         const struct tok_model_parts *p, const struct tok_err *e)
{
    enum status st = ST_OK;
    if (!p->vocab.p) st = tok_fail(e, "model.vocab: is missing");
    if (!st && !p->merges.p) st = tok_fail(e, "model.merges: is missing");
    if (!st) st = tok_vocab_load(text, p->vocab, e);
    if (!st) st = load_options(m, text, p->rest, e);
    if (!st) st = load_merges(text, merges, p->merges, e);
    return st;
}

/* ---- tables */

static bool add_join(struct tok_bpe *m, uint32_t a, uint32_t b)
{
    if ((a | b) < 128) {
        m->ascii_joins[a][b >> 6] |= (uint64_t)1 << (b & 63);
        return true;
    }
    if (2 * (m->n_joins + 1) > m->joins_mask) {
        uint32_t  mask = m->joins ? m->joins_mask * 2 + 1 : 1023;
        uint64_t *joins = calloc((size_t)mask + 1, sizeof *joins);
        if (!joins) return false;
        for (uint32_t i = 0; m->joins && i <= m->joins_mask; i++) {
            if (!m->joins[i]) continue;
            uint32_t at = (uint32_t)(m->joins[i] * 0x9e3779b97f4a7c15u >> 40) & mask;
            while (joins[at]) at = (at + 1) & mask;
            joins[at] = m->joins[i];
        }
        free(m->joins);
        m->joins = joins;
        m->joins_mask = mask;
    }
    uint64_t key = ((uint64_t)a << 21 | b) + 1;
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 40) & m->joins_mask;
    while (m->joins[at] && m->joins[at] != key) at = (at + 1) & m->joins_mask;
    if (!m->joins[at]) {
        m->joins[at] = key;
        m->n_joins++;
    }
    return true;
}

/* Which two characters (or bytes) a merge brings together: the last of its left side and the first of its right
 * side. */
static bool index_joins(struct tok_bpe *m, const struct tok_merges *merges)
{
    if (!add_join(m, 0x10ffff, 0x10ffff)) return false; /* the table exists */
    for (uint32_t i = 0; i < merges->n; i++) {
        size_t      nl = 0, nr = 0;
        const char *l = tok_strs_get(m->fast_bytes ? &m->raw : m->text, merges->pair[2 * i], &nl);
        const char *r = tok_strs_get(m->fast_bytes ? &m->raw : m->text, merges->pair[2 * i + 1], &nr);
        if (!l || !r || !nl || !nr) continue; /* a side that no piece ever holds */
        if (m->fast_bytes) {
            unsigned char a = (unsigned char)l[nl - 1], b = (unsigned char)r[0];
            m->byte_joins[a][b >> 6] |= (uint64_t)1 << (b & 63);
        } else {
            size_t   end = nl, start = 0;
            uint32_t a = tok_prev(l, &end);
            if (!add_join(m, a, tok_next(r, &start))) return false;
        }
    }
    return true;
}

static void put_merge(struct tok_bpe *m, uint32_t left, uint32_t right, uint32_t rank)
{
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t mask = (uint32_t)(UINT64_MAX >> m->merge_shift);
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> m->merge_shift);
    while (m->merge[at].rank != UINT32_MAX && (m->merge[at].left != left || m->merge[at].right != right))
        at = (at + 1) & mask;
    m->merge[at] = (struct tok_merge){ left, right, rank }; /* of equal pairs the last one counts, as in the library */
}

static enum status index_merges(struct tok_bpe *m, const struct tok_merges *merges, const struct tok_err *e)
{
    uint32_t bits = 4;
    while ((uint64_t)1 << bits < 2 * ((uint64_t)merges->n + 1)) bits++;
    m->merge_shift = 64 - bits;
    m->n_merge = merges->n;
    m->merge = malloc(sizeof *m->merge << bits);
    m->merged = malloc(((size_t)merges->n + 1) * sizeof *m->merged);
    if (!m->merge || !m->merged) return no_memory(e);
    memset(m->merge, 0xff, sizeof *m->merge << bits);
    struct buf whole;
    buf_init(&whole, 2 * TOK_TOKEN_BYTES_MAX);
    enum status st = ST_OK;
    for (uint32_t i = 0; i < merges->n && !st; i++) {
        uint32_t    left = merges->pair[2 * i], right = merges->pair[2 * i + 1];
        size_t      nl = 0, nr = 0;
        const char *l = tok_strs_get(m->text, left, &nl), *r = tok_strs_get(m->text, right, &nr);
        if (m->n_prefix && (nr < m->n_prefix)) {
            st = tok_fail(e, "model.merges[%u]: the right side is shorter than continuing_subword_prefix", i);
            break;
        }
        buf_clear(&whole);
        buf_put(&whole, l, nl);
        buf_put(&whole, r + m->n_prefix, nr - m->n_prefix);
        const char *joined = whole.data ? whole.data : "";
        int64_t     id = whole.failed ? TOK_NONE : tok_strs_find(m->text, joined, whole.n);
        if (id < 0 || !(m->flags[id] & TOK_F_MODEL)) {
            struct tok_span s = { joined, whole.n };
            st = tok_fail(e, "model.merges[%u]: makes the token \"%.*s\", which is not in model.vocab", i, shown(s),
                          s.p);
            break;
        }
        m->merged[i] = (uint32_t)id;
        if (m->flags[id] & TOK_F_SPECIAL) m->merges_special = true;
        put_merge(m, left, right, i);
    }
    buf_free(&whole);
    return st;
}

/* Merges of unk, or of byte tokens that fallback makes, join what is no character of theirs. */
static bool is_exotic(const struct tok_bpe *m, const struct tok_merges *merges)
{
    if (m->n_prefix || m->n_suffix) return true;
    for (uint32_t i = 0; i < 2 * merges->n; i++) {
        if (merges->pair[i] == m->unk) return true;
        size_t      n = 0;
        const char *s = tok_strs_get(m->text, merges->pair[i], &n);
        if (!n) return true;
        if (m->byte_fallback && n == 6 && !memcmp(s, "<0x", 3))
            for (int b = 0; b < 256; b++)
                if (m->byte_id[b] == merges->pair[i]) return true;
    }
    return false;
}

static enum status index_chars(struct tok_bpe *m, const struct tok_err *e)
{
    m->char_id = calloc(65536, sizeof *m->char_id);
    if (!m->char_id) return no_memory(e);
    m->longest = 1;
    for (uint32_t id = 0; id < m->text->n_id; id++) {
        size_t      n = 0, i = 0;
        const char *s = tok_strs_get(m->text, id, &n);
        if (!s || !(m->flags[id] & TOK_F_MODEL)) continue;
        if (n > m->longest) m->longest = n;
        if (!n || n > 3) continue;
        uint32_t cp = tok_next(s, &i);
        if (i == n && cp < 65536) m->char_id[cp] = id + 1;
    }
    return ST_OK;
}

/* The byte-level fast path: every byte has its token, so a piece never needs its byte-level text. */
static enum status index_raw(struct tok_bpe *m, const struct tok_merges *merges, const struct tok_err *e)
{
    for (int b = 0; b < 256; b++) {
        uint32_t id1 = m->char_id[tok_byte_char[b]];
        if (!id1) return ST_OK;
        m->char_of_byte[b] = id1 - 1;
    }
    m->fast_bytes = true;
    m->pair_of_bytes = malloc(65536 * sizeof *m->pair_of_bytes);
    char *raw = malloc(m->longest + 1);
    bool  ok = raw && m->pair_of_bytes && tok_strs_init(&m->raw, m->text->n);
    for (uint32_t id = 0; ok && id < m->text->n_id; id++) {
        size_t      n = 0;
        const char *s = m->flags[id] & TOK_F_MODEL ? tok_strs_get(m->text, id, &n) : NULL;
        int64_t     k = s ? tok_byte_level_decode(s, n, raw) : -1;
        if (k >= 0) ok = tok_strs_add(&m->raw, raw, (size_t)k, id) != TOK_ADD_NO_MEMORY;
    }
    free(raw);
    if (!ok) return no_memory(e);
    for (uint32_t i = 0; i < 65536; i++) m->pair_of_bytes[i] = UINT32_MAX;
    for (uint32_t i = 0; i < merges->n; i++) {
        size_t      nl = 0, nr = 0;
        const char *l = tok_strs_get(&m->raw, merges->pair[2 * i], &nl),
                   *r = tok_strs_get(&m->raw, merges->pair[2 * i + 1], &nr);
        if (l && r && nl == 1 && nr == 1)
            m->pair_of_bytes[(size_t)(unsigned char)l[0] << 8 | (unsigned char)r[0]] =
                tok_bpe_rank(m, merges->pair[2 * i], merges->pair[2 * i + 1]);
    }
    return ST_OK;
}

enum status tok_bpe_index(struct tok_bpe *m, const struct tok_strs *text, const unsigned char *flags,
                          const struct tok_merges *merges, bool byte_level, const struct tok_err *e)
{
    m->text = text;
    m->flags = flags;
    m->canon = calloc(text->n_id, sizeof *m->canon);
    if (!m->canon) return no_memory(e);
    tok_byte_tokens(text, flags, m->byte_id);
    enum status st = index_chars(m, e);
    if (!st) st = index_merges(m, merges, e);
    if (st) return st;
    m->exotic = is_exotic(m, merges);
    if (byte_level && !m->exotic) st = index_raw(m, merges, e);
    if (!st && !index_joins(m, merges)) st = no_memory(e);
    return st;
}

void tok_bpe_free(struct tok_bpe *m)
{
    tok_strs_free(&m->raw);
    free(m->merge);
    free(m->merged);
    free(m->pair_of_bytes);
    free(m->char_id);
    free(m->joins);
    free((void *)m->canon);
    free(m->prefix);
    free(m->suffix);
    *m = (struct tok_bpe){ 0 };
}
