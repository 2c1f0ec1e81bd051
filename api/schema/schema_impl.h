/* schema_impl: what the parts of the compiler share. Private to api/schema/. */
#pragma once
#include "api/schema/schema.h"

/* Of a $ref's target, or of any schema that was met: compiled once. */
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

/* Keeps the first reason. Returns a symbol that matches nothing. */
uint32_t schema_fail(struct schema *s, const char *keyword, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
uint32_t schema_nothing(struct schema *s);                      /* a symbol that matches nothing */
uint32_t schema_compile(struct schema *s, const json_t *node);  /* any schema */
uint32_t schema_any(struct schema *s);                          /* any value */
uint32_t schema_literal(struct schema *s, const json_t *value); /* expression: this value, in its one spelling */
uint32_t schema_space(struct schema *s);                        /* expression: white space that is allowed, or none */
uint32_t schema_string_rx(struct schema *s, uint32_t inner);    /* expression: quotes around */
/* A pointer is one step longer until schema_leave gives back what it was. */
size_t schema_enter(struct schema *s, const char *key, size_t index);
void   schema_leave(struct schema *s, size_t was);
/* A count of a keyword: false where it is absent; a failure where it is none. */
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
