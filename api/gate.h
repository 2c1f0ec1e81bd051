/* gate: the gate (engine/gate.h) of a choice that may reason, or whose calls alone are bound: follows the choice's
 * tokens with the automaton that splits answers (api/calls/calls.h), and opens where the reasoning ends or a call
 * begins.   Thread: as in engine/gate.h. */
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
};

/* Fills odd and n_odd from the other fields; the caller frees odd. ST_NOMEM. */
enum status gate_model_scan(struct gate_model *m);
enum gate_kind {
    GATE_INSIDE, /* the prompt leaves reasoning open; the grammar begins where it ends */
    GATE_BEFORE, /* the answer may begin with reasoning, or with the grammar */
    GATE_CALLS,  /* all is free but calls: the grammar binds each from its first marker to its end */
};
/* tools: as the reader of the answer gets them (struct calls_cfg). reasoning: the prompt leaves reasoning open. NULL: no
 * memory. */
struct gate *gate_create(const struct gate_model *m, const struct calls_tools *tools, enum gate_kind kind,
                         bool reasoning);
