#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_str.h"
#include <math.h>
#include <string.h>

/* Filters that lay text out: center, truncate, wordwrap, filesizeformat. */

static bool whole_arg(struct tmpl_eval *e, const struct tv *v, const char *what, int64_t absent, int64_t *out)
{
    if (v->kind == TV_ABSENT) {
        *out = absent;
        return true;
    }
    return tv_integer(v, out) || tmpl_fail(e, "%s must be an integer, not %s", what, tv_type_name(v));
}

static bool f_center(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    int64_t   width;
    if (!tv_to_str(e, v, &s) || !whole_arg(e, &a->pos[0], "center: width", 80, &width)) return false;
    if (width > (int64_t)e->lim.output_bytes_max) return tmpl_over(e, "too much output");
    int64_t n = (int64_t)text_count(s.u.s, s.n), pad = width > n ? width - n : 0;
    int64_t left = pad / 2 + (pad & width & 1); /* as CPython places the odd blank */
    size_t  mark = tmpl_mark(e);
    for (int64_t i = 0; i < left; i++) buf_putc(e->out, ' ');
    buf_put(e->out, s.u.s, s.n);
    for (int64_t i = left; i < pad; i++) buf_putc(e->out, ' ');
    return tmpl_take(e, mark, out);
}

static bool f_truncate(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s, end = a->pos[2].kind == TV_ABSENT ? TV_LIT("...") : a->pos[2];
    int64_t   length, leeway;
    if (!tv_to_str(e, v, &s) || !whole_arg(e, &a->pos[0], "truncate: length", 255, &length)) return false;
    if (a->pos[3].kind == TV_NONE)
        leeway = 5;
    else if (!whole_arg(e, &a->pos[3], "truncate: leeway", 5, &leeway))
        return false;
    if (end.kind != TV_STR) return tmpl_fail(e, "truncate: end must be a string");
    int64_t n_end = (int64_t)text_count(end.u.s, end.n);
    if (length < n_end || leeway < 0)
        return tmpl_fail(e, "truncate: length must not be less than its end, nor leeway negative");
    int64_t n = (int64_t)text_count(s.u.s, s.n);
    if (!tmpl_bytes(e, s.n)) return false;
    if (n <= length || n - length <= leeway) {
        *out = s;
        return true;
    }
    size_t keep = text_offset(s.u.s, s.n, (size_t)(length - n_end)), mark = tmpl_mark(e);
    if (!tv_truth(&a->pos[1])) {
        size_t space = text_rfind(s.u.s, keep, " ", 1);
        keep = space;
    }
    buf_put(e->out, s.u.s, keep);
    buf_put(e->out, end.u.s, end.n);
    return tmpl_take(e, mark, out);
}

static bool f_filesizeformat(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    static const char *const units[2][8] = { { "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" },
                                             { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB" } };
    bool                     binary = tv_truth(&a->pos[0]);
    struct tv                f;
    struct tmpl_args         none = { .pos = &(struct tv){ .kind = TV_ABSENT }, .n = 1 };
    const struct tmpl_func  *to_float = tmpl_find_filter("float", 5);
    if (v->kind == TV_STR) {
        struct tmpl_args bad = { .pos = &(struct tv){ .kind = TV_NONE }, .n = 1 };
        if (!to_float->fn(e, v, &bad, &f)) return false;
        if (f.kind == TV_NONE) return tmpl_fail(e, "filesizeformat: could not convert string to float");
    } else if (v->kind != TV_FLOAT && !tv_whole(v)) {
        return tmpl_fail(e, "filesizeformat: a number is needed, not %s", tv_type_name(v));
    } else if (!to_float->fn(e, v, &none, &f)) {
        return false;
    }
    double bytes = f.u.f, base = binary ? 1024 : 1000, unit = base;
    size_t mark = tmpl_mark(e);
    if (!isfinite(bytes)) return tmpl_fail(e, "filesizeformat: the number is not finite");
    if (bytes == 1) {
        buf_puts(e->out, "1 Byte");
    } else if (bytes < base) {
        buf_printf(e->out, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        int i = 0;
        for (unit = base * base; i < 7 && bytes >= unit; i++) unit *= base;
        buf_printf(e->out, "%.1f %s", base * bytes / unit, units[binary][i]);
    }
    return tmpl_take(e, mark, out);
}

/* ---------------------------------------------------------------- wordwrap */

/* Python's textwrap: the line is cut into chunks (words, parts of hyphenated words, dashes, white space), and chunks
 * fill lines. */
struct wrap {
    const char     *s;
    size_t          n;
    const uint32_t *cp; /* [n_cp] code points */
    const size_t   *at; /* [n_cp + 1] where each begins */
    size_t          n_cp;
    bool            break_long, break_hyphens;
    int64_t         width;
};

static bool wrap_space(uint32_t c) { return c == ' ' || (c >= 9 && c <= 13); }
static bool wrap_word(uint32_t c) { return c == '_' || text_is_alnum(c); } /* \w */
static bool wrap_letter(uint32_t c) { return wrap_word(c) && !text_is_decimal(c); }
static bool wrap_punct(uint32_t c) { return wrap_word(c) || (c < 0x80 && c && strchr("!\"'&.,?", (int)c)); }

/* Two or more '-' at i and a word behind them: their end, else i. */
static size_t dashes(const struct wrap *w, size_t i)
{
    size_t end = i;
    while (end < w->n_cp && w->cp[end] == '-') end++;
    while (end >= i + 2 && !(end < w->n_cp && wrap_word(w->cp[end])))
        end--; /* \w may not be a dash, so this finds none */
    return end >= i + 2 ? end : i;
}

/* A hyphen at j inside a word, where the word may be cut behind it: at least two letters or letter-hyphen-letter in
 * front, a letter or letter-hyphen-letter behind. */
static bool may_cut_behind(const struct wrap *w, size_t j)
{
    if (w->cp[j] != '-') return false;
    bool   two = j >= 2 && wrap_letter(w->cp[j - 2]) && wrap_letter(w->cp[j - 1]);
    bool   one = j >= 3 && wrap_letter(w->cp[j - 3]) && w->cp[j - 2] == '-' && wrap_letter(w->cp[j - 1]);
    size_t k = j + 1;
    if (!(two || one) || k >= w->n_cp || !wrap_letter(w->cp[k])) return false;
    k++;
    if (k < w->n_cp && w->cp[k] == '-') k++;
    return k < w->n_cp && wrap_letter(w->cp[k]);
}

static size_t chunk_end(const struct wrap *w, size_t i)
{
    size_t j = i;
    if (wrap_space(w->cp[i])) {
        while (j < w->n_cp && wrap_space(w->cp[j])) j++;
        return j;
    }
    if (!w->break_hyphens) {
        while (j < w->n_cp && !wrap_space(w->cp[j])) j++;
        return j;
    }
    if (i && wrap_punct(w->cp[i - 1]) && dashes(w, i) > i) return dashes(w, i);
    for (j = i + 1; j < w->n_cp && !wrap_space(w->cp[j]); j++) {
        if (may_cut_behind(w, j)) return j + 1;
        if (wrap_punct(w->cp[j - 1]) && dashes(w, j) > j) return j;
    }
    return j;
}

static bool is_blank(const struct wrap *w, size_t from, size_t to)
{
    return text_lstrip_len(w->s + w->at[from], w->at[to] - w->at[from]) == 0;
}

/* How much of a chunk too long for a line goes into the room that is left. */
static size_t cut_long(const struct wrap *w, size_t from, size_t to, size_t room)
{
    size_t hyphen = 0;
    if (!w->break_hyphens || to - from <= room) return room;
    for (size_t k = 1; k < room; k++)
        if (w->cp[from + k] == '-') hyphen = k;
    for (size_t k = 0; k < hyphen; k++)
        if (w->cp[from + k] != '-') return hyphen + 1;
    return room;
}

/* One line of the text; more lines than one get sep between them. *lines counts what was put so far. */
static bool wrap_line(struct tmpl_eval *e, const struct wrap *w, const struct tv *sep, uint32_t *lines)
{
    size_t   i = 0, end = 0; /* the chunk that waits: [i, end) */
    uint32_t here = 0;
    while (i < w->n_cp || end > i) {
        size_t from = i, width = (size_t)w->width, last = i;
        if (end <= i) end = chunk_end(w, i);
        if (here && is_blank(w, i, end)) {
            i = end;
            if (i >= w->n_cp) break;
            end = chunk_end(w, i);
            from = last = i;
        }
        while (i < w->n_cp && end - from <= width) {
            last = i;
            i = end;
            if (i < w->n_cp) end = chunk_end(w, i);
        }
        if (i < w->n_cp && end - i > width) {
            size_t room = width - (i - from);
            if (w->break_long) { /* of no room nothing is taken, and that nothing is what the line ends with */
                last = i;
                i += room ? cut_long(w, i, end, room) : 0;
            } else if (i == from) {
                last = i;
                i = end;
            }
        }
        size_t to = i > last && i > from && is_blank(w, last, i) ? last : i;
        if (!tmpl_steps(e, 1)) return false;
        if (to == from) continue;
        if ((*lines)++) buf_put(e->out, sep->u.s, sep->n);
        here++;
        buf_put(e->out, w->s + w->at[from], w->at[to] - w->at[from]);
    }
    return !e->out->failed || tmpl_over(e, "too much output");
}

static bool f_wordwrap(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv        s, all, sep = a->pos[2].kind == TV_ABSENT || a->pos[2].kind == TV_NONE ? TV_LIT("\n") : a->pos[2];
    struct tv        keep = { .kind = TV_ABSENT };
    struct tmpl_args none = { .pos = &keep, .n = 1 };
    struct wrap      w = { .break_long = a->pos[1].kind == TV_ABSENT || tv_truth(&a->pos[1]),
                           .break_hyphens = a->pos[3].kind == TV_ABSENT || tv_truth(&a->pos[3]) };
    if (!tv_to_str(e, v, &s) || !whole_arg(e, &a->pos[0], "wordwrap: width", 79, &w.width)) return false;
    if (sep.kind != TV_STR) return tmpl_fail(e, "wordwrap: wrapstring must be a string");
    if (!tmpl_str_splitlines(e, &s, &none, &all) || !tmpl_bytes(e, 8 * (size_t)s.n)) return false;
    if (w.width <= 0 && all.u.seq->n) return tmpl_fail(e, "invalid width %lld (must be > 0)", (long long)w.width);
    size_t mark = tmpl_mark(e);
    for (uint32_t k = 0; k < all.u.seq->n; k++) {
        const struct tv *line = &all.u.seq->v[k];
        uint32_t        *cp = tmpl_alloc(e, (size_t)line->n * sizeof *cp + 1), lines = 0;
        size_t          *at = tmpl_alloc(e, ((size_t)line->n + 1) * sizeof *at);
        if (!cp || !at) return false;
        w.s = line->u.s;
        w.n = line->n;
        w.n_cp = 0;
        for (size_t i = 0; i < line->n; i += text_step(line->u.s + i)) {
            cp[w.n_cp] = text_cp(line->u.s + i);
            at[w.n_cp++] = i;
        }
        at[w.n_cp] = line->n;
        w.cp = cp;
        w.at = at;
        if (k) buf_put(e->out, sep.u.s, sep.n);
        if (!wrap_line(e, &w, &sep, &lines)) return false;
    }
    return tmpl_take(e, mark, out);
}

const struct tmpl_func tmpl_filters_layout[] = {
    { "center", f_center, "width", 0, 0 },
    { "truncate", f_truncate, "length,killwords,end,leeway", 0, 0 },
    { "filesizeformat", f_filesizeformat, "binary", 0, 0 },
    { "wordwrap", f_wordwrap, "width,break_long_words,wrapstring,break_on_hyphens", 0, 0 },
    { "pprint", tmpl_pprint, "", 0, 0 },
    { NULL, NULL, NULL, 0, 0 },
};
