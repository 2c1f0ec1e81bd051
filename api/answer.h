/* answer: what the engine writes for a call, as events for the writer of the call's dialect.   Thread: the call's io
 * thread.
 *
 *   for each choice    begin, (text | reason | tool)*, finish
 *   for the answer     usage, once all its choices have finished
 *
 * answer_feed and answer_choice_end turn token ids into pieces of text (detokenizer, stop strings) and send the events
 * of one choice; choices may take turns. answer_end sends usage. A token that may be the one that ends its choice
 * waits, so that its text and the reason leave together and a stop token never shows. */
#pragma once
#include "api/call.h"

/* Text that is certain, and the tokens [from, to) of the choice that are told with it. Text is empty where tokens are
 * told that have none (yet), tokens are none where held text is released at the end. Valid during the event. */
struct answer_piece {
    const char *text; /* UTF-8, not terminated */
    size_t      n;    /* bytes */
    uint32_t    from, to;
};

/* A part of a tool call. Calls of a choice come one after the other: OPEN, ARGS any number of times, CLOSE. */
enum answer_tool_what { ANSWER_TOOL_OPEN, ANSWER_TOOL_ARGS, ANSWER_TOOL_CLOSE };
struct answer_tool {
    enum answer_tool_what what;
    uint32_t              index; /* of the call in its choice */
    const char           *id;    /* OPEN */
    const char           *text;  /* OPEN: the name; ARGS: a piece of a JSON object, or of a custom tool's text */
    size_t                n;
    bool                  custom;
    uint32_t              from, to; /* tokens, as in a piece */
};

/* Tokens. */
struct answer_usage {
    uint64_t n_prompt, n_completion, n_reasoning; /* n_reasoning: of the completion */
    uint64_t n_cached, n_cached_host,
        n_cached_store; /* of the prompt, from the cache; of those, from the host and from stores */
    uint64_t n_pinned;
    bool     pins; /* the request asked for a pin */
};

/* Why a choice ended. */
struct answer_why {
    enum eng_finish          finish;   /* ENG_STOP also where a stop string was found */
    const struct detok_stop *string;   /* the stop string; NULL: none */
    bool                     by_token; /* a stop token of the request: id */
    uint32_t                 id;
    bool                     called; /* at least one tool call was opened, and the end was the model's */
};

/* New tokens of choice i, eng.id[n_fed .. n_out). Streaming: bytes are appended to out. True: a stop string ended the
 * choice; the caller cancels it in the engine and calls answer_choice_end. */
bool answer_feed(struct call *c, uint32_t i, uint32_t n_out, struct buf *out);
/* The engine finished choice i, or a stop string did. Only the first call for a choice counts. */
void answer_choice_end(struct call *c, uint32_t i, enum eng_finish finish, struct buf *out);
/* All choices have ended: the rest of the stream, or the whole body. */
void answer_end(struct call *c, struct buf *out);
/* The request fails after bytes of its stream were sent: its last event. */
void answer_fail(const struct call *c, const struct api_error *e, struct buf *out);
/* Content-Type of the call's stream, and what the stream may say between two events to show that it lives. */
const char *answer_stream_type(const struct call *c);
const char *answer_keep_alive(const struct call *c);
/* An error as a body, in the words of dialect d; NULL: of a route that has none. */
void answer_error(const struct dialect *d, const struct api_error *e, struct buf *out);

/* For writers: of all choices together, of choice i so far, and of a choice that has ended. */
struct answer_usage answer_usage(const struct call *c);
struct answer_usage answer_choice_usage(const struct call *c, uint32_t i);
struct answer_why   answer_why(const struct call *c, uint32_t i);
