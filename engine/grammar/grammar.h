/* grammar: rules over terminals, and the texts that they allow. A front end (a JSON schema, a regular expression ...)
 * adds rules to a gr_rules; gr_build turns them into a grammar, which any number of matchers (match.h) share and which
 * never changes.
 *   gr_rules_create -> gr_rule, gr_alt ... -> gr_build (takes the rules) -> matchers -> gr_free
 * A terminal is an expression over bytes (rx.h), or one token by its number, for tokens that no bytes can spell. All
 * texts of the language are allowed: where terminals overlap, every reading is followed; there is no longest-match
 * rule.
 * Thread: rules: one; a grammar: any. */
#pragma once
#include "engine/grammar/rx.h"
#include "engine/grammar/trie.h"

struct gr_rules;
struct grammar;
struct gr_vocab;

enum {
    GR_ERR = 160, /* room for a line of error */
    GR_COUNT_MAX = 2046
};

struct gr_limits {
    struct rx_limits rx;
    uint32_t         symbol_max; /* symbols in all alternatives together */
    uint32_t         lex_state_max;
    size_t           lex_bytes_max;
    uint64_t         lex_fuel_max; /* work on expressions in a mask, and in a token: a second at most */
};
/* The default bounds. */
extern const struct gr_limits gr_limits_default;

/* NULL: no memory. */
struct gr_rules *gr_rules_create(const struct gr_limits *limits);
void             gr_rules_free(struct gr_rules *r);
/* The set of expressions for these rules' terminals; it belongs to r. */
struct rx *gr_rx(struct gr_rules *r);
/* ST_OK, or the first failure of the rules or of their expressions: ST_NOMEM, ST_TOO_LARGE. */
enum status gr_rules_status(const struct gr_rules *r);

uint32_t gr_rule(struct gr_rules *r);                  /* a new rule without alternatives */
uint32_t gr_terminal(struct gr_rules *r, uint32_t rx); /* the terminal that is this expression */
uint32_t gr_token(struct gr_rules *r, uint32_t token); /* the terminal that is this token, which no bytes spell */
/* Adds an alternative to a rule: n symbols in a row, copied; n = 0: the empty text. */
void gr_alt(struct gr_rules *r, uint32_t rule, const uint32_t *symbol, uint32_t n);
/* The same alternative, n > 0, whose last symbol takes the place of `rule` when a text has come to it. What waits for
 * `rule` waits for the last symbol then, so that a text that goes on and on in such alternatives takes no more memory
 * than a short one. Where many rules end in the same symbol at one place, it begins there once for each of them. */
void gr_alt_tail(struct gr_rules *r, uint32_t rule, const uint32_t *symbol, uint32_t n);
/* Symbols of no text that count. A rule begins with 0, and a symbol that takes its place (gr_alt_tail) goes on with what
 * it has counted. gr_more adds one. gr_counted is gone past where the count is min .. max, at most GR_COUNT_MAX; max
 * RX_MANY: any that is not below min. An alternative with such symbols must have a terminal as well. A text is not led to
 * where no count lets it end, if the counts with which each rule can be ended have no gap. */
uint32_t gr_more(struct gr_rules *r);
uint32_t gr_counted(struct gr_rules *r, uint32_t min, uint32_t max);

/* Makes the grammar of all texts of symbol `start`. Takes over r, also on error. ST_INVALID: it allows no text at all;
 * ST_NOMEM, ST_TOO_LARGE. On error err has one line. */
enum status gr_build(struct gr_rules *r, uint32_t start, struct grammar **g_out, char err[GR_ERR]);
/* Reference count: gr_build returns one reference, gr_keep adds one, and the last gr_free frees the grammar. Any
 * thread. */
struct grammar *gr_keep(struct grammar *g);
void            gr_free(struct grammar *g);
bool            gr_in_use(const struct grammar *g); /* has it more than one reference? */
bool            gr_is_worn(
               struct grammar *g); /* texts have used up half of its limits: a new text had better begin on a new one */
size_t gr_bytes(struct grammar *g); /* memory in use; it grows with the states that texts reach, up to the limits */
