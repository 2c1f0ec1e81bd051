/* sched: who runs this step.   Thread: engine.
 *
 * One token budget a step: every decoding sequence takes one row, what is left is filled with chunks of prompts, first of
 * those that run, then of those that wait (Sarathi-Serve, Agrawal et al. 2024, arXiv:2403.02310): a long prompt then delays
 * the others by no more than one budget.
 *
 * Blocks short? The youngest running sequence that is younger than the one in need gives its own up and waits in front, to be
 * recomputed. Nobody deadlocks and nobody is preempted for ever, because
 *   - the order seq_before is total, and a sequence only ever takes from younger ones: the oldest always gets on;
 *   - after preempt_max times a sequence comes back only with blocks for all it may ever need, and is not asked again;
 *   - a request whose blocks exceed the pool is never accepted, so one alone always fits.
 *
 * Who comes back looks for all that it had computed, what it generated as well, in the device's tree and below it: what the blocks
 * that it gave up have become depends on who needed them. So a preemption is a spill where loading is the quicker way back.
 *
 * A step is planned while the one before is in flight: what that one samples counts as drawn, with an id that only the device
 * knows. Such a plan takes no blocks from anybody: where it would have to, or where a row depends on an id that the host must
 * see, it is given up and made again with nothing in flight. So whoever is in flight is never preempted, and both end at once:
 * the plan that follows has all that is known, and the oldest gets on as ever. Left out are those that surely end in flight. */
#pragma once
#include "engine/batch.h"
#include "engine/fair.h"
#include "engine/sample.h"
#include "engine/seq.h"
#include "kvcache/device/kv.h"

struct sched_cfg {
    uint32_t n_table; /* of kv: more than may run; 0: as many */
    uint32_t seqs_max, tokens_max, chunk_max, preempt_max, block_tokens, n_block, context_max, n_eos;
    uint32_t preempt_every; /* tests: so many steps; 0: only for want of blocks */
};

struct sched {
    struct sched_cfg    cfg;
    struct kv          *kv;
    struct kv_tiers    *tiers;        /* or NULL */
    double              us_per_token; /* what computing costs just now, for the tiers */
    const struct batch *batch;        /* its bounds */
    struct seq        **running;      /* [n_running] in the order of seq_before */
    uint32_t            n_running;
    uint32_t           *ids;    /* [n_table, context_max] tokens of the running, by kv.slot */
    struct list         resume; /* WAITING in front of all tenants: preempted, and siblings that found no room */
    uint32_t            n_resume;
    struct fair         fair;
    uint64_t            n_preempted, n_prompt_tokens, n_cached_tokens; /* tokens: of admitted prompts */
    uint64_t            n_resumed_tokens;                              /* of those that go on again: what lower tiers gave back */
    uint32_t           *again; /* [context_max] all tokens of the one below: a waiting one has no place of its own for them */
    struct {
        uint64_t arrival;
        uint32_t choice, n;
    } again_of;
    uint64_t  preempt_at; /* of preempt_every: the next step of that kind */
    uint64_t *stay;       /* [n_table] by kv.slot: seq.stay of who runs there; 0: nobody */
    uint64_t  n_stay;

    /* the plan of this step */
    struct seq       **plan;                       /* [n_plan] those with rows, decoding ones first */
    uint32_t           n_plan, n_plan_one, budget; /* n_plan_one: of them those with one row to go */
    struct sample_need used;
    uint64_t           step, now_us;
    bool               short_of_blocks; /* someone was preempted or had to stand still: admit nobody */
    bool               in_flight;       /* a step is: nobody may be preempted */
};

enum status sched_init(struct sched *s, const struct sched_cfg *cfg, struct kv *kv, const struct batch *batch);
void        sched_close(struct sched *s);
void        sched_enqueue(struct sched *s, struct seq *q, uint64_t now_us); /* a new request's lead */
void        sched_resume(struct sched *s, struct seq *q);                   /* waits in front */
/* What all running have computed is in doubt: they wait again, and compute it anew. Nothing of theirs goes down. None may be in flight. */
void sched_recompute(struct sched *s);
void sched_remove(struct sched *s, struct seq *q, bool discard); /* from wherever it is, with its blocks; it is DONE then */
/* Fills plan[]: each has n_step rows, blocks for them, and samples set where its last token is among them. step: a new number each
 * time. false: given up, the step in flight must be applied first; without one it never is. */
bool sched_plan(struct sched *s, uint64_t step, uint64_t now_us, bool in_flight);
/* Starts sibling kid in this step: it samples from the lead's last row and gets its blocks by sched_fork after the commit; both
 * are left out of plans until then. false: no room; it must wait (sched_resume). */
bool sched_sibling(struct sched *s, struct seq *kid, struct seq *lead);
void sched_fork(struct sched *s, struct seq *lead, struct seq *kid);
/* The plan is on its way to the device: q's n_step rows, and the token that it samples if it does (as sample number `sample`). */
void sched_sent(struct sched *s, struct seq *q, uint32_t sample);
/* n rows of q in flight are computed: q moves on and its full blocks are shared. */
void sched_commit(struct sched *s, struct seq *q, uint32_t n);
/* Is what was in the table `slot` as number `stay` still running? Its seq must not be looked at before. */
static inline bool sched_stays(const struct sched *s, uint32_t slot, uint64_t stay) { return s->stay[slot] == stay; }
void               sched_check(const struct sched *s); /* CHECKs over all lists: for tests */
