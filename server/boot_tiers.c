/* boot_tiers: the KV tiers of --kv-host-gib and --kv-nvme: who moves bytes, whose blocks they are, what they are worth. */
#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "server/boot.h"
#include "transfer/lane.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct boot_tiers {
    struct xfer        *xfer;
    struct kv_tiers_cfg cfg;
    char                dir[KV_STORES_MAX][512];
    unsigned char      *secret; /* [SEAL_SECRET] or NULL */
    char                cgroup[512];
};

static int fail(struct boot *b, int code, const char *what)
{
    snprintf(b->err, sizeof b->err, "%s", what);
    return code;
}

static int read_key(struct boot *b, const char *path, struct digest_key *k)
{
    enum status st = digest_key_read(k, path);
    if (st == ST_IO) {
        snprintf(b->err, sizeof b->err, "--kv-mac-key-file: %s: %s", path, strerror(errno));
        return EXIT_CONFIG;
    }
    return st ? fail(b, EXIT_CONFIG, "--kv-mac-key-file: at least 16 bytes are needed") : 0;
}

/* The secret of --kv-encrypt or --kv-encrypt-key-file. */
static int take_secret(struct boot *b, struct boot_tiers *t)
{
    const struct config *c = b->cfg;
    char                 why[400];
    struct stat          st;
    if (!t->cfg.n_store)
        return fail(b, EXIT_USAGE, "--kv-encrypt and --kv-encrypt-key-file need --kv-nvme or --kv-shared: memory is not encrypted");
    if (*c->kv_encrypt_key_file && stat(c->kv_encrypt_key_file, &st) == 0 && (st.st_mode & 077))
        LOG_WARN("kv: %s may be read by others (mode %o), 0600 is better", c->kv_encrypt_key_file, (unsigned)(st.st_mode & 0777));
    t->secret = seal_take(SEAL_SECRET);
    if (!t->secret) return fail(b, EXIT_SOFTWARE, "no memory for the key of the KV tiers");
    if (!*c->kv_encrypt_key_file) {
        seal_secret_random(t->secret);
        t->cfg.ephemeral = true;
    } else if (seal_secret_read(c->kv_encrypt_key_file, t->secret, why, sizeof why)) {
        snprintf(b->err, sizeof b->err, "--kv-encrypt-key-file: %s", why);
        return EXIT_CONFIG;
    }
    t->cfg.secret = t->secret;
    return 0;
}

/* What others write there is believed on the word of the MAC alone, and a prefix is of use to others when all of it is there. */
static int plan_shared(struct boot *b, struct boot_tiers *t)
{
    const struct config *c = b->cfg;
    if (c->kv_nvme.n)
        return fail(b, EXIT_USAGE,
                    "--kv-shared and --kv-nvme: one of them; a prefix of which each holds a part would be of no use to other servers");
    if (!*c->kv_mac_key_file)
        return fail(b, EXIT_USAGE,
                    "--kv-shared needs --kv-mac-key-file, the same on all its servers: without it who writes there could forge");
    if (c->kv_encrypt && !*c->kv_encrypt_key_file)
        return fail(b, EXIT_USAGE,
                    "--kv-shared needs --kv-encrypt-key-file instead of --kv-encrypt: other servers could not read a key of this start");
    if (!config_shared(c->kv_shared, t->dir[0], sizeof t->dir[0], &t->cfg.store[0].bytes)) {
        snprintf(b->err, sizeof b->err, "--kv-shared: '%s' is not DIR or DIR:GIB, as in /fsx/kv:100", c->kv_shared);
        return EXIT_USAGE;
    }
    t->cfg.store[0].dir = t->dir[0];
    t->cfg.n_store = 1, t->cfg.shared = true;
    return 0;
}

static int plan_stores(struct boot *b, struct boot_tiers *t)
{
    if (*b->cfg->kv_shared) return plan_shared(b, t);
    const struct str_list *l = &b->cfg->kv_nvme;
    if (l->n > KV_STORES_MAX) return fail(b, EXIT_USAGE, "--kv-nvme: at most 4 folders");
    for (uint32_t i = 0; i < l->n; i++) {
        if (!config_dir_gib(l->s[i], t->dir[i], sizeof t->dir[i], &t->cfg.store[i].bytes)) {
            snprintf(b->err, sizeof b->err, "--kv-nvme: '%s' is not DIR:GIB, as in /mnt/nvme0/kv:100", l->s[i]);
            return EXIT_USAGE;
        }
        t->cfg.store[i].dir = t->dir[i];
    }
    t->cfg.n_store = l->n;
    return 0;
}

/* Where the limit of this process's memory is said (cgroup v2); in a container, at the root of what it sees. "": nowhere. */
static void find_cgroup(char *out, size_t bytes)
{
    char  line[400] = "", path[512];
    FILE *f = fopen("/proc/self/cgroup", "re");
    *out = 0;
    if (f && !fgets(line, sizeof line, f)) *line = 0;
    if (f) fclose(f);
    line[strcspn(line, "\n")] = 0;
    const char *own = !strncmp(line, "0::/", 4) && !strstr(line, "..") ? line + 3 : "";
    for (int i = 0; i < 2 && !*out; i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", i ? "" : own);
        if (access(path, R_OK) == 0) snprintf(out, bytes, "/sys/fs/cgroup%s", i ? "" : own);
    }
}

/* Lanes, segments, identity; eng_create opens the tiers themselves. *tiers_out NULL: none are asked for. */
int boot_tiers_open(struct boot *b, const struct kv_tiers_cfg **tiers_out)
{
    const struct config *c = b->cfg;
    *tiers_out = NULL;
    if (c->kv_host_gib <= 0) {
        if (!c->kv_nvme.n && !*c->kv_shared) return 0;
        return fail(b, EXIT_USAGE,
                    *c->kv_shared ? "--kv-shared needs --kv-host-gib: blocks go through the host"
                                  : "--kv-nvme needs --kv-host-gib: blocks go through the host");
    }
    if (!c->prefix_caching) return fail(b, EXIT_USAGE, "--kv-host-gib needs prefix caching (--enable-prefix-caching)");
    struct boot_tiers *t = b->tiers = calloc(1, sizeof *t);
    if (!t) return fail(b, EXIT_SOFTWARE, "no memory for the KV tiers");
    uint32_t                 n_block;
    const struct xfer_ranks *pool = rank_team_kv(b->team, &n_block);
    CHECK(pool); /* cluster.c has refused tiers on several nodes */
    t->cfg.block_bytes = pool->block_bytes;
    t->cfg.host_bytes = (uint64_t)(c->kv_host_gib * (double)(1 << 30));
    uint64_t memory = memory_limit_bytes();
    if (t->cfg.host_bytes > memory / 10 * 9) {
        snprintf(b->err, sizeof b->err, "--kv-host-gib: %.1f GiB asked for, this machine or container has %.1f GiB of memory in all",
                 c->kv_host_gib, (double)memory / (1 << 30));
        return EXIT_CONFIG;
    }
    find_cgroup(t->cgroup, sizeof t->cgroup);
    t->cfg.cgroup = t->cgroup;
    int code = plan_stores(b, t);
    if (!code && (c->kv_encrypt || *c->kv_encrypt_key_file)) code = take_secret(b, t);
    if (!code && *c->kv_mac_key_file) code = read_key(b, c->kv_mac_key_file, &t->cfg.key);
    if (code) return code;
    rank_team_ident(b->team, t->cfg.ident.model);
    t->cfg.ident.layout = KV_LAYOUT, t->cfg.ident.block_tokens = c->block_size, t->cfg.ident.n_layer = b->spec.n_layer;
    t->cfg.ident.n_kv_head = b->spec.n_kv_head, t->cfg.ident.head_dim = b->spec.head_dim, t->cfg.ident.tp_size = pool->n;
    t->cfg.ident.block_bytes = t->cfg.block_bytes;
    t->cfg.ident.dtype = (uint32_t)rank_team_kv_dtype(b->team);

    struct xfer_cfg   xc = { .jobs_max = 8192, .key = t->cfg.key };
    enum status       st = xfer_create(&xc, &t->xfer);
    struct xfer_lane *lane[3] = { lane_nvme_create(32, 4, false), lane_dev_create() };
    int               n_lane = 2;
    /* Where threads copy, two share a load: one is bound by the latency of memory. A GPU's copy engines need no help. */
    if (!pool->rank[0].dev->async && thread_cpu_count() > 1) lane[n_lane++] = lane_dev_create();
    if (!st && t->secret && lane[0]) st = lane_nvme_seals(lane[0], (uint32_t)kv_record_bytes(t->cfg.block_bytes));
    for (int i = 0; i < n_lane; i++)
        if (!st) st = lane[i] ? xfer_lane_add(t->xfer, lane[i]) : ST_NOMEM;
    struct xfer_seg seg = { .kind = XFER_DEVICE, .bytes = n_block * pool->block_bytes, .ranks = pool };
    if (!st) st = xfer_seg_add(t->xfer, &seg, &t->cfg.dev_seg);
    if (!st) st = xfer_start(t->xfer);
    if (st) {
        snprintf(b->err, sizeof b->err, "the KV tiers cannot start: %s", status_name(st));
        return EXIT_SOFTWARE;
    }
    t->cfg.xfer = t->xfer;
    boot_hand_ask(b, &t->cfg);
    *tiers_out = &t->cfg;
    LOG_INFO("kv: host tier %.2f GiB, %u store%s, blocks of %" PRIu64 " KiB%s%s", c->kv_host_gib, t->cfg.n_store,
             t->cfg.n_store == 1 ? "" : "s", t->cfg.block_bytes >> 10, t->cfg.key.mac ? ", with a MAC" : "",
             !t->secret         ? ""
             : t->cfg.ephemeral ? ", encrypted under a key of this start"
                                : ", encrypted under the key file");
    return 0;
}

void boot_tiers_free(struct boot *b)
{
    if (!b->tiers) return;
    xfer_free(b->tiers->xfer);
    seal_give(b->tiers->secret, SEAL_SECRET);
    free(b->tiers);
}
