/* bind_quant: the tensors of matrices that are codes: their names, types and shapes. What they mean: read_quant.c. */
#include "engine/model/bind.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct suffix {
    const char *text;
    enum part   part; /* PART_COUNT: of activations or of the KV cache, which are not codes here */
};
static const struct suffix bytes[] = { { ".weight_scale", PART_SCALE },
                                       { ".weight_scale_inv", PART_SCALE },
                                       { ".input_scale", PART_COUNT },
                                       { ".activation_scale", PART_COUNT },
                                       { ".k_scale", PART_COUNT },
                                       { ".v_scale", PART_COUNT },
                                       { ".q_scale", PART_COUNT },
                                       { ".output_scale", PART_COUNT },
                                       { ".input_zero_point", PART_COUNT },
                                       { ".output_zero_point", PART_COUNT },
                                       { NULL, PART_COUNT } },
                           words[] = { { ".qweight", PART_WEIGHT },
                                       { ".scales", PART_SCALE },
                                       { ".qzeros", PART_ZERO },
                                       { ".g_idx", PART_INDEX },
                                       { NULL, PART_COUNT } },
                           packed[] = { { ".weight_packed", PART_WEIGHT },
                                        { ".weight_scale", PART_SCALE },
                                        { ".weight_zero_point", PART_ZERO },
                                        { ".weight_g_idx", PART_INDEX },
                                        { ".weight_shape", PART_COUNT },
                                        { ".input_scale", PART_COUNT },
                                        { ".input_zero_point", PART_COUNT },
                                        { ".k_scale", PART_COUNT },
                                        { ".v_scale", PART_COUNT },
                                        { ".output_scale", PART_COUNT },
                                        { NULL, PART_COUNT } },
                           nvfp4[] = { { ".weight_packed", PART_WEIGHT },
                                       { ".weight_scale", PART_SCALE },
                                       { ".weight_global_scale", PART_FACTOR },
                                       { ".input_global_scale", PART_COUNT },
                                       { ".k_scale", PART_COUNT },
                                       { ".v_scale", PART_COUNT },
                                       { ".q_scale", PART_COUNT },
                                       { ".output_scale", PART_COUNT },
                                       { NULL, PART_COUNT } },
                           modelopt[] = { { ".weight_scale", PART_SCALE }, { ".weight_scale_2", PART_FACTOR },
                                          { ".input_scale", PART_COUNT },  { ".k_scale", PART_COUNT },
                                          { ".v_scale", PART_COUNT },      { ".q_scale", PART_COUNT },
                                          { ".output_scale", PART_COUNT }, { NULL, PART_COUNT } },
                           /* of bytes, behind the name of a tensor of all experts, which has no .weight */
    stacked[] = { { "_scale_inv", PART_SCALE }, { "_activation_scale", PART_COUNT }, { NULL, PART_COUNT } };

static const struct suffix *suffixes(const struct model_spec *s)
{
    static const struct suffix *const of[] = {
        [QUANT_NONE] = words, [QUANT_FP8] = bytes,     [QUANT_INT8] = bytes,  [QUANT_AWQ] = words,
        [QUANT_GPTQ] = words, [QUANT_PACKED] = packed, [QUANT_NVFP4] = nvfp4, [QUANT_MODELOPT] = modelopt
    };
    return of[s->quant.method];
}

uint64_t bind_linear_slots(void)
{
    return SLOT_BIT(SLOT_Q) | SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_V) | SLOT_BIT(SLOT_O) | SLOT_BIT(SLOT_GATE) |
           SLOT_BIT(SLOT_UP) | SLOT_BIT(SLOT_DOWN) | SLOT_BIT(SLOT_S_GATE) | SLOT_BIT(SLOT_S_UP) |
           SLOT_BIT(SLOT_S_DOWN) | SLOT_BIT(SLOT_X_GATE) | SLOT_BIT(SLOT_X_UP) | SLOT_BIT(SLOT_X_DOWN);
}

uint64_t bind_code_slots(void)
{
    return bind_linear_slots() | SLOT_BIT(SLOT_PLE_PROJ) | SLOT_BIT(SLOT_PLE_GATE) | SLOT_BIT(SLOT_PLE_BACK);
}

bool bind_is_codes(const struct model_spec *s, enum slot slot, uint32_t layer)
{
    if (s->quant.method == QUANT_NONE || !(bind_code_slots() >> slot & 1)) return false;
    return !s->layer_codes || s->layer_codes[layer].codes >> slot & 1;
}

bool bind_weight_is_codes(const struct model_spec *s, const struct st_tensor *t, const char *name, const char *plain)
{
    if (s->quant.method == QUANT_FP8) return t->dtype == ST_DT_F8E4M3;
    if (s->quant.method == QUANT_INT8) return t->dtype == ST_DT_I8;
    if (s->quant.method == QUANT_MODELOPT) return t->dtype == ST_DT_U8;
    return strcmp(name, plain) != 0;
}

/* The row whose text a name ends in; NULL: none */
static const struct suffix *suffix_of(const struct suffix *x, const char *name)
{
    size_t n = strlen(name);
    for (; x->text; x++)
        if (n >= strlen(x->text) && !strcmp(name + n - strlen(x->text), x->text)) return x;
    return NULL;
}

bool bind_part_name(const struct model_spec *s, const char *tensor, char *plain, size_t plain_bytes,
                    enum part *part_out)
{
    const struct suffix *own = suffix_of(suffixes(s), tensor), *all = suffixes(s) == bytes ? stacked : NULL;
    const struct suffix *x = own || !all ? own : suffix_of(all, tensor);
    *part_out = x ? x->part : PART_WEIGHT;
    snprintf(plain, plain_bytes, "%.*s%s", (int)(strlen(tensor) - (x ? strlen(x->text) : 0)), tensor,
             own ? ".weight" : "");
    return *part_out != PART_COUNT;
}

const char *bind_part_text(const struct model_spec *s, enum part part, const char *plain, char *text, size_t text_bytes)
{
    size_t n = strlen(plain), k = strlen(".weight");
    bool   own = n > k && !strcmp(plain + n - k, ".weight");
    snprintf(text, text_bytes, "%s", plain);
    for (const struct suffix *x = own || suffixes(s) != bytes ? suffixes(s) : stacked; x->text; x++)
        if (x->part == part && n > k) {
            snprintf(text, text_bytes, "%.*s%s", (int)(own ? n - k : n), plain, x->text);
            break;
        }
    return text;
}

bool bind_part_needed(const struct model_spec *s, enum part part)
{
    if (part == PART_ZERO) return s->quant.method == QUANT_GPTQ || s->quant.q.zero;
    if (part == PART_INDEX) return s->quant.indexed;
    if (part == PART_FACTOR) return s->quant.q.code == DT_F4E2M1;
    return part == PART_WEIGHT || part == PART_SCALE;
}

/* b 0: one dimension */
static enum status part_is(const struct st_tensor *t, enum st_dtype dtype, const char *dtype_text, uint64_t a,
                           uint64_t b, char *why, size_t why_bytes)
{
    char             have[128], want[64];
    struct st_tensor wish = { .rank = b ? 2 : 1, .shape = { a, b } };
    if (t->dtype != dtype) {
        snprintf(why, why_bytes, "has dtype %s, quantization_config makes it %s", t->dtype_text, dtype_text);
        return ST_CONFIG;
    }
    if (t->rank == wish.rank && t->shape[0] == a && (!b || t->shape[1] == b)) return ST_OK;
    snprintf(why, why_bytes, "has shape %s, config.json makes it %s", st_shape_text(t, have, sizeof have),
             st_shape_text(&wish, want, sizeof want));
    return ST_CONFIG;
}

static enum status scale_is(const struct st_tensor *t, uint64_t a, uint64_t b, char *why, size_t why_bytes)
{
    if (t->dtype == ST_DT_F32 || t->dtype == ST_DT_BF16 || t->dtype == ST_DT_F16)
        return part_is(t, t->dtype, "", a, b, why, why_bytes);
    snprintf(why, why_bytes, "has dtype %s, supported for scales are F32, BF16 and F16", t->dtype_text);
    return ST_CONFIG;
}

/* Codes of a byte each, rows as in the matrix. */
static enum status byte_check(const struct model_spec *s, enum part part, const struct st_tensor *t, uint64_t n,
                              uint64_t k, char *why, size_t why_bytes)
{
    uint64_t rows = s->quant.block_rows, group = s->quant.q.group;
    bool     fp8 = s->quant.method == QUANT_FP8;
    if (part == PART_WEIGHT)
        return part_is(t, fp8 ? ST_DT_F8E4M3 : ST_DT_I8, fp8 ? "F8_E4M3" : "I8", n, k, why, why_bytes);
    if (!rows && group) rows = 1;
    if (rows) return scale_is(t, (n + rows - 1) / rows, (k + group - 1) / group, why, why_bytes);
    struct st_tensor flat = *t; /* one or one per row: [], [1], [n], [n, 1] */
    if (flat.rank == 0) {
        flat.rank = 1;
        flat.shape[0] = 1;
    }
    if (flat.rank == 2 && flat.shape[1] == 1) flat.rank = 1;
    return scale_is(&flat, flat.shape[0] == 1 ? 1 : n, 0, why, why_bytes);
}

/* Codes in words along a row (compressed-tensors). */
static enum status packed_check(const struct model_spec *s, enum part part, const struct st_tensor *t, uint64_t n,
                                uint64_t k, char *why, size_t why_bytes)
{
    uint64_t groups = s->quant.q.group ? k / s->quant.q.group : 1;
    switch (part) {
    case PART_WEIGHT: return part_is(t, ST_DT_I32, "I32", n, s->quant.q.code == DT_I4 ? k / 8 : k / 4, why, why_bytes);
    case PART_ZERO: return part_is(t, ST_DT_I32, "I32", (n + 7) / 8, groups, why, why_bytes);
    case PART_INDEX: return part_is(t, ST_DT_I32, "I32", k, 0, why, why_bytes);
    default: return scale_is(t, n, groups, why, why_bytes);
    }
}

/* Pairs of codes along a row, a scale of E4M3 for each group, and one for the tensor: [] or [1]. */
static enum status nvfp4_check(const struct model_spec *s, enum part part, const struct st_tensor *t, uint64_t n,
                               uint64_t k, char *why, size_t why_bytes)
{
    struct st_tensor flat = *t;
    if (flat.rank == 0) flat.shape[0] = 1;
    if (flat.rank == 0) flat.rank = 1;
    if (k % s->quant.q.group) {
        snprintf(why, why_bytes, "is of a matrix [%" PRIu64 ", %" PRIu64 "], which is no whole number of groups of %u",
                 n, k, s->quant.q.group);
        return ST_CONFIG;
    }
    if (part == PART_WEIGHT) return part_is(t, ST_DT_U8, "U8", n, k / 2, why, why_bytes);
    if (part == PART_SCALE) return part_is(t, ST_DT_F8E4M3, "F8_E4M3", n, k / s->quant.q.group, why, why_bytes);
    return part_is(&flat, ST_DT_F32, "F32", 1, 0, why, why_bytes);
}

enum status bind_part_check(const struct model_spec *s, enum part part, const struct st_tensor *t, uint64_t n,
                            uint64_t k, char *why, size_t why_bytes)
{
    uint64_t groups = s->quant.q.group ? k / s->quant.q.group : 1;
    if (part == PART_COUNT) {
        snprintf(why, why_bytes, "belongs to a matrix that is not quantised here");
        return ST_CONFIG;
    }
    if (s->quant.method == QUANT_FP8 || s->quant.method == QUANT_INT8)
        return byte_check(s, part, t, n, k, why, why_bytes);
    if (s->quant.q.code == DT_F4E2M1) return nvfp4_check(s, part, t, n, k, why, why_bytes);
    bool packs = s->quant.method == QUANT_PACKED;
    if ((n % 8 && !packs) || k % 8 || (s->quant.q.group && k % s->quant.q.group)) {
        snprintf(why, why_bytes,
                 "is of a matrix [%" PRIu64 ", %" PRIu64 "], which is no whole number of words and groups of %u", n, k,
                 s->quant.q.group);
        return ST_CONFIG;
    }
    if (packs) return packed_check(s, part, t, n, k, why, why_bytes);
    bool awq = s->quant.method == QUANT_AWQ;
    switch (part) {
    case PART_WEIGHT: return part_is(t, ST_DT_I32, "I32", awq ? k : k / 8, awq ? n / 8 : n, why, why_bytes);
    case PART_ZERO: return part_is(t, ST_DT_I32, "I32", groups, n / 8, why, why_bytes);
    case PART_INDEX: return part_is(t, ST_DT_I32, "I32", k, 0, why, why_bytes);
    default: return scale_is(t, groups, n, why, why_bytes);
    }
}
