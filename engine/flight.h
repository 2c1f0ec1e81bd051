/* flight: one step between its plan and its results: the batch, and the place of each sequence in it.   Thread: engine.
 * flight_init -> (flight_fill -> the device -> flight_apply)* -> flight_close.
 * A sequence may end between fill and apply: canceled, timed out, or by the results of the step before. Then
 * flight_apply drops its results. Its blocks may be given out again at once, because the device works in order: the
 * rows in flight are done before a later step writes there. No sequence is preempted in flight (sched.h). */
#pragma once
#include "engine/batch.h"
#include "engine/seq.h"

struct engine;

struct flight_seq { /* rows [first, first + n) of one sequence; s is valid only while sched_stays(slot, stay) */
    struct seq *s;
    uint64_t    stay;
    uint32_t    slot, first, n;
    uint32_t    sample,
        n_sample;          /* its samples are [sample, sample + n_sample) of the step; n_sample 0: it does not sample */
    uint32_t lp_pos, n_lp; /* prompt logprobs of the rows at [lp_pos, lp_pos + n_lp) */
};
struct flight_sample {
    struct seq *s;
    uint64_t    stay;
    uint32_t    slot, lead; /* lead: the sample of the sequence from which it forks; its own index: no fork */
    uint32_t    of;         /* late: the entry in seq */
    bool        late;       /* its mask is still missing */
    bool        undrawn;    /* it did not come in time */
};
struct flight {
    struct batch          batch;
    struct flight_seq    *seq;    /* [n_seq] as in the batch */
    struct flight_sample *sample; /* [n_sample] as in the batch; siblings stand behind their lead */
    uint32_t              n_seq, n_sample;
    uint64_t              submit_us;
    bool                  late; /* it is submitted without its draws */
};

/* Takes all the memory of one step within the bounds of cfg. ST_NOMEM, and nothing is held then. */
enum status flight_init(struct flight *f, const struct batch_cfg *cfg);
void        flight_close(struct flight *f);
void        flight_fill(struct engine *e, struct flight *f); /* writes the scheduler's plan into the batch */
/* Writes the masks that have come into the batch, which is about to draw. Whoever has none draws nothing. */
void flight_masks(struct engine *e, struct flight *f);
void flight_apply(struct engine *e, struct flight *f, uint64_t now_us); /* applies the results in f->batch.out */
void flight_fail(
    struct engine *e,
    struct flight
        *f); /* after ST_STEP: there are no results; its requests end, and none of its blocks enters the tree */
