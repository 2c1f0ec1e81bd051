#include "server/cmd/batch_seen.h"
#include "base/check.h"
#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

void batch_seen_init(struct batch_seen *s)
{
    memset(s, 0, sizeof *s);
    s->seed[0] = hash_seed();
    s->seed[1] = hash_seed();
}

/* The place of this id, or the free place where it belongs. */
static struct batch_seen_id *place(struct batch_seen_id *id, uint32_t cap, uint64_t hash, uint32_t more)
{
    uint32_t i = (uint32_t)hash & (cap - 1);
    while (id[i].line && (id[i].hash != hash || id[i].more != more)) i = (i + 1) & (cap - 1);
    return &id[i];
}

static enum status grow(struct batch_seen *s)
{
    uint32_t              cap = s->cap ? 2 * s->cap : 1024;
    struct batch_seen_id *id = calloc(cap, sizeof *id);
    if (!id) return ST_NOMEM;
    for (uint32_t i = 0; i < s->cap; i++)
        if (s->id[i].line) *place(id, cap, s->id[i].hash, s->id[i].more) = s->id[i];
    free(s->id);
    s->id = id;
    s->cap = cap;
    return ST_OK;
}

enum status batch_seen_id(struct batch_seen *s, const char *id, size_t n, uint32_t line, uint32_t *first_out)
{
    CHECK(line > 0 && line <= BATCH_LINES_MAX);
    if (2 * s->n_id >= s->cap) {
        enum status st = grow(s);
        if (st) return st;
    }
    uint64_t              hash = hash_bytes(id, n, s->seed[0]);
    uint32_t              more = (uint32_t)hash_bytes(id, n, s->seed[1]);
    struct batch_seen_id *at = place(s->id, s->cap, hash, more);
    *first_out = at->line;
    if (at->line) return ST_OK;
    *at = (struct batch_seen_id){ .hash = hash, .more = more, .line = line };
    s->n_id++;
    return ST_OK;
}

enum status batch_seen_set_done(struct batch_seen *s, uint64_t line)
{
    if (line > BATCH_LINES_MAX) return ST_TOO_LARGE;
    if (line / 8 >= s->n_done_bytes) {
        uint64_t bytes = 2 * (line / 8) + 4096;
        uint8_t *p = realloc(s->done, bytes);
        if (!p) return ST_NOMEM;
        memset(p + s->n_done_bytes, 0, bytes - s->n_done_bytes);
        s->done = p;
        s->n_done_bytes = bytes;
    }
    s->done[line / 8] = (uint8_t)(s->done[line / 8] | 1u << line % 8);
    return ST_OK;
}

bool batch_seen_done(const struct batch_seen *s, uint64_t line)
{
    return line / 8 < s->n_done_bytes && (s->done[line / 8] >> line % 8 & 1);
}

void batch_seen_free(struct batch_seen *s)
{
    free(s->id);
    free(s->done);
    s->id = NULL;
    s->done = NULL;
}
