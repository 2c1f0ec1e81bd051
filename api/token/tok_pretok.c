#include "api/token/tok_pretok.h"
#include "api/token/tok_unicode.h"
#include "api/token/tok_vocab.h"
#include <string.h>

/* ---- cutting: items are the matches and the gaps between them, in order; behavior says which belong together */

struct cut {
    const struct tok_pretok *p;
    struct tok_work         *w;
    const struct tok_stage  *stage;
    const char              *s;
    uint32_t                 k;
    bool                     at_start;
    size_t                   begin, end; /* the piece that may still grow */
    bool                     pending, match;
};

static enum status pass(struct cut *c, size_t begin, size_t end)
{
    return end > begin ? tok_pretok_run(c->p, c->k + 1, c->w, c->s + begin, end - begin, c->at_start && !begin) : ST_OK;
}

static enum status item(struct cut *c, size_t begin, size_t end, bool match)
{
    match ^= c->stage->invert;
    bool grows = false;
    switch (c->stage->behavior) {
    case SPLIT_REMOVED: return match ? ST_OK : pass(c, begin, end);
    case SPLIT_ISOLATED: return pass(c, begin, end);
    case SPLIT_MERGED_WITH_PREVIOUS: grows = c->pending && match && !c->match; break;
    case SPLIT_MERGED_WITH_NEXT: grows = c->pending && !match && c->match; break;
    case SPLIT_CONTIGUOUS: grows = c->pending && match == c->match; break;
    }
    c->match = match;
    if (grows) {
        c->end = end;
        return ST_OK;
    }
    enum status st = c->pending ? pass(c, c->begin, c->end) : ST_OK;
    c->begin = begin;
    c->end = end;
    c->pending = true;
    return st;
}

static enum status last_item(struct cut *c) { return c->pending ? pass(c, c->begin, c->end) : ST_OK; }

static enum status cut_by_pattern(struct cut *c, size_t n)
{
    struct tok_matches m;
    size_t             at = 0;
    bool               found;
    enum status        st = tok_matches_of(&c->stage->pattern, c->w, &c->w->atoms[c->k], c->s, n, &m);
    while (!st && !(st = tok_matches_next(&m, c->w, &found)) && found) {
        if (m.begin > at && (st = item(c, at, m.begin, false))) return st;
        if ((st = item(c, m.begin, m.end, true))) return st;
        at = m.end;
    }
    if (!st && at < n) st = item(c, at, n, false);
    return st ? st : last_item(c);
}

static bool is_in(const struct tok_stage *x, uint32_t cp) { return x->trait ? tok_is(cp, x->trait) : cp == x->cp; }

static enum status cut_by_chars(struct cut *c, size_t n)
{
    enum status st = ST_OK;
    size_t      gap = 0;
    for (size_t i = 0; i < n && !st;) {
        size_t at = i;
        if (!is_in(c->stage, tok_next(c->s, &i))) continue;
        if (at > gap) st = item(c, gap, at, false);
        if (!st) st = item(c, at, i, true);
        gap = i;
    }
    if (!st && gap < n) st = item(c, gap, n, false);
    return st ? st : last_item(c);
}

static enum status cut_words(struct cut *c, size_t n)
{
    enum status st = ST_OK;
    int         kind = 0; /* of the piece that grows: 0 none, 1 word characters, 2 others that are no space */
    for (size_t i = 0, begin = 0; !st && i <= n;) {
        size_t at = i;
        int    now = 0;
        if (i < n) {
            uint32_t cp = tok_next(c->s, &i);
            now = tok_is(cp, TRAIT_SPACE) ? 0 : 2;
            if (tok_is(cp, TRAIT_WORD)) now = 1;
        }
        if (now != kind) {
            if (kind) st = pass(c, begin, at);
            begin = at;
            kind = now;
        }
        if (at == n) break;
    }
    return st;
}

static enum status cut_fixed(struct cut *c, size_t n)
{
    enum status st = ST_OK;
    for (size_t i = 0, begin = 0; i < n && !st; begin = i) {
        for (uint32_t k = 0; k < c->stage->length && i < n; k++) tok_next(c->s, &i);
        st = pass(c, begin, i);
    }
    return st;
}

/* Characters of any script go with what is before them; the library throws them away where nothing is. */
static enum status cut_scripts(struct cut *c, size_t n)
{
    enum status st = ST_OK;
    uint32_t    last = 0;
    size_t      begin = n;
    for (size_t i = 0; i < n && !st;) {
        size_t   at = i;
        uint32_t now = tok_script(tok_next(c->s, &i));
        if (!now || now == last) continue;
        if (last) st = pass(c, begin, at);
        begin = at;
        last = now;
    }
    return st ? st : pass(c, begin, n);
}

/* ---- stages that rewrite */

static enum status metaspace(struct cut *c, size_t n)
{
    const struct tok_stage *x = c->stage;
    char                    mark[4];
    size_t                  n_mark = tok_utf8_put(mark, x->cp), spaces = 0, k = 0;
    for (size_t i = 0; i < n; i++) spaces += c->s[i] == ' ';
    bool begins = c->s[0] == ' ' || (n >= n_mark && !memcmp(c->s, mark, n_mark));
    bool prepend = !begins && (x->prepend == PREPEND_ALWAYS || (x->prepend == PREPEND_FIRST && c->at_start));
    if (spaces || prepend) {
        char *to = n < SIZE_MAX / 8 ? tok_scratch(c->w, &c->w->stage[c->k], n + (spaces + 1) * 4) : NULL;
        if (!to) return ST_TOO_LARGE;
        if (prepend) {
            memcpy(to, mark, n_mark);
            k = n_mark;
        }
        for (size_t i = 0; i < n; i++) {
            if (c->s[i] == ' ') {
                memcpy(to + k, mark, n_mark);
                k += n_mark;
            } else
                to[k++] = c->s[i];
        }
        c->s = to;
        n = k;
    }
    return x->split ? cut_by_chars(c, n) : pass(c, 0, n);
}

static enum status prefix_space(struct cut *c, size_t n)
{
    if (c->s[0] == ' ') return pass(c, 0, n);
    char *to = tok_scratch(c->w, &c->w->stage[c->k], n + 1);
    if (!to) return ST_TOO_LARGE;
    to[0] = ' ';
    memcpy(to + 1, c->s, n);
    c->s = to;
    return pass(c, 0, n + 1);
}

static enum status byte_level(struct cut *c, size_t n)
{
    char *to = n < SIZE_MAX / 4 ? tok_scratch(c->w, &c->w->stage[c->k], 2 * n) : NULL;
    if (!to) return ST_TOO_LARGE;
    n = tok_byte_level_encode(c->s, n, to);
    c->s = to;
    return pass(c, 0, n);
}

enum status tok_pretok_run(const struct tok_pretok *p, uint32_t k, struct tok_work *w, const char *s, size_t n,
                           bool at_start)
{
    if (!n) return ST_OK;
    if (k >= p->n) return w->encode(w, s, n);
    struct cut c = { .p = p, .w = w, .stage = &p->stage[k], .s = s, .k = k, .at_start = at_start };
    switch (c.stage->kind) {
    case STAGE_SPLIT: return cut_by_pattern(&c, n);
    case STAGE_CHARS: return cut_by_chars(&c, n);
    case STAGE_WORDS: return cut_words(&c, n);
    case STAGE_METASPACE: return metaspace(&c, n);
    case STAGE_PREFIX_SPACE: return prefix_space(&c, n);
    case STAGE_BYTE_LEVEL: return byte_level(&c, n);
    case STAGE_FIXED: return cut_fixed(&c, n);
    case STAGE_SCRIPTS: return cut_scripts(&c, n);
    }
    return ST_INVALID;
}
