#include "server/orca.h"
#include "base/check.h"
#include "server/io.h"
#include <stdio.h>
#include <strings.h>

enum orca_format orca_format_of(const char *value, size_t n)
{
    if (n != 4) return ORCA_NONE;
    if (!strncasecmp(value, "TEXT", 4)) return ORCA_TEXT;
    return strncasecmp(value, "JSON", 4) ? ORCA_NONE : ORCA_JSON;
}

/* part / all with at most four decimals, whatever the locale; at most 1. */
static void put_share(uint32_t part, uint32_t all, char out[8])
{
    uint32_t tenths_of_mille = all ? (uint32_t)((uint64_t)part * 10000 / all) : 0;
    if (tenths_of_mille >= 10000) {
        snprintf(out, 8, "1");
        return;
    }
    int n = snprintf(out, 8, "0.%04u", tenths_of_mille);
    while (out[n - 1] == '0') out[--n] = 0;
    if (out[n - 1] == '.') out[--n] = 0;
}

size_t orca_header(const struct server *s, enum orca_format f, char *out, size_t bytes)
{
    struct eng_stats e = { .n_running = 0 };
    char             use[8];
    if (f == ORCA_NONE || server_state(s) == SRV_LOADING || !s->eng.stats) return 0;
    s->eng.stats(s->eng.ctx, &e);
    bool windows = (uint64_t)e.window_used * e.kv_blocks > (uint64_t)e.kv_used * e.window_blocks; /* the fuller pool */
    put_share(windows ? e.window_used : e.kv_used, windows ? e.window_blocks : e.kv_blocks, use);
    const char *form =
        f == ORCA_TEXT
            ? "endpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc=%s, named_metrics.num_requests_waiting=%u\r\n"
            : "endpoint-load-metrics: JSON {\"named_metrics\":{\"kv_cache_usage_perc\":%s,\"num_requests_waiting\":%u}}\r\n";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = snprintf(out, bytes, form, use, e.n_waiting);
#pragma GCC diagnostic pop
    CHECK(n > 0 && (size_t)n < bytes);
    return (size_t)n;
}
