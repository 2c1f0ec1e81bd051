/* tls_wire: the bytes of one connection over TLS: a handshake within limits, then records in both directions between
 * its socket and two buffers. tls_wire_open ... tls_wire_free or tls_wire_give_up.   Thread: the connection's io thread.
 *
 * Every function of tls_wire_calls may free the wire that calls it. */
#pragma once
#include "server/io.h"

struct evbuffer;
struct tls_wire;

/* How reading ends. CLOSED: the client says that it sends no more; BROKEN: the connection cannot be used any more;
 * PLAIN: the client does not speak TLS, and none of its bytes was taken. */
enum tls_end { TLS_END_CLOSED, TLS_END_BROKEN, TLS_END_PLAIN };

struct tls_wire_calls {
    void (*readable)(void *arg); /* bytes were added to the input */
    void (*writable)(void *arg); /* the output fell to its low-water mark */
    void (*ended)(void *arg, enum tls_end end);
};

/* Takes the socket fd. Reads at most IN_MAX bytes ahead into the input. NULL: no memory; the socket stays the
 * caller's. */
struct tls_wire *tls_wire_open(struct io *io, int fd, const struct tls_wire_calls *calls, void *arg);
/* Closes the socket. clean: the client is told that everything was sent; otherwise it can tell that something is
 * missing. */
void tls_wire_free(struct tls_wire *w, bool clean);
/* Frees it without a word to the client, and without closing the socket. */
void tls_wire_give_up(struct tls_wire *w);

struct evbuffer *tls_wire_input(struct tls_wire *w); /* received bytes; the caller drains it */
struct evbuffer *tls_wire_output(
    struct tls_wire *w); /* bytes to send; the caller adds to it, then calls tls_wire_flush */
/* Writes what the socket takes; the rest follows by itself. False: the connection is broken. Calls no function of
 * calls. */
bool tls_wire_flush(struct tls_wire *w);
bool tls_wire_shaking(const struct tls_wire *w); /* its handshake is not done */
void tls_wire_read(struct tls_wire *w, bool on);
void tls_wire_low_water(struct tls_wire *w, size_t low);
/* Tells the client that all was sent. What it still sends can be read. */
void tls_wire_shut(struct tls_wire *w);
