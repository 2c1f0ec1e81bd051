/* hf_rope: which inverse frequencies config.json asks for, and how many tokens of context that gives. */
#include "base/log.h"
#include "engine/model/hf.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The one set of RoPE parameters: rope_scaling (v4, and what v5 prefers when both are there) or rope_parameters (v5),
 * which may be nested per layer type as long as all say the same. */
static const json_t *hf_rope_object(struct hf *c)
{
    const json_t *rp = hf_value(c->text, "rope_scaling"), *v, *one = NULL;
    const char   *key = "rope_scaling", *name;
    if (!json_is_object(rp) || !json_object_size(rp)) {
        if (rp && !json_is_object(rp)) hf_fail(c, "rope_scaling is %s, must be an object", hf_show(rp).text);
        rp = hf_value(c->text, key = "rope_parameters");
    }
    if (!rp) return NULL;
    if (!json_is_object(rp)) {
        hf_fail(c, "%s is %s, must be an object", key, hf_show(rp).text);
        return NULL;
    }
    json_object_foreach((json_t *)(uintptr_t)rp, name, v) /* the macro wants it mutable and changes nothing */
    {
        if (!json_is_object(v)) continue;
        if (one && !json_equal(one, v)) {
            hf_fail(c, "%s differs between layer types (%s), one set for all layers is supported", key, name);
            return NULL;
        }
        one = v;
    }
    return one ? one : rp;
}

/* The parameters of layers without a window, where layers with one have their own: rope_scaling (v4), or what
 * rope_parameters (v5) names full_attention. Sets rope_local_theta. */
static const json_t *hf_rope_full(struct hf *c)
{
    struct model_spec *s = c->spec;
    const json_t *full = hf_value(c->text, "rope_scaling"), *all = hf_value(c->text, "rope_parameters"), *local = NULL;
    if (full && !json_is_object(full)) hf_fail(c, "rope_scaling is %s, must be an object", hf_show(full).text);
    if (all && json_object_size(all) && !hf_value(all, "full_attention") && !hf_value(all, "sliding_attention"))
        hf_fail(c, "rope_parameters is %s, must hold full_attention and sliding_attention", hf_show(all).text);
    local = hf_value(all, "sliding_attention");
    if (!full) full = hf_value(all, "full_attention");
    const json_t *type = hf_value(local, "rope_type");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "default") != 0))
        hf_fail(c, "rope_type of sliding_attention is %s, supported is default", hf_show(type).text);
    if (c->st) return NULL;
    const json_t *theta = hf_value(local, "rope_theta");
    if (!theta) theta = hf_value(c->text, "rope_local_base_freq");
    if (!theta) theta = hf_value(c->text, "local_rope_theta");
    s->rope_local_theta =
        hf_num_of(c, theta, "rope_theta of sliding_attention", 1.001, 1e30, s->family->def->rope_local_theta);
    return full;
}

static const json_t *hf_rope_value(const struct hf *c, const json_t *rp, const char *key, const char *alias)
{
    const json_t *v = hf_value(rp, key);
    if (!v) v = hf_value(c->text, key);
    return v || !alias ? v : hf_value(c->text, alias);
}

/* Under "dynamic", some checkpoints mean another base: a fixed alpha stretches it, and no length changes it. 0:
 * none. */
static void hf_rope_alpha(struct hf *c, const json_t *rp)
{
    struct model_spec *s = c->spec;
    double             alpha = hf_num(c, rp, "alpha", 0, 1e9, 0);
    if (alpha != 0 && s->head_dim > 2) s->rope_theta *= pow(alpha, s->head_dim / (s->head_dim - 2.0));
}

/* A list of factors, one for each pair that rotates -> *list_out, owned by the spec. */
static void hf_rope_list(struct hf *c, const json_t *rp, const char *key, float **list_out)
{
    const json_t *list = hf_value(rp, key);
    uint32_t      n = c->spec->rot / 2;
    if (c->st) return;
    if (!json_is_array(list) || json_array_size(list) != n) {
        hf_fail(c, "%s of rope type longrope has %zu numbers, must be a list of %u, one for each pair that rotates",
                key, json_array_size(list), n);
        return;
    }
    if (!(*list_out = calloc(n, sizeof **list_out))) c->st = ST_NOMEM;
    for (uint32_t i = 0; i < n && !c->st; i++)
        (*list_out)[i] = (float)hf_num_of(c, json_array_get(list, i), key, 1e-6, 1e6, 1);
}

/* max_position_embeddings is the stretched context. The one before stretching is a key beside the object: the class has
 * it in any case, so that transformers never reads it inside. */
static void hf_rope_long(struct hf *c, const json_t *rp)
{
    struct model_spec *s = c->spec;
    s->rope_orig_context = hf_size(c, "original_max_position_embeddings", 2, 1 << 30, s->family->def->context);
    if (c->st) return;
    s->rope_factor = hf_num(c, rp, "factor", 1e-3, 1e6, (double)s->context / s->rope_orig_context);
    s->rope_attn_factor = hf_num(c, rp, "attention_factor", 0, 1e3, (double)NAN);
    hf_rope_list(c, rp, "short_factor", &s->rope_short);
    hf_rope_list(c, rp, "long_factor", &s->rope_long);
    model_spec_serve(s, s->context);
}

/* GTE's first files: the base grows by the factor, and positions shrink by what makes of that the factor for the
 * slowest pair. The context that these files state is the one after stretching. */
static void hf_rope_ntk(struct hf *c, const json_t *rp)
{
    struct model_spec *s = c->spec;
    const json_t      *mixed = hf_value(rp, "mixed_b");
    double             factor = hf_num(c, rp, "factor", 1, 1e6, 1);
    if (!hf_value(rp, "factor")) hf_fail(c, "factor of rope type ntk is missing");
    if (mixed) hf_fail(c, "mixed_b of rope type ntk is %s, supported is none", hf_show(mixed).text);
    s->rope_scaling = ROPE_SCALE_LINEAR;
    s->rope_factor = pow(factor, 2.0 / s->head_dim);
    s->rope_theta *= factor;
}

static void hf_rope_scaling(struct hf *c, const json_t *rp, const char *type)
{
    static const struct {
        const char             *name;
        enum model_rope_scaling scaling;
    } types[] = {
        { "default", ROPE_SCALE_DEFAULT },
        { "linear", ROPE_SCALE_LINEAR },
        { "llama3", ROPE_SCALE_LLAMA3 },
        { "yarn", ROPE_SCALE_YARN },
        { "dynamic", ROPE_SCALE_DYNAMIC },
        { "longrope", ROPE_SCALE_LONG },
        { "proportional", ROPE_SCALE_PROPORTIONAL },
    };
    enum { N_TYPE = sizeof types / sizeof *types };
    struct model_spec *s = c->spec;
    bool               lists = s->family->longrope; /* of other families longrope is not known */
    size_t             i = 0;
    if (s->family->gte && !strcmp(type, "ntk")) {
        hf_rope_ntk(c, rp);
        return;
    }
    if (lists && (!strcmp(type, "su") || !strcmp(type, "yarn"))) type = "longrope";
    while (i < N_TYPE && strcmp(types[i].name, type)) i++;
    bool known = i < N_TYPE && (types[i].scaling != ROPE_SCALE_LONG || lists);
    if (known && s->family->gemma4 != (types[i].scaling == ROPE_SCALE_PROPORTIONAL)) {
        known = s->family->gemma4 && types[i].scaling == ROPE_SCALE_DEFAULT;
        if (s->family->gemma4 && !known) {
            hf_fail(c, "rope_type is \"%.40s\", supported of %s are default and proportional", type, s->family->arch);
            return;
        }
    }
    if (!known) {
        hf_fail(c, "rope_type is \"%.40s\", supported are default, linear, llama3, yarn and dynamic", type);
        return;
    }
    if (s->family->rope_part && types[i].scaling != ROPE_SCALE_DEFAULT && types[i].scaling != ROPE_SCALE_LONG) {
        hf_fail(c, "rope_type is \"%.40s\", supported of %s %s", type, s->family->arch,
                lists ? "are default and longrope" : "is default");
        return;
    }
    s->rope_scaling = types[i].scaling;
    if (s->rope_scaling == ROPE_SCALE_DEFAULT || s->rope_scaling == ROPE_SCALE_LONG) return;
    if (s->rope_scaling == ROPE_SCALE_PROPORTIONAL) {
        s->rope_factor = hf_num(c, rp, "factor", 1e-3, 1e6, 1);
        return;
    }
    if (s->rope_scaling == ROPE_SCALE_DYNAMIC) {
        /* Up to max_position_embeddings transformers computes plain frequencies and reads the factor alone. Beyond that
         * every length has frequencies of its own, which keys in the cache cannot follow: the context ends there. */
        if (!hf_value(rp, "factor")) hf_fail(c, "factor of rope type dynamic is missing");
        s->rope_factor = hf_num(c, rp, "factor", 1e-3, 1e6, 1);
        if (s->family->rope_alpha) hf_rope_alpha(c, rp);
        return;
    }

    /* outside the object it has priority, as in transformers */
    const json_t *orig = hf_value(c->text, "original_max_position_embeddings");
    if (!orig) orig = hf_value(rp, "original_max_position_embeddings");
    s->rope_orig_context = (uint32_t)hf_num_of(c, orig, "original_max_position_embeddings", 1, 1 << 30, s->context);
    const json_t *factor = hf_value(rp, "factor");
    if (factor || s->rope_scaling != ROPE_SCALE_YARN) {
        if (!factor) hf_fail(c, "factor of rope type %s is missing", type);
        s->rope_factor = hf_num_of(c, factor, "rope factor", 1e-3, 1e6, 1);
    } else {
        s->rope_factor = (double)s->context / s->rope_orig_context;
    }
    if (s->rope_scaling == ROPE_SCALE_LLAMA3) {
        if (!hf_value(rp, "low_freq_factor") || !hf_value(rp, "high_freq_factor"))
            hf_fail(c, "low_freq_factor or high_freq_factor is missing");
        s->rope_low_freq = hf_num(c, rp, "low_freq_factor", 1e-6, 1e6, 1);
        s->rope_high_freq = hf_num(c, rp, "high_freq_factor", 1e-6, 1e6, 4);
        if (!c->st && s->rope_high_freq < s->rope_low_freq)
            hf_fail(c, "high_freq_factor is %g, must not be less than low_freq_factor, which is %g", s->rope_high_freq,
                    s->rope_low_freq);
        return;
    }
    /* max_position_embeddings of a linear or yarn model is the length before stretching; of llama3, and of families
     * with a base of their own for local layers, the one after */
    double context = (s->rope_scaling == ROPE_SCALE_YARN ? s->rope_orig_context : s->context) * s->rope_factor;
    if (context < 1 || context > 1 << 30)
        hf_fail(c, "rope factor %g makes a context of %g tokens", s->rope_factor, context);
    if (c->st || s->rope_scaling == ROPE_SCALE_LINEAR) {
        if (!c->st && !s->family->rope_local) s->context = (uint32_t)context;
        return;
    }
    s->context = (uint32_t)context;
    s->rope_beta_fast = hf_num(c, rp, "beta_fast", 0, 1e6, 32);
    s->rope_beta_slow = hf_num(c, rp, "beta_slow", 0, 1e6, 1);
    if (s->rope_beta_fast == 0) s->rope_beta_fast = 32; /* "or 32" in transformers */
    if (s->rope_beta_slow == 0) s->rope_beta_slow = 1;
    s->rope_attn_factor = hf_num(c, rp, "attention_factor", 0, 1e3, (double)NAN);
    s->rope_mscale = hf_num(c, rp, "mscale", 0, 1e3, 0);
    s->rope_mscale_all_dim = hf_num(c, rp, "mscale_all_dim", 0, 1e3, 0);
    s->rope_truncate = hf_flag(c, hf_value(rp, "truncate"), "truncate", true);
}

/* The part of a head that rotates where partial_rotary_factor is absent. */
static double hf_rope_part_absent(struct hf *c)
{
    struct model_spec *s = c->spec;
    double             part = s->family->def->rope_part;
    if (s->family->rope_part && hf_value(c->text, "rotary_dim"))
        return (double)hf_size(c, "rotary_dim", 2, s->head_dim, HF_REQUIRED) / s->head_dim;
    return part != 0 ? part : 1;
}

/* How many dimensions of a head rotate. In transformers the attention of these families rotates whole heads: with the
 * default type it does not look at partial_rotary_factor (nor at rotary_dim), and with any other the factor makes a
 * cosine that does not fit the head. */
static void hf_rope_part(struct hf *c, const json_t *rp)
{
    struct model_spec *s = c->spec;
    double part = hf_num_of(c, hf_rope_value(c, rp, "partial_rotary_factor", NULL), "partial_rotary_factor", 0, 1,
                            hf_rope_part_absent(c));
    s->rot = s->full_head_dim ? s->full_head_dim : s->head_dim;
    s->rot_local = s->head_dim;
    if (s->rope_scaling == ROPE_SCALE_PROPORTIONAL) {
        s->rope_turned = (uint32_t)(s->rot * part / 2);
        return;
    }
    if (s->family->rope_part) {
        s->rot = (uint32_t)(s->head_dim * part);
        if (s->rot < 2 || s->rot % 2)
            hf_fail(c, "partial_rotary_factor %g makes %u of %u dimensions rotate, must be an even number above 0",
                    part, s->rot, s->head_dim);
        return;
    }
    if (c->st || (uint32_t)(s->head_dim * part) == s->head_dim) return;
    if (s->rope_scaling == ROPE_SCALE_DEFAULT) {
        LOG_INFO(
            "model: config.json: partial_rotary_factor %g has no effect: %s rotates whole heads, as in transformers",
            part, s->family->arch);
        return;
    }
    hf_fail(
        c,
        "partial_rotary_factor is %g beside a rope_type other than default: %s rotates whole heads, and transformers computes nothing "
        "with this pair; remove one of them",
        part, s->family->arch);
}

static bool hf_rope_served(const struct model_family *f, const char *key)
{
    if (f->longrope && strstr(key, "_factor")) return true;
    return (f->mrope && !strcmp(key, "mrope_section")) || (f->q_scale && !strcmp(key, "llama_4_scaling_beta"));
}

/* The same of layers that do not rotate, where the first token counts as 1. Files have a number instead of true. */
static void hf_q_scale_nope(struct hf *c)
{
    static const char  tuning[] = "attn_temperature_tuning";
    struct model_spec *s = c->spec;
    const json_t      *v = hf_value(c->text, tuning);
    if (json_is_integer(v) ? !json_integer_value(v) : !hf_flag(c, v, tuning, true)) return;
    s->q_beta = hf_num(c, c->text, "attn_scale", 0, 1e3, 0.1);
    s->q_period = hf_size(c, "floor_scale", 1, 1 << 30, 8192);
    s->q_shift = 1;
    s->q_nope = true;
}

/* Queries that grow with their position: by how much, and after how many tokens. */
static void hf_q_scale(struct hf *c, const json_t *rp)
{
    static const char  period[] = "original_max_position_embeddings";
    struct model_spec *s = c->spec;
    if (s->family->q_scale_nope) hf_q_scale_nope(c);
    if (!s->family->q_scale) return;
    s->q_beta = hf_num(c, rp, "llama_4_scaling_beta", 0, 1e3, 0);
    if (s->q_beta == 0) return;
    if (!hf_value(rp, period)) hf_fail(c, "%s is missing beside llama_4_scaling_beta", period);
    s->q_period = (uint32_t)hf_num(c, rp, period, 1, 1 << 30, 1);
}

static void hf_rope_of(struct hf *c, const json_t *rp)
{
    static const char *const refused[] = { "llama_4_scaling_beta", "mrope_section", "short_factor", "long_factor" };
    static const char *const interleaved[] = { "rope_interleave", "rope_interleaved", "interleaved_rope" };
    struct model_spec       *s = c->spec;
    for (size_t i = 0; rp && i < sizeof refused / sizeof *refused; i++)
        if (hf_value(rp, refused[i]) && !hf_rope_served(s->family, refused[i]))
            hf_fail(c, "%s of the RoPE parameters is %s, which is not supported", refused[i],
                    hf_show(hf_value(rp, refused[i])).text);
    for (size_t i = 0; i < sizeof interleaved / sizeof *interleaved; i++)
        if (json_is_true(hf_value(c->text, interleaved[i])) && !s->family->rope_pairs)
            hf_fail(c, "%s is true, only pairs (i, i + half) are supported", interleaved[i]);

    const json_t *theta = hf_rope_value(c, rp, "rope_theta", "rotary_emb_base");
    if (!theta) theta = hf_value(c->text, "global_rope_theta");
    s->rope_theta = hf_num_of(c, theta, "rope_theta", 1, 1e30, s->family->def->rope_theta);
    if (s->rope_theta == 1) hf_fail(c, "rope_theta is 1, must be more");
    if (s->family->rope_local && s->rope_local_theta == 0) s->rope_local_theta = s->rope_theta;
    const json_t *type = hf_value(rp, "rope_type");
    if (!type) type = hf_value(rp, "type");
    if (type && !json_is_string(type)) hf_fail(c, "rope_type is %s, must be a name", hf_show(type).text);
    if (c->st) return;
    hf_rope_scaling(c, rp, type ? json_string_value(type) : "default");
    hf_rope_part(c, rp);
    if (s->rope_scaling == ROPE_SCALE_LONG) hf_rope_long(c, rp);
    hf_q_scale(c, rp);
}

void hf_rope(struct hf *c)
{
    const char   *absent = c->spec->family->def->rope;
    const json_t *rp = c->spec->family->rope_local ? hf_rope_full(c) : hf_rope_object(c);
    json_t       *own = rp || !absent ? NULL : json_parse(absent, strlen(absent), 0, NULL);
    if (!rp && absent && !own)
        c->st = ST_NOMEM;
    else
        hf_rope_of(c, rp ? rp : own);
    json_decref(own);
}
