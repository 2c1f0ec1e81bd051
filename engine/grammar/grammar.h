/* grammar: rules over terminals, and what texts they allow. A front end (a JSON schema, a regular expression ...) writes rules
 * into a gr_rules; gr_build turns them into a grammar, which is shared by any number of matchers (match.h) and never changes.
 *   gr_rules_create -> gr_rule, gr_alt ... -> gr_build (takes the rules) -> matchers -> gr_free
 * A terminal is an expression over bytes (rx.h), or one token by its number, for tokens that no text can spell. All texts of
 * the language are served: where terminals overlap every reading is followed, and no lexer's longest match decides.
 * Thread: rules: one; a grammar: any. */
#pragma once
#include "engine/grammar/rx.h"
#include "engine/grammar/trie.h"

struct gr_rules;
struct grammar;
struct gr_vocab;

enum { GR_ERR = 160 }; /* room for a line of error */

struct gr_limits {
    struct rx_limits rx;
    uint32_t         symbol_max; /* in all alternatives together */
    uint32_t         lex_state_max;
    size_t           lex_bytes_max;
};
/* The bounds that are used when nobody knows better. */
extern const struct gr_limits gr_limits_default;

/* NULL: no memory. */
struct gr_rules *gr_rules_create(const struct gr_limits *limits);
void             gr_rules_free(struct gr_rules *r);
/* The expressions that terminals of these rules are made of. */
struct rx *gr_rx(struct gr_rules *r);
/* ST_OK, ST_NOMEM, ST_TOO_LARGE: the first thing that went wrong, in the expressions too. */
enum status gr_rules_status(const struct gr_rules *r);

uint32_t gr_rule(struct gr_rules *r);                  /* a new rule without alternatives */
uint32_t gr_terminal(struct gr_rules *r, uint32_t rx); /* the terminal that is this expression */
uint32_t gr_token(struct gr_rules *r, uint32_t token); /* the terminal that is this token, which no bytes spell */
/* One more alternative of a rule: symbols in a row; none: the empty text. */
void gr_alt(struct gr_rules *r, uint32_t rule, const uint32_t *symbol, uint32_t n);

/* The grammar of all texts of a symbol. It takes the rules, also on error. ST_INVALID: it allows no text at all; ST_NOMEM,
 * ST_TOO_LARGE. err: [GR_ERR] one line. */
enum status gr_build(struct gr_rules *r, uint32_t start, struct grammar **g_out, char err[GR_ERR]);
/* It is shared by count: gr_build gives one, gr_keep one more, and the last gr_free is its end. Any thread. */
struct grammar *gr_keep(struct grammar *g);
void            gr_free(struct grammar *g);
size_t gr_bytes(struct grammar *g); /* memory taken, which grows with the states that texts reach, up to the limits */
