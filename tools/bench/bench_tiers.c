/* bench_tiers: what the movers of KV blocks and their bookkeeping cost, beside what the machine can do in the same run.
 *   bench_tiers [--dir DIR] [--gib 1] [--runs 5] [--only SUBSTRING] [--device cuda] [--json]
 * What is compared alternates, run by run; every figure is a median. --dir: a folder on the disk that is measured
 * (default: here).
 * Over 500 lines: a list of measurements that share the rows of one table and are read one at a time. */
#include "base/check.h"
#include "base/clock.h"
#include "kernels/device.h"
#include "kvcache/folder/store.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/folder/store_models.h"
#include "kvcache/tier.h"
#include "transfer/lanes.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, QD = 32, RUNS_MAX = 101, ROWS_MAX = 64, BT = 16 };
extern char **environ;

static struct {
    const char *dir, *only;
    double      gib;
    uint32_t    runs;
    bool        json, cuda;
} o = { .dir = ".", .gib = 1, .runs = 5 };

/* ---- rows: a figure, and what it is held against */

struct row {
    const char *name, *unit, *against;
    double      value, other; /* other 0: nothing to hold it against */
};
static struct row rows[ROWS_MAX];
static uint32_t   n_row;

static void report(const char *name, double value, const char *unit, const char *against, double other)
{
    CHECK(n_row < ROWS_MAX);
    rows[n_row++] = (struct row){ name, unit, against, value, other };
    if (o.json) return;
    printf("%-58s %10.3f %-5s", name, value, unit);
    if (other > 0) printf(" %6.0f%% of %s (%.3f)", 100 * value / other, against, other);
    putchar('\n');
    fflush(stdout);
}

static void print_json(void)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < n_row; i++) {
        json_t *r = json_pack("{s:s, s:f, s:s}", "name", rows[i].name, "value", rows[i].value, "unit", rows[i].unit);
        if (rows[i].other > 0)
            json_object_set_new(r, "against", json_pack("{s:s, s:f}", "name", rows[i].against, "value", rows[i].other));
        json_array_append_new(all, r);
    }
    char *text = json_dumps(all, JSON_REAL_PRECISION(5));
    puts(text);
    free(text);
    json_decref(all);
}

static bool wanted(const char *name) { return !o.only || strstr(name, o.only); }

static int double_order(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}
static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, double_order);
    return v[n / 2];
}

static double clock_s(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static double now_s(void) { return clock_s(CLOCK_MONOTONIC); }
static double cpu_s(void)
{
    return clock_s(CLOCK_THREAD_CPUTIME_ID);
} /* of this thread: what a neighbour takes is not counted */

static void *take(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p) exit(EXIT_FAILURE);
    memset(p, 1, bytes);
    return p;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_tiers: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static struct xfer *movers(struct xfer_lane *lane, bool pumped)
{
    struct xfer    *x = NULL;
    struct xfer_cfg c = { .jobs_max = 2048, .pumped = pumped };
    if (!lane || xfer_create(&c, &x) || xfer_lane_add(x, lane) || xfer_start(x)) fail("the lane does not start");
    return x;
}

static uint32_t segment(struct xfer *x, struct xfer_seg seg)
{
    uint32_t id;
    if (xfer_seg_add(x, &seg, &id)) fail("segment");
    return id;
}

/* Posts n jobs, at most QD of them out at a time, sleeping between completions as an engine would. */
static double run_jobs(struct xfer *x, uint32_t n, struct xfer_job (*job)(void *arg, uint32_t i), void *arg,
                       double (*clock)(void))
{
    double           begin = clock();
    uint32_t         posted = 0, done = 0, got;
    struct xfer_done d[QD];
    while (done < n) {
        while (posted < n && posted - done < QD) {
            struct xfer_job j = job(arg, posted++);
            CHECK(xfer_post(x, &j, NULL) == ST_OK);
        }
        while ((got = xfer_poll(x, d, QD))) {
            for (uint32_t i = 0; i < got; i++) CHECK(d[i].st == ST_OK);
            done += got;
            if (posted < n) break;
        }
        if (!got && done < n) nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
    }
    return clock() - begin;
}

/* ---- disk */

struct disk {
    uint32_t file, host;
    bool     write;
};
static struct xfer_job disk_job(void *arg, uint32_t i)
{
    const struct disk *d = arg;
    struct xfer_job    j = { .bytes = MIB };
    *(d->write ? &j.src : &j.dst) = d->host;
    *(d->write ? &j.dst : &j.src) = d->file;
    *(d->write ? &j.src_off : &j.dst_off) = (uint64_t)(i % (2 * QD)) * MIB;
    *(d->write ? &j.dst_off : &j.src_off) = (uint64_t)i * MIB;
    return j;
}

/* fio over the same file; GB/s, 0: it is not here or did not run. */
static double fio(const char *path, bool is_write, uint64_t bytes, const char *engine)
{
    char out[600], name[600], size[64], rw[32], ioengine[64];
    snprintf(out, sizeof out, "--output=%s.json", path);
    snprintf(name, sizeof name, "--filename=%s", path);
    snprintf(size, sizeof size, "--size=%llu", (unsigned long long)bytes);
    snprintf(rw, sizeof rw, "--rw=%s", is_write ? "write" : "read");
    snprintf(ioengine, sizeof ioengine, "--ioengine=%s", engine);
    char *argv[] = { "fio",
                     "--name=bench",
                     name,
                     size,
                     rw,
                     ioengine,
                     "--bs=1m",
                     "--iodepth=32",
                     "--direct=1",
                     "--fallocate=none",
                     "--output-format=json",
                     out,
                     NULL };
    pid_t pid;
    int   status;
    if (posix_spawnp(&pid, "fio", NULL, NULL, argv, environ)) return 0;
    if (waitpid(pid, &status, 0) < 0 || status) return 0;
    json_t *all = json_load_file(out + strlen("--output="), 0, NULL);
    double  bw = json_number_value(json_object_get(
         json_object_get(json_array_get(json_object_get(all, "jobs"), 0), is_write ? "write" : "read"), "bw_bytes"));
    json_decref(all);
    unlink(out + strlen("--output="));
    return bw / 1e9;
}

static void bench_disk(void)
{
    if (!wanted("nvme")) return;
    char     path[512];
    uint32_t n = (uint32_t)(o.gib * 1024);
    uint64_t bytes = (uint64_t)n * MIB;
    snprintf(path, sizeof path, "%s/bench_tiers.data", o.dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0) fail(path);
    if (posix_fallocate(fd, 0, (off_t)bytes)) fail(path);
    struct xfer *x = movers(lane_nvme_create(QD, 4, false), false);
    struct disk  d = {
         .host = segment(x, (struct xfer_seg){ .kind = XFER_HOST, .base = take(2 * QD * MIB), .bytes = 2 * QD * MIB }),
         .file = segment(x, (struct xfer_seg){ .kind = XFER_FILE, .fd = fd, .direct = true, .bytes = bytes }),
         .write = true
    };
    run_jobs(x, n, disk_job, &d, now_s); /* the file's extents are written once before anything counts */
    static const char *const engines[] = { "io_uring", "libaio", "psync" };
    const char              *engine = NULL;
    for (int i = 0; i < 3 && !engine; i++)
        if (fio(path, false, bytes, engines[i]) > 0) engine = engines[i];
    if (!engine)
        fprintf(stderr, "bench_tiers: fio is not installed or does not run: the disk's own figures are missing\n");
    double ours[2][RUNS_MAX], theirs[2][RUNS_MAX];
    for (uint32_t r = 0; r < o.runs; r++)
        for (int w = 0; w < 2; w++) {
            d.write = w;
            ours[w][r] = (double)bytes / 1e9 / run_jobs(x, n, disk_job, &d, now_s);
            theirs[w][r] = engine ? fio(path, w, bytes, engine) : 0;
        }
    report("nvme: read 1 MiB, 32 deep, O_DIRECT", median(ours[0], o.runs), "GB/s", "fio", median(theirs[0], o.runs));
    report("nvme: write 1 MiB, 32 deep, O_DIRECT", median(ours[1], o.runs), "GB/s", "fio", median(theirs[1], o.runs));
    xfer_free(x);
    close(fd);
    unlink(path);
}

/* ---- memory */

enum { AREA = 256 * MIB };
struct memory {
    uint32_t         src, dst, bytes;
    enum xfer_digest mode;
};
static struct xfer_job memory_job(void *arg, uint32_t i)
{
    const struct memory *m = arg;
    uint64_t             off = (uint64_t)(i % (AREA / m->bytes)) * m->bytes;
    return (struct xfer_job){
        .src = m->src, .dst = m->dst, .src_off = off, .dst_off = off, .bytes = m->bytes, .digest_mode = m->mode
    };
}

/* In CPU time, the lane pumped by this thread: what its own thread would take of a core. */
static void bench_copy(void)
{
    if (!wanted("dev")) return;
    static const struct {
        uint32_t    bytes;
        const char *plain, *digest;
    } sizes[] = { { 64 << 10, "dev: copy of 64 KiB", "dev: the same with its digest" },
                  { 512 << 10, "dev: copy of 512 KiB", "dev: the same with its digest" },
                  { 9 << 18, "dev: copy of 2.25 MiB", "dev: the same with its digest" } };
    struct xfer   *x = movers(lane_dev_create(), true);
    unsigned char *a = take(AREA), *b = take(AREA);
    uint32_t       dev = segment(x, (struct xfer_seg){ .kind = XFER_DEVICE, .base = a, .bytes = AREA });
    uint32_t       host = segment(x, (struct xfer_seg){ .kind = XFER_HOST, .base = b, .bytes = AREA });
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t n = AREA / sizes[k].bytes;
        double   plain[RUNS_MAX], digest[RUNS_MAX], copy[RUNS_MAX], total = (double)n * sizes[k].bytes / 1e9;
        for (uint32_t r = 0; r < o.runs + 1; r++) { /* the first warms up */
            uint32_t      i = r ? r - 1 : 0;
            struct memory m = { .src = dev, .dst = host, .bytes = sizes[k].bytes };
            plain[i] = total / run_jobs(x, n, memory_job, &m, cpu_s);
            double begin = cpu_s();
            for (uint32_t j = 0; j < n; j++) memcpy(b + (size_t)j * m.bytes, a + (size_t)j * m.bytes, m.bytes);
            copy[i] = total / (cpu_s() - begin);
            m.mode = XFER_DIGEST_MAKE;
            digest[i] = total / run_jobs(x, n, memory_job, &m, cpu_s);
        }
        report(sizes[k].plain, median(plain, o.runs), "GB/s", "memcpy", median(copy, o.runs));
        report(sizes[k].digest, median(digest, o.runs), "GB/s", "memcpy", median(copy, o.runs));
    }
    struct digest_key mac;
    CHECK(digest_key_init(&mac, "sixteen bytes or more", 21, 0) == ST_OK);
    for (int k = 0; k < 2; k++) {
        double            v[RUNS_MAX];
        struct digest_key key = k ? mac : (struct digest_key){ 0 };
        for (uint32_t r = 0; r < o.runs; r++) {
            double   begin = cpu_s();
            uint64_t sum = 0;
            for (uint32_t off = 0; off + sizes[2].bytes <= AREA; off += sizes[2].bytes)
                sum += digest_of(&key, a + off, sizes[2].bytes).lo;
            v[r] = (double)(AREA / sizes[2].bytes * sizes[2].bytes) / 1e9 / (cpu_s() - begin);
            a[sum % 64]++;
        }
        report(k ? "dev: digest alone, HMAC-SHA256" : "dev: digest alone, XXH3-128", median(v, o.runs), "GB/s", NULL,
               0);
    }
    xfer_free(x);
    free(a);
    free(b);
}

/* What a core gives to folders that are encrypted: a record of 2.25 MiB sealed on its way down, opened in place on its
 * way up. */
static void bench_seal(void)
{
    if (!wanted("seal")) return;
    enum { PAYLOAD = 9 << 18, BLOB = KV_RECORD_HEAD + PAYLOAD, N = 64 };
    unsigned char  *in = take(BLOB), *out = take(BLOB), secret[SEAL_SECRET] = { 1 };
    struct sealer  *s;
    struct seal_key k;
    double          down[RUNS_MAX], up[RUNS_MAX], copy[RUNS_MAX];
    CHECK(seal_open(&s) == ST_OK);
    seal_key_make(secret, "header", 6, &k);
    memset(in, 0, KV_RECORD_HEAD);
    for (uint32_t r = 0; r < o.runs; r++) {
        double spent[3] = { 0 };
        for (uint32_t i = 0; i < N; i++) {
            double t0 = cpu_s();
            seal_blob(s, &k, (uint64_t)i * BLOB, in, KV_RECORD_HEAD, BLOB, out);
            double t1 = cpu_s();
            CHECK(seal_blob_open(s, &k, (uint64_t)i * BLOB, out, KV_RECORD_HEAD, BLOB));
            double t2 = cpu_s();
            memcpy(out, in, BLOB);
            spent[0] += t1 - t0;
            spent[1] += t2 - t1;
            spent[2] += cpu_s() - t2;
        }
        down[r] = (double)N * BLOB / 1e9 / spent[0];
        up[r] = (double)N * BLOB / 1e9 / spent[1];
        copy[r] = (double)N * BLOB / 1e9 / spent[2];
    }
    report("seal: AES-256-GCM, 2.25 MiB sealed into a bounce", median(down, o.runs), "GB/s", "memcpy",
           median(copy, o.runs));
    report("seal: the same opened in place", median(up, o.runs), "GB/s", "memcpy", median(copy, o.runs));
    seal_close(s);
    free(in);
    free(out);
}

/* ---- a GPU: through the lane as the tiers use it, beside one copy of all the bytes */

struct gpu {
    uint32_t         dev, host, bytes;
    uint64_t         stride;
    enum dev_way     way;
    enum xfer_digest mode;
};
static struct xfer_job gpu_job(void *arg, uint32_t i)
{
    const struct gpu *g = arg;
    uint64_t          n = AREA / g->bytes, k = i % n;
    struct xfer_job   j = { .bytes = g->bytes,
                            .digest_mode = g->mode,
                            .prio = g->way == DEV_UP ? XFER_LOAD : XFER_STORE };
    *(g->way == DEV_UP ? &j.dst : &j.src) = g->dev;
    *(g->way == DEV_UP ? &j.src : &j.dst) = g->host;
    *(g->way == DEV_UP ? &j.dst_off : &j.src_off) = k * g->bytes;
    *(g->way == DEV_UP ? &j.src_off : &j.dst_off) = k * g->stride + KV_RECORD_HEAD;
    return j;
}
/* GB/s of one command for all of it. */
static double roof(struct device *d, enum dev_way way, void *dev, void *host)
{
    enum { TIMES = 8 };
    struct dev_run r = { dev, host, AREA, AREA, AREA, 1 };
    enum status    st;
    double         begin = now_s();
    for (int i = 0; i < TIMES; i++) dev_copy_begin(d, way, &r, 1);
    for (int i = 0; i < TIMES; i++) {
        while ((st = dev_copy_done(d, way)) == ST_AGAIN) continue;
        CHECK(st == ST_OK);
    }
    return (double)TIMES * AREA / 1e9 / (now_s() - begin);
}

static void bench_gpu(void)
{
    static const struct {
        uint32_t    bytes;
        const char *name[DEV_WAYS][2];
    } sizes[] = {
        { 64 << 10,
          { { "gpu: down, 64 KiB", "gpu: down, 64 KiB, digest" }, { "gpu: up, 64 KiB", "gpu: up, 64 KiB, digest" } } },
        { 512 << 10,
          { { "gpu: down, 512 KiB", "gpu: down, 512 KiB, digest" },
            { "gpu: up, 512 KiB", "gpu: up, 512 KiB, digest" } } },
        { 9 << 18,
          { { "gpu: down, 2.25 MiB", "gpu: down, 2.25 MiB, digest" },
            { "gpu: up, 2.25 MiB", "gpu: up, 2.25 MiB, digest" } } },
    };
    if (!wanted("gpu") || !o.cuda) return;
    struct device *d;
    struct dev_cfg dc = { .kind = DEV_CUDA, .arena_bytes = AREA + 64 * MIB, .n_rank = 1 };
    void          *pool;
    if (dev_open(&dc, &d) || d->ops->alloc(d, AREA, &pool)) exit(EXIT_FAILURE);
    uint64_t       slab_bytes = AREA / sizes[0].bytes * kv_record_bytes(sizes[0].bytes);
    unsigned char *slab =
        mmap(NULL, slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (slab == MAP_FAILED) fail("the slab");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct xfer_ranks ranks = { .n = 1,
                                    .block_bytes = sizes[k].bytes,
                                    .rank = { { .dev = d, .base = pool, .bytes = sizes[k].bytes } } };
        uint32_t          n = 4 * (AREA / sizes[k].bytes);
        struct gpu        g = { .bytes = sizes[k].bytes, .stride = kv_record_bytes(sizes[k].bytes) };
        struct xfer      *x = NULL;
        struct xfer_cfg   c = { .jobs_max = 2048 };
        if (xfer_create(&c, &x) || xfer_lane_add(x, lane_dev_create())) fail("the lane does not start");
        g.dev = segment(x, (struct xfer_seg){ .kind = XFER_DEVICE, .bytes = AREA, .ranks = &ranks });
        g.host = segment(x, (struct xfer_seg){ .kind = XFER_HOST, .base = slab, .bytes = slab_bytes });
        if (xfer_start(x)) fail("the lane does not start");
        for (int way = 0; way < DEV_WAYS; way++) {
            double v[2][RUNS_MAX], all[RUNS_MAX], total = (double)n * sizes[k].bytes / 1e9;
            g.way = (enum dev_way)way;
            for (uint32_t r = 0; r < o.runs + 1; r++) { /* the first warms up */
                uint32_t i = r ? r - 1 : 0;
                for (int digest = 0; digest < 2; digest++) {
                    g.mode = digest ? XFER_DIGEST_MAKE : XFER_DIGEST_NONE;
                    v[digest][i] = total / run_jobs(x, n, gpu_job, &g, now_s);
                }
                all[i] = roof(d, g.way, pool, slab); /* the lane is idle, and nobody else copies */
            }
            for (int digest = 0; digest < 2; digest++)
                report(sizes[k].name[way][digest], median(v[digest], o.runs), "GB/s", "one copy of 256 MiB",
                       median(all, o.runs));
        }
        xfer_seg_drop(x, g.host);
        xfer_free(x);
    }
    munmap(slab, slab_bytes);
    dev_close(d);
}

/* ---- the engine's thread: CPU time per block */

static void bench_post(void)
{
    if (!wanted("post")) return;
    enum { N = 1024, BYTES = 4096 };
    struct xfer   *x = movers(lane_dev_create(), false);
    unsigned char *a = take(AREA);
    struct memory  m = { .src = segment(x, (struct xfer_seg){ .kind = XFER_DEVICE, .base = a, .bytes = AREA }),
                         .dst = segment(x, (struct xfer_seg){ .kind = XFER_HOST, .base = take(AREA), .bytes = AREA }),
                         .bytes = BYTES };
    double         v[RUNS_MAX];
    for (uint32_t r = 0; r < o.runs; r++) {
        double begin = cpu_s(), spent;
        for (uint32_t i = 0; i < N; i++) {
            struct xfer_job j = memory_job(&m, i);
            CHECK(xfer_post(x, &j, NULL) == ST_OK);
        }
        spent = cpu_s() - begin;
        for (uint32_t done = 0; done < N;) {
            struct xfer_done d[16];
            nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
            begin = cpu_s();
            for (uint32_t n; (n = xfer_poll(x, d, 16));) done += n;
            spent += cpu_s() - begin;
        }
        v[r] = spent / N * 1e6;
    }
    report("post: a block posted and its completion taken", median(v, o.runs), "us", NULL, 0);
    xfer_free(x);
}

static void bench_key(void)
{
    if (!wanted("key")) return;
    enum { N = 20000 };
    double        v[RUNS_MAX];
    struct kv_key k = { { 1 } };
    uint32_t      ids[BT] = { 0 };
    for (uint32_t r = 0; r < o.runs; r++) {
        double begin = cpu_s();
        for (uint32_t i = 0; i < N; i++) {
            ids[0] = i;
            k = kv_key_next(&k, ids, BT);
        }
        v[r] = (cpu_s() - begin) / N * 1e6;
    }
    report("key: the key of a block of 16 tokens", median(v, o.runs), "us", NULL, 0);
}

/* ---- a tree of 10^6 blocks: 160 prompts of 100k tokens */

enum {
    PROMPT = 100000,
    PROMPTS = 160,
    BLOCKS = 1010000,
    PAYLOAD = 36864,
    SMALL = 128
}; /* PAYLOAD: of the embedded model */

static void prompt(uint32_t *ids, uint32_t k)
{
    uint32_t x = k * 2654435761u + 1;
    for (uint32_t i = 0; i < PROMPT; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = x >> 15;
    }
}

/* Address space only: a device that nobody has written to. */
static void *zeros(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("address space");
    return p;
}

static uint64_t engine_clock(void) { return clock_us(); }

static void settle(struct kv_tiers *t)
{
    while (kv_tiers_busy(t))
        if (!kv_tiers_turn(t)) nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

static void bench_tree(void)
{
    if (!wanted("tree")) return;
    struct kv       *kv;
    struct kv_tiers *t;
    struct kv_cfg    kc = { .n_block = BLOCKS,
                            .block_tokens = BT,
                            .n_seq_max = 2 + KV_LOADS_MAX + KV_OFFERS_MAX,
                            .seq_tokens_max = 1 << 17,
                            .prefix_cache = true };
    struct xfer     *x = movers(lane_dev_create(), false);
    uint64_t         bytes = (uint64_t)BLOCKS * PAYLOAD;
    struct kv_seq    s;
    struct kv_copy   copy[1];
    uint32_t         n_copy, *ids = take(PROMPT * sizeof *ids);
    if (kv_create(&kc, &kv)) fail("tree");
    for (uint32_t k = 0; k < PROMPTS; k++) {
        n_copy = 0;
        prompt(ids, k);
        CHECK(kv_seq_open(kv, (struct kv_salt){ 0 }, &s) == ST_OK &&
              kv_seq_reserve(kv, &s, PROMPT, copy, &n_copy) == ST_OK);
        kv_seq_commit(kv, &s, ids, PROMPT);
        kv_seq_release(kv, &s);
    }
    char                err[300];
    struct kv_tiers_cfg tc = { .kv = kv,
                               .xfer = x,
                               .dev_seg = segment(
                                   x, (struct xfer_seg){ .kind = XFER_DEVICE, .base = zeros(bytes), .bytes = bytes }),
                               .block_bytes = PAYLOAD,
                               .host_bytes = 512 * MIB,
                               .n_block = BLOCKS,
                               .block_tokens = BT,
                               .seq_tokens_max = 1 << 17,
                               .ident = { .block_tokens = BT, .block_bytes = PAYLOAD },
                               .clock = engine_clock };
    if (kv_tiers_open(&tc, &t, err, sizeof err)) fail(err);

    double peek[RUNS_MAX], all[RUNS_MAX], first[RUNS_MAX], again[RUNS_MAX], offer[RUNS_MAX], seen[RUNS_MAX],
        turn[RUNS_MAX];
    uint32_t runs = o.runs < 21 ? 21 : o.runs;
    for (uint32_t r = 0; r < runs; r++) {
        prompt(ids, (r * 37) % PROMPTS);
        double begin = cpu_s();
        CHECK(kv_peek(kv, (struct kv_salt){ 0 }, ids, PROMPT) == (PROMPT - 1) / BT * BT);
        peek[r] = cpu_s() - begin;
        /* all of it is on the device; then one block more is asked for, twice: the second time the keys are known */
        for (int k = 0; k < 3; k++) {
            struct kv_want   w = { 0 };
            struct kv_cursor c = { 0 };
            uint32_t         n = k ? PROMPT : PROMPT - 2 * BT;
            kv_peek_more(kv, (struct kv_salt){ 0 }, ids, PROMPT - 2 * BT, &c);
            begin = cpu_s();
            CHECK(kv_tiers_ask(t, &w, (struct kv_salt){ 0 }, ids, n, &c, 10));
            double *const of_k[] = { all, first, again };
            of_k[k][r] = cpu_s() - begin;
        }
    }
    report("tree: match of 100k tokens among 10^6 blocks", median(peek, runs) * 1e6, "us", NULL, 0);
    report("tree: tiers asked, all of it on the device", median(all, runs) * 1e6, "us", NULL, 0);
    report("tree: tiers asked, two blocks missing, first time", median(first, runs) * 1e6, "us", NULL, 0);
    report("tree: the same again", median(again, runs) * 1e6, "us", NULL, 0);

    /* A sequence of 100k tokens ends: its blocks are looked at, copied, and looked at again when it ends a second
     * time. */
    for (uint32_t r = 0; r < o.runs; r++)
        for (int k = 0; k < 2; k++) {
            double spent = 0, most = 0;
            prompt(ids, (r * 37 + 5) % PROMPTS);
            CHECK(kv_seq_open(kv, (struct kv_salt){ 0 }, &s) == ST_OK);
            uint32_t n = kv_seq_match(kv, &s, ids, PROMPT);
            double   begin = cpu_s();
            kv_tiers_offer(t, &s, n);
            spent += cpu_s() - begin;
            kv_seq_release(kv, &s);
            while (kv_tiers_busy(t)) { /* a step of the engine between turns */
                begin = cpu_s();
                kv_tiers_turn(t);
                double one = cpu_s() - begin;
                spent += one;
                most = one > most ? one : most;
                nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
            }
            (k ? seen : offer)[r] = spent / (n / BT);
            if (k) turn[r] = most;
        }
    settle(t);
    report("tree: a new block offered, copied and indexed", median(offer, o.runs) * 1e6, "us", NULL, 0);
    report("tree: a block offered that is below already", median(seen, o.runs) * 1e6, "us", NULL, 0);
    report("tree: longest turn of the tiers meanwhile", median(turn, o.runs) * 1e6, "us", NULL, 0);
    kv_tiers_close(t, 0);
    kv_free(kv);
    xfer_free(x);
    free(ids);
}

/* ---- a store of 10^6 records, opened */

enum { RECORDS = 1000000 };

static void make_segments(const struct kv_store_cfg *c, const struct store_geometry *g)
{
    int               dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct store_row *row = take(g->n_record * sizeof *row);
    struct store_keys keys = { .mac = { &c->key }, .n_mac = 1 };
    void             *buffer = take(store_footer_bytes(g));
    uint32_t          id = 0;
    for (uint64_t seq = 1; id < RECORDS; seq++) {
        int      fd, error;
        bool     direct = true;
        uint32_t n = 0;
        for (; n < g->n_record && id < RECORDS; n++) {
            memset(&row[n], 0, sizeof row[n]);
            row[n].index = n;
            row[n].block_tokens = BT;
            struct digest d = digest_of(&c->key, &id, sizeof id); /* as random as a key is */
            memcpy(row[n].key.b, &d, sizeof d);
            memcpy(row[n].key.b + sizeof d, &d, sizeof d);
            id++;
        }
        struct store_form form = { g, &c->fingerprint, c->payload_bytes, c->block_tokens };
        if (store_file_make(dir, seq, &form, &keys, &direct, &fd, &error) ||
            store_footer_write(fd, g, seq, row, n, &keys, buffer, &error))
            fail("segments");
        close(fd);
    }
    close(dir);
    free(row);
    free(buffer);
}

static void remove_segments(const char *path, const struct kv_key *fingerprint)
{
    char name[800], one[32], sub[MODELS_NAME];
    models_name(sub, sizeof sub, fingerprint);
    for (uint64_t seq = 1; seq < 4096; seq++) {
        store_name(one, sizeof one, seq);
        snprintf(name, sizeof name, "%s/%s/%s", path, sub, one);
        unlink(name);
    }
    snprintf(name, sizeof name, "%s/%s/USED", path, sub);
    unlink(name);
    snprintf(name, sizeof name, "%s/%s", path, sub);
    rmdir(name);
    snprintf(name, sizeof name, "%s/LOCK", path);
    unlink(name);
    rmdir(path);
}

static void bench_store(void)
{
    if (!wanted("store")) return;
    char path[512], err[300];
    snprintf(path, sizeof path, "%s/bench_tiers.store", o.dir);
    mkdir(path, 0700);
    struct xfer          *x = movers(lane_nvme_create(QD, 4, false), false);
    struct kv_store_cfg   c = { .dir = path,
                                .segment_bytes = 256 * MIB,
                                .payload_bytes = SMALL,
                                .block_tokens = BT,
                                .fingerprint = { { 7 } },
                                .xfer = x };
    struct store_geometry g = store_geometry(c.payload_bytes, c.segment_bytes);
    c.cap_bytes = (RECORDS / g.n_record + 4) * c.segment_bytes;
    make_segments(&c, &g);
    double v[RUNS_MAX], most[RUNS_MAX];
    for (uint32_t r = 0; r < o.runs; r++) {
        struct kv_store      *s;
        struct kv_store_stats st;
        double                begin = now_s();
        most[r] = 0;
        if (kv_store_open(&c, &s, err, sizeof err)) fail(err);
        for (kv_store_stats(s, &st); st.recovering; kv_store_stats(s, &st)) {
            double t = now_s();
            kv_store_turn(s);
            t = now_s() - t;
            most[r] = t > most[r] ? t : most[r];
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        }
        v[r] = now_s() - begin;
        CHECK(st.n_record == RECORDS);
        kv_store_close(s);
    }
    report("store: 10^6 records known again after an open", median(v, o.runs), "s", NULL, 0);
    report("store: longest turn of the engine meanwhile", median(most, o.runs) * 1e3, "ms", NULL, 0);
    xfer_free(x);
    remove_segments(path, &c.fingerprint);
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: bench_tiers [--dir DIR] [--gib N] [--runs N] [--only nvme|dev|seal|post|key|tree|store] [--json]\n"
        "  --dir DIR      folder on the disk to be measured (default: here); needs --gib and 9 GiB for the store's million records\n"
        "  --gib N        size of the file that is read and written (default 1)\n"
        "  --runs N       runs of each, alternating with what it is held against; medians are printed (default 5)\n"
        "  --only NAME    one part of it\n"
        "  --device cuda  blocks between host memory and the first GPU too\n"
        "  --json         one JSON array instead of the table\n"
        "fio, where it is installed, reads and writes the same file in the same run.\n";
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--help")) return fputs(usage, stdout) < 0;
        if (!strcmp(argv[i], "--json")) {
            o.json = true;
            continue;
        }
        if (v && !strcmp(argv[i], "--dir"))
            o.dir = v;
        else if (v && !strcmp(argv[i], "--gib"))
            o.gib = strtod(v, NULL);
        else if (v && !strcmp(argv[i], "--runs"))
            o.runs = (uint32_t)strtoul(v, NULL, 10);
        else if (v && !strcmp(argv[i], "--only"))
            o.only = v;
        else if (v && !strcmp(argv[i], "--device") && !strcmp(v, "cuda"))
            o.cuda = true;
        else {
            fputs(usage, stderr);
            return 64;
        }
        i++;
    }
    if (o.runs < 1 || o.runs > RUNS_MAX || o.gib < 0.125 || o.gib > 64) {
        fputs(usage, stderr);
        return 64;
    }
    bench_disk();
    bench_copy();
    bench_gpu();
    bench_seal();
    bench_post();
    bench_key();
    bench_tree();
    bench_store();
    if (o.json) print_json();
    return 0;
}
