/* object: a store of whole objects under names (S3, Redis, or what speaks like them), and requests to it.
 *   object_open -> (per thread: object_client -> object_begin, object_cancel, object_run ... -> object_client_free) ->
 *   object_close
 * Thread: a store, any; a client and its requests, one. Nothing is sent to any other place than the endpoint, and what
 * gives credentials (creds.h).
 *
 * Requests are tried again by themselves, a bounded number of times with growing pauses, until their deadline. A GET
 * delivers exactly the bytes that were asked for or fails; a store says nothing about whether they are the right ones:
 * whoever reads checks a digest. */
#pragma once
#include "base/list.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OBJECT_NAME = 256, /* bytes of a name, with its end */
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
    OBJECT_UPLOAD_BEGIN, /* the four of a multipart upload; only S3 has them */
    OBJECT_UPLOAD_PART,
    OBJECT_UPLOAD_END,
    OBJECT_UPLOAD_ABORT
};

/* Where bytes of a GET go; the pieces together have as many as are asked for. */
struct object_piece {
    unsigned char *base;
    uint64_t       bytes;
};
/* One that is listed; name: behind the prefix of the store, any bytes but NUL. */
typedef void object_each(void *ctx, const char *name, uint64_t bytes, const char *etag);

struct object_req {
    enum object_op             op;
    char                       name[OBJECT_NAME]; /* LIST: only names that begin so */
    uint64_t                   off, bytes;        /* GET: the range. Bodies: their length */
    const struct object_piece *piece;             /* GET: [n_piece] */
    uint32_t                   n_piece;
    const void                *body;
    char                       after[OBJECT_NAME]; /* LIST: names behind this one; "": all */
    object_each               *each;
    void                      *ctx;
    char                       etag[OBJECT_ETAG];     /* GET: must have it ("": any); UPLOAD_PART: it got */
    char                       upload[OBJECT_UPLOAD]; /* UPLOAD_BEGIN gives it, the others have it */
    uint32_t                   part;                  /* UPLOAD_PART: from 1 */
    uint64_t                   deadline_us;           /* of all attempts, by clock_us; 0: 60 s from object_begin */
    void                      *owner;                 /* the caller's */
    /* results */
    enum status st;   /* ST_OK, ST_NOT_FOUND, ST_CONFIG (refused), ST_TIMEOUT, ST_PEER_LOST, ST_INVALID, ST_CANCELED */
    bool        more; /* LIST: there are further names behind `last` */
    char        last[OBJECT_NAME]; /* LIST: the last name that came, also one that each() did not get */
    char        why[OBJECT_WHY];   /* not ST_OK: one line, with the place */
    /* the client's own */
    struct list link;
    void       *call;
};

struct object_store;
struct object_client;
struct object_ops {
    const char *name;
    uint64_t    object_bytes; /* so large an object should be made */
    enum status (*client)(struct object_store *s, struct object_client **c_out);
    void (*client_free)(struct object_client *c);
    void (*begin)(struct object_client *c, struct object_req *r);
    void (*cancel)(struct object_client *c, struct object_req *r);
    uint32_t (*run)(struct object_client *c, int fd, int64_t wait_us, struct object_req **done, uint32_t max);
    void (*close)(struct object_store *s);
};
/* Begins what a kind of store keeps. */
struct object_store {
    const struct object_ops *ops;
    char                     shown[OBJECT_URL]; /* in logs */
    /* How it answers; any thread */
    _Atomic uint64_t n_failed, n_late, n_retried; /* in a row; in a row; ever */
    _Atomic uint64_t down_until_us;
};
struct object_client {
    struct object_store *store;
};
struct object_cfg {
    const char *url;               /* s3://bucket[/prefix] or redis://host[:port][/db[/prefix]] */
    const char *endpoint, *region; /* S3; NULL or "": of the environment, else AWS's own */
};

/* Whether the text is the URL of a store; nothing is connected. ST_CONFIG: err says what is wrong with it. */
bool        object_is_url(const char *text);
enum status object_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes);
void        object_close(struct object_store *s); /* its clients are gone */

enum status object_client(struct object_store *s, struct object_client **c_out); /* ST_NOMEM */
void        object_client_free(struct object_client *c); /* its requests are done or are dropped; NULL: nothing */
void object_begin(struct object_client *c, struct object_req *r);  /* r is the client's until object_run gives it */
void object_cancel(struct object_client *c, struct object_req *r); /* it ends with the next object_run */
/* Works on what was begun; returns what is done. wait_us: sleeps until something is done, fd (-1: none) can be read, or
 * that time is over; 0: does not sleep. */
uint32_t object_run(struct object_client *c, int fd, int64_t wait_us, struct object_req **done, uint32_t max);
/* One request, to its end. */
enum status object_do(struct object_client *c, struct object_req *r);
/* A whole object, in parts of part_bytes where it is longer than that and the store can (S3: at least 5 MiB). err: one
 * line. */
enum status object_put(struct object_client *c, const char *name, const void *body, uint64_t bytes, uint64_t part_bytes,
                       uint64_t deadline_us, char *err, size_t err_bytes);

/* Health: after failures in a row nothing is expected of the store for a while, which grows from a second to a minute;
 * likewise after loads in a row that nobody could wait for. Any thread. */
bool object_is_down(const struct object_store *s, uint64_t now_us);
void object_went(struct object_store *s, enum status st, bool was_get); /* a request has ended so */
void object_was_late(struct object_store *s);                           /* a GET was given up by who waited for it */

/* The kinds: url begins with their scheme. Private to transfer/object/. */
enum status s3_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes);
enum status redis_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes);
