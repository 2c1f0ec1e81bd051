/* Checkpoints of every family as the tools write them whose matrices are codes, against the floats that the codes mean.
 * They are made here of the golden checkpoints of floats, and without engine/model/names.c: a tool takes every linear
 * layer of the decoder but routers and gates, and turns a tensor of all experts into linear layers of each.
 * Over 500 lines: one rewriting, with a row for each layout. */
#include "engine/model/bind.h"
#include "golden_names.h"
#include "memory_source.h"
#include "recode.h"

/* ---- how tools store matrices */

#define COMPRESSED(format, weights)                                 \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format \
    "\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],"  \
    "\"weights\":{" weights "}}},\"ignore\":[\"lm_head\"]}"
#define OF_GROUPS "\"strategy\":\"group\",\"group_size\":GROUP"
static const struct recode_layout layouts[] = {
    { "awq", RECODE_AWQ, RECODE_GROUPS, 4, .zeros = true,
      .config = "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":GROUP,\"zero_point\":true,\"version\":\"gemm\"}" },
    { "gptq", RECODE_GPTQ, RECODE_GROUPS, 4,
      .config = "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":GROUP,\"sym\":true,\"desc_act\":false}" },
    { "gptq desc_act", RECODE_GPTQ, RECODE_GROUPS, 4, .zeros = true, .order = true,
      .config = "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":GROUP,\"sym\":false,\"desc_act\":true}" },
    { "fp8 blocks", RECODE_BYTES, RECODE_BLOCKS, 8, .fp8 = true, .scale_name = ".weight_scale_inv",
      .config = "{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[24,32]}" },
    { "compressed fp8 blocks", RECODE_BYTES, RECODE_BLOCKS, 8, .fp8 = true,
      .config = COMPRESSED("float-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\","
                                              "\"block_structure\":[24,32]") },
    { "compressed fp8", RECODE_BYTES, RECODE_CHANNEL, 8, .fp8 = true,
      .config = COMPRESSED("float-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"") },
    { "fp8 of one scale", RECODE_BYTES, RECODE_TENSOR, 8, .fp8 = true,
      .config = "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}" },
    { "packed", RECODE_PACKED, RECODE_GROUPS, 4,
      .config = COMPRESSED("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"symmetric\":true," OF_GROUPS) },
    { "packed zeros", RECODE_PACKED, RECODE_GROUPS, 4, .zeros = true,
      .config = COMPRESSED("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"symmetric\":false," OF_GROUPS) },
    { "packed 8", RECODE_PACKED, RECODE_CHANNEL, 8,
      .config =
          COMPRESSED("pack-quantized", "\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"channel\"") },
    { "int8", RECODE_BYTES, RECODE_CHANNEL, 8,
      .config =
          COMPRESSED("int-quantized", "\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"channel\"") },
    { "nvfp4", RECODE_NVFP4, RECODE_GROUPS, 4,
      .config = COMPRESSED("nvfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\","
                                                   "\"group_size\":16,\"symmetric\":true,\"dynamic\":false") },
    { "modelopt nvfp4", RECODE_MODELOPT, RECODE_GROUPS, 4,
      .config = "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"ignore\":[\"lm_head\"]}" },
    /* transformers 5 (FP8Experts), and files of Qwen3-VL as published: both round a tensor of all experts as it lies */
    { "fp8 blocks, experts together", RECODE_BYTES, RECODE_BLOCKS, 8, .fp8 = true, .scale_name = ".weight_scale_inv",
      .config = "{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[32,32]}",
      .stack = true, .block_rows = 32 },
    { "fp8 of one scale, experts together", RECODE_BYTES, RECODE_TENSOR, 8, .fp8 = true,
      .scale_name = ".weight_scale_inv",
      .config = "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"weight_block_size\":null}",
      .stack = true },
};

/* ---- which matrices there are */

/* A checkpoint whose experts lie in one tensor. Their matrices are [outputs, inputs], or with `columns` the other way
 * round; gates and ups one after the other, or with `turns` alternately. */
static const struct stacked {
    const char *golden;
    bool        columns, turns;
} stacks[] = {
    { "gpt-oss", true, true },       { "qwen3-vl-moe", true, false },   { "qwen3-vl-moe-rows", false, false },
    { "llama4", true, false },       { "llama4-wrapped", true, false }, { "gemma4-moe", false, false },
    { "granite-moe", false, false },
};

/* What tools leave out. */
static const char *const left_out[] = { "norm",
                                        "router",
                                        "mlp.gate.",
                                        "block_sparse_moe.gate.",
                                        "shared_expert_gate.",
                                        "visual.",
                                        "vision_",
                                        "multi_modal_projector.",
                                        "embed_tokens" };

static bool is_linear(const struct st_tensor *t)
{
    const char *end = strrchr(t->name, '.');
    if (t->rank != 2 || strcmp(end, ".weight") != 0) return false;
    if (!strstr(t->name, ".layers.") && !strstr(t->name, "per_layer_model_projection")) return false;
    for (size_t i = 0; i < ARRAY_N(left_out); i++)
        if (strstr(t->name, left_out[i])) return false;
    return true;
}

/* Tensors of all experts of a layer by the ends of their names, and the layers that each expert gets of one. */
static const struct stack_end {
    const char *end, *part[2];
    bool        bias;
} stack_ends[] = {
    { ".experts.gate_up_proj", { "gate_proj", "up_proj" }, false },
    { ".experts.down_proj", { "down_proj", NULL }, false },
    { ".experts.gate_up_proj_bias", { "gate_proj", "up_proj" }, true },
    { ".experts.down_proj_bias", { "down_proj", NULL }, true },
    { ".input_linear.weight", { "gate_proj", "up_proj" }, false },
    { ".output_linear.weight", { "down_proj", NULL }, false },
};

static const struct stack_end *stack_end_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_N(stack_ends); i++) {
        size_t n = strlen(name), k = strlen(stack_ends[i].end);
        if (n > k && !strcmp(name + n - k, stack_ends[i].end)) return &stack_ends[i];
    }
    return NULL;
}

/* Of a tensor of all experts: the place of output o of n and input i of k of expert e. */
static size_t stack_at(const struct stacked *s, size_t e, size_t o, size_t n, size_t i, size_t k)
{
    return s->columns ? (e * k + i) * n + o : (e * n + o) * k + i;
}

static const char *shape_text(const struct st_tensor *t, char *text, size_t text_bytes)
{
    size_t n = (size_t)snprintf(text, text_bytes, "[");
    for (uint32_t i = 0; i < t->rank; i++)
        n += (size_t)snprintf(text + n, text_bytes - n, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
    snprintf(text + n, text_bytes - n, "]");
    return text;
}

/* The codes of all experts in one tensor, as x lies there, and their scales in another, which has a dimension of experts
 * too; x then has what they mean. Of one scale gates and ups have one each, but in columns. */
static void recode_together(struct recode *r, const struct stacked *s, const struct st_tensor *t, float *x)
{
    static uint8_t        code[RECODE_DATA_MAX / sizeof(float)];
    static float          scale[RECODE_MATRIX_MAX];
    bool                  single = r->how->scale == RECODE_TENSOR, own = strstr(t->name, ".weight") != NULL;
    uint32_t              n_part = single && !s->columns && stack_end_of(t->name)->part[1] ? 2 : 1;
    uint32_t              n = (uint32_t)t->shape[1], k = (uint32_t)t->shape[2], rows = n / n_part, n_scale = 0;
    uint32_t              high = single ? n_part : (n + r->how->block_rows - 1) / r->how->block_rows;
    struct recode_matrix *m = &recode_matrix;
    char                  name[RECODE_NAME_MAX], shape[64];
    for (uint32_t e = 0; e < t->shape[0]; e++)
        for (uint32_t part = 0; part < n_part; part++) {
            size_t at = ((size_t)e * n + part * rows) * k;
            memcpy(m->x, x + at, (size_t)rows * k * sizeof *x);
            recode_round(r, m, rows, k);
            memcpy(x + at, m->x, (size_t)rows * k * sizeof *x);
            memcpy(code + at, m->code, (size_t)rows * k);
            uint32_t one = single ? 1 : high * m->groups;
            memcpy(scale + n_scale, m->scale, one * sizeof *scale);
            n_scale += one;
        }
    r->n_matrix++;
    recode_emit(&r->coded, t->name, "F8_E4M3", shape_text(t, shape, sizeof shape), code, (size_t)t->shape[0] * n * k);
    snprintf(name, sizeof name, "%s_scale_inv", t->name);
    snprintf(shape, sizeof shape, "[%u,%u,%u]", (uint32_t)t->shape[0], high, single ? 1 : m->groups);
    recode_emit(&r->coded, name, "F32", shape, scale, n_scale * sizeof *scale);
    if (!single || own) return;
    snprintf(name, sizeof name, "%s_activation_scale", t->name);
    snprintf(shape, sizeof shape, "[%u]", (uint32_t)t->shape[0]);
    recode_emit(&r->coded, name, "F32", shape, scale, t->shape[0] * sizeof *scale);
}

/* A linear layer for each expert and part; x then has what their codes mean. */
static void recode_stack(struct recode *r, const struct stacked *s, const struct st_tensor *t, float *x)
{
    const struct stack_end *end = stack_end_of(t->name);
    char                    module[RECODE_NAME_MAX];
    bool                    turned = s->columns && !end->bias;
    uint32_t                n = (uint32_t)t->shape[turned ? 2 : 1], k = (uint32_t)t->shape[turned ? 1 : 2];
    uint32_t                n_part = end->part[1] ? 2 : 1, rows = n / n_part;
    struct recode_matrix   *m = &recode_matrix;
    if (end->bias) k = 1;
    for (uint32_t e = 0; e < t->shape[0]; e++)
        for (uint32_t part = 0; part < n_part; part++) {
            uint32_t first = s->turns ? part : part * rows, step = s->turns ? n_part : 1;
            snprintf(module, sizeof module, "%.*s.experts.%u.%s", (int)(strlen(t->name) - strlen(end->end)), t->name, e,
                     end->part[part]);
            for (uint32_t i = 0; i < rows * k; i++) m->x[i] = x[stack_at(s, e, first + i / k * step, n, i % k, k)];
            if (end->bias) {
                recode_part(r, module, ".bias", "F32", rows, 0, m->x, rows * sizeof *m->x);
                continue;
            }
            recode_linear(r, m, module, rows, k);
            for (uint32_t i = 0; i < rows * k; i++) x[stack_at(s, e, first + i / k * step, n, i % k, k)] = m->x[i];
        }
}

/* ---- a golden checkpoint, rewritten */

static const struct stacked *stacked_of(const char *golden)
{
    for (size_t i = 0; i < ARRAY_N(stacks); i++)
        if (!strcmp(stacks[i].golden, golden)) return &stacks[i];
    return NULL;
}

/* stays: tensors of all experts stay floats, as a tool leaves them that knows no others than linear layers. */
static void recode_tensor(struct recode *r, const struct stacked *stacked, bool stays, const struct st_tensor *t,
                          const unsigned char *bytes)
{
    static float x[RECODE_DATA_MAX / sizeof(float)];
    char         shape[64], module[RECODE_NAME_MAX];
    size_t       n = 1;
    shape_text(t, shape, sizeof shape);
    for (uint32_t i = 0; i < t->rank; i++) n *= t->shape[i];
    assert_true(n <= ARRAY_N(x));
    for (size_t i = 0; i < n; i++) x[i] = bind_float(bytes, bind_dtype(t->dtype), i);
    const struct stack_end *end = stacked && !stays ? stack_end_of(t->name) : NULL;
    if (end && r->how->stack && !end->bias) {
        recode_together(r, stacked, t, x);
    } else if (end && !r->how->stack) {
        recode_stack(r, stacked, t, x);
    } else if (is_linear(t)) {
        snprintf(module, sizeof module, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
        memcpy(recode_matrix.x, x, n * sizeof *x);
        recode_linear(r, &recode_matrix, module, (uint32_t)t->shape[0], (uint32_t)t->shape[1]);
        memcpy(x, recode_matrix.x, n * sizeof *x);
    } else {
        recode_emit(&r->coded, t->name, "F32", shape, x, n * sizeof *x);
    }
    recode_emit(&r->plain, t->name, "F32", shape, x, n * sizeof *x);
}

/* Do the inputs of all matrices divide by n? */
static bool all_divide(const struct st_set *set, const struct stacked *stacked, uint32_t n)
{
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const struct st_tensor *t = &set->tensor[i];
        bool                    columns = stacked && stacked->columns && stack_end_of(t->name);
        if ((is_linear(t) || t->rank == 3) && t->shape[columns ? 1 : t->rank - 1] % n) return false;
    }
    return true;
}

static void folder(struct memory_source *out, struct recode_file *f, const char *config)
{
    static unsigned char file[8 + RECODE_HEADER_MAX + RECODE_DATA_MAX];
    f->n_header += (size_t)snprintf(f->header + f->n_header, RECODE_HEADER_MAX - f->n_header, "}");
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)f->n_header >> 8 * i);
    memcpy(file + 8, f->header, f->n_header);
    memcpy(file + 8 + f->n_header, f->data, f->n);
    *out = (struct memory_source){ .src.n_embed = 0 };
    memory_add_text(out, "config.json", config);
    memory_add(out, "model.safetensors", file, 8 + f->n_header + f->n);
}

/* Groups are of all inputs where they do not divide otherwise. Returns into how many ranks' slices of whole words, or of
 * whole groups of NVFP4, the inputs can be cut; 0: those have no whole groups of it. */
static uint32_t recode(const struct gold *g, const char *golden, const struct recode_layout *how, bool stays,
                       struct memory_source *coded, struct memory_source *plain)
{
    static struct recode r;
    struct st_set       *set;
    char                 err[512], *config, text[16384], size[16];
    size_t               n;
    assert_int_equal(st_open(&g->src, &set, err, sizeof err), ST_OK);
    r.how = how;
    r.n_matrix = 0;
    r.group = all_divide(set, stacked_of(golden), RECODE_GROUP) ? RECODE_GROUP : 0;
    uint32_t unit = recode_is_nvfp4(how) ? RECODE_NVFP4_GROUP : 8;
    uint32_t n_rank = all_divide(set, stacked_of(golden), 2 * unit) ? 2 : 1;
    if (recode_is_nvfp4(how) && !all_divide(set, stacked_of(golden), unit)) {
        st_close(set);
        return 0;
    }
    r.coded.n = r.coded.n_header = r.plain.n = r.plain.n_header = 0;
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const struct st_tensor *t = &set->tensor[i];
        unsigned char          *bytes = malloc(t->bytes + 1);
        assert_int_equal(source_read(&set->file[t->file], t->offset, bytes, t->bytes), ST_OK);
        recode_tensor(&r, stacked_of(golden), stays, t, bytes);
        free(bytes);
    }
    st_close(set);
    assert_true(r.n_matrix >= 4 * g->spec.n_layer);
    assert_int_equal(source_text(&g->src, "config.json", 1 << 20, &config, &n), ST_OK);
    folder(plain, &r.plain, config);
    const char *group = strstr(how->config, "GROUP");
    snprintf(size, sizeof size, "%d", r.group ? (int)r.group : -1);
    int before = group ? (int)(group - how->config) : (int)strlen(how->config);
    assert_true((size_t)snprintf(text, sizeof text, "{\"quantization_config\":%.*s%s%s,%s", before, how->config,
                                 group ? size : "", group ? group + strlen("GROUP") : "", config + 1) < sizeof text);
    folder(coded, &r.coded, text);
    free(config);
    return n_rank;
}

/* ---- both give the same logits */

enum { ROWS = 12 };

static void logits(const struct gold *g, struct memory_source *s, enum dev_kind device, uint32_t n_rank, float *out,
                   const char *what)
{
    struct model_spec spec;
    struct gold_run   r;
    uint32_t          rows[3] = { 0, 5, ROWS - 1 }, ids[ROWS];
    char              err[512];
    for (uint32_t i = 0; i < ROWS; i++) ids[i] = g->prompt[0][i % g->n[0]];
    if (model_spec_load(&s->src, &spec, err, sizeof err)) fail_msg("%s: %s", what, err);
    gold_run_open(&r, &spec, &s->src, device, n_rank, DT_F32, DT_F32);
    gold_step(&r, ids, 0, ROWS, rows, 3, false);
    memcpy(out, rank_team_logits(r.team), 3 * spec.vocab * sizeof *out);
    gold_run_close(&r);
    model_spec_free(&spec);
}

static uint32_t n_nvfp4; /* goldens whose inputs are whole groups of it */

/* On ref the same bits; where inputs are sorted by group, they are added in another order. */
static void codes_are_what_they_mean(const char *golden, const struct recode_layout *how, bool stays)
{
    struct gold          g;
    struct memory_source coded, plain;
    char                 what[96];
    snprintf(what, sizeof what, "%s as %s%s", golden, how->name, stays ? ", experts as they were" : "");
    gold_open(&g, golden);
    uint32_t n_rank = recode(&g, golden, how, stays, &coded, &plain);
    bool     whole = how->scale == RECODE_CHANNEL || recode_is_nvfp4(how) ||
                 (how->stack && how->scale == RECODE_TENSOR); /* no slice cuts a group */
    if (!n_rank) {
        gold_close(&g);
        return;
    }
    n_nvfp4 += recode_is_nvfp4(how);
    if (!whole || (!how->fp8 && !test_size(1, 0))) n_rank = 1;
    float *want = malloc(6 * g.spec.vocab * sizeof *want), *got = want + 3 * g.spec.vocab;
    for (uint32_t ranks = 1; ranks <= n_rank; ranks++) {
        double worst = 0, max = 0;
        logits(&g, &plain, DEV_REF, ranks, want, what);
        logits(&g, &coded, DEV_REF, ranks, got, what);
        for (uint32_t i = 0; i < 3 * g.spec.vocab; i++) {
            assert_true(isfinite(got[i]));
            worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
            max = fmax(max, fabs((double)want[i]));
        }
        if (!(max > 0) || worst > (how->order ? 1e-5 * max : 0))
            fail_msg("%s, %u ranks: %g of %g", what, ranks, worst, max);
    }
    free(want);
    memory_free(&coded);
    memory_free(&plain);
    gold_close(&g);
}

/* Is it the first golden checkpoint of its family, or the first whose layers have inputs of their own? */
static bool is_first(size_t golden)
{
    static const struct model_family *family[ARRAY_N(gold_names)];
    static bool                       own_inputs[ARRAY_N(gold_names)];
    struct gold                       g;
    gold_open(&g, gold_names[golden]);
    family[golden] = g.spec.family;
    own_inputs[golden] = g.spec.ple_dim > 0;
    gold_close(&g);
    for (size_t i = 0; i < golden; i++)
        if (family[i] == family[golden] && own_inputs[i] == own_inputs[golden]) return false;
    return true;
}

static void codes_of_every_family_are_the_numbers_that_they_mean(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(gold_names); i++) {
        bool first = is_first(i) || stacked_of(gold_names[i]);
        for (size_t k = 0; k < ARRAY_N(layouts); k++) {
            if (!first && !test_size(1, 0)) continue;
            if (layouts[k].stack && !stacked_of(gold_names[i])) continue;
            if (layouts[k].order && !strncmp(gold_names[i], "starcoder2", strlen("starcoder2"))) continue; /* refused */
            codes_are_what_they_mean(gold_names[i], &layouts[k], false);
        }
    }
    assert_true(n_nvfp4 > 2 * 20);
}

/* A tool that knows linear layers alone leaves a tensor of all experts as it is. */
static void experts_in_one_tensor_may_stay_floats(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(stacks); i++)
        for (int k = 0; k < test_size(ARRAY_N(layouts), 4); k++)
            codes_are_what_they_mean(stacks[i].golden, &layouts[k], true);
}

/* ---- files whose experts lie together, changed */

/* Where a tensor's data begin, and their bytes. */
static unsigned char *data_of(const struct memory_source *m, const char *name, size_t *bytes_out)
{
    unsigned char *file = m->owned[1];
    size_t         n_header, from, to;
    memcpy(&n_header, file, 8);
    char *at = memmem(file + 8, n_header, name, strlen(name));
    if (!at) fail_msg("there is no %s", name);
    assert_int_equal(sscanf(strstr(at, "data_offsets"), "data_offsets\":[%zu,%zu", &from, &to), 2);
    *bytes_out = to - from;
    return file + 8 + n_header + from;
}

static enum status load(const struct memory_source *m, unsigned char id_out[32], char *err, size_t err_bytes)
{
    struct model_spec spec;
    struct rank_team *team = NULL;
    struct rank_cfg   cfg = GOLD_SMALL(.ident = true);
    uint32_t          n_block;
    enum status       st = model_spec_load(&m->src, &spec, err, err_bytes);
    if (st) return st;
    st = rank_team_create(&spec, &m->src, &cfg, &n_block, &team, err, err_bytes);
    model_spec_free(&spec);
    if (st) return st;
    rank_team_ident(team, id_out);
    rank_team_free(team);
    return ST_OK;
}

static void a_bit_of_a_code_or_a_scale_of_the_last_expert_is_another_model(void **state)
{
    (void)state;
    static const char *const goldens[] = { "qwen3-vl-moe", "qwen3-vl-moe-rows" }, *const changed[] = {
        "layers.0.mlp.experts.down_proj\"", "layers.0.mlp.experts.down_proj_scale_inv\"",
        "layers.0.mlp.experts.gate_up_proj\"", "layers.0.mlp.experts.gate_up_proj_scale_inv\""
    };
    for (size_t i = 0; i < 2 * ARRAY_N(layouts); i++) {
        const struct recode_layout *how = &layouts[i / 2];
        struct gold                 g;
        struct memory_source        coded, plain;
        unsigned char               before[32], after[32];
        char                        err[1024] = "";
        size_t                      n;
        if (!how->stack) continue;
        gold_open(&g, goldens[i % 2]);
        recode(&g, goldens[i % 2], how, false, &coded, &plain);
        if (load(&coded, before, err, sizeof err)) fail_msg("%s", err);
        for (size_t k = 0; k < ARRAY_N(changed); k++) {
            unsigned char *data = data_of(&coded, changed[k], &n);
            data[k % 2 ? n - 4 : n - 1] ^= 1;
            if (load(&coded, after, err, sizeof err)) fail_msg("%s", err);
            if (!memcmp(before, after, sizeof before)) fail_msg("%s: %s is not looked at", how->name, changed[k]);
            data[k % 2 ? n - 4 : n - 1] ^= 1;
        }
        memory_free(&coded);
        memory_free(&plain);
        gold_close(&g);
    }
}

/* The first layout whose experts lie together, after a change of the file, with the line that it is refused with. */
static void codes_of_all_experts_that_are_damaged_are_refused(void **state)
{
    (void)state;
#define GATES "layers.0.mlp.experts.gate_up_proj_scale_inv"
#define DOWNS "layers.0.mlp.experts.down_proj"
    static const struct {
        const char *golden, *from, *to, *says; /* from: a text of the header; or a tensor's first bytes become to */
    } wrong[] = {
        { "qwen3-vl-moe", GATES, "layers.0.mlp.experts.gate_up_proj_scale_inw", "gate_up_proj_scale_inw" },
        { "qwen3-vl-moe", GATES, "layers.0.self_attn.proj.rotary_emb.inv_freq", "missing tensors: model." GATES },
        { "qwen3-vl-moe-rows", GATES, "layers.0.self_attn.proj.rotary_emb.inv_freq", "missing tensors: model." GATES },
        { "qwen3-vl-moe", GATES "\":{\"dtype\":\"F32\",\"shape\":[6,2,2]",
          GATES "\":{\"dtype\":\"F32\",\"shape\":[6,4,1]", "has shape [6, 4, 1], config.json makes it [6, 2, 2]" },
        { "qwen3-vl-moe-rows", GATES "\":{\"dtype\":\"F32\",\"shape\":[4,2,1]",
          GATES "\":{\"dtype\":\"I32\",\"shape\":[4,2,1]", "has dtype I32, supported for scales" },
        { "qwen3-vl-moe-rows", "layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,48,32]",
          "layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,24,64]",
          "has shape [4, 24, 64], config.json makes it [4, 32, 48]" },
        { "qwen3-vl-moe", DOWNS "\"", "\x7f\x7f", "down_proj: NaN at expert 0, output 0, input 0" },
        { "qwen3-vl-moe-rows", DOWNS "\"", "\xff\xff", "down_proj: NaN at output 0" },
        { "qwen3-vl-moe", DOWNS "_scale_inv\"", "\x7f\x7f\x80\x7f", "a scale is not finite at expert 0, output 0" },
        { "qwen3-vl-moe-rows", DOWNS "_scale_inv\"", "\x7f\x7f\x80\x7f", "a scale is not finite at output 0" },
    };
    const struct recode_layout *how = layouts;
    while (!how->stack) how++;
    for (size_t i = 0; i < ARRAY_N(wrong); i++) {
        struct gold          g;
        struct memory_source coded, plain;
        unsigned char        id[32];
        char                 err[1024] = "";
        size_t               n;
        gold_open(&g, wrong[i].golden);
        recode(&g, wrong[i].golden, how, false, &coded, &plain);
        unsigned char *at = coded.owned[1];
        if (strlen(wrong[i].from) == strlen(wrong[i].to))
            at = memmem(at, coded.file[1].n, wrong[i].from, strlen(wrong[i].from));
        else
            at = data_of(&coded, wrong[i].from, &n);
        if (!at) fail_msg("%s has no %s", wrong[i].golden, wrong[i].from);
        memcpy(at, wrong[i].to, strlen(wrong[i].to));
        enum status st = load(&coded, id, err, sizeof err);
        if (st != ST_CONFIG || !strstr(err, wrong[i].says))
            fail_msg("%zu: \"%s\" does not say \"%s\"", i, err, wrong[i].says);
        memory_free(&coded);
        memory_free(&plain);
        gold_close(&g);
    }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false); /* not that some are kept as floats */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_every_family_are_the_numbers_that_they_mean),
        cmocka_unit_test(experts_in_one_tensor_may_stay_floats),
        cmocka_unit_test(a_bit_of_a_code_or_a_scale_of_the_last_expert_is_another_model),
        cmocka_unit_test(codes_of_all_experts_that_are_damaged_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
