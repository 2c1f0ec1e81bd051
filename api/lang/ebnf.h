/* ebnf: rules of a grammar that is given as text (GBNF, Lark), as trees of expressions, until they are turned into
 * rules of engine/grammar. What no recursion needs becomes one expression over bytes (rx.h), because that is stepped
 * through fastest; every reading of a text counts, so this changes no language.
 *   ebnf_init -> nodes, ebnf_define ... -> ebnf_rules -> ebnf_free
 * Thread: one at a time. Nodes are numbers; errors are sticky: after the first, nodes are 0 and nothing more is done.
 */
#pragma once
#include "engine/grammar/grammar.h"

enum {
    EBNF_ERR = 200,
    EBNF_NODES_MAX = 50000,
    EBNF_BYTES_MAX = 1 << 20, /* of a grammar's text */
    EBNF_NESTED_MAX = 128,    /* groups in groups */
};

/* Finds a token by its text, or by its number: n bytes of decimal digits in '[' and ']'. false: there is none that an
 * answer may contain. */
struct ebnf_tokens {
    bool (*find)(const void *self, const char *text, size_t n, uint32_t *id_out);
    const void *self;
};

enum ebnf_kind { EBNF_NONE, EBNF_RX, EBNF_SYMBOL, EBNF_REF, EBNF_CAT, EBNF_OR, EBNF_REPEAT };

struct ebnf_node {
    uint8_t  kind;
    uint32_t a;    /* RX: expression; SYMBOL: symbol; REF: name; CAT, OR: first child or 0; REPEAT: child */
    uint32_t next; /* the child behind this one, or 0 */
    uint32_t min, max;
};

/* Children of a node in the making. */
struct ebnf_list {
    uint32_t first, last, n;
};

/* A rule, or a terminal of Lark's, by its name. */
struct ebnf_name {
    const char *text; /* in the grammar's text, or constant */
    uint32_t    n_text, def, symbol, rx, weight;
    size_t      at; /* where it is met first, for errors */
    uint8_t     state;
    bool        terminal;
};

struct ebnf {
    struct gr_rules  *r;
    struct rx        *x;
    struct ebnf_node *node; /* node[0] is none */
    struct ebnf_name *name;
    uint32_t         *table; /* [table_n] names by hash, + 1 */
    uint32_t          n_node, node_room, n_name, name_room, table_n, depth;
    uint32_t          ignore; /* symbol that may follow every terminal; UINT32_MAX: none */
    const char       *text;   /* the grammar's, for line and column */
    size_t            n_text, at;
    bool              json;   /* its texts stand in the quotes of a JSON string, and are spelled so (chars.h) */
    uint32_t          within; /* expression: what no terminal goes beyond; RX_ALL at first */
    bool              failed;
    char             *err; /* [EBNF_ERR] */
};

/* Prepares the reading of a grammar's text into r. Text, r and err are borrowed until ebnf_free. ST_NOMEM; a text
 * that is too long fails at once, with the reason in err. */
enum status ebnf_init(struct ebnf *e, struct gr_rules *r, const char *text, size_t n_text, char err[EBNF_ERR]);
void        ebnf_free(struct ebnf *e);
/* Records a failure at place `at` of the text, unless there is one already; returns node 0. */
uint32_t ebnf_fail(struct ebnf *e, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Make a node and return its number; 0 after a failure. ebnf_ref: of the rule with this name, which may come later
 * in the text; `at` is its place there: */
uint32_t ebnf_rx(struct ebnf *e, uint32_t rx);
uint32_t ebnf_symbol(struct ebnf *e, uint32_t symbol);
uint32_t ebnf_ref(struct ebnf *e, const char *name, size_t n, size_t at);
uint32_t ebnf_repeat(struct ebnf *e, uint32_t of, uint32_t min, uint32_t max);
/* Appends a node to the children of a node in the making; node 0 is left out. */
void ebnf_push(struct ebnf *e, struct ebnf_list *list, uint32_t node);
/* A node of these children; of one child: that child itself. Of none: the empty text. */
uint32_t ebnf_cat(struct ebnf *e, const struct ebnf_list *list);
uint32_t ebnf_or(struct ebnf *e, const struct ebnf_list *list);
/* Gives a name its meaning, once. terminal: it is one expression over bytes, and no rule. */
void ebnf_define(struct ebnf *e, const char *name, size_t n, size_t at, uint32_t node, bool terminal);
bool ebnf_defined(struct ebnf *e, const char *name, size_t n);
/* The expression of a node that names terminals alone. RX_NONE with a failure where it names a rule or itself. */
uint32_t ebnf_terminal_rx(struct ebnf *e, uint32_t node, size_t at);

/* The terminal of an expression, within e->within. */
uint32_t ebnf_terminal(struct ebnf *e, uint32_t rx);

/* Turns all that `start` needs into rules. ST_INVALID: err says why, with line and column. Bounds of the rules show in
 * gr_rules_status. */
enum status ebnf_rules(struct ebnf *e, const char *start, uint32_t *symbol_out);
