/* responses: the dialect of OpenAI's Responses API.   Thread: the call's owner.
 *
 *   fields.c     the fields of a request
 *   input.c      input items become messages of a chat
 *   reference.c  items that name stored ones become those
 *   truncate.c   the oldest messages of what is too long are left out
 *   tools.c      flat tools and tool_choice become those of a chat
 *   skeleton.c   the response object around its output: what a client sees of its own request
 *   events.c     writers: output items, as events of a stream and as members of a whole response
 *   row.c        the rows
 *   store.h      responses that are stored, for the key that asked for them
 *   keep.h       what is stored of a response
 *   recall.c     a request goes on from a stored response
 *   stored.h     what clients ask about a stored response */
#pragma once
#include "api/dialect.h"

extern const struct param_fields responses_fields;

enum { RESPONSES_ID_BYTES = 48 };

/* What an output item is. */
enum responses_item { ITEM_NONE, ITEM_MESSAGE, ITEM_REASONING, ITEM_FUNCTION, ITEM_CUSTOM };

/* An item of the output, as a range of it. */
struct responses_line {
    size_t                 from, to;
    struct responses_line *next;
    char                   id[RESPONSES_ID_BYTES];
};

/* A tool of a namespace. The model knows it by both names with "__" between. */
struct responses_named {
    const char             *name; /* the whole */
    size_t                  n, n_space;
    struct responses_named *next;
};

/* What the writers need of a call; c->own. */
struct responses_call {
    const char             *tail;     /* JSON of the response behind its usage */
    bool                    encrypts; /* include has reasoning.encrypted_content: the client sends reasoning back so */
    uint64_t                sequence; /* number of the next event */
    enum responses_item     open;     /* the item at hand; its text so far is in call_choice.reason */
    uint32_t                n_item;   /* items that were opened */
    char                    id[RESPONSES_ID_BYTES]; /* of the item at hand */
    const char             *call, *call_name;       /* members of the call at hand: both, and its name */
    bool                    is_cut;                 /* the item at hand was cut off */
    bool                    stores;                 /* the response is to be stored, or was */
    const char             *previous;               /* id of the response that it goes on from; NULL: none */
    const char             *input;                  /* lines of its own input, if it is to be stored */
    size_t                  n_input;
    struct responses_line  *first, *last; /* of its output */
    struct responses_named *named;        /* tools of namespaces */
};
static inline struct responses_call *responses_of(const struct call *c) { return c->own; }

/* The name by which the model knows a tool of a namespace, as a new reference; NULL: no memory. */
json_t *responses_full_name(const json_t *space, const json_t *name);
/* Makes c->own, if it is not there. ST_NOMEM. */
enum status responses_open(struct call *c);
/* Makes c->ask.messages of the body's "instructions" and "input". ST_INVALID with *e, ST_NOMEM. */
enum status responses_input(struct call *c, struct api_error *e);
/* *list_out: the items of input, with stored ones in the places of references to them; the caller drops it with
 * json_decref. ST_INVALID with *e, ST_NOMEM. */
enum status responses_refer(struct call *c, json_t *input, json_t **list_out, struct api_error *e);
/* Whether the item is a call that was cut off, and has no arguments that could be shown. */
static inline bool responses_was_cut(const json_t *item)
{
    return json_str_is(json_object_get(item, "type"), "function_call") &&
           json_str_is(json_object_get(item, "status"), "incomplete");
}
/* Makes c->ask.tools and c->ask.tool_choice. ST_INVALID with *e, ST_NOMEM. */
enum status responses_tools(struct call *c, struct api_error *e);
/* Makes the prompt; with "truncation": "auto" without the oldest messages, as far as it has to be. ST_INVALID with *e,
 * ST_NOMEM. */
enum status responses_prepare(struct call *c, struct api_error *e);
/* Makes the tail of the response, while the body is there as the client sent it. ST_NOMEM. */
enum status responses_skeleton(struct call *c);
/* Writes the response object up to the items of its output, and what is behind them. */
void responses_put_head(const struct call *c, const char *status, const struct api_error *failed, struct buf *out);
void responses_put_tail(const struct call *c, bool ended, struct buf *out);
/* Writes the whole object. output: its items with commas between; NULL: none yet. failed: why; NULL: it did not. */
void responses_put(const struct call *c, const char *status, const struct buf *output, const struct api_error *failed,
                   struct buf *out);
/* Writes the last event of a stream that fails. */
void responses_failed(struct call *c, struct buf *out, const struct api_error *e);

/* Columns of the writers (dialect.h). */
void responses_begin(struct call *c, uint32_t i, struct buf *out);
void responses_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void responses_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void responses_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out);
/* The end of the last item; then the response with its usage, as the last event or as the body. */
void responses_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void responses_usage(struct call *c, struct buf *out);
