/* hf_encoder: what config.json says of an encoder's embeddings. */
#include "engine/model/hf.h"
#include <string.h>

static void hf_must_be(struct hf *c, const char *key, bool wanted)
{
    bool is = hf_flag(c, hf_value(c->text, key), key, wanted);
    if (is != wanted)
        hf_fail(c, "%s is %s, must be %s: %s is served as an encoder", key, is ? "true" : "false",
                wanted ? "true" : "false", c->spec->family->arch);
}

/* Learned positions have a table, of which some rows are before the first position. */
static void hf_positions(struct hf *c)
{
    struct model_spec         *s = c->spec;
    const struct model_family *f = s->family;
    const char                *type = hf_str(c->text, "position_embedding_type");
    if (!f->learned_pos) return;
    if (type && strcmp(type, "absolute") != 0)
        hf_fail(c, "position_embedding_type is \"%.40s\", supported is absolute", type);
    if (!f->pos_after_pad) return;
    uint32_t pad = hf_size(c, "pad_token_id", 0, 1 << 24, f->def->pad_id);
    if (pad + 1 >= s->context)
        hf_fail(c,
                "pad_token_id is %u, must be less than max_position_embeddings, %u, minus 1: positions begin behind it",
                pad, s->context);
    else
        s->pos_first = pad + 1;
    s->context -= s->pos_first;
}

/* Flags and numbers of code that was published beside the first files of nomic-bert: served is what those files say. */
static void hf_published(struct hf *c)
{
    static const char *const none[] = { "prenorm",      "rotary_emb_interleaved", "qkv_proj_bias", "mlp_fc1_bias",
                                        "mlp_fc2_bias", "parallel_block",         "use_rms_norm" };
    static const char *const null[] = { "rotary_emb_scale_base", "rotary_scaling_factor", "num_experts" };
    const char              *act = hf_str(c->text, "activation_function");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) hf_must_be(c, none[i], false);
    for (size_t i = 0; i < sizeof null / sizeof *null; i++) {
        const json_t *v = hf_value(c->text, null[i]);
        if (v && hf_num_of(c, v, null[i], -1e9, 1e9, 0) != 0)
            hf_fail(c, "%s is %s, supported is null", null[i], hf_show(v).text);
    }
    if (hf_num(c, c->text, "rotary_emb_fraction", 0, 1, 1) != 1)
        hf_fail(c, "rotary_emb_fraction is %s, supported is 1", hf_show(hf_value(c->text, "rotary_emb_fraction")).text);
    if (act && strcmp(act, "swiglu") != 0) hf_fail(c, "activation_function is \"%.40s\", supported is swiglu", act);
}

/* What GTE's first files say beside the keys of transformers. */
static void hf_gte(struct hf *c)
{
    static const struct {
        const char *key, *served;
    } kinds[] = { { "position_embedding_type", "rope" }, { "layer_norm_type", "layer_norm" } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *kind = hf_str(c->text, kinds[i].key);
        if (kind && strcmp(kind, kinds[i].served) != 0)
            hf_fail(c, "%s is \"%.40s\", supported of %s is %s", kinds[i].key, kind, c->spec->family->arch,
                    kinds[i].served);
    }
    hf_must_be(c, "logn_attention_scale", false);
}

/* What some encoders have in their layers that is not computed here, under names that are served. */
static void hf_beyond(struct hf *c)
{
    const char   *type = hf_str(c->text, "position_embedding_type");
    const json_t *adapters = hf_value(c->text, "lora_adaptations"), *alibi = hf_value(c->text, "alibi_starting_size");
    if ((type && !strcmp(type, "alibi")) || alibi)
        hf_fail(c, "%s is %s: scores that fall with the distance of two tokens (ALiBi) are not served",
                alibi ? "alibi_starting_size" : "position_embedding_type",
                hf_show(alibi ? alibi : hf_value(c->text, "position_embedding_type")).text);
    if (json_array_size(adapters))
        hf_fail(c,
                "lora_adaptations is %s: adapters of tasks within the weights are not served, but a folder with one of "
                "them merged or without any (JinaEmbeddingsV3Model) is",
                hf_show(adapters).text);
}

void hf_encoder(struct hf *c)
{
    struct model_spec *s = c->spec;
    if (!model_is_encoder(s)) return;
    s->pool = POOL_CLS;
    if (s->classifies && !s->family->dense_head)
        hf_fail(c, "architectures[0] is a ...ForSequenceClassification, but %s makes vectors alone", s->family->arch);
    hf_must_be(c, "is_decoder", false);
    hf_must_be(c, "add_cross_attention", false);
    hf_beyond(c);
    hf_positions(c);
    if (s->family->published) hf_published(c);
    if (s->family->gte) hf_gte(c);
    if (s->family->local) {
        hf_must_be(c, "norm_bias", false);
        hf_must_be(c, "attention_bias", false);
        hf_must_be(c, "mlp_bias", false);
        s->window = hf_size(c, "local_attention", 1, 1 << 30, 128) / 2 + 1;
    }
    if (s->family->typed) s->n_type = hf_size(c, "type_vocab_size", 0, 1 << 16, s->family->def->n_type);
}
