/* paper: devices of which only sizes are known, so that a model can be planned for a machine that is not here. */
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/codes.h"
#include "kernels/host.h"
#include "kernels/impl.h"
#include <stdlib.h>

enum { ALIGN = 256, SAMPLE_SPARE = 16, SAMPLE_LIST = 8192, MOE_ROWS = 4096, SMS = 160, WARPS = 8 };

static uint64_t up(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* As the cuda device packs them: 16 bits an element. */
static uint64_t cuda_weights(enum dtype t, uint32_t n, uint32_t k)
{
    (void)t;
    return up((uint64_t)n * k * 2);
}

static uint64_t cuda_codes(const struct dev_quant *q, uint32_t n, uint32_t k) { return codes_bytes(q, n, k); }

/* What a step's arrays take on a GPU: the lists of kernels/arrays.h at their most; logits while they are sampled, with
 * a sixteenth for their sums and a list of candidates; partial results of decode attention on a GPU of SMS
 * multiprocessors. */
static uint64_t cuda_step(const struct device *d, const struct dev_limits *m)
{
    uint64_t bytes = 0, rows = m->rows_max < MOE_ROWS ? m->rows_max : MOE_ROWS, slots = rows * m->top_k;
    (void)d;
#define SIZE(name, most, padded) const uint64_t name = (most);
    DEV_SIZES(SIZE)
#undef SIZE
    (void)n_copy;
    (void)lp_top;
#define ARRAY(name, type, size, extra, pack, ...) bytes += up((size + (extra)) * sizeof(type));
    DEV_BATCH_ARRAYS(ARRAY)
    DEV_STEP_ARRAYS(ARRAY)
#undef ARRAY
#define RESULT(name, type, size, each, wanted) bytes += up(size * (each) * sizeof(type));
    DEV_RESULTS(RESULT)
#undef RESULT
    uint64_t sample = (uint64_t)m->logit_rows_max * m->vocab * 4;
    uint64_t moe = slots * ((uint64_t)m->hidden + m->inter) * 2 + slots * 12;
    sample += sample / SAMPLE_SPARE + (uint64_t)m->logit_rows_max * SAMPLE_LIST * 8;
    bytes += up(m->n_expert && moe > sample ? moe : sample);
    uint64_t items = m->n_kv_head ? SMS * WARPS / m->n_kv_head : 0, least = m->seqs_max + m->seqs_max / 4;
    bytes += up((items > least ? items : least) * m->n_head * (2 + (uint64_t)m->head_dim) * 4);
    return bytes + up((uint64_t)m->seqs_max * m->n_head * 4);
}

static size_t nothing(const struct device *d)
{
    (void)d;
    return 0;
}
static void close_paper(struct device *d) { free(d); }

enum status dev_paper(enum dev_kind kind, uint32_t rank, uint32_t n_rank, enum dtype act, struct device **d_out)
{
    static const struct dev_ops ops = { .name = "paper", .free_bytes = nothing, .close = close_paper };
    struct dev_impl            *p = calloc(1, sizeof *p);
    if (!p) return ST_NOMEM;
    *p = (struct dev_impl){ .dev = { .ops = &ops, .rank = rank, .n_rank = n_rank, .act = DT_F32 },
                            .weight_bytes = cpu_weight_bytes,
                            .quant_bytes = cpu_quant_bytes,
                            .step_bytes = host_step_bytes };
    if (kind == DEV_CUDA) {
        p->dev.act = act;
        p->weight_bytes = cuda_weights;
        p->quant_bytes = cuda_codes;
        p->step_bytes = cuda_step;
    }
    *d_out = &p->dev;
    return ST_OK;
}
