/* tok_onig: reads a pattern of Oniguruma (the library's regex engine) and writes it again without characters. Each
 * character, class and property becomes a set of code points, each option is applied, and the rest is structure that
 * PCRE2 reads the same way.
 * read -> use -> free.   Thread: one owner. */
#pragma once
#include "api/token/tok_set.h"
#include "base/buf.h"

enum { ONIG_SETS_MAX = 1024, ONIG_SET = 1 };

struct tok_onig {
    struct tok_set *set; /* [n_set] sorted */
    uint32_t        n_set;
    struct buf      text;    /* the structure; a set is the byte ONIG_SET, then its number in two bytes, lower first */
    char            why[80]; /* after an error: what is wrong with the pattern, or not supported */
};

/* Rewrites a pattern; tok_onig_free returns what it made. */
bool tok_onig_read(struct tok_onig *x, const char *pattern, size_t n); /* UTF-8; false: why has the reason */
void tok_onig_free(struct tok_onig *x);
