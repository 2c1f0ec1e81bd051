/* cluster: which node of how many this is: from the options, or from what SLURM or LeaderWorkerSet put into the
 * environment. Thread: main, before others. */
#pragma once
#include "server/config.h"

struct cluster {
    uint32_t    n_node, node; /* 1 and 0: a server of its own */
    char        master[256];  /* node 0's name or address */
    uint16_t    port;
    char        key[512]; /* what all nodes share; "": they trust the network */
    const char *from;     /* who said so: "--nnodes", "LWS_GROUP_SIZE", "SLURM_STEP_NUM_NODES" */
};
/* Options win. 0, or 64 (78: the file of the key) with one line in err. env: NAME=value strings, NULL-terminated. */
int cluster_resolve(const struct config *c, char *const *env, struct cluster *out, char *err, size_t err_bytes);
/* The first name of a list as SLURM writes it: "a", "a,b", "n[001-4,9],b", "r[1-2]n[05-6]-ib"; false: it is none, or
 * too long. */
bool cluster_first_host(const char *list, char *out, size_t out_bytes);
