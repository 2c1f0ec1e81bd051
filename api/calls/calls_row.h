/* calls_row: the families of tool calls and of reasoning, as tables. Private to api/calls and its tests, except the
 * look-up by name.   Thread: any; all of it is constant. */
#pragma once
#include "api/calls/calls.h"

/* The state of the automaton. Each comment says what a byte that belongs to no marker means in that state. */
enum calls_state {
    CS_TEXT,    /* text */
    CS_REASON,  /* reasoning */
    CS_BETWEEN, /* a blank byte: nothing; any other byte: the markup so far was text, or text begins */
    CS_SECTION, /* as CS_BETWEEN, between the calls of a section */
    CS_AFTER,   /* as CS_BETWEEN, after a call */
    CS_ENDING,  /* as CS_BETWEEN, behind the tag that ends an answer in tags */
    CS_PARAMS,  /* as CS_BETWEEN, between the arguments of a call */
    CS_KEYED,   /* as CS_BETWEEN, between a key and its value */
    CS_FENCE,   /* as CS_BETWEEN, between a name and the arguments */
    CS_CLOSER,  /* as CS_BETWEEN, between the arguments and the end of the call */
    CS_LABEL,   /* nothing, up to a small number of bytes */
    CS_NAME,    /* the name of the tool */
    CS_KEY,     /* the name of an argument */
    CS_VALUE,   /* the value of an argument */
    CS_BODY,    /* arguments, up to a marker */
    CS_HEADER,  /* harmony: a message's header: its role, channel and recipient (calls_harmony.c) */
    CS_MACHINES,
    CS_JSON = CS_MACHINES, /* arguments: one JSON object (calls_json.c) */
    CS_CALL,               /* {"name":..,"arguments":..} */
    CS_LIST,               /* [{..},..] of those */
    CS_PYTHON,             /* [f(a=1),..], or a call a line (calls_python.c) */
    CS_GEMMA,              /* call:f{a:1} (calls_gemma.c) */
    CS_STATES,
};

/* Effects and conditions of a marker between two states, bits. */
enum calls_act {
    CA_OPEN = 1,        /* the name is complete */
    CA_CLOSE = 2,       /* the call is over */
    CA_KEY = 4,         /* the key is complete */
    CA_VALUE = 8,       /* the value is complete */
    CA_TEXT = 16,       /* the next value is a string, whatever the schema says */
    CA_DATA = 32,       /* the next value is JSON, whatever the schema says */
    CA_FIRST = 64,      /* the marker counts only before the first text or call */
    CA_LINE = 128,      /* the marker counts only at the beginning of the answer or of a line */
    CA_REDO = 256,      /* the next state reads the marker's bytes again */
    CA_TRIM = 512,      /* newlines after the marker are dropped */
    CA_BARE = 1024,     /* the call has no marker of its own: its tool must be one of the request's */
    CA_HEADER = 2048,   /* harmony: the header is complete */
    CA_DROP = 4096,     /* the marker begins no call and is never text */
    CA_TAG = 8192,      /* into text: the answer stands in tags; to CS_ENDING: the marker counts only if it does */
    CA_THOUGHT = 16384, /* the marker counts only behind reasoning */
};

enum { CALLS_DONE = 255 }; /* in place of a marker: the machine has reached the end of its value */

struct calls_row {
    const char       *name;
    const char       *mark[16];
    uint32_t          by_id;           /* bits: markers that count only as tokens, not as bytes */
    struct calls_step step[32];        /* ends with an empty step */
    uint8_t           ids;             /* enum calls_ids */
    bool              typed;           /* each argument has a marker; the JSON object is written by calls_value.c */
    bool              cut;             /* one newline at each end of a value is markup */
    bool              needs_arguments; /* an object without arguments is no call */
    bool              thinks;          /* reasoning is a part of the row */
    bool              lines;           /* CS_PYTHON: a call a line, without brackets around them */
    const char       *quote;           /* gemma: the text on both sides of a string */
};
struct calls_think {
    const char *name, *start, *stop;
    const char *sign;                 /* templates that have it are of this family; NULL: those that have stop */
    const char *start_too, *stop_too; /* as models of this family spell them now and then; or NULL */
};

/* Look up by a name in the spelling of other servers' options; NULL: unknown. "mistral" is the newer of its two rows.
 * */
const struct calls_row   *calls_row_find(const char *name);
const struct calls_think *calls_think_find(const char *name);
/* Row i, for tests; NULL: i is past the last row. */
const struct calls_row   *calls_row_at(size_t i);
const struct calls_think *calls_think_at(size_t i);
