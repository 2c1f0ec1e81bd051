/* Whole experts on each rank (model_load_cfg.expert_parallel): what a rank reads and keeps, what divides and what is
 * refused, and that the sum over such ranks is another model than the sum over slices. Logits: test_golden.c; a row's
 * bits: test_exact.c. */
#include "engine/model/bind.h"
#include "golden.h"
#include "memory_source.h"
#include <fcntl.h>
#include <unistd.h>

static char err[1024];

/* ---- a checkpoint that knows which of its bytes were asked for */

static struct {
    char           dir[512];
    unsigned char *touched; /* [bytes] of model.safetensors */
    size_t         bytes;
} seen;

static int seen_file(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", seen.dir, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static enum status seen_open(const struct source_reader *r, const char *name, struct source_file *f_out)
{
    int fd = seen_file(name);
    if (fd < 0) return ST_NOT_FOUND;
    *f_out = (struct source_file){ .fd = -1, .reader = r, .bytes = (uint64_t)lseek(fd, 0, SEEK_END) };
    snprintf(f_out->name, sizeof f_out->name, "%s", name);
    close(fd);
    if (!strcmp(name, "model.safetensors") && !seen.touched) {
        seen.bytes = (size_t)f_out->bytes;
        assert_non_null(seen.touched = calloc(seen.bytes, 1));
    }
    return ST_OK;
}

static enum status seen_read(const struct source_file *f, uint64_t offset, void *dst, size_t n)
{
    int  fd = seen_file(f->name);
    bool all = fd >= 0 && pread(fd, dst, n, (off_t)offset) == (ssize_t)n;
    if (fd >= 0) close(fd);
    if (!strcmp(f->name, "model.safetensors")) memset(seen.touched + offset, 1, n);
    return all ? ST_OK : ST_IO;
}

/* Rank r of n loads its share, and is gone again. */
static void load_one(const struct model_spec *spec, const struct source *src, uint32_t r, uint32_t n, bool whole)
{
    struct model_load_cfg cfg = { .weight_dtype = DT_COUNT,
                                  .kv_dtype = DT_COUNT,
                                  .batch_rows_max = 4,
                                  .logit_rows_max = 1,
                                  .n_block = 1,
                                  .block_tokens = 16,
                                  .n_thread = 1,
                                  .expert_parallel = whole };
    struct dev_group     *group;
    struct device        *d;
    struct model         *m;
    assert_int_equal(dev_group_create(n, &group), ST_OK);
    struct dev_cfg dc = {
        .kind = DEV_CPU, .arena_bytes = 16 << 20, .n_thread = 1, .rank = r, .n_rank = n, .group = group
    };
    assert_int_equal(dev_open(&dc, &d), ST_OK);
    if (model_load(spec, src, &cfg, d, &m, err, sizeof err)) fail_msg("%s", err);
    model_free(m);
    dev_close(d);
    dev_group_free(group);
}

/* How many bytes of a tensor's part of an expert were asked for, and how many there are. */
static size_t asked_of(const struct st_tensor *t, uint32_t expert, size_t *bytes_out)
{
    bool   of_all = t->rank > 2;
    size_t n = 0, each = (size_t)(of_all ? t->bytes / t->shape[0] : t->bytes);
    for (size_t i = 0; i < each; i++) n += seen.touched[t->offset + (of_all ? expert * each : 0) + i];
    *bytes_out = each;
    return n;
}

/* A tensor for each expert, rows of all experts, columns of all, blocks of 4 bits, and codes with scales. */
static void a_rank_reads_its_own_experts_and_no_others(void **state)
{
    (void)state;
    static const char *const          models[] = { "qwen3-moe",     "qwen3-vl-moe-rows", "qwen3-vl-moe", "gpt-oss",
                                                   "gpt-oss-mxfp4", "qwen3-moe-nvfp4",   "llama4-fp8",   "gemma4-moe" };
    static const struct source_reader reader = { .open = seen_open, .read = seen_read, .shown = "here" };
    for (size_t i = 0; i < ARRAY_N(models); i++) {
        struct source     src = { .reader = &reader };
        struct model_spec spec;
        struct bind       b;
        uint32_t          n_mine = 0, n_other = 0;
        snprintf(seen.dir, sizeof seen.dir, "%s/golden/%s", TESTS_DATA, models[i]);
        if (model_spec_load(&src, &spec, err, sizeof err)) fail_msg("%s", err);
        assert_int_equal(bind_open(&spec, &src, &b, err, sizeof err), ST_OK);
        for (uint32_t rank = 0; rank < 2; rank++) {
            memset(seen.touched, 0, seen.bytes);
            load_one(&spec, &src, rank, 2, true);
            for (uint32_t at = 0; at < spec.n_layer * spec.n_expert * 6; at++) {
                uint32_t  l = at / 6 / spec.n_expert, e = at / 6 % spec.n_expert, each = spec.n_expert / 2;
                enum slot slot = (enum slot)(SLOT_X_GATE + at % 3);
                enum part part = at % 6 < 3 ? PART_WEIGHT : PART_SCALE;
                const struct st_tensor *t = bind_get_part(&b, slot, l, e, part);
                size_t                  bytes;
                if (!t) continue;
                bool   mine = e / each == rank;
                size_t n = asked_of(t, e, &bytes);
                if (n != (mine ? bytes : 0))
                    fail_msg("%s: rank %u asked for %zu of %zu bytes of expert %u of %s", models[i], rank, n, bytes, e,
                             t->name);
                mine ? n_mine++ : n_other++;
            }
        }
        assert_true(n_mine >= 2 * spec.n_expert && n_mine == n_other);
        bind_close(&b);
        model_spec_free(&spec);
        free(seen.touched);
        seen.touched = NULL;
    }
}

/* ---- what divides */

/* A made-up model with the configuration of a golden one and some keys of its own. */
static void made_up(struct memory_source *m, const char *name, const char *patch)
{
    char          dir[512], *text;
    struct source src = { .dir = dir };
    size_t        n;
    memset(m, 0, sizeof *m);
    snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, name);
    assert_int_equal(source_text(&src, "config.json", 1 << 20, &text, &n), ST_OK);
    json_t *c = json_loadb(text, n, 0, NULL), *over = json_loads(patch, 0, NULL);
    free(text);
    assert_non_null(c);
    assert_non_null(over);
    json_object_update(c, over);
    text = json_dumps(c, 0);
    memory_add_text(m, "config.json", text);
    m->src.dummy = true;
    free(text);
    json_decref(c);
    json_decref(over);
}

static void checked(const char *name, const char *patch, uint32_t n_rank, bool whole, const char *wrong)
{
    struct memory_source m;
    struct model_spec    s;
    made_up(&m, name, patch);
    assert_int_equal(model_spec_load(&m.src, &s, err, sizeof err), ST_OK);
    err[0] = 0;
    assert_int_equal(model_check(&s, &m.src, n_rank, whole, err, sizeof err), wrong ? ST_CONFIG : ST_OK);
    if (wrong && !strstr(err, wrong)) fail_msg("%s, not: %s", err, wrong);
    assert_null(strchr(err, '\n'));
    model_spec_free(&s);
    memory_free(&m);
}

static void experts_divide_and_their_inner_sizes_need_not(void **state)
{
    (void)state;
    checked("qwen3-moe", "{\"moe_intermediate_size\": 33}", 2, false, "moe_intermediate_size is 33");
    checked("qwen3-moe", "{\"moe_intermediate_size\": 33}", 2, true, NULL);
    checked("qwen2-moe", "{}", 2, true, NULL);
    checked("qwen2-moe", "{}", 4, false, NULL);
    checked("qwen2-moe", "{}", 4, true,
            "config.json: num_experts is 6, and --enable-expert-parallel gives each of 4 tensor-parallel ranks");
    checked("granite-moe", "{}", 4, true, "num_local_experts is 6");
    checked("glm4-moe", "{\"n_routed_experts\": 9, \"n_group\": 1, \"topk_group\": 1}", 4, true,
            "n_routed_experts is 9");
    checked("qwen2-moe", "{\"shared_expert_intermediate_size\": 81}", 2, true, "the shared expert's size is 81");
    checked("llama3", "{}", 2, true, "makes a model without experts (LlamaForCausalLM)");
    checked("llama3", "{}", 1, true, "makes a model without experts (LlamaForCausalLM)");
    checked("qwen3-moe", "{}", 1, true, NULL);
}

/* Groups of 32 inputs: slices of 64 / 4 cut them, whole experts do not. What is beside the experts is cut all the same:
 * attention, and shared experts. */
static void groups_of_codes_stay_whole(void **state)
{
    (void)state;
    struct gold           g;
    struct model_load_cfg cfg = { .quant.code = DT_F32 };
    gold_open(&g, "qwen3-vl-moe-awq");
    g.spec.n_head = 8; /* of 16: 32 of its inputs on each of 4 ranks */
    assert_int_equal(model_quant_check(&g.spec, &cfg, DEV_CPU, 4, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "16 of 64 inputs of a matrix on each of 4 ranks"));
    cfg.expert_parallel = true;
    assert_int_equal(model_quant_check(&g.spec, &cfg, DEV_CPU, 4, err, sizeof err), ST_OK);
    g.spec.shared_inter = 64;
    assert_int_equal(model_quant_check(&g.spec, &cfg, DEV_CPU, 4, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "16 of 64 inputs of a matrix on each of 4 ranks"));
    gold_close(&g);
}

/* What `spillway tune` measures: the sizes of a rank's own experts, and else the same. */
static void matrices_to_tune_are_those_of_whole_experts(void **state)
{
    (void)state;
    struct memory_source m;
    struct model_spec    s;
    struct dev_matrix    slices[16], whole[16];
    made_up(&m, "qwen3-moe", "{\"moe_intermediate_size\": 22}");
    assert_int_equal(model_spec_load(&m.src, &s, err, sizeof err), ST_OK);
    for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
        uint32_t n = model_matrices(&s, n_rank, false, slices, 16), n_expert = 0;
        assert_int_equal(model_matrices(&s, n_rank, true, whole, 16), n);
        for (uint32_t i = 0; i < n; i++) {
            const struct dev_matrix *x = &slices[i], *y = &whole[i];
            assert_true(x->logits == y->logits && x->norm == y->norm && x->end == y->end);
            bool gate_up = x->n == 44 / n_rank && x->k == 48, down = x->n == 48 && x->k == 22 / n_rank;
            n_expert += gate_up || down;
            assert_int_equal(y->n, gate_up ? 44 : x->n);
            assert_int_equal(y->k, down ? 22 : x->k);
        }
        assert_int_equal(n_expert, 2);
    }
    model_spec_free(&s);
    memory_free(&m);
}

/* ---- what it is */

enum { ROWS = 12 };

/* Logits of the last of some rows; identity and bytes of the team. */
static struct seen_team {
    float         logits[512];
    unsigned char ident[32];
    uint64_t      bytes;
} run(const struct source *src, enum dev_kind kind, uint32_t n_rank, bool whole)
{
    struct seen_team  out = { .bytes = 0 };
    struct model_spec spec;
    struct rank_team *t;
    uint32_t          n_block, id[ROWS], page[1] = { 1 };
    struct batch_cfg  bc = { .rows_max = 16,
                             .seqs_max = 2,
                             .pages_max = 8,
                             .hist_max = 64,
                             .ban_max = 8,
                             .allow_max = 8,
                             .bias_max = 8,
                             .mask_max = 8 };
    struct rank_cfg   cfg = { .n_rank = n_rank,
                              .device = kind,
                              .n_thread = n_rank,
                              .load = { .weight_dtype = DT_F32,
                                        .kv_dtype = DT_F32,
                                        .batch_rows_max = 16,
                                        .logit_rows_max = 2,
                                        .n_block = 4,
                                        .block_tokens = 16,
                                        .ident = true,
                                        .expert_parallel = whole,
                                        .step = bc } };
    struct batch      b;
    if (model_spec_load(src, &spec, err, sizeof err)) fail_msg("%s", err);
    assert_true(spec.vocab <= ARRAY_N(out.logits));
    if (rank_team_create(&spec, src, &cfg, &n_block, &t, err, sizeof err)) fail_msg("%s", err);
    assert_int_equal(batch_init(&b, &bc), ST_OK);
    for (uint32_t i = 0; i < ROWS; i++) id[i] = (i * 37 + 5) % spec.vocab;
    batch_add(&b, id, ROWS, 0, page, 1);
    *batch_add_sample(&b, ROWS - 1) = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
    struct eng_runner r = rank_team_runner(t);
    assert_int_equal(eng_run(&r, &b), ST_OK);
    memcpy(out.logits, rank_team_logits(t), spec.vocab * sizeof *out.logits);
    rank_team_ident(t, out.ident);
    out.bytes = rank_team_weight_bytes(t);
    batch_free(&b);
    rank_team_free(t);
    model_spec_free(&spec);
    return out;
}

/* 33 inner numbers, and biases of experts in a table for all of them (gpt-oss, of which a rank has some rows): numbers
 * that depend on their place in the whole tensor alone. */
static void ranks_with_whole_experts_share_one_made_up_model(void **state)
{
    (void)state;
    static const char *const models[][2] = { { "qwen3-moe", "{\"moe_intermediate_size\": 33}" },
                                             { "gpt-oss", "{\"num_local_experts\": 8}" } };
    for (size_t i = 0; i < 2 * ARRAY_N(models); i++) {
        struct memory_source m;
        enum dev_kind        kind = i % 2 ? DEV_CPU : DEV_REF;
        float                most = 0;
        made_up(&m, models[i / 2][0], models[i / 2][1]);
        struct seen_team one = run(&m.src, kind, 1, false), same = run(&m.src, kind, 1, true),
                         two = run(&m.src, kind, 2, true), four = run(&m.src, kind, 4, true);
        assert_memory_equal(one.logits, same.logits, sizeof one.logits);
        assert_memory_equal(one.ident, same.ident, sizeof one.ident);
        for (size_t v = 0; v < ARRAY_N(one.logits); v++) {
            most = fmaxf(most, fabsf(one.logits[v]));
            assert_true(fabsf(one.logits[v] - two.logits[v]) < 1e-5f);
            assert_true(fabsf(one.logits[v] - four.logits[v]) < 1e-5f);
        }
        assert_true(most > 1e-2f);
        memory_free(&m);
    }
}

/* Of weights that were read and of made-up ones, which all ranks have alike: bits differ, and so does the identity, by
 * which tiers, peers and servers that take over know whose KV they may use. */
static void whole_experts_are_another_model_than_slices(void **state)
{
    (void)state;
    static struct seen_team team[8];
    struct memory_source    m;
    struct source           real = { .dir = TESTS_DATA "/golden/qwen3-moe" };
    uint32_t                n = 0;
    made_up(&m, "qwen3-moe", "{}");
    for (int made = 0; made < 2; made++)
        for (uint32_t n_rank = 2; n_rank <= 4; n_rank += 2)
            for (int whole = 0; whole < 2; whole++) team[n++] = run(made ? &m.src : &real, DEV_CPU, n_rank, whole);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++) assert_memory_not_equal(team[i].ident, team[j].ident, sizeof team[i].ident);
    for (uint32_t i = 0; i < n; i += 2) {
        assert_memory_not_equal(team[i].logits, team[i + 1].logits, sizeof team[i].logits);
        assert_int_equal(team[i].bytes, team[i + 1].bytes); /* nothing is held twice */
    }
    struct seen_team again = run(&real, DEV_CPU, 2, true);
    assert_memory_equal(again.ident, team[1].ident, sizeof again.ident);
    assert_memory_equal(again.logits, team[1].logits, sizeof again.logits);
    memory_free(&m);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_rank_reads_its_own_experts_and_no_others),
                                        cmocka_unit_test(experts_divide_and_their_inner_sizes_need_not),
                                        cmocka_unit_test(groups_of_codes_stay_whole),
                                        cmocka_unit_test(matrices_to_tune_are_those_of_whole_experts),
                                        cmocka_unit_test(ranks_with_whole_experts_share_one_made_up_model),
                                        cmocka_unit_test(whole_experts_are_another_model_than_slices) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
