/* gate: the gate (engine/gate.h) of a choice that may reason, or whose calls alone are bound: follows the choice's
 * tokens with the automaton that splits answers (api/calls/calls.h), and opens where the reasoning ends or a call
 * begins. Behind a number of tokens of reasoning it forces the marker that ends it.   Thread: as in engine/gate.h. */
#pragma once
#include "api/calls/calls.h"
#include "engine/gate.h"
#include "engine/grammar/vocab.h"

/* What gates of one model share; it must outlive them. */
struct gate_model {
    const struct calls_model *calls;
    const struct tok         *tok;
    const struct gr_vocab    *vocab;
    const uint32_t *odd; /* [n_odd] tokens that hold an end of reasoning, or a beginning of a call, and more */
    uint32_t        n_odd;
    /* [whole_first[i], whole_first[i + 1]) of whole: tokens at whose end marker i stands, where that ends reasoning or
     * begins a call by its bytes. Behind odd, in its memory. */
    const uint32_t *whole;
    uint32_t        whole_first[CALLS_MARKS_MAX + 1];
    /* By how many bytes of the marker that ends reasoning have come: the token that goes on with it. UINT32_MAX: none
     * does. */
    uint32_t stop_mark, stop[CALLS_MARK_BYTES];
};

/* Fills odd, whole, stop_mark and stop from the other fields; the caller frees odd. ST_NOMEM. */
enum status gate_model_scan(struct gate_model *m);
/* Whether the marker that ends reasoning can be forced, wherever it has begun. */
bool gate_model_stops(const struct gate_model *m);
enum gate_kind {
    GATE_INSIDE, /* the prompt leaves reasoning open; the grammar begins where it ends */
    GATE_BEFORE, /* the answer may begin with reasoning, or with the grammar */
    GATE_CALLS,  /* all is free but calls: the grammar binds each from its first marker to its end */
    GATE_ARGS,   /* all is free but calls, which have no marker: the grammar binds each from its arguments on */
    GATE_NONE,   /* all is free: there is no grammar, and only the reasoning has a bound */
};
enum { GATE_UNBOUNDED = INT32_MAX }; /* a budget that no answer uses up */
/* GATE_ARGS: the grammar begins with the tool's name and a bracket, and is that of api/callform.h. tools: as the reader
 * of the answer gets them (struct calls_cfg). reasoning: the prompt leaves reasoning open. budget: tokens of reasoning,
 * of all its blocks together; when they are used up the marker that ends reasoning is forced. NULL: no memory. */
struct gate *gate_create(const struct gate_model *m, const struct calls_tools *tools, enum gate_kind kind,
                         bool reasoning, uint32_t budget);
