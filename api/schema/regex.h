/* regex: translates a client's regular expression into an expression over bytes. The syntax is ECMA-262 with the u
 * flag's escapes and properties (of Unicode as the tokenizers have it: api/token/tok_set.h), without the features that
 * no automaton can do.   Thread, errors of memory and size: as in engine/grammar/rx.h. */
#pragma once
#include "engine/grammar/rx.h"
#include <stddef.h>

enum { REGEX_BYTES_MAX = 64 << 10, REGEX_DEPTH_MAX = 128, REGEX_REPEAT_MAX = 65536, REGEX_ERR = 160 };

struct regex_form {
    bool search; /* true: a match anywhere in the text, as for a schema's pattern; false: the whole text must match */
    bool json;   /* the text is spelled as inside the quotes of a JSON string (chars.h) */
};

/* ST_INVALID: err names the character and what is wrong or not supported there (back-references, look-behind, \b,
 * look-ahead except at the beginning). A failure of the set of expressions shows in rx_status. */
enum status regex_rx(struct rx *x, const char *s, size_t n, struct regex_form form, uint32_t *rx_out,
                     char err[REGEX_ERR]);
/* Whether every text that an expression matches as a whole is white space of JSON. ST_INVALID: err says why not;
 * ST_NOMEM. */
enum status regex_is_blank(const char *s, size_t n, char err[REGEX_ERR]);
