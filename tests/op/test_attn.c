/* qkv and attention together: what one appends to the pool the other reads. */
#include "op_test.h"

enum { SEQS = 3, TOKENS_MAX = 200, LAYERS = 2, LAYER = 1 };

struct shape {
    uint32_t   n_head, n_kv_head, dim, rot, block_tokens, window;
    enum dtype kv;
    bool       norm;
};

/* Sequences of given lengths, their projections, and a pool whose pages are dealt in no order. */
struct world {
    struct shape s;
    uint32_t     len[SEQS], page[SEQS][TOKENS_MAX], width;
    float       *qkv[SEQS], *q_norm, *k_norm, inv_freq[128];
};

static struct world make(struct shape s, uint32_t seed)
{
    struct world w = { .s = s, .len = { 173, 40, 66 }, .width = (s.n_head + 2 * s.n_kv_head) * s.dim };
    for (uint32_t i = 0; i < SEQS; i++) {
        w.qkv[i] = op_random((size_t)w.len[i] * w.width, 10 + i, 1.5f);
        for (uint32_t p = 0; p < TOKENS_MAX; p++) w.page[i][p] = (p * SEQS + i) * 7 + seed;
    }
    w.q_norm = op_random(s.dim, 20, 1), w.k_norm = op_random(s.dim, 21, 1);
    for (uint32_t i = 0; i < s.rot / 2; i++) w.inv_freq[i] = 1.0f / powf(10000.0f, 2.0f * (float)i / (float)s.rot);
    return w;
}
static void unmake(struct world *w)
{
    for (int i = 0; i < SEQS; i++) free(w->qkv[i]);
    free(w->q_norm), free(w->k_norm);
}

static struct dev_kv make_kv(struct device *d, struct shape s)
{
    struct dev_kv kv = { NULL, s.kv, SEQS * TOKENS_MAX + 1, LAYERS, s.n_kv_head, s.block_tokens, s.dim, 0 };
    kv.block_bytes = dev_kv_block_bytes(s.kv, LAYERS, s.n_kv_head, s.block_tokens, s.dim);
    if (kv.block_bytes * kv.n_block > OP_ARENA / 4) kv.n_block = (uint32_t)(OP_ARENA / 4 / kv.block_bytes);
    kv.n_block -= kv.n_block % 7 == 0; /* so that no two pages fall together */
    assert_true(kv.n_block >= SEQS * (173 / s.block_tokens + 1));
    assert_int_equal(d->ops->alloc(d, kv.block_bytes * kv.n_block, &kv.base), ST_OK);
    return kv;
}

/* One step: rows [from[i], to[i]) of each sequence, in the order of `order`. out: per sequence [len, n_head * dim]. */
static void step(struct device *d, struct world *w, struct dev_kv *kv, const uint32_t *order, uint32_t n_seq, const uint32_t *from,
                 const uint32_t *to, float **out, float **qkv_out)
{
    uint32_t pos[SEQS * TOKENS_MAX], row_seq[SEQS * TOKENS_MAX], row_start[SEQS + 1] = { 0 }, page_start[SEQS + 1] = { 0 },
                                                                                  page[SEQS * TOKENS_MAX], n = 0, p = 0;
    for (uint32_t i = 0; i < n_seq; i++) {
        uint32_t s = order[i];
        for (uint32_t t = from[s]; t < to[s]; t++) pos[n] = t, row_seq[n++] = i;
        for (uint32_t t = 0; t < to[s]; t += w->s.block_tokens) page[p++] = w->page[s][t / w->s.block_tokens] % kv->n_block;
        row_start[i + 1] = n, page_start[i + 1] = p;
    }
    size_t width = w->width, out_width = (size_t)w->s.n_head * w->s.dim;
    float *x = malloc((n + 1) * width * sizeof *x), *y = malloc((n + 1) * out_width * sizeof *y);
    for (uint32_t r = 0; r < n; r++) memcpy(x + r * width, w->qkv[order[row_seq[r]]] + pos[r] * width, width * sizeof *x);
    struct dev_batch b = {
        .n_row = n, .n_seq = n_seq, .pos = pos, .row_seq = row_seq, .row_start = row_start, .page_start = page_start, .page = page
    };
    struct op_qkv  q = { x,
                        w->s.norm ? w->q_norm : NULL,
                        w->s.norm ? w->k_norm : NULL,
                         1e-6f,
                        w->s.rot ? w->inv_freq : NULL,
                         1.25f,
                         w->s.n_head,
                         w->s.n_kv_head,
                         w->s.dim,
                         w->s.rot,
                         LAYER };
    struct op_attn a = { y, x, w->s.n_head, w->s.n_kv_head, w->s.dim, LAYER, 1 / sqrtf((float)w->s.dim), w->s.window };
    d->ops->qkv(d, &q, &b, kv);
    d->ops->attention(d, &a, &b, kv);
    for (uint32_t r = 0; r < n; r++) {
        memcpy(out[order[row_seq[r]]] + pos[r] * out_width, y + r * out_width, out_width * sizeof *y);
        if (qkv_out) memcpy(qkv_out[order[row_seq[r]]] + pos[r] * width, x + r * width, width * sizeof *x);
    }
    free(x), free(y);
}

static void make_out(struct world *w, float **out, size_t width)
{
    for (int i = 0; i < SEQS; i++) out[i] = calloc(w->len[i] * width, sizeof **out);
}
static void free_out(float **out)
{
    for (int i = 0; i < SEQS; i++) free(out[i]);
}
static void assert_same_out(struct world *w, float **got, float **want, const char *what)
{
    for (int i = 0; i < SEQS; i++) op_assert_same(got[i], want[i], (size_t)w->len[i] * w->s.n_head * w->s.dim, what);
}

/* all sequences, `chunk` rows of each a step; together, or one after the other */
static void run(struct device *d, struct world *w, struct dev_kv *kv, uint32_t chunk, bool together, float **out, float **qkv_out)
{
    static const uint32_t order[SEQS] = { 2, 0, 1 };
    if (together) {
        uint32_t from[SEQS] = { 0 }, to[SEQS];
        for (bool more = true; more;) {
            more = false;
            for (int s = 0; s < SEQS; s++) {
                to[s] = from[s] + chunk < w->len[s] ? from[s] + chunk : w->len[s];
                more |= to[s] < w->len[s];
            }
            step(d, w, kv, order, SEQS, from, to, out, qkv_out);
            memcpy(from, to, sizeof from);
        }
        return;
    }
    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t t = 0; t < w->len[s]; t += chunk) {
            uint32_t from[SEQS] = { 0 }, to[SEQS] = { 0 };
            from[s] = t, to[s] = t + chunk < w->len[s] ? t + chunk : w->len[s];
            step(d, w, kv, &s, 1, from, to, out, qkv_out);
        }
}

static const struct shape shapes[] = {
    { 4, 2, 64, 64, 16, 0, DT_BF16, true },    { 4, 2, 64, 64, 32, 50, DT_BF16, false }, { 6, 1, 48, 24, 64, 0, DT_F16, true },
    { 2, 2, 80, 0, 4, 0, DT_F32, false },      { 3, 3, 20, 20, 2, 7, DT_BF16, true },    { 8, 1, 128, 128, 1, 64, DT_F16, false },
    { 2, 1, 256, 64, 16, 130, DT_BF16, true }, { 70, 1, 16, 16, 16, 0, DT_BF16, false },
};

/* kernels/cpu/attn_bf16.c: queries and weights are rounded too */
static bool attends_in_bf16(const struct device *d, struct shape s)
{
    return strstr(d->ops->name, "avx512-bf16") && s.kv == DT_BF16 && s.dim % 32 == 0;
}

static void both_agree_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
        uint32_t       n_dev = op_cpu_devices(d);
        struct world   w = make(shapes[i], 0);
        float         *want[SEQS], *got[SEQS], *want_qkv[SEQS], *got_qkv[SEQS];
        make_out(&w, want, shapes[i].n_head * shapes[i].dim), make_out(&w, got, shapes[i].n_head * shapes[i].dim);
        make_out(&w, want_qkv, w.width), make_out(&w, got_qkv, w.width);
        struct dev_kv kv = make_kv(ref, shapes[i]);
        run(ref, &w, &kv, TOKENS_MAX, true, want, want_qkv);
        for (uint32_t j = 0; j < n_dev; j++) {
            struct dev_kv kv_cpu = make_kv(d[j], shapes[i]);
            run(d[j], &w, &kv_cpu, TOKENS_MAX, true, got, got_qkv);
            for (int s = 0; s < SEQS; s++) {
                op_assert_near(got_qkv[s], want_qkv[s], (size_t)w.len[s] * w.width, 3e-6, "qkv");
                /* keys and values are rounded to the pool's type: a last bit may fall the other way */
                double tolerance = shapes[i].kv == DT_F32 ? 1e-5 : attends_in_bf16(d[j], shapes[i]) ? 2e-2 : 4e-3;
                op_assert_near(got[s], want[s], (size_t)w.len[s] * shapes[i].n_head * shapes[i].dim, tolerance, "attention");
            }
        }
        free_out(want), free_out(got), free_out(want_qkv), free_out(got_qkv);
        unmake(&w);
        dev_close(ref);
        op_close(d, n_dev);
    }
}

static void a_row_has_the_same_bits_in_every_chunk_batch_and_page_size(void **state)
{
    (void)state;
    static const uint32_t chunk[] = { 1, 2, 5, 16, 33, 64, 100 }, block_tokens[] = { 1, 2, 4, 16, 32, 64 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *d[OP_DEVICES_MAX];
        uint32_t       n_dev = op_cpu_devices(d);
        float         *first[SEQS] = { NULL };
        for (uint32_t j = 0; j < n_dev; j++) {
            struct world w = make(shapes[i], 0);
            float       *want[SEQS], *got[SEQS];
            make_out(&w, want, shapes[i].n_head * shapes[i].dim), make_out(&w, got, shapes[i].n_head * shapes[i].dim);
            struct dev_kv kv = make_kv(d[j], shapes[i]);
            memset(kv.base, 0xff, kv.block_bytes * kv.n_block); /* NaN: what nobody wrote must not be read */
            run(d[j], &w, &kv, TOKENS_MAX, true, want, NULL);
            for (size_t c = op_is_vector(d[j]) ? 0 : 5; c < sizeof chunk / sizeof *chunk; c++)
                for (int together = 0; together < 2; together++) {
                    memset(kv.base, 0xff, kv.block_bytes * kv.n_block);
                    run(d[j], &w, &kv, chunk[c], together, got, NULL);
                    assert_same_out(&w, got, want, d[j]->ops->name);
                }
            for (size_t c = 0; c < sizeof block_tokens / sizeof *block_tokens; c++) {
                struct world other = make(shapes[i], 1); /* and other pages */
                other.s.block_tokens = block_tokens[c];
                struct dev_kv kv_other = kv;
                kv_other.block_tokens = block_tokens[c];
                kv_other.block_bytes = dev_kv_block_bytes(kv.dtype, LAYERS, kv.n_kv_head, block_tokens[c], kv.head_dim);
                kv_other.n_block = (uint32_t)(kv.block_bytes * kv.n_block / kv_other.block_bytes);
                if (kv_other.n_block > SEQS * TOKENS_MAX + 1) kv_other.n_block = SEQS * TOKENS_MAX + 1;
                kv_other.n_block -= kv_other.n_block % 7 == 0;
                if (kv_other.n_block < SEQS * (173 / block_tokens[c] + 1)) continue; /* pages would be shared */
                memset(kv.base, 0xff, kv.block_bytes * kv.n_block);
                run(d[j], &other, &kv_other, 37, true, got, NULL);
                assert_same_out(&w, got, want, "another page size");
                unmake(&other);
            }
            if (op_is_vector(d[j]) && !attends_in_bf16(d[j], shapes[i])) {
                if (first[0])
                    assert_same_out(&w, want, first, "one variant against another");
                else
                    for (int s = 0; s < SEQS; s++) first[s] = want[s], want[s] = NULL;
            }
            free_out(want), free_out(got);
            unmake(&w);
        }
        free_out(first);
        op_close(d, n_dev);
    }
}

/* a value that overflows in a later row, or in a key that is out of the window, stays out of the others */
static void what_a_row_may_not_see_does_not_touch_it(void **state)
{
    (void)state;
    static const struct shape of[] = { { 4, 2, 64, 64, 16, 40, DT_F32, false },
                                       { 4, 2, 64, 64, 16, 40, DT_BF16, false },
                                       { 8, 1, 32, 32, 32, 0, DT_BF16, false } };
    struct device            *d[OP_DEVICES_MAX];
    uint32_t                  n_dev = op_cpu_devices(d), bad = 100;
    for (uint32_t j = 0; j < n_dev * 3; j++) {
        struct shape   s = of[j % 3];
        struct device *on = d[j / 3];
        struct world   w = make(s, 0);
        float         *want[SEQS], *got[SEQS];
        struct dev_kv  kv = make_kv(on, s);
        make_out(&w, want, s.n_head * s.dim), make_out(&w, got, s.n_head * s.dim);
        run(on, &w, &kv, TOKENS_MAX, true, want, NULL);
        for (uint32_t i = s.n_head * s.dim; i < w.width; i++) w.qkv[0][bad * w.width + i] = i % 2 ? NAN : INFINITY;
        size_t width = s.n_head * s.dim;
        for (uint32_t chunk = 3; chunk <= TOKENS_MAX; chunk += TOKENS_MAX - 3) {
            run(on, &w, &kv, chunk, true, got, NULL);
            for (uint32_t t = 0; t < w.len[0]; t++) {
                bool sees = t >= bad && (!s.window || t < bad + s.window);
                if (sees)
                    assert_true(isnan(got[0][t * width]));
                else
                    op_assert_same(got[0] + t * width, want[0] + t * width, width, on->ops->name);
            }
        }
        free_out(want), free_out(got);
        unmake(&w);
    }
    op_close(d, n_dev);
}

/* the cache of angles has fewer places than there are positions, and two sets: neither may show */
static void angles_do_not_depend_on_what_was_cached(void **state)
{
    (void)state;
    struct shape   s = { 2, 1, 64, 64, 16, 0, DT_F32, false };
    struct device *d = op_open(DEV_CPU, NULL, 1), *ref = op_open(DEV_REF, NULL, 1);
    struct world   w = make(s, 0);
    struct dev_kv  kv = make_kv(d, s), kv_ref = make_kv(ref, s);
    uint32_t       pos[2], row_seq[2] = { 0, 1 }, row_start[3] = { 0, 1, 2 }, page_start[3] = { 0, 100000, 200000 },
                     *page = calloc(200000, sizeof *page);
    for (uint32_t i = 0; i < 60; i++) {
        struct dev_batch b = {
            .n_row = 2, .n_seq = 2, .pos = pos, .row_seq = row_seq, .row_start = row_start, .page_start = page_start, .page = page
        };
        float        *x = op_random(2 * w.width, 50 + i, 1), *y = op_random(2 * w.width, 50 + i, 1);
        struct op_qkv q = { x, NULL, NULL, 0, w.inv_freq, 1.0f + (float)(i % 3), s.n_head, s.n_kv_head, s.dim, s.rot - 2 * (i % 2), 0 };
        pos[0] = i * 7919 % 100000, pos[1] = (pos[0] + (1u << (i % 20))) % 100000;
        d->ops->qkv(d, &q, &b, &kv);
        q.qkv = y;
        ref->ops->qkv(ref, &q, &b, &kv_ref);
        op_assert_near(x, y, 2 * w.width, 1e-6, "rotated");
        free(x), free(y);
    }
    free(page);
    unmake(&w);
    dev_close(d), dev_close(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_agree_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_chunk_batch_and_page_size),
        cmocka_unit_test(what_a_row_may_not_see_does_not_touch_it),
        cmocka_unit_test(angles_do_not_depend_on_what_was_cached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
