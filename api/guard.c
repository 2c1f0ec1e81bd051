#include "api/guard.h"
#include "api/jinja/tmpl_text.h"
#include "api/token/tok_impl.h"
#include "base/buf.h"
#include <string.h>

static const char mark[] = "\xef\xb7\x90"; /* U+FDD0 */
enum { MARK = sizeof mark - 1, TEXT_MAX = 1 << 30 };

static bool ends_open(const struct tok_added *x, const char *s, size_t n)
{
    size_t from = n > x->longest ? n - x->longest : 0;
    for (size_t i = from; i < n; i++)
        if (tok_added_begins(x, s + i, n - i)) return true;
    return false;
}

/* The string with marks into b; false: it needs none. Tokens that overlap are broken too: the search goes on behind
 * each mark. */
static bool mark_text(const struct tok_added *x, const char *s, size_t n, struct buf *b)
{
    size_t at, done = 0, begin, end;
    bool   open = ends_open(x, s, n);
    if (!tok_added_special(x, s, n, 0, &begin, &end) && !open) return false;
    for (at = 0; tok_added_special(x, s, n, at, &begin, &end);) {
        at = begin + text_step(s + begin);
        if (at == end) { /* one character: marks on both sides */
            buf_put(b, s + done, begin - done);
            buf_put(b, mark, MARK);
            done = begin;
        }
        buf_put(b, s + done, at - done);
        buf_put(b, mark, MARK);
        done = at;
    }
    buf_put(b, s + done, n - done);
    if (open) buf_put(b, mark, MARK);
    return true;
}

static json_t *guard_string(struct guard *g, json_t *v)
{
    struct buf b;
    buf_init(&b, TEXT_MAX);
    if (!mark_text(&g->tok->added, json_string_value(v), json_string_length(v), &b)) return json_incref(v);
    g->marked = true;
    json_t *marked = b.failed ? NULL : json_stringn_nocheck(b.data, b.n);
    buf_free(&b);
    return marked;
}

static json_t *guard_object(struct guard *g, json_t *v)
{
    json_t *o = json_object();
    for (void *it = json_object_iter(v); o && it; it = json_object_iter_next(v, it)) {
        const char *key = json_object_iter_key(it);
        size_t      n = json_object_iter_key_len(it);
        struct buf  b;
        buf_init(&b, TEXT_MAX);
        if (mark_text(&g->tok->added, key, n, &b)) {
            g->marked = true;
            key = b.data;
            n = b.n;
        }
        json_t *w = b.failed ? NULL : guard_json(g, json_object_iter_value(it));
        if (!w || json_object_setn_new_nocheck(o, key, n, w)) {
            json_decref(o);
            o = NULL;
        }
        buf_free(&b);
    }
    return o;
}

json_t *guard_json(struct guard *g, json_t *v)
{
    if (json_is_string(v)) return guard_string(g, v);
    if (json_is_object(v)) return guard_object(g, v);
    if (!json_is_array(v)) return json_incref(v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *w = guard_json(g, json_array_get(v, i));
        if (!w || json_array_set_new(v, i, w)) return NULL;
    }
    return json_incref(v);
}

enum status guard_encode(const struct guard *g, const char *text, size_t n, unsigned flags, size_t ids_max,
                         struct arena *a, struct tok_ids *out)
{
    if (!g->marked) return tok_encode(g->tok, text, n, flags, ids_max, a, out);
    for (size_t at = 0; at <= n;) {
        const char *p = memmem(text + at, n - at, mark, MARK);
        size_t      end = p ? (size_t)(p - text) : n, begin, stop;
        /* a token of one character cannot be broken: alone between marks it is the user's */
        bool lone = end > at && end - at == text_step(text + at) &&
                    tok_added_special(&g->tok->added, text + at, end - at, 0, &begin, &stop);
        unsigned    how = flags | (lone ? TOK_NO_SPECIAL_PARSE : 0);
        enum status st = end > at ? tok_encode(g->tok, text + at, end - at, how, ids_max, a, out) : ST_OK;
        if (st) return st;
        flags &= ~(unsigned)TOK_ADD_SPECIAL;
        at = end + MARK;
    }
    return ST_OK;
}

size_t guard_strip(char *text, size_t n)
{
    size_t k = 0;
    for (size_t at = 0; at < n;) {
        const char *p = memmem(text + at, n - at, mark, MARK);
        size_t      end = p ? (size_t)(p - text) : n;
        memmove(text + k, text + at, end - at);
        k += end - at;
        at = end + (p ? MARK : 0);
    }
    return k;
}
