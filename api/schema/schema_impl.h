/* schema_impl: the state and functions that the compiler's files share. Private to api/schema/.   Thread: the one that
 * called schema_rules. */
#pragma once
#include "api/pointer.h"
#include "api/schema/schema.h"
#include "base/arena.h"
#include "engine/grammar/rx_texts.h"

/* Keywords of a schema that have been seen to: alternatives were chosen, or nothing is left of them. */
enum {
    DONE_ANY = 1,
    DONE_ONE = 2,
    DONE_IF = 4,
    DONE_NOT = 8,
    DONE_NEEDS = 16, /* dependentRequired, dependentSchemas, dependencies */
};

/* A schema that the compiler made says so: that it names members closes no object. */
#define SCHEMA_OWN "x-spillway-own"
/* In such a schema: an expression that a text must not match. */
#define SCHEMA_NOT_PATTERN "x-spillway-not-pattern"
/* In such a schema: the value in the request that another one in it was made of, for the places of failures. */
#define SCHEMA_FROM "x-spillway-from"

/* One of the schemas that a value must satisfy at once. */
struct schema_part {
    const json_t *node; /* an object */
    uint32_t      done;
};

/* All of them, without $ref and allOf, whose targets are parts of their own. In the compiler's arena. */
struct schema_all {
    struct schema_part *part;
    uint32_t            n, room;
    bool                nothing; /* one of them is false */
};

/* The symbol of parts that were met before, so that each set is compiled once and recursion ends. */
struct schema_seen {
    uint64_t            hash;
    struct schema_part *key; /* sorted; NULL: free */
    uint32_t            n, symbol;
};

/* What the negation of a schema allows: a list of schemas, one of which holds. list NULL: it cannot be said. */
struct schema_negated {
    const json_t *node;
    json_t       *list;
    const json_t *bad; /* and why not, as struct schema has it */
    const char   *bad_key;
};

/* Schemas that are being compiled, and those within which they are. */
struct schema_frame {
    const struct schema_all   *all;
    const json_t              *node; /* schema.node out of them */
    const struct schema_frame *up;
};

enum { SCHEMA_REFS_MAX = 64, SCHEMA_PARTS_MAX = 256, SCHEMA_BRANCHES_MAX = 10000, SCHEMA_ADDS_MAX = 200000 };

struct schema {
    struct gr_rules       *r;
    struct rx             *x;
    struct arena           arena;
    uint64_t               seed; /* of hashes */
    const json_t          *root;
    struct schema_form     form;
    struct schema_seen    *seen;
    uint32_t               n_seen, seen_room;
    struct schema_negated *negated;
    uint32_t               n_negated, negated_room;
    const json_t          *chain[SCHEMA_REFS_MAX]; /* targets of $ref on the way to the part that is being read */
    uint32_t               n_chain;
    uint32_t               depth, n_node, n_branch, n_look, n_add;
    bool                   moved; /* schemas inside have an $id of their own */
    uint32_t any, string, space;  /* symbols of any value and any string; expression of white space; 0: not made yet */
    struct schema_big         *big; /* [n_big] of form.big, sorted */
    uint32_t                   n_big;
    bool                       failed;
    char                      *err;
    const struct schema_frame *frame; /* innermost; for the places of failures */
    const json_t              *node;  /* the schema that is being read; NULL: none by itself */
    const json_t              *bad;   /* schema_negate: the schema, and its keyword, whose opposite cannot be said */
    const char                *bad_key;
};

/* schema_big.c */
void schema_big_begin(struct schema *s); /* reads form.big */
/* What the client wrote where the tree has v, a whole number beyond 64 bits; NULL: this very float. *one_out false: that
 * cannot be told, as it wrote several numbers that are the same float. */
const char *schema_big_text(const struct schema *s, double v, bool *one_out);

/* schema_say.c */
/* Records a failure; only the first reason is kept. Returns a symbol that matches nothing. */
uint32_t schema_fail(struct schema *s, const char *keyword, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A keyword that cannot be enforced: a failure if the form is strict, else its name is noted. */
void     schema_beyond(struct schema *s, const char *keyword, const char *why);
uint32_t schema_nothing(struct schema *s); /* a symbol that matches nothing */
/* The same where the opposite of a schema cannot be said, just after schema_negate: it is the fault of what is within. */
void schema_beyond_not(struct schema *s, const char *keyword);
/* The client's pointer to what is being compiled, and to a keyword of it ("": none). */
void schema_place(const struct schema *s, const char *keyword, struct pointer *p);
/* Reads a keyword whose value is a count. false: it is absent, or its value is no count, which is a failure. */
bool schema_count(struct schema *s, const json_t *node, const char *key, uint32_t *out);

/* schema_parts.c */
/* Adds a schema to those that hold at once; $ref and allOf are followed. */
void schema_add(struct schema *s, struct schema_all *all, const json_t *node);
/* Adds a part that was added elsewhere before. */
void schema_part_add(struct schema *s, struct schema_all *all, struct schema_part p);
/* Does a schema inside the document have an $id of its own? It moves what references mean. */
bool schema_moves(const json_t *root);
bool schema_is_annotation(const char *key);
/* Has a part nothing left that restricts? */
bool schema_is_spent(struct schema_part p);
/* What a schema that is a $ref stands for; a circle of references is left after a while. */
const json_t *schema_target(struct schema *s, const json_t *node);
/* Can no value satisfy both? Said only where a type or a constant of a required member shows it. */
bool schema_disjoint(struct schema *s, const json_t *a, const json_t *b);

/* schema_negate.c: a list of schemas, borrowed, one of which holds wherever node does not. NULL: it cannot be said. */
const json_t *schema_negate(struct schema *s, const json_t *node);
/* Keeps a schema that was made until the compiler ends. NULL, with a failure: no memory. */
const json_t *schema_keep(struct schema *s, json_t *made);
/* Is the negation of this schema one that values are told by: a type, a constant, a list of them? */
bool schema_not_is_plain(const json_t *node);

/* schema_value.c */
uint32_t schema_space(struct schema *s);                        /* expression: white space that is allowed, or none */
uint32_t schema_string_rx(struct schema *s, uint32_t inner);    /* expression: quotes around */
uint32_t schema_literal(struct schema *s, const json_t *value); /* expression: this value in its only spelling */
/* Adds the text that is this value, or this string, in its only spelling. */
void schema_put(struct schema *s, struct rx_texts *t, const json_t *value);
void schema_put_string(struct rx_texts *t, const char *text, size_t n);
bool schema_equal(const json_t *a, const json_t *b); /* 1 and 1.0 are equal; in value_set.c */
/* The values that enum and const of all parts have in common; NULL: no part has them. The caller gives it back. */
json_t *schema_values(struct schema *s, const struct schema_all *all);
/* Adds the values that `not` of the parts names. */
struct value_set;
void schema_excluded(const struct schema_all *all, struct value_set *no);

/* schema_types.c */
enum schema_type { TYPE_OBJECT, TYPE_ARRAY, TYPE_STRING, TYPE_INTEGER, TYPE_NUMBER, TYPE_BOOLEAN, TYPE_NULL, TYPES };
/* Bits of the types that all parts allow. A number that need not be whole has both bits, one that must not has
 * NUMBER. */
uint32_t schema_types(struct schema *s, const struct schema_all *all);
/* The symbol of values of these types that satisfy parts from which nothing is left to choose. */
uint32_t schema_by_types(struct schema *s, const struct schema_all *all);
uint32_t schema_any(struct schema *s); /* any value */

/* schema_scalar.c, schema_number.c: expressions */
uint32_t schema_string(struct schema *s, const struct schema_all *all);
/* whole: an integer; broken: any other number. */
uint32_t schema_number(struct schema *s, const struct schema_all *all, bool whole, bool broken);
/* schema_array.c, schema_object.c: symbols */
uint32_t schema_array(struct schema *s, const struct schema_all *all);
uint32_t schema_object(struct schema *s, const struct schema_all *all);

/* A member of an object, as schema_names takes it. */
struct schema_name {
    const unsigned char *text; /* [n] the name in its only spelling, with its quotes */
    uint32_t             n;
    uint32_t             value; /* symbol of what comes behind it: a colon and a value */
    bool                 required;
};
/* The rule of many members in their order, n > 0, each with another name. sep: symbol between two. last: what follows
 * where all are through and none was written; and where some was. counted: each adds one to the rule's count (gr_more).
 * In schema_names.c. */
uint32_t schema_names(struct schema *s, const struct schema_name *name, uint32_t n, uint32_t sep,
                      const uint32_t last[2], bool counted);

/* What compiles parts; the files above call it for the schemas inside theirs. In schema.c. */
uint32_t schema_compile(struct schema *s, const struct schema_all *all);
