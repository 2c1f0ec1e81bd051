/* bench_object: the lane of objects beside curl, in the same run and turn by turn.
 *   bench_object URL ENDPOINT [MIB [ROUNDS]]       s3://bucket/prefix http://127.0.0.1:9000 64 9
 * Puts an object of MIB (64), by parts, then ROUNDS (9) times: curl's own program gets it to /dev/null, and the lane
 * gets it into memory, without and with a check of its digest. The last line is the median of the lane's share of
 * curl. */
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "transfer/lanes.h"
#include "transfer/object/object.h"
#include "transfer/xfer.h"
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS_MAX = 99 };
static const char NAME[] = "bench-object";

struct bench {
    struct object_store *store;
    struct xfer         *x;
    struct xfer_objects  names;
    unsigned char       *sent, *got;
    uint64_t             bytes;
    uint32_t             far, near;
    struct digest        digest;
    char                 url[1024];
};

static int fail(const char *what)
{
    fprintf(stderr, "bench_object: %s\n", what);
    return 1;
}

static void name_of(const struct xfer_objects *o, uint64_t object, char *name_out)
{
    (void)o;
    (void)object;
    snprintf(name_out, XFER_OBJECT_NAME, "%s", NAME);
}

static bool open_lane(struct bench *b)
{
    struct xfer_cfg xc = { .jobs_max = 8 };
    b->names.name = name_of;
    struct xfer_seg far = { .kind = XFER_OBJECT, .bytes = b->bytes, .objects = &b->names };
    struct xfer_seg near = { .kind = XFER_HOST, .base = b->got, .bytes = b->bytes };
    return !xfer_create(&xc, &b->x) && !xfer_lane_add(b->x, lane_object_create(b->store)) &&
           !xfer_seg_add(b->x, &far, &b->far) && !xfer_seg_add(b->x, &near, &b->near) && !xfer_start(b->x);
}

/* MB/s; 0: it failed. */
static double by_lane(struct bench *b, bool check)
{
    struct xfer_job  j = { .src = b->far, .dst = b->near, .bytes = (uint32_t)b->bytes, .prio = XFER_LOAD };
    struct xfer_done d;
    if (check) {
        j.digest_mode = XFER_DIGEST_CHECK;
        j.digest = b->digest;
    }
    memset(b->got, 0, b->bytes);
    uint64_t begin = clock_us();
    if (xfer_post(b->x, &j, NULL)) return 0;
    while (!xfer_poll(b->x, &d, 1)) usleep(100);
    double us = (double)(clock_us() - begin);
    return d.st || memcmp(b->got, b->sent, b->bytes) ? 0 : (double)b->bytes / us;
}

/* What a program writes to its standard output, as a string. false: it cannot be started, or fails. */
static bool output_of(char *const argv[], char *out, size_t out_bytes)
{
    posix_spawn_file_actions_t actions;
    int                        end[2], status = -1;
    size_t                     n = 0;
    pid_t                      pid;
    if (pipe(end)) return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end[1], 1);
    posix_spawn_file_actions_addclose(&actions, end[0]);
    bool ok = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(end[1]);
    for (ssize_t got = 1; ok && got > 0 && n + 1 < out_bytes; n += (size_t)got) {
        got = read(end[0], out + n, out_bytes - 1 - n);
        if (got < 0) break;
    }
    out[n] = 0;
    close(end[0]);
    return ok && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static double by_curl(struct bench *b)
{
    char  out[100] = "", *speed;
    char *argv[] = { "curl",
                     "-s",
                     "-o",
                     "/dev/null",
                     "-w",
                     "%{http_code} %{speed_download}",
                     "-H",
                     "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, "
                     "SignedHeaders=host, Signature=0",
                     b->url,
                     NULL };
    if (!output_of(argv, out, sizeof out)) return 0;
    return strtol(out, &speed, 10) == 200 ? strtod(speed, NULL) / 1e6 : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

static double put(struct bench *b)
{
    struct object_client *c;
    char                  err[400] = "no memory";
    if (object_client(b->store, &c)) return 0;
    uint64_t    begin = clock_us();
    enum status st = object_put(c, NAME, b->sent, b->bytes, 8 << 20, 0, err, sizeof err);
    double      us = (double)(clock_us() - begin);
    object_client_free(c);
    if (st) fprintf(stderr, "bench_object: %s\n", err);
    return st ? 0 : (double)b->bytes / us;
}

/* 0: it is none. */
static long number(const char *text)
{
    char *end;
    long  v = strtol(text, &end, 10);
    return *end || v < 0 || v > 4000 ? 0 : v;
}

int main(int argc, char **argv)
{
    struct bench b = { .bytes = (uint64_t)number(argc > 3 ? argv[3] : "64") << 20 };
    int          rounds = (int)number(argc > 4 ? argv[4] : "9");
    char         err[400];
    double       curl[ROUNDS_MAX], lane[ROUNDS_MAX], checked[ROUNDS_MAX], share[ROUNDS_MAX];
    if (argc < 3 || rounds < 1 || rounds > ROUNDS_MAX || !b.bytes || b.bytes > UINT32_MAX)
        return fail("usage: bench_object s3://BUCKET/PREFIX ENDPOINT [MIB [ROUNDS]]");
    struct object_cfg cfg = { .url = argv[1], .endpoint = argv[2] };
    if (object_open(&cfg, &b.store, err, sizeof err)) return fail(err);
    b.sent = malloc(b.bytes);
    b.got = malloc(b.bytes);
    if (!b.sent || !b.got) return fail("no memory");
    for (uint64_t i = 0; i + 16 <= b.bytes; i += 16) {
        struct rng_block r = rng_philox(1, 1, i);
        memcpy(b.sent + i, &r, 16);
    }
    struct digest_key plain = { .mac = false };
    b.digest = digest_of(&plain, b.sent, b.bytes);
    snprintf(b.url, sizeof b.url, "%s/%s/%s", argv[2], argv[1] + strlen("s3://"), NAME);
    if (!open_lane(&b)) return fail("the lane does not start");
    double sent = put(&b);
    if (sent <= 0) return fail("the object could not be put");
    printf("put in parts of 8 MiB: %.0f MB/s\n", sent);
    for (int i = 0; i < rounds; i++) {
        curl[i] = by_curl(&b);
        lane[i] = by_lane(&b, false);
        checked[i] = by_lane(&b, true);
        if (curl[i] <= 0 || lane[i] <= 0 || checked[i] <= 0) return fail("an object did not come, or not whole");
        share[i] = checked[i] / curl[i];
        printf("curl %.0f MB/s, lane %.0f, with its digest %.0f\n", curl[i], lane[i], checked[i]);
    }
    xfer_free(b.x);
    object_close(b.store);
    free(b.sent);
    free(b.got);
    double share_median = median(share, rounds);
    printf("medians: curl %.0f MB/s, lane %.0f, with its digest %.0f: %.2f of curl\n", median(curl, rounds),
           median(lane, rounds), median(checked, rounds), share_median);
    return 0;
}
