/* pin: prefixes that must not be evicted for a while.   Thread: engine.
 *
 * On the device a pin is a block table of its own over the blocks of the prefix. They are locked like those of a
 * running sequence, so the pool needs no special rule for pins. On the host the tier marks the slots of the prefix with
 * the pin's number when its sequence ends.
 * Bounds: all pins together hold a bounded number of device blocks and host slots. If there are several tenants, one of
 * them holds at most half of that. The longest request always fits on the device beside all pins, so no pin can block a
 * request. A prefix over a bound is not pinned there, and the request learns how many tokens are pinned.
 * When a tenant pins an extension of a prefix that it has pinned already, the pin moves. */
#pragma once
#include "kvcache/device/kv.h"

enum { KV_PINS_MAX = 64 };

struct kv_pin {
    bool          used;
    uint64_t      tenant, until_us;
    uint32_t      gen;              /* number of this use: marks with an older number are void */
    struct kv_seq kv;               /* open where n_device > 0 */
    uint32_t      n_device, n_host; /* blocks it may hold there */
};

struct kv_pins {
    struct kv    *kv;
    struct kv_pin pin[KV_PINS_MAX];
    uint16_t     *named;                /* [blocks and guests] pins that hold the block */
    uint32_t      device_max, host_max; /* blocks, slots */
    uint32_t      n_device, n_host;     /* held; on the device each block once */
    uint32_t      gen;
    uint64_t      n_refused, n_ended; /* pins */
};

/* percent: share of each tier. context_blocks: blocks of the longest request. The host's bound is 0 until
 * kv_pins_set_host. */
enum status kv_pins_init(struct kv_pins *p, struct kv *kv, uint32_t percent, uint32_t context_blocks);
void        kv_pins_close(struct kv_pins *p); /* ends all pins */
enum status kv_pins_check(const struct kv_pins *p);
/* True if the mark belongs to a pin that is still held. */
static inline bool kv_pins_live(const struct kv_pins *p, uint32_t number, uint32_t gen)
{
    return number && p->pin[number - 1].used && p->pin[number - 1].gen == gen;
}

/* ---- for the tiers */

/* Tells the pins the host's number of slots; they may hold kv_cfg.pin_percent of them. */
void     kv_pins_set_host(struct kv *kv, uint32_t n_slot);
uint32_t kv_pins_host_max(const struct kv *kv); /* slots that pins may hold */
/* True if the pin of this mark is still held. */
bool kv_pin_live(const struct kv *kv, uint32_t number, uint32_t gen);
/* The end of a live pin. */
uint64_t kv_pin_until_us(const struct kv *kv, uint32_t number);
/* The number of pins that have ended so far. When it grows, the host must check its marks again. */
uint64_t kv_pins_ended(const struct kv *kv);
