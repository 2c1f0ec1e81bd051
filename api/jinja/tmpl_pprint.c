#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_str.h"
#include <string.h>

/* Python's pprint.pformat with a width of 80: what fits a line stands on one, dicts are sorted, long strings are cut at
 * blanks. */

enum { PPRINT_WIDTH = 80 };

static bool put_value(struct tmpl_eval *e, const struct tv *v, size_t indent, size_t allowance);

static bool is_box(const struct tv *v)
{
    return v->kind == TV_DICT || (v->kind == TV_SEQ && v->u.seq->type <= SEQ_TUPLE);
}

/* Python compares what can be compared and else the names of the types. */
static int key_order(struct tmpl_eval *e, const struct tv *a, const struct tv *b)
{
    int    c = 0;
    double x;
    bool   numbers = tv_number(a, &x) && tv_number(b, &x);
    if (numbers || (a->kind == TV_STR && b->kind == TV_STR)) return tv_compare(e, a, b, &c) ? c : 0;
    return strcmp(tv_type_name(a), tv_type_name(b));
}

/* The pairs of a dict in the order of their keys: a merge sort of pointers, stable. */
static const struct tv_pair **sorted(struct tmpl_eval *e, const struct tv_dict *d)
{
    size_t                 bytes = (size_t)d->n * sizeof(struct tv_pair *) + 1;
    const struct tv_pair **a = tmpl_alloc(e, bytes), **b = tmpl_alloc(e, bytes);
    if (!a || !b || !tmpl_steps(e, d->n / 4)) return NULL;
    for (uint32_t i = 0; i < d->n; i++) a[i] = &d->v[i];
    for (uint32_t w = 1; w < d->n; w *= 2) {
        for (uint32_t lo = 0; lo < d->n; lo += 2 * w) {
            uint32_t mid = lo + w < d->n ? lo + w : d->n, hi = lo + 2 * w < d->n ? lo + 2 * w : d->n, i = lo, j = mid;
            for (uint32_t k = lo; k < hi; k++) {
                bool left = i < mid && (j >= hi || key_order(e, &a[i]->k, &a[j]->k) <= 0);
                b[k] = left ? a[i++] : a[j++];
            }
        }
        const struct tv_pair **t = a;
        a = b;
        b = t;
    }
    return e->st ? NULL : a;
}

static bool enter(struct tmpl_eval *e)
{
    if (e->data_depth >= TMPL_DATA_DEPTH_MAX) return tmpl_over(e, "data nested too deeply");
    e->data_depth++;
    return tmpl_steps(e, 1);
}

/* repr() with sorted dicts. */
static bool put_repr(struct tmpl_eval *e, const struct tv *v)
{
    if (!is_box(v)) return tv_repr(e, v);
    bool                   dict = v->kind == TV_DICT, tuple = !dict && v->u.seq->type == SEQ_TUPLE, ok = enter(e);
    uint32_t               n = dict ? v->u.dict->n : v->u.seq->n;
    const struct tv_pair **pair = ok && dict ? sorted(e, v->u.dict) : NULL;
    const char            *brackets = tuple ? "()" : "[]";
    if (dict) brackets = "{}";
    ok = ok && (!dict || pair);
    buf_putc(e->out, brackets[0]);
    for (uint32_t i = 0; i < n && ok; i++) {
        if (i) buf_puts(e->out, ", ");
        ok = !dict || put_repr(e, &pair[i]->k);
        if (dict) buf_puts(e->out, ": ");
        ok = ok && put_repr(e, dict ? &pair[i]->v : &v->u.seq->v[i]);
    }
    if (tuple && n == 1) buf_putc(e->out, ',');
    buf_putc(e->out, brackets[1]);
    e->data_depth--;
    return ok;
}

static void put_indent(struct tmpl_eval *e, size_t indent)
{
    buf_putc(e->out, '\n');
    for (size_t i = 0; i < indent && !e->out->failed; i++) buf_putc(e->out, ' ');
}

static size_t columns_since(const struct tmpl_eval *e, size_t mark)
{
    return text_count(e->out->data + mark, e->out->n - mark);
}

static bool put_dict(struct tmpl_eval *e, const struct tv_dict *d, size_t indent, size_t allowance)
{
    const struct tv_pair **pair = sorted(e, d);
    if (!pair) return false;
    buf_putc(e->out, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        size_t from = tmpl_mark(e);
        if (!put_repr(e, &pair[i]->k)) return false;
        buf_puts(e->out, ": ");
        size_t key = columns_since(e, from);
        if (!put_value(e, &pair[i]->v, indent + 1 + key, i + 1 == d->n ? allowance + 1 : 1)) return false;
        if (i + 1 < d->n) {
            buf_putc(e->out, ',');
            put_indent(e, indent + 1);
        }
    }
    buf_putc(e->out, '}');
    return true;
}

static bool put_seq(struct tmpl_eval *e, const struct tv_seq *q, size_t indent, size_t allowance)
{
    bool   tuple = q->type == SEQ_TUPLE;
    size_t end = tuple && q->n == 1 ? 2 : 1;
    buf_putc(e->out, tuple ? '(' : '[');
    for (uint32_t i = 0; i < q->n; i++) {
        if (!put_value(e, &q->v[i], indent + 1, i + 1 == q->n ? allowance + end : 1)) return false;
        if (i + 1 < q->n) {
            buf_putc(e->out, ',');
            put_indent(e, indent + 1);
        }
    }
    if (!tuple)
        buf_putc(e->out, ']');
    else
        buf_puts(e->out, end == 2 ? ",)" : ")");
    return true;
}

static size_t repr_width(struct tmpl_eval *e, const char *s, size_t n)
{
    struct tv v = tv_str(s, n);
    size_t    mark = tmpl_mark(e);
    tv_repr(e, &v);
    size_t width = columns_since(e, mark);
    e->out->n = mark;
    return width;
}

struct pprint_parts {
    uint32_t n;
    size_t   width; /* of the reprs' lines after the first */
    size_t   indent;
};

static void put_part(struct tmpl_eval *e, struct pprint_parts *p, const char *s, size_t n)
{
    struct tv v = tv_str(s, n);
    if (p->n++) put_indent(e, p->indent);
    tv_repr(e, &v);
}

/* One line of a long string, in parts of whole words. last: it is the string's last one, and allowance stands behind
 * it. */
static bool put_words(struct tmpl_eval *e, struct pprint_parts *p, const char *s, size_t n, size_t max, bool last,
                      size_t allowance)
{
    size_t from = 0, end = 0; /* [from, end) is the part so far */
    while (end < n) {
        size_t next = end;
        while (next < n && !text_is_space(text_cp(s + next))) next += text_step(s + next);
        while (next < n && text_is_space(text_cp(s + next))) next += text_step(s + next);
        size_t room = max;
        if (next == n && last) room = max > allowance ? max - allowance : 0;
        if (!tmpl_steps(e, 1) || !tmpl_bytes(e, next - from)) return false;
        if (end > from && repr_width(e, s + from, next - from) > room) {
            put_part(e, p, s + from, end - from);
            from = end;
        }
        end = next;
    }
    if (end > from) put_part(e, p, s + from, end - from);
    return !e->st;
}

static size_t line_end(const char *s, size_t n, size_t i)
{
    for (; i < n; i += text_step(s + i)) {
        uint32_t c = text_cp(s + i);
        if (c == '\r' && i + 1 < n && s[i + 1] == '\n') return i + 2;
        if ((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029)
            return i + text_step(s + i);
    }
    return n;
}

/* level 1: the string is the whole value, and more parts than one are put in brackets. */
static bool put_string(struct tmpl_eval *e, const struct tv *v, size_t indent, size_t allowance)
{
    bool                outermost = e->data_depth == 1;
    size_t              mark = tmpl_mark(e), max = PPRINT_WIDTH > indent ? PPRINT_WIDTH - indent : 0;
    struct pprint_parts p = { .indent = indent };
    struct tv           text;
    if (outermost) {
        p.indent = ++indent;
        allowance++;
        max = PPRINT_WIDTH - indent;
    }
    for (size_t at = 0, end; at < v->n; at = end) {
        end = line_end(v->u.s, v->n, at);
        bool   last = end == v->n;
        size_t room = max;
        if (last) room = max > allowance ? max - allowance : 0;
        if (repr_width(e, v->u.s + at, end - at) <= room)
            put_part(e, &p, v->u.s + at, end - at);
        else if (!put_words(e, &p, v->u.s + at, end - at, max, last, allowance))
            return false;
    }
    if (!tmpl_take(e, mark, &text)) return false;
    if (outermost && p.n > 1) buf_putc(e->out, '(');
    buf_put(e->out, text.u.s, text.n);
    if (outermost && p.n > 1) buf_putc(e->out, ')');
    return true;
}

static bool put_value(struct tmpl_eval *e, const struct tv *v, size_t indent, size_t allowance)
{
    size_t mark = tmpl_mark(e);
    if (!put_repr(e, v)) return false;
    if (e->out->failed) return tmpl_over(e, "too much output");
    size_t width = columns_since(e, mark);
    if (width + indent + allowance <= PPRINT_WIDTH || (!is_box(v) && (v->kind != TV_STR || !v->n))) return true;
    if (!tmpl_bytes(e, e->out->n - mark)) return false;
    e->out->n = mark;
    if (!enter(e)) return false;
    bool ok;
    if (v->kind == TV_STR)
        ok = put_string(e, v, indent, allowance);
    else if (v->kind == TV_DICT)
        ok = put_dict(e, v->u.dict, indent, allowance);
    else
        ok = put_seq(e, v->u.seq, indent, allowance);
    e->data_depth--;
    return ok;
}

bool tmpl_pprint(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    size_t mark = tmpl_mark(e);
    (void)a;
    return put_value(e, v, 0, 0) && tmpl_take(e, mark, out);
}
