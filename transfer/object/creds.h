/* creds: the credentials for S3: an access key, its secret, a session token, and their expiry. creds_open -> creds_get
 * before each signature -> creds_close.   Thread: any that may block; a lock lets one thread fetch credentials at a
 * time.
 *
 * The first of these sources that the environment names is used, and no other:
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN    fixed
 *   AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN                      STS, AssumeRoleWithWebIdentity
 *   AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI            the container's endpoint
 *   none of them                                                   instance metadata, version 2 alone
 * Credentials with an expiry are renewed CREDS_EARLY_S seconds before it; if the renewal fails, the old ones are used
 * until they expire. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CREDS_ID = 160, CREDS_SECRET = 200, CREDS_TOKEN = 8192, CREDS_EARLY_S = 300, CREDS_WHY = 300 };

struct creds {
    char     id[CREDS_ID], secret[CREDS_SECRET], token[CREDS_TOKEN]; /* token "": none */
    uint64_t ends_s;                                                 /* Unix time of the expiry; 0: never */
};
/* The values of the environment's variables; NULL or "": not set. creds_open copies the strings. */
struct creds_cfg {
    const char *key_id, *secret, *token;
    const char *web_token_file, *role_arn, *role_session, *sts_endpoint;
    const char *container_relative, *container_full, *container_token, *container_token_file;
    const char *metadata_endpoint;
    bool        no_metadata;
    const char *region; /* a part of the host name of STS */
};
struct creds_source;

void creds_environment(struct creds_cfg *cfg_out); /* its strings belong to the environment */
/* Chooses the source; nothing is fetched yet. The caller owns *c_out. ST_CONFIG, ST_NOMEM: err has one line. */
enum status creds_open(const struct creds_cfg *cfg, struct creds_source **c_out, char *err, size_t err_bytes);
void        creds_close(struct creds_source *c); /* wipes all secrets; NULL is allowed */
/* Copies credentials that are valid now. refused: the key id of credentials that the server refused as expired, so
 * newer ones are needed; NULL or "": none. Errors: there are no valid credentials, and why has the reason. May block
 * for FETCH_MS in each request to the source. */
enum status creds_get(struct creds_source *c, const char *refused, struct creds *out, char *why, size_t why_bytes);

/* The parsers of the endpoints' answers, public for tests. false: why has one line. */
bool creds_parse_json(const char *text, size_t n, struct creds *out, char *why, size_t why_bytes);
bool creds_parse_sts(const char *text, size_t n, struct creds *out, char *why, size_t why_bytes);
/* Parses "2026-11-22T23:59:59Z", with or without a fraction. false: text has another form. */
bool creds_parse_time(const char *text, uint64_t *unix_s_out);
/* Whether a token may be sent to a container's endpoint at that URL: over https, or over http to loopback or to the
 * two link-local addresses of container agents. */
bool creds_url_is_safe(const char *url);
