/* Several stores on one folder: what one wrote the others read, what one leaves others take over, and none trusts what
 * it finds. */
#include "unit/kvcache/store_world.h"
#include "kvcache/folder/store_impl.h"
#include "base/log.h"
#include <dirent.h>
#include <sys/mman.h>

enum { SCAN_US = 2000, GRACE_US = 60000000, PER = 15, N = 33 }; /* PER: blocks of a segment */

static void make(struct store_world *w, const char *dir)
{
    world_make(w);
    w->shared = true;
    w->scan_us = SCAN_US;
    w->grace_us = GRACE_US;
    if (!dir) return;
    rmdir(w->dir);
    snprintf(w->dir, sizeof w->dir, "%s", dir);
}
static void open_ready(struct store_world *w)
{
    if (world_open(w)) fail_msg("%s", w->err);
    world_ready(w, true);
}
static void close_one(struct store_world *w) /* the folder is another's, too */
{
    kv_store_close(w->s);
    xfer_free(w->x);
    free(w->slab);
}
static uint32_t hits(struct store_world *w, uint32_t *n_doubt)
{
    uint32_t n_hit = 0;
    *n_doubt = 0;
    for (uint32_t n = 0; n < N; n++) {
        enum status st = world_get(w, n); /* compares every byte */
        n_hit += st == ST_OK;
        *n_doubt += st != ST_OK && st != ST_NOT_FOUND;
    }
    return n_hit;
}
/* Turns until cond holds. st: of the world, for cond. */
#define UNTIL(w, cond)                                                                \
    do {                                                                              \
        uint64_t end_us = clock_us() + PATIENCE_S * 1000000u;                         \
        while (kv_store_stats((w)->s, &st), !(cond)) {                                \
            world_turn(w);                                                            \
            usleep(300);                                                              \
            if (clock_us() > end_us) fail_msg("line %d: never: %s", __LINE__, #cond); \
        }                                                                             \
    } while (0)

/* Folders of servers in it; the first segment's path of the last of them, if there is one. */
static uint32_t folders(const char *dir, char *path, size_t bytes)
{
    uint32_t       n = 0;
    DIR           *d = opendir(dir);
    struct dirent *e;
    *path = 0;
    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, "srv-", 4)) continue;
        n++;
        char sub[400];
        snprintf(sub, sizeof sub, "%s/%s", dir, e->d_name);
        DIR           *f = opendir(sub);
        struct dirent *g;
        while (f && (g = readdir(f)))
            if (!strncmp(g->d_name, "seg-", 4)) snprintf(path, bytes, "%s/%s", sub, g->d_name);
        if (f) closedir(f);
    }
    if (d) closedir(d);
    return n;
}

static void other_servers_read_the_blocks_of_one_and_take_them_over_when_it_leaves(void **state)
{
    (void)state;
    struct store_world    a, b;
    struct kv_store_stats st;
    uint32_t              n_doubt;
    char                  path[700];
    make(&a, NULL);
    make(&b, a.dir);
    open_ready(&a);
    open_ready(&b);
    assert_int_equal(folders(a.dir, path, sizeof path), 2);
    for (uint32_t n = 0; n < N; n++) assert_int_equal(world_put_patient(&a, n), ST_OK);
    UNTIL(&a, st.n_segment >= 4); /* two are whole, one is filled, one is prepared */
    UNTIL(&b, st.n_foreign == 2);
    UNTIL(&b, !kv_store_recovering(b.s));
    assert_int_equal(hits(&b, &n_doubt), 2 * PER); /* what is open is not read */
    assert_int_equal(n_doubt, 0);
    /* a block that the folder has is not written twice */
    struct kv_key   key = block_key(&b, 3);
    struct kv_place place;
    assert_true(kv_store_find(b.s, &key, &place));
    assert_int_equal(world_put(&b, 3), ST_AGAIN);
    assert_int_equal(world_put_patient(&b, 100), ST_OK);

    close_one(&a); /* says that it leaves: b has room, and does not wait for the grace */
    UNTIL(&b, st.n_claimed == 3);
    UNTIL(&b, folders(b.dir, path, sizeof path) == 1);
    UNTIL(&b, !kv_store_recovering(b.s));
    assert_int_equal(hits(&b, &n_doubt), N);
    assert_int_equal(n_doubt, 0);
    assert_int_equal(st.n_foreign, 0);
    world_free(&b);
}

static uint32_t n_sealed(const struct kv_store *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_slot; i++) n += s->segment[i].state == SEG_SEALED;
    return n;
}

static void a_killed_server_is_read_and_then_taken_over(void **state)
{
    (void)state;
    struct store_world    b;
    struct kv_store_stats st;
    uint32_t              n_doubt;
    char                  path[700], dir[64] = "/tmp/spillway-store-XXXXXX";
    assert_non_null(mkdtemp(dir));
    pid_t pid = fork();
    if (!pid) {
        struct store_world c;
        make(&c, dir);
        open_ready(&c);
        for (uint32_t n = 0; n < N; n++)
            if (world_put_patient(&c, n)) _exit(3);
        while (n_sealed(c.s) < 2) {
            world_turn(&c);
            usleep(100);
        } /* and say so in their footers */
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    make(&b, dir);
    open_ready(&b);
    UNTIL(&b, st.n_foreign == 2);
    UNTIL(&b, !kv_store_recovering(b.s));
    assert_int_equal(hits(&b, &n_doubt), 2 * PER); /* nobody takes it for dead yet */
    kv_store_close(b.s);
    b.grace_us = 10000;
    open_ready(&b);
    UNTIL(&b, st.n_claimed == 3); /* the third has no footer */
    UNTIL(&b, folders(b.dir, path, sizeof path) == 1);
    UNTIL(&b, !kv_store_recovering(b.s));
    assert_int_equal(hits(&b, &n_doubt), N);
    world_free(&b);
}

static void a_file_that_vanishes_or_changes_under_a_reader_is_a_miss(void **state)
{
    (void)state;
    struct store_world    a, b;
    struct kv_store_stats st;
    uint32_t              n_doubt;
    char                  path[700];
    make(&a, NULL);
    make(&b, a.dir);
    a.grace_us = 400000; /* its heart beats every 50 ms */
    open_ready(&a);
    for (uint32_t n = 0; n < N; n++) assert_int_equal(world_put_patient(&a, n), ST_OK);
    UNTIL(&a, st.n_segment >= 4);
    open_ready(&b);
    UNTIL(&b, st.n_foreign == 2);
    UNTIL(&b, !kv_store_recovering(b.s));
    /* a third party writes into a segment that both know: a bit of every block */
    struct kv_key   key = block_key(&b, 20);
    struct kv_place place;
    assert_true(kv_store_find(b.s, &key, &place));
    char           name[32];
    DIR           *d = opendir(a.dir);
    struct dirent *e;
    int            n_file = 0;
    store_name(name, sizeof name, place.seq);
    while ((e = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s/%s", a.dir, e->d_name, name);
        int fd = strncmp(e->d_name, "srv-", 4) ? -1 : open(path, O_RDWR);
        if (fd < 0) continue;
        n_file++;
        for (uint64_t i = 0; i < PER; i++) {
            unsigned char bit;
            off_t         at = (off_t)(STORE_PAGE + i * RECORD + 5000 + i);
            assert_int_equal(pread(fd, &bit, 1, at), 1);
            bit ^= 4;
            assert_int_equal(pwrite(fd, &bit, 1, at), 1);
        }
        close(fd);
    }
    closedir(d);
    assert_int_equal(n_file, 1);
    assert_int_equal(hits(&b, &n_doubt), PER);
    assert_int_equal(n_doubt, PER);
    assert_int_equal(hits(&b, &n_doubt), PER); /* forgotten, not doubted again */
    assert_int_equal(n_doubt, 0);
    /* and somebody removes the folders while b has files of a open */
    while (folders(a.dir, path, sizeof path), *path) {
        *strrchr(path, '/') = 0;
        nftw(path, rm_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    hits(&b, &n_doubt); /* what the open file still says, or a miss: world_get compares */
    UNTIL(&b, st.n_foreign == 0);
    assert_int_equal(hits(&b, &n_doubt), 0);
    UNTIL(&a, kv_store_paused(a.s)); /* its lease is gone */
    assert_int_equal(world_put(&a, 500), ST_AGAIN);
    close_one(&a);
    world_free(&b);
}

/* Neither the files of another key nor those of another model are read or touched. */
static void segments_of_another_key_or_model_stay_untouched(void **state)
{
    (void)state;
    struct store_world    a, b, c;
    struct kv_store_stats st;
    uint32_t              n_doubt;
    char                  path[700];
    make(&a, NULL);
    make(&b, a.dir);
    make(&c, a.dir);
    a.sealed = b.sealed = true;
    b.secret[0] = 1;
    c.fingerprint.b[0] ^= 1;
    open_ready(&a);
    open_ready(&b);
    open_ready(&c);
    for (uint32_t n = 0; n < N; n++) assert_int_equal(world_put_patient(&a, n), ST_OK);
    UNTIL(&a, st.n_segment >= 4);
    for (int i = 0; i < 60; i++) {
        world_turn(&b);
        world_turn(&c);
        usleep(500);
    }
    assert_int_equal(hits(&b, &n_doubt), 0);
    assert_int_equal(n_doubt, 0);
    assert_int_equal(hits(&c, &n_doubt), 0);
    assert_int_equal(hits(&a, &n_doubt), N);
    /* the right key, later: all that is whole */
    kv_store_close(b.s);
    b.secret[0] = 0;
    open_ready(&b);
    UNTIL(&b, st.n_foreign == 2);
    UNTIL(&b, !kv_store_recovering(b.s));
    assert_int_equal(hits(&b, &n_doubt), 2 * PER);
    assert_int_equal(folders(a.dir, path, sizeof path), 3);
    close_one(&a);
    close_one(&c);
    world_free(&b);
}

/* Bytes of all segments in the folder, whoever wrote them. */
static uint64_t all_bytes;
static int      add_bytes(const char *path, const struct stat *st, int flag, struct FTW *f)
{
    if (flag == FTW_F && !strncmp(path + f->base, "seg-", 4)) all_bytes += (uint64_t)st->st_size;
    return 0;
}
/* A walk is no snapshot: of a file that goes and one that comes while it lasts both are counted. So the least of
 * several walks. */
static uint64_t bytes_of_all(const char *dir)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 5 && least > 6 * SEGMENT; i++) {
        all_bytes = 0;
        nftw(dir, add_bytes, 8, FTW_PHYS);
        if (all_bytes < least) least = all_bytes;
    }
    return least;
}

static void named(struct store_world *w, const char *dir, uint32_t grace_us)
{
    make(w, dir);
    w->cap = 6 * SEGMENT;
    w->grace_us = grace_us;
    snprintf(w->name, sizeof w->name, "the-server");
}

enum { LIVES = 5 }; /* two segments each, and six are the budget; row F33 of tests/fault kills 24 servers */

/* Each start writes what it may and is killed; together they never have more than one budget. What they left is the
 * last one's. */
static void F33_a_server_that_crashes_again_and_again_has_one_budget(void **state)
{
    (void)state;
    char dir[64] = "/tmp/spillway-store-XXXXXX", path[700];
    assert_non_null(mkdtemp(dir));
    for (uint32_t life = 0; life < LIVES; life++) {
        pid_t pid = fork();
        if (!pid) {
            struct store_world c;
            named(&c, dir, 60000000);
            if (world_open(&c)) _exit(2);
            world_ready(&c, false); /* in the end there is no room for a segment */
            for (uint32_t n = 0, n_again = 0; n < 2 * PER + 5 && n_again < 100;) {
                if (world_put(&c, 100 * life + n) == ST_OK) {
                    n++;
                    n_again = 0;
                    continue;
                }
                world_turn(&c);
                usleep(200);
                n_again++;
            }
            kill(getpid(), SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_true(bytes_of_all(dir) <= 6 * SEGMENT);
    }
    assert_true(bytes_of_all(dir) > 4 * SEGMENT); /* they have written */
    struct store_world    b;
    struct kv_store_stats st;
    uint32_t              n_hit = 0;
    named(&b, dir, 400000); /* three beats of 50 ms, and they are gone */
    open_ready(&b);
    UNTIL(&b, folders(b.dir, path, sizeof path) == 1 && st.n_claimed >= 2);
    UNTIL(&b, !kv_store_recovering(b.s));
    for (uint32_t n = 0; n < 100 * LIVES; n++) n_hit += world_get(&b, n) == ST_OK;
    assert_true(n_hit > PER);
    for (uint32_t n = 5000; n < 5000 + 6 * PER; n++) {
        assert_int_equal(world_put_patient(&b, n), ST_OK); /* and it goes on writing in the place of what they left */
        assert_true(bytes_of_all(dir) <= 6 * SEGMENT);
    }
    world_free(&b);
}

static char *said_in(int fd, char *text, size_t bytes)
{
    ssize_t n = pread(fd, text, bytes - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return text;
}
static unsigned times(const char *text, const char *what)
{
    unsigned n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

/* Each says so, once. An earlier start of that name which was killed, and one that has left, are none. */
static void two_live_servers_of_one_name_say_that_they_share_a_budget(void **state)
{
    (void)state;
    static const char     line[] = "another server named 'the-server' is alive there";
    struct store_world    gone, a, b, c;
    struct kv_store_stats st;
    char                  text[8192], lease[700];
    int                   out = memfd_create("log", MFD_CLOEXEC);
    log_init(LOG_LEVEL_WARN, out, false);
    named(&gone, NULL, 400000); /* a beat is 50 ms */
    open_ready(&gone);
    for (uint32_t n = 0; n < N; n++) assert_int_equal(world_put_patient(&gone, n), ST_OK);
    named(&a, gone.dir, 400000);
    close_one(&gone);
    snprintf(lease, sizeof lease, "%s/srv-the-server-00000000000000aa", a.dir); /* killed: it stands still */
    assert_int_equal(mkdir(lease, 0700), 0);
    snprintf(lease, sizeof lease, "%s/srv-the-server-00000000000000aa/LEASE", a.dir);
    FILE *f = fopen(lease, "w");
    assert_non_null(f);
    assert_int_equal(fprintf(f, "spillway lease 1 %020d %-6s%*s\n", 7, "held", 19, ""), 64);
    fclose(f);
    open_ready(&a);
    UNTIL(&a, st.n_claimed >= 2); /* so several rounds have passed */
    assert_int_equal(times(said_in(out, text, sizeof text), line), 0);

    named(&b, a.dir, 400000);
    named(&c, a.dir, 400000);
    snprintf(c.name, sizeof c.name, "the-server-2"); /* another name */
    open_ready(&b);
    open_ready(&c);
    for (uint64_t end_us = clock_us() + PATIENCE_S * 1000000u; times(said_in(out, text, sizeof text), line) < 2;) {
        assert_true(clock_us() < end_us);
        world_turn(&a);
        world_turn(&b);
        world_turn(&c);
        usleep(300);
    }
    assert_non_null(strstr(text, "the two have one budget of 1 MiB together; give each its own --kv-shared-name"));
    for (int i = 0; i < 300; i++) { /* some beats more */
        world_turn(&a);
        world_turn(&b);
        world_turn(&c);
        usleep(300);
    }
    assert_int_equal(times(said_in(out, text, sizeof text), line), 2);
    close_one(&a);
    close_one(&c);
    world_free(&b);
    log_init(LOG_LEVEL_WARN, 2, false); /* nobody logs now */
    close(out);
}

/* What an earlier start left in another geometry cannot be taken over: it goes when the room is needed. */
static void F33_segments_that_cannot_be_taken_over_make_room(void **state)
{
    (void)state;
    struct store_world a, b;
    char               path[700];
    named(&a, NULL, 400000);
    open_ready(&a);
    for (uint32_t n = 0; n < 4 * PER; n++) assert_int_equal(world_put_patient(&a, n), ST_OK);
    named(&b, a.dir, 400000);
    b.fingerprint.b[0] ^= 1; /* another model */
    close_one(&a);
    open_ready(&b);
    for (uint32_t n = 0; n < 6 * PER; n++) {
        assert_int_equal(world_put_patient(&b, n), ST_OK);
        assert_true(bytes_of_all(b.dir) <= 6 * SEGMENT);
    }
    assert_true(folders(b.dir, path, sizeof path) <= 2);
    world_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_server_is_read_and_then_taken_over), /* forks before there are threads */
        cmocka_unit_test(F33_a_server_that_crashes_again_and_again_has_one_budget),
        cmocka_unit_test(other_servers_read_the_blocks_of_one_and_take_them_over_when_it_leaves),
        cmocka_unit_test(a_file_that_vanishes_or_changes_under_a_reader_is_a_miss),
        cmocka_unit_test(segments_of_another_key_or_model_stay_untouched),
        cmocka_unit_test(F33_segments_that_cannot_be_taken_over_make_room),
        cmocka_unit_test(two_live_servers_of_one_name_say_that_they_share_a_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
