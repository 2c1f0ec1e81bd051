/* tok_onig: reads a pattern of Oniguruma (the library's regex engine) and says it again without characters: every
 * character, class and property becomes a set of code points, every option is carried out, and what is left is
 * structure that PCRE2 shares.
 * read -> use -> free.   Thread: one owner. */
#pragma once
#include "api/token/tok_set.h"
#include "base/buf.h"

enum { ONIG_SETS_MAX = 1024, ONIG_SET = 1 };

struct tok_onig {
    struct tok_set *set; /* [n_set] sorted */
    uint32_t        n_set;
    struct buf      text;    /* structure; a set is the byte ONIG_SET and two bytes of its number, lower first */
    char            why[80]; /* what is wrong with the pattern, or not supported */
};

bool tok_onig_read(struct tok_onig *x, const char *pattern, size_t n); /* UTF-8. False: see why */
void tok_onig_free(struct tok_onig *x);
