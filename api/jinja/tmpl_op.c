#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_str.h"
#include "api/jinja/tmpl_text.h"
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- v.name, v[key], v[a:b:c] */

static bool method_of(struct tmpl_eval *e, const struct tv *v, const char *name, size_t n, struct tv *out)
{
    const struct tmpl_func *f = tmpl_find_method(v, name, n);
    if (!f) {
        *out = tv_undef(name, n);
        return true;
    }
    struct tv_bound *b = tmpl_alloc(e, sizeof *b);
    if (!b) return false;
    *b = (struct tv_bound){ *v, f };
    *out = (struct tv){ .kind = TV_METHOD, .u.bound = b };
    return true;
}

static bool loop_attr(const struct tv_loop *l, const char *name, size_t n, struct tv *out)
{
    static const struct {
        const char *name;
        int         what;
    } attrs[] = {
        { "index", 0 },     { "index0", 1 },   { "first", 2 },    { "last", 3 },  { "length", 4 },  { "revindex", 5 },
        { "revindex0", 6 }, { "previtem", 7 }, { "nextitem", 8 }, { "depth", 9 }, { "depth0", 10 },
    };
    uint32_t i = l->i, len = l->items->n;
    for (size_t k = 0; k < sizeof attrs / sizeof *attrs; k++) {
        if (strlen(attrs[k].name) != n || memcmp(attrs[k].name, name, n)) continue;
        switch (attrs[k].what) {
        case 0: *out = tv_int((int64_t)i + 1); break;
        case 1: *out = tv_int(i); break;
        case 2: *out = tv_bool(i == 0); break;
        case 3: *out = tv_bool(i + 1 == len); break;
        case 4: *out = tv_int(len); break;
        case 5: *out = tv_int((int64_t)len - i); break;
        case 6: *out = tv_int((int64_t)len - i - 1); break;
        case 7: *out = i ? l->items->v[i - 1] : tv_undef("there is no previous item", 25); break;
        case 8: *out = i + 1 < len ? l->items->v[i + 1] : tv_undef("there is no next item", 21); break;
        default: *out = tv_int((int64_t)l->depth + (attrs[k].what == 9)); break;
        }
        return true;
    }
    return false;
}

static bool undefined(struct tmpl_eval *e, const struct tv *v)
{
    return tmpl_fail(e, "'%.*s' is undefined", (int)(v->n < 60 ? v->n : 60), v->u.s);
}

static bool hidden(const char *s, size_t n) { return n >= 2 && s[0] == '_' && s[1] == '_'; }

static bool str_is(const char *s, size_t n, const char *what) { return n == strlen(what) && !memcmp(s, what, n); }

static bool cycler_attr(const struct tv_cycler *c, const char *name, size_t n, struct tv *out)
{
    if (str_is(name, n, "current")) {
        *out = c->items->v[c->pos];
        return true;
    }
    if (str_is(name, n, "pos")) {
        *out = tv_int(c->pos);
        return true;
    }
    if (str_is(name, n, "items")) {
        *out = tv_seq(c->items);
        return true;
    }
    return false;
}

static bool block_named(struct tmpl_eval *e, const char *name, size_t n, struct tv *out)
{
    const struct tmpl *t = e->t;
    *out = tv_undef(name, n);
    for (uint32_t i = 0; i < t->n_block; i++) {
        const struct tmpl_sym *s = &t->sym[t->block[i]->sym];
        if (s->n == n && !memcmp(s->s, name, n)) *out = (struct tv){ .kind = TV_BLOCK, .u.block = t->block[i] };
    }
    return true;
}

bool tmpl_get_attr(struct tmpl_eval *e, const struct tv *v, const char *name, size_t n, struct tv *out)
{
    if (v->kind == TV_UNDEF) return undefined(e, v);
    if (hidden(name, n)) {
        *out = tv_undef(name, n);
        return true;
    }
    if (v->kind == TV_LOOP && loop_attr(v->u.loop, name, n, out)) return true;
    if (v->kind == TV_MACRO && tmpl_macro_attr(e, v->u.macro, name, n, out)) return true;
    if (v->kind == TV_CYCLER && cycler_attr(v->u.cycler, name, n, out)) return true;
    if (v->kind == TV_SELF) return block_named(e, name, n, out);
    if (v->kind == TV_SEQ && v->u.seq->group && (str_is(name, n, "grouper") || str_is(name, n, "list"))) {
        *out = v->u.seq->v[name[0] == 'l'];
        return true;
    }
    if (v->kind == TV_NS) {
        const struct tv *p = tv_dict_find(v->u.dict, name, n);
        *out = p ? *p : tv_undef(name, n);
        return true;
    }
    if (v->kind == TV_DICT && !tmpl_find_method(v, name, n)) {
        const struct tv *p = tv_dict_find(v->u.dict, name, n);
        *out = p ? *p : tv_undef(name, n);
        return true;
    }
    return method_of(e, v, name, n, out);
}

static bool item_at(struct tmpl_eval *e, const struct tv *v, int64_t i, struct tv *out)
{
    if (v->kind == TV_STR) {
        if (!tmpl_bytes(e, v->n)) return false;
        int64_t n = (int64_t)text_count(v->u.s, v->n);
        if (i < 0) i += n;
        if (i < 0 || i >= n) {
            *out = tv_undef("string index out of range", 25);
            return true;
        }
        size_t at = text_offset(v->u.s, v->n, (size_t)i);
        *out = tv_str(v->u.s + at, text_step(v->u.s + at));
        out->flag = v->flag;
        return true;
    }
    const struct tv_seq *q = v->u.seq;
    if (i < 0) i += q->n;
    *out = i >= 0 && i < q->n ? q->v[i] : tv_undef("list index out of range", 23);
    return true;
}

bool tmpl_get_item(struct tmpl_eval *e, const struct tv *v, const struct tv *key, struct tv *out)
{
    int64_t i;
    if (v->kind == TV_UNDEF) return undefined(e, v);
    if (v->kind == TV_DICT) {
        const struct tv *p = tv_dict_get(e, v->u.dict, key);
        if (e->st) return false;
        if (p) {
            *out = *p;
            return true;
        }
    }
    if ((v->kind == TV_STR || (v->kind == TV_SEQ && v->u.seq->type <= SEQ_RANGE)) && tv_integer(key, &i))
        return item_at(e, v, i, out);
    if (key->kind == TV_STR) return tmpl_get_attr(e, v, key->u.s, key->n, out);
    *out = tv_undef("no such item", 12);
    return true;
}

/* One end of a slice as Python clamps it. */
static bool slice_end(struct tmpl_eval *e, const struct tv *v, int64_t lo, int64_t hi, int64_t n, int64_t none,
                      int64_t *out)
{
    if (v->kind == TV_NONE) {
        *out = none;
        return true;
    }
    if (v->kind == TV_BIG) {
        *out = v->u.big->neg ? lo : hi;
        return true;
    }
    if (!tv_integer(v, out))
        return v->kind == TV_UNDEF ? undefined(e, v) : tmpl_fail(e, "slice indices must be integers or None");
    if (*out < 0) *out = *out < -n ? -1 : *out + n;
    if (*out < lo) *out = lo;
    if (*out > hi) *out = hi;
    return true;
}

static bool slice_str(struct tmpl_eval *e, const struct tv *v, int64_t from, int64_t to, int64_t step, int64_t n,
                      struct tv *out)
{
    bool ascii = n == v->n;
    if (step == 1) {
        if (to < from) to = from;
        size_t at = ascii ? (size_t)from : text_offset(v->u.s, v->n, (size_t)from), end;
        end = ascii ? (size_t)to : at + text_offset(v->u.s + at, v->n - at, (size_t)(to - from));
        *out = tv_str(v->u.s + at, end - at);
        out->flag = v->flag;
        return true;
    }
    struct tv_seq *q;
    if (!tv_iter(e, v, &q)) return false;
    size_t mark = tmpl_mark(e);
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) buf_put(e->out, q->v[i].u.s, q->v[i].n);
    return tmpl_take(e, mark, out);
}

bool tmpl_slice(struct tmpl_eval *e, const struct tv *v, const struct tv *a, const struct tv *b, const struct tv *c,
                struct tv *out)
{
    if (v->kind == TV_UNDEF) return undefined(e, v);
    bool list = v->kind == TV_SEQ && v->u.seq->type <= SEQ_RANGE;
    if (!list && v->kind != TV_STR) return tmpl_fail(e, "'%s' object is not subscriptable", tv_type_name(v));
    if (v->kind == TV_STR && !tmpl_bytes(e, v->n)) return false;
    int64_t n = list ? v->u.seq->n : (int64_t)text_count(v->u.s, v->n), from, to, step = 1;
    if (c->kind != TV_NONE && !tv_integer(c, &step)) return tmpl_fail(e, "slice indices must be integers or None");
    if (!step) return tmpl_fail(e, "slice step cannot be zero");
    int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    if (step > n) step = n + 1;
    if (step < -n) step = -n - 1;
    if (!slice_end(e, a, lo, hi, n, step > 0 ? lo : hi, &from) || !slice_end(e, b, lo, hi, n, step > 0 ? hi : lo, &to))
        return false;
    if (!list) return slice_str(e, v, from, to, step, n, out);
    int64_t        count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    struct tv_seq *q = tv_seq_new(e, v->u.seq->type, count > 0 ? (uint32_t)count : 0);
    if (!q || (count > 0 && !tmpl_steps(e, (uint64_t)count / 16))) return false;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) q->v[q->n++] = v->u.seq->v[i];
    *out = tv_seq(q);
    return true;
}

/* ---------------------------------------------------------------- operators */

/* What 64 bits cannot hold goes the way of big numbers. */
static bool int_op(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, struct tv *out)
{
    int64_t i, j, r;
    if (!tv_integer(a, &i) || !tv_integer(b, &j)) return big_op(e, op, a, b, out);
    bool over = false;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(i, j, &r); break;
    case OP_SUB: over = __builtin_sub_overflow(i, j, &r); break;
    case OP_MUL: over = __builtin_mul_overflow(i, j, &r); break;
    case OP_FLOORDIV:
    case OP_MOD:
        if (!j) return tmpl_fail(e, "division by zero");
        if (j == -1) { /* INT64_MIN / -1 */
            over = op == OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, i, &r);
            if (op == OP_MOD) r = 0;
            break;
        }
        r = op == OP_MOD ? i % j : i / j;
        if ((i % j != 0) && ((i < 0) != (j < 0))) r += op == OP_MOD ? j : -1;
        break;
    default: /* OP_POW */
        if (j < 0 && !i) return tmpl_fail(e, "division by zero");
        return big_op(e, op, a, b, out);
    }
    if (over) return big_op(e, op, a, b, out);
    *out = tv_int(r);
    return true;
}

static bool float_op(struct tmpl_eval *e, uint8_t op, double x, double y, struct tv *out)
{
    double r;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && y == 0) return tmpl_fail(e, "division by zero");
    switch (op) {
    case OP_ADD: r = x + y; break;
    case OP_SUB: r = x - y; break;
    case OP_MUL: r = x * y; break;
    case OP_DIV: r = x / y; break;
    case OP_FLOORDIV: r = floor(x / y); break;
    case OP_MOD:
        r = fmod(x, y);
        if (r != 0 && (r < 0) != (y < 0)) r += y;
        break;
    default: r = pow(x, y); break;
    }
    *out = tv_float(r);
    return true;
}

static bool repeat(struct tmpl_eval *e, const struct tv *v, int64_t times, struct tv *out)
{
    if (times < 0) times = 0;
    if (v->kind == TV_SEQ) {
        uint64_t n = (uint64_t)times * v->u.seq->n;
        if (times > 1 << 20 || n > 1 << 20) return tmpl_over(e, "too much memory");
        struct tv_seq *q = tv_seq_new(e, v->u.seq->type, (uint32_t)n);
        if (!q || !tmpl_steps(e, n / 16)) return false;
        for (uint64_t i = 0; i < n; i++) q->v[q->n++] = v->u.seq->v[i % v->u.seq->n];
        *out = tv_seq(q);
        return true;
    }
    if (v->n && (uint64_t)times > e->lim.output_bytes_max / v->n) return tmpl_over(e, "too much output");
    size_t mark = tmpl_mark(e);
    for (int64_t i = 0; v->n && i < times; i++) buf_put(e->out, v->u.s, v->n);
    return tmpl_take(e, mark, out);
}

void tmpl_put_escaped(struct buf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (s[i]) {
        case '&': buf_puts(b, "&amp;"); break;
        case '<': buf_puts(b, "&lt;"); break;
        case '>': buf_puts(b, "&gt;"); break;
        case '"': buf_puts(b, "&#34;"); break;
        case '\'': buf_puts(b, "&#39;"); break;
        default: buf_putc(b, s[i]); break;
        }
    }
}

/* What |safe marked makes + escape the other side. */
static bool concat_safe(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out)
{
    size_t           mark = tmpl_mark(e);
    const struct tv *part[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        if (part[i]->flag & TV_SAFE)
            buf_put(e->out, part[i]->u.s, part[i]->n);
        else
            tmpl_put_escaped(e->out, part[i]->u.s, part[i]->n);
    }
    if (!tmpl_take(e, mark, out)) return false;
    out->flag = TV_SAFE;
    return true;
}

static bool join_lists(struct tmpl_eval *e, const struct tv_seq *p, const struct tv_seq *q, struct tv *out)
{
    if ((uint64_t)p->n + q->n > UINT32_MAX / 4) return tmpl_over(e, "too much memory");
    struct tv_seq *r = tv_seq_new(e, p->type, p->n + q->n);
    if (!r || !tmpl_steps(e, (p->n + q->n) / 16)) return false;
    if (p->n) memcpy(r->v, p->v, p->n * sizeof *r->v);
    if (q->n) memcpy(r->v + p->n, q->v, q->n * sizeof *r->v);
    r->n = p->n + q->n;
    *out = tv_seq(r);
    return true;
}

/* A double does not hold every whole number of this size. */
static bool is_large(int64_t i) { return i > 1ll << 53 || i < -(1ll << 53); }

bool tmpl_binary(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, struct tv *out)
{
    static const char *const names[] = { [OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
                                         [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "**" };
    int64_t                  i, j;
    double                   x, y;
    if (a->kind == TV_STR && b->kind == TV_STR && op == OP_ADD) {
        if ((a->flag | b->flag) & TV_SAFE) return concat_safe(e, a, b, out);
        return tmpl_concat(e, a, b, out);
    }
    if (a->kind == TV_UNDEF) return undefined(e, a);
    if (a->kind == TV_STR && op == OP_MOD) {
        bool tuple = b->kind == TV_SEQ && b->u.seq->type == SEQ_TUPLE;
        return tmpl_percent(e, a, tuple ? b->u.seq->v : b, tuple ? b->u.seq->n : 1, out);
    }
    if (b->kind == TV_UNDEF) return undefined(e, b);
    bool ai = tv_integer(a, &i), bi = tv_integer(b, &j), big = a->kind == TV_BIG || b->kind == TV_BIG;
    if (tv_whole(a) && tv_whole(b) && op != OP_DIV) return int_op(e, op, a, b, out);
    bool large = (ai && is_large(i)) || (bi && is_large(j));
    if (op == OP_DIV && tv_whole(a) && tv_whole(b) && (big || large)) return big_true_div(e, a, b, out);
    if (tv_number(a, &x) && tv_number(b, &y)) {
        if (big && (isinf(a->kind == TV_BIG ? x : 0) || isinf(b->kind == TV_BIG ? y : 0)))
            return tmpl_fail(e, "int too large to convert to float");
        return float_op(e, op, x, y, out);
    }
    if (op == OP_ADD && a->kind == TV_SEQ && b->kind == TV_SEQ && a->u.seq->type == b->u.seq->type &&
        a->u.seq->type <= SEQ_TUPLE)
        return join_lists(e, a->u.seq, b->u.seq, out);
    if (op == OP_MUL) {
        bool as = a->kind == TV_STR || (a->kind == TV_SEQ && a->u.seq->type <= SEQ_TUPLE);
        bool bs = b->kind == TV_STR || (b->kind == TV_SEQ && b->u.seq->type <= SEQ_TUPLE);
        if (as && bi) return repeat(e, a, j, out);
        if (bs && ai) return repeat(e, b, i, out);
    }
    return tmpl_fail(e, "unsupported operand types for %s: '%s' and '%s'", names[op], tv_type_name(a), tv_type_name(b));
}

bool tmpl_compare(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, bool *out)
{
    int c = 0;
    switch (op) {
    case OP_EQ: *out = tv_equal(e, a, b); return !e->st;
    case OP_NE: *out = !tv_equal(e, a, b); return !e->st;
    case OP_IN: return tv_contains(e, b, a, out);
    case OP_NOT_IN:
        if (!tv_contains(e, b, a, out)) return false;
        *out = !*out;
        return true;
    default: break;
    }
    if (!tv_compare(e, a, b, &c)) return false;
    switch (op) {
    case OP_LT: *out = c < 0; break;
    case OP_LE: *out = c <= 0; break;
    case OP_GT: *out = c > 0; break;
    default: *out = c >= 0; break;
    }
    return true;
}
