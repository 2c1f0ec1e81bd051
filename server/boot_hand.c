/* boot_hand: what a takeover does to the engine and the sockets of the server that gives way. */
#include "base/clock.h"
#include "base/log.h"
#include "server/auth.h"
#include "server/boot.h"
#include <string.h>
#include <time.h>

enum { FREEZE_US = 10000000 };

static bool shape(void *ctx, struct kv_hand_shape *out)
{
    const struct boot *b = ((struct boot_hand *)ctx)->boot;
    return b->engine && eng_tiers_shape(b->engine, out);
}

static void thaw(void *ctx) { eng_tiers_hand(((struct boot_hand *)ctx)->boot->engine, KV_SERVES); }

static enum status freeze(void *ctx, int *slab_fd_out, int *index_fd_out)
{
    struct engine *e = ((struct boot_hand *)ctx)->boot->engine;
    eng_tiers_hand(e, KV_FROZEN);
    for (uint64_t end = clock_us() + FREEZE_US; clock_us() < end;
         nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL))
        if (eng_tiers_hand_is(e, slab_fd_out, index_fd_out) == KV_FROZEN) return *index_fd_out >= 0 ? ST_OK : ST_NOMEM;
    return ST_TIMEOUT;
}

static void away(void *ctx)
{
    struct boot_hand *h = ctx;
    int               slab, index;
    server_hand(h->srv, true);
    /* The address of KV events is the new server's now, which tells of its own blocks. */
    if (h->boot->kv_events) kv_events_speak(h->boot->kv_events, false);
    /* What was not given stays: it reaches the folder when this process ends. */
    if (h->boot->engine && eng_tiers_hand_is(h->boot->engine, &slab, &index) == KV_FROZEN)
        eng_tiers_hand(h->boot->engine, KV_GIVEN);
}

static void back(void *ctx)
{
    struct boot_hand *h = ctx;
    thaw(ctx);
    server_hand(h->srv, false);
    if (h->boot->kv_events) kv_events_speak(h->boot->kv_events, true);
}

struct takeover_ops boot_hand_ops(struct boot_hand *h)
{
    return (
        struct takeover_ops){ .ctx = h, .shape = shape, .freeze = freeze, .thaw = thaw, .away = away, .back = back };
}

void boot_hand_ask(struct boot *b, struct kv_tiers_cfg *c)
{
    struct kv_hand_shape want;
    unsigned char        secret[AUTH_SECRET];
    char                 why[200];
    if (!takeover_follows(b->takeover)) return;
    kv_hand_shape_of(c, &want);
    c->hand.given = takeover_slab(b->takeover, &want, &c->hand.slab_fd, &c->hand.index_fd, secret, why, sizeof why);
    if (!c->hand.given)
        LOG_INFO("kv: the host tier starts empty: %s", why);
    else if (!b->cfg->kv_nvme.n && !*b->cfg->kv_shared && !*b->cfg->kv_object)
        /* else it lies in the folder, or follows from the MAC key, and the prefixes there need it */
        auth_set_secret(b->auth, secret);
    explicit_bzero(secret, sizeof secret);
}
