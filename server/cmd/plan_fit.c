/* plan_fit: computes memory with the same formulas as loading, and tokens/s with the roofline model. */
#include "base/memory.h"
#include "server/cmd/plan.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
enum { CONTEXT_MIB = 600, RESERVE_MIB = 512, HOST_SHARE = 32 };

static const struct plan_gpu gpus[] = {
    { "a10g", 23028 * MIB, 600e9, 70e12 },    { "l4", 23034 * MIB, 300e9, 121e12 },
    { "l40s", 46068 * MIB, 864e9, 362e12 },   { "a100-40", 40536 * MIB, 1555e9, 312e12 },
    { "a100", 81251 * MIB, 2039e9, 312e12 },  { "h100-pcie", 81559 * MIB, 2000e9, 756e12 },
    { "h100", 81559 * MIB, 3350e9, 989e12 },  { "gh200", 97871 * MIB, 4000e9, 989e12 },
    { "h200", 143771 * MIB, 4800e9, 989e12 }, { "b200", 183359 * MIB, 8000e9, 2250e12 },
};

const struct plan_gpu *plan_gpu_find(const char *name)
{
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (!strcmp(gpus[i].name, name)) return &gpus[i];
    return NULL;
}

const char *plan_gpu_names(void) { return "a10g, l4, l40s, a100-40, a100, h100-pcie, h100, gh200, h200, b200"; }

/* As the cuda device counts it (the driver's own for a process is a guess), or what is left of the host's. */
static uint64_t usable(const struct boot *b, const struct plan_gpu *gpu, uint64_t memory_bytes)
{
    uint64_t taken = CONTEXT_MIB + RESERVE_MIB;
    if (b->cfg->tensor_parallel > 1) taken += RESERVE_MIB;
    taken *= MIB;
    if (gpu) {
        uint64_t may = (uint64_t)((double)gpu->memory_bytes * b->cfg->gpu_memory_utilization);
        return may > taken ? may - taken : 0;
    }
    uint64_t all = memory_bytes ? memory_bytes : memory_limit_bytes();
    return (all - all / HOST_SHARE) / b->cfg->tensor_parallel;
}

/* The time of a step is at least that of its bytes and that of its operations. */
static double step_s(const struct plan_gpu *g, double bytes, double flops, bool *memory_out)
{
    double memory = bytes / g->bytes_s, compute = flops / g->flop_s;
    *memory_out = memory >= compute;
    return memory >= compute ? memory : compute;
}

static void roof(const struct boot *b, const struct plan_gpu *g, struct plan_fit *f)
{
    double all = (double)f->m.block_bytes, win = (double)f->m.window_bytes, ranks = f->n_rank;
    double token_bytes = (all + win) / b->cfg->block_size;
    double seen = b->spec.window && b->spec.window < f->context ? b->spec.window : f->context;
    bool   bound;
    if (f->n_window) seen = (all * f->context + win * seen) / (all + win); /* on average over the layers */
    for (int i = 0; i < 2; i++) {
        uint32_t          n = i ? f->wanted : 1;
        struct model_work w = model_work(&b->spec, n);
        double            weights = (double)f->m.weight_bytes * w.read / w.params;
        double            flops = n * (2 * w.active + w.attend * seen) / ranks;
        double            s = step_s(g, weights + n * seen * token_bytes, flops, &bound);
        if (!i) {
            f->one_s = n / s;
            f->prefill_s = g->flop_s * ranks / (2 * w.active + w.attend * seen / 2);
        } else {
            f->all_s = n / s;
            f->memory_bound = bound;
        }
    }
}

int plan_fit(struct boot *b, const struct plan_gpu *gpu, uint64_t memory_bytes, struct plan_fit *out)
{
    const struct config *cfg = b->cfg;
    enum dev_kind        kind = gpu ? DEV_CUDA : DEV_CPU;
    struct boot_plan     p;
    struct device       *dev;
    *out = (struct plan_fit){ .n_rank = cfg->tensor_parallel };
    boot_plan_sizes(b, kind, &p);
    out->context = b->model.context;
    int code = boot_kv_type(b, &out->kv);
    if (code) return code;
    enum status st = model_check(&b->spec, &b->src, out->n_rank, cfg->expert_parallel, b->err, sizeof b->err);
    if (!st) st = model_quant_check(&b->spec, &p.rank.load, kind, out->n_rank, b->err, sizeof b->err);
    if (st) return boot_exit_of(st);
    enum dtype weight = cfg->dtype == DT_COUNT ? b->spec.dtype : cfg->dtype;
    if (dev_paper(kind, 0, out->n_rank, weight == DT_F16 ? DT_F16 : DT_BF16, &dev)) {
        snprintf(b->err, sizeof b->err, "no memory for a plan");
        return EXIT_SOFTWARE;
    }
    const struct boot_windows *w = &b->windows;
    p.rank.load.n_window = w->block_bytes ? 1 : 0; /* their blocks are told apart */
    st = model_plan(&b->spec, &p.rank.load, dev, &out->m);
    dev_close(dev);
    if (st) {
        snprintf(b->err, sizeof b->err, "the model cannot be planned: %s", status_name(st));
        return boot_exit_of(st);
    }
    uint64_t fixed = out->m.weight_bytes + out->m.work_bytes;
    out->wanted = b->seqs;
    out->usable_bytes = usable(b, gpu, memory_bytes);
    out->kv_bytes = out->usable_bytes > fixed ? out->usable_bytes - fixed : 0;
    if (w->block_bytes) {
        out->n_window = rank_windows_of(&w->share, out->kv_bytes, out->m.block_bytes, out->m.window_bytes);
        out->seq_windows = w->window / cfg->block_size + 2;
    }
    uint64_t windows = out->n_window * out->m.window_bytes;
    out->n_block = p.rank.load.n_block; /* of an encoder, whose blocks have no bytes */
    if (out->m.block_bytes) out->n_block = out->kv_bytes > windows ? (out->kv_bytes - windows) / out->m.block_bytes : 0;
    if (out->usable_bytes < fixed) out->n_block = 0;
    out->seq_blocks = ((uint64_t)out->context + cfg->block_size - 1) / cfg->block_size;
    out->n_seq = out->n_block ? (out->n_block - 1) / out->seq_blocks : 0; /* one block is kept free */
    if (out->n_window && out->n_window / out->seq_windows < out->n_seq) out->n_seq = out->n_window / out->seq_windows;
    out->needed_bytes = fixed + (out->wanted * out->seq_blocks + 1) * out->m.block_bytes +
                        (out->wanted * out->seq_windows + w->share.min) * out->m.window_bytes;
    out->fits = out->n_seq >= out->wanted;
    if (gpu) roof(b, gpu, out);
    return 0;
}
