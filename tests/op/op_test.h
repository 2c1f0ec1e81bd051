/* op_test: what the op tests share: the devices of this machine, numbers, comparisons. */
#pragma once
#include "base/dtype.h"
#include "base/rng.h"
#include "kernels/device.h"
#include "test.h"
#include <math.h>

enum { OP_ARENA = 64 << 20, OP_DEVICES_MAX = 16 };

static inline struct device *op_open(enum dev_kind kind, const char *simd, uint32_t n_thread)
{
    struct device *d = NULL;
    struct dev_cfg cfg = { .kind = kind, .arena_bytes = OP_ARENA, .n_thread = n_thread, .n_rank = 1, .simd = simd };
    return dev_open(&cfg, &d) == ST_OK ? d : NULL;
}

/* Is this one to be tested? OP_SIMD names those that are, where all would take too long (./check, section aarch64); the
 * longest loops are then shorter. */
static inline bool op_wants(const char *simd)
{
    const char *only = getenv("OP_SIMD");
    size_t      len = strlen(simd);
    for (const char *at = only ? strstr(only, simd) : NULL; at; at = strstr(at + 1, simd))
        if ((at == only || at[-1] == ',') && (!at[len] || at[len] == ',')) return true;
    return !only;
}

/* Every instruction set that this machine has, once alone and once with a team; with a team only: scalar, which is slow, and where
 * OP_SIMD names the sets, a slice (tests/size.h). */
static inline uint32_t op_cpu_devices(struct device **d)
{
    static const char *const simd[] = { "scalar",      "avx2", "avx-vnni", "avx512",   "avx512-vnni",
                                        "avx512-bf16", "amx",  "neon",     "neon-bf16" };
    char                     have[128];
    uint32_t                 n = 0, fewest = getenv("OP_SIMD") ? (uint32_t)test_size(1, 2) : 1;
    dev_cpu_isas(have, sizeof have);
    for (size_t i = 0; i < sizeof simd / sizeof *simd; i++) {
        if (!op_wants(simd[i])) continue;
        size_t      len = strlen(simd[i]);
        const char *at = strstr(have, simd[i]);
        while (at && at[len] && at[len] != ',') at = strstr(at + 1, simd[i]);
        for (uint32_t n_thread = i ? fewest : 2; at && n_thread <= 2; n_thread++) {
            d[n] = op_open(DEV_CPU, simd[i], n_thread);
            assert_non_null(d[n++]);
        }
    }
    assert_true(n >= 1);
    return n;
}
static inline void op_close(struct device **d, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) dev_close(d[i]);
}
/* May their bits be compared? scalar has no fused multiply-add on some machines. */
static inline bool op_is_vector(const struct device *d)
{
    return strstr(d->ops->name, "avx") || strstr(d->ops->name, "neon");
}

/* Are activations rounded to bf16 before they are multiplied with 16-bit weights? */
static inline bool op_rounds(const struct device *d)
{
    return strstr(d->ops->name, "bf16") || strstr(d->ops->name, "amx");
}

/* Does attention over bf16 keys round queries and weights to bf16, where head_dim allows? */
static inline bool op_attends_bf16(const struct device *d)
{
    return strstr(d->ops->name, "avx512-bf16") || strstr(d->ops->name, "amx");
}

/* Are keys and values of that type bf16 by the time that they are multiplied? */
static inline bool op_read_as_bf16(enum dtype kv) { return kv == DT_BF16 || kv == DT_F8E4M3; }

/* Gives a pool layers of grouped heads, all alike. Bytes of nobody lie before each of them, so that an operation which
 * takes its place from anything but the table is seen. Tables stay until the program ends. */
enum { OP_KV_GAP = 256 };
static inline void op_kv_layers(struct dev_kv *kv, uint32_t n_kv_head, uint32_t head_dim)
{
    static struct op_kv_table {
        struct op_kv_table *next;
        struct dev_kv_layer layer[];
    } * tables;
    struct op_kv_table *t = calloc(1, sizeof *t + kv->n_layer * sizeof t->layer[0]);
    uint64_t            bytes = kv->block_tokens * dev_kv_heads_bytes(kv->dtype, n_kv_head, head_dim), at = 0;
    for (uint32_t l = 0; l < kv->n_layer; l++) {
        t->layer[l] = (struct dev_kv_layer){ .offset = at + OP_KV_GAP, .bytes = bytes };
        at += OP_KV_GAP + bytes;
    }
    t->next = tables;
    tables = t;
    kv->layer = t->layer;
    kv->block_bytes = at;
}

static inline float op_normal(uint64_t stream, uint64_t i)
{
    struct rng_block b = rng_philox(7, stream, i);
    return sqrtf(-2.0f * logf(rng_unit(b.x[0]))) * cosf(6.2831853f * rng_unit(b.x[1]));
}
static inline float *op_random(size_t n, uint64_t stream, float scale)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = op_normal(stream, i) * scale;
    return x;
}
static inline float op_rounded(float x, enum dtype t)
{
    if (t == DT_BF16) return bf16_to_f32(f32_to_bf16(x));
    return t == DT_F16 ? f16_to_f32(f32_to_f16(x)) : x;
}

static inline void op_assert_near(const float *got, const float *want, size_t n, double tolerance, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)got[i] - (double)want[i]);
        if (!(diff <= tolerance * (1.0 + fabs((double)want[i]))))
            fail_msg("%s: [%zu] is %.9g, should be %.9g", what, i, (double)got[i], (double)want[i]);
    }
}
static inline void op_assert_same(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("%s: [%zu] is %.9g (%a), should be %.9g (%a)", what, i, (double)got[i], (double)got[i],
                     (double)want[i], (double)want[i]);
}

static inline struct dev_weight op_weight(struct device *d, enum dtype t, uint32_t n, uint32_t k, const float *src)
{
    struct dev_weight w;
    assert_int_equal(d->ops->weight_alloc(d, t, n, k, &w), ST_OK);
    d->ops->weight_set(d, &w, 0, n, src, k * sizeof *src, DT_F32);
    return w;
}
