#include "engine/fair.h"
#include "base/check.h"
#include "base/hash.h"

enum { PROBES = 16, PRIORITY_MAX = 1 << 20 };

void fair_init(struct fair *f)
{
    *f = (struct fair){ 0 };
    for (uint32_t i = 0; i < FAIR_TENANTS_MAX; i++) list_init(&f->tenant[i].waiting);
}

struct tenant *fair_enter(struct fair *f, uint64_t id)
{
    uint64_t       h = hash_u64(id);
    struct tenant *idle = NULL, *t = NULL;
    for (uint32_t i = 0; i < PROBES && !t; i++) {
        struct tenant *p = &f->tenant[(h + i) % FAIR_TENANTS_MAX];
        if (p->use && p->id == id)
            t = p;
        else if (!p->n_live && (!idle || p->use < idle->use))
            idle = p;
    }
    if (!t && idle) {
        t = idle;
        t->id = id;
        t->counter = 0; /* lifted when it queues */
    }
    if (!t) t = &f->tenant[h % FAIR_TENANTS_MAX];
    t->use = ++f->use;
    t->n_live++;
    return t;
}

void fair_leave(struct fair *f, struct tenant *t)
{
    (void)f;
    CHECK(t->n_live > 0);
    t->n_live--;
}

static int64_t clamp_priority(int32_t p)
{
    if (p < -PRIORITY_MAX) return -PRIORITY_MAX;
    return p > PRIORITY_MAX ? PRIORITY_MAX : p;
}

void fair_push(struct fair *f, struct seq *s, uint64_t now_us)
{
    struct tenant *t = s->q->tenant;
    if (!t->n_waiting) {
        uint64_t floor = UINT64_MAX;
        for (uint32_t i = 0; f->n_waiting && i < FAIR_TENANTS_MAX; i++)
            if (f->tenant[i].n_waiting && f->tenant[i].counter < floor) floor = f->tenant[i].counter;
        if (floor == UINT64_MAX) floor = f->counter_last;
        if (t->counter < floor) t->counter = floor;
        t->t_served_us = now_us;
    }
    /* Within a tenant: by priority, where FAIR_AGING_US of waiting is worth one level. That is a fixed number per
     * request, and most come with the same priority, so the place is found at once from behind. */
    s->key = (int64_t)now_us + clamp_priority(s->r->priority) * FAIR_AGING_US;
    struct list *at = t->waiting.prev;
    while (at != &t->waiting && LIST_ENTRY(at, struct seq, link)->key > s->key) at = at->prev;
    list_add_head(at, &s->link);
    t->n_waiting++;
    f->n_waiting++;
}

void fair_remove(struct fair *f, struct seq *s)
{
    struct tenant *t = s->q->tenant;
    CHECK(t->n_waiting > 0);
    list_del(&s->link);
    t->n_waiting--;
    f->n_waiting--;
    if (!t->n_waiting) f->counter_last = t->counter;
}

void fair_served(struct fair *f, struct seq *s, uint32_t n_input, uint64_t now_us)
{
    struct tenant *t = s->q->tenant;
    t->counter += (uint64_t)FAIR_INPUT_COST * n_input;
    t->t_served_us = now_us;
    if (!t->n_waiting) f->counter_last = t->counter;
}

struct tenant *fair_next(struct fair *f, uint64_t step, uint64_t now_us)
{
    struct tenant *best = NULL;
    int64_t        best_level = 0;
    if (!f->n_waiting) return NULL;
    for (uint32_t i = 0; i < FAIR_TENANTS_MAX; i++) {
        struct tenant *t = &f->tenant[i];
        if (!t->n_waiting || t->skip_step == step) continue;
        const struct seq *head = LIST_ENTRY(t->waiting.next, struct seq, link);
        uint64_t          waited = now_us > t->t_served_us ? now_us - t->t_served_us : 0;
        int64_t           level = clamp_priority(head->r->priority) - (int64_t)(waited / FAIR_AGING_US);
        bool              first = !best || level < best_level;
        if (best && level == best_level) {
            const struct seq *other = LIST_ENTRY(best->waiting.next, struct seq, link);
            first = t->counter != best->counter ? t->counter < best->counter : head->q->arrival < other->q->arrival;
        }
        if (first) {
            best = t;
            best_level = level;
        }
    }
    return best;
}
