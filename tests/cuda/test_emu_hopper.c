/* The emulator proves itself: what only sm_90a has. The pipeline of hopper_gemm.cuh is right in every schedule, and each
 * of its mistakes is caught: by name, or by wrong numbers. So with the ring of hopper_cluster.cuh. */
#include "cuda/cuda_test.h"
#include "cuda/hopper_kernels.h"
#include "test.h"
#include <signal.h>

enum { M = 64, N = 128, N_K = 4, K = N_K * 64 };

/* 0: the numbers are right */
static int run(enum hopper_bug bug)
{
    float    *a = op_random(M * K, 2, 1.0f), *b = op_random(N * K, 3, 1.0f), *out;
    uint16_t *da, *db;
    ct_round(a, M * K, DT_BF16);
    ct_round(b, N * K, DT_BF16);
    assert_int_equal(cudaMalloc((void **)&da, M * K * 2), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&db, N * K * 2 + 16), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&out, M * N * 4), cudaSuccess);
    for (int i = 0; i < M * K; i++) da[i] = f32_to_bf16(a[i]);
    for (int i = 0; i < N * K; i++) {
        int row = i / K, k = i % K, at = row * 128 + k % 64 * 2;
        db[k / 64 * N * 64 + (at ^ (at >> 3 & 0x70)) / 2] = f32_to_bf16(b[i]);
    }
    hopper_gemm_bug(bug, out, da, db, N_K);
    int wrong = cudaPeekAtLastError() != cudaSuccess || ct_product_is_wrong(out, a, b, M, N, K);
    free(a);
    free(b);
    cudaFree(da);
    cudaFree(db);
    cudaFree(out);
    return wrong;
}
static int run_cluster(enum hopper_bug bug)
{
    enum { BLOCKS = 3, PIECES = 7, WORDS = BLOCKS * HOPPER_SHARE / 4, IN = PIECES * WORDS };
    uint32_t *in, *out;
    int       wrong;
    assert_int_equal(cudaMalloc((void **)&in, IN * sizeof *in), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&out, BLOCKS * IN * sizeof *out), cudaSuccess);
    for (uint32_t i = 0; i < IN; i++) in[i] = 1000 * i + 7;
    hopper_cluster_bug(bug, out, in, BLOCKS, PIECES);
    wrong = cudaPeekAtLastError() != cudaSuccess;
    for (uint32_t i = 0; i < BLOCKS * IN; i++) wrong |= out[i] != 3 * in[i % IN] + i / IN;
    cudaFree(in);
    cudaFree(out);
    return wrong;
}
static int run_either(enum hopper_bug bug) { return bug < HOP_NOT_SHOWN ? run(bug) : run_cluster(bug); }

static void what_is_right_is_right_in_every_schedule(void **state)
{
    (void)state;
    for (CT_SCHEDULES(i)) {
        if (run(HOP_RIGHT)) fail_msg("%s", ct_schedule_name(i));
        if (run_cluster(HOP_RIGHT)) fail_msg("cluster, %s", ct_schedule_name(i));
    }
    assert_int_equal(emu_bytes_held(), 0);
}

static int  said[2];
static void child(void *arg)
{
    for (int sig = 1; sig < 32; sig++) signal(sig, SIG_DFL); /* cmocka's handlers would go on with the next test */
    dup2(said[1], 2);
    _exit(run_either(*(const enum hopper_bug *)arg) ? 42 : 0);
}

/* How many schedules find each mistake at least, and how many of them by these words; NULL: by wrong numbers. */
static const struct row {
    enum hopper_bug bug;
    const char     *words;
    int             found, named;
} rows[] = {
    { HOP_NO_WAIT, NULL, 9, 0 },
    { HOP_PARITY, NULL, EMU_SCHEDULES, 0 },
    { HOP_REUSE, NULL, 11, 0 },
    { HOP_RELEASE, NULL, 5, 0 },
    { HOP_BYTES_MORE, "never completes: 0 of 1 arrivals and 16 bytes are missing", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_BYTES_LESS, "ends in a later phase of its mbarrier than it began", EMU_SCHEDULES, 3 },
    { HOP_COUNT_MORE, "never completes: 1 of 2 arrivals and 0 bytes are missing", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_COUNT_LESS, "ends in the middle of an mbarrier's phase", EMU_SCHEDULES, 8 },
    { HOP_NO_INIT_FENCE, "no fence_async() by the thread that set its mbarrier up", 4, 4 },
    { HOP_ALIGN, "address not 16-byte aligned", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_NO_PROXY, "an operand was written without a fence_async()", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_OPERAND_WRITE, "or while it is read", 5, 5 },
    { HOP_NO_FENCE, "wgmma without a wgmma_fence()", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_EARLY_READ, NULL, EMU_SCHEDULES, 0 },
    { HOP_WAIT_LEFT, "wgmma_wait names accumulators that are still under way", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_ACC_WRITE, "accumulators were written while a product was under way", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_NO_COMMIT, "accumulators that are still under way", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_DIVERGE, "warps of a warp group have given different products", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_SWIZZLE, NULL, EMU_SCHEDULES, 0 },
    { HOP_STRIDE, NULL, EMU_SCHEDULES, 0 },
    { HOP_UNALIGNED, NULL, EMU_SCHEDULES, 0 },
    { HOP_PART_COUNT, "threads give a barrier different counts", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_NOT_SHOWN, "no mbar_show() by the thread that set it up", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_NOT_MET, "an mbarrier is used that was not set up", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_ONLY_OWN, "never completes: 0 of 1 arrivals and 512 bytes are missing", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_RELEASE_OWN, "ends in a later phase of its mbarrier than it began", 12, 3 },
    { HOP_CLUSTER_COUNT, "never completes: ", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_NO_SUCH_RANK, "there is no such block in the cluster", EMU_SCHEDULES, EMU_SCHEDULES },
    { HOP_NO_LAST_MEETING, "with no cluster_sync() between", EMU_SCHEDULES, EMU_SCHEDULES },
};
static void each_mistake_is_caught_and_named(void **state)
{
    (void)state;
    bool missed = false;
    assert_int_equal(sizeof rows / sizeof *rows, HOP_BUGS - 1);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        enum hopper_bug bug = rows[r].bug;
        int             n = 0, named = 0;
        for (uint32_t i = 0; ct_schedule(i) < EMU_SCHEDULES; i++) {
            char text[1024];
            assert_int_equal(pipe(said), 0);
            n += test_exit_of(child, &bug) != 0;
            close(said[1]);
            ssize_t got = read(said[0], text, sizeof text - 1);
            close(said[0]);
            text[got > 0 ? got : 0] = 0;
            named += rows[r].words && strstr(text, rows[r].words);
        }
        printf("           mistake %d: caught by %d of %d schedules, by name in %d\n", (int)bug, n, EMU_SCHEDULES,
               named);
        missed |= n < rows[r].found || named < rows[r].named;
    }
    assert_false(missed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_right_is_right_in_every_schedule),
        cmocka_unit_test(each_mistake_is_caught_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
