/* calls: splits a model's answer into text, reasoning and tool calls while it is generated.
 * calls_model_init once per model; calls_init -> calls_text, calls_mark -> calls_end -> calls_free per choice.
 * Thread: struct calls_model is constant and shared; struct calls belongs to its call's owner.
 *
 * Each family of models has a row (calls_row.c): its markers, and a table of the effect of each marker in each state.
 * One automaton runs all rows. It looks at every byte once: bytes that may begin a marker are held (at most
 * CALLS_MARK_BYTES), and bytes that may turn out to be no call are kept and then emitted as text without a second
 * look. The answer may be cut into pieces anywhere: the joined events depend only on the joined bytes.
 *
 * Invariants: 1. OPEN comes once per call, with its whole name, then ARG any number of times, then CLOSE; calls do not
 * overlap and count from 0. 2. A byte that is in no call, no marker and no blank around calls is in TEXT or REASON.
 * 3. A call that the end of the answer cuts off gets no made-up arguments. */
#pragma once
#include "api/calls/calls_tool.h"
#include "api/token/tokenizer.h"
#include "base/buf.h"

enum {
    CALLS_MARK_BYTES = 64,    /* bytes of a marker */
    CALLS_MARKS_MAX = 24,     /* markers of a row, those of reasoning included */
    CALLS_RULES_MAX = 48,     /* rules of a row, those of reasoning included */
    CALLS_MAX = 128,          /* calls in an answer; further ones are text */
    CALLS_NAME_MAX = 256,     /* bytes of a name or a key */
    CALLS_ARGS_MAX = 1 << 20, /* bytes of a call's arguments; the rest is text */
    CALLS_KEYS_MAX = 1024,    /* arguments of a call, in rows where each argument has a marker */
    CALLS_DEPTH_MAX = 64,
    CALLS_STATES_MAX = 24,
    CALLS_ID_MAX = CALLS_NAME_MAX + 1,
};

enum calls_kind { CALLS_TEXT, CALLS_REASON, CALLS_OPEN, CALLS_ARG, CALLS_CLOSE };
struct calls_event {
    enum calls_kind kind;
    uint32_t        index; /* of the call */
    const char *text; /* OPEN: the name; ARG: a piece of a JSON object; TEXT, REASON: text. Valid during the event */
    size_t      n;
    const char *id; /* OPEN */
};
typedef void calls_sink(void *ctx, const struct calls_event *ev);

enum calls_ids {
    CALLS_ID_PLAIN, /* call_ and 24 letters and digits */
    CALLS_ID_NINE,  /* 9 letters and digits, as templates of Mistral require */
    CALLS_ID_KIMI,  /* functions.NAME:NUMBER as the model wrote it */
};

struct calls_row;   /* calls_row.h */
struct calls_think; /* calls_row.h */

/* A row, prepared for one model. */
struct calls_model {
    const struct calls_row   *row;   /* NULL: the form of this model's calls is not known */
    const struct calls_think *think; /* NULL: the model has no markers of reasoning */
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
    uint8_t  first[CALLS_STATES_MAX][32]; /* [state] 256 bits: the bytes that begin a marker there */
    bool     thinks_first;                /* reasoning begins without a marker where the prompt has none */
};

/* Fills m. row and think may be NULL; the tables are borrowed. tok NULL: markers are found only as bytes. */
void calls_model_init(struct calls_model *m, const struct calls_row *row, const struct calls_think *think,
                      const struct tok *tok);
/* The number of the marker that token id is; -1: the token is no marker. */
int calls_mark_of(const struct calls_model *m, uint32_t id);
/* Whether a token of this text may be a part of some marker. The text of such a token must not be dropped, even if the
 * token is special. */
bool calls_part_of_mark(const struct calls_model *m, const char *text, size_t n);
/* Whether reasoning is separated from text. */
bool           calls_thinks(const struct calls_model *m);
enum calls_ids calls_id_style(const struct calls_model *m);

struct calls_cfg {
    const struct calls_model *model;
    const struct calls_tools *tools;  /* NULL: no calls are looked for */
    bool                      one;    /* the answer ends after the first call */
    bool                      hidden; /* markers that are special tokens are left out of text */
    calls_sink               *sink;
    void                     *ctx;
};

/* State that only the machines of this folder use (calls_impl.h). */
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
    uint8_t                  left;    /* the marker with which reasoning, or a text between calls, was last left */
    bool                     done;    /* cfg.one: the call is over, and all further bytes are ignored */
    bool                     said;    /* text that is not blank, or a call, was emitted */
    bool                     thought; /* there was reasoning */
    bool                     tagged;  /* the text stands in tags of the family's own */
    bool                     quiet, skip_newlines, holding, opened;
    char                     last; /* the last byte of text */
    char                     held[CALLS_MARK_BYTES], blank[CALLS_MARK_BYTES];
    uint32_t                 n_held, n_blank, n_call, n_token;
    struct buf               raw; /* bytes to emit as text if they turn out to be no call */
    struct buf               run; /* bytes of run_kind that the sink has not got yet */
    enum calls_kind          run_kind;
    char                     name[CALLS_NAME_MAX + 1], id[CALLS_ID_MAX];
    uint32_t                 n_name;
    char                     key[CALLS_NAME_MAX + 1];
    uint32_t                 n_key;
    const struct calls_tool *tool; /* of the open call; NULL: unknown */
    struct buf               args; /* arguments of a call whose name is not known yet */
    size_t                   n_arg;
    struct buf               value, keys; /* of an argument with a marker: its text; hashes of the keys so far */
    uint8_t                  kinds;
    bool                     value_first, value_newline, value_skip, value_open;
    struct calls_machine     m;
    uint64_t                 n_look; /* the work so far: bytes, held bytes and keys that were looked at */
};

/* cfg is copied; what it points to must outlive p. reasoning: the prompt left a reasoning block open. */
void calls_init(struct calls *p, const struct calls_cfg *cfg, bool reasoning);
/* Take the text of a token, or a token that is marker `mark`. They call the sink before they return. */
void calls_text(struct calls *p, const char *s, size_t n);
void calls_mark(struct calls *p, int mark);
/* What a free text is: reasoning alone, or all that is no call. */
enum calls_free { CALLS_FREE_REASON, CALLS_FREE_TEXT };
/* As calls_text, up to the byte with which a free text ends. Returns how many bytes it took. */
size_t calls_text_free(struct calls *p, enum calls_free what, const char *s, size_t n);
/* Ends the answer: emits what is held. */
void calls_end(struct calls *p);
/* Whether the next byte would be reasoning. */
bool calls_reasoning(const struct calls *p);
/* Whether the answer is in such a free text. */
bool calls_is_free(const struct calls *p, enum calls_free what);
/* Whether marker `mark` ends such a free text in this answer. *n_begun_out: how many of its bytes have come. */
bool calls_leaves(const struct calls *p, enum calls_free what, uint32_t mark, uint32_t *n_begun_out);
/* Whether every call of this model begins with a marker that is none of its bytes, so that text cannot be taken for a
 * call before the marker is whole. */
bool calls_have_marks(const struct calls_model *m);
bool calls_mark_begins(const struct calls_model *m, uint32_t mark); /* whether this marker begins a call in a text */
/* Where a call has no such marker, it is certain only where its arguments are about to begin: behind the key of an
 * object's arguments, Python's bracket, harmony's header. The tool of that call, an allowed one; NULL: the answer is
 * not there. */
const struct calls_tool *calls_args_begin(const struct calls *p);
/* As calls_text, up to the byte behind which calls_args_begin has a tool. Returns how many it took; n > 0. */
size_t calls_text_args(struct calls *p, const char *s, size_t n);
/* A text with which the answer comes to the arguments of a tool from here. */
struct calls_lead {
    const struct calls_tool *tool;
    const char              *text; /* [n] of which `begun` bytes have come; NULL: the tool's name and a bracket */
    uint32_t                 n, begun;
};
enum { CALLS_LEADS_MAX = 128 };
/* Writes those of which a token may be the end, at most CALLS_LEADS_MAX, and returns how many. */
uint32_t calls_args_leads(const struct calls *p, struct calls_lead *out);
/* Whether a text of these bytes may come from before such a lead to behind it. */
bool calls_passes_lead(const struct calls_model *m, const char *s, size_t n);
void calls_free(struct calls *p);
