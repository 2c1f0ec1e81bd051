#include "server/strikes.h"
#include "base/clock.h"
#include "base/hash.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 1024, WAYS = 4, RIGHT_MAX = 16, REFILL_US = 1000000 };

struct strike_place {
    struct peer peer;
    uint64_t    t_seen_us; /* 0: free */
    uint64_t    t_try_us;  /* when tries were last added */
    uint32_t    tries;     /* left */
    uint32_t    n_wrong;
    uint64_t    right[RIGHT_MAX]; /* tenants whose keys were right from here, the newest overwrites the oldest */
    uint32_t    n_right;
};
struct strikes {
    pthread_mutex_t     lock;
    uint32_t            at_once;
    uint64_t            seed;
    _Atomic uint64_t    quiet_us; /* from then on nobody is slowed: the lock is not needed to know it */
    struct strike_place place[SETS][WAYS];
};

enum status strikes_create(uint32_t at_once, struct strikes **out)
{
    struct strikes *s = calloc(1, sizeof *s);
    if (!s) return ST_NOMEM;
    s->at_once = at_once;
    s->seed = hash_seed();
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return ST_OK;
}

void strikes_free(struct strikes *s)
{
    if (!s) return;
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The place of an address; make: the least recently seen of its set is given to it. NULL: it has none. */
static struct strike_place *find(struct strikes *s, struct peer p, uint64_t now_us, bool make)
{
    struct peer          net = peer_net(p);
    struct strike_place *set = s->place[peer_hash(net, s->seed) % SETS], *oldest = &set[0];
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].t_seen_us && !memcmp(&set[i].peer, &net, sizeof net)) {
            set[i].t_seen_us = now_us;
            return &set[i];
        }
        if (set[i].t_seen_us < oldest->t_seen_us) oldest = &set[i];
    }
    if (!make) return NULL;
    *oldest = (struct strike_place){ .peer = net, .t_seen_us = now_us, .t_try_us = now_us, .tries = s->at_once };
    return oldest;
}

static void refill(const struct strikes *s, struct strike_place *p, uint64_t now_us)
{
    uint64_t more = (now_us - p->t_try_us) / REFILL_US;
    p->t_try_us += more * REFILL_US;
    p->tries = more >= s->at_once - p->tries ? s->at_once : p->tries + (uint32_t)more;
}

static bool is_right(const struct strike_place *p, uint64_t tenant)
{
    uint32_t n = p->n_right < RIGHT_MAX ? p->n_right : RIGHT_MAX;
    bool     found = false;
    for (uint32_t i = 0; i < n; i++) found |= p->right[i] == tenant;
    return found;
}

bool strikes_slowed(struct strikes *s, struct peer p, uint64_t tenant, uint64_t now_us)
{
    if (!s->at_once || now_us >= atomic_load_explicit(&s->quiet_us, memory_order_relaxed)) return false;
    pthread_mutex_lock(&s->lock);
    struct strike_place *at = find(s, p, now_us, false);
    bool                 slowed = false;
    if (at) {
        refill(s, at, now_us);
        slowed = !at->tries && !(tenant && is_right(at, tenant));
    }
    pthread_mutex_unlock(&s->lock);
    return slowed;
}

uint32_t strikes_wrong(struct strikes *s, struct peer p, uint64_t now_us)
{
    pthread_mutex_lock(&s->lock);
    struct strike_place *at = find(s, p, now_us, true);
    refill(s, at, now_us);
    if (at->tries) at->tries--;
    uint32_t n = ++at->n_wrong;
    uint64_t quiet = now_us + REFILL_US;
    if (s->at_once && !at->tries && quiet > atomic_load(&s->quiet_us)) atomic_store(&s->quiet_us, quiet);
    pthread_mutex_unlock(&s->lock);
    return n;
}

void strikes_right(struct strikes *s, struct peer p, uint64_t tenant, uint64_t now_us)
{
    if (!s->at_once) return;
    pthread_mutex_lock(&s->lock);
    struct strike_place *at = find(s, p, now_us, true);
    if (!is_right(at, tenant)) at->right[at->n_right++ % RIGHT_MAX] = tenant;
    pthread_mutex_unlock(&s->lock);
}
