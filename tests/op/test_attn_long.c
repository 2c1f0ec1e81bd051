/* Attention over long contexts: chunks of keys, which threads may share among themselves, and the kinds of tiles; KV is
 * written directly. */
#include "kernels/elem.h"
#include "kernels/host.h"
#include "kernels/kv8.h"
#include "op_test.h"

enum { CONTEXT_MAX = 3000, LAYERS = 2, LAYER = 1 };

struct shape {
    uint32_t   n_head, n_kv_head, dim, block_tokens, window;
    enum dtype kv;
    bool       sinks;
};

/* One sequence of CONTEXT_MAX tokens whose pages are dealt in no order, and queries for every position that is asked
 * for. */
struct world {
    struct shape  s;
    struct dev_kv kv;
    uint32_t      n_page;
    float        *qkv; /* [CONTEXT_MAX, width] */
    float         sinks[16];
    uint32_t      width, out_width;
};

static uint32_t page_of(const struct world *w, uint32_t p) { return (p * 7 + 3) % w->kv.n_block; }

/* x [dim] into a row of the pool. */
static void keep(const struct world *w, char *row, uint32_t slot, const float *x)
{
    uint32_t dim = w->s.dim;
    if (w->s.kv == DT_F8E4M3) {
        kv8_store((uint8_t *)row, kv8_scale_at(w->s.block_tokens, slot, dim), x, dim);
        return;
    }
    for (uint32_t i = 0; i < dim; i++) elem_store(row, w->s.kv, i, x[i]);
}

static struct world make(struct device *d, struct shape s, uint32_t context)
{
    struct world w = { .s = s, .width = (s.n_head + 2 * s.n_kv_head) * s.dim, .out_width = s.n_head * s.dim };
    w.n_page = (context + s.block_tokens - 1) / s.block_tokens;
    w.kv = (struct dev_kv){ .dtype = s.kv, .n_block = w.n_page + 2, .n_layer = LAYERS, .block_tokens = s.block_tokens };
    w.kv.n_block += w.kv.n_block % 7 == 0;
    op_kv_layers(&w.kv, s.n_kv_head, s.dim);
    assert_int_equal(d->ops->alloc(d, w.kv.block_bytes * w.kv.n_block, &w.kv.base), ST_OK);
    memset(w.kv.base, 0xff, w.kv.block_bytes * w.kv.n_block); /* NaN: what nobody wrote must not be read */
    float *x = op_random(4096 + (size_t)s.dim, 30, 1);
    for (uint32_t t = 0; t < context; t++)
        for (uint32_t h = 0; h < s.n_kv_head; h++) {
            uint32_t slot = t % s.block_tokens;
            char    *key = kv_key(&w.kv, page_of(&w, t / s.block_tokens), LAYER, h, slot, s.dim);
            keep(&w, key, slot, x + (t * 131 + h * 17) % 4096);
            keep(&w, key + kv_value_bytes(&w.kv, LAYER), slot, x + (t * 37 + h * 7) % 4096);
        }
    free(x);
    w.qkv = op_random(256 * (size_t)w.width, 31, 1.5f);
    for (uint32_t h = 0; h < 16; h++) w.sinks[h] = 8.0f - 1.5f * (float)h; /* weights of many keys, and of none */
    return w;
}
static const float *query(const struct world *w, uint32_t pos) { return w->qkv + (size_t)(pos % 256) * w->width; }

/* Rows [from, to) of the sequence, `others` short sequences of one row (over the same pages) before and behind it. out:
 * [to - from, out_width] */
static void attend(struct device *d, const struct world *w, uint32_t from, uint32_t to, uint32_t others, float *out)
{
    uint32_t  n_seq = 1 + 2 * others, n = to - from + 2 * others, at = 0, p = 0;
    uint32_t *u = malloc((2 * n + 2 * n_seq + 2 + n_seq * (size_t)w->n_page) * sizeof *u), *pos = u, *row_seq = pos + n,
             *row_start = row_seq + n, *page_start = row_start + n_seq + 1, *page = page_start + n_seq + 1;
    float *x = malloc((size_t)n * w->width * sizeof *x), *y = malloc((size_t)n * w->out_width * sizeof *y);
    row_start[0] = page_start[0] = 0;
    for (uint32_t s = 0; s < n_seq; s++) {
        uint32_t first = s == others ? from : s * 100 + 5, last = s == others ? to : first + 1;
        for (uint32_t t = first; t < last; t++, at++) {
            pos[at] = t;
            row_seq[at] = s;
            memcpy(x + (size_t)at * w->width, query(w, t), w->width * sizeof *x);
        }
        for (uint32_t t = 0; t < last; t += w->s.block_tokens) page[p++] = page_of(w, t / w->s.block_tokens);
        row_start[s + 1] = at;
        page_start[s + 1] = p;
    }
    struct dev_batch b = { .n_row = n,
                           .n_seq = n_seq,
                           .pos = pos,
                           .row_seq = row_seq,
                           .row_start = row_start,
                           .page_start = page_start,
                           .page = page };
    struct op_attn   a = { y,
                           x,
                           w->s.n_head,
                           w->s.n_kv_head,
                           w->s.dim,
                           LAYER,
                           1 / sqrtf((float)w->s.dim),
                           .window = w->s.window,
                           .sinks = w->s.sinks ? w->sinks : NULL };
    d->ops->attention(d, &a, &b, &w->kv);
    memcpy(out, y + (size_t)others * w->out_width, (to - from) * (size_t)w->out_width * sizeof *y);
    free(u);
    free(x);
    free(y);
}

static bool has(const char *name)
{
    char        have[128], *rest = have;
    const char *one;
    dev_cpu_isas(have, sizeof have);
    while ((one = strsep(&rest, ", ")))
        if (!strcmp(one, name)) return true;
    return false;
}

static const struct shape shapes[] = {
    { 8, 1, 64, 16, 0, DT_BF16, false },    { 4, 2, 128, 16, 0, DT_BF16, false },
    { 1, 1, 256, 32, 0, DT_BF16, false },   { 6, 2, 32, 64, 0, DT_BF16, false },
    { 7, 1, 96, 16, 1201, DT_BF16, false }, { 5, 1, 16, 16, 0, DT_BF16, false },
    { 2, 1, 64, 16, 513, DT_F16, false },   { 3, 1, 80, 16, 0, DT_F32, false },
    { 4, 4, 64, 16, 1024, DT_BF16, false }, { 8, 1, 64, 16, 0, DT_BF16, true },
    { 8, 2, 64, 16, 0, DT_F8E4M3, true },   { 3, 1, 80, 32, 700, DT_F8E4M3, false },
};
static const uint32_t    contexts[] = { 1, 2, 15, 63, 64, 65, 511, 512, 513, 1025, 2047, CONTEXT_MAX };
static const char *const simd[] = { "scalar", "avx2", "avx512", "avx512-bf16", "amx", "neon" };

/* The last row of contexts of every length, and rows of a chunk, against ref; and bit by bit: 1, 2 and 3 threads (which
 * share the keys of a sequence in other ways), alone or between others, alone or in chunks. */
static void rows_of_long_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *ref = op_open(DEV_REF, NULL, 0);
        struct world   on_ref = make(ref, shapes[i], CONTEXT_MAX);
        uint32_t       wide = on_ref.out_width;
        enum { N = sizeof contexts / sizeof *contexts, ROWS = 90 };
        float *want = malloc((N + ROWS) * (size_t)wide * sizeof *want),
              *got = malloc(ROWS * (size_t)wide * sizeof *got),
              *first = malloc((N + ROWS) * (size_t)wide * sizeof *first);
        for (uint32_t c = 0; c < N; c++) attend(ref, &on_ref, contexts[c] - 1, contexts[c], 0, want + c * wide);
        attend(ref, &on_ref, 1000, 1003, 0, want + N * wide);
        for (size_t v = 0; v < sizeof simd / sizeof *simd; v++)
            for (uint32_t n_thread = 1; n_thread <= 3 && has(simd[v]) && op_wants(simd[v]); n_thread++) {
                if (v == 0 && (n_thread == 1 || i % 3)) continue; /* it is slow */
                struct device *d = op_open(DEV_CPU, simd[v], n_thread);
                struct world   w = make(d, shapes[i], CONTEXT_MAX);
                bool           rounds = op_attends_bf16(d) && op_read_as_bf16(shapes[i].kv);
                bool           is_first = n_thread == 1 || v == 0;
                for (uint32_t c = 0; c < N; c++) {
                    attend(d, &w, contexts[c] - 1, contexts[c], 0, got);
                    op_assert_near(got, want + c * wide, wide, rounds ? 1e-2 : 1e-4, d->ops->name);
                    if (is_first)
                        memcpy(first + c * wide, got, wide * sizeof *got);
                    else
                        op_assert_same(got, first + c * wide, wide, "threads");
                    attend(d, &w, contexts[c] - 1, contexts[c], 3, got);
                    op_assert_same(got, first + c * wide, wide, "between others");
                }
                attend(d, &w, 990, 990 + ROWS, 1, got); /* across a chunk's and many tiles' edges */
                if (is_first)
                    memcpy(first + N * wide, got, ROWS * (size_t)wide * sizeof *got);
                else
                    op_assert_same(got, first + N * wide, ROWS * (size_t)wide, "threads, a chunk");
                op_assert_near(got + 10 * wide, want + N * wide, 3 * (size_t)wide, rounds ? 1e-2 : 1e-4, "a chunk");
                for (uint32_t r = 0, n; r < ROWS; r += n) {
                    n = r % 5 + 1 < ROWS - r ? r % 5 + 1 : ROWS - r;
                    attend(d, &w, 990 + r, 990 + r + n, r % 2, got);
                    op_assert_same(got, first + (N + r) * wide, n * (size_t)wide, "smaller chunks");
                }
                free(w.qkv);
                dev_close(d);
            }
        free(want);
        free(got);
        free(first);
        free(on_ref.qkv);
        dev_close(ref);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_of_long_contexts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
