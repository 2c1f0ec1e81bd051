/* host_order: the order in which the host's slots are evicted: class by class (keep.h), and within a class the least
 * recently used first. Pinned slots stand in a class of their own, from which none is evicted. An expired slot moves to
 * the first class. */
#include "base/check.h"
#include "kvcache/host.h"

enum {
    VICTIM_LOOK = 32,
    SWEEP = 256
}; /* slots looked at for a victim; pinned ones that a turn looks at when a pin has ended */

/* ---- lists */

static int class_of(const struct kv_host *h, const struct host_slot *s)
{
    if (kv_pin_live(h->kv, s->pin, s->pin_gen)) return KV_CLASS_PINNED;
    return kv_hold_class(&s->hold, kv_now_s(h->kv));
}

static void list_remove(struct kv_host *h, int32_t i)
{
    struct host_slot *s = &h->slot[i];
    *(s->newer == SLOT_NONE ? &h->newest[s->class] : &h->slot[s->newer].older) = s->older;
    *(s->older == SLOT_NONE ? &h->oldest[s->class] : &h->slot[s->older].newer) = s->newer;
    h->n_class[s->class]--;
    h->n_stored[s->class] -= s->store > 0;
}

static void list_add(struct kv_host *h, int32_t i)
{
    struct host_slot *s = &h->slot[i];
    s->class = (uint8_t)class_of(h, s);
    s->newer = SLOT_NONE;
    s->older = h->newest[s->class];
    *(h->newest[s->class] == SLOT_NONE ? &h->oldest[s->class] : &h->slot[h->newest[s->class]].newer) = i;
    h->newest[s->class] = i;
    h->n_class[s->class]++;
    h->n_stored[s->class] += s->store > 0;
}

enum status order_init(struct kv_host *h)
{
    for (int c = 0; c < KV_CLASSES; c++) h->newest[c] = h->oldest[c] = SLOT_NONE;
    return kv_due_init(&h->due, h->n_slot);
}
void order_close(struct kv_host *h) { kv_due_close(&h->due); }

void order_add(struct kv_host *h, int32_t i)
{
    list_add(h, i);
    if (kv_hold_ends(&h->slot[i].hold)) kv_due_set(&h->due, (uint32_t)i, h->slot[i].hold.until_s);
}

void order_remove(struct kv_host *h, int32_t i)
{
    list_remove(h, i);
    kv_due_clear(&h->due, (uint32_t)i);
}

void slot_touch(struct kv_host *h, int32_t i)
{
    h->stirred = true;
    if (h->slot[i].state != SLOT_READY) return;
    list_remove(h, i);
    list_add(h, i);
}

void slot_hold(struct kv_host *h, int32_t i, struct kv_hold hold)
{
    struct host_slot *s = &h->slot[i];
    struct kv_hold    before = s->hold;
    kv_hold_join(&s->hold, hold);
    if (s->state != SLOT_READY ||
        (before.used == s->hold.used && before.until_s == s->hold.until_s && before.priority == s->hold.priority))
        return; /* its place does not depend on more than these */
    order_remove(h, i);
    order_add(h, i);
}

void slot_below(struct kv_host *h, int32_t i, uint32_t store)
{
    struct host_slot *s = &h->slot[i];
    if (s->state == SLOT_READY) h->n_stored[s->class] += !s->store;
    s->store = (uint8_t)(store + 1);
}

/* At most as many slots as the pin was given: those of its blocks. */
void slot_pin(struct kv_host *h, int32_t i, const struct kv_mark *m)
{
    struct host_slot *s = &h->slot[i];
    const struct kv  *kv = h->kv;
    if (!kv_pin_live(kv, m->number, m->gen)) return;
    if (kv_pin_live(kv, s->pin, s->pin_gen) && kv_pin_until_us(kv, s->pin) >= kv_pin_until_us(kv, m->number)) return;
    s->pin = (uint8_t)m->number;
    s->pin_gen = m->gen;
    slot_touch(h, i);
}

int32_t slot_oldest(const struct kv_host *h)
{
    for (int c = 0; c < KV_CLASSES; c++)
        if (h->oldest[c] != SLOT_NONE) return h->oldest[c];
    return SLOT_NONE;
}
int32_t slot_newest(const struct kv_host *h)
{
    for (int c = KV_CLASSES; c-- > 0;)
        if (h->newest[c] != SLOT_NONE) return h->newest[c];
    return SLOT_NONE;
}
int32_t slot_newer(const struct kv_host *h, int32_t i)
{
    if (h->slot[i].newer != SLOT_NONE) return h->slot[i].newer;
    for (int c = h->slot[i].class + 1; c < KV_CLASSES; c++)
        if (h->oldest[c] != SLOT_NONE) return h->oldest[c];
    return SLOT_NONE;
}
int32_t slot_older(const struct kv_host *h, int32_t i)
{
    if (h->slot[i].older != SLOT_NONE) return h->slot[i].older;
    for (int c = h->slot[i].class; c-- > 0;)
        if (h->newest[c] != SLOT_NONE) return h->newest[c];
    return SLOT_NONE;
}

/* The victim is of the first class that has one. Among the few oldest of it, a block that a store holds as well goes
 * first, because nothing is lost with it. Where a class has none of those, the oldest is the one. */
int32_t slot_victim(const struct kv_host *h)
{
    for (int c = 0; c < KV_CLASS_PINNED; c++) {
        int32_t first = SLOT_NONE;
        int     n = 0, look = h->n_stored[c] || h->keep ? VICTIM_LOOK : 1;
        for (int32_t i = h->oldest[c]; i != SLOT_NONE && n < look; i = h->slot[i].newer) {
            if (h->slot[i].readers) continue;
            if (h->slot[i].store || (h->keep && h->slot[i].hold.memory_only))
                return i; /* at the end that is lost in any case */
            if (first == SLOT_NONE) first = i;
            n++;
        }
        if (first != SLOT_NONE) return first;
    }
    return SLOT_NONE;
}

/* ---- time */

void order_turn(struct kv_host *h)
{
    uint32_t i;
    for (int n = 0; n < SWEEP && (i = kv_due_pop(&h->due, kv_now_s(h->kv))) != KV_DUE_NONE; n++)
        slot_touch(h, (int32_t)i);
    if (h->pins_ended != kv_pins_ended(h->kv)) {
        h->pins_ended = kv_pins_ended(h->kv);
        h->n_sweep = h->n_class[KV_CLASS_PINNED];
    }
    for (int n = 0; n < SWEEP && h->n_sweep > 0 && h->oldest[KV_CLASS_PINNED] != SLOT_NONE; n++, h->n_sweep--)
        slot_touch(h, h->oldest[KV_CLASS_PINNED]); /* to the end of its class, or to the one it has now */
}

bool order_check(const struct kv_host *h)
{
    uint32_t n[KV_CLASSES] = { 0 }, n_stored[KV_CLASSES] = { 0 }, n_pinned = 0;
    for (int c = 0; c < KV_CLASSES; c++)
        for (int32_t i = h->oldest[c], before = SLOT_NONE; i != SLOT_NONE; before = i, i = h->slot[i].newer) {
            const struct host_slot *s = &h->slot[i];
            if (s->state != SLOT_READY || s->class != c || s->older != before || ++n[c] > h->n_slot) return false;
            bool live = kv_pin_live(h->kv, s->pin, s->pin_gen), ends = kv_hold_ends(&s->hold);
            if (live && c != KV_CLASS_PINNED) return false;
            if (c == KV_CLASS_ENDED && (!ends || s->hold.until_s > kv_now_s(h->kv))) return false;
            if (ends && c != KV_CLASS_ENDED && c != KV_CLASS_PINNED && !kv_due_has(&h->due, (uint32_t)i)) return false;
            n_pinned += live;
            n_stored[c] += s->store > 0;
        }
    for (int c = 0; c < KV_CLASSES; c++)
        if (n[c] != h->n_class[c] || n_stored[c] != h->n_stored[c]) return false;
    return n_pinned <= kv_pins_host_max(h->kv) && kv_due_check(&h->due);
}
