/* creds: who we are for S3: an access key, its secret, a session token, and when they end. creds_open -> creds_get as
 * often as a request is signed -> creds_close.   Thread: any that may block; one asks at a time, others wait for it.
 *
 * The first of these that the environment names is used, and no other:
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN    fixed
 *   AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN                      STS, AssumeRoleWithWebIdentity
 *   AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI            the container's endpoint
 *   none of them                                                   instance metadata, version 2 alone
 * What ends is asked for again CREDS_EARLY_S seconds before; while that fails, the old ones serve until their end. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CREDS_ID = 160, CREDS_SECRET = 200, CREDS_TOKEN = 8192, CREDS_EARLY_S = 300, CREDS_WHY = 300 };

struct creds {
    char     id[CREDS_ID], secret[CREDS_SECRET], token[CREDS_TOKEN]; /* token "": none */
    uint64_t ends_s;                                                 /* in wall time; 0: never */
};
/* As the environment has them; strings are copied by creds_open; NULL or "": not set. */
struct creds_cfg {
    const char *key_id, *secret, *token;
    const char *web_token_file, *role_arn, *role_session, *sts_endpoint;
    const char *container_relative, *container_full, *container_token, *container_token_file;
    const char *metadata_endpoint;
    bool        no_metadata;
    const char *region; /* for the name of STS */
};
struct creds_source;

void        creds_environment(struct creds_cfg *cfg_out); /* its strings are the environment's */
enum status creds_open(const struct creds_cfg *cfg, struct creds_source **c_out, char *err, size_t err_bytes);
void        creds_close(struct creds_source *c);
/* Credentials that are valid now. refused: those of that id were refused as expired, so others are needed. ST_CONFIG:
 * there are none, why has the reason. May take FETCH_MS for each step. */
enum status creds_get(struct creds_source *c, const char *refused, struct creds *out, char *why, size_t why_bytes);

/* The parsers of what the endpoints answer, apart for tests. false: why has one line. */
bool creds_parse_json(const char *text, size_t n, struct creds *out, char *why, size_t why_bytes);
bool creds_parse_sts(const char *text, size_t n, struct creds *out, char *why, size_t why_bytes);
/* "2026-11-22T23:59:59Z", with or without a fraction. false: it is not one. */
bool creds_parse_time(const char *text, uint64_t *unix_s_out);
/* Whether a container's endpoint may be asked at that URL: https, or http to loopback or the two link-local addresses
 * of container agents: a token goes there. */
bool creds_url_is_safe(const char *url);
