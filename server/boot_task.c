/* boot_task: whether the model generates, makes vectors, or scores, and by what. */
#include "engine/model/pooling.h"
#include "server/boot_impl.h"
#include "base/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t boot_engine_context(const struct boot *b) { return b->model.context + (b->model.state_dim ? 1 : 0); }

__attribute__((format(printf, 2, 3))) static enum status wrong(struct boot *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->err, sizeof b->err, fmt, ap);
    va_end(ap);
    return ST_CONFIG;
}

/* A model that labels single texts has none. */
static enum status prompts(struct boot *b)
{
    const struct model_prompt *any;
    char                       names[300];
    if (b->head && b->head->n_label != 1) return ST_OK;
    enum status st = model_prompts_read(&b->src, &b->prompts, b->err, sizeof b->err);
    if (st || !b->prompts.n) return st;
    b->model.prompts = &b->prompts;
    any = b->prompts.of[PROMPT_ANY];
    LOG_INFO("boot: prompts by name: %s; requests that name none get %s",
             model_prompt_names(&b->prompts, names, sizeof names), any ? any->name : "none");
    return ST_OK;
}

static enum status embeds(struct boot *b, const struct model_pooling *p)
{
    static const struct {
        enum eng_state_of of;
        const char       *name;
    } kinds[] = { [POOL_LAST] = { ENG_STATE_LAST, "the last token" },
                  [POOL_MEAN] = { ENG_STATE_SUM, "the mean of all tokens" },
                  [POOL_CLS] = { ENG_STATE_FIRST, "the first token" } };
    struct api_model *m = &b->model;
    m->task = TASK_EMBED;
    b->spec.pool = b->cfg->pooling != POOL_NONE ? b->cfg->pooling : p->pool;
    m->state_of = kinds[b->spec.pool].of;
    m->normalizes = p->normalize;
    m->shortens = p->shortens || b->cfg->matryoshka;
    m->skips_prompt = p->skips && m->state_of != ENG_STATE_LAST;
    m->dense = b->dense;
    LOG_INFO("boot: the model makes embeddings of %u numbers: %s%s%s",
             m->dense ? model_dense_width(m->dense) : b->spec.hidden, kinds[b->spec.pool].name,
             m->dense ? ", through the layers of Dense modules" : "", m->normalizes ? ", of length 1" : "");
    return ST_OK;
}

/* The state of the last token, or of an encoder's first, which b->head turns into scores. */
static enum status scores(struct boot *b)
{
    struct api_model *m = &b->model;
    bool              encoder = model_is_encoder(&b->spec);
    enum status       st = encoder ? ST_OK : model_causal_check(&b->src, b->err, sizeof b->err);
    if (st) return st;
    if (encoder && b->cfg->pooling != POOL_NONE && b->cfg->pooling != POOL_CLS)
        return wrong(
            b, "--pooling: the head of an encoder takes the first token's state; other kinds are of --task embed");
    if (!encoder && b->cfg->pooling != POOL_NONE && b->cfg->pooling != POOL_LAST)
        return wrong(b, "--pooling: a head takes the last token's state; other kinds are of --task embed");
    m->task = b->spec.classifies ? TASK_CLASSIFY : TASK_SCORE;
    m->head = b->head;
    m->state_of = encoder ? ENG_STATE_FIRST : ENG_STATE_LAST;
    b->spec.pool = encoder ? POOL_CLS : POOL_LAST;
    m->types = b->spec.n_type > 1;
    LOG_INFO("boot: the model %s, %s", m->task == TASK_CLASSIFY ? "classifies" : "scores pairs",
             b->head->of == HEAD_CLASSES ? "by its labels' rows" : "by logits of tokens");
    if (m->task == TASK_CLASSIFY)
        LOG_INFO("boot: it has %u labels, the first is %s", b->head->n_label, b->head->label[0]);
    return ST_OK;
}

/* Options that an encoder has no use for, and that somebody may rely on. */
static enum status encoder_options(struct boot *b)
{
    const struct config *cfg = b->cfg;
    const char          *arch = b->spec.family->arch;
    if (cfg->task == TASK_GENERATE)
        return wrong(b, "--task generate: %s is an encoder and generates nothing; allowed are embed, classify and auto",
                     arch);
    if (cfg->kv_host_gib > 0)
        return wrong(b, "--kv-host-gib: %s is an encoder and keeps no KV, so there is nothing for the tiers", arch);
    if (cfg->given_kv_bytes || cfg->given_kv_gib)
        return wrong(b, "--kv-cache-%s: %s is an encoder and keeps no KV; leave the option out",
                     cfg->given_kv_bytes ? "bytes" : "gib", arch);
    return ST_OK;
}

enum status boot_task(struct boot *b)
{
    const struct config *cfg = b->cfg;
    struct model_pooling p = { .found = false };
    enum status          st = ST_OK;
    bool                 encoder = model_is_encoder(&b->spec);
    b->model.task = TASK_GENERATE;
    if (encoder && (st = encoder_options(b))) return st;
    if (cfg->task == TASK_GENERATE && b->spec.classifies)
        return wrong(b,
                     "--task generate: config.json: the architecture classifies and has no head that generates; served "
                     "are --task classify and embed");
    if (cfg->task == TASK_CLASSIFY && !b->spec.classifies)
        return wrong(b, "--task classify: config.json: the architecture is no ...ForSequenceClassification");
    if (cfg->task == TASK_GENERATE) return ST_OK;
    if (cfg->task != TASK_EMBED)
        st = model_head_read(&b->src, &b->spec, cfg->task == TASK_SCORE, &b->head, b->err, sizeof b->err);
    if (!st && cfg->task == TASK_SCORE && b->head->n_label != 1)
        st = wrong(b, "--task score: config.json: the model has %u labels, a score of pairs needs one",
                   b->head->n_label);
    if (!st && !b->head) st = model_pooling_load(&b->src, &b->spec, cfg->task == TASK_EMBED, &p, b->err, sizeof b->err);
    b->dense = p.dense;
    if (st || (cfg->task == TASK_AUTO && !b->head && !p.found && !encoder)) return st;
    if (cfg->lora)
        return wrong(b, "--enable-lora: adapters are served beside a model that generates, and this one makes %s",
                     b->head ? "scores" : "embeddings");
    if ((st = prompts(b))) return st;
    b->model.state_dim = b->spec.hidden;
    return b->head ? scores(b) : embeds(b, &p);
}

enum status boot_task_words(struct boot *b)
{
    struct model_head *h = b->head;
    for (uint32_t i = 0; h && i < h->n_row; i++) {
        if (!h->word[i]) continue;
        bool known = tok_id_of(b->tok, h->word[i], strlen(h->word[i]), &h->token[i]);
        if (!known || h->token[i] >= b->spec.vocab)
            return wrong(b, "tokenizer.json: has no token '%.60s', by whose logit pairs are to be scored", h->word[i]);
    }
    return ST_OK;
}
