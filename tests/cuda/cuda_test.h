/* cuda_test: what the tests of the CUDA device share: opening it beside the ref device, moving numbers, comparing,
 * schedules.
 *
 * On the emulator a test runs under every schedule (CT_SCHEDULES); on a GPU once. What stands in no such loop has another
 * schedule at each launch of a kernel; a program of several threads defines CT_THREADS, and nothing begins early there.
 * Without either it ends with 77: skipped. Memory of a device
 * lasts until it is closed: open one per test. */
#pragma once
#include "op/op_test.h"
#include "tests/cuda/fill_kernel.h"
#include <cuda_runtime_api.h>
#ifdef CUDA_EMU
#include <emu.h>
#endif

static inline struct device *ct_open(enum dtype act, size_t arena_bytes)
{
    struct device *d = NULL;
    struct dev_cfg cfg = {
        .kind = DEV_CUDA, .arena_bytes = arena_bytes ? arena_bytes : OP_ARENA, .n_rank = 1, .act = act, .pdl = true
    };
    assert_int_equal(dev_open(&cfg, &d), ST_OK);
    return d;
}
static inline struct device *ct_open_ref(void)
{
    struct device *d = op_open(DEV_REF, NULL, 0);
    assert_non_null(d);
    return d;
}

/* Under compute-sanitizer, which makes everything slow: less of what is done many times. Set by tests/gpu/all. */
static inline bool ct_quick(void) { return getenv("CUDA_TEST_QUICK") != NULL; }

/* for (CT_SCHEDULES(i)) ...: the same work in every order that the emulator knows; under AddressSanitizer, which is
 * slow and looks for other things, in three of them, one of which begins kernels early */
#ifdef CUDA_EMU
#ifdef __SANITIZE_ADDRESS__
enum { CT_STEP = 7 };
#else
enum { CT_STEP = 1 };
#endif
__attribute__((constructor)) static void ct_begin(void)
{
#ifdef CT_THREADS
    emu_set_turns(EMU_TURNS);
#else
    emu_set_turns(EMU_TURNS_EARLY);
#endif
}
static inline uint32_t ct_schedule(uint32_t i)
{
    struct emu_schedule s = emu_schedule_at(i % EMU_SCHEDULES);
    emu_set_schedule(i < EMU_SCHEDULES ? &s : NULL);
    return i;
}
#define CT_SCHEDULES(i)             \
    uint32_t i = 0;                 \
    ct_schedule(i) < EMU_SCHEDULES; \
    i += CT_STEP
/* the four that differ most, for what is slow */
#define CT_SCHEDULES_FEW(i)         \
    uint32_t i = 0;                 \
    ct_schedule(i) < EMU_SCHEDULES; \
    i += 4
static inline const char *ct_schedule_name(uint32_t i)
{
    struct emu_schedule s = emu_schedule_at(i);
    return emu_schedule_name(&s);
}
#else
static inline uint32_t    ct_schedule(uint32_t i) { return i; }
#define CT_SCHEDULES(i) \
    uint32_t i = 0;     \
    i < 1;              \
    i++
#define CT_SCHEDULES_FEW(i) \
    uint32_t i = 0;         \
    i < 1;                  \
    i++
static inline const char *ct_schedule_name(uint32_t i)
{
    (void)i;
    return "gpu";
}
#endif

/* ---------------------------------------------------------------- memory */

/* NaN in every type, by a kernel that the next one may begin before. */
static inline void  ct_poison(struct device *d, void *p, size_t bytes) { ct_fill_ff(d, p, bytes); }
static inline void *ct_alloc(struct device *d, size_t bytes) /* poisoned */
{
    void *p;
    assert_int_equal(d->ops->alloc(d, bytes ? bytes : 1, &p), ST_OK);
    ct_poison(d, p, bytes);
    return p;
}
static inline void ct_put(struct device *d, void *dst, const void *src, size_t bytes)
{
    d->ops->to_device(d, dst, src, bytes);
    assert_int_equal(d->ops->sync(d), ST_OK);
}
/* The last of them by a kernel, which the next one may begin before. */
static inline void ct_put_behind(struct device *d, void *dst, const void *src, size_t bytes)
{
    size_t late = bytes < CT_LATE_MAX ? bytes : CT_LATE_MAX;
    ct_put(d, dst, src, bytes - late);
    ct_put_late(d, (char *)dst + bytes - late, (const char *)src + bytes - late, (uint32_t)late);
}
static inline void ct_get(struct device *d, void *dst, const void *src, size_t bytes)
{
    d->ops->to_host(d, dst, src, bytes);
    assert_int_equal(d->ops->sync(d), ST_OK);
}
static inline void *ct_bytes(struct device *d, const void *src, size_t bytes) /* raw: F32, u32, ... */
{
    void *p = ct_alloc(d, bytes);
    ct_put(d, p, src, bytes);
    return p;
}
/* n numbers in type t of the device, rounded to nearest; of 16 bits they come as ct_put_behind has it */
static inline void ct_put_as(struct device *d, void *dst, enum dtype t, const float *x, size_t n)
{
    if (t == DT_F32) {
        ct_put(d, dst, x, n * sizeof *x);
        return;
    }
    uint16_t *h = malloc((n ? n : 1) * sizeof *h);
    for (size_t i = 0; i < n; i++) h[i] = t == DT_BF16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
    ct_put_behind(d, dst, h, n * sizeof *h);
    free(h);
}
static inline void ct_get_as(struct device *d, float *x, const void *src, enum dtype t, size_t n)
{
    if (t == DT_F32) {
        ct_get(d, x, src, n * sizeof *x);
        return;
    }
    uint16_t *h = malloc((n ? n : 1) * sizeof *h);
    ct_get(d, h, src, n * sizeof *h);
    for (size_t i = 0; i < n; i++) x[i] = t == DT_BF16 ? bf16_to_f32(h[i]) : f16_to_f32(h[i]);
    free(h);
}
/* activations: in the device's own type */
static inline void *ct_act(struct device *d, const float *x, size_t n)
{
    void *p = ct_alloc(d, n * dtype_bytes(d->act));
    ct_put_as(d, p, d->act, x, n);
    return p;
}
static inline void *ct_act_new(struct device *d, size_t n) { return ct_alloc(d, n * dtype_bytes(d->act)); }
static inline void  ct_act_get(struct device *d, float *x, const void *src, size_t n)
{
    ct_get_as(d, x, src, d->act, n);
}
/* x[n] as the device will see it, so that ref computes from the same numbers */
static inline void ct_round(float *x, size_t n, enum dtype t)
{
    for (size_t i = 0; i < n; i++) x[i] = op_rounded(x[i], t);
}

/* ---------------------------------------------------------------- comparing */

static inline double ct_rel_l2(const float *got, const float *want, size_t n) /* NaN anywhere: NaN */
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)got[i] - (double)want[i];
        diff += e * e;
        norm += (double)want[i] * (double)want[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}
static inline double ct_max_abs(const float *got, const float *want, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - (double)want[i]);
        if (!(e <= worst)) worst = e;
        if (worst != worst) break;
    }
    return worst;
}
static inline void ct_assert_close(const float *got, const float *want, size_t n, double rel_l2, double max_abs,
                                   const char *what)
{
    double l2 = ct_rel_l2(got, want, n), most = ct_max_abs(got, want, n);
    if (!(l2 <= rel_l2) || !(most <= max_abs)) {
        size_t at = 0;
        for (size_t i = 0; i < n; i++)
            if (!(fabs((double)got[i] - (double)want[i]) < most)) {
                at = i;
                break;
            }
        fail_msg(
            "%s: relative error %.3g (at most %.3g), largest difference %.3g (at most %.3g): [%zu] is %.9g, should be %.9g",
            what, l2, rel_l2, most, max_abs, at, (double)got[at], (double)want[at]);
    }
}
static inline void ct_assert_same(const void *got, const void *want, size_t bytes, const char *what)
{
    const uint8_t *a = got, *b = want;
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i]) fail_msg("%s: byte %zu of %zu is %02x, should be %02x", what, i, bytes, a[i], b[i]);
}

/* Is out [m, n] something else than a [m, k] * b [n, k]^T? */
static inline bool ct_product_is_wrong(const float *out, const float *a, const float *b, int m, int n, int k)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            double sum = 0;
            for (int i = 0; i < k; i++) sum += (double)a[r * k + i] * (double)b[c * k + i];
            if (!(fabs((double)out[r * n + c] - sum) < 1e-3)) return true;
        }
    return false;
}

/* Random weights of a layer's experts: gate_up[n], down[n]. */
static inline void ct_experts(struct device *d, uint32_t n, uint32_t hidden, uint32_t inter, struct dev_weight *gate_up,
                              struct dev_weight *down)
{
    enum dtype t = d->act == DT_F16 ? DT_F16 : DT_BF16;
    for (uint32_t e = 0; e < n; e++) {
        float *g = op_random((size_t)2 * inter * hidden, 1000 + e, 1.5f / sqrtf((float)hidden)),
              *w = op_random((size_t)hidden * inter, 9000 + e, 1.5f / sqrtf((float)inter));
        gate_up[e] = op_weight(d, t, 2 * inter, hidden, g);
        down[e] = op_weight(d, t, hidden, inter, w);
        free(g);
        free(w);
    }
}
/* Limits of a device for the experts of one layer and nothing else. */
static inline struct dev_limits ct_moe_limits(uint32_t rows, uint32_t hidden, uint32_t n_expert, uint32_t top_k,
                                              uint32_t inter)
{
    return (struct dev_limits){ .rows_max = rows,
                                .seqs_max = 1,
                                .pages_max = 1,
                                .hist_max = 1,
                                .ban_max = 1,
                                .allow_max = 1,
                                .mask_max = 8,
                                .bias_max = 1,
                                .logit_rows_max = 1,
                                .vocab = 16,
                                .n_head = 1,
                                .n_kv_head = 1,
                                .head_dim = 64,
                                .hidden = hidden,
                                .n_expert = n_expert,
                                .top_k = top_k,
                                .inter = inter };
}

/* ---------------------------------------------------------------- the run */

/* return ct_run(tests): 77 where there is no GPU; ct_run_hopper(tests): 77 where there is none with wgmma */
#define ct_run(tests)        (ct_has_device() ? cmocka_run_group_tests(tests, NULL, NULL) : 77)
#define ct_run_hopper(tests) (ct_has_hopper() ? ct_run(tests) : 77)
static inline bool ct_has_device(void)
{
    struct dev_info info[1];
    char            why[256] = "";
    uint32_t        n = dev_list(info, 1, why, sizeof why);
    if (n && !info[0].refused[0]) return true;
    printf("no GPU: %s\n", n ? info[0].refused : why);
    return false;
}
static inline bool ct_has_hopper(void)
{
#ifndef CUDA_EMU
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && major != 9) {
        printf("no GPU of sm_90\n");
        return false;
    }
#endif
    return true;
}
