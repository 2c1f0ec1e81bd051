/* dialect: one API's way to ask and to answer, as a row of values and functions. Private to api/: the server takes a
 * row from its route table, hands it to call_parse, and reads nothing in it.   Thread: functions run on the call's
 * owner; rows are constant.
 *
 *   fields, parse, prepare   a body becomes a call with prompts as token ids (call.c, params.c)
 *   writers                  the events of an answer become bytes (answer.c)
 *
 * docs/CONTRIBUTING.md says how to add one. */
#pragma once
#include "api/answer.h"
#include "api/params.h"

/* What a dialect makes of each event; out is what goes to the client. A writer never waits and never fails by itself:
 * when out is full, out->failed says so to the caller. Without the columns reason and tool
 * everything that a model writes is text. */
struct writer {
    void (*begin)(struct call *c, uint32_t i, struct buf *out); /* choice i begins; NULL: nothing to say */
    void (*text)(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
    void (*reason)(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out); /* with tool, or NULL */
    void (*tool)(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out);
    void (*finish)(struct call *c, uint32_t i, const struct answer_piece *p,
                   struct buf *out); /* its last piece; answer_why has the reason */
    void (*usage)(struct call *c,
                  struct buf  *out); /* every choice has finished: what it cost, and the end of the answer */
};

/* A row either speaks a dialect or, with pick, only chooses the row that does, by the form of a body. */
struct dialect {
    const char                *id_prefix; /* of an answer's id: "chatcmpl-" */
    const struct param_fields *fields;    /* the fields that a body may have */
    unsigned                   fields_on; /* bit of struct param's `on`: the rows that are meant for this dialect */
    const char                *nest;      /* a field whose members are fields too: those of nest_on; NULL: none */
    unsigned                   nest_on;   /* as fields_on */
    const char                *prompt_param, *max_tokens_param, *top_logprobs_param; /* names of fields, for errors */
    int64_t                    max_tokens_default; /* -1: the room left in the context */
    bool add_special;        /* the tokenizer's own special tokens are added to a prompt, unless asked otherwise */
    bool echo_scores_prompt; /* echo with logprobs: those of the prompt's tokens as well */
    enum status (*parse)(struct call *c, struct api_error *e);   /* what its fields say together; makes c->prompt */
    enum status (*prepare)(struct call *c, struct api_error *e); /* prompts -> ids; what its writers need in c->own */
    struct writer stream;                                        /* bytes leave as the answer grows */
    const char   *stream_type; /* Content-Type of a stream; NULL: of server-sent events */
    const char *keep_alive; /* what a silent stream may say between two events; NULL: a comment of server-sent events */
    struct writer whole;    /* text gathers in call_choice.text; nothing is in out before usage writes the body */
    void (*error)(struct buf *out, const struct api_error *e);        /* the body of an answer that is an error */
    void (*error_stream)(struct buf *out, const struct api_error *e); /* the last event of a stream that fails */
    /* NULL: the row speaks. Else it has no other column but error: this finds the row for a body. ST_INVALID with *e. */
    enum status (*pick)(const char *body, size_t n_body, enum lmi_form form, const struct dialect **d_out,
                        struct api_error *e);
};

static inline const struct writer *writer_of(const struct call *c)
{
    return c->stream ? &c->dialect->stream : &c->dialect->whole;
}
static inline const char *text_of(const struct buf *b) { return b->data ? b->data : ""; }
/* Where the text of a choice goes: a stream needs it until the event is written, a whole answer until its end. */
static inline struct buf *answer_text_buf(struct call *c, struct call_choice *ch)
{
    if (!c->stream) return &ch->text;
    buf_clear(&c->scratch);
    return &c->scratch;
}

static inline const struct call_prompt *call_prompt_of(const struct call *c, uint32_t i)
{
    return &c->prompt[i / c->n];
}

/* What is wrong with a body as JSON, as an answer (call.c). Returns ST_INVALID. */
enum status call_body_wrong(const struct json_error *je, struct api_error *e);
