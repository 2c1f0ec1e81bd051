/* cluster: the number of nodes and the index of this one, from the options or from the environment variables of SLURM
 * or LeaderWorkerSet.   Thread: main, before others are started. */
#pragma once
#include "server/config.h"

struct cluster {
    uint32_t    n_node, node; /* number of nodes, index of this one; 1 and 0: a single server */
    char        master[256];  /* node 0's name or address */
    uint16_t    port;
    char        key[512]; /* the secret that all nodes share; "": they trust the network */
    const char *from;     /* the source of n_node: "--nnodes", "LWS_GROUP_SIZE", "SLURM_STEP_NUM_NODES" */
};
/* Options win over the environment. Returns 0, or 64 (78: the key's file) with one line in err. env: NAME=value
 * strings, NULL-terminated. */
int cluster_resolve(const struct config *c, char *const *env, struct cluster *out, char *err, size_t err_bytes);
/* Writes the first name of a list in SLURM's form: "a", "a,b", "n[001-4,9],b", "r[1-2]n[05-6]-ib". False: the list has
 * another form, or the name does not fit. */
bool cluster_first_host(const char *list, char *out, size_t out_bytes);
