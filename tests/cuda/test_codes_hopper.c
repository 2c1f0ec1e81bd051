/* Products with codes by wgmma (codes_hopper.cu): the bits of the order that its head states, near ref, a row's bits
 * alone and in every company, in every order of threads, and which products go that way. On a GPU that is no sm_90:
 * skipped. */
#include "cuda/codes_rig.h"
#include "kernels/cuda/cuda.h"
#include "kernels/quant.h"

/* All products go by wgmma; blocks: of the GPU, so that one has several tiles. 0: as it has them. */
static void open_hopper(struct rig *r, enum dtype act, const struct dev_quant *q, const uint32_t shape[2],
                        uint32_t rows, int blocks)
{
    rig_open(r, act, q, shape[0], shape[1], rows);
    cuda_of(r->d)->wgmma = true;
    cuda_of(r->d)->wgmma_codes = 1;
    if (blocks) cuda_of(r->d)->n_sm = blocks;
}

/* ---------------------------------------------------------------- what comes out */

#ifdef CUDA_EMU
/* A weight before it is scaled (NVFP4: after), and what its group's sum is multiplied by. */
static float weight_of(const struct rig *r, uint32_t row, uint32_t i, float *scale_out)
{
    const struct dev_codes *c = &r->given.c;
    const size_t            at = row * c->scale_stride + (r->q.group ? i / r->q.group : 0);
    float                   w = quant_code(r->q.code, c->code[row * c->code_stride + i]), scale = c->scale[at];
    *scale_out = r->q.code == DT_I4 ? op_rounded(scale, DT_F16) : scale;
    if (r->q.code == DT_I4) w -= c->zero ? (float)c->zero[at] : 8;
    if (quant_has_factor(&r->q)) {
        *scale_out = 1;
        w *= scale;
    }
    return w;
}
/* As codes_hopper.cu's head says it; the emulator adds k by k. */
static float stated(const struct rig *r, uint32_t at, uint32_t row)
{
    const uint32_t fold = r->q.group && r->q.group < 128 ? 32 : 128;
    const bool     scaled = quant_has_factor(&r->q);
    float          acc = 0, sum = 0, scale = 1;
    for (uint32_t i = 0; i < r->k; i++) {
        if (i % fold == 0 && !scaled) {
            acc = fmaf(sum, scale, acc);
            sum = 0;
        }
        sum += r->x[(size_t)at * r->k + i] * weight_of(r, row, i, &scale);
    }
    return scaled ? sum * r->given.factor[row] : fmaf(sum, scale, acc);
}
static void assert_stated(const struct rig *r, bool logits, const char *got, uint32_t m0, uint32_t m)
{
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t row = i % 3; row < r->n; row += 3) {
            float x = number(r, logits, got, (size_t)i * r->n + row), want = stated(r, m0 + i, row);
            if (!logits) want = op_rounded(want, r->d->act);
            if (x != want)
                fail_msg("%s group %u: [%u, %u] of %u rows, n %u, k %u is %.9g, is stated to be %.9g",
                         dtype_name(r->q.code), r->q.group, i, row, m, r->n, r->k, (double)x, (double)want);
        }
}
#else
static void assert_stated(const struct rig *r, bool logits, const char *got, uint32_t m0, uint32_t m)
{
    (void)r, (void)logits, (void)got, (void)m0, (void)m; /* how a GPU's products round is nowhere said */
}
#endif

/* n, k: less than a tile, a stage and a line, and more; odd sizes, rows of 16 bytes and others, part of a group; more
 * stages than slots */
static const uint32_t shapes[][2] = { { 136, 264 }, { 37, 72 }, { 200, 648 }, { 8, 8 }, { 300, 192 }, { 24, 1160 } };
static const uint32_t many[] = { 1, 65, 127, 129, 200 };

static void products_have_the_bits_that_are_stated(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(formats); f++)
        for (size_t s = f % 3; s < ARRAY_N(shapes); s += 3) {
            struct rig r;
            open_hopper(&r, (f + s / 3) % 2 ? DT_F16 : DT_BF16, &formats[f], shapes[s], 200, (int)(s % 2));
            for (size_t i = (f + s) % 5; i < ARRAY_N(many); i += 3) {
                bool  logits = (i + f) % 2;
                char *got = run(&r, logits, 0, many[i]);
                assert_stated(&r, logits, got, 0, many[i]);
                assert_right(&r, logits, got, many[i]);
                free(got);
            }
            rig_close(&r);
        }
}

static void a_row_has_the_same_bits_in_every_company(void **state)
{
    (void)state;
    static const uint32_t some[][2] = { { 136, 200 }, { 61, 264 } };
    enum { ROWS = 150 };
    for (size_t f = 0; f < 5; f++) {
        struct rig r;
        open_hopper(&r, f % 2 ? DT_F16 : DT_BF16, &formats[f], some[f % 2], ROWS, 1);
        size_t row = row_bytes(&r, false), x_row = (size_t)r.k * 2;
        char  *all = run(&r, false, 0, ROWS), *x = malloc(ROWS * x_row), *px = malloc(ROWS * x_row);
        for (uint32_t i = 0; i < ROWS * r.n; i++) assert_true(isfinite(number(&r, false, all, i)));
        for (uint32_t m = 1, m0 = 7; m0 + m <= ROWS; m0 += 31, m = m * 3 + 1) {
            char *part = run(&r, false, m0, m);
            ct_assert_same(part, all + m0 * row, m * row, "rows among fewer");
            free(part);
        }
        ct_get(r.d, x, r.dx, ROWS * x_row);
        memset(px, 0xff, ROWS * x_row); /* row i goes to i * 11, and every fourth is NaN */
        for (uint32_t i = 0; i < ROWS; i++)
            if (i % 4 != 1) memcpy(px + i * 11 % ROWS * x_row, x + i * x_row, x_row);
        ct_put(r.d, r.dx, px, ROWS * x_row);
        char *among = run(&r, false, 0, ROWS);
        for (uint32_t i = 0; i < ROWS; i++)
            if (i % 4 != 1) ct_assert_same(among + i * 11 % ROWS * row, all + i * row, row, "among others");
        free(among);
        free(all);
        free(x);
        free(px);
        rig_close(&r);
    }
}

/* Threads, blocks and copies in every order, x from a product ahead. */
static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    enum { N = 264, M = 140 };
    static const size_t each[] = {
        0, 1, 2, 3, 4, 7, 10
    }; /* of formats: each kind of codes, small groups and large ones */
    for (size_t i = 0; i < 2 * ARRAY_N(each); i++) {
        struct rig     r;
        const uint32_t square[2] = { N, N };
        open_hopper(&r, i % 2 ? DT_F16 : DT_BF16, &formats[each[i / 2]], square, M, 1 + (int)i % 3);
        assert_the_same_in_every_order(&r, M);
        ct_schedule(0);
        rig_close(&r);
    }
}

/* ---------------------------------------------------------------- which go that way */

/* Are these the bits of the kernels that have every number of rows? */
static bool differs(uint32_t k, uint32_t m, bool wgmma, size_t aside)
{
    struct rig     r;
    const uint32_t shape[2] = { 72, k };
    rig_open(&r, DT_BF16, &formats[0], shape[0], shape[1], 80);
    assert_int_equal(cuda_of(r.d)->wgmma_codes, WGMMA_CODES);
    char *x = ct_alloc(r.d, 80 * (size_t)k * 2 + 16);
    ct_put_as(r.d, x + aside, DT_BF16, r.x, 80 * (size_t)k);
    r.dx = x + aside;
    char *old = run(&r, true, 0, m);
    cuda_of(r.d)->wgmma = wgmma;
    char *got = run(&r, true, 0, m);
    bool  differ = memcmp(old, got, m * row_bytes(&r, true)) != 0;
    free(old);
    free(got);
    rig_close(&r);
    return differ;
}
static void products_of_many_rows_go_that_way_where_it_was_asked_for(void **state)
{
    (void)state;
#ifdef CUDA_EMU /* whose products of both kinds round alike, but for the order */
    assert_true(differs(264, 65, true, 0));
#endif
    assert_false(differs(264, 65, false, 0));
    assert_false(differs(264, 64, true, 0));
    assert_false(differs(260, 65, true, 0)); /* rows of no whole 16 bytes */
    assert_false(differs(264, 65, true, 2));
}

#ifdef CUDA_EMU
/* Opened as asked for --wgmma, in a process of its own: a driver is asked once. */
static void open_asked(void *arg)
{
    const struct emu_device *other = arg;
    struct dev_cfg cfg = { .kind = DEV_CUDA, .arena_bytes = 64 << 20, .n_rank = 1, .act = DT_BF16, .wgmma = true };
    struct device *d;
    emu_reset();
    if (other)
        emu_set_device(0, other);
    else
        emu_fail_next("cudaGetDriverEntryPointByVersion", cudaErrorInvalidValue);
    _exit(dev_open(&cfg, &d) == ST_OK ? cuda_of(d)->wgmma : 7);
}
static void where_it_cannot_be_the_device_does_without(void **state)
{
    (void)state;
    struct emu_device other = { (size_t)1 << 30, 100, 4 }, hopper = { (size_t)1 << 30, 90, 4 };
    assert_int_equal(test_exit_of(open_asked, &hopper), 1);
    assert_int_equal(test_exit_of(open_asked, &other), 0);
    assert_int_equal(test_exit_of(open_asked, NULL), 0); /* a driver that makes no tensor maps */
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
    /* first: no process has asked the driver yet */
#ifdef CUDA_EMU
        cmocka_unit_test(where_it_cannot_be_the_device_does_without),
#endif
        cmocka_unit_test(products_have_the_bits_that_are_stated),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_company),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
        cmocka_unit_test(products_of_many_rows_go_that_way_where_it_was_asked_for),
    };
    return ct_run_hopper(tests);
}
