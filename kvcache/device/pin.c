#include "kvcache/device/pin.h"
#include "base/check.h"
#include "base/log.h"
#include "kvcache/device/seq.h"
#include <stdlib.h>
#include <string.h>

enum status kv_pins_init(struct kv_pins *p, struct kv *kv, uint32_t percent, uint32_t context_blocks)
{
    uint32_t n = kv->cfg.n_block, spare = n > context_blocks ? n - context_blocks : 0;
    *p = (struct kv_pins){ .kv = kv, .device_max = (uint32_t)((uint64_t)n * percent / 100) };
    if (p->device_max > spare) p->device_max = spare;
    p->named = calloc(kv_n_name(kv), sizeof *p->named);
    return p->named ? ST_OK : ST_NOMEM;
}

static void let_go(struct kv_pins *p, struct kv_pin *x)
{
    for (uint32_t i = 0; i < x->n_device; i++) {
        CHECK(p->named[x->kv.block[i]] > 0);
        p->n_device -= --p->named[x->kv.block[i]] == 0;
    }
    if (x->n_device) kv_seq_release(p->kv, &x->kv);
    p->n_host -= x->n_host;
    p->n_ended++;
    x->used = false;
    x->n_device = x->n_host = 0;
}

void kv_pins_close(struct kv_pins *p)
{
    for (int i = 0; i < KV_PINS_MAX; i++)
        if (p->pin[i].used) let_go(p, &p->pin[i]);
    free(p->named);
    *p = (struct kv_pins){ 0 };
}

/* Is x a pin of the tenant's over the first of s's n blocks, or over all of them and more? */
static bool on_path(const struct kv_pin *x, uint64_t tenant, const struct kv_seq *s, uint32_t n)
{
    uint32_t m = x->n_device < n ? x->n_device : n; /* one equal block means an equal path before it */
    return x->used && x->tenant == tenant && m && x->kv.block[m - 1] == s->block[m - 1];
}

/* Room for n blocks of s, n_new of which no pin holds yet, beside what the tenant's other pins hold? */
static bool device_room(const struct kv_pins *p, const struct kv_seq *s, uint32_t n, uint32_t of_tenant, uint32_t share)
{
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < n; i++) n_new += p->named[s->block[i]] == 0;
    return p->n_device + n_new <= p->device_max && of_tenant + n <= p->device_max / share;
}

uint32_t kv_pin(struct kv *kv, const struct kv_seq *s, uint32_t n_token, uint64_t tenant, uint64_t until_us,
                struct kv_mark *mark_out)
{
    struct kv_pins *p = &kv->pins;
    uint32_t        bt = kv->cfg.block_tokens, n = n_token / bt, n_before = 0, of_device = 0, of_host = 0,
             share = tenant ? 2 : 1;
    struct kv_pin *x = NULL;
    *mark_out = (struct kv_mark){ 0 };
    if (n > s->n_shared) n = s->n_shared;
    if (!n) return 0;
    for (int i = 0; i < KV_PINS_MAX; i++) {
        struct kv_pin *o = &p->pin[i];
        if (!on_path(o, tenant, s, n)) continue;
        if (o->n_device >= n && o->until_us >= until_us) { /* it is held already */
            *mark_out = (struct kv_mark){ (uint32_t)i + 1, o->gen, o->n_host < n ? o->n_host : n };
            return n * bt;
        }
        if (o->n_device > n) continue;
        if (o->until_us > until_us) until_us = o->until_us;
        if (o->n_device > n_before) n_before = o->n_device;
        let_go(p, o); /* it moves: what it held is still in s */
    }
    for (int i = 0; i < KV_PINS_MAX; i++) {
        const struct kv_pin *o = &p->pin[i];
        if (!o->used && !x) x = &p->pin[i];
        if (o->used && o->tenant == tenant) {
            of_device += o->n_device;
            of_host += o->n_host;
        }
    }
    if (x && !device_room(p, s, n, of_device, share)) n = device_room(p, s, n_before, of_device, share) ? n_before : 0;
    if (!x || !n || kv_seq_open(kv, s->salt, &x->kv)) {
        p->n_refused++;
        return 0;
    }
    enum status st = kv_seq_hold(kv, s, &x->kv, n * bt);
    CHECK(st == ST_OK); /* all of it is in the tree */
    bool host = p->n_host + n <= p->host_max && of_host + n <= p->host_max / share;
    x->used = true;
    x->tenant = tenant;
    x->until_us = until_us;
    x->gen = ++p->gen;
    x->n_device = n;
    x->n_host = host ? n : 0;
    p->n_host += x->n_host;
    for (uint32_t i = 0; i < n; i++) p->n_device += p->named[x->kv.block[i]]++ == 0;
    /* The same prompt is continued a block earlier, because one token is left to compute. */
    if (kv_has_windows(kv)) kv_window_want(kv, x->kv.block, kv_window_first(kv, (n - 1) * bt), n);
    *mark_out = (struct kv_mark){ (uint32_t)(x - p->pin) + 1, x->gen, x->n_host };
    return n * bt;
}

bool kv_unpin(struct kv *kv, uint64_t until_us)
{
    bool any = false;
    for (int i = 0; i < KV_PINS_MAX; i++) {
        if (!kv->pins.pin[i].used || kv->pins.pin[i].until_us > until_us) continue;
        let_go(&kv->pins, &kv->pins.pin[i]);
        any = true;
    }
    return any;
}

enum status kv_pins_check(const struct kv_pins *p)
{
    uint32_t n_host = 0, n_device = 0, sum = 0, n_named = 0;
    for (int i = 0; i < KV_PINS_MAX; i++) {
        const struct kv_pin *x = &p->pin[i];
        if (!x->used) continue;
        n_host += x->n_host;
        sum += x->n_device;
        for (uint32_t k = 0; k < x->n_device; k++)
            if (!kv_in_tree(p->kv, x->kv.block[k]) || !p->named[x->kv.block[k]]) {
                LOG_ERROR("kv: pin %d holds block %u, which is not in the tree or not counted", i, x->kv.block[k]);
                return ST_INVALID;
            }
    }
    for (uint32_t b = 0; b < kv_n_name(p->kv); b++) {
        n_device += p->named[b] > 0;
        n_named += p->named[b];
    }
    if (n_host == p->n_host && n_device == p->n_device && n_named == sum && n_device <= p->device_max &&
        n_host <= p->host_max)
        return ST_OK;
    LOG_ERROR("kv: pins hold %u of %u blocks and %u of %u slots, counted %u and %u, named %u of %u", n_device,
              p->device_max, n_host, p->host_max, p->n_device, p->n_host, n_named, sum);
    return ST_INVALID;
}

/* ---- for the tiers */

void kv_pins_set_host(struct kv *kv, uint32_t n_slot)
{
    kv->pins.host_max = (uint32_t)((uint64_t)n_slot * kv->cfg.pin_percent / 100);
}

uint32_t kv_pins_host_max(const struct kv *kv) { return kv->pins.host_max; }

bool kv_pin_live(const struct kv *kv, uint32_t number, uint32_t gen) { return kv_pins_live(&kv->pins, number, gen); }

uint64_t kv_pin_until_us(const struct kv *kv, uint32_t number) { return kv->pins.pin[number - 1].until_us; }

uint64_t kv_pins_ended(const struct kv *kv) { return kv->pins.n_ended; }
