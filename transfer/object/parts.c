/* parts: stores a whole object, a long one in parts of which several are sent at a time. In the end the store has the
 * whole object or nothing: if a part fails, the upload is aborted and the store removes its parts. */
#include "transfer/object/object.h"
#include "base/buf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 8, DOCUMENT_MAX = 256 << 10 };

struct parts {
    struct object_client *c;
    const unsigned char  *body;
    uint64_t              bytes, part_bytes;
    uint32_t              n, n_begun, n_done;
    struct object_req     slot[AT_ONCE];
    char (*etag)[OBJECT_ETAG]; /* [n] */
    struct object_req *whole;  /* name, deadline and number of the upload */
};

static void begin_part(struct parts *p, struct object_req *r)
{
    uint64_t off = p->n_begun * p->part_bytes;
    uint64_t left = p->bytes - off;
    memset(r, 0, sizeof *r);
    r->op = OBJECT_UPLOAD_PART;
    memcpy(r->name, p->whole->name, sizeof r->name);
    memcpy(r->upload, p->whole->upload, sizeof r->upload);
    r->deadline_us = p->whole->deadline_us;
    r->body = p->body + off;
    r->bytes = left < p->part_bytes ? left : p->part_bytes;
    r->part = ++p->n_begun;
    object_begin(p->c, r);
}

/* Sends all parts, AT_ONCE at a time. After the first failure no part is begun, and the running ones end. */
static enum status send_all(struct parts *p, char *err, size_t err_bytes)
{
    enum status        st = ST_OK;
    struct object_req *done[AT_ONCE];
    for (uint32_t i = 0; i < AT_ONCE && p->n_begun < p->n; i++) begin_part(p, &p->slot[i]);
    while (p->n_done < p->n_begun) {
        uint32_t n = object_run(p->c, -1, 1000000, done, AT_ONCE);
        for (uint32_t i = 0; i < n; i++) {
            struct object_req *r = done[i];
            p->n_done++;
            if (r->st && !st) {
                st = r->st;
                snprintf(err, err_bytes, "%s", r->why);
            }
            memcpy(p->etag[r->part - 1], r->etag, OBJECT_ETAG);
            if (!st && p->n_begun < p->n) begin_part(p, r);
        }
    }
    return st;
}

static enum status end_upload(struct parts *p, char *err, size_t err_bytes)
{
    struct buf document;
    buf_init(&document, DOCUMENT_MAX);
    buf_puts(&document, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (uint32_t i = 0; i < p->n; i++)
        buf_printf(&document, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1, p->etag[i]);
    buf_puts(&document, "</CompleteMultipartUpload>");
    enum status st = document.failed ? ST_NOMEM : ST_OK;
    p->whole->op = OBJECT_UPLOAD_END;
    p->whole->body = document.data;
    p->whole->bytes = document.n;
    if (!st) st = object_do(p->c, p->whole);
    if (st) snprintf(err, err_bytes, "%s", *p->whole->why ? p->whole->why : "no memory for a list of parts");
    buf_free(&document);
    return st;
}

static enum status put_parts(struct object_client *c, const char *name, const void *body, uint64_t bytes,
                             uint64_t part_bytes, uint64_t deadline_us, char *err, size_t err_bytes)
{
    uint64_t n = (bytes + part_bytes - 1) / part_bytes;
    if (n > OBJECT_PARTS_MAX) {
        snprintf(err, err_bytes, "an object of %llu bytes has more than %d parts", (unsigned long long)bytes,
                 OBJECT_PARTS_MAX);
        return ST_TOO_LARGE;
    }
    struct object_req whole = { .op = OBJECT_UPLOAD_BEGIN, .deadline_us = deadline_us };
    struct parts     *p = calloc(1, sizeof *p);
    if (p) *p = (struct parts){ .c = c, .body = body, .bytes = bytes, .part_bytes = part_bytes, .n = (uint32_t)n };
    if (p) p->etag = calloc(n, sizeof *p->etag);
    if (!p || !p->etag) {
        free(p);
        snprintf(err, err_bytes, "no memory for %llu parts", (unsigned long long)n);
        return ST_NOMEM;
    }
    p->whole = &whole;
    snprintf(whole.name, sizeof whole.name, "%s", name);
    enum status st = object_do(c, &whole);
    if (st) {
        snprintf(err, err_bytes, "%s", whole.why);
    } else {
        st = send_all(p, err, err_bytes);
        if (!st) st = end_upload(p, err, err_bytes);
        if (st) { /* parts left behind cost money; if the abort fails too, the bucket's own rules must remove them */
            whole.op = OBJECT_UPLOAD_ABORT;
            whole.body = NULL;
            whole.bytes = 0;
            whole.deadline_us = 0;
            object_do(c, &whole);
        }
    }
    free(p->etag);
    free(p);
    return st;
}

static enum status put_whole(struct object_client *c, const char *name, const void *body, uint64_t bytes,
                             uint64_t deadline_us, char *err, size_t err_bytes)
{
    struct object_req r = { .op = OBJECT_PUT, .body = body, .bytes = bytes, .deadline_us = deadline_us };
    snprintf(r.name, sizeof r.name, "%s", name);
    enum status st = object_do(c, &r);
    if (st) snprintf(err, err_bytes, "%s", r.why);
    return st;
}

enum status object_put(struct object_client *c, const char *name, const void *body, uint64_t bytes, uint64_t part_bytes,
                       uint64_t deadline_us, char *err, size_t err_bytes)
{
    if (bytes <= part_bytes || !c->store->ops->parts)
        return put_whole(c, name, body, bytes, deadline_us, err, err_bytes);
    return put_parts(c, name, body, bytes, part_bytes, deadline_us, err, err_bytes);
}
