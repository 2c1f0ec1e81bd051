#include "transfer/xfer.h"
#include "base/clock.h"
#include "transfer/lanes.h"
#include "transfer/xfer_impl.h"
#include "test.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLAB = 1 << 20, JOBS = 64 };

struct world {
    struct xfer   *x;
    unsigned char *a, *b; /* two host slabs */
    uint32_t       seg_a, seg_b, seg_file;
    int            fd;
};

static uint64_t fake_us; /* not 0: the clock stands there */
static uint64_t test_clock(void) { return fake_us ? fake_us : clock_us(); }

static void open_world(struct world *w, bool no_uring, bool start)
{
    struct xfer_cfg cfg = { .jobs_max = JOBS, .clock = test_clock };
    *w = (struct world){ .fd = -1 };
    fake_us = 0;
    assert_int_equal(digest_key_init(&cfg.key, NULL, 0, 42), ST_OK);
    assert_int_equal(xfer_create(&cfg, &w->x), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, lane_dev_create()), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, lane_nvme_create(8, 2, no_uring)), ST_OK);
    w->a = mmap(NULL, SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(w->a, MAP_FAILED);
    assert_int_equal(posix_memalign((void **)&w->b, 4096, SLAB), 0);
    for (int i = 0; i < SLAB; i++) w->a[i] = (unsigned char)(i * 7 + i / 251);
    memset(w->b, 0xee, SLAB);
    char path[] = "/tmp/spillway-xfer-XXXXXX";
    w->fd = mkstemp(path);
    assert_true(w->fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(w->fd, SLAB), 0);
    assert_int_equal(
        xfer_seg_add(w->x, &(struct xfer_seg){ .kind = XFER_HOST, .base = w->a, .bytes = SLAB }, &w->seg_a), ST_OK);
    assert_int_equal(
        xfer_seg_add(w->x, &(struct xfer_seg){ .kind = XFER_DEVICE, .base = w->b, .bytes = SLAB }, &w->seg_b), ST_OK);
    assert_int_equal(
        xfer_seg_add(w->x, &(struct xfer_seg){ .kind = XFER_FILE, .fd = w->fd, .bytes = SLAB }, &w->seg_file), ST_OK);
    if (start) assert_int_equal(xfer_start(w->x), ST_OK);
}
static void close_world(struct world *w)
{
    xfer_free(w->x);
    munmap(w->a, SLAB);
    free(w->b);
    close(w->fd);
}

static struct xfer_done wait_done(struct xfer *x)
{
    struct xfer_done d;
    while (!xfer_poll(x, &d, 1)) {
        if (!xfer_arm(x)) continue;
        struct pollfd p = { .fd = xfer_fd(x), .events = POLLIN };
        assert_int_equal(poll(&p, 1, PATIENCE_S * 1000), 1);
        xfer_ack(x);
    }
    return d;
}

static void bytes_arrive_and_their_digest_is_theirs(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, false, true);
    struct xfer_job j = { .src = w.seg_b,
                          .dst = w.seg_a,
                          .src_off = 512,
                          .dst_off = 8192,
                          .bytes = 100000,
                          .cookie = 7,
                          .skip = 4096,
                          .digest_mode = XFER_DIGEST_MAKE };
    memcpy(w.b + 512, w.a + 300000, 100000);
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    struct xfer_done d = wait_done(w.x);
    assert_int_equal(d.st, ST_OK);
    assert_int_equal(d.cookie, 7);
    assert_memory_equal(w.a + 8192, w.b + 512, 100000);
    struct digest_key k;
    digest_key_init(&k, NULL, 0, 42);
    assert_true(digest_equal(d.digest, digest_of(&k, w.a + 8192 + 4096, 100000 - 4096)));
    /* back: checked before the device gets a byte */
    memset(w.b, 0, SLAB);
    j = (struct xfer_job){ .src = w.seg_a,
                           .dst = w.seg_b,
                           .src_off = 8192,
                           .dst_off = 0,
                           .bytes = 100000,
                           .skip = 4096,
                           .digest_mode = XFER_DIGEST_CHECK,
                           .digest = d.digest };
    w.a[8192 + 50000] ^= 1;
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(wait_done(w.x).st, ST_INVALID);
    for (int i = 0; i < SLAB; i++) assert_int_equal(w.b[i], 0);
    w.a[8192 + 50000] ^= 1;
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(wait_done(w.x).st, ST_OK);
    assert_memory_equal(w.b, w.a + 8192, 100000);
    close_world(&w);
}

/* The head of a record, and the digest that stands in it, are checked by the lane as its payload is. */
static void a_head_must_have_the_digest_that_follows_it(void **state)
{
    (void)state;
    enum { BYTES = 20000, SKIP = 4096, HEAD = 1200 };
    struct world      w;
    struct digest_key k;
    open_world(&w, false, true);
    digest_key_init(&k, NULL, 0, 42);
    struct digest   head = digest_of(&k, w.a, HEAD);
    struct xfer_job j = { .src = w.seg_a,
                          .dst = w.seg_b,
                          .bytes = BYTES,
                          .skip = SKIP,
                          .head = HEAD,
                          .digest_mode = XFER_DIGEST_CHECK,
                          .digest = digest_of(&k, w.a + SKIP, BYTES - SKIP) };
    memcpy(w.a + HEAD, &head, sizeof head);
    const uint32_t place[] = { SLAB - 1, 0, HEAD - 1, HEAD, HEAD + (uint32_t)sizeof head - 1, SKIP, BYTES - 1 };
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        w.a[place[i]] ^= 16;
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
        struct xfer_done d = wait_done(w.x);
        assert_int_equal(d.st, place[i] < BYTES ? ST_INVALID : ST_OK);
        assert_int_equal(d.bad_head, place[i] < SKIP);
        w.a[place[i]] ^= 16;
    }
    close_world(&w);
}

static void files(bool no_uring)
{
    struct world w;
    open_world(&w, no_uring, true);
    uint64_t      seen = 0;
    struct digest digest[16];
    for (uint64_t i = 0; i < 16; i++) {
        struct xfer_job j = { .src = w.seg_a,
                              .dst = w.seg_file,
                              .src_off = i * 65536,
                              .dst_off = (15 - i) * 65536,
                              .bytes = 65536,
                              .cookie = i,
                              .prio = XFER_STORE,
                              .digest_mode = XFER_DIGEST_MAKE };
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    }
    for (int i = 0; i < 16; i++) {
        struct xfer_done d = wait_done(w.x);
        assert_int_equal(d.st, ST_OK);
        assert_false(seen >> d.cookie & 1); /* exactly once */
        seen |= 1u << d.cookie;
        digest[d.cookie] = d.digest;
    }
    unsigned char *copy = malloc(SLAB);
    memcpy(copy, w.a, SLAB);
    memset(w.a, 0, SLAB);
    for (uint64_t i = 0; i < 16; i++) {
        struct xfer_job j = { .src = w.seg_file,
                              .dst = w.seg_a,
                              .src_off = (15 - i) * 65536,
                              .dst_off = i * 65536,
                              .bytes = 65536,
                              .cookie = i,
                              .digest_mode = XFER_DIGEST_CHECK,
                              .digest = digest[i] };
        if (i == 3) j.digest.lo ^= 1; /* another block's */
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    }
    for (int i = 0; i < 16; i++) {
        struct xfer_done d = wait_done(w.x);
        assert_int_equal(d.st, d.cookie == 3 ? ST_INVALID : ST_OK);
    }
    assert_memory_equal(w.a, copy, SLAB);
    free(copy);

    /* the file is shorter than was said; a device that is full */
    assert_int_equal(ftruncate(w.fd, 65536 * 2 + 100), 0);
    struct xfer_job j = { .src = w.seg_file, .dst = w.seg_a, .src_off = 131072, .bytes = 4096 };
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(wait_done(w.x).st, ST_IO);
    int      full = open("/dev/full", O_WRONLY);
    uint32_t seg;
    assert_true(full >= 0);
    assert_int_equal(xfer_seg_add(w.x, &(struct xfer_seg){ .kind = XFER_FILE, .fd = full, .bytes = SLAB }, &seg),
                     ST_OK);
    j = (struct xfer_job){ .src = w.seg_a, .dst = seg, .bytes = 4096 };
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(wait_done(w.x).st, ST_TOO_LARGE);
    xfer_seg_drop(w.x, seg);
    close(full);

    struct xfer_stats st[4];
    assert_int_equal(xfer_stats(w.x, st, 4), 2);
    assert_int_equal(st[1].n_done, 34);
    assert_int_equal(st[1].n_failed, 3);
    assert_int_equal(st[1].n_queued, 0);
    assert_int_equal(st[1].to_host[0].queued_bytes + st[1].to_host[1].queued_bytes, 0);
    close_world(&w);
}
static void files_by_the_ring(void **state)
{
    (void)state;
    files(false);
}
static void files_by_threads(void **state)
{
    (void)state;
    files(true);
}

/* Posted before the lanes run, so that the order in which they begin is theirs alone. */
/* The ring's registered memory is let go of while jobs go on through it, and a new segment may lie where an old one
 * did. */
static void memory_can_be_taken_back_from_the_ring(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, false, true);
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t n_out = 0;
        for (uint64_t i = 0; i < 16; i++) {
            memset(w.a + i * 65536, (int)(round * 16 + i), 65536);
            struct xfer_job j = { .src = w.seg_a,
                                  .dst = w.seg_file,
                                  .src_off = i * 65536,
                                  .dst_off = i * 65536,
                                  .bytes = 65536,
                                  .cookie = i };
            assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
            n_out++;
            if (i == 7 && round % 4 == 1) xfer_seg_unpin(w.x, w.seg_a);
        }
        for (; n_out; n_out--) assert_int_equal(wait_done(w.x).st, ST_OK);
        for (int i = 0; i < PATIENCE_S * 10000 && round % 4 == 1 && !xfer_seg_unpin(w.x, w.seg_a); i++) usleep(100);
        assert_true(round % 4 != 1 || xfer_seg_unpin(w.x, w.seg_a));
        if (round % 4 == 2) { /* and back again, other memory at the same place */
            xfer_seg_drop(w.x, w.seg_a);
            assert_ptr_equal(mmap(w.a, SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                             w.a);
            assert_int_equal(
                xfer_seg_add(w.x, &(struct xfer_seg){ .kind = XFER_HOST, .base = w.a, .bytes = SLAB }, &w.seg_a),
                ST_OK);
        }
        memset(w.a, 0xcc, SLAB);
        for (uint64_t i = 0; i < 16; i++) {
            struct xfer_job j = { .src = w.seg_file,
                                  .dst = w.seg_a,
                                  .src_off = i * 65536,
                                  .dst_off = i * 65536,
                                  .bytes = 65536,
                                  .cookie = i };
            assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
        }
        for (int i = 0; i < 16; i++) assert_int_equal(wait_done(w.x).st, ST_OK);
        for (uint32_t i = 0; i < SLAB; i++) assert_int_equal(w.a[i], (unsigned char)(round * 16 + i / 65536));
    }
    close_world(&w);
}

static void loads_go_first_and_a_late_or_canceled_job_does_not_begin(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, false, false);
    fake_us = 1000000;
    uint64_t                    ticket;
    static const enum xfer_prio prio[6] = {
        XFER_STORE, XFER_STORE, XFER_PREFETCH, XFER_PREFETCH, XFER_LOAD, XFER_LOAD
    };
    for (uint64_t i = 0; i < 6; i++) {
        struct xfer_job j = { .src = w.seg_a,
                              .dst = w.seg_b,
                              .dst_off = i * 4096,
                              .bytes = 4096,
                              .cookie = i,
                              .prio = prio[i],
                              .deadline_us = i == 4 ? 999999 : 0 };
        assert_int_equal(xfer_post(w.x, &j, &ticket), ST_OK);
        if (i == 2) xfer_cancel(w.x, ticket);
    }
    assert_int_equal(xfer_start(w.x), ST_OK);
    static const uint64_t    order[] = { 4, 2, 5, 3, 0, 1 };
    static const enum status st[] = { ST_TIMEOUT, ST_CANCELED, ST_OK, ST_OK, ST_OK, ST_OK };
    for (int i = 0; i < 6; i++) {
        struct xfer_done d = wait_done(w.x);
        assert_int_equal(d.cookie, order[i]);
        assert_int_equal(d.st, st[i]);
    }
    assert_int_equal(w.b[2 * 4096], 0xee); /* canceled: never written */
    xfer_cancel(w.x, ticket);              /* long done: nothing happens */
    close_world(&w);
}

static void old_stores_go_before_young_loads(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, false, false);
    fake_us = 1000000;
    struct xfer_job j = { .src = w.seg_a, .dst = w.seg_b, .bytes = 4096, .cookie = 1, .prio = XFER_STORE };
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    fake_us = 3000000;
    j.cookie = 2;
    j.prio = XFER_LOAD;
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(xfer_start(w.x), ST_OK);
    assert_int_equal(wait_done(w.x).cookie, 1);
    assert_int_equal(wait_done(w.x).cookie, 2);
    close_world(&w);
}

static void the_bound_of_the_queue_holds_and_queued_jobs_are_canceled_at_the_end(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, false, false);
    struct xfer_job j = { .src = w.seg_a, .dst = w.seg_b, .bytes = 4096 };
    for (int i = 0; i < JOBS; i++) assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_AGAIN);
    uint32_t remote;
    assert_int_equal(xfer_seg_add(w.x, &(struct xfer_seg){ .kind = XFER_REMOTE, .bytes = SLAB }, &remote), ST_OK);
    j.dst = remote;
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_CONFIG); /* no lane goes there */
    assert_int_equal(xfer_start(w.x), ST_OK);
    close_world(&w); /* nothing hangs, nothing leaks */
}

static void a_mac_needs_its_key(void **state)
{
    (void)state;
    struct digest_key a, b, c;
    assert_int_equal(digest_key_init(&a, "too short", 9, 1), ST_CONFIG);
    assert_int_equal(digest_key_init(&a, "a secret of sufficient length", 29, 1), ST_OK);
    assert_int_equal(digest_key_init(&b, "a secret of sufficient lengtH", 29, 1), ST_OK);
    assert_int_equal(digest_key_init(&c, NULL, 0, 1), ST_OK);
    struct digest d = digest_of(&a, "payload", 7);
    assert_true(digest_equal(d, digest_of(&a, "payload", 7)));
    assert_false(digest_equal(d, digest_of(&a, "pbyload", 7)));
    assert_false(digest_equal(d, digest_of(&b, "payload", 7)));
    assert_false(digest_equal(d, digest_of(&c, "payload", 7)));
}

/* Lanes that have not started: what is posted stays where it was put. */
static void loads_share_the_lanes_and_stores_do_not(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, false, false);
    assert_int_equal(xfer_lane_add(w.x, lane_dev_create()), ST_OK);
    struct xfer_job   j = { .src = w.seg_a, .dst = w.seg_b, .bytes = 4096, .prio = XFER_STORE };
    struct xfer_stats s[3];
    for (int i = 0; i < 3; i++, j.dst_off += j.bytes) assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(xfer_stats(w.x, s, 3), 3);
    assert_int_equal(s[0].n_queued, 3);
    assert_int_equal(s[2].n_queued, 0);
    j.prio = XFER_LOAD;
    for (int i = 0; i < 5; i++, j.dst_off += j.bytes) assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    xfer_stats(w.x, s, 3);
    assert_int_equal(s[0].n_queued, 4);
    assert_int_equal(s[2].n_queued, 4);
    assert_int_equal(xfer_start(w.x), ST_OK);
    for (int i = 0; i < 8; i++) assert_int_equal(wait_done(w.x).st, ST_OK);
    close_world(&w);
}

static void a_quiet_job_wakes_nobody_unless_it_fails(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, false, true);
    struct xfer_job  j = { .src = w.seg_a, .dst = w.seg_b, .bytes = 4096, .prio = XFER_STORE, .quiet = true };
    struct xfer_done d;
    struct pollfd    p = { .fd = xfer_fd(w.x), .events = POLLIN };
    assert_true(xfer_arm(w.x));
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(poll(&p, 1, 20), 0);
    while (!xfer_poll(w.x, &d, 1)) sched_yield();
    assert_int_equal(d.st, ST_OK);
    j.digest_mode = XFER_DIGEST_CHECK; /* of other bytes */
    assert_true(xfer_arm(w.x));
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_int_equal(poll(&p, 1, PATIENCE_S * 1000), 1);
    assert_int_equal(xfer_poll(w.x, &d, 1), 1);
    assert_int_equal(d.st, ST_INVALID);
    close_world(&w);
}

/* Whether the lane's thread would be woken from its sleep; it sleeps again. */
static bool woken(struct xfer_lane *l)
{
    struct pollfd p = { .fd = ring_fd(&l->inbox), .events = POLLIN };
    bool          is = poll(&p, 1, 0) == 1;
    ring_ack(&l->inbox);
    atomic_store(&l->inbox.asleep, 1);
    return is;
}

static void a_lane_is_woken_once_for_jobs_that_are_gathered(void **state)
{
    (void)state;
    enum { EACH = 16 };
    struct world w;
    open_world(&w, true, false); /* no thread runs: the test plays one that sleeps */
    struct xfer_lane *l = w.x->lane[0];
    struct xfer_job   j = { .src = w.seg_a, .dst = w.seg_b, .bytes = 4096 };
    (void)woken(l);
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_true(woken(l));
    xfer_gather(w.x, true);
    assert_false(woken(l));
    for (int i = 1; i < EACH; i++) assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_false(woken(l));
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_true(woken(l));
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_false(woken(l));
    xfer_gather(w.x, false);
    assert_true(woken(l));
    assert_false(woken(w.x->lane[1])); /* which has no job */
    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    assert_true(woken(l));
    assert_int_equal(xfer_start(w.x), ST_OK);
    for (int i = 0; i < EACH + 3; i++) assert_int_equal(wait_done(w.x).st, ST_OK);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_and_their_digest_is_theirs),
        cmocka_unit_test(a_head_must_have_the_digest_that_follows_it),
        cmocka_unit_test(files_by_the_ring),
        cmocka_unit_test(files_by_threads),
        cmocka_unit_test(memory_can_be_taken_back_from_the_ring),
        cmocka_unit_test(loads_go_first_and_a_late_or_canceled_job_does_not_begin),
        cmocka_unit_test(old_stores_go_before_young_loads),
        cmocka_unit_test(the_bound_of_the_queue_holds_and_queued_jobs_are_canceled_at_the_end),
        cmocka_unit_test(a_mac_needs_its_key),
        cmocka_unit_test(loads_share_the_lanes_and_stores_do_not),
        cmocka_unit_test(a_quiet_job_wakes_nobody_unless_it_fails),
        cmocka_unit_test(a_lane_is_woken_once_for_jobs_that_are_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
