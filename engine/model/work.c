/* work: how many numbers a step multiplies with and reads; closed form, from the hparams alone. */
#include "engine/model/bind.h"
#include "engine/model/model.h"
#include <math.h>

struct model_work model_work(const struct model_spec *s, uint32_t n_seq)
{
    struct model_work w = { .params = 0 };
    double            hidden = s->hidden, head = (double)s->vocab * hidden, linear = 0, active = 0, read = 0;
    double            ple = (double)s->n_layer * s->ple_dim, tokens = ple * s->ple_vocab;
    for (uint32_t l = 0; l < s->n_layer; l++) {
        double heads = (double)s->n_head * spec_head_dim(s, l), kv = (double)spec_n_kv_head(s, l) * spec_head_dim(s, l);
        double dense = (s->family->ffn == FFN_MLP ? 2 : 3) * hidden * spec_inter(s, l);
        if (spec_kv_layer(s, l) != l) kv = 0;
        double mix = hidden * (heads + 2 * kv) + heads * hidden + 3 * hidden * s->ple_dim, one = mix, all = mix,
               touched = mix;
        w.attend += 4 * heads;
        if (spec_layer_moe(s, l)) {
            double expert = 3 * hidden * (s->moe_inter ? s->moe_inter : s->inter),
                   router = hidden * (s->n_expert + 3.0 * s->shared_inter);
            /* of independent choices of top_k out of n_expert, so many experts are chosen by somebody */
            double some = s->n_expert * (1 - pow(1 - (double)s->top_k_expert / s->n_expert, n_seq));
            all += router + expert * s->n_expert;
            one += router + expert * s->top_k_expert;
            touched += router + expert * some;
        }
        if (!spec_layer_moe(s, l) || s->moe_beside) {
            all += dense;
            one += dense;
            touched += dense;
        }
        linear += all;
        active += one;
        read += touched;
    }
    w.params = linear + head * (s->tied ? 1 : 2) + tokens;
    w.active = active + head;
    w.read = read + head; /* of the embedding a row for each token is looked up: nothing, beside the head */
    return w;
}
