/* store_prove: blocks that a store found are not given to anybody before one of them was computed again (tier_audit.c):
 * until then they are hidden; what was not proven is forgotten, and what was proven wrong is removed. */
#include "base/check.h"
#include "kvcache/folder/store_impl.h"

static const struct segment *segment_of(const struct kv_store *s, uint32_t id)
{
    return &s->segment[id / s->g.n_record];
}

bool kv_store_unproven(const struct kv_store *s) { return s->cfg.prove && !s->believed && s->n_begin > 0; }

static bool is_canary(const struct kv_store *s, uint32_t id)
{
    const struct entry *e = &s->entry[id];
    return e->state == ENTRY_READY && e->begins && segment_of(s, id)->found;
}

bool kv_store_canary(struct kv_store *s, struct kv_key *key_out)
{
    uint32_t n = s->n_slot * s->g.n_record;
    if (!kv_store_unproven(s)) return false;
    for (uint32_t i = 0; i < n && !is_canary(s, s->canary); i++)
        s->canary = (s->canary + 1) % n; /* the one that was learnt last has gone */
    if (!is_canary(s, s->canary)) return false;
    *key_out = s->entry[s->canary].key;
    return true;
}

void kv_store_believe(struct kv_store *s) { s->believed = true; }

bool kv_store_hopeless(const struct kv_store *s)
{
    bool all_known = !s->stats.recovering && !s->learning && !s->stats.n_unread_segments;
    return s->cfg.prove && !s->believed && !s->cfg.shared && all_known && s->n_found && !s->n_begin;
}

uint64_t kv_store_forget_found(struct kv_store *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_slot; i++)
        if (s->segment[i].found) n += store_forget_segment(s, i);
    return n;
}

uint64_t kv_store_purge(struct kv_store *s)
{
    uint64_t n = 0;
    CHECK(s->n_writing == 0); /* the tiers are at rest */
    for (uint32_t i = 0; i < s->n_slot; i++) {
        struct segment *g = &s->segment[i];
        n += store_forget_segment(s, i);
        if (g->state == SEG_OPEN && g->n_used) {
            g->state = SEG_SEALED; /* no footer: it goes */
            s->open = NONE;
        }
        g->doomed = g->state == SEG_SEALED || g->state == SEG_SEALING || g->state == SEG_CLAIMED;
    }
    if (s->learning) s->n_learnt = s->learning->n; /* no more of its rows */
    s->believed = true;
    s->mistrusts = true; /* what is still found goes the same way */
    return n;
}
