#include "server/gpu_watch.h"
#include "base/log.h"
#include <string.h>

static bool is_same(const struct dev_place *a, const struct dev_place *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->slot == b->slot;
}

void gpu_watch_own(struct gpu_watch *w, const struct dev_place *place)
{
    for (uint32_t i = 0; i < w->n_own; i++)
        if (is_same(&w->own[i], place)) return;
    if (w->n_own < NVML_GPUS_MAX) w->own[w->n_own++] = *place;
}

/* The GPU at that place; NULL: the driver's library does not list it, which is logged once. */
static const struct nvml_gpu *find(struct gpu_watch *w, const struct nvml_sample *s, const struct dev_place *place)
{
    for (uint32_t i = 0; i < s->n_gpu; i++)
        if (s->gpu[i].placed && is_same(&s->gpu[i].place, place)) return &s->gpu[i];
    if (!w->warned)
        LOG_WARN("nvml: the driver's library tells nothing of the GPU at %04x:%02x:%02x.0, whose errors are seen only "
                 "when a step fails",
                 place->domain, place->bus, place->slot);
    w->warned = true;
    return NULL;
}

static enum gpu_says says_of(const struct gpu_watch *w, const struct nvml_gpu *g, const char **why_out)
{
    if (g->lost) {
        *why_out = "the driver does not reach a GPU of ours any more";
        return GPU_BROKEN;
    }
    static const struct {
        enum xid_act  act;
        enum gpu_says says;
    } row[] = {
        { XID_BROKEN, GPU_BROKEN }, { XID_LINK, GPU_BROKEN }, { XID_RESTART, GPU_RESTART }, { XID_DRAIN, GPU_DRAIN }
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct nvml_events_of *e = &g->act[row[i].act];
        if (!e->n || (row[i].act == XID_LINK && w->lone)) continue;
        *why_out = xid_find(e->xid)->meaning;
        return row[i].says;
    }
    return GPU_WELL;
}

enum gpu_says gpu_watch_turn(struct gpu_watch *w, const struct nvml_sample *s, const char **why_out)
{
    enum gpu_says worst = GPU_WELL;
    uint32_t      n_ask = 0;
    for (uint32_t i = 0; i < w->n_own; i++) {
        const char            *why = NULL;
        const struct nvml_gpu *g = find(w, s, &w->own[i]);
        if (!g) continue;
        enum gpu_says says = says_of(w, g, &why);
        n_ask += g->act[XID_ASK].n;
        if (says <= worst) continue;
        worst = says;
        *why_out = why;
    }
    if (worst == GPU_WELL && n_ask != w->n_asked) {
        *why_out = "a program on a GPU of ours failed";
        worst = GPU_ASK;
    }
    w->n_asked = n_ask;
    return worst;
}
