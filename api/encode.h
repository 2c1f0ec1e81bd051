/* encode: turns the text of a prompt into token ids, within the model's context.   Thread: the call's owner. */
#pragma once
#include "api/call.h"

/* Fills p->id (in the call's arena) and p->n_id. flags: those of tok_encode. ST_INVALID with *e when there are more ids
 * than the context has tokens and the request does not ask for truncation. */
enum status encode_prompt(struct call *c, const char *text, size_t n, unsigned flags, struct call_prompt *p,
                          struct api_error *e);
/* False: no text of so many bytes fits into the context, so tokenizing it would be wasted work. */
bool encode_text_fits(const struct api_model *m, size_t bytes);
/* The error for a text of so many bytes that does not fit. Returns ST_INVALID. */
enum status encode_too_long(const struct call *c, size_t bytes, struct api_error *e);
