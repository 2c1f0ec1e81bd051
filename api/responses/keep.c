#include "api/responses/keep.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_LINES_PER_SECOND = 5 };

/* ---------------------------------------------------------------- items of the input */

/* Ids of clients stand in lines and in addresses: those of other characters are replaced. */
static bool is_id(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t      n = json_string_length(v);
    return s && n && n < RESPONSES_ID_BYTES &&
           n == strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-");
}

static const char *prefix_of(const json_t *type)
{
    if (json_str_is(type, "message")) return "msg_";
    if (json_str_is(type, "reasoning")) return "rs_";
    if (json_str_is(type, "function_call")) return "fc_";
    return json_str_is(type, "custom_tool_call") ? "ctc_" : "item_";
}

/* Clients read the content of a stored message as parts, and each item by its type and id. */
static bool complete(const struct call *c, json_t *item, size_t i, char id[RESPONSES_ID_BYTES])
{
    const json_t *role = json_object_get(item, "role");
    json_t       *content = json_object_get(item, "content"), *parts = NULL;
    bool          of_model = json_str_is(role, "assistant");
    if (!json_object_get(item, "type") && json_object_set_new(item, "type", json_string("message"))) return false;
    if (json_is_string(content)) {
        parts = of_model ? json_pack("[{s:s,s:O,s:[]}]", "type", "output_text", "text", content, "annotations")
                         : json_pack("[{s:s,s:O}]", "type", "input_text", "text", content);
        if (!parts || json_object_set_new(item, "content", parts)) return false;
    }
    if (is_id(json_object_get(item, "id"))) {
        snprintf(id, RESPONSES_ID_BYTES, "%s", json_string_value(json_object_get(item, "id")));
        return true;
    }
    struct hash128 h = hash128_bytes(c->id, strlen(c->id), ~(uint64_t)i); /* its own items count from 1 up */
    snprintf(id, RESPONSES_ID_BYTES, "%s%016llx%016llx", prefix_of(json_object_get(item, "type")),
             (unsigned long long)h.hi, (unsigned long long)h.lo);
    return !json_object_set_new(item, "id", json_string(id));
}

static void put_line(const char *id, const json_t *item, struct buf *b)
{
    char *text = json_dumps(item, JSON_COMPACT);
    buf_puts(b, id);
    buf_putc(b, ' ');
    if (text)
        buf_puts(b, text);
    else
        b->failed = true;
    buf_putc(b, '\n');
    free(text);
}

static bool keep_item(const struct call *c, const json_t *given, size_t i, struct buf *b)
{
    char id[RESPONSES_ID_BYTES];
    if (json_str_is(json_object_get(given, "type"), "item_reference")) return true;
    json_t *item = json_copy((json_t *)(uintptr_t)given);
    bool    done = item && complete(c, item, i, id);
    if (done) put_line(id, item, b);
    json_decref(item);
    return done && !b->failed;
}

enum status responses_keep_input(struct call *c, const json_t *input)
{
    struct responses_call *r = responses_of(c);
    struct buf            *b = &c->scratch;
    bool                   done = true;
    if (!r->stores) return ST_OK;
    buf_clear(b);
    if (json_is_string(input)) {
        json_t *item = json_pack("{s:s,s:O}", "role", "user", "content", input);
        done = item && keep_item(c, item, 0, b);
        json_decref(item);
    }
    for (size_t i = 0; done && i < json_array_size(input); i++) done = keep_item(c, json_array_get(input, i), i, b);
    if (!done || !(r->input = arena_strndup(&c->arena, text_of(b), b->n))) return ST_NOMEM;
    r->n_input = b->n;
    return ST_OK;
}

/* ---------------------------------------------------------------- items of the output */

void responses_keep_output(struct call *c, size_t from)
{
    struct responses_call *r = responses_of(c);
    struct responses_line *l = r->stores ? arena_calloc(&c->arena, 1, sizeof *l) : NULL;
    if (!l) {
        r->stores = false;
        return;
    }
    l->from = from;
    l->to = c->choice[0].tool_calls.n;
    snprintf(l->id, sizeof l->id, "%s", r->id);
    *(r->last ? &r->last->next : &r->first) = l;
    r->last = l;
}

/* ---------------------------------------------------------------- the whole */

static const char *why_not(enum status st)
{
    switch (st) {
    case ST_TOO_LARGE: return "with what it goes on from it is larger than the share of its key";
    case ST_NOT_FOUND: return "what it goes on from has left the store meanwhile";
    case ST_AGAIN: return "other keys have all shares";
    default: return "no memory";
    }
}

void responses_keep(struct call *c, const char *status)
{
    struct responses_call *r = responses_of(c);
    struct buf             lines, object;
    if (!r->stores) return;
    buf_init(&lines, KEEP_BYTES_MAX);
    buf_init(&object, KEEP_BYTES_MAX);
    for (const struct responses_line *l = r->first; l; l = l->next) {
        buf_puts(&lines, l->id);
        buf_putc(&lines, ' ');
        buf_put(&lines, c->choice[0].tool_calls.data + l->from, l->to - l->from);
        buf_putc(&lines, '\n');
    }
    responses_put_head(c, status, NULL, &object);
    size_t n_head = object.n;
    responses_put_tail(c, true, &object);
    enum status st = ST_NOMEM;
    if (!lines.failed && !object.failed && !c->choice[0].tool_calls.failed) {
        const struct stored s = { .part = { r->input, text_of(&lines), object.data, object.data + n_head },
                                  .n = { r->n_input, lines.n, n_head, object.n - n_head } };
        st = responses_store_put(c->model->responses, c->tenant, c->id, r->previous, &s, clock_us());
    }
    buf_free(&lines);
    buf_free(&object);
    if (!st) return;
    r->stores = false; /* the answer says so */
    LOG_INFO_BURST(LOG_LINES_PER_SECOND, "responses: one is not stored: %s", why_not(st));
}
