/* bench_roof: what a CPU can do at best: reading memory and fused multiply-adds in registers. Part of bench_ops.c, behind struct bench. */
#pragma once

struct roof {
    const struct bench *b;
    const char         *data;
    size_t              piece_bytes;
    float               sink[PIECES];
};
enum { FMA_TURNS = 20000, FMA_CHAINS = 12 };

#if defined(__x86_64__)
#define ROOF(isa, targets, vec, zero, set1, load, add, fmadd, store, lanes)                                                         \
    __attribute__((target(targets))) static float read_##isa(const char *p, size_t bytes)                                           \
    {                                                                                                                               \
        vec    s[4] = { zero(), zero(), zero(), zero() };                                                                           \
        size_t part = bytes / 4;                                                                                                    \
        for (size_t i = 0; i < part; i += 64)                                                                                       \
            for (int j = 0; j < 4; j++) {                                                                                           \
                const char *q = p + (size_t)j * part + i;                                                                           \
                _mm_prefetch(q + 2048, _MM_HINT_T0);                                                                                \
                for (int k = 0; k < 64; k += lanes * 4) s[j] = add(s[j], load((const float *)(const void *)(q + k)));               \
            }                                                                                                                       \
        float out[16];                                                                                                              \
        store(out, add(add(s[0], s[1]), add(s[2], s[3])));                                                                          \
        return out[0];                                                                                                              \
    }                                                                                                                               \
    __attribute__((target(targets))) static float fma_##isa(float x)                                                                \
    {                                                                                                                               \
        vec a = set1(x), m = set1(0.999f), s[FMA_CHAINS];                                                                           \
        for (int j = 0; j < FMA_CHAINS; j++) s[j] = set1((float)j);                                                                 \
        for (int i = 0; i < FMA_TURNS; i++) _Pragma("GCC unroll 12") for (int j = 0; j < FMA_CHAINS; j++) s[j] = fmadd(s[j], m, a); \
        for (int j = 1; j < FMA_CHAINS; j++) s[0] = add(s[0], s[j]);                                                                \
        float out[16];                                                                                                              \
        store(out, s[0]);                                                                                                           \
        return out[0];                                                                                                              \
    }
ROOF(avx512, "avx512f", __m512, _mm512_setzero_ps, _mm512_set1_ps, _mm512_loadu_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_storeu_ps, 16)
ROOF(avx2, "avx2,fma", __m256, _mm256_setzero_ps, _mm256_set1_ps, _mm256_loadu_ps, _mm256_add_ps, _mm256_fmadd_ps, _mm256_storeu_ps, 8)
#endif
static float read_scalar(const char *p, size_t bytes)
{
    uint64_t s = 0, x;
    for (size_t i = 0; i < bytes; i += 8) {
        memcpy(&x, p + i, 8);
        s += x;
    }
    return (float)s;
}
static float fma_scalar(float x)
{
    float s[FMA_CHAINS];
    for (int j = 0; j < FMA_CHAINS; j++) s[j] = (float)j;
    for (int i = 0; i < FMA_TURNS; i++)
        for (int j = 0; j < FMA_CHAINS; j++) s[j] = s[j] * 0.999f + x;
    for (int j = 1; j < FMA_CHAINS; j++) s[0] += s[j];
    return s[0];
}

static void read_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    struct roof *r = arg;
    const char  *p = r->data + piece * r->piece_bytes;
#if defined(__x86_64__)
    if (!strcmp(r->b->simd, "avx512"))
        r->sink[piece] = read_avx512(p, r->piece_bytes);
    else if (!strcmp(r->b->simd, "avx2"))
        r->sink[piece] = read_avx2(p, r->piece_bytes);
    else
#endif
        r->sink[piece] = read_scalar(p, r->piece_bytes);
}
static void fma_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    struct roof *r = arg;
#if defined(__x86_64__)
    if (!strcmp(r->b->simd, "avx512"))
        r->sink[piece] = fma_avx512((float)piece);
    else if (!strcmp(r->b->simd, "avx2"))
        r->sink[piece] = fma_avx2((float)piece);
    else
#endif
        r->sink[piece] = fma_scalar((float)piece);
}
static void read_all(void *arg, uint32_t i)
{
    (void)i;
    team_run(((struct roof *)arg)->b->team, PIECES, UINT64_MAX, read_piece, arg);
}
static void fma_all(void *arg, uint32_t i)
{
    (void)i;
    team_run(((struct roof *)arg)->b->team, PIECES, UINT64_MAX, fma_piece, arg);
}

static void roofs(struct bench *b)
{
    enum { BYTES = 512 << 20 };
    void       *memory;
    struct roof r = { .b = b, .piece_bytes = BYTES / PIECES };
    CHECK(b->d->ops->alloc(b->d, BYTES, &memory) == ST_OK);
    memset(memory, 1, BYTES);
    r.data = memory;
    b->read_gbs = BYTES / median_s(b, read_all, &r) * 1e-9;
    double lanes = !strcmp(b->simd, "avx512") ? 16 : !strcmp(b->simd, "avx2") ? 8 : 1;
    b->fma_gflops = 2.0 * lanes * FMA_CHAINS * FMA_TURNS * PIECES / median_s(b, fma_all, &r) * 1e-9;
    printf("device %s, %u threads; roofs: read %.1f GB/s, fma %.0f GFLOP/s\n\n", b->d->ops->name, b->n_thread, b->read_gbs, b->fma_gflops);
    printf("%-46s %10s %8s %6s %9s %6s\n", "op", "us", "GB/s", "roof", "GFLOP/s", "roof");
}
