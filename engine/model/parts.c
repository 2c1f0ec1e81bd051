#include "engine/model/parts.h"

static const struct mix_part mixes[] = {
    [MIX_GQA] = { .place = mix_gqa_place, .run = mix_gqa },
};
static const struct ffn_part ffns[] = {
    [FFN_GLU] = { .place = ffn_dense_place, .run = ffn_dense },
    [FFN_MOE] = { .place = ffn_moe_place, .run = ffn_moe },
};

const struct mix_part *parts_mix(const struct model_spec *spec, uint32_t l)
{
    (void)l; /* so far all layers of a family mix in one way */
    return &mixes[spec->family->mix];
}

const struct ffn_part *parts_ffn(const struct model_spec *spec, uint32_t l) { return &ffns[spec_layer_moe(spec, l) ? FFN_MOE : FFN_GLU]; }
