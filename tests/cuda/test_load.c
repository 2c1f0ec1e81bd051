/* Weights on their way to the CUDA device: types, strides, rows longer than a buffer, several threads, a slow copy
 * engine. */
#define CT_THREADS
#include "cuda/cuda_test.h"
#include "base/log.h"
#include "kernels/cuda/cuda.h"
#include <pthread.h>

static uint32_t draw(uint64_t a, uint64_t b, uint32_t n) { return rng_philox(11, a, b).x[0] % n; }

/* A matrix in checkpoint form: rows of k elements of type t, `gap` bytes between rows, at an odd address where
 * `odd`. */
struct source_rows {
    unsigned char *base, *first;
    size_t         stride;
    enum dtype     t;
};
static struct source_rows rows_make(const float *x, uint32_t n, uint32_t k, enum dtype t, size_t gap, bool odd)
{
    struct source_rows s = { .stride = k * dtype_bytes(t) + gap, .t = t };
    s.base = malloc(s.stride * n + 16);
    s.first = s.base + odd;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < k; j++) {
            float    f = x[(size_t)i * k + j];
            uint16_t h = t == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
            memcpy(s.first + i * s.stride + j * dtype_bytes(t), t == DT_F32 ? (void *)&f : (void *)&h, dtype_bytes(t));
        }
    return s;
}

struct setter {
    struct device            *d;
    struct dev_weight        *w;
    const struct source_rows *s;
    uint32_t                  first, step, each;
};
static void *setter_main(void *arg)
{
    struct setter *t = arg;
    for (uint32_t r = t->first * t->each; r < t->w->n; r += t->step * t->each) {
        uint32_t n = t->w->n - r < t->each ? t->w->n - r : t->each;
        t->d->ops->weight_set(t->d, t->w, r, n, t->s->first + r * t->s->stride, t->s->stride, t->s->t);
    }
    return NULL;
}

static void check(struct device *d, const struct dev_weight *w, const float *x, enum dtype from)
{
    size_t    n = (size_t)w->n * w->k;
    uint16_t *got = malloc(n * sizeof *got);
    assert_int_equal(d->ops->sync(d), ST_OK);
    d->ops->to_host(d, got, w->data, n * sizeof *got);
    for (size_t i = 0; i < n; i++) {
        float    f = op_rounded(x[i], from);
        uint16_t want = d->act == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
        if (got[i] != want) fail_msg("element %zu of [%u, %u] is %04x, should be %04x", i, w->n, w->k, got[i], want);
    }
    free(got);
}

/* No algorithm is tried on the weights, which takes minutes on the emulator: products are not what is tested here. */
static struct device *open_without_trials(enum dtype act)
{
    struct device *d = NULL;
    struct dev_cfg cfg = {
        .kind = DEV_CUDA, .arena_bytes = 256 << 20, .n_rank = 1, .act = act, .deterministic = true, .pdl = true
    };
    assert_int_equal(dev_open(&cfg, &d), ST_OK);
    return d;
}

static void weights_arrive(bool lazy)
{
    static const enum dtype from[] = { DT_F32, DT_BF16, DT_F16 };
    static const uint32_t   size[][2] = { { 1, 1 },     { 3, 7 },      { 100, 64 },   { 513, 33 },
                                          { 64, 4096 }, { 6000, 500 }, { 2, 2100001 } };
    for (int act = DT_BF16; act <= DT_F16; act++) {
        struct device *d = open_without_trials((enum dtype)act);
#ifdef CUDA_EMU
        emu_set_lazy(lazy);
#else
        (void)lazy;
#endif
        for (size_t i = 0; i < 21; i++) {
            uint32_t n = size[i / 3][0], k = size[i / 3][1], n_thread = 1 + draw(i, 0, 6);
            float   *x = malloc((size_t)n * k * sizeof *x);
            for (size_t e = 0; e < (size_t)n * k; e++)
                x[e] = (float)((uint32_t)(e * 2654435761u + i) >> 8) * 0x1p-22f - 2;
            struct source_rows s = rows_make(x, n, k, from[i % 3], draw(i, 1, 3) * 5, draw(i, 2, 2));
            struct dev_weight  w;
            pthread_t          thread[6];
            struct setter      t[6];
            assert_int_equal(d->ops->weight_alloc(d, from[i % 3], n, k, &w), ST_OK);
            assert_int_equal(w.dtype, act);
            assert_int_equal(w.bytes, dev_weight_bytes(d, from[i % 3], n, k));
            for (uint32_t j = 0; j < n_thread; j++) {
                t[j] = (struct setter){ d, &w, &s, j, n_thread, 1 + draw(i, 3, n) };
                assert_int_equal(pthread_create(&thread[j], NULL, setter_main, &t[j]), 0);
            }
            for (uint32_t j = 0; j < n_thread; j++) pthread_join(thread[j], NULL);
            memset(s.base, 0xff, 16); /* weight_set has read it when it returns */
            check(d, &w, x, from[i % 3]);
            free(s.base);
            free(x);
        }
#ifdef CUDA_EMU
        emu_set_lazy(false);
#endif
        dev_close(d);
    }
}
static void weights_arrive_from_every_type_by_several_threads(void **state)
{
    (void)state;
    weights_arrive(false);
}
static void buffers_are_not_reused_before_their_copy(void **state)
{
    (void)state;
    weights_arrive(true);
}

/* Buffers are given back at the first step; a matrix may still be set after that. */
static void weights_can_be_set_after_loading(void **state)
{
    (void)state;
    struct device    *d = ct_open(DT_BF16, 0);
    struct dev_weight w;
    float            *x = op_random(200 * 96, 5, 1);
    assert_int_equal(d->ops->weight_alloc(d, DT_BF16, 200, 96, &w), ST_OK);
    cuda_load_free(cuda_of(d));
    d->ops->weight_set(d, &w, 0, 150, x, 96 * sizeof *x, DT_F32);
    d->ops->weight_set(d, &w, 150, 50, x + 150 * 96, 96 * sizeof *x, DT_F32);
    check(d, &w, x, DT_F32);
    free(x);
    dev_close(d);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_arrive_from_every_type_by_several_threads),
        cmocka_unit_test(buffers_are_not_reused_before_their_copy),
        cmocka_unit_test(weights_can_be_set_after_loading),
    };
    return ct_run(tests);
}
