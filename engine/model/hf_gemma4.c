/* hf_gemma4: layers that see all tokens have heads of their own, the last layers read the KV of earlier ones, and each
 * layer may have inputs of its own. Two forms of the file: keys for all such layers, and per_layer_config, which
 * transformers writes. */
#include "engine/model/hf.h"
#include <stdlib.h>
#include <string.h>

enum { HEAD_DIM_MAX = 4096 };

/* What per_layer_config says of one layer. */
static void layer_config(struct hf *c, const json_t *of, const char *name, uint32_t *dim, uint32_t *kv)
{
    const char   *key;
    const json_t *v;
    if (!json_is_object(of)) hf_fail(c, "per_layer_config[%.20s] is %s, must be an object", name, hf_show(of).text);
    json_object_foreach((json_t *)(uintptr_t)of, key, v) /* the macro wants it mutable and changes nothing */
        if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
            hf_fail(c, "per_layer_config[%.20s] has %.80s, supported are head_dim and num_key_value_heads", name, key);
    *dim = (uint32_t)hf_int(c, of, "head_dim", 1, HEAD_DIM_MAX, *dim);
    *kv = (uint32_t)hf_int(c, of, "num_key_value_heads", 1, 1 << 16, *kv);
}

/* The layer that a key names; transformers writes zeros before it, so that all have as many digits. */
static bool layer_number(const char *key, uint32_t n_layer, uint32_t *layer_out)
{
    size_t        n = strspn(key, "0123456789");
    unsigned long l = strtoul(key, NULL, 10);
    if (n == 0 || n > 6 || key[n] || l >= n_layer) return false;
    *layer_out = (uint32_t)l;
    return true;
}

/* What is said of layer l under whichever name; NULL: nothing. */
static const json_t *layer_config_of(const json_t *all, uint32_t l, uint32_t n_layer, const char **key_out)
{
    const char *key;
    json_t     *of;
    uint32_t    at;
    json_object_foreach((json_t *)(uintptr_t)all, key, of) /* the macro wants it mutable and changes nothing */
    {
        if (!layer_number(key, n_layer, &at) || at != l || json_is_null(of)) continue;
        *key_out = key;
        return of;
    }
    return NULL;
}

/* Keys are layers. */
static void layer_names(struct hf *c, const json_t *all)
{
    const char *key;
    json_t     *of;
    uint32_t    l;
    json_object_foreach((json_t *)(uintptr_t)all, key, of) /* as above */
        if (!layer_number(key, c->spec->n_layer, &l))
            hf_fail(c, "per_layer_config has \"%.40s\", supported are layers from 0 to %u", key, c->spec->n_layer - 1);
}

/* All layers without a window must say the same, and those with one nothing. */
static void layer_configs(struct hf *c, const json_t *all)
{
    struct model_spec *s = c->spec;
    bool               first = true;
    if (!json_is_object(all)) hf_fail(c, "per_layer_config is %s, must be an object", hf_show(all).text);
    layer_names(c, all);
    for (uint32_t l = 0; l < s->n_layer && !c->st; l++) {
        uint32_t    dim = s->head_dim, kv = s->n_kv_head;
        char        number[16];
        const char *name = number;
        snprintf(number, sizeof number, "%u", l);
        const json_t *of = layer_config_of(all, l, s->n_layer, &name);
        if (of) layer_config(c, of, name, &dim, &kv);
        if (spec_is_full(s, l) && first) {
            s->full_head_dim = dim;
            s->full_n_kv_head = kv;
            first = false;
        }
        if (!c->st && (dim != spec_head_dim(s, l) || kv != spec_n_kv_head(s, l)))
            hf_fail(c, "per_layer_config[%s] has heads of %u and %u of them, layers of its kind have %u and %u", name,
                    dim, kv, spec_head_dim(s, l), spec_n_kv_head(s, l));
    }
}

static void heads(struct hf *c)
{
    struct model_spec *s = c->spec;
    const json_t      *all = hf_value(c->text, "per_layer_config");
    s->k_is_v = hf_flag(c, hf_value(c->text, "attention_k_eq_v"), "attention_k_eq_v", false);
    if (all) {
        layer_configs(c, all);
    } else {
        s->full_head_dim = hf_size(c, "global_head_dim", 1, HEAD_DIM_MAX, 512);
        s->full_n_kv_head = hf_size(c, "num_global_key_value_heads", 1, 1 << 16, s->n_kv_head);
        if (!s->k_is_v) s->full_n_kv_head = s->n_kv_head; /* as in transformers */
    }
    if (c->st) return;
    if (s->full_head_dim % 2) hf_fail(c, "global_head_dim is %u, must be even", s->full_head_dim);
    if (s->n_head % s->full_n_kv_head)
        hf_fail(c, "num_global_key_value_heads is %u, must divide num_attention_heads, which is %u", s->full_n_kv_head,
                s->n_head);
}

static void shared(struct hf *c)
{
    struct model_spec *s = c->spec;
    uint32_t           n = hf_size(c, "num_kv_shared_layers", 0, LAYERS_MAX, 0);
    bool               made[2] = { false, false }, read[2] = { false, false };
    if (c->st) return;
    for (uint32_t l = 0; l < s->n_layer; l++) (l + n < s->n_layer ? made : read)[spec_is_full(s, l)] = true;
    for (int full = 0; full < 2; full++)
        if (read[full] && !made[full])
            hf_fail(c, "num_kv_shared_layers is %u of %u layers: no layer before them has KV of %s attention", n,
                    s->n_layer, full ? "full" : "sliding");
    s->n_shared = n;
    s->shared_wide = hf_flag(c, hf_value(c->text, "use_double_wide_mlp"), "use_double_wide_mlp", false);
}

void hf_gemma4(struct hf *c)
{
    struct model_spec *s = c->spec;
    if (!s->family->gemma4) return;
    s->layer_windowed[s->n_layer - 1] = 0; /* as in transformers */
    s->v_norm = s->layer_scalar = true;
    heads(c);
    shared(c);
    s->ple_dim = hf_size(c, "hidden_size_per_layer_input", 0, 1 << 16, s->family->def->ple_dim);
    uint32_t vocab = hf_size(c, "vocab_size_per_layer_input", 1, 1 << 24, 262144);
    if (s->ple_dim && vocab < s->vocab)
        hf_fail(c, "vocab_size_per_layer_input is %u, must not be less than vocab_size, which is %u", vocab, s->vocab);
    s->ple_vocab = vocab;
    const json_t *both = hf_value(c->text, "use_bidirectional_attention");
    if (both && !(json_is_string(both) && !strcmp(json_string_value(both), "vision")))
        hf_fail(c, "use_bidirectional_attention is %s, supported is \"vision\": text sees what is before it",
                hf_show(both).text);
}
