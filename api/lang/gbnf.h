/* gbnf: grammars as llama.cpp and XGrammar write them: `name ::= "text" [class] other | ( .. )* {m,n}`, from the rule
 * root. Characters decide, not words: there is no longest match.   Thread: as for struct gr_rules. */
#pragma once
#include "api/lang/ebnf.h"

/* Adds rules to r; *symbol_out: the symbol of rule root. tokens: for <text> and <[id]>; NULL: there are none.
 * ST_INVALID: err says where and why; ST_NOMEM. If a bound of the rules is reached, gr_rules_status says so. */
enum status gbnf_rules(struct gr_rules *r, const char *text, size_t n, const struct ebnf_tokens *tokens,
                       uint32_t *symbol_out, char err[EBNF_ERR]);
/* Is the text in this language, or in Lark's? A line of this one holds "::=" outside its strings and comments. */
bool gbnf_is(const char *text, size_t n);
