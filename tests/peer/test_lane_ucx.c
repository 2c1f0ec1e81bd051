/* The lane to peers: two processes, over tcp and over shared memory. The child lends a slab; the parent pulls from it.
 * Over 500 lines: the tests share the child process that lends and the protocol with it. */
#include "base/clock.h"
#include "test.h"
#include "transfer/lane.h"
#include "transfer/peer/lane_ucx.h"
#include "transfer/peer/room.h"
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RECORD = 300000, RECORDS = 16, SLAB = RECORD * RECORDS };

/* Whether slabs are sealed, as those of servers are: only such a one is mapped by a peer on the same machine. */
static bool sealed;

static const unsigned char good_key[PWIRE_SECRET] = "the key of both", other_key[PWIRE_SECRET] = "another key";

static bool have_ucx(enum peer_transport t)
{
    struct lane_ucx_cfg cfg = { .transport = t };
    struct xfer        *x = NULL;
    struct xfer_lane   *lane;
    struct peer_net    *net;
    char                err[300];
    if (lane_ucx_create(&cfg, &lane, &net, err, sizeof err)) {
        print_message("no UCX here: %s\n", err);
        return false;
    }
    assert_int_equal(xfer_create(&(struct xfer_cfg){ .jobs_max = 4 }, &x), ST_OK);
    assert_int_equal(xfer_lane_add(x, lane), ST_OK);
    xfer_free(x);
    return true;
}

/* ---- a server */

static unsigned char content(uint32_t record, uint32_t at, unsigned char salt)
{
    return (unsigned char)(record * 31 + at * 7 + (at >> 8) + salt);
}

struct end {
    struct xfer     *x;
    struct peer_net *net;
    uint32_t         seg;
    unsigned char   *slab;
    int              fd;
};

static void open_end(struct end *e, const char *listen_at, const char *peer, const unsigned char *key,
                     enum peer_transport t, unsigned char kind)
{
    struct lane_ucx_cfg cfg = {
        .transport = t, .listen = listen_at, .peer = &peer, .n_peer = peer != NULL, .names_ms = 50
    };
    struct xfer_lane *lane;
    char              err[300];
    memcpy(cfg.secret, key, PWIRE_SECRET);
    if (lane_ucx_create(&cfg, &lane, &e->net, err, sizeof err)) fail_msg("%s", err);
    assert_int_equal(xfer_create(&(struct xfer_cfg){ .jobs_max = 64 }, &e->x), ST_OK);
    assert_int_equal(xfer_lane_add(e->x, lane), ST_OK);
    assert_int_equal(xfer_start(e->x), ST_OK);
    e->fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(e->fd, SLAB), 0);
    if (sealed) assert_int_equal(fcntl(e->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    e->slab = mmap(NULL, SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
    struct xfer_seg seg = { .kind = XFER_HOST, .base = e->slab, .fd = e->fd, .bytes = SLAB, .lent = true };
    assert_int_equal(xfer_seg_add(e->x, &seg, &e->seg), ST_OK);
    struct peer_note n = { .type = PEER_IDENT, .record_bytes = RECORD };
    n.fingerprint.b[0] = kind;
    assert_true(e->net->ops->send(e->net, &n));
}

static void close_end(struct end *e)
{
    xfer_seg_drop(e->x, e->seg);
    xfer_free(e->x);
    munmap(e->slab, SLAB);
    close(e->fd);
}

/* Serves until it is killed: it has every key whose first byte is the number of a record. */
static void serve(int tell, const char *at, enum peer_transport t, unsigned char salt, unsigned char kind)
{
    struct end              e;
    static struct peer_note in, out;
    open_end(&e, at, NULL, good_key, t, kind);
    for (uint32_t r = 0; r < RECORDS; r++)
        for (uint32_t i = 0; i < RECORD; i++) e.slab[r * RECORD + i] = content(r, i, salt);
    uint32_t port = lane_ucx_port(e.net);
    if (write(tell, &port, sizeof port) != sizeof port) _exit(2);
    for (;;) {
        if (!e.net->ops->recv(e.net, &in)) {
            usleep(200);
            continue;
        }
        if (in.type != PEER_ASKED) continue;
        out.type = PEER_ANSWER;
        out.peer = in.peer;
        out.epoch = in.epoch;
        out.lease = in.lease;
        out.lease_ms = 10000;
        out.n = in.n;
        for (uint32_t i = 0; i < in.n; i++)
            out.where[i] = (struct pwire_where){ .found = in.key[i].b[0] < RECORDS, .slot = in.key[i].b[0] };
        (void)e.net->ops->send(e.net, &out);
    }
}

/* A process of its own from the start: UCX has threads, which a fork would leave behind. */
static pid_t start(const char *at, enum peer_transport t, unsigned char salt, unsigned char kind, uint32_t *port_out)
{
    int  pipe_of[2];
    char tell[16], how[16], with[16], of[16];
    assert_int_equal(pipe(pipe_of), 0);
    snprintf(tell, sizeof tell, "%d", pipe_of[1]);
    snprintf(how, sizeof how, "%d", t);
    snprintf(with, sizeof with, "%d", salt);
    snprintf(of, sizeof of, "%d", kind);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setpgid(0, 0); /* with its room */
        execl("/proc/self/exe", "test_lane_ucx", "serve", tell, at, how, with, of, sealed ? "1" : "0", (char *)NULL);
        _exit(127);
    }
    close(pipe_of[1]);
    assert_int_equal(read(pipe_of[0], port_out, sizeof *port_out), sizeof *port_out);
    close(pipe_of[0]);
    return child;
}

static void end(pid_t child)
{
    int status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

/* ---- the one that asks */

static struct peer_note heard;

static bool hears(struct end *e, enum peer_note_type type, uint32_t ms)
{
    for (uint64_t until = clock_us() + ms * 1000u; clock_us() < until; usleep(200))
        while (e->net->ops->recv(e->net, &heard))
            if (heard.type == type) return true;
    return false;
}

static uint32_t add_peer(struct end *e)
{
    uint32_t        seg;
    struct xfer_seg s = { .kind = XFER_REMOTE, .fd = (int)heard.peer, .epoch = heard.epoch, .bytes = heard.bytes };
    assert_int_equal(heard.bytes, SLAB);
    assert_int_equal(xfer_seg_add(e->x, &s, &seg), ST_OK);
    return seg;
}

static void post(struct end *e, uint32_t seg, uint32_t record)
{
    struct xfer_job j = { .src = seg,
                          .dst = e->seg,
                          .src_off = record * RECORD,
                          .dst_off = record * RECORD,
                          .bytes = RECORD,
                          .prio = XFER_LOAD,
                          .cookie = record };
    assert_int_equal(xfer_post(e->x, &j, NULL), ST_OK);
}

/* Waits for n of them; those that came are what the peer holds. Returns how many did. */
static uint32_t collect(struct end *e, uint32_t n, unsigned char salt, uint64_t *us_out)
{
    uint32_t ok = 0;
    uint64_t begin = clock_us();
    for (uint32_t k = 0; k < n;) {
        struct xfer_done d;
        assert_true(clock_us() < begin + 10000000);
        if (!xfer_poll(e->x, &d, 1)) {
            usleep(100);
            continue;
        }
        k++;
        if (d.st) {
            assert_int_equal(d.st, ST_PEER_LOST);
            continue;
        }
        ok++;
        for (uint32_t i = 0; i < RECORD; i++)
            assert_int_equal(e->slab[d.cookie * RECORD + i], content((uint32_t)d.cookie, i, salt));
    }
    if (us_out) *us_out = clock_us() - begin;
    return ok;
}

static void pull_all(struct end *e, uint32_t seg, unsigned char salt)
{
    memset(e->slab, 0xee, SLAB);
    for (uint32_t r = 0; r < RECORDS; r++) post(e, seg, r);
    assert_int_equal(collect(e, RECORDS, salt, NULL), RECORDS);
}

static void ask(struct end *e, uint64_t lease)
{
    static struct peer_note n;
    n = (struct peer_note){ .type = PEER_ASK, .peer = heard.peer, .epoch = heard.epoch, .lease = lease, .n = 3 };
    for (uint32_t i = 0; i < 3; i++) memset(&n.key[i], 0, sizeof n.key[i]);
    n.key[0].b[0] = 5;
    n.key[1].b[0] = 200;
    n.key[2].b[0] = 6;
    assert_true(e->net->ops->send(e->net, &n));
    assert_true(hears(e, PEER_ANSWERED, 5000));
    assert_int_equal(heard.lease, lease);
    assert_int_equal(heard.n, 3);
    assert_true(heard.where[0].found && !heard.where[1].found && heard.where[2].found);
    assert_int_equal(heard.where[2].slot, 6);
}

/* A peer that is up, as a segment of e. */
static uint32_t meet(struct end *e, enum peer_transport t, char at[64], pid_t *child_out)
{
    uint32_t port;
    *child_out = start("127.0.0.1:0", t, 1, 1, &port);
    snprintf(at, 64, "127.0.0.1:%u", port);
    open_end(e, NULL, at, good_key, t, 1);
    assert_true(hears(e, PEER_UP, 10000));
    return add_peer(e);
}

static void stops_and_goes_on(enum peer_transport t)
{
    if (!have_ucx(t)) skip();
    struct end e;
    char       at[64];
    uint64_t   us;
    pid_t      child;
    uint32_t   seg = meet(&e, t, at, &child);
    ask(&e, 77);
    for (int i = 0; i < 3; i++) pull_all(&e, seg, 1);
    kill(-child, SIGSTOP); /* it lives, and says nothing: GETs end all the same */
    for (uint32_t r = 0; r < RECORDS; r++) post(&e, seg, r);
    collect(&e, RECORDS, 1, &us);
    assert_true(us < 4000000); /* 2 s, and what a busy machine adds */
    assert_true(hears(&e, PEER_DOWN, 5000));
    post(&e, seg, 0); /* of a connection that is no more */
    assert_int_equal(collect(&e, 1, 1, NULL), 0);
    xfer_seg_drop(e.x, seg);
    kill(-child, SIGCONT);
    assert_true(hears(&e, PEER_UP, 15000)); /* used again, without a restart */
    pull_all(&e, add_peer(&e), 1);
    close_end(&e);
    end(child);
}

static void is_killed(enum peer_transport t)
{
    if (!have_ucx(t)) skip();
    struct end e;
    char       at[64];
    pid_t      child;
    uint32_t   seg = meet(&e, t, at, &child);
    pull_all(&e, seg, 1);
    for (uint32_t r = 0; r < RECORDS; r++) post(&e, seg, r);
    end(child);                    /* with GETs out */
    collect(&e, RECORDS, 1, NULL); /* which end; those that came are whole */
    assert_true(hears(&e, PEER_DOWN, 3000));
    close_end(&e);
}

/* Another process with other bytes at the same address: no handle of the first one reads them. */
static void starts_again_at_its_address(enum peer_transport t)
{
    if (!have_ucx(t)) skip();
    struct end e;
    uint32_t   port;
    char       at[64];
    pid_t      child;
    uint32_t   seg = meet(&e, t, at, &child);
    pull_all(&e, seg, 1);
    end(child);
    assert_true(hears(&e, PEER_DOWN, 3000));
    child = start(at, t, 9, 1, &port);
    assert_true(hears(&e, PEER_UP, 15000));
    post(&e, seg, 3);
    assert_int_equal(collect(&e, 1, 1, NULL), 0);
    xfer_seg_drop(e.x, seg);
    pull_all(&e, add_peer(&e), 9);
    close_end(&e);
    end(child);
}

static void G1_a_peer_over_tcp_is_killed(void **state)
{
    (void)state;
    is_killed(PEER_TCP);
}
static void G1_a_peer_over_shared_memory_is_killed(void **state)
{
    (void)state;
    is_killed(PEER_SHM);
}
static void G1_a_peer_whose_memory_is_mapped_is_killed(void **state)
{
    (void)state;
    sealed = true;
    is_killed(PEER_SHM);
    sealed = false;
}
static void G2_a_peer_over_tcp_stops_and_goes_on(void **state)
{
    (void)state;
    stops_and_goes_on(PEER_TCP);
}
static void G2_a_peer_over_shared_memory_stops_and_goes_on(void **state)
{
    (void)state;
    stops_and_goes_on(PEER_SHM);
}
static void G2_a_peer_whose_memory_is_mapped_stops_and_goes_on(void **state)
{
    (void)state;
    sealed = true;
    stops_and_goes_on(PEER_SHM);
    sealed = false;
}
static void G3_a_peer_over_tcp_starts_again_at_its_address(void **state)
{
    (void)state;
    starts_again_at_its_address(PEER_TCP);
}
static void G3_a_peer_over_shared_memory_starts_again_at_its_address(void **state)
{
    (void)state;
    starts_again_at_its_address(PEER_SHM);
}
static void G3_a_peer_whose_memory_is_mapped_starts_again_at_its_address(void **state)
{
    (void)state;
    sealed = true;
    starts_again_at_its_address(PEER_SHM);
    sealed = false;
}

/* What ends the process of UCX ends no server: the other one is connected again. */
static void G17_the_room_of_a_peer_dies_and_another_one_serves(void **state)
{
    (void)state;
    if (!have_ucx(PEER_TCP)) skip();
    struct end e;
    uint32_t   port;
    char       at[64], command[64];
    pid_t      child = start("127.0.0.1:0", PEER_TCP, 1, 1, &port);
    snprintf(at, sizeof at, "127.0.0.1:%u", port);
    snprintf(command, sizeof command, "pkill -ABRT -P %d", child);
    open_end(&e, NULL, at, good_key, PEER_TCP, 1);
    for (int i = 0; i < 2; i++) {
        assert_true(hears(&e, PEER_UP, 10000));
        uint32_t seg = add_peer(&e);
        pull_all(&e, seg, 1);
        assert_int_equal(system(command), 0); /* its only child is its room */
        assert_true(hears(&e, PEER_DOWN, 5000));
        xfer_seg_drop(e.x, seg);
    }
    assert_true(hears(&e, PEER_UP, 10000));
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    snprintf(command, sizeof command, "pkill -ABRT -P %d -f peer-room", getpid());
    (void)system(command); /* and the own one */
    assert_true(hears(&e, PEER_DOWN, 5000));
    assert_true(hears(&e, PEER_UP, 10000));
    uint32_t seg = add_peer(&e);
    pull_all(&e, seg, 1);
    close_end(&e);
    end(child);
}

/* The room of a server that a test started: its only child. */
static pid_t room_of(pid_t server)
{
    char path[64];
    int  room = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", server, server);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &room), 1);
    fclose(f);
    return room;
}

static uint32_t open_files(pid_t p)
{
    char     path[64];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", p);
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static uint64_t resident_kib(pid_t p)
{
    char               path[64];
    unsigned long long all, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", p);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu", &all, &resident), 2);
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* PEER_CHURN: how many. They read and go; what the lender has open is what it had before. */
static void G15_peers_that_come_and_go_leave_nothing(void **state)
{
    (void)state;
    if (!have_ucx(PEER_TCP)) skip();
    const char *many = getenv("PEER_CHURN");
    uint32_t    n = many ? (uint32_t)strtoul(many, NULL, 10) : 24, port, few = n / 4, files = 0;
    uint64_t    kib = 0;
    char        at[64];
    pid_t       child = start("127.0.0.1:0", PEER_TCP, 1, 1, &port);
    snprintf(at, sizeof at, "127.0.0.1:%u", port);
    for (uint32_t i = 0; i < n; i++) {
        struct end e;
        open_end(&e, NULL, at, good_key, PEER_TCP, 1);
        assert_true(hears(&e, PEER_UP, 10000));
        uint32_t seg = add_peer(&e);
        pull_all(&e, seg, 1);
        xfer_seg_drop(e.x, seg);
        close_end(&e);
        if (i != few) continue; /* by then it has what it keeps for ever */
        usleep(300000);
        files = open_files(room_of(child));
        kib = resident_kib(room_of(child));
    }
    pid_t room = room_of(child);
    for (uint64_t until = clock_us() + 10000000; open_files(room) > files + 4; usleep(10000))
        if (clock_us() > until) fail_msg("%u files are open, %u were after %u peers", open_files(room), files, few);
    print_message("%u peers: %u files, %u before; %llu KiB, %llu before\n", n, open_files(room), files,
                  (unsigned long long)resident_kib(room), (unsigned long long)kib);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep what was freed, and records of it */
    assert_true(resident_kib(room) < kib + 2048 + (uint64_t)16 * n);
#endif
    end(child);
}

static void G12_a_peer_with_another_key_or_model_gets_nothing(void **state)
{
    (void)state;
    if (!have_ucx(PEER_TCP)) skip();
    struct end e;
    uint32_t   port;
    char       at[64];
    pid_t      child = start("127.0.0.1:0", PEER_TCP, 1, 1, &port);
    snprintf(at, sizeof at, "127.0.0.1:%u", port);
    open_end(&e, NULL, at, other_key, PEER_TCP, 1);
    assert_false(hears(&e, PEER_UP, 1500));
    close_end(&e);
    open_end(&e, NULL, at, good_key, PEER_TCP, 2); /* blocks of another model */
    assert_false(hears(&e, PEER_UP, 1500));
    close_end(&e);
    open_end(&e, NULL, at, good_key, PEER_TCP, 1);
    assert_true(hears(&e, PEER_UP, 10000));
    close_end(&e);
    end(child);
}

static void send_garbage(uint32_t port, uint32_t seed, size_t n)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int                fd = socket(AF_INET, SOCK_STREAM, 0);
    unsigned char      b[4096];
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    for (size_t i = 0; i < sizeof b; i++) b[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 13);
    if (seed % 3 == 0) memcpy(b, "SPVP\1\0\1\0\60\0\0\0", 12); /* begins as a greeting does */
    if (seed % 3 == 1) memcpy(b, "SPVP\1\0\5\0\377\377\377\377", 12);
    (void)!send(fd, b, n < sizeof b ? n : sizeof b, MSG_NOSIGNAL);
    close(fd);
}

static void G11_garbage_on_the_port_harms_nobody(void **state)
{
    (void)state;
    if (!have_ucx(PEER_TCP)) skip();
    struct end e;
    uint32_t   port;
    char       at[64];
    pid_t      child = start("127.0.0.1:0", PEER_TCP, 1, 1, &port);
    snprintf(at, sizeof at, "127.0.0.1:%u", port);
    open_end(&e, NULL, at, good_key, PEER_TCP, 1);
    assert_true(hears(&e, PEER_UP, 10000));
    uint32_t seg = add_peer(&e);
    for (uint32_t i = 0; i < 200; i++) send_garbage(port, i, 1 + i * 37 % 4096);
    pull_all(&e, seg, 1);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    close_end(&e);
    end(child);
}

/* What this machine has no hardware for is said in one line, and nothing else is taken instead. */
static void G16_a_transport_that_is_absent_is_an_error(void **state)
{
    (void)state;
    struct lane_ucx_cfg cfg = { .transport = PEER_RDMA };
    struct xfer_lane   *lane;
    struct peer_net    *net;
    char                err[300];
    if (!have_ucx(PEER_TCP) || access("/sys/class/infiniband", F_OK) == 0) skip();
    assert_int_equal(lane_ucx_create(&cfg, &lane, &net, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "rdma"));
    assert_null(strchr(err, '\n'));
    cfg = (struct lane_ucx_cfg){ .listen = "127.0.0.1" };
    assert_int_equal(lane_ucx_create(&cfg, &lane, &net, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "ADDRESS:PORT"));
}

int main(int n_arg, char **arg)
{
    int code;
    if (room_main(n_arg, arg, &code)) return code;
    if (n_arg == 8 && !strcmp(arg[1], "serve")) {
        sealed = *arg[7] == '1';
        alarm(getenv("PEER_CHURN") ? 7200 : 60); /* whatever becomes of the test */
        serve(atoi(arg[2]), arg[3], (enum peer_transport)atoi(arg[4]), (unsigned char)atoi(arg[5]),
              (unsigned char)atoi(arg[6]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G1_a_peer_over_tcp_is_killed),
        cmocka_unit_test(G1_a_peer_over_shared_memory_is_killed),
        cmocka_unit_test(G1_a_peer_whose_memory_is_mapped_is_killed),
        cmocka_unit_test(G2_a_peer_over_tcp_stops_and_goes_on),
        cmocka_unit_test(G2_a_peer_over_shared_memory_stops_and_goes_on),
        cmocka_unit_test(G2_a_peer_whose_memory_is_mapped_stops_and_goes_on),
        cmocka_unit_test(G3_a_peer_over_tcp_starts_again_at_its_address),
        cmocka_unit_test(G3_a_peer_over_shared_memory_starts_again_at_its_address),
        cmocka_unit_test(G3_a_peer_whose_memory_is_mapped_starts_again_at_its_address),
        cmocka_unit_test(G15_peers_that_come_and_go_leave_nothing),
        cmocka_unit_test(G17_the_room_of_a_peer_dies_and_another_one_serves),
        cmocka_unit_test(G12_a_peer_with_another_key_or_model_gets_nothing),
        cmocka_unit_test(G11_garbage_on_the_port_harms_nobody),
        cmocka_unit_test(G16_a_transport_that_is_absent_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
