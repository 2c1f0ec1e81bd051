/* Weights that are codes: every format on every instruction set against ref, and every number of rows against the rows
 * alone. */
#include "op_test.h"
#include <pthread.h>

static const struct format {
    const char      *name;
    struct dev_quant q;
} formats[] = {
    { "bf16", { DT_F32, 0, false, false, false } },
    { "int8", { DT_I8, 0, false, false, false } },
    { "int8, groups of 128", { DT_I8, 128, false, false, false } },
    { "int8 down to -128", { DT_I8, 0, false, false, true } },
    { "int8 down to -128, groups of 64", { DT_I8, 64, false, false, true } },
    { "int8 by int8", { DT_I8, 0, false, true, false } },
    { "int8 down to -128 by int8", { DT_I8, 0, false, true, true } },
    { "int8 by int8, groups of 64", { DT_I8, 64, false, true, false } },
    { "int4, groups of 32", { DT_I4, 32, false, false, false } },
    { "int4 by int8, groups of 32", { DT_I4, 32, false, true, false } },
    { "int4 by int8", { DT_I4, 0, false, true, false } },
    { "int4, groups of 128", { DT_I4, 128, false, false, false } },
    { "int4, groups of 1024 with zeros", { DT_I4, 1024, true, false, false } },
    { "fp8", { DT_F8E4M3, 0, false, false, false } },
    { "fp8, groups of 128", { DT_F8E4M3, 128, false, false, false } },
    { "mxfp4", { DT_F4E2M1, 32, false, false, false } },
    { "nvfp4", { DT_F4E2M1, 16, false, false, false } },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static struct dev_weight take(struct device *d, const struct format *f, uint32_t n, uint32_t k, const float *src)
{
    struct dev_weight w;
    if (f->q.code == DT_F32) return op_weight(d, DT_BF16, n, k, src);
    assert_int_equal(d->ops->quant_alloc(d, &f->q, n, k, &w), ST_OK);
    assert_true(w.bytes == dev_quant_bytes(d, &f->q, n, k) && w.bytes > 0);
    for (uint32_t r = 0, step; r < n; r += step) { /* slices that are no panels */
        step = n - r < 19 ? n - r : 19;
        d->ops->weight_set(d, &w, r, step, src + (size_t)r * k, k * sizeof *src, DT_F32);
    }
    return w;
}

/* On x86 weights of 8 bits and 4, but fp8, are multiplied with whole numbers of 16 bits (kernels/cpu/act16.h); not yet by tiles. */
static bool by_16_bits(const struct device *d, const struct format *f)
{
    return strstr(d->ops->name, "avx") && (f->q.code == DT_I8 || dtype_is_half_byte(f->q.code)) && !f->q.act8;
}

/* What the rounding of activations alone may change, in a random walk, never more than 4 of its deviations: 2^-9 of
 * each product, or with 16 bits 2^-15 of the largest. */
static double bound(const struct device *d, const struct format *f)
{
    if (f->q.act8) return 4e-6;
    if (by_16_bits(d, f)) return 3e-4;
    return op_rounds(d) ? 8e-3 : 4e-6;
}

static void every_format_agrees_with_ref(void **state)
{
    (void)state;
    static const struct {
        uint32_t m, n, k;
    } shape[] = { { 1, 1, 1 }, { 3, 17, 33 }, { 7, 70, 300 }, { 40, 100, 65 }, { 5, 130, 1100 }, { 1, 16, 256 } };
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int f = 0; f < FORMATS; f++) {
            uint32_t m = shape[s].m, n = shape[s].n, k = shape[s].k, id[2] = { n - 1, n / 2 };
            float   *x = op_random((size_t)m * k, 1, 1), *src = op_random((size_t)n * k, 2, 1 / sqrtf((float)k)),
                  *bias = op_random(n, 3, 1);
            float *want = op_random((size_t)m * n, 4, 1), *got = op_random((size_t)m * n, 5, 1),
                  *row = malloc(4 * k * sizeof *row);
            struct dev_weight w = take(ref, &formats[f], n, k, src);
            ref->ops->linear(ref, want, x, &w, bias, m);
            ref->ops->embed(ref, row, id, &w, 2);
            for (uint32_t i = 0; i < n_dev; i++) {
                w = take(d[i], &formats[f], n, k, src);
                d[i]->ops->linear(d[i], got, x, &w, bias, m);
                op_assert_near(got, want, (size_t)m * n, bound(d[i], &formats[f]), formats[f].name);
                d[i]->ops->embed(d[i], row + 2 * k, id, &w, 2);
                op_assert_same(row + 2 * k, row, 2 * k, formats[f].name);
            }
            free(x);
            free(src);
            free(bias);
            free(want);
            free(got);
            free(row);
        }
    dev_close(ref);
    op_close(d, n_dev);
}

/* With 8 bits or 4 the numbers are what they were, but for half a step. */
static void rounding_at_load_is_within_half_a_step(void **state)
{
    (void)state;
    enum { N = 20, K = 1000 };
    struct device *d = op_open(DEV_REF, NULL, 0);
    float         *src = op_random(N * K, 1, 0.02f), *got = malloc(N * K * sizeof *got);
    uint32_t       id[N];
    for (uint32_t i = 0; i < N; i++) id[i] = i;
    src[3] = 0;
    src[K + 5] = NAN;
    src[K + 6] = INFINITY;
    memset(src + 2 * K, 0, K * sizeof *src);
    for (int f = 1; f < FORMATS; f++) {
        const struct dev_quant *q = &formats[f].q;
        struct dev_weight       w = take(d, &formats[f], N, K, src);
        d->ops->embed(d, got, id, &w, N);
        for (uint32_t i = 0; i < N * K; i++) {
            uint32_t group = q->group ? q->group : K, first = i / K * K + i % K / group * group, end = first + group;
            float    max = 0;
            if (end > (i / K + 1) * K) end = (i / K + 1) * K;
            for (uint32_t j = first; j < end; j++) max = isfinite(src[j]) ? fmaxf(max, fabsf(src[j])) : max;
            float want = isfinite(src[i]) ? src[i] : 0;
            /* I4: the largest of the other sign has no code of its own and is off by a whole step */
            float half = fmaxf(fabsf(want) / 15.9f, max / 448 / 1000);
            if (q->code == DT_I8) half = max / 253;
            if (q->code == DT_I4) half = max / 7.9f;
            if (q->code == DT_F4E2M1) half = max / 3.99f; /* up to 8 becomes 6 */
            if (!(fabsf(got[i] - want) <= half))
                fail_msg("%s: [%u] is %g, was %g", formats[f].name, i, (double)got[i], (double)want);
        }
    }
    free(src);
    free(got);
    dev_close(d);
}

/* Codes, scales, zeros and factors as a checkpoint brings them: every code of every format, then products. */
static void codes_are_taken_as_they_are(void **state)
{
    (void)state;
    enum { N = 37, K = 384 };
    static uint8_t     code[N * K], zero[N * 24];
    static const float size4[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    static float       scale[N * 24], factor[N], unit[K * K], row[N * K], want[N * K], out[K * N];
    struct device     *d[OP_DEVICES_MAX + 1];
    uint32_t           n_dev = op_cpu_devices(d), id[N];
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    for (uint32_t i = 0; i < N; i++) id[i] = i;
    for (uint32_t i = 0; i < K; i++) unit[i * K + i] = 1;
    for (int f = 1; f < FORMATS; f++) {
        const struct dev_quant *q = &formats[f].q;
        uint32_t                n_group = q->group ? (K + q->group - 1) / q->group : 1;
        for (uint32_t i = 0; i < N * K; i++) {
            code[i] = (uint8_t)(i * 7 % (dtype_is_half_byte(q->code) ? 16 : 256));
            if (q->code == DT_I8 && code[i] == 0x80 && !q->full) code[i] = 0x81;
            if (q->code == DT_F8E4M3 && (code[i] & 0x7f) == 0x7f) code[i] = 0;
        }
        for (uint32_t i = 0; i < N * n_group; i++) {
            scale[i] = ldexpf(q->code == DT_F4E2M1 && q->group == 32 ? 1 : 1 + (float)(i % 5) / 8, (int)(i % 7) - 4);
            zero[i] = (uint8_t)(i % 17);
        }
        for (uint32_t i = 0; i < N; i++) factor[i] = q->group == 16 ? (float)(i % 3 + 1) / 2 : 1;
        if (q->group == 16) { /* as far as scales go: one of no leading 1, the smallest, the largest, one below 0 */
            static const float ends[4] = { 0x1.8p-8f, 0x1p-9f, 448, -1.75f };
            memcpy(scale + 5, ends, sizeof ends);
        }
        for (uint32_t i = 0; i < N * K; i++) {
            uint32_t g = i / K * n_group + (q->group ? i % K / q->group : 0);
            float    c = q->code == DT_I8 ? (float)(int8_t)code[i] : f8e4m3_to_f32(code[i]);
            if (q->code == DT_F4E2M1) c = (code[i] & 8 ? -1.0f : 1.0f) * size4[code[i] & 7];
            if (q->code == DT_I4) c = (float)code[i] - (q->zero ? (float)zero[g] : 8.0f);
            want[i] = c * (scale[g] * factor[i / K]);
        }
        for (uint32_t i = 0; i < n_dev; i++) {
            struct dev_weight w;
            struct dev_codes  c = { code, K, scale, q->zero ? zero : NULL, n_group, factor, 1 };
            assert_int_equal(d[i]->ops->quant_alloc(d[i], q, N, K, &w), ST_OK);
            d[i]->ops->quant_set(d[i], &w, 0, 20, &c);
            c.code += 20 * K;
            c.scale += 20 * n_group;
            c.zero += c.zero ? 20 * n_group : 0;
            c.factor += 20;
            d[i]->ops->quant_set(d[i], &w, 20, N - 20, &c);
            d[i]->ops->embed(d[i], row, id, &w, N);
            op_assert_same(row, want, N * K, formats[f].name);
            /* with act8 a row of one 1 is 127 / 127, of -1 the same with its sign: two roundings of the scales */
            for (uint32_t k = 0; k < K; k++) unit[k * K + k] = q->act8 && k % 2 ? -1 : 1;
            d[i]->ops->linear(d[i], out, unit, &w, NULL, K);
            for (uint32_t r = 0; r < N; r++)
                for (uint32_t k = 0; k < K; k++)
                    if (fabsf(out[k * N + r] * unit[k * K + k] - want[r * K + k]) >
                        (q->act8 ? 3e-7f * fabsf(want[r * K + k]) : 0))
                        fail_msg("%s %s: [%u, %u] is %g, should be %g", d[i]->ops->name, formats[f].name, r, k,
                                 (double)out[k * N + r], (double)want[r * K + k]);
        }
    }
    op_close(d, n_dev);
}

/* Every code under every scale of NVFP4, of matrices whose own scale divides: within three roundings of F32 of the exact
 * number (docs/design/weights.md). */
static void nvfp4_is_within_three_roundings_of_what_it_means(void **state)
{
    (void)state;
    enum { N = 0x7f, K = 16 };
    static const float divisor[] = { 1, 3, 0.07f, 2688 / 0.0213f, 1 / 3.0f, 1.1e5f };
    static uint8_t     code[N * K];
    static float       scale[N], row[N * K];
    struct device     *d[OP_DEVICES_MAX + 1];
    uint32_t           n_dev = op_cpu_devices(d), id[N];
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    for (uint32_t i = 0; i < N * K; i++) code[i] = i % K;
    for (uint32_t i = 0; i < N; i++) {
        id[i] = i;
        scale[i] = f8e4m3_to_f32((uint8_t)i);
    }
    for (uint32_t i = 0; i < n_dev; i++)
        for (size_t k = 0; k < sizeof divisor / sizeof *divisor; k++) {
            const struct dev_quant q = { DT_F4E2M1, 16, false, false, false };
            float                  factor = (float)(1 / (double)divisor[k]);
            struct dev_weight      w;
            struct dev_codes       c = { code, K, scale, NULL, 1, &factor, 0 };
            assert_int_equal(d[i]->ops->quant_alloc(d[i], &q, N, K, &w), ST_OK);
            d[i]->ops->quant_set(d[i], &w, 0, N, &c);
            d[i]->ops->embed(d[i], row, id, &w, N);
            for (uint32_t j = 0; j < N * K; j++) {
                double want = (double)f4e2m1_to_f32(code[j]) * ((double)scale[j / K] / (double)divisor[k]);
                if (!(fabs((double)row[j] - want) <= 3 * 0x1p-24 * fabs(want)))
                    fail_msg("%s: code %u, scale %g / %g is %.9g", d[i]->ops->name, code[j], (double)scale[j / K],
                             (double)divisor[k], (double)row[j]);
            }
        }
    op_close(d, n_dev);
}

/* As the readers of a checkpoint do: slices that end within panels, whose halves of bytes two threads fill side by
 * side. */
struct setter {
    struct device     *d;
    struct dev_weight *w;
    const float       *src;
    uint32_t           first;
};
enum { SET_N = 300, SET_K = 256, SETTERS = 3, SLICE = 7 };

static void *set_run(void *arg)
{
    struct setter *s = arg;
    for (uint32_t r = s->first * SLICE; r < SET_N; r += SETTERS * SLICE)
        s->d->ops->weight_set(s->d, s->w, r, SET_N - r < SLICE ? SET_N - r : SLICE, s->src + (size_t)r * SET_K,
                              SET_K * 4, DT_F32);
    return NULL;
}

static void several_threads_may_set_codes_of_one_weight(void **state)
{
    (void)state;
    static float   got[SET_N * SET_K], want[SET_N * SET_K];
    uint32_t       id[SET_N];
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *src = op_random(SET_N * SET_K, 1, 1);
    for (uint32_t i = 0; i < SET_N; i++) id[i] = i;
    for (int f = 1; f < FORMATS; f++) {
        struct dev_weight w = take(ref, &formats[f], SET_N, SET_K, src);
        ref->ops->embed(ref, want, id, &w, SET_N);
        for (uint32_t i = 0; i < n_dev; i++) {
            pthread_t     t[SETTERS];
            struct setter s[SETTERS];
            assert_int_equal(d[i]->ops->quant_alloc(d[i], &formats[f].q, SET_N, SET_K, &w), ST_OK);
            for (uint32_t j = 0; j < SETTERS; j++) {
                s[j] = (struct setter){ d[i], &w, src, j };
                assert_int_equal(pthread_create(&t[j], NULL, set_run, &s[j]), 0);
            }
            for (uint32_t j = 0; j < SETTERS; j++) pthread_join(t[j], NULL);
            d[i]->ops->embed(d[i], got, id, &w, SET_N);
            op_assert_same(got, want, SET_N * SET_K, formats[f].name);
        }
    }
    free(src);
    dev_close(ref);
    op_close(d, n_dev);
}

static void a_row_has_the_same_bits_for_every_number_of_rows(void **state)
{
    (void)state;
    enum { N = 150, K = 416, M = 512 };
    static const uint32_t size[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64, M };
    struct device        *d[OP_DEVICES_MAX];
    uint32_t              n_dev = op_cpu_devices(d);
    float                *x = op_random(M * K, 1, 1), *src = op_random(N * K, 2, 0.1f), *bias = op_random(N, 3, 1),
          *alone = malloc(M * N * sizeof *alone), *got = malloc(M * N * sizeof *got);
    x[9 * K + 3] = NAN; /* its row suffers, its neighbours do not */
    for (uint32_t i = 0; i < n_dev; i++)
        for (int f = 0; f < FORMATS; f++) {
            struct dev_weight w = take(d[i], &formats[f], N, K, src);
            bool              slow = strstr(d[i]->ops->name, "scalar"); /* of its many rows some */
            for (uint32_t r = 0; r < M; r++)
                if (r < 64 || r % 61 == 0) d[i]->ops->linear(d[i], alone + r * N, x + r * K, &w, bias, 1);
            for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
                if (slow && s > 6 && size[s] != 33) continue;
                d[i]->ops->linear(d[i], got, x, &w, bias, size[s]);
                for (uint32_t r = 0; r < size[s]; r++)
                    if ((r < 64 || r % 61 == 0) && memcmp(got + r * N, alone + r * N, N * sizeof *got))
                        fail_msg("%s, %s: row %u of %u differs from itself alone", d[i]->ops->name, formats[f].name, r,
                                 size[s]);
            }
            assert_true(isnan(alone[9 * N]) && isfinite(alone[8 * N]) && isfinite(alone[10 * N]));
        }
    free(x);
    free(src);
    free(bias);
    free(alone);
    free(got);
    op_close(d, n_dev);
}

/* Sums of whole numbers are exact, whatever adds them up: what is multiplied so has one result on all instruction sets.
 * Activations of 8 bits by integers everywhere on x86, of 16 bits where tiles of bf16 do not serve instead. */
static void whole_numbers_give_the_same_bits_on_every_instruction_set(void **state)
{
    (void)state;
    enum { N = 150, K = 1100, M = 13 }; /* K: whole groups of each size, and a rest */
    struct device *d[OP_DEVICES_MAX];
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(M * K, 1, 1), *src = op_random(N * K, 2, 0.1f), *bias = op_random(N, 3, 1),
          *got = malloc(M * N * sizeof *got), *first = malloc(M * N * sizeof *first);
    for (uint32_t i = 0; i < K; i++) { /* the largest codes of either sign, all sums as far as they go */
        x[K + i] = 1;
        x[2 * K + i] = -1;
        x[3 * K + i] = i % 2 ? 1 : -1;
        src[i] = 1;
        src[K + i] = -1;
        src[2 * K + i] = i % 2 ? 1 : -1;
    }
    for (int f = 1; f < FORMATS; f++) {
        const char *of = NULL;
        for (uint32_t i = 0; i < n_dev; i++) {
            bool whole = formats[f].q.act8 ? strstr(d[i]->ops->name, "avx") || strstr(d[i]->ops->name, "amx")
                                           : by_16_bits(d[i], &formats[f]);
            if (!whole) continue;
            struct dev_weight w = take(d[i], &formats[f], N, K, src);
            d[i]->ops->linear(d[i], got, x, &w, bias, M);
            if (!of) {
                of = d[i]->ops->name;
                memcpy(first, got, M * N * sizeof *got);
            }
            if (memcmp(got, first, M * N * sizeof *got))
                fail_msg("%s: %s differs from %s", formats[f].name, d[i]->ops->name, of);
        }
    }
    free(x);
    free(src);
    free(bias);
    free(got);
    free(first);
    op_close(d, n_dev);
}

/* Activations at the edges of 16 bits, with codes at theirs: no sum overflows, and none is further off than 2^-15 of
 * the largest of its part (128 inputs) for every input. */
static void activations_at_the_edges_stay_within_bounds(void **state)
{
    (void)state;
    enum { N = 33, K = 300, M = 9, PART = 128 };
    struct device *d[OP_DEVICES_MAX];
    uint32_t       n_dev = op_cpu_devices(d), id[N];
    static float   x[M * K], src[N * K], row[N * K], got[M * N];
    float         *noise = op_random(M * K, 1, 1);
    for (uint32_t i = 0; i < N; i++) id[i] = i;
    for (uint32_t i = 0; i < N * K; i++) {
        const float of_row[3] = { 1, -1, noise[i % (M * K)] };
        src[i] = of_row[i / K % 3];
    }
    for (uint32_t k = 0; k < K; k++) {
        const float s = k % 2 ? -1 : 1, each[M] = {
            1, 0x1.fbfffep0f, 0x1.fcp0f, -0x1.fffffep0f, s * 0x1.fbfffep0f, 1e-30f, 1e-40f, 1e30f, 0
        };
        for (uint32_t r = 0; r < M; r++) x[r * K + k] = each[r];
        x[8 * K + k] = noise[k] * (k == 7 ? 1e4f : 1);
    }
    for (uint32_t i = 0; i < n_dev; i++)
        for (int f = 1; f < FORMATS; f++) {
            if (formats[f].q.act8 || (op_rounds(d[i]) && !by_16_bits(d[i], &formats[f]))) continue;
            struct dev_weight w = take(d[i], &formats[f], N, K, src);
            d[i]->ops->embed(d[i], row, id, &w, N);
            d[i]->ops->linear(d[i], got, x, &w, NULL, M);
            for (uint32_t r = 0; r < M; r++)
                for (uint32_t n = 0; n < N; n++) {
                    double want = 0, off = ldexp(K, -126); /* no step is finer */
                    for (uint32_t k0 = 0; k0 < K; k0 += PART) {
                        double max = 0, size = 0;
                        for (uint32_t k = k0; k < K && k < k0 + PART; k++) {
                            want += (double)x[r * K + k] * (double)row[n * K + k];
                            max = fmax(max, fabs((double)x[r * K + k]));
                            size += fabs((double)row[n * K + k]);
                        }
                        off += (ldexp(1.01, -15) + 4e-6) * max * size;
                    }
                    if (!(fabs((double)got[r * N + n] - want) <= off))
                        fail_msg("%s %s: [%u, %u] is %.9g, should be %.9g, %g at most beside it", d[i]->ops->name,
                                 formats[f].name, r, n, (double)got[r * N + n], want, off);
                }
            x[5] = INFINITY; /* its row has no numbers, the others theirs */
            d[i]->ops->linear(d[i], got, x, &w, NULL, M);
            for (uint32_t n = 0; n < N; n++) assert_true(!isfinite(got[n]) && isfinite(got[N + n]));
            x[5] = 1;
        }
    free(noise);
    op_close(d, n_dev);
}

static void a_format_that_is_none_is_refused(void **state)
{
    (void)state;
    static const struct dev_quant bad[] = {
        { DT_I8, 48, false, false, false },     { DT_I8, 16, false, false, false },
        { DT_I8, 0, true, false, false },       { DT_I4, 32, true, true, false },
        { DT_I8, 32, false, true, false },      { DT_F8E4M3, 0, false, true, false },
        { DT_BF16, 0, false, false, false },    { DT_I4, 2048, false, false, false },
        { DT_F4E2M1, 64, false, false, false }, { DT_F4E2M1, 32, true, false, false },
        { DT_F4E2M1, 32, false, true, false },  { DT_F4E2M1, 16, true, false, false },
        { DT_F4E2M1, 16, false, true, false },  { DT_F4E2M1, 0, false, false, false },
        { DT_F8E4M3, 16, false, false, false }, { DT_I4, 16, false, false, false }
    };
    struct device *d[2] = { op_open(DEV_REF, NULL, 0), op_open(DEV_CPU, NULL, 0) };
    for (int i = 0; i < 2; i++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            struct dev_weight w;
            assert_int_equal(dev_quant_bytes(d[i], &bad[b], 64, 4096), 0);
            assert_int_equal(d[i]->ops->quant_alloc(d[i], &bad[b], 64, 4096, &w), ST_CONFIG);
        }
    op_close(d, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_agrees_with_ref),
        cmocka_unit_test(rounding_at_load_is_within_half_a_step),
        cmocka_unit_test(codes_are_taken_as_they_are),
        cmocka_unit_test(nvfp4_is_within_three_roundings_of_what_it_means),
        cmocka_unit_test(several_threads_may_set_codes_of_one_weight),
        cmocka_unit_test(a_row_has_the_same_bits_for_every_number_of_rows),
        cmocka_unit_test(whole_numbers_give_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(activations_at_the_edges_stay_within_bounds),
        cmocka_unit_test(a_format_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
