/* place: the walk that plans a model's memory and the one that takes it. */
#include "engine/model/place.h"
#include "engine/model/model_impl.h"
#include <stdlib.h>

void place_bytes(struct place *p, void **out, uint64_t bytes)
{
    p->bytes += place_arena_bytes(bytes);
    if (p->bind && !p->st) p->st = p->dev->ops->alloc(p->dev, (size_t)bytes, out);
}

void place_align(struct place *p)
{
    void *at = NULL;
    if (!p->bind) {
        p->bytes += DEV_MAP_ALIGN;
    } else if (!p->st && !(p->st = p->dev->ops->alloc(p->dev, 0, &at))) {
        size_t past = (uintptr_t)at % DEV_MAP_ALIGN;
        p->st = p->dev->ops->alloc(p->dev, past ? DEV_MAP_ALIGN - past : 0, &p->at);
        p->at = (char *)at + (past ? DEV_MAP_ALIGN - past : 0);
    }
}

void place_reduced(struct place *p, void **out, uint64_t bytes)
{
    p->bytes += place_arena_bytes(bytes);
    p->reduced += place_arena_bytes(bytes);
    if (p->bind && !p->st) p->st = p->dev->ops->alloc_reduced(p->dev, (size_t)bytes, out);
}

static bool is_expert(enum slot slot) { return slot == SLOT_X_GATE || slot == SLOT_X_UP || slot == SLOT_X_DOWN; }

/* MXFP4 stays what it is, but for a slice of inputs that cuts a group. Rounding at load takes embedding and head to 8
 * bits, unless they are to have the same codes; codes of a checkpoint are of the linear ones alone. An embedding that is
 * only looked up stays as it is: nothing is multiplied with it. */
static bool matrix_quant(const struct place *p, uint32_t k, enum slot slot, uint32_t layer, struct dev_quant *q_out)
{
    static const struct dev_quant int8 = { .code = DT_I8 };
    *q_out = p->quant;
    bool plain = slot == SLOT_ROUTER || slot == SLOT_S_WEIGHT || (slot >= SLOT_PLE_EMBED && slot <= SLOT_PLE_PROJ) ||
                 slot == SLOT_PLE_GATE || slot == SLOT_PLE_BACK;
    if (p->experts.code != DT_F32 && is_expert(slot) && k % p->experts.group == 0) {
        *q_out = p->experts;
        return true;
    }
    if (p->quant.code == DT_F32) return false;
    if (p->spec->quant.method) return bind_is_codes(p->spec, slot, layer) && !spec_floats(p->spec, slot, layer);
    if (plain) return false;
    if (bind_linear_slots() >> slot & 1) return true;
    if (!p->quant_head) *q_out = int8;
    return slot == SLOT_HEAD || (p->spec->tied && !p->m->head_split && !p->m->pools);
}

void place_matrix(struct place *p, struct dev_weight *w_out, uint32_t n, uint32_t k, enum slot slot, uint32_t layer)
{
    struct dev_quant q;
    if (p->matrix) {
        p->matrix(p->matrix_ctx, n, k, slot);
        return;
    }
    bool       codes = matrix_quant(p, k, slot, layer, &q);
    enum dtype type = spec_floats(p->spec, slot, layer) ? DT_F32 : p->weight_dtype;
    uint64_t   bytes =
        place_arena_bytes(codes ? dev_quant_bytes(p->dev, &q, n, k) : dev_weight_bytes(p->dev, type, n, k));
    p->bytes += bytes;
    if (p->spec->mxfp4 && is_expert(slot)) p->expert_bytes[!codes || q.code != DT_F4E2M1] += bytes;
    if (!p->bind || p->st) return;
    p->st = codes ? p->dev->ops->quant_alloc(p->dev, &q, n, k, w_out)
                  : p->dev->ops->weight_alloc(p->dev, type, n, k, w_out);
}

void place_vector(struct place *p, float **v_out, uint32_t n)
{
    void *v = NULL;
    place_bytes(p, &v, n * sizeof(float));
    *v_out = v;
}

static bool slot_rotates(enum slot slot)
{
    return slot == SLOT_Q || slot == SLOT_K || slot == SLOT_Q_BIAS || slot == SLOT_K_BIAS || slot == SLOT_Q_NORM ||
           slot == SLOT_K_NORM;
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

uint32_t place_runs(const struct place_job *job, uint32_t row, uint32_t n, struct place_run run_out[3],
                    uint32_t *n_run_out)
{
    *n_run_out = 0;
    if (!job->head) {
        run_out[(*n_run_out)++] = (struct place_run){ row, row, n, 1 };
        return n;
    }
    uint32_t head = row / job->head * job->head, low = row - head, high = min_u32(job->head, low + n);
    uint32_t turned = min_u32(high, job->rot);
    for (uint32_t odd = 0; odd < 2; odd++) {
        uint32_t first = low + (low % 2 != odd);
        if (first >= turned) continue;
        run_out[(*n_run_out)++] =
            (struct place_run){ head + first, head + odd * (job->rot / 2) + first / 2, (turned - first + 1) / 2, 2 };
    }
    uint32_t rest = low > job->rot ? low : job->rot;
    if (rest < high) run_out[(*n_run_out)++] = (struct place_run){ head + rest, head + rest, high - rest, 1 };
    return high - low;
}

static void place_job(struct place *p, enum slot slot, uint32_t layer, uint32_t expert, struct place_job job)
{
    if (!p->bind || p->st) return;
    if (p->n_job == p->cap_job) {
        uint32_t          cap = p->cap_job ? 2 * p->cap_job : 256;
        struct place_job *more = realloc(p->job, cap * sizeof *more);
        if (!more) {
            p->st = ST_NOMEM;
            return;
        }
        p->job = more;
        p->cap_job = cap;
    }
    /* bind_open has seen to it that what the spec wants is there */
    job.tensor = bind_get_part(p->bind, slot, layer, expert, job.order ? PART_INDEX : PART_WEIGHT);
    if (job.w) job.stack = bind_stacked(p->bind, slot, layer, expert);
    if (job.stack && slot != job.stack->slot) return; /* the first slot's job brings them all */
    if (!job.order) job.src_row += bind_first_row(p->bind, slot, layer, expert);
    job.slot = slot;
    job.layer = layer;
    job.expert = expert;
    if (p->spec->family->rope_pairs && slot_rotates(slot) && !job.order) {
        job.head = p->spec->head_dim;
        job.rot = p->spec->rot;
    }
    p->job[p->n_job++] = job;
}

void place_rows(struct place *p, struct dev_weight *w, uint32_t dst_row, enum slot slot, uint32_t layer,
                uint32_t expert, uint32_t src_row, uint32_t n_row, uint32_t src_col)
{
    place_job(p, slot, layer, expert,
              (struct place_job){ .w = w, .dst_row = dst_row, .src_row = src_row, .n_row = n_row, .src_col = src_col });
}

/* Norms that multiply by 1 + weight are kept as what they multiply by, in F32. */
static float place_plus(const struct place *p, enum slot slot)
{
    return p->spec->family->norm_plus_1 && names_is_norm(slot) ? 1 : 0;
}

void place_expert_elements(struct place *p, float *v, uint32_t dst, enum slot slot, uint32_t layer, uint32_t expert,
                           uint32_t src, uint32_t n)
{
    place_job(p, slot, layer, expert,
              (struct place_job){ .vec = v, .dst_row = dst, .src_row = src, .n_row = n, .plus = place_plus(p, slot) });
}

void place_elements(struct place *p, float *v, uint32_t dst, enum slot slot, uint32_t layer, uint32_t src, uint32_t n)
{
    place_expert_elements(p, v, dst, slot, layer, 0, src, n);
}

void place_table(struct place *p, float *v, uint32_t pitch, enum slot slot, uint32_t layer, uint32_t src_row,
                 uint32_t n_row, struct place_run cols)
{
    place_job(p, slot, layer, 0,
              (struct place_job){ .vec = v,
                                  .dst_row = cols.dst,
                                  .src_row = src_row,
                                  .n_row = n_row,
                                  .src_col = cols.src,
                                  .n_col = cols.n,
                                  .step = cols.step,
                                  .pitch = pitch });
}

void place_order(struct place *p, uint32_t **order_out, uint32_t k, enum slot slot, uint32_t layer)
{
    void *order = NULL;
    if (!spec_sorted(p->spec, slot, layer)) return;
    place_bytes(p, &order, k * sizeof(uint32_t));
    *order_out = order;
    if (order) place_job(p, slot, layer, 0, (struct place_job){ .order = order, .n_row = k });
}
