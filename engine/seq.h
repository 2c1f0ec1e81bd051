/* seq: one generation as token ids; and struct req, which the choices of a request share (req.h).   Thread: engine.
 *
 *  seq_init --> WAITING --sched_admit (admit.c), sched_sibling (sched.c)--> RUNNING
 *                | ^                                                           | |
 *                | +-------- sched_preempt, sched_recompute (sched.c) ---------+ |
 *                +--- req_finish_seq, req_finish (req.c) ---> DONE <-------------+
 * A WAITING seq whose prefix lies on a lower tier asks the tiers for it (want) and waits; loaded blocks are then in the
 * tree.
 *
 * Four lengths, in tokens: 0 <= n_cached <= n_computed <= n_token <= n_max.
 *   n_cached    prefix found in the cache        n_token  prompt + sampled tokens
 *   n_computed  tokens with KV in the blocks     n_max    prompt + max_tokens
 * A running sequence needs rows [n_computed, n_token); when a step computes the last of them it samples the next token.
 *
 * Steps overlap: while a step is planned, another may be in flight, that is enqueued and not applied. The four lengths
 * count applied steps only; fly_row and fly_token are what the steps in flight will add to n_computed and n_token:
 *   n_computed + fly_row <= n_token + fly_token <= n_max; fly_token <= 1 while a step is planned, its id then is
 *     SEQ_PENDING. */
#pragma once
#include "base/list.h"
#include "engine/request.h"
#include "kvcache/device/kv.h"
#include "kvcache/tier.h"

#define SEQ_PENDING UINT32_MAX /* in place of an id that the step in flight draws; only the device knows it yet */

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
    bool                begun;  /* counted in its adapter's n_begun                                  */
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
    bool                lead;      /* computes the prompt for choices that have no seq yet                  */
    bool                resumed;   /* was preempted, or is a sibling: waits in front of the queue            */
    bool                reserved;  /* holds blocks up to n_max after too many preemptions; not preempted again */
    bool                cold;      /* WAITING: refused for its hit_share; waits in sched.cold for its end */
    uint32_t            adapter;   /* RUNNING: number of its adapter's slot (slots.h); 0: none */
    uint32_t            n_refused; /* times that no slot was free for its adapter */
    bool                tardy;     /* the mask of its last row came too late: it waits until that is ready */
    bool                on_host;   /* its sampling row depends on its last token, which must be applied first */

    /* in flight */
    uint64_t stay; /* number of the current RUNNING period; results of an earlier period are dropped */
    uint32_t fly_row, fly_token;
    uint32_t fly_sample; /* with fly_token: number of the sample in that step */
    bool     forking;    /* lead or sibling of a fork in the step in flight; left out of plans until that is applied */

    /* the plan of the next step */
    uint32_t       n_step; /* rows */
    bool           samples;
    bool           late; /* it samples, and its mask is made while the step runs */
    bool           planned;
    struct kv_copy copy; /* valid if n_copy is 1: part of the next batch with rows of this seq */
    uint32_t       n_copy;
};

/* One choice of the request q, WAITING, at the end of q's list. */
void seq_init(struct seq *s, struct req *q, uint32_t choice);
void seq_load(struct seq *s, uint32_t *ids); /* ids [n_max]: copies prompt and output into it */
void seq_check(const struct seq *s);         /* CHECKs the invariants */
/* Tokens of the output so far. */
static inline uint32_t seq_n_out(const struct seq *s) { return s->n_token - s->n_prompt; }
/* Including the steps in flight: the next row to compute; the tokens; the output. */
static inline uint32_t seq_next(const struct seq *s) { return s->n_computed + s->fly_row; }
static inline uint32_t seq_n_ahead(const struct seq *s) { return s->n_token + s->fly_token; }
static inline uint32_t seq_n_out_ahead(const struct seq *s) { return seq_n_ahead(s) - s->n_prompt; }
/* Total order: more urgent first, then older. A sequence takes blocks only from those behind it. */
static inline bool seq_before(const struct seq *a, const struct seq *b)
{
    if (a->r->priority != b->r->priority) return a->r->priority < b->r->priority;
    if (a->q->arrival != b->q->arrival) return a->q->arrival < b->q->arrival;
    return a->choice < b->choice;
}

struct seq_token { /* the result of one sampling row */
    uint32_t        id;
    float           logprob;
    const uint32_t *top_id;
    const float    *top_logprob;
};
struct seq_limits {
    const uint32_t *eos_id;
    uint32_t        n_eos, context_max;
};
/* Appends a sampled token, writes the choice's arrays and publishes n_out. ENG_NONE: the generation continues. */
enum eng_finish seq_append(struct seq *s, const struct seq_token *t, const struct seq_limits *lim);
