/* flight: one step between its plan and its results: the batch, and who of the running stands where in it.   Thread: engine.
 * flight_init -> (flight_fill -> the device -> flight_apply)* -> flight_close.
 * Between fill and apply a sequence may end: canceled, out of time, or with the results of the step before. Then its results are
 * dropped here and nothing else knows of them; its blocks may be given out again at once, because the device works in order: the
 * rows in flight are done before a later step writes there. Nobody is preempted in flight (sched.h). */
#pragma once
#include "engine/batch.h"
#include "engine/seq.h"

struct engine;

struct flight_seq { /* rows [first, first + n) of one sequence; s is its own only while sched_stays(slot, stay) */
    struct seq *s;
    uint64_t    stay;
    uint32_t    slot, first, n;
    uint32_t    sample;       /* its number among the samples; UINT32_MAX: does not sample */
    uint32_t    lp_pos, n_lp; /* prompt logprobs of the rows at [lp_pos, lp_pos + n_lp) */
};
struct flight_sample {
    struct seq *s;
    uint64_t    stay;
    uint32_t    slot, lead; /* lead: the sample of the sequence that it is forked from; itself: none */
};
struct flight {
    struct batch          batch;
    struct flight_seq    *seq;    /* [n_seq] as in the batch */
    struct flight_sample *sample; /* [n_sample] as in the batch; siblings stand behind their lead */
    uint32_t              n_seq, n_sample;
    uint64_t              submit_us;
};

enum status flight_init(struct flight *f, const struct batch_cfg *cfg);
void        flight_close(struct flight *f);
void        flight_fill(struct engine *e, struct flight *f);                   /* what the scheduler has planned */
void        flight_apply(struct engine *e, struct flight *f, uint64_t now_us); /* what is in f->batch.out */
void        flight_fail(struct engine *e, struct flight *f); /* ST_STEP: nothing is; its requests end, nothing of it is shared */
