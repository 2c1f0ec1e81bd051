#include "store_world.h"
#include <errno.h>
#include <dirent.h>

static void blocks_come_back_as_they_went_and_the_cap_holds(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    uint32_t n_hit = 0, n_put = (uint32_t)test_size(300, 200); /* more than what fits */
    for (uint32_t n = 0; n < n_put; n++) {
        assert_int_equal(world_put_patient(&w, n), ST_OK);
        assert_int_equal(world_put(&w, n), ST_AGAIN); /* it is there */
        assert_int_equal(world_get(&w, n), ST_OK);
        world_turn(&w);
        if (n > 20) n_hit += world_get(&w, n - 20) == ST_OK;
        assert_int_equal(world_get(&w, 100000 + n), ST_NOT_FOUND);
    }
    assert_true(n_hit > n_put * 2 / 3);
    struct kv_store_stats st;
    kv_store_stats(w.s, &st);
    assert_true(st.n_evicted > n_put / 3 && st.n_record > 60);
    assert_int_equal(st.n_evicted + st.n_record, n_put);
    /* on the disk too */
    uint64_t    on_disk = 0;
    struct stat f;
    char        path[256];
    for (uint64_t seq = 1; seq < 100; seq++) {
        world_path(&w, seq, path, sizeof path);
        if (!stat(path, &f)) on_disk += (uint64_t)f.st_size;
    }
    assert_true(on_disk > 0 && on_disk <= w.cap); /* the thread may be making one */
    world_free(&w);
}

static void used_segments_stay_longer(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < 200; n++) {
        assert_int_equal(world_put_patient(&w, n), ST_OK);
        for (int k = 0; k < 3; k++) world_get(&w, 1);
    }
    assert_int_equal(world_get(&w, 1), ST_OK); /* of the oldest segment, and yet here */
    assert_int_equal(world_get(&w, 30), ST_NOT_FOUND);
    world_free(&w);
}

static uint32_t count_hits(struct store_world *w, uint32_t n_max, uint32_t *n_doubt)
{
    uint32_t n_hit = 0;
    *n_doubt = 0;
    for (uint32_t n = 0; n < n_max; n++) {
        enum status st = world_get(w, n);
        n_hit += st == ST_OK;
        *n_doubt += st != ST_OK && st != ST_NOT_FOUND;
    }
    return n_hit;
}

static void a_restart_finds_the_blocks_of_the_start_before(void **state)
{
    (void)state;
    struct store_world w;
    uint32_t           n_doubt;
    world_make(&w);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < 40; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    struct kv_store *first = w.s;
    assert_int_equal(world_open(&w), ST_OK); /* one server a folder: the second waits */
    world_degraded(&w, "another server uses it");
    assert_int_equal(world_get(&w, 3), ST_NOT_FOUND);
    assert_int_equal(world_put(&w, 99), ST_AGAIN);
    struct kv_store *second = w.s;
    w.s = first;
    kv_store_close(w.s);
    w.s = second;
    world_degraded(&w, NULL);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 40);
    kv_store_close(w.s);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, false);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 40);
    assert_int_equal(n_doubt, 0);
    kv_store_close(w.s);

    /* files that are none of ours are left alone */
    char path[128];
    snprintf(path, sizeof path, "%s/notes.txt", w.dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, false);
    assert_int_equal(access(path, F_OK), 0);
    world_free(&w);
}

/* Ends without a word in the middle of writes: fork so that the child is the server that dies. */
static void after_a_crash_whole_records_are_found(void **state)
{
    (void)state;
    struct store_world w;
    uint32_t           n_doubt;
    char               dir[64] = "/tmp/spillway-store-XXXXXX";
    assert_non_null(mkdtemp(dir));
    pid_t pid = fork(); /* before there are threads */
    if (!pid) {
        struct store_world c;
        world_make(&c);
        rmdir(c.dir);
        memcpy(c.dir, dir, sizeof c.dir);
        if (world_open(&c)) _exit(2);
        world_ready(&c, true);
        for (uint32_t n = 0; n < 33; n++)
            if (world_put_patient(&c, n)) _exit(3);
        kill(getpid(), SIGKILL);
    }
    world_make(&w);
    rmdir(w.dir);
    memcpy(w.dir, dir, sizeof w.dir);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, false);
    assert_int_equal(count_hits(&w, 33, &n_doubt), 33);
    world_free(&w);
}

/* Every file cut at, or one byte changed at, many places: what is served is right, what is not is a miss, and the start
 * never fails. */
static void damage(bool sealed)
{
    struct store_world w;
    uint32_t n_doubt, lost = 0, cuts = 0, n_round = sealed ? (uint32_t)test_size(15, 9) : (uint32_t)test_size(60, 21);
    world_make(&w);
    w.sealed = sealed;
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < 14; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    kv_store_close(w.s);
    char path[256];
    world_path(&w, 1, path, sizeof path);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    struct stat f;
    fstat(fd, &f);
    unsigned char *whole = malloc((size_t)f.st_size);
    assert_int_equal(pread(fd, whole, (size_t)f.st_size, 0), f.st_size);
    close(fd);
    for (uint32_t i = 0; i < n_round; i++) {
        char *slash = strrchr(path, '/');
        *slash = 0;
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST); /* it goes with its last file */
        *slash = '/';
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(pwrite(fd, whole, (size_t)f.st_size, 0), f.st_size);
        uint64_t at = (uint64_t)i * 7919 * 512 * (120 / n_round) % (uint64_t)f.st_size;
        if (i % 3 == 0) {
            assert_int_equal(ftruncate(fd, (off_t)at), 0);
            cuts++;
        } else {
            unsigned char b = whole[at + i] ^ (unsigned char)(1 << i % 8);
            assert_int_equal(pwrite(fd, &b, 1, (off_t)(at + i)), 1);
        }
        close(fd);
        if (world_open(&w)) fail_msg("%s", w.err);
        world_ready(&w, false);
        uint32_t hits = count_hits(&w, 14, &n_doubt);
        lost += 14 - hits;
        assert_true(i % 3 == 0 || at + i < 4096 || hits >= 13); /* one byte costs one block, or a header the segment */
        kv_store_close(w.s);
        w.s = NULL;
    }
    assert_true(lost > n_round / 4 && cuts == n_round / 3);
    free(whole);
    world_free(&w);
}

static void damage_is_a_miss(void **state)
{
    (void)state;
    damage(false);
}
static void a_damaged_sealed_block_is_a_miss(void **state)
{
    (void)state;
    damage(true);
}

static uint32_t n_files(const struct store_world *w)
{
    char     path[256];
    uint32_t n = 0;
    world_path(w, 1, path, sizeof path);
    *strrchr(path, '/') = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += !strncmp(e->d_name, "seg-", 4);
    if (d) closedir(d);
    return n;
}

/* Nothing of a sealed folder says what a block holds, and only its key opens it. */
static void sealed(bool no_uring)
{
    struct store_world w;
    uint32_t           n_doubt, ids[TOKENS];
    world_no_uring = no_uring;
    world_make(&w);
    world_no_uring = false;
    w.sealed = true;
    w.secret[5] = 77;
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < 40; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 40);
    kv_store_close(w.s);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        char path[256];
        world_path(&w, seq, path, sizeof path);
        int            fd = open(path, O_RDONLY);
        unsigned char *file = calloc(1, SEGMENT), body[64];
        assert_true(fd >= 0);
        ssize_t bytes = read(fd, file, SEGMENT);
        close(fd);
        assert_true(bytes > STORE_PAGE + RECORD);
        for (uint32_t n = 0; n < 40; n++) {
            struct kv_key key = block_key(&w, n);
            block_ids(n, ids);
            for (uint32_t i = 0; i < sizeof body; i++) body[i] = block_byte(n, i);
            assert_null(memmem(file, (size_t)bytes, ids, sizeof ids));
            assert_null(memmem(file, (size_t)bytes, &key, sizeof key));
            assert_null(memmem(file, (size_t)bytes, body, sizeof body));
        }
        free(file);
    }
    if (world_open(&w)) fail_msg("%s", w.err); /* the same key: all of it */
    world_ready(&w, false);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 40);
    assert_int_equal(n_doubt, 0);
    kv_store_close(w.s);

    struct kv_store_stats st;
    w.secret[5] ^= 1; /* another key: misses, never garbage; what lies there stays as long as its room is not needed */
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 0);
    assert_int_equal(n_doubt, 0);
    kv_store_stats(w.s, &st);
    assert_int_equal(st.n_locked_segments, 3);
    for (uint32_t n = 0; n < 20; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    kv_store_close(w.s);
    w.secret[5] ^= 1; /* the first key is back */
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, false);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 40);
    assert_int_equal(n_doubt, 0);
    kv_store_close(w.s);

    w.sealed = false; /* no key */
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 0);
    for (uint32_t n = 0; n < 20; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    kv_store_close(w.s);

    w.sealed = w.ephemeral =
        true; /* plain files where sealed ones are wanted; and a key that is not kept keeps no file */
    w.cap = 64 * SEGMENT;
    w.secret[5] = 1;
    uint32_t n_before = n_files(&w);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    assert_int_equal(count_hits(&w, 40, &n_doubt), 0);
    for (uint32_t n = 0; n < 20; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    assert_int_equal(count_hits(&w, 20, &n_doubt), 20);
    kv_store_close(w.s);
    assert_int_equal(n_files(&w), n_before);
    w.s = NULL;
    world_free(&w);
}
static void a_sealed_block_shows_no_plain_byte_and_opens_only_with_its_key(void **state)
{
    (void)state;
    sealed(false);
}
static void the_same_by_threads(void **state)
{
    (void)state;
    sealed(true);
}

static void a_full_disk_pauses_and_resumes(void **state)
{
    (void)state;
    struct store_world w;
    struct rlimit      old, small;
    world_make(&w);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    assert_int_equal(world_put_patient(&w, 1), ST_OK);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 65536; /* what is prepared can be filled up to there, a new file cannot be made */
    setrlimit(RLIMIT_FSIZE, &small);
    uint32_t              n_fail = 0;
    struct kv_store_stats st;
    for (uint32_t n = 2; n < 60; n++) {
        n_fail += world_put(&w, n) != ST_OK;
        world_turn(&w);
        usleep(300);
    }
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u;
         kv_store_stats(w.s, &st), !st.n_pauses && clock_us() < end;) /* the thread's word */
    {
        usleep(300);
        world_turn(&w);
    }
    assert_true(n_fail > 0 && st.n_pauses > 0);
    assert_int_equal(world_get(&w, 1), ST_OK); /* reading goes on */
    setrlimit(RLIMIT_FSIZE, &old);
    for (uint32_t n = 100; n < 130; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    for (uint32_t n = 100; n < 130; n++) assert_int_equal(world_get(&w, n), ST_OK);
    kv_store_stats(w.s, &st);
    assert_false(st.paused);
    world_free(&w);
}

static void a_folder_with_room_for_too_few_segments_is_reported(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    w.cap = SEGMENT;
    assert_int_equal(world_open(&w), ST_CONFIG);
    assert_non_null(strstr(w.err, "too few"));
    w.s = NULL;
    w.cap = 8 * SEGMENT;
    world_free(&w);
}

/* How many of the segments with these numbers have a file. */
static uint32_t count_files(const struct store_world *w, uint64_t n_seq)
{
    uint32_t n = 0;
    for (uint64_t seq = 0; seq < n_seq; seq++) {
        char path[256];
        world_path(w, seq, path, sizeof path);
        n += access(path, F_OK) == 0;
    }
    return n;
}

static void what_is_purged_goes_also_if_nothing_is_written_after_it(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < 40; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    kv_store_close(w.s);
    uint32_t n_seq = 64;
    uint32_t before = count_files(&w, n_seq);
    assert_true(before >= 2);
    while (count_files(&w, n_seq - 1) == before) n_seq--; /* the numbers of those that are there now */
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, false);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; count_files(&w, 64) == before && clock_us() < end;
         usleep(200))
        world_turn(&w); /* until another one stands prepared */
    assert_true(count_files(&w, 64) > before);
    for (int i = 0; i < 10; i++) { /* and is known to be */
        usleep(1000);
        world_turn(&w);
    }
    assert_int_equal(kv_store_purge(w.s), 40);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; count_files(&w, n_seq) && clock_us() < end; usleep(200))
        world_turn(&w);
    assert_int_equal(count_files(&w, n_seq), 0);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_back_as_they_went_and_the_cap_holds),
        cmocka_unit_test(used_segments_stay_longer),
        cmocka_unit_test(a_restart_finds_the_blocks_of_the_start_before),
        cmocka_unit_test(after_a_crash_whole_records_are_found),
        cmocka_unit_test(damage_is_a_miss),
        cmocka_unit_test(a_damaged_sealed_block_is_a_miss),
        cmocka_unit_test(a_sealed_block_shows_no_plain_byte_and_opens_only_with_its_key),
        cmocka_unit_test(the_same_by_threads),
        cmocka_unit_test(a_full_disk_pauses_and_resumes),
        cmocka_unit_test(what_is_purged_goes_also_if_nothing_is_written_after_it),
        cmocka_unit_test(a_folder_with_room_for_too_few_segments_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
