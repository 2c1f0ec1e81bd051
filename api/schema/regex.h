/* regex: a regular expression of a client as an expression over bytes: ECMA-262 syntax (with the u flag's escapes), without
 * what no automaton can do.   Thread and errors of memory and size: as in engine/grammar/rx.h. */
#pragma once
#include "engine/grammar/rx.h"
#include <stddef.h>

enum { REGEX_BYTES_MAX = 64 << 10, REGEX_DEPTH_MAX = 128, REGEX_REPEAT_MAX = 65536, REGEX_ERR = 160 };

struct regex_form {
    bool search; /* a match anywhere in the text is enough, as for a schema's pattern; else the whole text must match */
    bool json;   /* the text stands within the quotes of a JSON string, and is spelled so (chars.h) */
};

/* ST_INVALID: err says at which character what is wrong, or what is not supported (back-references, look-behind, \b, look-ahead
 * but at the beginning). A failure of the set of expressions shows in rx_status. */
enum status regex_rx(struct rx *x, const char *s, size_t n, struct regex_form form, uint32_t *rx_out,
                     char err[REGEX_ERR]);
