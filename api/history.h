/* history: tool calls of earlier turns, in the form that the model's chat template takes. What a model wrote badly once
 * is no reason to refuse the turn after it.   Thread: the call's owner. */
#pragma once
#include "api/call.h"

/* The calls of message i, which has some: checked and changed in place. Errors name the message by its number. */
enum status history_calls(const struct call *c, json_t *msg, size_t i, struct api_error *e);
/* Of the whole list, when its messages are good: ids as the model's family writes them, and one call per message where
 * the template shows no more. ST_NOMEM. */
enum status history_finish(const struct call *c, json_t *messages);
