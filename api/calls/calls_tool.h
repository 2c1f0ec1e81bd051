/* calls_tool: the tools of a request, as far as the reader of an answer needs them: names, and the kinds of value that
 * each argument takes.   Thread: made by the call's owner, in the call's arena; then constant. */
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
enum { CALLS_PROPS_MAX = 1024 }; /* of a tool; what is over them counts as text */

struct calls_prop {
    const char *name;
    size_t      n;
    uint8_t     kinds; /* enum calls_type */
};
struct calls_tool {
    const char        *name;
    size_t             n;
    bool               custom;  /* its one argument is free text */
    bool               allowed; /* it may be called */
    struct calls_prop *prop;    /* [n_prop], sorted */
    uint32_t           n_prop;
};
struct calls_tools {
    struct calls_tool *tool;
    uint32_t           n;
    bool               limited; /* tools that are not allowed, or not known, are no calls */
};

/* Fills t of the parameters' JSON schema (NULL: no arguments). The strings are copied. ST_NOMEM. */
enum status calls_tool_props(struct calls_tool *t, const json_t *schema, struct arena *a);
/* NULL: there is none. */
const struct calls_tool *calls_tool_find(const struct calls_tools *tools, const char *name, size_t n);
/* The kinds of value that argument `key` takes; a string where nothing is known. */
uint8_t calls_tool_kinds(const struct calls_tool *t, const char *key, size_t n);
/* 1 to max bytes of letters, digits and _-.: */
bool calls_name_good(const char *name, size_t n, size_t max);
