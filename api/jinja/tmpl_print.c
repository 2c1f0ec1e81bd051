#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_text.h"
#include "base/num.h"
#include "base/utf8.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* str() and repr() as Python prints them, and JSON as Python's json.dumps writes it: byte for byte, since the model saw
 * those. */

void tv_print_float(struct buf *b, double f)
{
    if (isnan(f)) {
        buf_puts(b, "nan");
        return;
    }
    if (signbit(f)) buf_putc(b, '-');
    if (isinf(f) || f == 0) {
        buf_puts(b, f == 0 ? "0.0" : "inf");
        return;
    }
    char d[NUM_DIGITS_MAX + 1];
    int  point, n = num_digits(f, d, &point);
    if (point > -4 && point <= 16) {
        if (point <= 0) {
            buf_puts(b, "0.");
            for (int i = point; i < 0; i++) buf_putc(b, '0');
            buf_put(b, d, (size_t)n);
        } else if (n <= point) {
            buf_put(b, d, (size_t)n);
            for (int i = n; i < point; i++) buf_putc(b, '0');
            buf_puts(b, ".0");
        } else {
            buf_put(b, d, (size_t)point);
            buf_putc(b, '.');
            buf_put(b, d + point, (size_t)(n - point));
        }
        return;
    }
    buf_putc(b, d[0]);
    if (n > 1) {
        buf_putc(b, '.');
        buf_put(b, d + 1, (size_t)(n - 1));
    }
    int x = point - 1;
    buf_printf(b, "e%c%02d", x < 0 ? '-' : '+', x < 0 ? -x : x);
}

static void repr_str(struct buf *b, const char *s, size_t n)
{
    char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
    buf_putc(b, quote);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = text_cp(s + i);
        len = text_step(s + i);
        if (cp == (uint32_t)quote || cp == '\\') {
            buf_putc(b, '\\');
            buf_putc(b, (char)cp);
        } else if (cp == '\n') {
            buf_puts(b, "\\n");
        } else if (cp == '\r') {
            buf_puts(b, "\\r");
        } else if (cp == '\t') {
            buf_puts(b, "\\t");
        } else if ((cp >= 0x20 && cp < 0x7f) || (cp >= 0x80 && text_is_printable(cp))) {
            buf_put(b, s + i, len);
        } else {
            text_put_escape(b, cp);
        }
    }
    buf_putc(b, quote);
}

static bool repr_seq(struct tmpl_eval *e, const struct tv_seq *q)
{
    static const char *const open[] = { "[", "(", "[", "", "dict_keys([", "dict_values([", "dict_items([" };
    if (q->type == SEQ_GEN) {
        buf_puts(e->out, "<generator object>");
        return true;
    }
    if (q->type == SEQ_RANGE) {
        int64_t lo = q->n ? q->v[0].u.i : 0, step = q->n > 1 ? q->v[1].u.i - lo : 1;
        buf_printf(e->out, "range(%" PRId64 ", %" PRId64, lo, q->n ? q->v[q->n - 1].u.i + step : 0);
        if (step != 1) buf_printf(e->out, ", %" PRId64, step);
        buf_putc(e->out, ')');
        return true;
    }
    buf_puts(e->out, open[q->type]);
    for (uint32_t i = 0; i < q->n; i++) {
        if (i) buf_puts(e->out, ", ");
        if (!tv_repr(e, &q->v[i])) return false;
    }
    if (q->type == SEQ_TUPLE && q->n == 1) buf_putc(e->out, ',');
    if (q->type == SEQ_TUPLE)
        buf_putc(e->out, ')');
    else
        buf_puts(e->out, q->type == SEQ_LIST ? "]" : "])");
    return true;
}

static bool repr_dict(struct tmpl_eval *e, const struct tv_dict *d)
{
    buf_putc(e->out, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) buf_puts(e->out, ", ");
        if (!tv_repr(e, &d->v[i].k)) return false;
        buf_puts(e->out, ": ");
        if (!tv_repr(e, &d->v[i].v)) return false;
    }
    buf_putc(e->out, '}');
    return true;
}

bool tv_repr(struct tmpl_eval *e, const struct tv *v)
{
    struct buf *b = e->out;
    if (b->failed) return tmpl_over(e, "too much output");
    switch (v->kind) {
    case TV_ABSENT:
    case TV_UNDEF: buf_puts(b, "Undefined"); return true;
    case TV_NONE: buf_puts(b, "None"); return true;
    case TV_BOOL: buf_puts(b, v->u.b ? "True" : "False"); return true;
    case TV_INT: buf_printf(b, "%" PRId64, v->u.i); return true;
    case TV_FLOAT: tv_print_float(b, v->u.f); return true;
    case TV_BIG:
        if (v->u.big->neg) buf_putc(b, '-');
        return big_put_digits(e, v, 10, b);
    case TV_LOOP: buf_printf(b, "<LoopContext %u/%u>", v->u.loop->i + 1, v->u.loop->items->n); return true;
    case TV_STR: repr_str(b, v->u.s, v->n); return true;
    case TV_SEQ:
    case TV_DICT:
    case TV_NS: break;
    default: buf_printf(b, "<%s>", tv_type_name(v)); return true;
    }
    if (e->data_depth >= TMPL_DATA_DEPTH_MAX) return tmpl_over(e, "data nested too deeply");
    if (!tmpl_steps(e, 1)) return false;
    e->data_depth++;
    bool ok;
    if (v->kind == TV_NS) buf_puts(b, "<Namespace ");
    ok = v->kind == TV_SEQ ? repr_seq(e, v->u.seq) : repr_dict(e, v->u.dict);
    if (v->kind == TV_NS) buf_putc(b, '>');
    e->data_depth--;
    return ok;
}

bool tv_print(struct tmpl_eval *e, const struct tv *v)
{
    if (v->kind == TV_UNDEF) return true;
    if (v->kind != TV_STR) return tv_repr(e, v);
    buf_put(e->out, v->u.s, v->n);
    return !e->out->failed || tmpl_over(e, "too much output");
}

bool tv_to_str(struct tmpl_eval *e, const struct tv *v, struct tv *out)
{
    if (v->kind == TV_STR) {
        *out = *v;
        return true;
    }
    size_t mark = tmpl_mark(e);
    return tv_print(e, v) && tmpl_take(e, mark, out);
}

/* ---------------------------------------------------------------- JSON */

bool tv_from_json(struct tmpl_eval *e, const json_t *j, struct tv *out)
{
    switch (json_typeof(j)) {
    case JSON_NULL: *out = tv_none(); return true;
    case JSON_TRUE:
    case JSON_FALSE: *out = tv_bool(json_is_true(j)); return true;
    case JSON_INTEGER: *out = tv_int(json_integer_value(j)); return true;
    case JSON_REAL: *out = tv_float(json_real_value(j)); return true;
    case JSON_STRING: *out = tv_str(json_string_value(j), json_string_length(j)); return true;
    default: break;
    }
    if (e->data_depth >= TMPL_DATA_DEPTH_MAX) return tmpl_over(e, "data nested too deeply");
    e->data_depth++;
    bool ok = true;
    if (json_is_array(j)) {
        size_t         n = json_array_size(j);
        struct tv_seq *q = n <= UINT32_MAX / 2 ? tv_seq_new(e, SEQ_LIST, (uint32_t)n) : NULL;
        if (!q) {
            e->data_depth--;
            return tmpl_over(e, "too much memory");
        }
        q->given = true;
        for (size_t i = 0; i < n && ok; i++) ok = tv_from_json(e, json_array_get(j, i), &q->v[q->n++]);
        *out = tv_seq(q);
    } else {
        size_t          n = json_object_size(j);
        struct tv_dict *d = n <= UINT32_MAX / 2 ? tv_dict_new(e, (uint32_t)n) : NULL;
        if (!d) {
            e->data_depth--;
            return tmpl_over(e, "too much memory");
        }
        d->given = true;
        /* jansson iterates in the order of insertion */
        for (void *it = json_object_iter((json_t *)(uintptr_t)j); it && ok;
             it = json_object_iter_next((json_t *)(uintptr_t)j, it)) {
            struct tv_pair *p = &d->v[d->n++];
            p->k = tv_str(json_object_iter_key(it), json_object_iter_key_len(it));
            ok = tv_from_json(e, json_object_iter_value(it), &p->v);
        }
        *out = tv_dict(d);
    }
    e->data_depth--;
    return ok;
}

static void json_str(struct buf *b, const char *s, size_t n, bool ascii)
{
    size_t run = 0, i = 0, len;
    buf_putc(b, '"');
    for (; i < n; i += len) {
        uint32_t cp = text_cp(s + i);
        len = text_step(s + i);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && (!ascii || cp < 0x7f)) continue;
        buf_put(b, s + run, i - run);
        run = i + len;
        switch (cp) {
        case '"': buf_puts(b, "\\\""); break;
        case '\\': buf_puts(b, "\\\\"); break;
        case '\n': buf_puts(b, "\\n"); break;
        case '\r': buf_puts(b, "\\r"); break;
        case '\t': buf_puts(b, "\\t"); break;
        case '\b': buf_puts(b, "\\b"); break;
        case '\f': buf_puts(b, "\\f"); break;
        default:
            if (cp < 0x10000)
                buf_printf(b, "\\u%04x", cp);
            else
                buf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + (cp & 0x3ff));
        }
    }
    buf_put(b, s + run, i - run);
    buf_putc(b, '"');
}

static void json_newline(struct buf *b, const struct tv_json_style *s, uint32_t level)
{
    buf_putc(b, '\n');
    for (uint32_t i = 0; i < level && !b->failed; i++) {
        if (s->indent_text.kind == TV_STR) buf_put(b, s->indent_text.u.s, s->indent_text.n);
        for (int32_t k = 0; k < s->indent && !b->failed; k++) buf_putc(b, ' ');
    }
}

static bool json_key(struct tmpl_eval *e, const struct tv *k, const struct tv_json_style *s)
{
    switch (k->kind) {
    case TV_STR: json_str(e->out, k->u.s, k->n, s->ascii); return true;
    case TV_NONE: buf_puts(e->out, "\"null\""); return true;
    case TV_BOOL: buf_puts(e->out, k->u.b ? "\"true\"" : "\"false\""); return true;
    case TV_INT:
    case TV_BIG:
    case TV_FLOAT:
        buf_putc(e->out, '"');
        tv_repr(e, k);
        buf_putc(e->out, '"');
        return true;
    default: return tmpl_fail(e, "keys must be str, int, float, bool or None, not %s", tv_type_name(k));
    }
}

/* Insertion sort would be quadratic: merge sort of indices. */
static bool sorted_keys(struct tmpl_eval *e, const struct tv_dict *d, uint32_t **out)
{
    uint32_t *a = tmpl_alloc(e, (size_t)d->n * sizeof *a), *b = tmpl_alloc(e, (size_t)d->n * sizeof *b);
    if (!a || !b) return false;
    for (uint32_t i = 0; i < d->n; i++) a[i] = i;
    for (uint32_t w = 1; w < d->n; w *= 2) {
        for (uint32_t lo = 0; lo < d->n; lo += 2 * w) {
            uint32_t mid = lo + w < d->n ? lo + w : d->n, hi = lo + 2 * w < d->n ? lo + 2 * w : d->n, i = lo, j = mid;
            for (uint32_t k = lo; k < hi; k++) {
                int c = 1;
                if (i < mid && j < hi && !tv_compare(e, &d->v[a[i]].k, &d->v[a[j]].k, &c)) return false;
                b[k] = i < mid && (j >= hi || c <= 0) ? a[i++] : a[j++];
            }
        }
        uint32_t *t = a;
        a = b;
        b = t;
    }
    *out = a;
    return tmpl_steps(e, d->n / 16);
}

static bool json_value(struct tmpl_eval *e, const struct tv *v, const struct tv_json_style *s, uint32_t level);

static bool json_box(struct tmpl_eval *e, const struct tv *v, const struct tv_json_style *s, uint32_t level)
{
    bool        dict = v->kind == TV_DICT, pretty = s->indent >= 0 || s->indent_text.kind == TV_STR;
    uint32_t    n = dict ? v->u.dict->n : v->u.seq->n, *order = NULL;
    struct buf *b = e->out;
    if (!n) {
        buf_puts(b, dict ? "{}" : "[]");
        return true;
    }
    if (dict && s->sort_keys && !sorted_keys(e, v->u.dict, &order)) return false;
    buf_putc(b, dict ? '{' : '[');
    for (uint32_t i = 0; i < n; i++) {
        if (i) buf_put(b, s->item_sep.u.s, s->item_sep.n);
        if (pretty) json_newline(b, s, level + 1);
        uint32_t              at = order ? order[i] : i;
        const struct tv_pair *p = dict ? &v->u.dict->v[at] : NULL;
        if (dict) {
            if (!json_key(e, &p->k, s)) return false;
            buf_put(b, s->key_sep.u.s, s->key_sep.n);
        }
        if (!json_value(e, dict ? &p->v : &v->u.seq->v[i], s, level + 1)) return false;
    }
    if (pretty) json_newline(b, s, level);
    buf_putc(b, dict ? '}' : ']');
    return true;
}

static bool json_value(struct tmpl_eval *e, const struct tv *v, const struct tv_json_style *s, uint32_t level)
{
    struct buf *b = e->out;
    if (b->failed) return tmpl_over(e, "too much output");
    switch (v->kind) {
    case TV_NONE: buf_puts(b, "null"); return true;
    case TV_BOOL: buf_puts(b, v->u.b ? "true" : "false"); return true;
    case TV_INT:
    case TV_BIG: return tv_repr(e, v);
    case TV_FLOAT:
        if (isfinite(v->u.f))
            tv_print_float(b, v->u.f);
        else if (isnan(v->u.f))
            buf_puts(b, "NaN");
        else
            buf_puts(b, v->u.f > 0 ? "Infinity" : "-Infinity");
        return true;
    case TV_STR: json_str(b, v->u.s, v->n, s->ascii); return true;
    case TV_DICT: break;
    case TV_SEQ:
        if (v->u.seq->type <= SEQ_TUPLE) break; /* fall through */
    default: return tmpl_fail(e, "Object of type %s is not JSON serializable", tv_type_name(v));
    }
    if (level >= TMPL_DATA_DEPTH_MAX) return tmpl_over(e, "data nested too deeply");
    return tmpl_steps(e, 1) && json_box(e, v, s, level);
}

bool tv_to_json(struct tmpl_eval *e, const struct tv *v, const struct tv_json_style *style)
{
    return json_value(e, v, style, 0) && (!e->out->failed || tmpl_over(e, "too much output"));
}
