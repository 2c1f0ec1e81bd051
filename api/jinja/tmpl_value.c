#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_text.h"
#include <math.h>
#include <string.h>

bool tv_str_is(const struct tv *v, const char *s)
{
    return v->kind == TV_STR && v->n == strlen(s) && !memcmp(v->u.s, s, v->n);
}

const char *tv_type_name(const struct tv *v)
{
    static const char *const seq[] = {
        "list", "tuple", "range", "generator", "dict_keys", "dict_values", "dict_items"
    };
    static const char *const kind[] = {
        "nothing", "Undefined",         "NoneType",      "bool",     "int",    "float",       "str", "list",
        "dict",    "Namespace",         "Macro",         "function", "method", "LoopContext", "int", "Cycler",
        "Joiner",  "TemplateReference", "BlockReference"
    };
    return v->kind == TV_SEQ ? seq[v->u.seq->type] : kind[v->kind];
}

/* ---------------------------------------------------------------- lists and dicts */

struct tv_seq *tv_seq_new(struct tmpl_eval *e, enum tv_seq_type type, uint32_t cap)
{
    struct tv_seq *q = tmpl_alloc(e, sizeof *q);
    if (!q) return NULL;
    *q = (struct tv_seq){ .type = (uint8_t)type, .cap = cap };
    if (cap && !(q->v = tmpl_alloc(e, (size_t)cap * sizeof *q->v))) return NULL;
    return q;
}

bool tv_seq_add(struct tmpl_eval *e, struct tv_seq *q, struct tv v)
{
    if (q->n == q->cap) {
        if (q->cap > UINT32_MAX / 4) return tmpl_over(e, "too much memory");
        uint32_t   cap = q->cap ? q->cap * 2 : 4;
        struct tv *w = tmpl_alloc(e, (size_t)cap * sizeof *w);
        if (!w) return false;
        if (q->n) memcpy(w, q->v, q->n * sizeof *w);
        q->v = w;
        q->cap = cap;
    }
    q->v[q->n++] = v;
    return true;
}

struct tv_dict *tv_dict_new(struct tmpl_eval *e, uint32_t cap)
{
    struct tv_dict *d = tmpl_alloc(e, sizeof *d);
    if (!d) return NULL;
    *d = (struct tv_dict){ .cap = cap };
    if (cap && !(d->v = tmpl_alloc(e, (size_t)cap * sizeof *d->v))) return NULL;
    return d;
}

struct tv *tv_dict_find(const struct tv_dict *d, const char *k, size_t n)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tv *x = &d->v[i].k;
        if (x->kind == TV_STR && x->n == n && !memcmp(x->u.s, k, n)) return &d->v[i].v;
    }
    return NULL;
}

struct tv *tv_dict_get(struct tmpl_eval *e, const struct tv_dict *d, const struct tv *k)
{
    if (d->n > 64 && !tmpl_steps(e, d->n / 64)) return NULL;
    if (k->kind == TV_STR) return tv_dict_find(d, k->u.s, k->n);
    for (uint32_t i = 0; i < d->n; i++)
        if (tv_equal(e, &d->v[i].k, k)) return &d->v[i].v;
    return NULL;
}

bool tv_dict_set(struct tmpl_eval *e, struct tv_dict *d, struct tv k, struct tv v)
{
    if (k.kind == TV_DICT || (k.kind == TV_SEQ && k.u.seq->type != SEQ_TUPLE))
        return tmpl_fail(e, "a %s cannot be a key", tv_type_name(&k));
    struct tv *old = tv_dict_get(e, d, &k);
    if (e->st) return false;
    if (old) {
        *old = v;
        return true;
    }
    if (d->n == d->cap) {
        if (d->cap > UINT32_MAX / 4) return tmpl_over(e, "too much memory");
        uint32_t        cap = d->cap ? d->cap * 2 : 4;
        struct tv_pair *w = tmpl_alloc(e, (size_t)cap * sizeof *w);
        if (!w) return false;
        if (d->n) memcpy(w, d->v, d->n * sizeof *w);
        d->v = w;
        d->cap = cap;
    }
    d->v[d->n++] = (struct tv_pair){ k, v };
    return true;
}

/* ---------------------------------------------------------------- truth, equality, order */

bool tv_truth(const struct tv *v)
{
    switch (v->kind) {
    case TV_ABSENT:
    case TV_UNDEF:
    case TV_NONE: return false;
    case TV_BOOL: return v->u.b;
    case TV_INT: return v->u.i != 0;
    case TV_FLOAT: return v->u.f != 0;
    case TV_STR: return v->n > 0;
    case TV_SEQ: return v->u.seq->n > 0 || v->u.seq->type == SEQ_GEN;
    case TV_DICT: return v->u.dict->n > 0;
    default: return true;
    }
}

static bool deeper(struct tmpl_eval *e)
{
    if (e->data_depth >= TMPL_DATA_DEPTH_MAX) return tmpl_over(e, "data nested too deeply");
    e->data_depth++;
    return true;
}

static bool seq_equal(struct tmpl_eval *e, const struct tv_seq *a, const struct tv_seq *b)
{
    if (a == b) return true;
    if (a->type != b->type || a->type >= SEQ_GEN || a->n != b->n || !tmpl_steps(e, a->n / 16) || !deeper(e))
        return false;
    uint32_t i = 0;
    while (i < a->n && tv_equal(e, &a->v[i], &b->v[i])) i++;
    e->data_depth--;
    return i == a->n;
}

static bool dict_equal(struct tmpl_eval *e, const struct tv_dict *a, const struct tv_dict *b)
{
    if (a == b) return true;
    if (a->n != b->n || !tmpl_steps(e, a->n / 16) || !deeper(e)) return false;
    uint32_t i = 0;
    for (; i < a->n; i++) {
        const struct tv *w = tv_dict_get(e, b, &a->v[i].k);
        if (!w || !tv_equal(e, &a->v[i].v, w)) break;
    }
    e->data_depth--;
    return i == a->n;
}

/* Where one of the two is a TV_BIG; false: they are not both numbers, or one is no number at all. */
static bool compare_big(const struct tv *a, const struct tv *b, int *out)
{
    if (tv_whole(a) && tv_whole(b)) {
        *out = big_compare(a, b);
        return true;
    }
    const struct tv *f = a->kind == TV_FLOAT ? a : b;
    if (f->kind != TV_FLOAT || isnan(f->u.f)) return false;
    *out = f == b ? big_compare_float(a, f->u.f) : -big_compare_float(b, f->u.f);
    return true;
}

bool tv_equal(struct tmpl_eval *e, const struct tv *a, const struct tv *b)
{
    int64_t i, j;
    double  x, y;
    int     c;
    if (tv_integer(a, &i) && tv_integer(b, &j)) return i == j;
    if (a->kind == TV_BIG || b->kind == TV_BIG) return compare_big(a, b, &c) && c == 0;
    if (tv_number(a, &x)) return tv_number(b, &y) && x == y;
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case TV_UNDEF:
    case TV_NONE: return true;
    case TV_STR: return a->n == b->n && tmpl_bytes(e, a->n) && !memcmp(a->u.s, b->u.s, a->n);
    case TV_SEQ: return seq_equal(e, a->u.seq, b->u.seq);
    case TV_DICT: return dict_equal(e, a->u.dict, b->u.dict);
    case TV_METHOD: return a->u.bound->func == b->u.bound->func && tv_equal(e, &a->u.bound->self, &b->u.bound->self);
    default: return a->u.s == b->u.s;
    }
}

bool tv_compare(struct tmpl_eval *e, const struct tv *a, const struct tv *b, int *out)
{
    int64_t i, j;
    double  x, y;
    if (tv_integer(a, &i) && tv_integer(b, &j)) {
        *out = (i > j) - (i < j);
        return true;
    }
    if ((a->kind == TV_BIG || b->kind == TV_BIG) && compare_big(a, b, out)) return true;
    if (tv_number(a, &x) && tv_number(b, &y)) {
        *out = (x > y) - (x < y);
        return true;
    }
    if (a->kind == TV_STR && b->kind == TV_STR) {
        uint32_t n = a->n < b->n ? a->n : b->n;
        if (!tmpl_bytes(e, n)) return false;
        int c = n ? memcmp(a->u.s, b->u.s, n) : 0; /* bytes of UTF-8 sort as code points do */
        *out = c ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
        return true;
    }
    if (a->kind == TV_SEQ && b->kind == TV_SEQ && a->u.seq->type == b->u.seq->type && a->u.seq->type <= SEQ_TUPLE) {
        const struct tv_seq *p = a->u.seq, *q = b->u.seq;
        uint32_t             n = p->n < q->n ? p->n : q->n, k = 0;
        if (!tmpl_steps(e, n / 16) || !deeper(e)) return false;
        while (k < n && tv_equal(e, &p->v[k], &q->v[k])) k++;
        bool ok = k < n ? tv_compare(e, &p->v[k], &q->v[k], out) : (*out = (p->n > q->n) - (p->n < q->n), true);
        e->data_depth--;
        return ok && !e->st;
    }
    if (a->kind == TV_UNDEF || b->kind == TV_UNDEF) {
        const struct tv *u = a->kind == TV_UNDEF ? a : b;
        return tmpl_fail(e, "'%.*s' is undefined", (int)u->n, u->u.s);
    }
    return tmpl_fail(e, "no order between '%s' and '%s'", tv_type_name(a), tv_type_name(b));
}

bool tv_contains(struct tmpl_eval *e, const struct tv *box, const struct tv *v, bool *out)
{
    if (box->kind == TV_STR) {
        if (v->kind != TV_STR)
            return tmpl_fail(e, "'in <string>' requires string as left operand, not %s", tv_type_name(v));
        if (!tmpl_bytes(e, box->n)) return false;
        *out = !v->n || text_find(box->u.s, box->n, 0, v->u.s, v->n) < box->n;
        return true;
    }
    if (box->kind == TV_DICT && (v->kind == TV_DICT || (v->kind == TV_SEQ && v->u.seq->type == SEQ_LIST)))
        return tmpl_fail(e, "unhashable type: '%s'", tv_type_name(v));
    if (box->kind == TV_DICT) {
        *out = tv_dict_get(e, box->u.dict, v) != NULL;
        return !e->st;
    }
    struct tv_seq *q;
    if (!tv_iter(e, box, &q) || !tmpl_steps(e, q->n / 16)) return false;
    *out = false;
    for (uint32_t i = 0; i < q->n && !*out; i++) *out = tv_equal(e, &q->v[i], v);
    return !e->st;
}

bool tv_length(struct tmpl_eval *e, const struct tv *v, uint32_t *out)
{
    switch (v->kind) {
    case TV_UNDEF: *out = 0; return true;
    case TV_STR: *out = (uint32_t)text_count(v->u.s, v->n); return tmpl_bytes(e, v->n);
    case TV_DICT: *out = v->u.dict->n; return true;
    case TV_LOOP: *out = v->u.loop->items->n; return true;
    case TV_SEQ:
        if (v->u.seq->type != SEQ_GEN) {
            *out = v->u.seq->n;
            return true;
        }
        break;
    default: break;
    }
    return tmpl_fail(e, "object of type '%s' has no len()", tv_type_name(v));
}

static bool iter_str(struct tmpl_eval *e, const struct tv *v, struct tv_seq **out)
{
    size_t n = text_count(v->u.s, v->n);
    if (!tmpl_steps(e, n / 16) || !(*out = tv_seq_new(e, SEQ_LIST, (uint32_t)n))) return false;
    for (size_t i = 0; i < v->n;) {
        size_t len = text_step(v->u.s + i);
        (*out)->v[(*out)->n++] = tv_str(v->u.s + i, len);
        i += len;
    }
    return true;
}

bool tv_iter(struct tmpl_eval *e, const struct tv *v, struct tv_seq **out)
{
    switch (v->kind) {
    case TV_UNDEF: return (*out = tv_seq_new(e, SEQ_LIST, 0)) != NULL;
    case TV_STR: return iter_str(e, v, out);
    case TV_DICT:
        if (!tmpl_steps(e, v->u.dict->n / 16) || !(*out = tv_seq_new(e, SEQ_LIST, v->u.dict->n))) return false;
        for (uint32_t i = 0; i < v->u.dict->n; i++) (*out)->v[(*out)->n++] = v->u.dict->v[i].k;
        return true;
    case TV_SEQ:
        if (v->u.seq->type == SEQ_GEN) { /* what it had is gone for the next reader */
            if (!(*out = tv_seq_new(e, SEQ_LIST, 0))) return false;
            (*out)->v = v->u.seq->v;
            (*out)->n = (*out)->cap = v->u.seq->n;
            v->u.seq->n = 0;
            return true;
        }
        *out = v->u.seq;
        return true;
    default: return tmpl_fail(e, "'%s' object is not iterable", tv_type_name(v));
    }
}
