/* turns: a list of chat messages in OpenAI's form, made turn by turn, for dialects whose requests have another form.
 * What belongs to an assistant's turn (reasoning, text, calls) is gathered in one message until another role speaks.
 * Thread: the call's owner. */
#pragma once
#include "api/call.h"

struct turns {
    json_t     *list; /* owned until turns_finish */
    struct buf *text; /* scratch */
};

/* ST_NOMEM. */
enum status turns_open(struct turns *t, struct buf *scratch);
/* Each adds to the last message if it has this role, or makes a new one. Values are borrowed. ST_NOMEM. */
enum status turns_begin(struct turns *t, const char *role);
enum status turns_text(struct turns *t, const char *role, json_t *text); /* an empty text adds nothing */
enum status turns_reason(struct turns *t, const json_t *text);
enum status turns_call(struct turns *t, json_t *id, json_t *name, json_t *arguments);
/* The result of a call, as a message of its own. text is taken. ST_NOMEM. */
enum status turns_result(struct turns *t, json_t *id, json_t *text);
/* The last message; NULL: there is none. */
json_t *turns_last(const struct turns *t);
/* The list becomes c->ask.messages, and the body's; st is returned, or ST_NOMEM. With an error the list is freed. */
enum status turns_finish(struct turns *t, struct call *c, enum status st);
