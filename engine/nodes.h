/* nodes: one server on several machines. Node 0 serves and plans. It sends every step to the other nodes, which run it
 * in lockstep on their ranks (engine/wire.h has the messages).   Thread: as marked.
 *
 *   nodes_create -> rank_team_create with agree = nodes_agree and group = nodes_group -> nodes_start -> ... ->
 *   nodes_stop -> rank_team_free -> nodes_free
 * From nodes_agree on a thread watches the connections. Both sides send beats. A node that is silent for NODES_LOST_MS,
 * closes its connection or sends a wrong message is lost. Then the device is lost: one line is logged, the group is
 * aborted, and every wait returns ST_DEVICE. The process ends, as for any lost device, and the supervisor must start
 * all nodes again.
 * The network must be trusted with the content: steps are not encrypted. A wrong byte is refused, never used. */
#pragma once
#include "engine/engine.h"
#include "engine/wire.h"

enum { NODES_PORT = 29500, NODES_BEAT_MS = 500, NODES_LOST_MS = 4000 };

struct nodes;
struct nodes_cfg {
    uint32_t           n_node, node, n_local; /* n_local: ranks of this process */
    const char        *master;                /* node 0's address */
    uint16_t           port;                  /* 0: any (tests; nodes_port says which) */
    const char        *key, *version;         /* key: shared secret or "" */
    uint64_t           field[WIRE_FIELDS];
    struct wire_limits limits; /* n_block comes with nodes_agree */
    enum dev_kind      device;
    uint32_t           patience_ms; /* time for the other nodes to connect, and to load; 0: 10 minutes */
};
/* Node 0 listens from here on. ST_CONFIG with one line in err. */
enum status       nodes_create(const struct nodes_cfg *cfg, struct nodes **n_out, char *err, size_t err_bytes);
uint16_t          nodes_port(const struct nodes *n);
struct dev_group *nodes_group(struct nodes *n);
/* Waits until all nodes are connected and have agreed on model and options. n_block: in, the blocks that fit here; out,
 * the blocks that fit on all nodes. comm_id: for dev_cfg. ST_CONFIG: refused; ST_TIMEOUT: a node is missing. The
 * loading thread. */
enum status nodes_agree(void *nodes, uint32_t *n_block, unsigned char comm_id[DEV_COMM_ID], char *err,
                        size_t err_bytes);
/* For rank_cfg.vote, valid from nodes_agree on, for one decision; owned by the nodes. Its functions: any one thread of
 * this process. */
const struct dev_vote *nodes_vote(struct nodes *n);
/* Call it when this node has loaded; `run` is its local runner. Node 0: returns when all nodes have loaded, and *run
 * then also sends each step to the others. Other nodes: a new thread runs the steps from here on. The loading
 * thread. */
enum status nodes_start(struct nodes *n, struct eng_runner *run, char *err, size_t err_bytes);
enum nodes_state { NODES_OK, NODES_DONE, NODES_LOST }; /* DONE: node 0 said goodbye */
enum nodes_state nodes_state(const struct nodes *n);   /* any thread */
uint64_t         nodes_steps(const struct nodes *n);   /* any thread: steps sent (node 0) or run */
void nodes_stop(struct nodes *n); /* node 0: sends a goodbye. The threads of nodes have ended when it returns */
void nodes_free(struct nodes *n); /* stops it first, and closes the connections; NULL is allowed */
