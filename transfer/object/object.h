/* object: a store of whole objects under names (S3, Redis, or what speaks like them), and requests to it.
 *   object_open -> (per thread: object_client -> object_begin, object_cancel, object_run ... -> object_client_free) ->
 *   object_close
 * Thread: a store: any; a client and its requests: one. Requests go only to the endpoint and to the source of
 * credentials (creds.h).
 *
 * The S3 client repeats failed attempts a bounded number of times, with growing pauses, until the deadline; the Redis
 * client repeats none. A GET delivers exactly the number of bytes that were asked for or fails. A store does not vouch
 * for their content: the reader checks a digest. */
#pragma once
#include "base/list.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OBJECT_NAME = 256, /* bytes of a name, its NUL included */
    OBJECT_WHY = 320,
    OBJECT_URL = 512,
    OBJECT_ETAG = 80,
    OBJECT_UPLOAD = 400,
    OBJECT_LIST_MAX = 1000,
    OBJECT_PARTS_MAX = 1000
};

enum object_op {
    OBJECT_GET,
    OBJECT_PUT,
    OBJECT_DELETE,
    OBJECT_LIST,
    OBJECT_UPLOAD_BEGIN, /* the four operations of a multipart upload; only S3 has them */
    OBJECT_UPLOAD_PART,
    OBJECT_UPLOAD_END,
    OBJECT_UPLOAD_ABORT
};

/* A piece of memory that a GET fills. The pieces of a request together have exactly the bytes that it asks for. */
struct object_piece {
    unsigned char *base;
    uint64_t       bytes;
};
/* Called for each listed object. name: without the prefix of the store; any bytes but NUL. Strings last for the call.
 * */
typedef void object_each(void *ctx, const char *name, uint64_t bytes, const char *etag);

struct object_req {
    enum object_op op;
    char           name[OBJECT_NAME]; /* LIST: the prefix of the names wanted */
    uint64_t       off, bytes; /* GET: the range; no bytes: done at once, unasked. With a body: bytes is its length */
    const struct object_piece *piece; /* GET: [n_piece] */
    uint32_t                   n_piece;
    const void                *body;
    char                       after[OBJECT_NAME]; /* LIST: only names that sort after this one; "": all */
    object_each               *each;
    void                      *ctx;
    char                       etag[OBJECT_ETAG];     /* GET: the object must have it ("": any); UPLOAD_PART: result */
    char                       upload[OBJECT_UPLOAD]; /* UPLOAD_BEGIN: result; input of the other three */
    uint32_t                   part;                  /* UPLOAD_PART: from 1 */
    uint64_t                   deadline_us;           /* of all attempts, by clock_us; 0: 60 s from object_begin */
    void                      *owner;                 /* the caller's */
    /* results */
    enum status st;   /* ST_OK, ST_NOT_FOUND, ST_CONFIG (refused), ST_TIMEOUT, ST_PEER_LOST, ST_INVALID, ST_CANCELED */
    bool        more; /* LIST: the store has further names after `last` */
    char        last[OBJECT_NAME]; /* LIST: the last name of the answer, even if each() was not called for it */
    char        why[OBJECT_WHY];   /* set if st is not ST_OK: one line, with the URL */
    /* the client's own */
    struct list link;
    void       *call;
};

struct object_store;
struct object_client;
struct object_ops {
    const char *name;
    uint64_t    object_bytes; /* recommended size of an object */
    bool        parts;        /* the four operations of an upload in parts exist */
    enum status (*client)(struct object_store *s, struct object_client **c_out);
    void (*client_free)(struct object_client *c);
    void (*begin)(struct object_client *c, struct object_req *r);
    void (*cancel)(struct object_client *c, struct object_req *r);
    uint32_t (*run)(struct object_client *c, int fd, int64_t wait_us, struct object_req **done, uint32_t max);
    void (*close)(struct object_store *s);
};
/* The first member of each kind's own struct. */
struct object_store {
    const struct object_ops *ops;
    char                     shown[OBJECT_URL]; /* URL for logs */
    /* health; any thread */
    _Atomic uint64_t n_failed, n_late, n_retried; /* failures in a row; late GETs in a row; repeated attempts ever */
    _Atomic uint64_t down_until_us;
};
struct object_client {
    struct object_store *store;
};
struct object_cfg {
    const char *url;               /* s3://bucket[/prefix] or redis://host[:port][/db[/prefix]] */
    const char *endpoint, *region; /* S3; NULL or "": of the environment, else AWS's own */
};

bool object_is_url(const char *text); /* whether the text begins with the scheme of a store */
/* Reads the URL and the environment; connects to nothing. The caller owns *s_out; cfg is not kept. ST_CONFIG,
 * ST_NOMEM:
 * err has one line. */
enum status object_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes);
void        object_close(struct object_store *s); /* after object_client_free of all its clients */

enum status object_client(struct object_store *s, struct object_client **c_out); /* ST_NOMEM */
void        object_client_free(struct object_client *c); /* drops requests that are not done; NULL is allowed */
void        object_begin(struct object_client *c,
                         struct object_req    *r); /* r belongs to the client until object_run returns it */
void object_cancel(struct object_client *c, struct object_req *r); /* a later object_run returns it, ST_CANCELED */
/* Advances the requests that were begun. Writes those that are done to done[max] and returns how many. wait_us:
 * longest sleep until a request is done or fd (-1: none) can be read; 0: no sleep. */
uint32_t object_run(struct object_client *c, int fd, int64_t wait_us, struct object_req **done, uint32_t max);
/* Runs one request to its end, and blocks meanwhile. Returns r->st. The client has no other requests. */
enum status object_do(struct object_client *c, struct object_req *r);
/* Stores a whole object, and blocks meanwhile. An object longer than part_bytes is sent as a multipart upload where
 * the store has such (S3: parts of at least 5 MiB, at most OBJECT_PARTS_MAX). Errors: err has one line. */
enum status object_put(struct object_client *c, const char *name, const void *body, uint64_t bytes, uint64_t part_bytes,
                       uint64_t deadline_us, char *err, size_t err_bytes);

/* Health: after a failure the store counts as down for a pause that grows from a second to a minute with failures in a
 * row. GETs in a row that came too late for their caller have the same effect. Any thread. */
bool object_is_down(const struct object_store *s, uint64_t now_us);
void object_went(struct object_store *s, enum status st, bool was_get); /* counts the end of a request */
void object_was_late(struct object_store *s);                           /* counts a GET whose caller stopped waiting */

/* The kinds of store, chosen by the URL's scheme. Private to transfer/object/. */
enum status s3_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes);
enum status redis_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes);
