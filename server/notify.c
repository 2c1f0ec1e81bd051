#include "server/notify.h"
#include "base/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A decimal number that fills the whole text; 0 for anything else. */
static uint64_t number(const char *text)
{
    char *end;
    if (!text || *text < '0' || *text > '9') return 0;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    return errno || *end ? 0 : v;
}

/* How often a sign of life is due; 0: none is wanted, or it is another process's to give. */
static uint64_t watchdog_us(void)
{
    const char *pid = getenv("WATCHDOG_PID");
    if (pid && number(pid) != (uint64_t)getpid()) return 0;
    return number(getenv("WATCHDOG_USEC")) / 2;
}

void notify_open(struct notify *n)
{
    *n = (struct notify){ .fd = -1 };
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || !*path) return;
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t             len = strlen(path);
    if ((*path != '/' && *path != '@') || len < 2 || len >= sizeof a.sun_path) {
        LOG_WARN("notify: NOTIFY_SOCKET is neither a path nor an abstract name of at most %zu bytes; nobody is told",
                 sizeof a.sun_path - 1);
        return;
    }
    memcpy(a.sun_path, path, len);
    if (*path == '@') a.sun_path[0] = 0;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*path == '/'));
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->fd < 0 || connect(n->fd, (struct sockaddr *)&a, bytes)) {
        LOG_WARN("notify: the service manager cannot be told: %s", strerror(errno));
        notify_close(n);
        return;
    }
    n->every_us = watchdog_us();
}

void notify_say(struct notify *n, const char *fmt, ...)
{
    char    text[512];
    va_list ap;
    if (n->fd < 0) return;
    va_start(ap, fmt);
    int len = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (len < 0 || len >= (int)sizeof text) return;
    if (send(n->fd, text, (size_t)len, MSG_NOSIGNAL) < 0)
        LOG_WARN_LIMITED("notify: the service manager was not told: %s", strerror(errno));
}

void notify_tick(struct notify *n, uint64_t now_us)
{
    if (!n->every_us || now_us - n->t_alive_us < n->every_us) return;
    n->t_alive_us = now_us;
    notify_say(n, "WATCHDOG=1");
}

void notify_close(struct notify *n)
{
    if (n->fd >= 0) close(n->fd);
    n->fd = -1;
    n->every_us = 0;
}
