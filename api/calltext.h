/* calltext: the text of a custom tool's call as rules: what its grammar allows, spelled as the family's notation spells
 * a string.   Thread: the one that makes the rules. */
#pragma once
#include "api/callvalue.h"

/* Adds rules to r; *symbol_out: all texts that tool->grammar allows. f.quoted: spelled as inside the quotes of a JSON
 * string; else as they are, and without f.stop in any terminal of the grammar. ST_INVALID: err says where and why;
 * ST_NOMEM. A bound of the rules shows in gr_rules_status. */
enum status calltext_rules(struct gr_rules *r, const struct calls_tool *tool, const struct callvalue_form *f,
                           uint32_t *symbol_out, char err[CALLVALUE_ERR]);
