#include "server/io.h"
#include "base/clock.h"
#include "base/hash.h"
#include <event2/event.h>
#include <stdio.h>
#include <time.h>

const char *io_date(struct io *io)
{
    int64_t now = clock_wall_s();
    if (now != io->date_s) {
        static const char day[] = "SunMonTueWedThuFriSat", month[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        time_t            t = (time_t)now;
        struct tm         tm;
        gmtime_r(&t, &tm);
        snprintf(io->date, sizeof io->date, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", day + 3 * tm.tm_wday, tm.tm_mday,
                 month + 3 * tm.tm_mon, (tm.tm_year + 1900) % 10000, tm.tm_hour, tm.tm_min, tm.tm_sec);
        io->date_s = now;
    }
    return io->date;
}

void io_request_id(struct io *io, char out[25])
{
    uint64_t n = ++io->id_next;
    snprintf(out, 25, "%016llx%08llx", (unsigned long long)hash_u64(io->id_seed ^ n),
             (unsigned long long)(hash_combine(io->id_seed, n) & 0xffffffffu));
}

void io_flush_soon(struct io *io)
{
    if (!io->flushing) event_active(io->ev_flush, EV_TIMEOUT, 0);
}
