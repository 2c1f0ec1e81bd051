#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_str.h"
#include "api/jinja/tmpl_text.h"
#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Filters over text and numbers. Those of lists: tmpl_filter.c. */

static bool f_trim(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    return tv_to_str(e, v, &s) && tmpl_strip(e, &s, &a->pos[0], 3, out);
}

static bool cased(struct tmpl_eval *e, const struct tv *v, enum text_case how, struct tv *out)
{
    struct tv s;
    return tv_to_str(e, v, &s) && tmpl_case(e, &s, how, out);
}
static bool f_upper(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return cased(e, v, TEXT_UPPER, out);
}
static bool f_lower(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return cased(e, v, TEXT_LOWER, out);
}
static bool f_capitalize(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return cased(e, v, TEXT_CAPITALIZE, out);
}

/* Jinja's own title: words begin after blanks, '-' and opening brackets only. */
static bool f_title(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    (void)a;
    if (!tv_to_str(e, v, &s)) return false;
    size_t mark = tmpl_mark(e);
    for (size_t i = 0; i < s.n;) {
        uint32_t c = text_cp(s.u.s + i);
        size_t   end = i;
        if (text_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c))) {
            end += text_step(s.u.s + i);
            buf_put(e->out, s.u.s + i, end - i);
        } else {
            for (; end < s.n; end += text_step(s.u.s + end)) {
                c = text_cp(s.u.s + end);
                if (text_is_space(c) || (c && c < 0x80 && strchr("-({[<", (int)c))) break;
            }
            size_t first = text_step(s.u.s + i);
            text_put_case(e->out, s.u.s + i, first, TEXT_UPPER);
            text_put_case(e->out, s.u.s + i + first, end - i - first, TEXT_LOWER);
        }
        i = end;
    }
    return tmpl_take(e, mark, out);
}

static bool f_replace(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s, from, to;
    int64_t   count = -1;
    if (!tv_to_str(e, v, &s) || !tv_to_str(e, &a->pos[0], &from) || !tv_to_str(e, &a->pos[1], &to)) return false;
    if (a->pos[2].kind != TV_ABSENT && a->pos[2].kind != TV_NONE && !tv_integer(&a->pos[2], &count))
        return tmpl_fail(e, "replace: count is a number");
    return tmpl_replace(e, &s, &from, &to, count, out);
}

static bool f_indent(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s, with = TV_LIT("    ");
    int64_t   width;
    bool      first = tv_truth(&a->pos[1]), blank = tv_truth(&a->pos[2]);
    if (v->kind != TV_STR) return tmpl_fail(e, "indent takes a string, not %s", tv_type_name(v));
    if (a->pos[0].kind == TV_STR) {
        with = a->pos[0];
    } else if (a->pos[0].kind != TV_ABSENT) {
        if (!tv_integer(&a->pos[0], &width)) return tmpl_fail(e, "indent: width is a number or a string");
        struct tv space = TV_LIT(" "), n = tv_int(width);
        if (!tmpl_binary(e, OP_MUL, &space, &n, &with)) return false;
    }
    struct tmpl_args none = { .pos = (const struct tv[]){ { .kind = TV_ABSENT } }, .n = 1 };
    struct tv        newline = TV_LIT("\n"), lines;
    if (!tmpl_concat(e, v, &newline, &s) || !tmpl_str_splitlines(e, &s, &none, &lines)) return false;
    const struct tv_seq *q = lines.u.seq;
    size_t               mark = tmpl_mark(e);
    for (uint32_t i = 0; i < q->n; i++) {
        if (i) buf_putc(e->out, '\n');
        if (i ? blank || q->v[i].n : first) buf_put(e->out, with.u.s, with.n);
        buf_put(e->out, q->v[i].u.s, q->v[i].n);
    }
    return tmpl_take(e, mark, out);
}

static bool f_format(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    if (!tv_to_str(e, v, &s)) return false;
    if (!a->n_kw) return tmpl_percent(e, &s, a->pos, a->n, out);
    struct tv_dict *d = tv_dict_new(e, a->n_kw);
    for (uint32_t k = 0; d && k < a->n_kw; k++)
        if (!tv_dict_set(e, d, tv_str(a->kw[k].name, a->kw[k].n), a->kw_val[k])) return false;
    if (!d) return false;
    struct tv named = tv_dict(d);
    return tmpl_percent(e, &s, &named, 1, out);
}

static bool f_tojson(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    const struct tv     *ascii = &a->pos[0], *indent = &a->pos[1], *sep = &a->pos[2], *sort = &a->pos[3];
    struct tv_json_style s = { .ascii = tv_truth(ascii),
                               .sort_keys = tv_truth(sort),
                               .indent = -1,
                               .item_sep = TV_LIT(", "),
                               .key_sep = TV_LIT(": ") };
    int64_t              n;
    if (indent->kind == TV_STR) {
        s.indent_text = *indent;
    } else if (tv_integer(indent, &n)) {
        s.indent = n > 64 ? 64 : (int32_t)n;
        if (n < 0) s.indent = 0;
    } else if (indent->kind != TV_ABSENT && indent->kind != TV_NONE) {
        return tmpl_fail(e, "tojson: indent is a number or a string");
    }
    if (s.indent >= 0 || s.indent_text.kind == TV_STR) s.item_sep = TV_LIT(",");
    if (sep->kind != TV_ABSENT && sep->kind != TV_NONE) {
        if (sep->kind != TV_SEQ || sep->u.seq->n != 2 || sep->u.seq->v[0].kind != TV_STR ||
            sep->u.seq->v[1].kind != TV_STR)
            return tmpl_fail(e, "tojson: separators are two strings");
        s.item_sep = sep->u.seq->v[0];
        s.key_sep = sep->u.seq->v[1];
    }
    size_t mark = tmpl_mark(e);
    return tv_to_json(e, v, &s) && tmpl_take(e, mark, out);
}

static bool f_from_json(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    struct json_error err;
    if (v->kind != TV_STR) return tmpl_fail(e, "from_json takes a string, not %s", tv_type_name(v));
    if (!tmpl_bytes(e, 16 * (size_t)v->n)) return false;
    json_t *j = json_parse(v->u.s, v->n, 0, &err);
    if (!j) return tmpl_fail(e, "from_json: %s", err.text);
    /* Its strings die with j: written out once more, they come from the arena. */
    struct tv  tmp;
    bool       ok = tv_from_json(e, j, &tmp);
    struct tv *stack[1024];
    uint32_t   n = 0;
    if (ok) stack[n++] = &tmp;
    while (ok && n) {
        struct tv *x = stack[--n];
        if (x->kind == TV_STR) {
            char *s = tmpl_alloc(e, (size_t)x->n + 1);
            if (!(ok = s != NULL)) break;
            if (x->n) memcpy(s, x->u.s, x->n);
            x->u.s = s;
        } else if (x->kind == TV_SEQ || x->kind == TV_DICT) {
            uint32_t kids = x->kind == TV_SEQ ? x->u.seq->n : 2 * x->u.dict->n;
            if (n + kids > sizeof stack / sizeof *stack) {
                ok = tmpl_over(e, "too much data from from_json");
                break;
            }
            for (uint32_t i = 0; i < kids; i++) {
                if (x->kind == TV_SEQ)
                    stack[n++] = &x->u.seq->v[i];
                else
                    stack[n++] = i % 2 ? &x->u.dict->v[i / 2].v : &x->u.dict->v[i / 2].k;
            }
            if (x->kind == TV_SEQ)
                x->u.seq->given = false;
            else
                x->u.dict->given = false;
        }
    }
    json_decref(j);
    return ok && (*out = tmp, true);
}

/* ---------------------------------------------------------------- numbers */

/* As float() takes it: decimal, with single underscores between digits, "inf" and "nan". */
static bool parse_float(const struct tv *v, double *out)
{
    char        text[400], *end;
    size_t      at = v->n - text_lstrip_len(v->u.s, v->n), n = text_rstrip_len(v->u.s + at, v->n - at), k = 0;
    const char *s = v->u.s + at;
    if (!n || n >= sizeof text || memchr(s, 'x', n) || memchr(s, 'X', n) || memchr(s, '(', n)) return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '_') {
            text[k++] = s[i];
            continue;
        }
        bool between = i && i + 1 < n && s[i - 1] >= '0' && s[i - 1] <= '9' && s[i + 1] >= '0' && s[i + 1] <= '9';
        if (!between) return false;
    }
    text[k] = 0;
    *out = strtod(text, &end);
    return end == text + k;
}

static bool f_float(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    double f;
    if (v->kind == TV_UNDEF) return tmpl_fail(e, "'%.*s' is undefined", (int)v->n, v->u.s);
    if (v->kind == TV_BIG && isinf(big_to_double(v))) return tmpl_fail(e, "int too large to convert to float");
    if (tv_number(v, &f) || (v->kind == TV_STR && parse_float(v, &f))) {
        *out = tv_float(f);
        return true;
    }
    *out = a->pos[0].kind == TV_ABSENT ? tv_float(0) : a->pos[0];
    return true;
}

/* 0 to 35; 99: no digit of any base. */
static uint32_t digit_value(char c)
{
    unsigned letter = (unsigned)(c | 0x20) - 'a';
    if (c >= '0' && c <= '9') return (uint32_t)(c - '0');
    return letter < 26 ? letter + 10 : 99;
}

/* The digits of a number in text, as int() takes them: sign, prefix of the base, single underscores. ABSENT: they are
 * none. */
static bool whole_of_text(struct tmpl_eval *e, const struct tv *v, uint32_t base, struct tv *out)
{
    size_t      at = v->n - text_lstrip_len(v->u.s, v->n), n = text_rstrip_len(v->u.s + at, v->n - at), k = 0;
    const char *s = v->u.s + at;
    *out = (struct tv){ .kind = TV_ABSENT };
    bool neg = n && s[0] == '-', prefix = false;
    if (n && (s[0] == '-' || s[0] == '+')) {
        s++;
        n--;
    }
    char     mark = n > 2 && s[0] == '0' ? (char)(s[1] | 0x20) : 0;
    uint32_t named = 0;
    if (mark == 'x') named = 16;
    if (mark == 'o') named = 8;
    if (mark == 'b') named = 2;
    if (named && (base == named || !base)) {
        base = named;
        prefix = true;
        s += 2;
        n -= 2;
    }
    if (!base) {
        for (size_t i = 1; i < n && s[0] == '0'; i++)
            if (s[i] != '0' && s[i] != '_') return true; /* 012 is no number, 00 is */
        base = 10;
    }
    char *digits = tmpl_alloc(e, n + 1);
    if (!digits || !tmpl_bytes(e, n * 16)) return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '_' && (i || prefix) && i + 1 < n && s[i + 1] != '_') continue;
        if (digit_value(s[i]) >= base) return true;
        digits[k++] = s[i];
    }
    if (!k) return true;
    if (!big_parse(&e->arena, digits, k, base, neg, out)) *out = (struct tv){ .kind = TV_ABSENT };
    return true;
}

static bool f_int(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    int64_t i, base = 10;
    double  f;
    if (a->pos[1].kind != TV_ABSENT && (!tv_integer(&a->pos[1], &base) || base < 0 || base == 1 || base > 36))
        return tmpl_fail(e, "int: base is 0, or 2 to 36");
    *out = a->pos[0].kind == TV_ABSENT ? tv_int(0) : a->pos[0];
    if (v->kind == TV_UNDEF) return tmpl_fail(e, "'%.*s' is undefined", (int)v->n, v->u.s);
    if (v->kind == TV_BIG) {
        *out = *v;
        return true;
    }
    if (tv_integer(v, &i)) {
        *out = tv_int(i);
        return true;
    }
    if (v->kind == TV_STR) {
        struct tv whole;
        if (!whole_of_text(e, v, (uint32_t)base, &whole)) return false;
        if (whole.kind != TV_ABSENT) {
            *out = whole;
            return true;
        }
        if (!parse_float(v, &f)) return true;
    } else if (v->kind == TV_FLOAT) {
        f = v->u.f;
    } else {
        return true;
    }
    return !isfinite(f) || big_from_double(e, f, out);
}

static bool f_abs(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv zero = tv_int(0);
    int       c = 0;
    (void)a;
    if (v->kind == TV_FLOAT) {
        *out = tv_float(fabs(v->u.f));
        return true;
    }
    if (!tv_whole(v)) return tmpl_fail(e, "bad operand type for abs(): '%s'", tv_type_name(v));
    if (!tv_compare(e, v, &zero, &c)) return false;
    return c < 0 ? big_negate(e, v, out) : tmpl_binary(e, OP_ADD, v, &zero, out);
}

/* Python rounds whole numbers half to even at a negative number of places. */
static bool round_whole(struct tmpl_eval *e, const struct tv *v, int64_t places, struct tv *out)
{
    struct tv ten = tv_int(10), up = tv_int(-places), unit, rest, twice, zero = tv_int(0);
    int       c = 0;
    if (places >= 0) return tmpl_binary(e, OP_ADD, v, &zero, out);
    if (!tmpl_binary(e, OP_POW, &ten, &up, &unit) || !tmpl_binary(e, OP_MOD, v, &unit, &rest)) return false;
    if (!tmpl_binary(e, OP_SUB, v, &rest, out) || !tmpl_binary(e, OP_ADD, &rest, &rest, &twice) ||
        !tv_compare(e, &twice, &unit, &c))
        return false;
    if (!c) { /* half: to the even multiple */
        struct tv two = tv_int(2), quotient, odd;
        if (!tmpl_binary(e, OP_FLOORDIV, v, &unit, &quotient) || !tmpl_binary(e, OP_MOD, &quotient, &two, &odd))
            return false;
        c = tv_truth(&odd) ? 1 : -1;
    }
    return c < 0 || tmpl_binary(e, OP_ADD, out, &unit, out);
}

/* The double nearest to what the decimal digits say: half to even on the exact value, as Python's round. */
static double round_float(double f, int64_t places)
{
    char text[700];
    if (places > 300 || !isfinite(f)) return f;
    if (places < 0) {
        double scale = pow(10, (double)-places);
        return rint(f / scale) * scale;
    }
    snprintf(text, sizeof text, "%.*f", (int)places, f);
    return strtod(text, NULL);
}

static bool f_round(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    int64_t places = 0;
    double  f;
    if (!tv_number(v, &f)) return tmpl_fail(e, "round: a number is needed, not %s", tv_type_name(v));
    if (a->pos[0].kind != TV_ABSENT && (!tv_integer(&a->pos[0], &places) || places < -300 || places > 300))
        return tmpl_fail(e, "round: bad precision");
    double scale = pow(10, (double)places);
    if (tv_str_is(&a->pos[1], "ceil")) {
        *out = tv_float(ceil(f * scale) / scale);
        return true;
    }
    if (tv_str_is(&a->pos[1], "floor")) {
        *out = tv_float(floor(f * scale) / scale);
        return true;
    }
    if (a->pos[1].kind != TV_ABSENT && !tv_str_is(&a->pos[1], "common"))
        return tmpl_fail(e, "round: method must be common, ceil or floor");
    if (v->kind != TV_FLOAT) return round_whole(e, v, places, out);
    *out = tv_float(round_float(f, places));
    return true;
}

static bool f_wordcount(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    int64_t   n = 0;
    bool      in = false;
    (void)a;
    if (!tv_to_str(e, v, &s) || !tmpl_bytes(e, s.n)) return false;
    for (size_t i = 0; i < s.n; i += text_step(s.u.s + i)) {
        uint32_t c = text_cp(s.u.s + i);
        bool     word = c == '_' || text_is_alnum(c);
        n += word && !in;
        in = word;
    }
    *out = tv_int(n);
    return true;
}

const struct tmpl_func tmpl_filters_text[] = {
    { "trim", f_trim, "chars", 0, 0 },
    { "upper", f_upper, "", 0, 0 },
    { "lower", f_lower, "", 0, 0 },
    { "title", f_title, "", 0, 0 },
    { "capitalize", f_capitalize, "", 0, 0 },
    { "replace", f_replace, "old,new,count", 2, 0 },
    { "indent", f_indent, "width,first,blank", 0, 0 },
    { "format", f_format, NULL, 0, 0 },
    { "tojson", f_tojson, "ensure_ascii,indent,separators,sort_keys", 0, 0 },
    { "from_json", f_from_json, "", 0, 0 },
    { "fromjson", f_from_json, "", 0, 0 },
    { "float", f_float, "default", 0, 0 },
    { "int", f_int, "default,base", 0, 0 },
    { "abs", f_abs, "", 0, 0 },
    { "round", f_round, "precision,method", 0, 0 },
    { "wordcount", f_wordcount, "", 0, 0 },
    { NULL, NULL, NULL, 0, 0 },
};
