/* s3: a bucket and a prefix in it, and one attempt at one request to it.   Private to transfer/object/.
 * s3_where.c reads the URL and the environment; s3_call.c makes an attempt's request and judges its answer; s3.c runs
 * attempts in libcurl's multi interface and repeats them. */
#pragma once
#include "base/buf.h"
#include "transfer/object/creds.h"
#include "transfer/object/curl.h"
#include "transfer/object/object.h"
#include "transfer/object/sigv4.h"

enum { S3_HOST = 300, S3_REGION = 40, S3_BUCKET = 64, S3_ANSWER_MAX = 2 << 20, S3_TRIES_MAX = 6 };

struct s3 {
    struct object_store  store; /* first */
    struct creds_source *creds;
    bool                 tls;
    char                 host[S3_HOST];       /* with the port, unless it is the scheme's usual one */
    char                 base[S3_BUCKET + 2]; /* begin of each path: "/bucket", or "" if the host name has the bucket */
    char                 bucket[S3_BUCKET], region[S3_REGION];
    char                 prefix[OBJECT_URL]; /* "" or "text/" */
    _Atomic int64_t      skew_s;             /* server's clock minus ours, set when the server has refused our time */
};

/* s3_where.c: fills s except creds. ST_CONFIG: err says what is wrong with the URL or the endpoint. */
enum status s3_where(const struct object_cfg *cfg, struct s3 *s, char *err, size_t err_bytes);

/* One request with its attempts. */
struct s3_call {
    struct object_req *req; /* NULL: free */
    CURL              *h;
    struct curl_slist *headers;
    bool               running; /* the handle is in the multi handle; if false, the attempt waits until again_us */
    bool               canceled, overflow;
    uint32_t           n_try;
    uint64_t           again_us, got; /* got: bytes of the body in this attempt */
    uint32_t           piece;         /* GET: the next byte goes to piece[piece] at piece_off */
    uint64_t           piece_off;
    long               code; /* 0: not known yet */
    char               range[80], etag[OBJECT_ETAG], date[40], bucket_region[S3_REGION];
    char               sha256[SIGV4_HEX]; /* of the request's body; "": not computed yet */
    char               key_id[CREDS_ID];  /* access key of the attempt's signature */
    bool               refused;           /* the server refused that key as expired */
    struct buf         answer;            /* the answer's body, unless it is an object */
    char               reason[CURL_ERROR_SIZE];
};

/* Prepares the handle for the next attempt. May block in creds_get. Errors: no attempt is possible, and req->st and
 * req->why are set. */
enum status s3_call_begin(struct s3 *s, struct s3_call *c, uint64_t now_us);
enum s3_verdict { S3_DONE, S3_AGAIN };
/* Judges an attempt that has ended. S3_DONE: req->st and req->why are set. S3_AGAIN: again_us is set. */
enum s3_verdict s3_call_judge(struct s3 *s, struct s3_call *c, CURLcode code, uint64_t now_us);
/* Sets req->st, and req->why from the reason. */
void s3_call_fail(const struct s3 *s, struct s3_call *c, enum status st, const char *reason);
