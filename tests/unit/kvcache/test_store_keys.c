/* Keys of a folder: what is under another one is not believed and not lost, and a key can be changed. */
#include "store_world.h"
#include "kvcache/folder/store_format.h"
#include "kvcache/folder/store_impl.h"
#include <stddef.h>
#include <xxhash.h>

enum { N = 20, PER = 15 }; /* PER: blocks of a segment */
static const char ONE[] = "the first secret of sixteen bytes and more",
                  TWO[] = "the second secret of sixteen bytes and more";

/* A store on dir (NULL: a new folder) that writes under one secret and reads under another as well. */
static void open_with(struct store_world *w, const char *dir, const char *mac, const char *old_mac, bool sealed)
{
    world_mac = mac;
    world_make(w);
    world_mac = NULL;
    if (dir) {
        rmdir(w->dir);
        snprintf(w->dir, sizeof w->dir, "%s", dir);
    }
    w->sealed = sealed;
    if (sealed && mac) memcpy(w->secret, mac, SEAL_SECRET);
    if (old_mac) {
        w->with_old = true;
        assert_int_equal(digest_key_init(&w->old_dk, old_mac, strlen(old_mac), 0), ST_OK);
        memcpy(w->old_secret, old_mac, SEAL_SECRET);
    }
    if (world_open(w)) fail_msg("%s", w->err);
    world_ready(w, true);
}
static void close_one(struct store_world *w)
{
    kv_store_close(w->s);
    xfer_free(w->x);
    free(w->slab);
}
static uint32_t hits(struct store_world *w, uint32_t first, uint32_t n)
{
    uint32_t n_hit = 0;
    for (uint32_t i = first; i < first + n; i++) {
        enum status st = world_get(w, i); /* compares every byte */
        assert_true(st == ST_OK || st == ST_NOT_FOUND);
        n_hit += st == ST_OK;
    }
    return n_hit;
}
static struct kv_store_stats stats(const struct store_world *w)
{
    struct kv_store_stats st;
    kv_store_stats(w->s, &st);
    return st;
}
static void put(struct store_world *w, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) assert_int_equal(world_put_patient(w, i), ST_OK);
}

/* Neither believed nor lost: no MAC where one is wanted, one where none is, another one. */
static void F32_segments_of_another_mac_key_stay_and_are_not_served(void **state)
{
    (void)state;
    static const char *const keys[3] = { NULL, ONE, TWO };
    for (int made = 0; made < 3; made++) {
        struct store_world w;
        char               dir[64];
        open_with(&w, NULL, keys[made], NULL, false);
        memcpy(dir, w.dir, sizeof dir);
        put(&w, 0, N);
        close_one(&w);
        for (int other = 0; other < 3; other++) {
            if (other == made) continue;
            open_with(&w, dir, keys[other], NULL, false);
            assert_int_equal(stats(&w).n_locked_segments, 2);
            assert_int_equal(stats(&w).n_record, 0);
            assert_int_equal(hits(&w, 0, N), 0);
            close_one(&w);
        }
        open_with(&w, dir, keys[made], NULL, false); /* it is back */
        assert_int_equal(hits(&w, 0, N), N);
        world_free(&w);
    }
}

/* Write with the first, read with both: each way, and on until the old key is not needed any more. */
static void rotate(bool sealed)
{
    struct store_world w;
    char               dir[64];
    open_with(&w, NULL, ONE, NULL, sealed);
    memcpy(dir, w.dir, sizeof dir);
    put(&w, 0, N);
    close_one(&w);

    open_with(&w, dir, TWO, ONE, sealed);
    assert_int_equal(stats(&w).n_locked_segments, 0);
    assert_int_equal(hits(&w, 0, N), N);
    put(&w, 100, N);
    assert_int_equal(hits(&w, 100, N), N);
    close_one(&w);

    open_with(&w, dir, ONE, TWO, sealed); /* and back: nothing is lost */
    assert_int_equal(hits(&w, 0, N), N);
    assert_int_equal(hits(&w, 100, N), N);
    put(&w, 200, N);
    close_one(&w);

    open_with(&w, dir, TWO, NULL, sealed); /* the new key alone: what was written under it */
    assert_int_equal(hits(&w, 0, N), 0);
    assert_int_equal(hits(&w, 100, N), N);
    assert_int_equal(hits(&w, 200, N), 0);
    assert_int_equal(stats(&w).n_locked_segments, 4);
    put(&w, 300, 8 * PER); /* the room of the others is taken when it is needed */
    assert_int_equal(stats(&w).n_locked_segments, 0);
    world_free(&w);
}
static void F32_a_mac_key_can_be_changed(void **state)
{
    (void)state;
    rotate(false);
}
static void F32_and_one_of_encryption_with_it(void **state)
{
    (void)state;
    rotate(true);
}

/* Somebody without the key makes a footer that names blocks, with every sum right that needs none. */
static void F32_a_forged_footer_or_header_names_nothing(void **state)
{
    (void)state;
    struct store_world    w;
    struct store_geometry g = store_geometry(PAYLOAD, SEGMENT);
    char                  dir[64], path[256];
    unsigned char        *page = aligned_alloc(4096, STORE_PAGE), *rows = aligned_alloc(4096, STORE_PAGE);
    open_with(&w, NULL, ONE, NULL, false);
    memcpy(dir, w.dir, sizeof dir);
    put(&w, 0, PER);
    close_one(&w);
    world_path(&w, 1, path, sizeof path);
    int   fd = open(path, O_RDWR);
    off_t at = (off_t)(g.segment_bytes - STORE_PAGE), at_rows = (off_t)(g.segment_bytes - store_footer_bytes(&g));
    assert_true(fd >= 0 && store_footer_bytes(&g) == 2 * STORE_PAGE);
    assert_int_equal(pread(fd, page, STORE_PAGE, at), STORE_PAGE);
    assert_int_equal(pread(fd, rows, STORE_PAGE, at_rows), STORE_PAGE);
    struct store_row *row = (struct store_row *)(void *)rows;
    struct kv_key     key = row[0].key;
    row[0].key = row[1].key; /* blocks change places */
    row[1].key = key;
    struct store_trailer *t = (struct store_trailer *)(void *)page;
    struct digest_key     none = { 0 };
    t->rows = digest_of(&none, rows, t->n * sizeof *row);
    t->mac = digest_of(&none, t, offsetof(struct store_trailer, mac));
    t->sum = XXH3_64bits(t, offsetof(struct store_trailer, sum));
    assert_int_equal(pwrite(fd, page, STORE_PAGE, at), STORE_PAGE);
    assert_int_equal(pwrite(fd, rows, STORE_PAGE, at_rows), STORE_PAGE);
    open_with(&w, dir, ONE, NULL, false);
    assert_int_equal(hits(&w, 0, PER), PER); /* by their heads, which are under the key */
    close_one(&w);

    struct store_header *h = (struct store_header *)(void *)page;
    assert_int_equal(pread(fd, page, STORE_PAGE, 0), STORE_PAGE);
    h->random[3] ^= 1;
    h->sum = XXH3_64bits(h, offsetof(struct store_header, sum));
    assert_int_equal(pwrite(fd, page, STORE_PAGE, 0), STORE_PAGE);
    close(fd);
    open_with(&w, dir, ONE, NULL, false);
    assert_int_equal(stats(&w).n_locked_segments, 1);
    assert_int_equal(hits(&w, 0, PER), 0);
    free(page);
    free(rows);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F32_segments_of_another_mac_key_stay_and_are_not_served),
        cmocka_unit_test(F32_a_mac_key_can_be_changed),
        cmocka_unit_test(F32_and_one_of_encryption_with_it),
        cmocka_unit_test(F32_a_forged_footer_or_header_names_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
