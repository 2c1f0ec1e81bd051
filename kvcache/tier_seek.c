/* tier_seek: questions to places that must ask other machines first (seek in below.h). A waiting prompt asks once for
 * all the blocks that it lacks, and waits for the answers while that is cheap. Where layers with a window have a pool of
 * their own, it asks a second time: for pieces of windows, when it is known how far the path goes. */
#include "kvcache/tier_impl.h"

enum { SEEK_SHARE = 4, SEEK_MIN_US = 2000, SEEK_MAX_US = 1000000 };

/* Waiting for answers costs at most a quarter of what computing costs. */
static uint64_t patience_us(double compute_us)
{
    double us = compute_us > 0 ? compute_us / SEEK_SHARE : SEEK_MAX_US;
    if (us < SEEK_MIN_US) return SEEK_MIN_US;
    return us > SEEK_MAX_US ? SEEK_MAX_US : (uint64_t)us;
}

/* The keys behind the first that is nowhere here, that one included, of the first KV_ASK_MAX blocks, which is as many
 * as a load brings. *n_out: how many. They lie in t->memo. */
static const struct kv_key *keys_missing(struct kv_tiers *t, const uint32_t *ids, uint32_t n_block, uint32_t *n_out)
{
    struct kv_place place;
    uint32_t        first = 0;
    if (n_block > KV_ASK_MAX) n_block = KV_ASK_MAX; /* of one load */
    for (; first < n_block; first++) {
        const struct kv_key *key = tier_memo_key(t, ids, first);
        if (slot_find(&t->host, key) == SLOT_NONE && below_find(t, key, &place) < 0) break;
    }
    *n_out = n_block - first;
    if (first < n_block) (void)tier_memo_key(t, ids, n_block - 1); /* all of them */
    return t->memo.key + first;
}

/* Asks all rows that ask. false: nobody is to be asked. */
static bool ask_rows(struct kv_tiers *t, struct kv_want *w, const struct kv_claim *claim, const struct kv_key *key,
                     uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n_below; i++) {
        const struct kv_below_row *row = t->below[i]->row;
        w->seek[i] = 0;
        if (row->seek && row->seek(t->below[i], claim, key, n, &w->seek[i])) any = true;
    }
    return any;
}

/* The engine that has the parcel, or everybody. */
static bool ask_all(struct kv_tiers *t, struct kv_want *w, const struct kv_key *key, uint32_t n)
{
    if (!w->claim) return ask_rows(t, w, NULL, key, n);
    if (n == 0) return false;
    w->claim->asked = ask_rows(t, w, w->claim, key, n);
    w->claim->unknown = !w->claim->asked;
    return w->claim->asked || ask_rows(t, w, NULL, key, n);
}

static bool all_answered(const struct kv_tiers *t, const struct kv_want *w)
{
    for (uint32_t i = 0; i < t->n_below; i++) {
        const struct kv_below_row *row = t->below[i]->row;
        if (row->sought && w->seek[i] && !row->sought(t->below[i], w->seek[i])) return false;
    }
    return true;
}

static uint64_t ends_at(const struct kv_want *w, double compute_us, uint64_t now)
{
    return now + (w->claim ? SEEK_MAX_US : patience_us(compute_us));
}

bool seek_asks(const struct kv_tiers *t)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n_below; i++) any |= t->below[i]->row->seek != NULL;
    return any;
}

bool seek_wait(struct kv_tiers *t, struct kv_want *w, const uint32_t *ids, uint32_t n_block, double compute_us,
               uint64_t now)
{
    if (w->sought) return false;
    if (!w->seek_us) {
        const struct kv_key *key = NULL;
        uint32_t             n = 0, min = w->claim ? 1 : t->cfg.load_min_tokens;
        if (seek_asks(t)) key = keys_missing(t, ids, n_block, &n);
        w->seek_us = ends_at(w, compute_us, now);
        w->sought = n * t->cfg.block_tokens < min || !ask_all(t, w, key, n);
    }
    if (!w->sought && all_answered(t, w)) {
        w->seek_us = 0; /* a question that follows from the answers has its own wait */
        w->sought = true;
    }
    if (!w->sought) w->sought = now >= w->seek_us;
    return !w->sought;
}

bool seek_windows(struct kv_tiers *t, struct kv_want *w, const struct kv_key *key, uint32_t n, double compute_us,
                  uint64_t now)
{
    if (w->win_sought) return false;
    if (!w->seek_us) w->seek_us = ends_at(w, compute_us, now);
    if (!w->win_asked) w->win_sought = !n || now >= w->seek_us || !ask_all(t, w, key, n);
    w->win_asked = true;
    if (!w->win_sought) w->win_sought = now >= w->seek_us || all_answered(t, w);
    return !w->win_sought;
}

bool seeking(const struct kv_tiers *t)
{
    for (uint32_t i = 0; i < t->n_below; i++)
        if (t->below[i]->row->seeking && t->below[i]->row->seeking(t->below[i])) return true;
    return false;
}
