/* form: one form of an answer, as a request gives it, and its translation into a grammar.   Thread: any. */
#pragma once
#include "api/lang/ebnf.h"
#include "api/schema/schema.h"

enum form_kind { FORM_NONE, FORM_OBJECT, FORM_SCHEMA, FORM_REGEX, FORM_CHOICE, FORM_GRAMMAR, FORM_TAGS };
enum { FORM_ERR = 500 };

struct form {
    enum form_kind     kind;
    const json_t      *value;  /* a schema; a list of texts; structural tags (tags.h); else a text */
    struct schema_form schema; /* of FORM_OBJECT, FORM_SCHEMA and FORM_TAGS */
};

/* tokens: the special tokens that a grammar may name. ST_INVALID: err has one line that says where and why;
 * ST_TOO_LARGE: it costs more than is allowed, likewise with a line; ST_NOMEM. The caller gives the grammar back with
 * gr_free. */
enum status form_compile(const struct form *f, const struct ebnf_tokens *tokens, struct grammar **g_out,
                         char err[FORM_ERR]);
/* Adds the rules of a form to r; *symbol_out: the symbol of all its texts. Errors as in form_compile; a bound of the
 * rules shows in gr_rules_status. */
enum status form_rules(const struct form *f, const struct ebnf_tokens *tokens, struct gr_rules *r, uint32_t *symbol_out,
                       char err[FORM_ERR]);
