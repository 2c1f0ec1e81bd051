/* calls_row: the families of tool calls and of reasoning, as tables. Private to api/calls and its tests, but for the
 * look-up by name.   Thread: any, all is constant. */
#pragma once
#include "api/calls/calls.h"

/* Where the automaton is. What a byte that belongs to no marker means there: */
enum calls_state {
    CS_TEXT,    /* text */
    CS_REASON,  /* reasoning */
    CS_BETWEEN, /* nothing if it is blank; else the markup so far was text, or text begins */
    CS_SECTION, /* the same, between the calls of a section */
    CS_AFTER,   /* the same, behind a call */
    CS_PARAMS,  /* the same, between the arguments of a call */
    CS_KEYED,   /* the same, between a key and its value */
    CS_FENCE,   /* the same, between a name and the arguments */
    CS_CLOSER,  /* the same, between the arguments and the end of the call */
    CS_LABEL,   /* nothing, but a few bytes */
    CS_NAME,    /* the name of the tool */
    CS_KEY,     /* the name of an argument */
    CS_VALUE,   /* the value of an argument */
    CS_BODY,    /* arguments, up to a marker */
    CS_HEADER,  /* harmony: who speaks to whom (calls_harmony.c) */
    CS_MACHINES,
    CS_JSON = CS_MACHINES, /* arguments: one JSON object (calls_json.c) */
    CS_CALL,               /* {"name":..,"arguments":..} */
    CS_LIST,               /* [{..},..] of those */
    CS_PYTHON,             /* [f(a=1),..] (calls_python.c) */
    CS_GEMMA,              /* call:f{a:1} (calls_gemma.c) */
    CS_STATES,
};

/* What a marker does on its way from one state to the next, bits. */
enum calls_act {
    CA_OPEN = 1,      /* the name is whole */
    CA_CLOSE = 2,     /* the call is over */
    CA_KEY = 4,       /* the key is whole */
    CA_VALUE = 8,     /* the value is whole */
    CA_TEXT = 16,     /* the value that follows is a string whatever the schema says */
    CA_DATA = 32,     /* ... is JSON whatever the schema says */
    CA_FIRST = 64,    /* only where nothing was said before */
    CA_LINE = 128,    /* only at the beginning of the answer or of a line */
    CA_REDO = 256,    /* the state behind it reads the marker's bytes itself */
    CA_TRIM = 512,    /* newlines that follow are dropped */
    CA_BARE = 1024,   /* the call has no marker of its own: its tool must be one of the request's */
    CA_HEADER = 2048, /* harmony: the header is whole */
    CA_DROP = 4096,   /* the marker begins no call: it is never text */
};

enum { CALLS_DONE = 255 }; /* in place of a marker: the machine is through */

struct calls_row {
    const char       *name;
    const char       *mark[16];
    uint32_t          by_id;           /* bits: markers that count as tokens alone */
    struct calls_step step[32];        /* ends with an empty one */
    uint8_t           ids;             /* enum calls_ids */
    bool              typed;           /* arguments have markers; their object is written here */
    bool              cut;             /* one newline at each end of a value is markup */
    bool              needs_arguments; /* an object without arguments is no call */
    bool              thinks;          /* reasoning is a part of the row */
    const char       *quote;           /* gemma: around a string */
};
struct calls_think {
    const char *name, *start, *stop;
};

/* By a name as other servers' options spell it; NULL: none. "mistral" is the newer of its two rows. */
const struct calls_row   *calls_row_find(const char *name);
const struct calls_think *calls_think_find(const char *name);
/* All rows in their order, for tests; NULL: there is none so far. */
const struct calls_row   *calls_row_at(size_t i);
const struct calls_think *calls_think_at(size_t i);
