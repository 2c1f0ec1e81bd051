/* health: counts a store's failures, and decides when no requests go to it for a while. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "transfer/object/object.h"

enum { DOWN_MIN_US = 1000000, DOWN_MAX_US = 60000000, LATE_MAX = 3 };

bool object_is_down(const struct object_store *s, uint64_t now_us)
{
    return now_us < atomic_load_explicit(&s->down_until_us, memory_order_relaxed);
}

/* Pauses the store for a second, doubled with each further failure in a row, plus a random part of up to a quarter, so
 * that not all servers return to it at once. */
static void go_down(struct object_store *s, uint64_t n, const char *why)
{
    uint64_t us = n < 6 ? (uint64_t)DOWN_MIN_US << n : DOWN_MAX_US, now = clock_us();
    if (us > DOWN_MAX_US) us = DOWN_MAX_US;
    us += hash_u64(now) % (us / 4);
    if (!object_is_down(s, now))
        LOG_WARN_LIMITED("object: degraded: %s %s, it is left alone for %.1f s", s->shown, why, (double)us / 1e6);
    atomic_store_explicit(&s->down_until_us, now + us, memory_order_relaxed);
}

void object_went(struct object_store *s, enum status st, bool was_get)
{
    if (st == ST_CANCELED) return;
    if (st == ST_PEER_LOST || st == ST_TIMEOUT || st == ST_CONFIG) {
        go_down(s, atomic_fetch_add_explicit(&s->n_failed, 1, memory_order_relaxed), "does not serve");
        return;
    }
    if (atomic_exchange_explicit(&s->n_failed, 0, memory_order_relaxed)) {
        LOG_INFO("object: %s serves again", s->shown);
        atomic_store_explicit(&s->down_until_us, 0, memory_order_relaxed);
    }
    if (was_get) atomic_store_explicit(&s->n_late, 0, memory_order_relaxed);
}

void object_was_late(struct object_store *s)
{
    uint64_t n = atomic_fetch_add_explicit(&s->n_late, 1, memory_order_relaxed) + 1;
    if (n >= LATE_MAX && !object_is_down(s, clock_us())) go_down(s, n - LATE_MAX, "is slower than computing");
}
