/* Each wrapper of hopper.cuh against a plain loop: on the emulator in every schedule, on a GPU of sm_90 for real. */
#include "cuda/hopper_kernels.h"
#include "cuda/raw_test.h"
#include "kernels/cuda/tensor_map.h"

static void stages_bring_every_byte(void **state)
{
    enum { WORDS = 512 * 20 };
    static uint32_t in[WORDS], out[WORDS];
    (void)state;
    for (int i = 0; i < WORDS; i++) in[i] = number(700, (uint64_t)i);
    for (CT_SCHEDULES(i))
        for (uint32_t bytes = 32; bytes <= 2048; bytes += bytes < 128 ? 32 : 672)
            for (uint32_t n = 1; n <= 20; n += 1 + n) { /* 1, 3, 7, 15: fewer and more than there are stages */
                void *din = up(in, sizeof in), *dout = up(NULL, sizeof out);
                hopper_ring(stream, dout, din, bytes, n);
                down(out, dout, sizeof out);
                cudaFree(din);
                for (uint32_t j = 0; j < n * bytes / 4; j++) assert_int_equal(out[j], 3 * in[j] + 1);
                for (uint32_t j = n * bytes / 4; j < WORDS; j++) assert_int_equal(out[j], 0);
            }
}

static void copies_of_a_thread_arrive_at_a_barrier(void **state)
{
    uint8_t in[64 * 16], out[64 * 16];
    (void)state;
    for (int i = 0; i < 64 * 16; i++) in[i] = (uint8_t)(number(701, (uint64_t)i) | 1);
    for (CT_SCHEDULES(i)) {
        void *din = up(in, sizeof in), *dout = up(NULL, sizeof out);
        hopper_async(stream, dout, din);
        down(out, dout, sizeof out);
        cudaFree(din);
        for (int at = 0; at < 64 * 16; at++) assert_int_equal(out[at], at % 16 < at / 16 % 17 ? in[at] : 0);
    }
}

/* Clusters of 1 to 8 blocks, fewer and more pieces than there are stages. */
static void blocks_of_a_cluster_bring_to_each_other(void **state)
{
    enum { CLUSTERS = 3, PIECES = 5, SHARE = HOPPER_SHARE / 4, IN = CLUSTERS * PIECES * 8 * SHARE };
    static uint32_t in[IN], out[8 * IN];
    (void)state;
    for (uint32_t i = 0; i < IN; i++) in[i] = number(702, i);
    for (CT_SCHEDULES(s))
        for (uint32_t n = 1; n <= 8; n++)
            for (uint32_t n_piece = n % 2 + 1; n_piece <= PIECES; n_piece += 3) {
                const uint32_t one = n_piece * n * SHARE, all = CLUSTERS * n * one; /* words of a block and of all */
                void          *din = up(in, sizeof in), *dout = up(NULL, sizeof out);
                hopper_cluster(stream, dout, din, n, CLUSTERS, n_piece);
                down(out, dout, sizeof out);
                cudaFree(din);
                for (uint32_t i = 0; i < all; i++)
                    assert_int_equal(out[i], 3 * in[i / (n * one) * one + i % one] + i / one % n);
                for (uint32_t i = all; i < 8 * IN; i++) assert_int_equal(out[i], 0);
            }
}

/* Boxes within a matrix, over its ends, and outside. */
static void a_box_of_a_matrix_comes_swizzled(void **state)
{
    enum { ROWS = 45, COLS = 136, BOX = HOPPER_BOX * 64 };
    static const int32_t at[][2] = { { 0, 0 }, { 64, 13 }, { 128, 32 }, { 8, 44 }, { -3, -5 }, { 200, 0 }, { 0, 45 } };
    static uint16_t      in[ROWS * COLS], out[2 * BOX];
    (void)state;
    assert_true(cuda_tensor_maps());
    for (uint32_t i = 0; i < ROWS * COLS; i++) in[i] = (uint16_t)(number(703, i) | 1);
    for (CT_SCHEDULES(s))
        for (size_t b = 0; b < sizeof at / sizeof *at; b++) {
            void *din = up(in, sizeof in), *dout = up(NULL, sizeof out);
            hopper_tensor(stream, dout, din, ROWS, COLS, at[b][0], at[b][1]);
            down(out, dout, sizeof out);
            cudaFree(din);
            for (int32_t i = 0; i < 2 * BOX; i++) {
                int32_t lies = i % BOX * 2, plain = (lies ^ (lies >> 3 & 0x70)) / 2;
                int32_t row = at[b][1] + plain / 64, col = at[b][0] + plain % 64;
                bool    within = row >= 0 && row < ROWS && col >= 0 && col < COLS;
                assert_int_equal(out[i], within ? in[row * COLS + col] : 0);
            }
        }
}

static void parts_of_a_block_meet_at_barriers_of_their_own(void **state)
{
    enum { TURNS = 9 };
    uint32_t out[TURNS * 32], wide[384];
    (void)state;
    for (CT_SCHEDULES(i)) {
        void *dout = up(NULL, sizeof out), *dwide = up(NULL, sizeof wide);
        hopper_parts(stream, dout, TURNS);
        hopper_regs(stream, dwide);
        down(out, dout, sizeof out);
        down(wide, dwide, sizeof wide);
        for (uint32_t j = 0; j < TURNS * 32; j++) assert_int_equal(out[j], j);
        for (uint32_t j = 0; j < 384; j++) assert_int_equal(wide[j], j);
    }
}

/* Whole numbers of up to 4 bits: their products and sums are exact in every order of adding. */
static float *whole(uint64_t seed, size_t n, int most)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(int)(number(seed, i) % (uint32_t)(2 * most + 1)) - (float)most;
    return x;
}
/* A word of 16 bits has one of them, or two of E4M3. */
static uint16_t *narrow(const float *x, size_t n, enum hopper_number to)
{
    uint16_t *h = malloc(n * sizeof *h);
    for (size_t i = 0; i < n; i++)
        if (to == HOPPER_E4M3)
            ((uint8_t *)h)[i] = f32_to_f8e4m3(x[i]);
        else
            h[i] = to == HOPPER_BF16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
    return h;
}
/* false: there is no such instance */
static bool product(struct hopper_product p, uint64_t seed)
{
    size_t n = (size_t)p.n, size = 64 * n, n_k = p.number == HOPPER_E4M3 ? 128 : 64;
    float *a = whole(seed, 64 * n_k, 15), *b = whole(seed + 1, n * n_k, 15), *c = whole(seed + 2, size, 1000),
          *d = malloc(size * sizeof *d);
    uint16_t *ha = narrow(a, 64 * n_k, p.number), *hb = narrow(b, n * n_k, p.number);
    void     *da = up(ha, 64 * 64 * 2), *db = up(hb, n * 64 * 2), *dc = up(c, size * 4), *dd = up(NULL, size * 4);
    bool      done = hopper_wgmma(stream, p, dd, da, db, dc);
    down(d, dd, size * sizeof *d);
    cudaFree(da);
    cudaFree(db);
    cudaFree(dc);
    for (size_t i = 0; done && i < 64; i++)
        for (size_t j = 0; j < n; j++) {
            float want = p.add ? c[i * n + j] : 0;
            for (size_t k = 0; k < n_k; k++) want += a[i * n_k + k] * b[j * n_k + k];
            if (d[i * n + j] != want)
                fail_msg("number %d, n %d, a %d, trans_b %d, swizzle %d, add %d: [%zu][%zu] is %g, should be %g",
                         (int)p.number, p.n, (int)p.a, p.trans_b, p.swizzle, p.add, i, j, (double)d[i * n + j],
                         (double)want);
        }
    free(a);
    free(b);
    free(c);
    free(d);
    free(ha);
    free(hb);
    return done;
}
static void a_warp_group_multiplies(void **state)
{
    int seen = 0;
    (void)state;
    for (int i = 0; i < 3 * 2 * 3 * 3 * 4; i++) {
        struct hopper_product p = { .number = (enum hopper_number)(i % 3),
                                    .trans_b = i / 3 % 2,
                                    .add = i % 5 < 3,
                                    .a = (enum hopper_a)(i / 6 % 3),
                                    .n = 64 << i / 18 % 3,
                                    .swizzle = i / 54 };
        ct_schedule((uint32_t)i % 12);
        seen += product(p, 800 + 3 * (uint64_t)i);
    }
    ct_schedule(0);
    assert_int_equal(seen, 18 * 4); /* every instance, in every swizzle */
    for (CT_SCHEDULES(i))
        for (int e4m3 = 0; e4m3 < 2; e4m3++)
            assert_true(product((struct hopper_product){ .number = e4m3 ? HOPPER_E4M3 : HOPPER_BF16,
                                                         .add = true,
                                                         .a = HOPPER_A_ROWS,
                                                         .n = 64,
                                                         .swizzle = 1 },
                                790));
}

/* The tile kernels of attention and of wgmma make the same bits only where this holds. */
static void both_kinds_of_products_round_alike(void **state)
{
    enum { N = 64 * 64 };
    static float       d[2 * N];
    static const float by[] = { 4096, 1, -4096, 1 };
    (void)state;
    for (uint64_t turn = 0; turn < 3; turn++) {
        float *a = op_random(64 * 256, 3 + turn, 1.0f), *b = op_random(64 * 256, 30 + turn, 1.0f);
        if (turn == 1) /* large numbers that cancel, small ones between them */
            for (int i = 0; i < 64 * 256; i++) a[i] *= by[i % 4];
        if (turn == 2)
            for (int i = 0; i < 64 * 256; i++) b[i] = ldexpf(b[i], (int)(number(31, (uint64_t)i) % 24) - 12);
        uint16_t *ha = narrow(a, 64 * 256, HOPPER_BF16), *hb = narrow(b, 64 * 256, HOPPER_BF16);
        void     *da = up(ha, 64 * 256 * 2), *db = up(hb, 64 * 256 * 2), *dd = up(NULL, sizeof d);
        hopper_both(stream, dd, da, db);
        down(d, dd, sizeof d);
        cudaFree(da);
        cudaFree(db);
        free(a);
        free(b);
        free(ha);
        free(hb);
        int differ = 0;
        for (int i = 0; i < N; i++) {
            assert_true(isfinite(d[i]));
            differ += memcmp(&d[i], &d[N + i], sizeof d[i]) != 0;
        }
        printf("           turn %d: %d of %d sums differ\n", (int)turn, differ, N);
#ifdef CUDA_EMU
        assert_int_equal(differ, 0); /* on a GPU it is a question: no kernel relies on the answer yet */
#endif
    }
}

static void a_pipeline_of_it_all_multiplies(void **state)
{
    enum { M = 64, N = 128, K = 256 };
    static float out[M * N];
    (void)state;
    for (int n_k = 1; n_k <= K / 64; n_k++) {
        size_t    k_all = (size_t)n_k * 64;
        float    *a = whole(900, M * k_all, 15), *b = whole(901, N * k_all, 15);
        uint16_t *ha = narrow(a, M * k_all, HOPPER_BF16), *hb = narrow(b, N * k_all, HOPPER_BF16),
                 *tiles = malloc(N * k_all * 2);
        for (size_t i = 0; i < N * k_all; i++) {
            size_t row = i / k_all, k = i % k_all, at = row * 128 + k % 64 * 2;
            tiles[k / 64 * N * 64 + (at ^ (at >> 3 & 0x70)) / 2] = hb[i];
        }
        for (CT_SCHEDULES(i)) {
            void *da = up(ha, M * k_all * 2), *db = up(tiles, N * k_all * 2), *dd = up(NULL, sizeof out);
            hopper_gemm(stream, dd, da, db, n_k);
            down(out, dd, sizeof out);
            cudaFree(da);
            cudaFree(db);
            for (size_t at = 0; at < M * N; at++) {
                float want = 0;
                for (size_t k = 0; k < k_all; k++) want += a[at / N * k_all + k] * b[at % N * k_all + k];
                assert_float_equal(out[at], want, 0);
            }
        }
        free(a);
        free(b);
        free(ha);
        free(hb);
        free(tiles);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_bring_every_byte),
        cmocka_unit_test(copies_of_a_thread_arrive_at_a_barrier),
        cmocka_unit_test(blocks_of_a_cluster_bring_to_each_other),
        cmocka_unit_test(a_box_of_a_matrix_comes_swizzled),
        cmocka_unit_test(parts_of_a_block_meet_at_barriers_of_their_own),
        cmocka_unit_test(a_warp_group_multiplies),
        cmocka_unit_test(both_kinds_of_products_round_alike),
        cmocka_unit_test(a_pipeline_of_it_all_multiplies),
    };
    return raw_main(tests, sizeof tests / sizeof *tests, 9);
}
