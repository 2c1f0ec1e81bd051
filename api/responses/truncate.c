#include "api/chat_prompt.h"
#include "api/responses/responses.h"
#include <string.h>

/* "truncation": "auto": where a conversation does not fit into the context, its oldest units are left out. A unit is a
 * message, and a message with calls has their results with it. What stands first as system message stays, and the last
 * unit, which is to be answered. */

struct units {
    json_t *all;  /* the messages */
    size_t *from; /* [n + 1] the message that each begins with; the last entry: the number of messages */
    size_t  n, n_lead;
};

static const char *role_of(const struct units *u, size_t i)
{
    return json_string_value(json_object_get(json_array_get(u->all, i), "role"));
}

static bool has_role(const struct units *u, size_t i, const char *role)
{
    const char *is = role_of(u, i);
    return is && !strcmp(is, role);
}

static enum status find_units(struct call *c, struct units *u)
{
    size_t n = json_array_size(u->all);
    if (!(u->from = arena_alloc(&c->arena, (n + 1) * sizeof *u->from))) return ST_NOMEM;
    while (u->n_lead < n && has_role(u, u->n_lead, "system")) u->n_lead++;
    for (size_t i = u->n_lead; i < n; i++)
        if (i == u->n_lead || !has_role(u, i, "tool")) u->from[u->n++] = i;
    u->from[u->n] = n;
    return ST_OK;
}

/* The prompt without the first k units. *too_long_out: it does not fit. */
static enum status try_without(struct call *c, const struct units *u, size_t k, bool *too_long_out, struct api_error *e)
{
    json_t *list = json_array();
    size_t  n = json_array_size(u->all);
    bool    made = list != NULL;
    for (size_t i = 0; made && i < n; i++)
        if (i < u->n_lead || i >= u->from[k]) made = !json_array_append(list, json_array_get(u->all, i));
    made = made && !json_object_set(c->body, c->dialect->prompt_param, list);
    json_decref(list); /* the body holds it */
    if (!made) return ST_NOMEM;
    *e = (struct api_error){ .http = 0 };
    c->ask.messages = list;
    buf_clear(&c->rendered);
    enum status st = chat_prompt_prepare(c, e);
    *too_long_out = st ? !strcmp(e->code, "context_length_exceeded") : c->prompt[0].n_id >= c->model->context;
    return st;
}

/* Some templates refuse a conversation that does not begin with the user. */
static size_t next_of_user(const struct units *u, size_t k)
{
    for (k++; k < u->n; k++)
        if (has_role(u, u->from[k], "user")) return k;
    return u->n;
}

/* The same for a look: its token ids lie in an arena of their own. What the template refuses is as long as what comes
 * next that begins with the user. */
static enum status is_too_long(struct call *c, const struct units *u, size_t k, bool *too_long_out, struct api_error *e)
{
    struct arena kept = c->arena;
    arena_init(&c->arena, kept.bytes_max);
    enum status st = try_without(c, u, k, too_long_out, e);
    size_t      next = k && st == ST_INVALID && !*too_long_out ? next_of_user(u, k) : u->n;
    if (next < u->n) st = try_without(c, u, next, too_long_out, e);
    arena_free(&c->arena);
    c->arena = kept;
    return st == ST_NOMEM ? st : ST_OK;
}

/* Fewer units make no longer prompt: the least number of units to leave out is found by halving. */
static enum status find_least(struct call *c, const struct units *u, size_t *k_out, struct api_error *e)
{
    size_t      low = u->n > 1 ? 1 : 0, high = u->n ? u->n - 1 : 0; /* without `high` it may be too long too */
    enum status st = ST_OK;
    while (!st && low < high) {
        size_t middle = low + (high - low) / 2;
        bool   too_long = false;
        st = is_too_long(c, u, middle, &too_long, e);
        if (too_long)
            low = middle + 1;
        else
            high = middle;
    }
    *k_out = low;
    return st;
}

enum status responses_prepare(struct call *c, struct api_error *e)
{
    struct units u = { .all = json_incref((json_t *)(uintptr_t)c->ask.messages) };
    bool         too_long = false;
    size_t       k = 0;
    enum status  st = ST_OK;
    if (!c->ask.drops_oldest) {
        json_decref(u.all);
        return chat_prompt_prepare(c, e);
    }
    st = find_units(c, &u);
    if (!st) st = is_too_long(c, &u, 0, &too_long, e);
    if (!st && too_long) st = find_least(c, &u, &k, e);
    if (!st) st = try_without(c, &u, k, &too_long, e);
    if (k && st == ST_INVALID && !too_long && (k = next_of_user(&u, k)) < u.n) st = try_without(c, &u, k, &too_long, e);
    json_decref(u.all);
    return st;
}
