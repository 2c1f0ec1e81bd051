#include "base/log.h"
#include "base/clock.h"
#include "base/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* PIPE_BUF is 4096 on Linux: a longer write could be torn between two writers, or written in part. */
enum { LOG_LINE_MAX = 4096, LOG_TEXT_MAX = 3000 };

enum log_sink { LOG_POLL, LOG_NONBLOCK, LOG_SOCKET, LOG_FILE };

enum log_level log_level_max = LOG_LEVEL_INFO;

static int           log_fd = STDERR_FILENO;
static int           log_fd_own = -1; /* our own description of the caller's pipe, to be closed by the next log_init */
static enum log_sink log_sink = LOG_POLL;
static bool          log_json;
static _Atomic uint64_t log_n_dropped, log_n_told;

static const char *const log_level_name[] = { "error", "warn", "info", "debug", "trace" };

void log_init(enum log_level max, int fd, bool json)
{
    struct stat st;
    log_level_max = max;
    log_json = json;
    log_fd = fd;
    log_sink = LOG_POLL;
    if (log_fd_own >= 0) close(log_fd_own);
    log_fd_own = -1;
    if (fstat(fd, &st)) return;
    if (S_ISREG(st.st_mode)) {
        log_sink = LOG_FILE;
    } else if (S_ISSOCK(st.st_mode)) {
        log_sink = LOG_SOCKET;
    } else {
        /* O_NONBLOCK belongs to the open description, which the parent and other processes share; opening the pipe once
         * more gives one of our own. Where that is refused, poll first. */
        char path[40];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        log_fd_own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (log_fd_own < 0) return;
        log_fd = log_fd_own;
        log_sink = LOG_NONBLOCK;
    }
}

uint64_t log_dropped(void) { return atomic_load_explicit(&log_n_dropped, memory_order_relaxed); }

static bool log_write(const char *line, size_t n)
{
    ssize_t got;
    do {
        if (log_sink == LOG_SOCKET) {
            got = send(log_fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        } else {
            struct pollfd p = { .fd = log_fd, .events = POLLOUT };
            if (log_sink == LOG_POLL && (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT))) return false;
            got = write(log_fd, line, n);
        }
    } while (got < 0 && errno == EINTR);
    return got > 0;
}

/* Not for eyes: controls, and what reorders, joins or hides the text around it. */
static bool log_hidden(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0xad || cp == 0x61c || (cp >= 0x200b && cp <= 0x200f) ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff ||
           (cp >= 0xfff0 && cp <= 0xfffb) || (cp & 0xfffe) == 0xfffe || (cp >= 0xe000 && cp < 0xf900) || cp >= 0xe0000;
}

/* The format that writes a code point which is not shown as it is. */
static const char *escape_of(uint32_t cp)
{
    switch (cp) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return cp < 0x80 ? "\\x%02x" : "\\u{%x}";
    }
}

/* text -> printable UTF-8 of at most max bytes; a cut is marked by "..." */
static size_t log_escape(char *out, size_t max, const char *text, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        char        one[16];
        const char *put = text + i;
        uint32_t    cp = 0, len = utf8_decode(text + i, n - i, &cp);
        size_t      n_put = len;
        if (!len || log_hidden(cp)) {
            const char *fmt = len ? escape_of(cp) : "\\x%02x";
            n_put = (size_t)snprintf(one, sizeof one, fmt, len ? cp : (unsigned)(unsigned char)text[i]);
            put = one;
        } else if (log_json && (cp == '"' || cp == '\\')) {
            one[0] = '\\';
            one[1] = (char)cp;
            put = one;
            n_put = 2;
        }
        if (log_json && put == one && one[1] != '"' &&
            n_put > 2) { /* JSON has no \x and no \u{}: show the backslash itself */
            memmove(one + 1, one, n_put);
            n_put++;
        }
        if (at + n_put + 3 > max) {
            memcpy(out + at, "...", 3);
            return at + 3;
        }
        memcpy(out + at, put, n_put);
        at += n_put;
        i += len ? len : 1;
    }
    return at;
}

static void log_emit(enum log_level level, const char *text, size_t n)
{
    char            line[LOG_LINE_MAX];
    struct timespec t;
    struct tm       tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    char at[80];
    snprintf(at, sizeof at, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", (tm.tm_year + 1900) % 10000, tm.tm_mon + 1,
             tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(t.tv_nsec / 1000000));
    int    head = snprintf(line, sizeof line, log_json ? "{\"ts\":\"%s\",\"level\":\"%s\",\"msg\":\"" : "%s %-5s ", at,
                           log_level_name[level]);
    size_t len = (size_t)head;
    len += log_escape(line + len, sizeof line - len - 4, text, n);
    if (log_json) {
        memcpy(line + len, "\"}", 2);
        len += 2;
    }
    line[len++] = '\n';
    if (!log_write(line, len)) atomic_fetch_add_explicit(&log_n_dropped, 1, memory_order_relaxed);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    int     saved = errno;
    char    text[LOG_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if ((size_t)n >= sizeof text) {
        n = sizeof text - 1;
        memcpy(text + n - 3, "...", 3);
    }
    uint64_t dropped = log_dropped(), told = atomic_load_explicit(&log_n_told, memory_order_relaxed);
    log_emit(level, text, (size_t)n);
    if (dropped > told && log_dropped() == dropped && atomic_compare_exchange_strong(&log_n_told, &told, dropped)) {
        n = snprintf(text, sizeof text, "log: %llu lines were dropped before this, the reader was too slow",
                     (unsigned long long)(dropped - told));
        log_emit(LOG_LEVEL_WARN, text, (size_t)n);
    }
    errno = saved;
}

bool log_limit_pass(struct log_limit *l)
{
    uint64_t now = clock_us(), next = atomic_load_explicit(&l->next_us, memory_order_relaxed);
    if (now < next || !atomic_compare_exchange_strong(&l->next_us, &next, now + 1000000)) {
        atomic_fetch_add_explicit(&l->n_swallowed, 1, memory_order_relaxed);
        return false;
    }
    uint64_t n = atomic_exchange_explicit(&l->n_swallowed, 0, memory_order_relaxed);
    if (n) LOG_WARN("log: %llu more lines like the next one were left out", (unsigned long long)n);
    return true;
}

bool log_burst_pass(struct log_burst *l, uint64_t per_second)
{
    uint64_t now = clock_us() / 1000000 + 1, then = atomic_load_explicit(&l->second, memory_order_relaxed);
    if (then != now && atomic_compare_exchange_strong(&l->second, &then, now)) {
        atomic_store_explicit(&l->n_here, 0, memory_order_relaxed);
        uint64_t n = atomic_exchange_explicit(&l->n_swallowed, 0, memory_order_relaxed);
        if (n) LOG_INFO("log: %llu more lines like the next one were left out", (unsigned long long)n);
    }
    if (atomic_fetch_add_explicit(&l->n_here, 1, memory_order_relaxed) < per_second) return true;
    atomic_fetch_add_explicit(&l->n_swallowed, 1, memory_order_relaxed);
    return false;
}
