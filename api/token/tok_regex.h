/* tok_regex: matches the patterns for which tok_match.c has no matcher, by PCRE2 (JIT, match and heap limits). PCRE2
 * sees atoms instead of characters: tok_onig.h turns a pattern of Oniguruma into sets of code points and structure;
 * code points that are in the same sets form one atom, which is a byte; the text becomes the string of its atoms, and
 * the classes of the pattern become lists of atoms. So a class holds exactly the code points that it holds in the
 * library, and a test of any class is one look-up in a bit map.
 * tok_regex_new -> (subject -> find*)* -> free.   Thread: const after new; the memory of a match belongs to the
 * tok_work. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_work.h"

struct tok_regex;

/* field: the pattern's place in tokenizer.json, for the error line. ST_CONFIG: e has the reason. */
enum status tok_regex_new(struct tok_regex **re_out, const char *pattern, size_t n, const char *field,
                          const struct tok_err *e);
void        tok_regex_free(struct tok_regex *re);

/* A text as a string of atoms, which lie in the given scratch. s is borrowed. */
struct tok_subject {
    const char          *s;
    const unsigned char *atom;
    size_t               n, n_atom, at_byte, at_atom; /* at_*: the last position of tok_subject_byte */
};
enum status tok_regex_subject(const struct tok_regex *re, struct tok_work *w, struct tok_scratch *scratch,
                              const char *s, size_t n, struct tok_subject *x_out);
/* The first match that begins at atom `from` or later: [*begin, *end) in atoms. *begin == n_atom + 1: there is none.
 * ST_TOO_LARGE: the match limit was exceeded, or memory was refused. */
enum status tok_regex_find(const struct tok_regex *re, struct tok_work *w, const struct tok_subject *x, size_t from,
                           size_t *begin, size_t *end);
/* The offset in bytes of an atom in s. Calls with ascending atoms take linear time in all. */
size_t tok_subject_byte(struct tok_subject *x, size_t atom);
void   tok_regex_done(struct tok_work *w); /* frees w->match_data */
