/* regex_impl: the state of a reader of expressions, and what its files share. Private to api/schema/regex*.c.   Thread:
 * the one that called regex_rx. */
#pragma once
#include "api/schema/regex.h"
#include "engine/grammar/rx.h"
#include <string.h>

struct regex_parser {
    struct rx        *x;
    const char       *s;
    size_t            n, at;
    struct regex_form form;
    uint32_t          depth, n_range; /* n_range: of characters, that properties have named */
    bool              fold, dot_all;  /* flags i and s */
    bool              failed;
    char             *err;
};

/* Records a failure at the place of the reader; only the first is kept. Returns RX_NONE. */
uint32_t regex_fail(struct regex_parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One character or one class of them, read in any of its spellings: the expression, or RX_NONE after a failure. */
uint32_t regex_char(struct regex_parser *p);

/* Whether more is to be read; the next byte, or -1; whether the text goes on with a word, which is then read. After a
 * failure there is nothing more. */
static inline bool regex_more(const struct regex_parser *p) { return p->at < p->n && !p->failed; }
static inline int  regex_peek(const struct regex_parser *p) { return regex_more(p) ? (unsigned char)p->s[p->at] : -1; }
static inline bool regex_take(struct regex_parser *p, const char *word)
{
    size_t n = strlen(word);
    if (p->n - p->at < n || memcmp(p->s + p->at, word, n) != 0 || p->failed) return false;
    p->at += n;
    return true;
}
