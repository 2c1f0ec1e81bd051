/* bench_ucx: what the lane to peers moves, beside ucx_perftest of the same UCX in the same run.
 *   bench_ucx [--transport tcp|shm] [--kib 256] [--mib 1024] [--runs 5] [--slots 1]
 * A second process lends a slab on loopback; records of so many KiB are pulled from it, as many at a time as the lane
 * is deep. ucx_perftest (package ucx-utils) does the same by ucp_get, from and to one buffer, as the lane does with one
 * slot. That buffer stays in the caches of the cores. With --slots 0 the lane goes through all of the slab, as blocks
 * do, and ucx_perftest gets a message as long as the slab, so that neither finds its bytes in a cache. The two take
 * turns with a memcpy of the same records in one thread; every figure is a median, and shares are medians of rounds.
 * Over shm, chrt -f 5 keeps other programs out. */
#include "base/check.h"
#include "base/clock.h"
#include "transfer/lane.h"
#include "transfer/peer/lane_ucx.h"
#include "transfer/peer/room.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLAB_MIB = 256, RUNS_MAX = 101, PORT = 13977, JOBS = 64 };

static struct {
    enum peer_transport transport;
    uint32_t            kib, mib, runs, slots;
} o = { .kib = 256, .mib = 1024, .runs = 5, .slots = 1 };

struct end {
    struct xfer     *x;
    struct peer_net *net;
    uint32_t         seg;
};

static void open_end(struct end *e, const char *listen_at, const char *peer)
{
    struct lane_ucx_cfg cfg = { .transport = o.transport, .listen = listen_at, .peer = &peer, .n_peer = peer != NULL };
    struct xfer_lane   *lane;
    char                err[300];
    if (lane_ucx_create(&cfg, &lane, &e->net, err, sizeof err)) {
        fprintf(stderr, "bench_ucx: %s\n", err);
        exit(EXIT_CONFIG);
    }
    CHECK(!xfer_create(&(struct xfer_cfg){ .jobs_max = JOBS }, &e->x));
    CHECK(!xfer_lane_add(e->x, lane));
    CHECK(!xfer_start(e->x));
    int    fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t bytes = (size_t)SLAB_MIB << 20;
    CHECK(fd >= 0 && !ftruncate(fd, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    unsigned char *slab = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    CHECK(slab != MAP_FAILED);
    memset(slab, 1, bytes);
    struct xfer_seg seg = { .kind = XFER_HOST, .base = slab, .fd = fd, .bytes = bytes, .lent = true };
    CHECK(!xfer_seg_add(e->x, &seg, &e->seg));
    struct peer_note n = { .type = PEER_IDENT, .record_bytes = 1 };
    CHECK(e->net->ops->send(e->net, &n));
}

/* out: a file for what it says; NULL: nobody reads it. */
static pid_t spawn(char *const arg[], const char *out)
{
    extern char              **environ;
    posix_spawn_file_actions_t files;
    pid_t                      pid;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, out ? out : "/dev/null", O_WRONLY | O_TRUNC, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, arg[0], &files, NULL, arg, environ)) pid = -1;
    posix_spawn_file_actions_destroy(&files);
    return pid;
}

static void end(pid_t pid)
{
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* MB/s of one round of the lane. */
static double pull(struct end *e, uint32_t from)
{
    uint64_t bytes = (uint64_t)o.kib << 10, n = ((uint64_t)o.mib << 20) / bytes,
             most = ((uint64_t)SLAB_MIB << 20) / bytes, slots = o.slots && o.slots < most ? o.slots : most;
    uint64_t posted = 0, done = 0, begin = clock_us();
    while (done < n) {
        struct xfer_done d[32];
        struct xfer_job  j = { .src = from,
                               .dst = e->seg,
                               .src_off = posted % slots * bytes,
                               .dst_off = posted % slots * bytes,
                               .bytes = (uint32_t)bytes };
        while (posted < n && posted - done < JOBS && !xfer_post(e->x, &j, NULL)) {
            posted++;
            j.src_off = j.dst_off = posted % slots * bytes;
        }
        uint32_t k = xfer_poll(e->x, d, 32);
        for (uint32_t i = 0; i < k; i++) CHECK(d[i].st == ST_OK);
        done += k;
        if (k || !xfer_arm(e->x)) continue;
        struct pollfd wake = { .fd = xfer_fd(e->x), .events = POLLIN };
        (void)poll(&wake, 1, 1000);
        xfer_ack(e->x);
    }
    return (double)(n * bytes) / (double)(clock_us() - begin);
}

/* MB/s of a memcpy of the same records from one slab to another, in this thread. */
static double copy(void)
{
    static unsigned char *from, *to;
    size_t                slab = (size_t)SLAB_MIB << 20, bytes = (size_t)o.kib << 10, slots = slab / bytes;
    uint64_t              n = ((uint64_t)o.mib << 20) / bytes;
    if (o.slots && o.slots < slots) slots = o.slots;
    if (!from) {
        from = malloc(slab);
        to = malloc(slab);
        CHECK(from && to);
        memset(from, 1, slab);
        memset(to, 2, slab);
    }
    uint64_t begin = clock_us();
    for (uint64_t i = 0; i < n; i++) memcpy(to + i % slots * bytes, from + i % slots * bytes, bytes);
    return (double)(n * bytes) / (double)(clock_us() - begin);
}

/* MB/s as ucx_perftest says it; 0: it is not here. */
static double perftest(void)
{
    char port[16], size[16], count[16], line[512], said[] = "/tmp/bench_ucx-XXXXXX", program[] = "ucx_perftest";
    char p[] = "-p", t[] = "-t", get[] = "ucp_get", sz[] = "-s", nn[] = "-n", at[] = "127.0.0.1", deep[] = "-O",
         d[] = "32", f[] = "-f";
    char *const serve[] = { program, p, port, t, get, NULL };
    char *const ask[] = { program, at, p, port, t, get, sz, size, nn, count, deep, d, f, NULL };
    setenv("UCX_TLS", o.transport == PEER_SHM ? "posix" : "tcp", 1);
    if (o.transport == PEER_TCP) setenv("UCX_NET_DEVICES", "lo", 1);
    snprintf(port, sizeof port, "%d", PORT);
    uint32_t kib = o.slots ? o.kib : SLAB_MIB << 10;
    snprintf(size, sizeof size, "%llu", (unsigned long long)kib << 10);
    snprintf(count, sizeof count, "%u", (o.mib << 10) / kib);
    int fd = mkstemp(said);
    CHECK(fd >= 0);
    pid_t server = spawn(serve, NULL);
    usleep(700000);
    pid_t client = spawn(ask, said);
    if (client > 0) waitpid(client, NULL, 0);
    end(server);
    FILE  *text = fdopen(fd, "r");
    double v[8], rate = 0;
    while (text && fgets(line, sizeof line, text))
        if (sscanf(line, "%lf %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, v + 4, v + 5) == 6) rate = v[5] * 1.048576;
    if (text) fclose(text);
    unlink(said);
    unsetenv("UCX_TLS");
    unsetenv("UCX_NET_DEVICES");
    return rate;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void say(const char *what, double v[RUNS_MAX])
{
    qsort(v, o.runs, sizeof *v, by_size);
    printf("  %-22s %.0f (%.0f .. %.0f)\n", what, v[o.runs / 2], v[0], v[o.runs - 1]);
}

static void lend(char **arg)
{
    struct end e;
    o.transport = (enum peer_transport)(arg[3][0] - '0');
    open_end(&e, arg[2], NULL);
    for (;;) pause();
}

int main(int n_arg, char **arg)
{
    int code;
    if (room_main(n_arg, arg, &code)) return code;
    if (n_arg == 4 && !strcmp(arg[1], "lend")) lend(arg);
    for (int i = 1; i + 1 < n_arg; i += 2) {
        if (!strcmp(arg[i], "--transport")) o.transport = !strcmp(arg[i + 1], "shm") ? PEER_SHM : PEER_TCP;
        if (!strcmp(arg[i], "--kib")) o.kib = (uint32_t)strtoul(arg[i + 1], NULL, 10);
        if (!strcmp(arg[i], "--mib")) o.mib = (uint32_t)strtoul(arg[i + 1], NULL, 10);
        if (!strcmp(arg[i], "--slots")) o.slots = (uint32_t)strtoul(arg[i + 1], NULL, 10);
        if (!strcmp(arg[i], "--runs")) o.runs = (uint32_t)strtoul(arg[i + 1], NULL, 10);
    }
    if (!o.kib || !o.runs || o.runs > RUNS_MAX || o.kib > SLAB_MIB << 10) return EXIT_USAGE;
    if (!o.slots && o.mib < SLAB_MIB) return EXIT_USAGE; /* ucx_perftest gets whole slabs */
    if (o.transport == PEER_TCP && sched_getscheduler(0) == SCHED_FIFO) {
        /* The two programs poll, and on two CPUs their own threads for connections would never run. */
        fprintf(stderr, "bench_ucx: ucx_perftest over tcp does not end under chrt\n");
        return EXIT_USAGE;
    }
    char              at[32], how[2] = { (char)('0' + o.transport), 0 };
    struct end        e;
    struct peer_note *n = malloc(sizeof *n);
    snprintf(at, sizeof at, "127.0.0.1:%d", PORT + 1);
    char *const lender[] = { "/proc/self/exe", "lend", at, how, NULL };
    pid_t       other = spawn(lender, NULL);
    CHECK(other > 0 && n);
    open_end(&e, NULL, at);
    do {
        while (!e.net->ops->recv(e.net, n)) usleep(1000);
    } while (n->type != PEER_UP);
    struct xfer_seg there = { .kind = XFER_REMOTE, .fd = (int)n->peer, .epoch = n->epoch, .bytes = n->bytes };
    uint32_t        from;
    CHECK(!xfer_seg_add(e.x, &there, &from));
    double mine[RUNS_MAX], theirs[RUNS_MAX], plain[RUNS_MAX], share[RUNS_MAX];
    pull(&e, from); /* the first one connects */
    for (uint32_t r = 0; r < o.runs; r++) {
        mine[r] = pull(&e, from);
        theirs[r] = perftest();
        plain[r] = copy();
        share[r] = theirs[r] > 0 ? mine[r] / theirs[r] : 0;
    }
    printf("%s, GETs of %u KiB, %s, %u runs of %u MiB, MB/s:\n", peer_transport_name[o.transport], o.kib,
           o.slots ? "one buffer" : "a slab of 256 MiB", o.runs, o.mib);
    say("the lane", mine);
    say("ucx_perftest ucp_get", theirs);
    say("memcpy", plain);
    qsort(share, o.runs, sizeof *share, by_size);
    printf("  lane / ucx_perftest by rounds: %.2f (%.2f .. %.2f)\n", share[o.runs / 2], share[0], share[o.runs - 1]);
    xfer_seg_drop(e.x, from);
    xfer_seg_drop(e.x, e.seg);
    xfer_free(e.x);
    free(n);
    end(other);
    return 0;
}
