/* Checkpoints of every family as the tools write them whose matrices are codes, against the floats that the codes mean.
 * They are made here of the golden checkpoints of floats, and without engine/model/names.c: a tool takes every linear
 * layer of the decoder but routers and gates, and turns a tensor of all experts into linear layers of each. */
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

static const char *shape_text(const struct st_tensor *t, char *text, size_t text_bytes)
{
    size_t n = (size_t)snprintf(text, text_bytes, "[");
    for (uint32_t i = 0; i < t->rank; i++)
        n += (size_t)snprintf(text + n, text_bytes - n, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
    snprintf(text + n, text_bytes - n, "]");
    return text;
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
    if (stacked && !stays && stack_end_of(t->name)) {
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

/* Groups are of all inputs where they do not divide otherwise. Returns into how many ranks' slices of whole words the
 * inputs can be cut. */
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
    uint32_t n_rank = all_divide(set, stacked_of(golden), 2 * 8) ? 2 : 1;
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

/* On ref the same bits; where inputs are sorted by group, they are added in another order. */
static void codes_are_what_they_mean(const char *golden, const struct recode_layout *how, bool stays)
{
    struct gold          g;
    struct memory_source coded, plain;
    char                 what[96];
    snprintf(what, sizeof what, "%s as %s%s", golden, how->name, stays ? ", experts as they were" : "");
    gold_open(&g, golden);
    uint32_t n_rank = recode(&g, golden, how, stays, &coded, &plain);
    if (how->scale != RECODE_CHANNEL || (!how->fp8 && !test_size(1, 0))) n_rank = 1;
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
            if (layouts[k].order && !strncmp(gold_names[i], "starcoder2", strlen("starcoder2"))) continue; /* refused */
            codes_are_what_they_mean(gold_names[i], &layouts[k], false);
        }
    }
}

/* A tool that knows linear layers alone leaves a tensor of all experts as it is. */
static void experts_in_one_tensor_may_stay_floats(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(stacks); i++)
        for (int k = 0; k < test_size(ARRAY_N(layouts), 4); k++)
            codes_are_what_they_mean(stacks[i].golden, &layouts[k], true);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false); /* not that some are kept as floats */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_every_family_are_the_numbers_that_they_mean),
        cmocka_unit_test(experts_in_one_tensor_may_stay_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
