/* golden: reads what tools/golden/make_golden.py wrote, and runs a model by hand, one batch at a time. */
#pragma once
#include "base/json.h"
#include "base/log.h"
#include "engine/rank.h"
#include "test.h"
#include "tests_root.h"
#include <math.h>

enum { GOLD_PROMPTS_MAX = 20, GOLD_TOKENS_MAX = 512, GOLD_ROWS_MAX = 64, GOLD_BLOCK_TOKENS = 16, GOLD_BLOCKS = 40 };

/* A small rank on the cpu device with room for a few rows. Arguments: further members of struct model_load_cfg. */
#define GOLD_SMALL(...)                                          \
    {                                                            \
        .n_rank = 1, .device = DEV_CPU, .n_thread = 1, .load = { \
            .weight_dtype = DT_COUNT,                            \
            .kv_dtype = DT_COUNT,                                \
            .batch_rows_max = 8,                                 \
            .logit_rows_max = 2,                                 \
            .n_block = 2,                                        \
            .block_tokens = 16,                                  \
            __VA_ARGS__                                          \
        }                                                        \
    }

struct gold {
    char              dir[512];
    struct source     src;
    struct model_spec spec;
    uint32_t          n_prompt, n_row;
    uint32_t          prompt[GOLD_PROMPTS_MAX][GOLD_TOKENS_MAX], n[GOLD_PROMPTS_MAX];
    uint32_t          greedy[GOLD_PROMPTS_MAX][64], n_greedy;
    uint32_t          row[GOLD_ROWS_MAX][2]; /* prompt, row of it */
    float            *logits;                /* [n_row, vocab] */
    float             max_abs;
    double            bf16; /* error of transformers in bfloat16, relative to max_abs; 0: it is not known */
};

static inline uint32_t gold_ids(const json_t *a, uint32_t *out, uint32_t max)
{
    uint32_t n = (uint32_t)json_array_size(a);
    assert_in_range(n, 1, max);
    for (uint32_t i = 0; i < n; i++) out[i] = (uint32_t)json_integer_value(json_array_get(a, i));
    return n;
}

static inline void gold_open(struct gold *g, const char *name)
{
    char err[512] = "", *text = NULL;
    snprintf(g->dir, sizeof g->dir, "%s/golden/%s", TESTS_DATA, name);
    g->src = (struct source){ .dir = g->dir };
    if (model_spec_load(&g->src, &g->spec, err, sizeof err)) fail_msg("%s: %s", name, err);
    size_t n;
    assert_int_equal(source_text(&g->src, "golden.json", 1 << 20, &text, &n), ST_OK);
    json_t *root = json_parse(text, n, 0, NULL);
    free(text);
    assert_non_null(root);
    const json_t *prompts = json_object_get(root, "prompts"), *rows = json_object_get(root, "rows"),
                 *greedy = json_object_get(root, "greedy");
    g->n_prompt = (uint32_t)json_array_size(prompts);
    assert_in_range(g->n_prompt, 1, GOLD_PROMPTS_MAX);
    for (uint32_t i = 0; i < g->n_prompt; i++) {
        g->n[i] = gold_ids(json_array_get(prompts, i), g->prompt[i], GOLD_TOKENS_MAX);
        g->n_greedy = gold_ids(json_array_get(greedy, i), g->greedy[i], 64);
    }
    g->n_row = (uint32_t)json_array_size(rows);
    assert_in_range(g->n_row, 1, GOLD_ROWS_MAX);
    for (uint32_t i = 0; i < g->n_row; i++) gold_ids(json_array_get(rows, i), g->row[i], 2);
    g->bf16 = json_number_value(json_object_get(root, "bf16"));
    json_decref(root);

    struct source_file f;
    size_t             bytes = (size_t)g->n_row * g->spec.vocab * sizeof(float);
    assert_int_equal(source_open(&g->src, "logits.f32", &f), ST_OK);
    assert_int_equal(f.bytes, bytes);
    assert_non_null(g->logits = malloc(bytes));
    assert_int_equal(source_read(&f, 0, g->logits, bytes), ST_OK);
    source_close(&f);
    g->max_abs = 0;
    for (size_t i = 0; i < bytes / sizeof(float); i++) g->max_abs = fmaxf(g->max_abs, fabsf(g->logits[i]));
}

static inline void gold_close(struct gold *g)
{
    free(g->logits);
    model_spec_free(&g->spec);
}

/* A team and a batch to run on it by hand; sequence 0 lies in blocks 0, 1, 2, ... */
struct gold_run {
    struct rank_team *team;
    struct eng_runner runner;
    struct batch      b;
    uint32_t          vocab;
};

/* What the next team is opened with: an instruction set of the cpu device, codes to round to, whole experts on each
 * rank, how the ranks of the cuda device add. */
static const char      *gold_isa __attribute__((unused));
static struct dev_quant gold_quant __attribute__((unused));
static bool             gold_quant_head __attribute__((unused));
static bool             gold_expert_parallel __attribute__((unused));
static struct {
    enum dev_comm      comm;
    enum dev_symmetric symmetric;
    bool               deterministic, pdl, wgmma, fp8_prefill;
} gold_cuda __attribute__((unused));

/* Slots of adapters of the next team; the adapter that the next step puts into slot 0, and the one that steps use. */
static struct {
    uint32_t        slots, rank, number;
    struct adapter *coming;
} gold_lora __attribute__((unused));

static inline void gold_run_open_with(struct gold_run *r, const struct model_spec *spec, const struct source *src,
                                      enum dev_kind device, uint32_t n_rank, enum dtype weights, enum dtype kv,
                                      uint32_t n_reader)
{
    char             err[512] = "";
    uint32_t         n_block;
    struct rank_cfg  cfg = { .n_rank = n_rank,
                             .device = device,
                             .n_thread = 2,
                             .simd = gold_isa,
                             .comm = gold_cuda.comm,
                             .symmetric = gold_cuda.symmetric,
                             .deterministic = gold_cuda.deterministic,
                             .pdl = gold_cuda.pdl,
                             .wgmma = gold_cuda.wgmma,
                             .fp8_prefill = gold_cuda.fp8_prefill,
                             .load = { .quant = gold_quant,
                                       .quant_head = gold_quant_head,
                                       .expert_parallel = gold_expert_parallel,
                                       .weight_dtype = weights,
                                       .kv_dtype = kv,
                                       .lora_slots = gold_lora.slots,
                                       .lora_rank = gold_lora.rank,
                                       .n_thread = n_reader,
                                       .batch_rows_max = GOLD_TOKENS_MAX,
                                       .logit_rows_max = 4,
                                       .n_block = GOLD_BLOCKS,
                                       .block_tokens = GOLD_BLOCK_TOKENS } };
    struct batch_cfg bc = { .rows_max = GOLD_TOKENS_MAX,
                            .seqs_max = 4,
                            .pages_max = GOLD_BLOCKS,
                            .hist_max = 16,
                            .ban_max = 16,
                            .allow_max = 16,
                            .mask_max = 8,
                            .bias_max = 16 };
    if (rank_team_create(spec, src, &cfg, &n_block, &r->team, err, sizeof err))
        fail_msg("%s: %s", src->dir ? src->dir : "embedded", err);
    assert_int_equal(n_block, GOLD_BLOCKS);
    r->runner = rank_team_runner(r->team);
    r->vocab = spec->vocab;
    assert_int_equal(batch_init(&r->b, &bc), ST_OK);
}

static inline void gold_run_open(struct gold_run *r, const struct model_spec *spec, const struct source *src,
                                 enum dev_kind device, uint32_t n_rank, enum dtype weights, enum dtype kv)
{
    gold_run_open_with(r, spec, src, device, n_rank, weights, kv, 0);
}

static inline void gold_run_close(struct gold_run *r)
{
    batch_free(&r->b);
    rank_team_free(r->team);
}

/* Rows [at, at + n) of the one sequence ids. wanted: rows (of the sequence) whose logits the team keeps; the last of
 * this call is sampled greedily when sample is set, and its id returned. */
static inline uint32_t gold_step(struct gold_run *r, const uint32_t *ids, uint32_t at, uint32_t n,
                                 const uint32_t *wanted, uint32_t n_wanted, bool sample)
{
    struct batch *b = &r->b;
    batch_clear(b);
    uint32_t page[GOLD_BLOCKS], n_page = (at + n + GOLD_BLOCK_TOKENS - 1) / GOLD_BLOCK_TOKENS;
    assert_true(n_page <= GOLD_BLOCKS);
    for (uint32_t i = 0; i < n_page; i++) page[i] = i;
    batch_add(b, ids + at, n, at, page, n_page);
    if (gold_lora.number) batch_adapter(b, gold_lora.number);
    if (gold_lora.coming) b->adapt[b->n_adapt++] = (struct batch_adapt){ gold_lora.coming, 0 };
    gold_lora.coming = NULL;
    if (sample) {
        b->sample[0] = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
        b->logit_row[b->n_logit++] = n - 1;
        b->n_sample = 1;
    }
    for (uint32_t i = 0; i < n_wanted; i++) {
        b->logit_row[b->n_logit++] = wanted[i] - at;
        b->lp_id[b->n_lp++] = 7;
    }
    assert_int_equal(eng_run(&r->runner, b), ST_OK);
    return sample ? b->out.id[0] : 0;
}
