#include "transfer/peer/names.h"
#include "base/log.h"
#include "base/thread.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAMES_MAX = 32, FOUND_MAX = 64, HOST_BYTES = 256 };

struct names {
    pthread_mutex_t lock;
    uint32_t        n, every_ms, n_found;
    uint64_t        round;
    void (*wake)(void *);
    void              *wake_arg;
    char               host[NAMES_MAX][HOST_BYTES], port[NAMES_MAX][8];
    bool               said[NAMES_MAX]; /* that it cannot be resolved */
    struct names_found found[FOUND_MAX];
    uint32_t           of[FOUND_MAX]; /* which name found[i] belongs to */
};

bool names_split(const char *text, char *host, uint32_t host_bytes, char port[8])
{
    const char *colon = strrchr(text, ':');
    size_t      n = colon ? (size_t)(colon - text) : 0;
    if (!n || n >= host_bytes || !colon[1] || strlen(colon + 1) > 5) return false;
    if (strspn(colon + 1, "0123456789") != strlen(colon + 1)) return false;
    unsigned long number = strtoul(colon + 1, NULL, 10);
    if (number < 1 || number > 65535) return false;
    if (text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    } else if (memchr(text, ':', n)) {
        return false; /* an IPv6 address without brackets */
    }
    if (!n) return false;
    memcpy(host, text, n);
    host[n] = 0;
    snprintf(port, 8, "%s", colon + 1);
    return true;
}

void names_text(struct names_found *f)
{
    char host[INET6_ADDRSTRLEN], port[8];
    if (getnameinfo((struct sockaddr *)&f->addr, f->n_addr, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(f->text, sizeof f->text, "?");
    else
        snprintf(f->text, sizeof f->text, strchr(host, ':') ? "[%.45s]:%s" : "%.45s:%s", host, port);
}

/* The addresses of name i that the last round had. */
static uint32_t keep(const struct names *s, uint32_t i, struct names_found *out, uint32_t *of, uint32_t n)
{
    for (uint32_t k = 0; k < s->n_found && n < FOUND_MAX; k++) {
        if (s->of[k] != i) continue;
        of[n] = i;
        out[n++] = s->found[k];
    }
    return n;
}

/* Appends the addresses of name i to out [n]; returns the new number. A resolver that does not answer takes no address
 * away: it may be gone for a while, and the peers are still where they were. */
static uint32_t resolve(struct names *s, uint32_t i, struct names_found *out, uint32_t *of, uint32_t n)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *list = NULL;
    int             e = getaddrinfo(s->host[i], s->port[i], &hints, &list);
    if (e && !s->said[i])
        LOG_WARN("peer: %s cannot be resolved: %s; it is asked for again and again", s->host[i], gai_strerror(e));
    s->said[i] = e != 0;
    if (e && e != EAI_NONAME && e != EAI_NODATA) return keep(s, i, out, of, n);
    for (struct addrinfo *a = list; a && n < FOUND_MAX; a = a->ai_next) {
        if (a->ai_addrlen > sizeof out[n].addr) continue;
        memset(&out[n], 0, sizeof out[n]);
        memcpy(&out[n].addr, a->ai_addr, a->ai_addrlen);
        out[n].n_addr = a->ai_addrlen;
        names_text(&out[n]);
        of[n++] = i;
    }
    if (list) freeaddrinfo(list);
    return n;
}

static void *names_main(void *arg)
{
    struct names         *s = arg;
    struct names_found   *found = malloc(FOUND_MAX * sizeof *found);
    uint32_t              of[FOUND_MAX];
    const struct timespec pause = { .tv_sec = s->every_ms / 1000, .tv_nsec = s->every_ms % 1000 * 1000000 };
    while (found) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n; i++) n = resolve(s, i, found, of, n);
        pthread_mutex_lock(&s->lock);
        memcpy(s->found, found, n * sizeof *found);
        memcpy(s->of, of, n * sizeof *of);
        s->n_found = n;
        s->round++;
        s->wake(s->wake_arg);
        pthread_mutex_unlock(&s->lock);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

enum status names_start(const char *const *name, uint32_t n, uint32_t every_ms, void (*wake)(void *), void *wake_arg,
                        struct names **out)
{
    struct names *s = calloc(1, sizeof *s);
    pthread_t     thread;
    if (!s) return ST_NOMEM;
    enum status st = n <= NAMES_MAX ? ST_OK : ST_CONFIG;
    for (uint32_t i = 0; !st && i < n; i++)
        if (!names_split(name[i], s->host[i], HOST_BYTES, s->port[i])) st = ST_CONFIG;
    s->n = n;
    s->every_ms = every_ms;
    s->wake = wake;
    s->wake_arg = wake_arg;
    pthread_mutex_init(&s->lock, NULL);
    if (!st) st = thread_start(&thread, THREAD_XFER, "peer names", names_main, s);
    if (st) {
        pthread_mutex_destroy(&s->lock);
        free(s);
        return st;
    }
    pthread_detach(thread);
    *out = s;
    return ST_OK;
}

uint32_t names_get(struct names *s, struct names_found *out, uint32_t max, uint64_t *round_out)
{
    pthread_mutex_lock(&s->lock);
    uint32_t n = s->n_found < max ? s->n_found : max;
    memcpy(out, s->found, n * sizeof *out);
    *round_out = s->round;
    pthread_mutex_unlock(&s->lock);
    return n;
}
