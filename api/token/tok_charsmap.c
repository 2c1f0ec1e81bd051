#include "api/token/tok_charsmap.h"
#include "api/token/tok_unicode.h"
#include <stdlib.h>
#include <string.h>

enum {
    MAP_BYTES_MAX = 1 << 26,
    CLUSTER_MAX = 6,
    HANGUL_FIRST = 0xac00,
    HANGUL_LAST = 0xd7a3,
    HANGUL_TAILS = 28,
    JOINER = 0x200d
};

struct tok_charsmap {
    uint32_t *unit; /* [n_unit] */
    size_t    n_unit;
    char     *text; /* [n_text] what keys become, each to its NUL */
    size_t    n_text;
};

/* ---- loading */

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

/* to[3 * n / 4]; -1: this is no base64. */
static int64_t from_base64(struct tok_span s, unsigned char *to)
{
    size_t   k = 0, n = s.n;
    uint32_t bits = 0, n_bits = 0;
    if (s.n % 4) return -1;
    while (n && s.n - n < 2 && s.p[n - 1] == '=') n--;
    for (size_t i = 0; i < n; i++) {
        int v = value_of(s.p[i]);
        if (v < 0) return -1;
        bits = (bits << 6 | (uint32_t)v) & 0xffffff;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        to[k++] = (unsigned char)(bits >> n_bits);
    }
    return (int64_t)k;
}

static uint32_t le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static const char *unpack(struct tok_charsmap *m, struct tok_span base64)
{
    unsigned char *bytes = malloc(base64.n + 1);
    const char    *why = NULL;
    if (!bytes) return "out of memory";
    int64_t  n = from_base64(base64, bytes);
    uint32_t trie = n >= 4 ? le32(bytes) : 0;
    if (n < 0) {
        why = "is no base64";
    } else if (n < 4 || trie % 4 || trie > (size_t)n - 4 || !trie) {
        why = "has no trie of the length that it names";
    } else if (!utf8_valid((const char *)bytes + 4 + trie, (size_t)n - 4 - trie)) {
        why = "has texts that are not UTF-8";
    } else {
        m->n_unit = trie / 4;
        m->n_text = (size_t)n - 4 - trie;
        m->unit = malloc(trie);
        m->text = malloc(m->n_text + 1);
        if (!m->unit || !m->text) {
            why = "out of memory";
        } else {
            for (size_t i = 0; i < m->n_unit; i++) m->unit[i] = le32(bytes + 4 + 4 * i);
            memcpy(m->text, bytes + 4 + trie, m->n_text);
            m->text[m->n_text] = 0;
        }
    }
    free(bytes);
    return why;
}

enum status tok_charsmap_new(struct tok_charsmap **map_out, struct tok_span text, const char *field,
                             const struct tok_err *e)
{
    struct tok_charsmap *m = calloc(1, sizeof *m);
    const char          *why = text.n > MAP_BYTES_MAX ? "is too long" : NULL;
    if (!m) why = "out of memory";
    if (!why) why = unpack(m, text);
    if (why) {
        tok_charsmap_free(m);
        return tok_fail(e, "%s.precompiled_charsmap: %s", field, why);
    }
    *map_out = m;
    return ST_OK;
}

void tok_charsmap_free(struct tok_charsmap *m)
{
    if (!m) return;
    free(m->unit);
    free(m->text);
    free(m);
}

/* ---- the trie: a unit holds a label, whether its key ends here, and the offset to its children (darts-clone,
 * darts.h) */

static size_t   unit_offset(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6); }
static uint32_t unit_label(uint32_t unit) { return unit & ((1u << 31) | 0xff); }

/* What s[0..n) becomes: the text of the shortest key that it begins with, whatever follows (so does the library). NULL:
 * no key. */
static const char *look_up(const struct tok_charsmap *m, const char *s, size_t n)
{
    size_t at = unit_offset(m->unit[0]);
    for (size_t i = 0; i < n && s[i]; i++) {
        at ^= (unsigned char)s[i];
        if (at >= m->n_unit || unit_label(m->unit[at]) != (unsigned char)s[i]) return NULL;
        uint32_t unit = m->unit[at];
        at ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        uint32_t text = at < m->n_unit ? m->unit[at] & 0x7fffffff : UINT32_MAX;
        return text <= m->n_text ? m->text + text : NULL;
    }
    return NULL;
}

/* ---- grapheme clusters (UAX 29), as far as it matters whether one has fewer than 6 bytes: pairs of flags have more in
 * any case */

struct joining {
    uint32_t last;
    bool     picture;  /* a pictograph and what may stand between it and the next */
    int      conjunct; /* 1: a consonant, 2: and its linker */
};

static bool hangul_joins(uint32_t a, uint32_t b)
{
    bool syllable_a = a >= HANGUL_FIRST && a <= HANGUL_LAST, syllable_b = b >= HANGUL_FIRST && b <= HANGUL_LAST;
    bool open_a = syllable_a && (a - HANGUL_FIRST) % HANGUL_TAILS == 0;
    if (tok_is(a, TRAIT_HANGUL_L)) return syllable_b || tok_is(b, TRAIT_HANGUL_L) || tok_is(b, TRAIT_HANGUL_V);
    if (open_a || tok_is(a, TRAIT_HANGUL_V)) return tok_is(b, TRAIT_HANGUL_V) || tok_is(b, TRAIT_HANGUL_T);
    return (syllable_a || tok_is(a, TRAIT_HANGUL_T)) && tok_is(b, TRAIT_HANGUL_T);
}

static bool joins(const struct joining *x, uint32_t cp)
{
    if (tok_is(cp, TRAIT_CONTROL)) return false;
    if (tok_is(cp, TRAIT_EXTEND) || tok_is(x->last, TRAIT_PREPEND) || hangul_joins(x->last, cp)) return true;
    if (x->picture && x->last == JOINER && tok_is(cp, TRAIT_PICTURE)) return true;
    return x->conjunct == 2 && tok_is(cp, TRAIT_CONSONANT);
}

static void take(struct joining *x, uint32_t cp)
{
    bool goes_on = x->picture && x->last != JOINER && (cp == JOINER || tok_is(cp, TRAIT_PICTURE_EXTEND));
    x->picture = tok_is(cp, TRAIT_PICTURE) || goes_on;
    x->last = cp;
    if (tok_is(cp, TRAIT_CONSONANT))
        x->conjunct = 1;
    else if (x->conjunct && tok_is(cp, TRAIT_LINKER))
        x->conjunct = 2;
    else if (!tok_is(cp, TRAIT_LINKS))
        x->conjunct = 0;
}

/* Where the cluster that begins at `at` ends. */
static size_t cluster_end(const char *s, size_t n, size_t at)
{
    struct joining x = { 0 };
    uint32_t       first = tok_next(s, &at);
    if (tok_is(first, TRAIT_CONTROL)) return first == '\r' && at < n && s[at] == '\n' ? at + 1 : at;
    take(&x, first);
    for (size_t next = at; at < n; at = next) {
        uint32_t cp = tok_next(s, &next);
        if (!joins(&x, cp)) break;
        take(&x, cp);
    }
    return at;
}

/* ---- running */

static bool put(struct tok_out *out, const char *s, size_t n)
{
    char *p = tok_out_room(out, n);
    if (!p) return false;
    memcpy(p, s, n);
    out->n += n;
    return true;
}

/* A short cluster that has a text becomes that; otherwise each of its characters goes its own way. */
static bool put_cluster(const struct tok_charsmap *m, struct tok_out *out, const char *s, size_t n, bool *changed)
{
    const char *text = n < CLUSTER_MAX ? look_up(m, s, n) : NULL;
    if (text) {
        *changed = true;
        return put(out, text, strlen(text));
    }
    for (size_t i = 0; i < n;) {
        size_t at = i;
        tok_next(s, &i);
        text = look_up(m, s + at, i - at);
        *changed |= text != NULL;
        if (!put(out, text ? text : s + at, text ? strlen(text) : i - at)) return false;
    }
    return true;
}

enum status tok_charsmap_run(const struct tok_charsmap *m, struct tok_work *w, int to, struct tok_text *t)
{
    struct tok_out out = { w, &w->norm[to], 0 };
    bool           changed = false;
    for (size_t i = 0; i < t->n;) {
        size_t at = i;
        i = cluster_end(t->p, t->n, i);
        if (!put_cluster(m, &out, t->p + at, i - at, &changed)) return ST_TOO_LARGE;
        if (!at && !out.n) t->at_start = false;
    }
    if (changed) {
        t->p = out.at->p ? out.at->p : "";
        t->n = out.n;
    }
    return ST_OK;
}
