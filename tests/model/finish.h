/* finish: steps an engine until its requests have ended. */
#pragma once
#include "base/ring.h"
#include "engine/engine.h"
#include "test.h"

/* n requests were submitted, with this outbox. The engine has nothing left to do afterwards. */
static inline void finish_requests(struct engine *e, struct ring *outbox, uint32_t n)
{
    bool did = true;
    for (uint64_t step = 0; n || did; step++) {
        assert_true(step < 100000);
        assert_int_equal(eng_step(e, 1000 * step, &did), ST_OK);
        for (void *msg; (msg = ring_pop(outbox));) {
            if (eng_msg_is_final(msg))
                n--;
            else
                atomic_store(&eng_msg_request(msg)->notified, false);
        }
    }
}
