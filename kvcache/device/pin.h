/* pin: prefixes that must not be evicted for a while.   Thread: engine.
 *
 * On the device a pin is a table of its own over the blocks of the prefix: they are locked like those of a running sequence, and
 * the pool's rules need no word about pins. On the host the tier marks the slots of the prefix with the pin's number (tier_order.c)
 * when its sequence ends.
 * Bounds: all pins together hold at most so many blocks of the device and slots of the host, one tenant at most half of that where
 * there are several; and never so much of the device that the longest request would not fit beside them, so that a pin cannot stop
 * anyone from getting on. What goes over a bound is not pinned there, and the request is told how much was.
 * A tenant that pins more of a prefix that it has pinned already moves the pin. */
#pragma once
#include "kvcache/device/kv.h"

enum { KV_PINS_MAX = 64 };

struct kv_pin {
    bool          used;
    uint64_t      tenant, until_us;
    uint32_t      gen;              /* of this use: marks of an earlier one mean nothing */
    struct kv_seq kv;               /* open where n_device > 0 */
    uint32_t      n_device, n_host; /* blocks it may hold there */
};

struct kv_pins {
    struct kv    *kv;
    struct kv_pin pin[KV_PINS_MAX];
    uint16_t     *named;                /* [n_block] pins that hold the block */
    uint32_t      device_max, host_max; /* blocks, slots */
    uint32_t      n_device, n_host;     /* held; on the device each block once */
    uint32_t      gen;
    uint64_t      n_refused, n_ended; /* pins */
};

/* percent: of each tier. context_blocks: what the longest request needs. The host's bound is 0 until kv_pins_set_host. */
enum status kv_pins_init(struct kv_pins *p, struct kv *kv, uint32_t percent, uint32_t context_blocks);
void        kv_pins_close(struct kv_pins *p); /* lets go of all */
enum status kv_pins_check(const struct kv_pins *p);
/* Does the mark belong to a pin that is held? */
static inline bool kv_pins_live(const struct kv_pins *p, uint32_t number, uint32_t gen)
{
    return number && p->pin[number - 1].used && p->pin[number - 1].gen == gen;
}

/* ---- for the tiers */

/* The host below has so many slots: pins may hold their share of them (kv_cfg.pin_percent). */
void     kv_pins_set_host(struct kv *kv, uint32_t n_slot);
uint32_t kv_pins_host_max(const struct kv *kv); /* slots that pins may hold */
/* Is the pin that gave this mark still held? */
bool kv_pin_live(const struct kv *kv, uint32_t number, uint32_t gen);
/* Until when it is held: a pin that is live. */
uint64_t kv_pin_until_us(const struct kv *kv, uint32_t number);
/* How many pins have ended so far: when it has grown, marks have to be looked at again. */
uint64_t kv_pins_ended(const struct kv *kv);
