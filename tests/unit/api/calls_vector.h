/* calls_vector: the vectors of tests/data/tools: what a model wrote, and what its answer is then. Included once. */
#pragma once
#include "test.h"
#include "calls_world.h"
#include "tests_root.h"
#include <dirent.h>

struct vector {
    struct calls_model model;
    const char        *text;
    size_t             n;
    struct calls_cfg   cfg;
    bool               open, plain, tokens; /* plain: never as tokens; tokens: never as bytes */
};

/* tok: its markers are tokens; NULL: none is. */
static void vector_init(struct vector *v, const json_t *x, const struct calls_tools *tools, const struct tok *tok)
{
    const char *think = json_string_value(json_object_get(x, "think"));
    const char *start = json_string_value(json_object_get(x, "start"));
    *v = (struct vector){ .text = json_string_value(json_object_get(x, "text")) };
    v->n = json_string_length(json_object_get(x, "text"));
    const struct calls_row *row = calls_row_find(json_string_value(json_object_get(x, "row")));
    assert_non_null(row);
    calls_model_init(&v->model, row, calls_think_find(think ? think : "think"), tok);
    v->plain = json_is_true(json_object_get(x, "plain"));
    /* a token of its own for each marker that is one */
    for (uint32_t i = 0; v->plain && !tok && i < v->model.n_mark; i++) v->model.mark[i].id = 1000 + i;
    v->tokens = json_is_true(json_object_get(x, "tokens"));
    v->open = start && !strcmp(start, "open");
    v->cfg.tools = json_is_false(json_object_get(x, "tools")) ? NULL : tools;
    v->cfg.one = json_is_true(json_object_get(x, "one"));
    v->cfg.sink = join;
}

static void begin(struct vector *v, struct calls *p, struct joined *j)
{
    joined_init(j);
    v->cfg.model = &v->model;
    v->cfg.ctx = j;
    calls_init(p, &v->cfg, v->open);
}

static void expect(const char *what, const struct buf *got, const json_t *x, const char *want, size_t n,
                   const char *how)
{
    if (got->n == n && (!n || !memcmp(got->data, want, n))) return;
    fail_msg("vector %d (%s, %s) %s:\n%.*s\nwanted\n%.*s", (int)json_integer_value(json_object_get(x, "n")),
             json_string_value(json_object_get(x, "row")), how, what, (int)got->n, got->data ? got->data : "", (int)n,
             want);
}

static void finish(const json_t *x, struct calls *p, struct joined *j, const char *how)
{
    const json_t *want = json_object_get(x, "want"), *list = json_object_get(want, "calls");
    const json_t *c = json_object_get(want, "content"), *r = json_object_get(want, "reasoning");
    struct buf    b;
    calls_end(p);
    calls_free(p);
    buf_init(&b, 1 << 20);
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < 2; k++) {
            const json_t *s = json_array_get(json_array_get(list, i), k);
            buf_put(&b, json_string_value(s), json_string_length(s));
            buf_putc(&b, k ? '\n' : ' ');
        }
    expect("calls", &j->calls, x, b.data ? b.data : "", b.n, how);
    expect("content", &j->text, x, json_string_value(c), json_string_length(c), how);
    expect("reasoning", &j->reason, x, json_string_value(r), json_string_length(r), how);
    const json_t *ids = json_object_get(x, "ids");
    buf_clear(&b);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        buf_puts(&b, json_string_value(json_array_get(ids, i)));
        buf_putc(&b, '\n');
    }
    if (ids) expect("ids", &j->ids, x, b.data, b.n, how);
    buf_free(&b);
    joined_free(j);
}

/* Calls each(vector) for all vectors. Returns how many there are. */
static size_t vectors_each(void (*each)(const json_t *x))
{
    struct dirent *entry;
    DIR           *dir = opendir(TESTS_DATA "/tools");
    size_t         n = 0;
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        char         path[600];
        json_error_t e;
        if (!strstr(entry->d_name, ".json")) continue;
        snprintf(path, sizeof path, TESTS_DATA "/tools/%s", entry->d_name);
        json_t *list = json_load_file(path, JSON_ALLOW_NUL, &e);
        if (!list) fail_msg("%s: %s", path, e.text);
        for (size_t i = 0; i < json_array_size(list); i++, n++) each(json_array_get(list, i));
        json_decref(list);
    }
    closedir(dir);
    return n;
}
