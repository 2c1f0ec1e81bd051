/* tok_pattern: {"String": ..} or {"Regex": ..} of Split and Replace: a text, a known pattern's matcher, or a compiled
 * pattern. load -> (tok_matches_of -> tok_matches_next*)* -> free.   Thread: const after load. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_match.h"
#include "api/token/tok_regex.h"

struct tok_pattern {
    tok_match_fn      match; /* exactly one of match, regex and text is not NULL */
    struct tok_regex *regex;
    char             *text;
    size_t            n_text;
};

/* Reads the member "pattern" of a component; `field` is its name in error messages. ST_CONFIG or ST_NOMEM, and e has
 * the reason. */
enum status tok_pattern_load(struct tok_pattern *p, const json_t *component, const char *field,
                             const struct tok_err *e);
void        tok_pattern_free(struct tok_pattern *p);

/* Walks the matches of p in s as Oniguruma's iterator does: an empty match right behind a match is skipped. */
struct tok_matches {
    const struct tok_pattern *p;
    const char               *s;
    size_t                    n, begin, end; /* [begin, end): the match, in bytes */
    size_t at, last, n_unit; /* next search's begin, last match's end, text's end; in bytes, with a regex in atoms */
    bool   any;              /* there was a match */
    struct tok_subject subject;
};
/* scratch: memory for the walk; it must stay as it is until the last tok_matches_next. */
enum status tok_matches_of(const struct tok_pattern *p, struct tok_work *w, struct tok_scratch *scratch, const char *s,
                           size_t n, struct tok_matches *m_out);
/* *found false: there are no more matches. ST_TOO_LARGE: the pattern exceeded its match limit. */
enum status tok_matches_next(struct tok_matches *m, struct tok_work *w, bool *found);
