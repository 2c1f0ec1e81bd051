/* Copies beside the steps: what is asked for arrives, in memory that began as NaN, while other work is on the device;
 * and what becomes of one that fails. The lane over it: slices of two devices, down and up. */
#include "cuda/cuda_test.h"
#include "transfer/lanes.h"
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 40, SLOTS = 24, SLICE = 36864, GAP = 4096, STRIDE = 2 * SLICE + GAP };

static void fill(unsigned char *p, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(rng_philox(11, stream, i / 16).x[i % 4] >> (i / 4 % 4 * 8));
}
/* As the tiers take it: shared, anonymous, in whole pages. */
static unsigned char *slab_open(size_t bytes)
{
    int            fd = memfd_create("test", MFD_CLOEXEC);
    unsigned char *p = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    close(fd);
    return p;
}
static enum status copy_wait(struct device *d, enum dev_way way)
{
    enum status st;
    while ((st = dev_copy_done(d, way)) == ST_AGAIN) usleep(10);
    return st;
}
static void lazy(bool on)
{
#ifdef CUDA_EMU
    emu_set_lazy(on);
#else
    (void)on;
#endif
}

/* Memory of the host that a kernel may read: what is pinned; any, where the GPU uses the host's page tables. */
static void a_device_tells_what_host_memory_it_reaches(void **state)
{
    (void)state;
    struct device *d = ct_open(DT_BF16, 0);
    unsigned char *slab = slab_open(SLOTS * STRIDE), *other = malloc(64);
    assert_int_equal(dev_copy_open(d), ST_OK);
    bool any = dev_reaches(d, NULL);
    assert_int_equal(dev_reaches(d, other), any);
    assert_true(dev_pin(d, slab, SLOTS * STRIDE));
    assert_true(dev_reaches(d, slab) && dev_reaches(d, slab + STRIDE));
    dev_unpin(d, slab);
    assert_int_equal(dev_reaches(d, slab), any);
#ifdef CUDA_EMU
    assert_false(any);
    emu_set_coherent(true);
    assert_true(dev_reaches(d, NULL) && dev_reaches(d, other) && dev_reaches(d, slab));
    emu_set_coherent(false);
#endif
    free(other);
    munmap(slab, SLOTS * STRIDE);
    dev_close(d);
}

/* Runs of every kind, many on their way at a time, into pinned and into ordinary memory. */
static void requested_copies_arrive_with_the_right_bytes(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct device *d = ct_open(DT_BF16, 0);
        unsigned char *slab = slab_open(SLOTS * STRIDE), *want = malloc(BLOCKS * SLICE), *got = malloc(BLOCKS * SLICE);
        assert_int_equal(dev_copy_open(d), ST_OK);
        if (pinned) assert_true(dev_pin(d, slab, SLOTS * STRIDE));
        fill(want, BLOCKS * SLICE, 1);
        unsigned char *pool = ct_bytes(d, want, BLOCKS * SLICE);
        lazy(true);
        /* down: blocks 0..7 to every slot from 2, 9 alone, the rest two by two */
        struct dev_run down[] = { { pool, slab + 2 * STRIDE + GAP, SLICE, SLICE, STRIDE, 8 },
                                  { pool + 9 * SLICE, slab, SLICE, SLICE, SLICE, 1 } };
        dev_copy_begin(d, DEV_DOWN, down, 2);
        for (uint32_t i = 0; i < 6; i++) {
            struct dev_run r = { pool + (10 + 2 * i) * SLICE, slab + (12 + i) * STRIDE, SLICE, SLICE, SLICE, 2 };
            dev_copy_begin(d, DEV_DOWN, &r, 1);
            memset(&r, 0xff, sizeof r); /* the caller's again */
        }
        for (uint32_t i = 0; i < 7; i++) assert_int_equal(copy_wait(d, DEV_DOWN), ST_OK);
        for (uint32_t i = 0; i < 8; i++)
            ct_assert_same(slab + (2 + i) * STRIDE + GAP, want + i * SLICE, SLICE, "a run");
        ct_assert_same(slab, want + 9 * SLICE, SLICE, "one piece");
        for (uint32_t i = 0; i < 6; i++)
            ct_assert_same(slab + (12 + i) * STRIDE, want + (10 + 2 * i) * SLICE, 2 * SLICE, "pairs");
        /* up, both ways at a time: what is read down next is not what goes up */
        for (uint32_t i = 0; i < 8; i++) memcpy(want + (30 + i) * SLICE, slab + (2 + i) * STRIDE + GAP, SLICE);
        struct dev_run up = { pool + 30 * SLICE, slab + 2 * STRIDE + GAP, SLICE, SLICE, STRIDE, 8 };
        struct dev_run again = { pool + 22 * SLICE, slab + 20 * STRIDE, SLICE, SLICE, STRIDE, 3 };
        dev_copy_begin(d, DEV_UP, &up, 1);
        dev_copy_begin(d, DEV_DOWN, &again, 1);
        assert_int_equal(copy_wait(d, DEV_UP), ST_OK);
        assert_int_equal(copy_wait(d, DEV_DOWN), ST_OK);
        for (uint32_t i = 0; i < 3; i++)
            ct_assert_same(slab + (20 + i) * STRIDE, want + (22 + i) * SLICE, SLICE, "meanwhile");
        lazy(false);
        ct_get(d, got, pool, BLOCKS * SLICE);
        ct_assert_same(got, want, BLOCKS * SLICE, "the pool");
        dev_unpin(d, slab); /* a no-op where it was not */
        dev_close(d);
        munmap(slab, SLOTS * STRIDE);
        free(want);
        free(got);
    }
}

static struct xfer_done done_of(struct xfer *x)
{
    struct xfer_done d;
    while (!xfer_poll(x, &d, 1)) {
        if (!xfer_arm(x)) continue;
        struct pollfd p = { .fd = xfer_fd(x), .events = POLLIN };
        poll(&p, 1, 1);
        xfer_ack(x);
    }
    return d;
}

struct world {
    struct device    *dev[2];
    struct xfer_ranks ranks;
    struct xfer      *x;
    unsigned char    *slab, *want[2];
    uint32_t          seg_dev, seg_host;
    bool              lost; /* a device that is gives nothing back */
};
static void world_open(struct world *w)
{
    struct xfer_cfg cfg = { .jobs_max = 128 };
    *w = (struct world){ .ranks = { .n = 2, .block_bytes = 2 * SLICE }, .slab = slab_open(SLOTS * STRIDE) };
    assert_int_equal(xfer_create(&cfg, &w->x), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, lane_dev_create()), ST_OK);
    for (uint32_t r = 0; r < 2; r++) { /* both on the first GPU: streams of their own */
        w->dev[r] = ct_open(DT_BF16, 0);
        w->want[r] = malloc(BLOCKS * SLICE);
        fill(w->want[r], BLOCKS * SLICE, 2 + r);
        w->ranks.rank[r] = (struct xfer_rank){ .dev = w->dev[r],
                                               .base = ct_bytes(w->dev[r], w->want[r], BLOCKS * SLICE),
                                               .bytes = SLICE };
    }
    struct xfer_seg dev = { .kind = XFER_DEVICE, .bytes = BLOCKS * 2 * SLICE, .ranks = &w->ranks };
    struct xfer_seg host = { .kind = XFER_HOST, .base = w->slab, .bytes = SLOTS * STRIDE };
    assert_int_equal(xfer_seg_add(w->x, &dev, &w->seg_dev), ST_OK);
    assert_int_equal(xfer_seg_add(w->x, &host, &w->seg_host), ST_OK);
    assert_int_equal(xfer_start(w->x), ST_OK);
}
static void world_close(struct world *w)
{
    xfer_seg_drop(w->x, w->seg_host);
    xfer_free(w->x);
    for (uint32_t r = 0; r < 2; r++) {
        dev_close(w->dev[r]);
        free(w->want[r]);
    }
    munmap(w->slab, SLOTS * STRIDE);
#ifdef CUDA_EMU
    if (!w->lost) assert_int_equal(emu_bytes_held(), 0);
    emu_reset();
#endif
}
static struct xfer_job job(const struct world *w, enum dev_way way, uint32_t block, uint32_t slot)
{
    struct xfer_job j = { .bytes = 2 * SLICE, .cookie = slot, .prio = way == DEV_UP ? XFER_LOAD : XFER_STORE };
    *(way == DEV_UP ? &j.dst : &j.src) = w->seg_dev;
    *(way == DEV_UP ? &j.src : &j.dst) = w->seg_host;
    *(way == DEV_UP ? &j.dst_off : &j.src_off) = (uint64_t)block * 2 * SLICE;
    *(way == DEV_UP ? &j.src_off : &j.dst_off) = (uint64_t)slot * STRIDE + GAP;
    return j;
}

/* Down with a digest, somewhere else up with it; a slot that was changed meanwhile does not reach a device. */
static void round_trip(struct world *w)
{
    struct digest digest[SLOTS];
    lazy(true);
    for (uint32_t s = 0; s < SLOTS; s++) {
        struct xfer_job j = job(w, DEV_DOWN, s < 12 ? s : 39 - s, s);
        j.digest_mode = XFER_DIGEST_MAKE;
        assert_int_equal(xfer_post(w->x, &j, NULL), ST_OK);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct xfer_done d = done_of(w->x);
        assert_int_equal(d.st, ST_OK);
        digest[d.cookie] = d.digest;
    }
    for (uint32_t s = 0; s < SLOTS; s++)
        for (uint32_t r = 0; r < 2; r++)
            ct_assert_same(w->slab + s * STRIDE + GAP + r * SLICE, w->want[r] + (s < 12 ? s : 39 - s) * SLICE, SLICE,
                           "a slice on the host");
    w->slab[5 * STRIDE + GAP + SLICE + 77] ^= 4;
    for (uint32_t s = 0; s < 12; s++) {
        struct xfer_job j = job(w, DEV_UP, 28 + s, s);
        j.digest_mode = XFER_DIGEST_CHECK;
        j.digest = digest[s];
        assert_int_equal(xfer_post(w->x, &j, NULL), ST_OK);
        for (uint32_t r = 0; r < 2 && s != 5; r++) memcpy(w->want[r] + (28 + s) * SLICE, w->want[r] + s * SLICE, SLICE);
    }
    for (uint32_t i = 0; i < 12; i++) {
        struct xfer_done d = done_of(w->x);
        assert_int_equal(d.st, d.cookie == 5 ? ST_INVALID : ST_OK);
    }
    lazy(false);
    for (uint32_t r = 0; r < 2; r++) {
        unsigned char *got = malloc(BLOCKS * SLICE);
        ct_get(w->dev[r], got, w->ranks.rank[r].base, BLOCKS * SLICE);
        ct_assert_same(got, w->want[r], BLOCKS * SLICE, "the pool");
        free(got);
    }
}
static void blocks_of_two_devices_come_back(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    round_trip(&w);
    world_close(&w);
}

#ifdef CUDA_EMU
/* FAULTS F20, H14: it is slower, and nothing else is different. */
static void memory_that_cannot_be_pinned_serves_too(void **state)
{
    (void)state;
    struct world w;
    emu_fail_next("cudaHostRegister", cudaErrorMemoryAllocation);
    world_open(&w);
    round_trip(&w);
    world_close(&w);
}

static void only_its_copy_fails(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    for (uint32_t skip = 0; skip < 2; skip++) { /* on either rank */
        emu_fail_after("cudaMemcpyAsync", skip, cudaErrorInvalidValue);
        struct xfer_job j = job(&w, DEV_DOWN, 3, 3);
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
        assert_int_equal(done_of(w.x).st, ST_IO);
        j = job(&w, DEV_UP, 4, 4);
        emu_fail_after("cudaMemcpyAsync", skip, cudaErrorMemoryAllocation);
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
        assert_int_equal(done_of(w.x).st, ST_IO);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(w.dev[r]->ops->sync(w.dev[r]), ST_OK); /* the devices are well */
    }
    for (uint32_t r = 0; r < 2; r++)
        ct_put(w.dev[r], w.ranks.rank[r].base, w.want[r], BLOCKS * SLICE); /* a piece of block 4 did arrive */
    round_trip(&w);
    world_close(&w);
}

/* An error that stays is the device's: every copy ends, and so does every step. */
static void a_lost_device_ends_its_copies(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct world w;
        world_open(&w);
        w.lost = true;
        emu_fail_next(late ? "cudaEventQuery" : "cudaMemcpyAsync", cudaErrorECCUncorrectable);
        for (uint32_t i = 0; i < 20; i++) {
            struct xfer_job j = job(&w, i % 2 ? DEV_UP : DEV_DOWN, i, i);
            assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
        }
        for (uint32_t i = 0; i < 20; i++) assert_int_equal(done_of(w.x).st, ST_DEVICE);
        assert_int_equal(w.dev[0]->ops->sync(w.dev[0]), ST_BROKEN);
        world_close(&w);
    }
}

static void a_failure_to_create_streams_is_reported(void **state)
{
    (void)state;
    struct device *d = ct_open(DT_BF16, 0);
    emu_fail_next("cudaEventCreate", cudaErrorMemoryAllocation);
    assert_int_equal(dev_copy_open(d), ST_DEVICE);
    assert_int_equal(dev_copy_open(d), ST_OK); /* nothing was left of the first */
    dev_close(d);
    assert_int_equal(emu_bytes_held(), 0);
    emu_reset();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_tells_what_host_memory_it_reaches),
        cmocka_unit_test(requested_copies_arrive_with_the_right_bytes),
        cmocka_unit_test(blocks_of_two_devices_come_back),
#ifdef CUDA_EMU
        cmocka_unit_test(memory_that_cannot_be_pinned_serves_too),
        cmocka_unit_test(only_its_copy_fails),
        cmocka_unit_test(a_failure_to_create_streams_is_reported),
        cmocka_unit_test(a_lost_device_ends_its_copies),
#endif
    };
    return ct_run(tests);
}
