/* hf_config: config.json and generation_config.json -> model_spec.
 * Keys and defaults as transformers 4 and 5 read them; whatever this engine cannot compute exactly is refused, with one line
 * that names the key, what was found and what is allowed. A key that changes nothing here is not looked at. */
#include "base/json.h"
#include "base/log.h"
#include "engine/model/bind.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20, SIZE_MAX_ALLOWED = 1 << 24, LAYERS_MAX = 4096, EXPERTS_MAX = 4096, HEAD_DIM_MAX = 4096 };

struct cfg {
    const char        *file;
    const json_t      *top;  /* the file      */
    const json_t      *text; /* its text part: text_config of a wrapper, else top */
    struct model_spec *spec;
    char              *err;
    size_t             err_bytes;
    enum status        st; /* the first failure sticks, so that a row of reads needs one check */
};

__attribute__((format(printf, 2, 3))) static void cfg_fail(struct cfg *c, const char *fmt, ...)
{
    if (c->st) return;
    c->st = ST_CONFIG;
    size_t  n = (size_t)snprintf(c->err, c->err_bytes, "%s: ", c->file);
    va_list ap;
    va_start(ap, fmt);
    if (n < c->err_bytes) vsnprintf(c->err + n, c->err_bytes - n, fmt, ap);
    va_end(ap);
}

/* The value as the file has it, cut to what fits a message. */
struct shown {
    char text[72];
};
static struct shown show(const json_t *v)
{
    struct shown s = { "missing" };
    if (!v) return s;
    size_t n = json_dumpb(v, s.text, sizeof s.text - 4, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (n > sizeof s.text - 4) {
        n = sizeof s.text - 4;
        memcpy(s.text + n, "...", 3);
        n += 3;
    }
    s.text[n] = 0;
    return s;
}

/* null counts as absent, as in Python's None */
static const json_t *value(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}
/* the text part's own word, else that of the file around it */
static const json_t *value_or_top(const struct cfg *c, const char *key)
{
    const json_t *v = value(c->text, key);
    return v ? v : value(c->top, key);
}

static double num_of(struct cfg *c, const json_t *v, const char *key, double min, double max, double absent)
{
    if (!v) return absent;
    double d = json_is_number(v) ? json_number_value(v) : (double)NAN;
    if (d >= min && d <= max) return d;
    cfg_fail(c, "%s is %s, must be a number from %g to %g", key, show(v).text, min, max);
    return absent;
}
static double get_num(struct cfg *c, const json_t *obj, const char *key, double min, double max, double absent)
{
    return num_of(c, value(obj, key), key, min, max, absent);
}

enum { REQUIRED = -1 };
static int64_t get_int(struct cfg *c, const json_t *obj, const char *key, int64_t min, int64_t max, int64_t absent)
{
    int64_t     i = 0;
    enum status st = json_get_int(obj, key, min, max, &i);
    if (st == ST_OK) return i;
    if (st == ST_NOT_FOUND && absent != REQUIRED) return absent;
    cfg_fail(c, "%s is %s, must be a whole number from %lld to %lld", key, show(json_object_get(obj, key)).text, (long long)min,
             (long long)max);
    return min;
}
static uint32_t get_size(struct cfg *c, const char *key, uint32_t min, uint32_t max, int64_t absent)
{
    return (uint32_t)get_int(c, c->text, key, min, max, absent);
}
static bool get_flag(struct cfg *c, const json_t *v, const char *key, bool absent)
{
    if (!v) return absent;
    if (!json_is_boolean(v)) cfg_fail(c, "%s is %s, must be true or false", key, show(v).text);
    return json_is_true(v);
}
static const char *get_str(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_string(v) ? json_string_value(v) : NULL;
}

/* ---------------------------------------------------------------- which family */

static const char *first_arch(const json_t *obj)
{
    const json_t *a = json_object_get(obj, "architectures");
    return json_is_array(a) ? json_string_value(json_array_get(a, 0)) : NULL; /* of NULL or another type: NULL */
}

static void cfg_family(struct cfg *c)
{
    const char   *arch = first_arch(c->top);
    const json_t *text = value(c->top, "text_config");
    c->text = c->top;
    c->spec->family = model_family_find(arch, arch ? NULL : get_str(c->top, "model_type"));
    if (!c->spec->family && json_is_object(text)) {
        const char *inner = first_arch(text);
        c->spec->family = model_family_find(inner, inner ? NULL : get_str(text, "model_type"));
        c->spec->wrapper = c->spec->family != NULL;
        if (c->spec->wrapper) c->text = text;
    }
    if (c->spec->family) return;
    char list[512];
    if (arch)
        cfg_fail(c, "architectures[0] is \"%.80s\", supported are %s", arch, model_family_list(list, sizeof list));
    else
        cfg_fail(c, "architectures is missing and model_type is %s, supported are %s", show(json_object_get(c->top, "model_type")).text,
                 model_family_list(list, sizeof list));
}

/* ---------------------------------------------------------------- sizes */

static void cfg_sizes(struct cfg *c)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    s->hidden = get_size(c, "hidden_size", 1, SIZE_MAX_ALLOWED, REQUIRED);
    s->n_layer = get_size(c, "num_hidden_layers", 1, LAYERS_MAX, REQUIRED);
    s->n_head = get_size(c, "num_attention_heads", 1, 1 << 16, REQUIRED);
    s->n_kv_head = get_size(c, "num_key_value_heads", 1, 1 << 16, def->n_kv_head ? def->n_kv_head : s->n_head);
    s->inter = get_size(c, "intermediate_size", 1, SIZE_MAX_ALLOWED, REQUIRED);
    s->vocab = get_size(c, "vocab_size", 1, SIZE_MAX_ALLOWED, REQUIRED);
    s->context = get_size(c, "max_position_embeddings", 1, 1 << 30, def->context);
    if (c->st) return;
    if (s->n_head % s->n_kv_head) {
        cfg_fail(c, "num_key_value_heads is %u, must divide num_attention_heads, which is %u", s->n_kv_head, s->n_head);
        return;
    }
    if (!value(c->text, "head_dim") && !def->head_dim && s->hidden % s->n_head) {
        cfg_fail(c, "num_attention_heads is %u, must divide hidden_size, which is %u, when head_dim is not given", s->n_head, s->hidden);
        return;
    }
    s->head_dim = get_size(c, "head_dim", 1, HEAD_DIM_MAX, def->head_dim ? def->head_dim : s->hidden / s->n_head);
    if (!c->st && s->head_dim % 2) cfg_fail(c, "head_dim is %u, must be even", s->head_dim);
    if (!c->st && (uint64_t)s->n_head * s->head_dim > SIZE_MAX_ALLOWED)
        cfg_fail(c, "num_attention_heads x head_dim is %u x %u, at most %d", s->n_head, s->head_dim, SIZE_MAX_ALLOWED);

    const json_t            *v = NULL;
    const char              *key = NULL;
    static const char *const eps[] = { "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps" };
    for (size_t i = 0; i < sizeof eps / sizeof *eps && !v; i++) v = value(c->text, key = eps[i]);
    s->rms_eps = (float)num_of(c, v, key, 1e-30, 1, (double)def->rms_eps);
}

static void cfg_moe(struct cfg *c)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    if (s->family->ffn != FFN_MOE || c->st) return;
    const char *key = value(c->text, "num_local_experts") ? "num_local_experts" : "num_experts";
    s->n_expert = get_size(c, key, 0, EXPERTS_MAX, def->n_expert);
    s->top_k_expert = get_size(c, "num_experts_per_tok", 1, EXPERTS_MAX, def->top_k_expert);
    s->moe_inter = get_size(c, "moe_intermediate_size", 1, SIZE_MAX_ALLOWED, def->moe_inter ? def->moe_inter : s->inter);
    s->norm_topk = get_flag(c, value(c->text, "norm_topk_prob"), "norm_topk_prob", def->norm_topk) || s->family->norm_topk;
    if (c->st) return;
    if (s->n_expert && s->top_k_expert > s->n_expert) {
        cfg_fail(c, "num_experts_per_tok is %u, at most %s, which is %u", s->top_k_expert, key, s->n_expert);
        return;
    }
    uint32_t      step = get_size(c, "decoder_sparse_step", 1, LAYERS_MAX, 1);
    const json_t *only = value(c->text, "mlp_only_layers"), *v;
    size_t        i;
    if (only && !json_is_array(only)) cfg_fail(c, "mlp_only_layers is %s, must be a list of layer numbers", show(only).text);
    if (c->st) return;
    if (!(s->layer_moe = calloc(s->n_layer, 1))) {
        c->st = ST_NOMEM;
        return;
    }
    for (uint32_t l = 0; l < s->n_layer; l++) s->layer_moe[l] = s->n_expert > 0 && (l + 1) % step == 0;
    json_array_foreach(only, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= s->n_layer) {
            cfg_fail(c, "mlp_only_layers[%zu] is %s, must be a layer from 0 to %u", i, show(v).text, s->n_layer - 1);
            return;
        }
        s->layer_moe[json_integer_value(v)] = 0;
    }
}

/* ---------------------------------------------------------------- sliding window */

static void cfg_layer_type(struct cfg *c, uint32_t l, const json_t *v)
{
    const char *t = json_is_string(v) ? json_string_value(v) : "";
    if (!strcmp(t, "full_attention")) return;
    if (strcmp(t, "sliding_attention"))
        cfg_fail(c, "layer_types[%u] is %s, supported are full_attention and sliding_attention", l, show(v).text);
    else if (!c->spec->window)
        cfg_fail(c, "layer_types[%u] is sliding_attention, but %s", l,
                 c->spec->family->window ? "sliding_window is not set or not used" : "this architecture has no sliding window");
    else
        c->spec->layer_windowed[l] = 1;
}

static void cfg_window(struct cfg *c)
{
    struct model_spec         *s = c->spec;
    const struct model_family *f = s->family;
    if (c->st) return;
    if (f->window) {
        /* here null is a value: no window, where absent means the default */
        if (!json_is_null(json_object_get(c->text, "sliding_window")))
            s->window = get_size(c, "sliding_window", 1, 1 << 30, f->def->window);
        if (f->window_gate && !get_flag(c, value(c->text, "use_sliding_window"), "use_sliding_window", false)) s->window = 0;
    }
    const json_t *types = value(c->text, "layer_types"), *v;
    size_t        i;
    if (types && (!json_is_array(types) || json_array_size(types) != s->n_layer)) {
        cfg_fail(c, "layer_types must be a list of num_hidden_layers, %u, names", s->n_layer);
        return;
    }
    if (!(s->layer_windowed = calloc(s->n_layer, 1))) {
        c->st = ST_NOMEM;
        return;
    }
    if (types) {
        json_array_foreach(types, i, v) cfg_layer_type(c, (uint32_t)i, v);
    } else if (s->window) {
        uint32_t first = f->window_layers ? get_size(c, "max_window_layers", 0, LAYERS_MAX, f->def->max_window_layers) : 0;
        for (uint32_t l = first; l < s->n_layer; l++) s->layer_windowed[l] = 1;
    }
}

/* ---------------------------------------------------------------- RoPE */

/* The one set of RoPE parameters: rope_scaling (v4, and what v5 prefers when both are there) or rope_parameters (v5), which may
 * be nested per layer type as long as all say the same. */
static const json_t *rope_object(struct cfg *c)
{
    const json_t *rp = value(c->text, "rope_scaling"), *v, *one = NULL;
    const char   *key = "rope_scaling", *name;
    if (!json_is_object(rp) || !json_object_size(rp)) {
        if (rp && !json_is_object(rp)) cfg_fail(c, "rope_scaling is %s, must be an object", show(rp).text);
        rp = value(c->text, key = "rope_parameters");
    }
    if (!rp) return NULL;
    if (!json_is_object(rp)) {
        cfg_fail(c, "%s is %s, must be an object", key, show(rp).text);
        return NULL;
    }
    json_object_foreach((json_t *)(uintptr_t)rp, name, v) /* the macro wants it mutable and changes nothing */
    {
        if (!json_is_object(v)) continue;
        if (one && !json_equal(one, v)) {
            cfg_fail(c, "%s differs between layer types (%s), one set for all layers is supported", key, name);
            return NULL;
        }
        one = v;
    }
    return one ? one : rp;
}

static const json_t *rope_value(const struct cfg *c, const json_t *rp, const char *key, const char *alias)
{
    const json_t *v = value(rp, key);
    if (!v) v = value(c->text, key);
    return v || !alias ? v : value(c->text, alias);
}

static void cfg_rope_scaling(struct cfg *c, const json_t *rp, const char *type)
{
    static const struct {
        const char             *name;
        enum model_rope_scaling scaling;
    } types[] = {
        { "default", ROPE_SCALE_DEFAULT }, { "linear", ROPE_SCALE_LINEAR }, { "llama3", ROPE_SCALE_LLAMA3 }, { "yarn", ROPE_SCALE_YARN }
    };
    struct model_spec *s = c->spec;
    size_t             i = 0;
    while (i < 4 && strcmp(types[i].name, type)) i++;
    if (i == 4) {
        cfg_fail(c, "rope_type is \"%.40s\", supported are default, linear, llama3 and yarn", type);
        return;
    }
    s->rope_scaling = types[i].scaling;
    if (s->rope_scaling == ROPE_SCALE_DEFAULT) return;

    const json_t *orig = value(c->text, "original_max_position_embeddings"); /* outside the object it has priority, as in transformers */
    if (!orig) orig = value(rp, "original_max_position_embeddings");
    s->rope_orig_context = (uint32_t)num_of(c, orig, "original_max_position_embeddings", 1, 1 << 30, s->context);
    const json_t *factor = value(rp, "factor");
    if (factor || s->rope_scaling != ROPE_SCALE_YARN) {
        if (!factor) cfg_fail(c, "factor of rope type %s is missing", type);
        s->rope_factor = num_of(c, factor, "rope factor", 1e-3, 1e6, 1);
    } else {
        s->rope_factor = (double)s->context / s->rope_orig_context;
    }
    if (s->rope_scaling == ROPE_SCALE_LLAMA3) {
        if (!value(rp, "low_freq_factor") || !value(rp, "high_freq_factor")) cfg_fail(c, "low_freq_factor or high_freq_factor is missing");
        s->rope_low_freq = get_num(c, rp, "low_freq_factor", 1e-6, 1e6, 1);
        s->rope_high_freq = get_num(c, rp, "high_freq_factor", 1e-6, 1e6, 4);
        if (!c->st && s->rope_high_freq <= s->rope_low_freq)
            cfg_fail(c, "high_freq_factor is %g, must be more than low_freq_factor, which is %g", s->rope_high_freq, s->rope_low_freq);
        return;
    }
    /* max_position_embeddings of a linear or yarn model is the length before stretching; of llama3 the one after */
    double context = (s->rope_scaling == ROPE_SCALE_YARN ? s->rope_orig_context : s->context) * s->rope_factor;
    if (context < 1 || context > 1 << 30) cfg_fail(c, "rope factor %g makes a context of %g tokens", s->rope_factor, context);
    if (c->st || s->rope_scaling == ROPE_SCALE_LINEAR) {
        if (!c->st) s->context = (uint32_t)context;
        return;
    }
    s->context = (uint32_t)context;
    s->rope_beta_fast = get_num(c, rp, "beta_fast", 0, 1e6, 32);
    s->rope_beta_slow = get_num(c, rp, "beta_slow", 0, 1e6, 1);
    if (s->rope_beta_fast == 0) s->rope_beta_fast = 32; /* "or 32" in transformers */
    if (s->rope_beta_slow == 0) s->rope_beta_slow = 1;
    s->rope_attn_factor = get_num(c, rp, "attention_factor", 0, 1e3, (double)NAN);
    s->rope_mscale = get_num(c, rp, "mscale", 0, 1e3, 0);
    s->rope_mscale_all_dim = get_num(c, rp, "mscale_all_dim", 0, 1e3, 0);
    s->rope_truncate = get_flag(c, value(rp, "truncate"), "truncate", true);
}

static void cfg_rope(struct cfg *c)
{
    static const char *const refused[] = { "llama_4_scaling_beta", "mrope_section", "short_factor", "long_factor" };
    static const char *const interleaved[] = { "rope_interleave", "rope_interleaved", "interleaved_rope" };
    struct model_spec       *s = c->spec;
    if (c->st) return;
    const json_t *rp = rope_object(c);
    for (size_t i = 0; rp && i < sizeof refused / sizeof *refused; i++)
        if (value(rp, refused[i]))
            cfg_fail(c, "%s of the RoPE parameters is %s, which is not supported", refused[i], show(value(rp, refused[i])).text);
    for (size_t i = 0; i < sizeof interleaved / sizeof *interleaved; i++)
        if (json_is_true(value(c->text, interleaved[i]))) cfg_fail(c, "%s is true, only pairs (i, i + half) are supported", interleaved[i]);

    s->rope_theta = num_of(c, rope_value(c, rp, "rope_theta", "rotary_emb_base"), "rope_theta", 1, 1e30, s->family->def->rope_theta);
    if (s->rope_theta == 1) cfg_fail(c, "rope_theta is 1, must be more");
    double part = num_of(c, rope_value(c, rp, "partial_rotary_factor", "rotary_pct"), "partial_rotary_factor", 0, 1, 1);
    s->rot = (uint32_t)(s->head_dim * part);
    s->rot = get_size(c, "rotary_dim", 1, s->head_dim, s->rot);
    if (!c->st && (s->rot < 2 || s->rot % 2))
        cfg_fail(c, "partial_rotary_factor makes %u of head_dim %u rotate, must be even and at least 2", s->rot, s->head_dim);

    const json_t *type = value(rp, "rope_type");
    if (!type) type = value(rp, "type");
    if (type && !json_is_string(type)) cfg_fail(c, "rope_type is %s, must be a name", show(type).text);
    if (!c->st) cfg_rope_scaling(c, rp, type ? json_string_value(type) : "default");
}

/* ---------------------------------------------------------------- the rest */

static void cfg_flags(struct cfg *c)
{
    struct model_spec *s = c->spec;
    if (c->st) return;
    const json_t *v = value(c->text, "hidden_act");
    if (!v) v = value(c->text, "hidden_activation");
    if (v && (!json_is_string(v) || (strcmp(json_string_value(v), "silu") && strcmp(json_string_value(v), "swish"))))
        cfg_fail(c, "hidden_act is %s, supported is silu", show(v).text);
    v = value_or_top(c, "quantization_config");
    if (v)
        cfg_fail(c, "quantization_config is there (quant_method %s), supported are plain bf16, f16 and f32 weights",
                 show(value(v, "quant_method")).text);

    bool keys = s->family->bias_keys;
    s->qkv_bias = s->o_bias = keys && get_flag(c, value(c->text, "attention_bias"), "attention_bias", false);
    s->mlp_bias = keys && get_flag(c, value(c->text, "mlp_bias"), "mlp_bias", false);
    s->qkv_bias |= s->family->qkv_bias;
    s->tied = get_flag(c, value_or_top(c, "tie_word_embeddings"), "tie_word_embeddings", false);

    v = value_or_top(c, "torch_dtype");
    if (!v) v = value_or_top(c, "dtype");
    const char *t = json_string_value(v);
    if (t && !strncmp(t, "torch.", 6)) t += 6;
    s->dtype = DT_COUNT;
    if (t && !strcmp(t, "bfloat16")) s->dtype = DT_BF16;
    if (t && !strcmp(t, "float16")) s->dtype = DT_F16;
    if (t && !strcmp(t, "float32")) s->dtype = DT_F32;
    if (v && s->dtype == DT_COUNT && !(t && !strcmp(t, "auto")))
        cfg_fail(c, "torch_dtype is %s, supported are bfloat16, float16 and float32", show(v).text);
}

/* eos_token_id: a number or a list; ids outside the vocabulary can never be drawn and are left out. */
static void cfg_eos_one(struct cfg *c, const json_t *v)
{
    struct model_spec *s = c->spec;
    if (!json_is_integer(v)) {
        cfg_fail(c, "eos_token_id holds %s, must be a token id or a list of them", show(v).text);
        return;
    }
    int64_t id = json_integer_value(v);
    if (id < 0 || id >= s->vocab) {
        LOG_WARN("model: %s: eos_token_id %lld is outside the vocabulary of %u, left out", c->file, (long long)id, s->vocab);
        return;
    }
    for (uint32_t i = 0; i < s->n_eos; i++)
        if (s->eos_id[i] == (uint32_t)id) return;
    if (s->n_eos == sizeof s->eos_id / sizeof *s->eos_id)
        cfg_fail(c, "eos_token_id has more than %zu ids", sizeof s->eos_id / sizeof *s->eos_id);
    else
        s->eos_id[s->n_eos++] = (uint32_t)id;
}

static void cfg_eos(struct cfg *c, const json_t *v)
{
    size_t        i;
    const json_t *one;
    if (!v || c->st) return;
    if (!json_is_array(v)) cfg_eos_one(c, v);
    json_array_foreach(v, i, one) cfg_eos_one(c, one);
}

static void cfg_token_ids(struct cfg *c)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    if (c->st) return;
    /* a key that is there and null means none, where an absent one means the family's default */
    bool eos = json_object_get(c->text, "eos_token_id") || json_object_get(c->top, "eos_token_id");
    bool bos = json_object_get(c->text, "bos_token_id") || json_object_get(c->top, "bos_token_id");
    if (!eos && def->eos_id < s->vocab) s->eos_id[s->n_eos++] = def->eos_id;
    cfg_eos(c, value_or_top(c, "eos_token_id"));
    const json_t *v = value_or_top(c, "bos_token_id");
    s->bos_id = bos ? UINT32_MAX : def->bos_id;
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < s->vocab) s->bos_id = (uint32_t)json_integer_value(v);
}

static void cfg_generation(struct cfg *c, const json_t *g)
{
    struct model_spec *s = c->spec;
    cfg_eos(c, value(g, "eos_token_id"));
    s->gen_temperature = (float)get_num(c, g, "temperature", 0, 100, (double)NAN);
    s->gen_top_p = (float)get_num(c, g, "top_p", 0, 1, (double)NAN);
    s->gen_min_p = (float)get_num(c, g, "min_p", 0, 1, (double)NAN);
    s->gen_repetition = (float)get_num(c, g, "repetition_penalty", 1e-3, 1e3, (double)NAN);
    s->gen_top_k = get_int(c, g, "top_k", -1, INT32_MAX, -1);
    s->gen_max_new_tokens = get_int(c, g, "max_new_tokens", 1, INT32_MAX, -1 - 1);
    if (s->gen_max_new_tokens == -2) s->gen_max_new_tokens = -1; /* -1 would have meant: required */
}

/* jansson stops at NaN and Infinity, which Python writes: the key in front of that place is what a person looks for. */
static void key_before(const char *text, size_t offset, char *key, size_t key_bytes)
{
    key[0] = 0;
    size_t colon = offset;
    while (colon > 0 && text[colon - 1] != ':') colon--;
    size_t end = colon > 0 ? colon - 1 : 0;
    while (end > 0 && text[end - 1] != '"') end--;
    if (end < 2) return;
    size_t begin = end - 1;
    while (begin > 0 && text[begin - 1] != '"') begin--;
    if (begin == 0 || end - 1 - begin >= key_bytes) return;
    memcpy(key, text + begin, end - 1 - begin);
    key[end - 1 - begin] = 0;
}

/* ST_NOT_FOUND leaves err alone. */
static enum status cfg_read(struct cfg *c, const struct source *src, json_t **root_out)
{
    char       *text = NULL;
    size_t      n = 0;
    enum status st = source_text(src, c->file, CONFIG_BYTES_MAX, &text, &n);
    if (st == ST_NOT_FOUND) return st;
    if (st) {
        snprintf(c->err, c->err_bytes, "%s: cannot read: %s", c->file, strerror(errno));
        return c->st = st == ST_TOO_LARGE ? ST_CONFIG : st;
    }
    struct json_error je;
    json_t           *root = json_parse(text, n, 0, &je);
    char              key[64];
    if (root && json_is_object(root)) {
        *root_out = root;
    } else if (root) {
        cfg_fail(c, "is not a JSON object");
        json_decref(root);
    } else if (!strncmp(text, "version https://git-lfs", 23)) {
        cfg_fail(c, "is a git-lfs pointer: run git lfs pull in the model's folder");
    } else {
        key_before(text, je.offset < n ? je.offset : n, key, sizeof key);
        cfg_fail(c, "not valid JSON at offset %zu%s%s: %s", je.offset, key[0] ? ", near key " : "", key, je.text);
    }
    free(text);
    return c->st;
}

enum status model_spec_load(const struct source *src, struct model_spec *spec_out, char *err, size_t err_bytes)
{
    struct model_spec spec = { .bos_id = UINT32_MAX,
                               .rope_factor = 1,
                               .rope_attn_factor = (double)NAN,
                               .gen_temperature = NAN,
                               .gen_top_p = NAN,
                               .gen_min_p = NAN,
                               .gen_repetition = NAN,
                               .gen_top_k = -1,
                               .gen_max_new_tokens = -1,
                               .dtype = DT_COUNT };
    struct cfg        c = { .file = "config.json", .spec = &spec, .err = err, .err_bytes = err_bytes };
    json_t           *top = NULL, *gen = NULL;
    if (cfg_read(&c, src, &top) == ST_NOT_FOUND) {
        snprintf(err, err_bytes, "config.json: no such file in %s", src->dir ? src->dir : "the embedded model");
        return ST_NOT_FOUND;
    }
    if (c.st) return c.st;
    c.top = top;
    cfg_family(&c);
    if (!c.st) cfg_sizes(&c);
    cfg_moe(&c);
    cfg_window(&c);
    cfg_rope(&c);
    cfg_flags(&c);
    cfg_token_ids(&c);
    if (!c.st) {
        c.file = "generation_config.json";
        if (cfg_read(&c, src, &gen) == ST_OK && gen) cfg_generation(&c, gen);
    }
    if (!c.st && spec.dtype == DT_COUNT) spec.dtype = bind_peek_dtype(&spec, src);
    if (c.st == ST_NOMEM) snprintf(err, err_bytes, "%s: no memory", c.file);
    json_decref(gen);
    json_decref(top);
    if (c.st)
        model_spec_free(&spec);
    else
        *spec_out = spec;
    return c.st;
}

void model_spec_free(struct model_spec *spec)
{
    free(spec->layer_windowed);
    free(spec->layer_moe);
    spec->layer_windowed = spec->layer_moe = NULL;
}
