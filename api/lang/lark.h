/* lark: grammars in Lark's language, in the dialect of llguidance: rules in small letters from `start`, terminals in
 * capitals, strings, /expressions/flags, %ignore, %import common.(..), %json {..}, <special tokens>.
 * Every reading of a text counts, as in Lark's own parser of ambiguous grammars: where terminals overlap, the longest
 * match does not win, so that no text comes to a dead end.   Thread: as for struct gr_rules. */
#pragma once
#include "api/lang/ebnf.h"

/* Adds rules to r; *symbol_out: the symbol of rule start. The rest as in gbnf_rules. */
enum status lark_rules(struct gr_rules *r, const char *text, size_t n, const struct ebnf_tokens *tokens,
                       uint32_t *symbol_out, char err[EBNF_ERR]);
/* The same for texts that stand inside something else, without special tokens. json: in the quotes of a JSON string,
 * spelled as there; %json is refused then. within: expression of what each terminal may be at most (RX_ALL:
 * anything). */
enum status lark_rules_inside(struct gr_rules *r, const char *text, size_t n, bool json, uint32_t within,
                              uint32_t *symbol_out, char err[EBNF_ERR]);
