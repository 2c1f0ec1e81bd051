/* boot_tiers: the KV tiers of --kv-host-gib and --kv-nvme: who moves bytes, whose blocks they are, what they are
 * worth. */
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kvcache/folder/store.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/object/pack.h"
#include "kvcache/peer/peers.h"
#include "server/boot.h"
#include "server/boot_peers.h"
#include "transfer/lanes.h"
#include "transfer/object/object.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SECRETS = STORE_KEYS_MAX * SEAL_SECRET,
    LINK_READS =
        2 /* a step over the link costs 0.7 to 0.9 of a copy more than one from the pool: docs/design/in_place.md */
};

struct boot_tiers {
    struct xfer         *xfer;
    struct kv_tiers_cfg  cfg;
    char                 dir[KV_STORES_MAX][512];
    unsigned char       *secret; /* [SECRETS] or NULL */
    struct digest_key    old_key;
    char                 name[48]; /* among the servers of a shared folder */
    struct object_store *objects;  /* or NULL */
    char                 cgroup[512];
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

static int read_secret(struct boot *b, const char *path, unsigned char *secret)
{
    char        why[400];
    struct stat st;
    if (stat(path, &st) == 0 && (st.st_mode & 077))
        LOG_WARN("kv: %s may be read by others (mode %o), 0600 is better", path, (unsigned)(st.st_mode & 0777));
    if (!seal_secret_read(path, secret, why, sizeof why)) return 0;
    snprintf(b->err, sizeof b->err, "--kv-encrypt-key-file: %s", why);
    return EXIT_CONFIG;
}

/* The secrets of --kv-encrypt or --kv-encrypt-key-file. */
static int take_secrets(struct boot *b, struct boot_tiers *t)
{
    const struct str_list *file = &b->cfg->kv_encrypt_key_file;
    int                    code = 0;
    t->secret = seal_take(SECRETS);
    if (!t->secret) return fail(b, EXIT_SOFTWARE, "no memory for the key of the KV tiers");
    if (!file->n) seal_secret_random(t->secret);
    t->cfg.ephemeral = !file->n;
    for (uint32_t i = 0; !code && i < file->n; i++)
        code = read_secret(b, file->s[i], t->secret + (size_t)i * SEAL_SECRET);
    t->cfg.secret = t->secret;
    t->cfg.old_secret = file->n > 1 ? t->secret + SEAL_SECRET : NULL;
    return code;
}

static int read_keys(struct boot *b, struct boot_tiers *t)
{
    const struct str_list *file = &b->cfg->kv_mac_key_file;
    int                    code = 0;
    if (file->n) code = read_key(b, file->s[0], &t->cfg.key);
    if (!code && file->n > 1) {
        code = read_key(b, file->s[1], &t->old_key);
        t->cfg.old_key = &t->old_key;
    }
    return code;
}

/* As one start after the other has it, and no two servers at a time: the host's name (in Kubernetes the pod's) and the
 * port. */
static void name_server(const struct config *c, char *out, size_t bytes)
{
    char host[32] = "";
    gethostname(host, sizeof host - 1);
    if (*c->kv_shared_name)
        snprintf(out, bytes, "%s", c->kv_shared_name);
    else
        snprintf(out, bytes, "%s-%u", host, c->port);
}

/* config_kv_check has found nothing wrong with the options. */
static void plan_stores(struct boot *b, struct boot_tiers *t)
{
    const struct config   *c = b->cfg;
    const struct str_list *l = &c->kv_nvme;
    t->cfg.shared = *c->kv_shared != 0;
    t->cfg.n_store = t->cfg.shared ? 1 : l->n;
    t->cfg.shared_name = t->name;
    name_server(c, t->name, sizeof t->name);
    if (t->cfg.shared) CHECK(config_shared(c->kv_shared, t->dir[0], sizeof t->dir[0], &t->cfg.store[0].bytes));
    for (uint32_t i = 0; i < l->n; i++)
        CHECK(config_dir_gib(l->s[i], t->dir[i], sizeof t->dir[i], &t->cfg.store[i].bytes));
    for (uint32_t i = 0; i < t->cfg.n_store; i++) t->cfg.store[i].dir = t->dir[i];
}

/* A share that can hold nothing is a wrong option; a folder that cannot be used is not, but whoever waits for the
 * weights should know. */
static int check_stores(struct boot *b, struct boot_tiers *t)
{
    uint64_t block_bytes = b->block_bytes * b->cfg->tensor_parallel;
    char     why[300];
    for (uint32_t i = 0; i < t->cfg.n_store; i++) {
        if (!kv_store_fits(t->dir[i], t->cfg.store[i].bytes, 0, block_bytes, why, sizeof why)) {
            snprintf(b->err, sizeof b->err, "%s: %s", t->cfg.shared ? "--kv-shared" : "--kv-nvme", why);
            return EXIT_CONFIG;
        }
        int fd = t->cfg.key.mac || t->secret ? -1 : open(t->dir[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) continue;
        if (!file_folder_is_ours(fd, why, sizeof why))
            LOG_WARN("kv: %s: %s: it is not used, unless --kv-mac-key-file or --kv-encrypt-key-file is given",
                     t->dir[i], why);
        close(fd);
    }
    return 0;
}

/* The object store of --kv-object, behind the folders: the dearest to read from. */
static int plan_objects(struct boot *b, struct boot_tiers *t)
{
    const struct config *c = b->cfg;
    char                 why[400];
    struct object_cfg    oc = { .url = c->kv_object, .endpoint = c->object_endpoint, .region = c->object_region };
    if (!*c->kv_object) return 0;
    if (object_open(&oc, &t->objects, why, sizeof why)) {
        snprintf(b->err, sizeof b->err, "--kv-object: %s", why);
        return EXIT_CONFIG;
    }
    uint64_t bytes = (uint64_t)(c->kv_object_gib * (double)(1 << 30));
    if (!pack_fits(bytes, b->block_bytes * c->tensor_parallel, t->objects, why, sizeof why)) {
        snprintf(b->err, sizeof b->err, "--kv-object-gib: %s", why);
        return EXIT_CONFIG;
    }
    CHECK(t->cfg.n_store < KV_STORES_MAX); /* config_kv.c has counted */
    t->cfg.store[t->cfg.n_store].row = &kv_objects;
    t->cfg.store[t->cfg.n_store].dir = t->objects->shown;
    t->cfg.store[t->cfg.n_store].objects = t->objects;
    t->cfg.store[t->cfg.n_store++].bytes = bytes;
    return 0;
}

/* Where the limit of this process's memory is said (cgroup v2); in a container, at the root of what it sees. "":
 * nowhere. */
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

/* Peers stand behind the folders. What a server computes is to be there for the others: it goes to the host at once. */
static void plan_peers(const struct config *c, struct boot_tiers *t)
{
    if (!boot_peers_wanted(c)) return;
    CHECK(t->cfg.n_store < KV_STORES_MAX); /* config_kv.c has counted */
    t->cfg.store[t->cfg.n_store].row = &kv_peers;
    t->cfg.store[t->cfg.n_store++].dir = "";
    if (*c->kv_peer_listen) t->cfg.keep_hits = 1;
}

int boot_tiers_plan(struct boot *b)
{
    const struct config *c = b->cfg;
    if (c->kv_host_gib <= 0) return 0;
    struct boot_tiers *t = b->tiers = calloc(1, sizeof *t);
    if (!t) return fail(b, EXIT_SOFTWARE, "no memory for the KV tiers");
    t->cfg.host_bytes = (uint64_t)(c->kv_host_gib * (double)(1 << 30));
    uint64_t memory = memory_limit_bytes();
    if (t->cfg.host_bytes > memory / 10 * 9) {
        snprintf(b->err, sizeof b->err,
                 "--kv-host-gib: %.1f GiB asked for, this machine or container has %.1f GiB of memory in all",
                 c->kv_host_gib, (double)memory / (1 << 30));
        return EXIT_CONFIG;
    }
    plan_stores(b, t);
    int code = 0;
    if (c->kv_encrypt || c->kv_encrypt_key_file.n) code = take_secrets(b, t);
    if (!code) code = read_keys(b, t);
    if (!code) code = check_stores(b, t);
    if (!code) plan_peers(c, t);
    return code ? code : plan_objects(b, t);
}

/* auto: where it costs no pinning and no PCIe. On the cpu device the host's memory is the device's, and blocks are
 * copied like on other machines, unless it is told otherwise. */
static bool reads_in_place(const struct boot *b, const struct xfer_ranks *pool)
{
    if (b->windows.n_block) return false; /* boot_plan.c: with `on` they have no pool */
    bool all = b->device == DEV_CUDA;
    for (uint32_t i = 0; i < pool->n && all; i++) all = dev_reaches(pool->rank[i].dev, NULL);
    return b->cfg->kv_in_place == IN_PLACE_AUTO ? all : b->cfg->kv_in_place == IN_PLACE_ON;
}

void boot_tiers_ident(struct boot *b, struct kv_identity *out)
{
    uint32_t                 n_block;
    const struct xfer_ranks *pool = rank_team_kv(b->team, &n_block); /* NULL: several nodes, which share no blocks */
    const struct xfer_ranks *windows = rank_team_kv_windows(b->team, &n_block);
    *out = (struct kv_identity){ .layout = KV_LAYOUT,
                                 .block_tokens = b->cfg->block_size,
                                 .n_layer = b->spec.n_layer,
                                 .n_kv_head = b->spec.n_kv_head,
                                 .head_dim = b->spec.head_dim,
                                 .tp_size = pool ? pool->n : b->cfg->tensor_parallel,
                                 .block_bytes = pool ? pool->block_bytes : b->block_bytes * b->cfg->tensor_parallel,
                                 .window = windows ? b->windows.window : 0,
                                 .window_bytes = windows ? windows->block_bytes : 0,
                                 .dtype = (uint32_t)rank_team_kv_dtype(b->team) };
    rank_team_ident(b->team, out->model);
}

/* Lanes, segments, identity; eng_create opens the tiers themselves. *tiers_out NULL: none are asked for. */
int boot_tiers_open(struct boot *b, const struct kv_tiers_cfg **tiers_out)
{
    const struct config *c = b->cfg;
    struct boot_tiers   *t = b->tiers;
    *tiers_out = NULL;
    if (!t) return 0;
    uint32_t                 n_block;
    const struct xfer_ranks *pool = rank_team_kv(b->team, &n_block);
    CHECK(pool); /* cluster.c has refused tiers on several nodes */
    uint32_t                 n_windows;
    const struct xfer_ranks *windows = rank_team_kv_windows(b->team, &n_windows);
    CHECK(!b->windows.n_block == !windows); /* boot_plan.c has seen to that */
    t->cfg.block_bytes = pool->block_bytes;
    find_cgroup(t->cgroup, sizeof t->cgroup);
    t->cfg.cgroup = t->cgroup;
    t->cfg.audit =
        b->device != DEV_CUDA || c->deterministic; /* else bits depend on the batch, and nothing can be compared */
    t->cfg.audit_every = c->kv_audit_every;
    t->cfg.in_place = reads_in_place(b, pool);
    if (b->device == DEV_CUDA) t->cfg.in_place_reads = LINK_READS; /* the cpu's host memory is as near as its pool */
    if (!t->cfg.audit)
        LOG_INFO(
            "kv: blocks are not computed again to compare them: that needs --deterministic on a GPU; digests and identity are checked");
    boot_tiers_ident(b, &t->cfg.ident);

    struct xfer_cfg   xc = { .jobs_max = 8192, .key = t->cfg.key };
    enum status       st = xfer_create(&xc, &t->xfer);
    struct xfer_lane *peers = NULL;
    if (!st && boot_peers_wanted(c)) { /* the first lane: it is the one that options can make impossible */
        int code = boot_peers_lane(b, &peers, &t->cfg.peers);
        if (code) return code;
    }
    struct xfer_lane *lane[5] = { lane_nvme_create(32, 4, false), lane_dev_create() };
    int               n_lane = 2;
    /* Where threads copy, two share a load: one is bound by the latency of memory. A GPU's copy engines need no
     * help. */
    if (!pool->rank[0].dev->async && thread_cpu_count() > 1) lane[n_lane++] = lane_dev_create();
    if (t->objects) lane[n_lane++] = lane_object_create(t->objects);
    if (peers) lane[n_lane++] = peers;
    if (!st && t->secret && lane[0]) st = lane_nvme_seals(lane[0], (uint32_t)kv_record_bytes(t->cfg.block_bytes));
    for (int i = 0; i < n_lane; i++)
        if (!st) st = lane[i] ? xfer_lane_add(t->xfer, lane[i]) : ST_NOMEM;
    struct xfer_seg seg = { .kind = XFER_DEVICE, .bytes = n_block * pool->block_bytes, .ranks = pool };
    if (!st) st = xfer_seg_add(t->xfer, &seg, &t->cfg.dev_seg);
    if (windows) {
        t->cfg.win_bytes = windows->block_bytes;
        seg = (struct xfer_seg){ .kind = XFER_DEVICE, .bytes = n_windows * windows->block_bytes, .ranks = windows };
        if (!st) st = xfer_seg_add(t->xfer, &seg, &t->cfg.win_seg);
    }
    if (!st) st = xfer_start(t->xfer);
    if (st) {
        snprintf(b->err, sizeof b->err, "the KV tiers cannot start: %s", status_name(st));
        return EXIT_SOFTWARE;
    }
    t->cfg.xfer = t->xfer;
    boot_hand_ask(b, &t->cfg);
    *tiers_out = &t->cfg;
    const char *sealed = "";
    if (t->secret)
        sealed = t->cfg.ephemeral ? ", encrypted under a key of this start" : ", encrypted under the key file";
    if (windows)
        LOG_INFO("kv: blocks of windows go below the device too, %" PRIu64 " KiB each, in pieces of %" PRIu64 " KiB",
                 windows->block_bytes >> 10, windows->piece_bytes >> 10);
    LOG_INFO("kv: host tier %.2f GiB%s, %u store%s, blocks of %" PRIu64 " KiB%s%s", c->kv_host_gib,
             t->cfg.in_place ? " that the device reads in place" : "", t->cfg.n_store, t->cfg.n_store == 1 ? "" : "s",
             t->cfg.block_bytes >> 10, t->cfg.key.mac ? ", with a MAC" : "", sealed);
    return 0;
}

void boot_tiers_free(struct boot *b)
{
    if (!b->tiers) return;
    xfer_free(b->tiers->xfer);
    if (b->tiers->objects) object_close(b->tiers->objects);
    seal_give(b->tiers->secret, SECRETS);
    free(b->tiers);
}
