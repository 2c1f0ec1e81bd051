/* hf_config: config.json and generation_config.json -> model_spec.
 * Keys and defaults as transformers 4 and 5 read them; whatever this engine cannot compute exactly is refused, with one
 * line that names the key, what was found and what is allowed. A key that changes nothing here is not looked at. */
#include "base/log.h"
#include "engine/model/folder.h"
#include "engine/model/head.h"
#include "engine/model/hf.h"
#include "engine/model/ident.h"
#include "engine/model/peek.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MAX_ALLOWED = 1 << 24, HEAD_DIM_MAX = 4096 };

/* ---------------------------------------------------------------- which family */

static const char *hf_arch(const json_t *obj)
{
    const json_t *a = json_object_get(obj, "architectures");
    return json_is_array(a) ? json_string_value(json_array_get(a, 0)) : NULL; /* of NULL or another type: NULL */
}

static void hf_family(struct hf *c)
{
    const char   *arch = hf_arch(c->top);
    const json_t *text = hf_value(c->top, "text_config");
    c->text = c->top;
    c->spec->family = model_family_find(arch, arch ? NULL : hf_str(c->top, "model_type"));
    if (!c->spec->family && json_is_object(text)) {
        const char *inner = hf_arch(text);
        c->spec->family = model_family_find(inner, inner ? NULL : hf_str(text, "model_type"));
        c->spec->wrapper = c->spec->family != NULL;
        if (c->spec->wrapper) c->text = text;
    } else if (c->spec->family && c->spec->family->wrapper && arch) {
        c->spec->wrapper = true;
        c->text = text;
        if (!json_is_object(text)) {
            hf_fail(c, "text_config is %s, must be an object: architectures[0] is \"%.80s\"", hf_show(text).text, arch);
            c->spec->wrapper = false;
            c->text = c->top;
        }
    }
    const json_t *code = hf_value(c->top, "auto_map");
    if (c->spec->family) {
        if (code)
            LOG_INFO(
                "model: %s: auto_map names code that comes with the checkpoint; it is never run, and %s is known without it",
                c->file, c->spec->family->arch);
        return;
    }
    const char *pos = hf_str(c->top, "position_embedding_type");
    if (arch && pos && !strcmp(pos, "alibi")) {
        hf_fail(
            c,
            "architectures[0] is \"%.80s\" and position_embedding_type \"alibi\": scores that fall with the distance "
            "of two tokens (ALiBi) are not served",
            arch);
        return;
    }
    char        list[1024];
    const char *remote = code ? " (auto_map names code that comes with the checkpoint, which is never run)" : "";
    if (arch)
        hf_fail(c, "architectures[0] is \"%.80s\"%s, supported are %s", arch, remote,
                model_family_list(list, sizeof list));
    else
        hf_fail(c, "architectures is missing and model_type is %s%s, supported are %s",
                hf_show(json_object_get(c->top, "model_type")).text, remote, model_family_list(list, sizeof list));
}

/* Models of some families were trained to look both ways, which makes encoders of them. */
static void hf_both_ways(struct hf *c)
{
    static const char key[] = "use_bidirectional_attention";
    if (c->spec->family->arch_other)
        c->spec->family = model_family_facing(c->spec->family, hf_flag(c, hf_value(c->text, key), key, false));
}

/* Classes of a whole text instead of tokens. As in transformers, id2label counts, then num_labels, and 2 without
 * either. */
static void hf_classes(struct hf *c)
{
    static const char end[] = "ForSequenceClassification";
    const char       *arch = hf_arch(c->top);
    size_t            n = arch ? strlen(arch) : 0;
    const json_t     *names = hf_value(c->top, "id2label");
    c->spec->classifies = n >= sizeof end && !strcmp(arch + n - (sizeof end - 1), end);
    if (!c->spec->classifies || hf_value(c->top, "classifier_from_token")) return;
    if (!json_is_object(names)) {
        c->spec->n_label = (uint32_t)hf_int(c, c->top, "num_labels", 1, HEAD_LABELS_MAX, 2);
        return;
    }
    size_t labels = json_object_size(names);
    if (!labels || labels > HEAD_LABELS_MAX)
        hf_fail(c, "id2label has %zu labels, supported are 1 to %d", labels, HEAD_LABELS_MAX);
    else
        c->spec->n_label = (uint32_t)labels;
}

/* ---------------------------------------------------------------- sizes */

static void hf_sizes(struct hf *c)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    s->hidden = hf_size(c, "hidden_size", 1, SIZE_MAX_ALLOWED, HF_REQUIRED);
    s->n_layer = hf_size(c, "num_hidden_layers", 1, LAYERS_MAX, HF_REQUIRED);
    s->n_head = hf_size(c, "num_attention_heads", 1, 1 << 16, HF_REQUIRED);
    s->n_kv_head = hf_size(c, "num_key_value_heads", 1, 1 << 16, def->n_kv_head ? def->n_kv_head : s->n_head);
    s->inter = hf_size(c, "intermediate_size", 1, SIZE_MAX_ALLOWED, def->inter ? def->inter : HF_REQUIRED);
    s->vocab = hf_size(c, "vocab_size", 1, SIZE_MAX_ALLOWED, HF_REQUIRED);
    s->context = hf_size(c, "max_position_embeddings", 1, 1 << 30, def->context);
    if (c->st) return;
    if (s->n_head % s->n_kv_head) {
        hf_fail(c, "num_key_value_heads is %u, must divide num_attention_heads, which is %u", s->n_kv_head, s->n_head);
        return;
    }
    if (!hf_value(c->text, "head_dim") && !def->head_dim && s->hidden % s->n_head) {
        hf_fail(c, "num_attention_heads is %u, must divide hidden_size, which is %u, when head_dim is not given",
                s->n_head, s->hidden);
        return;
    }
    s->head_dim = hf_size(c, "head_dim", 1, HEAD_DIM_MAX, def->head_dim ? def->head_dim : s->hidden / s->n_head);
    if (!c->st && s->head_dim % 2) hf_fail(c, "head_dim is %u, must be even", s->head_dim);
    if (hf_value(c->text, "clip_qkv"))
        hf_fail(c, "clip_qkv is %s, supported is null", hf_show(hf_value(c->text, "clip_qkv")).text);
    if (!c->st && (uint64_t)s->n_head * s->head_dim > SIZE_MAX_ALLOWED)
        hf_fail(c, "num_attention_heads x head_dim is %u x %u, at most %d", s->n_head, s->head_dim, SIZE_MAX_ALLOWED);

    const json_t            *v = NULL;
    const char              *key = NULL;
    static const char *const eps[] = { "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps",
                                       "norm_epsilon" };
    for (size_t i = 0; i < sizeof eps / sizeof *eps && !v; i++) v = hf_value(c->text, key = eps[i]);
    s->rms_eps = (float)hf_num_of(c, v, key, 1e-30, 1, (double)def->rms_eps);
}

/* ---------------------------------------------------------------- layers without rotation */

/* no_rope_layers says it the other way round from its name: 1 is a layer that rotates. */
static void hf_nope(struct hf *c)
{
    struct model_spec *s = c->spec;
    const json_t      *list = hf_value(c->text, "no_rope_layers");
    if (!s->family->nope) return;
    if (json_is_array(list) && !json_array_size(list)) list = NULL; /* as files of Llama 4 have it */
    if (list && (!json_is_array(list) || json_array_size(list) < s->n_layer)) {
        hf_fail(c, "no_rope_layers must be a list of num_hidden_layers, %u, numbers 0 or 1", s->n_layer);
        return;
    }
    uint32_t interval = hf_size(c, "no_rope_layer_interval", 1, LAYERS_MAX, 4);
    if (!(s->layer_nope = calloc(s->n_layer, 1))) {
        c->st = ST_NOMEM;
        return;
    }
    for (uint32_t l = 0; l < s->n_layer && !c->st; l++) {
        const json_t *v = json_array_get(list, l);
        s->layer_nope[l] = v ? json_integer_value(v) == 0 : (l + 1) % interval == 0;
        if (v && (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 1))
            hf_fail(c, "no_rope_layers[%u] is %s, must be 0 (does not rotate) or 1 (rotates)", l, hf_show(v).text);
    }
}

/* ---------------------------------------------------------------- sliding window */

static void hf_layer_type(struct hf *c, uint32_t l, const json_t *v)
{
    const char *t = json_is_string(v) ? json_string_value(v) : "";
    if (!strcmp(t, "full_attention")) return;
    const char *window = c->spec->family->chunks ? "chunked_attention" : "sliding_attention";
    if (strcmp(t, window))
        hf_fail(c, "layer_types[%u] is %s, supported are full_attention and %s", l, hf_show(v).text, window);
    else if (!c->spec->window)
        hf_fail(c, "layer_types[%u] is sliding_attention, but %s", l,
                c->spec->family->window ? "sliding_window is not set or not used"
                                        : "this architecture has no sliding window");
    else
        c->spec->layer_windowed[l] = 1;
}

/* Each row of such a layer sees the chunk that it lies in, up to itself. */
static void hf_chunks(struct hf *c)
{
    if (json_is_null(json_object_get(c->text, "attention_chunk_size")))
        hf_fail(c, "attention_chunk_size is null, must be a whole number of tokens");
    c->spec->window = hf_size(c, "attention_chunk_size", 1, 1 << 30, 8192);
    c->spec->chunked = true;
}

static void hf_window(struct hf *c)
{
    struct model_spec         *s = c->spec;
    const struct model_family *f = s->family;
    bool closed = f->window_gate && !hf_flag(c, hf_value(c->text, "use_sliding_window"), "use_sliding_window", false);
    /* null is a value: no window, where absent means the default. Behind a closed gate it may be anything, such as 0 */
    if (f->window && !closed && !json_is_null(json_object_get(c->text, "sliding_window")))
        s->window = hf_size(c, "sliding_window", 1, 1 << 30, f->def->window);
    if (f->window && s->window && model_is_encoder(s))
        s->window = s->window / 2 + 1; /* half before a token, half behind */
    if (f->chunks) hf_chunks(c);
    const json_t *types = hf_value(c->text, "layer_types"), *v;
    size_t        i;
    if (types && (!json_is_array(types) || json_array_size(types) != s->n_layer)) {
        hf_fail(c, "layer_types must be a list of num_hidden_layers, %u, names", s->n_layer);
        return;
    }
    if (!(s->layer_windowed = calloc(s->n_layer, 1))) {
        c->st = ST_NOMEM;
        return;
    }
    if (types) {
        json_array_foreach(types, i, v) hf_layer_type(c, (uint32_t)i, v);
    } else if (s->window) {
        uint32_t first =
            f->window_layers ? hf_size(c, "max_window_layers", 0, LAYERS_MAX, f->def->max_window_layers) : 0;
        uint32_t every = f->def->window_pattern;
        bool     nope = f->window_nope || f->chunks;
        if (f->local) every = hf_size(c, "global_attn_every_n_layers", 1, LAYERS_MAX, every);
        if (f->window_key) every = hf_size(c, "sliding_window_pattern", 1, LAYERS_MAX, every);
        uint32_t end =
            f->window_below ? hf_size(c, "max_window_layers", 0, LAYERS_MAX, f->def->max_window_layers) : s->n_layer;
        for (uint32_t l = first; l < s->n_layer && l < end; l++)
            s->layer_windowed[l] = nope ? s->layer_nope[l] == f->window_nope : !every || (l + !f->local) % every;
    }
}

/* ---------------------------------------------------------------- the rest */

/* The flag of a wrapper is about its own head, so it goes before that of its text part. Where neither is there most
 * wrappers of transformers are tied, and so are some families; a head that the checkpoint has beside that is compared
 * with the embedding anyhow (peek.c). */
static void hf_tied(struct hf *c)
{
    const json_t *v = hf_value(c->top, "tie_word_embeddings");
    if (!v) v = hf_value(c->text, "tie_word_embeddings");
    c->spec->tied = hf_flag(c, v, "tie_word_embeddings", c->spec->wrapper || c->spec->family->def->tied);
}

/* The names of transformers (ACT2FN): several are one function, written in other ways. */
static void hf_act(struct hf *c)
{
    static const struct {
        const char *name;
        enum op_act act;
    } acts[] = { { "silu", OP_SILU },
                 { "swish", OP_SILU },
                 { "gelu", OP_GELU },
                 { "gelu_python", OP_GELU },
                 { "gelu_new", OP_GELU_TANH },
                 { "gelu_fast", OP_GELU_TANH },
                 { "gelu_accurate", OP_GELU_TANH },
                 { "gelu_pytorch_tanh", OP_GELU_TANH },
                 { "gelu_python_tanh", OP_GELU_TANH },
                 { "quick_gelu", OP_QUICK_GELU },
                 { "relu", OP_RELU },
                 { "relu2", OP_RELU2 } };
    if (c->spec->family->clamped) {
        c->spec->act = OP_CLAMPED;
        return;
    }
    bool          gemma = c->spec->family->gemma; /* an old hidden_act means nothing there */
    const json_t *v = gemma ? NULL : hf_value(c->text, "hidden_act");
    if (!v) v = hf_value(c->text, "hidden_activation");
    c->spec->act = gemma ? OP_GELU_TANH : c->spec->family->def->act;
    if (!v) return;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (json_is_string(v) && !strcmp(json_string_value(v), acts[i].name)) {
            c->spec->act = acts[i].act;
            return;
        }
    hf_fail(
        c,
        "hidden_act is %s, supported are silu, gelu (also gelu_new, gelu_fast, gelu_pytorch_tanh), quick_gelu, relu and relu2",
        hf_show(v).text);
}

/* A flag whose key a family may not have: then it is false. */
static bool hf_family_flag(struct hf *c, const char *key, bool absent)
{
    return key ? hf_flag(c, hf_value(c->text, key), key, absent) : absent;
}

static void hf_biases(struct hf *c)
{
    static const struct model_bias_keys usual = { .qkv = "attention_bias", .o = "attention_bias", .mlp = "mlp_bias" };
    static const struct model_bias_keys none = { .qkv = NULL };
    const struct model_family          *f = c->spec->family;
    const struct model_bias_keys       *k = f->bias_keys ? &usual : &none;
    if (f->bias) k = f->bias;
    c->spec->qkv_bias = f->qkv_bias || hf_family_flag(c, k->qkv, k->qkv_default);
    c->spec->o_bias = hf_family_flag(c, k->o, k->o_default);
    c->spec->mlp_bias = hf_family_flag(c, k->mlp, k->mlp_default);
}

/* The gate that clamps has its two numbers in the kernels. */
static void hf_clamp(struct hf *c)
{
    bool          clamped = c->spec->family->clamped;
    const json_t *limit = hf_value(c->text, "swiglu_limit"), *alpha = hf_value(c->text, "swiglu_alpha");
    if (!clamped && limit)
        hf_fail(c, "swiglu_limit is %s, which %s does not support", hf_show(limit).text, c->spec->family->arch);
    if (!clamped) return;
    if (hf_num_of(c, limit, "swiglu_limit", 0, 1e6, 7) != 7)
        hf_fail(c, "swiglu_limit is %s, supported is 7", hf_show(limit).text);
    if (fabs(hf_num_of(c, alpha, "swiglu_alpha", 0, 1e6, 1.702) - 1.702) > 1e-6)
        hf_fail(c, "swiglu_alpha is %s, supported is 1.702", hf_show(alpha).text);
}

static void hf_flags(struct hf *c)
{
    struct model_spec *s = c->spec;
    const json_t      *v;
    hf_act(c);
    hf_clamp(c);

    hf_biases(c);
    hf_tied(c);
    s->qk_norm = s->family->qk_norm || hf_family_flag(c, s->family->qk_norm_key, false);
    s->qk_norm_unit = s->family->qk_norm_unit && hf_flag(c, hf_value(c->text, "use_qk_norm"), "use_qk_norm", true);

    v = hf_value_or_top(c, "torch_dtype");
    if (!v) v = hf_value_or_top(c, "dtype");
    const char *t = json_string_value(v);
    if (t && !strncmp(t, "torch.", 6)) t += 6;
    s->dtype = DT_COUNT;
    if (t && !strcmp(t, "bfloat16")) s->dtype = DT_BF16;
    if (t && !strcmp(t, "float16")) s->dtype = DT_F16;
    if (t && !strcmp(t, "float32")) s->dtype = DT_F32;
    if (v && s->dtype == DT_COUNT && !(t && !strcmp(t, "auto")))
        hf_fail(c, "torch_dtype is %s, supported are bfloat16, float16 and float32", hf_show(v).text);
}

/* eos_token_id: a number or a list; ids outside the vocabulary can never be drawn and are left out. */
static void hf_eos_one(struct hf *c, const json_t *v)
{
    struct model_spec *s = c->spec;
    if (!json_is_integer(v)) {
        hf_fail(c, "eos_token_id holds %s, must be a token id or a list of them", hf_show(v).text);
        return;
    }
    int64_t id = json_integer_value(v);
    if (id < 0 || id >= s->vocab) {
        LOG_WARN("model: %s: eos_token_id %lld is outside the vocabulary of %u, left out", c->file, (long long)id,
                 s->vocab);
        return;
    }
    for (uint32_t i = 0; i < s->n_eos; i++)
        if (s->eos_id[i] == (uint32_t)id) return;
    if (s->n_eos == sizeof s->eos_id / sizeof *s->eos_id)
        hf_fail(c, "eos_token_id has more than %zu ids", sizeof s->eos_id / sizeof *s->eos_id);
    else
        s->eos_id[s->n_eos++] = (uint32_t)id;
}

static void hf_eos(struct hf *c, const json_t *v)
{
    size_t        i;
    const json_t *one;
    if (!v || c->st) return;
    if (!json_is_array(v)) hf_eos_one(c, v);
    json_array_foreach(v, i, one) hf_eos_one(c, one);
}

static void hf_token_ids(struct hf *c)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    /* a key that is there and null means none, where an absent one means the family's default */
    bool eos = json_object_get(c->text, "eos_token_id") || json_object_get(c->top, "eos_token_id");
    bool bos = json_object_get(c->text, "bos_token_id") || json_object_get(c->top, "bos_token_id");
    if (!eos && def->eos_id < s->vocab) s->eos_id[s->n_eos++] = def->eos_id;
    for (size_t i = 0; !eos && i < sizeof def->eos_more / sizeof *def->eos_more; i++)
        if (def->eos_more[i] && def->eos_more[i] < s->vocab) s->eos_id[s->n_eos++] = def->eos_more[i];
    hf_eos(c, hf_value_or_top(c, "eos_token_id"));
    const json_t *v = hf_value_or_top(c, "bos_token_id");
    s->bos_id = bos ? UINT32_MAX : def->bos_id;
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < s->vocab)
        s->bos_id = (uint32_t)json_integer_value(v);
}

static void hf_generation(struct hf *c, const json_t *g)
{
    struct model_spec *s = c->spec;
    hf_eos(c, hf_value(g, "eos_token_id"));
    s->gen_temperature = (float)hf_num(c, g, "temperature", 0, 100, (double)NAN);
    s->gen_top_p = (float)hf_num(c, g, "top_p", 0, 1, (double)NAN);
    s->gen_min_p = (float)hf_num(c, g, "min_p", 0, 1, (double)NAN);
    s->gen_repetition = (float)hf_num(c, g, "repetition_penalty", 1e-3, 1e3, (double)NAN);
    s->gen_top_k = hf_int(c, g, "top_k", -1, INT32_MAX, -1);
    s->gen_max_new_tokens = hf_int(c, g, "max_new_tokens", 1, INT32_MAX, -1);
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
    struct hf         c = { .file = "config.json", .src = src, .spec = &spec, .err = err, .err_bytes = err_bytes };
    json_t           *top = NULL, *gen = NULL;
    if (hf_read(&c, src, &top) == ST_NOT_FOUND) {
        char found[600] = "";
        bool known = src->dir && folder_no_model(src->dir, found, sizeof found);
        snprintf(err, err_bytes, "config.json: no such file in %s%s%s", source_where(src), known ? ", which " : "",
                 found);
        return ST_NOT_FOUND;
    }
    if (c.st) return c.st;
    if (src->dir && folder_has_adapter(src->dir))
        LOG_WARN(
            "model: %s holds adapter_config.json beside the model; it is applied only where --lora-modules names it",
            src->dir);
    c.top = top;
    static void (*const steps[])(struct hf *) = { hf_family, hf_both_ways, hf_classes, hf_sizes,    hf_encoder,
                                                  hf_moe,    hf_nope,      hf_window,  hf_gemma4,   hf_rope,
                                                  hf_scale,  hf_flags,     hf_quant,   hf_token_ids };
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !c.st; i++) steps[i](&c);
    if (!c.st) {
        c.file = "generation_config.json";
        if (hf_read(&c, src, &gen) == ST_OK && gen) hf_generation(&c, gen);
    }
    if (!c.st) ident_config(top, spec.config);
    if (!c.st) c.st = peek_spec(&spec, src, err, err_bytes);
    if (!c.st) hf_embed_round(&spec);
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
    free(spec->layer_nope);
    free(spec->layer_moe);
    free(spec->layer_codes);
    free(spec->rope_short);
    free(spec->rope_long);
    spec->rope_short = spec->rope_long = NULL;
    spec->layer_windowed = spec->layer_nope = spec->layer_moe = NULL;
    spec->layer_codes = NULL;
}
