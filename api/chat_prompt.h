/* chat_prompt: a chat's messages and tools become one prompt, for every dialect that has chats.   Thread: the call's
 * owner.
 * The dialect has put the messages in OpenAI's form into c->ask.messages (messages.h), and tools into c->ask.tools. */
#pragma once
#include "api/call.h"

/* For a dialect's parse: makes c->prompt with one entry and checks the messages and the tools. ST_INVALID with *e,
 * ST_NOMEM. */
enum status chat_prompt_parse(struct call *c, struct api_error *e);
/* For a dialect's prepare: renders the messages and tokenizes them. ST_INVALID with *e, ST_NOMEM. */
enum status chat_prompt_prepare(struct call *c, struct api_error *e);
/* Appends "input_tokens":n, as many as prepare would make, however long the prompt is. ST_INVALID with *e, ST_NOMEM. */
enum status chat_prompt_count(struct call *c, struct buf *out, struct api_error *e);
