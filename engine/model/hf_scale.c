/* hf_scale: the factors by which a family multiplies its embedding, scores, residuals and logits. */
#include "base/dtype.h"
#include "engine/model/hf.h"
#include <math.h>

#define FACTOR_MAX 1e6

/* A soft cap: null means none, where an absent key means the family's default. */
static float hf_cap(struct hf *c, const char *key, float absent)
{
    if (json_is_null(json_object_get(c->text, key))) return 0;
    return (float)hf_num(c, c->text, key, 1e-3, FACTOR_MAX, (double)absent);
}

static void hf_gemma(struct hf *c)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    s->embed_scale = sqrtf((float)s->hidden);
    if (s->family->gemma4) {
        s->attn_scale = 1;
        s->logit_cap = hf_cap(c, "final_logit_softcapping", def->logit_cap);
        return;
    }
    double scalar = hf_num(c, c->text, "query_pre_attn_scalar", 1e-3, FACTOR_MAX, (double)def->query_scalar);
    s->attn_scale = (float)(1 / sqrt(scalar));
    s->attn_cap = hf_cap(c, "attn_logit_softcapping", def->attn_cap);
    s->logit_cap = hf_cap(c, "final_logit_softcapping", def->logit_cap);
    bool both_ways = hf_flag(c, hf_value(c->text, "use_bidirectional_attention"), "use_bidirectional_attention", false);
    if (both_ways && !model_is_encoder(s))
        hf_fail(c, "use_bidirectional_attention is true, only causal attention is supported");
}

void hf_scale(struct hf *c)
{
    struct model_spec *s = c->spec;
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    s->attn_scale = 1 / sqrtf((float)s->head_dim);
    if (s->family->gemma) hf_gemma(c);
    if (s->family->logit_scale) {
        s->logit_scale = (float)hf_num(c, c->text, "logit_scale", 1e-6, FACTOR_MAX, 0.0625);
        if (!s->family->qk_norm_key && hf_flag(c, hf_value(c->text, "use_qk_norm"), "use_qk_norm", false))
            hf_fail(c, "use_qk_norm is true, which %s does not support", s->family->arch);
    }
    if (!s->family->scales) return;
    s->embed_scale = (float)hf_num(c, c->text, "embedding_multiplier", 1e-6, FACTOR_MAX, 1);
    s->attn_scale = (float)hf_num(c, c->text, "attention_multiplier", 1e-6, FACTOR_MAX, 1);
    s->residual_scale = (float)hf_num(c, c->text, "residual_multiplier", 1e-6, FACTOR_MAX, 1);
    s->logit_scale = (float)(1 / hf_num(c, c->text, "logits_scaling", 1e-6, FACTOR_MAX, 1));
}

void hf_embed_round(struct model_spec *s)
{
    float *of[] = { &s->embed_scale, &s->ple_scale };
    s->ple_scale = sqrtf((float)s->ple_dim);
    for (size_t i = 0; s->family->gemma && i < sizeof of / sizeof *of; i++) {
        if (s->dtype == DT_BF16) *of[i] = bf16_to_f32(f32_to_bf16(*of[i]));
        if (s->dtype == DT_F16) *of[i] = f16_to_f32(f32_to_f16(*of[i]));
    }
}
