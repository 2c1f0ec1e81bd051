/* fair: chooses the tenant whose request is admitted next.   Thread: engine.
 *
 * The virtual token counter of Sheng et al. 2024 (Fairness in Serving Large Language Models, arXiv:2401.00588): a
 * tenant is charged for every token of service, and the tenant with the lowest counter goes first. When a tenant
 * without waiting requests gets one, its counter is raised to the lowest counter of the waiting tenants, so that idle
 * time gives no credit.
 * Priority comes before the counter. A tenant that is passed over rises in priority with time until it is served once,
 * so no tenant starves. The age belongs to the tenant, not to the request; else a flood of old requests would outrank
 * all others. */
#pragma once
#include "base/list.h"
#include "engine/seq.h"

enum { FAIR_TENANTS_MAX = 256 }; /* more than that at one time share counters */
enum { FAIR_INPUT_COST = 1, FAIR_OUTPUT_COST = 2 };
enum { FAIR_AGING_US = 5000000 }; /* waiting time that raises the priority by one level */

struct tenant {
    uint64_t    id, counter, t_served_us, use;
    struct list waiting; /* seqs by key */
    uint32_t    n_waiting, n_live;
    uint64_t    skip_step; /* step in which none of its requests can be admitted */
};
struct fair {
    struct tenant tenant[FAIR_TENANTS_MAX];
    uint32_t      n_waiting;
    uint64_t      counter_last; /* of the tenant that was the last to leave the queue */
    uint64_t      use;
};

/* No tenant, no request. */
void           fair_init(struct fair *f);
struct tenant *fair_enter(struct fair *f, uint64_t id); /* of a new request; fair_leave when it is done */
/* A request of the tenant is done. When its last one is, its place may go to another tenant. */
void fair_leave(struct fair *f, struct tenant *t);
/* Puts a sequence that waits into its tenant's queue, by seq key; fair_remove takes it out again. */
void fair_push(struct fair *f, struct seq *s, uint64_t now_us);
void fair_remove(struct fair *f, struct seq *s);
void fair_served(struct fair *f, struct seq *s, uint32_t n_input, uint64_t now_us); /* admitted (and removed) */
/* Charges the tenant for n_output tokens that were generated. */
static inline void fair_charge(struct tenant *t, uint64_t n_output) { t->counter += FAIR_OUTPUT_COST * n_output; }
/* The next tenant among those whose skip_step differs from step; NULL: none. */
struct tenant *fair_next(struct fair *f, uint64_t step, uint64_t now_us);
