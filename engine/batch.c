#include "engine/batch.h"
#include "base/check.h"
#include <stdlib.h>
#include <string.h>

/* calloc may return NULL for nothing; an array that is never used may be one entry long */
static void *array(size_t n, size_t size) { return calloc(n ? n : 1, size); }

enum status batch_init(struct batch *b, const struct batch_cfg *cfg)
{
    *b = (struct batch){
        .rows_max = cfg->rows_max,
        .seqs_max = cfg->seqs_max,
        .pages_max = cfg->pages_max,
        .hist_max = cfg->hist_max,
        .ban_max = cfg->ban_max,
        .allow_max = cfg->allow_max,
        .bias_max = cfg->bias_max,
    };
    size_t rows = cfg->rows_max, seqs = cfg->seqs_max;
    b->id = array(rows, sizeof *b->id);
    b->pos = array(rows, sizeof *b->pos);
    b->row_seq = array(rows, sizeof *b->row_seq);
    b->row_start = array(seqs + 1, sizeof *b->row_start);
    b->page_start = array(seqs + 1, sizeof *b->page_start);
    b->page = array(cfg->pages_max, sizeof *b->page);
    b->copy_src = array(seqs, sizeof *b->copy_src);
    b->copy_dst = array(seqs, sizeof *b->copy_dst);
    b->logit_row = array(seqs + rows, sizeof *b->logit_row);
    b->sample = array(seqs, sizeof *b->sample);
    b->hist = array(cfg->hist_max, sizeof *b->hist);
    b->ban = array(cfg->ban_max, sizeof *b->ban);
    b->allow = array(cfg->allow_max, sizeof *b->allow);
    b->bias = array(cfg->bias_max, sizeof *b->bias);
    b->lp_id = array(rows, sizeof *b->lp_id);
    b->patch_id = array(seqs, sizeof *b->patch_id);
    b->patch_hist = array(seqs, sizeof *b->patch_hist);
    b->out.id = array(seqs, sizeof *b->out.id);
    b->out.rank = array(seqs, sizeof *b->out.rank);
    b->out.logprob = array(seqs, sizeof *b->out.logprob);
    b->out.top_id = array(seqs * OP_SAMPLE_TOP_MAX, sizeof *b->out.top_id);
    b->out.top_logprob = array(seqs * OP_SAMPLE_TOP_MAX, sizeof *b->out.top_logprob);
    b->out.lp = array(rows, sizeof *b->out.lp);
    b->out.lp_rank = array(rows, sizeof *b->out.lp_rank);
    b->out.lp_top_id = array(rows * OP_SAMPLE_TOP_MAX, sizeof *b->out.lp_top_id);
    b->out.lp_top = array(rows * OP_SAMPLE_TOP_MAX, sizeof *b->out.lp_top);
    bool ok = b->id && b->pos && b->row_seq && b->row_start && b->page_start && b->page && b->copy_src && b->copy_dst && b->logit_row &&
              b->sample && b->hist && b->ban && b->allow && b->bias && b->lp_id && b->patch_id && b->patch_hist && b->out.id &&
              b->out.rank && b->out.logprob && b->out.top_id && b->out.top_logprob && b->out.lp && b->out.lp_rank && b->out.lp_top_id &&
              b->out.lp_top;
    if (!ok) {
        batch_free(b);
        return ST_NOMEM;
    }
    b->d = (struct dev_batch){
        .id = b->id, .pos = b->pos, .row_seq = b->row_seq, .row_start = b->row_start, .page_start = b->page_start, .page = b->page
    };
    return ST_OK;
}

void batch_free(struct batch *b)
{
    void *all[] = { b->patch_id,   b->patch_hist,      b->id,     b->pos,         b->row_seq,
                    b->row_start,  b->page_start,      b->page,   b->copy_src,    b->copy_dst,
                    b->logit_row,  b->sample,          b->hist,   b->ban,         b->allow,
                    b->bias,       b->lp_id,           b->out.id, b->out.rank,    b->out.logprob,
                    b->out.top_id, b->out.top_logprob, b->out.lp, b->out.lp_rank, b->out.lp_top_id,
                    b->out.lp_top };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    *b = (struct batch){ 0 };
}

struct dev_step batch_step(const struct batch *b)
{
    CHECK(b->n_logit == b->n_sample + b->n_prompt_lp);
    return (struct dev_step){ .b = b->d,
                              .n_logit = b->n_logit,
                              .n_sample = b->n_sample,
                              .n_lp = b->n_prompt_lp,
                              .lp_top = b->prompt_top,
                              .logit_row = b->logit_row,
                              .sample = b->sample,
                              .n_hist = b->n_hist,
                              .n_ban = b->n_ban,
                              .n_allow = b->n_allow,
                              .n_bias = b->n_bias,
                              .hist = b->hist,
                              .ban = b->ban,
                              .allow = b->allow,
                              .bias = b->bias,
                              .lp_id = b->lp_id,
                              .n_patch_id = b->n_patch_id,
                              .n_patch_hist = b->n_patch_hist,
                              .patch_id = b->patch_id,
                              .patch_hist = b->patch_hist,
                              .out = b->out };
}

void batch_clear(struct batch *b)
{
    b->d.n_row = b->d.n_seq = 0;
    b->row_start[0] = b->page_start[0] = 0;
    b->n_copy = b->n_logit = b->n_sample = b->n_prompt_lp = b->prompt_top = 0;
    b->n_patch_id = b->n_patch_hist = 0;
    b->n_hist = b->n_ban = b->n_allow = b->n_bias = 0;
}

uint32_t batch_add(struct batch *b, const uint32_t *ids, uint32_t n, uint32_t pos, const uint32_t *page, uint32_t n_page)
{
    uint32_t row = b->d.n_row, seq = b->d.n_seq, at = b->page_start[seq];
    CHECK(n <= b->rows_max - row);
    CHECK(seq < b->seqs_max);
    CHECK(n_page <= b->pages_max - at);
    memcpy(b->id + row, ids, n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        b->pos[row + i] = pos + i;
        b->row_seq[row + i] = seq;
    }
    memcpy(b->page + at, page, n_page * sizeof *page);
    b->d.n_row = row + n;
    b->d.n_seq = seq + 1;
    b->row_start[seq + 1] = row + n;
    b->page_start[seq + 1] = at + n_page;
    return row;
}

void batch_add_copy(struct batch *b, struct kv_copy c)
{
    CHECK(b->n_copy < b->seqs_max);
    b->copy_src[b->n_copy] = c.src;
    b->copy_dst[b->n_copy++] = c.dst;
}

struct op_sample_row *batch_add_sample(struct batch *b, uint32_t row)
{
    CHECK(b->n_sample < b->seqs_max);
    CHECK(b->n_prompt_lp == 0);
    b->logit_row[b->n_logit++] = row;
    struct op_sample_row *r = &b->sample[b->n_sample++];
    *r = (struct op_sample_row){ 0 };
    return r;
}

void batch_patch_id(struct batch *b, uint32_t row, uint32_t from)
{
    CHECK(b->n_patch_id < b->seqs_max);
    b->patch_id[b->n_patch_id++] = (struct dev_patch){ row, from };
}

void batch_patch_hist(struct batch *b, uint32_t at, uint32_t from)
{
    CHECK(b->n_patch_hist < b->seqs_max);
    b->patch_hist[b->n_patch_hist++] = (struct dev_patch){ at, from };
}

void batch_add_lp(struct batch *b, uint32_t row, uint32_t id, uint32_t n_top)
{
    CHECK(b->n_prompt_lp < b->rows_max);
    b->logit_row[b->n_logit++] = row;
    b->lp_id[b->n_prompt_lp++] = id;
    if (n_top > b->prompt_top) b->prompt_top = n_top;
}
