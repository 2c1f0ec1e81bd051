/* tls: the certificate of this server and what clients may agree on with it: TLS 1.2 and 1.3, HTTP/1.1 by ALPN.
 * tls_create -> tls_session for each connection, tls_reload when the files have changed -> tls_free, after the last
 * session. Thread: any, except create and free. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct config;
struct ssl_st;
struct tls;

/* How handshakes end. UNFINISHED: the client left, was too slow, or gave way to others; PLAIN: it sent no TLS at
 * all. */
enum tls_result { TLS_DONE, TLS_FAILED, TLS_PLAIN, TLS_UNFINISHED, TLS_RESULTS };

/* Reads --tls-cert and --tls-key, and checks that they fit each other. A certificate that is not valid now is taken
 * with a warning. Without --tls-cert *t_out is NULL. Returns 0, or the exit code with one line in err. The caller frees
 * *t_out with tls_free. */
int  tls_create(const struct config *c, struct tls **t_out, char *err, size_t err_bytes);
void tls_free(struct tls *t);
/* Reads both files again. Connections that are open keep what they have. Not ST_OK, also for a certificate that is not
 * valid now: one line in err, and what was read before stays in use. t NULL: ST_OK. */
enum status tls_reload(struct tls *t, char *err, size_t err_bytes);
/* A session in the role of the server, without a socket; the caller frees it with SSL_free. NULL: no memory. */
struct ssl_st *tls_session(struct tls *t);
/* A handshake has ended; once for each. */
void     tls_count(struct tls *t, enum tls_result r);
uint64_t tls_counted(const struct tls *t, enum tls_result r);
/* The Unix time at which the certificate in use expires. */
int64_t tls_expires(const struct tls *t);
