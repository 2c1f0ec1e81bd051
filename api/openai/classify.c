#include "api/openai/embeddings.h"
#include "api/openai/openai.h"
#include "engine/model/head.h"
#include <string.h>

/* POST /classify: the probabilities of a model's labels for each text, in vLLM's form. */

static void class_settle(struct call *c, uint32_t i)
{
    double x[HEAD_LABELS_MAX];
    model_head_apply(c->model->head, c->choice[i].state, c->use_activation, x);
    memcpy(c->choice[i].state, x, c->model->head->n_label * sizeof *x);
}

/* Each text's part is written when its state comes, as those of embeddings are. */
static void class_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    const struct model_head *h = c->model->head;
    struct buf              *text = &c->choice[i].text;
    const double            *x = c->choice[i].state;
    uint32_t                 best = 0;
    (void)p;
    (void)out;
    for (uint32_t k = 1; k < h->n_label; k++)
        if (x[k] > x[best]) best = k;
    buf_clear(text);
    buf_printf(text, "%s{\"index\":%u,\"label\":", i ? "," : "", i);
    json_put_str(text, h->label[best], strlen(h->label[best]));
    buf_puts(text, ",\"probs\":[");
    for (uint32_t k = 0; k < h->n_label; k++) buf_printf(text, k ? ",%.9g" : "%.9g", x[k]);
    buf_printf(text, "],\"num_classes\":%u}", h->n_label);
}

#define CLASS_ROW                                                                                                      \
    .task = TASK_CLASSIFY, .id_prefix = "classify-", .fields = &embedding_fields, .max_tokens_param = "max_tokens",    \
    .top_logprobs_param = "logprobs", .max_tokens_default = 1, .too_long = embedding_too_long, .settle = class_settle, \
    .whole = { .text = embedding_no_text, .finish = class_finish, .usage = embedding_body }, .error = api_error_json,  \
    .error_stream = embedding_error

static const struct dialect of_input = {
    CLASS_ROW,           .fields_on = EMBED_ON_CLASS, .prompt_param = "input",
    .add_special = true, .parse = embedding_parse,    .prepare = embedding_prepare,
};

static const struct dialect of_messages = {
    CLASS_ROW,
    .fields_on = EMBED_ON_CLASS_MESSAGES,
    .prompt_param = "messages",
    .parse = embedding_chat_parse,
    .prepare = embedding_chat_prepare,
};

static enum status pick(const struct call_shape *s, const struct dialect **d_out, struct api_error *e)
{
    return embedding_pick(s, &of_input, &of_messages, d_out, e);
}

const struct dialect dialect_classify = { .pick = pick, .error = api_error_json, .error_stream = embedding_error };
