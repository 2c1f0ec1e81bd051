#include "api/jinja/tmpl_str.h"
#include "api/jinja/tmpl_text.h"
#include <string.h>

static bool need_str(struct tmpl_eval *e, const struct tv *v, const char *who)
{
    return v->kind == TV_STR || tmpl_fail(e, "%s() takes a string, not %s", who, tv_type_name(v));
}
static bool get_int(struct tmpl_eval *e, const struct tv *v, int64_t none, int64_t *out)
{
    if (v->kind == TV_ABSENT || v->kind == TV_NONE) {
        *out = none;
        return true;
    }
    return tv_integer(v, out) || tmpl_fail(e, "'%s' object cannot be interpreted as an integer", tv_type_name(v));
}
static struct tv sub(const struct tv *v, size_t at, size_t n)
{
    struct tv s = tv_str(v->u.s + at, n);
    s.flag = v->flag;
    return s;
}

/* ---------------------------------------------------------------- strip, split, join */

static bool in_chars(const struct tv *chars, const char *s)
{
    size_t n = text_step(s);
    for (size_t i = 0; i < chars->n; i += text_step(chars->u.s + i))
        if (text_step(chars->u.s + i) == n && !memcmp(chars->u.s + i, s, n)) return true;
    return false;
}

bool tmpl_strip(struct tmpl_eval *e, const struct tv *v, const struct tv *chars, int ends, struct tv *out)
{
    size_t at = 0, n = v->n;
    if (!chars || chars->kind == TV_ABSENT || chars->kind == TV_NONE) {
        if (ends & 1) at = n - text_lstrip_len(v->u.s, n);
        if (ends & 2) n = at + text_rstrip_len(v->u.s + at, n - at);
        *out = sub(v, at, n - at);
        return tmpl_bytes(e, v->n - (n - at));
    }
    if (!need_str(e, chars, "strip")) return false;
    if (ends & 1)
        while (at < n && in_chars(chars, v->u.s + at)) at += text_step(v->u.s + at);
    while ((ends & 2) && n > at) {
        size_t last = n - 1;
        while (last > at && ((unsigned char)v->u.s[last] & 0xc0) == 0x80) last--;
        if (!in_chars(chars, v->u.s + last)) break;
        n = last;
    }
    *out = sub(v, at, n - at);
    return tmpl_bytes(e, (v->n - (n - at)) * (chars->n + 1));
}
bool tmpl_str_strip(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return tmpl_strip(e, v, &a->pos[0], 3, out);
}
bool tmpl_str_lstrip(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return tmpl_strip(e, v, &a->pos[0], 1, out);
}
bool tmpl_str_rstrip(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return tmpl_strip(e, v, &a->pos[0], 2, out);
}

static bool split_space(struct tmpl_eval *e, const struct tv *v, int64_t max, struct tv_seq *q)
{
    for (size_t at = 0;;) {
        at = v->n - text_lstrip_len(v->u.s + at, v->n - at);
        if (at >= v->n) return true;
        if (max-- == 0) return tv_seq_add(e, q, sub(v, at, text_rstrip_len(v->u.s + at, v->n - at)));
        size_t end = at;
        while (end < v->n && !text_is_space(text_cp(v->u.s + end))) end += text_step(v->u.s + end);
        if (!tv_seq_add(e, q, sub(v, at, end - at))) return false;
        at = end;
    }
}

static bool split_sep(struct tmpl_eval *e, const struct tv *v, const struct tv *sep, int64_t max, bool right,
                      struct tv_seq *q)
{
    int64_t total = 0; /* rsplit: how many separators there are; the first total - max of them stay */
    if (right)
        for (size_t at = 0; (at = text_find(v->u.s, v->n, at, sep->u.s, sep->n)) < v->n; at += sep->n) total++;
    int64_t skip = right && max >= 0 && total > max ? total - max : 0;
    if (skip) max = INT64_MAX;
    for (size_t at = 0, from = 0;;) {
        size_t hit = max-- == 0 ? v->n : text_find(v->u.s, v->n, from, sep->u.s, sep->n);
        if (hit >= v->n) return tv_seq_add(e, q, sub(v, at, v->n - at));
        from = hit + sep->n;
        if (skip && skip--) continue;
        if (!tv_seq_add(e, q, sub(v, at, hit - at))) return false;
        at = from;
    }
}

static bool split(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, bool right, struct tv *out)
{
    int64_t        max;
    struct tv_seq *q = tv_seq_new(e, SEQ_LIST, 0);
    if (!q || !get_int(e, &a->pos[1], -1, &max) || !tmpl_bytes(e, v->n)) return false;
    *out = tv_seq(q);
    if (a->pos[0].kind == TV_ABSENT || a->pos[0].kind == TV_NONE) {
        if (right && max >= 0) return tmpl_fail(e, "rsplit() needs a separator");
        return split_space(e, v, max, q) && tmpl_steps(e, q->n / 16);
    }
    if (!need_str(e, &a->pos[0], "split")) return false;
    if (!a->pos[0].n) return tmpl_fail(e, "empty separator");
    return split_sep(e, v, &a->pos[0], max, right, q) && tmpl_steps(e, q->n / 16);
}
bool tmpl_str_split(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return split(e, v, a, false, out);
}
bool tmpl_str_rsplit(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return split(e, v, a, true, out);
}

bool tmpl_str_splitlines(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q = tv_seq_new(e, SEQ_LIST, 0);
    bool           keep = tv_truth(&a->pos[0]);
    if (!q || !tmpl_bytes(e, v->n)) return false;
    for (size_t at = 0, i = 0; at < v->n; at = i) {
        size_t end = v->n;
        for (i = at; i < v->n; i += text_step(v->u.s + i)) {
            uint32_t c = text_cp(v->u.s + i);
            if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029))
                continue;
            end = i;
            i += c == '\r' && i + 1 < v->n && v->u.s[i + 1] == '\n' ? 2 : text_step(v->u.s + i);
            break;
        }
        if (!tv_seq_add(e, q, sub(v, at, (keep ? i : end) - at))) return false;
    }
    *out = tv_seq(q);
    return true;
}

bool tmpl_str_join(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    if (!tv_iter(e, &a->pos[0], &q) || !tmpl_steps(e, q->n / 16)) return false;
    size_t mark = tmpl_mark(e);
    for (uint32_t i = 0; i < q->n; i++) {
        if (q->v[i].kind != TV_STR)
            return tmpl_fail(e, "sequence item %u: expected str instance, %s found", i, tv_type_name(&q->v[i]));
        if (i) buf_put(e->out, v->u.s, v->n);
        buf_put(e->out, q->v[i].u.s, q->v[i].n);
    }
    return tmpl_take(e, mark, out);
}

static bool partition(struct tmpl_eval *e, const struct tv *v, const struct tv *sep, bool right, struct tv *out)
{
    struct tv_seq *q = tv_seq_new(e, SEQ_TUPLE, 3);
    if (!q || !need_str(e, sep, "partition") || !tmpl_bytes(e, v->n)) return false;
    if (!sep->n) return tmpl_fail(e, "empty separator");
    size_t at = right ? text_rfind(v->u.s, v->n, sep->u.s, sep->n) : text_find(v->u.s, v->n, 0, sep->u.s, sep->n);
    bool   hit = at < v->n;
    q->n = 3;
    q->v[0] = right ? TV_LIT("") : *v;
    q->v[1] = TV_LIT("");
    q->v[2] = right ? *v : TV_LIT("");
    if (hit) {
        q->v[0] = sub(v, 0, at);
        q->v[1] = *sep;
        q->v[2] = sub(v, at + sep->n, v->n - at - sep->n);
    }
    *out = tv_seq(q);
    return true;
}
bool tmpl_str_partition(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return partition(e, v, &a->pos[0], false, out);
}
bool tmpl_str_rpartition(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return partition(e, v, &a->pos[0], true, out);
}

/* ---------------------------------------------------------------- search and replace */

/* v[start:end] as find, startswith and the like take it; *at: bytes in front. */
static bool window(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out, size_t *at)
{
    *out = *v;
    *at = 0;
    if (a->n < 3 || (a->pos[1].kind == TV_ABSENT && a->pos[2].kind == TV_ABSENT)) return tmpl_bytes(e, v->n);
    struct tv none = tv_none(), from = a->pos[1].kind == TV_ABSENT ? none : a->pos[1],
              to = a->pos[2].kind == TV_ABSENT ? none : a->pos[2];
    if (!tmpl_slice(e, v, &from, &to, &none, out)) return false;
    *at = (size_t)(out->u.s - v->u.s);
    return true;
}

static bool affix_one(const struct tv *v, const struct tv *s, bool suffix)
{
    return s->n <= v->n && !memcmp(v->u.s + (suffix ? v->n - s->n : 0), s->u.s, s->n);
}
static bool affix(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, bool suffix, struct tv *out)
{
    struct tv w;
    size_t    at;
    if (!window(e, v, a, &w, &at)) return false;
    bool             tuple = a->pos[0].kind == TV_SEQ && a->pos[0].u.seq->type == SEQ_TUPLE, yes = false;
    uint32_t         n = tuple ? a->pos[0].u.seq->n : 1;
    const struct tv *s = tuple ? a->pos[0].u.seq->v : &a->pos[0];
    for (uint32_t i = 0; i < n && !yes; i++) {
        if (!need_str(e, &s[i], suffix ? "endswith" : "startswith")) return false;
        yes = affix_one(&w, &s[i], suffix);
    }
    *out = tv_bool(yes);
    return true;
}
bool tmpl_str_startswith(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return affix(e, v, a, false, out);
}
bool tmpl_str_endswith(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return affix(e, v, a, true, out);
}

static bool find(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, bool right, struct tv *out)
{
    struct tv w;
    size_t    at;
    if (!need_str(e, &a->pos[0], "find") || !window(e, v, a, &w, &at)) return false;
    const struct tv *s = &a->pos[0];
    size_t           hit = right ? text_rfind(w.u.s, w.n, s->u.s, s->n) : text_find(w.u.s, w.n, 0, s->u.s, s->n);
    if (hit >= w.n && s->n) {
        *out = tv_int(-1);
        return true;
    }
    *out = tv_int((int64_t)text_count(v->u.s, at + hit));
    return true;
}
bool tmpl_str_find(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return find(e, v, a, false, out);
}
bool tmpl_str_rfind(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return find(e, v, a, true, out);
}
bool tmpl_str_index(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return find(e, v, a, false, out) && (out->u.i >= 0 || tmpl_fail(e, "substring not found"));
}

bool tmpl_str_count(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    const struct tv *s = &a->pos[0];
    int64_t          n = 0;
    if (!need_str(e, s, "count") || !tmpl_bytes(e, v->n)) return false;
    if (!s->n) {
        *out = tv_int((int64_t)text_count(v->u.s, v->n) + 1);
        return true;
    }
    for (size_t at = 0; (at = text_find(v->u.s, v->n, at, s->u.s, s->n)) < v->n; at += s->n) n++;
    *out = tv_int(n);
    return true;
}

bool tmpl_replace(struct tmpl_eval *e, const struct tv *v, const struct tv *from, const struct tv *to, int64_t count,
                  struct tv *out)
{
    if (!need_str(e, from, "replace") || !need_str(e, to, "replace") || !tmpl_bytes(e, v->n)) return false;
    size_t mark = tmpl_mark(e), at = 0;
    if (!from->n) { /* between all characters */
        for (; count && at <= v->n; count--) {
            buf_put(e->out, to->u.s, to->n);
            if (at == v->n) break;
            size_t n = text_step(v->u.s + at);
            buf_put(e->out, v->u.s + at, n);
            at += n;
        }
    }
    for (size_t hit; from->n && count && (hit = text_find(v->u.s, v->n, at, from->u.s, from->n)) < v->n; count--) {
        buf_put(e->out, v->u.s + at, hit - at);
        buf_put(e->out, to->u.s, to->n);
        at = hit + from->n;
    }
    if (!at && from->n) {
        *out = *v;
        return true;
    }
    buf_put(e->out, v->u.s + at, v->n - at);
    return tmpl_take(e, mark, out);
}
bool tmpl_str_replace(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    int64_t count;
    return get_int(e, &a->pos[2], -1, &count) && tmpl_replace(e, v, &a->pos[0], &a->pos[1], count, out);
}

bool tmpl_str_removeprefix(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    const struct tv *s = &a->pos[0];
    if (!need_str(e, s, "removeprefix")) return false;
    *out = affix_one(v, s, false) ? sub(v, s->n, v->n - s->n) : *v;
    return true;
}
bool tmpl_str_removesuffix(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    const struct tv *s = &a->pos[0];
    if (!need_str(e, s, "removesuffix")) return false;
    *out = affix_one(v, s, true) ? sub(v, 0, v->n - s->n) : *v;
    return true;
}

/* ---------------------------------------------------------------- case and classes */

bool tmpl_case(struct tmpl_eval *e, const struct tv *v, enum text_case how, struct tv *out)
{
    size_t mark = tmpl_mark(e);
    text_put_case(e->out, v->u.s, v->n, how);
    if (!tmpl_take(e, mark, out)) return false;
    out->flag = v->flag;
    return true;
}
bool tmpl_str_upper(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return tmpl_case(e, v, TEXT_UPPER, out);
}
bool tmpl_str_lower(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return tmpl_case(e, v, TEXT_LOWER, out);
}
bool tmpl_str_title(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return tmpl_case(e, v, TEXT_TITLE, out);
}
bool tmpl_str_capitalize(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return tmpl_case(e, v, TEXT_CAPITALIZE, out);
}

static bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static bool is_alnum(uint32_t c) { return is_digit(c) || text_is_alpha(c); }
static bool is_upper(uint32_t c) { return c < 0x80 ? c >= 'A' && c <= 'Z' : text_is_alpha(c); }
static bool is_lower(uint32_t c) { return c < 0x80 ? c >= 'a' && c <= 'z' : text_is_alpha(c); }

/* all: every character is of the class. Otherwise: some is, and none is of the class not. */
static bool classify(struct tmpl_eval *e, const struct tv *v, bool (*is)(uint32_t), bool (*not )(uint32_t),
                     struct tv *out)
{
    bool some = false, ok = true;
    if (!tmpl_bytes(e, v->n)) return false;
    for (size_t i = 0; i < v->n && ok; i += text_step(v->u.s + i)) {
        uint32_t c = text_cp(v->u.s + i);
        bool     yes = is(c);
        some = some || yes;
        ok = not ? !not(c) : yes;
    }
    *out = tv_bool(ok && some);
    return true;
}
bool tmpl_str_isdigit(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return classify(e, v, is_digit, NULL, out);
}
bool tmpl_str_isalpha(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return classify(e, v, text_is_alpha, NULL, out);
}
bool tmpl_str_isalnum(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return classify(e, v, is_alnum, NULL, out);
}
bool tmpl_str_isspace(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return classify(e, v, text_is_space, NULL, out);
}
bool tmpl_str_isupper(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return classify(e, v, is_upper, is_lower, out);
}
bool tmpl_str_islower(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return classify(e, v, is_lower, is_upper, out);
}

/* ---------------------------------------------------------------- padding */

static bool pad(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, bool left, struct tv *out)
{
    int64_t   width;
    struct tv fill = a->n > 1 && a->pos[1].kind == TV_STR ? a->pos[1] : TV_LIT(" ");
    if (!get_int(e, &a->pos[0], 0, &width) || !tmpl_bytes(e, v->n)) return false;
    int64_t n = (int64_t)text_count(v->u.s, v->n);
    if (width > (int64_t)e->lim.output_bytes_max) return tmpl_over(e, "too much output");
    size_t mark = tmpl_mark(e);
    if (!left) buf_put(e->out, v->u.s, v->n);
    for (int64_t i = n; i < width; i++) buf_put(e->out, fill.u.s, fill.n);
    if (left) buf_put(e->out, v->u.s, v->n);
    return tmpl_take(e, mark, out);
}
bool tmpl_str_ljust(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return pad(e, v, a, false, out);
}
bool tmpl_str_rjust(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return pad(e, v, a, true, out);
}
bool tmpl_str_zfill(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    int64_t width;
    if (!get_int(e, &a->pos[0], 0, &width)) return false;
    bool      sign = v->n && (v->u.s[0] == '-' || v->u.s[0] == '+');
    struct tv digits = sub(v, sign, v->n - sign), args[2] = { tv_int(width - sign), TV_LIT("0") }, padded,
              s = sub(v, 0, sign);
    struct tmpl_args b = { .pos = args, .n = 2 };
    return pad(e, &digits, &b, true, &padded) && tmpl_concat(e, &s, &padded, out);
}
