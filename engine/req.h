/* req: the engine's side of a request, from the inbox to its last message.   Thread: engine.
 * req_accept -> req_spawn (once a choice) -> req_finish_seq or req_finish -> the final message, after which eng_request
 * is the submitter's again. */
#pragma once
#include "engine/seq.h"

struct engine;

void req_accept(struct engine *e, struct eng_request *r); /* waits, or ends at once where it is canceled */
/* Its next choice, in no list of the scheduler. */
struct seq *req_spawn(struct engine *e, struct req *q);
void        req_unqueue(struct engine *e, struct req *q); /* it runs: no longer counted in the bounds of eng_submit */
void        req_notify(struct engine *e, struct req *q);  /* there are new tokens, or a choice has ended */
/* A choice ends that has no seq. */
void req_finish_choice(struct engine *e, struct req *q, struct eng_choice *c, enum eng_finish finish);
/* One ends that has: s goes back to the pool, and with the last choice the request is final. */
void req_finish_seq(struct engine *e, struct seq *s, enum eng_finish finish);
/* All choices end. why: eng_request.status of ENG_ERROR; discard: what was computed is in doubt, and not shared. */
void req_finish(struct engine *e, struct req *q, enum eng_finish finish, enum status why, bool discard);
/* Messages that an outbox did not take. True: nothing is left to deliver. */
bool req_retry_outbox(struct engine *e);
