/* tags: structural tags as rules: text that is free but for parts of a given form. Both spellings of the request:
 * {"format": {"type": ..}}, and the older {"structures": [{"begin", "schema", "end"}], "triggers": [..]}.
 * Free text is any text that tokens spell; special tokens come only where a string of the request names them, which may
 * be spelled with other tokens as well.   Thread: any; struct gr_rules belongs to one at a time. */
#pragma once
#include "api/lang/ebnf.h"
#include "api/schema/schema.h"

enum {
    TAGS_ERR = 500,
    TAGS_DEPTH_MAX = 32,
    TAGS_TEXT_MAX = 1024,
    TAGS_LIST_MAX = 256,
    TAGS_REPEAT_MAX = 1000,
    TAGS_CHARS_MAX = 4096,
};

/* Adds rules to r; *symbol_out: the symbol of all texts. form: for the schemas inside. ST_INVALID: err has the JSON
 * pointer and the reason; ST_NOMEM. Bounds of the rules show in gr_rules_status. */
enum status tags_rules(struct gr_rules *r, const json_t *value, const struct ebnf_tokens *tokens,
                       struct schema_form form, uint32_t *symbol_out, char err[TAGS_ERR]);
