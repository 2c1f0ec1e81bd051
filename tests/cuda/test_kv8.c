/* KV in 8 bits on the CUDA device: what op_qkv stores is what kernels/kv8.h says, and attention over it has the bits of
 * attention over a pool of bf16 that holds the same numbers. */
#include "cuda/attn_world.h"
#include <inttypes.h>

/* ---------------------------------------------------------------- attention */

static const struct aw_shape shapes[] = {
    { 4, 1, 128, 16, 0, DT_BF16, 0, false, false, DT_F8E4M3 },
    { 3, 3, 64, 32, 70, DT_F16, 0, true, false, DT_F8E4M3 },
    { 2, 2, 80, 16, 0, DT_BF16, 2, false, false, DT_F8E4M3 },
    { 4, 1, 96, 24, 200, DT_BF16, 0, false, true, DT_F8E4M3 },
    { 2, 1, 256, 16, 130, DT_BF16, 0, false, false, DT_F8E4M3 },
    { 17, 1, 32, 16, 0, DT_BF16, 0, false, false, DT_F8E4M3 },
    { 3, 1, 20, 5, 33, DT_F16, 0, false, false, DT_F8E4M3 },
    { 3, 1, 7, 16, 0, DT_BF16, 0, false, false, DT_F8E4M3 },
    { 2, 1, 512, 16, 0, DT_BF16, 0, false, false, DT_F8E4M3 },
    { 2, 1, 420, 8, 33, DT_BF16, 0, false, false, DT_F8E4M3 },
};
static const uint32_t       lens[] = { 1, 333, 64, 130, 65 };
static const struct aw_part mixed[] = { { 0, 0, 1 }, { 1, 332, 333 }, { 2, 63, 64 }, { 3, 71, 130 }, { 4, 0, 65 } };
enum { N_MIXED = sizeof mixed / sizeof mixed[0], N_LENS = sizeof lens / sizeof lens[0] };

static const char *name_of(struct aw_shape s)
{
    static char text[120];
    snprintf(text, sizeof text, "heads %u/%u dim %u blocks of %u window %u %s", s.n_head, s.n_kv_head, s.dim,
             s.block_tokens, s.window, dtype_name(s.act));
    return text;
}

/* The same sequences twice: rows of all sizes in 8 bits, one of which is none, and in bf16 the numbers that these are. */
static void twins(struct aw_shape s, struct aw_world *code, struct aw_world *number)
{
    *code = aw_make(s, lens, N_LENS);
    s.kv = DT_BF16;
    *number = aw_make(s, lens, N_LENS);
    for (uint32_t i = 0; i < N_LENS; i++)
        for (uint32_t t = 0; t < lens[i]; t++)
            for (uint32_t h = 0; h < s.n_kv_head; h++)
                for (int v = 0; v < 2; v++) {
                    float *x = aw_numbers(code, i, t, h, v), *y = aw_numbers(number, i, t, h, v);
                    float  by = v ? ldexpf(1, (int)(t % 40) - 20) : 1;
                    for (uint32_t k = 0; k < s.dim; k++) x[k] *= by;
                    if (i == 3 && t == 90 && v) x[s.dim / 2] = INFINITY;
                    aw_append(code, i, t);
                    const uint8_t *row = aw_at(code, i, t, h, v);
                    float          factor = kv8_factor(row[kv8_scale_at(s.block_tokens, t % s.block_tokens, s.dim)]);
                    for (uint32_t k = 0; k < s.dim; k++) y[k] = f8e4m3_to_f32(row[k]) * factor;
                    aw_append(number, i, t);
                }
}

/* Decode, tiles of rows, both splits. The pool is full of codes and scales that are no numbers where no token lies. */
static void codes_give_the_bits_of_their_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct aw_world code, number;
        twins(shapes[i], &code, &number);
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_device a = aw_open(&code, fixed), b = aw_open(&number, fixed);
            uint16_t        *got = aw_run(&a, &code, mixed, N_MIXED, false);
            uint16_t        *want = aw_run(&b, &number, mixed, N_MIXED, false);
            ct_assert_same(got, want, a.out_bytes, name_of(shapes[i]));
            free(got);
            free(want);
            dev_close(a.d);
            dev_close(b.d);
        }
        aw_free(&code);
        aw_free(&number);
    }
}

static void every_schedule_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += 3) {
        struct aw_world  w = aw_make(shapes[i], lens, N_LENS);
        struct aw_device a = aw_open(&w, i % 2);
        uint16_t        *first = NULL;
        for (CT_SCHEDULES(schedule)) {
            uint16_t *got = aw_run(&a, &w, mixed, N_MIXED, false);
            if (!first) {
                first = got;
                continue;
            }
            ct_assert_same(got, first, a.out_bytes, ct_schedule_name(schedule));
            free(got);
        }
        free(first);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* Blocks from the middle on lie in the host's memory, further apart than in the pool. */
static void blocks_on_the_host_give_the_same_bits(void **state)
{
    (void)state;
    enum { GAP = 4096 };
    struct aw_world  w = aw_make(shapes[0], lens, N_LENS);
    struct aw_device a = aw_open(&w, false);
    uint16_t        *want = aw_run(&a, &w, mixed, N_MIXED, false);
    uint32_t         n = w.n_block / 2;
    uint64_t         bytes = w.kv.block_bytes, step = bytes + GAP;
    size_t           size = ((w.n_block - n) * step + 2 * GAP - 1) / GAP * GAP;
    char            *slab = aligned_alloc(GAP, size);
    memset(slab, 0xff, size);
    for (uint32_t b = n; b < w.n_block; b++)
        memcpy(slab + GAP + (b - n) * step, (const char *)w.pool + b * bytes, bytes);
    assert_true(dev_pin(a.d, slab, size));
    a.kv.n_block = n;
    a.kv.n_guest = w.n_block - n;
    a.kv.guest = slab + GAP;
    a.kv.guest_step = step;
    ct_poison(a.d, (char *)a.kv.base + n * bytes, (w.n_block - n) * bytes);
    uint16_t *got = aw_run(&a, &w, mixed, N_MIXED, false);
    ct_assert_same(got, want, a.out_bytes, "guests");
    dev_unpin(a.d, slab);
    free(slab);
    free(got);
    free(want);
    dev_close(a.d);
    aw_free(&w);
}

/* ---------------------------------------------------------------- what is stored */

struct store {
    uint32_t   n_kv_head, dim, rot, block_tokens;
    enum dtype act;
};
static const struct store stores[] = {
    { 2, 128, 128, 16, DT_BF16 }, { 3, 64, 0, 8, DT_F16 },    { 2, 80, 32, 24, DT_BF16 }, { 1, 512, 512, 16, DT_BF16 },
    { 2, 256, 256, 16, DT_F16 },  { 2, 128, 64, 3, DT_BF16 }, { 3, 20, 20, 16, DT_BF16 }, { 2, 7, 4, 5, DT_F16 },
};
enum { ROWS = 40, PAGES = ROWS, BLOCKS = PAGES + 3 };

/* Numbers of one row: small and large, and of some rows none, zero, infinite, at the borders of what codes hold. */
static void fill_row(float *x, uint32_t n, uint32_t row, enum dtype act)
{
    int wide = act == DT_F16 ? 20 : 180;
    for (uint32_t i = 0; i < n; i++) x[i] = ldexpf(x[i], (int)(row * 7 % (uint32_t)wide) - wide * 3 / 5);
    if (row == 5) memset(x, 0, n * sizeof *x);
    if (row == 6) x[n / 2] = INFINITY;
    if (row == 7) x[n - 1] = NAN;
    if (row == 8) x[0] = act == DT_F16 ? 65504.0f : 0x1.fep127f;
    if (row == 9)
        for (uint32_t i = 0; i < n; i++) x[i] = (float)(i * 5 % 513 + 512) * (i % 2 ? -0x1p-9f : 0x1p-18f);
}

/* Values and keys that nothing turns have the codes and the scale that kv8_store makes, and nothing else is written.
 * Turned keys have ref's, as far as the last digits of sine and cosine let them. */
static void what_is_stored_is_what_kv8_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
        for (int turned = 0; turned < 2; turned++) {
            const struct store s = stores[i];
            struct device     *d = ct_open(s.act, 0), *ref = ct_open_ref();
            size_t             width = (size_t)(1 + 2 * s.n_kv_head) * s.dim;
            float             *x = op_random(ROWS * width, 9, 2), inv_freq[256];
            for (uint32_t r = 0; r < ROWS * (1 + 2 * s.n_kv_head); r++)
                fill_row(x + (size_t)r * s.dim, s.dim, turned ? 20 + r % 3 : r / (1 + 2 * s.n_kv_head), s.act);
            ct_round(x, ROWS * width, s.act);
            for (uint32_t k = 0; k < s.rot / 2; k++) inv_freq[k] = powf(10000.0f, -2.0f * (float)k / (float)s.rot);
            struct dev_kv kv = { .dtype = DT_F8E4M3, .n_block = BLOCKS, .n_layer = 2, .block_tokens = s.block_tokens };
            op_kv_layers(&kv, s.n_kv_head, s.dim);
            size_t   bytes = kv.block_bytes * BLOCKS;
            uint8_t *got = malloc(bytes), *want = malloc(bytes);
            uint32_t pos[ROWS], row_seq[ROWS] = { 0 }, page_start[2] = { 0, PAGES }, page[PAGES];
            for (uint32_t r = 0; r < ROWS; r++) pos[r] = r, page[r] = (r * 7 + 2) % BLOCKS;
            struct dev_batch b = {
                .n_row = ROWS, .n_seq = 1, .pos = pos, .row_seq = row_seq, .page_start = page_start, .page = page
            };
            struct dev_batch on = b;
            on.pos = ct_bytes(d, pos, sizeof pos);
            on.row_seq = ct_bytes(d, row_seq, sizeof row_seq);
            on.page_start = ct_bytes(d, page_start, sizeof page_start);
            on.page = ct_bytes(d, page, sizeof page);
            struct op_qkv q = { .qkv = ct_act(d, x, ROWS * width),
                                .eps = 1e-6f,
                                .rope_scale = 1,
                                .n_head = 1,
                                .n_kv_head = s.n_kv_head,
                                .head_dim = s.dim,
                                .rot = s.rot,
                                .layer = 1 };
            if (turned && s.rot) q.inv_freq = ct_bytes(d, inv_freq, sizeof inv_freq);
            kv.base = ct_alloc(d, bytes);
            d->ops->qkv(d, &q, &on, &kv);
            ct_get(d, got, kv.base, bytes);
            q.qkv = x;
            if (q.inv_freq) q.inv_freq = inv_freq;
            memset(want, 0xff, bytes);
            kv.base = want;
            ref->ops->qkv(ref, &q, &b, &kv);
            for (size_t k = 0; !q.inv_freq && k < bytes; k++)
                if (got[k] != want[k])
                    fail_msg("store %zu: byte %zu of blocks of %" PRIu64 " is %02x, should be %02x", i, k,
                             kv.block_bytes, got[k], want[k]);
            for (uint32_t r = 0; q.inv_freq && r < ROWS; r++)
                for (uint32_t h = 0; h < 2 * s.n_kv_head; h++) {
                    size_t row = page[r / s.block_tokens] * kv.block_bytes + kv.layer[1].offset +
                                 (size_t)h * s.block_tokens * (s.dim + 1) + (size_t)(r % s.block_tokens) * s.dim;
                    size_t at = kv8_scale_at(s.block_tokens, r % s.block_tokens, s.dim);
                    float  g = kv8_factor(got[row + at]), w = kv8_factor(want[row + at]);
                    for (uint32_t k = 0; k < s.dim; k++) {
                        double a = (double)f8e4m3_to_f32(got[row + k]) * (double)g;
                        double c = (double)f8e4m3_to_f32(want[row + k]) * (double)w;
                        if (!(fabs(a - c) <= fabs(c) / 8 + (double)w * 0x1p-8))
                            fail_msg("store %zu: row %u head %u number %u is %g, should be %g", i, r, h, k, a, c);
                    }
                }
            free(got);
            free(want);
            free(x);
            dev_close(d);
            dev_close(ref);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_give_the_bits_of_their_numbers),
        cmocka_unit_test(every_schedule_gives_the_same_bits),
        cmocka_unit_test(blocks_on_the_host_give_the_same_bits),
        cmocka_unit_test(what_is_stored_is_what_kv8_says),
    };
    return ct_run(tests);
}
