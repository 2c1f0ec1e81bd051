#include "base/file.h"
#include "store_world.h"
#include <dirent.h>

/* Segments of one fingerprint that lie in the folder. */
static uint32_t segments_of(const struct store_world *w, const struct kv_key *fingerprint)
{
    char     sub[MODELS_NAME], path[256];
    uint64_t seq;
    uint32_t n = 0;
    models_name(sub, sizeof sub, fingerprint);
    snprintf(path, sizeof path, "%s/%s", w->dir, sub);
    DIR           *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d))) n += store_seq_of(e->d_name, &seq);
    if (d) closedir(d);
    return n;
}

static uint64_t   bytes_of_files;
static inline int add_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    const char *name = path + f->base;
    uint64_t    seq;
    if (flag == FTW_F && store_seq_of(name, &seq)) bytes_of_files += (uint64_t)s->st_size;
    return 0;
}
/* A walk is no snapshot: of a file that goes and one that comes while it lasts both are counted. So the least of
 * several walks. */
static uint64_t bytes_on_disk(const struct store_world *w)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 5 && least > w->cap; i++) {
        bytes_of_files = 0;
        nftw(w->dir, add_one, 8, FTW_PHYS);
        if (bytes_of_files < least) least = bytes_of_files;
    }
    return least;
}

static uint32_t count_hits(struct store_world *w, uint32_t begin, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t i = begin; i < end; i++) n += world_get(w, i) == ST_OK;
    return n;
}

static void open_as(struct store_world *w, struct kv_key fingerprint)
{
    w->fingerprint = fingerprint;
    if (world_open(w)) fail_msg("%s", w->err);
    world_ready(w, false);
}

static void put_all(struct store_world *w, uint32_t begin, uint32_t end)
{
    for (uint32_t n = begin; n < end; n++) {
        assert_int_equal(world_put_patient(w, n), ST_OK);
        assert_true(bytes_on_disk(w) <= w->cap);
    }
}

static struct kv_key other(struct kv_key key, unsigned char by)
{
    key.b[0] ^= by;
    return key;
}

static void F40_another_model_and_the_way_back_cost_no_block(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    struct kv_key a = w.fingerprint, b = other(a, 1);
    open_as(&w, a);
    put_all(&w, 0, 40);
    kv_store_close(w.s);
    open_as(&w, b); /* keys of its own: no block of a */
    assert_int_equal(count_hits(&w, 0, 40), 0);
    put_all(&w, 0, 20);
    kv_store_close(w.s);
    open_as(&w, a);
    assert_int_equal(count_hits(&w, 0, 40), 40);
    kv_store_close(w.s);
    open_as(&w, b);
    assert_int_equal(count_hits(&w, 0, 20), 20);
    world_free(&w);
}

static void F40_a_model_that_stores_nothing_takes_nothing_from_a_full_folder(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    struct kv_key a = w.fingerprint, b = other(a, 1);
    open_as(&w, a);
    put_all(&w, 0, 200);
    uint32_t before = count_hits(&w, 0, 200);
    kv_store_close(w.s);
    uint32_t n_segment = segments_of(&w, &a);
    assert_true(before > 60 && n_segment >= 7);
    open_as(&w, b);
    for (int i = 0; i < 50; i++) {
        world_turn(&w);
        usleep(200);
    }
    kv_store_close(w.s);
    assert_int_equal(segments_of(&w, &a), n_segment);
    assert_int_equal(segments_of(&w, &b), 0);
    open_as(&w, a);
    assert_int_equal(count_hits(&w, 0, 200), before);
    world_free(&w);
}

/* The next segment is prepared by the thread, in its own time. */
static void turn_until_fewer(struct store_world *w, const struct kv_key *model, uint32_t n)
{
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; segments_of(w, model) >= n; usleep(200)) {
        assert_true(clock_us() < end);
        world_turn(w);
    }
}

static void F40_the_model_used_longest_ago_gives_way_first_and_the_budget_is_one(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    struct kv_key a = w.fingerprint, b = other(a, 1), c = other(a, 2), d = other(a, 3);
    for (uint32_t i = 0; i < 3; i++) { /* two whole segments each, and the cap is eight */
        open_as(&w, other(a, (unsigned char)i));
        put_all(&w, 0, 28);
        kv_store_close(w.s);
    }
    assert_int_equal(segments_of(&w, &a) + segments_of(&w, &b) + segments_of(&w, &c), 6);
    open_as(&w, a); /* used again: b is the one that nobody has asked for longest */
    kv_store_close(w.s);
    open_as(&w, d);
    put_all(&w, 0, 28);
    turn_until_fewer(&w, &b, 2); /* two of d, and one or two prepared */
    assert_int_equal(segments_of(&w, &a), 2);
    assert_int_equal(segments_of(&w, &c), 2);
    put_all(&w, 28, 56);
    assert_int_equal(segments_of(&w, &a), 2);
    turn_until_fewer(&w, &c, 2);
    assert_int_equal(segments_of(&w, &b), 0);
    put_all(&w, 56, 300); /* in the end all of it is d's, and d goes round in its own */
    assert_int_equal(segments_of(&w, &a) + segments_of(&w, &b) + segments_of(&w, &c), 0);
    struct kv_store_stats st;
    kv_store_stats(w.s, &st);
    assert_int_equal(st.n_other_removed, 6);
    assert_int_equal(st.other_bytes, 0);
    assert_true(st.n_evicted > 0);
    kv_store_close(w.s);
    open_as(&w, a); /* sub-folders that hold nothing have gone with their last segment or at an end */
    kv_store_close(w.s);
    char sub[MODELS_NAME], path[256];
    models_name(sub, sizeof sub, &b);
    snprintf(path, sizeof path, "%s/%s", w.dir, sub);
    assert_int_equal(access(path, F_OK), -1);
    w.s = NULL;
    world_free(&w);
}

static void F40_a_smaller_cap_holds_for_all_models_before_anything_is_written(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    struct kv_key a = w.fingerprint, b = other(a, 1);
    open_as(&w, a);
    put_all(&w, 0, 50);
    kv_store_close(w.s);
    open_as(&w, b);
    put_all(&w, 0, 14);
    kv_store_close(w.s);
    w.cap = 4 * SEGMENT;
    open_as(&w, b);
    assert_true(bytes_on_disk(&w) <= w.cap);
    assert_int_equal(count_hits(&w, 0, 14), 14);
    world_free(&w);
}

static void put_file(const char *dir, const char *name, const void *data, size_t bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
}

/* What others have put there, under any name, stays; what a store of another version wrote counts, and goes first. */
static void F40_only_segments_that_a_store_made_give_way(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    char           folder[256], path[300], far[64] = "/tmp/spillway-far-XXXXXX";
    unsigned char *old = calloc(1, SEGMENT), *foreign = malloc(SEGMENT);
    memset(foreign, 'x', SEGMENT);
    memcpy(old, "SPWKVSEG\1\0\0\0", 12); /* of a version that had no sub-folders */
    assert_non_null(mkdtemp(far));
    put_file(w.dir, "seg-0000000000000001.kv", old, SEGMENT);
    put_file(w.dir, "seg-0000000000000002.kv", foreign, SEGMENT);
    put_file(w.dir, "notes", foreign, 100);
    put_file(far, "seg-0000000000000003.kv", old, SEGMENT);
    snprintf(folder, sizeof folder, "%s/model-%064d", w.dir, 7);
    assert_int_equal(symlink(far, folder), 0); /* a name of ours that leads away */
    snprintf(folder, sizeof folder, "%s/model-../..", w.dir);
    snprintf(folder, sizeof folder, "%s/model-%063d", w.dir, 7); /* almost a name of ours */
    assert_int_equal(mkdir(folder, 0700), 0);
    put_file(folder, "seg-0000000000000004.kv", old, SEGMENT);
    open_as(&w, w.fingerprint);
    struct kv_store_stats st;
    kv_store_stats(w.s, &st);
    assert_int_equal(st.other_bytes, SEGMENT);
    for (uint32_t n = 0; n < 200; n++) assert_int_equal(world_put_patient(&w, n), ST_OK);
    snprintf(path, sizeof path, "%s/seg-0000000000000001.kv", w.dir);
    assert_int_equal(access(path, F_OK), -1);
    const char *kept[] = { "seg-0000000000000002.kv", "notes" };
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", w.dir, kept[i]);
        assert_int_equal(access(path, F_OK), 0);
    }
    snprintf(path, sizeof path, "%s/seg-0000000000000003.kv", far);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/seg-0000000000000004.kv", folder);
    assert_int_equal(access(path, F_OK), 0);
    free(old);
    free(foreign);
    nftw(far, rm_one, 8, FTW_DEPTH | FTW_PHYS);
    world_free(&w);
}

static void names_of_sub_folders_are_ours_to_the_letter(void **state)
{
    (void)state;
    struct kv_key k = { { 0xab } };
    char          name[MODELS_NAME], bad[MODELS_NAME + 8];
    models_name(name, sizeof name, &k);
    assert_true(models_is_name(name));
    snprintf(bad, sizeof bad, "%s0", name);
    assert_false(models_is_name(bad));
    snprintf(bad, sizeof bad, "%s/..", name);
    assert_false(models_is_name(bad));
    memcpy(bad, name, sizeof name);
    bad[10] = 'A';
    assert_false(models_is_name(bad));
    bad[10] = '/';
    assert_false(models_is_name(bad));
    bad[10] = 0;
    assert_false(models_is_name(bad));
    assert_false(models_is_name("model-"));
    assert_false(models_is_name(".."));
}

/* Whatever lies in USED: the start works, and its own number is the highest. */
static void a_damaged_number_is_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "\n", "x\n", "1", "1\n\n", "-1\n", "18446744073709551615\n", "99999999999999999999\n"
    };
    char dir[64] = "/tmp/spillway-models-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int           root = open(dir, O_RDONLY | O_DIRECTORY), sub, again;
    struct kv_key k = { { 1 } }, k2 = { { 2 } };
    char          name[MODELS_NAME], name2[MODELS_NAME];
    models_name(name, sizeof name, &k);
    models_name(name2, sizeof name2, &k2);
    assert_int_equal(models_open(root, name, &sub), 0);
    assert_int_equal(models_used(sub), 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(file_replace(sub, "USED", bad[i], strlen(bad[i]), 0600), 0);
        assert_int_equal(models_used(sub), 0);
        assert_int_equal(models_open(root, name2, &again), 0);
        assert_int_equal(models_used(again), i + 1);
        close(again);
    }
    assert_int_equal(unlinkat(sub, "USED", 0), 0);
    assert_int_equal(mkdirat(sub, "USED", 0700), 0); /* cannot be written: said so, not ignored */
    assert_int_not_equal(models_open(root, name, &again), 0);
    close(sub);
    close(root);
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* A server that dies at any time leaves a folder that the next can use, whatever its model, and never more than the
 * cap. */
static void F40_kills_between_models_leave_a_folder_within_its_cap(void **state)
{
    (void)state;
    struct store_world w;
    char               dir[64] = "/tmp/spillway-store-XXXXXX";
    const uint32_t     n_life = (uint32_t)test_size(12, 7), last = n_life - 1;
    assert_non_null(mkdtemp(dir));
    for (uint32_t i = 0; i < n_life; i++) {
        pid_t pid = fork(); /* before there are threads */
        if (!pid) {
            world_make(&w);
            rmdir(w.dir);
            memcpy(w.dir, dir, sizeof w.dir);
            w.fingerprint.b[0] ^= (unsigned char)(i % 3);
            if (world_open(&w)) _exit(2);
            for (uint32_t n = 0; n < 7 * i; n++) {
                if (world_put_patient(&w, 1000 * i + n)) _exit(3);
                if (bytes_on_disk(&w) > w.cap) _exit(4);
            }
            kill(getpid(), SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) fail_msg("life %u ended with %d", i, WEXITSTATUS(status));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    world_make(&w);
    rmdir(w.dir);
    memcpy(w.dir, dir, sizeof w.dir);
    assert_true(bytes_on_disk(&w) <= w.cap);
    open_as(&w, other(w.fingerprint, (unsigned char)(last % 3)));
    assert_int_equal(count_hits(&w, 1000 * last, 1000 * last + 7 * last - 7),
                     7 * last - 7); /* of the last one killed, but what its end may have torn */
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F40_another_model_and_the_way_back_cost_no_block),
        cmocka_unit_test(F40_a_model_that_stores_nothing_takes_nothing_from_a_full_folder),
        cmocka_unit_test(F40_the_model_used_longest_ago_gives_way_first_and_the_budget_is_one),
        cmocka_unit_test(F40_a_smaller_cap_holds_for_all_models_before_anything_is_written),
        cmocka_unit_test(F40_only_segments_that_a_store_made_give_way),
        cmocka_unit_test(names_of_sub_folders_are_ours_to_the_letter),
        cmocka_unit_test(a_damaged_number_is_none),
        cmocka_unit_test(F40_kills_between_models_leave_a_folder_within_its_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
