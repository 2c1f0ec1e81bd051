/* sizes: the bounds of an engine's batches, from its configuration. */
#include "engine/engine.h"
#include "kvcache/device/window.h"

enum { SAMPLE_IDS_MAX = 4 << 20 /* entries of the sampling arrays, unless one request needs more */ };
enum {
    WINDOW_CHUNK =
        2048, /* tokens of a prompt in a step where windows have a pool: more of them only hold more of its blocks */
    WINDOW_AHEAD_MIN = 512, /* a pool that is too small for two whole chunks has room for as much */
};

static uint32_t bound(uint64_t one, uint64_t n)
{
    uint64_t all = one * n < SAMPLE_IDS_MAX ? one * n : SAMPLE_IDS_MAX;
    return (uint32_t)(all > one ? all : one);
}

/* Of every sequence's last row, and beside it of its first row, or of all rows of a step. */
uint64_t eng_states_max(const struct eng_cfg *c)
{
    uint64_t rows = c->seqs_max;
    if (c->state_of == ENG_STATE_FIRST) rows += c->seqs_max;
    if (c->state_of == ENG_STATE_SUM) rows += c->batch_tokens_max;
    return c->state_dim * rows;
}

uint32_t eng_chunk(const struct eng_cfg *c)
{
    if (c->prefill_chunk_max && c->prefill_chunk_max < c->batch_tokens_max) return c->prefill_chunk_max;
    if (c->prefill_chunk_max || !c->n_window || c->batch_tokens_max < WINDOW_CHUNK) return c->batch_tokens_max;
    return WINDOW_CHUNK;
}

/* Steps overlap: while one is in flight, the rows of the next are reserved. */
uint32_t eng_window_ahead(const struct eng_cfg *c) { return ENG_DEPTH_MAX * eng_chunk(c); }

uint32_t eng_windows_min(const struct eng_cfg *c, uint32_t window)
{
    uint32_t ahead = eng_window_ahead(c);
    return kv_window_seq_max(window, ahead < WINDOW_AHEAD_MIN ? ahead : WINDOW_AHEAD_MIN, c->block_tokens) +
           KV_WINDOW_SPARE;
}

struct batch_cfg eng_batch_cfg(const struct eng_cfg *c)
{
    uint32_t blocks = (uint32_t)(((uint64_t)c->context_max + c->block_tokens - 1) / c->block_tokens);
    return (struct batch_cfg){
        .rows_max = c->batch_tokens_max,
        .seqs_max = c->seqs_max,
        .pages_max = c->seqs_max * blocks * (c->n_window ? 2 : 1),
        .hist_max = bound(c->context_max, c->seqs_max),
        .ban_max = bound(4096, c->seqs_max),
        .allow_max = bound(c->vocab, c->seqs_max),
        .bias_max = bound(c->vocab, c->seqs_max),
        .mask_max = bound((c->vocab + 31) / 32, c->seqs_max),
        .states_max = (uint32_t)eng_states_max(c),
    };
}
