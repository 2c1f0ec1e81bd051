#include "api/chat_prompt.h"
#include "api/responses/responses.h"
#include "api/responses/store.h"
#include "base/clock.h"
#include <string.h>

/* A request may name the response that it goes on from. Its conversation is fetched before the body is parsed, so that
 * the memory of both is counted together. */

enum { LOOK_BYTES_MAX = 64 << 10 /* a larger body goes to a text thread anyway */, PAST_BYTES_MAX = 1 << 30 };

static const char previous_field[] = "previous_response_id", beside_field[] = "conversation";

static enum json_want want_previous(void *ctx, const char *name, size_t n_name)
{
    (void)ctx;
    if (n_name == strlen(previous_field) && !memcmp(name, previous_field, n_name)) return JSON_SCALAR;
    return n_name == strlen(beside_field) && !memcmp(name, beside_field, n_name) ? JSON_TYPE : JSON_SKIP;
}

/* The id that the body names, to be freed with json_decref; NULL: none, or the body is wrong, which is told
 * elsewhere: with a conversation, for one, whatever the id. */
static json_t *previous_of(const char *body, size_t n_body)
{
    struct json_fields f;
    struct json_error  je;
    if (!memmem(body, n_body, previous_field, strlen(previous_field)) && !memmem(body, n_body, "\\u", 2)) return NULL;
    if (!json_fields_scan(body, n_body, &call_bounds, want_previous, NULL, &f, &je) || !f.n_field) return NULL;
    json_t *fields = json_fields_build(body, &f, &je);
    json_t *id = json_incref(json_object_get(fields, previous_field)), *beside = json_object_get(fields, beside_field);
    bool    alone = !beside || json_is_null(beside);
    json_decref(fields);
    if (json_is_string(id) && alone) return id;
    json_decref(id);
    return NULL;
}

/* A query stands before each of its documents: half of the body before as many as the other half holds. */
static uint64_t pairs_bytes(uint64_t n_body)
{
    uint64_t documents = n_body / 8 + 1, most = (uint64_t)EMBED_TOKENS_MAX * 8;
    return n_body > most || documents * (n_body / 2 + 512) > most ? n_body + most : documents * (n_body / 2 + 512);
}

uint64_t call_text_bytes(const struct dialect *d, const struct api_model *m, uint64_t tenant, const char *body,
                         size_t n_body)
{
    if (d->task == TASK_SCORE && m->pair) return pairs_bytes(n_body);
    if (!d->recalls || !m->responses || n_body > LOOK_BYTES_MAX) return n_body;
    json_t  *id = previous_of(body, n_body);
    uint64_t past =
        id ? responses_store_past_bytes(m->responses, tenant, json_string_value(id), json_string_length(id), clock_us())
           : 0;
    json_decref(id);
    return n_body + past;
}

/* The memory of their trees. */
static enum status weigh(struct call_past *past, struct api_error *e)
{
    struct json_cost  cost;
    struct json_error je;
    const char       *p = text_of(&past->lines), *end = p + past->lines.n;
    while (p < end) {
        const char *item = memchr(p, ' ', (size_t)(end - p)), *next = memchr(p, '\n', (size_t)(end - p));
        if (!json_scan(item + 1, (size_t)(next - item) - 1, &call_bounds, &cost, &je)) return call_body_wrong(&je, e);
        past->tree_bytes += cost.tree_bytes + cost.string_bytes;
        p = next + 1;
    }
    if (past->tree_bytes <= CALL_TREE_BYTES_MAX) return ST_OK;
    return api_fail(e, 400, previous_field, "the items that '%s' stands for are too large", previous_field);
}

enum status call_recall(const struct dialect *d, const struct api_model *m, uint64_t tenant, const char *body,
                        size_t n_body, struct call_past *past_out, struct api_error *e)
{
    char shown[200];
    *e = (struct api_error){ .http = 0 };
    *past_out = (struct call_past){ .tree_bytes = 0 };
    buf_init(&past_out->lines, PAST_BYTES_MAX);
    json_t *id = d->recalls && m->responses ? previous_of(body, n_body) : NULL;
    if (!id) return ST_OK;
    enum status st = responses_store_past(m->responses, tenant, json_string_value(id), json_string_length(id), true,
                                          clock_us(), &past_out->lines);
    if (st == ST_NOT_FOUND)
        st = api_fail_code(e, 404, previous_field, "previous_response_not_found",
                           "The response '%s' is not known: it was not stored with this key, was deleted, or has left "
                           "the store. Send its input and output items in 'input'.",
                           api_excerpt(shown, sizeof shown, json_string_value(id), json_string_length(id)));
    else if (st)
        api_fail(e, 503, "", "out of memory");
    else
        st = weigh(past_out, e);
    json_decref(id);
    return st;
}

enum status api_input_tokens(const struct api_model *m, uint64_t tenant, const char *body, size_t n, struct buf *out,
                             struct api_error *e)
{
    struct call      c;
    struct call_past past;
    enum status      st = call_recall(&dialect_responses_count, m, tenant, body, n, &past, e);
    if (!st) {
        const struct call_from from = { .tenant = tenant, .past = &past.lines };
        buf_puts(out, "{\"object\":\"response.input_tokens\",");
        st = call_parse(&c, &dialect_responses_count, m, body, n, &from, e);
        if (!st) st = chat_prompt_count(&c, out, e);
        buf_putc(out, '}');
        call_free(&c);
    }
    buf_free(&past.lines);
    return st;
}
