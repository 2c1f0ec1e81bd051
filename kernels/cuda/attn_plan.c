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
    uint32_t group = n_head / n_kv_head, warps = d->attn_warps ? d->attn_warps : cuda_attn_warps(d->arch, head_dim);
    return (struct cuda_attn_split){ cuda_attn_units(n_kv_head, group, 1), (uint32_t)d->n_sm * warps, d->deterministic,
                                     n_kv_head, group };
}

/* Items that n sequences or runs of up to n_row rows may have. Each is one at least; where that alone fills the GPU, a
 * quarter more lets the longest ones split. */
static uint32_t budget(const struct cuda_attn_split *s, uint32_t n, uint32_t n_row)
{
    uint32_t units = n_row > 1 ? cuda_attn_units(s->n_kv_head, s->group, n_row) : s->n_unit;
    uint32_t full = s->n_slot / units, most = n + n / 4;
    return full > most ? full : most;
}

/* Tiles of a chunk that make the longest sequence end soonest: a chunk takes its tiles, and merging as long for a part
 * as 0.22 tiles take (flashinfer#4904), as often as a warp has rows to merge: `merges`. The least of tiles / chunk +
 * 0.22 parts is where both are equal. */
static uint32_t cheapest(uint32_t tiles, uint32_t merges)
{
    uint32_t chunk = CUDA_ATTN_CHUNK_MIN / CUDA_ATTN_KV;
    while ((uint64_t)chunk * chunk * 100 < (uint64_t)tiles * 22 * merges) chunk++;
    return chunk;
}

/* What is cut: n sequences of one row, or runs. */
struct cut {
    const uint32_t             *len;                     /* [n] of KV */
    const struct cuda_attn_run *run;                     /* NULL: of one row */
    uint32_t                    n, most, merges, n_part; /* most: items; n_part: parts, of runs */
};

static bool fits(const struct cut *c, uint32_t chunk)
{
    uint32_t n = 0, part = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t n_chunk = (c->len[i] - 1) / chunk + 1;
        n += n_chunk;
        if (c->run && n_chunk > 1) part += n_chunk * c->run[i].n_row;
    }
    return n <= c->most && part <= c->n_part;
}

static uint32_t chunk_of(const struct cut *c)
{
    uint32_t longest = 1;
    for (uint32_t i = 0; i < c->n; i++) longest = c->len[i] > longest ? c->len[i] : longest;
    /* in tiles: lo - 1 is too short, hi is long enough: there each sequence is one item */
    uint32_t hi = (longest - 1) / CUDA_ATTN_KV + 1, lo = cheapest(hi, c->merges);
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (fits(c, mid * CUDA_ATTN_KV))
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo * CUDA_ATTN_KV;
}

uint32_t cuda_attn_chunk(const struct cuda_attn_split *s, const uint32_t *len, uint32_t n_seq)
{
    struct cut c = { .len = len, .n = n_seq, .merges = 1 };
    if (s->fixed) return 0;
    c.most = budget(s, n_seq, 1);
    return chunk_of(&c);
}

struct cuda_attn_cut cuda_attn_window(const struct cuda_attn_split *s, uint32_t n_seq, uint32_t n_part, uint32_t window,
                                      uint32_t spread)
{
    if (s->fixed) {
        /* of rows that the window holds whole, and of those that it does not */
        uint32_t whole = (window - 1) / CUDA_ATTN_FIXED_MIN + 1;
        uint32_t part = cuda_attn_touched(window + spread, cuda_attn_chunk_fixed(window + 1, window));
        if (whole > CUDA_ATTN_FIXED_ITEMS) whole = CUDA_ATTN_FIXED_ITEMS;
        return (struct cuda_attn_cut){ whole > part ? whole : part, 0 };
    }
    uint32_t most = n_seq ? budget(s, n_seq, 1) / n_seq : 1, chunk;
    window += spread;
    if (most < 3) return (struct cuda_attn_cut){ 1, CUDA_ATTN_WHOLE };
    chunk = (window + most - 3) / (most - 1);
    chunk = (chunk + CUDA_ATTN_KV - 1) / CUDA_ATTN_KV * CUDA_ATTN_KV;
    uint32_t least = cheapest((window - 1) / CUDA_ATTN_KV + 1, 1) * CUDA_ATTN_KV;
    if (chunk < least) chunk = least;
    uint32_t each = cuda_attn_touched(window, chunk);
    if ((uint64_t)each * n_seq > n_part) return (struct cuda_attn_cut){ 1, CUDA_ATTN_WHOLE };
    return (struct cuda_attn_cut){ each, chunk };
}

uint32_t cuda_attn_items_max(const struct cuda_attn_split *s, uint32_t n_seq)
{
    return s->fixed ? n_seq * CUDA_ATTN_FIXED_ITEMS : budget(s, n_seq, 1);
}

/* Parts that a row of a run may have with a fixed split. A run reaches further than each of its rows, which is a chunk
 * more, or with the nodes of a tree two. */
enum { FIXED_PARTS = CUDA_ATTN_FIXED_ITEMS + 2, RUN_ROWS = 64 /* that there is always room for, at least nearly */ };

uint32_t cuda_attn_parts(const struct cuda_attn_split *s, uint32_t seqs_max)
{
    uint32_t single = cuda_attn_items_max(s, seqs_max), rows = CUDA_ATTN_RUN;
    if (s->fixed) return single > RUN_ROWS * FIXED_PARTS ? single : RUN_ROWS * FIXED_PARTS;
    rows *= s->n_slot / cuda_attn_units(s->n_kv_head, s->group, CUDA_ATTN_RUN);
    return single > rows ? single : rows;
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

enum { CLASSES = 64, MERGED = 4 /* rows that a warp merges at a time */ };

/* Chunk c of a sequence of len tokens is how long, in classes: 0 are the longest. */
static uint32_t class_of(uint32_t len, uint32_t chunk, uint32_t c, uint32_t longest)
{
    uint32_t left = len - c * chunk, n = left < chunk ? left : chunk;
    return (uint32_t)((uint64_t)(longest - n) * CLASSES / longest);
}

/* All chunks of what is cut, the longest first: warps take them in turns, and none begins a long one when the others
 * are done. Returns how many. */
static uint32_t list_items(const struct cut *c, struct cuda_attn_lists *l)
{
    uint32_t longest = 1, n = 0, part = 0, begin[CLASSES + 1] = { 0 };
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t chunk = *l->chunk ? *l->chunk : cuda_attn_chunk_fixed(c->len[i], 0),
                 one = c->len[i] < chunk ? c->len[i] : chunk;
        if (one > longest) longest = one;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t len = c->len[i], chunk = *l->chunk ? *l->chunk : cuda_attn_chunk_fixed(len, 0),
                 n_chunk = (len - 1) / chunk + 1;
        CHECK(n_chunk <= l->n_item_pad - n);
        if (c->run) {
            l->run[i].part = part;
            if (n_chunk > 1) part += n_chunk * l->run[i].n_row;
        } else {
            l->seq_item[i] = n;
        }
        n += n_chunk;
        begin[class_of(len, chunk, 0, longest) + 1] += n_chunk - 1;
        begin[class_of(len, chunk, n_chunk - 1, longest) + 1]++;
    }
    for (uint32_t i = c->run ? 0 : c->n; i <= l->n_decode_pad; i++) l->seq_item[i] = n;
    for (uint32_t i = 0; i < CLASSES; i++) begin[i + 1] += begin[i];
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t len = c->len[i], chunk = *l->chunk ? *l->chunk : cuda_attn_chunk_fixed(len, 0),
                 n_chunk = (len - 1) / chunk + 1;
        for (uint32_t k = 0; k < n_chunk; k++) {
            uint32_t at = begin[class_of(len, chunk, k, longest)]++;
            l->item_seq[at] = i;
            l->item_chunk[at] = k;
        }
    }
    return n;
}

/* ---------------------------------------------------------------- runs */

static uint32_t rows_of(const struct dev_batch *b, uint32_t seq)
{
    uint32_t row = b->row_start[seq], n = b->row_start[seq + 1] - row;
    return n && b->row_seq[row] != UINT32_MAX ? n : 0;
}
/* May rows of the sequence be cut along KV? With the fixed split that changes no bit. Without it rows of a prompt must
 * not know in how many pieces it came: those alone that say that they are drafts, by their words. */
static bool is_few(const struct cuda_attn_split *s, const struct dev_batch *b, uint32_t seq)
{
    uint32_t n = rows_of(b, seq);
    return n && n <= CUDA_ATTN_RUN && (n == 1 || s->fixed || dev_tree(b, b->row_start[seq + 1] - 1));
}
/* Are there rows that see something else than rows without a tree? */
static bool has_tree(const struct dev_batch *b, uint32_t seq)
{
    for (uint32_t i = b->row_start[seq]; b->tree && i < b->row_start[seq + 1]; i++)
        if (tree_holes(b->tree[i])) return true;
    return false;
}

uint32_t cuda_attn_runs(const struct cuda_attn_split *s, const struct dev_batch *b)
{
    uint32_t n = 0;
    bool     any = false;
    for (uint32_t seq = 0; seq < b->n_seq; seq++) {
        uint32_t rows = rows_of(b, seq);
        bool     tree = has_tree(b, seq), few = is_few(s, b, seq);
        any = any || tree || (few && rows > 1);
        if (rows == 1) n++;
        if (rows > 1 && (tree || few)) n += (rows - 1) / CUDA_ATTN_RUN + 2;
    }
    return any ? n : 0;
}
uint32_t cuda_attn_runs_max(uint32_t rows_max, uint32_t seqs_max) { return 2 * seqs_max + rows_max / CUDA_ATTN_RUN; }

/* All rows of a sequence; they part where the fixed split's chunks change their length. */
static void add_runs(const struct cuda_attn_split *s, const struct dev_batch *b, uint32_t seq, uint32_t *len,
                     struct cuda_attn_lists *l)
{
    struct cuda_attn_run *r = NULL;
    for (uint32_t row = b->row_start[seq]; row < b->row_start[seq + 1]; row++) {
        uint64_t tree = dev_tree(b, row);
        uint32_t pos = b->pos[row], kv = tree_slot(pos, tree) + 1;
        bool     more = r && r->n_row < CUDA_ATTN_RUN;
        if (more && s->fixed) more = cuda_attn_chunk_fixed(kv, 0) == cuda_attn_chunk_fixed(len[l->n_run - 1], 0);
        if (!more) {
            CHECK(l->n_run < l->n_run_pad);
            r = &l->run[l->n_run++];
            *r = (struct cuda_attn_run){ .seq = seq, .row = row, .before = l->n_run_row };
        }
        len[l->n_run - 1] = kv;
        if (++r->n_row > l->run_most) l->run_most = r->n_row;
        if (kv - 1 - b->pos[r->row] > l->run_spread) l->run_spread = kv - 1 - b->pos[r->row];
        l->n_run_row++;
    }
}

/* Runs instead of single rows, where a sequence needs them: of all that have few rows, or a tree. */
static void fill_runs(const struct cuda_attn_split *s, const struct dev_batch *b, uint32_t *len,
                      struct cuda_attn_lists *l)
{
    uint32_t room = s->fixed ? l->n_part / FIXED_PARTS : UINT32_MAX;
    for (uint32_t seq = 0; seq < b->n_seq; seq++)
        if (has_tree(b, seq)) {
            CHECK(rows_of(b, seq) <= room);
            room -= rows_of(b, seq);
        }
    for (uint32_t seq = 0; seq < b->n_seq; seq++) {
        uint32_t n = rows_of(b, seq);
        bool     tree = has_tree(b, seq);
        if (!tree && (!is_few(s, b, seq) || n > room)) continue;
        if (!tree) room -= n;
        add_runs(s, b, seq, len, l);
    }
    uint32_t   pairs = s->group * l->run_most, a_warp = pairs < CUDA_ATTN_HEADS ? pairs : CUDA_ATTN_HEADS;
    struct cut c = {
        len, l->run, l->n_run, budget(s, l->n_run, l->run_most), (a_warp + MERGED - 1) / MERGED, l->n_part
    };
    *l->chunk = s->fixed ? 0 : chunk_of(&c);
    l->n_item = list_items(&c, l);
}

static void fill_single(const struct cuda_attn_split *s, const struct dev_batch *b, uint32_t *len,
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
    struct cut c = { .len = len, .n = l->n_decode };
    l->n_item = list_items(&c, l);
}

void cuda_attn_fill(const struct cuda_attn_split *s, const struct dev_batch *b, uint32_t *len,
                    struct cuda_attn_lists *l)
{
    l->n_run = l->n_run_row = l->run_most = l->run_spread = l->n_decode = 0;
    if (l->n_run_pad && cuda_attn_runs(s, b))
        fill_runs(s, b, len, l);
    else
        fill_single(s, b, len, l);
    for (uint32_t i = l->n_item; i < l->n_item_pad; i++) l->item_seq[i] = l->item_chunk[i] = UINT32_MAX;
    l->n_tile = 0;
    for (uint32_t seq = l->n_decode, r = 0; seq < b->n_seq; seq++) {
        uint32_t row0 = b->row_start[seq], n_row = rows_of(b, seq);
        while (r < l->n_run && l->run[r].seq < seq) r++;
        if (n_row == 0 || (r < l->n_run && l->run[r].seq == seq)) continue;
        for (uint32_t i = (n_row - 1) / CUDA_ATTN_ROWS + 1; i-- > 0;) add_tile(b, l, seq, row0 + i * CUDA_ATTN_ROWS);
    }
}
