/* calls: what a model writes -> text, reasoning and tool calls, while it is written.
 * calls_model_init once per model; calls_init -> calls_text, calls_mark -> calls_end -> calls_free per choice.
 * Thread: struct calls_model is constant and shared; struct calls belongs to its call's owner.
 *
 * Each family of models has a row (calls_row.c): its markers, and a table of what a marker does in a state. One
 * automaton runs all of them. Every byte is looked at once: what may be the beginning of a marker is held (at most
 * CALLS_MARK_BYTES), and what may turn out to be no call is kept and comes out as text without a second look. Pieces
 * may be cut anywhere: the joined events depend on the joined bytes alone.
 *
 * Invariants: 1. OPEN comes once per call, with its whole name, then ARG any number of times, then CLOSE; calls do not
 * overlap and count from 0. 2. A byte that is in no call, no marker and no blank around calls is in TEXT or REASON.
 * 3. Nothing is invented for a call that the end cuts off. */
#pragma once
#include "api/calls/calls_tool.h"
#include "api/token/tokenizer.h"
#include "base/buf.h"

enum {
    CALLS_MARK_BYTES = 64,    /* of a marker */
    CALLS_MARKS_MAX = 24,     /* of a row with those of reasoning */
    CALLS_RULES_MAX = 48,     /* the same */
    CALLS_MAX = 128,          /* calls in an answer; what follows is text */
    CALLS_NAME_MAX = 256,     /* bytes of a name or a key */
    CALLS_ARGS_MAX = 1 << 20, /* bytes of a call's arguments; what follows is text */
    CALLS_KEYS_MAX = 1024,    /* arguments of a call where each has a marker */
    CALLS_DEPTH_MAX = 64,
    CALLS_STATES_MAX = 24,
    CALLS_ID_MAX = CALLS_NAME_MAX + 1,
};

enum calls_kind { CALLS_TEXT, CALLS_REASON, CALLS_OPEN, CALLS_ARG, CALLS_CLOSE };
struct calls_event {
    enum calls_kind kind;
    uint32_t        index; /* of the call */
    const char     *text;  /* of OPEN the name, of ARG a piece of a JSON object; valid during the event */
    size_t          n;
    const char     *id; /* OPEN */
};
typedef void calls_sink(void *ctx, const struct calls_event *ev);

enum calls_ids {
    CALLS_ID_PLAIN, /* call_ and 24 letters and digits */
    CALLS_ID_NINE,  /* 9 letters and digits: what templates of Mistral take */
    CALLS_ID_KIMI,  /* functions.NAME:NUMBER as the model wrote it */
};

struct calls_row;   /* calls_row.h */
struct calls_think; /* calls_row.h */

/* A row, made ready for a model. */
struct calls_model {
    const struct calls_row   *row;   /* NULL: this model's calls are not known */
    const struct calls_think *think; /* NULL: no reasoning to tell apart */
    struct {
        const char *text;
        uint32_t    n, id; /* id: UINT32_MAX where the tokenizer has no such token */
        bool        by_id; /* only the token counts; the same bytes from other tokens do not */
        bool        special;
    } mark[CALLS_MARKS_MAX];
    struct calls_step {
        uint8_t  from, mark, to;
        uint16_t act;
    } step[CALLS_RULES_MAX];
    uint32_t n_mark, n_step;
    uint8_t  first[CALLS_STATES_MAX][32]; /* by state, bits: bytes that begin a marker */
    bool     thinks_first;                /* reasoning begins without a marker where the prompt has none */
};

/* tok: NULL: markers are bytes alone. */
void calls_model_init(struct calls_model *m, const struct calls_row *row, const struct calls_think *think,
                      const struct tok *tok);
/* The marker that a token is; -1: none. */
int calls_mark_of(const struct calls_model *m, uint32_t id);
/* Whether a token of this text may be a part of some marker: its text must not be dropped, special or not. */
bool calls_part_of_mark(const struct calls_model *m, const char *text, size_t n);
/* Whether reasoning is told from text. */
bool           calls_thinks(const struct calls_model *m);
enum calls_ids calls_id_style(const struct calls_model *m);

struct calls_cfg {
    const struct calls_model *model;
    const struct calls_tools *tools;  /* NULL: calls are not looked for */
    bool                      one;    /* the answer ends behind the first call */
    bool                      hidden; /* markers that are special tokens do not show in text */
    calls_sink               *sink;
    void                     *ctx;
};

/* What only the machines of this folder read (calls_impl.h). */
struct calls_machine {
    uint8_t  at, key, depth, n_esc;
    bool     string, escape, list, bare, has_name, has_args, dict_key;
    uint64_t kinds; /* one bit a level: 1 for an object */
    uint32_t cp, high;
    char     quote, text[CALLS_NAME_MAX + 1];
    uint32_t n_text;
};

struct calls {
    struct calls_cfg         cfg;
    uint8_t                  state, origin;
    bool                     done; /* cfg.one: the call is over, and all that follows is ignored */
    bool                     said; /* text that is not blank, or a call */
    bool                     quiet, skip_newlines, holding, opened;
    char                     last; /* byte of text */
    char                     held[CALLS_MARK_BYTES], blank[CALLS_MARK_BYTES];
    uint32_t                 n_held, n_blank, n_call, n_token;
    struct buf               raw; /* what comes out as text if there is no call */
    struct buf               run; /* of run_kind: not yet told */
    enum calls_kind          run_kind;
    char                     name[CALLS_NAME_MAX + 1], id[CALLS_ID_MAX];
    uint32_t                 n_name;
    char                     key[CALLS_NAME_MAX + 1];
    uint32_t                 n_key;
    const struct calls_tool *tool; /* of the open call; NULL: unknown */
    struct buf               args; /* of a call whose name has not come yet */
    size_t                   n_arg;
    struct buf               value, keys; /* of an argument with a marker: its text; hashes of the keys so far */
    uint8_t                  kinds;
    bool                     value_first, value_newline, value_skip, value_open;
    struct calls_machine     m;
    uint64_t                 n_look; /* bytes, held bytes and keys that were looked at: the work so far */
};

/* reasoning: the prompt left a reasoning block open. */
void calls_init(struct calls *p, const struct calls_cfg *cfg, bool reasoning);
/* The text of a token, and a token that is a marker. Events go to the sink before they return. */
void calls_text(struct calls *p, const char *s, size_t n);
void calls_mark(struct calls *p, int mark);
/* No more comes. */
void calls_end(struct calls *p);
/* Whether the next byte would be reasoning. */
bool calls_reasoning(const struct calls *p);
void calls_free(struct calls *p);
