/* tier_purge: after a block was computed again and was not the same, all that lies below the device is dropped, and
 * what the device has cached as well where some of it came up. */
#include "base/log.h"
#include "kvcache/tier_impl.h"
#include <inttypes.h>

void kv_tiers_all_gave_way(struct kv_tiers *t) { t->audit.gave_way = true; }

bool purge_turn(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    uint64_t      n = 0;
    if (!a->purge) return false;
    audit_stop(t);
    up_discard(t);
    down_close(t);
    move_end(t);
    if (tiers_moving(t) || (a->purge == PURGE_DEVICE && !a->gave_way)) return true;
    n = below_purge(t);
    n += audit_drop_slots(t, true);
    a->slab_unproven = false;
    if (a->purge == PURGE_DEVICE) {
        kv_unpin(t->cfg.kv, UINT64_MAX);
        kv_evict_all(t->cfg.kv);
    }
    LOG_WARN("kv: %" PRIu64 " blocks below the device are dropped%s", n,
             a->purge == PURGE_DEVICE ? ", and all that it had cached" : "");
    a->purge = PURGE_NONE;
    return false;
}
