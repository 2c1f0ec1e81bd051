/* tags_impl: the state and functions that the compiler's files share. Private to api/lang/tags*.c.   Thread: the one
 * that called tags_rules. */
#pragma once
#include "api/lang/tags.h"
#include "api/pointer.h"

enum { TAGS_PIECES_MAX = 16 };

struct tags {
    struct gr_rules          *r;
    struct rx                *x;
    const struct ebnf_tokens *tokens;
    struct schema_form        form;
    struct pointer            at; /* the node that is looked at */
    uint32_t                  depth;
    bool                      failed;
    char                     *err;
};

/* Strings that a free text may not hold: of up to three lists, or one string. */
struct tags_stops {
    const json_t *list[3];
};

/* tags_read.c: members of a node. */
/* Records a failure at the node; only the first is kept. Returns 0. */
uint32_t tags_fail(struct tags *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same at a member of the node. */
uint32_t tags_fail_at(struct tags *t, const char *key, const char *why);
/* Refuses members that are not in the list, whose last is NULL, but for 'type' and a null that says nothing: what a
 * client believes to be kept is not left out. */
void tags_only(struct tags *t, const json_t *v, const char *const *members);
/* A member that is true or false; false where it is absent. */
bool tags_flag(struct tags *t, const json_t *v, const char *key);
/* A member that is a count. false: it is absent or null, or it is a failure. */
bool tags_count(struct tags *t, const json_t *v, const char *key, uint32_t max, uint32_t *out);
/* The text of v, the member `what`; "" after a failure. */
const char *tags_text_of(struct tags *t, const json_t *v, const char *what, size_t *n_out);
/* The list of this name, of strings for tags_strings. NULL: it is absent and not needed, or it is a failure. */
const json_t *tags_list(struct tags *t, const json_t *v, const char *key, bool needed);
const json_t *tags_strings(struct tags *t, const json_t *v, const char *key, bool needed);

/* tags_text.c: texts as symbols and expressions. */
/* A text as symbols: special tokens as such, and what stands between them as bytes; symbol [TAGS_PIECES_MAX]. Returns
 * their number; *n_token_out: how many are tokens. */
uint32_t tags_pieces(struct tags *t, const char *s, size_t n, uint32_t *symbol, uint32_t *n_token_out);
/* The symbol of a text by its bytes, or with the special tokens that it names. */
uint32_t tags_literal(struct tags *t, const char *s, size_t n);
/* The expression of a text without the stops. */
uint32_t tags_free_rx(struct tags *t, const struct tags_stops *s);
/* That of free text up to the end of `text`, which is the first of the stops in it. */
uint32_t tags_until_rx(struct tags *t, const struct tags_stops *s, const char *text, size_t n);
