/* boot_task: whether the model generates or makes vectors, and which. */
#include "engine/model/pooling.h"
#include "server/boot_impl.h"
#include "base/log.h"
#include <stdio.h>

uint32_t boot_engine_context(const struct boot *b) { return b->model.context + (b->model.state_dim ? 1 : 0); }

enum status boot_task(struct boot *b)
{
    static const struct {
        enum eng_state_of of;
        const char       *name;
    } kinds[] = { [POOL_LAST] = { ENG_STATE_LAST, "the last token" },
                  [POOL_MEAN] = { ENG_STATE_SUM, "the mean of all tokens" },
                  [POOL_CLS] = { ENG_STATE_FIRST, "the first token" } };
    const struct config *cfg = b->cfg;
    struct api_model    *m = &b->model;
    struct model_pooling p;
    m->task = TASK_GENERATE;
    if (cfg->task == TASK_GENERATE) return ST_OK;
    enum status st = model_pooling_load(&b->src, &b->spec, cfg->task == TASK_EMBED, &p, b->err, sizeof b->err);
    if (st) return st;
    if (cfg->task == TASK_AUTO && !p.found) return ST_OK;
    if (cfg->lora) {
        snprintf(b->err, sizeof b->err,
                 "--enable-lora: adapters are served beside a model that generates, and this one makes embeddings");
        return ST_CONFIG;
    }
    m->task = TASK_EMBED;
    b->spec.pool = cfg->pooling != POOL_NONE ? cfg->pooling : p.pool;
    m->state_dim = b->spec.hidden;
    m->state_of = kinds[b->spec.pool].of;
    m->normalizes = p.normalize;
    m->shortens = p.shortens || cfg->matryoshka;
    LOG_INFO("boot: the model makes embeddings of %u numbers: %s%s", m->state_dim, kinds[b->spec.pool].name,
             m->normalizes ? ", of length 1" : "");
    return ST_OK;
}
