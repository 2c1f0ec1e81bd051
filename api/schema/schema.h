/* schema: translates a JSON schema (2020-12 and the older spellings of its keywords) into rules of a grammar. Every
 * text of the grammar is JSON that the schema accepts, in one spelling (docs/design/grammar.md). A keyword that cannot
 * be enforced is refused where the form is strict, and else ignored and named.   Thread: any; struct gr_rules belongs
 * to one at a time. */
#pragma once
#include "base/json.h"
#include "engine/grammar/grammar.h"

enum { SCHEMA_ERR = 500, SCHEMA_IGNORED = 200, SCHEMA_NODES_MAX = 50000, SCHEMA_DEPTH_MAX = 400 };

/* Where a part of a schema stands alone, its root may stand in it under this name, which is no keyword. */
#define SCHEMA_ROOT "x-root"

struct schema_form {
    bool        compact; /* no white space anywhere */
    bool        closed;  /* objects without additionalProperties allow no further properties */
    bool        open;  /* what a schema does not say is allowed, as its specification has it (docs/design/grammar.md) */
    const char *space; /* between tokens: an expression that regex_is_blank; NULL: as the design page says */
    const char *at;    /* the schema's place in what the client sent, as a pointer for errors; NULL: the whole */
    const json_t *big; /* digits of numbers that are beyond 64 bits (JSON_BIG); NULL: there are none */
    char *ignored;     /* [SCHEMA_IGNORED], "" at first: takes the names of keywords that are ignored; NULL: strict */
};

/* Adds rules to r; *symbol_out: the symbol of all values that the schema accepts. ST_INVALID: err has the JSON
 * pointer, the keyword and the reason. If a bound of the rules is reached, gr_rules_status says so. */
enum status schema_rules(struct gr_rules *r, const json_t *schema, struct schema_form form, uint32_t *symbol_out,
                         char err[SCHEMA_ERR]);
/* The symbol of any JSON object. */
uint32_t schema_any_object(struct gr_rules *r, struct schema_form form);
/* The regular expression that the strings of a format match as a whole; NULL: the name is an annotation. */
const char *schema_format(const char *name);
