/* bench_reduce: what an all-reduce of a rank's activations costs, on the device, beside its bytes.
 *   bench_reduce [--ranks 2] [--collectives auto|own|nccl] [--nccl-symmetric auto|on|off] [--only BYTES]
 * Each rank is a thread with a device of its own: GPU 0, 1, ... of this machine, or the same again where there are
 * fewer (then it is no link that is measured, but two kernels side by side). A graph of CALLS all-reduces of one size is
 * replayed by all ranks at once; the figure is the slowest rank's median. Bus: what each rank must send at least, 2 (n -
 * 1) / n of the bytes. The goal (bench_goals.h) is for two GPUs with NVLink. */
#include "bench_goals.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/device.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS_MAX = 8, CALLS = 64, ARENA = 192 << 20, GOAL_BYTES = 16 << 10 };

static const size_t sizes[] = { 4 << 10, GOAL_BYTES, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20 };

struct rank {
    pthread_t          thread;
    struct dev_cfg     cfg;
    pthread_barrier_t *turn;
    size_t             only;
    enum status        st;
    void              *x; /* what is summed; its numbers do not matter, zeros stay zeros */
    size_t             n;
    struct device     *d;
    double             s[sizeof sizes / sizeof *sizes];
};

static void reduce(void *arg, uint32_t i)
{
    struct rank *r = arg;
    (void)i;
    r->d->ops->allreduce(r->d, r->x, r->n);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    size_t       most = sizes[sizeof sizes / sizeof *sizes - 1];
    r->st = dev_open(&r->cfg, &r->d);
    if (!r->st) r->st = r->d->ops->alloc_reduced(r->d, most, &r->x);
    if (r->st) dev_group_abort(r->cfg.group); /* the others do not wait for it */
    pthread_barrier_wait(r->turn);
    for (size_t i = 0; !r->st && i < sizeof sizes / sizeof *sizes; i++) {
        if (r->only && sizes[i] != r->only) continue;
        r->n = sizes[i] / sizeof(uint16_t);
        r->s[i] = dev_time(r->d, CALLS, reduce, r);
    }
    return NULL;
}

static bool parse(int argc, char **argv, struct dev_cfg *cfg, size_t *only)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *a = argv[i], *v = argv[i + 1];
        if (!strcmp(a, "--ranks"))
            cfg->n_rank = (uint32_t)strtoul(v, NULL, 10);
        else if (!strcmp(a, "--only"))
            *only = strtoul(v, NULL, 10);
        else if (!strcmp(a, "--collectives") && !strcmp(v, "own"))
            cfg->comm = DEV_COMM_OWN;
        else if (!strcmp(a, "--collectives") && !strcmp(v, "nccl"))
            cfg->comm = DEV_COMM_NCCL;
        else if (!strcmp(a, "--nccl-symmetric") && !strcmp(v, "on"))
            cfg->symmetric = DEV_SYMMETRIC_ON;
        else if (!strcmp(a, "--nccl-symmetric") && !strcmp(v, "off"))
            cfg->symmetric = DEV_SYMMETRIC_OFF;
        else if ((strcmp(a, "--collectives") && strcmp(a, "--nccl-symmetric")) || strcmp(v, "auto"))
            return false;
    }
    return argc % 2 && cfg->n_rank >= 2 && cfg->n_rank <= RANKS_MAX;
}

static void print(const struct rank *rank, uint32_t n_rank)
{
    printf("%12s %10s %10s\n", "bytes", "us", "bus GB/s");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double s = 0;
        for (uint32_t r = 0; r < n_rank; r++) s = rank[r].s[i] > s || isnan(rank[r].s[i]) ? rank[r].s[i] : s;
        if (s > 0)
            printf("%12zu %10.2f %10.1f\n", sizes[i], s * 1e6,
                   2.0 * (n_rank - 1) / n_rank * (double)sizes[i] / s * 1e-9);
    }
}

int main(int argc, char **argv)
{
    static struct rank rank[RANKS_MAX];
    struct dev_cfg     cfg = {
            .kind = DEV_CUDA, .ordinal = -1, .n_rank = 2, .arena_bytes = ARENA, .reduced_bytes = ARENA / 2
    };
    struct dev_info   gpu[RANKS_MAX] = { { .ordinal = 0 } };
    pthread_barrier_t turn;
    char              why[200] = "";
    size_t            only = 0;
    if (!parse(argc, argv, &cfg, &only)) {
        fputs("bench_reduce [--ranks 2] [--collectives auto|own|nccl] [--nccl-symmetric auto|on|off]\n"
              "  [--only BYTES]\n",
              stderr);
        return EXIT_USAGE;
    }
    log_init(LOG_LEVEL_WARN, STDERR_FILENO, false);
    uint32_t n_gpu = dev_list(gpu, RANKS_MAX, why, sizeof why);
    if (!n_gpu) {
        fprintf(stderr, "bench_reduce: %s\n", why);
        return EXIT_CONFIG;
    }
    CHECK(dev_group_create(cfg.n_rank, &cfg.group) == ST_OK);
    CHECK(!pthread_barrier_init(&turn, NULL, cfg.n_rank));
    for (uint32_t i = 0; i < cfg.n_rank; i++) {
        rank[i] = (struct rank){ .cfg = cfg, .turn = &turn, .only = only };
        rank[i].cfg.rank = i;
        CHECK(!pthread_create(&rank[i].thread, NULL, rank_main, &rank[i]));
    }
    enum status st = ST_OK;
    for (uint32_t i = 0; i < cfg.n_rank; i++) {
        pthread_join(rank[i].thread, NULL);
        if (rank[i].st) st = rank[i].st;
    }
    if (!st) {
        printf("%u ranks on %u GPU%s (%s)\n", cfg.n_rank, n_gpu < cfg.n_rank ? n_gpu : cfg.n_rank,
               n_gpu == 1 ? "" : "s", gpu[0].name);
        print(rank, cfg.n_rank);
        bool   linked = cfg.n_rank == 2 && n_gpu >= 2;
        double us = rank[0].s[1] > rank[1].s[1] ? rank[0].s[1] * 1e6 : rank[1].s[1] * 1e6;
        goals_title(stdout);
        goal_print(stdout, &bench_goals[GOAL_REDUCE], us > 0 ? us : (double)NAN,
                   linked ? goals_scale(gpu[0].name, "qwen3-8b") : 0);
    }
    for (uint32_t i = 0; i < cfg.n_rank; i++)
        if (rank[i].d) dev_close(rank[i].d);
    dev_group_free(cfg.group);
    return st ? EXIT_SOFTWARE : 0;
}
