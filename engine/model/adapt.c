#include "engine/model/adapt.h"
#include "base/check.h"
#include "engine/model/parts.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SET_FLOATS = 1 << 16 }; /* of B, that are widened at a time: at least one row */
static_assert(SET_FLOATS >= (int)LORA_RANK_MAX, "a row of B fits");

static struct lora_shape shape_of(const struct model *m, const struct model_spec *s, uint32_t l, enum lora_target t)
{
    uint32_t n_rank = m->dev->n_rank, rank = m->dev->rank, hd = spec_head_dim(s, l), q = m->n_head * hd;
    bool     own = spec_kv_layer(s, l) == l;
    uint32_t kv = own ? model_kv_heads(s, l, n_rank) * hd : 0, kv0 = rank * spec_n_kv_head(s, l) / n_rank * hd;
    bool     moe = spec_layer_moe(s, l), gated = moe || s->family->ffn != FFN_MLP;
    uint32_t inter = moe && !s->moe_beside ? m->shared_inter : spec_inter(s, l) / n_rank;
    switch (t) {
    case LORA_Q: return (struct lora_shape){ q, m->hidden, rank * q, 0, m->hidden };
    case LORA_K: return (struct lora_shape){ kv, m->hidden, kv0, 0, m->hidden };
    case LORA_V: return (struct lora_shape){ spec_k_is_v(s, l) ? 0 : kv, m->hidden, kv0, 0, m->hidden };
    case LORA_O: return (struct lora_shape){ m->hidden, q, 0, rank * q, n_rank * q };
    case LORA_GATE: return (struct lora_shape){ gated ? inter : 0, m->hidden, rank * inter, 0, m->hidden };
    case LORA_UP: return (struct lora_shape){ inter, m->hidden, rank * inter, 0, m->hidden };
    case LORA_DOWN: return (struct lora_shape){ inter ? m->hidden : 0, inter, 0, rank * inter, n_rank * inter };
    case LORA_TARGETS: break;
    }
    return (struct lora_shape){ 0, 0, 0, 0, 0 };
}

static enum dtype lora_dtype(const struct device *d) { return d->act == DT_F32 ? DT_F32 : d->act; }

static void place_slot(struct place *p, struct dev_weight *w_out, uint32_t n, uint32_t k)
{
    enum dtype t = lora_dtype(p->dev);
    p->bytes += place_arena_bytes(dev_weight_bytes(p->dev, t, n, k));
    const struct dev_ops *op = p->dev->ops;
    if (p->bind && !p->st) p->st = (op->lora_alloc ? op->lora_alloc : op->weight_alloc)(p->dev, t, n, k, w_out);
}

/* The matrices of one target in all slots. w: NULL while planning. */
static void place_target(struct place *p, struct dev_lora *w, const struct lora_shape *s)
{
    const struct model *m = p->m;
    struct dev_weight   none;
    void               *at = NULL;
    for (uint32_t i = 0; i < m->lora.n_slot; i++) {
        place_slot(p, w ? &w->a[i] : &none, m->lora.rank, s->k);
        place_slot(p, w ? &w->b[i] : &none, s->n, m->lora.rank);
    }
    place_bytes(p, &at, 2 * (uint64_t)m->lora.n_slot * sizeof(void *));
    if (!w || p->st) return;
    const void *data[2 * LORA_SLOTS_MAX];
    for (uint32_t i = 0; i < m->lora.n_slot; i++) {
        data[i] = w->a[i].data;
        data[m->lora.n_slot + i] = w->b[i].data;
    }
    w->at = at;
    p->dev->ops->to_device(p->dev, at, data, 2 * m->lora.n_slot * sizeof *data);
}

/* What the host keeps of them. false: no memory. */
static bool take_host(struct model *m)
{
    uint32_t n = m->n_layer * LORA_TARGETS, slots = m->lora.n_slot;
    m->lora.all = calloc(n, sizeof *m->lora.all);
    m->lora.weight = calloc((size_t)n * slots * 2, sizeof *m->lora.weight);
    m->lora.scales = calloc((size_t)n * slots, sizeof *m->lora.scales);
    m->lora.wide = calloc(SET_FLOATS, sizeof *m->lora.wide);
    m->lora.zeros = calloc(m->lora.k_max, sizeof *m->lora.zeros);
    m->lora.shape = calloc(n, sizeof *m->lora.shape);
    return m->lora.all && m->lora.shape && m->lora.weight && m->lora.scales && m->lora.wide && m->lora.zeros;
}

void adapt_place(struct place *p, const struct model_load_cfg *cfg)
{
    struct model *m = p->m;
    uint32_t      n_max = 0;
    void         *mid = NULL, *scale = NULL;
    if (!cfg->lora_slots || p->st) return;
    CHECK(cfg->lora_slots <= LORA_SLOTS_MAX && cfg->lora_rank && cfg->lora_rank <= LORA_RANK_MAX);
    CHECK(!p->bind || p->dev->ops->lora);
    m->lora.n_slot = cfg->lora_slots;
    m->lora.rank = cfg->lora_rank;
    m->lora.turns = p->spec->family->rope_pairs;
    m->lora.head = p->spec->head_dim;
    m->lora.rot = p->spec->rot;
    m->lora.k_max = 0;
    for (uint32_t i = 0; i < m->n_layer * LORA_TARGETS; i++) {
        struct lora_shape s = shape_of(m, p->spec, i / LORA_TARGETS, (enum lora_target)(i % LORA_TARGETS));
        if (s.n > n_max) n_max = s.n;
        if (s.k > m->lora.k_max) m->lora.k_max = s.k;
    }
    if (p->bind && !take_host(m)) {
        p->st = ST_NOMEM;
        return;
    }
    uint64_t n_scale = (uint64_t)m->n_layer * LORA_TARGETS * m->lora.n_slot;
    place_bytes(p, &scale, n_scale * sizeof(float));
    place_bytes(p, &mid, dev_lora_floats(m->rows_max, m->lora.rank, n_max) * sizeof(float));
    m->lora.mid = mid;
    m->lora.scale = scale;
    for (uint32_t i = 0; i < m->n_layer * LORA_TARGETS && !p->st; i++) {
        struct lora_shape s = shape_of(m, p->spec, i / LORA_TARGETS, (enum lora_target)(i % LORA_TARGETS));
        struct dev_lora  *w = p->bind ? &m->lora.all[i] : NULL;
        if (!s.n) continue;
        if (w) m->lora.shape[i] = s;
        if (w)
            *w = (struct dev_lora){ .a = m->lora.weight + (size_t)i * 2 * m->lora.n_slot,
                                    .b = m->lora.weight + ((size_t)i * 2 + 1) * m->lora.n_slot,
                                    .scale = m->lora.scale + (size_t)i * m->lora.n_slot,
                                    .n_slot = m->lora.n_slot,
                                    .rank = m->lora.rank,
                                    .n = s.n,
                                    .k = s.k };
        place_target(p, w, &s);
    }
    if (!p->bind || p->st) return;
    p->dev->ops->to_device(p->dev, scale, m->lora.scales, n_scale * sizeof(float)); /* zeros: nothing is there yet */
    for (uint32_t l = 0; l < m->n_layer; l++) m->layer[l].lora = m->lora.all + (size_t)l * LORA_TARGETS;
}

/* ---- filling a slot */

/* A's rows, this rank's columns of them; zeros behind up to the slot's rank. */
static void set_a(struct model *m, struct dev_weight *w, const struct adapter_part *p, const struct lora_shape *s)
{
    size_t each = dtype_bytes(p->a_dtype);
    m->dev->ops->weight_set(m->dev, w, 0, p->rank, p->a + s->col * each, s->k_whole * each, p->a_dtype);
    if (p->rank < m->lora.rank)
        m->dev->ops->weight_set(m->dev, w, p->rank, m->lora.rank - p->rank, m->lora.zeros, 0, DT_F32);
}

/* Rows of B, widened by zeros to the slot's rank. src: the first of them in the part's B, `step` rows apart. */
static void set_b_rows(struct model *m, struct dev_weight *w, const struct adapter_part *p, uint32_t dst, uint32_t src,
                       uint32_t step, uint32_t n)
{
    uint32_t most = SET_FLOATS / m->lora.rank;
    for (uint32_t done = 0, some; done < n; done += some) {
        some = n - done < most ? n - done : most;
        memset(m->lora.wide, 0, (size_t)some * m->lora.rank * sizeof *m->lora.wide);
        for (uint32_t i = 0; i < some; i++) {
            size_t from = ((size_t)p->row + src + (size_t)(done + i) * step) * p->rank;
            for (uint32_t c = 0; c < p->rank; c++)
                m->lora.wide[(size_t)i * m->lora.rank + c] = bind_float(p->b, p->b_dtype, from + c);
        }
        m->dev->ops->weight_set(m->dev, w, dst + done, some, m->lora.wide, m->lora.rank * sizeof *m->lora.wide, DT_F32);
    }
}

/* The rows of q and k change places as those of the matrix do (place_runs). */
static void set_b(struct model *m, struct dev_weight *w, const struct adapter_part *p, const struct lora_shape *s,
                  enum lora_target t)
{
    bool             turns = m->lora.turns && (t == LORA_Q || t == LORA_K);
    struct place_job job = { .head = turns ? m->lora.head : 0, .rot = turns ? m->lora.rot : 0 };
    for (uint32_t row = 0, n; row < s->n; row += n) {
        struct place_run run[3];
        uint32_t         n_run;
        n = place_runs(&job, row, s->n - row, run, &n_run);
        for (uint32_t i = 0; i < n_run; i++)
            set_b_rows(m, w, p, run[i].dst, s->row + run[i].src, run[i].step, run[i].n);
    }
}

void adapt_set(struct model *m, uint32_t slot, const struct adapter *a)
{
    CHECK(slot < m->lora.n_slot);
    CHECK(a->n_layer == m->n_layer && a->rank_max <= m->lora.rank);
    for (uint32_t i = 0; i < m->n_layer * LORA_TARGETS; i++) {
        enum lora_target           t = (enum lora_target)(i % LORA_TARGETS);
        const struct adapter_part *p = &a->part[i / LORA_TARGETS][t];
        struct dev_lora           *w = &m->lora.all[i];
        const struct lora_shape   *s = &m->lora.shape[i];
        m->lora.scales[(size_t)i * m->lora.n_slot + slot] = p->a ? p->scale : 0;
        if (!p->a) continue;
        CHECK(s->n);
        set_a(m, &w->a[slot], p, s);
        set_b(m, &w->b[slot], p, s, t);
    }
    m->dev->ops->to_device(m->dev, m->lora.scale, m->lora.scales,
                           (size_t)m->n_layer * LORA_TARGETS * m->lora.n_slot * sizeof(float));
}

void adapt_free(struct model *m)
{
    free(m->lora.all);
    free(m->lora.weight);
    free(m->lora.scales);
    free(m->lora.wide);
    free(m->lora.zeros);
    free(m->lora.shape);
}
