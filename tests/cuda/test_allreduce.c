/* Ranks are threads of this test, each with a device of its own (two "GPUs" may be one). What they exchange is compared
 * with sums in rank order, bit by bit, under every schedule of the emulator, eagerly and in a replayed graph.
 * Over 500 lines: one protocol among ranks, tried on every schedule; the tests share the threads that are the ranks. */
#include "cuda_test.h"
#include "base/log.h"
#include "kernels/cuda/comm.h"
#include "kernels/cuda/nccl_api.h"
#include "test.h"
#include <pthread.h>
#include <time.h>
#ifdef CUDA_EMU
#include "emu/nccl.h"
#endif

enum { RANKS_MAX = 8, ARENA = 96 << 20 };

struct team;
struct one {
    struct team       *team;
    uint32_t           rank;
    struct device     *d;
    enum status        st;
    pthread_t          thread;
    pthread_barrier_t *start;
};
struct team {
    uint32_t          n;
    struct dev_group *group;
    struct dev_cfg    cfg; /* what is not the rank's own */
    struct one        one[RANKS_MAX];
    void (*work)(struct one *o);
    const void     *arg;
    char            wrong[300]; /* what a rank found; "" when all is right */
    pthread_mutex_t lock;
};

static void wrong(struct one *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(struct one *o, const char *fmt, ...)
{
    va_list ap;
    char    text[250];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&o->team->lock);
    if (!*o->team->wrong)
        snprintf(o->team->wrong, sizeof o->team->wrong, "rank %u of %u: %s", o->rank, o->team->n, text);
    pthread_mutex_unlock(&o->team->lock);
}

static void *rank_main(void *arg)
{
    struct one    *o = arg;
    struct dev_cfg cfg = o->team->cfg;
    cfg.kind = DEV_CUDA;
    cfg.pdl = true;
    cfg.arena_bytes = ARENA;
    cfg.rank = o->rank;
    cfg.n_rank = o->team->n;
    cfg.group = o->team->group;
    cfg.ordinal = -1;
    o->st = dev_open(&cfg, &o->d);
    if (o->st) {
        if (o->team->group) dev_group_abort(o->team->group);
        return NULL;
    }
    if (o->team->work) o->team->work(o);
    return NULL;
}

/* Every rank opens its device, does the work, and closes. The status of the first that failed to open. */
static enum status run_team(uint32_t n, const struct dev_cfg *cfg, void (*work)(struct one *o), const void *arg)
{
    struct team t = { .n = n, .work = work, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER };
    enum status st = ST_OK;
    if (cfg) t.cfg = *cfg;
    if (n > 1) assert_int_equal(dev_group_create(n, &t.group), ST_OK);
    for (uint32_t i = 0; i < n; i++) {
        t.one[i] = (struct one){ .team = &t, .rank = i };
        assert_int_equal(pthread_create(&t.one[i].thread, NULL, rank_main, &t.one[i]), 0);
    }
    for (uint32_t i = 0; i < n; i++) pthread_join(t.one[i].thread, NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (t.one[i].st && !st) st = t.one[i].st;
        if (t.one[i].d) dev_close(t.one[i].d);
    }
    if (t.group) dev_group_free(t.group);
    if (*t.wrong) fail_msg("%s", t.wrong);
    return st;
}

/* Numbers of rank r, call k: of very different sizes, so that the order of a sum shows. */
static float number(uint32_t r, uint32_t k, size_t i, enum dtype act)
{
    struct rng_block b = rng_philox(3, r * 1000 + k, i);
    return op_rounded((rng_unit(b.x[0]) - 0.5f) * (float)(1u << b.x[1] % 9), act);
}

static void *put(struct one *o, size_t bytes, size_t shift, char **base_out)
{
    void *p = NULL;
    if ((o->team->cfg.reduced_bytes ? o->d->ops->alloc_reduced : o->d->ops->alloc)(o->d, bytes + 64, &p))
        wrong(o, "no memory");
    *base_out = p;
    return (char *)p + shift;
}

static uint16_t to16(float x, enum dtype t) { return t == DT_F16 ? f32_to_f16(x) : f32_to_bf16(x); }

static float sum_at(uint32_t n_rank, uint32_t k, size_t i, enum dtype act)
{
    float s = number(0, k, i, act);
    for (uint32_t r = 1; r < n_rank; r++) s += number(r, k, i, act);
    return op_rounded(s, act);
}

/* The last bytes come by a kernel: who is behind it may begin before they are there. */
static void send(struct one *o, char *x, const void *from, size_t bytes)
{
    size_t late = bytes < CT_LATE_MAX ? bytes : CT_LATE_MAX;
    o->d->ops->to_device(o->d, x, from, bytes - late);
    ct_put_late(o->d, x + bytes - late, (const char *)from + bytes - late, (uint32_t)late);
}

/* ---- sums */

struct sums {
    const size_t *n;
    uint32_t      n_size;
    size_t        shift; /* bytes that the message begins off its alignment */
    bool          exact; /* else within a rounding */
    uint32_t      repeat;
};

static void check_sum(struct one *o, const void *x, size_t n, uint32_t k, bool exact)
{
    uint16_t *got = malloc(n * 2 + 2);
    o->d->ops->to_host(o->d, got, x, n * 2);
    if (o->d->ops->sync(o->d)) wrong(o, "sync");
    for (size_t i = 0; i < n; i++) {
        float    want = sum_at(o->team->n, k, i, o->d->act);
        float    have = o->d->act == DT_F16 ? f16_to_f32(got[i]) : bf16_to_f32(got[i]);
        uint16_t bits = to16(want, o->d->act);
        if (exact ? bits != got[i] && !(want == 0 && have == 0)
                  : !(fabsf(have - want) <= 0.02f * fabsf(want) + 0.05f)) {
            wrong(o, "call %u: element %zu of %zu is %g, should be %g", k, i, n, (double)have, (double)want);
            break;
        }
    }
    free(got);
}

static void sum_work(struct one *o)
{
    const struct sums *s = o->team->arg;
    struct device     *d = o->d;
    size_t             most = 0;
    for (uint32_t j = 0; j < s->n_size; j++)
        if (s->n[j] > most) most = s->n[j];
    char     *base, *x = put(o, most * 2, s->shift, &base);
    uint16_t *h = malloc(most * 2 + 2);
    for (uint32_t rep = 0, k = 0; rep < (s->repeat ? s->repeat : 1); rep++)
        for (uint32_t j = 0; j < s->n_size; j++, k++) {
            size_t        n = s->n[j];
            unsigned char guard[64], after[64];
            for (size_t i = 0; i < n; i++) h[i] = to16(number(o->rank, k, i, d->act), d->act);
            memset(guard, 0xa5, sizeof guard);
            d->ops->to_device(d, base, guard, s->shift);
            d->ops->to_device(d, x + n * 2, guard, 64 - s->shift);
            send(o, x, h, n * 2);
            d->ops->allreduce(d, x, n);
            check_sum(o, x, n, k, s->exact);
            d->ops->to_host(d, after, x + n * 2, 64 - s->shift);
            if (memcmp(after, guard, 64 - s->shift)) wrong(o, "bytes behind the message were written");
            d->ops->to_host(d, after, base, s->shift);
            if (memcmp(after, guard, s->shift)) wrong(o, "bytes before the message were written");
        }
    free(h);
}

static void sums_are_of_rank_order_and_the_same_everywhere(void **state)
{
    (void)state;
    static const size_t   n[] = { 1, 7, 8, 64, 513, 4096 + 3, 16384, 70000 };
    static const uint32_t ranks[] = { 2, 3, 4, 5, 8 };
    for (size_t i = 0; i < ARRAY_N(ranks); i++)
        for (int half = 0; half < 2; half++) {
            struct sums    s = { n, ranks[i] > 5 ? 7 : 8, 0, true, 2 };
            struct dev_cfg cfg = { .act = half ? DT_F16 : DT_BF16 };
            assert_int_equal(run_team(ranks[i], &cfg, sum_work, &s), ST_OK);
        }
}

static void sums_of_odd_addresses_too(void **state)
{
    (void)state;
    static const size_t n[] = { 3, 8, 1000, 4100 };
    for (CT_SCHEDULES_FEW(i))
        for (size_t shift = 0; shift <= 6; shift += 2) {
            struct sums    s = { n, 4, shift, true, 1 };
            struct dev_cfg cfg = { .act = shift % 4 ? DT_F16 : DT_BF16 };
            assert_int_equal(run_team(2, &cfg, sum_work, &s), ST_OK);
        }
}

static void a_sum_larger_than_all_slots_goes_in_turns(void **state)
{
    (void)state;
    static const size_t n[] = { (size_t)COMM_BLOCKS * COMM_TILE / 2 * 2 + 4099 }; /* three tiles for some blocks */
    struct sums         s = { n, 1, 0, true, 2 };
    ct_schedule(0);
    assert_int_equal(run_team(2, NULL, sum_work, &s), ST_OK);
}

static void the_order_of_messages_of_many_sizes_is_kept(void **state)
{
    (void)state;
    static const size_t n[] = { 40, 9000, 1, 300, 20000, 2, 5000 };
    struct sums         s = { n, 7, 0, true, 12 };
    ct_schedule(0);
    assert_int_equal(run_team(3, NULL, sum_work, &s), ST_OK);
}

/* ---- graphs */

static void replay_work(struct one *o)
{
    enum { N = 3000, RUNS = 9 };
    struct cuda_dev *c = cuda_of(o->d);
    char            *base, *x = put(o, N * 2, 0, &base), *y = put(o, N * 2, 0, &base);
    uint16_t        *h = malloc(N * 2);
    cudaGraph_t      g;
    cudaGraphExec_t  run;
    cuda_bind(c);
    bool ok = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    o->d->ops->allreduce(o->d, x, N);
    o->d->ops->allreduce(o->d, y, N / 3);
    ok = ok && cudaStreamEndCapture(c->stream, &g) == cudaSuccess && cudaGraphInstantiate(&run, g, 0) == cudaSuccess;
    if (!ok) wrong(o, "capture");
    for (uint32_t k = 0; ok && k < RUNS; k++) {
        for (size_t i = 0; i < N; i++) h[i] = to16(number(o->rank, k, i, o->d->act), o->d->act);
        o->d->ops->to_device(o->d, x, h, N * 2);
        o->d->ops->to_device(o->d, y, h, N * 2);
        if (k % 3 == 2) { /* between replays the same work enqueued directly */
            o->d->ops->allreduce(o->d, x, N);
            o->d->ops->allreduce(o->d, y, N / 3);
        } else if (cudaGraphLaunch(run, c->stream) != cudaSuccess) {
            wrong(o, "launch");
        }
        bool exact = !c->comm || !*(const bool *)o->team->arg;
        check_sum(o, x, N, k, exact);
        check_sum(o, y, N / 3, k, exact);
    }
    if (ok) {
        cudaGraphExecDestroy(run);
        cudaGraphDestroy(g);
    }
    free(h);
}

static void a_replayed_graph_needs_nothing_from_the_host(void **state)
{
    (void)state;
    bool nccl = false;
    for (CT_SCHEDULES_FEW(i))
        for (uint32_t n = 2; n <= 4; n += 2) assert_int_equal(run_team(n, NULL, replay_work, &nccl), ST_OK);
}

/* ---- copies and columns */

static void broadcast_work(struct one *o)
{
    static const size_t bytes[] = { 4, 36, 1, 1000, 70001, 17 };
    char               *base, *x = put(o, 70001, *(const size_t *)o->team->arg, &base);
    unsigned char      *h = malloc(70001);
    for (uint32_t k = 0; k < 18; k++) {
        size_t n = bytes[k % 6];
        for (size_t i = 0; i < n; i++) h[i] = (unsigned char)(i * 7 + k + o->rank * 50);
        send(o, x, h, n);
        o->d->ops->broadcast(o->d, x, n);
        o->d->ops->to_host(o->d, h, x, n);
        for (size_t i = 0; i < n; i++)
            if (h[i] != (unsigned char)(i * 7 + k)) {
                wrong(o, "broadcast %u: byte %zu of %zu", k, i, n);
                break;
            }
    }
    free(h);
}

static void rank_0_s_bytes_come_to_all(void **state)
{
    (void)state;
    static const size_t shift[] = { 0, 4, 1 };
    for (CT_SCHEDULES_FEW(i))
        for (int s = 0; s < 3; s++) assert_int_equal(run_team(2 + (uint32_t)s, NULL, broadcast_work, &shift[s]), ST_OK);
}

static void gather_work(struct one *o)
{
    static const uint32_t shape[][2] = { { 1, 8 }, { 3, 5 }, { 7, 130 }, { 64, 36 }, { 5, 4001 }, { 33, 1024 } };
    uint32_t              n_rank = o->team->n, n_shape = *(const uint32_t *)o->team->arg;
    for (uint32_t k = 0; k < n_shape; k++) {
        uint32_t m = shape[k][0], n = shape[k][1];
        size_t   local = (size_t)m * n, all = local * n_rank;
        char    *base, *x = put(o, local * 4, 0, &base), *out = put(o, all * 4, 0, &base);
        float   *h = malloc(all * 4);
        for (size_t i = 0; i < local; i++) h[i] = number(o->rank, k, i, DT_F32);
        ct_fill_ff(o->d, out, all * 4);
        send(o, x, h, local * 4);
        o->d->ops->allgather(o->d, (float *)(void *)out, (float *)(void *)x, m, n);
        o->d->ops->to_host(o->d, h, out, all * 4);
        for (size_t i = 0; i < all; i++) {
            size_t row = i / (n * n_rank), r = i / n % n_rank, col = i % n;
            if (h[i] != number((uint32_t)r, k, row * n + col, DT_F32)) {
                wrong(o, "allgather of [%u, %u]: element %zu", m, n, i);
                break;
            }
        }
        free(h);
    }
}

static void columns_of_all_ranks_stand_side_by_side(void **state)
{
    (void)state;
    for (CT_SCHEDULES_FEW(i)) {
        uint32_t n_shape = i == 0 ? 6 : 4;
        for (uint32_t n = 2; n <= 4; n++) assert_int_equal(run_team(n, NULL, gather_work, &n_shape), ST_OK);
    }
}

/* ---- a rank that fails */

static void lonely_work(struct one *o)
{
    char *base, *x = put(o, 4096, 0, &base);
    if (o->rank == 1) { /* never comes */
        struct timespec t = { .tv_nsec = 50000000 };
        nanosleep(&t, NULL);
        dev_group_abort(o->team->group);
    } else {
        o->d->ops->allreduce(o->d, x, 2048);
    }
    if (o->d->ops->sync(o->d) != ST_DEVICE && o->rank != 1) wrong(o, "the sum came without rank 1");
    o->d->ops->allreduce(o->d, x, 2048); /* returns, for what it is worth */
    if (o->rank != 1 && o->d->ops->sync(o->d) != ST_DEVICE) wrong(o, "not lost for good");
}

static void an_abort_ends_the_wait(void **state)
{
    (void)state;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(run_team(3, NULL, lonely_work, NULL), ST_OK);
#ifdef CUDA_EMU
    struct dev_cfg nccl = { .comm = DEV_COMM_NCCL };
    emu_set_devices(3);
    assert_int_equal(run_team(3, &nccl, lonely_work, NULL), ST_OK);
    emu_reset();
#endif
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec < 5);
}

/* ---- NCCL */

static void one_rank_through_nccl_changes_nothing(void **state)
{
    (void)state;
    static const size_t n[] = { 1, 1000, 9000 };
    struct sums         s = { n, 3, 0, true, 2 };
    struct dev_cfg      cfg = { .comm = DEV_COMM_NCCL };
    char                why[300];
    if (!nccl_api_get(why, sizeof why)) test_skip("no NCCL: %s", why);
    assert_int_equal(run_team(1, &cfg, sum_work, &s), ST_OK);
    size_t shift = 0;
    assert_int_equal(run_team(1, &cfg, broadcast_work, &shift), ST_OK);
    uint32_t n_shape = 6;
    assert_int_equal(run_team(1, &cfg, gather_work, &n_shape), ST_OK);
}

static void ranks_that_share_a_gpu_cannot_have_nccl(void **state)
{
    (void)state;
    struct dev_cfg  cfg = { .comm = DEV_COMM_NCCL };
    struct dev_info info[2];
    char            why[256];
    if (dev_list(info, 2, why, sizeof why) > 1) test_skip("with two GPUs they share none");
    assert_int_not_equal(run_team(2, &cfg, sum_work, NULL), ST_OK); /* each says so, or that another did */
}

#ifdef CUDA_EMU
static void nccl_carries_the_sums_that_the_option_assigns_to_it(void **state)
{
    (void)state;
    static const size_t n[] = { 5, 4097, 300000 };
    bool                yes = true;
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        struct sums    s = { n, 3, 0, false, 1 };
        struct dev_cfg cfg = { .comm = DEV_COMM_NCCL };
        size_t         shift = 0;
        uint32_t       n_shape = 6;
        emu_set_devices((int)ranks);
        assert_int_equal(run_team(ranks, &cfg, sum_work, &s), ST_OK);
        assert_int_equal(run_team(ranks, &cfg, broadcast_work, &shift), ST_OK);
        assert_int_equal(run_team(ranks, &cfg, gather_work, &n_shape), ST_OK);
        assert_int_equal(run_team(ranks, &cfg, replay_work, &yes), ST_OK);
        s.exact = cfg.deterministic = true; /* gathered, and added in rank order */
        for (int half = 0; half < 2; half++) {
            cfg.act = half ? DT_F16 : DT_BF16;
            assert_int_equal(run_team(ranks, &cfg, sum_work, &s), ST_OK);
        }
        emu_reset();
    }
}

static void large_sums_go_to_nccl_and_small_ones_do_not(void **state)
{
    (void)state;
    static const size_t small[] = { 1000, 40000 }, large[] = { (1 << 20) + 8 }; /* 2 MB at two ranks */
    struct sums         s = { small, 2, 0, true, 1 }, l = { large, 1, 0, false, 1 };
    emu_set_devices(2);
    assert_int_equal(run_team(2, NULL, sum_work, &s), ST_OK);
    assert_int_equal(run_team(2, NULL, sum_work, &l), ST_OK);
    emu_reset();
}

/* ---- windows */

static void sums_in_a_window_are_right_eagerly_and_replayed(void **state)
{
    (void)state;
    static const size_t n[] = { 5, 4097, 300000 };
    bool                yes = true;
    for (uint32_t ranks = 1; ranks <= 4; ranks += ranks == 1 ? 2 : 1) {
        struct sums    s = { n, 3, 0, false, 1 };
        struct dev_cfg cfg = { .comm = DEV_COMM_NCCL, .symmetric = DEV_SYMMETRIC_ON, .reduced_bytes = 8 << 20 };
        uint32_t       n_shape = 6;
        emu_set_devices((int)ranks);
        emu_nccl_forget();
        assert_int_equal(run_team(ranks, &cfg, sum_work, &s), ST_OK);
        assert_int_equal(run_team(ranks, &cfg, replay_work, &yes), ST_OK);
        assert_int_equal(run_team(ranks, &cfg, gather_work, &n_shape), ST_OK);
        struct emu_nccl_counts got = emu_nccl_counts();
        assert_int_equal(got.reduce_in, ranks * (3 + 2 * 9));
        assert_true(got.gather_in > 0);
        assert_int_equal(got.reduce_out | got.gather_out | got.misuse | got.windows | got.memories | got.communicators,
                         0);
        s.exact = cfg.deterministic = true; /* gathered in the window, added in rank order by us */
        emu_nccl_forget();
        assert_int_equal(run_team(ranks, &cfg, sum_work, &s), ST_OK);
        got = emu_nccl_counts();
        assert_true(got.gather_in > 0);
        assert_int_equal(got.reduce_in | got.reduce_out | got.gather_out | got.misuse, 0);
        emu_reset();
    }
}

/* Between two ranks some versions may hang in gathers of registered buffers: there those alone go as before. */
static void a_gather_that_may_hang_goes_around_the_window(void **state)
{
    (void)state;
    static const size_t   n[] = { 5, 4097 };
    struct sums           s = { n, 2, 0, false, 1 };
    struct dev_cfg        cfg = { .comm = DEV_COMM_NCCL, .reduced_bytes = 8 << 20 };
    uint32_t              n_shape = 6;
    static const uint32_t in[][3] = {
        { 22809, 2, 0 }, { 23101, 2, 0 }, { 23102, 2, 1 }, { 22809, 3, 1 }, { 22703, 2, 1 }
    };
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        emu_nccl_be((int)in[i][0], true);
        emu_set_devices((int)in[i][1]);
        emu_nccl_forget();
        assert_int_equal(run_team(in[i][1], &cfg, sum_work, &s), ST_OK);
        assert_int_equal(run_team(in[i][1], &cfg, gather_work, &n_shape), ST_OK);
        struct emu_nccl_counts got = emu_nccl_counts();
        assert_true(got.reduce_in > 0 && (in[i][2] ? got.gather_in : got.gather_out) > 0);
        assert_int_equal(got.reduce_out | got.misuse | (in[i][2] ? got.gather_out : got.gather_in), 0);
        emu_nccl_be(0, true);
        emu_reset();
    }
}

static void our_kernels_and_nccl_share_the_window(void **state)
{
    (void)state;
    static const size_t both[] = { 40000, (1 << 20) + 8, 1000 };
    struct sums         s = { both, 3, 0, false, 1 };
    struct dev_cfg      cfg = { .reduced_bytes = 8 << 20 };
    emu_set_devices(2);
    emu_nccl_forget();
    assert_int_equal(run_team(2, &cfg, sum_work, &s), ST_OK);
    assert_int_equal(emu_nccl_counts().reduce_in, 2);
    assert_int_equal(emu_nccl_counts().reduce_out, 0);
    emu_reset();
}

/* How many sums NCCL did of three that our kernels would carry; they are right in any case. */
static uint64_t sums_of_nccl(uint32_t ranks, const struct dev_cfg *cfg)
{
    static const size_t n[] = { 5, 4097, 40000 };
    struct sums         s = { n, 3, 0, false, 1 };
    emu_nccl_forget();
    assert_int_equal(run_team(ranks, cfg, sum_work, &s), ST_OK);
    struct emu_nccl_counts got = emu_nccl_counts();
    return got.reduce_in + got.reduce_out;
}

/* The driver says that GPUs reach each other, and what they write does not arrive, or not as it was sent. */
static void writes_that_do_not_arrive_are_found_before_anybody_relies_on_them(void **state)
{
    (void)state;
    static const enum emu_peer how[] = { EMU_PEER_LOST, EMU_PEER_ALTERED };
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        struct dev_cfg cfg = { .symmetric = DEV_SYMMETRIC_OFF }, own = { .comm = DEV_COMM_OWN };
        emu_set_devices((int)ranks);
        assert_int_equal(sums_of_nccl(ranks, &cfg), 0);
        for (size_t i = 0; i < ARRAY_N(how); i++) {
            emu_set_peer(how[i], true);
            assert_int_equal(sums_of_nccl(ranks, &cfg), ranks * 3);
            assert_int_equal(sums_of_nccl(ranks, &own), ranks * 3); /* asked for or not */
        }
        emu_reset();
    }
}

/* Without NVLink our kernels carry small sums of two ranks, and of more only where that is asked for. */
static void over_pcie_more_than_two_ranks_use_nccl(void **state)
{
    (void)state;
    static const size_t large[] = { 100000 };
    struct dev_cfg      cfg = { .symmetric = DEV_SYMMETRIC_OFF }, own = { .comm = DEV_COMM_OWN };
    struct sums         s = { large, 1, 0, false, 1 };
    emu_set_devices(3);
    emu_set_peer(EMU_PEER_RIGHT, false);
    assert_int_equal(sums_of_nccl(2, &cfg), 0);
    emu_nccl_forget();
    assert_int_equal(run_team(2, &cfg, sum_work, &s), ST_OK); /* 200 KB: over NVLink it would be ours */
    assert_int_equal(emu_nccl_counts().reduce_in + emu_nccl_counts().reduce_out, 2);
    assert_int_equal(sums_of_nccl(3, &cfg), 9);
    assert_int_equal(sums_of_nccl(3, &own), 0);
    emu_reset();
}

/* Rank 1 is off by a row: the emulated library must find that, or nothing above proves anything. */
static void lopsided_work(struct one *o)
{
    char *base, *x = put(o, 65536, 0, &base);
    o->d->ops->allreduce(o->d, x + o->rank * 512, 1024);
    if (o->d->ops->sync(o->d) != ST_DEVICE) wrong(o, "a sum over different offsets went through");
}
static void half_in_work(struct one *o)
{
    char *base, *x = put(o, 65536, 0, &base);
    void *y = NULL;
    if (o->d->ops->alloc(o->d, 65536, &y)) wrong(o, "no memory");
    o->d->ops->allreduce(o->d, o->rank ? x : (char *)y, 1024);
    if (o->d->ops->sync(o->d) != ST_DEVICE) wrong(o, "a sum between a window and other memory went through");
}
static void beyond_work(struct one *o)
{
    char *base, *x = put(o, 4 << 20, 0, &base);
    o->d->ops->allreduce(o->d, x + (2 << 20), (size_t)16 << 20);
    if (o->d->ops->sync(o->d) != ST_DEVICE) wrong(o, "a sum beyond the window went through");
}
static void calls_that_nccl_forbids_are_found(void **state)
{
    (void)state;
    void (*work[])(struct one *) = { lopsided_work, half_in_work, beyond_work };
    struct dev_cfg cfg = { .comm = DEV_COMM_NCCL, .reduced_bytes = 8 << 20 };
    for (size_t i = 0; i < 3; i++) {
        emu_set_devices(2);
        emu_nccl_forget();
        assert_int_equal(run_team(2, &cfg, work[i], NULL), ST_OK);
        assert_int_equal(emu_nccl_counts().misuse, 2);
        emu_reset();
    }
}

static int until_done(const struct nccl_api *api, nccl_comm c, int r)
{
    while (r == NCCL_IN_PROGRESS && api->CommGetAsyncError(c, &r) == NCCL_OK) {}
    return r;
}

static void a_window_that_is_gone_is_not_used(void **state)
{
    (void)state;
    char                   why[100];
    const struct nccl_api *api = nccl_api_get(why, sizeof why);
    struct nccl_config     config = NCCL_CONFIG;
    struct nccl_id         id;
    nccl_comm              c = NULL;
    nccl_window            w = NULL;
    void                  *p = NULL;
    cudaStream_t           s;
    emu_nccl_forget();
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(api->GetUniqueId(&id), NCCL_OK);
    assert_int_equal(api->CommInitRankConfig(&c, 1, id, 0, &config), NCCL_IN_PROGRESS);
    assert_int_equal(until_done(api, c, NCCL_IN_PROGRESS), NCCL_OK);
    assert_int_equal(api->MemAlloc(&p, 100000), NCCL_OK);
    assert_int_equal(until_done(api, c, api->CommWindowRegister(c, p, 100000, &w, NCCL_WINDOW_SYMMETRIC)), NCCL_OK);
    assert_non_null(w);
    assert_int_equal(api->AllReduce(p, p, 100, NCCL_BF16, NCCL_SUM, c, s), NCCL_OK);
    assert_int_not_equal(api->MemFree(p), NCCL_OK); /* under its window */
    assert_int_equal(api->CommWindowDeregister(c, w), NCCL_OK);
    assert_int_not_equal(api->AllReduce(p, p, 100, NCCL_BF16, NCCL_SUM, c, s), NCCL_OK);
    assert_int_equal(emu_nccl_counts().misuse, 2);
    assert_int_equal(emu_nccl_counts().reduce_in, 1);
    assert_int_equal(api->MemFree(p), NCCL_OK);
    assert_int_equal(api->CommAbort(c), NCCL_OK);
    assert_int_equal(cudaStreamDestroy(s), cudaSuccess);
    assert_int_equal(emu_nccl_counts().memories | emu_nccl_counts().windows | emu_nccl_counts().communicators, 0);
    emu_nccl_forget();
}
#endif

static void graphs_are_off_for_the_nccl_versions_in_which_they_hang(void **state)
{
    (void)state;
    assert_true(nccl_graphs_hang(22809));
    assert_true(nccl_graphs_hang(23003));
    assert_false(nccl_graphs_hang(23004));
    assert_false(nccl_graphs_hang(22705));
}

int main(void)
{
    log_level_max = LOG_LEVEL_WARN; /* hundreds of devices are opened */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_of_rank_order_and_the_same_everywhere),
        cmocka_unit_test(sums_of_odd_addresses_too),
        cmocka_unit_test(a_sum_larger_than_all_slots_goes_in_turns),
        cmocka_unit_test(the_order_of_messages_of_many_sizes_is_kept),
        cmocka_unit_test(a_replayed_graph_needs_nothing_from_the_host),
        cmocka_unit_test(rank_0_s_bytes_come_to_all),
        cmocka_unit_test(columns_of_all_ranks_stand_side_by_side),
        cmocka_unit_test(an_abort_ends_the_wait),
        cmocka_unit_test(one_rank_through_nccl_changes_nothing),
        cmocka_unit_test(ranks_that_share_a_gpu_cannot_have_nccl),
#ifdef CUDA_EMU
        cmocka_unit_test(nccl_carries_the_sums_that_the_option_assigns_to_it),
        cmocka_unit_test(large_sums_go_to_nccl_and_small_ones_do_not),
        cmocka_unit_test(sums_in_a_window_are_right_eagerly_and_replayed),
        cmocka_unit_test(a_gather_that_may_hang_goes_around_the_window),
        cmocka_unit_test(our_kernels_and_nccl_share_the_window),
        cmocka_unit_test(writes_that_do_not_arrive_are_found_before_anybody_relies_on_them),
        cmocka_unit_test(over_pcie_more_than_two_ranks_use_nccl),
        cmocka_unit_test(calls_that_nccl_forbids_are_found),
        cmocka_unit_test(a_window_that_is_gone_is_not_used),
#endif
        cmocka_unit_test(graphs_are_off_for_the_nccl_versions_in_which_they_hang),
    };
    return ct_run(tests);
}
