/* callvalue: the values of one argument, for notations of calls in which each argument stands by itself: a string as it
 * is, without quotes, everything else as JSON. What reads as JSON of a type that the argument may have is no string
 * there.   Thread: the one that makes the rules. */
#pragma once
#include "api/calls/calls_tool.h"
#include "engine/grammar/grammar.h"

enum { CALLVALUE_ERR = 500, CALLVALUE_STOPS = 8 };

struct callvalue_form {
    const json_t *big;                   /* as struct schema_form.big */
    bool          quoted;                /* strings are JSON too, and stand with the rest */
    bool          typed;                 /* the argument's kinds decide what a text is */
    bool          flat;                  /* no strings and objects within lists, and no objects */
    const char   *stop[CALLVALUE_STOPS]; /* [n_stop] what no string may contain */
    uint32_t      n_stop;
};
struct callvalue {
    uint32_t text, data; /* symbols of all strings and of all other values; UINT32_MAX: there are none */
};

/* The schema of a tool's arguments with its references bent, so that its parts can stand alone; the caller gives it
 * back. NULL: no memory. */
json_t *callvalue_root(const json_t *schema);
/* root: from callvalue_root; key: one of its properties; kinds: as the reader of answers knows it. ST_INVALID: err has
 * the place and the reason. */
enum status callvalue_rules(struct gr_rules *r, const json_t *root, const char *key, uint8_t kinds,
                            const struct callvalue_form *form, struct callvalue *out, char err[CALLVALUE_ERR]);
