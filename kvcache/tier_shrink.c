/* tier_shrink: the host gives memory back before the kernel kills the process for it. What the control group uses is
 * compared with its limit now and then: from 95 % on the tier shrinks until it is below that again, a sixteenth at a
 * look; from 98 % on as much as it takes, at once. When there has been room for a while it grows back. Slots without
 * readers go, the least used first, and their pages with them. Page cache that the kernel can drop without writing is
 * no use of memory: it is not counted. */
#include "base/log.h"
#include "kvcache/tier_impl.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_US = 250000, CALM_LOOKS = 40, TURN_SLOTS = 256 }; /* TURN_SLOTS: given back in a turn of the engine */
static const double SHRINK = 0.95, HURRY = 0.98, GROW = 0.85;

/* A file of the group; a number, or the one behind `name `. 0: there is none ("max" is no number). */
static uint64_t group_number(const struct kv_tiers *t, const char *file, const char *name)
{
    char     path[600], text[8192];
    uint64_t v = 0;
    snprintf(path, sizeof path, "%s/%s", t->cfg.cgroup, file);
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    const char *at = name ? strstr(text, name) : text;
    if (at && name) at += strlen(name);
    if (at && sscanf(at, "%" SCNu64, &v) != 1) v = 0;
    return v;
}

static void look(struct kv_tiers *t)
{
    struct shrink *s = &t->shrink;
    uint64_t       max = group_number(t, "memory.max", NULL), used = max ? group_number(t, "memory.current", NULL) : 0;
    if (!max || !used) return;
    if ((double)used >= GROW * (double)max) {
        uint64_t idle = group_number(t, "memory.stat", "inactive_file ");
        used -= idle < used ? idle : used;
    }
    double part = (double)used / (double)max;
    s->n_go = 0;
    if (part >= SHRINK) {
        uint64_t over = used - (uint64_t)(SHRINK * (double)max), n = over / t->host.stride + 1,
                 most = part >= HURRY ? t->host.n_slot : t->host.n_slot / 16 + 1;
        s->n_go = (uint32_t)(n < most ? n : most);
        s->calm = 0;
        if (!s->said)
            LOG_WARN(
                "kv: %.1f of %.1f GiB of the memory that this process may have are in use: the host's tier gives back what it can",
                (double)used / (1 << 30), (double)max / (1 << 30));
        s->said = true;
    } else if (t->host.n_away && part < GROW && ++s->calm >= CALM_LOOKS) {
        uint64_t room = (uint64_t)(GROW * (double)max) - used, n = room / t->host.stride,
                 most = t->host.n_slot / 32 + 1;
        for (n = n < most ? n : most; n && t->host.n_away; n--) slot_return(&t->host);
        if (!t->host.n_away) {
            s->said = false;
            LOG_INFO("kv: there is memory again: the host's tier has its size of %u blocks", t->host.n_slot);
        }
    } else if (part >= GROW) {
        s->calm = 0;
    }
}

void shrink_turn(struct kv_tiers *t)
{
    struct shrink *s = &t->shrink;
    if (!t->cfg.cgroup || !*t->cfg.cgroup || t->closing) return;
    uint64_t now = t->cfg.clock();
    if (now >= s->next_us) {
        s->next_us = now + LOOK_US;
        look(t);
    }
    /* Registered or pinned pages would stay: a lane that holds them lets go first, one that cannot keeps the tier as it
     * is. */
    if (!s->n_go || !xfer_seg_unpin(t->cfg.xfer, t->host.seg)) return;
    for (uint32_t n = 0; s->n_go && n < TURN_SLOTS; n++, s->n_go--)
        if (!slot_give_back(&t->host)) s->n_go = 1;
}
