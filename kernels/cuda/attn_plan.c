/* attn_plan: host side of the split of attention; see cuda.h.   Pure functions, any thread. */
#include "base/check.h"
#include "kernels/cuda/cuda.h"

/* Shared memory of an SM that blocks can use, in KB (CUDA C programming guide, table of technical specifications). */
static uint32_t smem_kb(int arch)
{
    if (arch == 80 || arch == 87) return 164;
    return arch >= 90 && arch < 120 ? 228 : 100;
}

uint32_t cuda_attn_smem(int arch) { return (smem_kb(arch) - 1) * 1024; }

uint32_t cuda_attn_warps(int arch, uint32_t head_dim)
{
    /* Each decode block is one warp, or two that share rows, with a ring of tiles; the system keeps 1 KB of every block for itself. More than 8
     * blocks bring no more bytes under way: rings of short heads are short too, and so are their items. */
    uint32_t dim = cuda_attn_dim(head_dim), rows = CUDA_ATTN_RING * cuda_attn_tile(dim);
    if (dim > CUDA_ATTN_WHOLE_ROW) rows += CUDA_ATTN_HEADS; /* Q lies there too */
    uint32_t n = smem_kb(arch) * 1024 / (rows * cuda_attn_stride(dim) + 1024);
    CHECK(n >= 1);
    return n < 8 ? n : 8;
}

bool cuda_attn_wgmma(const struct cuda_dev *d, uint32_t n_head, uint32_t n_kv_head, uint32_t head_dim,
                     uint32_t block_tokens)
{
    return d->wgmma && (head_dim == 64 || head_dim == 128) && n_head / n_kv_head % 2 == 0 && block_tokens % 16 == 0;
}

struct cuda_attn_split cuda_attn_split(const struct cuda_dev *d, uint32_t n_head, uint32_t n_kv_head, uint32_t head_dim)
{
    CHECK(n_kv_head > 0 && n_head % n_kv_head == 0);
    uint32_t per_group = (n_head / n_kv_head + CUDA_ATTN_HEADS - 1) / CUDA_ATTN_HEADS;
    uint32_t warps = d->attn_warps ? d->attn_warps : cuda_attn_warps(d->arch, head_dim);
    return (struct cuda_attn_split){ n_kv_head * per_group, (uint32_t)d->n_sm * warps, d->deterministic };
}

/* Items that a batch may have. A sequence is one at least; where that alone fills the GPU, a quarter more lets the
 * longest ones split. */
static uint32_t budget(const struct cuda_attn_split *s, uint32_t n_seq)
{
    uint32_t full = s->n_slot / s->n_unit, most = n_seq + n_seq / 4;
    return full > most ? full : most;
}

/* Tiles of a chunk that make the longest sequence end soonest: a chunk takes its tiles, and merging as long for a part
 * as 0.22 tiles take (flashinfer#4904). The least of tiles / chunk + 0.22 parts is where both are equal. */
static uint32_t cheapest(uint32_t tiles)
{
    uint32_t chunk = CUDA_ATTN_CHUNK_MIN / CUDA_ATTN_KV;
    while ((uint64_t)chunk * chunk * 100 < (uint64_t)tiles * 22) chunk++;
    return chunk;
}

static uint32_t items(const uint32_t *len, uint32_t n_seq, uint32_t chunk)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_seq; i++) n += (len[i] - 1) / chunk + 1;
    return n;
}

uint32_t cuda_attn_chunk(const struct cuda_attn_split *s, const uint32_t *len, uint32_t n_seq)
{
    if (s->fixed) return 0;
    uint32_t longest = 1, most = budget(s, n_seq);
    for (uint32_t i = 0; i < n_seq; i++) longest = len[i] > longest ? len[i] : longest;
    /* in tiles: lo - 1 is too short, hi is long enough: there each sequence is one item */
    uint32_t hi = (longest - 1) / CUDA_ATTN_KV + 1, lo = cheapest(hi);
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (items(len, n_seq, mid * CUDA_ATTN_KV) <= most)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo * CUDA_ATTN_KV;
}

struct cuda_attn_cut cuda_attn_window(const struct cuda_attn_split *s, uint32_t n_seq, uint32_t n_part, uint32_t window)
{
    if (s->fixed) {
        /* of rows that the window holds whole, and of those that it does not */
        uint32_t whole = (window - 1) / CUDA_ATTN_FIXED_MIN + 1;
        uint32_t part = cuda_attn_touched(window, cuda_attn_chunk_fixed(window + 1, window));
        if (whole > CUDA_ATTN_FIXED_ITEMS) whole = CUDA_ATTN_FIXED_ITEMS;
        return (struct cuda_attn_cut){ whole > part ? whole : part, 0 };
    }
    uint32_t most = n_seq ? budget(s, n_seq) / n_seq : 1, chunk;
    if (most < 3) return (struct cuda_attn_cut){ 1, CUDA_ATTN_WHOLE };
    chunk = (window + most - 3) / (most - 1);
    chunk = (chunk + CUDA_ATTN_KV - 1) / CUDA_ATTN_KV * CUDA_ATTN_KV;
    uint32_t least = cheapest((window - 1) / CUDA_ATTN_KV + 1) * CUDA_ATTN_KV;
    if (chunk < least) chunk = least;
    uint32_t each = cuda_attn_touched(window, chunk);
    if ((uint64_t)each * n_seq > n_part) return (struct cuda_attn_cut){ 1, CUDA_ATTN_WHOLE };
    return (struct cuda_attn_cut){ each, chunk };
}

uint32_t cuda_attn_items_max(const struct cuda_attn_split *s, uint32_t n_seq)
{
    return s->fixed ? n_seq * CUDA_ATTN_FIXED_ITEMS : budget(s, n_seq);
}

uint32_t cuda_attn_tiles_max(uint32_t rows_max, uint32_t seqs_max) { return rows_max / CUDA_ATTN_ROWS + seqs_max; }

/* The tile enters the list behind those that see at least as much: the longest start first, so that none is left
 * running alone. */
static void add_tile(const struct dev_batch *b, struct cuda_attn_lists *l, uint32_t seq, uint32_t row)
{
    uint32_t i = l->n_tile++;
    for (; i > 0 && b->pos[l->tile_row[i - 1]] < b->pos[row]; i--) {
        l->tile_seq[i] = l->tile_seq[i - 1];
        l->tile_row[i] = l->tile_row[i - 1];
    }
    l->tile_seq[i] = seq;
    l->tile_row[i] = row;
}

enum { CLASSES = 64 };

/* Chunk c of a sequence of len tokens is how long, in classes: 0 are the longest. */
static uint32_t class_of(uint32_t len, uint32_t chunk, uint32_t c, uint32_t longest)
{
    uint32_t left = len - c * chunk, n = left < chunk ? left : chunk;
    return (uint32_t)((uint64_t)(longest - n) * CLASSES / longest);
}

/* All chunks of the decode rows, the longest first: warps take them in turns, and none begins a long one when the
 * others are done. Returns how many. */
static uint32_t list_items(const uint32_t *len, struct cuda_attn_lists *l)
{
    uint32_t longest = 1, n = 0, begin[CLASSES + 1] = { 0 };
    for (uint32_t i = 0; i < l->n_decode; i++) {
        uint32_t chunk = *l->chunk ? *l->chunk : cuda_attn_chunk_fixed(len[i], 0),
                 one = len[i] < chunk ? len[i] : chunk;
        if (one > longest) longest = one;
    }
    for (uint32_t i = 0; i < l->n_decode; i++) {
        uint32_t chunk = *l->chunk ? *l->chunk : cuda_attn_chunk_fixed(len[i], 0), n_chunk = (len[i] - 1) / chunk + 1;
        CHECK(n_chunk <= l->n_item_pad - n);
        l->seq_item[i] = n;
        n += n_chunk;
        begin[class_of(len[i], chunk, 0, longest) + 1] += n_chunk - 1;
        begin[class_of(len[i], chunk, n_chunk - 1, longest) + 1]++;
    }
    for (uint32_t i = l->n_decode; i <= l->n_decode_pad; i++) l->seq_item[i] = n;
    for (uint32_t c = 0; c < CLASSES; c++) begin[c + 1] += begin[c];
    for (uint32_t i = 0; i < l->n_decode; i++) {
        uint32_t chunk = *l->chunk ? *l->chunk : cuda_attn_chunk_fixed(len[i], 0), n_chunk = (len[i] - 1) / chunk + 1;
        for (uint32_t c = 0; c < n_chunk; c++) {
            uint32_t at = begin[class_of(len[i], chunk, c, longest)]++;
            l->item_seq[at] = i;
            l->item_chunk[at] = c;
        }
    }
    return n;
}

void cuda_attn_fill(const struct cuda_attn_split *s, const struct dev_batch *b, uint32_t *len,
                    struct cuda_attn_lists *l)
{
    uint32_t seq = 0;
    for (; seq < b->n_seq && b->row_start[seq + 1] == b->row_start[seq] + 1; seq++) {
        if (b->row_seq[seq] == UINT32_MAX) break;
        len[seq] = b->pos[seq] + 1;
    }
    l->n_decode = seq;
    CHECK(l->n_decode <= l->n_decode_pad);
    *l->chunk = cuda_attn_chunk(s, len, l->n_decode);
    l->n_item = list_items(len, l);
    for (uint32_t i = l->n_item; i < l->n_item_pad; i++) l->item_seq[i] = l->item_chunk[i] = UINT32_MAX;
    l->n_tile = 0;
    for (seq = l->n_decode; seq < b->n_seq; seq++) {
        uint32_t row0 = b->row_start[seq], n_row = b->row_start[seq + 1] - row0;
        if (n_row == 0 || b->row_seq[row0] == UINT32_MAX) continue;
        for (uint32_t i = (n_row - 1) / CUDA_ATTN_ROWS + 1; i-- > 0;) add_tile(b, l, seq, row0 + i * CUDA_ATTN_ROWS);
    }
}
