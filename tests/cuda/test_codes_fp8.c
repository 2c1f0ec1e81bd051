/* Products of fp8 weights with activations in fp8 (codes_fp8.cu): the bits of the order that its head states, near
 * what rounded activations give, a row's bits alone and in every company, rows that are not usual, in every order of
 * threads, and which products go that way. On a GPU that is no sm_90: skipped. */
#include "cuda/codes_rig.h"
#include "kernels/cuda/gemm.h"
#include "kernels/kv8.h"
#include "kernels/quant.h"

static const struct dev_quant fp8[] = { { .code = DT_F8E4M3 },
                                        { .code = DT_F8E4M3, .group = 128 },
                                        { .code = DT_F8E4M3, .group = 256 } };
/* Blocks: few, so that each has many tiles, all of 256 rows, or some of 128. */
enum { UNIT = 128, LARGE = 1, SMALL = 3 };

/* All products go that way; blocks: of the GPU; 0: as it has them, and then tiles are of 128 rows. */
static void open_fp8(struct rig *r, enum dtype act, const struct dev_quant *q, const uint32_t shape[2], uint32_t rows,
                     int blocks)
{
    rig_open(r, act, q, shape[0], shape[1], rows);
    cuda_of(r->d)->fp8_prefill = true;
    cuda_of(r->d)->fp8_rows = 1;
    if (blocks) cuda_of(r->d)->n_sm = blocks;
}
/* x again, of the rig's rows, after they were changed; they are numbers of act. */
static void put_x(struct rig *r) { ct_put_as(r->d, r->dx, r->d->act, r->x, (size_t)r->rows * r->k); }

/* ---------------------------------------------------------------- what comes out */

/* The scale of inputs [i0, + UNIT) of row `at` of x, and their numbers behind rounding, before it; zeros behind k. */
static float rounded(const struct rig *r, uint32_t at, uint32_t i0, float out[UNIT])
{
    uint8_t  code[UNIT + 1];
    float    x[UNIT] = { 0 };
    uint32_t n = r->k - i0 < UNIT ? r->k - i0 : UNIT;
    memcpy(x, r->x + (size_t)at * r->k + i0, n * sizeof *x);
    kv8_store(code, UNIT, x, UNIT);
    for (uint32_t i = 0; i < UNIT; i++) out[i] = f8e4m3_to_f32(code[i]);
    return kv8_factor(code[UNIT]);
}
/* A weight before it is scaled; 0 behind k. */
static float weight_of(const struct rig *r, uint32_t row, uint32_t i)
{
    return i < r->k ? quant_code(r->q.code, r->given.code[row * r->given.c.code_stride + i]) : 0;
}
static float scale_of(const struct rig *r, uint32_t row, uint32_t i)
{
    return r->given.scale[row * r->given.c.scale_stride + (r->q.group ? i / r->q.group : 0)];
}
/* The number of an input of a stage that is the `at`-th as codes lie. */
static uint32_t lies_at(uint32_t at)
{
    static const uint32_t of_four[] = { 0, 2, 1, 3 };
    return at / 64 * 64 + at / 8 % 2 * 32 + at / 16 % 4 * 8 + at / 4 % 2 * 4 + of_four[at % 4];
}

#ifdef CUDA_EMU
static bool has_groups(const struct rig *r) { return quant_n_group(&r->q, r->k) > 1; }
/* As codes_fp8.cu's head says it; the emulator adds code by code as they lie. */
static float stated(const struct rig *r, uint32_t at, uint32_t row)
{
    float acc = 0;
    for (uint32_t i0 = 0; i0 < r->k; i0 += UNIT) {
        float x[UNIT], sum = 0, scale = rounded(r, at, i0, x);
        for (uint32_t i = 0; i < UNIT; i++) sum += x[lies_at(i)] * weight_of(r, row, i0 + lies_at(i));
        if (has_groups(r)) scale *= scale_of(r, row, i0);
        acc = fmaf(sum, scale, acc);
    }
    return op_rounded(has_groups(r) ? acc : acc * scale_of(r, row, 0), r->d->act);
}
static void assert_stated(const struct rig *r, const char *got, uint32_t m0, uint32_t m)
{
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t row = i % 3; row < r->n; row += 3) {
            float x = number(r, false, got, (size_t)i * r->n + row), want = stated(r, m0 + i, row);
            if (memcmp(&x, &want, sizeof x) && !(isnan(x) && isnan(want)))
                fail_msg("group %u: [%u, %u] of %u rows, n %u, k %u is %.9g, is stated to be %.9g", r->q.group, i, row,
                         m, r->n, r->k, (double)x, (double)want);
        }
}
#else
static void assert_stated(const struct rig *r, const char *got, uint32_t m0, uint32_t m)
{
    (void)r, (void)got, (void)m0, (void)m, (void)lies_at; /* how a GPU's products round is nowhere said */
}
#endif

/* Near the sum of rounded numbers: sums in fp32, or in 14 bits of a GPU, and one rounding. */
static void assert_near(const struct rig *r, const char *got, uint32_t m)
{
    const double unit = r->d->act == DT_F16 ? 0x1p-11 : 0x1p-8;
#ifdef CUDA_EMU
    const double sums = 2e-6;
#else
    const double sums = 0x1p-11;
#endif
    for (uint32_t at = 0; at < m; at += 1 + m / 24)
        for (uint32_t row = 0; row < r->n; row++) {
            double want = 0, mass = 0;
            for (uint32_t i0 = 0; i0 < r->k; i0 += UNIT) {
                float x[UNIT], scale = rounded(r, at, i0, x);
                for (uint32_t i = i0; i < i0 + UNIT && i < r->k; i++) {
                    double p =
                        (double)x[i - i0] * (double)scale * (double)weight_of(r, row, i) * (double)scale_of(r, row, i);
                    want += p;
                    mass += fabs(p);
                }
            }
            double x = (double)number(r, false, got, (size_t)at * r->n + row);
            if (!(fabs(x - want) <= unit * fabs(want) + sums * mass))
                fail_msg("group %u: [%u, %u] of %u rows, n %u, k %u is %.9g, should be %.9g", r->q.group, at, row, m,
                         r->n, r->k, x, want);
        }
}

/* n, k: less than a tile, a stage and a line, and more; odd sizes, rows of 16 bytes and others, part of a group; more
 * stages than slots */
static const uint32_t shapes[][2] = { { 136, 264 }, { 37, 72 }, { 200, 648 }, { 8, 8 }, { 130, 192 }, { 24, 1160 } };
static const uint32_t many[] = { 1, 64, 65, 128, 129, 193, 257 };

static void products_have_the_bits_that_are_stated(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(fp8); f++)
        for (size_t s = 0; s < ARRAY_N(shapes); s++) {
            struct rig r;
            open_fp8(&r, (f + s) % 2 ? DT_F16 : DT_BF16, &fp8[f], shapes[s], 257, s % 4 == 3 ? 0 : 1 + (int)(s % 2));
            for (size_t i = (f + s) % 4; i < ARRAY_N(many); i += 3) {
                char *got = run(&r, false, 0, many[i]);
                assert_stated(&r, got, 0, many[i]);
                assert_near(&r, got, many[i]);
                free(got);
            }
            rig_close(&r);
        }
}

/* 4 panels of 64 rows at a time: of a row as many bytes as inputs, in whole stages, and their scales. Nothing is
 * written behind what was allowed. */
static void in_slices(struct rig *r, const char *all, uint32_t rows)
{
    enum { BEHIND = 1 << 20 };
    struct cuda_dev *d = cuda_of(r->d);
    const size_t     whole = d->codes_slab, slab = (size_t)7 * 64 * ((r->k + UNIT - 1) / UNIT) * (UNIT + 4);
    char            *behind = malloc(BEHIND);
    ct_poison(r->d, d->blas->workspace, whole);
    d->codes_slab = slab;
    char *slices = run(r, false, 0, rows);
    ct_assert_same(slices, all, rows * row_bytes(r, false), "in slices");
    ct_get(r->d, behind, (char *)d->blas->workspace + slab, BEHIND);
    for (size_t i = 0; i < BEHIND; i++) assert_int_equal((uint8_t)behind[i], 0xff);
    d->codes_slab = whole;
    free(slices);
    free(behind);
}

/* Among fewer and among others, in tiles of 128 and 256 rows, and where few rows have room at a time. */
static void a_row_has_the_same_bits_in_every_company(void **state)
{
    (void)state;
    static const uint32_t some[][2] = { { 136, 200 }, { 61, 264 } };
    enum { ROWS = 270 };
    for (size_t f = 0; f < 2; f++) {
        struct rig r;
        open_fp8(&r, f % 2 ? DT_F16 : DT_BF16, &fp8[f], some[f], ROWS, LARGE);
        size_t row = row_bytes(&r, false), x_row = (size_t)r.k * 2;
        char  *all = run(&r, false, 0, ROWS), *x = malloc(ROWS * x_row), *px = malloc(ROWS * x_row);
        for (uint32_t i = 0; i < ROWS * r.n; i++) assert_true(isfinite(number(&r, false, all, i)));
        for (uint32_t m = 1, m0 = 7; m0 + m <= ROWS; m0 += 31, m = m * 3 + 1) {
            char *part = run(&r, false, m0, m);
            ct_assert_same(part, all + m0 * row, m * row, "rows among fewer");
            free(part);
        }
        cuda_of(r.d)->n_sm = 100;
        char *small = run(&r, false, 0, ROWS);
        ct_assert_same(small, all, ROWS * row, "tiles of 128 rows");
        free(small);
        in_slices(&r, all, ROWS);
        ct_get(r.d, x, r.dx, ROWS * x_row);
        memset(px, 0xff, ROWS * x_row); /* row i goes to i * 11, and every fourth is NaN */
        for (uint32_t i = 0; i < ROWS; i++)
            if (i % 4 != 1) memcpy(px + i * 11 % ROWS * x_row, x + i * x_row, x_row);
        ct_put(r.d, r.dx, px, ROWS * x_row);
        cuda_of(r.d)->n_sm = LARGE;
        char *among = run(&r, false, 0, ROWS);
        for (uint32_t i = 0; i < ROWS; i++)
            if (i % 4 != 1)
                ct_assert_same(among + i * 11 % ROWS * row, all + i * row, row, "among others");
            else
                for (uint32_t j = 0; j < r.n; j++)
                    assert_true(isnan(number(&r, false, among, (size_t)(i * 11 % ROWS) * r.n + j)));
        free(among);
        free(all);
        free(x);
        free(px);
        rig_close(&r);
    }
}

/* One number of a row that is none or infinite makes all of its results none, whatever it is multiplied with; zeros and
 * numbers too small to count give 0; large numbers are no other than those of usual size. */
static void rows_that_are_not_usual_are_themselves_alone(void **state)
{
    (void)state;
    static const uint32_t shape[2] = { 40, 328 };
    enum { ROWS = 70, KINDS = 9 };
    for (int half = 0; half < 2; half++)
        for (size_t f = 0; f < 2; f++) {
            struct rig r;
            open_fp8(&r, half ? DT_F16 : DT_BF16, &fp8[f], shape, ROWS, 0);
            char *usual = run(&r, false, 0, ROWS);
            for (uint32_t i = 1; i < ROWS; i += 2) {
                float *x = r.x + (size_t)i * r.k;
                switch (i / 2 % KINDS) {
                case 0: x[i * 4] = NAN; break;
                case 1: x[i * 4] = INFINITY; break;
                case 2: x[i * 4] = -INFINITY; break;
                case 3: memset(x, 0, r.k * sizeof *x); break;
                case 4:
                    for (uint32_t j = 0; j < r.k; j++) x[j] = ldexpf(x[j], half ? -20 : -130);
                    break;
                case 5:
                    for (uint32_t j = 0; j < r.k; j++) x[j] = ldexpf(x[j], half ? 12 : 118);
                    break;
                case 6:
                    for (uint32_t j = 0; j < r.k; j++) x[j] = -0.0f;
                    break;
                case 7: /* within one stage everything from the largest to nothing */
                    for (uint32_t j = 0; j < r.k; j++) x[j] = ldexpf(x[j], -(int)(j % 24));
                    break;
                case 8: x[r.k - 1] = half ? 65504 : 0x1.fep126f; break; /* the last of its part of a stage */
                }
            }
            ct_round(r.x, (size_t)ROWS * r.k, r.d->act);
            put_x(&r);
            char  *got = run(&r, false, 0, ROWS);
            size_t row = row_bytes(&r, false);
            assert_stated(&r, got, 0, ROWS);
            for (uint32_t i = 0; i < ROWS; i++) {
                uint32_t kind = i / 2 % KINDS;
                if (i % 2 == 0) {
                    ct_assert_same(got + i * row, usual + i * row, row, "a usual row beside them");
                    continue;
                }
                for (uint32_t j = 0; j < r.n; j++) {
                    float x = number(&r, false, got, (size_t)i * r.n + j);
                    if (kind < 3) assert_true(isnan(x));
                    if (kind == 3 || kind == 6) assert_true(x == 0);
                    if (kind == 4 || kind == 7) assert_true(fabsf(x) < 1e3f);
                    if (kind == 8 && !half) assert_false(isnan(x));
                }
            }
            free(got);
            free(usual);
            rig_close(&r);
        }
}

/* Threads, blocks and copies in every order, x from a product ahead; a row of tiles has more stages than slots. */
static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    enum { N = 264, M = 131 };
    static const uint32_t square[2] = { N, N };
    for (int i = 0; i < 8; i++) {
        struct rig r;
        open_fp8(&r, i % 2 ? DT_F16 : DT_BF16, &fp8[i / 2 % 2], square, M, i / 4 ? LARGE : SMALL);
        assert_the_same_in_every_order(&r, M);
        ct_schedule(0);
        rig_close(&r);
    }
}

/* ---------------------------------------------------------------- which go that way */

/* Does the option change the bits of a product? As a device has it that was asked for it. slab: bytes that it may take;
 * 0: as it has them. */
static bool differs(const struct dev_quant *q, uint32_t k, uint32_t m, bool logits, size_t aside, size_t slab)
{
    struct rig     r;
    const uint32_t shape[2] = { 72, k };
    rig_open(&r, DT_BF16, q, shape[0], shape[1], FP8_ROWS + 1);
    assert_int_equal(cuda_of(r.d)->fp8_rows, FP8_ROWS);
    assert_false(cuda_of(r.d)->fp8_prefill);
    char *x = ct_alloc(r.d, (FP8_ROWS + 1) * (size_t)k * 2 + 16);
    ct_put_as(r.d, x + aside, DT_BF16, r.x, (FP8_ROWS + 1) * (size_t)k);
    r.dx = x + aside;
    char *old = run(&r, logits, 0, m);
    cuda_of(r.d)->fp8_prefill = true;
    if (slab) cuda_of(r.d)->codes_slab = slab;
    char *got = run(&r, logits, 0, m);
    bool  differ = memcmp(old, got, m * row_bytes(&r, logits)) != 0;
    free(old);
    free(got);
    rig_close(&r);
    return differ;
}
static void products_of_many_rows_with_fp8_weights_go_that_way(void **state)
{
    (void)state;
    static const struct dev_quant others[] = { { .code = DT_F8E4M3, .group = 32 },
                                               { .code = DT_F8E4M3, .group = 64 },
                                               { .code = DT_I8 },
                                               { .code = DT_I4, .group = 128 } };
    for (size_t f = 0; f < ARRAY_N(fp8); f++) assert_true(differs(&fp8[f], 264, FP8_ROWS, false, 0, 0));
    assert_false(differs(&fp8[0], 264, FP8_ROWS - 1, false, 0, 0));
    assert_false(differs(&fp8[0], 264, FP8_ROWS, true, 0, 0));  /* logits */
    assert_false(differs(&fp8[0], 260, FP8_ROWS, false, 0, 0)); /* rows of no whole 16 bytes */
    assert_false(differs(&fp8[0], 264, FP8_ROWS, false, 2, 0));
    assert_false(differs(&fp8[0], 264, FP8_ROWS, false, 0, 4 * 64 * 3 * (UNIT + 4) - 1)); /* no room */
    assert_true(differs(&fp8[0], 264, FP8_ROWS, false, 0, 4 * 64 * 3 * (UNIT + 4)));
    for (size_t f = 0; f < ARRAY_N(others); f++) assert_false(differs(&others[f], 264, FP8_ROWS, false, 0, 0));
}

static void a_device_does_so_where_it_was_asked_and_can(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct dev_cfg cfg = { .kind = DEV_CUDA, .arena_bytes = 64 << 20, .n_rank = 1, .act = DT_BF16 };
        struct device *d;
        char           text[DEV_ARITH];
        cfg.fp8_prefill = i > 0;
        cfg.deterministic = i == 2;
        cfg.wgmma = i == 4;
#ifdef CUDA_EMU
        struct emu_device other = { (size_t)1 << 30, 100, 4 };
        if (i == 3) emu_set_device(0, &other);
#else
        if (i == 3) continue;
#endif
        assert_int_equal(dev_open(&cfg, &d), ST_OK);
        assert_int_equal(cuda_of(d)->fp8_prefill, i == 1 || i == 4);
        dev_arith(d, DT_BF16, &fp8[0], DT_BF16, text);
        assert_int_equal(strstr(text, "fp8-prefill") != NULL,
                         i == 1 || i == 4); /* KV of the other is not taken for its own */
        assert_int_equal(strstr(text, "wgmma") != NULL, i == 4);
        dev_close(d);
#ifdef CUDA_EMU
        emu_reset();
#endif
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_bits_that_are_stated),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_company),
        cmocka_unit_test(rows_that_are_not_usual_are_themselves_alone),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
        cmocka_unit_test(products_of_many_rows_with_fp8_weights_go_that_way),
        cmocka_unit_test(a_device_does_so_where_it_was_asked_and_can),
    };
    return ct_run_hopper(tests);
}
