/* The emulator proves itself: right kernels are right in every schedule, and each planted bug is caught by at least
 * one. */
#include "cuda/cuda_test.h"
#include "cuda/emu_kernels.h"
#include "test.h"
#include <pthread.h>
#include <signal.h>

static void *dev_new(size_t bytes)
{
    void *p;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    return p;
}
static void *dev_bf16(const float *x, size_t n)
{
    uint16_t *p = dev_new(n * 2); /* what an emulated device holds can be written from here */
    for (size_t i = 0; i < n; i++) p[i] = f32_to_bf16(x[i]);
    return p;
}

/* ---------------------------------------------------------------- the kernels, right or wrong: 0 when the numbers are
 * right */

static int run_sum(enum emu_bug bug)
{
    enum { ROWS = 3, N = 500 };
    float *x = op_random(ROWS * N, 1, 1.0f), *in = dev_new(ROWS * N * sizeof *x), *out = dev_new(ROWS * sizeof *x);
    memcpy(in, x, ROWS * N * sizeof *x);
    emu_sum(bug, out, in, ROWS, N);
    int wrong = cudaPeekAtLastError() != cudaSuccess;
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < N; i++) sum += (double)x[r * N + i];
        wrong |= !(fabs((double)out[r] - sum) < 1e-3);
    }
    free(x);
    cudaFree(in);
    cudaFree(out);
    return wrong;
}
static int run_gemm(enum emu_bug bug)
{
    enum { M = 70, N = 130, K = 160, SPARE = (9 << 20) / 2 / K };
    float *a = op_random((size_t)M * K, 2, 1.0f), *b = op_random((size_t)N * K, 3, 1.0f),
          *out = dev_new((size_t)M * N * sizeof *out);
    ct_round(a, (size_t)M * K, DT_BF16);
    ct_round(b, (size_t)N * K, DT_BF16);
    /* a lies at the end of a large allocation, behind which a page cannot be read: also without AddressSanitizer */
    uint16_t *whole = dev_new((size_t)(SPARE * K / 128 * 128 + M * K) * 2), *da = whole + SPARE * K / 128 * 128,
             *db = dev_bf16(b, (size_t)N * K);
    for (size_t i = 0; i < (size_t)M * K; i++) da[i] = f32_to_bf16(a[i]);
    emu_gemm(bug, out, da, db, M, N, K);
    int wrong = cudaPeekAtLastError() != cudaSuccess || ct_product_is_wrong(out, a, b, M, N, K);
    free(a);
    free(b);
    cudaFree(whole);
    cudaFree(db);
    cudaFree(out);
    return wrong;
}
static int run_tail(enum emu_bug bug)
{
    enum { LEN = 11 };
    float     p[16 * 16], *v = op_random(16 * 8, 4, 1.0f), *out = dev_new(16 * 8 * sizeof *out);
    uint16_t *dv = dev_new(16 * 8 * 2);
    for (int i = 0; i < 16 * 16; i++) p[i] = i % 16 < LEN ? (float)(i % 7) : 0.0f;
    for (int i = 0; i < LEN * 8; i++) dv[i] = f32_to_bf16(v[i]); /* the rest stays NaN */
    void *dp = dev_bf16(p, 16 * 16);
    emu_tail(bug, out, dp, dv, LEN);
    int wrong = cudaPeekAtLastError() != cudaSuccess;
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            double sum = 0;
            for (int k = 0; k < LEN; k++) sum += (double)p[r * 16 + k] * (double)op_rounded(v[k * 8 + c], DT_BF16);
            wrong |= !(fabs((double)out[r * 8 + c] - sum) < 1e-3);
        }
    free(v);
    cudaFree(dp);
    cudaFree(dv);
    cudaFree(out);
    return wrong;
}

static int run_after(enum emu_bug bug)
{
    enum { N = 1000 };
    float *in = dev_new(sizeof *in), *x = dev_new(N * sizeof *x), *out = dev_new(N * sizeof *out);
    in[0] = 1.0f;
    emu_after(bug, out, x, in, N);
    int wrong = cudaPeekAtLastError() != cudaSuccess;
    for (int i = 0; i < N; i++) wrong |= out[i] != 2.0f * (float)(i + 1);
    cudaFree(in);
    cudaFree(x);
    cudaFree(out);
    return wrong;
}

static void right_kernels_are_right_in_every_schedule(void **state)
{
    (void)state;
    for (CT_SCHEDULES(i)) {
        int wrong =
            run_sum(EMU_NO_BUG) | run_gemm(EMU_NO_BUG) << 1 | run_tail(EMU_NO_BUG) << 2 | run_after(EMU_NO_BUG) << 3;
        if (wrong) fail_msg("%s: kernels %d", ct_schedule_name(i), wrong);
    }
    assert_int_equal(emu_bytes_held(), 0);
}

struct bug {
    int (*run)(enum emu_bug);
    enum emu_bug bug;
};
static void child(void *arg)
{
    const struct bug *b = arg;
    for (int sig = 1; sig < 32; sig++) signal(sig, SIG_DFL); /* cmocka's handlers would go on with the next test */
    _exit(b->run(b->bug) ? 42 : 0);
}
static void child_of_turns(void *arg)
{
    const struct bug *b = arg;
    int               wrong = 0;
    for (int sig = 1; sig < 32; sig++) signal(sig, SIG_DFL);
    for (int i = 0; i < 4; i++) wrong |= b->run(b->bug);
    _exit(wrong ? 42 : 0);
}
/* in how many schedules the bug ends the process or makes wrong numbers; four launches by turns find it too */
static int caught(int (*run)(enum emu_bug), enum emu_bug bug)
{
    struct bug b = { run, bug };
    int        n = 0;
    for (uint32_t i = 0; ct_schedule(i) < EMU_SCHEDULES; i++) n += test_exit_of(child, &b) != 0;
    printf("           bug %d: caught by %d of %d schedules\n", bug, n, EMU_SCHEDULES);
    assert_int_not_equal(test_exit_of(child_of_turns, &b), 0);
    return n;
}
static void a_missing_barrier_is_caught(void **state)
{
    (void)state;
    assert_true(caught(run_sum, EMU_NO_SYNC) > 0);
    assert_true(caught(run_sum, EMU_STATIC_RACE) > 0);
    assert_true(caught(run_gemm, EMU_NO_LAST_SYNC) > 0);
}
static void a_barrier_that_some_do_not_reach_is_caught(void **state)
{
    (void)state;
    assert_int_equal(caught(run_sum, EMU_DIVERGENT_SYNC), EMU_SCHEDULES);
}
static void lanes_that_do_not_meet_in_one_collective_are_caught(void **state)
{
    (void)state;
    assert_int_equal(caught(run_sum, EMU_MASK), EMU_SCHEDULES);
    assert_int_equal(caught(run_sum, EMU_MIXED), EMU_SCHEDULES);
}
static void halves_of_a_warp_may_go_their_own_ways(void **state)
{
    (void)state;
    uint32_t *out = dev_new(32 * 4), want = 0;
    for (uint32_t l = 0; l < 32;
         l++) { /* xor 8: v + its partner's; xor 1, three times: pairs double their sum each time */
        if (l < 16)
            want += l + (l ^ 8);
        else
            want += 4 * (l + (l ^ 1));
    }
    for (CT_SCHEDULES(i)) {
        emu_halves(out);
        for (int l = 0; l < 32; l++) assert_int_equal(out[l], want);
    }
    cudaFree(out);
}
static void a_copy_that_is_not_waited_for_is_caught(void **state)
{
    (void)state;
    assert_true(caught(run_gemm, EMU_WAIT_COUNT) > 0);
}
static void reading_past_the_end_is_caught(void **state)
{
    (void)state;
    assert_int_equal(caught(run_gemm, EMU_OUT_OF_BOUNDS), EMU_SCHEDULES);
}
static void rows_that_were_never_written_are_caught(void **state)
{
    (void)state;
    assert_int_equal(caught(run_tail, EMU_TAIL), EMU_SCHEDULES);
}
static void what_a_dependent_kernel_does_ahead_of_its_wait_is_caught(void **state)
{
    (void)state;
    assert_true(caught(run_after, EMU_EARLY) >= 3); /* in each schedule that begins early */
    assert_true(caught(run_after, EMU_EARLY_WRITE) >= 3);
    assert_int_equal(caught(run_after, EMU_LAUNCH_FIRST), EMU_SCHEDULES);
}
static void no_wait(void *arg)
{
    (void)arg;
    signal(SIGABRT, SIG_DFL);
    emu_no_wait(dev_new(4));
}
static void a_dependent_launch_that_never_waits_is_caught(void **state)
{
    (void)state;
    assert_int_equal(test_exit_of(no_wait, NULL), -SIGABRT);
}

static void shared_memory_begins_as_nan(void **state)
{
    (void)state;
    float *out = dev_new(32 * sizeof *out);
    for (int i = 0; i < 32; i++) out[i] = 0.0f;
    emu_static(out);
    for (int i = 0; i < 32; i++) assert_true(isnan(out[i]));
    cudaFree(out);
}

/* ---------------------------------------------------------------- blocks and ranks that wait for each other */

enum { RANKS = 2, BLOCKS = 5 };
struct rank {
    uint32_t *out, *arrived, *value;
    int       rank, n;
};
static void *rank_main(void *arg)
{
    struct rank *r = arg;
    cudaStream_t s = NULL;
    cudaSetDevice(r->rank);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    emu_meet(s, r->out, r->arrived, r->value, r->rank * BLOCKS, BLOCKS, r->n);
    cudaStreamSynchronize(s);
    cudaStreamDestroy(s);
    return NULL;
}
static void meet(int ranks)
{
    enum { MOST = RANKS * BLOCKS };
    int         n = ranks * BLOCKS;
    struct rank r[RANKS];
    pthread_t   t[RANKS];
    uint32_t   *out = dev_new(MOST * 4), *arrived = dev_new(MOST * 4), *value = dev_new(MOST * 4);
    memset(arrived, 0, MOST * 4);
    for (int i = 0; i < ranks; i++) {
        r[i] = (struct rank){ out, arrived, value, i, n };
        assert_int_equal(pthread_create(&t[i], NULL, rank_main, &r[i]), 0);
    }
    for (int i = 0; i < ranks; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < n; i++) assert_int_equal(out[i], 100 + i + n * (n - 1) / 2);
    cudaFree(out);
    cudaFree(arrived);
    cudaFree(value);
}
static void blocks_of_a_grid_may_wait_for_each_other(void **state)
{
    (void)state;
    for (CT_SCHEDULES(i)) meet(1);
}
static void ranks_on_two_threads_may_wait_for_each_other(void **state)
{
    (void)state;
    emu_set_devices(2);
    for (CT_SCHEDULES(i)) meet(2);
    emu_reset();
}

/* ---------------------------------------------------------------- the two 16-bit floats */

static void sixteen_bit_floats_are_those_of_the_rest_of_the_program(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float a = emu_half_to_float((uint16_t)i), b = f16_to_f32((uint16_t)i);
        assert_true(a == b || (isnan(a) && isnan(b)));
        a = emu_bf16_to_float((uint16_t)i);
        b = bf16_to_f32((uint16_t)i);
        assert_true(a == b || (isnan(a) && isnan(b)));
    }
    for (uint64_t i = 0; i <= UINT32_MAX; i += 65521 / 4) { /* a prime's quarter: all exponents, all kinds of tails */
        for (uint32_t d = 0; d < 3; d++) {
            uint32_t u = (uint32_t)(i & ~(uint64_t)0x1fff) + 0xfff + d; /* around the middle between two halves */
            for (int at = 0; at < 2; at++, u = (uint32_t)i) {
                float f;
                memcpy(&f, &u, 4);
                if (isnan(f)) {
                    assert_int_equal(emu_float_to_half(f), 0x7fff);
                    assert_int_equal(emu_float_to_bf16(f), 0x7fff);
                } else {
                    assert_int_equal(emu_float_to_half(f), f32_to_f16(f));
                    assert_int_equal(emu_float_to_bf16(f), f32_to_bf16(f));
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_are_right_in_every_schedule),
        cmocka_unit_test(a_missing_barrier_is_caught),
        cmocka_unit_test(a_barrier_that_some_do_not_reach_is_caught),
        cmocka_unit_test(lanes_that_do_not_meet_in_one_collective_are_caught),
        cmocka_unit_test(halves_of_a_warp_may_go_their_own_ways),
        cmocka_unit_test(a_copy_that_is_not_waited_for_is_caught),
        cmocka_unit_test(reading_past_the_end_is_caught),
        cmocka_unit_test(rows_that_were_never_written_are_caught),
        cmocka_unit_test(what_a_dependent_kernel_does_ahead_of_its_wait_is_caught),
        cmocka_unit_test(a_dependent_launch_that_never_waits_is_caught),
        cmocka_unit_test(shared_memory_begins_as_nan),
        cmocka_unit_test(blocks_of_a_grid_may_wait_for_each_other),
        cmocka_unit_test(ranks_on_two_threads_may_wait_for_each_other),
        cmocka_unit_test(sixteen_bit_floats_are_those_of_the_rest_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
