/* boot_gen: what gen.c and the other readers of struct gen_engine call: the engine, or on a node that helps, the
 * nodes. C converts no function that takes a struct engine to one that takes void, which tests need; hence a line
 * for each. */
#include "server/boot_impl.h"

static enum status submit(void *e, struct eng_request *r) { return eng_submit(e, r); }
static void        refuse(void *e, const struct eng_request *r) { eng_refuse(e, r); }
static void        cancel(void *e, struct eng_request *r) { eng_cancel(e, r); }
static bool        alive(void *e, uint64_t now_us) { return eng_alive(e, now_us); }
static void        stats(void *e, struct eng_stats *out) { eng_stats(e, out); }
static bool        tiers(void *e, struct kv_tiers_stats *out) { return eng_tiers_stats(e, out); }

static bool events(void *e, struct kv_events_stats *out) { return eng_events_stats(e, out); }

/* A node that helps has no requests of its own: its port is for probes. */
static enum status submit_nothing(void *n, struct eng_request *r)
{
    (void)n;
    (void)r;
    return ST_DEVICE;
}
static void cancel_nothing(void *n, struct eng_request *r)
{
    (void)n;
    (void)r;
}
static bool nodes_alive(void *n, uint64_t now_us)
{
    (void)now_us;
    return nodes_state(n) == NODES_OK;
}
static void nodes_stats(void *n, struct eng_stats *out) { *out = (struct eng_stats){ .n_step = nodes_steps(n) }; }

struct gen_engine boot_gen_engine(struct boot *b)
{
    if (boot_helps(b))
        return (struct gen_engine){ .ctx = b->nodes,
                                    .submit = submit_nothing,
                                    .cancel = cancel_nothing,
                                    .alive = nodes_alive,
                                    .stats = nodes_stats };
    return (struct gen_engine){ .ctx = b->engine,
                                .submit = submit,
                                .cancel = cancel,
                                .refuse = refuse,
                                .alive = alive,
                                .stats = stats,
                                .tiers = tiers,
                                .events = events };
}
