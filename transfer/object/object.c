#include "transfer/object/object.h"
#include <stdio.h>
#include <string.h>

bool object_is_url(const char *text) { return !strncmp(text, "s3://", 5) || !strncmp(text, "redis://", 8); }

enum status object_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes)
{
    if (!strncmp(cfg->url, "s3://", 5)) return s3_open(cfg, s_out, err, err_bytes);
    if (!strncmp(cfg->url, "redis://", 8)) return redis_open(cfg, s_out, err, err_bytes);
    snprintf(err, err_bytes, "found '%.200s', needed is s3://bucket/prefix or redis://host:port/db", cfg->url);
    return ST_CONFIG;
}

void        object_close(struct object_store *s) { s->ops->close(s); }
enum status object_client(struct object_store *s, struct object_client **c_out) { return s->ops->client(s, c_out); }
void        object_client_free(struct object_client *c)
{
    if (c) c->store->ops->client_free(c);
}
void object_begin(struct object_client *c, struct object_req *r)
{
    r->st = ST_AGAIN;
    r->call = NULL;
    *r->why = 0;
    c->store->ops->begin(c, r);
}
void     object_cancel(struct object_client *c, struct object_req *r) { c->store->ops->cancel(c, r); }
uint32_t object_run(struct object_client *c, int fd, int64_t wait_us, struct object_req **done, uint32_t max)
{
    return c->store->ops->run(c, fd, wait_us, done, max);
}

enum status object_do(struct object_client *c, struct object_req *r)
{
    struct object_req *done = NULL;
    object_begin(c, r);
    while (done != r) object_run(c, -1, 1000000, &done, 1);
    return r->st;
}
