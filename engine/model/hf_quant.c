/* hf_quant: quantization_config of config.json: how the checkpoint's matrices are stored (docs: transformers'
 * quantization_config; compressed-tensors' config_groups; ModelOpt's hf_quant_config.json). What the tensors then must
 * be is checked by bind.c. */
#include "engine/model/hf.h"
#include <string.h>

static bool group_ok(int64_t g) { return g == 32 || g == 64 || g == 128 || g == 256 || g == 512 || g == 1024; }

static void group(struct hf *c, const json_t *v, const char *key)
{
    int64_t g = hf_int(c, v, key, -1, 1 << 20, HF_REQUIRED);
    if (c->st) return;
    if (g != -1 && !group_ok(g))
        hf_fail(c, "quantization_config.%s is %lld, supported are 32, 64, 128, 256, 512, 1024 and -1", key,
                (long long)g);
    c->spec->quant.q.group = g == -1 ? 0 : (uint32_t)g;
}

static bool is(const json_t *v, const char *key, const char *want)
{
    const char *s = hf_str(v, key);
    return s && !strcmp(s, want);
}

/* [rows, inputs] of a block that shares a scale */
static void block(struct hf *c, const json_t *v, const char *key)
{
    struct model_quant *q = &c->spec->quant;
    const json_t       *n = json_array_get(v, 0), *k = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(n) || !json_is_integer(k) || json_integer_value(n) < 1 ||
        json_integer_value(n) > 1 << 20 || !group_ok(json_integer_value(k))) {
        hf_fail(c, "quantization_config.%s is %s, must be two numbers, the second 32 to 1024 and a power of two", key,
                hf_show(v).text);
        return;
    }
    q->block_rows = (uint32_t)json_integer_value(n);
    q->q.group = (uint32_t)json_integer_value(k);
}

static void fp8(struct hf *c, const json_t *v)
{
    c->spec->quant.q.code = DT_F8E4M3;
    if (hf_value(v, "fmt") && !is(v, "fmt", "e4m3"))
        hf_fail(c, "quantization_config.fmt is %s, supported is e4m3", hf_show(hf_value(v, "fmt")).text);
    if (hf_value(v, "weight_block_size")) block(c, hf_value(v, "weight_block_size"), "weight_block_size");
}

/* ---------------------------------------------------------------- compressed-tensors */

/* The weights' arguments of the one kind there may be: groups may differ in their targets, which the tensors tell. */
static const json_t *compressed_weights(struct hf *c, const json_t *v, const json_t **group_out)
{
    json_t       *groups = json_object_get(v, "config_groups"), *g;
    const json_t *weights = NULL;
    const char   *key;
    json_object_foreach(groups, key, g)
    {
        const json_t *w = hf_value(g, "weights");
        if (!w) hf_fail(c, "quantization_config.config_groups.%.32s.weights is missing", key);
        if (weights && w && !json_equal(weights, w))
            hf_fail(c,
                    "quantization_config.config_groups has groups whose weights differ (%.32s), supported is one kind",
                    key);
        if (!weights) *group_out = g;
        weights = w;
    }
    if (!weights)
        hf_fail(c, "quantization_config.config_groups is %s, must hold a group with weights", hf_show(groups).text);
    return weights;
}

/* group_size and strategy of whole numbers */
static void compressed_group(struct hf *c, const json_t *w)
{
    if (is(w, "strategy", "group"))
        group(c, w, "group_size");
    else if (!is(w, "strategy", "tensor") && !is(w, "strategy", "channel"))
        hf_fail(c, "quantization_config: strategy is %s, supported are tensor, channel and group",
                hf_show(hf_value(w, "strategy")).text);
}

/* Activations that are rounded to 8 bits row by row are here too; those that are rounded otherwise stay what they are,
 * which is nearer to what was trained. */
static bool rounds_rows(const json_t *a)
{
    const json_t *bits = hf_value(a, "num_bits");
    return json_is_integer(bits) && json_integer_value(bits) == 8 && is(a, "type", "int") &&
           is(a, "strategy", "token") && json_is_true(hf_value(a, "dynamic")) &&
           !json_is_false(hf_value(a, "symmetric"));
}

static void compressed_int(struct hf *c, const json_t *w, const json_t *g)
{
    struct model_quant *q = &c->spec->quant;
    bool                symmetric = hf_flag(c, hf_value(w, "symmetric"), "quantization_config: symmetric", true);
    int64_t             bits = hf_int(c, w, "num_bits", 1, 64, 8);
    if (bits != 8 || !is(w, "type", "int") || !symmetric) {
        hf_fail(
            c,
            "quantization_config.config_groups: weights is %s, supported of int-quantized are 8-bit whole numbers, symmetric",
            hf_show(w).text);
        return;
    }
    c->spec->quant.method = QUANT_INT8;
    q->q.code = DT_I8;
    q->q.full = true;
    compressed_group(c, w);
    q->q.act8 = rounds_rows(hf_value(g, "input_activations")) && (q->q.group == 0 || q->q.group >= 64);
}

static void compressed_packed(struct hf *c, const json_t *w)
{
    struct model_quant *q = &c->spec->quant;
    bool                symmetric = hf_flag(c, hf_value(w, "symmetric"), "quantization_config: symmetric", true);
    int64_t             bits = hf_int(c, w, "num_bits", 1, 64, 4);
    const json_t       *order = hf_value(w, "actorder");
    if ((bits != 4 && (bits != 8 || !symmetric)) || !is(w, "type", "int")) {
        hf_fail(
            c,
            "quantization_config.config_groups: weights is %s, supported of pack-quantized are 4-bit whole numbers, and 8-bit symmetric ones",
            hf_show(w).text);
        return;
    }
    c->spec->quant.method = QUANT_PACKED;
    q->q.code = bits == 4 ? DT_I4 : DT_I8;
    q->q.full = bits == 8;
    q->q.zero = !symmetric;
    compressed_group(c, w);
    /* "weight" and "static" quantise in another order than they store; "group" stores the groups' order */
    q->indexed = json_is_true(order) || is(w, "actorder", "group") || is(w, "actorder", "dynamic");
}

static void compressed_float(struct hf *c, const json_t *w)
{
    c->spec->quant.q.code = DT_F8E4M3;
    if (hf_int(c, w, "num_bits", 1, 64, 8) != 8 || !is(w, "type", "float"))
        hf_fail(c, "quantization_config.config_groups: weights is %s, supported are 8-bit floats", hf_show(w).text);
    if (is(w, "strategy", "block"))
        block(c, hf_value(w, "block_structure"), "block_structure");
    else if (!is(w, "strategy", "tensor") && !is(w, "strategy", "channel"))
        hf_fail(c, "quantization_config: strategy is %s, supported are tensor, channel and block",
                hf_show(hf_value(w, "strategy")).text);
}

enum { NVFP4_GROUP = 16 };

static void nvfp4(struct hf *c, enum model_quant_method method)
{
    c->spec->quant.method = method;
    c->spec->quant.q.code = DT_F4E2M1;
    c->spec->quant.q.group = NVFP4_GROUP;
}

/* Activations stay as they are, whatever input_activations says of rounding them too. */
static void compressed_nvfp4(struct hf *c, const json_t *w)
{
    const json_t *type = hf_value(w, "scale_dtype");
    int64_t       bits = hf_int(c, w, "num_bits", 1, 64, 0), size = hf_int(c, w, "group_size", -1, 1 << 20, 0);
    nvfp4(c, QUANT_NVFP4);
    if (bits != 4 || !is(w, "type", "float") || json_is_false(hf_value(w, "symmetric")) ||
        json_is_true(hf_value(w, "dynamic")))
        hf_fail(
            c,
            "quantization_config.config_groups: weights is %s, supported of nvfp4-pack-quantized are 4-bit floats, symmetric, not dynamic",
            hf_show(w).text);
    if (!is(w, "strategy", "tensor_group"))
        hf_fail(c, "quantization_config: strategy is %s, supported of nvfp4-pack-quantized is tensor_group",
                hf_show(hf_value(w, "strategy")).text);
    if (size != NVFP4_GROUP)
        hf_fail(c, "quantization_config: group_size is %s, supported of nvfp4-pack-quantized is %d",
                hf_show(hf_value(w, "group_size")).text, NVFP4_GROUP);
    if (type && !is(w, "scale_dtype", "torch.float8_e4m3fn"))
        hf_fail(c, "quantization_config: scale_dtype is %s, supported of nvfp4-pack-quantized is torch.float8_e4m3fn",
                hf_show(type).text);
}

static void compressed(struct hf *c, const json_t *v)
{
    const json_t *g = NULL, *w = compressed_weights(c, v, &g), *transform = hf_value(v, "transform_config");
    if (c->st) return;
    const json_t *in = is(v, "format", "mixed-precision") || !hf_value(v, "format") ? g : v;
    if (json_object_size(json_object_get(transform, "config_groups")))
        hf_fail(
            c, "quantization_config.transform_config has config_groups, supported are none: weights that were rotated");
    else if (is(in, "format", "float-quantized"))
        compressed_float(c, w);
    else if (is(in, "format", "int-quantized"))
        compressed_int(c, w, g);
    else if (is(in, "format", "pack-quantized"))
        compressed_packed(c, w);
    else if (is(in, "format", "nvfp4-pack-quantized"))
        compressed_nvfp4(c, w);
    else
        hf_fail(
            c,
            "quantization_config.format is %s, supported of compressed-tensors are float-quantized, int-quantized, pack-quantized and nvfp4-pack-quantized",
            hf_show(hf_value(in, "format")).text);
}

/* ---------------------------------------------------------------- awq and gptq */

static void four_bits(struct hf *c, const json_t *v, const char *key, const char *old_key)
{
    const json_t *bits = hf_value(v, key) ? hf_value(v, key) : hf_value(v, old_key);
    c->spec->quant.q.code = DT_I4;
    if (!json_is_integer(bits) || json_integer_value(bits) != 4)
        hf_fail(c, "quantization_config.%s is %s, supported is 4", key, hf_show(bits).text);
}

static void awq(struct hf *c, const json_t *v)
{
    four_bits(c, v, "bits", "w_bit");
    group(c, v, hf_value(v, "group_size") ? "group_size" : "q_group_size");
    c->spec->quant.q.zero = hf_flag(c, hf_value(v, "zero_point"), "quantization_config.zero_point", true);
    const char *version = hf_str(v, "version");
    if (version && strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        hf_fail(c, "quantization_config.version is \"%.32s\", supported is gemm", version);
}

/* Patterns of modules: those that begin with "-:" are not quantised, which the tensors tell; others have settings of
 * their own. */
static void gptq_dynamic(struct hf *c, const json_t *dynamic)
{
    const char *key;
    json_t     *own;
    json_object_foreach((json_t *)(uintptr_t)dynamic, key, own) /* the macro wants it mutable and changes nothing */
    {
        if (strncmp(key, "-:", 2) != 0 && json_object_size(own))
            hf_fail(
                c,
                "quantization_config.dynamic has settings of its own for \"%.60s\", supported are patterns that exclude (-:)",
                key);
    }
}

static void gptq(struct hf *c, const json_t *v)
{
    four_bits(c, v, "bits", "bits");
    group(c, v, "group_size");
    c->spec->quant.q.zero = !hf_flag(c, hf_value(v, "sym"), "quantization_config.sym", true);
    c->spec->quant.zero_plus_1 = !is(v, "checkpoint_format", "gptq_v2");
    if (hf_value(v, "checkpoint_format") && !is(v, "checkpoint_format", "gptq") &&
        !is(v, "checkpoint_format", "gptq_v2"))
        hf_fail(c, "quantization_config.checkpoint_format is %s, supported are gptq and gptq_v2",
                hf_show(hf_value(v, "checkpoint_format")).text);
    c->spec->quant.indexed = hf_flag(c, hf_value(v, "desc_act"), "quantization_config.desc_act", false);
    gptq_dynamic(c, hf_value(v, "dynamic"));
}

/* ---------------------------------------------------------------- modelopt */

static void modelopt_group(struct hf *c, const json_t *of, const char *where)
{
    const json_t *v = hf_value(of, "group_size");
    if (v && (!json_is_integer(v) || json_integer_value(v) != NVFP4_GROUP))
        hf_fail(c, "%s.group_size is %s, supported is %d", where, hf_show(v).text, NVFP4_GROUP);
}

/* exclude_modules and ignore say what the tensors tell; scales of activations and of KV are not used. */
static void modelopt_at(struct hf *c, const json_t *v, const char *where)
{
    const char *key;
    json_t     *g, *groups = json_object_get(v, "config_groups");
    nvfp4(c, QUANT_MODELOPT);
    if (!is(v, "quant_algo", "NVFP4") && !is(v, "quant_algo", "W4A16_NVFP4"))
        hf_fail(c, "%s.quant_algo is %s, supported are NVFP4 and W4A16_NVFP4", where,
                hf_show(hf_value(v, "quant_algo")).text);
    modelopt_group(c, v, where);
    json_object_foreach(groups, key, g)
        modelopt_group(c, hf_value(g, "weights"), "quantization_config.config_groups: weights");
}

static void modelopt(struct hf *c, const json_t *v) { modelopt_at(c, v, "quantization_config"); }

/* Older exports say it in a file of its own, and nothing in config.json. A quant_algo of null: only the KV cache has scales, and the
 * weights are plain. */
static void modelopt_file(struct hf *c)
{
    const char *file = c->file;
    json_t     *root = NULL;
    c->file = "hf_quant_config.json";
    if (hf_read(c, c->src, &root) == ST_OK) {
        const json_t *v = hf_value(root, "quantization");
        if (!json_is_null(json_object_get(v, "quant_algo"))) modelopt_at(c, v, "quantization");
    }
    json_decref(root);
    c->file = file;
}

/* 4-bit floats with shared exponents: of experts alone. Where there are tensors, they decide (peek.c). */
static void mxfp4(struct hf *c, const json_t *v)
{
    (void)v;
    c->spec->mxfp4 = true;
    if (!c->spec->family->mxfp4)
        hf_fail(c, "quantization_config.quant_method is \"mxfp4\", which is not supported for %s",
                c->spec->family->arch);
}

void hf_quant(struct hf *c)
{
    static const struct {
        const char             *name;
        enum model_quant_method method;
        void (*read)(struct hf *c, const json_t *v);
    } methods[] = { { "fp8", QUANT_FP8, fp8 },
                    { "compressed-tensors", QUANT_FP8, compressed },
                    { "awq", QUANT_AWQ, awq },
                    { "gptq", QUANT_GPTQ, gptq },
                    { "modelopt", QUANT_MODELOPT, modelopt },
                    { "modelopt_fp4", QUANT_MODELOPT, modelopt },
                    { "mxfp4", QUANT_NONE, mxfp4 } };
    const json_t *v = hf_value_or_top(c, "quantization_config");
    if (!v) {
        modelopt_file(c);
        return;
    }
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (is(v, "quant_method", methods[i].name)) {
            c->spec->quant.method = methods[i].method;
            methods[i].read(c, v);
            /* peek_codes.c settles the order of inputs for gate and up together, and there is no gate */
            if (c->spec->quant.indexed && c->spec->family->ffn == FFN_MLP)
                hf_fail(c, "quantization_config.desc_act (actorder) is set, which is not supported of %s",
                        c->spec->family->arch);
            return;
        }
    hf_fail(
        c,
        "quantization_config.quant_method is %s, supported are fp8, compressed-tensors, awq, gptq, modelopt and mxfp4",
        hf_show(hf_value(v, "quant_method")).text);
}
