/* A folder that cannot be used keeps nobody from serving, and is used as soon as it can be. */
#include "store_world.h"
#include "kvcache/folder/store_impl.h"

/* Opens while something is in the way, which undo removes; then blocks are kept and found again. */
static void comes_back(struct store_world *w, const char *words, void (*undo)(struct store_world *w))
{
    if (world_open(w)) fail_msg("%s", w->err);
    world_degraded(w, words);
    assert_int_equal(world_get(w, 1), ST_NOT_FOUND);
    assert_int_equal(world_put(w, 1), ST_AGAIN);
    undo(w);
    world_degraded(w, NULL);
    for (uint32_t n = 0; n < 20; n++) assert_int_equal(world_put_patient(w, n), ST_OK);
    for (uint32_t n = 0; n < 20; n++) assert_int_equal(world_get(w, n), ST_OK);
    kv_store_close(w->s);
    if (world_open(w)) fail_msg("%s", w->err);
    world_ready(w, false);
    for (uint32_t n = 0; n < 20; n++) assert_int_equal(world_get(w, n), ST_OK);
    world_free(w);
}

static void path_in(const struct store_world *w, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", w->dir, name);
}

static void remove_lock(struct store_world *w)
{
    char path[128];
    path_in(w, "LOCK", path);
    assert_int_equal(rmdir(path), 0);
}
static void F31_a_lock_that_is_a_folder(void **state)
{
    (void)state;
    struct store_world w;
    char               path[128];
    world_make(&w);
    path_in(&w, "LOCK", path);
    assert_int_equal(mkdir(path, 0700), 0);
    comes_back(&w, "LOCK cannot be opened: Is a directory", remove_lock);
}

static void make_parent(struct store_world *w)
{
    char path[64];
    snprintf(path, sizeof path, "%s", w->dir);
    *strrchr(path, '/') = 0;
    assert_int_equal(mkdir(path, 0700), 0);
}
static void F31_a_folder_whose_file_system_comes_later(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    assert_int_equal(rmdir(w.dir), 0);
    char words[200];
    snprintf(words, sizeof words, "the folder cannot be made: %s is not there: mount it, or make it", w.dir);
    memcpy(w.dir + strlen(w.dir), "/kv", sizeof "/kv");
    comes_back(&w, words, make_parent);
}

static void remove_file(struct store_world *w) { assert_int_equal(unlink(w->dir), 0); }
static void F31_a_file_where_the_folder_should_be(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    assert_int_equal(rmdir(w.dir), 0);
    int fd = open(w.dir, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    comes_back(&w, "cannot be opened: Not a directory", remove_file);
}

static void make_private(struct store_world *w) { assert_int_equal(chmod(w->dir, 0700), 0); }
static void F31_a_folder_that_others_may_write_to(void **state)
{
    (void)state;
    static const mode_t open_to[] = { 0777, 01777, 0770, 0702 };
    for (size_t i = 0; i < ARRAY_N(open_to); i++) {
        struct store_world w;
        world_make(&w);
        assert_int_equal(chmod(w.dir, open_to[i]), 0);
        comes_back(&w, "others may write to the folder", make_private);
    }
    struct store_world w;
    world_make(&w);
    assert_int_equal(chmod(w.dir, 0755), 0); /* who may look cannot forge */
    if (world_open(&w)) fail_msg("%s", w.err);
    world_degraded(&w, NULL);
    world_free(&w);
}

static void make_ours(struct store_world *w) { assert_int_equal(chown(w->dir, geteuid(), (gid_t)-1), 0); }
static void F31_a_folder_of_another_user(void **state)
{
    (void)state;
    if (geteuid() != 0) test_skip("giving a folder away needs root");
    struct store_world w;
    world_make(&w);
    assert_int_equal(chown(w.dir, 12345, (gid_t)-1), 0);
    comes_back(&w, "belongs to another user (uid 12345", make_ours);
}

/* What is sealed under a key file cannot be forged, whoever may write there. */
static void F31_a_key_makes_any_folder_good_enough(void **state)
{
    (void)state;
    struct store_world w;
    world_make(&w);
    w.sealed = true;
    assert_int_equal(chmod(w.dir, 0777), 0);
    if (world_open(&w)) fail_msg("%s", w.err);
    world_degraded(&w, NULL);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F31_a_lock_that_is_a_folder),
        cmocka_unit_test(F31_a_folder_whose_file_system_comes_later),
        cmocka_unit_test(F31_a_file_where_the_folder_should_be),
        cmocka_unit_test(F31_a_folder_that_others_may_write_to),
        cmocka_unit_test(F31_a_folder_of_another_user),
        cmocka_unit_test(F31_a_key_makes_any_folder_good_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
