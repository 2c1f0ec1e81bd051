/* dummy: weights that nobody trained, for measuring and for trying out: config.json alone says how large. Matrices get
 * nearly normal numbers of deviation 0.02, as initialisers give them, so that activations neither vanish nor grow;
 * norms are 1, biases small. Each number depends on its place in the whole tensor alone: ranks that share a tensor hold
 * parts of the same one. */
#include "base/rng.h"
#include "engine/model/read.h"

#define DUMMY_STD 0.02f

/* A slot's number in the seeds. It stays as it is when slots are added, so that the numbers of dummies do not
 * change. */
static uint64_t dummy_slot(enum slot s)
{
    enum { EXPERTS = 22, N_EXPERT_SLOT = 3, NORM_BIAS = 100 };
    if (s > SLOT_HEAD && s < SLOT_LAYER_FIRST) return NORM_BIAS + (uint64_t)(s - SLOT_NORM_BIAS);
    if (s >= SLOT_EXPERT_FIRST) return EXPERTS + (uint64_t)(s - SLOT_EXPERT_FIRST);
    uint64_t n = s < SLOT_LAYER_FIRST ? (uint64_t)s : (uint64_t)(s - SLOT_LAYER_FIRST) + SLOT_HEAD + 1;
    return s > SLOT_ROUTER ? n + N_EXPERT_SLOT : n;
}

static uint64_t dummy_seed(const struct place_job *j)
{
    return ((uint64_t)j->layer << 32 | (uint64_t)j->expert << 8 | dummy_slot(j->slot)) + 1;
}

/* k: numbers of a row of the tensor */
static void dummy_table(struct device *d, const struct place_job *j, uint64_t k)
{
    float tile[256];
    for (uint32_t r = 0; r < j->n_row; r++)
        for (uint32_t i = 0, n; i < j->n_col; i += n) {
            n = j->n_col - i < 256 ? j->n_col - i : 256;
            for (uint32_t c = 0; c < n; c++) {
                uint64_t at = (j->src_row + r) * k + j->src_col + (uint64_t)(i + c) * j->step;
                tile[c] = (rng_unit(rng_philox(dummy_seed(j), 0, at).x[0]) - 0.5f) * DUMMY_STD;
            }
            d->ops->to_device(d, j->vec + j->dst_row + (size_t)r * j->pitch + i, tile, n * sizeof *tile);
        }
}

static void dummy_vector(struct device *d, const struct place_job *j)
{
    float tile[256];
    for (uint32_t i = 0; i < j->n_row; i += 256) {
        uint32_t n = j->n_row - i < 256 ? j->n_row - i : 256;
        for (uint32_t c = 0; c < n; c++)
            tile[c] = names_is_norm(j->slot)
                          ? 1.0f
                          : (rng_unit(rng_philox(dummy_seed(j), 0, j->src_row + i + c).x[0]) - 0.5f) * DUMMY_STD;
        d->ops->to_device(d, j->vec + j->dst_row + i, tile, n * sizeof *tile);
    }
}

void model_dummy(struct place *p, const struct model_load_cfg *cfg)
{
    for (uint32_t i = 0; i < p->n_job; i++) {
        const struct place_job *j = &p->job[i];
        uint64_t                shape[2] = { 0, 0 };
        uint32_t                rank;
        const char             *keys;
        bind_want(p->spec, j->slot, j->layer, shape, &rank, &keys);
        if (j->n_col) {
            dummy_table(p->dev, j, shape[1]);
        } else if (j->w) {
            dev_weight_fill(p->dev, j->w, j->dst_row, j->n_row, dummy_seed(j), j->src_row, j->src_col, shape[1],
                            DUMMY_STD);
        } else {
            dummy_vector(p->dev, j);
        }
        if (cfg->progress) cfg->progress(cfg->progress_ctx, i + 1, p->n_job);
    }
}
