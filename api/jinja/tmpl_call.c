/* Over 500 lines: a table of short functions, one for each method and global, that share nothing with one another. */
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_str.h"
#include "api/jinja/tmpl_text.h"
#include <string.h>
#include <time.h>

/* Which values a method is of. */
#define ON_STR   (1u << TV_STR)
#define ON_DICT  (1u << TV_DICT)
#define ON_LIST  (1u << TV_SEQ)
#define ON_TUPLE (1u << 31)

const struct tmpl_func *tmpl_find(const struct tmpl_func *table, const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && !memcmp(table->name, name, n)) return table;
    return NULL;
}

const struct tmpl_func *tmpl_find_filter(const char *name, size_t n)
{
    const struct tmpl_func *const tables[] = { tmpl_filters, tmpl_filters_text, tmpl_filters_layout,
                                               tmpl_filters_html };
    const struct tmpl_func       *f = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !f; i++) f = tmpl_find(tables[i], name, n);
    return f;
}

/* Where name stands in "a,b,c"; the number of names when it does not. */
static uint32_t sig_index(const char *sig, const char *name, size_t n)
{
    uint32_t i = 0;
    for (const char *s = sig; *s; i++) {
        size_t len = strcspn(s, ",");
        if (name && len == n && !memcmp(s, name, n)) return i;
        s += len + (s[len] == ',');
    }
    return i;
}

bool tmpl_apply(struct tmpl_eval *e, const struct tmpl_func *f, const struct tv *self, const struct tmpl_args *a,
                struct tv *out)
{
    if (!tmpl_steps(e, 1)) return false;
    if (!f->sig) return f->fn(e, self, a, out);
    struct tv slot[TMPL_ARGS_MAX];
    uint32_t  n = sig_index(f->sig, NULL, 0);
    memset(slot, 0, sizeof slot); /* ABSENT */
    if (a->n > n) return tmpl_fail(e, "%s() takes at most %u arguments, got %u", f->name, n, a->n);
    for (uint32_t i = 0; i < a->n; i++) slot[i] = a->pos[i];
    for (uint32_t k = 0; k < a->n_kw; k++) {
        uint32_t i = sig_index(f->sig, a->kw[k].name, a->kw[k].n);
        if (i == n || slot[i].kind != TV_ABSENT)
            return tmpl_fail(e, "%s() got an unexpected argument '%.*s'", f->name,
                             (int)(a->kw[k].n < 40 ? a->kw[k].n : 40), a->kw[k].name);
        slot[i] = a->kw_val[k];
    }
    for (uint32_t i = 0; i < f->need; i++)
        if (slot[i].kind == TV_ABSENT) return tmpl_fail(e, "%s() misses an argument", f->name);
    struct tmpl_args bound = { .pos = slot, .n = n };
    return f->fn(e, self, &bound, out);
}

bool tmpl_call(struct tmpl_eval *e, const struct tv *f, const struct tmpl_args *a, struct tv *out)
{
    struct tv none = { .kind = TV_ABSENT };
    switch (f->kind) {
    case TV_MACRO: return tmpl_call_macro(e, f->u.macro, a, out);
    case TV_FUNC: return tmpl_apply(e, f->u.func, &none, a, out);
    case TV_METHOD: return tmpl_apply(e, f->u.bound->func, &f->u.bound->self, a, out);
    case TV_LOOP:
        if (a->n != 1 || a->n_kw) return tmpl_fail(e, "loop() takes what to loop over");
        return tmpl_call_loop(e, f->u.loop, &a->pos[0], out);
    case TV_BLOCK:
        if (a->n || a->n_kw) return tmpl_fail(e, "a block takes no arguments");
        return tmpl_call_block(e, f->u.block, out);
    case TV_JOINER:
        if (a->n || a->n_kw) return tmpl_fail(e, "a joiner takes no arguments");
        *out = f->u.joiner->used ? f->u.joiner->sep : TV_LIT("");
        f->u.joiner->used = true;
        return tmpl_steps(e, 1);
    case TV_UNDEF: return tmpl_fail(e, "'%.*s' is undefined", (int)(f->n < 60 ? f->n : 60), f->u.s);
    default: return tmpl_fail(e, "'%s' object is not callable", tv_type_name(f));
    }
}

/* ---------------------------------------------------------------- global functions */

enum { RANGE_MAX = 100000 /* as Jinja's sandbox */ };

static bool g_range(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)self;
    int64_t v[3] = { 0, 0, 1 };
    if (!a->n || a->n > 3 || a->n_kw) return tmpl_fail(e, "range() takes 1 to 3 arguments");
    for (uint32_t i = 0; i < a->n; i++)
        if (!tv_integer(&a->pos[i], &v[i]))
            return tmpl_fail(e, "'%s' object cannot be interpreted as an integer", tv_type_name(&a->pos[i]));
    if (a->n == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (!v[2]) return tmpl_fail(e, "range() arg 3 must not be zero");
    uint64_t n = 0, step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2];
    if (v[2] > 0 ? v[1] > v[0] : v[1] < v[0]) {
        uint64_t span = v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
        n = (span - 1) / step + 1;
    }
    if (n > RANGE_MAX) return tmpl_over(e, "too many steps: range too big");
    struct tv_seq *q = tmpl_steps(e, n / 16) ? tv_seq_new(e, SEQ_RANGE, (uint32_t)n) : NULL;
    if (!q) return false;
    for (uint64_t i = 0; i < n; i++) q->v[q->n++] = tv_int((int64_t)((uint64_t)v[0] + i * (uint64_t)v[2]));
    *out = tv_seq(q);
    return true;
}

/* dict(pairs or dict, name=value, ...) */
static bool fill_dict(struct tmpl_eval *e, const struct tmpl_args *a, struct tv_dict *d)
{
    if (a->n > 1) return tmpl_fail(e, "dict expected at most 1 argument, got %u", a->n);
    if (a->n && (a->pos[0].kind == TV_DICT || a->pos[0].kind == TV_NS)) {
        const struct tv_dict *from = a->pos[0].u.dict;
        for (uint32_t i = 0; i < from->n; i++)
            if (!tv_dict_set(e, d, from->v[i].k, from->v[i].v)) return false;
    } else if (a->n) {
        struct tv_seq *q, *pair;
        if (!tv_iter(e, &a->pos[0], &q)) return false;
        for (uint32_t i = 0; i < q->n; i++) {
            if (!tv_iter(e, &q->v[i], &pair)) return false;
            if (pair->n != 2) return tmpl_fail(e, "a dict is made of pairs");
            if (!tv_dict_set(e, d, pair->v[0], pair->v[1])) return false;
        }
    }
    for (uint32_t i = 0; i < a->n_kw; i++)
        if (!tv_dict_set(e, d, tv_str(a->kw[i].name, a->kw[i].n), a->kw_val[i])) return false;
    return true;
}

static bool g_dict(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)self;
    struct tv_dict *d = tv_dict_new(e, a->n_kw);
    return d && fill_dict(e, a, d) && (*out = tv_dict(d), true);
}

static bool g_namespace(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    if (!g_dict(e, self, a, out)) return false;
    for (uint32_t i = 0; i < out->u.dict->n; i++) {
        const struct tv *k = &out->u.dict->v[i].k;
        if (k->kind == TV_STR && k->n && k->u.s[0] == '_')
            return tmpl_fail(e, "a namespace holds no name that begins with an underscore");
    }
    out->kind = TV_NS;
    return true;
}

/* dict.fromkeys(names, value) */
static bool fromkeys(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq  *q;
    struct tv_dict *d = tv_dict_new(e, 0);
    struct tv       value = a->pos[1].kind == TV_ABSENT ? tv_none() : a->pos[1];
    if (self->u.func->fn != g_dict) return tmpl_fail(e, "no function 'fromkeys' of %s()", self->u.func->name);
    if (!d || !tv_iter(e, &a->pos[0], &q)) return false;
    for (uint32_t i = 0; i < q->n; i++)
        if (!tmpl_steps(e, 1) || !tv_dict_set(e, d, q->v[i], value)) return false;
    *out = tv_dict(d);
    return true;
}

static bool g_cycler(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)self;
    if (!a->n || a->n_kw) return tmpl_fail(e, "cycler() takes one or more items");
    struct tv_cycler *c = tmpl_alloc(e, sizeof *c);
    struct tv_seq    *q = tv_seq_new(e, SEQ_TUPLE, a->n);
    if (!c || !q) return false;
    memcpy(q->v, a->pos, a->n * sizeof *q->v);
    q->n = a->n;
    *c = (struct tv_cycler){ .items = q };
    *out = (struct tv){ .kind = TV_CYCLER, .u.cycler = c };
    return true;
}

static bool g_joiner(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)self;
    struct tv_joiner *j = tmpl_alloc(e, sizeof *j);
    if (!j) return false;
    *j = (struct tv_joiner){ .sep = a->pos[0].kind == TV_ABSENT ? TV_LIT(", ") : a->pos[0] };
    *out = (struct tv){ .kind = TV_JOINER, .u.joiner = j };
    return true;
}

/* The message goes to the client as it is: what it may hold is bounded by err. */
static bool g_raise(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)self;
    (void)out;
    struct tv s;
    if (!tv_to_str(e, &a->pos[0], &s) || e->st) return false;
    e->st = ST_INVALID;
    size_t n = s.n < e->err_bytes - 1 ? s.n : e->err_bytes - 1;
    while (n && n < s.n && ((unsigned char)s.u.s[n] & 0xc0) == 0x80) n--;
    if (n) memcpy(e->err, s.u.s, n);
    e->err[n] = 0;
    return false;
}

static bool g_strftime(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)self;
    char      fmt[256], text[1024];
    struct tm tm;
    time_t    now = (time_t)e->now_s;
    if (a->pos[0].kind != TV_STR) return tmpl_fail(e, "strftime_now() takes a string");
    if (a->pos[0].n >= sizeof fmt || memchr(a->pos[0].u.s, 0, a->pos[0].n))
        return tmpl_fail(e, "a date format that is too long");
    if (a->pos[0].n) memcpy(fmt, a->pos[0].u.s, a->pos[0].n);
    fmt[a->pos[0].n] = 0;
    if (!localtime_r(&now, &tm)) return tmpl_fail(e, "no such time");
    size_t mark = tmpl_mark(e), n = strftime(text, sizeof text, fmt, &tm);
    buf_put(e->out, text, n);
    return tmpl_take(e, mark, out);
}

const struct tmpl_func tmpl_globals[] = {
    { "range", g_range, NULL, 0, 0 },
    { "dict", g_dict, NULL, 0, 0 },
    { "namespace", g_namespace, NULL, 0, 0 },
    { "cycler", g_cycler, NULL, 0, 0 },
    { "joiner", g_joiner, "sep", 0, 0 },
    { "raise_exception", g_raise, "message", 1, 0 },
    { "strftime_now", g_strftime, "format", 1, 0 },
    { NULL, NULL, NULL, 0, 0 },
};

/* ---------------------------------------------------------------- methods of dict and list */

static bool d_items(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    const struct tv_dict *d = self->u.dict;
    struct tv_seq        *q = tmpl_steps(e, d->n / 16) ? tv_seq_new(e, SEQ_ITEMS, d->n) : NULL;
    if (!q) return false;
    for (uint32_t i = 0; i < d->n; i++) {
        struct tv_seq *pair = tv_seq_new(e, SEQ_TUPLE, 2);
        if (!pair) return false;
        pair->v[0] = d->v[i].k;
        pair->v[1] = d->v[i].v;
        pair->n = 2;
        q->v[q->n++] = tv_seq(pair);
    }
    *out = tv_seq(q);
    return true;
}

static bool d_list(struct tmpl_eval *e, const struct tv *self, bool keys, struct tv *out)
{
    const struct tv_dict *d = self->u.dict;
    if (!tmpl_steps(e, d->n / 16)) return false;
    struct tv_seq *q = tv_seq_new(e, keys ? SEQ_KEYS : SEQ_VALUES, d->n);
    if (!q) return false;
    for (uint32_t i = 0; i < d->n; i++) q->v[q->n++] = keys ? d->v[i].k : d->v[i].v;
    *out = tv_seq(q);
    return true;
}
static bool d_keys(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return d_list(e, self, true, out);
}
static bool d_values(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return d_list(e, self, false, out);
}

static bool d_get(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    const struct tv *v = tv_dict_get(e, self->u.dict, &a->pos[0]);
    if (v)
        *out = *v;
    else
        *out = a->pos[1].kind == TV_ABSENT ? tv_none() : a->pos[1];
    return !e->st;
}

static bool d_copy(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    struct tv_dict  *d = tv_dict_new(e, self->u.dict->n);
    struct tmpl_args from = { .pos = self, .n = 1 };
    return d && fill_dict(e, &from, d) && (*out = tv_dict(d), true);
}

static bool changeable(struct tmpl_eval *e, bool given)
{
    return !given || tmpl_fail(e, "what came with the request cannot be changed");
}

static bool d_update(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    *out = tv_none();
    return changeable(e, self->u.dict->given) && fill_dict(e, a, self->u.dict);
}

static bool d_pop(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv_dict *d = self->u.dict;
    struct tv      *v = changeable(e, d->given) ? tv_dict_get(e, d, &a->pos[0]) : NULL;
    if (e->st) return false;
    if (!v && a->pos[1].kind == TV_ABSENT) return tmpl_fail(e, "pop(): no such key");
    if (!v) {
        *out = a->pos[1];
        return true;
    }
    *out = *v;
    struct tv_pair *p = (struct tv_pair *)(void *)((char *)v - offsetof(struct tv_pair, v));
    memmove(p, p + 1, (size_t)(d->v + d->n - (p + 1)) * sizeof *p);
    d->n--;
    return true;
}

static bool d_setdefault(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv *v = tv_dict_get(e, self->u.dict, &a->pos[0]);
    if (e->st) return false;
    if (v) {
        *out = *v;
        return true;
    }
    *out = a->pos[1].kind == TV_ABSENT ? tv_none() : a->pos[1];
    return changeable(e, self->u.dict->given) && tv_dict_set(e, self->u.dict, a->pos[0], *out);
}

static bool l_append(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    *out = tv_none();
    return changeable(e, self->u.seq->given) && tv_seq_add(e, self->u.seq, a->pos[0]);
}

static bool l_extend(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q;
    *out = tv_none();
    if (!changeable(e, self->u.seq->given) || !tv_iter(e, &a->pos[0], &q) || !tmpl_steps(e, q->n / 16)) return false;
    for (uint32_t i = 0, n = q->n; i < n; i++)
        if (!tv_seq_add(e, self->u.seq, q->v[i])) return false;
    return true;
}

static bool l_pop(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q = self->u.seq;
    int64_t        i = -1;
    if (!changeable(e, q->given)) return false;
    if (a->pos[0].kind != TV_ABSENT && !tv_integer(&a->pos[0], &i)) return tmpl_fail(e, "pop() takes an integer");
    if (i < 0) i += q->n;
    if (i < 0 || i >= q->n) return tmpl_fail(e, "pop index out of range");
    *out = q->v[i];
    memmove(q->v + i, q->v + i + 1, (q->n - (size_t)i - 1) * sizeof *q->v);
    q->n--;
    return tmpl_steps(e, q->n / 64);
}

static bool l_insert(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv_seq *q = self->u.seq;
    int64_t        i;
    *out = tv_none();
    if (!tv_integer(&a->pos[0], &i)) return tmpl_fail(e, "insert() takes an integer");
    if (!changeable(e, q->given) || !tv_seq_add(e, q, a->pos[1]) || !tmpl_steps(e, q->n / 64)) return false;
    int64_t n = q->n - 1;
    if (i < 0) i = i < -n ? 0 : i + n;
    if (i > n) i = n;
    memmove(q->v + i + 1, q->v + i, (size_t)(n - i) * sizeof *q->v);
    q->v[i] = a->pos[1];
    return true;
}

static bool l_index(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    const struct tv_seq *q = self->u.seq;
    if (!tmpl_steps(e, q->n / 16)) return false;
    for (uint32_t i = 0; i < q->n; i++)
        if (tv_equal(e, &q->v[i], &a->pos[0])) {
            *out = tv_int(i);
            return true;
        }
    return tmpl_fail(e, "index(): not in the list");
}

static bool l_count(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    const struct tv_seq *q = self->u.seq;
    int64_t              n = 0;
    if (!tmpl_steps(e, q->n / 16)) return false;
    for (uint32_t i = 0; i < q->n; i++) n += tv_equal(e, &q->v[i], &a->pos[0]);
    *out = tv_int(n);
    return !e->st;
}

static bool loop_cycle(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    if (!a->n) return tmpl_fail(e, "no items for cycling given");
    *out = a->pos[self->u.loop->i % a->n];
    return true;
}

static bool loop_changed(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv_loop *l = self->u.loop;
    bool            same = l->changed && l->changed->n == a->n;
    for (uint32_t i = 0; same && i < a->n; i++) same = tv_equal(e, &l->changed->v[i], &a->pos[i]);
    if (!same) {
        if (!(l->changed = tv_seq_new(e, SEQ_TUPLE, a->n))) return false;
        for (uint32_t i = 0; i < a->n; i++) l->changed->v[l->changed->n++] = a->pos[i];
    }
    *out = tv_bool(!same);
    return !e->st;
}

static bool c_next(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct tv_cycler *c = self->u.cycler;
    (void)e;
    (void)a;
    *out = c->items->v[c->pos];
    c->pos = (c->pos + 1) % c->items->n;
    return true;
}
static bool c_reset(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    (void)e;
    (void)a;
    self->u.cycler->pos = 0;
    *out = tv_none();
    return true;
}

static const struct tmpl_func methods[] = {
    /* name NULL ends */
    { "fromkeys", fromkeys, "iterable,value", 1, 1u << TV_FUNC },
    { "changed", loop_changed, NULL, 0, 1u << TV_LOOP },
    { "next", c_next, "", 0, 1u << TV_CYCLER },
    { "reset", c_reset, "", 0, 1u << TV_CYCLER },
    { "items", d_items, "", 0, ON_DICT },
    { "keys", d_keys, "", 0, ON_DICT },
    { "values", d_values, "", 0, ON_DICT },
    { "get", d_get, "key,default", 1, ON_DICT },
    { "copy", d_copy, "", 0, ON_DICT },
    { "update", d_update, NULL, 0, ON_DICT },
    { "pop", d_pop, "key,default", 1, ON_DICT },
    { "setdefault", d_setdefault, "key,default", 1, ON_DICT },
    { "append", l_append, "object", 1, ON_LIST },
    { "extend", l_extend, "iterable", 1, ON_LIST },
    { "pop", l_pop, "index", 0, ON_LIST },
    { "insert", l_insert, "index,object", 2, ON_LIST },
    { "index", l_index, "value", 1, ON_LIST | ON_TUPLE },
    { "count", l_count, "value", 1, ON_LIST | ON_TUPLE },
    { "cycle", loop_cycle, NULL, 0, 1u << TV_LOOP },
    { "split", tmpl_str_split, "sep,maxsplit", 0, ON_STR },
    { "rsplit", tmpl_str_rsplit, "sep,maxsplit", 0, ON_STR },
    { "strip", tmpl_str_strip, "chars", 0, ON_STR },
    { "lstrip", tmpl_str_lstrip, "chars", 0, ON_STR },
    { "rstrip", tmpl_str_rstrip, "chars", 0, ON_STR },
    { "startswith", tmpl_str_startswith, "prefix,start,end", 1, ON_STR },
    { "endswith", tmpl_str_endswith, "suffix,start,end", 1, ON_STR },
    { "replace", tmpl_str_replace, "old,new,count", 2, ON_STR },
    { "find", tmpl_str_find, "sub,start,end", 1, ON_STR },
    { "rfind", tmpl_str_rfind, "sub,start,end", 1, ON_STR },
    { "index", tmpl_str_index, "sub,start,end", 1, ON_STR },
    { "count", tmpl_str_count, "sub", 1, ON_STR },
    { "upper", tmpl_str_upper, "", 0, ON_STR },
    { "lower", tmpl_str_lower, "", 0, ON_STR },
    { "title", tmpl_str_title, "", 0, ON_STR },
    { "capitalize", tmpl_str_capitalize, "", 0, ON_STR },
    { "join", tmpl_str_join, "iterable", 1, ON_STR },
    { "format", tmpl_str_format, NULL, 0, ON_STR },
    { "format_map", tmpl_str_format_map, "mapping", 1, ON_STR },
    { "splitlines", tmpl_str_splitlines, "keepends", 0, ON_STR },
    { "isdigit", tmpl_str_isdigit, "", 0, ON_STR },
    { "isnumeric", tmpl_str_isdigit, "", 0, ON_STR },
    { "isdecimal", tmpl_str_isdigit, "", 0, ON_STR },
    { "isalpha", tmpl_str_isalpha, "", 0, ON_STR },
    { "isalnum", tmpl_str_isalnum, "", 0, ON_STR },
    { "isspace", tmpl_str_isspace, "", 0, ON_STR },
    { "isupper", tmpl_str_isupper, "", 0, ON_STR },
    { "islower", tmpl_str_islower, "", 0, ON_STR },
    { "removeprefix", tmpl_str_removeprefix, "prefix", 1, ON_STR },
    { "removesuffix", tmpl_str_removesuffix, "suffix", 1, ON_STR },
    { "zfill", tmpl_str_zfill, "width", 1, ON_STR },
    { "ljust", tmpl_str_ljust, "width,fillchar", 1, ON_STR },
    { "rjust", tmpl_str_rjust, "width,fillchar", 1, ON_STR },
    { "partition", tmpl_str_partition, "sep", 1, ON_STR },
    { "rpartition", tmpl_str_rpartition, "sep", 1, ON_STR },
    { NULL, NULL, NULL, 0, 0 },
};

const struct tmpl_func *tmpl_find_method(const struct tv *self, const char *name, size_t n)
{
    if (self->kind == TV_SEQ && self->u.seq->type > SEQ_TUPLE) return NULL;
    unsigned on = self->kind == TV_SEQ && self->u.seq->type == SEQ_TUPLE ? ON_TUPLE : 1u << self->kind;
    for (const struct tmpl_func *f = methods; f->name; f++)
        if ((f->on & on) && strlen(f->name) == n && !memcmp(f->name, name, n)) return f;
    return NULL;
}
