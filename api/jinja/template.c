#include "api/jinja/template.h"
#include "api/jinja/tmpl_eval.h"
#include "base/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tmpl_limits tmpl_limits_default = {
    .steps_max = 1000000, .depth_max = 128, .output_bytes_max = 16u << 20, .memory_bytes_max = 64u << 20
};

enum { PARSE_BYTES_MAX = 256 << 20 };

/* Newlines become \n, and one at the very end goes, as Jinja reads a source. */
static bool copy_text(struct tmpl *t, const char *text, size_t n)
{
    if (!(t->text = arena_alloc(&t->arena, n + 1))) return false;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        t->text[k++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (k && t->text[k - 1] == '\n') k--;
    t->text[k] = 0;
    t->n_text = k;
    return true;
}

enum status tmpl_parse(const char *text, size_t n, struct tmpl **t_out, char *err, size_t err_bytes)
{
    err[0] = 0;
    if (n > TMPL_TEXT_MAX) {
        snprintf(err, err_bytes, "line 1: a template of more than %d bytes", TMPL_TEXT_MAX);
        return ST_CONFIG;
    }
    if (!utf8_valid(text, n) || memchr(text, 0, n)) {
        snprintf(err, err_bytes, "line 1: not UTF-8");
        return ST_CONFIG;
    }
    struct tmpl *t = calloc(1, sizeof *t);
    if (!t) return ST_NOMEM;
    arena_init(&t->arena, PARSE_BYTES_MAX);
    if (!copy_text(t, text, n) || !tmpl_parse_text(t, err, err_bytes)) {
        if (!err[0]) snprintf(err, err_bytes, "line 1: out of memory");
        tmpl_free(t);
        return ST_CONFIG;
    }
    *t_out = t;
    return ST_OK;
}

static bool bind_vars(struct tmpl_eval *e, const json_t *vars)
{
    const struct tmpl *t = e->t;
    struct tv         *given = arena_calloc(&e->arena, t->n_sym ? t->n_sym : 1, sizeof *given);
    if (!given) return tmpl_over(e, "too much memory");
    e->given = given;
    for (uint32_t i = 0; i < t->n_sym; i++) {
        const struct tmpl_func *f = tmpl_find(tmpl_globals, t->sym[i].s, t->sym[i].n);
        const json_t           *j = t->sym[i].read ? json_object_getn(vars, t->sym[i].s, t->sym[i].n) : NULL;
        if (f) given[i] = (struct tv){ .kind = TV_FUNC, .u.func = f };
        if (j && !tv_from_json(e, j, &given[i])) return false;
        if (t->n_block && t->sym[i].n == 4 && !memcmp(t->sym[i].s, "self", 4))
            given[i] = (struct tv){ .kind = TV_SELF };
    }
    return true;
}

enum status tmpl_render(const struct tmpl *t, const json_t *vars, const struct tmpl_limits *lim, int64_t now_s,
                        struct buf *out, char *err, size_t err_bytes)
{
    struct tmpl_eval e = {
        .t = t, .lim = lim ? *lim : tmpl_limits_default, .now_s = now_s, .line = 1, .err = err, .err_bytes = err_bytes
    };
    struct buf text;
    err[0] = 0;
    e.steps = e.lim.steps_max;
    arena_init(&e.arena, e.lim.memory_bytes_max);
    buf_init(&text, e.lim.output_bytes_max);
    e.out = &text;
    if (bind_vars(&e, vars) && tmpl_scope_push(&e)) {
        e.root = e.scope;
        tmpl_run(&e, t->body);
    }
    if (!e.st && text.failed) tmpl_over(&e, "too much output");
    if (!e.st) {
        buf_put(out, text.data, text.n);
        if (out->failed) {
            e.st = ST_TOO_LARGE;
            snprintf(err, err_bytes, "the chat template's output is too large");
        }
    }
    buf_free(&text);
    arena_free(&e.arena);
    return e.st;
}

bool tmpl_wants_parts(const struct tmpl *t) { return t->wants_parts; }

bool tmpl_mentions(const struct tmpl *t, const char *name)
{
    size_t n = strlen(name);
    for (uint32_t i = 0; i < t->n_sym; i++)
        if (t->sym[i].read && t->sym[i].n == n && !memcmp(t->sym[i].s, name, n)) return true;
    return false;
}

bool tmpl_has_text(const struct tmpl *t, const char *text)
{
    return memmem(t->text, t->n_text, text, strlen(text)) != NULL;
}

const char *tmpl_text(const struct tmpl *t, size_t *n_out)
{
    *n_out = t->n_text;
    return t->text;
}

void tmpl_free(struct tmpl *t)
{
    if (!t) return;
    arena_free(&t->arena);
    free(t);
}
