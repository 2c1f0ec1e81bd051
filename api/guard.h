/* guard: keeps text of users text, even if it spells a control token (row C4 of the fault table).   Thread: any.
 *
 * A template joins its own control tokens and users' strings into one text. Before rendering, every special token
 * inside a user's string is broken by a mark (a noncharacter) after its first character. A string that ends with the
 * beginning of a special token gets a mark at its end, so that the next string cannot complete the token. After
 * rendering, the text is tokenised in pieces between the marks, so no piece contains a special token of a user. Text
 * without marks, the usual case, is tokenised as a whole. */
#pragma once
#include "api/token/tokenizer.h"
#include <jansson.h>

struct guard {
    const struct tok *tok;
    bool              marked; /* a mark was set; tokenise the rendered text with guard_encode */
};

/* Returns v with marks, as a new reference; v may be modified, or returned itself. NULL: no memory. */
json_t *guard_json(struct guard *g, json_t *v);
/* As tok_encode; marks are removed. */
enum status guard_encode(const struct guard *g, const char *text, size_t n, unsigned flags, size_t ids_max,
                         struct arena *a, struct tok_ids *out);
size_t      guard_strip(char *text, size_t n); /* removes marks; returns the new length */
