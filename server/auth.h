/* auth: API keys, kept as SHA-256 only and compared in constant time over all of them.   Thread: check: any; load:
 * main. Every internal error refuses the request: no path leads from an error to "allowed". */
#pragma once
#include "server/config.h"
#include "server/http.h"

struct auth;

/* Reads the keys that the options name. *a_out is the caller's. ST_CONFIG, ST_IO or ST_NOMEM, with one line in err. */
enum status auth_create(const struct config *c, struct auth **a_out, char *err, size_t err_bytes);
/* Reads --api-key-file again. On an error the old keys stay valid, and err has the reason. With --api-key-file-empty
 * deny a missing file, or a file without keys, is no error: from then on none of its keys is valid, and the log says
 * so. */
enum status auth_reload(struct auth *a, char *err, size_t err_bytes);
bool        auth_enabled(const struct auth *a); /* false: no keys are configured, everyone is the anonymous tenant */
uint32_t    auth_count(const struct auth *a);
/* head: Authorization: Bearer KEY, or x-api-key: KEY, each at most once. True: the key is right, and *tenant_out is not
 * 0 and stays the same for the key while the process lives. */
bool auth_check(struct auth *a, const struct http_head *head, uint64_t *tenant_out);
/* 128 bits that separate the cached prefixes of tenants: HMAC-SHA-256 under a key of this process. */
void auth_salt(const struct auth *a, uint64_t tenant, uint64_t lo, uint64_t hi, uint64_t *lo_out, uint64_t *hi_out);
/* The key of auth_salt. It is random at every start, unless a folder keeps it. A takeover hands it on, so that the next
 * process finds the cached prefixes. Call auth_set_secret before the first request is served. */
enum { AUTH_SECRET = 32 };
const unsigned char *auth_secret(const struct auth *a);
void                 auth_set_secret(struct auth *a, const unsigned char secret[AUTH_SECRET]);
void                 auth_free(struct auth *a);
