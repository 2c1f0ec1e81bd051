/* fleet_model: one server of a fleet on a virtual clock: what its steps cost, and lanes that take the time of real ones
 * and move nothing but the heads of records.   Thread: one.
 *
 * The scheduler, the tree of blocks, the tiers and their store are the code that serves. A block is FLEET_BYTES of
 * memory here whatever it stands for, so that tebibytes of KV fit into hundreds of megabytes; lanes count jobs, each of
 * a block's true bytes. */
#pragma once
#include "base/check.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "kvcache/record.h"
#include "transfer/lane.h"
#include "transfer/xfer_impl.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLEET_BYTES = 4096, FLEET_HELD = 16 };

/* Seconds and bytes. A step reads the weights or computes its rows, whichever takes longer; beside that every decoded
 * row reads its context, and a row of a prompt attends to what stands before it (H100, 8B, bf16). */
struct fleet_model {
    double prefill_tok_s; /* rows a second of the matrices, at large batches */
    double attend_s;      /* pairs of a prompt's row and a token before it, a second */
    double weights_s;     /* to read the weights once */
    double hbm_bytes_s, kv_bytes_tok, fixed_s;
    double dram_bytes_s, dram_latency_s, nvme_read_s, nvme_write_s, nvme_latency_s; /* bandwidths in bytes/s */
};

static uint64_t        fleet_now_us; /* of the server whose code runs */
static inline uint64_t fleet_clock(void) { return fleet_now_us; }

/* Of one prompt's rows [pos, pos + n). */
static inline double fleet_attend_s(const struct fleet_model *m, double n, double pos)
{
    return n * (pos + n / 2) / m->attend_s;
}

static inline double fleet_step_s(const struct fleet_model *m, const struct batch *b)
{
    double read = 0, attend = 0;
    for (uint32_t i = 0; i < b->n_seq; i++) {
        uint32_t row = b->row_start[i], n = b->row_start[i + 1] - row;
        if (n == 1)
            read += (b->pos[row] + 1.0) * m->kv_bytes_tok;
        else
            attend += fleet_attend_s(m, n, b->pos[row]);
    }
    double rows = b->n_row / m->prefill_tok_s;
    return m->fixed_s + (rows > m->weights_s ? rows : m->weights_s) + read / m->hbm_bytes_s + attend;
}

/* ---- lanes: each way has a line of its own, and takes one block after the other */

struct fleet_lane {
    struct xfer_lane lane; /* first */
    struct lane_ops  ops;
    double           block_s[2], latency_s; /* [1]: to the host */
    double           free_s[2];             /* when a way has nothing left to do */
    bool            *at_once;               /* while tiers are opened, and measured, the clock stands */
    uint32_t         n_held;
    uint64_t         n_moved[2];
    struct {
        struct xfer_item *it;
        uint64_t          due_us;
    } held[FLEET_HELD];
};

static inline bool fleet_can_dev(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return src != XFER_FILE && dst != XFER_FILE;
}
static inline bool fleet_can_file(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return src == XFER_FILE || dst == XFER_FILE;
}
static inline enum status fleet_open(struct xfer_lane *l)
{
    (void)l;
    return ST_OK;
}

static inline void fleet_begin(struct xfer_lane *lane, struct xfer_item **item, uint32_t n)
{
    struct fleet_lane *l = (struct fleet_lane *)lane;
    for (uint32_t i = 0; i < n; i++) {
        int    way = item[i]->dst->kind == XFER_HOST;
        double now = (double)fleet_now_us * 1e-6, begin = l->free_s[way] > now ? l->free_s[way] : now;
        l->free_s[way] = begin + l->block_s[way];
        CHECK(l->n_held < FLEET_HELD);
        l->held[l->n_held].it = item[i];
        l->held[l->n_held++].due_us = (uint64_t)((l->free_s[way] + l->latency_s) * 1e6);
    }
}

/* A record's head goes to its file and comes back: the store and the tiers look at it. */
static inline enum status fleet_move(const struct xfer_item *it)
{
    ssize_t n = KV_RECORD_HEAD;
    if (it->src->kind == XFER_FILE)
        n = pread(it->src->fd, it->dst->base + it->job.dst_off, KV_RECORD_HEAD, (off_t)it->job.src_off);
    if (it->dst->kind == XFER_FILE)
        n = pwrite(it->dst->fd, it->src->base + it->job.src_off, KV_RECORD_HEAD, (off_t)it->job.dst_off);
    return n == KV_RECORD_HEAD ? ST_OK : ST_IO;
}

static inline void fleet_reap(struct xfer_lane *lane, bool wait)
{
    struct fleet_lane *l = (struct fleet_lane *)lane;
    for (uint32_t i = 0; i < l->n_held;) {
        struct xfer_item *it = l->held[i].it;
        if (!wait && !*l->at_once && l->held[i].due_us > fleet_now_us) {
            i++;
            continue;
        }
        memmove(&l->held[i], &l->held[i + 1], (--l->n_held - i) * sizeof l->held[0]);
        l->n_moved[it->dst->kind == XFER_HOST]++;
        it->done.digest = it->job.digest; /* no bytes, no digest: all payloads have one of zeros */
        lane_done(it, fleet_move(it));
    }
}
static inline void fleet_nothing(struct xfer_lane *l) { (void)l; }
static inline void fleet_lane_free(struct xfer_lane *l) { free(l); }

/* block_s: seconds of a block away from the host, and to it. */
static inline struct fleet_lane *fleet_lane_create(bool file, double away_s, double to_host_s, double latency_s,
                                                   bool *at_once)
{
    struct fleet_lane *l = calloc(1, sizeof *l);
    CHECK(l);
    l->block_s[0] = away_s;
    l->block_s[1] = to_host_s;
    l->latency_s = latency_s;
    l->at_once = at_once;
    l->ops = (struct lane_ops){ .name = file ? "fleet-nvme" : "fleet-dev",
                                .depth = FLEET_HELD,
                                .can = file ? fleet_can_file : fleet_can_dev,
                                .open = fleet_open,
                                .begin = fleet_begin,
                                .reap = fleet_reap,
                                .close = fleet_nothing,
                                .free = fleet_lane_free };
    lane_init(&l->lane, &l->ops);
    return l;
}

static inline uint64_t fleet_lane_due(const struct fleet_lane *l)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < l->n_held; i++) due = l->held[i].due_us < due ? l->held[i].due_us : due;
    return due;
}
