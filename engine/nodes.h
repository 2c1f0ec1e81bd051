/* nodes: one server on several machines. Node 0 serves and plans; it tells every step to the others, which run it in lockstep on
 * their ranks (engine/wire.h says what is said).   Thread: as marked.
 *
 *   nodes_create -> rank_team_create with agree = nodes_agree and group = nodes_group -> nodes_start -> ... -> nodes_stop
 *   -> rank_team_free -> nodes_free
 * From nodes_agree on a thread of its own watches the others: beats both ways, and whoever is silent for NODES_LOST_MS, closes its
 * connection or says something wrong is lost. Then the device is lost: one line, the group is aborted, every wait says ST_DEVICE. The
 * process is to end, as for any lost device, so that whoever started the nodes starts them all again.
 * The network between the nodes is trusted: steps travel in the clear. A wrong byte is refused, never used. */
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
    uint32_t           patience_s; /* for the others to come, and to load */
};
/* Node 0 listens from here on. ST_CONFIG with one line in err. */
enum status       nodes_create(const struct nodes_cfg *cfg, struct nodes **n_out, char *err, size_t err_bytes);
uint16_t          nodes_port(const struct nodes *n);
struct dev_group *nodes_group(struct nodes *n);
/* Waits until all nodes are there and agree on what they serve. n_block: what this one has room for, then what all have.
 * comm_id: for dev_cfg. ST_CONFIG: refused; ST_TIMEOUT: not all came. The loading thread. */
enum status nodes_agree(void *nodes, uint32_t *n_block, unsigned char comm_id[DEV_COMM_ID], char *err, size_t err_bytes);
/* For rank_cfg.vote, from nodes_agree on; one decision. The nodes'. Its functions: any one thread of this process. */
const struct dev_vote *nodes_vote(struct nodes *n);
/* This node has loaded and runs its batches on `run`. Node 0: returns when all have, and *run becomes what tells the others too.
 * Others: steps are run from here on, by a thread of its own. The loading thread. */
enum status nodes_start(struct nodes *n, struct eng_runner *run, char *err, size_t err_bytes);
enum nodes_state { NODES_OK, NODES_DONE, NODES_LOST }; /* DONE: node 0 said goodbye */
enum nodes_state nodes_state(const struct nodes *n);   /* any thread */
uint64_t         nodes_steps(const struct nodes *n);   /* any thread: told, or run */
void             nodes_stop(struct nodes *n);          /* node 0: says goodbye. Its threads have ended when it returns */
void             nodes_free(struct nodes *n);
