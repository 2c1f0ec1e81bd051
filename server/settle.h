/* settle: the states of one call that become vectors or scores on a text thread, because that takes longer than an io
 * thread may be held. settle_init -> settle_add (for each) -> done (for some of them at a time) -> settle_free, not while it is busy.
 *   Thread: the call's io thread. The text thread has the states that are lent to it, and nothing else of the call. */
#pragma once
#include "api/answer.h"
#include "server/text.h"
#include <stdatomic.h>

enum {
    SETTLE_INLINE_MAX = 1 << 17, /* multiplications of a state; up to so many a hand-over would cost more */
    SETTLE_JOB_MAX = 1 << 26,    /* of one job, or one state: then it is another client's turn */
    SETTLE_BYTE = 32             /* what a job costs beside those that read text: so many as a byte of text */
};

struct settle {
    struct text_job job;
    /* set before settle_init: */
    struct call        *call;
    const _Atomic bool *unheard; /* nobody waits for it any more */
    /* these have come back. It may free s, and returns false then. */
    bool (*done)(struct settle *s, const uint32_t *choice, uint32_t n);
    /* the rest is not: */
    uint32_t *choice; /* [call.n_choice] in the order of their coming; malloc'd */
    uint32_t  n, n_lent, n_back;
    bool      busy; /* choice[n_back .. n_lent) are with a text thread */
};
/* io: the call's io thread; who: as in struct text_job. */
void settle_init(struct settle *s, struct io *io, uint64_t who);

/* Whether the states of this call go to a text thread. */
bool settle_is_dear(const struct call *c);
/* Lends the state of choice i to a text thread, at once or when those before it have come back. False: no memory. */
bool settle_add(struct settle *s, uint32_t i);
void settle_free(struct settle *s);
