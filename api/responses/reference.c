#include "api/responses/responses.h"
#include "api/responses/store.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

/* Items of the input that name a stored item, {"type": "item_reference", "id": ..}, become that item. One that is not
 * found stays what it is and is left out, as is the second one of the same item. */

enum { LINES_BYTES_MAX = 1 << 30 };

struct wanted {
    const char *id;
    size_t      n, i; /* i: the item of the input */
    bool        found;
};
struct search {
    struct wanted *wanted; /* [n], sorted */
    size_t         n, n_open;
};

static int compare(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    int                  how = memcmp(x->id, y->id, x->n < y->n ? x->n : y->n);
    if (how) return how;
    return x->n < y->n ? -1 : x->n > y->n;
}

static const json_t *id_of(const json_t *item)
{
    const json_t *id = json_object_get(item, "id");
    return json_str_is(json_object_get(item, "type"), "item_reference") && json_string_length(id) ? id : NULL;
}

/* Sorted, each id once. ST_NOMEM. */
static enum status gather(struct call *c, const json_t *input, struct search *s)
{
    size_t n_item = json_array_size(input), n = 0;
    for (size_t i = 0; i < n_item; i++) s->n += id_of(json_array_get(input, i)) != NULL;
    if (!s->n) return ST_OK;
    s->wanted = arena_calloc(&c->arena, s->n, sizeof *s->wanted);
    if (!s->wanted) return ST_NOMEM;
    for (size_t i = 0; i < n_item; i++) {
        const json_t *id = id_of(json_array_get(input, i));
        if (id) s->wanted[n++] = (struct wanted){ .id = json_string_value(id), .n = json_string_length(id), .i = i };
    }
    qsort(s->wanted, n, sizeof *s->wanted, compare);
    s->n = 0;
    for (size_t k = 0; k < n; k++)
        if (!k || compare(&s->wanted[k], &s->wanted[s->n - 1])) s->wanted[s->n++] = s->wanted[k];
    s->n_open = s->n;
    return ST_OK;
}

static struct wanted *find(const struct search *s, const char *id, size_t n)
{
    const struct wanted key = { .id = id, .n = n };
    return bsearch(&key, s->wanted, s->n, sizeof key, compare);
}

/* The newest response is looked at first: of items with the same id, which clients may choose, that one counts. */
static bool want(void *ctx, const char *id, size_t n, bool *last_out)
{
    struct search *s = ctx;
    struct wanted *w = find(s, id, n);
    if (!w || w->found) return false;
    w->found = true;
    s->n_open--;
    *last_out = s->n_open == 0;
    return true;
}

/* The items of these lines take the places of their references. */
static enum status place(const struct search *s, const struct buf *lines, json_t *list, struct api_error *e)
{
    uint64_t    tree_bytes = 0;
    const char *p = text_of(lines), *end = p + lines->n;
    while (p < end) {
        const char       *at = memchr(p, ' ', (size_t)(end - p)), *next = memchr(p, '\n', (size_t)(end - p));
        size_t            n = (size_t)(next - at) - 1;
        struct json_cost  cost;
        struct json_error je;
        if (!json_scan(at + 1, n, &call_bounds, &cost, &je)) return call_body_wrong(&je, e);
        tree_bytes += cost.tree_bytes + cost.string_bytes;
        if (tree_bytes > CALL_TREE_BYTES_MAX)
            return api_fail(e, 400, "input", "the items that 'input' refers to are too large");
        const struct wanted *w = find(s, p, (size_t)(at - p));
        json_t              *item = json_parse_bounded(at + 1, n, &call_bounds, &je);
        if (!item) return ST_NOMEM;
        if (responses_was_cut(item))
            json_decref(item);
        else if (json_array_set_new(list, w->i, item))
            return ST_NOMEM;
        p = next + 1;
    }
    return ST_OK;
}

enum status responses_refer(struct call *c, json_t *input, json_t **list_out, struct api_error *e)
{
    struct search s = { .n = 0 };
    struct buf    lines;
    enum status   st = c->model->responses ? gather(c, input, &s) : ST_OK;
    if (st) return st;
    json_t *list = s.n ? json_copy(input) : json_incref(input);
    if (!list) return ST_NOMEM;
    buf_init(&lines, LINES_BYTES_MAX);
    if (s.n) st = responses_store_items(c->model->responses, c->tenant, want, &s, clock_us(), &lines);
    if (!st) st = place(&s, &lines, list, e);
    buf_free(&lines);
    if (st)
        json_decref(list);
    else
        *list_out = list;
    return st;
}
