/* The bytes of one connection over TLS, between a socket pair: a client of OpenSSL at one end, the wire at the other,
 * and the loop turned by hand. Nothing here waits for a clock. */
#include "test.h"

#include "base/log.h"
#include "server/config.h"
#include "server/tls.h"
#include "server/tls_wire.h"
#include <event2/buffer.h>
#include <event2/event.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURNS_MAX = 100000, BIG = 3 << 20 };

static char          folder[] = "/tmp/spillway-tls-XXXXXX", cert_path[64], key_path[64];
static struct config cfg;
static struct server srv;
static struct io     io;
static SSL_CTX      *client_rules;

/* ---- the two ends ---- */

struct end {
    struct tls_wire *wire;
    SSL             *ssl; /* the client's */
    int              fd;  /* likewise */
    int              server_fd;
    unsigned         n_writable, n_closed, n_broken, n_plain;
    size_t           n_taken; /* of what came */
    bool             take;    /* drain what comes, at once */
    bool             frees;   /* the wire, when it is broken, as a connection does */
};

static void readable(void *arg)
{
    struct end      *e = arg;
    struct evbuffer *in = tls_wire_input(e->wire);
    if (!e->take) return;
    e->n_taken += evbuffer_get_length(in);
    evbuffer_drain(in, evbuffer_get_length(in));
}
static void writable(void *arg) { ((struct end *)arg)->n_writable++; }
static void ended(void *arg, enum tls_end how)
{
    struct end *e = arg;
    if (how == TLS_END_CLOSED) e->n_closed++;
    if (how == TLS_END_BROKEN) e->n_broken++;
    if (how == TLS_END_PLAIN) e->n_plain++;
    if (how != TLS_END_BROKEN || !e->frees) return;
    tls_wire_free(e->wire, false);
    e->wire = NULL;
}
static const struct tls_wire_calls calls = { readable, writable, ended };

static void turn(void) { event_base_loop(io.base, EVLOOP_ONCE | EVLOOP_NONBLOCK); }

static void open_end(struct end *e)
{
    int fd[2];
    *e = (struct end){ .take = true };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    e->fd = fd[0];
    e->server_fd = fd[1];
    e->ssl = SSL_new(client_rules);
    assert_true(SSL_set_fd(e->ssl, e->fd));
    SSL_set_connect_state(e->ssl);
    e->wire = tls_wire_open(&io, e->server_fd, &calls, e);
    assert_non_null(e->wire);
}
/* Both sides go on until the client has said and heard all of the handshake. */
static void greet(struct end *e)
{
    open_end(e);
    for (int i = 0; i < TURNS_MAX && (SSL_connect(e->ssl) != 1 || tls_wire_shaking(e->wire)); i++) turn();
    assert_false(tls_wire_shaking(e->wire));
    assert_int_equal(io.n_shaking, 0);
}
static void leave(struct end *e)
{
    SSL_free(e->ssl);
    if (e->fd >= 0) close(e->fd);
    if (e->wire) tls_wire_free(e->wire, false);
}
static char pattern(size_t i) { return (char)(i * 7 + (i >> 8) * 13); }
static int  unread(int fd)
{
    int n = 0;
    ioctl(fd, FIONREAD, &n);
    return n;
}

/* ---- the group ---- */

static void write_pair(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509     *cert = X509_new();
    assert_true(key && cert);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 30 * 86400);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1,
                               -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_set_pubkey(cert, key);
    assert_true(X509_sign(cert, key, EVP_sha256()));
    FILE *f = fopen(cert_path, "w");
    assert_non_null(f);
    assert_true(PEM_write_X509(f, cert));
    fclose(f);
    f = fopen(key_path, "w");
    assert_non_null(f);
    assert_true(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
    fclose(f);
    chmod(key_path, 0600);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static int setup(void **state)
{
    char err[400] = "";
    (void)state;
    log_init(LOG_LEVEL_ERROR, 2, false);
    signal(SIGPIPE, SIG_IGN); /* as server/main.c */
    assert_non_null(mkdtemp(folder));
    snprintf(cert_path, sizeof cert_path, "%s/cert", folder);
    snprintf(key_path, sizeof key_path, "%s/key", folder);
    write_pair();
    cfg.tls_cert = cert_path;
    cfg.tls_key = key_path;
    assert_int_equal(tls_create(&cfg, &srv.tls, err, sizeof err), 0);
    io.srv = &srv;
    io.base = event_base_new();
    list_init(&io.to_shake);
    client_rules = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_mode(client_rules, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return io.base && client_rules ? 0 : -1;
}
static int teardown(void **state)
{
    (void)state;
    if (io.ev_shake) event_free(io.ev_shake);
    event_base_free(io.base);
    SSL_CTX_free(client_rules);
    tls_free(srv.tls);
    unlink(cert_path);
    unlink(key_path);
    rmdir(folder);
    return 0;
}

/* ---- tests ---- */

static void A45_bytes_pass_in_both_directions_through_a_small_socket(void **state)
{
    struct end e;
    (void)state;
    greet(&e);
    e.take = false;
    struct evbuffer *out = tls_wire_output(e.wire), *in = tls_wire_input(e.wire);
    char            *data = malloc(BIG), piece[50000];
    for (size_t i = 0; i < BIG; i++) data[i] = pattern(i);
    evbuffer_add(out, data, BIG);
    tls_wire_low_water(e.wire, 1 << 20);
    assert_true(tls_wire_flush(e.wire));
    assert_true(evbuffer_get_length(out) > 1 << 20); /* the socket is small, the client has read nothing */
    size_t down = 0, up = 0, up_seen = 0;
    for (int i = 0; i < TURNS_MAX && (down < BIG || up_seen < BIG); i++) {
        int n = SSL_read(e.ssl, piece, (int)(1 + (size_t)i * 37 % sizeof piece));
        for (int k = 0; k < n; k++) assert_int_equal(piece[k], pattern(down + (size_t)k));
        if (n > 0) down += (size_t)n;
        n = up < BIG ? SSL_write(e.ssl, data + up, (int)(BIG - up)) : 0;
        if (n > 0) up += (size_t)n;
        turn();
        assert_true(evbuffer_get_length(in) <= IN_MAX);
        size_t some = (size_t)i * 101 % 30000; /* what is held back comes later, though the socket may be silent then */
        if (some > evbuffer_get_length(in)) some = evbuffer_get_length(in);
        const unsigned char *p = evbuffer_pullup(in, (ev_ssize_t)some);
        for (size_t k = 0; k < some; k++) assert_int_equal((char)p[k], pattern(up_seen + k));
        evbuffer_drain(in, some);
        up_seen += some;
    }
    assert_int_equal(down, BIG);
    assert_int_equal(up_seen, BIG);
    assert_true(e.n_writable > 1);
    assert_int_equal(e.n_closed + e.n_broken, 0);
    free(data);
    leave(&e);
}

/* A client that has closed its side and then goes, while an answer waits for it: the owner has to hear of both. */
static void A45_a_connection_may_break_after_its_client_has_closed_its_side(void **state)
{
    struct end e;
    (void)state;
    greet(&e);
    char *data = calloc(1, BIG);
    evbuffer_add(tls_wire_output(e.wire), data, BIG);
    assert_true(tls_wire_flush(e.wire));
    SSL_shutdown(e.ssl);
    for (int i = 0; i < TURNS_MAX && !e.n_closed; i++) turn();
    assert_int_equal(e.n_closed, 1);
    assert_int_equal(e.n_broken, 0);
    close(e.fd);
    e.fd = -1;
    for (int i = 0; i < TURNS_MAX && !e.n_broken; i++) turn();
    assert_int_equal(e.n_broken, 1);
    for (int i = 0; i < 10; i++) turn();
    assert_int_equal(e.n_broken + e.n_closed, 2);
    free(data);
    leave(&e);
}

static void A45_an_end_without_close_notify_is_no_clean_end(void **state)
{
    struct end e;
    (void)state;
    greet(&e);
    assert_int_equal(SSL_write(e.ssl, "half", 4), 4);
    close(e.fd);
    e.fd = -1;
    for (int i = 0; i < TURNS_MAX && !e.n_broken; i++) turn();
    assert_int_equal(e.n_taken, 4);
    assert_int_equal(e.n_broken, 1);
    assert_int_equal(e.n_closed, 0);
    leave(&e);
}

/* Changes of keys cost the server work and bring nothing; others must get their turns between them. */
static void A45_records_that_bring_nothing_do_not_hold_the_loop(void **state)
{
    struct end busy, other;
    (void)state;
    greet(&busy);
    greet(&other);
    BIO *many = BIO_new(BIO_s_mem()); /* sent as one: a socket pair holds few small pieces */
    SSL_set0_wbio(busy.ssl, many);
    while (BIO_pending(many) < 100000) {
        assert_true(SSL_key_update(busy.ssl, SSL_KEY_UPDATE_NOT_REQUESTED));
        assert_int_equal(SSL_do_handshake(busy.ssl), 1);
    }
    assert_int_equal(SSL_write(busy.ssl, "ping", 4), 4);
    char *bytes;
    long  before = BIO_get_mem_data(many, &bytes);
    assert_int_equal(send(busy.fd, bytes, (size_t)before, 0), before);
    assert_int_equal(unread(busy.server_fd), before);
    assert_int_equal(SSL_write(other.ssl, "ping", 4), 4);
    turn();
    assert_true(unread(busy.server_fd) > 0);
    assert_true(unread(busy.server_fd) < before);
    assert_int_equal(other.n_taken, 4);
    for (int i = 0; i < TURNS_MAX && !busy.n_taken; i++) turn();
    assert_int_equal(busy.n_taken, 4);
    leave(&busy);
    leave(&other);
}

static void A43_plain_bytes_stay_in_the_socket(void **state)
{
    struct end e;
    char       seen[8] = "";
    uint64_t   plain = tls_counted(srv.tls, TLS_PLAIN);
    (void)state;
    open_end(&e);
    assert_int_equal(send(e.fd, "GET /", 5, 0), 5);
    for (int i = 0; i < TURNS_MAX && !e.n_plain; i++) turn();
    assert_int_equal(e.n_plain, 1);
    assert_int_equal(recv(e.server_fd, seen, sizeof seen, 0), 5);
    assert_string_equal(seen, "GET /");
    assert_int_equal(tls_counted(srv.tls, TLS_PLAIN), plain + 1);
    assert_int_equal(io.n_shaking, 0);
    leave(&e);
}

static void A44_a_handshake_has_a_bound(void **state)
{
    static const unsigned char begin[] = {
        22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff
    }; /* a record of 16 KiB, a hello of 64 */
    struct end e;
    uint64_t   failed = tls_counted(srv.tls, TLS_FAILED);
    (void)state;
    open_end(&e);
    e.frees = true;
    assert_int_equal(send(e.fd, begin, sizeof begin, 0), sizeof begin);
    char *zero = calloc(1, 0x4000);
    for (int i = 0; i < TURNS_MAX && !e.n_broken; i++) {
        if (i % 2)
            send(e.fd, zero, 0x4000 - (i == 1 ? 4 : 0), MSG_NOSIGNAL);
        else if (i)
            send(e.fd, begin, 5, MSG_NOSIGNAL);
        turn();
    }
    assert_int_equal(e.n_broken, 1);
    assert_int_equal(tls_counted(srv.tls, TLS_FAILED), failed + 1);
    assert_int_equal(io.n_shaking, 0);
    free(zero);
    leave(&e);
}

/* Many at once: some go while they wait for their turn, the others are all served. */
static void A44_a_crowd_of_handshakes_ends(void **state)
{
    enum { CROWD = 150 };
    static struct end e[CROWD];
    uint64_t          done = tls_counted(srv.tls, TLS_DONE), unfinished = tls_counted(srv.tls, TLS_UNFINISHED);
    (void)state;
    for (int i = 0; i < CROWD; i++) {
        open_end(&e[i]);
        SSL_connect(e[i].ssl);
    }
    turn(); /* all of them stand in the queue, and a few have had their turn */
    unsigned n_gone = 0;
    for (int i = 0; i < CROWD; i += 3) {
        n_gone += tls_wire_shaking(e[i].wire);
        tls_wire_free(e[i].wire, false);
        e[i].wire = NULL;
    }
    for (int k = 0; k < TURNS_MAX && io.n_shaking; k++) {
        for (int i = 0; i < CROWD; i++)
            if (e[i].wire) SSL_connect(e[i].ssl);
        turn();
    }
    assert_int_equal(io.n_shaking, 0);
    assert_int_equal(tls_counted(srv.tls, TLS_DONE) + tls_counted(srv.tls, TLS_UNFINISHED), done + unfinished + CROWD);
    assert_int_equal(tls_counted(srv.tls, TLS_UNFINISHED), unfinished + n_gone);
    for (int i = 0; i < CROWD; i++) {
        if (e[i].wire) assert_int_equal(SSL_write(e[i].ssl, "ping", 4), 4);
    }
    for (int k = 0; k < 10; k++) turn();
    for (int i = 0; i < CROWD; i++) {
        if (e[i].wire) assert_int_equal(e[i].n_taken, 4);
        leave(&e[i]);
    }
}

static void *reload(void *arg)
{
    char err[400];
    (void)arg;
    for (int i = 0; i < 20; i++)
        if (tls_reload(srv.tls, err, sizeof err)) return &srv;
    return NULL;
}
static void A46_certificates_are_read_again_while_clients_come(void **state)
{
    pthread_t t;
    void     *bad;
    (void)state;
    assert_int_equal(pthread_create(&t, NULL, reload, NULL), 0);
    for (int i = 0; i < 20; i++) {
        struct end e;
        greet(&e);
        assert_int_equal(SSL_write(e.ssl, "ping", 4), 4);
        for (int k = 0; k < TURNS_MAX && !e.n_taken; k++) turn();
        assert_int_equal(e.n_taken, 4);
        leave(&e);
    }
    pthread_join(t, &bad);
    assert_null(bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A45_bytes_pass_in_both_directions_through_a_small_socket),
        cmocka_unit_test(A45_a_connection_may_break_after_its_client_has_closed_its_side),
        cmocka_unit_test(A45_an_end_without_close_notify_is_no_clean_end),
        cmocka_unit_test(A45_records_that_bring_nothing_do_not_hold_the_loop),
        cmocka_unit_test(A43_plain_bytes_stay_in_the_socket),
        cmocka_unit_test(A44_a_handshake_has_a_bound),
        cmocka_unit_test(A44_a_crowd_of_handshakes_ends),
        cmocka_unit_test(A46_certificates_are_read_again_while_clients_come),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
