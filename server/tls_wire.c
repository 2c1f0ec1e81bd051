#include "server/tls_wire.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/tls.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RECORD_MAX = 16384,         /* bytes of one record (RFC 8446, section 5.1) */
    HANDSHAKE_BYTES = 64 << 10, /* most that a client may send for one; a usual one has less than 2 KiB */
    TURN_BYTES = 32 << 10,      /* taken from one socket in a turn of the loop */
    SHAKE_TURN_US = 2000,       /* of a turn, for handshakes: one costs as much as hundreds of small requests */
    FAILURES_PER_SECOND = 5,    /* lines of the log */
};

struct tls_wire {
    struct io                   *io;
    SSL                         *ssl;
    int                          fd;
    struct evbuffer             *in, *out;
    struct event                *ev_read, *ev_write;
    const struct tls_wire_calls *calls;
    void                        *arg;
    struct list                  turn;    /* in io.to_shake: bytes of its handshake have come */
    size_t                       low;     /* the low-water mark of out */
    size_t                       n_turn;  /* bytes taken from the socket in this turn */
    bool                         shaking; /* counted in io.n_shaking */
    bool                         read_on; /* the owner wants input */
    bool                         full;    /* in has IN_MAX bytes; the socket is not read */
    bool                         waits;   /* the socket took no more of out */
    bool                         reread;  /* reading waits until the socket can be written */
    bool                         broken;  /* by an error; OpenSSL must not be asked again */
    bool                         over;    /* nothing more can be read */
    bool                         ends;    /* `end` is to be told */
    enum tls_end                 end;
};

/* ---- the end ---- */

static void shaken(struct tls_wire *w, enum tls_result r)
{
    if (!w->shaking) return;
    w->shaking = false;
    w->io->n_shaking--;
    tls_count(w->io->srv->tls, r);
}

static void stop_reading(struct tls_wire *w)
{
    w->read_on = false;
    event_del(w->ev_read);
}

/* Tells the owner in the next turn, because it may have to look at bytes first. A connection whose client has said that
 * it sends no more may still break. */
static void end_soon(struct tls_wire *w, enum tls_end end)
{
    if (w->over && (end == TLS_END_CLOSED || w->end == TLS_END_BROKEN)) return;
    w->over = w->ends = true;
    w->end = end;
    stop_reading(w);
    event_active(w->ev_read, EV_READ, 0);
}

/* OpenSSL reads records until one has bytes for us. A client may send others for as long as it likes (changes of keys,
 * warnings): after TURN_BYTES the socket seems to be empty, and its event comes again. */
static long read_in_turns(BIO *b, int call, const char *data, size_t len, int i, long l, int ret, size_t *moved)
{
    struct tls_wire *w = (void *)BIO_get_callback_arg(b);
    (void)data;
    (void)len;
    (void)i;
    (void)l;
    if (call == (BIO_CB_READ | BIO_CB_RETURN) && ret > 0) w->n_turn += *moved;
    if (call != BIO_CB_READ || w->n_turn < TURN_BYTES) return ret;
    BIO_clear_retry_flags(b);
    BIO_set_retry_read(b);
    return -1;
}

/* Whether a call to OpenSSL that moved no byte is to be tried again, and on which event of the socket. */
static bool is_wait(const struct tls_wire *w, int got, bool *for_write_out)
{
    int want = SSL_get_error(w->ssl, got);
    *for_write_out = want == SSL_ERROR_WANT_WRITE;
    return want == SSL_ERROR_WANT_READ || want == SSL_ERROR_WANT_WRITE;
}

/* ---- handshake ---- */

/* A request that is not encrypted begins with the letters of its method, a handshake with 22 (RFC 8446, section
 * 5.1). */
static bool is_plain(int fd)
{
    char c = 0;
    return recv(fd, &c, 1, MSG_PEEK) == 1 && c >= 'A' && c <= 'Z';
}

static void handshake_failed(struct tls_wire *w)
{
    unsigned long code = ERR_peek_error();
    const char   *why = code ? ERR_reason_error_string(code) : NULL;
    bool          left = !code || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (!left) LOG_INFO_BURST(FAILURES_PER_SECOND, "tls: a handshake failed: %s", why ? why : "no reason is known");
    ERR_clear_error();
    w->broken = true;
    shaken(w, left ? TLS_UNFINISHED : TLS_FAILED);
}

/* False: it has ended, and the owner was told. */
static bool shake(struct tls_wire *w)
{
    bool for_write;
    w->n_turn = 0;
    if (!BIO_number_read(SSL_get_rbio(w->ssl)) && is_plain(w->fd)) {
        shaken(w, TLS_PLAIN);
        stop_reading(w);
        w->calls->ended(w->arg, TLS_END_PLAIN);
        return false;
    }
    ERR_clear_error();
    int got = SSL_accept(w->ssl);
    if (got == 1) {
        shaken(w, TLS_DONE);
        event_del(w->ev_write);
        return true;
    }
    bool wait = is_wait(w, got, &for_write);
    if (wait && BIO_number_read(SSL_get_rbio(w->ssl)) > HANDSHAKE_BYTES) {
        LOG_INFO_BURST(FAILURES_PER_SECOND, "tls: a handshake has more than %d bytes", HANDSHAKE_BYTES);
        shaken(w, TLS_FAILED);
        w->broken = true;
        wait = false;
    }
    if (wait && for_write) event_add(w->ev_write, NULL);
    if (wait && !for_write) event_del(w->ev_write);
    if (wait) return true;
    if (!w->broken) handshake_failed(w);
    stop_reading(w);
    w->calls->ended(w->arg, TLS_END_BROKEN);
    return false;
}

/* ---- after it ---- */

static void read_ended(struct tls_wire *w, int got)
{
    bool clean = SSL_get_error(w->ssl, got) == SSL_ERROR_ZERO_RETURN;
    if (!clean) w->broken = true; /* an end without a word is an attack as well as a crash: nothing more is believed */
    ERR_clear_error();
    end_soon(w, clean ? TLS_END_CLOSED : TLS_END_BROKEN);
}

/* Reads until the socket is empty, the turn is over, or the input is full. May free w. */
static void read_records(struct tls_wire *w)
{
    char   piece[RECORD_MAX];
    size_t added = 0;
    w->n_turn = 0;
    while (w->read_on) {
        size_t room = IN_MAX - evbuffer_get_length(w->in);
        if (!room) {
            w->full = true;
            event_del(w->ev_read);
            break;
        }
        ERR_clear_error();
        int  got = SSL_read(w->ssl, piece, (int)(room < sizeof piece ? room : sizeof piece));
        bool for_write;
        if (got > 0 && !evbuffer_add(w->in, piece, (size_t)got)) {
            added += (size_t)got;
            continue;
        }
        if (got <= 0 && is_wait(w, got, &for_write)) {
            w->reread = for_write;
            if (for_write) event_add(w->ev_write, NULL);
            break;
        }
        if (got > 0) { /* no memory for what was read: the stream has a hole */
            w->broken = true;
            end_soon(w, TLS_END_BROKEN);
        } else {
            read_ended(w, got);
        }
        break;
    }
    if (added) w->calls->readable(w->arg);
}

/* Handshakes go on in the order in which their bytes came, for a share of each turn: a crowd of newcomers does not keep
 * those waiting who are served. */
static void on_shake(evutil_socket_t fd, short what, void *arg)
{
    struct io     *io = arg;
    struct timeval soon = { 0 };
    uint64_t       end = clock_us() + SHAKE_TURN_US;
    (void)fd;
    (void)what;
    while (!list_empty(&io->to_shake) && clock_us() < end) {
        struct tls_wire *w = LIST_ENTRY(io->to_shake.next, struct tls_wire, turn);
        list_del(&w->turn);
        if (w->read_on && shake(w) && !w->shaking) read_records(w);
    }
    if (!list_empty(&io->to_shake)) event_add(io->ev_shake, &soon);
}

static void shake_soon(struct tls_wire *w)
{
    struct timeval soon = { 0 };
    if (!list_empty(&w->turn)) return;
    list_add_tail(&w->io->to_shake, &w->turn);
    if (!event_pending(w->io->ev_shake, EV_TIMEOUT, NULL)) event_add(w->io->ev_shake, &soon);
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    struct tls_wire *w = arg;
    (void)fd;
    (void)what;
    if (w->ends) {
        w->ends = false;
        w->calls->ended(w->arg, w->end);
        return;
    }
    if (w->broken || !w->read_on) return;
    if (w->shaking)
        shake_soon(w);
    else
        read_records(w);
}

/* The caller has drained some of the input. OpenSSL may hold bytes of which the socket knows nothing. */
static void on_drain(struct evbuffer *in, const struct evbuffer_cb_info *info, void *arg)
{
    struct tls_wire *w = arg;
    if (!info->n_deleted || !w->full || evbuffer_get_length(in) >= IN_MAX) return;
    w->full = false;
    if (!w->read_on) return;
    event_add(w->ev_read, NULL);
    if (SSL_has_pending(w->ssl)) event_active(w->ev_read, EV_READ, 0);
}

/* False: the connection is broken. */
static bool write_records(struct tls_wire *w)
{
    size_t put = 0, n;
    bool   for_write = true;
    w->waits = false;
    while (put < OUT_PAUSE && (n = evbuffer_get_length(w->out)) > 0) { /* then others get their turn */
        if (n > RECORD_MAX) n = RECORD_MAX;
        const unsigned char *p = evbuffer_pullup(w->out, (ev_ssize_t)n);
        if (!p) return false;
        ERR_clear_error();
        int got = SSL_write(w->ssl, p, (int)n);
        if (got <= 0 && (!is_wait(w, got, &for_write) || !for_write)) {
            ERR_clear_error();
            w->broken = true;
            return false;
        }
        if (got <= 0) break;
        evbuffer_drain(w->out, (size_t)got);
        put += (size_t)got;
    }
    w->waits = evbuffer_get_length(w->out) > 0;
    if (w->waits)
        event_add(w->ev_write, NULL);
    else if (!w->reread)
        event_del(w->ev_write);
    return true;
}

bool tls_wire_flush(struct tls_wire *w)
{
    if (w->broken) return false;
    return w->waits || w->shaking || write_records(w);
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
    struct tls_wire *w = arg;
    (void)fd;
    (void)what;
    if (w->broken) return;
    if (w->shaking || w->reread) {
        w->reread = false;
        event_active(w->ev_read, EV_READ, 0);
        if (!w->waits) event_del(w->ev_write);
    }
    if (!w->waits) return;
    if (!write_records(w)) {
        end_soon(w, TLS_END_BROKEN);
        event_del(w->ev_write);
    } else if (evbuffer_get_length(w->out) <= w->low) {
        w->calls->writable(w->arg);
    }
}

/* ---- life ---- */

struct tls_wire *tls_wire_open(struct io *io, int fd, const struct tls_wire_calls *calls, void *arg)
{
    struct tls_wire *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    *w = (struct tls_wire){ .io = io, .fd = fd, .calls = calls, .arg = arg, .read_on = true };
    list_init(&w->turn);
    if (!io->ev_shake) io->ev_shake = event_new(io->base, -1, 0, on_shake, io);
    w->ssl = tls_session(io->srv->tls);
    w->in = evbuffer_new();
    w->out = evbuffer_new();
    w->ev_read = event_new(io->base, fd, EV_READ | EV_PERSIST, on_read, w);
    w->ev_write = event_new(io->base, fd, EV_WRITE | EV_PERSIST, on_write, w);
    bool ok = w->ssl && w->in && w->out && w->ev_read && w->ev_write && io->ev_shake && SSL_set_fd(w->ssl, fd) &&
              evbuffer_add_cb(w->in, on_drain, w);
    if (!ok || event_add(w->ev_read, NULL)) {
        tls_wire_give_up(w);
        return NULL;
    }
    BIO_set_callback_ex(SSL_get_rbio(w->ssl), read_in_turns);
    BIO_set_callback_arg(SSL_get_rbio(w->ssl), (char *)w);
    w->shaking = true;
    io->n_shaking++;
    return w;
}

void tls_wire_give_up(struct tls_wire *w)
{
    shaken(w, TLS_UNFINISHED);
    list_del(&w->turn);
    if (w->ev_read) event_free(w->ev_read);
    if (w->ev_write) event_free(w->ev_write);
    if (w->in) evbuffer_free(w->in);
    if (w->out) evbuffer_free(w->out);
    SSL_free(w->ssl);
    free(w);
}

void tls_wire_free(struct tls_wire *w, bool clean)
{
    int fd = w->fd;
    if (clean) tls_wire_shut(w);
    tls_wire_give_up(w);
    close(fd);
}

void tls_wire_shut(struct tls_wire *w)
{
    if (w->shaking || w->broken || evbuffer_get_length(w->out)) return;
    ERR_clear_error();
    if (SSL_shutdown(w->ssl) < 0) ERR_clear_error(); /* the socket is full or gone: there is nobody to tell */
}

void tls_wire_read(struct tls_wire *w, bool on)
{
    if (w->read_on == on || w->over || w->broken) return;
    w->read_on = on;
    if (!on)
        event_del(w->ev_read);
    else if (!w->full)
        event_add(w->ev_read, NULL);
    if (on && SSL_has_pending(w->ssl)) event_active(w->ev_read, EV_READ, 0);
}

struct evbuffer *tls_wire_input(struct tls_wire *w) { return w->in; }
struct evbuffer *tls_wire_output(struct tls_wire *w) { return w->out; }
bool             tls_wire_shaking(const struct tls_wire *w) { return w->shaking; }
void             tls_wire_low_water(struct tls_wire *w, size_t low) { w->low = low; }
