#include "kvcache/device/guest.h"
#include "base/check.h"
#include "kvcache/device/seq.h"

uint32_t kv_guest_left(struct kv *kv) { return kv->n_left ? kv->left[--kv->n_left] - kv->cfg.n_block : KV_NONE; }

uint32_t kv_guests_left(const struct kv *kv) { return kv->n_left; }

bool kv_guest_in(const struct kv *kv, uint32_t guest) { return kv_in_tree(kv, kv->cfg.n_block + guest); }

uint32_t kv_guest_tables(const struct kv *kv, uint32_t guest)
{
    return kv_guest_in(kv, guest) ? kv->pool.ref[kv->cfg.n_block + guest] : 0;
}

/* ---- moving up */

/* A copy from it was planned, and may be enqueued later. */
static bool is_copied(const struct kv *kv, uint32_t b)
{
    for (uint32_t i = 0; i < kv->cfg.n_seq_max; i++)
        if (kv->table[i].owner && kv->table[i].copy_src == b) return true;
    return false;
}

/* The node, its count, its hold, and what pins know of it. The tables still say `from`. */
static void replace(struct kv *kv, uint32_t from, uint32_t to)
{
    kv_radix_replace(&kv->tree, from, to);
    kv->pool.ref[to] = kv->pool.ref[from];
    kv->pool.ref[from] = 0;
    kv->n_idle += kv->pool.ref[to] == 0; /* its children keep it */
    kv->hold[to] = kv->hold[from];
    if (kv_due_has(&kv->due, from)) kv_due_set(&kv->due, to, kv->hold[from].until_s);
    kv_due_clear(&kv->due, from);
    kv->hold[from] = (struct kv_hold){ 0 };
    kv->pins.named[to] = kv->pins.named[from];
    kv->pins.named[from] = 0;
    kv->left[kv->n_left++] = from;
    kv->n_guest_in--;
}

static void rename_in_tables(struct kv *kv, const uint32_t *to)
{
    uint32_t n_block = kv->cfg.n_block;
    for (uint32_t i = 0; i < kv->cfg.n_seq_max; i++) {
        struct kv_table *t = &kv->table[i];
        struct kv_seq   *s = t->owner;
        if (!s) continue;
        for (uint32_t k = 0; k < s->n_shared; k++)
            if (s->block[k] >= n_block && to[s->block[k]] != KV_NONE) s->block[k] = to[s->block[k]];
        s->node = s->n_shared ? &kv->tree.node[s->block[s->n_shared - 1]] : NULL;
        if (t->borrow_src != KV_NONE && t->borrow_src >= n_block && to[t->borrow_src] != KV_NONE)
            t->borrow_src = to[t->borrow_src];
    }
}

uint32_t kv_guests_up(struct kv *kv, struct kv_seq *s, const uint32_t *guest)
{
    uint32_t *to = kv->scratch, n_left = 0, n = 0;
    CHECK(s->n_shared == 0);
    for (uint32_t b = kv->cfg.n_block; b < kv_n_name(kv); b++) to[b] = KV_NONE;
    for (uint32_t i = 0; i < s->n_block; i++) {
        uint32_t b = s->block[i], from = guest[i] == KV_NONE ? KV_NONE : kv->cfg.n_block + guest[i];
        CHECK(!kv_in_tree(kv, b) && kv->pool.ref[b] == 1);
        if (from == KV_NONE || !kv_in_tree(kv, from) || is_copied(kv, from)) {
            s->block[n_left++] = b;
            continue;
        }
        replace(kv, from, b);
        to[from] = b;
        n++;
    }
    s->n_block = n_left;
    if (n) rename_in_tables(kv, to);
    return n;
}
