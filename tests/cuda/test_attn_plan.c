/* The plan of attention: every row of a step has its work once, bounds hold, padding is padding. No device is
 * needed. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/cuda.h"

enum { SEQS = 300, ROWS = 3000, ITEMS = 8192 };

static struct cuda_attn_split split_of(uint32_t n_head, uint32_t n_kv_head, uint32_t head_dim, int n_sm, int arch,
                                       bool deterministic)
{
    struct cuda_dev d = { .n_sm = n_sm, .arch = arch, .deterministic = deterministic };
    return cuda_attn_split(&d, n_head, n_kv_head, head_dim);
}
static uint32_t below(uint64_t stream, uint64_t i, uint32_t n) { return rng_philox(11, stream, i).x[0] % n; }

static uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
static uint32_t items(const uint32_t *len, uint32_t n, uint32_t chunk)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += ceil_div(len[i], chunk ? chunk : cuda_attn_chunk_fixed(len[i], 0));
    return sum;
}

/* Tiles that one warp walks, and what merging takes as tiles. */
static double cost(uint32_t len, uint32_t chunk) { return ceil_div(chunk, CUDA_ATTN_KV) + 0.22 * ceil_div(len, chunk); }

static void a_chunk_is_as_short_as_the_gpu_is_wide(void **state)
{
    (void)state;
    uint32_t len[SEQS];
    for (uint32_t i = 0; i < 2000; i++) {
        struct cuda_attn_split s = split_of(32, 1u << i % 6, 128, 1 + (int)below(1, i, 200), 90, false);
        uint32_t               n = 1 + below(2, i, SEQS), most = 1u << (4 + below(3, i, 14));
        for (uint32_t j = 0; j < n; j++) len[j] = 1 + below(100 + i, j, most);
        uint32_t chunk = cuda_attn_chunk(&s, len, n), bound = cuda_attn_items_max(&s, n);
        assert_true(chunk >= CUDA_ATTN_CHUNK_MIN && chunk % CUDA_ATTN_KV == 0);
        assert_true(items(len, n, chunk) <= bound);
        assert_true(bound <= s.n_slot / s.n_unit || bound <= n + n / 4);
        uint32_t longest = 1, shorter = chunk - CUDA_ATTN_KV;
        for (uint32_t j = 0; j < n; j++) longest = len[j] > longest ? len[j] : longest;
        if (chunk > CUDA_ATTN_CHUNK_MIN) /* no shorter one fits, or its parts would cost more than it saves */
            assert_true(items(len, n, shorter) > bound || cost(longest, shorter) > cost(longest, chunk) - 0.5);
    }
}

static void a_fixed_chunk_depends_on_the_length_alone(void **state)
{
    (void)state;
    uint32_t last = 0;
    for (uint32_t len = 1; len < 3000000; len += 1 + len / 50) {
        uint32_t chunk = cuda_attn_chunk_fixed(len, 0);
        assert_true(chunk % CUDA_ATTN_FIXED_MIN == 0 && chunk >= last && ceil_div(len, chunk) <= CUDA_ATTN_FIXED_ITEMS);
        assert_true(chunk == CUDA_ATTN_FIXED_MIN || ceil_div(len, chunk / 2) > CUDA_ATTN_FIXED_ITEMS);
        last = chunk;
    }
    assert_int_equal(cuda_attn_chunk_fixed(4096, 0), 256);
    assert_int_equal(cuda_attn_chunk_fixed(4097, 0), 512);
    struct cuda_attn_split s = split_of(32, 8, 128, 132, 90, true);
    assert_int_equal(cuda_attn_chunk(&s, NULL, 0), 0);
}

static void figures_of_known_gpus(void **state)
{
    (void)state;
    assert_int_equal(cuda_attn_warps(90, 128), 4); /* three tiles of 17 KB each */
    assert_int_equal(cuda_attn_warps(80, 128), 3);
    assert_int_equal(cuda_attn_warps(89, 128), 1);
    assert_int_equal(cuda_attn_warps(90, 64), 8);
    assert_int_equal(cuda_attn_warps(90, 256), 2);
    struct cuda_attn_split s = split_of(32, 8, 128, 132, 90, false);
    assert_int_equal(s.n_unit, 8);
    assert_int_equal(s.n_slot, 528);
    uint32_t len = 1024;
    assert_int_equal(cuda_attn_chunk(&s, &len, 1), 256); /* 4 parts */
    len = 8192;
    assert_int_equal(cuda_attn_chunk(&s, &len, 1), 384); /* 22 parts, where 66 would fit: merging costs too */
    len = 131072;
    assert_int_equal(cuda_attn_chunk(&s, &len, 1), 2048); /* 64 of the 66 that fit */
    s = split_of(71, 1, 64, 132, 90, false);              /* five groups of 16 heads share a KV head */
    assert_int_equal(s.n_unit, 5);
    static uint32_t many[256];
    for (int i = 0; i < 256; i++) many[i] = 1000;
    s = split_of(32, 8, 128, 132, 90, false);
    assert_true(cuda_attn_chunk(&s, many, 256) >= 1000); /* enough of them: none is split */
}

/* The same items whatever the sequences' lengths, as many as the window needs, and none whose work lies before it. */
static void a_window_is_cut_by_itself(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3000; i++) {
        struct cuda_attn_split s = split_of(32, 1u << i % 6, 128, 1 + (int)below(31, i, 200), 90, i % 2);
        uint32_t               n = 1 + below(32, i, SEQS), window = 1 + below(33, i, 1u << (1 + below(34, i, 17)));
        uint32_t               n_part = s.fixed || i % 3 ? cuda_attn_items_max(&s, n) : 1 + below(30, i, 4 * SEQS);
        struct cuda_attn_cut   cut = cuda_attn_window(&s, n, n_part, window, 0);
        assert_true(cut.each >= 1 &&
                    (cut.each == 1 || (n * cut.each <= n_part && n * cut.each <= cuda_attn_items_max(&s, n))));
        for (uint32_t j = 0; j < 20; j++) { /* rows at any position find all that they see in that many chunks */
            uint32_t pos = below(35 + j, i, 400000), first = pos >= window ? pos - window + 1 : 0;
            uint32_t chunk = cut.chunk ? cut.chunk : cuda_attn_chunk_fixed(pos + 1, window);
            assert_true(chunk % CUDA_ATTN_KV == 0 && pos / chunk - first / chunk < cut.each);
        }
    }
    struct cuda_attn_split s = split_of(32, 8, 128, 132, 90, false);
    struct cuda_attn_cut   cut = cuda_attn_window(&s, 1, 1000, 4096, 0);
    assert_true(cut.each == 17 && cut.chunk == 256); /* at any length: of the whole 32k in chunks of 704, it had 7 */
    cut = cuda_attn_window(&s, 1, 16, 4096, 0);      /* parts for 17 chunks are not there */
    assert_true(cut.each == 1 && cut.chunk == CUDA_ATTN_WHOLE);
    cut = cuda_attn_window(&s, 64, 1000, 4096, 0);
    assert_true(cut.each == 1 && cut.chunk == CUDA_ATTN_WHOLE);
    s.fixed = true;
    cut = cuda_attn_window(&s, 64, 1024, 1024,
                           0); /* where a chunk was 2048 at 32k, and one or two of them had all the work */
    assert_true(cut.each == 5 && cut.chunk == 0 && cuda_attn_chunk_fixed(32768, 1024) == 256);
}

/* Any step: decode rows, empty sequences, padding, prompts. */
static void every_row_has_its_work_once(void **state)
{
    (void)state;
    static uint32_t pos[ROWS], row_seq[ROWS], row_start[SEQS + 1], len[SEQS], tile_seq[ROWS], tile_row[ROWS],
        item_seq[ITEMS + 8], item_chunk[ITEMS + 8], seq_item[SEQS + 1], chunk[1], seen[ROWS], listed[ITEMS];
    for (uint32_t i = 0; i < 3000; i++) {
        struct cuda_attn_split s = split_of(32, 8, 128, 1 + (int)below(21, i, 140), 90, i % 2);
        uint32_t n_decode = below(22, i, 60), n_prompt = below(23, i, 8), n_pad = below(24, i, 5), n_seq = 0, row = 0;
        for (uint32_t j = 0; j < n_decode + n_prompt + n_pad; j++, n_seq++) {
            uint32_t n = i % 3 == 0, old = below(200 + i, j, 9000);
            if (j < n_decode + n_prompt) n = j < n_decode ? 1 : below(300 + i, j, 300);
            row_start[n_seq] = row;
            for (uint32_t k = 0; k < n; k++, row++) {
                pos[row] = old + k;
                row_seq[row] = j < n_decode + n_prompt ? n_seq : UINT32_MAX;
            }
        }
        row_start[n_seq] = row;
        assert_true(row <= ROWS && n_seq <= SEQS);
        struct dev_batch b = { .n_row = row, .n_seq = n_seq, .pos = pos, .row_seq = row_seq, .row_start = row_start };
        uint32_t         pad = n_decode + n_prompt + n_pad, bound = cuda_attn_items_max(&s, pad);
        struct cuda_attn_lists l = { tile_seq, tile_row, item_seq, item_chunk, seq_item, chunk,
                                     pad,      bound,    77,       77,         77,       .n_run_pad = 0 };
        assert_true(bound <= ITEMS);
        memset(item_seq, 0xee, sizeof item_seq);
        memset(item_chunk, 0xee, sizeof item_chunk);
        memset(seen, 0, sizeof seen);
        cuda_attn_fill(&s, &b, len, &l);
        assert_true(l.n_decode >= n_decode && l.n_item <= bound && l.n_tile <= cuda_attn_tiles_max(row, n_seq));
        uint32_t item = 0, left = UINT32_MAX / 2, longest = 0;
        for (uint32_t q = 0; q < l.n_decode; q++) { /* parts lie in the order of sequences */
            uint32_t kv = pos[q] + 1;
            assert_int_equal(seq_item[q], item);
            assert_int_equal(row_start[q], q);
            uint32_t c = *chunk ? *chunk : cuda_attn_chunk_fixed(kv, 0), first = kv < c ? kv : c;
            item += ceil_div(kv, c);
            longest = first > longest ? first : longest;
            seen[q]++;
        }
        assert_int_equal(item, l.n_item);
        memset(listed, 0, sizeof listed);
        for (uint32_t k = 0; k < l.n_item; k++) { /* and are listed once each, the longest first, but for 1 in 64 */
            uint32_t q = item_seq[k], kv = pos[q] + 1, c = *chunk ? *chunk : cuda_attn_chunk_fixed(kv, 0);
            assert_true(q < l.n_decode && item_chunk[k] < ceil_div(kv, c));
            assert_int_equal(listed[seq_item[q] + item_chunk[k]]++, 0);
            uint32_t n = kv - item_chunk[k] * c < c ? kv - item_chunk[k] * c : c;
            assert_true(n <= left + longest / 64 + 1);
            left = n < left ? n : left;
        }
        for (uint32_t q = l.n_decode; q <= pad; q++) assert_int_equal(seq_item[q], item);
        for (; item < bound; item++) assert_int_equal(item_seq[item], UINT32_MAX);
        assert_int_equal(item_seq[bound], 0xeeeeeeee); /* and nothing behind it */
        assert_int_equal(item_chunk[bound], 0xeeeeeeee);
        for (uint32_t t = 0; t < l.n_tile; t++) {
            uint32_t q = tile_seq[t], end = row_start[q + 1];
            assert_true(q >= l.n_decode && tile_row[t] >= row_start[q] && tile_row[t] < end);
            for (uint32_t r = tile_row[t]; r < end && r < tile_row[t] + CUDA_ATTN_ROWS; r++) seen[r]++;
            if (t) assert_true(pos[tile_row[t - 1]] >= pos[tile_row[t]]); /* longest first */
        }
        for (uint32_t r = 0; r < row; r++) assert_int_equal(seen[r], row_seq[r] != UINT32_MAX);
    }
}

enum { RUNS = 2 * SEQS + ROWS / CUDA_ATTN_RUN, PARTS = 20000 };
struct step {
    uint32_t             pos[ROWS], row_seq[ROWS], row_start[SEQS + 1];
    uint64_t             tree[ROWS];
    uint32_t             len[RUNS], tile_seq[ROWS], tile_row[ROWS], item_seq[ITEMS], item_chunk[ITEMS];
    uint32_t             seq_item[SEQS + 1], chunk[1];
    struct cuda_attn_run run[RUNS];
    uint8_t              seen[ROWS], part[PARTS];
};

/* Sequences of 1 to 11 rows, every fourth with a tree, some prompts and padding, in any order. */
static struct dev_batch any_step(struct step *s, uint64_t i, bool trees)
{
    uint32_t n_seq = 1 + below(40, i, 40), row = 0;
    for (uint32_t q = 0; q < n_seq; q++) {
        uint32_t old = below(400 + i, q, 9000), n = 1 + below(700 + i, q, 11), kind = below(900 + i, q, 8);
        bool     tree = trees && kind % 4 == 0, pad = kind == 7;
        if (kind == 1) n = 1 + below(700 + i, q, 200);
        if (tree && n == 1) n = 2;
        s->row_start[q] = row;
        for (uint32_t k = 0; k < n; k++, row++) { /* a tree: all nodes but the first follow from it */
            s->tree[row] = tree ? UINT64_C(1) << k | 1 : 0;
            s->pos[row] = old + (tree ? k > 0 : k);
            s->row_seq[row] = pad ? UINT32_MAX : q;
        }
    }
    s->row_start[n_seq] = row;
    assert_true(row <= ROWS);
    return (struct dev_batch){ .n_row = row,
                               .n_seq = n_seq,
                               .pos = s->pos,
                               .row_seq = s->row_seq,
                               .row_start = s->row_start,
                               .tree = trees ? s->tree : NULL };
}

/* Each row is in one run or in one tile, few rows and trees in runs; parts have places of their own; the fixed split's
 * chunks are those of each row. */
static void every_row_of_runs_has_its_work_once(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    uint32_t     with = 0, in_tiles = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        struct cuda_attn_split split = split_of(32, 1u << i % 6, 128, 1 + (int)below(41, i, 140), 90, i % 2);
        struct dev_batch       b = any_step(s, i, i % 3 == 0);
        uint32_t runs = cuda_attn_runs(&split, &b), bound = cuda_attn_items_max(&split, runs), rows = 0, most = 0;
        uint32_t n_part = cuda_attn_parts(&split, i % 4 && !b.tree ? 1 : 256);
        if (!runs) continue;
        assert_true(runs <= cuda_attn_runs_max(b.n_row, b.n_seq) && bound <= ITEMS && n_part <= PARTS);
        struct cuda_attn_lists l = { s->tile_seq,   s->tile_row,       s->item_seq,     s->item_chunk,
                                     s->seq_item,   s->chunk,          b.n_seq,         bound,
                                     .run = s->run, .n_run_pad = runs, .n_part = n_part };
        memset(s->seen, 0, sizeof s->seen);
        memset(s->part, 0, sizeof s->part);
        cuda_attn_fill(&split, &b, s->len, &l);
        with += l.n_run > 0;
        assert_true(l.n_decode == 0 && l.n_run > 0 && l.n_run <= runs);
        for (uint32_t r = 0; r < l.n_run; r++) {
            const struct cuda_attn_run *run = &s->run[r];
            uint32_t last = run->row + run->n_row - 1, kv = tree_slot(s->pos[last], dev_tree(&b, last)) + 1;
            uint32_t chunk = *s->chunk ? *s->chunk : cuda_attn_chunk_fixed(kv, 0), n_chunk = ceil_div(kv, chunk);
            assert_true(chunk % CUDA_ATTN_KV == 0 && (*s->chunk != 0) == !split.fixed);
            assert_true(run->n_row >= 1 && run->n_row <= CUDA_ATTN_RUN && run->before == rows);
            assert_true(run->row >= s->row_start[run->seq] && last < s->row_start[run->seq + 1]);
            assert_true(kv - 1 - s->pos[run->row] <= l.run_spread);
            rows += run->n_row;
            most = run->n_row > most ? run->n_row : most;
            for (uint32_t k = run->row; k <= last; k++) {
                s->seen[k]++;
                if (split.fixed)
                    assert_int_equal(cuda_attn_chunk_fixed(tree_slot(s->pos[k], dev_tree(&b, k)) + 1, 0), chunk);
            }
            for (uint32_t k = 0; n_chunk > 1 && k < n_chunk * run->n_row; k++) {
                assert_true(run->part + k < n_part);
                assert_int_equal(s->part[run->part + k]++, 0);
            }
            uint32_t listed = 0;
            for (uint32_t k = 0; k < l.n_item; k++) listed += s->item_seq[k] == r && s->item_chunk[k] < n_chunk;
            assert_int_equal(listed, n_chunk);
        }
        assert_true(rows == l.n_run_row && most == l.run_most);
        for (uint32_t k = l.n_item; k < bound; k++) assert_int_equal(s->item_seq[k], UINT32_MAX);
        for (uint32_t t = 0; t < l.n_tile; t++) {
            uint32_t q = s->tile_seq[t], end = s->row_start[q + 1], n = end - s->row_start[q];
            for (uint32_t r = s->tile_row[t]; r < end && r < s->tile_row[t] + CUDA_ATTN_ROWS; r++) s->seen[r]++;
            for (uint32_t r = s->row_start[q]; r < end; r++) assert_false(tree_holes(dev_tree(&b, r)));
            bool word = dev_tree(&b, end - 1) != 0;
            if (n <= CUDA_ATTN_RUN && split.fixed) in_tiles++; /* there was no room */
            assert_true(n > CUDA_ATTN_RUN || split.fixed || !word);
        }
        for (uint32_t r = 0; r < b.n_row; r++) assert_int_equal(s->seen[r], s->row_seq[r] != UINT32_MAX);

        uint32_t             window = 1 + below(43, i, 1u << (1 + below(44, i, 14)));
        struct cuda_attn_cut cut = cuda_attn_window(&split, rows, n_part, window, l.run_spread);
        assert_true((cut.each == 1 && !split.fixed) || cut.each * rows <= n_part);
        for (uint32_t r = 0; r < l.n_run; r++) { /* rows that the window holds whole, and the others */
            uint32_t row = s->run[r].row, end = row + s->run[r].n_row, split_at = row;
            while (!cut.chunk && split_at < end && tree_slot(s->pos[split_at], dev_tree(&b, split_at)) < window)
                split_at++;
            for (int half = 0; half < 2; half++) {
                uint32_t from = half ? split_at : row, to = half ? end : split_at;
                if (from == to) continue;
                uint32_t first = s->pos[from] >= window ? s->pos[from] - window + 1 : 0;
                uint32_t last = tree_slot(s->pos[to - 1], dev_tree(&b, to - 1));
                uint32_t chunk = cut.chunk ? cut.chunk : cuda_attn_chunk_fixed(last + 1, window);
                assert_true(last / chunk - first / chunk < cut.each);
                for (uint32_t k = from; !cut.chunk && k < to; k++)
                    assert_int_equal(cuda_attn_chunk_fixed(tree_slot(s->pos[k], dev_tree(&b, k)) + 1, window), chunk);
            }
        }
    }
    assert_true(with > 1000 && in_tiles > 0);
    free(s);
}

/* A step of single rows and prompts is planned without runs; a draft is cut so that merging pays. */
static void steps_of_single_rows_have_no_runs(void **state)
{
    (void)state;
    uint32_t pos[12] = { 5, 900, 7 }, row_seq[12] = { 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
             row_start[4] = { 0, 1, 2, 12 };
    struct dev_batch       b = { .n_row = 12, .n_seq = 3, .pos = pos, .row_seq = row_seq, .row_start = row_start };
    static struct step     s;
    struct cuda_attn_split split = split_of(32, 8, 128, 132, 90, false), fixed = split_of(32, 8, 128, 132, 90, true);
    uint64_t               word[12] = { 0, 0, 1, 3, 7, 15, 31, 63, 127, 255 };
    assert_int_equal(cuda_attn_runs(&split, &b), 0);
    assert_int_equal(cuda_attn_runs(&fixed, &b), 0);
    row_start[3] = 10;                               /* eight rows */
    assert_int_equal(cuda_attn_runs(&split, &b), 0); /* of a prompt, for all that anybody says */
    assert_int_equal(cuda_attn_runs(&fixed, &b), 4);
    b.tree = word;
    assert_int_equal(cuda_attn_runs(&split, &b), 4);
    uint32_t         four[4] = { 8188, 8189, 8190, 8191 }, of_first[4] = { 0 }, one[2] = { 0, 4 };
    struct dev_batch draft = {
        .n_row = 4, .n_seq = 1, .pos = four, .row_seq = of_first, .row_start = one, .tree = word + 2
    };
    struct cuda_attn_lists l = { s.tile_seq, s.tile_row, s.item_seq,   s.item_chunk,      s.seq_item,    s.chunk,
                                 1,          ITEMS,      .run = s.run, .n_run_pad = RUNS, .n_part = 1000 };
    cuda_attn_fill(&split, &draft, s.len, &l);
    assert_true(l.n_run == 1 && l.run_most == 4 && l.run_spread == 3 && l.n_tile == 0);
    assert_true(*s.chunk == 704 && l.n_item == 12); /* one row has 22: merging is done for four times as many */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_as_short_as_the_gpu_is_wide),
        cmocka_unit_test(a_fixed_chunk_depends_on_the_length_alone),
        cmocka_unit_test(figures_of_known_gpus),
        cmocka_unit_test(a_window_is_cut_by_itself),
        cmocka_unit_test(every_row_has_its_work_once),
        cmocka_unit_test(every_row_of_runs_has_its_work_once),
        cmocka_unit_test(steps_of_single_rows_have_no_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
