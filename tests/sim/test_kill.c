/* A server that dies while it writes: test_kill [cycles [seed]]. Each cycle is a process that opens the folder as the
 * one before left it, reads every block that is there and compares it byte by byte, writes more, and is killed with
 * SIGKILL: in one half of the cycles at a write that was drawn (before it, when a part of it is done, or after it;
 * records, headers, footers, files made and removed), in the other half, through io_uring where the kernel has it, by
 * the clock. Wrong bytes, a start that fails, or the loss of what was written last are failures. */
#include "base/log.h"
#include "base/rng.h"
#include "unit/kvcache/store_world.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { WORKERS = 4, BLOCKS = 160, PUTS = 40, WRONG = 7, NO_START = 8, LOST = 9, STUCK = 10 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CYCLES = 100 };
#else
enum { CYCLES = 1000 };
#endif
static uint64_t n_want = CYCLES, seed = 1;
static struct shared {                  /* of all processes */
    uint32_t         last_put[WORKERS]; /* 1 + the block whose write was completed last */
    _Atomic uint64_t n_hit, n_doubt, n_put, n_point, n_torn, n_file, n_killed, n_end;
} * sh;

/* ---- every call that changes a file goes by here: the linker takes these for the C library's */

static _Atomic int64_t dies_in; /* calls from now; 0: does not */
static uint32_t        dies_how;

static bool now_is_the_time(void)
{
    if (!sh || !atomic_load(&dies_in)) return false;
    atomic_fetch_add(&sh->n_point, 1);
    return atomic_fetch_sub(&dies_in, 1) == 1;
}
static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) pause();
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
    bool last = now_is_the_time();
    if (last && dies_how % 3 == 0) die();
    if (last && dies_how % 3 == 1) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT); /* any byte may be the last */
        n = dies_how / 3 % n;
        atomic_fetch_add(&sh->n_torn, 1);
    }
    ssize_t done = syscall(SYS_pwrite64, fd, p, n, off);
    if (last) die();
    return done;
}
int fallocate(int fd, int mode, off_t off, off_t n)
{
    bool last = now_is_the_time();
    if (last) atomic_fetch_add(&sh->n_file, 1);
    if (last && dies_how % 2) die();
    int done = (int)syscall(SYS_fallocate, fd, mode, off, n);
    if (last) die();
    return done;
}
int unlinkat(int fd, const char *path, int flags)
{
    bool last = now_is_the_time();
    if (last) atomic_fetch_add(&sh->n_file, 1);
    if (last && dies_how % 2) die();
    int done = (int)syscall(SYS_unlinkat, fd, path, flags);
    if (last) die();
    return done;
}

/* ---- one life */

/* sealed: one of the folders is encrypted, all its life. */
static void make(struct store_world *w, const char *dir, bool no_uring, bool sealed)
{
    struct xfer_lane  *lane = lane_nvme_create(8, 1, no_uring);
    struct xfer_cfg    xc = { .jobs_max = 64 };
    struct kv_identity id = { .block_tokens = TOKENS, .block_bytes = PAYLOAD, .layout = KV_LAYOUT };
    *w = (struct store_world){ .cap = 8 * SEGMENT };
    snprintf(w->dir, sizeof w->dir, "%s", dir);
    digest_key_init(&w->dk, NULL, 0, 99);
    xc.key = w->dk;
    struct xfer_seg seg = { .kind = XFER_HOST, .bytes = SLOTS * RECORD };
    if (posix_memalign((void **)&w->slab, 4096, SLOTS * RECORD)) _exit(NO_START);
    memset(w->slab, 0, SLOTS * RECORD);
    seg.base = w->slab;
    if (xfer_create(&xc, &w->x) || (sealed && lane_nvme_seals(lane, RECORD)) || xfer_lane_add(w->x, lane) ||
        xfer_seg_add(w->x, &seg, &w->seg) || xfer_start(w->x))
        _exit(NO_START);
    w->fingerprint = kv_fingerprint(&id);
    w->sealed = sealed;
}

static void life(const char *dir, uint64_t cycle)
{
    uint32_t             *last_put = &sh->last_put[cycle % WORKERS];
    struct rng_block      r = rng_philox(seed, 11, cycle);
    struct store_world    w;
    struct kv_store_stats st;
    bool                  by_clock = cycle / WORKERS % 2;
    make(&w, dir, !by_clock, cycle % WORKERS == 3);
    if (!by_clock) {
        dies_how = r.x[0];
        atomic_store(&dies_in, r.x[1] % 4 ? 1 + r.x[2] % (PUTS + 12) : 1 + r.x[2] % 6);
    }
    if (world_open(&w)) _exit(NO_START);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; kv_store_stats(w.s, &st), st.recovering;) {
        if (clock_us() > end) _exit(STUCK);
        usleep(50);
        world_turn(&w);
    }
    for (uint32_t n = 0; n < BLOCKS; n++) {
        enum status got = world_get(&w, n); /* compares; a failure ends the process */
        atomic_fetch_add(&sh->n_hit, got == ST_OK);
        atomic_fetch_add(&sh->n_doubt, got == ST_INVALID);
        if (n + 1 == *last_put && got != ST_OK) _exit(LOST);
    }
    *last_put = 0; /* from here on it may give its place to another */
    for (uint32_t i = 0; i < PUTS; i++) {
        uint32_t n = rng_philox(seed, 12, cycle * PUTS + i).x[0] % BLOCKS;
        for (uint32_t k = 0; k < 10; k++) { /* there already, or there is no file yet */
            if (world_put(&w, n) == ST_OK) {
                *last_put = n + 1;
                atomic_fetch_add(&sh->n_put, 1);
                if (world_get(&w, n) != ST_OK) _exit(LOST);
                break;
            }
            if (world_get(&w, n) == ST_OK) break;
            world_turn(&w);
            usleep(50);
        }
        world_turn(&w);
    }
    kv_store_close(w.s);
    xfer_free(w.x);
    _exit(0);
}

/* Every WORKERS-th cycle, in a folder of its own. */
static void work(uint32_t worker)
{
    char dir[64];
    snprintf(dir, sizeof dir, "%s/spillway-kill-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(dir)) _exit(1);
    for (uint64_t c = worker; c < n_want; c += WORKERS) {
        pid_t pid = fork();
        if (pid < 0) _exit(1);
        if (!pid) life(dir, c);
        if (c / WORKERS % 2) {
            usleep(rng_philox(seed, 13, c).x[0] % 12000);
            kill(pid, SIGKILL);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid) _exit(1);
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        atomic_fetch_add(&sh->n_killed, killed);
        atomic_fetch_add(&sh->n_end, !killed);
        if (killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
        fprintf(stderr, "cycle %llu ended with %d, signal %d; the folder is %s\n", (unsigned long long)c,
                WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, dir);
        _exit(1);
    }
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
    _exit(0);
}

static void no_death_leaves_a_wrong_block(void **state)
{
    (void)state;
    uint64_t t0 = clock_us();
    pid_t    pid[WORKERS];
    int      status, n_bad = 0;
    fflush(NULL);
    for (uint32_t i = 0; i < WORKERS; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (!pid[i]) work(i);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        n_bad += !WIFEXITED(status) || WEXITSTATUS(status);
    }
    assert_int_equal(n_bad, 0);
    uint64_t n_killed = sh->n_killed, n_end = sh->n_end;
    print_message(
        "    %llu cycles in %.1f s: %llu killed, %llu ended; %llu blocks written, %llu read back and compared, %llu doubted; %llu write "
        "points, %llu torn, %llu at making or removing a file; wrong: 0, failed starts: 0\n",
        (unsigned long long)n_want, (double)(clock_us() - t0) / 1e6, (unsigned long long)n_killed,
        (unsigned long long)n_end, (unsigned long long)sh->n_put, (unsigned long long)sh->n_hit,
        (unsigned long long)sh->n_doubt, (unsigned long long)sh->n_point, (unsigned long long)sh->n_torn,
        (unsigned long long)sh->n_file);
    if (n_want >= 500)
        assert_true(n_killed > n_want / 2 && sh->n_hit > 10 * n_want && sh->n_put > n_want && sh->n_torn && sh->n_file);
}

/* A server that starts, prepares files and dies again and again must not fill the folder with them. */
static void starts_that_write_nothing_cost_nothing(void **state)
{
    (void)state;
    enum { N = 40, STARTS = 12 };
    struct store_world w;
    char               dir[64];
    snprintf(dir, sizeof dir, "%s/spillway-kill-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(dir));
    for (uint32_t i = 0; i < STARTS; i++) {
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            make(&w, dir, true, true);
            if (world_open(&w)) _exit(NO_START);
            world_ready(&w, true);
            for (uint32_t n = 0; i == 0 && n < N; n++)
                if (world_put_patient(&w, n)) _exit(LOST);
            if (i == 0) kv_store_close(w.s);
            die();
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    make(&w, dir, true, true);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < N; n++) assert_int_equal(world_get(&w, n), ST_OK);
    world_free(&w);
}

int main(int argc, char **argv)
{
    if (argc > 1) n_want = strtoull(argv[1], NULL, 10);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    log_init(LOG_LEVEL_ERROR, 2, false);
    void *p = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 1;
    sh = p;
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_death_leaves_a_wrong_block),
                                        cmocka_unit_test(starts_that_write_nothing_cost_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
