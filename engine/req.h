/* req: the engine's side of a request, from the inbox to its last message.   Thread: engine.
 * req_accept -> req_spawn (once per choice) -> req_finish_seq or req_finish -> the final message, with which the
 * submitter owns the eng_request again. */
#pragma once
#include "engine/seq.h"

struct engine;

/* The claim of a request that was refused: what eng_refuse hands to the engine's thread. */
enum { REFUSAL_TOKENS = 64 }; /* of the longest block */
struct refusal {
    struct kv_claim claim;
    struct kv_salt  salt;
    uint32_t        n, id[REFUSAL_TOKENS]; /* the beginning of its prompt */
};
void req_refuse(struct engine *e, struct refusal *x); /* says so to the other server, and frees x */
void req_accept(struct engine      *e,
                struct eng_request *r); /* puts it into the queue; ends it at once if it is canceled */
/* Makes the seq of the next choice. It is in no list of the scheduler yet. */
struct seq *req_spawn(struct engine *e, struct req *q);
void        req_unqueue(struct engine *e,
                        struct req    *q); /* it runs now and no longer counts against the bounds of the queue */
void        req_notify(struct engine *e, struct req *q); /* tells the submitter of new tokens or of a choice's end */
/* Ends a choice that has no seq. */
void req_finish_choice(struct engine *e, struct req *q, struct eng_choice *c, enum eng_finish finish);
/* Ends the choice of s and returns s to the pool. After its last choice the request is final. */
void req_finish_seq(struct engine *e, struct seq *s, enum eng_finish finish);
/* Ends all choices. why: eng_request.status for ENG_ERROR. discard: the computed KV is in doubt and is not cached. */
void req_finish(struct engine *e, struct req *q, enum eng_finish finish, enum status why, bool discard);
/* Sends final messages, and again what an outbox did not take. True: none is left. It is called once the turn's
 * counters are published: who has an answer finds it counted. */
bool req_deliver(struct engine *e);
/* No step is run any more: requests whose prompt is not kept yet (kv_tiers_publish) end without that. */
void req_unpublish_all(struct engine *e);
