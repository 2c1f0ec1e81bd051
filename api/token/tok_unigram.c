#include "api/token/tok_unigram.h"
#include "api/token/tok_unicode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A step of a path: the id of the token that ends here; UNK: a character that no token spells; NOWHERE: no path ends
 * here. */
static const uint32_t UNK = UINT32_MAX, NOWHERE = UINT32_MAX - 1;

/* What a piece needs: the best step to each byte, and the scores of those that tokens from here can still reach. */
struct lattice {
    uint32_t *step;  /* [n + 1] */
    double   *score; /* [ring] of position i at i % ring */
    size_t    ring;
};

static bool lattice_init(struct lattice *x, struct tok_work *w, size_t n, size_t longest)
{
    x->ring = longest + 1 < 8 ? 8 : longest + 1; /* an unknown character has up to four bytes */
    if (n > SIZE_MAX / 16) return false;
    size_t bytes = x->ring * sizeof *x->score + (n + 1) * sizeof *x->step;
    x->score = (double *)(void *)tok_scratch(w, &w->bpe, bytes);
    if (!x->score) return false;
    x->step = (uint32_t *)(void *)(x->score + x->ring);
    for (size_t i = 0; i <= n; i++) x->step[i] = NOWHERE;
    return true;
}

/* Only what is better than what is there counts: of equals the first. */
static void offer(struct lattice *x, size_t end, double score, uint32_t step)
{
    double *best = &x->score[end % x->ring];
    if (x->step[end] != NOWHERE && !(score > *best)) return;
    *best = score;
    x->step[end] = step;
}

static void walk(const struct tok_unigram *m, struct lattice *x, bool guard, const char *s, size_t n)
{
    x->score[0] = 0;
    for (size_t at = 0, next; at < n; at = next) {
        double   here = x->score[at % x->ring];
        bool     spelled = false;
        uint32_t node = 0;
        next = at;
        tok_next(s, &next);
        for (size_t i = at; i < n && (node = tok_tree_step(&m->tree, node, (unsigned char)s[i]));) {
            i++;
            int32_t id = m->tree.id[node];
            if (id < 0 || (guard && m->flags[id] & TOK_F_SPECIAL)) continue;
            offer(x, i, m->score[id] + here, (uint32_t)id);
            spelled |= i == next;
        }
        if (!spelled) offer(x, next, m->unk_score + here, UNK);
    }
}

/* Where a step that ends at `end` begins. */
static size_t step_begin(const struct tok_unigram *m, uint32_t step, const char *s, size_t end)
{
    size_t n = 0, at = end;
    if (step == UNK) {
        tok_prev(s, &at);
        return at;
    }
    tok_strs_get(m->text, step, &n);
    return end - n;
}

static size_t step_end(const struct tok_unigram *m, uint32_t step, const char *s, size_t begin)
{
    size_t n = 0, at = begin;
    if (step == UNK) {
        tok_next(s, &at);
        return at;
    }
    tok_strs_get(m->text, step, &n);
    return begin + n;
}

static bool is_unknown(const struct tok_unigram *m, uint32_t step) { return step == UNK || step == m->unk; }

/* Turns the steps of the best path round: afterwards step[i] is that which begins at i. */
static void turn(const struct tok_unigram *m, struct lattice *x, const char *s, size_t n)
{
    uint32_t step = x->step[n];
    for (size_t end = n; end;) {
        size_t   begin = step_begin(m, step, s, end);
        uint32_t before = x->step[begin];
        x->step[begin] = step;
        end = begin;
        step = before;
    }
}

/* A run of unknown characters is one token: of that text if there is such a token after all, else of its bytes, else
 * unk. */
static enum status emit_unknown(const struct tok_unigram *m, struct tok_work *w, bool guard, const char *s, size_t n)
{
    int64_t     id = tok_strs_find(m->text, s, n);
    enum status st = ST_OK;
    if (id >= 0 && m->flags[id] & TOK_F_MODEL && !(guard && m->flags[id] & TOK_F_SPECIAL))
        return tok_emit(w, (uint32_t)id);
    bool bytes = m->byte_fallback;
    for (size_t i = 0; i < n && bytes && !m->bytes_whole; i++) bytes = m->byte_id[(unsigned char)s[i]] >= 0;
    if (!bytes) return tok_emit(w, m->unk);
    for (size_t i = 0; i < n && !st; i++) st = tok_emit(w, (uint32_t)m->byte_id[(unsigned char)s[i]]);
    return st;
}

enum status tok_unigram_encode(const struct tok_unigram *m, struct tok_work *w, const char *s, size_t n)
{
    struct lattice x;
    bool           guard = w->flags & TOK_NO_SPECIAL_PARSE;
    enum status    st = ST_OK;
    if (!n) return ST_OK;
    if (!lattice_init(&x, w, n, m->longest)) return ST_TOO_LARGE;
    walk(m, &x, guard, s, n);
    turn(m, &x, s, n);
    for (size_t at = 0, unknown = 0; at < n && !st;) { /* unknown: where the run of unknown characters begins */
        uint32_t step = x.step[at];
        size_t   end = step_end(m, step, s, at);
        if (!is_unknown(m, step)) {
            st = tok_emit(w, step);
            unknown = end;
        } else if (end >= n || !is_unknown(m, x.step[end])) {
            st = emit_unknown(m, w, guard, s + unknown, end - unknown);
            unknown = end;
        }
        at = end;
    }
    return st;
}

/* ---- loading */

static enum status no_memory(const struct tok_err *e) { return tok_fail(e, "model: out of memory"); }

/* 10 to the power of k, of exact constants up to 1e22. */
static double ten_to(int k)
{
    static const double exact[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    char                text[16];
    if (k <= 22) return exact[k];
    snprintf(text, sizeof text, "1e%d", k);
    return strtod(text, NULL);
}

/* A number of JSON as the library's reader makes it a double: the digits as one integer, then one product or quotient
 * by a power of ten. That is not always the nearest double, and sums of scores must be the library's to the last
 * bit. */
static bool read_score(struct tok_span v, double *out)
{
    const char *p = v.p, *end = v.p + v.n;
    uint64_t    digits = 0;
    int         power = 0, shift = 0;
    bool        negative = p < end && *p == '-', full = false, fraction = false, any = false;
    p += negative;
    for (; p < end && ((*p >= '0' && *p <= '9') || (*p == '.' && !fraction)); p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        any = true;
        uint64_t d = (uint64_t)(*p - '0');
        full |= digits > (UINT64_MAX - d) / 10;
        if (!full) digits = digits * 10 + d;
        if (!full && fraction) shift--;
        if (full && !fraction) shift++;
        if (shift > 1000) return false;
    }
    if (p < end && (*p | 0x20) == 'e') {
        bool minus = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        any = any && p < end;
        for (; p < end && *p >= '0' && *p <= '9' && power < 10000; p++) power = power * 10 + (*p - '0');
        if (minus) power = -power;
    }
    power += shift;
    if (!any || p != end || power > 308) return false;
    double f = (double)digits;
    for (; power < -308; power += 308) f /= 1e308;
    f = power < 0 ? f / ten_to(-power) : f * ten_to(power);
    *out = negative ? -f : f;
    return f <= 1.7976931348623157e308;
}

static enum status read_entry(struct tok_unigram *m, struct tok_strs *text, struct tok_json *j, uint32_t id,
                              const struct tok_err *e)
{
    struct tok_json_walk w;
    struct tok_span      s, number;
    if (!tok_json_begin(j, &w, '[') || !tok_json_next(j, &w) || !tok_json_string(j, &s))
        return tok_fail(e, "model.vocab[%u]: must be [token, score]", id);
    if (s.n > TOK_TOKEN_BYTES_MAX) return tok_fail(e, "model.vocab[%u]: longer than %d bytes", id, TOK_TOKEN_BYTES_MAX);
    if (id >= TOK_ID_BOUND) return tok_fail(e, "model.vocab: more than %d tokens", TOK_ID_BOUND);
    switch (tok_strs_add(text, s.p, s.n, id)) {
    case TOK_ADDED: break;
    case TOK_ADD_NO_MEMORY: return no_memory(e);
    default: return tok_fail(e, "model.vocab[%u]: the token \"%.*s\" appears twice", id, s.n < 40 ? (int)s.n : 40, s.p);
    }
    if (!tok_json_next(j, &w) || !tok_json_value(j, &number) || !read_score(number, &m->score[id]) ||
        tok_json_next(j, &w) || !w.ok)
        return tok_fail(e, "model.vocab[%u]: must be [token, score]", id);
    if (s.n > m->longest) m->longest = s.n;
    return ST_OK;
}

static enum status load_vocab(struct tok_unigram *m, struct tok_strs *text, struct tok_span span,
                              const struct tok_err *e)
{
    struct tok_json      j;
    struct tok_json_walk w;
    uint32_t             cap = 0;
    enum status          st = ST_OK;
    tok_json_init(&j, span.p, span.n);
    if (!tok_strs_init(text, span.n / 32)) st = no_memory(e);
    if (!st && !tok_json_begin(&j, &w, '[')) st = tok_fail(e, "model.vocab: must be an array of [token, score]");
    while (!st && tok_json_next(&j, &w)) {
        if (m->n_score == cap) {
            cap = cap ? cap * 2 : 4096;
            double *score = realloc(m->score, cap * sizeof *score);
            if (!score) {
                st = no_memory(e);
                break;
            }
            m->score = score;
        }
        st = read_entry(m, text, &j, m->n_score, e);
        m->n_score++;
    }
    if (!st && !w.ok) st = tok_fail(e, "model.vocab: bad JSON after %u entries", m->n_score);
    if (!st && !m->n_score) st = tok_fail(e, "model.vocab: is empty");
    tok_json_free(&j);
    return st;
}

enum status tok_unigram_load(struct tok_unigram *m, struct tok_strs *text, const struct tok_model_parts *p,
                             const struct tok_err *e)
{
    static const double UNK_PENALTY = 10;
    int64_t             unk = TOK_NONE;
    enum status         st = tok_want_bool(e, "model", p->rest, "byte_fallback", false, &m->byte_fallback);
    if (st) return st;
    if (!p->vocab.p) return tok_fail(e, "model.vocab: is missing");
    if ((st = load_vocab(m, text, p->vocab, e))) return st;
    if (json_get_int(p->rest, "unk_id", 0, (int64_t)m->n_score - 1, &unk) || unk < 0)
        return tok_fail(e, "model.unk_id: must be the id of a token: text that no token spells becomes that");
    m->unk = (uint32_t)unk;
    double least = m->score[0];
    for (uint32_t i = 1; i < m->n_score; i++)
        if (m->score[i] < least) least = m->score[i];
    m->unk_score = least - UNK_PENALTY;
    return ST_OK;
}

enum status tok_unigram_index(struct tok_unigram *m, const struct tok_strs *text, const unsigned char *flags,
                              const struct tok_err *e)
{
    m->text = text;
    m->flags = flags;
    m->bytes_whole = tok_byte_tokens(text, flags, m->byte_id);
    return tok_tree_build(&m->tree, text, flags, TOK_F_MODEL) ? ST_OK : no_memory(e);
}

void tok_unigram_free(struct tok_unigram *m)
{
    tok_tree_free(&m->tree);
    free(m->score);
    *m = (struct tok_unigram){ 0 };
}
