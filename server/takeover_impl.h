/* takeover_impl: the messages and the state of both sides of a takeover.   Private to server/takeover*.c. */
#pragma once
#include "server/takeover.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum { TAKE_VERSION = 1, TAKE_FDS = 2, PATH_BYTES = 96, TAKE_MAX = 512 };
enum take_kind {
    TAKE_HELLO = 1,
    TAKE_WELCOME,
    TAKE_REFUSED,
    TAKE_ASK,
    TAKE_SLAB,
    TAKE_NO,
    TAKE_READY,
    TAKE_GO,
    TAKE_TAKEN,
    TAKE_BYE,
    TAKE_KINDS
};

/* One packet. The first three fields are the same in every version. */
struct take_msg {
    char                 magic[8];
    uint32_t             version, kind;
    struct kv_hand_shape shape; /* ASK */
    char                 text[200];
    unsigned char        secret[TAKEOVER_SECRET]; /* SLAB: never in a file; only the owner can use the socket */
};

struct takeover {
    char            path[PATH_BYTES];
    uint32_t        seconds_max;
    int             up;     /* connection to the previous server; -1: none */
    int             lease;  /* memfd; the serving process locks byte 0 */
    int             handed; /* the received listening socket; -1: moved to the caller */
    pthread_mutex_t up_lock;
    bool            alone; /* there is no previous server, or it has died */

    /* for the role of the old server */
    struct takeover_ops ops;
    unsigned char       secret[TAKEOVER_SECRET];
    int                 path_fd, listen_fd, stop_fd;
    dev_t               path_dev;
    ino_t               path_ino;
    pthread_t           thread;
    bool                started;
    _Atomic bool        given, said_bye;
};

/* takeover_msg.c. Limits in ms from now. ST_PEER_LOST: the connection was closed. */
enum status     take_send(int fd, const struct take_msg *m, const int *fds, uint32_t n_fd);
struct take_msg take_make(enum take_kind kind, const char *text);
/* fds_out [TAKE_FDS], -1 for those not received. stop_fd: when readable, ends the wait with ST_CANCELED; -1: none.
 * ST_INVALID: not this protocol. */
enum status take_recv(int fd, int stop_fd, int64_t limit_ms, struct take_msg *m, int *fds_out);
bool        take_same_user(int fd);
void        take_close_fds(const int *fds);
bool        lease_take(int lease, int64_t limit_ms); /* false: another process holds it */
void        lease_drop(int lease);
int64_t     take_now_ms(void);
/* takeover_old.c */
enum status take_listen(struct takeover *t); /* binds path_fd to path, replacing what was there */
void        take_unlisten(struct takeover *t, bool remove);
void       *take_main(void *arg);
