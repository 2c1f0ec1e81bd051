/* Over 500 lines: a table of short functions, one for each filter, that share nothing with one another. */
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_str.h"
#include <string.h>

/* Filters over lists and values. Those of text: tmpl_filter_text.c. */

static bool given(const struct tv *v) { return v->kind != TV_ABSENT && v->kind != TV_NONE; }

/* The attribute path of map(attribute='a.b'), sort(attribute=..) and the like; NONE: the item itself. */
static bool attr_path(struct tmpl_eval *e, const struct tv *item, const struct tv *path, struct tv *out)
{
    *out = *item;
    if (!given(path)) return true;
    if (path->kind == TV_INT) return tmpl_get_item(e, item, path, out);
    if (path->kind != TV_STR) return tmpl_fail(e, "attribute= takes a string");
    for (size_t at = 0; at <= path->n;) {
        const char *dot = memchr(path->u.s + at, '.', path->n - at);
        size_t      n = dot ? (size_t)(dot - path->u.s) - at : path->n - at, digits = 0;
        struct tv   key = tv_str(path->u.s + at, n), v = *out;
        while (digits < n && key.u.s[digits] >= '0' && key.u.s[digits] <= '9') digits++;
        if (n && digits == n && n < 9) {
            int64_t i = 0;
            for (size_t k = 0; k < n; k++) i = i * 10 + (key.u.s[k] - '0');
            key = tv_int(i);
        }
        if (!tmpl_get_item(e, &v, &key, out)) return false;
        at += n + 1;
    }
    return true;
}

/* ---------------------------------------------------------------- values */

static bool f_default(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)e;
    bool use = v->kind == TV_UNDEF || (a->pos[1].kind != TV_ABSENT && tv_truth(&a->pos[1]) && !tv_truth(v));
    *out = *v;
    if (use) *out = a->pos[0].kind == TV_ABSENT ? TV_LIT("") : a->pos[0];
    return true;
}

static bool f_length(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    uint32_t n;
    (void)a;
    return tv_length(e, v, &n) && (*out = tv_int(n), true);
}

static bool f_list(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q, *r;
    (void)a;
    if (!tv_iter(e, v, &q) || !tmpl_steps(e, q->n / 16) || !(r = tv_seq_new(e, SEQ_LIST, q->n))) return false;
    if (q->n) memcpy(r->v, q->v, q->n * sizeof *r->v);
    r->n = q->n;
    *out = tv_seq(r);
    return true;
}

static bool f_items(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    if (v->kind == TV_UNDEF) {
        struct tv_seq *q = tv_seq_new(e, SEQ_GEN, 0);
        return q && (*out = tv_seq(q), true);
    }
    if (v->kind != TV_DICT) return tmpl_fail(e, "Can only get item pairs from a mapping.");
    if (!tmpl_find_method(v, "items", 5)->fn(e, v, a, out)) return false;
    out->u.seq->type = SEQ_GEN;
    return true;
}

static bool f_first(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    (void)a;
    if (!tv_iter(e, v, &q)) return false;
    *out = q->n ? q->v[0] : tv_undef("No first item, sequence was empty.", 34);
    return true;
}
static bool f_last(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    (void)a;
    if (v->kind == TV_SEQ && v->u.seq->type == SEQ_GEN) return tmpl_fail(e, "'generator' object is not reversible");
    if (!tv_iter(e, v, &q)) return false;
    *out = q->n ? q->v[q->n - 1] : tv_undef("No last item, sequence was empty.", 33);
    return true;
}

static bool f_reverse(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q, *r;
    (void)a;
    if (v->kind == TV_STR) {
        struct tv none = tv_none(), step = tv_int(-1);
        return tmpl_slice(e, v, &none, &none, &step, out);
    }
    if (!tv_iter(e, v, &q) || !tmpl_steps(e, q->n / 16) || !(r = tv_seq_new(e, SEQ_GEN, q->n))) return false;
    for (uint32_t i = q->n; i--;) r->v[r->n++] = q->v[i];
    *out = tv_seq(r);
    return true;
}

static bool f_safe(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    if (!tv_to_str(e, v, out)) return false;
    out->flag = TV_SAFE;
    return true;
}
static bool f_string(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return tv_to_str(e, v, out);
}

/* ---------------------------------------------------------------- select, map */

/* Jinja asks "if seq" before it iterates: none and 0 are empty here. */
static bool iter_if_true(struct tmpl_eval *e, const struct tv *v, struct tv_seq **out)
{
    if (tv_truth(v)) return tv_iter(e, v, out);
    return (*out = tv_seq_new(e, SEQ_LIST, 0)) != NULL;
}

static bool selected(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, bool attr, bool want,
                     struct tv *out)
{
    struct tv_seq          *q, *r;
    const struct tmpl_func *test = NULL;
    uint32_t                at = attr ? 1 : 0;
    if (attr && !a->n) return tmpl_fail(e, "an attribute's name is missing");
    if (a->n > at) {
        if (a->pos[at].kind != TV_STR || !(test = tmpl_find(tmpl_tests, a->pos[at].u.s, a->pos[at].n)))
            return tmpl_fail(e, "no such test");
        at++;
    }
    struct tmpl_args rest = { .pos = a->pos ? a->pos + at : NULL,
                              .n = a->n > at ? a->n - at : 0,
                              .kw = a->kw,
                              .kw_val = a->kw_val,
                              .n_kw = a->n_kw };
    if (!iter_if_true(e, v, &q) || !(r = tv_seq_new(e, SEQ_GEN, q->n))) return false;
    for (uint32_t i = 0; i < q->n; i++) {
        struct tv x = q->v[i], yes;
        if (!tmpl_steps(e, 1) || (attr && !attr_path(e, &q->v[i], &a->pos[0], &x))) return false;
        yes = tv_bool(tv_truth(&x));
        if (test && !tmpl_apply(e, test, &x, &rest, &yes)) return false;
        if (yes.u.b == want) r->v[r->n++] = q->v[i];
    }
    *out = tv_seq(r);
    return true;
}
static bool f_select(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return selected(e, v, a, false, true, out);
}
static bool f_reject(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return selected(e, v, a, false, false, out);
}
static bool f_selectattr(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return selected(e, v, a, true, true, out);
}
static bool f_rejectattr(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return selected(e, v, a, true, false, out);
}

static bool f_map(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq          *q, *r;
    const struct tmpl_func *f = NULL;
    struct tv               path = tv_none(), none = { .kind = TV_ABSENT };
    struct tmpl_args        rest = { .kw = a->kw, .kw_val = a->kw_val, .n_kw = a->n_kw };
    if (a->n) {
        if (a->pos[0].kind != TV_STR || !(f = tmpl_find_filter(a->pos[0].u.s, a->pos[0].n)))
            return tmpl_fail(e, "no such filter");
        rest.pos = a->pos + 1;
        rest.n = a->n - 1;
    } else {
        for (uint32_t k = 0; k < a->n_kw; k++) {
            if (a->kw[k].n == 9 && !memcmp(a->kw[k].name, "attribute", 9))
                path = a->kw_val[k];
            else if (a->kw[k].n == 7 && !memcmp(a->kw[k].name, "default", 7))
                none = a->kw_val[k];
            else
                return tmpl_fail(e, "Unexpected keyword argument '%.*s'", (int)a->kw[k].n, a->kw[k].name);
        }
        if (!given(&path)) return tmpl_fail(e, "map requires a filter argument");
    }
    if (!iter_if_true(e, v, &q) || !(r = tv_seq_new(e, SEQ_GEN, q->n))) return false;
    for (uint32_t i = 0; i < q->n; i++) {
        struct tv x = q->v[i];
        if (!tmpl_steps(e, 1)) return false;
        if (f ? !tmpl_apply(e, f, &q->v[i], &rest, &x) : !attr_path(e, &q->v[i], &path, &x)) return false;
        if (x.kind == TV_UNDEF && none.kind != TV_ABSENT) x = none;
        r->v[r->n++] = x;
    }
    *out = tv_seq(r);
    return true;
}

/* ---------------------------------------------------------------- order */

struct sort_key {
    struct tv key, item;
};

static bool fold(struct tmpl_eval *e, struct tv *v, bool sensitive)
{
    return sensitive || v->kind != TV_STR || tmpl_case(e, v, TEXT_LOWER, v);
}

/* Stable merge sort, as Python's is. */
static bool sort_keys(struct tmpl_eval *e, struct sort_key **v, uint32_t n, bool reverse)
{
    struct sort_key *a = *v, *b = tmpl_alloc(e, (size_t)n * sizeof *b + 1);
    if (!b) return false;
    for (uint32_t w = 1; w < n; w *= 2) {
        if (!tmpl_steps(e, n / 16)) return false;
        for (uint32_t lo = 0; lo < n; lo += 2 * w) {
            uint32_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n, i = lo, j = mid;
            for (uint32_t k = lo; k < hi; k++) {
                int c = 0;
                if (i < mid && j < hi && !tv_compare(e, &a[i].key, &a[j].key, &c)) return false;
                if (reverse) c = -c;
                b[k] = i < mid && (j >= hi || c <= 0) ? a[i++] : a[j++];
            }
        }
        struct sort_key *t = a;
        a = b;
        b = t;
    }
    *v = a;
    return true;
}

/* sort(attribute='a,b'): the values of all paths, each folded, as one key. A key is a list even where it has one value,
 * as in Jinja: then values without an order are no error as long as they are equal. */
static bool sort_key_of(struct tmpl_eval *e, const struct tv *item, const struct tv *path, bool sensitive,
                        struct tv *out)
{
    struct tv_seq *keys = tv_seq_new(e, SEQ_LIST, 1);
    struct tv      whole;
    if (!keys) return false;
    if (path->kind != TV_STR) {
        if (!attr_path(e, item, path, &whole) || !fold(e, &whole, sensitive) || !tv_seq_add(e, keys, whole))
            return false;
    }
    for (size_t at = 0; path->kind == TV_STR && at <= path->n;) {
        const char *comma = memchr(path->u.s + at, ',', path->n - at);
        size_t      n = comma ? (size_t)(comma - path->u.s) - at : path->n - at;
        struct tv   one = tv_str(path->u.s + at, n), key;
        if (!attr_path(e, item, &one, &key) || !fold(e, &key, sensitive) || !tv_seq_add(e, keys, key)) return false;
        at += n + 1;
    }
    *out = tv_seq(keys);
    return true;
}

/* The items of q in the order of their keys v[q->n]. */
static bool put_sorted(struct tmpl_eval *e, const struct tv_seq *q, struct sort_key *v, bool reverse, struct tv *out)
{
    struct tv_seq *r = tv_seq_new(e, SEQ_LIST, q->n);
    if (!r || !sort_keys(e, &v, q->n, reverse)) return false;
    for (uint32_t i = 0; i < q->n; i++) r->v[r->n++] = v[i].item;
    *out = tv_seq(r);
    return true;
}

static bool f_sort(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    if (!tv_iter(e, v, &q)) return false;
    struct sort_key *k = tmpl_alloc(e, (size_t)q->n * sizeof *k + 1);
    for (uint32_t i = 0; k && i < q->n; i++) {
        k[i].item = q->v[i];
        if (!sort_key_of(e, &q->v[i], &a->pos[2], tv_truth(&a->pos[1]), &k[i].key)) return false;
    }
    return k && put_sorted(e, q, k, tv_truth(&a->pos[0]), out);
}

static bool f_dictsort(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv        items;
    struct tmpl_args none = { .n = 0 };
    uint32_t         by = 0;
    if (v->kind != TV_DICT) return tmpl_fail(e, "dictsort takes a mapping, not %s", tv_type_name(v));
    if (given(&a->pos[1])) {
        if (tv_str_is(&a->pos[1], "value"))
            by = 1;
        else if (!tv_str_is(&a->pos[1], "key"))
            return tmpl_fail(e, "You can only sort by either \"key\" or \"value\"");
    }
    if (!tmpl_find_method(v, "items", 5)->fn(e, v, &none, &items)) return false;
    const struct tv_seq *q = items.u.seq;
    struct sort_key     *k = tmpl_alloc(e, (size_t)q->n * sizeof *k + 1);
    for (uint32_t i = 0; k && i < q->n; i++) {
        k[i] = (struct sort_key){ .item = q->v[i], .key = q->v[i].u.seq->v[by] };
        if (!fold(e, &k[i].key, tv_truth(&a->pos[0]))) return false;
    }
    return k && put_sorted(e, q, k, tv_truth(&a->pos[2]), out);
}

static bool extreme(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, bool max, struct tv *out)
{
    struct tv_seq *q;
    struct tv      best, key;
    if (!tv_iter(e, v, &q)) return false;
    if (!q->n) {
        *out = tv_undef("No aggregated item, sequence was empty.", 39);
        return true;
    }
    for (uint32_t i = 0; i < q->n; i++) {
        int c = 0;
        if (!tmpl_steps(e, 1) || !attr_path(e, &q->v[i], &a->pos[1], &key) || !fold(e, &key, tv_truth(&a->pos[0])))
            return false;
        if (i && !tv_compare(e, &key, &best, &c)) return false;
        if (!i || (max ? c > 0 : c < 0)) {
            best = key;
            *out = q->v[i];
        }
    }
    return true;
}
static bool f_max(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return extreme(e, v, a, true, out);
}
static bool f_min(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return extreme(e, v, a, false, out);
}

static bool f_sum(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    struct tv      total = a->pos[1].kind == TV_ABSENT ? tv_int(0) : a->pos[1], x;
    if (!tv_iter(e, v, &q)) return false;
    for (uint32_t i = 0; i < q->n; i++)
        if (!tmpl_steps(e, 1) || !attr_path(e, &q->v[i], &a->pos[0], &x) || !tmpl_binary(e, OP_ADD, &total, &x, &total))
            return false;
    *out = total;
    return true;
}

static bool f_unique(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q, *r, *keys;
    if (!tv_iter(e, v, &q) || !(r = tv_seq_new(e, SEQ_GEN, q->n)) || !(keys = tv_seq_new(e, SEQ_LIST, q->n)))
        return false;
    for (uint32_t i = 0; i < q->n; i++) {
        struct tv key;
        uint32_t  k = 0;
        if (!tmpl_steps(e, 1 + r->n / 16) || !attr_path(e, &q->v[i], &a->pos[1], &key) ||
            !fold(e, &key, tv_truth(&a->pos[0])))
            return false;
        while (k < r->n && !tv_equal(e, &keys->v[k], &key)) k++;
        if (k == r->n) {
            r->v[r->n++] = q->v[i];
            keys->v[keys->n++] = key;
        }
    }
    *out = tv_seq(r);
    return !e->st;
}

static bool group_key(struct tmpl_eval *e, const struct tv *item, const struct tmpl_args *a, struct tv *key,
                      struct tv *folded)
{
    if (!attr_path(e, item, &a->pos[0], key)) return false;
    if (key->kind == TV_UNDEF && a->pos[1].kind != TV_ABSENT) *key = a->pos[1];
    *folded = *key;
    return fold(e, folded, tv_truth(&a->pos[2]));
}

static bool f_groupby(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q, *group = NULL, *r = tv_seq_new(e, SEQ_LIST, 0);
    struct tv      key, folded, last;
    if (!r || !tv_iter(e, v, &q)) return false;
    struct sort_key *all = tmpl_alloc(e, (size_t)q->n * sizeof *all + 1);
    if (!all) return false;
    for (uint32_t i = 0; i < q->n; i++) {
        all[i].item = q->v[i];
        if (!tmpl_steps(e, 1) || !group_key(e, &q->v[i], a, &key, &all[i].key)) return false;
    }
    if (!sort_keys(e, &all, q->n, false)) return false;
    for (uint32_t i = 0; i < q->n; i++) {
        if (!group_key(e, &all[i].item, a, &key, &folded)) return false;
        if (!group || !tv_equal(e, &folded, &last)) {
            struct tv_seq *pair = tv_seq_new(e, SEQ_TUPLE, 2);
            if (!pair || !(group = tv_seq_new(e, SEQ_LIST, 0))) return false;
            pair->v[0] = key;
            pair->v[1] = tv_seq(group);
            pair->n = 2;
            pair->group = true;
            if (!tv_seq_add(e, r, tv_seq(pair))) return false;
            last = folded;
        }
        if (!tv_seq_add(e, group, all[i].item)) return false;
    }
    *out = tv_seq(r);
    return true;
}

/* So many columns whose lengths differ by one at most. */
static bool f_slice(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q, *r = tv_seq_new(e, SEQ_GEN, 0);
    int64_t        slices;
    if (!r || !tv_iter(e, v, &q)) return false;
    if (!tv_integer(&a->pos[0], &slices) || !slices)
        return tmpl_fail(e, "slice() takes a number of slices that is not 0");
    if (slices > (int64_t)e->lim.steps_max) return tmpl_over(e, "too many steps");
    uint32_t n = slices > 0 ? (uint32_t)slices : 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t       len = q->n / n + (i < q->n % n);
        struct tv_seq *row = tv_seq_new(e, SEQ_LIST, len + 1);
        if (!row || !tmpl_steps(e, 1 + len / 16)) return false;
        if (len) memcpy(row->v, q->v + at, len * sizeof *row->v);
        row->n = len;
        at += len;
        if (given(&a->pos[1]) && i >= q->n % n) row->v[row->n++] = a->pos[1];
        if (!tv_seq_add(e, r, tv_seq(row))) return false;
    }
    *out = tv_seq(r);
    return true;
}

/* Any item: which one follows from the time and from how much was computed, so that one render can be repeated. */
static bool f_random(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    (void)a;
    if (!tv_iter(e, v, &q)) return false;
    if (!q->n) {
        *out = tv_undef("No random item, sequence was empty.", 35);
        return true;
    }
    uint64_t x = ((uint64_t)e->now_s << 32 ^ e->steps) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
    *out = q->v[(x ^ x >> 32) % q->n];
    return true;
}

/* As v.name where v is no dict. What would change a value is not shown. */
static bool f_attr(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    static const char *const changing[] = { "append", "extend", "insert", "pop", "update", "setdefault" };
    struct tv                name;
    if (!tv_to_str(e, &a->pos[0], &name)) return false;
    *out = tv_undef(name.u.s, name.n);
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        if (tv_str_is(&name, changing[i])) return true;
    if (v->kind == TV_UNDEF) return true;
    if (v->kind == TV_DICT && !tmpl_find_method(v, name.u.s, name.n)) return true;
    return tmpl_get_attr(e, v, name.u.s, name.n, out);
}

static bool f_batch(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q, *row = NULL, *r = tv_seq_new(e, SEQ_GEN, 0);
    int64_t        n;
    if (!r || !tv_iter(e, v, &q) || !tv_integer(&a->pos[0], &n) || n < 1)
        return tmpl_fail(e, "batch() takes a positive number");
    for (uint32_t i = 0; i < q->n; i++) {
        if (!row || row->n == n)
            if (!(row = tv_seq_new(e, SEQ_LIST, 0)) || !tv_seq_add(e, r, tv_seq(row))) return false;
        if (!tmpl_steps(e, 1) || !tv_seq_add(e, row, q->v[i])) return false;
    }
    if (row && given(&a->pos[1]) && n > (int64_t)e->lim.steps_max) return tmpl_over(e, "too many steps");
    while (row && given(&a->pos[1]) && row->n < n)
        if (!tmpl_steps(e, 1) || !tv_seq_add(e, row, a->pos[1])) return false;
    *out = tv_seq(r);
    return true;
}

static bool f_join(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    struct tv      sep = TV_LIT(""), x;
    if (!tv_iter(e, v, &q) || (a->pos[0].kind != TV_ABSENT && !tv_to_str(e, &a->pos[0], &sep))) return false;
    size_t mark = tmpl_mark(e);
    for (uint32_t i = 0; i < q->n; i++) {
        if (!tmpl_steps(e, 1) || !attr_path(e, &q->v[i], &a->pos[1], &x)) return false;
        if (i) buf_put(e->out, sep.u.s, sep.n);
        if (!tv_print(e, &x)) return false;
    }
    return tmpl_take(e, mark, out);
}

const struct tmpl_func tmpl_filters[] = {
    { "default", f_default, "default_value,boolean", 0, 0 },
    { "d", f_default, "default_value,boolean", 0, 0 },
    { "length", f_length, "", 0, 0 },
    { "count", f_length, "", 0, 0 },
    { "list", f_list, "", 0, 0 },
    { "items", f_items, "", 0, 0 },
    { "first", f_first, "", 0, 0 },
    { "last", f_last, "", 0, 0 },
    { "reverse", f_reverse, "", 0, 0 },
    { "safe", f_safe, "", 0, 0 },
    { "string", f_string, "", 0, 0 },
    { "select", f_select, NULL, 0, 0 },
    { "reject", f_reject, NULL, 0, 0 },
    { "selectattr", f_selectattr, NULL, 0, 0 },
    { "rejectattr", f_rejectattr, NULL, 0, 0 },
    { "map", f_map, NULL, 0, 0 },
    { "sort", f_sort, "reverse,case_sensitive,attribute", 0, 0 },
    { "dictsort", f_dictsort, "case_sensitive,by,reverse", 0, 0 },
    { "max", f_max, "case_sensitive,attribute", 0, 0 },
    { "min", f_min, "case_sensitive,attribute", 0, 0 },
    { "sum", f_sum, "attribute,start", 0, 0 },
    { "unique", f_unique, "case_sensitive,attribute", 0, 0 },
    { "groupby", f_groupby, "attribute,default,case_sensitive", 1, 0 },
    { "slice", f_slice, "slices,fill_with", 1, 0 },
    { "random", f_random, "", 0, 0 },
    { "attr", f_attr, "name", 1, 0 },
    { "batch", f_batch, "linecount,fill_with", 1, 0 },
    { "join", f_join, "d,attribute", 0, 0 },
    { NULL, NULL, NULL, 0, 0 },
};
