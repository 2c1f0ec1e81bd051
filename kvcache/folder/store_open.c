#include "kvcache/folder/store.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include "kvcache/folder/store_impl.h"
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static const uint64_t SEGMENT_BYTES = 256 << 20;

static enum status take_memory(struct kv_store *s)
{
    uint64_t n = (uint64_t)s->n_slot * s->g.n_record;
    s->segment = calloc(s->n_slot, sizeof *s->segment);
    s->entry = calloc(n, sizeof *s->entry);
    s->seal_row = calloc(s->g.n_record, sizeof *s->seal_row);
    s->scan_row = calloc(s->g.n_record, sizeof *s->scan_row);
    s->seal_buffer = aligned_alloc(STORE_PAGE, store_footer_bytes(&s->g));
    s->scan_buffer = aligned_alloc(STORE_PAGE, store_footer_bytes(&s->g));
    s->kept = calloc(KEPT_MAX, sizeof *s->kept);
    if (!s->kept || !s->segment || !s->entry || !s->seal_row || !s->scan_row || !s->seal_buffer || !s->scan_buffer)
        return ST_NOMEM;
    enum status st = chain_init(&s->by_key, n, &s->entry[0].next, sizeof *s->entry);
    if (!st && s->cfg.secret) {
        s->key = seal_take((s->n_slot + 1) * sizeof *s->key);
        st = s->key ? seal_open(&s->sealer) : ST_NOMEM;
    }
    if (!st) st = ring_init(&s->todo, 8);
    return st ? st : ring_init(&s->answer, 8);
}

/* Of the descriptors that this process may have half are for segments; the others are for connections. */
static uint32_t fd_share(uint32_t n_store)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) return UINT32_MAX;
    uint64_t n = files.rlim_cur / 2 / (n_store ? n_store : 1);
    if (n > UINT32_MAX) return UINT32_MAX;
    return n > SEGMENTS_MIN ? (uint32_t)n : SEGMENTS_MIN;
}

/* How many segments a cap holds, and what they are like. */
static uint32_t segments_of(uint64_t cap_bytes, uint64_t segment_bytes, uint64_t payload_bytes,
                            struct store_geometry *g_out)
{
    uint64_t segment = segment_bytes ? segment_bytes : SEGMENT_BYTES;
    if (!segment_bytes) { /* small caps: at least eight of them; large ones: not too many files */
        if (segment > cap_bytes / 8) segment = cap_bytes / 8;
        if (segment < cap_bytes / SEGMENTS_MAX) segment = cap_bytes / SEGMENTS_MAX;
    }
    *g_out = store_geometry(payload_bytes, segment);
    uint64_t n = g_out->n_record ? cap_bytes / g_out->segment_bytes : 0;
    return n > SEGMENTS_MAX ? SEGMENTS_MAX : (uint32_t)n;
}

bool kv_store_fits(const char *dir, uint64_t cap_bytes, uint64_t segment_bytes, uint64_t payload_bytes, char *err,
                   size_t err_bytes)
{
    struct store_geometry g;
    if (segments_of(cap_bytes, segment_bytes, payload_bytes, &g) >= SEGMENTS_MIN) return true;
    snprintf(err, err_bytes,
             "%s: %" PRIu64 " bytes are too few: a record takes %" PRIu64 ", a segment %" PRIu64
             ", and %d segments are the least",
             dir, cap_bytes, kv_record_bytes(payload_bytes), g.segment_bytes, SEGMENTS_MIN);
    return false;
}

enum status kv_store_open(const struct kv_store_cfg *cfg, struct kv_store **s_out, char *err, size_t err_bytes)
{
    struct kv_store *s = calloc(1, sizeof *s);
    if (!s) return ST_NOMEM;
    s->cfg = *cfg;
    s->dir = s->root = s->lock = -1;
    s->todo.fd = s->answer.fd = -1;
    s->open = s->spare = NONE;
    s->direct = true;
    s->n_fd_max = fd_share(cfg->n_store);
    s->next_seq = 1;
    if (cfg->shared) { /* of all servers of the folder: a file keeps its number when another takes it over */
        CHECK(RAND_bytes((unsigned char *)&s->next_seq, sizeof s->next_seq) == 1);
        s->next_seq = (s->next_seq & INT64_MAX) >> 20 << 20 | 1;
    }
    if (!s->cfg.clock) s->cfg.clock = clock_us;
    if (!s->cfg.retry_us) s->cfg.retry_us = RETRY_US;
    s->retry_us = s->cfg.retry_us;
    s->stats.recovering = true;
    snprintf(s->path, sizeof s->path, "%s", cfg->dir);
    s->cfg.dir = s->path;
    s->n_segment = segments_of(cfg->cap_bytes, cfg->segment_bytes, cfg->payload_bytes, &s->g);
    s->n_slot = s->n_segment + (cfg->shared ? FOREIGN_MAX : 0);
    enum status st = ST_CONFIG;
    if (kv_store_fits(cfg->dir, cfg->cap_bytes, cfg->segment_bytes, cfg->payload_bytes, err, err_bytes) &&
        ((st = take_memory(s)) || (st = thread_start(&s->thread, THREAD_XFER, "store", store_main, s))))
        snprintf(err, err_bytes, "%s: %s", cfg->dir, status_name(st));
    if (st) {
        kv_store_close(s);
        return st;
    }
    s->started = true;
    *s_out = s;
    return ST_OK;
}
