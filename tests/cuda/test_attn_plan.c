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
        struct cuda_attn_cut   cut = cuda_attn_window(&s, n, n_part, window);
        assert_true(cut.each >= 1 &&
                    (cut.each == 1 || (n * cut.each <= n_part && n * cut.each <= cuda_attn_items_max(&s, n))));
        for (uint32_t j = 0; j < 20; j++) { /* rows at any position find all that they see in that many chunks */
            uint32_t pos = below(35 + j, i, 400000), first = pos >= window ? pos - window + 1 : 0;
            uint32_t chunk = cut.chunk ? cut.chunk : cuda_attn_chunk_fixed(pos + 1, window);
            assert_true(chunk % CUDA_ATTN_KV == 0 && pos / chunk - first / chunk < cut.each);
        }
    }
    struct cuda_attn_split s = split_of(32, 8, 128, 132, 90, false);
    struct cuda_attn_cut   cut = cuda_attn_window(&s, 1, 1000, 4096);
    assert_true(cut.each == 17 && cut.chunk == 256); /* at any length: of the whole 32k in chunks of 704, it had 7 */
    cut = cuda_attn_window(&s, 1, 16, 4096);         /* parts for 17 chunks are not there */
    assert_true(cut.each == 1 && cut.chunk == CUDA_ATTN_WHOLE);
    cut = cuda_attn_window(&s, 64, 1000, 4096);
    assert_true(cut.each == 1 && cut.chunk == CUDA_ATTN_WHOLE);
    s.fixed = true;
    cut = cuda_attn_window(&s, 64, 1024,
                           1024); /* where a chunk was 2048 at 32k, and one or two of them had all the work */
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
        struct cuda_attn_lists l = {
            tile_seq, tile_row, item_seq, item_chunk, seq_item, chunk, pad, bound, 77, 77, 77
        };
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_as_short_as_the_gpu_is_wide),
        cmocka_unit_test(a_fixed_chunk_depends_on_the_length_alone),
        cmocka_unit_test(figures_of_known_gpus),
        cmocka_unit_test(a_window_is_cut_by_itself),
        cmocka_unit_test(every_row_has_its_work_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
