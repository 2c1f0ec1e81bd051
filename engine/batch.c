#include "engine/batch.h"
#include "base/check.h"
#include <stdlib.h>
#include <string.h>

/* calloc may return NULL for nothing; an array that is never used may be one entry long */
static void *array(size_t n, size_t size) { return calloc(n ? n : 1, size); }

struct dev_sizes batch_most(const struct batch_cfg *cfg)
{
    const struct batch_cfg *m = cfg; /* as the list calls it */
#define MOST(name, most, padded) .name = (most),
    return (struct dev_sizes){ DEV_SIZES(MOST) };
#undef MOST
}

enum status batch_init(struct batch *b, const struct batch_cfg *cfg)
{
    struct dev_sizes most = batch_most(cfg);
    bool             ok = true;
    *b = (struct batch){ .max = *cfg };
#define TAKE(name, type, size, extra, ...) ok = (b->name = array((size_t)most.size + (extra), sizeof(type))) && ok;
    DEV_ARRAYS(TAKE)
#undef TAKE
#define TAKE(name, type, size, each, wanted) ok = (b->out.name = array((size_t)most.size * (each), sizeof(type))) && ok;
    DEV_RESULTS(TAKE)
#undef TAKE
    if (ok) return ST_OK;
    batch_free(b);
    return ST_NOMEM;
}

void batch_free(struct batch *b)
{
#define FREE(name, ...) free(b->name);
    DEV_ARRAYS(FREE)
#undef FREE
#define FREE(name, ...) free(b->out.name);
    DEV_RESULTS(FREE)
#undef FREE
    *b = (struct batch){ 0 };
}

struct dev_step batch_step(const struct batch *b)
{
    CHECK(b->n_logit == b->n_sample + b->n_lp);
    CHECK(b->n_page == b->page_start[b->n_seq]);
    struct dev_step s = { .out = b->out, .late = b->late };
#define VIEW(name, ...) s.b.name = b->name;
    DEV_BATCH_SIZES(VIEW)
    DEV_BATCH_ARRAYS(VIEW)
#undef VIEW
#define VIEW(name, ...) s.name = b->name;
    DEV_STEP_SIZES(VIEW)
    DEV_STEP_ARRAYS(VIEW)
#undef VIEW
    return s;
}

void batch_clear(struct batch *b)
{
#define CLEAR(name, ...) b->name = 0;
    DEV_SIZES(CLEAR)
#undef CLEAR
    b->late = false;
    b->row_start[0] = b->page_start[0] = b->win_start[0] = 0;
    b->n_adapt = 0;
}

uint32_t batch_add(struct batch *b, const uint32_t *ids, uint32_t n, uint32_t pos, const uint32_t *page,
                   uint32_t n_page)
{
    uint32_t row = b->n_row, seq = b->n_seq, at = b->n_page;
    CHECK(n <= b->max.rows_max - row);
    CHECK(seq < b->max.seqs_max);
    CHECK(n_page <= b->max.pages_max - at);
    memcpy(b->id + row, ids, n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        b->pos[row + i] = pos + i;
        b->row_seq[row + i] = seq;
        b->adapter[row + i] = 0;
        b->type[row + i] = 0;
    }
    memcpy(b->page + at, page, n_page * sizeof *page);
    b->n_row = row + n;
    b->n_seq = seq + 1;
    b->row_start[seq + 1] = row + n;
    b->page_start[seq + 1] = b->win_start[seq + 1] = b->n_page = at + n_page;
    b->win_start[seq] = at;
    return row;
}

/* They follow the sequence's other pages, so that one array has all of them. */
void batch_window(struct batch *b, const uint32_t *win, uint32_t n)
{
    CHECK(b->n_seq);
    CHECK(n <= b->max.pages_max - b->n_page);
    b->win_start[b->n_seq - 1] = b->n_page;
    memcpy(b->page + b->n_page, win, n * sizeof *win);
    b->page_start[b->n_seq] = b->win_start[b->n_seq] = b->n_page += n;
}

void batch_adapter(struct batch *b, uint32_t adapter)
{
    CHECK(b->n_seq);
    for (uint32_t i = b->row_start[b->n_seq - 1]; i < b->n_row; i++) b->adapter[i] = adapter;
}

void batch_second(struct batch *b, uint32_t second)
{
    for (uint32_t i = b->row_start[b->n_seq - 1]; i < b->n_row; i++) b->type[i] = b->pos[i] >= second;
}

void batch_add_copy(struct batch *b, struct kv_copy c)
{
    CHECK(b->n_copy < b->max.seqs_max);
    b->copy_src[b->n_copy] = c.src;
    b->copy_dst[b->n_copy] = c.dst;
    b->win_src[b->n_copy] = c.win_src;
    b->win_dst[b->n_copy++] = c.win_dst;
}

struct op_sample_row *batch_add_sample(struct batch *b, uint32_t row)
{
    CHECK(b->n_sample < b->max.seqs_max);
    CHECK(b->n_lp == 0);
    b->logit_row[b->n_logit++] = row;
    struct op_sample_row *r = &b->sample[b->n_sample++];
    *r = (struct op_sample_row){ 0 };
    return r;
}

void batch_patch_id(struct batch *b, uint32_t row, uint32_t from)
{
    CHECK(b->n_patch_id < b->max.seqs_max);
    b->patch_id[b->n_patch_id++] = (struct dev_patch){ row, from };
}

void batch_patch_hist(struct batch *b, uint32_t at, uint32_t from)
{
    CHECK(b->n_patch_hist < b->max.seqs_max);
    b->patch_hist[b->n_patch_hist++] = (struct dev_patch){ at, from };
}

void batch_add_lp(struct batch *b, uint32_t row, uint32_t id, uint32_t n_top)
{
    CHECK(b->n_lp < b->max.rows_max);
    b->logit_row[b->n_logit++] = row;
    b->lp_id[b->n_lp++] = id;
    if (n_top > b->lp_top) b->lp_top = n_top;
}
