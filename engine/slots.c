#include "engine/slots.h"
#include "base/check.h"

void slots_init(struct slots *s, uint32_t n)
{
    CHECK(n <= LORA_SLOTS_MAX && n <= BATCH_ADAPTS_MAX);
    *s = (struct slots){ .n = n };
}

void slots_close(struct slots *s)
{
    for (uint32_t i = 0; i < s->n; i++) adapter_drop(s->slot[i].coming);
    *s = (struct slots){ .n = 0 };
}

void slots_forget(struct slots *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        CHECK(!s->slot[i].n_held && !s->slot[i].coming);
        s->slot[i] = (struct slot_use){ .serial = 0 };
    }
}

static const struct slot_use *slot_with(const struct slots *s, const struct adapter *a)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->slot[i].serial == a->serial) return &s->slot[i];
    return NULL;
}

/* The slot that nobody holds whose last use lies furthest back; n: all are held. */
static uint32_t slot_idle(const struct slots *s)
{
    uint32_t best = s->n;
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->slot[i].n_held && (best == s->n || s->slot[i].used < s->slot[best].used)) best = i;
    return best;
}

bool slots_allow(const struct slots *s, const struct adapter *a)
{
    if (!a) return true;
    const struct slot_use *there = slot_with(s, a);
    if (there) return !there->closed;
    return slot_idle(s) < s->n;
}

void slots_refused(struct slots *s, uint32_t n)
{
    uint32_t least = 0;
    if (n < SLOTS_PATIENCE || !s->n) return;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->slot[i].closed) return; /* one at a time */
        if (s->slot[i].n_held < s->slot[least].n_held) least = i;
    }
    s->slot[least].closed = s->slot[least].n_held > 0;
}

uint32_t slots_enter(struct slots *s, struct adapter *a)
{
    if (!a) return 0;
    const struct slot_use *there = slot_with(s, a);
    uint32_t               i = there ? (uint32_t)(there - s->slot) : slot_idle(s);
    CHECK(i < s->n);
    struct slot_use *u = &s->slot[i];
    if (!there) {
        adapter_drop(u->coming);
        *u = (struct slot_use){ .serial = a->serial, .coming = adapter_keep(a) };
    }
    u->n_held++;
    u->used = ++s->n_use;
    return i + 1;
}

void slots_leave(struct slots *s, uint32_t number)
{
    if (!number) return;
    struct slot_use *u = &s->slot[number - 1];
    CHECK(u->n_held);
    if (--u->n_held) return;
    u->closed = false;
    if (!u->coming) return;
    adapter_drop(u->coming); /* nobody has run with it: it need not come */
    *u = (struct slot_use){ .serial = 0 };
}

void slots_fill(struct slots *s, struct batch *b)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->slot[i].coming) continue;
        b->adapt[b->n_adapt++] = (struct batch_adapt){ s->slot[i].coming, i };
        s->slot[i].coming = NULL;
    }
}

void slots_sent(struct batch *b)
{
    for (uint32_t i = 0; i < b->n_adapt; i++) adapter_drop(b->adapt[i].adapter);
    b->n_adapt = 0;
}
