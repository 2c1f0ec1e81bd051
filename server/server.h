/* server: the server floor as one object: the listening socket, the io threads, and the state that all of them follow.
 * server_create -> server_listen (sockets open, 503 until ready) -> server_ready -> server_drain -> server_fail_all ->
 * server_stop -> server_free.   Thread: main. */
#pragma once
#include "server/io.h"

/* cfg, auth and routes stay the caller's and must outlive the server. */
enum status server_create(const struct config *cfg, struct auth *auth, const struct routes *routes,
                          struct server **s_out);
/* Binds and listens, or takes listen_fd (moved; -1: none), on which another process accepts until server_accept. Starts
 * the threads. ST_IO: the address is not available; ST_CONFIG: listen_fd listens on another address. err: one line. */
enum status server_listen(struct server *s, int listen_fd, char *err, size_t err_bytes);
/* Starts the threads without a socket, for requests of inner.h alone. */
enum status server_start_inner(struct server *s);
void        server_accept(struct server *s, bool on);
void        server_ready(struct server *s, const struct api_model *model, const struct gen_engine *eng);
/* away true: SRV_READY becomes SRV_HANDED, and the server accepts no more. False: the reverse. */
void server_hand(struct server *s, bool away);
void server_shut_idle(struct server *s);
bool server_told(const struct server *s);  /* any thread: no generation, no body on its way, and no connection */
bool server_quiet(const struct server *s); /* the same, and it does not accept */
void server_leave(struct server *s);       /* requests are taken, /ready is 503, answers say Connection: close */
void server_drain(struct server *s);       /* new requests: 503 and close */
void server_fail_all(struct server *s);    /* running requests: an error event now */
bool server_idle(const struct server *s);  /* no generation, and no body on its way */
void server_stop(struct server *s);        /* flushes for at most a second, closes, joins */
void server_free(struct server *s);        /* after server_stop, or without a start; NULL is allowed */
/* Call it now and then: returns freed memory of large requests to the system, at most every GIVE_BACK_US. */
void server_give_back(struct server *s, uint64_t now_us);
