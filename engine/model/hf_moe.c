/* hf_moe: experts of config.json: how many, how a router chooses and weighs them, which layers have them, and the
 * expert that all rows share. */
#include "engine/model/hf.h"
#include <stdlib.h>
#include <string.h>

enum { EXPERTS_MAX = 4096, INTER_MAX = 1 << 24 };

/* The layers that a list names have experts (1), or none. */
static void hf_moe_mark(struct hf *c, const char *key, unsigned char moe)
{
    struct model_spec *s = c->spec;
    const json_t      *list = hf_value(c->text, key), *v;
    size_t             i;
    if (list && !json_is_array(list)) hf_fail(c, "%s is %s, must be a list of layer numbers", key, hf_show(list).text);
    if (c->st) return;
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= s->n_layer) {
            hf_fail(c, "%s[%zu] is %s, must be a layer from 0 to %u", key, i, hf_show(v).text, s->n_layer - 1);
            return;
        }
        s->layer_moe[json_integer_value(v)] = moe;
    }
}

/* "sparse" has experts, "dense" has none, and each layer is one of them. */
static void hf_moe_types(struct hf *c, const char *key, const json_t *list)
{
    struct model_spec *s = c->spec;
    const json_t      *v;
    size_t             i;
    if (!json_is_array(list) || json_array_size(list) != s->n_layer) {
        hf_fail(c, "%s is %s, must be a list of %u layers' types", key, hf_show(list).text, s->n_layer);
        return;
    }
    json_array_foreach(list, i, v)
    {
        const char *type = json_is_string(v) ? json_string_value(v) : "";
        s->layer_moe[i] = !strcmp(type, "sparse");
        if (!s->layer_moe[i] && strcmp(type, "dense"))
            hf_fail(c, "%s[%zu] is %s, supported are \"sparse\" and \"dense\"", key, i, hf_show(v).text);
    }
}

/* Layers with experts: from `first` to `last`, every n-th of all; or by a list. */
static void hf_moe_layers(struct hf *c)
{
    struct model_spec           *s = c->spec;
    const struct model_moe_keys *k = s->family->moe;
    const char                  *every = k && k->every ? k->every : "decoder_sparse_step";
    uint32_t                     step = hf_size(c, every, 1, LAYERS_MAX, 1), first = 0;
    int64_t                      last = -1;
    if (k && k->first) first = hf_size(c, k->first, 0, LAYERS_MAX, s->family->def->first_dense);
    if (k && k->last) last = hf_int(c, c->text, k->last, -1, LAYERS_MAX, -1);
    if (c->st) return;
    if (!(s->layer_moe = calloc(s->n_layer, 1))) {
        c->st = ST_NOMEM;
        return;
    }
    const json_t *types = hf_value(c->text, "mlp_layer_types");
    if (types) {
        hf_moe_types(c, "mlp_layer_types", types);
        return;
    }
    if (k && k->layers && hf_value(c->text, k->layers)) {
        hf_moe_mark(c, k->layers, 1);
        return;
    }
    for (uint32_t l = first; l < s->n_layer && (last < 0 || l <= last); l++)
        s->layer_moe[l] = s->n_expert > 0 && (l + 1) % step == 0;
}

/* Only experts of the best groups are chosen. One group is none. */
static void hf_moe_groups(struct hf *c)
{
    struct model_spec *s = c->spec;
    s->route_scale = (float)hf_num(c, c->text, "routed_scaling_factor", 1e-6, 1e6,
                                   s->family->def->route_scale > 0 ? s->family->def->route_scale : 1);
    s->n_group = hf_size(c, "n_group", 1, OP_ROUTE_GROUPS_MAX, 1);
    s->group_keep = hf_size(c, "topk_group", 1, OP_ROUTE_GROUPS_MAX, 1);
    if (c->st) return;
    if (s->group_keep > s->n_group) {
        hf_fail(c, "topk_group is %u, at most n_group, which is %u", s->group_keep, s->n_group);
        return;
    }
    if (s->n_group == 1) {
        s->n_group = s->group_keep = 0;
        return;
    }
    if (s->n_expert % s->n_group || s->n_expert / s->n_group < 2)
        hf_fail(c, "n_group is %u, must divide the number of experts, which is %u, into groups of 2 at least",
                s->n_group, s->n_expert);
    else if (s->n_expert / s->n_group * s->group_keep < s->top_k_expert)
        hf_fail(c, "topk_group is %u of %u groups: they have %u experts, and each token takes %u", s->group_keep,
                s->n_group, s->n_expert / s->n_group * s->group_keep, s->top_k_expert);
}

/* The width of the expert that all rows share: a key of its own, or a number of experts. */
static void hf_moe_shared(struct hf *c, const struct model_moe_keys *k)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    if (k->shared_inter) s->shared_inter = hf_size(c, k->shared_inter, 1, INTER_MAX, def->shared_inter);
    if (!k->n_shared) return;
    uint32_t n = hf_size(c, k->n_shared, 0, EXPERTS_MAX, def->n_shared);
    if (!c->st && (uint64_t)n * s->moe_inter > INTER_MAX)
        hf_fail(c, "%s x moe_intermediate_size is %u x %u, at most %d", k->n_shared, n, s->moe_inter, INTER_MAX);
    else
        s->shared_inter = n * s->moe_inter;
}

/* Keys of published files that say what transformers does whatever they say: another value is another model. */
static void hf_moe_refuse(struct hf *c, const struct model_moe_keys *k)
{
    const char *score = k->score == OP_ROUTE_SIGMOID ? "sigmoid" : "softmax", *method = k->bias ? "noaux_tc" : "greedy";
    const json_t *v = hf_value(c->text, "scoring_func"), *types = hf_value(c->text, "attn_type_list");
    size_t        i;
    if (v && !(json_is_string(v) && !strcmp(json_string_value(v), score)))
        hf_fail(c, "scoring_func is %s, supported of %s is %s", hf_show(v).text, c->spec->family->arch, score);
    v = hf_value(c->text, "topk_method");
    if (v && !(json_is_string(v) && !strcmp(json_string_value(v), method)))
        hf_fail(c, "topk_method is %s, supported of %s is %s", hf_show(v).text, c->spec->family->arch, method);
    v = hf_value(c->text, "use_routing_bias");
    if (v && hf_flag(c, v, "use_routing_bias", k->bias) != k->bias)
        hf_fail(c, "use_routing_bias is %s, supported of %s is %s", hf_show(v).text, c->spec->family->arch,
                k->bias ? "true" : "false");
    if (hf_size(c, "shared_intermediate_size", 0, INTER_MAX, 0))
        hf_fail(c, "shared_intermediate_size is %s, supported of %s is 0",
                hf_show(hf_value(c->text, "shared_intermediate_size")).text, c->spec->family->arch);
    if (types && !json_is_array(types)) hf_fail(c, "attn_type_list is %s, must be a list", hf_show(types).text);
    json_array_foreach(types, i, v) if (!json_is_integer(v) || json_integer_value(v) != 1)
        hf_fail(c, "attn_type_list[%zu] is %s, supported is 1 (softmax attention)", i, hf_show(v).text);
}

/* What only routers of their own and shared experts have. */
static void hf_moe_route(struct hf *c, const struct model_moe_keys *k)
{
    struct model_spec *s = c->spec;
    s->router_bias = k->bias;
    s->norm_topk |= k->renorm;
    s->route_sum_min = k->sum_min;
    if (k->sum_min_key) s->route_sum_min = (float)hf_num(c, c->text, k->sum_min_key, 0, 1, (double)k->sum_min);
    if (k->groups) hf_moe_groups(c);
    hf_moe_shared(c, k);
    hf_moe_refuse(c, k);
    const char *bias = s->family->bias ? s->family->bias->mlp : NULL;
    if (s->shared_inter && bias && hf_flag(c, hf_value(c->text, bias), bias, false))
        hf_fail(c, "%s is true, which is not supported beside shared experts", bias);
}

void hf_moe(struct hf *c)
{
    struct model_spec           *s = c->spec;
    const struct model_defaults *def = s->family->def;
    const struct model_moe_keys *k = s->family->moe;
    if (s->family->gemma4) s->moe_beside = hf_flag(c, hf_value(c->text, "enable_moe_block"), "enable_moe_block", false);
    if (s->family->ffn != FFN_MOE && !s->moe_beside) return;
    const char *key = hf_value(c->text, "num_local_experts") ? "num_local_experts" : "num_experts",
               *top = "num_experts_per_tok";
    if (k && k->n_expert && hf_value(c->text, k->n_expert)) key = k->n_expert;
    if (k && k->top_k && hf_value(c->text, k->top_k)) top = k->top_k;
    s->n_expert = hf_size(c, key, 0, EXPERTS_MAX, def->n_expert);
    s->n_expert_key = key;
    s->top_k_expert = hf_size(c, top, 1, EXPERTS_MAX, def->top_k_expert);
    s->moe_inter = hf_size(c, "moe_intermediate_size", 1, INTER_MAX, def->moe_inter ? def->moe_inter : s->inter);
    if (k && k->dense_inter) s->inter = hf_size(c, k->dense_inter, 1, INTER_MAX, def->dense_inter);
    s->norm_topk =
        hf_flag(c, hf_value(c->text, "norm_topk_prob"), "norm_topk_prob", def->norm_topk) || s->family->norm_topk;
    if (s->moe_beside && !s->n_expert) hf_fail(c, "num_experts is missing beside enable_moe_block");
    if (c->st) return;
    if (s->n_expert && s->top_k_expert > s->n_expert) {
        hf_fail(c, "%s is %u, at most %s, which is %u", top, s->top_k_expert, key, s->n_expert);
        return;
    }
    const char *extra = hf_value(c->text, "num_nextn_predict_layers") ? "num_nextn_predict_layers" : "num_mtp_layers";
    s->n_extra_layer = hf_size(c, extra, 0, LAYERS_MAX, def->n_extra_layer);
    if (k && s->n_expert) hf_moe_route(c, k);
    hf_moe_layers(c);
    if (!c->st) hf_moe_mark(c, "mlp_only_layers", 0);
}
