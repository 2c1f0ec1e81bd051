/* place: on machines whose memory has several nodes, where a rank's threads and memory are.   Private to kernels/cpu/.
 * With one node nothing is done. Several ranks: each on a node, its thread, what that starts, and its arena. One rank:
 * its arena page by page over all nodes, since pieces of work go to whichever thread asks. All of it is speed only:
 * what the system refuses is left as it is. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { PLACE_NODES_MAX = 64, PLACE_CPUS_MAX = 4096 };
struct place_nodes {
    uint32_t n;
    uint32_t id[PLACE_NODES_MAX]; /* as the system counts them, ascending */
    uint64_t cpu[PLACE_NODES_MAX][PLACE_CPUS_MAX / 64];
};

/* "0-3,8" -> bits [0, max); returns how many are set, 0 where it is no such list. */
uint32_t place_list(const char *text, uint64_t *bits, uint32_t max);
/* The nodes that have memory and CPUs. root: /sys/devices/system/node. At least one: what cannot be read is one
 * node. */
void place_nodes(const char *root, struct place_nodes *out);
/* Binds the calling thread, when there are several ranks and nodes, and memory [base, base + bytes) that nobody has
 * touched. Returns the node's place in nodes, or UINT32_MAX where there is one node, or one rank. */
uint32_t place_rank(const struct place_nodes *nodes, uint32_t rank, uint32_t n_rank, void *base, size_t bytes);
