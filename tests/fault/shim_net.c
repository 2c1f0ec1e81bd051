/* shim_net: LD_PRELOAD library that writes down whom a process wants to reach. Built by j_observe.py.
 *   SHIM_NET=FILE   a line for each connect or sendto over IP, and for each name that is looked up */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void note(const char *what, const char *whom)
{
    char        line[400];
    const char *path = getenv("SHIM_NET");
    int         fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    int         n = snprintf(line, sizeof line, "%s %.300s\n", what, whom);
    if (fd < 0) return;
    if (write(fd, line, (size_t)n) < 0) abort();
    close(fd);
}

static void note_address(const char *what, const struct sockaddr *a)
{
    char ip[INET6_ADDRSTRLEN] = "?", text[80];
    if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6)) return;
    const struct sockaddr_in  *v4 = (const void *)a;
    const struct sockaddr_in6 *v6 = (const void *)a;
    int                        is4 = a->sa_family == AF_INET;
    inet_ntop(a->sa_family, is4 ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr, ip, sizeof ip);
    snprintf(text, sizeof text, "%s port %u", ip, ntohs(is4 ? v4->sin_port : v6->sin6_port));
    note(what, text);
}

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "connect");
    note_address("connect", a);
    return real(fd, a, n);
}

ssize_t sendto(int fd, const void *p, size_t bytes, int flags, const struct sockaddr *a, socklen_t n)
{
    static ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sendto");
    note_address("sendto", a);
    return real(fd, p, bytes, flags, a, n);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    struct in6_addr any; /* an address as text is no question to anybody */
    if (node && inet_pton(AF_INET, node, &any) != 1 && inet_pton(AF_INET6, node, &any) != 1) note("name", node);
    return real(node, service, hints, out);
}
