/* rope: inverse frequencies as transformers computes them (modeling_rope_utils.py), in double, rounded once at the end.
 * Scaling types: linear (kaiokendev), llama3 (Llama 3.1), yarn (Peng et al. 2023, arXiv:2309.00071). longrope. Dynamic
 * is plain in the context that hf_rope.c gives it. */
#include "engine/model/model.h"
#include <math.h>

static double yarn_mscale(double scale, double mscale) { return scale <= 1 ? 1 : 0.1 * mscale * log(scale) + 1; }

/* The (fractional) pair whose wave makes n_turn turns over the original context. */
static double yarn_pair(const struct model_spec *s, double n_turn)
{
    return s->rot * log(s->rope_orig_context / (n_turn * 2 * M_PI)) / (2 * log(s->rope_theta));
}

static float rope_yarn(const struct model_spec *s, float *inv_freq)
{
    double low = yarn_pair(s, s->rope_beta_fast), high = yarn_pair(s, s->rope_beta_slow);
    if (s->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, s->rot - 1.0);
    if (low == high) high += 0.001;
    for (uint32_t i = 0; i < s->rot / 2; i++) {
        double f = pow(s->rope_theta, -2.0 * i / s->rot);
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1); /* 0: keep, fast waves; 1: stretch, slow ones */
        inv_freq[i] = (float)(f / s->rope_factor * ramp + f * (1 - ramp));
    }
    if (!isnan(s->rope_attn_factor)) return (float)s->rope_attn_factor;
    if (s->rope_mscale != 0 && s->rope_mscale_all_dim != 0)
        return (float)(yarn_mscale(s->rope_factor, s->rope_mscale) /
                       yarn_mscale(s->rope_factor, s->rope_mscale_all_dim));
    return (float)yarn_mscale(s->rope_factor, 1);
}

static double rope_llama3(const struct model_spec *s, double f)
{
    double turns = s->rope_orig_context * f / (2 * M_PI); /* over the original context */
    if (turns >= s->rope_high_freq) return f;
    if (turns < s->rope_low_freq) return f / s->rope_factor;
    double smooth = (turns - s->rope_low_freq) / (s->rope_high_freq - s->rope_low_freq);
    return (1 - smooth) * f / s->rope_factor + smooth * f;
}

/* LongRoPE (Ding et al. 2024, arXiv:2402.13753). The factor on cos and sin is that of both lists. */
static float rope_of_lists(const struct model_spec *s, float *inv_freq)
{
    const float *by = s->rope_is_long ? s->rope_long : s->rope_short;
    for (uint32_t i = 0; i < s->rot / 2; i++)
        inv_freq[i] = (float)(pow(s->rope_theta, -2.0 * i / s->rot) / (double)by[i]);
    if (!isnan(s->rope_attn_factor)) return (float)s->rope_attn_factor;
    return s->rope_factor <= 1 ? 1 : (float)sqrt(1 + log(s->rope_factor) / log(s->rope_orig_context));
}

void model_spec_serve(struct model_spec *s, uint32_t context)
{
    s->rope_is_long = s->rope_scaling == ROPE_SCALE_LONG && context > s->rope_orig_context;
}

float model_rope(const struct model_spec *s, float *inv_freq_out)
{
    if (s->rope_scaling == ROPE_SCALE_LONG) return rope_of_lists(s, inv_freq_out);
    if (s->rope_scaling == ROPE_SCALE_YARN) return rope_yarn(s, inv_freq_out);
    for (uint32_t i = 0; i < s->rot / 2; i++) {
        double f = pow(s->rope_theta, -2.0 * i / s->rot);
        if (s->rope_scaling == ROPE_SCALE_PROPORTIONAL) f = i < s->rope_turned ? f / s->rope_factor : 0;
        if (s->rope_scaling == ROPE_SCALE_LINEAR) f /= s->rope_factor;
        if (s->rope_scaling == ROPE_SCALE_LLAMA3) f = rope_llama3(s, f);
        inv_freq_out[i] = (float)f;
    }
    return 1;
}

void model_rope_local(const struct model_spec *s, float *inv_freq_out)
{
    for (uint32_t i = 0; i < s->rot_local / 2; i++)
        inv_freq_out[i] = (float)pow(s->rope_local_theta, -2.0 * i / s->rot_local);
}
