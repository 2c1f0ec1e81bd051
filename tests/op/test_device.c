/* memory, copies, groups, and the team below them */
#include "op_test.h"
#include "kernels/cpu/team.h"
#include <pthread.h>
#include <stdatomic.h>

static void an_arena_is_never_exceeded(void **state)
{
    (void)state;
    for (int k = DEV_REF; k <= DEV_CPU; k++) {
        struct device *d = op_open((enum dev_kind)k, NULL, 2);
        size_t         room = d->ops->free_bytes(d);
        void          *p, *q;
        assert_true(room <= OP_ARENA);
        assert_int_equal(d->ops->alloc(d, room + 1, &p), ST_NOMEM);
        assert_int_equal(d->ops->alloc(d, SIZE_MAX, &p), ST_NOMEM);
        assert_int_equal(d->ops->alloc(d, 1, &p), ST_OK);
        assert_int_equal(d->ops->alloc(d, d->ops->free_bytes(d), &q), ST_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal((uintptr_t)q % 64, 0);
        assert_int_equal(d->ops->free_bytes(d), 0);
        assert_int_equal(d->ops->alloc(d, 1, &p), ST_NOMEM);
        memset(q, 1, room - 256); /* what p was rounded up to */
        struct dev_weight w;
        assert_int_equal(d->ops->weight_alloc(d, DT_BF16, 16, 16, &w), ST_NOMEM);
        assert_int_equal(d->ops->weight_alloc(d, DT_F8E4M3, 16, 16, &w), ST_CONFIG);
        dev_close(d);
    }
    struct dev_cfg cfg = { .kind = DEV_CPU, .arena_bytes = 1000, .n_rank = 1 };
    struct device *d;
    assert_int_equal(dev_open(&cfg, &d), ST_NOMEM);
    cfg.arena_bytes = (size_t)1 << 60;
    assert_int_equal(dev_open(&cfg, &d), ST_NOMEM);
}

static void an_impossible_device_configuration_is_refused(void **state)
{
    (void)state;
    struct device *d;
    struct dev_cfg cfg = { .kind = DEV_CPU, .arena_bytes = OP_ARENA, .n_rank = 2 };
    assert_int_equal(dev_open(&cfg, &d), ST_CONFIG); /* no group */
    cfg.n_rank = 1;
    cfg.simd = "mmx";
    assert_int_equal(dev_open(&cfg, &d), ST_CONFIG);
    cfg.simd = NULL;
    cfg.n_thread = 1000000;
    assert_int_equal(dev_open(&cfg, &d), ST_CONFIG);
    cfg.n_thread = 0;
    cfg.kind = DEV_AUTO;
    assert_int_equal(dev_open(&cfg, &d), ST_OK);
    dev_close(d);
}

static void blocks_and_rows_are_copied_whole(void **state)
{
    (void)state;
    struct device *d = op_open(DEV_CPU, NULL, 1);
    struct dev_kv  kv = { .dtype = DT_BF16, .n_block = 8, .block_bytes = 2048 };
    assert_int_equal(d->ops->alloc(d, kv.block_bytes * kv.n_block, &kv.base), ST_OK);
    for (uint32_t i = 0; i < kv.n_block; i++) memset((char *)kv.base + i * kv.block_bytes, (int)i + 1, kv.block_bytes);
    uint32_t src[] = { 2, 5, 1 }, dst[] = { 3, 7, 1 };
    d->ops->block_copy(d, &kv, src, dst, 3);
    static const char want[] = { 1, 2, 3, 3, 5, 6, 7, 6 };
    for (uint32_t i = 0; i < kv.n_block; i++)
        for (uint32_t j = 0; j < kv.block_bytes; j++)
            assert_int_equal(((char *)kv.base)[i * kv.block_bytes + j], want[i]);
    float    x[6] = { 1, 2, 3, 4, 5, 6 }, y[8];
    uint32_t row[4] = { 2, 0, 0, 1 };
    d->ops->gather(d, y, x, row, 4, 2);
    static const float want_rows[8] = { 5, 6, 1, 2, 1, 2, 3, 4 };
    assert_memory_equal(y, want_rows, sizeof y);
    d->ops->to_device(d, kv.base, x, sizeof x);
    d->ops->to_host(d, y, kv.base, sizeof x);
    assert_memory_equal(y, x, sizeof x);
    dev_close(d);
}

/* Devices whose memory is the process's own: done when the call returns. On a GPU: tests/cuda/test_copy.c. */
static void copies_beside_the_steps_take_runs_of_pieces(void **state)
{
    (void)state;
    enum { PIECE = 100, DEV = 130, HOST = 250, N = 7 };
    for (int k = DEV_REF; k <= DEV_CPU; k++) {
        struct device *d = op_open((enum dev_kind)k, NULL, 1);
        unsigned char  host[N * HOST], back[N * HOST], *pool;
        assert_int_equal(d->ops->alloc(d, N * DEV, (void **)&pool), ST_OK);
        memset(pool, 0xee, N * DEV);
        memset(back, 0xdd, sizeof back);
        for (size_t i = 0; i < sizeof host; i++) host[i] = (unsigned char)(i * 31 + i / 256);
        assert_int_equal(dev_copy_open(d), ST_OK);
        assert_true(dev_pin(d, host, sizeof host));
        struct dev_run up[] = { { pool, host, PIECE, DEV, HOST, N - 1 },
                                { pool + (N - 1) * DEV, host + (N - 1) * HOST, PIECE, PIECE, PIECE, 1 } };
        struct dev_run down = { pool, back, PIECE, DEV, HOST, N };
        dev_copy_begin(d, DEV_UP, up, 2);
        assert_int_equal(dev_copy_done(d, DEV_UP), ST_OK);
        dev_copy_begin(d, DEV_DOWN, &down, 1);
        assert_int_equal(dev_copy_done(d, DEV_DOWN), ST_OK);
        for (size_t i = 0; i < N * DEV; i++)
            assert_int_equal(pool[i], i % DEV < PIECE ? host[i / DEV * HOST + i % DEV] : 0xee);
        for (size_t i = 0; i < N * HOST; i++) assert_int_equal(back[i], i % HOST < PIECE ? host[i] : 0xdd);
        dev_unpin(d, host);
        dev_close(d);
    }
}

enum { RANKS = 3, ROUNDS = 200, LEN = 1001 };

struct rank {
    struct dev_group *group;
    uint32_t          rank, stop;
    enum status       st;
    float             sum[LEN], all[RANKS * 4];
};

static void *rank_run(void *arg)
{
    struct rank   *r = arg;
    struct device *d;
    struct dev_cfg cfg = { .kind = r->rank % 2 ? DEV_REF : DEV_CPU,
                           .arena_bytes = 4 << 20,
                           .n_thread = 1,
                           .rank = r->rank,
                           .n_rank = RANKS,
                           .group = r->group };
    r->st = dev_open(&cfg, &d);
    if (r->st) return NULL;
    for (uint32_t i = 0; i < ROUNDS && i < r->stop; i++) {
        for (uint32_t j = 0; j < LEN; j++) r->sum[j] = op_normal(r->rank, i * LEN + j) * (j % 2 ? 1e6f : 1);
        d->ops->allreduce(d, r->sum, LEN);
        float mine[4] = { (float)r->rank, (float)i, 2, 3 };
        d->ops->allgather(d, r->all, mine, 2, 2);
    }
    if (r->stop < ROUNDS) dev_group_abort(r->group);
    r->st = d->ops->sync(d);
    dev_close(d);
    return NULL;
}

static void ranks_sum_in_rank_order(void **state)
{
    (void)state;
    static struct rank r[RANKS];
    pthread_t          t[RANKS];
    struct dev_group  *g;
    assert_int_equal(dev_group_create(RANKS, &g), ST_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        r[i] = (struct rank){ .group = g, .rank = i, .stop = ROUNDS };
        pthread_create(&t[i], NULL, rank_run, &r[i]);
    }
    for (uint32_t i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(r[i].st, ST_OK);
        for (uint32_t j = 0; j < LEN; j++) {
            float want = 0;
            for (uint32_t k = 0; k < RANKS; k++) {
                float x = op_normal(k, (ROUNDS - 1) * LEN + j) * (j % 2 ? 1e6f : 1);
                want = k ? want + x : x;
            }
            op_assert_same(&r[i].sum[j], &want, 1, "sum");
        }
        static const float last = ROUNDS - 1;
        const float        want[] = { 0, last, 1, last, 2, last, 2, 3, 2, 3, 2, 3 };
        op_assert_same(r[i].all, want, RANKS * 4, "gathered");
    }
    dev_group_free(g);
}

static void a_rank_that_gives_up_lets_the_others_go(void **state)
{
    (void)state;
    static struct rank r[RANKS];
    pthread_t          t[RANKS];
    struct dev_group  *g;
    assert_int_equal(dev_group_create(RANKS, &g), ST_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        r[i] = (struct rank){ .group = g, .rank = i, .stop = i == 1 ? 50 : ROUNDS };
        pthread_create(&t[i], NULL, rank_run, &r[i]);
    }
    for (uint32_t i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
    assert_int_equal(r[0].st, ST_DEVICE);
    assert_int_equal(r[2].st, ST_DEVICE);
    dev_group_free(g);
}

struct tally {
    _Atomic uint32_t hit[70000];
    _Atomic uint32_t thread[4];
};
static void tally(void *arg, uint32_t piece, uint32_t thread)
{
    struct tally *t = arg;
    t->hit[piece]++;
    t->thread[thread]++;
}

static void a_team_does_every_piece_once(void **state)
{
    (void)state;
    static struct tally t;
    for (uint32_t n_thread = 1; n_thread <= 4; n_thread++) {
        struct team *team;
        assert_int_equal(team_create(n_thread, &team), ST_OK);
        for (uint32_t round = 0; round < 3000; round++) {
            uint32_t n =
                round == 1000 ? 70000 : round % 200; /* cost: shared one by one, some at a time, or not at all */
            memset(&t, 0, sizeof t);
            team_run(team, n, (const uint64_t[]){ 1000000, 12000, 0 }[round % 3], tally, &t);
            uint32_t sum = 0;
            for (uint32_t i = 0; i < n; i++) assert_int_equal(t.hit[i], 1);
            for (uint32_t i = 0; i < 4; i++) sum += t.thread[i];
            assert_int_equal(sum, n);
            if (round % 500 == 0) nanosleep(&(struct timespec){ 0, 2000000 }, NULL); /* let it fall asleep */
        }
        team_free(team);
    }
}

enum {
    HELD = 64,
    HELD_MOST = HELD / 2 / 4
}; /* pieces; those that may be taken together with the first: a fourth of a share */
static void wait_in_the_first(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    _Atomic uint32_t *n_done = arg;
    while (piece == 0 && *n_done < HELD - HELD_MOST) nanosleep(&(struct timespec){ 0, 10000 }, NULL);
    ++*n_done;
}

/* Who never comes back from a piece has the rest of its share done by others: without that this test would not end. */
static void a_thread_that_is_held_up_is_helped(void **state)
{
    (void)state;
    struct team *team;
    assert_int_equal(team_create(2, &team), ST_OK);
    for (int round = 0; round < 20; round++) {
        _Atomic uint32_t n_done = 0;
        team_run(team, HELD, round % 2 ? 12000 : 100000000, wait_in_the_first, &n_done);
        assert_int_equal(n_done, HELD);
    }
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_is_never_exceeded),
        cmocka_unit_test(an_impossible_device_configuration_is_refused),
        cmocka_unit_test(blocks_and_rows_are_copied_whole),
        cmocka_unit_test(copies_beside_the_steps_take_runs_of_pieces),
        cmocka_unit_test(ranks_sum_in_rank_order),
        cmocka_unit_test(a_rank_that_gives_up_lets_the_others_go),
        cmocka_unit_test(a_team_does_every_piece_once),
        cmocka_unit_test(a_thread_that_is_held_up_is_helped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
