/* seq: one generation as token ids; and struct req, what its choices share (req.h has its life).   Thread: engine.
 *
 *  seq_init --> WAITING --sched_admit (admit.c), sched_sibling (sched.c)--> RUNNING
 *                | ^                                                           | |
 *                | +-------- sched_preempt, sched_recompute (sched.c) ---------+ |
 *                +--- req_finish_seq, req_finish (req.c) ---> DONE <-------------+
 * A WAITING one whose prefix lies on a lower tier asks for it and waits for the answer (want); what came is in the tree then.
 *
 * Four lengths, in tokens: 0 <= n_cached <= n_computed <= n_token <= n_max.
 *   n_cached    prefix that the cache gave       n_token  prompt + what was sampled
 *   n_computed  whose KV is in the blocks        n_max    prompt + max_tokens
 * A running sequence needs rows [n_computed, n_token); when a step computes the last of them it samples the next token.
 *
 * Steps overlap: while one is planned another may be in flight, enqueued and not applied. The four lengths are what the applied
 * steps have left; fly_row and fly_token are what those in flight will add to n_computed and n_token:
 *   n_computed + fly_row <= n_token + fly_token <= n_max; fly_token <= 1 while a step is planned, its id then is SEQ_PENDING. */
#pragma once
#include "base/list.h"
#include "engine/request.h"
#include "kvcache/device/kv.h"
#include "kvcache/tier.h"

#define SEQ_PENDING UINT32_MAX /* in seq.id: drawn by the step in flight, only the device knows it yet */

enum seq_state { SEQ_WAITING, SEQ_RUNNING, SEQ_DONE };

struct tenant; /* fair.h */

struct req { /* eng_request.priv */
    struct eng_request *r;
    struct list         live;  /* engine: all that are not final                                  */
    struct list         retry; /* engine: its message did not fit into the outbox                  */
    struct list         seqs;  /* of its choices                                                   */
    struct tenant      *tenant;
    uint64_t            arrival;   /* running number: who is older                                     */
    uint32_t            n_spawned; /* choices that have had a seq: the next one to spawn                */
    uint32_t            n_done;
    struct kv_mark      mark; /* of its pin */
    bool                pin_asked;
    uint32_t            n_lp;   /* prompt tokens whose row has given its logprob                     */
    bool                queued; /* counted in the bounds of eng_submit                               */
    bool                final;  /* all choices are done                                              */
};

struct seq {
    struct list         link; /* sched: a tenant's queue, or the resume list */
    struct list         of_req;
    struct req         *q;
    struct eng_request *r;
    struct eng_choice  *c;
    uint32_t            choice; /* its index */
    enum seq_state      state;
    uint32_t            n_prompt, n_cached, n_computed, n_token, n_max;
    uint32_t           *id;     /* [n_token + fly_token] while RUNNING: prompt, then output              */
    struct kv_seq       kv;     /* open while RUNNING                                                    */
    struct kv_cursor    cursor; /* WAITING: how much of its prompt is cached                             */
    struct kv_want      want;   /* WAITING: what it has asked the tiers for                              */
    int64_t             key;    /* WAITING: order within the tenant                                      */
    uint32_t            n_preempted, n_passed, n_deferred;
    bool                lead;     /* computes the prompt for the choices that are not spawned yet          */
    bool                resumed;  /* has waited since it first ran, or is a sibling: waits in front         */
    bool                reserved; /* holds blocks up to n_max: preempted often enough, now protected        */
    bool                on_host;  /* its batch entry depends on its last token: that must be applied first  */

    /* in flight */
    uint64_t stay; /* number of this time of RUNNING: results of an earlier one are dropped */
    uint32_t fly_row, fly_token;
    uint32_t fly_sample; /* fly_token: which sample of that step draws it */
    bool forking; /* lead or sibling of a fork that happens when the step in flight is applied: sits out until then */

    /* the plan of the next step */
    uint32_t       n_step; /* rows */
    bool           samples;
    bool           planned;
    struct kv_copy copy; /* n_copy 1: goes into the next batch that it has rows in */
    uint32_t       n_copy;
};

void                   seq_init(struct seq *s, struct req *q, uint32_t choice);
void                   seq_load(struct seq *s, uint32_t *ids); /* ids[n_max]: takes prompt and output so far */
void                   seq_check(const struct seq *s);         /* the invariants, as CHECKs */
static inline uint32_t seq_n_out(const struct seq *s) { return s->n_token - s->n_prompt; }
/* With what is in flight: the row that is next, the tokens and the output that it will have then. */
static inline uint32_t seq_next(const struct seq *s) { return s->n_computed + s->fly_row; }
static inline uint32_t seq_n_ahead(const struct seq *s) { return s->n_token + s->fly_token; }
static inline uint32_t seq_n_out_ahead(const struct seq *s) { return seq_n_ahead(s) - s->n_prompt; }
/* Older, or more urgent: a total order. The first never gives way to the others. */
static inline bool seq_before(const struct seq *a, const struct seq *b)
{
    if (a->r->priority != b->r->priority) return a->r->priority < b->r->priority;
    if (a->q->arrival != b->q->arrival) return a->q->arrival < b->q->arrival;
    return a->choice < b->choice;
}

struct seq_token { /* what came back for one row */
    uint32_t        id;
    float           logprob;
    const uint32_t *top_id;
    const float    *top_logprob;
};
struct seq_limits {
    const uint32_t *eos_id;
    uint32_t        n_eos, context_max;
};
/* Appends a sampled token, writes the choice's arrays and publishes n_out. ENG_NONE: it goes on. */
enum eng_finish seq_append(struct seq *s, const struct seq_token *t, const struct seq_limits *lim);
