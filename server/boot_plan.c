/* boot_plan: what the engine and the ranks are to be, and how much memory they take, before a weight is read. */
#include "engine/model/source_object.h"
#include "server/boot_impl.h"
#include "server/boot_peers.h"
#include "server/options.h"
#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include <inttypes.h>
#include <stdio.h>

enum { KV_TOUCH_UNASKED = 256 << 20 }; /* of a pool whose size nobody gave: most servers never fill that one */

static uint64_t blocks_of_context(const struct boot *b)
{
    return ((uint64_t)b->model.context + b->cfg->block_size - 1) / b->cfg->block_size + 1;
}

/* A pool that does not hold one sequence: nobody is served, or, where the context was not asked for, a shorter one. */
int boot_fit_context(struct boot *b, uint64_t n_block)
{
    const struct config *cfg = b->cfg;
    uint64_t             needed = blocks_of_context(b), fits = n_block > 1 ? (n_block - 1) * cfg->block_size : 0;
    if (n_block >= needed) return 0;
    if (cfg->max_model_len || fits < cfg->block_size) {
        int n = snprintf(b->err, sizeof b->err,
                         "--kv-cache-bytes: found %" PRIu64 ", one sequence of %u tokens needs %" PRIu64 "; give more",
                         b->kv_bytes, b->model.context,
                         needed * b->block_bytes + b->windows.share.min * b->windows.block_bytes);
        if (fits >= cfg->block_size)
            snprintf(b->err + n, sizeof b->err - (size_t)n, ", or a --max-model-len of at most %" PRIu64, fits);
        return EXIT_CONFIG;
    }
    LOG_WARN("boot: the KV cache of %" PRIu64 " bytes holds %" PRIu64 " tokens, so the context is cut from %u to that",
             b->kv_bytes ? b->kv_bytes : n_block * b->block_bytes, fits, b->model.context);
    b->model.context = (uint32_t)fits;
    return 0;
}

/* The type of the KV, and of the device's activations. */
static enum dtype kv_dtype(const struct boot *b, enum dtype *act_out)
{
    const struct config  *cfg = b->cfg;
    struct model_load_cfg types = { .weight_dtype = cfg->dtype, .kv_dtype = cfg->kv_dtype };
    enum dtype            weight = cfg->dtype == DT_COUNT ? b->spec.dtype : cfg->dtype;
    *act_out = weight == DT_F16 ? DT_F16 : DT_BF16;
    if (b->device != DEV_CUDA) *act_out = DT_F32;
    return model_kv_dtype(&b->spec, &types, *act_out);
}

/* What keeps all layers in one pool although some have a window; NULL: nothing. Records below the device are as large
 * as blocks of the first pool, and those of the other go there in whole pieces (kvcache/tier_window.c). */
static const char *one_pool(const struct boot *b, const struct model_kv_groups *g)
{
    const struct config *c = b->cfg;
    if (b->cluster.n_node > 1) return "several machines";
    if (c->kv_host_gib <= 0) return NULL;
    if (c->kv_in_place == IN_PLACE_ON) return "--kv-host-in-place";
    return g->window_bytes < g->block_bytes ? "tiers, and larger blocks of the other layers" : NULL;
}

/* Whether layers with a window get a pool of their own. The share that nobody asked for is what sequences of eight
 * windows would need: shorter ones are short of windows first, longer ones of the other blocks. */
static void plan_windows(struct boot *b, enum dtype kv)
{
    const struct config   *cfg = b->cfg;
    struct model_kv_groups g;
    struct boot_windows   *w = &b->windows;
    struct eng_cfg         sizes = { .batch_tokens_max = b->rows,
                                     .prefill_chunk_max = cfg->prefill_chunk,
                                     .block_tokens = cfg->block_size,
                                     .n_window = 1 };
    *w = (struct boot_windows){ .n_block = 0 };
    if (model_is_encoder(&b->spec)) return; /* no KV at all */
    if (!model_kv_groups(&b->spec, cfg->tensor_parallel, kv, cfg->block_size, &g)) return;
    if (b->model.context <= g.window + cfg->block_size) return; /* nothing would be passed */
    const char *why = one_pool(b, &g);
    if (why) {
        LOG_INFO("boot: with %s, layers with a window keep the KV of all tokens: they have no pool of their own", why);
        return;
    }
    uint64_t one = g.window / cfg->block_size + 2, tokens = (uint64_t)g.window * 8;
    if (tokens > b->model.context) tokens = b->model.context;
    double windows = (double)(one * g.window_bytes), rest = (double)(tokens / cfg->block_size * g.block_bytes);
    w->block_bytes = g.window_bytes;
    w->window = g.window;
    w->share.share = cfg->window_share > 0 ? cfg->window_share : windows / (windows + rest);
    w->share.least = (uint32_t)blocks_of_context(b);
    w->share.min = eng_windows_min(&sizes, g.window);
    uint64_t most = 2 * b->seqs * one + w->share.min; /* of all sequences, and as much that is kept for later ones */
    w->share.max = most < UINT32_MAX / 8 ? (uint32_t)most : UINT32_MAX / 8;
    b->block_bytes = g.block_bytes;
}

/* The windows' part of kv_bytes. A pool stays whole, with blocks of `whole` bytes, where it holds a context only then,
 * or more of one. */
static uint64_t windows_bytes(struct boot *b, uint64_t whole)
{
    struct boot_windows *w = &b->windows;
    if (!w->block_bytes) return 0;
    uint64_t bytes = w->block_bytes * rank_windows_of(&w->share, b->kv_bytes, b->block_bytes, w->block_bytes);
    uint64_t n_block = bytes < b->kv_bytes ? (b->kv_bytes - bytes) / b->block_bytes : 0;
    if (n_block >= w->share.least || (n_block && n_block >= b->kv_bytes / whole)) return bytes;
    LOG_INFO("boot: the KV cache of %" PRIu64
             " bytes is too small for a pool of windows beside one sequence of %u tokens",
             b->kv_bytes, b->model.context);
    *w = (struct boot_windows){ .n_block = 0 };
    b->block_bytes = whole;
    return 0;
}

int boot_kv_type(struct boot *b, enum dtype *kv_out)
{
    enum dtype act, kv = *kv_out = kv_dtype(b, &act);
    if (b->device != DEV_CUDA || kv == DT_BF16 || kv == DT_F8E4M3 || kv == act) return 0;
    snprintf(b->err, sizeof b->err, "--kv-cache-dtype: found '%s', allowed on a GPU are auto%s, bfloat16 and fp8",
             option_word("kv-cache-dtype", b->cfg->kv_dtype), act == DT_F16 ? ", float16" : "");
    return EXIT_CONFIG;
}

/* The KV pool: as asked, else the smaller of 1 GiB and a quarter of memory, but never more than all sequences can fill.
 * On a GPU else 0: the ranks take what their GPUs have left. */
static int plan_kv(struct boot *b)
{
    const struct config *cfg = b->cfg;
    enum dtype           kv;
    int                  code = boot_kv_type(b, &kv);
    if (code) return code;
    uint64_t whole = model_kv_block_bytes(&b->spec, cfg->tensor_parallel, kv, cfg->block_size);
    b->block_bytes = whole;
    if (model_is_encoder(&b->spec)) return 0;
    plan_windows(b, kv);
    uint64_t blocks_seq = blocks_of_context(b);
    if (cfg->given_kv_bytes || cfg->given_kv_gib) {
        b->kv_bytes = cfg->given_kv_bytes ? cfg->kv_bytes : (uint64_t)(cfg->kv_gib * 1073741824.0);
        uint64_t memory = memory_limit_bytes();
        if (b->device != DEV_CUDA &&
            b->kv_bytes > memory / cfg->tensor_parallel) { /* the system would promise it and kill us later */
            snprintf(b->err, sizeof b->err,
                     "--kv-cache-%s: %" PRIu64 " bytes needed for each of %u ranks, available are %" PRIu64 " in all",
                     cfg->given_kv_bytes ? "bytes" : "gib", b->kv_bytes, cfg->tensor_parallel, memory);
            return EXIT_CONFIG;
        }
    } else if (b->device == DEV_CUDA) {
        b->kv_bytes = 0;
        return 0;
    } else {
        const struct boot_windows *w = &b->windows;
        uint64_t                   quarter = memory_limit_bytes() / 4;
        uint64_t                   all = blocks_seq * b->seqs * 2 * b->block_bytes + w->share.max * w->block_bytes;
        uint64_t                   few = 2 * blocks_seq * b->block_bytes + w->share.min * w->block_bytes;
        b->kv_bytes = quarter < (uint64_t)1 << 30 ? quarter : (uint64_t)1 << 30;
        if (b->kv_bytes > all) b->kv_bytes = all;
        if (b->kv_bytes < few) b->kv_bytes = few;
    }
    uint64_t windows = windows_bytes(b, whole);
    return boot_fit_context(b, (b->kv_bytes - windows) / b->block_bytes);
}

static uint32_t queue_tokens(const struct config *cfg, uint32_t context)
{
    if (cfg->queue_tokens) return cfg->queue_tokens;
    uint64_t n = (uint64_t)context * 256;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* One line where the codes that were chosen have a cheaper way to be multiplied on this CPU. */
static void say_cheaper(const struct config *cfg, const struct dev_quant *q)
{
    double gain = dev_cpu_act8_gain(option_word("cpu-isa", cfg->cpu_isa), q->code);
    if (q->act8 || gain < 1.2) return;
    LOG_INFO(
        "boot: --quantization %s: with activations of 8 bits (%s) this CPU multiplies about %.1f times as fast in prompts and batches; "
        "docs/OPERATIONS.md says what it costs",
        option_word("quantization", cfg->quantization), q->code == DT_I8 ? "w8a8" : "w4a8", gain);
}

/* One line where --fp8-prefill changes nothing. Of a GPU that is no sm_90 its device says so. */
static void say_fp8_prefill(const struct boot *b, const struct dev_quant *rounded)
{
    const struct config *cfg = b->cfg;
    const char          *why = NULL;
    if (!cfg->fp8_prefill) return;
    if (b->device != DEV_CUDA)
        why = "is for a GPU";
    else if (cfg->deterministic)
        why = "is not done with --deterministic";
    else if (rounded->code != DT_F8E4M3 && b->spec.quant.q.code != DT_F8E4M3)
        why = "is for fp8 weights, which there are none of";
    if (why) LOG_WARN("boot: --fp8-prefill %s, activations stay what they are", why);
}

static int choose_device(struct boot *b)
{
    const struct config *cfg = b->cfg;
    char                 why[200];
    b->device = cfg->device == DEV_AUTO ? dev_resolve(DEV_AUTO) : cfg->device;
    if (!dev_serves(b->device, why, sizeof why)) {
        snprintf(b->err, sizeof b->err, "--device %s: %s", option_word("device", cfg->device), why);
        return EXIT_CONFIG;
    }
    if (cfg->nccl_symmetric == DEV_SYMMETRIC_ON && b->device != DEV_CUDA) {
        snprintf(b->err, sizeof b->err, "--nccl-symmetric on: the device is %s, needed are GPUs",
                 b->device == DEV_CPU ? "cpu" : "ref");
        return EXIT_CONFIG;
    }
    return 0;
}

/* Masks of grammars are made beside the steps: by a few threads, which sleep where no request has a grammar. Two where
 * there are two CPUs: one has just too little time for the masks of 64 rows within half of a step of 10 ms. */
static uint32_t guide_threads(void)
{
    uint32_t n_cpu = thread_cpu_count(), n = n_cpu / 4;
    if (n < 2) return n_cpu < 2 ? 1 : 2;
    return n > 8 ? 8 : n;
}

static void plan_engine(const struct boot *b, struct boot_plan *p)
{
    const struct config *cfg = b->cfg;
    bool                 encoder = model_is_encoder(&b->spec);
    p->eng = (struct eng_cfg){
        .seqs_max = b->seqs,
        .batch_tokens_max = b->rows,
        .prefill_chunk_max = cfg->prefill_chunk,
        .queue_requests_max = cfg->queue_requests,
        .queue_tokens_max = queue_tokens(cfg, b->model.context),
        .context_max = boot_engine_context(b),
        .state_dim = b->model.state_dim,
        .state_of = b->model.state_of,
        .vocab = b->spec.vocab,
        .block_tokens = cfg->block_size,
        .n_type = b->spec.n_type,
        .whole = encoder,
        .prefix_cache = cfg->prefix_caching && !encoder,
        .kv_pin_percent = cfg->prefix_caching && !encoder ? cfg->kv_pin_max : 0,
        .preempt_max = 3,
        .eos_id = b->spec.eos_id,
        .n_eos = b->spec.n_eos,
        .n_guide_thread = guide_threads(),
        .n_slot = boot_lora_slots(cfg),
        .n_window = b->windows.block_bytes ? b->windows.share.min : 0, /* the ranks say how many */
        .window = b->windows.window,
    };
}

/* Whether other processes may read KV blocks of this one, or name them: then the identity says of which weights they
 * are. What lies on the host and dies with the process needs no digest of the weights, and an identity by chance will
 * do. */
static bool kv_is_shared(const struct config *c)
{
    bool leave = c->kv_nvme.n || *c->kv_shared || *c->kv_object || *c->takeover || boot_peers_wanted(c);
    return (leave && c->kv_host_gib > 0) || *c->kv_events_config;
}

/* Needs the engine's. */
static void plan_ranks(struct boot *b, struct boot_plan *p, boot_progress *progress, void *ctx)
{
    const struct config *cfg = b->cfg;
    p->rank = (struct rank_cfg){
        .n_rank = cfg->tensor_parallel,
        .device = b->device,
        .kv_bytes = b->kv_bytes,
        .windows = b->windows.share,
        .blocks_min = cfg->max_model_len ? (uint32_t)blocks_of_context(b) : 2,
        .ordinal = p->ordinal,
        .n_ordinal = p->n_ordinal,
        .utilization = cfg->gpu_memory_utilization,
        .deterministic = cfg->deterministic,
        .eager = cfg->enforce_eager,
        .pdl = cfg->pdl,
        .wgmma = cfg->wgmma,
        .fp8_prefill = cfg->fp8_prefill,
        .gemm_file = cfg->gemm_file,
        .cublaslt = cfg->cublaslt,
        .comm = cfg->collectives,
        .symmetric = cfg->nccl_symmetric,
        .n_thread = cfg->threads,
        .simd = option_word("cpu-isa", cfg->cpu_isa),
        .load = { .weight_dtype = cfg->dtype,
                  .kv_dtype = cfg->kv_dtype,
                  .expert_parallel = cfg->expert_parallel,
                  .batch_rows_max = b->rows,
                  .logit_rows_max = b->seqs,
                  .block_tokens = cfg->block_size,
                  .step = eng_batch_cfg(&p->eng),
                  .n_thread = cfg->threads,
                  .ident = kv_is_shared(cfg) || cfg->batch,
                  .kv_touch = cfg->given_kv_bytes || cfg->given_kv_gib ? UINT64_MAX : KV_TOUCH_UNASKED,
                  .lora_slots = boot_lora_slots(cfg),
                  .lora_rank = cfg->lora_rank,
                  .progress = progress,
                  .progress_ctx = ctx },
    };
    /* The engine deals out blocks here too. They have no bytes, so there are as many as all sequences can want. */
    if (model_is_encoder(&b->spec)) p->rank.load.n_block = (uint32_t)(blocks_of_context(b) + 1) * b->seqs;
    model_quant_of(cfg->quantization, &p->rank.load.quant, &p->rank.load.quant_head);
}

/* Weights that are kept as they were packed. */
static void plan_packed(struct boot *b, struct boot_plan *p)
{
    if (!*b->cfg->packed_cache) return;
    CHECK(config_shared(b->cfg->packed_cache, b->packed_dir, sizeof b->packed_dir, &p->rank.load.packed_bytes_max));
    if (b->src_object) source_object_keep(b->src_object, b->packed_dir, p->rank.load.packed_bytes_max);
    if (b->device == DEV_CUDA)
        LOG_WARN("boot: --packed-cache is for the cpu device, no packed weights are kept");
    else
        p->rank.load.packed_dir = b->packed_dir;
}

/* Rows and sequences of a step. An encoder computes a text in one step: unless the rows are given there are as many as
 * the longest text has, and where they are fewer no text is longer. */
static void plan_sizes(struct boot *b)
{
    const struct config *cfg = b->cfg;
    config_sizes(cfg, b->device == DEV_CUDA, &b->seqs, &b->rows);
    if (!model_is_encoder(&b->spec)) return;
    if (!cfg->max_batch_tokens && b->rows < b->model.context) b->rows = b->model.context;
    if (b->rows >= b->model.context) return;
    LOG_WARN(
        "boot: a text of an encoder stands in one step, and a step has %u rows (--max-num-batched-tokens), so the context "
        "is cut from %u to that",
        b->rows, b->model.context);
    b->model.context = b->rows;
}

void boot_plan_sizes(struct boot *b, enum dev_kind device, struct boot_plan *p)
{
    b->device = device;
    p->n_ordinal = 0;
    enum dtype act;
    plan_sizes(b);
    plan_windows(b, kv_dtype(b, &act));
    plan_engine(b, p);
    plan_ranks(b, p, NULL, NULL);
}

int boot_plan(struct boot *b, struct boot_plan *p, boot_progress *progress, void *ctx)
{
    int code = choose_device(b);
    if (code) return code;
    int n_ordinal = config_cuda_ordinals(b->cfg, p->ordinal, CUDA_DEVICES_MAX, b->err, sizeof b->err);
    if (n_ordinal < 0) return EXIT_CONFIG;
    p->n_ordinal = (uint32_t)n_ordinal;
    plan_sizes(b);
    code = plan_kv(b);
    if (!code) code = boot_tiers_plan(b);
    if (!code) code = boot_events_plan(b);
    if (code) return code;
    plan_engine(b, p);
    plan_ranks(b, p, progress, ctx);
    plan_packed(b, p);
    if (b->device == DEV_CPU) say_cheaper(b->cfg, &p->rank.load.quant);
    say_fp8_prefill(b, &p->rank.load.quant);
    return 0;
}
