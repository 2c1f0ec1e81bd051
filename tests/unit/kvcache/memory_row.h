/* memory_row: rows of below.h without a folder: one keeps records in memory, one finds nothing and takes nothing. */
#pragma once
#include "kvcache/below.h"
#include "test.h"
#include "transfer/xfer.h"

enum { MEMORY_RECORDS = 256 };

struct memory {
    struct kv_below     below; /* first */
    struct kv_below_cfg cfg;
    unsigned char      *bytes; /* [MEMORY_RECORDS][record_bytes] */
    uint64_t            record_bytes;
    uint32_t            seg, n_used, n_write, n_read, n_bad;
    struct {
        struct kv_key key;
        bool          ready, gone;
        uint32_t      n_reader;
    } record[MEMORY_RECORDS];
};
static struct memory *memory_open_last; /* the one that was opened last */

static int memory_at(const struct memory *m, const struct kv_key *key)
{
    for (uint32_t i = 0; i < m->n_used; i++)
        if (!m->record[i].gone && kv_key_equal(&m->record[i].key, key)) return (int)i;
    return -1;
}

static enum status memory_open(const struct kv_below_cfg *cfg, struct kv_below **b_out, char *err, size_t err_bytes);

static void memory_close(struct kv_below *b)
{
    struct memory *m = (struct memory *)b;
    xfer_seg_drop(m->cfg.xfer, m->seg);
    free(m->bytes);
    free(m);
}

static bool memory_has(const struct kv_below *b, const struct kv_key *key)
{
    return memory_at((const struct memory *)b, key) >= 0;
}

static bool memory_find(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out)
{
    struct memory *m = (struct memory *)b;
    int            i = memory_at(m, key);
    if (i < 0 || !m->record[i].ready) return false;
    *place_out = (struct kv_place){ .index = (uint32_t)i, .seq = 7 };
    return true;
}

static enum status memory_read(struct kv_below *b, const struct kv_read *r, struct kv_place *place_out,
                               uint64_t *ticket_out)
{
    struct memory *m = (struct memory *)b;
    if (!memory_find(b, r->key, place_out)) return ST_NOT_FOUND;
    uint64_t        off = place_out->index * m->record_bytes;
    struct xfer_job j = { .src = m->seg,
                          .dst = r->host_seg,
                          .src_off = off,
                          .dst_off = r->host_off,
                          .bytes = (uint32_t)m->record_bytes,
                          .skip = KV_RECORD_HEAD,
                          .tail = (uint32_t)(m->record_bytes - KV_RECORD_HEAD - m->cfg.payload_bytes),
                          .prio = r->prio,
                          .digest_mode = XFER_DIGEST_CHECK,
                          .digest = kv_record_of(m->bytes + off)->payload,
                          .deadline_us = r->deadline_us,
                          .cookie = r->cookie };
    enum status     st = xfer_post(m->cfg.xfer, &j, ticket_out);
    if (st) return st;
    m->record[place_out->index].n_reader++;
    m->n_read++;
    return ST_OK;
}

static void memory_read_done(struct kv_below *b, struct kv_place place, bool bad)
{
    struct memory *m = (struct memory *)b;
    assert_true(m->record[place.index].n_reader > 0);
    m->record[place.index].n_reader--;
    m->record[place.index].gone |= bad;
    m->n_bad += bad;
}

static enum status memory_write(struct kv_below *b, const struct kv_write *w, struct kv_place *place_out)
{
    struct memory *m = (struct memory *)b;
    if (m->n_used == MEMORY_RECORDS || memory_has(b, w->key)) return ST_AGAIN;
    kv_record_seal(w->page, &m->cfg.key, 7, w->until_s, w->priority);
    struct xfer_job j = { .src = w->host_seg,
                          .dst = m->seg,
                          .src_off = w->host_off,
                          .dst_off = m->n_used * m->record_bytes,
                          .bytes = (uint32_t)m->record_bytes,
                          .prio = XFER_STORE,
                          .cookie = w->cookie };
    enum status     st = xfer_post(m->cfg.xfer, &j, NULL);
    if (st) return st;
    m->record[m->n_used].key = *w->key;
    *place_out = (struct kv_place){ .index = m->n_used++, .seq = 7 };
    m->n_write++;
    return ST_OK;
}

static void memory_write_done(struct kv_below *b, struct kv_place place, enum status st)
{
    struct memory *m = (struct memory *)b;
    m->record[place.index].ready = st == ST_OK;
    m->record[place.index].gone = st != ST_OK;
}

static bool memory_takes(const struct kv_below *b) { return ((const struct memory *)b)->n_used < MEMORY_RECORDS; }

static void row_turn(struct kv_below *b) { (void)b; }

static bool row_busy(const struct kv_below *b)
{
    (void)b;
    return false;
}

static void memory_stats(const struct kv_below *b, struct kv_below_stats *out)
{
    const struct memory *m = (const struct memory *)b;
    *out = (struct kv_below_stats){ .cap_bytes = MEMORY_RECORDS * m->record_bytes,
                                    .used_bytes = m->n_used * m->record_bytes };
    for (uint32_t i = 0; i < m->n_used; i++) out->n_block += m->record[i].ready && !m->record[i].gone;
}

static enum status memory_check(const struct kv_below *b)
{
    const struct memory *m = (const struct memory *)b;
    for (uint32_t i = 0; i < m->n_used; i++)
        if (memory_at(m, &m->record[i].key) != (int)i && !m->record[i].gone) return ST_INVALID;
    return ST_OK;
}

static uint64_t memory_purge(struct kv_below *b)
{
    struct memory *m = (struct memory *)b;
    uint64_t       n = m->n_used;
    m->n_used = 0;
    return n;
}

static const struct kv_below_row memory_row = { .name = "memory",
                                                .tier = KV_TIER_STORE,
                                                .kind = XFER_HOST,
                                                .open = memory_open,
                                                .close = memory_close,
                                                .find = memory_find,
                                                .has = memory_has,
                                                .read = memory_read,
                                                .read_done = memory_read_done,
                                                .write = memory_write,
                                                .write_done = memory_write_done,
                                                .takes = memory_takes,
                                                .turn = row_turn,
                                                .busy = row_busy,
                                                .stats = memory_stats,
                                                .check = memory_check,
                                                .purge = memory_purge };

static enum status memory_open(const struct kv_below_cfg *cfg, struct kv_below **b_out, char *err, size_t err_bytes)
{
    struct memory *m = calloc(1, sizeof *m);
    (void)err;
    (void)err_bytes;
    m->below.row = &memory_row;
    m->cfg = *cfg;
    m->record_bytes = kv_record_bytes(cfg->payload_bytes);
    m->bytes = calloc(MEMORY_RECORDS, m->record_bytes);
    struct xfer_seg seg = { .kind = XFER_HOST, .base = m->bytes, .bytes = MEMORY_RECORDS * m->record_bytes };
    assert_int_equal(xfer_seg_add(cfg->xfer, &seg, &m->seg), ST_OK);
    memory_open_last = m;
    *b_out = &m->below;
    return ST_OK;
}

/* ---- one that finds nothing and takes nothing */

static enum status empty_open(const struct kv_below_cfg *cfg, struct kv_below **b_out, char *err, size_t err_bytes);
static void        empty_close(struct kv_below *b) { free(b); }
static bool        empty_has(const struct kv_below *b, const struct kv_key *key)
{
    (void)b;
    (void)key;
    return false;
}
static bool empty_find(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out)
{
    (void)b;
    (void)key;
    (void)place_out;
    return false;
}
static enum status empty_read(struct kv_below *b, const struct kv_read *r, struct kv_place *place_out,
                              uint64_t *ticket_out)
{
    (void)b;
    (void)r;
    (void)place_out;
    (void)ticket_out;
    return ST_NOT_FOUND;
}
static void empty_read_done(struct kv_below *b, struct kv_place place, bool bad)
{
    (void)b;
    (void)place;
    (void)bad;
}
static void empty_stats(const struct kv_below *b, struct kv_below_stats *out)
{
    (void)b;
    *out = (struct kv_below_stats){ 0 };
}
static enum status empty_check(const struct kv_below *b)
{
    (void)b;
    return ST_OK;
}
static uint64_t empty_purge(struct kv_below *b)
{
    (void)b;
    return 0;
}

static const struct kv_below_row empty_row = { .name = "nothing",
                                               .tier = KV_TIER_STORE,
                                               .kind = XFER_REMOTE,
                                               .open = empty_open,
                                               .close = empty_close,
                                               .find = empty_find,
                                               .has = empty_has,
                                               .read = empty_read,
                                               .read_done = empty_read_done,
                                               .turn = row_turn,
                                               .busy = row_busy,
                                               .stats = empty_stats,
                                               .check = empty_check,
                                               .purge = empty_purge };

static enum status empty_open(const struct kv_below_cfg *cfg, struct kv_below **b_out, char *err, size_t err_bytes)
{
    struct kv_below *b = calloc(1, sizeof *b);
    (void)cfg;
    (void)err;
    (void)err_bytes;
    b->row = &empty_row;
    *b_out = b;
    return ST_OK;
}
