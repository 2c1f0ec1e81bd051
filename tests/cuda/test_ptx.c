/* Each instruction wrapper against a plain loop, exactly: on the emulator in every schedule, on a GPU for real. */
#include "cuda/cuda_test.h"
#include "cuda/ptx_kernels.h"
#include "cuda/raw_test.h"

/* Whole numbers of up to 5 bits: their products and sums are exact in every order of adding. */
static void mma(bool is_bf16, uint64_t seed)
{
    uint16_t a[16 * 16], b[8 * 16];
    float    fa[16 * 16], fb[8 * 16], c[16 * 8], d[16 * 8];
    for (int i = 0; i < 256; i++) fa[i] = (float)(int)(number(seed, (uint64_t)i) % 31) - 15.0f;
    for (int i = 0; i < 128; i++) fb[i] = (float)(int)(number(seed + 1, (uint64_t)i) % 31) - 15.0f;
    for (int i = 0; i < 128; i++) c[i] = (float)(int)(number(seed + 2, (uint64_t)i) % 2001) - 1000.0f;
    for (int i = 0; i < 256; i++) a[i] = is_bf16 ? f32_to_bf16(fa[i]) : f32_to_f16(fa[i]);
    for (int i = 0; i < 128; i++) b[i] = is_bf16 ? f32_to_bf16(fb[i]) : f32_to_f16(fb[i]);
    void *da = up(a, sizeof a), *db = up(b, sizeof b), *dc = up(c, sizeof c), *dd = up(NULL, sizeof d);
    ptx_mma(stream, is_bf16, dd, da, db, dc);
    down(d, dd, sizeof d);
    cudaFree(da);
    cudaFree(db);
    cudaFree(dc);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float want = c[m * 8 + n];
            for (int k = 0; k < 16; k++) want += fa[m * 16 + k] * fb[n * 16 + k];
            assert_float_equal(d[m * 8 + n], want, 0);
        }
}
static void mma_multiplies_bf16(void **state)
{
    (void)state;
    for (CT_SCHEDULES(i))
        for (uint64_t seed = 0; seed < 5; seed++) mma(true, seed * 3);
}
static void mma_multiplies_f16(void **state)
{
    (void)state;
    for (CT_SCHEDULES(i))
        for (uint64_t seed = 0; seed < 5; seed++) mma(false, 100 + seed * 3);
}

static void ldmatrix(int n, bool trans)
{
    uint16_t in[4 * 64];
    uint32_t out[32 * 4];
    for (int i = 0; i < n * 64; i++) in[i] = (uint16_t)number(200, (uint64_t)i);
    void *din = up(in, sizeof in), *dout = up(NULL, sizeof out);
    ptx_ldmatrix(stream, n, trans, dout, din);
    down(out, dout, sizeof out);
    cudaFree(din);
    for (int lane = 0; lane < 32; lane++)
        for (int m = 0; m < n; m++)
            for (int j = 0; j < 2; j++) {
                int row = lane / 4, col = lane % 4 * 2 + j;
                assert_int_equal(out[lane * n + m] >> (16 * j) & 0xffff,
                                 in[m * 64 + (trans ? col * 8 + row : row * 8 + col)]);
            }
}
static void ldmatrix_gives_each_lane_its_elements(void **state)
{
    (void)state;
    for (CT_SCHEDULES(i)) {
        ldmatrix(4, false);
        ldmatrix(4, true);
        ldmatrix(2, false);
        ldmatrix(2, true);
    }
}

static void cp_async_copies_what_is_valid_and_zeroes_the_rest(void **state)
{
    enum { N = 3 * 64 * 16 };
    uint8_t in[N], out[N];
    (void)state;
    for (int i = 0; i < N; i++) in[i] = (uint8_t)(number(300, (uint64_t)i) | 1);
    for (CT_SCHEDULES(i)) {
        void *din = up(in, N), *dout = up(NULL, N);
        ptx_cp_async(stream, dout, din);
        down(out, dout, N);
        cudaFree(din);
        for (int at = 0; at < N; at++) {
            int g = at / 1024, t = at / 16 % 64;
            assert_int_equal(out[at], at % 16 < (t + g) % 17 ? in[at] : 0);
        }
    }
}

static void streaming_loads_and_stores_move_16_bytes(void **state)
{
    enum { N = 1000 };
    static uint32_t in[N * 4], out[N * 4];
    (void)state;
    for (int i = 0; i < N * 4; i++) in[i] = number(400, (uint64_t)i);
    void *din = up(in, sizeof in), *dout = up(NULL, sizeof out);
    ptx_stream(stream, dout, din, N);
    down(out, dout, sizeof out);
    cudaFree(din);
    for (int i = 0; i < N; i++) {
        assert_int_equal(out[i * 4], in[i * 4] + in[i * 4 + 3]);
        assert_int_equal(out[i * 4 + 1], in[i * 4 + 1] + in[i * 4 + 2]);
        assert_int_equal(out[i * 4 + 2], in[i * 4 + 2]);
        assert_int_equal(out[i * 4 + 3], in[i * 4 + 3]);
    }
}

static void a_power_of_two_is_within_its_bound(void **state)
{
    enum { N = 4096 };
    static float x[N], y[N];
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (float)number(450, (uint64_t)i) * 0x1p-32f * 252 - 125; /* -125 .. 127: results are normal */
    static const float edge[] = { 0, -0.0f, 1, -1, 10, -126, -127, -149, -150, -1000, -INFINITY, 127 };
    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++) x[i] = edge[i];
    void *dx = up(x, sizeof x), *dy = up(NULL, sizeof y);
    ptx_ex2(stream, dy, dx, N);
    down(y, dy, sizeof y);
    cudaFree(dx);
    assert_float_equal(y[0], 1, 0);
    assert_float_equal(y[1], 1, 0);
    for (size_t i = 6; i < 11; i++) assert_float_equal(y[i], 0, 0); /* below the smallest normal number, and 2^-inf */
    for (int i = 0; i < N; i++) {
        double want = exp2(x[i]), ulp = exp2(floor((double)x[i]) - 23);
        if (x[i] >= -126 && !(fabs((double)y[i] - want) <= 2.5 * ulp))
            fail_msg("2^%.9g is %.9g, should be %.9g", (double)x[i], (double)y[i], want);
    }
}

static void a_reciprocal_is_within_its_bound(void **state)
{
    enum { N = 4096 };
    static float x[N], y[N];
    (void)state;
    for (int i = 0; i < N; i++) x[i] = exp2f((float)number(451, (uint64_t)i) * 0x1p-32f * 252 - 126);
    x[0] = 1;
    x[1] = 0x1p126f;
    x[2] = 0x1.8p126f; /* its reciprocal is no normal number */
    x[3] = INFINITY;
    void *dx = up(x, sizeof x), *dy = up(NULL, sizeof y);
    ptx_rcp(stream, dy, dx, N);
    down(y, dy, sizeof y);
    cudaFree(dx);
    assert_float_equal(y[0], 1, 0);
    assert_float_equal(y[2], 0, 0);
    assert_float_equal(y[3], 0, 0);
    for (int i = 0; i < N; i++) {
        double want = 1 / (double)x[i];
        if (x[i] <= 0x1p126f && !(fabs((double)y[i] - want) <= want * 0x1p-22))
            fail_msg("1 / %.9g is %.9g, should be %.9g", (double)x[i], (double)y[i], want);
    }
}

/* An exact number to its nearest of so many bits, ties to even. */
static double rounded(double x, int bits)
{
    int e;
    frexp(x, &e);
    return ldexp(rint(ldexp(x, bits - e)), e - bits);
}

/* Normal numbers between 2^-6 and 2^6 in size, whose exact results a double holds; then what codes need: subnormal
 * numbers are multiplied, and zeros keep their signs. */
static void pairs_are_multiplied_and_added_with_one_rounding(void **state)
{
    enum { N = 2000 };
    static uint32_t x[3 * N], y[N];
    (void)state;
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        uint32_t bias = is_bf16 ? 121 : 9, place = is_bf16 ? 7 : 10, one = is_bf16 ? 0x3f80 : 0x3c00;
        for (uint32_t i = 0; i < 3 * N; i++) {
            uint32_t r = number(460, i), e = bias + number(461, i) % 12, f = bias + (number(461, i) >> 8) % 12;
            x[i] = (r & (0x80008000u | ((1u << place) - 1) * 0x10001u)) | e << place | f << (place + 16);
        }
        uint32_t subnormal = is_bf16 ? 0x0010 : 0x0080, raise = is_bf16 ? 0x7b80 : 0x5c00;
        x[0] = subnormal | 0x80000000u, x[N] = raise | raise << 16, x[2 * N] = 0x80008000u;
        x[1] = one, x[N + 1] = one, x[2 * N + 1] = one | 0x8000;
        void *dx = up(x, sizeof x), *dy = up(NULL, sizeof y);
        ptx_fma2(stream, is_bf16, dy, dx, N);
        down(y, dy, sizeof y);
        cudaFree(dx);
        for (int i = 0; i < 2 * N; i++) {
            float in[3], got;
            for (int j = 0; j < 3; j++) {
                uint16_t h = (uint16_t)(x[j * N + i / 2] >> 16 * (i % 2));
                in[j] = is_bf16 ? bf16_to_f32(h) : f16_to_f32(h);
            }
            uint16_t h = (uint16_t)(y[i / 2] >> 16 * (i % 2));
            got = is_bf16 ? bf16_to_f32(h) : f16_to_f32(h);
            double want = rounded((double)in[0] * (double)in[1] + (double)in[2], is_bf16 ? 8 : 11);
            if ((double)got != want ||
                (want == 0 && !signbit(got) != !signbit((double)in[0] * (double)in[1] + (double)in[2])))
                fail_msg("%a * %a + %a is %a, should be %a", (double)in[0], (double)in[1], (double)in[2], (double)got,
                         want);
        }
    }
}

static void a_dependent_launch_reads_the_writes_of_the_launch_before_it(void **state)
{
    enum { N = 5000, TIMES = 20 };
    static uint32_t x[N], out[N];
    int             major = 0;
    (void)state;
    assert_int_equal(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
    for (int pdl = 0; pdl <= (major >= 9); pdl++) {
        for (int i = 0; i < N; i++) x[i] = number(500, (uint64_t)i);
        void *dx = up(x, sizeof x);
        ptx_chain(stream, pdl, dx, N, TIMES);
        down(out, dx, sizeof out);
        for (int i = 0; i < N; i++) {
            for (int t = 0; t < TIMES; t++) x[i] = x[i] * 3 + 1;
            assert_int_equal(out[i], x[i]);
        }
    }
}

static void a_release_is_seen_by_an_acquire(void **state)
{
    enum { BLOCKS = 8 };
    uint32_t out[BLOCKS];
    (void)state;
    for (CT_SCHEDULES(i))
        for (int sys = 0; sys < 2; sys++) {
            void *flag = up(NULL, sizeof out), *message = up(NULL, sizeof out);
            ptx_relay(stream, sys, flag, message, BLOCKS);
            down(out, message, sizeof out);
            cudaFree(flag);
            for (int b = 0; b < BLOCKS; b++) assert_int_equal(out[b], (b + 1) * (b + 2) / 2);
        }
}

static void reductions_give_every_thread_the_same(void **state)
{
    float x[256], sum[256], most[256], s = 0, m = -INFINITY;
    (void)state;
    for (int i = 0; i < 256; i++) {
        x[i] = (float)(int)(number(600, (uint64_t)i) % 2001) - 1000.0f;
        s += x[i];
        m = fmaxf(m, x[i]);
    }
    for (CT_SCHEDULES(i)) {
        void *dx = up(x, sizeof x), *dsum = up(NULL, sizeof sum), *dmost = up(NULL, sizeof most);
        ptx_reduce(stream, dsum, dmost, dx);
        down(sum, dsum, sizeof sum);
        down(most, dmost, sizeof most);
        cudaFree(dx);
        for (int t = 0; t < 256; t++) {
            assert_float_equal(sum[t], s, 0);
            assert_float_equal(most[t], m, 0);
        }
    }
}

/* The tree of a warp, by hand: numbers whose sum depends on the order. */
static float tree(const float *x)
{
    float a[32], b[32];
    memcpy(a, x, sizeof a);
    for (int m = 16; m; m >>= 1) {
        for (int l = 0; l < 32; l++) b[l] = a[l] + a[l ^ m];
        memcpy(a, b, sizeof a);
    }
    return a[0];
}
static void the_tree_of_a_sum_is_fixed(void **state)
{
    float x[256], sum[256], most[256], part[32] = { 0 };
    (void)state;
    for (int i = 0; i < 256; i++) x[i] = (float)number(601, (uint64_t)i) / (float)(1 + number(602, (uint64_t)i) % 1000);
    for (int w = 0; w < 8; w++) part[w] = tree(x + 32 * w);
    float whole = tree(part), again[32];
    for (int i = 0; i < 32; i++) again[i] = whole;
    for (int i = 0; i < 32; i++) part[i] = i < 8 ? tree(again) : 0; /* ptx_reduce sums the sums: 256 times the same */
    float want = tree(part) / 256.0f;
    for (CT_SCHEDULES(i)) {
        void *dx = up(x, sizeof x), *dsum = up(NULL, sizeof sum), *dmost = up(NULL, sizeof most);
        ptx_reduce(stream, dsum, dmost, dx);
        down(sum, dsum, sizeof sum);
        down(most, dmost, sizeof most);
        cudaFree(dx);
        for (int t = 0; t < 256; t++) assert_memory_equal(&sum[t], &want, sizeof want);
    }
}

static void shared_memory_beyond_48_kib_is_asked_for(void **state)
{
    enum { N = 20000 }; /* 80 kB */
    static uint32_t out[N];
    (void)state;
    void *dout = up(NULL, sizeof out);
    ptx_smem(stream, dout, N);
    down(out, dout, sizeof out);
    for (int i = 0; i < N; i++) assert_int_equal(out[i], 7 * (N - 1 - i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mma_multiplies_bf16),
        cmocka_unit_test(mma_multiplies_f16),
        cmocka_unit_test(ldmatrix_gives_each_lane_its_elements),
        cmocka_unit_test(cp_async_copies_what_is_valid_and_zeroes_the_rest),
        cmocka_unit_test(streaming_loads_and_stores_move_16_bytes),
        cmocka_unit_test(a_power_of_two_is_within_its_bound),
        cmocka_unit_test(a_reciprocal_is_within_its_bound),
        cmocka_unit_test(pairs_are_multiplied_and_added_with_one_rounding),
        cmocka_unit_test(a_dependent_launch_reads_the_writes_of_the_launch_before_it),
        cmocka_unit_test(a_release_is_seen_by_an_acquire),
        cmocka_unit_test(reductions_give_every_thread_the_same),
        cmocka_unit_test(the_tree_of_a_sum_is_fixed),
        cmocka_unit_test(shared_memory_beyond_48_kib_is_asked_for),
    };
    return raw_main(tests, sizeof tests / sizeof *tests, 0);
}
