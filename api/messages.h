/* messages: a chat as a list of messages -> the prompt as text, by the model's template.   Thread: the call's owner.
 * The list is c->ask.messages, in the form of OpenAI's chat requests, a member of c->body under the dialect's
 * prompt_param. A dialect with another form makes this one of it and puts it there. */
#pragma once
#include "api/call.h"

/* Checks the list and brings it into the form that templates expect, in place. Errors name the message by its
 * number. */
enum status messages_check(struct call *c, struct api_error *e);
/* The prompt as text into c->rendered; the list is dropped. */
enum status messages_render(struct call *c, struct api_error *e);
