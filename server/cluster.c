#include "server/cluster.h"
#include "base/file.h"
#include "engine/nodes.h"
#include "server/options.h"
#include "server/usage.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *get(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=' && (*env)[n + 1]) return *env + n + 1;
    return NULL;
}

/* A whole number of digits alone, up to most. */
static bool number(const char *s, uint32_t most, uint32_t *out)
{
    uint64_t x = 0;
    if (!s || !isdigit((unsigned char)*s)) return false;
    for (; isdigit((unsigned char)*s); s++)
        if ((x = x * 10 + (uint64_t)(*s - '0')) > most) return false;
    *out = (uint32_t)x;
    return *s == 0;
}

bool cluster_first_host(const char *list, char *out, size_t out_bytes)
{
    size_t at = 0;
    for (; *list && *list != ','; list++) {
        const char *begin = list, *end = list + 1;
        if (*list == '[') { /* its first number, zeros and all */
            begin++;
            for (end = begin; isdigit((unsigned char)*end);) end++;
            list = strchr(end, ']');
            if (!list || end == begin) return false;
        }
        size_t n = (size_t)(end - begin);
        if (at + n >= out_bytes) return false;
        memcpy(out + at, begin, n);
        at += n;
    }
    out[at] = 0;
    return at > 0;
}

/* HOST, HOST:PORT, [V6]:PORT, or a bare v6 address */
static bool split_address(const char *s, struct cluster *out)
{
    const char *colon = strrchr(s, ':'), *close = strchr(s, ']');
    uint32_t    port = NODES_PORT;
    size_t      n = strlen(s), skip = 0;
    if (*s == '[') {
        if (!close || (close[1] && close[1] != ':')) return false;
        if (close[1] && !number(close + 2, 65535, &port)) return false;
        skip = 1;
        n = (size_t)(close - s) - 1;
    } else if (colon && strchr(s, ':') == colon) {
        if (!number(colon + 1, 65535, &port)) return false;
        n = (size_t)(colon - s);
    }
    if (!n || n >= sizeof out->master || !port) return false;
    memcpy(out->master, s + skip, n);
    out->master[n] = 0;
    out->port = (uint16_t)port;
    return true;
}

/* The secret of the nodes, "" where there is none and that is allowed. */
static int read_key(const struct config *c, struct cluster *out, char *err, size_t err_bytes)
{
    if (*c->cluster_key && *c->cluster_key_file)
        return usage_error(err, err_bytes, "--cluster-key and --cluster-key-file are both given; use one of them");
    if (strlen(c->cluster_key) >= sizeof out->key)
        return usage_error(err, err_bytes, "--cluster-key: more than %zu bytes", sizeof out->key - 1);
    snprintf(out->key, sizeof out->key, "%s", c->cluster_key);
    if (*c->cluster_key_file) {
        size_t n = 0;
        int    error = file_read_first(c->cluster_key_file, out->key, sizeof out->key, &n);
        bool   whole = n < sizeof out->key;
        if (error) {
            usage_error(err, err_bytes, "--cluster-key-file: %.200s: %s", c->cluster_key_file, strerror(error));
            return EXIT_CONFIG;
        }
        n = file_without_line_end(out->key, n);
        if (!whole || n < 16 || memchr(out->key, 0, n)) {
            usage_error(err, err_bytes, "--cluster-key-file: %.200s: allowed are 16 to %zu bytes, none of them 0",
                        c->cluster_key_file, sizeof out->key - 1);
            return EXIT_CONFIG;
        }
        out->key[n] = 0;
    }
    if (!*out->key && !c->cluster_insecure && !config_is_loopback(out->master))
        return usage_error(
            err, err_bytes,
            "--cluster-key-file is missing: %.100s is reachable from other machines, and whoever reaches it can steer this server; "
            "give the nodes a key, or say --cluster-insecure",
            out->master);
    return 0;
}

int cluster_resolve(const struct config *c, char *const *env, struct cluster *out, char *err, size_t err_bytes)
{
    const char *lws = get(env, "LWS_GROUP_SIZE"), *slurm = get(env, "SLURM_STEP_NUM_NODES"), *index = NULL,
               *master = NULL, *which = "";
    char     first[256];
    uint32_t n = 1;
    *out = (struct cluster){ .n_node = 1, .port = NODES_PORT, .from = "--nnodes" };
    if (c->nnodes == 1) return 0;
    if (lws && number(lws, WIRE_NODES_MAX, &n) && n > 1) {
        out->from = "LWS_GROUP_SIZE";
        which = "LWS_WORKER_INDEX";
        master = get(env, "LWS_LEADER_ADDRESS");
    } else if (slurm && number(slurm, WIRE_NODES_MAX, &n) && n > 1) {
        const char *list = get(env, "SLURM_STEP_NODELIST");
        uint32_t    tasks = n;
        out->from = "SLURM_STEP_NUM_NODES";
        which = "SLURM_NODEID";
        if (!list) list = get(env, "SLURM_JOB_NODELIST");
        master = list && cluster_first_host(list, first, sizeof first) ? first : NULL;
        if (!c->nnodes && number(get(env, "SLURM_STEP_NUM_TASKS"), UINT32_MAX - 1, &tasks) && tasks != n)
            return usage_error(err, err_bytes,
                               "SLURM_STEP_NUM_TASKS is %s, allowed is one task per node (srun --ntasks-per-node=1)",
                               get(env, "SLURM_STEP_NUM_TASKS"));
    } else if (!c->nnodes) {
        return 0;
    } else {
        n = 1;
    }
    index = *which ? get(env, which) : NULL;
    if (get(env, "MASTER_ADDR")) master = get(env, "MASTER_ADDR");
    out->n_node = c->nnodes ? c->nnodes : n;
    if (c->nnodes) out->from = "--nnodes";
    out->node = c->node_rank;
    if (!c->node_rank && index && n == out->n_node && !number(index, WIRE_NODES_MAX, &out->node))
        return usage_error(err, err_bytes, "%s is no number", which);
    if (out->node >= out->n_node)
        return usage_error(err, err_bytes, "--node-rank: found %u, allowed are 0 to %u", out->node, out->n_node - 1);
    if (*c->master_addr) master = c->master_addr;
    if (!master)
        return usage_error(err, err_bytes, "--master-addr is missing: the address of node 0, needed with %s",
                           out->from);
    if (!split_address(master, out))
        return usage_error(err, err_bytes, "--master-addr: found '%.100s', allowed is HOST or HOST:PORT", master);
    if (c->tensor_parallel % out->n_node)
        return usage_error(err, err_bytes, "--tensor-parallel-size: found %u, which %u nodes (%s) do not divide",
                           c->tensor_parallel, out->n_node, out->from);
    if (c->kv_host_gib > 0 || c->kv_nvme.n || (c->kv_shared && *c->kv_shared))
        return usage_error(
            err, err_bytes,
            "--kv-host-gib and --kv-nvme: found on one of %u nodes (%s), allowed is one node: a block's parts lie on all",
            out->n_node, out->from);
    if (c->device != DEV_CUDA && c->device != DEV_AUTO)
        return usage_error(
            err, err_bytes,
            "--device: found '%.20s', allowed on %u nodes (%s) is cuda: others have no way to add over a network",
            option_word("device", c->device), out->n_node, out->from);
    return read_key(c, out, err, err_bytes);
}
