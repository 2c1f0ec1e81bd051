/* prompts: reads a field that is text or token ids, one or several of one sort.   Thread: the call's owner. */
#pragma once
#include "api/call.h"

/* Makes c->prompt of the field that the dialect calls prompt_param, whose value is ask.prompt: a string, an array of
 * strings, an array of ids, or an array of such arrays, at most n_max. ids are checked, texts are not tokenized yet.
 * ST_INVALID with *e, ST_NOMEM. */
enum status prompts_parse(struct call *c, uint32_t n_max, struct api_error *e);
