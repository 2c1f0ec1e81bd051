/* takeover_impl: what both sides of a takeover know.   Private to server/takeover*.c. */
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
    unsigned char secret[TAKEOVER_SECRET]; /* SLAB: it is in nobody's file, and the socket is its owner's alone */
};

struct takeover {
    char            path[PATH_BYTES];
    uint32_t        seconds_max;
    int             up;     /* to the server before this one; -1: there was none */
    int             lease;  /* memfd; byte 0 locked by who serves */
    int             handed; /* the listening socket that came; -1: moved on */
    pthread_mutex_t up_lock;
    bool            alone; /* nobody before, or it has died */

    /* of the old one */
    struct takeover_ops ops;
    unsigned char       secret[TAKEOVER_SECRET];
    int                 path_fd, listen_fd, stop_fd;
    dev_t               path_dev;
    ino_t               path_ino;
    pthread_t           thread;
    bool                started;
    _Atomic bool        given, said_bye;
};

/* takeover_msg.c. limits in ms from now; ST_PEER_LOST: closed. */
enum status     take_send(int fd, const struct take_msg *m, const int *fds, uint32_t n_fd);
struct take_msg take_make(enum take_kind kind, const char *text);
/* fds_out [TAKE_FDS], -1 where none came; stop_fd: ends the waiting too (ST_CANCELED); -1: none. ST_INVALID: not this
 * protocol. */
enum status take_recv(int fd, int stop_fd, int64_t limit_ms, struct take_msg *m, int *fds_out);
bool        take_same_user(int fd);
void        take_close_fds(const int *fds);
bool        lease_take(int lease, int64_t limit_ms); /* false: another process holds it */
void        lease_drop(int lease);
int64_t     take_now_ms(void);
/* takeover_old.c */
enum status take_listen(struct takeover *t); /* path_fd at path, whatever was there */
void        take_unlisten(struct takeover *t, bool remove);
void       *take_main(void *arg);
