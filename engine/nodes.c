/* Over 500 lines: one protocol from the first meeting to the loss of a node, whose steps share the peers' state and
 * lock. */
#include "engine/nodes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/guests.h"
#include "transfer/link.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLOTS = 4, TICK_MS = 100, HELLO_MS = 5000, RETRY_MS = 500, SAY_MS = 30000, NOTE_MAX = 4096, GRACE_MS = 20 };

struct node_peer { /* node 0 has one per other node; the others have node 0 */
    int              fd;
    bool             here, ready;
    enum dev_ballot  ballot; /* lock */
    uint32_t         node, n_block;
    char             from[64];
    unsigned char    nonce[WIRE_NONCE]; /* the peer's */
    unsigned char    own_nonce[WIRE_NONCE];
    struct link_seal to, of;            /* to: under `send`; of: watcher */
    uint64_t         heard_us, said_us; /* watcher */
    pthread_mutex_t  send;
};

struct nodes {
    struct nodes_cfg  cfg;
    char             *master, *key, *version;
    int               listener;
    uint16_t          port;
    struct dev_group *group;
    struct eng_runner run;
    uint32_t          n_peer;
    unsigned char    *frame; /* [frame_max] node 0: the engine's, to send; others: the watcher's, received */
    uint32_t          frame_max;
    struct wire_steps steps; /* node 0: engine; others: watcher */
    _Atomic uint64_t  n_step;

    pthread_t        watcher, worker;
    bool             watching, working;
    _Atomic int      state;
    _Atomic bool     stop;
    pthread_mutex_t  lock;
    pthread_cond_t   wake; /* ready, state, n_in, n_free */
    struct batch     slot[SLOTS];
    bool             slots;
    struct dev_vote  vote;
    enum dev_ballot  ballot, verdict;        /* lock: this node's; of all nodes */
    unsigned char    next_comm[DEV_COMM_ID]; /* lock: with a verdict of FAILED */
    uint64_t         n_in, n_free;           /* lock: steps received; slots given back */
    struct node_peer peer[];
};

/* ---------------------------------------------------------------- the end */

static void ended(struct nodes *n, int state)
{
    pthread_mutex_lock(&n->lock);
    atomic_store(&n->state, state);
    pthread_cond_broadcast(&n->wake);
    pthread_mutex_unlock(&n->lock);
}

/* Once: says why, and lets every rank of this process out of what it waits for. */
static void lose(struct nodes *n, const struct node_peer *p, const char *why)
{
    int ok = NODES_OK;
    if (atomic_load(&n->stop) || !atomic_compare_exchange_strong(&n->state, &ok, NODES_LOST)) return;
    LOG_ERROR("nodes: node %u (%s) is lost after step %" PRIu64 ": %s; all nodes end", p->node, p->from,
              atomic_load(&n->n_step), why);
    dev_group_abort(n->group);
    ended(n, NODES_LOST);
}

static enum status say(struct nodes *n, struct node_peer *p, uint32_t type, const void *body, uint32_t bytes)
{
    (void)n;
    pthread_mutex_lock(&p->send);
    enum status st = p->fd < 0 ? ST_PEER_LOST : link_send(p->fd, &p->to, type, body, bytes, NODES_LOST_MS);
    pthread_mutex_unlock(&p->send);
    return st;
}

enum nodes_state  nodes_state(const struct nodes *n) { return (enum nodes_state)atomic_load(&n->state); }
uint64_t          nodes_steps(const struct nodes *n) { return atomic_load_explicit(&n->n_step, memory_order_relaxed); }
uint16_t          nodes_port(const struct nodes *n) { return n->port; }
struct dev_group *nodes_group(struct nodes *n) { return n->group; }

/* ---------------------------------------------------------------- one decision */

/* Node 0, after a ballot came in: says the verdict to all as soon as there is one. */
static void count(struct nodes *n)
{
    unsigned char out[WIRE_VERDICT_BYTES] = { DEV_BALLOT_OPEN };
    uint32_t      n_same = 0, n_other = 0;
    pthread_mutex_lock(&n->lock);
    enum dev_ballot first = n->ballot;
    for (uint32_t i = 0; i < n->n_peer; i++)
        if (n->peer[i].ballot != DEV_BALLOT_OPEN && first == DEV_BALLOT_OPEN) first = n->peer[i].ballot;
    for (uint32_t i = 0; i <= n->n_peer; i++) {
        enum dev_ballot b = i < n->n_peer ? n->peer[i].ballot : n->ballot;
        n_same += b != DEV_BALLOT_OPEN && b == first;
        n_other += b != DEV_BALLOT_OPEN && b != first;
    }
    bool over = n->verdict == DEV_BALLOT_OPEN && (first == DEV_BALLOT_FAILED || n_other || n_same == n->n_peer + 1);
    if (over) out[0] = n_other ? DEV_BALLOT_FAILED : (unsigned char)first;
    pthread_mutex_unlock(&n->lock);
    if (!over) return;
    if (out[0] == DEV_BALLOT_FAILED && dev_comm_id(n->cfg.device, out + 1)) {
        lose(n, &n->peer[0], "there is no other name for the communicator");
        return;
    }
    pthread_mutex_lock(&n->lock);
    over = n->verdict == DEV_BALLOT_OPEN; /* nobody else came to it meanwhile */
    if (over) {
        memcpy(n->next_comm, out + 1, sizeof n->next_comm);
        n->verdict = (enum dev_ballot)out[0];
    }
    pthread_mutex_unlock(&n->lock);
    for (uint32_t i = 0; over && i < n->n_peer; i++)
        if (say(n, &n->peer[i], WIRE_VERDICT, out, sizeof out)) lose(n, &n->peer[i], "it does not take our messages");
}

static void vote_cast(void *ctx, enum dev_ballot mine)
{
    struct nodes *n = ctx;
    unsigned char b = (unsigned char)mine;
    if (n->cfg.node) {
        if (say(n, &n->peer[0], WIRE_VOTE, &b, 1)) lose(n, &n->peer[0], "it does not take our messages");
        return;
    }
    pthread_mutex_lock(&n->lock);
    n->ballot = mine;
    pthread_mutex_unlock(&n->lock);
    count(n);
}

static enum dev_ballot vote_result(void *ctx, unsigned char id_out[DEV_COMM_ID])
{
    struct nodes *n = ctx;
    pthread_mutex_lock(&n->lock);
    enum dev_ballot all = n->verdict;
    memcpy(id_out, n->next_comm, sizeof n->next_comm);
    pthread_mutex_unlock(&n->lock);
    return all;
}

const struct dev_vote *nodes_vote(struct nodes *n) { return &n->vote; }

/* A ballot of another node, or node 0's verdict; false: no such bytes. */
static bool take_vote(struct nodes *n, struct node_peer *p, const unsigned char *body, uint32_t bytes)
{
    bool first = n->cfg.node == 0;
    if (bytes != (first ? WIRE_VOTE_BYTES : WIRE_VERDICT_BYTES) || body[0] <= DEV_BALLOT_OPEN ||
        body[0] > DEV_BALLOT_HAVE)
        return false;
    pthread_mutex_lock(&n->lock);
    bool again = (first ? p->ballot : n->verdict) != DEV_BALLOT_OPEN;
    if (first) {
        p->ballot = (enum dev_ballot)body[0];
    } else {
        memcpy(n->next_comm, body + 1, sizeof n->next_comm);
        n->verdict = (enum dev_ballot)body[0];
    }
    pthread_mutex_unlock(&n->lock);
    if (first && !again) count(n);
    return !again;
}

/* ---------------------------------------------------------------- watching */

/* A step from node 0: into the next slot, once that is free. False: it cannot be taken. */
static bool take_step(struct nodes *n, uint32_t bytes, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&n->lock);
    while (n->n_in - n->n_free == SLOTS && atomic_load(&n->state) == NODES_OK && !atomic_load(&n->stop))
        pthread_cond_wait(&n->wake, &n->lock);
    pthread_mutex_unlock(&n->lock);
    if (atomic_load(&n->state) != NODES_OK || atomic_load(&n->stop)) return true;
    if (wire_step_get(n->frame, bytes, &n->cfg.limits, &n->steps, &n->slot[n->n_in % SLOTS], why, why_bytes))
        return false;
    pthread_mutex_lock(&n->lock);
    n->n_in++;
    pthread_cond_broadcast(&n->wake);
    pthread_mutex_unlock(&n->lock);
    return true;
}

static void hear(struct nodes *n, struct node_peer *p)
{
    struct link_head h;
    char             why[WIRE_TEXT_MAX + 1], note[NOTE_MAX];
    bool             first = n->cfg.node == 0;
    enum status st = link_recv(p->fd, &p->of, first ? (void *)note : n->frame, first ? NOTE_MAX : n->frame_max, &h, 0);
    if (st == ST_AGAIN) return;
    if (st) {
        const char *fault = "it sent bytes that are no message of ours";
        if (st == ST_PEER_LOST) fault = "it closed the connection";
        if (st == ST_CANCELED) fault = "it sent a message whose seal is wrong";
        lose(n, p, fault);
        return;
    }
    p->heard_us = clock_us();
    switch (h.type) {
    case WIRE_BEAT: return;
    case WIRE_READY:
        pthread_mutex_lock(&n->lock);
        p->ready = true;
        pthread_cond_broadcast(&n->wake);
        pthread_mutex_unlock(&n->lock);
        return;
    case WIRE_VOTE:
    case WIRE_VERDICT:
        if ((h.type == WIRE_VOTE) != first || !take_vote(n, p, first ? (void *)note : n->frame, h.bytes)) break;
        return;
    case WIRE_FAIL:
        snprintf(why, sizeof why, "it says: %.*s", (int)(h.bytes < 300 ? h.bytes : 300),
                 first ? note : (const char *)n->frame);
        lose(n, p, why);
        return;
    case WIRE_BYE:
        if (first) break;
        ended(n, NODES_DONE);
        return;
    case WIRE_STEP:
        if (first || !n->slots) break;
        if (!take_step(n, h.bytes, why, sizeof why)) lose(n, p, why);
        return;
    default: break;
    }
    lose(n, p, "it sent a message that has no place here");
}

static void *watch(void *arg)
{
    struct nodes *n = arg;
    struct pollfd fds[WIRE_NODES_MAX];
    while (!atomic_load(&n->stop) && atomic_load(&n->state) == NODES_OK) {
        for (uint32_t i = 0; i < n->n_peer; i++) fds[i] = (struct pollfd){ .fd = n->peer[i].fd, .events = POLLIN };
        int n_event = poll(fds, n->n_peer, TICK_MS);
        for (uint32_t i = 0; n_event > 0 && i < n->n_peer; i++)
            if (fds[i].revents) hear(n, &n->peer[i]);
        uint64_t now = clock_us();
        for (uint32_t i = 0; i < n->n_peer && atomic_load(&n->state) == NODES_OK; i++) {
            struct node_peer *p = &n->peer[i];
            if (now - p->said_us >= NODES_BEAT_MS * 1000) {
                p->said_us = now;
                if (say(n, p, WIRE_BEAT, NULL, 0)) lose(n, p, "it does not take our messages");
            }
            if (now > p->heard_us && now - p->heard_us > NODES_LOST_MS * 1000) lose(n, p, "it is silent");
        }
    }
    return NULL;
}

static enum status start_watching(struct nodes *n, char *err, size_t err_bytes)
{
    uint64_t now = clock_us();
    for (uint32_t i = 0; i < n->n_peer; i++) n->peer[i].heard_us = n->peer[i].said_us = now;
    enum status st = thread_start(&n->watcher, THREAD_ANY, "nodes", watch, n);
    n->watching = st == ST_OK;
    if (st) snprintf(err, err_bytes, "no thread to watch the nodes: %s", status_name(st));
    return st;
}

/* ---------------------------------------------------------------- meeting */

static void draw_nonce(unsigned char nonce[WIRE_NONCE]) { CHECK(getrandom(nonce, WIRE_NONCE, 0) == WIRE_NONCE); }

/* Behind WELCOME. Without a key there is no seal: whoever configured that trusts the network (--cluster-insecure, or
 * loopback). */
static enum status seal(struct nodes *n, struct node_peer *p)
{
    bool                 first = n->cfg.node == 0;
    const unsigned char *challenge = first ? p->own_nonce : p->nonce, *hello = first ? p->nonce : p->own_nonce;
    unsigned char        key[WIRE_MAC];
    static_assert((int)WIRE_MAC == (int)LINK_KEY, "a MAC is a key");
    if (!*n->key) return ST_OK;
    wire_frame_key(key, n->key, !first, challenge, hello);
    enum status st = link_seal_open(&p->to, key);
    wire_frame_key(key, n->key, first, challenge, hello);
    if (!st) st = link_seal_open(&p->of, key);
    explicit_bzero(key, sizeof key);
    return st;
}

static struct wire_hello own_hello(const struct nodes *n, uint32_t n_block)
{
    struct wire_hello h = { .node = n->cfg.node, .n_block = n_block, .arrays = wire_arrays() };
    snprintf(h.version, sizeof h.version, "%s", n->version);
    memcpy(h.field, n->cfg.field, sizeof h.field);
    return h;
}

/* A node that is here says nothing until it is welcomed. One that went away, or that talks, makes room: it may have
 * been started again. */
static void look_after(struct nodes *n)
{
    for (uint32_t i = 0; i < n->n_peer; i++) {
        struct node_peer *p = &n->peer[i];
        char              c;
        if (!p->here) continue;
        ssize_t got = recv(p->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
        LOG_WARN("nodes: node %u, from %s, went away before all were here; waiting for it again", p->node, p->from);
        close(p->fd);
        p->fd = -1;
        p->here = false;
    }
}

/* Who has said a hello to node 0: one of us, or told why not, under the key where there is one, and forgotten. */
static void greet(struct nodes *n, const struct guest *u, uint32_t bytes, uint32_t n_block)
{
    const unsigned char *in = u->frame + LINK_HEAD;
    char                 why[WIRE_TEXT_MAX] = "";
    unsigned char        refusal[WIRE_REFUSE_BYTES];
    struct wire_hello    own = own_hello(n, n_block), hello;
    enum status          st = wire_hello_get(in, bytes, u->nonce, n->key, &hello);
    struct node_peer    *p = NULL;
    if (st == ST_CANCELED) {
        snprintf(why, sizeof why, "its --cluster-key differs from node 0's");
    } else if (st) {
        snprintf(why, sizeof why, "it is of another version than node 0");
    } else if (wire_hello_fits(&own, &hello, why, sizeof why)) {
        look_after(n);
        p = &n->peer[hello.node - 1];
        if (p->here) {
            snprintf(why, sizeof why, "there is a node %u already", hello.node);
            p = NULL;
        }
    }
    if (!p) {
        LOG_WARN_LIMITED("nodes: a node at %s is refused: %s", u->from, why);
        uint32_t size = wire_refuse_put(refusal, why, in, bytes, n->key);
        (void)link_send(u->fd, NULL, WIRE_REFUSE, refusal, size, TICK_MS);
        close(u->fd);
        return;
    }
    p->fd = u->fd;
    p->here = true;
    p->node = hello.node;
    p->n_block = hello.n_block;
    memcpy(p->nonce, hello.nonce, sizeof p->nonce);
    memcpy(p->own_nonce, u->nonce, sizeof p->own_nonce);
    snprintf(p->from, sizeof p->from, "%s", u->from);
    LOG_INFO("nodes: node %u of %u is here, from %s", hello.node, n->cfg.n_node, u->from);
}

/* Until all are here. */
static enum status gather(struct nodes *n, uint32_t n_block, char *err, size_t err_bytes)
{
    uint64_t      deadline = clock_us() + n->cfg.patience_ms * (uint64_t)1000;
    uint32_t      n_here = 0, bytes;
    enum status   st = ST_OK;
    struct guests guests;
    struct guest  u;
    guests_init(&guests, n->listener);
    while (!st && n_here < n->n_peer) {
        if (guests_next(&guests, TICK_MS, &u, &bytes)) greet(n, &u, bytes, n_block);
        look_after(n);
        n_here = 0;
        for (uint32_t i = 0; i < n->n_peer; i++) n_here += n->peer[i].here;
        if (atomic_load(&n->stop)) st = ST_CANCELED;
        if (n_here < n->n_peer && clock_us() > deadline) {
            snprintf(err, err_bytes, "--nnodes %u: after %g s only %u of the other %u nodes are here", n->cfg.n_node,
                     n->cfg.patience_ms / 1000.0, n_here, n->n_peer);
            st = ST_TIMEOUT;
        }
    }
    guests_free(&guests);
    return st;
}

static enum status agree_first(struct nodes *n, uint32_t *n_block, unsigned char comm_id[DEV_COMM_ID], char *err,
                               size_t err_bytes)
{
    uint32_t least = *n_block;
    LOG_INFO("nodes: node 0 of %u waits for the others on %s port %u", n->cfg.n_node, n->master, n->port);
    enum status st = gather(n, *n_block, err, err_bytes);
    if (st) return st;
    for (uint32_t i = 0; i < n->n_peer; i++)
        if (n->peer[i].n_block < least) least = n->peer[i].n_block;
    struct wire_welcome w = { .n_block = least };
    st = dev_comm_id(n->cfg.device, w.comm);
    if (st) {
        snprintf(err, err_bytes,
                 "--nnodes: these devices cannot reach each other over the network (the line above says why)");
        return st;
    }
    for (uint32_t i = 0; i < n->n_peer; i++) {
        unsigned char out[WIRE_WELCOME_BYTES];
        wire_welcome_put(out, &w, n->peer[i].nonce, n->key);
        if (say(n, &n->peer[i], WIRE_WELCOME, out, sizeof out)) {
            snprintf(err, err_bytes, "--nnodes: node %u went away before all were here", n->peer[i].node);
            return ST_PEER_LOST;
        }
        if ((st = seal(n, &n->peer[i]))) {
            snprintf(err, err_bytes, "no memory to seal messages");
            return st;
        }
    }
    *n_block = least;
    memcpy(comm_id, w.comm, DEV_COMM_ID);
    return ST_OK;
}

/* Node 0, or somebody in its place, says no. ST_CONFIG: it is node 0, this node need not try again. Where there is a
 * key and no word under it, it may be anybody, so it is asked again; if that is for another key, it stays so until this
 * node's patience ends, and err says what it said. */
static enum status refused(const struct nodes *n, const unsigned char *in, uint32_t bytes,
                           const unsigned char nonce[WIRE_NONCE], char *err, size_t err_bytes)
{
    char        why[WIRE_TEXT_MAX + 1];
    enum status st = wire_refuse_get(in, bytes, nonce, n->key, why);
    snprintf(err, err_bytes, "--nnodes: node 0 (%.60s) refuses this node: %.200s%s", n->master, why,
             st == ST_OK ? "" : " (not signed with this node's --cluster-key)");
    if (st) LOG_WARN_LIMITED("nodes: %s; asking again", err);
    return st == ST_OK ? ST_CONFIG : ST_AGAIN;
}

/* One attempt of a worker. ST_AGAIN: node 0 is not there (yet). */
static enum status meet_first(struct nodes *n, uint32_t n_block, uint64_t deadline_us, struct wire_welcome *w_out,
                              char *err, size_t err_bytes)
{
    struct node_peer *p = &n->peer[0];
    struct link_head  h;
    struct wire_hello own = own_hello(n, n_block);
    unsigned char     nonce[WIRE_NONCE], out[WIRE_HELLO_BYTES], in[WIRE_REFUSE_BYTES + WIRE_WELCOME_BYTES];
    if (link_connect(n->master, n->cfg.port, HELLO_MS, &p->fd, err, err_bytes)) return ST_AGAIN;
    draw_nonce(own.nonce);
    enum status st = link_recv(p->fd, NULL, nonce, sizeof nonce, &h, HELLO_MS);
    if (!st && (h.type != WIRE_CHALLENGE || h.bytes != sizeof nonce)) st = ST_INVALID;
    if (!st) {
        wire_hello_put(out, &own, nonce, n->key);
        st = link_send(p->fd, NULL, WIRE_HELLO, out, sizeof out, HELLO_MS);
    }
    while (!st && (st = link_recv(p->fd, NULL, in, sizeof in, &h, TICK_MS)) == ST_AGAIN && clock_us() < deadline_us &&
           !atomic_load(&n->stop)) {
        st = ST_OK;
        h.type = 0;
    } /* the others are not all there */
    if (!st && h.type == WIRE_REFUSE) {
        st = refused(n, in, h.bytes, own.nonce, err, err_bytes);
    } else if (!st && h.type == WIRE_WELCOME) {
        st = wire_welcome_get(in, h.bytes, own.nonce, n->key, w_out);
        if (st) snprintf(err, err_bytes, "--nnodes: node 0 (%.200s) signs with another --cluster-key", n->master);
        memcpy(p->nonce, nonce, sizeof p->nonce);
        memcpy(p->own_nonce, own.nonce, sizeof p->own_nonce);
        if (st)
            st = ST_CONFIG;
        else if (!(st = seal(n, p)))
            return ST_OK;
        else
            snprintf(err, err_bytes, "no memory to seal messages");
    } else if (st != ST_AGAIN) {
        snprintf(err, err_bytes, "%.200s port %u: what answers there is no node 0 of this version", n->master,
                 n->cfg.port);
        st = ST_AGAIN;
    }
    close(p->fd);
    p->fd = -1;
    return st;
}

static enum status agree_other(struct nodes *n, uint32_t *n_block, unsigned char comm_id[DEV_COMM_ID], char *err,
                               size_t err_bytes)
{
    uint64_t            asked = clock_us(), deadline = asked + n->cfg.patience_ms * (uint64_t)1000, told = asked;
    struct wire_welcome w;
    enum status         st;
    char                why[WIRE_TEXT_MAX] = "";
    LOG_INFO("nodes: node %u of %u looks for node 0 at %s port %u", n->cfg.node, n->cfg.n_node, n->master, n->cfg.port);
    while ((st = meet_first(n, *n_block, deadline, &w, why, sizeof why)) == ST_AGAIN) {
        uint64_t now = clock_us();
        if (atomic_load(&n->stop)) return ST_CANCELED;
        if (asked >= deadline) { /* the last attempt begins when the patience ends, however long the one before took */
            snprintf(err, err_bytes, "--master-addr: node 0 does not come within %g s: %s", n->cfg.patience_ms / 1000.0,
                     why);
            return ST_TIMEOUT;
        }
        if (now - told > SAY_MS * (uint64_t)1000) {
            LOG_INFO("nodes: still waiting for node 0: %s", why);
            told = now;
        }
        uint64_t left_ms = now < deadline ? (deadline - now) / 1000 + 1 : 0;
        poll(NULL, 0, left_ms < RETRY_MS ? (int)left_ms : RETRY_MS);
        asked = clock_us();
    }
    if (st) {
        snprintf(err, err_bytes, "%s", why);
        return st;
    }
    if (w.n_block > *n_block || !w.n_block) {
        snprintf(err, err_bytes, "node 0 asks for %u KV blocks, this node has room for %u", w.n_block, *n_block);
        return ST_CONFIG;
    }
    n->peer[0].here = true;
    snprintf(n->peer[0].from, sizeof n->peer[0].from, "%.60s", n->master);
    *n_block = w.n_block;
    memcpy(comm_id, w.comm, DEV_COMM_ID);
    return ST_OK;
}

enum status nodes_agree(void *nodes, uint32_t *n_block, unsigned char comm_id[DEV_COMM_ID], char *err, size_t err_bytes)
{
    struct nodes *n = nodes;
    enum status   st = n->cfg.node ? agree_other(n, n_block, comm_id, err, err_bytes)
                                   : agree_first(n, n_block, comm_id, err, err_bytes);
    if (st) return st;
    n->cfg.limits.n_block = *n_block;
    LOG_INFO("nodes: all %u nodes are here, %u KV blocks each", n->cfg.n_node, *n_block);
    return start_watching(n, err, err_bytes);
}

/* ---------------------------------------------------------------- running */

static void first_submit(void *ctx, struct batch *b)
{
    struct nodes *n = ctx;
    if (atomic_load(&n->state) == NODES_OK) {
        uint32_t bytes = wire_step_put(n->frame, b, &n->steps);
        atomic_store_explicit(&n->n_step, n->steps.n, memory_order_relaxed);
        for (uint32_t i = 0; i < n->n_peer; i++)
            if (say(n, &n->peer[i], WIRE_STEP, n->frame, bytes)) lose(n, &n->peer[i], "it does not take our messages");
    }
    n->run.submit(n->run.ctx, b);
}

static void first_graphs(void *ctx, struct dev_graphs *out)
{
    const struct nodes *n = ctx;
    *out = (struct dev_graphs){ .n = 0 };
    if (n->run.graphs) n->run.graphs(n->run.ctx, out);
}

static enum status first_wait(void *ctx, struct batch *b)
{
    struct nodes *n = ctx;
    enum status   st = n->run.wait(n->run.ctx, b);
    return atomic_load(&n->state) == NODES_OK ? st : ST_DEVICE;
}

/* The next step to run, or NULL: it is over, or none has come within GRACE_MS (only where some are in flight: the one
 * behind them usually comes while they run, and should be enqueued then; nobody here waits for their results). */
static struct batch *next_step(struct nodes *n, uint64_t at, bool in_flight)
{
    struct batch   *b = NULL;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += GRACE_MS * 1000000L;
    if (limit.tv_nsec >= 1000000000L) {
        limit.tv_nsec -= 1000000000L;
        limit.tv_sec++;
    }
    pthread_mutex_lock(&n->lock);
    for (int e = 0; n->n_in == at && atomic_load(&n->state) == NODES_OK && !atomic_load(&n->stop) && !e;)
        e = in_flight ? pthread_cond_timedwait(&n->wake, &n->lock, &limit) : pthread_cond_wait(&n->wake, &n->lock);
    if (n->n_in > at) b = &n->slot[at % SLOTS];
    pthread_mutex_unlock(&n->lock);
    return b;
}

static void give_back(struct nodes *n)
{
    pthread_mutex_lock(&n->lock);
    n->n_free++;
    pthread_cond_broadcast(&n->wake);
    pthread_mutex_unlock(&n->lock);
}

/* Steps as node 0 tells them: submitted when they come, waited for when there are as many as the runner takes or no
 * other has come. */
static void *work(void *arg)
{
    struct nodes *n = arg;
    uint64_t      n_sub = 0, n_done = 0;
    uint32_t      depth = n->run.depth ? n->run.depth : 1;
    enum status   st = ST_OK;
    while (!st) {
        bool          full = n_sub - n_done == depth;
        struct batch *b = full ? NULL : next_step(n, n_sub, n_sub > n_done);
        if (!b && n_sub == n_done) break; /* nothing left, and nothing will come */
        if (b) {
            n->run.submit(n->run.ctx, b);
            n_sub++;
            continue;
        }
        st = n->run.wait(n->run.ctx, &n->slot[n_done % SLOTS]);
        n_done++;
        atomic_store_explicit(&n->n_step, n_done, memory_order_relaxed);
        give_back(n);
    }
    if (!st) return NULL;
    static const char text[] = "its device is lost";
    (void)say(n, &n->peer[0], WIRE_FAIL, text, sizeof text - 1);
    for (; n_done < n_sub; n_done++) (void)n->run.wait(n->run.ctx, &n->slot[n_done % SLOTS]);
    int ok = NODES_OK;
    if (atomic_compare_exchange_strong(&n->state, &ok, NODES_LOST)) ended(n, NODES_LOST);
    return NULL;
}

static enum status start_first(struct nodes *n, struct eng_runner *run, char *err, size_t err_bytes)
{
    uint64_t begin = clock_us();
    uint32_t n_ready = 0;
    while (n_ready < n->n_peer && atomic_load(&n->state) == NODES_OK && !atomic_load(&n->stop)) {
        n_ready = 0;
        pthread_mutex_lock(&n->lock);
        for (uint32_t i = 0; i < n->n_peer; i++) n_ready += n->peer[i].ready;
        pthread_mutex_unlock(&n->lock);
        if (n_ready == n->n_peer) break;
        if (clock_us() - begin > n->cfg.patience_ms * (uint64_t)1000) {
            snprintf(err, err_bytes, "--nnodes: %u of %u nodes have not loaded within %g s", n->n_peer - n_ready,
                     n->n_peer, n->cfg.patience_ms / 1000.0);
            return ST_TIMEOUT;
        }
        poll(NULL, 0, 20);
    }
    if (n_ready < n->n_peer) {
        snprintf(err, err_bytes, "--nnodes: a node was lost while loading (the line above says which)");
        return ST_DEVICE;
    }
    *run = (struct eng_runner){
        .ctx = n, .submit = first_submit, .wait = first_wait, .graphs = first_graphs, .depth = n->run.depth
    };
    return ST_OK;
}

enum status nodes_start(struct nodes *n, struct eng_runner *run, char *err, size_t err_bytes)
{
    n->run = *run;
    if (n->cfg.node == 0) return start_first(n, run, err, err_bytes);
    enum status st = say(n, &n->peer[0], WIRE_READY, NULL, 0);
    if (!st) st = thread_start(&n->worker, THREAD_ENGINE, "steps", work, n);
    n->working = st == ST_OK;
    if (st) snprintf(err, err_bytes, "--nnodes: node 0 is gone, or there is no thread: %s", status_name(st));
    return st;
}

/* ---------------------------------------------------------------- life */

enum status nodes_create(const struct nodes_cfg *cfg, struct nodes **n_out, char *err, size_t err_bytes)
{
    CHECK(cfg->n_node >= 2);
    CHECK(cfg->n_node <= WIRE_NODES_MAX);
    CHECK(cfg->node < cfg->n_node);
    uint32_t      n_peer = cfg->node ? 1 : cfg->n_node - 1;
    struct nodes *n = calloc(1, sizeof *n + n_peer * sizeof n->peer[0]);
    if (!n) return ST_NOMEM;
    enum status st = ST_NOMEM;
    n->cfg = *cfg;
    n->n_peer = n_peer;
    n->listener = -1;
    n->port = cfg->port;
    n->vote = (struct dev_vote){ n, vote_cast, vote_result };
    if (!n->cfg.patience_ms) n->cfg.patience_ms = 600000;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->wake, NULL);
    for (uint32_t i = 0; i < n_peer; i++) {
        n->peer[i].fd = -1;
        n->peer[i].node = cfg->node ? 0 : i + 1;
        pthread_mutex_init(&n->peer[i].send, NULL);
    }
    n->master = strdup(cfg->master);
    n->key = strdup(cfg->key ? cfg->key : "");
    n->version = strdup(cfg->version);
    n->frame_max = wire_step_bytes_max(&cfg->limits.b);
    if (n->frame_max < NOTE_MAX) n->frame_max = NOTE_MAX;
    n->frame = malloc(n->frame_max);
    if (!n->master || !n->key || !n->version || !n->frame || (st = dev_group_create(cfg->n_local, &n->group))) goto err;
    if (cfg->node) {
        n->slots = true;
        for (int i = 0; i < SLOTS; i++)
            if ((st = batch_init(&n->slot[i], &cfg->limits.b))) goto err;
    } else if ((st = link_listen(cfg->master, cfg->port, &n->listener, &n->port, err, err_bytes))) {
        goto err;
    }
    *n_out = n;
    return ST_OK;
err:
    if (st == ST_NOMEM) snprintf(err, err_bytes, "no memory for %u nodes", cfg->n_node);
    nodes_free(n);
    return st;
}

void nodes_stop(struct nodes *n)
{
    if (atomic_exchange(&n->stop, true)) return;
    if (n->watching && n->cfg.node == 0 && atomic_load(&n->state) == NODES_OK)
        for (uint32_t i = 0; i < n->n_peer; i++) (void)say(n, &n->peer[i], WIRE_BYE, NULL, 0);
    pthread_mutex_lock(&n->lock);
    pthread_cond_broadcast(&n->wake);
    pthread_mutex_unlock(&n->lock);
    if (n->watching) pthread_join(n->watcher, NULL);
    if (n->working) pthread_join(n->worker, NULL);
    n->watching = n->working = false;
}

void nodes_free(struct nodes *n)
{
    if (!n) return;
    nodes_stop(n);
    for (uint32_t i = 0; i < n->n_peer; i++) {
        if (n->peer[i].fd >= 0) close(n->peer[i].fd);
        link_seal_close(&n->peer[i].to);
        link_seal_close(&n->peer[i].of);
        pthread_mutex_destroy(&n->peer[i].send);
    }
    if (n->listener >= 0) close(n->listener);
    for (int i = 0; n->slots && i < SLOTS; i++) batch_free(&n->slot[i]);
    if (n->group) dev_group_free(n->group);
    if (n->key) explicit_bzero(n->key, strlen(n->key));
    free(n->master);
    free(n->key);
    free(n->version);
    free(n->frame);
    pthread_cond_destroy(&n->wake);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
