#include "engine/model/parts.h"
#include "base/check.h"

static const struct mix_part mixes[] = {
    [MIX_GQA] = { .place = mix_gqa_place, .run = mix_gqa, .kv = mix_gqa_kv },
    [MIX_MUTUAL] = { .place = mix_gqa_place, .run = mix_mutual, .kv = mix_mutual_kv },
};
static const struct ffn_part ffns[] = {
    [FFN_GLU] = { .place = ffn_dense_place, .run = ffn_dense },
    [FFN_MLP] = { .place = ffn_mlp_place, .run = ffn_mlp },
    [FFN_BESIDE] = { .place = ffn_beside_place, .run = ffn_beside },
    [FFN_MOE] = { .place = ffn_moe_place, .run = ffn_moe },
};

const struct mix_part *parts_mix(const struct model_spec *spec, uint32_t l)
{
    (void)l; /* so far all layers of a family mix in one way */
    return &mixes[spec->family->mix];
}

const struct ffn_part *parts_ffn(const struct model_spec *spec, uint32_t l)
{
    if (spec_layer_moe(spec, l)) return &ffns[spec->moe_beside ? FFN_BESIDE : FFN_MOE];
    return &ffns[spec->family->ffn == FFN_MLP ? FFN_MLP : FFN_GLU];
}

/* A state is not of tokens and fits into no block; the first part that has one brings the pool for it. */
uint64_t parts_kv(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens,
                  struct dev_kv_layer *layer_out, uint64_t *window_out)
{
    uint64_t at = 0, at_window = 0;
    for (uint32_t l = 0; l < spec->n_layer; l++) {
        struct kv_need need = parts_mix(spec, l)->kv(spec, l, n_rank, kv);
        CHECK(need.life == KV_LIFE_ALL || need.life == KV_LIFE_WINDOW);
        uint64_t  bytes = need.bytes * block_tokens;
        uint64_t *here = window_out && need.life == KV_LIFE_WINDOW ? &at_window : &at;
        if (layer_out) layer_out[l] = (struct dev_kv_layer){ .offset = *here, .bytes = bytes };
        *here += bytes;
    }
    if (window_out) *window_out = at_window;
    return at;
}

uint64_t model_kv_block_bytes(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens)
{
    return parts_kv(spec, n_rank, kv, block_tokens, NULL, NULL);
}

bool model_kv_groups(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens,
                     struct model_kv_groups *out)
{
    struct model_kv_groups g = { .window = 0 };
    for (uint32_t l = 0; l < spec->n_layer; l++) {
        struct kv_need need = parts_mix(spec, l)->kv(spec, l, n_rank, kv);
        if (need.life == KV_LIFE_WINDOW && need.window > g.window) g.window = need.window;
    }
    g.block_bytes = parts_kv(spec, n_rank, kv, block_tokens, NULL, &g.window_bytes);
    if (!g.block_bytes || !g.window_bytes) return false;
    *out = g;
    return true;
}
