#include "base/awake.h"
#include <stdatomic.h>

static _Atomic uint64_t last_tick_us; /* 0: nobody ticks */
static _Atomic uint64_t resumed_us;   /* when the last break ended, as the ticking thread saw it */
static _Atomic uint64_t noticed_us;   /* when somebody else first saw the ticks missing; 0: they come */

void awake_tick(uint64_t now_us)
{
    uint64_t last = atomic_load(&last_tick_us);
    if (last && now_us > last && now_us - last > AWAKE_BREAK_US) atomic_store(&resumed_us, now_us);
    atomic_store(&last_tick_us, now_us);
    atomic_store(&noticed_us, 0);
}

uint64_t awake_since(uint64_t now_us)
{
    uint64_t last = atomic_load(&last_tick_us);
    uint64_t resumed = atomic_load(&resumed_us);
    if (!last || now_us <= last || now_us - last <= AWAKE_BREAK_US) return resumed;
    uint64_t noticed = 0;
    if (atomic_compare_exchange_strong(&noticed_us, &noticed, now_us)) noticed = now_us;
    return now_us - noticed <= AWAKE_TRUST_US ? noticed : resumed;
}
