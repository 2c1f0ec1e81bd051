/* What a store does with files that it cannot serve from: of nothing that could not be read it concludes that it is not
 * its own. */
#include "store_world.h"
#include "kvcache/folder/store_impl.h"
#include <dirent.h>

enum { N = 40, PER = 15 }; /* PER: blocks of a segment */

/* Segments in quarantine. */
static uint32_t n_quarantine(const struct store_world *w)
{
    char     path[128];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/%s", w->dir, STORE_QUARANTINE);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += !strncmp(e->d_name, "seg-", 4);
    if (d) closedir(d);
    return n;
}

static void fill(struct store_world *w)
{
    world_make(w);
    if (world_open(w)) fail_msg("%s", w->err);
    world_ready(w, true);
    for (uint32_t n = 0; n < N; n++) assert_int_equal(world_put_patient(w, n), ST_OK);
    kv_store_close(w->s);
    w->s = NULL;
}
static void again(struct store_world *w)
{
    if (world_open(w)) fail_msg("%s", w->err);
    world_ready(w, false);
}
static uint32_t hits(struct store_world *w)
{
    uint32_t n_hit = 0;
    for (uint32_t n = 0; n < N; n++) n_hit += world_get(w, n) == ST_OK;
    return n_hit;
}
static struct kv_store_stats stats(const struct store_world *w)
{
    struct kv_store_stats st;
    kv_store_stats(w->s, &st);
    return st;
}
static bool is_there(const struct store_world *w, uint64_t seq)
{
    char path[256];
    world_path(w, seq, path, sizeof path);
    return access(path, F_OK) == 0;
}
static bool all_are_there(const struct store_world *w) { return is_there(w, 1) && is_there(w, 2) && is_there(w, 3); }
static void flip(const struct store_world *w, uint64_t seq, off_t at)
{
    char          path[256];
    unsigned char b;
    world_path(w, seq, path, sizeof path);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &b, 1, at), 1);
    b ^= 8;
    assert_int_equal(pwrite(fd, &b, 1, at), 1);
    close(fd);
}

/* No descriptor is left for the second segment: it stays, and is read when there are some again, in the same run. */
static void F30_a_segment_that_cannot_be_opened_stays_and_is_read_later(void **state)
{
    (void)state;
    struct store_world w;
    struct rlimit      old;
    fill(&w);
    getrlimit(RLIMIT_NOFILE, &old);
    int next = dup(0);
    close(next);
    /* From too few to open the folder at all to enough for all of it: there is a number with which it is listed and not
     * all can be opened. */
    for (int more = 1; more < 20 && !w.s; more++) {
        struct rlimit few = { (rlim_t)(next + more), old.rlim_max };
        setrlimit(RLIMIT_NOFILE, &few);
        enum status st = world_open(&w);
        for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; !st && stats(&w).recovering && clock_us() < end;
             usleep(200))
            world_turn(&w);
        assert_true(all_are_there(&w));
        if (!st && stats(&w).n_unread_segments) break;
        if (!st) kv_store_close(w.s);
        w.s = NULL;
    }
    assert_non_null(w.s);
    setrlimit(RLIMIT_NOFILE, &old);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; stats(&w).n_unread_segments && clock_us() < end;
         usleep(200))
        world_turn(&w);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; kv_store_recovering(w.s) && clock_us() < end; usleep(200))
        world_turn(&w);
    assert_int_equal(stats(&w).n_unread_segments, 0);
    assert_int_equal(hits(&w), N);
    world_free(&w);
}

/* A store that may have few files open keeps what it cannot have open. */
static void F30_more_segments_than_descriptors_stay(void **state)
{
    (void)state;
    struct store_world w;
    struct rlimit      old;
    uint32_t           n_hit = 0;
    world_make(&w);
    w.cap = 20 * SEGMENT;
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < 8 * PER; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    kv_store_close(w.s);
    getrlimit(RLIMIT_NOFILE, &old);
    w.n_store = (uint32_t)(old.rlim_cur / 2); /* so many share the descriptors that each may have the least there is */
    again(&w);
    assert_true(stats(&w).n_unread_segments >= 5 && stats(&w).n_segment <= SEGMENTS_MIN);
    for (uint32_t n = 0; n < PER; n++)
        assert_int_equal(world_put_patient(&w, 1000 + n), ST_OK); /* it goes on writing */
    assert_true(stats(&w).n_segment <= SEGMENTS_MIN);
    kv_store_close(w.s);
    w.n_store = 0;
    again(&w);
    assert_int_equal(stats(&w).n_unread_segments, 0);
    for (uint32_t n = 0; n < 8 * PER; n++) n_hit += world_get(&w, n) == ST_OK;
    assert_true(n_hit >= 7 * PER); /* what was not open is all there, and the one that was gave way at most */
    world_free(&w);
}

static void F30_a_damaged_header_goes_to_quarantine_and_the_rest_is_served(void **state)
{
    (void)state;
    struct store_world w;
    char               path[256];
    fill(&w);
    flip(&w, 2, 40);
    again(&w);
    assert_int_equal(stats(&w).n_damaged_segments, 1);
    assert_int_equal(n_quarantine(&w), 1);
    assert_true(is_there(&w, 1) && !is_there(&w, 2) && is_there(&w, 3));
    assert_int_equal(hits(&w), N - PER);
    assert_true(stats(&w).used_bytes >= 3 * SEGMENT - 3 * 8192); /* its room counts */
    kv_store_close(w.s);
    again(&w);
    assert_int_equal(stats(&w).n_damaged_segments, 1); /* still */
    /* when the folder is full it goes first */
    for (uint32_t n = N; n < N + 9 * PER; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    assert_int_equal(stats(&w).n_damaged_segments, 0);
    assert_int_equal(n_quarantine(&w), 0);
    snprintf(path, sizeof path, "%s/%s", w.dir, STORE_QUARANTINE);
    assert_int_equal(rmdir(path), 0);
    world_free(&w);
}

static void F30_quarantine_is_bounded(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    w.cap = 40 * SEGMENT;
    if (world_open(&w)) fail_msg("%s", w.err);
    world_ready(&w, true);
    for (uint32_t n = 0; n < 10 * PER; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    kv_store_close(w.s);
    for (uint64_t seq = 1; seq <= 9; seq++) flip(&w, seq, 0);
    again(&w);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u;
         stats(&w).n_damaged_segments > QUARANTINE_MAX && clock_us() < end; usleep(200))
        world_turn(&w);
    assert_int_equal(stats(&w).n_damaged_segments, QUARANTINE_MAX);
    assert_int_equal(n_quarantine(&w), QUARANTINE_MAX);
    world_free(&w);
}

/* Of a segment whose footer is damaged every sound block is served; where none is, it is quarantined, not removed. */
static void F30_sound_blocks_of_a_damaged_segment_are_served(void **state)
{
    (void)state;
    struct store_world    w;
    struct store_geometry g = store_geometry(PAYLOAD, SEGMENT);
    fill(&w);
    flip(&w, 1, (off_t)(g.segment_bytes - STORE_PAGE + 20)); /* its footer */
    flip(&w, 1, (off_t)store_record_off(&g, 3) + 100);       /* and a head */
    again(&w);
    assert_int_equal(hits(&w), N - 1);
    assert_true(all_are_there(&w));
    kv_store_close(w.s);
    for (uint32_t i = 0; i < g.n_record; i++)
        if (i != 3) flip(&w, 1, (off_t)store_record_off(&g, i) + 100);
    again(&w);
    assert_int_equal(hits(&w), N - PER);
    assert_int_equal(n_quarantine(&w), 1);
    world_free(&w);
}

/* A folder, a link and a pipe with the names of segments are nobody's business, and in nobody's way. */
static void F30_a_directory_entry_that_is_no_file_is_left_alone(void **state)
{
    (void)state;
    struct store_world w;
    char               path[256];
    struct stat        st;
    fill(&w);
    world_path(&w, 100, path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    world_path(&w, 101, path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    world_path(&w, 102, path, sizeof path);
    assert_int_equal(symlink("/nowhere", path), 0);
    again(&w);
    assert_int_equal(hits(&w), N);
    for (uint32_t n = N; n < N + 3 * PER; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    world_path(&w, 100, path, sizeof path);
    assert_true(lstat(path, &st) == 0 && S_ISDIR(st.st_mode));
    world_path(&w, 101, path, sizeof path);
    assert_true(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    world_path(&w, 102, path, sizeof path);
    assert_true(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F30_a_segment_that_cannot_be_opened_stays_and_is_read_later),
        cmocka_unit_test(F30_more_segments_than_descriptors_stay),
        cmocka_unit_test(F30_a_damaged_header_goes_to_quarantine_and_the_rest_is_served),
        cmocka_unit_test(F30_quarantine_is_bounded),
        cmocka_unit_test(F30_sound_blocks_of_a_damaged_segment_are_served),
        cmocka_unit_test(F30_a_directory_entry_that_is_no_file_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
