/* door: decides whether a request is let in, by its Host header and its API key.   Thread: the connection's io
 * thread. */
#pragma once
#include "server/http.h"

struct conn;
struct route;
struct server;

/* Protects against DNS rebinding (CVE-2024-28224): a page of another site, whose name is made to resolve to this
 * server, has that name in Host. True: the name is taken. A server on loopback takes localhost, loopback addresses and
 * the name of --host. A server on another address that needs no key also takes the names of door_name_is_local. Both
 * take those of --allowed-host. A server on another address with keys checks Host only if --allowed-host is given. An
 * empty host is taken, because every browser sends a Host header. */
bool door_takes_host(const struct server *s, struct slice host);
/* Whether no other site can have this name: a literal address, a single label, the machine's own name, or a name below
 * .local, .internal, .localhost or .svc. */
bool door_name_is_local(struct slice host, const char *own_name);
/* True: the route needs no key, or the key is right and c->req.tenant is set. False: *e is 401 or 429. */
bool door_takes_key(struct conn *c, const struct route *rt, const struct http_head *d, struct api_error *e);
