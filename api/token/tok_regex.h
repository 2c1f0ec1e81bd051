/* tok_regex: patterns nobody wrote a matcher for, by PCRE2 (JIT, match and heap limits), which here knows nothing of
 * characters. A pattern of Oniguruma is read (tok_onig.h) into sets of code points and structure. Code points that lie
 * in the same sets are one atom, a byte; a text is matched as the string of its atoms, against a pattern whose classes
 * are lists of atoms. So what a class holds is the library's affair alone, and a match of any class costs one look into
 * a bit map.
 * tok_regex_new -> (subject -> find*)* -> free.   Thread: const after new; what a match needs lies in the tok_work. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_work.h"

struct tok_regex;

/* field: where it stands, for the message. */
enum status tok_regex_new(struct tok_regex **re_out, const char *pattern, size_t n, const char *field,
                          const struct tok_err *e);
void        tok_regex_free(struct tok_regex *re);

/* A text as atoms, in the scratch given. */
struct tok_subject {
    const char          *s;
    const unsigned char *atom;
    size_t               n, n_atom, at_byte, at_atom; /* at_*: the place that was asked last */
};
enum status tok_regex_subject(const struct tok_regex *re, struct tok_work *w, struct tok_scratch *scratch,
                              const char *s, size_t n, struct tok_subject *x_out);
/* First match at or behind the atom from: [*begin, *end) in atoms. *begin == n_atom + 1: none. ST_TOO_LARGE: over the
 * match limit. */
enum status tok_regex_find(const struct tok_regex *re, struct tok_work *w, const struct tok_subject *x, size_t from,
                           size_t *begin, size_t *end);
size_t      tok_subject_byte(struct tok_subject *x,
                             size_t atom); /* where the atom begins in s; places in order cost linear time in all */
void        tok_regex_done(struct tok_work *w); /* frees what matching made */
