/* lark_impl: the state of the reader of Lark's language. Private to lark*.c.   Thread: one at a time. */
#pragma once
#include "api/lang/reader.h"
#include "base/buf.h"

enum { LARK_IGNORES = 32 };

struct lark {
    struct ebnf               e;
    const struct ebnf_tokens *tokens;
    uint32_t                  nested;
    uint32_t                  ignore[LARK_IGNORES]; /* nodes */
    size_t                    ignore_at[LARK_IGNORES];
    uint32_t                  n_ignore;
};

/* The expression of a regular expression's text; flags: of "is". at: where it stands, for a failure. */
uint32_t lark_regex(struct lark *l, const char *text, size_t n, const char *flags, size_t at);
/* What stands behind %import: terminals of Lark's module common are defined. */
void lark_import(struct lark *l);
