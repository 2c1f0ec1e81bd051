/* rope: qk-norm, rotation and the append to the KV pool, one pass over the fused projection.
 * Cosines and sines are kept by position, across heads, layers and steps: at 0.3 us a position they would otherwise be
 * a good part of a small model's step. Two sets, as some families turn local and global layers at different speeds. */
#include "kernels/cpu/cpu.h"
#include "kernels/kv8.h"
#include <math.h>

enum { ROPE_SETS = 2, ROPE_HALF_MAX = 512, ROPE_ROWS = 8 };

struct rope_set {
    uint32_t  half, n_slot; /* half 0: unused */
    uint32_t *pos;          /* [n_slot] whose table lies there; position p lies in slot p % n_slot, if anywhere */
    float    *table;        /* [n_slot][cos [half], sin [half]] */
    float     scale, inv_freq[ROPE_HALF_MAX];
};
struct rope_cache {
    size_t          set_bytes;
    char           *memory;
    uint32_t        next; /* set to give up when a third comes */
    struct rope_set set[ROPE_SETS];
};

struct rope_cache *rope_cache_init(void *memory, size_t bytes)
{
    struct rope_cache *c = memory; /* zeroed */
    c->memory = (char *)memory + (sizeof *c + 63) / 64 * 64;
    c->set_bytes = (bytes - (sizeof *c + 63) / 64 * 64) / ROPE_SETS / 64 * 64;
    return c;
}

static void rope_angles(float *table, const struct rope_set *s, uint32_t pos)
{
    for (uint32_t i = 0; i < s->half; i++) {
        float angle = (float)pos * s->inv_freq[i]; /* in float32, as the checkpoints were trained */
        table[i] = cosf(angle) * s->scale;
        table[s->half + i] = sinf(angle) * s->scale;
    }
}

static struct rope_set *rope_find(struct rope_cache *c, const struct op_qkv *o)
{
    uint32_t half = o->rot / 2;
    CHECK(half >= 1 && half <= ROPE_HALF_MAX);
    for (uint32_t i = 0; i < ROPE_SETS; i++) {
        struct rope_set *s = &c->set[i];
        if (s->half == half && s->scale == o->rope_scale && !memcmp(s->inv_freq, o->inv_freq, half * sizeof(float)))
            return s;
    }
    struct rope_set *s = &c->set[c->next];
    char            *memory = c->memory + c->next * c->set_bytes;
    c->next = (c->next + 1) % ROPE_SETS;
    s->half = half;
    s->scale = o->rope_scale;
    memcpy(s->inv_freq, o->inv_freq, half * sizeof(float));
    s->n_slot = (uint32_t)(c->set_bytes / (2 * half * sizeof(float) + sizeof(uint32_t)));
    s->table = (float *)(void *)memory;
    s->pos = (uint32_t *)(void *)(s->table + (size_t)s->n_slot * 2 * half);
    memset(s->pos, 0xff, s->n_slot * sizeof *s->pos);
    return s;
}

struct qkv_job {
    const struct simd      *v;
    const struct op_qkv    *o;
    const struct dev_batch *b;
    const struct dev_kv    *kv;
    const struct rope_set  *rope; /* NULL: none */
};

/* The norm of a q or k head of a row, alone or as a part of its whole projection. h: of its kind. */
static void norm_head(const struct qkv_job *j, float *x, uint32_t row, bool is_k, uint32_t h)
{
    const struct op_qkv *o = j->o;
    const float         *w = is_k ? o->k_norm : o->q_norm;
    uint32_t             hd = o->head_dim;
    if (!w) return;
    if (o->norm_mean) {
        j->v->shift(x, x, j->v->total(x, hd) / (float)hd, hd);
        cpu_norm_row(j->v, x, x, w + (size_t)h * hd, hd, o->eps);
        return;
    }
    if (!o->square) {
        cpu_norm_row(j->v, x, x, w, hd, o->eps);
        return;
    }
    const float *square = o->square + (size_t)row * o->n_square * 2 + is_k;
    float        sum = 0, width = (float)(o->n_square * (is_k ? o->n_kv_head : o->n_head) * hd);
    for (uint32_t i = 0; i < o->n_square; i++) sum += square[(size_t)i * 2]; /* in order of the ranks */
    j->v->norm(x, x, w + (size_t)h * hd, 1.0f / sqrtf(sum / width + o->eps), hd);
}

/* A key or a value into its row of the pool. */
static void qkv_keep(const struct qkv_job *j, char *to, uint32_t slot, const float *x)
{
    const struct dev_kv *kv = j->kv;
    uint32_t             hd = j->o->head_dim;
    if (kv->dtype == DT_F8E4M3)
        kv8_store((uint8_t *)to, kv8_scale_at(kv->block_tokens, slot % kv->block_tokens, hd), x, hd);
    else
        j->v->store(to, kv->dtype, x, hd);
}

static void qkv_row(const struct qkv_job *j, uint32_t r)
{
    const struct op_qkv *o = j->o;
    const struct dev_kv *kv = j->kv;
    uint32_t     hd = o->head_dim, n_turn = o->n_head + o->n_kv_head, seq = j->b->row_seq[r], pos = j->b->pos[r];
    float       *x = (float *)o->qkv + (size_t)r * (n_turn + o->n_kv_head) * hd, own[2 * ROPE_HALF_MAX];
    const float *table = NULL;
    if (j->rope) {
        uint32_t slot = pos % j->rope->n_slot;
        table = j->rope->table + (size_t)slot * 2 * j->rope->half;
        if (j->rope->pos[slot] != pos) { /* a row of this batch has pushed it out */
            rope_angles(own, j->rope, pos);
            table = own;
        }
    }
    float q_scale = o->q_beta != 0 ? qkv_q_scale(o, pos) : 1;
    for (uint32_t h = 0; h < n_turn; h++) {
        bool     is_k = h >= o->n_head;
        uint32_t of_kind = is_k ? h - o->n_head : h;
        if (!o->norm_late) norm_head(j, x + h * hd, r, is_k, of_kind);
        if (table) j->v->rope(x + h * hd, table, table + j->rope->half, j->rope->half);
        if (o->norm_late) norm_head(j, x + h * hd, r, is_k, of_kind);
        for (uint32_t i = 0; h < o->n_head && o->q_beta != 0 && i < hd; i++) x[h * hd + i] *= q_scale;
    }
    if (!kv) return;
    uint32_t keep = tree_slot(pos, dev_tree(j->b, r)), entry = j->b->page_start[seq] + keep / kv->block_tokens;
    CHECK(entry < j->b->page_start[seq + 1]);
    uint32_t block = j->b->page[entry];
    CHECK(block < kv->n_block);
    for (uint32_t h = 0; h < o->n_kv_head; h++) {
        char  *to = kv_key(kv, block, o->layer, h, keep % kv->block_tokens, hd);
        float *key = x + (o->n_head + h) * hd, *value = x + (n_turn + h) * hd;
        if (o->v_norm) cpu_norm_row(j->v, value, value, o->v_norm, hd, o->eps);
        qkv_keep(j, to, keep, key);
        qkv_keep(j, to + kv_value_bytes(kv, o->layer), keep, value);
    }
}

static void qkv_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    const struct qkv_job *j = arg;
    uint32_t              end = (piece + 1) * ROPE_ROWS < j->b->n_row ? (piece + 1) * ROPE_ROWS : j->b->n_row;
    for (uint32_t r = piece * ROPE_ROWS; r < end; r++) qkv_row(j, r);
}

struct squares_job {
    const struct simd   *v;
    const struct op_qkv *o;
    float               *out;
    uint32_t             n;
};

static void squares_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    const struct squares_job *j = arg;
    uint32_t                  q = j->o->n_head * j->o->head_dim, k = j->o->n_kv_head * j->o->head_dim;
    uint32_t                  end = (piece + 1) * ROPE_ROWS < j->n ? (piece + 1) * ROPE_ROWS : j->n;
    for (uint32_t r = piece * ROPE_ROWS; r < end; r++) {
        const float *x = (const float *)j->o->qkv + (size_t)r * (q + 2 * k);
        j->out[2 * r] = j->v->sum_squares(x, q);
        j->out[2 * r + 1] = j->v->sum_squares(x + q, k);
    }
}

void cpu_squares(struct device *d, float *out, const struct op_qkv *o, uint32_t n)
{
    struct squares_job j = { cpu_of(d)->v, o, out, n };
    uint64_t           cost = (uint64_t)n * (o->n_head + o->n_kv_head) * o->head_dim / 8;
    team_run(cpu_of(d)->team, (n + ROPE_ROWS - 1) / ROPE_ROWS, cost, squares_piece, &j);
}

void cpu_qkv(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    struct cpu_dev *c = cpu_of(d);
    struct qkv_job  j = { .v = c->v, .o = o, .b = b, .kv = kv };
    CHECK(!kv || (elem_is_kv(kv->dtype) && kv_holds_heads(kv, o->layer, o->n_kv_head, o->head_dim)));
    CHECK(o->rot <= o->head_dim);
    CHECK(o->norm_late + o->norm_mean + (o->square != NULL) <= 1);
    if (o->inv_freq) {
        struct rope_set *s = rope_find(c->rope, o);
        for (uint32_t r = 0; r < b->n_row; r++) {
            uint32_t slot = b->pos[r] % s->n_slot;
            if (s->pos[slot] == b->pos[r]) continue;
            rope_angles(s->table + (size_t)slot * 2 * s->half, s, b->pos[r]);
            s->pos[slot] = b->pos[r];
        }
        j.rope = s;
    }
    uint64_t cost = (uint64_t)b->n_row * (o->n_head + 2 * o->n_kv_head) * (o->head_dim / 4 + 20);
    team_run(c->team, (b->n_row + ROPE_ROWS - 1) / ROPE_ROWS, cost, qkv_piece, &j);
}
