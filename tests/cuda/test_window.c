/* Whole models whose ranks add through NCCL, with the sums in a symmetric window and without: the same tokens and
 * logits. What the window takes is planned, nothing is taken later, and where one rank cannot have it none has. On a
 * GPU: one rank through NCCL, two where there are two GPUs. */
#include "cuda_test.h"
#include "kernels/cuda/nccl_api.h"
#include "model/golden.h"
#include "test.h"
#ifdef CUDA_EMU
#include "emu/nccl.h"
#endif

enum { PROMPT = 40, TOKENS = 8 };
struct said {
    uint32_t id[TOKENS];
    float   *logits; /* [vocab] of the prompt's last row */
    uint32_t vocab;
};

static void say(struct gold_run *r, const struct gold *g, struct said *out)
{
    static uint32_t ids[PROMPT + TOKENS];
    uint32_t        n = g->n[0] < PROMPT ? g->n[0] : PROMPT;
    struct device  *d = rank_team_device(r->team);
    memcpy(ids, g->prompt[0], n * sizeof *ids);
    out->vocab = g->spec.vocab;
    assert_non_null(out->logits = calloc(out->vocab, sizeof(float)));
    for (uint32_t k = 0; k < TOKENS; k++) {
        ids[n + k] = out->id[k] =
            k ? gold_step(r, ids, n + k - 1, 1, NULL, 0, true) : gold_step(r, ids, 0, n, NULL, 0, true);
        if (!k) d->ops->to_host(d, out->logits, rank_team_logits(r->team), out->vocab * sizeof(float));
    }
}

static void run(const struct gold *g, uint32_t n_rank, struct said *out)
{
    struct gold_run r;
    gold_run_open(&r, &g->spec, &g->src, DEV_CUDA, n_rank, DT_BF16, DT_BF16);
    say(&r, g, out);
    gold_run_close(&r);
}

static void same(struct said *a, struct said *b)
{
    assert_memory_equal(a->id, b->id, sizeof a->id);
    assert_memory_equal(a->logits, b->logits, a->vocab * sizeof(float));
    free(b->logits);
}

static void nccl_or_skip(void)
{
    char                   why[300];
    const struct nccl_api *api = nccl_api_get(why, sizeof why);
    if (!api || !nccl_has_windows(api, why, sizeof why)) test_skip("no windows: %s", why);
}

/* What can be asked for with one rank: ON, unless NCCL says that such a communicator has no windows. */
static enum dev_symmetric most_for_one(void)
{
    struct dev_cfg cfg = {
        .kind = DEV_CUDA, .arena_bytes = 64 << 20, .n_rank = 1, .ordinal = -1, .comm = DEV_COMM_NCCL
    };
    struct device *d;
    cfg.symmetric = DEV_SYMMETRIC_ON;
    cfg.reduced_bytes = 1 << 20;
    enum status st = dev_open(&cfg, &d);
    if (st == ST_OK) dev_close(d);
#ifdef CUDA_EMU
    assert_int_equal(st, ST_OK);
#endif
    print_message("    one rank %s\n",
                  st ? "has no window (the line above says why): it goes without" : "has its sums in a window");
    return st ? DEV_SYMMETRIC_AUTO : DEV_SYMMETRIC_ON;
}

static void one_rank_gives_the_same_answer_with_and_without_a_window(void **state)
{
    (void)state;
    struct gold g;
    struct said plain, window;
    nccl_or_skip();
    gold_open(&g, "llama3");
    memset(&gold_cuda, 0, sizeof gold_cuda);
    run(&g, 1, &plain);
    gold_cuda.comm = DEV_COMM_NCCL;
    gold_cuda.symmetric = most_for_one();
    run(&g, 1, &window);
    same(&plain, &window);
    free(plain.logits);
    gold_close(&g);
    memset(&gold_cuda, 0, sizeof gold_cuda);
}

#ifndef CUDA_EMU
/* NCCL adds in other orders with a window than without: within roundings of 16-bit activations, as test_model.c allows
 * them. */
static void two_gpus_in_a_window_say_nearly_the_same(void **state)
{
    (void)state;
    struct dev_info info[2];
    struct gold     g;
    struct said     off, on;
    char            why[256];
    double          worst = 0;
    if (dev_list(info, 2, why, sizeof why) < 2) test_skip("fewer than two GPUs");
    nccl_or_skip();
    gold_open(&g, "llama3");
    gold_cuda.comm = DEV_COMM_NCCL;
    gold_cuda.symmetric = DEV_SYMMETRIC_OFF;
    run(&g, 2, &off);
    gold_cuda.symmetric = DEV_SYMMETRIC_AUTO;
    run(&g, 2, &on);
    for (uint32_t i = 0; i < on.vocab; i++) worst = fmax(worst, fabs((double)on.logits[i] - off.logits[i]) / g.max_abs);
    printf("    two GPUs, window on and off: %.2e of the largest logit\n", worst);
    assert_true(worst < 12 * 0x1p-9);
    free(off.logits);
    free(on.logits);
    gold_cuda.symmetric = DEV_SYMMETRIC_AUTO;
    gold_cuda.deterministic = true;
    gold_cuda.comm = DEV_COMM_NCCL;
    run(&g, 2, &on);
    gold_cuda.symmetric = DEV_SYMMETRIC_OFF;
    run(&g, 2, &off);
    same(&on, &off);
    free(on.logits);
    gold_close(&g);
    memset(&gold_cuda, 0, sizeof gold_cuda);
}
#else
static void nothing_is_held(void)
{
    struct emu_nccl_counts c = emu_nccl_counts();
    assert_int_equal(c.windows | c.memories | c.communicators | c.misuse, 0);
    assert_int_equal(emu_bytes_held(), 0);
}

enum { IN, OUT }; /* where the sums must have been */
static void run_counted(const struct gold *g, struct said *out, int where)
{
    emu_nccl_forget();
    run(g, 2, out);
    struct emu_nccl_counts c = emu_nccl_counts();
    assert_true((where == IN ? c.reduce_in : c.reduce_out) >= 2 * 2 * TOKENS * g->spec.n_layer);
    assert_true((where == IN ? c.gather_in : c.gather_out) > 0);
    assert_int_equal(where == IN ? c.reduce_out | c.gather_out : c.reduce_in | c.gather_in, 0);
    nothing_is_held();
    emu_reset();
    emu_set_devices(2);
}

static void two_ranks_say_the_same_with_and_without(void **state)
{
    (void)state;
    static const char *const names[] = { "llama3", "qwen3", "qwen3-moe" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        struct gold g;
        struct said first, other;
        gold_open(&g, names[i]);
        emu_set_devices(2);
        gold_cuda.comm = DEV_COMM_NCCL;
        gold_cuda.symmetric = DEV_SYMMETRIC_AUTO;
        run_counted(&g, &first, IN);
        gold_cuda.symmetric = DEV_SYMMETRIC_OFF;
        run_counted(&g, &other, OUT);
        same(&first, &other);
        gold_cuda.symmetric = DEV_SYMMETRIC_AUTO;
        for (uint32_t k = 0; k < (i ? 2 : 6); k++) { /* it cannot be had, in every way there is */
            if (k == 0) emu_nccl_be(22605, true);
            if (k == 1)
                emu_fail_after("ncclCommWindowRegister", 0, cudaErrorMemoryAllocation); /* the rank that comes first */
            if (k == 2)
                emu_fail_after("ncclCommWindowRegister", 1, cudaErrorMemoryAllocation); /* the one that comes last */
            if (k == 3) emu_fail_after("ncclMemAlloc", 0, cudaErrorMemoryAllocation);
            if (k == 4) emu_fail_after("ncclMemAlloc", 1, cudaErrorMemoryAllocation);
            if (k == 5) emu_nccl_be(0, false);
            run_counted(&g, &other, OUT);
            same(&first, &other);
            emu_nccl_be(0, true);
        }
        free(first.logits);
        gold_close(&g);
    }
    memset(&gold_cuda, 0, sizeof gold_cuda);
    emu_reset();
}

/* Bits of a deterministic sum are ours: the same through our own kernels, through gathers in a window and through
 * gathers without. */
static void deterministic_sums_are_the_same_bits(void **state)
{
    (void)state;
    struct gold g;
    struct said own, other;
    gold_open(&g, "llama3");
    emu_set_devices(2);
    gold_cuda.deterministic = true;
    emu_nccl_forget();
    run(&g, 2, &own);
    assert_int_equal(emu_nccl_counts().gather_in + emu_nccl_counts().gather_out, 0);
    gold_cuda.comm = DEV_COMM_NCCL;
    for (int k = 0; k < 2; k++) {
        gold_cuda.symmetric = k ? DEV_SYMMETRIC_OFF : DEV_SYMMETRIC_ON;
        emu_nccl_forget();
        run(&g, 2, &other);
        same(&own, &other);
        struct emu_nccl_counts c = emu_nccl_counts();
        assert_int_equal(c.reduce_in | c.reduce_out | (k ? c.gather_in : c.gather_out), 0);
        assert_true((k ? c.gather_out : c.gather_in) > 0);
    }
    nothing_is_held();
    free(own.logits);
    gold_close(&g);
    memset(&gold_cuda, 0, sizeof gold_cuda);
    emu_reset();
}

/* What is planned is what is taken, and no step takes more. */
static void the_plan_counts_it(void **state)
{
    (void)state;
    enum { MIB = 1 << 20, ARENA = 64 * MIB };
    struct dev_cfg cfg = { .kind = DEV_CUDA, .arena_bytes = ARENA, .n_rank = 1, .ordinal = -1, .comm = DEV_COMM_NCCL };
    struct device *plan, *d;
    size_t         free_off = 0;
    void          *p;
    for (int k = 0; k < 4; k++) { /* off; on; refused; of an old version */
        cfg.symmetric = k ? DEV_SYMMETRIC_AUTO : DEV_SYMMETRIC_OFF;
        cfg.reduced_bytes = 3 * MIB + 256;
        cfg.plan_only = true;
        assert_int_equal(dev_open(&cfg, &plan), ST_OK);
        cfg.plan_only = false;
        if (k == 2) emu_fail_after("ncclCommWindowRegister", 0, cudaErrorMemoryAllocation);
        if (k == 3) emu_nccl_be(22605, true);
        assert_int_equal(dev_open(&cfg, &d), ST_OK);
        size_t held = emu_bytes_held(), left = plan->ops->free_bytes(plan), on_gpu, of;
        assert_int_equal(cudaMemGetInfo(&on_gpu, &of), cudaSuccess);
        assert_int_equal(of - on_gpu, ARENA); /* arena and window */
        if (!k) free_off = left;
        assert_true(k ? left + 8 * MIB == free_off + 3 * MIB + 256
                      : left == free_off);          /* 7 MiB and 256 bytes in granules of 2 MiB */
        assert_true(d->ops->free_bytes(d) >= left); /* a plan keeps room for what may not be needed */
        assert_int_equal(d->ops->alloc_reduced(d, 1 * MIB, &p), ST_OK);
        assert_int_equal(d->ops->alloc_reduced(d, 2 * MIB + 200, &p), ST_OK);
        assert_true(d->ops->free_bytes(d) + 3 * MIB + 256 >= left);
        if (k) assert_int_equal(d->ops->alloc_reduced(d, 256, &p), ST_NOMEM); /* never beside the window */
        assert_int_equal(emu_bytes_held(), held);
        dev_close(d);
        dev_close(plan);
        nothing_is_held();
        emu_nccl_be(0, true);
        emu_reset();
    }
}

static void no_step_takes_memory(void **state)
{
    (void)state;
    struct gold     g;
    struct gold_run r;
    struct said     s;
    gold_open(&g, "llama3");
    emu_set_devices(2);
    gold_cuda.comm = DEV_COMM_NCCL;
    gold_cuda.symmetric = DEV_SYMMETRIC_ON;
    gold_run_open(&r, &g.spec, &g.src, DEV_CUDA, 2, DT_BF16, DT_BF16);
    struct emu_nccl_counts before = emu_nccl_counts();
    size_t                 held = emu_bytes_held();
    assert_int_equal(before.windows, 2);
    assert_int_equal(before.memories, 2);
    say(&r, &g, &s);
    free(s.logits);
    say(&r, &g, &s);
    free(s.logits);
    assert_true(emu_bytes_held() <= held); /* pinned buffers of loading are given back */
    assert_int_equal(emu_nccl_counts().bytes, before.bytes);
    gold_run_close(&r);
    nothing_is_held();
    gold_close(&g);
    memset(&gold_cuda, 0, sizeof gold_cuda);
    emu_reset();
}

static void on_means_on(void **state)
{
    (void)state;
    struct gold       g;
    struct rank_team *t;
    uint32_t          n_block;
    char              err[512];
    gold_open(&g, "llama3");
    for (int k = 0; k < 6; k++) {
        enum dev_comm   comm_of[] = { [3] = DEV_COMM_OWN, [5] = DEV_COMM_AUTO };
        struct rank_cfg cfg = { .n_rank = k == 5 ? 1 : 2,
                                .device = DEV_CUDA,
                                .comm = k == 3 || k == 5 ? comm_of[k] : DEV_COMM_NCCL,
                                .symmetric = DEV_SYMMETRIC_ON,
                                .load = { .weight_dtype = DT_BF16,
                                          .batch_rows_max = 64,
                                          .logit_rows_max = 4,
                                          .n_block = 8,
                                          .block_tokens = 16 } };
        emu_set_devices(2);
        if (k == 0) emu_nccl_be(22605, true);
        if (k == 1) emu_nccl_be(0, false);
        if (k == 2) emu_fail_after("ncclCommWindowRegister", 1, cudaErrorMemoryAllocation);
        if (k == 4) {
            cfg.comm = DEV_COMM_AUTO;
            cfg.deterministic = true;
        }
        assert_int_equal(rank_team_create(&g.spec, &g.src, &cfg, &n_block, &t, err, sizeof err), ST_CONFIG);
        emu_nccl_be(0, true);
        nothing_is_held();
        emu_reset();
    }
    gold_close(&g);
}
#endif

int main(void)
{
    char why[200];
#ifdef CUDA_EMU
    log_init(LOG_LEVEL_ERROR, 2, false);
#endif /* else its lines say what was had */
    if (!dev_serves(DEV_CUDA, why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_gives_the_same_answer_with_and_without_a_window),
#ifdef CUDA_EMU
        cmocka_unit_test(two_ranks_say_the_same_with_and_without),
        cmocka_unit_test(deterministic_sums_are_the_same_bits),
        cmocka_unit_test(the_plan_counts_it),
        cmocka_unit_test(no_step_takes_memory),
        cmocka_unit_test(on_means_on),
#else
        cmocka_unit_test(two_gpus_in_a_window_say_nearly_the_same),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
