#include "api/responses/keep.h"
#include "api/turns.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

/* A request's input is a list of items: messages, reasoning, calls and their outputs, as the client has gathered them
 * over the turns. Items of one turn of the assistant become one message. */

enum { AT_BYTES = 64, MEMBER_BYTES = 40, ENCRYPTED_VERSION = 1 };

struct reader {
    struct call      *c;
    struct turns      turns;
    struct api_error *e;
    size_t            i; /* the item at hand, for errors */
};

static bool absent(const json_t *v) { return !v || json_is_null(v); }

static enum status wrong_item(const struct reader *r, const char *member, const char *what)
{
    char at[AT_BYTES + MEMBER_BYTES];
    snprintf(at, sizeof at, "input[%zu]%s", r->i, member);
    return api_fail(r->e, 400, at, "'%s' %s", at, what);
}

/* ---------------------------------------------------------------- messages */

static json_t *text_of_part(const json_t *part)
{
    const json_t *type = json_object_get(part, "type");
    bool          refusal = json_str_is(type, "refusal");
    bool    text = json_str_is(type, "input_text") || json_str_is(type, "output_text") || json_str_is(type, "text");
    json_t *s = json_object_get(part, refusal ? "refusal" : "text");
    return (refusal || text) && json_is_string(s) ? s : NULL;
}

static enum status read_content(struct reader *r, const char *role, json_t *content)
{
    char member[MEMBER_BYTES];
    if (json_is_string(content)) return turns_text(&r->turns, role, content);
    if (!json_is_array(content)) return wrong_item(r, ".content", "must be a string or an array of parts");
    for (size_t k = 0; k < json_array_size(content); k++) {
        json_t *text = text_of_part(json_array_get(content, k));
        snprintf(member, sizeof member, ".content[%zu]", k);
        if (!text) return wrong_item(r, member, "must be a part of text: this model takes text only");
        enum status st = turns_text(&r->turns, role, text);
        if (st) return st;
    }
    return ST_OK;
}

static enum status read_message(struct reader *r, const json_t *item)
{
    static const char *const roles[] = { "user", "assistant", "system", "developer" };
    const json_t            *role = json_object_get(item, "role"), *last = turns_last(&r->turns);
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++) {
        if (!json_str_is(role, roles[k])) continue;
        /* what leads joins the instructions, which are a system message */
        bool leads = k >= 2 && (!last || json_str_is(json_object_get(last, "role"), "system"));
        return read_content(r, leads ? "system" : roles[k], json_object_get(item, "content"));
    }
    return wrong_item(r, ".role", "must be user, assistant, system or developer");
}

/* ---------------------------------------------------------------- reasoning */

/* What this server has called encrypted is the text itself; what others have encrypted is theirs to read. */
static enum status read_encrypted(struct reader *r, const json_t *v)
{
    size_t         n = json_string_length(v);
    unsigned char *plain = n && n % 4 == 0 && n < INT32_MAX ? arena_alloc(&r->c->arena, n) : NULL;
    int            got = plain ? EVP_DecodeBlock(plain, (const unsigned char *)json_string_value(v), (int)n) : -1;
    if (got < 1 || plain[0] != ENCRYPTED_VERSION) return ST_OK;
    size_t padding = 0;
    while (padding < 2 && json_string_value(v)[n - 1 - padding] == '=') padding++;
    json_t     *text = json_stringn((const char *)plain + 1, (size_t)got - 1 - padding); /* NULL: no UTF-8 */
    enum status st = text ? turns_reason(&r->turns, text) : ST_OK;
    json_decref(text);
    return st;
}

static enum status read_reasoning(struct reader *r, const json_t *item)
{
    static const char *const lists[] = { "content", "summary" };
    const json_t            *encrypted = json_object_get(item, "encrypted_content");
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(item, lists[k]);
        if (k == 1 && json_is_string(encrypted)) return read_encrypted(r, encrypted);
        enum status st = ST_OK;
        for (size_t j = 0; !st && j < json_array_size(list); j++) {
            const json_t *text = json_object_get(json_array_get(list, j), "text");
            if (json_is_string(text)) st = turns_reason(&r->turns, text);
        }
        if (st || json_array_size(list)) return st;
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- calls and outputs */

static enum status read_call(struct reader *r, const json_t *item, bool custom)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *given = json_object_get(item, custom ? "input" : "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(given))
        return wrong_item(r, "",
                          custom ? "needs a 'call_id', a 'name' and an 'input'"
                                 : "needs a 'call_id', a 'name' and 'arguments'");
    json_t     *space = json_object_get(item, "namespace");
    json_t     *full = json_string_length(space) ? responses_full_name(space, name) : json_incref(name);
    json_t     *arguments = custom ? json_pack("{s:O}", "input", given) : json_incref(given);
    enum status st = arguments && full ? turns_call(&r->turns, id, full, arguments) : ST_NOMEM;
    json_decref(arguments);
    json_decref(full);
    return st;
}

/* A string, text parts, or any other value as its JSON. */
static json_t *output_text(struct reader *r, const json_t *output)
{
    struct buf *b = &r->c->scratch;
    if (json_is_string(output)) return json_copy((json_t *)(uintptr_t)output);
    buf_clear(b);
    for (size_t k = 0; k < json_array_size(output); k++) {
        const json_t *text = text_of_part(json_array_get(output, k));
        if (k) buf_putc(b, '\n');
        if (text)
            buf_put(b, json_string_value(text), json_string_length(text));
        else
            buf_puts(b, "[image omitted]"); /* an error would end an agent's session for good */
    }
    if (!json_is_array(output)) {
        size_t n = json_dumpb(output, NULL, 0, JSON_ENCODE_ANY | JSON_COMPACT);
        char  *to = buf_reserve(b, n);
        if (to) b->n += json_dumpb(output, to, n, JSON_ENCODE_ANY | JSON_COMPACT);
    }
    return b->failed ? NULL : json_stringn_nocheck(text_of(b), b->n);
}

static enum status read_output(struct reader *r, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *output = json_object_get(item, "output");
    if (!json_is_string(id) || !json_string_length(id) || absent(output))
        return wrong_item(r, "", "needs a 'call_id' and an 'output'");
    json_t *text = output_text(r, output);
    return text ? turns_result(&r->turns, id, text) : ST_NOMEM;
}

/* ---------------------------------------------------------------- the list */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), n_tail = strlen(tail);
    return n >= n_tail && !strcmp(s + n - n_tail, tail);
}

/* Items of kinds that are not known, and references to what was not found, are left out: clients send them to every
 * server. */
static enum status read_item(struct reader *r, const json_t *item)
{
    if (!json_is_object(item)) return wrong_item(r, "", "must be an object");
    const json_t *type = json_object_get(item, "type");
    if (absent(type) || json_str_is(type, "message")) return read_message(r, item);
    if (!json_is_string(type)) return wrong_item(r, ".type", "must be a string");
    if (json_str_is(type, "reasoning")) return read_reasoning(r, item);
    if (json_str_is(type, "function_call")) return read_call(r, item, false);
    if (json_str_is(type, "custom_tool_call")) return read_call(r, item, true);
    if (ends_with(json_string_value(type), "_output")) return read_output(r, item);
    return ST_OK;
}

/* The lines of what the request goes on from. Each was checked when it came. */
static enum status read_past(struct reader *r, const struct buf *past)
{
    enum status st = ST_OK;
    size_t      n_line = 0;
    for (const char *p = text_of(past), *end = p + past->n; !st && p < end; n_line++) {
        const char       *at = memchr(p, ' ', (size_t)(end - p)), *next = memchr(p, '\n', (size_t)(end - p));
        struct json_error je;
        json_t           *item = json_parse_bounded(at + 1, (size_t)(next - at) - 1, &call_bounds, &je);
        if (n_line == r->c->model->messages_max)
            st = api_fail(r->e, 400, "previous_response_id", "the conversation has more than %u items",
                          r->c->model->messages_max);
        else if (!item)
            st = ST_NOMEM;
        else if (!responses_was_cut(item))
            st = read_item(r, item);
        json_decref(item);
        p = next + 1;
    }
    return st;
}

enum status responses_input(struct call *c, struct api_error *e)
{
    json_t       *input = (json_t *)(uintptr_t)c->ask.messages, *instructions = (json_t *)(uintptr_t)c->ask.system;
    struct reader r = { .c = c, .e = e };
    enum status   st = turns_open(&r.turns, &c->scratch);
    if (!st && !absent(instructions) && !json_is_string(instructions))
        st = api_fail(e, 400, "instructions", "'instructions' must be a string");
    if (!st && json_is_string(instructions)) st = turns_text(&r.turns, "system", instructions);
    if (!st && c->past && c->past->n) st = read_past(&r, c->past);
    if (!st && json_array_size(input) > c->model->messages_max)
        st = api_fail(e, 400, "input", "'input' has more than %u items", c->model->messages_max);
    if (!st && json_is_string(input))
        st = turns_text(&r.turns, "user", input);
    else if (!st && !json_is_array(input) && !(absent(input) && json_array_size(r.turns.list)))
        st = api_fail(e, 400, "input", "'input' must be a string or an array of items");
    json_t *items = NULL;
    if (!st && json_is_array(input)) st = responses_refer(c, input, &items, e);
    for (r.i = 0; !st && r.i < json_array_size(items); r.i++) st = read_item(&r, json_array_get(items, r.i));
    if (!st) st = responses_keep_input(c, items ? items : input);
    json_decref(items);
    if (!st && !json_array_size(r.turns.list)) st = api_fail(e, 400, "input", "'input' has nothing to answer");
    return turns_finish(&r.turns, c, st);
}
