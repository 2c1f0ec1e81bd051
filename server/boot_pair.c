/* boot_pair: how a query and a document become one prompt: by the folder's files, else by the operator's word. */
#include "engine/model/source_json.h"
#include "server/boot_impl.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

/* What sentence-transformers says beside the template: its variables, and the instruction of requests without one. */
static enum status read_saved(struct boot *b)
{
    json_t                   **module = &b->pair_module;
    const struct model_prompt *any = b->prompts.of[PROMPT_ANY];
    enum status                st = source_json(&b->src, "sentence_bert_config.json", module, b->err, sizeof b->err);
    if (any) b->pair.instruction = any->text;
    const json_t *ways = json_object_get(*module, "modality_config");
    const json_t *vars = json_object_get(json_object_get(*module, "processing_kwargs"), "chat_template");
    b->pair_joins = json_is_object(ways) && !json_object_get(ways, "message");
    if (json_is_object(vars)) b->pair.vars = vars;
    return st;
}

/* Is it Qwen3-Reranker, whose folder has no template for pairs? config.json says so, or --task score of that family
 * does. */
static enum status is_qwen3_reranker(struct boot *b, bool *is_out)
{
    json_t     *config;
    enum status st = source_json(&b->src, "config.json", &config, b->err, sizeof b->err);
    bool        named = json_is_true(json_object_get(config, "is_original_qwen3_reranker"));
    json_decref(config);
    *is_out = named || (b->cfg->task == TASK_SCORE && !strncmp(b->spec.family->arch, "Qwen3", 5));
    return st;
}

static enum status own_template(struct boot *b)
{
    enum status st = tmpl_parse(pair_qwen3_reranker, strlen(pair_qwen3_reranker), &b->pair_tmpl, b->err, sizeof b->err);
    b->pair.tmpl = b->pair_tmpl;
    LOG_INFO("boot: pairs have the form of Qwen3-Reranker's model card");
    return st;
}

enum status boot_pair(struct boot *b)
{
    bool qwen = false;
    if (!b->head || b->head->n_label != 1) return ST_OK;
    enum status st = read_saved(b);
    if (!st) st = is_qwen3_reranker(b, &qwen);
    if (st) return st;
    b->model.pair = &b->pair;
    if (!b->pair_joins && pair_takes_roles(b->tmpl, b->tok, b->pair.vars)) {
        b->pair.tmpl = b->tmpl;
        LOG_INFO("boot: the chat template makes prompts of pairs");
        return ST_OK;
    }
    if (qwen) return own_template(b);
    if (b->cfg->task == TASK_SCORE && b->head->word[0] && !b->spec.classifies) {
        snprintf(
            b->err, sizeof b->err,
            "--task score: nothing says how a pair becomes a prompt; needed is --chat-template FILE, whose messages have "
            "the roles query and document");
        return ST_CONFIG;
    }
    if (!tok_pairs(b->tok)) b->model.pair = NULL;
    if (b->model.pair)
        LOG_WARN(
            "boot: the folder has no template for pairs: the tokenizer joins query and document; scores of a model that "
            "was trained with a template are noise without it (--chat-template)");
    else
        LOG_WARN("boot: neither a template nor the tokenizer has a form for pairs: /rerank and /score are refused");
    return ST_OK;
}
