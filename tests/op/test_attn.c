/* qkv and attention together: what one appends to the pool the other reads. */
#include "op/attn_world.h"

static const struct shape shapes[] = {
    { 4, 2, 64, 64, 16, 0, DT_BF16, true, 0, false, false, false },
    { 4, 2, 64, 64, 32, 50, DT_BF16, false, 0, false, false, false },
    { 6, 1, 48, 24, 64, 0, DT_F16, true, 0, false, false, false },
    { 2, 2, 80, 0, 4, 0, DT_F32, false, 0, false, false, false },
    { 3, 3, 20, 20, 2, 7, DT_BF16, true, 0, false, false, false },
    { 8, 1, 128, 128, 1, 64, DT_F16, false, 0, false, false, false },
    { 2, 1, 256, 64, 16, 130, DT_BF16, true, 0, false, false, false },
    { 70, 1, 16, 16, 16, 0, DT_BF16, false, 0, false, false, false },
    { 4, 2, 64, 64, 16, 50, DT_BF16, false, 2, false, false, false },
    { 3, 1, 20, 20, 4, 0, DT_F32, true, 0.5f, false, false, false },
    { 8, 1, 64, 64, 16, 50, DT_BF16, true, 0, true, false, false },
    { 4, 2, 64, 64, 16, 0, DT_F32, false, 0, true, false, false },
    { 3, 1, 20, 20, 4, 0, DT_F16, true, 0.5f, true, false, false },
    { 4, 2, 64, 64, 16, 48, DT_BF16, true, 0, false, true, false },
    { 3, 1, 20, 20, 4, 13, DT_F32, true, 0, true, true, false },
    { 2, 1, 128, 64, 16, 1, DT_F16, false, 0.5f, false, true, true },
    { 2, 1, 512, 512, 16, 50, DT_BF16, true, 0, false, false, true },
    { 4, 1, 512, 64, 32, 0, DT_F32, true, 0, false, false, true },
    { 4, 2, 64, 64, 16, 50, DT_F8E4M3, true, 0, true, false, false },
    { 8, 1, 128, 0, 32, 64, DT_F8E4M3, false, 0, false, true, false },
    { 3, 3, 20, 20, 4, 0, DT_F8E4M3, true, 2, false, false, false },
    { 2, 1, 512, 64, 16, 0, DT_F8E4M3, false, 0, false, false, true },
};

/* kernels/cpu/attn_bf16.c, attn_amx.c: queries and weights are rounded too */
static bool attends_in_bf16(const struct device *d, struct shape s)
{
    return s.cap == 0 && op_attends_bf16(d) && op_read_as_bf16(s.kv) && s.dim % 32 == 0;
}

static void both_agree_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
        uint32_t       n_dev = op_cpu_devices(d);
        struct world   w = make(shapes[i], 0);
        float         *want[SEQS], *got[SEQS], *want_qkv[SEQS], *got_qkv[SEQS];
        make_out(&w, want, shapes[i].n_head * shapes[i].dim);
        make_out(&w, got, shapes[i].n_head * shapes[i].dim);
        make_out(&w, want_qkv, w.width);
        make_out(&w, got_qkv, w.width);
        struct dev_kv kv = make_kv(ref, shapes[i]);
        run(ref, &w, &kv, TOKENS_MAX, true, want, want_qkv);
        for (uint32_t j = 0; j < n_dev; j++) {
            struct dev_kv kv_cpu = make_kv(d[j], shapes[i]);
            run(d[j], &w, &kv_cpu, TOKENS_MAX, true, got, got_qkv);
            for (int s = 0; s < SEQS; s++) {
                op_assert_near(got_qkv[s], want_qkv[s], (size_t)w.len[s] * w.width, 3e-6, "qkv");
                /* keys and values are rounded to the pool's type: a last bit may fall the other way */
                double tolerance = attends_in_bf16(d[j], shapes[i]) ? 2e-2 : 4e-3;
                if (shapes[i].kv == DT_F32) tolerance = 1e-5;
                if (shapes[i].kv == DT_F8E4M3) tolerance += 5e-2; /* of four digits */
                op_assert_near(got[s], want[s], (size_t)w.len[s] * shapes[i].n_head * shapes[i].dim, tolerance,
                               "attention");
            }
        }
        free_out(want);
        free_out(got);
        free_out(want_qkv);
        free_out(got_qkv);
        unmake(&w);
        dev_close(ref);
        op_close(d, n_dev);
    }
}

static void a_row_has_the_same_bits_in_every_chunk_batch_and_page_size(void **state)
{
    (void)state;
    static const uint32_t chunk[] = { 1, 2, 5, 16, 33, 64, 100 }, block_tokens[] = { 1, 2, 4, 16, 32, 64 };
    size_t step = getenv("OP_SIMD") ? (size_t)test_size(1, 2) : 1; /* an emulated processor takes minutes of all */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += step) {
        struct device *d[OP_DEVICES_MAX];
        uint32_t       n_dev = op_cpu_devices(d);
        float         *first[SEQS] = { NULL };
        for (uint32_t j = 0; j < n_dev; j++) {
            struct world w = make(shapes[i], 0);
            float       *want[SEQS], *got[SEQS];
            make_out(&w, want, shapes[i].n_head * shapes[i].dim);
            make_out(&w, got, shapes[i].n_head * shapes[i].dim);
            struct dev_kv kv = make_kv(d[j], shapes[i]);
            memset(kv.base, 0xff, kv.block_bytes * kv.n_block); /* NaN: what nobody wrote must not be read */
            run(d[j], &w, &kv, TOKENS_MAX, true, want, NULL);
            size_t begin = op_is_vector(d[j]) ? 0 : 5;
            if (getenv("OP_SIMD")) begin = 6;
            for (size_t c = begin; c < sizeof chunk / sizeof *chunk; c++)
                for (int together = 0; together < 2; together++) {
                    memset(kv.base, 0xff, kv.block_bytes * kv.n_block);
                    run(d[j], &w, &kv, chunk[c], together, got, NULL);
                    assert_same_out(&w, got, want, d[j]->ops->name);
                }
            for (size_t c = 0; c < sizeof block_tokens / sizeof *block_tokens; c += getenv("OP_SIMD") ? 3 : 1) {
                struct world other = make(shapes[i], 1); /* and other pages */
                other.s.block_tokens = block_tokens[c];
                struct dev_kv kv_other = kv;
                kv_other.block_tokens = block_tokens[c];
                op_kv_layers(&kv_other, shapes[i].n_kv_head, shapes[i].dim);
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
                    for (int s = 0; s < SEQS; s++) {
                        first[s] = want[s];
                        want[s] = NULL;
                    }
            }
            free_out(want);
            free_out(got);
            unmake(&w);
        }
        free_out(first);
        op_close(d, n_dev);
    }
}

/* a value that overflows in a later row, or in a key that is out of the window, stays out of the others */
static void a_row_does_not_depend_on_tokens_that_it_may_not_see(void **state)
{
    (void)state;
    enum { N_OF = 4 };
    static const struct shape of[N_OF] = { { 4, 2, 64, 64, 16, 40, DT_F32, false, 0, false, false, false },
                                           { 4, 2, 64, 64, 16, 40, DT_BF16, false, 0, false, false, false },
                                           { 8, 1, 32, 32, 32, 0, DT_BF16, false, 0, false, false, false },
                                           { 4, 2, 64, 64, 16, 40, DT_F8E4M3, false, 0, false, false, false } };
    struct device            *d[OP_DEVICES_MAX];
    uint32_t                  n_dev = op_cpu_devices(d), bad = 100;
    for (uint32_t j = 0; j < n_dev * N_OF; j++) {
        struct shape   s = of[j % N_OF];
        struct device *on = d[j / N_OF];
        struct world   w = make(s, 0);
        float         *want[SEQS], *got[SEQS];
        struct dev_kv  kv = make_kv(on, s);
        make_out(&w, want, s.n_head * s.dim);
        make_out(&w, got, s.n_head * s.dim);
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
        free_out(want);
        free_out(got);
        unmake(&w);
    }
    op_close(d, n_dev);
}

static void a_layer_writes_its_own_bytes_of_a_block_and_no_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *d[OP_DEVICES_MAX + 1];
        uint32_t       n_dev = op_cpu_devices(d);
        d[n_dev++] = op_open(DEV_REF, NULL, 1);
        for (uint32_t j = 0; j < n_dev; j++) {
            struct world w = make(shapes[i], 0);
            float       *out[SEQS];
            make_out(&w, out, shapes[i].n_head * shapes[i].dim);
            struct dev_kv              kv = make_kv(d[j], shapes[i]);
            const struct dev_kv_layer *own = &kv.layer[LAYER];
            const uint8_t             *pool = kv.base;
            memset(kv.base, 0xff, kv.block_bytes * kv.n_block);
            run(d[j], &w, &kv, TOKENS_MAX, true, out, NULL);
            uint64_t n_written = 0;
            for (uint64_t at = 0; at < kv.block_bytes * kv.n_block; at++) {
                uint64_t in_block = at % kv.block_bytes;
                bool     mine = in_block >= own->offset && in_block < own->offset + own->bytes;
                if (mine) n_written += pool[at] != 0xff;
                if (!mine && pool[at] != 0xff)
                    fail_msg("%s: byte %zu of a block was written", d[j]->ops->name, (size_t)in_block);
            }
            assert_true(n_written > 0);
            free_out(out);
            unmake(&w);
        }
        op_close(d, n_dev);
    }
}

/* the cache of angles has fewer places than there are positions, and two sets: neither may show */
static void angles_do_not_depend_on_the_cached_prefix(void **state)
{
    (void)state;
    struct shape   s = { 2, 1, 64, 64, 16, 0, DT_F32, false, 0, false, false, false };
    struct device *d = op_open(DEV_CPU, NULL, 1), *ref = op_open(DEV_REF, NULL, 1);
    struct world   w = make(s, 0);
    struct dev_kv  kv = make_kv(d, s), kv_ref = make_kv(ref, s);
    uint32_t       pos[2], row_seq[2] = { 0, 1 }, row_start[3] = { 0, 1, 2 }, page_start[3] = { 0, 100000, 200000 },
                     *page = calloc(200000, sizeof *page);
    for (uint32_t i = 0; i < 60; i++) {
        struct dev_batch b = { .n_row = 2,
                               .n_seq = 2,
                               .pos = pos,
                               .row_seq = row_seq,
                               .row_start = row_start,
                               .page_start = page_start,
                               .page = page };
        float           *x = op_random(2 * w.width, 50 + i, 1), *y = op_random(2 * w.width, 50 + i, 1);
        struct op_qkv    q = { x,          NULL,
                               NULL,       0,
                               w.inv_freq, 1.0f + (float)(i % 3),
                               s.n_head,   s.n_kv_head,
                               s.dim,      s.rot - 2 * (i % 2),
                               .layer = 0 };
        pos[0] = i * 7919 % 100000;
        pos[1] = (pos[0] + (1u << (i % 20))) % 100000;
        d->ops->qkv(d, &q, &b, &kv);
        q.qkv = y;
        ref->ops->qkv(ref, &q, &b, &kv_ref);
        op_assert_near(x, y, 2 * w.width, 1e-6, "rotated");
        free(x);
        free(y);
    }
    free(page);
    unmake(&w);
    dev_close(d);
    dev_close(ref);
}

/* Norms behind RoPE, norms over whole projections whose sums are those of two ranks, and norms of deviations whose
 * weights are each head's own. */
static void norms_of_q_and_k_agree_with_ref_wherever_they_are(void **state)
{
    (void)state;
    static const struct {
        struct shape s;
        bool         late, whole, mean;
    } cases[] = { { { 4, 2, 64, 64, 16, 0, DT_F32, true, 0, false, false, false }, true, false, false },
                  { { 3, 1, 20, 12, 16, 0, DT_F32, true, 0, false, false, false }, true, false, false },
                  { { 4, 2, 64, 64, 16, 0, DT_F32, true, 0, false, false, false }, false, true, false },
                  { { 3, 1, 22, 12, 16, 0, DT_BF16, true, 0, false, false, false }, false, true, false },
                  { { 4, 2, 64, 64, 16, 0, DT_F32, true, 0, false, false, false }, false, false, true },
                  { { 3, 2, 22, 12, 16, 0, DT_BF16, true, 0, false, false, false }, false, false, true } };
    enum { N = 5 };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct shape   s = cases[c].s;
        struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 1);
        uint32_t       n_dev = op_cpu_devices(d), width = (s.n_head + 2 * s.n_kv_head) * s.dim;
        struct world   w = make(s, 0);
        uint32_t pos[N] = { 0, 1, 2, 3, 4 }, row_seq[N] = { 0 }, row_start[2] = { 0, N }, page_start[2] = { 0, 1 },
                 page[1] = { 0 };
        float *q_norm = op_random((size_t)s.n_head * s.dim, 5, 1), *k_norm = op_random((size_t)s.n_head * s.dim, 6, 1),
              *want = NULL, square[N][2][2], other[N][2];
        for (uint32_t i = 0; i <= n_dev; i++) { /* ref first */
            struct device   *at = i ? d[i - 1] : ref;
            struct dev_kv    kv = make_kv(at, s);
            float           *x = op_random((size_t)N * width, 50, 1);
            struct dev_batch b = { .n_row = N,
                                   .n_seq = 1,
                                   .pos = pos,
                                   .row_seq = row_seq,
                                   .row_start = row_start,
                                   .page_start = page_start,
                                   .page = page };
            struct op_qkv    q = { x,
                                   q_norm,
                                   k_norm,
                                   1e-6f,
                                   w.inv_freq,
                                   1.25f,
                                   s.n_head,
                                   s.n_kv_head,
                                   s.dim,
                                   s.rot,
                                   0,
                                   .norm_late = cases[c].late,
                                   .norm_mean = cases[c].mean };
            at->ops->squares(at, other[0], &q, N);
            for (uint32_t r = 0; r < N; r++)
                for (int k = 0; k < 2; k++) {
                    square[r][0][k] = other[r][k];
                    square[r][1][k] = 100 + (float)r + (float)k; /* of the other rank */
                }
            if (cases[c].whole) {
                q.square = square[0][0];
                q.n_square = 2;
            }
            at->ops->qkv(at, &q, &b, &kv);
            if (i) {
                op_assert_near(x, want, (size_t)N * width, 2e-6, at->ops->name);
                free(x);
            } else {
                want = x;
            }
        }
        free(want);
        free(q_norm);
        free(k_norm);
        unmake(&w);
        dev_close(ref);
        op_close(d, n_dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_agree_with_ref),
        cmocka_unit_test(a_layer_writes_its_own_bytes_of_a_block_and_no_others),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_chunk_batch_and_page_size),
        cmocka_unit_test(a_row_does_not_depend_on_tokens_that_it_may_not_see),
        cmocka_unit_test(norms_of_q_and_k_agree_with_ref_wherever_they_are),
        cmocka_unit_test(angles_do_not_depend_on_the_cached_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
