#include "engine/probe.h"
#include "base/clock.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct probe {
    struct engine     *e;
    struct eng_request r;
    struct eng_choice  choice;
    struct ring        outbox;
    uint32_t           prompt[PROBE_IDS_MAX], id[PROBE_TOKENS], n_prompt, n_bad;
    uint64_t           n_nan, next_us; /* requests with NaN that have been looked into; not before */
    bool               asked, wanted, sick;
};

enum status probe_create(struct engine *e, const uint32_t *ids, uint32_t n, struct probe **p_out)
{
    struct probe *p = calloc(1, sizeof *p);
    if (!p) return ST_NOMEM;
    enum status st = ring_init(&p->outbox, 4);
    if (st) {
        free(p);
        return st;
    }
    p->e = e;
    p->n_prompt = n < PROBE_IDS_MAX ? n : PROBE_IDS_MAX;
    memcpy(p->prompt, ids, p->n_prompt * sizeof *ids);
    *p_out = p;
    return ST_OK;
}

void probe_free(struct probe *p)
{
    if (!p) return;
    ring_free(&p->outbox);
    free(p);
}

static bool ask(struct probe *p, uint32_t n_token)
{
    p->choice = (struct eng_choice){ .id = p->id };
    p->r = (struct eng_request){
        .id = UINT64_MAX,
        .prompt = p->prompt,
        .n_prompt = p->n_prompt,
        .s = { .top_p = 1, .repetition = 1, .max_tokens = eng_state_dim(p->e) ? 1 : n_token, .ignore_eos = true },
        .n_choice = 1,
        .choice = &p->choice,
        .priority = INT32_MIN,
        .tenant = UINT64_MAX,
        .salt = { UINT64_MAX, UINT64_MAX },
        .outbox = &p->outbox,
    };
    p->asked = eng_submit(p->e, &p->r) == ST_OK; /* a full queue: the next turn tries again */
    return p->asked;
}

/* Has the answer come? */
static bool answered(struct probe *p)
{
    bool final = false;
    for (void *msg; (msg = ring_pop(&p->outbox));) {
        atomic_store(&p->r.notified, false);
        final |= eng_msg_is_final(msg);
    }
    return final;
}

/* NaN, as the engine reports it. */
static bool is_nan_result(const struct probe *p)
{
    return atomic_load(&p->choice.finish) == ENG_ERROR && p->r.status == ST_INVALID;
}

/* ST_OK: the answer has come. */
static enum status wait_answer(struct probe *p, uint64_t stuck_us)
{
    enum { LOOK_US = 20000 };
    uint64_t still_us = 0;
    while (!answered(p)) {
        ring_wait(&p->outbox, LOOK_US);
        uint64_t now = clock_us();
        if (eng_alive(p->e, now))
            still_us = 0;
        else if (!still_us)
            still_us = now;
        else if (now - still_us > stuck_us)
            return ST_TIMEOUT;
    }
    return ST_OK;
}

enum status probe_first(struct probe *p, uint64_t stuck_us)
{
    for (int i = 0; i < PROBE_BAD_MAX; i++) {
        if (!ask(p, 1)) return ST_DEVICE; /* one step, so that no time between two is taken for usual (pace.h) */
        enum status st = wait_answer(p, stuck_us);
        if (st) return st;
        p->asked = false;
        enum eng_finish finish = (enum eng_finish)atomic_load(&p->choice.finish);
        if (finish == ENG_LENGTH || finish == ENG_STOP) return ST_OK;
        if (!is_nan_result(p)) return ST_DEVICE;
    }
    return ST_INVALID;
}

enum probe_says probe_turn(struct probe *p, uint64_t now_us)
{
    struct eng_stats s;
    if (p->sick) return PROBE_SICK;
    if (p->asked) {
        if (!answered(p)) return PROBE_ASKS;
        p->asked = false;
        bool bad = is_nan_result(p);
        p->n_bad = bad ? p->n_bad + 1 : 0;
        eng_stats(p->e, &s);
        if (p->n_bad == PROBE_BAD_MAX) {
            LOG_ERROR("eng: a plain prompt gives NaN %d times in a row, after %" PRIu64
                      " requests that did: the weights or the device are "
                      "damaged, serving ends",
                      PROBE_BAD_MAX, s.n_nan - PROBE_BAD_MAX);
            p->sick = true;
            return PROBE_SICK;
        }
        if (bad) return ask(p, PROBE_TOKENS) ? PROBE_ASKS : PROBE_WELL;
        p->next_us = now_us + PROBE_EVERY_US;
    }
    if (now_us < p->next_us) return PROBE_WELL;
    eng_stats(p->e, &s);
    if (p->n_bad == 0 && s.n_nan == p->n_nan && !p->wanted) return PROBE_WELL;
    p->n_nan = s.n_nan;
    p->wanted = !ask(p, PROBE_TOKENS) && p->wanted;
    return p->asked ? PROBE_ASKS : PROBE_WELL;
}

void probe_ask(struct probe *p) { p->wanted = true; }
