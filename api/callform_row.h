/* callform_row: how each family writes the calls that a request demands: one of the notations that its row of
 * api/calls/calls_row.c reads, the one that its models are trained on.   Thread: any; all of it is constant. */
#pragma once
#include "api/calls/calls.h"

/* In the texts of a row: places that are filled in. Everything else stands as it is; the markers of the family are
 * tokens, where the tokenizer has them. */
#define CF_NAME   "\1" /* the name of the tool */
#define CF_ARGS   "\2" /* its arguments: a JSON object, or each by `value` or `data` */
#define CF_NUMBER "\3" /* digits that count calls */
#define CF_KEY    "\4" /* the name of an argument */
#define CF_VALUE  "\5" /* its value */
#define CF_LINE   "\6" /* a newline or nothing */
#define CF_SPACE  "\7" /* white space between the parts of JSON */

enum callform_values {
    CF_JSON,   /* the arguments are one JSON object */
    CF_TYPED,  /* each argument stands between markers, strings as they are */
    CF_PYTHON, /* name=value, with Python's literals */
    CF_BARE,   /* key:value, with bare keys and strings between quotes of the row's own */
};

struct callform_row {
    const char          *row;  /* a name of calls_row.c */
    const char          *sign; /* this notation is meant where the tokenizer or the template has it; NULL: otherwise */
    const char          *begin, *call, *between, *end;
    enum callform_values values;
    const char          *value; /* an argument whose value is a string */
    const char          *data;  /* an argument whose value is other JSON; NULL: as a string's */
    const char          *join;  /* between arguments; NULL: nothing */
    const char          *stop;  /* what the text of a string must not contain; NULL: nothing */
    bool                 one;   /* an answer holds one call */
    /* Of a family whose calls have no marker: what stands behind the key of a call's arguments, and what may stand
     * behind the call. */
    const char *rest, *behind[4];
};

/* The i-th row of the family of this name; NULL: there are no more. */
const struct callform_row *callform_row_of(const char *name, size_t i);
