#include "server/tls.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/config.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    FILE_BYTES_MAX = 1 << 20, /* of a chain or a key */
    WHY_BYTES = 160,
    SOON_S = 14 * 86400, /* a certificate with less time left is worth a warning */
};

struct tls {
    const char      *cert_path, *key_path;
    pthread_mutex_t  lock; /* of ctx */
    SSL_CTX         *ctx;
    _Atomic int64_t  expires;
    _Atomic uint64_t n[TLS_RESULTS];
};

/* ---- the files ---- */

/* What OpenSSL says of its last error, without its codes. */
static const char *openssl_why(char out[WHY_BYTES])
{
    unsigned long code = ERR_peek_last_error();
    const char   *why = code ? ERR_reason_error_string(code) : NULL;
    snprintf(out, WHY_BYTES, "%s", why ? why : "no reason is known");
    ERR_clear_error();
    return out;
}

/* The bytes of a file in memory of their own, which the caller wipes and frees with forget(). NULL: one line in err. */
static char *read_all(const char *option, const char *path, size_t *n_out, char *err, size_t n_err)
{
    char *text = malloc(FILE_BYTES_MAX);
    int   error = text ? file_read_first(path, text, FILE_BYTES_MAX, n_out) : ENOMEM;
    if (!error && *n_out == FILE_BYTES_MAX) error = EFBIG;
    if (!error) return text;
    free(text);
    snprintf(err, n_err, "%s: cannot read %s: %s", option, path, strerror(error));
    errno = error;
    return NULL;
}

static void forget(char *text)
{
    if (text) OPENSSL_cleanse(text, FILE_BYTES_MAX);
    free(text);
}

/* A key with a passphrase is refused; without this function OpenSSL would ask for it on the terminal. */
static int no_passphrase(char *buf, int n, int writing, void *asked)
{
    (void)buf;
    (void)n;
    (void)writing;
    *(bool *)asked = true;
    return -1;
}

static EVP_PKEY *read_key(const char *path, char *err, size_t n_err)
{
    size_t      n = 0;
    bool        asked = false;
    char        why[WHY_BYTES];
    struct stat st;
    char       *text = read_all("--tls-key", path, &n, err, n_err);
    if (!text) return NULL;
    BIO      *bio = BIO_new_mem_buf(text, (int)n);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &asked) : NULL;
    if (!key && asked)
        snprintf(err, n_err, "--tls-key: the key in %s has a passphrase; allowed is a key without one", path);
    else if (!key)
        snprintf(err, n_err, "--tls-key: found no private key in PEM form in %s (%s)", path, openssl_why(why));
    else if (!stat(path, &st) && S_ISREG(st.st_mode) && st.st_mode & 007)
        LOG_WARN("tls: the key %s may be read by others (mode %o), 0600 or 0640 is better", path,
                 (unsigned)(st.st_mode & 0777));
    ERR_clear_error();
    BIO_free(bio);
    forget(text);
    errno = EINVAL;
    return key;
}

/* The server's certificate, and in *chain_out those that lead from it to a root. */
static X509 *read_chain(const char *path, STACK_OF(X509) * *chain_out, char *err, size_t n_err)
{
    size_t n = 0;
    char   why[WHY_BYTES];
    char  *text = read_all("--tls-cert", path, &n, err, n_err);
    if (!text) return NULL;
    BIO *bio = BIO_new_mem_buf(text, (int)n);
    STACK_OF(X509) *chain = sk_X509_new_null();
    X509 *own = bio && chain ? PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL) : NULL;
    bool  whole = own != NULL;
    for (X509 *next; whole && (next = PEM_read_bio_X509(bio, NULL, NULL, NULL));) {
        if (sk_X509_push(chain, next)) continue;
        X509_free(next);
        whole = false;
    }
    /* The end of the text is the error that is meant to come; any other one is a certificate that cannot be read. */
    if (whole) whole = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (!own)
        snprintf(err, n_err, "--tls-cert: found no certificate in PEM form in %s (%s)", path, openssl_why(why));
    else if (!whole)
        snprintf(err, n_err, "--tls-cert: a certificate behind the first one in %s cannot be read (%s)", path,
                 openssl_why(why));
    ERR_clear_error();
    BIO_free(bio);
    forget(text);
    errno = EINVAL;
    if (whole) {
        *chain_out = chain;
        return own;
    }
    X509_free(own);
    sk_X509_pop_free(chain, X509_free);
    return NULL;
}

static int64_t unix_time(const ASN1_TIME *t)
{
    struct tm tm = { 0 };
    return ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

static void date_text(int64_t at, char out[32])
{
    time_t    t = (time_t)at;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm);
}

/* Sets *expires_out to the end of its time. False: it is not valid now, with one line in err. */
static bool is_valid_now(const char *path, const X509 *cert, int64_t *expires_out, char *err, size_t n_err)
{
    int64_t now = clock_wall_s(), from = unix_time(X509_get0_notBefore(cert));
    int64_t end = unix_time(X509_get0_notAfter(cert));
    char    date[32];
    *expires_out = end;
    if (now < from) {
        date_text(from, date);
        snprintf(err, n_err, "--tls-cert: the certificate in %s is not valid before %s", path, date);
        return false;
    }
    date_text(end, date);
    if (now >= end) {
        snprintf(err, n_err, "--tls-cert: the certificate in %s has expired on %s", path, date);
        return false;
    }
    if (end - now < SOON_S) LOG_WARN("tls: the certificate in %s expires on %s", path, date);
    return true;
}

/* ---- what is agreed on ---- */

/* A client that offers protocols and not HTTP/1.1 cannot be served (RFC 7301, section 3.2). */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out, const unsigned char *in,
                           unsigned n_in, void *arg)
{
    static const unsigned char http1[] = "\x08http/1.1";
    unsigned char             *found = NULL;
    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&found, n_out, http1, sizeof http1 - 1, in, n_in) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = found;
    return SSL_TLSEXT_ERR_OK;
}

static bool set_rules(SSL_CTX *ctx)
{
    /* Forward secrecy and authenticated encryption alone; TLS 1.3 has nothing else. */
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION)) return false;
    if (!SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20")) return false;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_PRIORITIZE_CHACHA);
    /* A buffer that is empty is given back: most connections are idle. What is written may move between two tries. */
    SSL_CTX_set_mode(ctx,
                     SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* clients keep tickets; nothing is kept here */
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    return true;
}

/* NULL: one line in err, and errno tells a file that may not be read (EACCES) from others. */
static SSL_CTX *make_context(const struct tls *t, int64_t *expires_out, char *err, size_t n_err)
{
    STACK_OF(X509) *chain = NULL;
    X509     *own = NULL;
    SSL_CTX  *ctx = NULL;
    bool      ok = false;
    char      why[WHY_BYTES];
    EVP_PKEY *key = read_key(t->key_path, err, n_err);
    if (key) own = read_chain(t->cert_path, &chain, err, n_err);
    if (!own) goto done;
    if (!is_valid_now(t->cert_path, own, expires_out, err, n_err)) {
        errno = EINVAL;
        if (t->ctx) goto done; /* the one before may still be valid */
        /* A server that did not start would serve nobody; with this one, those clients that do not look at the time. */
        LOG_WARN("tls: %s; it is served all the same", err);
    }
    if (!X509_check_private_key(own, key)) {
        ERR_clear_error();
        errno = EINVAL;
        snprintf(err, n_err, "--tls-key: the key in %s is not that of the certificate in %s", t->key_path,
                 t->cert_path);
        goto done;
    }
    ctx = SSL_CTX_new(TLS_server_method());
    ok = ctx && set_rules(ctx) && SSL_CTX_use_cert_and_key(ctx, own, key, chain, 1) == 1;
    if (ok) goto done;
    errno = EINVAL;
    snprintf(err, n_err, "--tls-cert: the certificate in %s cannot be used: %s", t->cert_path, openssl_why(why));
    SSL_CTX_free(ctx);
    ctx = NULL;
done:
    EVP_PKEY_free(key);
    X509_free(own);
    sk_X509_pop_free(chain, X509_free);
    return ctx;
}

/* ---- life ---- */

int tls_create(const struct config *c, struct tls **t_out, char *err, size_t err_bytes)
{
    *t_out = NULL;
    if (!*c->tls_cert) return 0;
    struct tls *t = calloc(1, sizeof *t);
    snprintf(err, err_bytes, "no memory for TLS");
    if (!t) return EXIT_SOFTWARE;
    pthread_mutex_init(&t->lock, NULL);
    t->cert_path = c->tls_cert;
    t->key_path = c->tls_key;
    int64_t expires = 0;
    t->ctx = make_context(t, &expires, err, err_bytes);
    if (!t->ctx) {
        int code = errno == EACCES ? EXIT_PERM : EXIT_CONFIG;
        tls_free(t);
        return code;
    }
    atomic_store(&t->expires, expires);
    *t_out = t;
    return 0;
}

void tls_free(struct tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->ctx);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

enum status tls_reload(struct tls *t, char *err, size_t err_bytes)
{
    if (!t) return ST_OK;
    int64_t  expires = 0;
    SSL_CTX *ctx = make_context(t, &expires, err, err_bytes), *old;
    if (!ctx) return ST_CONFIG;
    pthread_mutex_lock(&t->lock);
    old = t->ctx;
    t->ctx = ctx;
    pthread_mutex_unlock(&t->lock);
    atomic_store(&t->expires, expires);
    SSL_CTX_free(old); /* its sessions hold it */
    char date[32];
    date_text(expires, date);
    LOG_INFO("tls: %s was read again, it expires on %s", t->cert_path, date);
    return ST_OK;
}

struct ssl_st *tls_session(struct tls *t)
{
    pthread_mutex_lock(&t->lock);
    SSL *ssl = SSL_new(t->ctx);
    pthread_mutex_unlock(&t->lock);
    if (ssl) SSL_set_accept_state(ssl);
    return ssl;
}

void     tls_count(struct tls *t, enum tls_result r) { atomic_fetch_add_explicit(&t->n[r], 1, memory_order_relaxed); }
uint64_t tls_counted(const struct tls *t, enum tls_result r)
{
    return atomic_load_explicit(&t->n[r], memory_order_relaxed);
}
int64_t tls_expires(const struct tls *t) { return atomic_load(&t->expires); }
