/* Memory of the host's tier that is given back near the limit, and comes again. */
#include "unit/kvcache/tier_world.h"

static void group_make(char *dir, size_t bytes) /* not on a disk: its files are written ten thousand times */
{
    snprintf(dir, bytes, "%s/spillway-group-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(dir));
}

static void F21_a_storm_while_memory_comes_and_goes_serves_no_wrong_block(void **state)
{
    (void)state;
    char dir[64];
    group_make(dir, sizeof dir);
    group_says(dir, 1 << 20, 0);
    group_dir = dir;
    for (uint64_t seed = 300; seed < 302; seed++) storm(seed, false);
    group_dir = NULL;
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

static uint64_t slab_pages(const struct kv_tiers *t) /* that are there, in bytes */
{
    struct stat st;
    assert_int_equal(fstat(t->host.slab_fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}
static void F21_near_the_limit_the_host_gives_memory_back(void **state)
{
    (void)state;
    struct world          w;
    struct user           u;
    struct kv_tiers_stats st;
    char                  dir[64];
    const uint64_t        mib = 1 << 20;
    group_make(dir, sizeof dir);
    group_says(dir, 500 * mib, 0);
    group_dir = dir;
    open_world(&w, 31, false);
    group_dir = NULL;
    for (uint32_t f = 1; f <= 2; f++) run_alone(&w, f, 60, &u);
    kv_tiers_stats(w.t, &st);
    uint64_t whole = slab_pages(w.t);
    assert_int_equal(whole, HOST_SLOTS * 8192);
    assert_int_equal(st.tier[KV_TIER_HOST].reserved_bytes, whole);
    group_says(dir, 990 * mib, 45 * mib); /* page cache that can go: 94.5 % */
    turn(&w, 300000);
    assert_int_equal(slab_pages(w.t), whole);
    group_says(dir, 951 * mib, 0); /* 95.1 %: a sixteenth at a look */
    turn(&w, 300000);
    assert_int_equal(slab_pages(w.t), whole - (HOST_SLOTS / 16 + 1) * 8192);
    turn(&w, 100000); /* not looked yet */
    assert_int_equal(slab_pages(w.t), whole - (HOST_SLOTS / 16 + 1) * 8192);
    group_says(dir, 950 * mib + 10 * 8192, 0); /* little too much: as much as that, two looks */
    for (int i = 0; i < 3; i++) turn(&w, 300000);
    assert_true(w.t->host.n_away >= 6);
    for (uint32_t f = 1; f <= 2; f++) { /* what is left serves, and nothing that is gone */
        kv_evict_all(w.kv);
        run_alone(&w, f, 60, &u);
    }
    group_says(dir, 985 * mib, 0); /* 98.5 %: all of it, but two */
    turn(&w, 300000);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(w.t->host.n_away, HOST_SLOTS - 2);
    assert_int_equal(slab_pages(w.t), 2 * 8192);
    assert_int_equal(st.tier[KV_TIER_HOST].reserved_bytes, 2 * 8192);
    kv_evict_all(w.kv);
    run_alone(&w, 1, 60, &u);
    group_says(dir, 900 * mib, 0); /* 90 %: as it is */
    for (int i = 0; i < 100; i++) turn(&w, 300000);
    assert_int_equal(w.t->host.n_away, HOST_SLOTS - 2);
    group_says(dir, 500 * mib, 0);
    for (int i = 0; i < 39; i++) turn(&w, 300000);
    assert_int_equal(w.t->host.n_away, HOST_SLOTS - 2); /* room must last */
    for (int i = 0; i < 100; i++) turn(&w, 300000);
    assert_int_equal(w.t->host.n_away, 0);
    run_alone(&w, 1, 60, &u);
    kv_evict_all(w.kv);
    run_alone(&w, 1, 60, &u);
    assert_int_equal(u.n_hit, 56);
    close_world(&w, false);
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F21_near_the_limit_the_host_gives_memory_back),
        cmocka_unit_test(F21_a_storm_while_memory_comes_and_goes_serves_no_wrong_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
