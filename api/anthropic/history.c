#include "api/anthropic/anthropic.h"
#include "api/turns.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message of Anthropic's has a list of blocks. A user's turn may hold results of tools and text; an assistant's turn
 * thinking, text and calls. In OpenAI's form these are messages and members of their own. Turns of one role that follow
 * each other become one. */

enum { AT_BYTES = 64 };

struct maker {
    struct call      *c;
    struct turns      turns;
    struct api_error *e;
    size_t            i, k; /* the message and the block at hand, for errors */
};

static bool absent(const json_t *v) { return !v || json_is_null(v); }

__attribute__((format(printf, 2, 3))) static enum status fail_at_block(struct maker *m, const char *fmt, ...)
{
    char    at[AT_BYTES], text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(at, sizeof at, "messages.%zu.content.%zu", m->i, m->k);
    return api_fail(m->e, 400, at, "'%s': %s", at, text);
}

/* ---------------------------------------------------------------- blocks of both roles */

static enum status add_text_block(struct maker *m, const char *role, const json_t *block)
{
    json_t *text = json_object_get(block, "text");
    if (!json_is_string(text)) return fail_at_block(m, "a block of type \"text\" needs a 'text'");
    return turns_text(&m->turns, role, text);
}

static enum status unsupported(struct maker *m, const json_t *block)
{
    char          show[200];
    const json_t *type = json_object_get(block, "type");
    if (!json_is_string(type)) return fail_at_block(m, "a block must be an object with a 'type'");
    return fail_at_block(m, "blocks of type \"%s\" are not supported by this model",
                         api_excerpt(show, sizeof show, json_string_value(type), json_string_length(type)));
}

/* ---------------------------------------------------------------- a user's turn */

static void put_string(struct buf *b, const json_t *text)
{
    buf_put(b, json_string_value(text), json_string_length(text));
}

/* The passages of a search, one a line. */
static void put_found(struct buf *b, const json_t *content)
{
    for (size_t i = 0, n = 0; i < json_array_size(content); i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        if (!json_is_string(text)) continue;
        if (n++) buf_putc(b, '\n');
        put_string(b, text);
    }
}

/* A block of a result as text. What has none is named and left out: an error would end an agent's session for good. */
static void put_part(struct buf *b, const json_t *part, const json_t *type)
{
    const json_t *source = json_object_get(part, "source"), *text = json_object_get(part, "text");
    char          show[200];
    bool          is_text = json_str_is(type, "text");
    if (json_str_is(type, "document")) {
        is_text = json_str_is(json_object_get(source, "type"), "text");
        text = json_object_get(source, "data");
    }
    if (is_text && json_is_string(text))
        put_string(b, text);
    else if (json_str_is(type, "search_result"))
        put_found(b, json_object_get(part, "content"));
    else if (!json_str_is(type, "tool_reference"))
        buf_printf(b, "[%s omitted]",
                   api_excerpt(show, sizeof show, json_string_value(type), json_string_length(type)));
}

/* A result's content as one text. */
static enum status result_text(struct maker *m, const json_t *content, bool failed, json_t **out)
{
    struct buf *b = &m->c->scratch;
    buf_clear(b);
    if (failed) buf_puts(b, "Error: ");
    if (json_is_string(content)) put_string(b, content);
    if (!absent(content) && !json_is_string(content) && !json_is_array(content))
        return fail_at_block(m, "the 'content' of a tool_result must be a string or an array of blocks");
    for (size_t j = 0; j < json_array_size(content); j++) {
        const json_t *part = json_array_get(content, j), *type = json_object_get(part, "type");
        if (!json_is_string(type))
            return fail_at_block(m, "the 'content' of a tool_result has a block without a 'type'");
        if (j) buf_putc(b, '\n');
        put_part(b, part, type);
    }
    *out = b->failed ? NULL : json_stringn_nocheck(text_of(b), b->n);
    return *out ? ST_OK : ST_NOMEM;
}

static enum status add_result(struct maker *m, const json_t *block)
{
    json_t     *id = json_object_get(block, "tool_use_id"), *text = NULL;
    bool        failed = json_is_true(json_object_get(block, "is_error"));
    enum status st;
    if (!json_is_string(id) || !json_string_length(id)) return fail_at_block(m, "a tool_result needs a 'tool_use_id'");
    if ((st = result_text(m, json_object_get(block, "content"), failed, &text))) return st;
    return turns_result(&m->turns, id, text);
}

/* A document whose source is text is text. */
static enum status add_document(struct maker *m, const json_t *block)
{
    const json_t *source = json_object_get(block, "source");
    json_t       *data = json_object_get(source, "data");
    if (!json_str_is(json_object_get(source, "type"), "text") || !json_is_string(data))
        return fail_at_block(m, "a document must have a source of type \"text\" for this model");
    return turns_text(&m->turns, "user", data);
}

/* Results stand before the text of the same turn: a template wants them behind the calls. */
static enum status user_blocks(struct maker *m, const json_t *content)
{
    enum status st = ST_OK;
    for (m->k = 0; !st && m->k < json_array_size(content); m->k++) {
        const json_t *block = json_array_get(content, m->k);
        if (json_str_is(json_object_get(block, "type"), "tool_result")) st = add_result(m, block);
    }
    for (m->k = 0; !st && m->k < json_array_size(content); m->k++) {
        const json_t *block = json_array_get(content, m->k), *type = json_object_get(block, "type");
        if (json_str_is(type, "text"))
            st = add_text_block(m, "user", block);
        else if (json_str_is(type, "document"))
            st = add_document(m, block);
        else if (!json_str_is(type, "tool_result"))
            st = unsupported(m, block);
    }
    return st;
}

/* ---------------------------------------------------------------- an assistant's turn */

static enum status add_call(struct maker *m, const json_t *block)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    json_t *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name)) return fail_at_block(m, "a tool_use needs an 'id' and a 'name'");
    if (!json_is_object(input)) return fail_at_block(m, "the 'input' of a tool_use must be an object");
    return turns_call(&m->turns, id, name, input);
}

static enum status add_thinking(struct maker *m, const json_t *block)
{
    const json_t *text = json_object_get(block, "thinking");
    if (!json_is_string(text)) return fail_at_block(m, "a block of type \"thinking\" needs a 'thinking'");
    return turns_reason(&m->turns, text);
}

static enum status assistant_blocks(struct maker *m, const json_t *content)
{
    enum status st = turns_begin(&m->turns, "assistant");
    for (m->k = 0; !st && m->k < json_array_size(content); m->k++) {
        const json_t *block = json_array_get(content, m->k), *type = json_object_get(block, "type");
        if (json_str_is(type, "text"))
            st = add_text_block(m, "assistant", block);
        else if (json_str_is(type, "tool_use"))
            st = add_call(m, block);
        else if (json_str_is(type, "thinking"))
            st = add_thinking(m, block);
        else if (!json_str_is(type, "redacted_thinking"))
            st = unsupported(m, block);
    }
    return st;
}

/* ---------------------------------------------------------------- system */

/* A client puts its version and a number of the session there, as a line of its own. As part of the prompt it would make
 * every session's prefix another one. Gateways join the blocks of a system to one text, so what follows the line stays. */
static enum status add_system_text(struct maker *m, json_t *text)
{
    static const char head[] = "x-anthropic-billing-header";
    const char       *s = json_string_value(text), *end = s + json_string_length(text);
    if (strncmp(s, head, sizeof head - 1) != 0) return turns_text(&m->turns, "system", text);
    const char *line = memchr(s, '\n', (size_t)(end - s));
    if (!line) return ST_OK;
    json_t     *rest = json_stringn_nocheck(line + 1, (size_t)(end - line) - 1);
    enum status st = rest ? turns_text(&m->turns, "system", rest) : ST_NOMEM;
    json_decref(rest);
    return st;
}

static enum status system_wrong(struct api_error *e)
{
    return api_fail(e, 400, "system", "'system' must be a string or an array of blocks of type \"text\"");
}

static enum status add_system(struct maker *m, json_t *v)
{
    if (absent(v)) return ST_OK;
    if (json_is_string(v)) return add_system_text(m, v);
    if (!json_is_array(v)) return system_wrong(m->e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i);
        json_t       *text = json_object_get(block, "text");
        if (!json_str_is(json_object_get(block, "type"), "text") || !json_is_string(text)) return system_wrong(m->e);
        enum status st = add_system_text(m, text);
        if (st) return st;
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- messages */

static enum status wrong_message(struct maker *m, const char *member, const char *what)
{
    char at[AT_BYTES];
    snprintf(at, sizeof at, "messages.%zu%s", m->i, member);
    return api_fail(m->e, 400, at, "'%s' must be %s", at, what);
}

/* Newer clients send notes between the turns, with roles of their own. Most templates take a system message only as the
 * first, so a later one is the user's. */
static const char *role_of(const struct maker *m, const json_t *role)
{
    static const char *const notes[] = { "system", "ctx", "msg" };
    if (json_str_is(role, "user") || json_str_is(role, "assistant")) return json_string_value(role);
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        if (!json_str_is(role, notes[i])) continue;
        const json_t *last = turns_last(&m->turns);
        bool          leads = !last || json_str_is(json_object_get(last, "role"), "system");
        return leads && !i ? "system" : "user";
    }
    return NULL;
}

static enum status add_message(struct maker *m, const json_t *message)
{
    if (!json_is_object(message)) return wrong_message(m, "", "an object");
    const char *role = role_of(m, json_object_get(message, "role"));
    json_t     *content = json_object_get(message, "content");
    if (!role) return wrong_message(m, ".role", "user or assistant");
    if (!json_is_string(content) && !json_is_array(content))
        return wrong_message(m, ".content", "a string or an array of blocks");
    if (!strcmp(role, "system")) return add_system(m, content);
    if (json_is_array(content))
        return strcmp(role, "assistant") ? user_blocks(m, content) : assistant_blocks(m, content);
    if (!strcmp(role, "assistant") && turns_begin(&m->turns, role)) return ST_NOMEM;
    return turns_text(&m->turns, role, content);
}

/* An assistant's turn at the end is the beginning of the answer, which the model continues. */
static enum status look_at_end(struct maker *m)
{
    const json_t *last = turns_last(&m->turns);
    if (!json_str_is(json_object_get(last, "role"), "assistant")) return ST_OK;
    if (json_object_get(last, "tool_calls") || !json_object_get(last, "content"))
        return api_fail(m->e, 400, "messages",
                        "the last message is an assistant's without text to continue: the results of its tools must "
                        "follow in a message of the user");
    m->c->ask.continue_final = true;
    return ST_OK;
}

enum status anthropic_history(struct call *c, struct api_error *e)
{
    const json_t *messages = c->ask.messages;
    struct maker  m = { .c = c, .e = e };
    size_t        n = json_array_size(messages);
    enum status   st = turns_open(&m.turns, &c->scratch);
    if (!st) st = add_system(&m, (json_t *)(uintptr_t)c->ask.system);
    if (!st && (!json_is_array(messages) || !n))
        st = api_fail(e, 400, "messages", "'messages' must be an array of at least one message");
    if (!st && n > c->model->messages_max)
        st = api_fail(e, 400, "messages", "'messages' has more than %u entries", c->model->messages_max);
    for (m.i = 0; !st && m.i < n; m.i++) st = add_message(&m, json_array_get(messages, m.i));
    if (!st && !turns_last(&m.turns))
        st = api_fail(e, 400, "messages", "'messages' has nothing to answer: the content of each is empty");
    if (!st) st = look_at_end(&m);
    return turns_finish(&m.turns, c, st);
}
