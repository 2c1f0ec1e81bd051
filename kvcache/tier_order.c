/* tier_order: in which order the host's slots are evicted: class by class (keep.h), within one the least recently used first. Those
 * of a pin stand in a class of their own that nothing is taken from; what comes to its end moves to the first. */
#include "base/check.h"
#include "kvcache/tier_impl.h"

enum { VICTIM_LOOK = 32, SWEEP = 256 }; /* slots looked at for a victim; pinned ones that a turn looks at when a pin has ended */

/* ---- lists */

static int class_of(const struct kv_tiers *t, const struct host_slot *s)
{
    if (kv_pin_live(t->cfg.kv, s->pin, s->pin_gen)) return KV_CLASS_PINNED;
    return kv_hold_class(&s->hold, kv_now_s(t->cfg.kv));
}

static void list_remove(struct kv_tiers *t, int32_t i)
{
    struct host_slot *s = &t->slot[i];
    *(s->newer == SLOT_NONE ? &t->newest[s->class] : &t->slot[s->newer].older) = s->older;
    *(s->older == SLOT_NONE ? &t->oldest[s->class] : &t->slot[s->older].newer) = s->newer;
    t->n_class[s->class]--;
}

static void list_add(struct kv_tiers *t, int32_t i)
{
    struct host_slot *s = &t->slot[i];
    s->class = (uint8_t)class_of(t, s);
    s->newer = SLOT_NONE, s->older = t->newest[s->class];
    *(t->newest[s->class] == SLOT_NONE ? &t->oldest[s->class] : &t->slot[t->newest[s->class]].newer) = i;
    t->newest[s->class] = i;
    t->n_class[s->class]++;
}

enum status order_init(struct kv_tiers *t)
{
    for (int c = 0; c < KV_CLASSES; c++) t->newest[c] = t->oldest[c] = SLOT_NONE;
    return kv_due_init(&t->due, t->n_slot);
}
void order_close(struct kv_tiers *t) { kv_due_close(&t->due); }

void order_add(struct kv_tiers *t, int32_t i)
{
    list_add(t, i);
    if (kv_hold_ends(&t->slot[i].hold)) kv_due_set(&t->due, (uint32_t)i, t->slot[i].hold.until_s);
}

void order_remove(struct kv_tiers *t, int32_t i)
{
    list_remove(t, i);
    kv_due_clear(&t->due, (uint32_t)i);
}

void slot_touch(struct kv_tiers *t, int32_t i)
{
    t->stirred = true;
    if (t->slot[i].state != SLOT_READY) return;
    list_remove(t, i);
    list_add(t, i);
}

void slot_hold(struct kv_tiers *t, int32_t i, struct kv_hold h)
{
    struct host_slot *s = &t->slot[i];
    struct kv_hold    before = s->hold;
    kv_hold_join(&s->hold, h);
    if (s->state != SLOT_READY || (before.used == s->hold.used && before.until_s == s->hold.until_s && before.priority == s->hold.priority))
        return; /* its place does not depend on more than these */
    order_remove(t, i);
    order_add(t, i);
}

/* At most as many slots as the pin was given: those of its blocks. */
void slot_pin(struct kv_tiers *t, int32_t i, const struct kv_mark *m)
{
    struct host_slot *s = &t->slot[i];
    const struct kv  *kv = t->cfg.kv;
    if (!kv_pin_live(kv, m->number, m->gen)) return;
    if (kv_pin_live(kv, s->pin, s->pin_gen) && kv_pin_until_us(kv, s->pin) >= kv_pin_until_us(kv, m->number)) return;
    s->pin = (uint8_t)m->number, s->pin_gen = m->gen;
    slot_touch(t, i);
}

int32_t slot_oldest(const struct kv_tiers *t)
{
    for (int c = 0; c < KV_CLASSES; c++)
        if (t->oldest[c] != SLOT_NONE) return t->oldest[c];
    return SLOT_NONE;
}
int32_t slot_newest(const struct kv_tiers *t)
{
    for (int c = KV_CLASSES; c-- > 0;)
        if (t->newest[c] != SLOT_NONE) return t->newest[c];
    return SLOT_NONE;
}
int32_t slot_newer(const struct kv_tiers *t, int32_t i)
{
    if (t->slot[i].newer != SLOT_NONE) return t->slot[i].newer;
    for (int c = t->slot[i].class + 1; c < KV_CLASSES; c++)
        if (t->oldest[c] != SLOT_NONE) return t->oldest[c];
    return SLOT_NONE;
}
int32_t slot_older(const struct kv_tiers *t, int32_t i)
{
    if (t->slot[i].older != SLOT_NONE) return t->slot[i].older;
    for (int c = t->slot[i].class; c-- > 0;)
        if (t->newest[c] != SLOT_NONE) return t->newest[c];
    return SLOT_NONE;
}

/* Of the first class that has one: oldest first, but what a store holds as well is no loss and goes before what it does not, within
 * a few. */
int32_t slot_victim(const struct kv_tiers *t)
{
    for (int c = 0; c < KV_CLASS_PINNED; c++) {
        int32_t first = SLOT_NONE;
        int     n = 0;
        for (int32_t i = t->oldest[c]; i != SLOT_NONE && n < VICTIM_LOOK; i = t->slot[i].newer) {
            if (t->slot[i].readers) continue;
            if (t->slot[i].store || (tiers_keep(t) && t->slot[i].hold.memory_only)) return i; /* at the end that is lost in any case */
            if (first == SLOT_NONE) first = i;
            n++;
        }
        if (first != SLOT_NONE) return first;
    }
    return SLOT_NONE;
}

/* ---- time */

void order_turn(struct kv_tiers *t)
{
    uint32_t i;
    for (int n = 0; n < SWEEP && (i = kv_due_pop(&t->due, kv_now_s(t->cfg.kv))) != KV_DUE_NONE; n++) slot_touch(t, (int32_t)i);
    if (t->pins_ended != kv_pins_ended(t->cfg.kv)) {
        t->pins_ended = kv_pins_ended(t->cfg.kv);
        t->n_sweep = t->n_class[KV_CLASS_PINNED];
    }
    for (int n = 0; n < SWEEP && t->n_sweep > 0 && t->oldest[KV_CLASS_PINNED] != SLOT_NONE; n++, t->n_sweep--)
        slot_touch(t, t->oldest[KV_CLASS_PINNED]); /* to the end of its class, or to the one it has now */
}

bool order_check(const struct kv_tiers *t)
{
    uint32_t n[KV_CLASSES] = { 0 }, n_pinned = 0;
    for (int c = 0; c < KV_CLASSES; c++)
        for (int32_t i = t->oldest[c], before = SLOT_NONE; i != SLOT_NONE; before = i, i = t->slot[i].newer) {
            const struct host_slot *s = &t->slot[i];
            if (s->state != SLOT_READY || s->class != c || s->older != before || ++n[c] > t->n_slot) return false;
            bool live = kv_pin_live(t->cfg.kv, s->pin, s->pin_gen), ends = kv_hold_ends(&s->hold);
            if (live && c != KV_CLASS_PINNED) return false;
            if (c == KV_CLASS_ENDED && (!ends || s->hold.until_s > kv_now_s(t->cfg.kv))) return false;
            if (ends && c != KV_CLASS_ENDED && c != KV_CLASS_PINNED && !kv_due_has(&t->due, (uint32_t)i)) return false;
            n_pinned += live;
        }
    for (int c = 0; c < KV_CLASSES; c++)
        if (n[c] != t->n_class[c]) return false;
    return n_pinned <= kv_pins_host_max(t->cfg.kv) && kv_due_check(&t->due);
}
