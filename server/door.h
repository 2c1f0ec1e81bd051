/* door: who may come in: the name that was asked for, and the key.   Thread: the connection's io thread. */
#pragma once
#include "server/http.h"

struct conn;
struct route;
struct server;

/* DNS rebinding: a page of another site, whose name is made to resolve to this server, carries that name in Host
 * (CVE-2024-28224). On loopback only names of this machine are taken; beyond it, where no key is needed, those that no
 * other site can have. */
bool door_takes_host(const struct server *s, struct slice host);
/* A name that nobody can register: a literal address, one label, the machine's own name, or below .local, .internal,
 * .localhost, .svc. */
bool door_name_is_local(struct slice host, const char *own_name);
/* False: *e is 401 or 429. True: the request's tenant is set where a key was needed. */
bool door_takes_key(struct conn *c, const struct route *rt, const struct http_head *d, struct api_error *e);
