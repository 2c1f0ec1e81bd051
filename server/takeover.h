/* takeover: an upgrade that refuses no connection. A server that runs with --takeover PATH listens on that unix socket.
 * A server that is started later with the same PATH takes over its listening socket and the KV in its host memory.
 *
 *   the new one                                      the old one
 *   HELLO (version) -------------------------------> serves, and continues to serve
 *                    <-------- WELCOME (listening socket, lease)
 *   loads its model                                  serves
 *   ASK (shape of the host's KV) ------------------> freezes it (kvcache/tier_hand.h)
 *                    <-------- SLAB (slab, index), or NO (why)
 *   adopts it, starts its engine                     serves, from the device's KV alone
 *   READY -----------------------------------------> releases the lease
 *                    <-------- GO
 *   takes the lease, accepts, listens on PATH        serves
 *   TAKEN -----------------------------------------> accepts no more, drains, ends with 0
 *
 * The server that holds the lease serves. The lease is a POSIX lock on a memfd that each server passes on. The kernel
 * releases the lock when its process dies, and no other process can; so neither a clock nor a guess decides. Only the
 * holder accepts connections and writes into the slab. If one server dies at any moment, the other continues:
 *   - The old one continues when the new one's connection closes and the lease is free. If it was draining, it accepts
 *     again.
 *   - The new one continues alone when the old one's connection closes and the lease is free.
 *   - The old one abandons a new one that is not ready within --takeover-seconds, or 30 s after it got the slab. The
 *     new one then finds the lease held, and ends.
 *
 * Each side asks the kernel for the other's uid (SO_PEERCRED). The socket's mode is 0600, and only one server may take
 * over at a time.
 * Thread: a separate thread waits for the next server; other functions as marked. */
#pragma once
#include "base/status.h"
#include "kvcache/tier_hand.h"
#include <stdbool.h>
#include <stddef.h>

struct takeover;

/* The old server's part. All functions run on the takeover thread. */
struct takeover_ops {
    void *ctx;
    bool (*shape)(void *ctx, struct kv_hand_shape *out); /* false: there is no host tier */
    /* Returns after the freeze: ST_OK and the fds, still owned by the callee; after ST_TIMEOUT or ST_NOMEM call
     * thaw. */
    enum status (*freeze)(void *ctx, int *slab_fd_out, int *index_fd_out);
    void (*thaw)(void *ctx);
    void (*away)(void *ctx); /* another server serves: stop accepting and writing, release what it needs */
    void (*back)(void *ctx); /* that server has died: serve again */
};

/* Main thread. Connects to the server at path; if there is none, takeover_follows is false. Returns 0, or an exit code
 * with one line in err. */
int  takeover_open(const char *path, uint32_t seconds_max, struct takeover **t_out, char *err, size_t err_bytes);
bool takeover_follows(const struct takeover *t); /* NULL: no */
int  takeover_listener(struct takeover *t);      /* moves the listening socket to the caller; -1: none */
enum { TAKEOVER_SECRET = 32 };
/* Loader thread. true: slab and index of the old server, owned by the caller, and the secret of its tenants' salts.
 * false: the reason in why. */
bool takeover_slab(struct takeover *t, const struct kv_hand_shape *shape, int *slab_fd_out, int *index_fd_out,
                   unsigned char secret_out[TAKEOVER_SECRET], char *why, size_t why_bytes);
/* Main thread, while loading. 0: continue; 1: the old server has died and this one is the server now; else an exit code
 * with one line in err. */
int takeover_watch(struct takeover *t, char *err, size_t err_bytes);
/* Main thread, when ready. 0: this is the server now; accept connections, then call takeover_serve. Else an exit
 * code. */
int takeover_commit(struct takeover *t, char *err, size_t err_bytes);
/* Main thread. Listens on path for the next server and tells the old one that it may end. An error is a warning; this
 * server then cannot be taken over. */
void takeover_serve(struct takeover *t, int listen_fd, const unsigned char secret[TAKEOVER_SECRET],
                    const struct takeover_ops *ops);
bool takeover_given(const struct takeover *t); /* any thread: another server serves now. NULL: false */
/* Main thread: this server was told to end. A server that drained for it will not resume, and this one will not resume
 * either. false: the first call. */
bool takeover_bye(struct takeover *t);
void takeover_close(
    struct takeover *t); /* call before the engine stops; joins the thread, and removes path if it is still ours */
