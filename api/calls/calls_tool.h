/* calls_tool: the names of a request's tools, and the kinds of value that each argument takes, for the parser of
 * answers (calls.h).   Thread: the call's owner makes them in the call's arena; then they are constant. */
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Kinds of JSON value, bits. */
enum calls_type {
    CALLS_NULL = 1,
    CALLS_BOOL = 2,
    CALLS_INTEGER = 4,
    CALLS_NUMBER = 8,
    CALLS_OBJECT = 16,
    CALLS_ARRAY = 32,
    CALLS_STRING = 64,
    CALLS_ANY = 127,
};
enum { CALLS_PROPS_MAX = 1024 }; /* properties of a tool; further ones count as strings */

struct calls_prop {
    const char *name;
    size_t      n;
    uint8_t     kinds; /* enum calls_type */
};
struct calls_tool {
    const char        *name;
    size_t             n;
    bool               custom;  /* its only argument is free text */
    bool               allowed; /* it may be called */
    bool               strict;  /* its arguments are bound to their schema, or grammar, wherever it is called */
    const char        *grammar; /* [n_grammar] of a custom tool's text; NULL: it is free */
    size_t             n_grammar;
    bool               regex; /* the grammar is a regular expression; else it is in Lark's language */
    struct calls_prop *prop;  /* [n_prop], sorted */
    uint32_t           n_prop;
};
struct calls_tools {
    struct calls_tool *tool;
    uint32_t           n;
    bool               limited; /* a call of a tool that is not allowed, or not known, is text */
};

/* Fills t->prop from the parameters' JSON schema (NULL: no arguments). The strings are copied into a. ST_NOMEM. */
enum status calls_tool_props(struct calls_tool *t, const json_t *schema, struct arena *a);
/* NULL: no tool has this name. */
const struct calls_tool *calls_tool_find(const struct calls_tools *tools, const char *name, size_t n);
/* The kinds of value that argument `key` takes; CALLS_STRING if nothing is known of it. */
uint8_t calls_tool_kinds(const struct calls_tool *t, const char *key, size_t n);
/* Whether name is 1 to max bytes of letters, digits and the four characters _ - . : */
bool calls_name_good(const char *name, size_t n, size_t max);
