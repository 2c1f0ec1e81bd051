/* dialect: the requests and answers of one API, as a row of values and functions. Private to api/: the server passes a
 * row from its route table to call_parse and does not read it.   Thread: functions run on the call's owner; rows are
 * constant.
 *
 *   fields, parse, prepare   a body becomes a call with prompts as token ids (call.c, params.c)
 *   writers                  the events of an answer become bytes (answer.c)
 *
 * docs/CONTRIBUTING.md says how to add one. */
#pragma once
#include "api/answer.h"
#include "api/params.h"

/* The functions that write each event of an answer into out, the bytes for the client. A writer never waits and returns
 * no error; out->failed tells the caller that out is full. Without the columns reason and tool everything that a model
 * writes is text. */
struct writer {
    void (*begin)(struct call *c, uint32_t i, struct buf *out); /* choice i begins; NULL: writes nothing */
    void (*text)(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
    void (*reason)(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out); /* with tool, or NULL */
    void (*tool)(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out);
    void (*finish)(struct call *c, uint32_t i, const struct answer_piece *p,
                   struct buf *out);                /* its last piece; answer_why has the reason */
    void (*usage)(struct call *c, struct buf *out); /* all choices have finished: usage and the end of the answer */
};

/* A row either describes a dialect or, with pick, chooses another row by the form of a body. */
struct dialect {
    enum api_task task;                /* of the models that it is for */
    const char   *id_prefix;           /* prefix of an answer's id: "chatcmpl-" */
    bool          draws_id;            /* ids are random, whatever the request's own id is: they open what is stored */
    bool          recalls;             /* a body may go on from a stored response (api/responses/recall.c) */
    const char   *id_header;           /* header that tells the request's id beside x-request-id; NULL: none */
    const struct param_fields *fields; /* the fields that a body may have */
    unsigned                   fields_on; /* bit in `on` of struct param that selects this dialect's rows */
    const char                *nest;      /* a field whose members are fields too, selected by nest_on; NULL: none */
    unsigned                   nest_on;   /* as fields_on */
    const char                *prompt_param, *max_tokens_param, *top_logprobs_param; /* names of fields, for errors */
    int64_t                    max_tokens_default;                                   /* -1: the rest of the context */
    bool                       add_special;        /* by default the tokenizer's special tokens are added to a prompt */
    bool                       echo_scores_prompt; /* echo with logprobs returns those of the prompt too */
    bool                       overflows_in_stream; /* where a stream's prompt is too long, the stream says so */
    bool                       clamps; /* more output than the context has room for is cut, and is no error */
    /* The error for a prompt of n tokens, or at least n, that leaves no room for output; NULL: vLLM's. Returns
     * ST_INVALID. */
    enum status (*too_long)(const struct call *c, uint64_t n, struct api_error *e);
    enum status (*parse)(struct call *c, struct api_error *e); /* checks fields together; makes c->prompt */
    enum status (*prepare)(struct call      *c,
                           struct api_error *e); /* tokenizes the prompts; may set c->own for its writers */
    /* Of prompts that become states: makes of the state of choice i, where it lies, what `finish` writes. It uses what is
     * constant after prepare and nothing of other choices, as it may be called on another thread. NULL: it is there. */
    void (*settle)(struct call *c, uint32_t i);
    struct writer stream;      /* for streams */
    const char   *stream_type; /* Content-Type of a stream; NULL: that of server-sent events */
    const char   *keep_alive;  /* sent between two events of a silent stream; NULL: a comment of server-sent events */
    struct writer whole;       /* for whole bodies: text gathers in call_choice.text, and usage writes the body */
    void (*error)(struct buf *out, const struct api_error *e); /* writes an error as a body */
    /* Writes the last event of a failing stream. */
    void (*error_stream)(struct call *c, struct buf *out, const struct api_error *e);
    /* NULL: the row is a dialect. Else the row has no other column but error, and this function finds the row for a
     * body, which may be one that picks in turn. ST_INVALID with *e. */
    enum status (*pick)(const struct call_shape *s, const struct dialect **d_out, struct api_error *e);
};

/* The writer for this call: that of streams, or that of whole bodies. */
static inline const struct writer *writer_of(const struct call *c)
{
    return c->stream ? &c->dialect->stream : &c->dialect->whole;
}
/* The bytes of b as a string; "" of an empty one. */
static inline const char *text_of(const struct buf *b) { return b->data ? b->data : ""; }
/* Where the text of a choice goes: a stream needs it until the event is written, a whole answer until its end. */
static inline struct buf *answer_text_buf(struct call *c, struct call_choice *ch)
{
    if (!c->stream) return &ch->text;
    buf_clear(&c->scratch);
    return &c->scratch;
}

/* The prompt of choice i. A call has n choices of each prompt, in the order of the prompts. */
static inline const struct call_prompt *call_prompt_of(const struct call *c, uint32_t i)
{
    return &c->prompt[i / c->n];
}

/* Makes an error for the client of a fault in the body's JSON (call.c). Returns ST_INVALID. */
enum status call_body_wrong(const struct json_error *je, struct api_error *e);
