/* answer: turns the engine's output for a call into events for the writer of the call's dialect.   Thread: the call's
 * io thread.
 *
 *   for each choice    begin, (text | reason | tool)*, finish
 *   for the answer     usage, once all its choices have finished
 *
 * answer_feed and answer_choice_end turn token ids into pieces of text (detokenizer, stop strings) and send the events
 * of one choice; choices may take turns. answer_end sends usage. A token that may end its choice is held back, so that
 * its text and the reason leave together and the text of a stop token is never sent. */
#pragma once
#include "api/call.h"

/* A piece of final text, and the tokens [from, to) of the choice that belong to it. The text is empty for tokens
 * without text (so far); from == to when held text is released at the end. Valid during the event. */
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
    bool                  cut;      /* CLOSE of a custom tool: the answer ended before its text did */
    uint32_t              from, to; /* tokens, as in a piece; of CLOSE they come with the next event */
};

/* Tokens. */
struct answer_usage {
    uint64_t n_prompt, n_completion, n_reasoning; /* n_reasoning: of the completion */
    uint64_t n_cached, n_cached_from[KV_TIERS];   /* prompt tokens from the cache; those of them from each tier */
    uint64_t n_pinned;
    bool     pins; /* the request asked for a pin */
};

/* Why a choice ended. */
struct answer_why {
    enum eng_finish          finish;   /* ENG_STOP also for a stop string */
    const struct detok_stop *string;   /* the stop string; NULL: none */
    bool                     by_token; /* a stop token of the request: id */
    uint32_t                 id;
    /* at least one tool call was opened, the end was the model's, and the request did not name the tool */
    bool called;
};

/* New tokens of choice i, eng.id[n_fed .. n_out). Streaming: bytes are appended to out. True: a stop string ended the
 * choice; the caller cancels it in the engine and calls answer_choice_end. */
bool answer_feed(struct call *c, uint32_t i, uint32_t n_out, struct buf *out);
/* Of a prompt that becomes a state: multiplications that answer_settle does, 0: none. */
uint64_t answer_settle_cost(const struct call *c);
/* The state of choice i has come: makes of it what the answer shows. Once; answer_choice_end does it if nobody has.
 * Thread: any one that has this choice, while the io thread has the others. */
void answer_settle(struct call *c, uint32_t i);
/* Choice i has ended, by the engine or by a stop string. Only the first call for a choice has an effect. */
void answer_choice_end(struct call *c, uint32_t i, enum eng_finish finish, struct buf *out);
/* All choices have ended: writes the rest of the stream, or the whole body. */
void answer_end(struct call *c, struct buf *out);
/* Whether a stream that has not begun tells this error as its last event, by answer_fail, and not as a body. */
bool answer_fails_in_stream(const struct call *c, const struct api_error *e);
/* Writes the last event of a request that fails after bytes of its stream were sent. */
void answer_fail(struct call *c, const struct api_error *e, struct buf *out);
/* Content-Type of the call's stream; and bytes that may be sent between two events to keep a connection alive. */
const char *answer_stream_type(const struct call *c);
const char *answer_keep_alive(const struct call *c);
/* The header that tells the id of a request in dialect d beside x-request-id; NULL: none. */
const char *answer_id_header(const struct dialect *d);
/* Writes an error as a body in the form of dialect d; NULL: the form of routes without a dialect. */
void answer_error(const struct dialect *d, const struct api_error *e, struct buf *out);

/* For writers: usage of all choices, usage of choice i so far, and the end of a finished choice. */
struct answer_usage answer_usage(const struct call *c);
struct answer_usage answer_choice_usage(const struct call *c, uint32_t i);
struct answer_why   answer_why(const struct call *c, uint32_t i);
