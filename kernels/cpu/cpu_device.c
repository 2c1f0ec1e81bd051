/* cpu device: the arena and its scratch, the team, and the table of ops. */
#include "base/log.h"
#include "base/thread.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/place.h"
#include <stdlib.h>

enum {
    CPU_THREAD_MAX = 1024,
    CPU_SCRATCH = 512 << 10, /* per thread: a tile of attention; see attn.c */
    CPU_SAMPLE_MIN = 128 << 10,
    CPU_SAMPLE_MAX = 4 << 20, /* 12 bytes per entry of the vocabulary; see sample.c */
    CPU_SHARED_MIN = 256 << 10,
    CPU_SHARED_MAX = 64 << 20,
    CPU_ROPE_MIN = 64 << 10,
    CPU_ROPE_MAX = 2 << 20,
};

static void cpu_close(struct device *d)
{
    struct cpu_dev *c = cpu_of(d);
    if (c->team) team_free(c->team);
    host_free(&c->host);
    free(c);
}

enum { TOUCH_PIECE = 2 << 20, TOUCH_PAGE = 4096 };
struct touch_job {
    char  *at;
    size_t bytes;
};

static void touch_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    const struct touch_job *j = arg;
    size_t begin = (size_t)piece * TOUCH_PIECE, end = begin + TOUCH_PIECE < j->bytes ? begin + TOUCH_PIECE : j->bytes;
    for (size_t i = begin; i < end; i += TOUCH_PAGE) {
        volatile char *c = j->at + i;
        *c = *c;
    }
    volatile char *last = j->at + end - 1; /* the first byte need not begin a page */
    *last = *last;
}

static void cpu_touch(struct device *d, void *at, size_t bytes)
{
    struct touch_job j = { at, bytes };
    uint32_t         n = (uint32_t)((bytes + TOUCH_PIECE - 1) / TOUCH_PIECE);
    team_run(cpu_of(d)->team, n, (uint64_t)bytes, touch_piece, &j);
}

static const struct dev_ops cpu_ops = {
    .close = cpu_close,
    .alloc = host_alloc,
    .alloc_reduced = host_alloc,
    .free_bytes = host_free_bytes,
    .weight_alloc = cpu_weight_alloc,
    .weight_set = cpu_weight_set,
    .quant_alloc = cpu_quant_alloc,
    .quant_set = cpu_quant_set,
    .to_device = host_to_device,
    .to_host = host_to_host,
    .sync = host_sync,
    .step_init = host_step_init,
    .step_begin = host_step_begin,
    .step_cut = host_step_cut,
    .step_end = host_step_end,
    .step_wait = host_step_wait,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .add_rmsnorm = cpu_add_rmsnorm,
    .layernorm = cpu_layernorm,
    .scale = cpu_scale,
    .cap = cpu_cap,
    .add_gated = cpu_add_gated,
    .linear = cpu_linear,
    .logits = cpu_logits,
    .state = host_state,
    .squares = cpu_squares,
    .qkv = cpu_qkv,
    .attention = cpu_attention,
    .mutual = cpu_mutual,
    .glu = cpu_glu,
    .ungated = cpu_ungated,
    .act_mul = cpu_act_mul,
    .moe = cpu_moe,
    .lora = cpu_lora,
    .gather = host_gather,
    .columns = cpu_columns,
    .sample = cpu_sample,
    .logprob = cpu_logprob,
    .block_copy = host_block_copy,
    .allreduce = host_allreduce,
    .broadcast = host_broadcast,
    .allgather = host_allgather,
};

static size_t within(size_t x, size_t low, size_t high)
{
    if (x < low) return low;
    return x > high ? high : x;
}

/* What ops need beside their operands, as a share of the arena, so that small arenas stay usable. */
static enum status cpu_take_scratch(struct cpu_dev *d)
{
    struct device *dev = &d->host.impl.dev;
    size_t         arena = d->host.size, rope_bytes = within(arena / 256, CPU_ROPE_MIN, CPU_ROPE_MAX);
    void          *rope, *scratch, *shared, *sample;
    enum status    st;
    d->scratch_bytes = CPU_SCRATCH;
    d->shared_bytes = within(arena / 32, CPU_SHARED_MIN, CPU_SHARED_MAX);
    d->sample_bytes = within(arena / 16, CPU_SAMPLE_MIN, CPU_SAMPLE_MAX);
    d->n_sample = (uint32_t)within(arena / 16 / d->sample_bytes, 1, d->n_thread);
    if ((st = host_alloc(dev, rope_bytes, &rope)) || (st = host_alloc(dev, d->scratch_bytes * d->n_thread, &scratch)) ||
        (st = host_alloc(dev, d->shared_bytes, &shared)) ||
        (st = host_alloc(dev, d->sample_bytes * d->n_sample, &sample)))
        return st;
    d->scratch = scratch;
    d->shared = shared;
    d->sample = sample;
    d->rope = rope_cache_init(rope, rope_bytes);
    return ST_OK;
}

enum status cpu_open(const struct dev_cfg *cfg, struct device **d_out)
{
    const struct cpu_isa *isa = cpu_isa_pick(cfg->simd);
    if (!isa) {
        char have[128];
        LOG_ERROR("dev: this machine has no instruction set %s, it has %s; cannot start", cfg->simd,
                  dev_cpu_isas(have, sizeof have));
        return ST_CONFIG;
    }
    uint32_t n_thread = cfg->n_thread ? cfg->n_thread : thread_cpu_count() / cfg->n_rank;
    if (n_thread < 1) n_thread = 1;
    if (n_thread > CPU_THREAD_MAX) {
        LOG_ERROR("dev: %u threads asked for, %d is the most, cannot start", n_thread, CPU_THREAD_MAX);
        return ST_CONFIG;
    }
    struct cpu_dev *d = calloc(1, sizeof *d);
    if (!d) {
        LOG_ERROR("dev: no memory for the cpu device");
        return ST_NOMEM;
    }
    d->isa = isa;
    d->v = isa->v;
    d->n_thread = n_thread;
    d->ops = cpu_ops;
    d->ops.name = cpu_isa_device(isa);
    struct place_nodes nodes;
    enum status        st;
    if ((st = host_init(&d->host, cfg, &d->ops, cpu_weight_bytes))) goto err_close;
    place_nodes("/sys/devices/system/node", &nodes);
    d->host.scattered = nodes.n > 1;
    place_rank(&nodes, cfg->rank, cfg->n_rank, d->host.base,
               d->host.size); /* before its memory is touched and its threads are started */
    if ((st = cpu_take_scratch(d)) || (st = team_create(n_thread, &d->team))) goto err_close;
    d->host.impl.quant_bytes = cpu_quant_bytes;
    d->host.impl.arith = cpu_arith;
    d->host.impl.touch = cpu_touch;
    LOG_DEBUG("dev: %s, %u threads, arena %zu bytes, %zu of them scratch", cpu_isa_device(isa), n_thread, d->host.size,
              d->host.used);
    *d_out = &d->host.impl.dev;
    return ST_OK;
err_close:
    cpu_close(&d->host.impl.dev);
    return st;
}
