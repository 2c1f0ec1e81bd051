/* messages: renders a list of chat messages to the text of a prompt, with the model's template.   Thread: the call's
 * owner.
 * The list is c->ask.messages, in the form of OpenAI's chat requests, a member of c->body under the dialect's
 * prompt_param. A dialect with another form converts its messages to this one and puts them there. */
#pragma once
#include "api/call.h"

/* Checks the list and brings it into the form that templates expect, in place. Errors name the message by its
 * number. */
enum status messages_check(struct call *c, struct api_error *e);
/* Renders the prompt into c->rendered and drops the list. */
enum status messages_render(struct call *c, struct api_error *e);
