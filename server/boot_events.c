/* boot_events: KV events of --kv-events-config: opened before the weights are loaded, so that a wrong option or a
 * missing library is told at once; started with the engine. */
#include "base/log.h"
#include "server/boot_impl.h"
#include "server/config_events.h"
#include "server/usage.h"
#include <stdlib.h>

struct boot_events {
    struct config_events config;
};

int boot_events_plan(struct boot *b)
{
    struct boot_events *t = calloc(1, sizeof *t);
    if (!t) return EXIT_SOFTWARE;
    b->events = t;
    int code = config_events_read(b->cfg->kv_events_config, &t->config, b->err, sizeof b->err);
    if (code || !t->config.on) return code;
    char why[400];
    if (!kv_events_open(&t->config.cfg, &b->kv_events, why, sizeof why)) return 0;
    snprintf(b->err, sizeof b->err, "--kv-events-config: %s", why);
    return EXIT_CONFIG;
}

void boot_events_start(struct boot *b, struct eng_cfg *e)
{
    struct kv_identity ident;
    if (!b->kv_events) return;
    boot_tiers_ident(b, &ident);
    e->events = b->kv_events;
    e->fingerprint = kv_fingerprint(&ident);
}

void boot_events_free(struct boot *b)
{
    kv_events_close(b->kv_events);
    free(b->events);
}
