/* tok_regex: patterns nobody wrote a matcher for, by PCRE2 (UTF, UCP, JIT, match and heap limits). tokenizer.json is written for
 * Oniguruma in Ruby syntax; what differs and can be said in PCRE2 is translated, the rest is a load error.
 * tok_regex_new -> find* -> free.   Thread: const after new; what a match needs lies in the tok_work. */
#pragma once
#include "api/tok_err.h"
#include "api/tok_work.h"

struct tok_regex;

/* field: where it stands, for the message. */
enum status tok_regex_new(struct tok_regex **re_out, const char *pattern, size_t n, const char *field, const struct tok_err *e);
void        tok_regex_free(struct tok_regex *re);
/* First match at or behind from: [*begin, *end). *begin == n + 1: none. ST_TOO_LARGE: over the match limit. */
enum status tok_regex_find(const struct tok_regex *re, struct tok_work *w, const char *s, size_t n, size_t from, size_t *begin,
                           size_t *end);
void        tok_regex_done(struct tok_work *w); /* frees what matching made */
