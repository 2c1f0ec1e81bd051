/* schema_impl: the state and functions that the compiler's files share. Private to api/schema/.   Thread: the one that
 * called schema_rules. */
#pragma once
#include "api/schema/schema.h"

/* A schema that was met, by itself or as the target of a $ref, and its symbol, so that each is compiled once. */
struct schema_seen {
    const json_t *node;
    uint32_t      symbol;
};

struct schema {
    struct gr_rules    *r;
    struct rx          *x;
    const json_t       *root;
    struct schema_form  form;
    struct schema_seen *seen; /* [seen_room] by address; node NULL: free */
    uint32_t            n_seen, seen_room;
    uint32_t            depth, n_node;
    uint32_t any, string, space; /* symbols of any value and any string; expression of white space; 0: not made yet */
    bool     failed;
    char    *err;
    char     path[200]; /* JSON pointer of what is being compiled; cut where it is too long */
};

/* Records a failure; only the first reason is kept. Returns a symbol that matches nothing. */
uint32_t schema_fail(struct schema *s, const char *keyword, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
uint32_t schema_nothing(struct schema *s);                      /* a symbol that matches nothing */
uint32_t schema_compile(struct schema *s, const json_t *node);  /* any schema */
uint32_t schema_any(struct schema *s);                          /* any value */
uint32_t schema_literal(struct schema *s, const json_t *value); /* expression: this value in its only spelling */
uint32_t schema_space(struct schema *s);                        /* expression: white space that is allowed, or none */
uint32_t schema_string_rx(struct schema *s, uint32_t inner);    /* expression: quotes around */
/* Extends the JSON pointer by one step; schema_leave takes the result and restores the pointer. */
size_t schema_enter(struct schema *s, const char *key, size_t index);
void   schema_leave(struct schema *s, size_t was);
/* Reads a keyword whose value is a count. false: it is absent, or its value is no count, which is a failure. */
bool schema_count(struct schema *s, const json_t *node, const char *key, uint32_t *out);
bool schema_refuse(struct schema *s, const json_t *node, const char *const *key,
                   size_t n); /* true: one of them is there */

/* schema_scalar.c */
uint32_t schema_string(struct schema *s, const json_t *node);
uint32_t schema_number(struct schema *s, const json_t *node, bool whole);
/* schema_shape.c */
uint32_t schema_array(struct schema *s, const json_t *node);
uint32_t schema_object(struct schema *s, const json_t *node);
uint32_t schema_object_of_any(struct schema *s);
