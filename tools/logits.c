/* logits: what a model computes, as numbers, for comparing formats of weights (eval_ppl.py).
 *   logits --model DIR [--load-format dummy] [--device cpu|ref|cuda] [--quantization NAME] [--cpu-isa NAME] [--dtype
 *   float32] [--kv-cache-dtype float32|bfloat16|fp8] [--fp8-prefill true]
 * KV is in float32 where nothing else is asked for, on a GPU in bfloat16. Standard input: a line per text, its token ids, at most 512. Standard output: for each id the logits that follow it,
 * float32. */
#include "base/log.h"
#include "engine/rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 512, BLOCK = 16, LINE_MAX_BYTES = 1 << 16 };

static uint32_t ids_of(const char *line, uint32_t *id)
{
    uint32_t n = 0;
    char    *end;
    for (unsigned long v = strtoul(line, &end, 10); end != line && n < ROWS; v = strtoul(line, &end, 10)) {
        id[n++] = (uint32_t)v;
        line = end;
    }
    return n;
}

/* One sequence alone in the pool: blocks 0, 1, 2, ... */
static enum status run(struct eng_runner *r, struct batch *b, const uint32_t *id, uint32_t n)
{
    batch_clear(b);
    uint32_t page[ROWS / BLOCK], n_page = (n + BLOCK - 1) / BLOCK;
    for (uint32_t i = 0; i < n_page; i++) page[i] = i;
    batch_add(b, id, n, 0, page, n_page);
    for (uint32_t i = 0; i < n; i++) {
        b->logit_row[i] = i;
        b->lp_id[i] = 0;
    }
    b->n_logit = b->n_lp = n;
    return eng_run(r, b);
}

static bool kv_named(const char *name, enum dtype *out)
{
    static const struct {
        const char *name;
        enum dtype  type;
    } types[] = { { "float32", DT_F32 }, { "bfloat16", DT_BF16 }, { "fp8", DT_F8E4M3 } };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) {
            *out = types[i].type;
            return true;
        }
    return false;
}

static bool device_named(const char *name, struct rank_cfg *cfg)
{
    static const char *const names[] = { [DEV_REF] = "ref", [DEV_CPU] = "cpu", [DEV_CUDA] = "cuda" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && !strcmp(names[i], name)) {
            cfg->device = (enum dev_kind)i;
            if (cfg->device == DEV_CUDA && cfg->load.kv_dtype == DT_F32) cfg->load.kv_dtype = DT_BF16;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    struct source   src = { .dir = NULL };
    struct rank_cfg cfg = { .n_rank = 1,
                            .device = DEV_CPU,
                            .load = { .weight_dtype = DT_COUNT,
                                      .kv_dtype = DT_F32,
                                      .batch_rows_max = ROWS,
                                      .logit_rows_max = ROWS,
                                      .n_block = ROWS / BLOCK,
                                      .block_tokens = BLOCK } };
    bool            ok = true;
    for (int i = 1; i + 1 < argc && ok; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--model"))
            src.dir = value;
        else if (!strcmp(name, "--load-format"))
            src.dummy = !strcmp(value, "dummy");
        else if (!strcmp(name, "--device"))
            ok = device_named(value, &cfg);
        else if (!strcmp(name, "--fp8-prefill"))
            cfg.fp8_prefill = !strcmp(value, "true");
        else if (!strcmp(name, "--cpu-isa"))
            cfg.simd = value;
        else if (!strcmp(name, "--kv-cache-dtype"))
            ok = kv_named(value, &cfg.load.kv_dtype);
        else if (!strcmp(name, "--dtype"))
            cfg.load.weight_dtype = !strcmp(value, "float32") ? DT_F32 : DT_COUNT;
        else
            ok = !strcmp(name, "--quantization") && model_quant_named(value, &cfg.load.quant, &cfg.load.quant_head);
    }
    if (!ok || !src.dir || argc % 2 == 0) {
        fprintf(
            stderr,
            "logits --model DIR [--load-format dummy] [--device cpu|ref|cuda] [--quantization NAME] [--cpu-isa NAME] [--dtype float32] [--kv-cache-dtype float32|bfloat16|fp8] [--fp8-prefill true] < IDS\n");
        return EXIT_USAGE;
    }
    log_init(LOG_LEVEL_WARN, 2, false);
    static char       line[LINE_MAX_BYTES], err[512];
    static uint32_t   id[ROWS];
    struct model_spec spec;
    struct rank_team *team;
    struct batch      b;
    uint32_t          n_block, n;
    struct batch_cfg  bc = { .rows_max = ROWS,
                             .seqs_max = ROWS,
                             .pages_max = ROWS,
                             .hist_max = 1,
                             .ban_max = 1,
                             .allow_max = 1,
                             .bias_max = 1 };
    if (model_spec_load(&src, &spec, err, sizeof err) ||
        rank_team_create(&spec, &src, &cfg, &n_block, &team, err, sizeof err)) {
        fprintf(stderr, "logits: %s\n", err);
        return EXIT_CONFIG;
    }
    float         *logits = malloc(sizeof *logits * ROWS * spec.vocab);
    struct device *d = rank_team_device(team);
    if (!logits || batch_init(&b, &bc)) return EXIT_SOFTWARE;
    struct eng_runner runner = rank_team_runner(team);
    while (fgets(line, sizeof line, stdin)) {
        if (!(n = ids_of(line, id))) continue;
        for (uint32_t i = 0; i < n; i++)
            if (id[i] >= spec.vocab) {
                fprintf(stderr, "logits: id %u is outside the vocabulary of %u\n", id[i], spec.vocab);
                return EXIT_USAGE;
            }
        bool done = !run(&runner, &b, id, n);
        if (done) d->ops->to_host(d, logits, rank_team_logits(team), sizeof *logits * n * spec.vocab);
        if (!done || d->ops->sync(d) ||
            fwrite(logits, sizeof *logits, (size_t)n * spec.vocab, stdout) != (size_t)n * spec.vocab) {
            fprintf(stderr, "logits: the step failed, or nobody reads\n");
            return EXIT_IO;
        }
    }
    free(logits);
    batch_free(&b);
    rank_team_free(team);
    model_spec_free(&spec);
    return 0;
}
