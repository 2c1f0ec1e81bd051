/* guard: what a user writes is text, also where it spells a control token (row C4 of the fault table).   Thread: any.
 *
 * A template puts its own control tokens and the user's words into one text. So before it is rendered, every special
 * token inside the user's strings is broken by a mark, a noncharacter, after its first character; and a string that
 * ends like the beginning of one gets a mark behind it, so that the next string cannot complete it. Afterwards the text
 * is tokenised piece by piece between the marks: no piece holds a token of the user's. Text without marks, which is
 * nearly all of it, is tokenised in one go. */
#pragma once
#include "api/token/tokenizer.h"
#include <jansson.h>

struct guard {
    const struct tok *tok;
    bool              marked; /* some mark was set: the rendered text must go through guard_encode */
};

/* v with marks, a new reference; v itself may be changed, or given back. NULL: no memory. */
json_t *guard_json(struct guard *g, json_t *v);
/* As tok_encode; marks are not text. */
enum status guard_encode(const struct guard *g, const char *text, size_t n, unsigned flags, size_t ids_max,
                         struct arena *a, struct tok_ids *out);
size_t      guard_strip(char *text, size_t n); /* takes marks out; returns what is left */
