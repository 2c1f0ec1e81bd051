/* fake: a device that runs a batch without a model and still notices every wrong page.   Thread: whoever steps the
 * engine.
 *
 * A slot of its KV pool holds the token of that position and a hash over all tokens up to it. The pool is plain memory,
 * block b at b * fake_block_bytes, so that lanes may copy blocks of it away and back. A row writes its slot, and then
 * "attends": it walks its page table from position 0 and requires every slot to continue the one before. A page that is
 * missing, freed, reused, not copied or of another sequence breaks the chain. The token that is sampled is a function
 * of the whole chain and of the sampling parameters, so what a request must answer is known in closed form
 * (fake_expect), whatever the scheduler did.
 *
 * Two steps may be in flight. What a step may write is judged when it is submitted. It runs at once, or (lazy) only
 * when it is waited for: the first finds blocks that are written too early, the second batches and blocks that change
 * too early and results that are read too early. With a window, rows also write a slot of a second pool, by the second
 * table, and attend to the tokens of their window there. With late masks rows are written as above, and tokens are
 * drawn when the engine says so; before that an entry may change, but not the sizes of the lists.
 * Over 500 lines: one struct, and the steps of one submit. */
#pragma once
#include "base/hash.h"
#include "engine/engine.h"
#include "engine/seq.h"
#include "kvcache/device/seq.h"
#include "sim/guided.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_cell { /* one position */
    uint64_t chain;
    uint32_t token, pos;
    uint64_t bits; /* what the arithmetic makes of it: another one for each twist */
};

struct fake {
    uint32_t          n_block, block_tokens, vocab;
    struct eng_guests guests;           /* n 0: none                                 */
    const struct kv  *kv;               /* NULL: skip the look at locks and counts     */
    struct fake_cell *cell;             /* [n_block * block_tokens] the pool           */
    uint64_t         *stamp;            /* the step that wrote the slot                */
    uint32_t          n_window, window; /* the second pool; 0: none */
    struct fake_cell *win;              /* [n_window * win_cells] */
    uint32_t          win_cells;        /* of a block: block_tokens, and more that repeat them */
    uint64_t          step;
    uint64_t          fail_at;                        /* this step says ST_DEVICE; 0: never          */
    uint64_t          refuse_every;                   /* these steps are not run and say ST_STEP; 0: none */
    uint64_t          digest;                         /* of all batches so far                      */
    uint64_t          n_row, n_prefill_row, n_sample; /* totals                */
    uint32_t          most_rows, most_seqs;           /* of one step           */
    const char       *fault;                          /* the first thing that was wrong              */
    void (*delay)(void);                              /* called in the middle of a step, may be NULL */
    bool          lazy;                               /* runs a step when it is waited for */
    bool          sick;                               /* every row is NaN */
    uint64_t      twist;                              /* which arithmetic this is */
    uint32_t      twist_from;                         /* from this position on; before it all are the same */
    uint64_t      n_alien;                     /* positions that were attended and came from another arithmetic */
    struct batch *flight[ENG_DEPTH_MAX];       /* [n_flight] oldest first */
    uint64_t      sum[ENG_DEPTH_MAX];          /* of their input when they were submitted */
    uint32_t      n_flight, n_patch, n_drawn;  /* n_patch: ids taken from the step before, total */
    struct batch *late;                        /* submitted, and not yet drawn */
    uint64_t      n_late;                      /* batches so far */
    bool          draws;                       /* what was submitted last draws tokens */
    uint32_t     *drawn;                       /* [n_drawn] by the last step that ran */
    uint32_t     *id, *hist;                   /* of the step that runs, patched */
    uint32_t      id_max, hist_max, drawn_max; /* room of these and of drawn */
};

static inline void fake_init(struct fake *f, uint32_t n_block, uint32_t block_tokens, uint32_t vocab)
{
    size_t n = (size_t)n_block * block_tokens;
    *f = (struct fake){ .n_block = n_block, .block_tokens = block_tokens, .vocab = vocab };
    f->cell = calloc(n, sizeof *f->cell);
    f->stamp = calloc(n, sizeof *f->stamp);
}

static inline void fake_windows(struct fake *f, uint32_t n_window, uint32_t window)
{
    f->n_window = n_window;
    f->window = window;
    if (!f->win_cells) f->win_cells = f->block_tokens;
    if (n_window) f->win = calloc((size_t)n_window * f->win_cells, sizeof *f->win);
}

/* A block there has up to three times the bytes of the other pool's. */
static inline void fake_wide(struct fake *f, uint32_t more)
{
    f->win_cells = f->block_tokens + more % (2 * f->block_tokens + 1);
    free(f->win);
    fake_windows(f, f->n_window, f->window);
}

static inline struct fake_cell *fake_win_block(const struct fake *f, uint32_t block)
{
    return f->win + (size_t)block * f->win_cells;
}
static inline uint32_t fake_win_bytes(const struct fake *f) { return f->win_cells * (uint32_t)sizeof *f->win; }
static inline uint32_t fake_block_bytes(const struct fake *f) { return f->block_tokens * (uint32_t)sizeof *f->cell; }

static inline void fake_free(struct fake *f)
{
    free(f->cell);
    free(f->win);
    free(f->stamp);
    free(f->drawn);
    free(f->id);
    free(f->hist);
}

static inline void fake_fault(struct fake *f, const char *what)
{
    if (!f->fault) f->fault = what;
}

static inline uint64_t fake_link(uint64_t chain, uint32_t id, uint32_t pos)
{
    return hash_u64(chain ^ hash_u64(id + 1 + ((uint64_t)pos << 32)));
}

/* What a draw depends on besides the tokens. fold: of history, bias and allowed ids.
 * more than eight: all that a draw may depend on, and nothing else. */
static inline uint32_t fake_draw(uint64_t chain, float temperature, uint64_t seed, uint64_t stream, uint64_t counter,
                                 uint64_t fold, const uint32_t *allow, uint32_t n_allow, const uint32_t *ban,
                                 uint32_t n_ban, const uint32_t *mask, uint32_t n_mask, uint32_t vocab)
{
    uint64_t nan_at = seed >> 56, nan_stream = seed >> 48 & 0xff;
    if (nan_at && counter + 1 == nan_at && stream == nan_stream) return UINT32_MAX;
    uint64_t x = hash_u64(chain ^ fold);
    if (temperature > 0) x = hash_u64(x ^ hash_u64(seed) ^ hash_u64(stream * 1000003 + counter));
    uint32_t id = n_allow ? allow[x % n_allow] : (uint32_t)(x % vocab);
    for (uint32_t i = 0; n_mask && i < vocab && !(mask[id / 32] >> (id % 32) & 1); i++) id = (id + 1) % vocab;
    for (uint32_t i = 0; i < n_ban; i++)
        if (ban[i] == id) {
            id = (id + 1) % vocab;
            i = UINT32_MAX;
        }
    return id;
}
static inline uint64_t fake_fold(uint64_t fold, uint64_t v) { return hash_u64(fold ^ v) | 1; }
static inline float    fake_logprob(uint64_t chain, uint32_t id)
{
    return -(float)(hash_u64(chain + id) & 0xffff) / 4096.0f;
}

static inline size_t fake_slot(const struct fake *f, const struct batch *b, uint32_t seq, uint32_t pos)
{
    uint32_t at = b->page_start[seq] + pos / f->block_tokens;
    if (at >= b->page_start[seq + 1] || b->page[at] >= f->n_block) return SIZE_MAX;
    return (size_t)b->page[at] * f->block_tokens + pos % f->block_tokens;
}

/* The cells of a block, for reading: also of a guest. NULL: no block. */
static inline const struct fake_cell *fake_block(const struct fake *f, uint32_t block)
{
    if (block < f->n_block) return f->cell + (size_t)block * f->block_tokens;
    if (block >= f->n_block + f->guests.n) return NULL;
    return (const void *)(f->guests.first + (block - f->n_block) * f->guests.step);
}

/* NULL: the table does not name a block. */
static inline const struct fake_cell *fake_read(const struct fake *f, const struct batch *b, uint32_t seq, uint32_t pos)
{
    uint32_t                at = b->page_start[seq] + pos / f->block_tokens;
    const struct fake_cell *cell = at < b->page_start[seq + 1] ? fake_block(f, b->page[at]) : NULL;
    return cell ? cell + pos % f->block_tokens : NULL;
}

/* Entries of sequence s in the table of all blocks end here. */
static inline uint32_t fake_page_end(const struct batch *b, uint32_t s)
{
    return b->win_start[s] > b->page_start[s] ? b->win_start[s] : b->page_start[s + 1];
}

/* The slot of the second pool; NULL: the table does not name a block there. */
static inline struct fake_cell *fake_win(const struct fake *f, const struct batch *b, uint32_t seq, uint32_t pos)
{
    uint32_t at = b->win_start[seq] + pos / f->block_tokens;
    if (b->win_start[seq] == b->page_start[seq] || at >= b->page_start[seq + 1] || b->page[at] >= f->n_window)
        return NULL;
    return fake_win_block(f, b->page[at]) + pos % f->block_tokens;
}

/* eng_runner.guests */
static inline bool fake_guests(void *ctx, const struct eng_guests *g)
{
    struct fake *f = ctx;
    f->guests = *g;
    return true;
}

static inline void fake_copies(struct fake *f, const struct batch *b)
{
    for (uint32_t i = 0; i < b->n_copy; i++) {
        size_t bt = f->block_tokens, dst = b->copy_dst[i] * bt;
        memcpy(f->cell + dst, fake_block(f, b->copy_src[i]), bt * sizeof *f->cell);
        if (f->n_window && (b->win_src[i] >= f->n_window || b->win_dst[i] >= f->n_window))
            fake_fault(f, "a block is copied in one pool only");
        else if (f->n_window)
            memcpy(fake_win_block(f, b->win_dst[i]), fake_win_block(f, b->win_src[i]), fake_win_bytes(f));
    }
}

/* Tables that name the block: its count without the copies that were made from it before this step's rows. */
static inline uint32_t fake_readers(const struct kv *kv, uint32_t block)
{
    uint32_t n = kv->pool.ref[block];
    for (uint32_t i = 0; n > 1 && i < kv->cfg.n_seq_max; i++) n -= kv->table[i].owner && kv->table[i].copy_src == block;
    return n;
}

/* The same for a block of the second pool. */
static inline uint32_t fake_win_readers(const struct kv *kv, uint32_t block)
{
    uint32_t n = kv->win.pool.ref[block];
    for (uint32_t i = 0; n > 1 && i < kv->cfg.n_seq_max; i++) n -= kv->table[i].owner && kv->table[i].copy_win == block;
    return n;
}

static inline void fake_judge_window(struct fake *f, const struct batch *b, uint32_t s, uint32_t pos)
{
    const struct fake_cell *cell = fake_win(f, b, s, pos);
    if (!f->n_window || !cell) return; /* fake_append says so */
    uint32_t block = (uint32_t)((size_t)(cell - f->win) / f->win_cells);
    if (fake_win_readers(f->kv, block) != 1 || f->kv->win.node[block] != KV_NONE)
        fake_fault(f, "a row writes a block of a window that others may read, or nobody has");
}

/* At submit: what the host says of the blocks that the step writes, and of the ids that it does not know. */
static inline void fake_judge(struct fake *f, const struct batch *b)
{
    if (!b->n_row || b->n_row > b->max.rows_max || b->n_seq > b->max.seqs_max || b->row_start[b->n_seq] != b->n_row)
        fake_fault(f, "a batch of the wrong size");
    if (b->n_logit != b->n_sample + b->n_lp) fake_fault(f, "logit rows do not add up");
    for (uint32_t i = 0; i < b->n_copy; i++) {
        for (uint32_t j = 0; j < b->n_copy; j++) /* a device may copy in any order */
            if (b->copy_dst[i] == b->copy_src[j] || (i != j && b->copy_dst[i] == b->copy_dst[j]))
                fake_fault(f, "block copies depend on their order");
    }
    uint32_t n_unknown = 0;
    for (uint32_t r = 0; r < b->n_row; r++) n_unknown += b->id[r] == SEQ_PENDING;
    if (n_unknown != b->n_patch_id) fake_fault(f, "ids in flight and their patches do not match");
    for (uint32_t i = 0; i < b->n_patch_id; i++)
        if (b->patch_id[i].at >= b->n_row || b->id[b->patch_id[i].at] != SEQ_PENDING)
            fake_fault(f, "an id that is known is patched");
    n_unknown = 0;
    for (uint32_t i = 0; i < b->n_hist; i++) n_unknown += b->hist[i] == SEQ_PENDING;
    if (n_unknown != b->n_patch_hist) fake_fault(f, "history in flight and its patches do not match");
    for (uint32_t i = 0; i < b->n_patch_hist; i++)
        if (b->patch_hist[i].at >= b->n_hist || b->hist[b->patch_hist[i].at] != SEQ_PENDING)
            fake_fault(f, "history that is known is patched");
    for (uint32_t s = 0; f->kv && s < b->n_seq; s++)
        for (uint32_t r = b->row_start[s]; r < b->row_start[s + 1]; r++) {
            uint32_t at = b->page_start[s] + b->pos[r] / f->block_tokens;
            fake_judge_window(f, b, s, b->pos[r]);
            if (at >= b->page_start[s + 1] || b->page[at] >= f->n_block) continue; /* fake_append says so */
            if (fake_readers(f->kv, b->page[at]) != 1 || kv_in_tree(f->kv, b->page[at]))
                fake_fault(f, "a row writes a block that others may read, or nobody has");
        }
}

static inline uint64_t fake_sum(const struct batch *b)
{
    uint64_t h = hash_bytes(b->id, b->n_row * sizeof *b->id, b->n_row);
    h = hash_bytes(b->pos, b->n_row * sizeof *b->pos, h);
    h = hash_bytes(b->page_start, (b->n_seq + 1) * sizeof *b->page_start, h);
    h = hash_bytes(b->page, b->page_start[b->n_seq] * sizeof *b->page, h);
    h = hash_bytes(b->win_start, (b->n_seq + 1) * sizeof *b->win_start, h);
    h = hash_bytes(b->win_src, b->n_copy * sizeof *b->win_src, h);
    h = hash_bytes(b->win_dst, b->n_copy * sizeof *b->win_dst, h);
    h = hash_bytes(b->copy_src, b->n_copy * sizeof *b->copy_src, h);
    h = hash_bytes(b->copy_dst, b->n_copy * sizeof *b->copy_dst, h);
    h = hash_bytes(b->logit_row, b->n_logit * sizeof *b->logit_row, h);
    h = hash_bytes(b->patch_id, b->n_patch_id * sizeof *b->patch_id, h);
    h = hash_combine(h, (uint64_t)b->n_sample << 48 ^ (uint64_t)b->n_ban << 24 ^ b->n_mask);
    return hash_bytes(b->hist, b->n_hist * sizeof *b->hist, h);
}

static inline void fake_patch(struct fake *f, uint32_t *x, const struct dev_patch *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (p[i].from >= f->n_drawn) {
            fake_fault(f, "a patch takes an id that was not drawn");
            continue;
        }
        x[p[i].at] = f->drawn[p[i].from] == UINT32_MAX ? 0 : f->drawn[p[i].from];
        f->n_patch++;
    }
}

static inline uint64_t fake_bits(const struct fake *f, uint64_t chain, uint32_t pos)
{
    return hash_u64(chain ^ (pos >= f->twist_from ? f->twist : 0));
}

static inline void fake_append(struct fake *f, const struct batch *b, uint32_t seq)
{
    uint64_t chain = 0;
    for (uint32_t r = b->row_start[seq]; r < b->row_start[seq + 1]; r++) {
        uint32_t                pos = b->pos[r];
        size_t                  slot = fake_slot(f, b, seq, pos);
        const struct fake_cell *before = pos ? fake_read(f, b, seq, pos - 1) : f->cell;
        if (slot == SIZE_MAX || !before) {
            fake_fault(f, "a page table does not cover its rows");
            return;
        }
        if (b->row_seq[r] != seq || f->id[r] >= f->vocab || (r > b->row_start[seq] && pos != b->pos[r - 1] + 1))
            fake_fault(f, "rows are out of order");
        if (f->stamp[slot] == f->step) fake_fault(f, "two rows write one slot");
        chain = fake_link(pos ? before->chain : 0, f->id[r], pos);
        f->stamp[slot] = f->step;
        f->cell[slot] =
            (struct fake_cell){ .chain = chain, .token = f->id[r], .pos = pos, .bits = fake_bits(f, chain, pos) };
        if (!f->n_window) continue;
        struct fake_cell *win = fake_win(f, b, seq, pos);
        if (!win) {
            fake_fault(f, "the table of a window does not cover its rows");
            return;
        }
        for (uint32_t i = pos % f->block_tokens; i < f->win_cells; i += f->block_tokens, win += f->block_tokens)
            *win = f->cell[slot];
    }
}

/* Every row of the step sees the tokens of its window. */
static inline void fake_attend_window(struct fake *f, const struct batch *b, uint32_t seq)
{
    uint32_t from = b->pos[b->row_start[seq]], last = b->pos[b->row_start[seq + 1] - 1];
    for (uint32_t pos = from + 1 > f->window ? from + 1 - f->window : 0; pos <= last; pos++) {
        const struct fake_cell *cell = fake_read(f, b, seq, pos), *win = fake_win(f, b, seq, pos);
        if (!cell) return;
        bool own = win != NULL;
        for (uint32_t i = pos % f->block_tokens; own && i < f->win_cells; i += f->block_tokens, win += f->block_tokens)
            own = win->chain == cell->chain && win->pos == pos;
        if (!own) {
            fake_fault(f, "a row sees a slot of its window that is not its own");
            return;
        }
    }
}

static inline void fake_attend(struct fake *f, const struct batch *b, uint32_t seq)
{
    uint64_t chain = 0;
    uint32_t last = b->pos[b->row_start[seq + 1] - 1];
    for (uint32_t pos = 0; pos <= last; pos++) {
        const struct fake_cell *cell = fake_read(f, b, seq, pos);
        if (!cell) return;
        chain = fake_link(chain, cell->token, pos);
        if (chain != cell->chain || cell->pos != pos) {
            fake_fault(f, "attention read a slot that does not continue the one before");
            return;
        }
        f->n_alien += cell->bits != fake_bits(f, chain, pos);
    }
}

static inline uint64_t fake_row_chain(const struct fake *f, const struct batch *b, uint32_t row)
{
    size_t slot = fake_slot(f, b, b->row_seq[row], b->pos[row]); /* its own row: of the pool */
    return slot == SIZE_MAX ? 0 : f->cell[slot].chain;
}

static inline bool fake_refuses(const struct fake *f, uint64_t step)
{
    return f->refuse_every && step % f->refuse_every == 0;
}

static inline void fake_room(uint32_t **p, uint32_t *max, uint32_t n)
{
    if (n <= *max) return;
    *p = realloc(*p, n * sizeof **p);
    memset(*p + *max, 0, (n - *max) * sizeof **p);
    *max = n;
}

/* Needs nothing of the engine but the batch. False: there is nothing to draw. */
static inline bool fake_rows(struct fake *f, struct batch *b)
{
    f->step++;
    if (f->fail_at && f->step >= f->fail_at) return false;
    fake_room(&f->id, &f->id_max, b->max.rows_max + 1); /* batches differ in size: what is audited has one of its own */
    fake_room(&f->hist, &f->hist_max, b->max.hist_max + 1);
    fake_room(&f->drawn, &f->drawn_max, b->max.seqs_max + 1);
    memcpy(f->id, b->id, b->n_row * sizeof *f->id);
    memcpy(f->hist, b->hist, b->n_hist * sizeof *f->hist);
    fake_patch(f, f->id, b->patch_id, b->n_patch_id);
    fake_patch(f, f->hist, b->patch_hist, b->n_patch_hist);
    f->digest = hash_combine(f->digest, hash_bytes(f->id, b->n_row * sizeof *f->id, b->n_seq));
    f->digest = hash_combine(f->digest, hash_bytes(b->page, b->page_start[b->n_seq] * sizeof *b->page, b->n_sample));
    fake_copies(f, b);
    bool refused = fake_refuses(f, f->step);
    for (uint32_t i = 0; refused && i < b->n_row; i++)
        f->id[i] = (f->id[i] + 1) % f->vocab; /* what lies there must never be shared */
    for (uint32_t s = 0; s < b->n_seq; s++) {
        if (b->row_start[s + 1] <= b->row_start[s]) fake_fault(f, "a sequence without rows");
        fake_append(f, b, s);
    }
    if (refused) {
        memset(f->drawn, 0, b->n_sample * sizeof *f->drawn);
        f->n_drawn = b->n_sample;
        return false;
    }
    if (f->delay) f->delay();
    for (uint32_t s = 0; s < b->n_seq; s++) {
        fake_attend(f, b, s);
        if (f->n_window) fake_attend_window(f, b, s);
    }
    return true;
}

static inline void fake_draws(struct fake *f, struct batch *b)
{
    for (uint32_t i = 0; i < b->n_sample; i++) {
        const struct op_sample_row *o = &b->sample[i];
        uint64_t                    chain = fake_row_chain(f, b, b->logit_row[i]), fold = 0;
        for (uint32_t k = 0; k < o->n_hist; k++) fold = fake_fold(fold, f->hist[o->hist_start + k]);
        for (uint32_t k = 0; k < o->n_bias; k++) fold = fake_fold(fold, b->bias[o->bias_start + k].id);
        uint32_t id =
            fake_draw(chain, o->temperature, o->seed, o->stream, o->counter, fold, b->allow + o->allow_start,
                      o->n_allow, b->ban + o->ban_start, o->n_ban, b->mask + o->mask_start, o->n_mask, f->vocab);
        if (f->sick) id = UINT32_MAX;
        b->out.id[i] = f->drawn[i] = id;
        b->out.logprob[i] = fake_logprob(chain, id);
        b->out.rank[i] = 1;
        for (uint32_t k = 0; k < o->n_top; k++) {
            b->out.top_id[(size_t)i * OP_SAMPLE_TOP_MAX + k] = (id + k) % f->vocab;
            b->out.top_logprob[(size_t)i * OP_SAMPLE_TOP_MAX + k] = fake_logprob(chain, (id + k) % f->vocab);
        }
    }
    for (uint32_t i = 0; i < b->n_lp; i++) {
        uint64_t chain = fake_row_chain(f, b, b->logit_row[b->n_sample + i]);
        b->out.lp[i] = fake_logprob(chain, b->lp_id[i]);
        b->out.lp_rank[i] = b->lp_id[i] + 1;
        for (uint32_t k = 0; k < b->lp_top; k++) {
            b->out.lp_top_id[(size_t)i * OP_SAMPLE_TOP_MAX + k] = k;
            b->out.lp_top[(size_t)i * OP_SAMPLE_TOP_MAX + k] = fake_logprob(chain, k);
        }
    }
    f->n_drawn = b->n_sample;
    f->n_row += b->n_row;
    f->n_sample += b->n_sample;
    f->n_prefill_row += b->n_row > b->n_sample ? b->n_row - b->n_sample : 0;
    if (b->n_row > f->most_rows) f->most_rows = b->n_row;
    if (b->n_seq > f->most_seqs) f->most_seqs = b->n_seq;
}

static inline void fake_exec(struct fake *f, struct batch *b)
{
    if (fake_rows(f, b)) fake_draws(f, b);
}

/* eng_runner.draw. A step that runs when it is waited for draws then. */
static inline void fake_tell_draw(void *ctx, struct batch *b)
{
    struct fake *f = ctx;
    if (f->late != b || f->n_flight == 0 || f->flight[f->n_flight - 1] != b)
        fake_fault(f, "draws of a batch that is not the last one, or not late");
    f->late = NULL;
    if (!f->lazy && f->draws) fake_draws(f, b);
}

static inline void fake_submit(void *ctx, struct batch *b)
{
    struct fake *f = ctx;
    if (f->late) fake_fault(f, "a batch is submitted before the one before has its draws");
    if (f->n_flight == ENG_DEPTH_MAX || (f->n_flight && f->flight[0] == b)) {
        fake_fault(f, "a batch is submitted that is in flight, or one too many");
        return;
    }
    fake_judge(f, b);
    memset(b->out.id, 0xdb, b->max.seqs_max * sizeof *b->out.id);
    f->sum[f->n_flight] = fake_sum(b);
    f->flight[f->n_flight++] = b;
    f->n_late += b->late;
    f->late = b->late ? b : NULL;
    if (f->lazy) return;
    f->draws = fake_rows(f, b);
    if (f->draws && !b->late) fake_draws(f, b);
}

static inline enum status fake_wait(void *ctx, struct batch *b)
{
    struct fake *f = ctx;
    if (!f->n_flight || f->flight[0] != b) fake_fault(f, "not the oldest batch is waited for");
    if (f->late == b) fake_fault(f, "a batch is waited for without its draws");
    if (f->n_flight && f->sum[0] != fake_sum(b)) fake_fault(f, "a batch has changed in flight");
    if (f->lazy) fake_exec(f, b);
    if (f->n_flight) f->n_flight--;
    f->flight[0] = f->flight[1];
    f->sum[0] = f->sum[1];
    uint64_t step = f->step - (f->lazy ? 0 : f->n_flight); /* the number of this one */
    if (f->fail_at && step >= f->fail_at) return ST_DEVICE;
    return fake_refuses(f, step) ? ST_STEP : ST_OK;
}

/* late: masks may come while a step runs. */
static inline struct eng_runner fake_runner_late(struct fake *f, uint32_t depth, bool late)
{
    return (struct eng_runner){ .ctx = f,
                                .submit = fake_submit,
                                .wait = fake_wait,
                                .draw = late ? fake_tell_draw : NULL,
                                .depth = depth,
                                .guests = fake_guests };
}

static inline struct eng_runner fake_runner(struct fake *f, uint32_t depth) { return fake_runner_late(f, depth, true); }

/* ---- what must come out */

struct fake_answer {
    uint32_t        n; /* tokens */
    enum eng_finish finish;
    uint32_t       *id; /* [max_tokens], the caller's */
    float          *logprob;
};

/* The bans of position n_out, from the request alone. */
static inline uint32_t fake_bans(const struct eng_request *r, const uint32_t *out, uint32_t n_out,
                                 const struct eng_cfg *cfg, uint32_t *ban, uint32_t max)
{
    const struct eng_sampling *p = &r->s;
    uint32_t                   n = 0;
    if (n_out < p->min_tokens) {
        for (uint32_t i = 0; !p->ignore_eos && i < cfg->n_eos; i++) ban[n++ % max] = cfg->eos_id[i];
        for (uint32_t i = 0; i < p->n_stop_id; i++) ban[n++ % max] = p->stop_id[i];
    }
    for (uint32_t w = 0; w < p->n_bad_word; w++) {
        uint32_t        len = p->bad_word_start[w + 1] - p->bad_word_start[w], k = 0;
        const uint32_t *word = p->bad_word + p->bad_word_start[w];
        if (len - 1 > n_out) continue;
        while (k + 1 < len && out[n_out - (len - 1) + k] == word[k]) k++;
        if (k + 1 == len) ban[n++ % max] = word[k];
    }
    return n;
}

static inline void fake_expect(const struct eng_request *r, uint32_t choice, const struct eng_cfg *cfg,
                               struct fake_answer *a)
{
    const struct eng_sampling *p = &r->s;
    uint64_t                   chain = 0;
    for (uint32_t i = 0; i < r->n_prompt; i++) chain = fake_link(chain, r->prompt[i], i);
    uint32_t       n_end = p->ignore_eos ? 0 : cfg->n_eos;
    struct guide  *guide = r->choice[choice].guide ? guided_guide(cfg->eos_id, n_end, guided_gated(p->seed)) : NULL;
    struct guides *alone = NULL;
    if (guide && guides_create(0, 1, NULL, &alone)) abort();
    a->n = 0;
    a->finish = ENG_NONE;
    while (a->finish == ENG_NONE) {
        uint32_t ban[64], n_ban = fake_bans(r, a->id, a->n, cfg, ban, 64);
        uint64_t fold = 0;
        bool     all = p->repetition != 0.0f && p->repetition != 1.0f;
        if (all)
            for (uint32_t i = 0; i < r->n_prompt; i++) fold = fake_fold(fold, r->prompt[i]);
        if (all || p->presence != 0.0f || p->frequency != 0.0f)
            for (uint32_t i = 0; i < a->n; i++) fold = fake_fold(fold, a->id[i]);
        for (uint32_t i = 0; i < p->n_bias; i++) fold = fake_fold(fold, p->bias[i].id);
        uint32_t        n_mask = 0;
        const uint32_t *mask = guide ? guide_mask(guide, &n_mask) : NULL;
        for (uint32_t i = 0; guide && !n_mask && i < n_end; i++) ban[n_ban++] = cfg->eos_id[i];
        uint32_t id = fake_draw(chain, p->temperature, p->seed, choice, a->n, fold, p->allowed_id, p->n_allowed, ban,
                                n_ban, mask, n_mask, cfg->vocab);
        if (id == UINT32_MAX) {
            a->finish = ENG_ERROR;
            break;
        }
        if (a->logprob) a->logprob[a->n] = fake_logprob(chain, id);
        a->id[a->n++] = id;
        bool stop = false;
        for (uint32_t i = 0; !p->ignore_eos && i < cfg->n_eos; i++) stop |= cfg->eos_id[i] == id;
        for (uint32_t i = 0; i < p->n_stop_id; i++) stop |= p->stop_id[i] == id;
        if (stop && a->n > p->min_tokens)
            a->finish = ENG_STOP;
        else if (a->n == p->max_tokens || r->n_prompt + a->n == cfg->context_max)
            a->finish = ENG_LENGTH;
        chain = fake_link(chain, id, r->n_prompt + a->n - 1);
        if (guide && a->finish == ENG_NONE) guide_post(alone, guide, id);
    }
    guide_drop(guide);
    guides_free(alone);
}
