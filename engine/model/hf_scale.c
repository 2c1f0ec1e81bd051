/* hf_scale: the factors by which a family multiplies its embedding, scores, residuals and logits. */
#include "engine/model/hf.h"
#include <math.h>

#define FACTOR_MAX 1e6

void hf_scale(struct hf *c)
{
    struct model_spec *s = c->spec;
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    s->attn_scale = 1 / sqrtf((float)s->head_dim);
    if (!s->family->scales) return;
    s->embed_scale = (float)hf_num(c, c->text, "embedding_multiplier", 1e-6, FACTOR_MAX, 1);
    s->attn_scale = (float)hf_num(c, c->text, "attention_multiplier", 1e-6, FACTOR_MAX, 1);
    s->residual_scale = (float)hf_num(c, c->text, "residual_multiplier", 1e-6, FACTOR_MAX, 1);
    s->logit_scale = (float)(1 / hf_num(c, c->text, "logits_scaling", 1e-6, FACTOR_MAX, 1));
}
