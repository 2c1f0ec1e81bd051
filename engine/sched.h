/* sched: who runs this step.   Thread: engine.
 *
 * A step has one token budget. Every decoding sequence takes one row. Chunks of prompts fill the rest, first those of
 * running sequences, then those of waiting ones (Sarathi-Serve, Agrawal et al. 2024, arXiv:2403.02310). So a long
 * prompt delays the others by at most one budget.
 *
 * When a sequence needs blocks and none are free, the youngest running sequence that is younger than it is preempted:
 * it gives up its blocks, waits in front of the queue, and is recomputed later. There is no deadlock and no endless
 * preemption, because
 *   - the order seq_before is total and a sequence takes blocks only from younger ones, so the oldest always makes
 *     progress;
 *   - after preempt_max preemptions a sequence is admitted only with all blocks that it may ever need, and is not
 *     preempted again;
 *   - a request whose blocks exceed the pool is never accepted, so a single request always fits.
 *
 * A preempted sequence later looks in the device's tree and in the tiers below for everything that it had computed,
 * generated tokens included. Whether its blocks are still there depends on the other requests. So a preemption is a
 * spill where loading is quicker than computing.
 *
 * A step is planned while the step before it is in flight. A token that the earlier step samples counts as drawn; only
 * the device knows its id. Such a plan takes no blocks from another sequence. If it would have to, or if a row depends
 * on an id that the host must see, the plan is dropped and made again after the step in flight was applied. So a
 * sequence in flight is never preempted, and the second plan knows everything. Sequences that surely end in flight are
 * left out. */
#pragma once
#include "engine/batch.h"
#include "engine/fair.h"
#include "engine/sample.h"
#include "engine/seq.h"
#include "engine/slots.h"
#include "kvcache/device/kv.h"

struct sched_cfg {
    uint32_t n_table; /* block tables of kv; 0: as many as sequences may run */
    uint32_t seqs_max, tokens_max, chunk_max, preempt_max, block_tokens, n_block, context_max, n_eos;
    uint32_t n_slot;        /* adapters on the device at once */
    bool     whole;         /* all rows of a sequence stand in one step (eng_cfg) */
    uint32_t preempt_every; /* tests: preempt in every n-th step; 0: only when blocks run short */
};

struct sched {
    struct sched_cfg    cfg;
    struct kv          *kv;
    struct kv_tiers    *tiers;        /* or NULL */
    double              us_per_token; /* current time to compute a token, for the tiers */
    const struct batch *batch;        /* for the bounds of its arrays */
    bool                draws_late;   /* steps draw when masks have come, so rows need none when they are planned */
    struct seq        **running;      /* [n_running] in the order of seq_before */
    uint32_t            n_running;
    uint32_t           *ids;    /* [n_table, context_max] tokens of the running, by kv.slot */
    struct list         resume; /* WAITING in front of all tenants: preempted, and siblings that found no room */
    uint32_t            n_resume;
    struct list         cold;  /* WAITING, refused for their hit_share: the engine ends them after the plan */
    struct slots        slots; /* of adapters */
    struct fair         fair;
    uint64_t            n_preempted, n_prompt_tokens, n_cached_tokens; /* tokens: of admitted prompts */
    uint64_t            n_below_query_tokens;       /* of admitted prompts, with tiers: what the device lacked */
    uint64_t            n_cached_from[ENG_SOURCES]; /* n_cached_tokens by where they were */
    uint64_t            n_resumed_tokens;           /* tokens that lower tiers gave back to preempted sequences */
    uint32_t           *again; /* [context_max] tokens of `again_of`; a WAITING seq has no array of ids */
    struct {
        uint64_t arrival;
        uint32_t choice, n;
    } again_of;
    uint64_t  preempt_at; /* the next step of preempt_every */
    uint64_t *stay;       /* [n_table] by kv.slot: seq.stay of the sequence that runs there; 0: none */
    uint64_t  n_stay;

    /* the plan of this step */
    struct seq       **plan;                       /* [n_plan] sequences with rows, decoding ones first */
    uint32_t           n_plan, n_plan_one, budget; /* n_plan_one: those of them with one row left */
    struct sample_need used;
    uint64_t           step, now_us;
    bool               short_of_blocks; /* a sequence was preempted or got no blocks: admit no other */
    bool               in_flight;       /* a step is in flight: no sequence may be preempted */
};

/* Takes all the memory that planning needs. kv and batch are borrowed. ST_NOMEM, and nothing is held then. */
enum status sched_init(struct sched *s, const struct sched_cfg *cfg, struct kv *kv, const struct batch *batch);
void        sched_close(struct sched *s);
void        sched_enqueue(struct sched *s, struct seq *q, uint64_t now_us); /* a new request's lead */
void        sched_resume(struct sched *s, struct seq *q);                   /* waits in front */
/* The KV of all running sequences is in doubt: they wait again and are computed anew, and none of their blocks goes to
 * a lower tier. No step may be in flight. */
void sched_recompute(struct sched *s);
/* Its prompt is kept for another server, where the request asks for that and it is computed; before sched_remove. */
void sched_keep(struct sched *s, struct seq *q);
/* Its claim of another server's parcel ends, if it has one: as kv_tiers_claim_end. */
void sched_unclaim(struct sched *s, struct seq *q, uint32_t n_hit, enum kv_claim_end why);
void sched_remove(struct sched *s, struct seq *q,
                  bool discard); /* from any list, with its blocks; afterwards it is DONE */
/* Fills plan[]: each sequence has n_step rows and blocks for them, and `samples` is set if its last token is among
 * them. step: a new number for each call. false: the step in flight must be applied first; never false without a step
 * in flight. */
bool sched_plan(struct sched *s, uint64_t step, uint64_t now_us, bool in_flight);
/* Starts sibling kid in this step: it samples from the lead's last row and gets its blocks by sched_fork after the
 * commit; both are left out of plans until then. false: no room; it must wait (sched_resume). */
bool sched_sibling(struct sched *s, struct seq *kid, struct seq *lead);
void sched_fork(struct sched *s, struct seq *lead, struct seq *kid);
/* The plan is on its way to the device: q's n_step rows, and the token that it samples if it does (as sample number
 * `sample`). */
void sched_sent(struct sched *s, struct seq *q, uint32_t sample);
/* q's row in flight draws nothing, because its mask did not come in time: the next step computes it again. */
void sched_undrawn(struct sched *s, struct seq *q);
/* n rows of q in flight are computed: q moves on and its full blocks are shared. */
void sched_commit(struct sched *s, struct seq *q, uint32_t n);
/* True if the sequence that ran in table `slot` under the number `stay` still runs. Check this before you touch its
 * seq. */
static inline bool sched_stays(const struct sched *s, uint32_t slot, uint64_t stay) { return s->stay[slot] == stay; }
void               sched_check(const struct sched *s); /* CHECKs over all lists: for tests */
