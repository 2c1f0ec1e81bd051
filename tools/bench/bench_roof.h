/* bench_roof: what a CPU can do at best: reading memory, and in registers fused multiply-adds, products of bf16 and of
 * int8. Part of bench_ops.c, behind struct bench. */
#pragma once

struct roof {
    const struct bench *b;
    const char         *data;
    size_t              piece_bytes;
    float               sink[PIECES];
    bool                int8;
};
enum { FMA_TURNS = 20000, FMA_CHAINS = 12, TILE_TURNS = 2000 };

#if defined(__x86_64__) || defined(__aarch64__)
#define ROOF(isa, targets, vec, zero, set1, load, add, fmadd, store, lanes)                                           \
    targets static float read_##isa(const char *p, size_t bytes)                                                      \
    {                                                                                                                 \
        vec    s[4] = { zero(), zero(), zero(), zero() };                                                             \
        size_t part = bytes / 4;                                                                                      \
        for (size_t i = 0; i < part; i += 64)                                                                         \
            for (int j = 0; j < 4; j++) {                                                                             \
                const char *q = p + (size_t)j * part + i;                                                             \
                __builtin_prefetch(q + 2048, 0, 3);                                                                   \
                for (int k = 0; k < 64; k += lanes * 4) s[j] = add(s[j], load((const float *)(const void *)(q + k))); \
            }                                                                                                         \
        float out[16];                                                                                                \
        store(out, add(add(s[0], s[1]), add(s[2], s[3])));                                                            \
        return out[0];                                                                                                \
    }                                                                                                                 \
    targets static float fma_##isa(float x)                                                                           \
    {                                                                                                                 \
        vec a = set1(x), m = set1(0.999f), s[FMA_CHAINS];                                                             \
        for (int j = 0; j < FMA_CHAINS; j++) s[j] = set1((float)j);                                                   \
        for (int i = 0; i < FMA_TURNS; i++)                                                                           \
            _Pragma("GCC unroll 12") for (int j = 0; j < FMA_CHAINS; j++) s[j] = fmadd(s[j], m, a);                   \
        for (int j = 1; j < FMA_CHAINS; j++) s[0] = add(s[0], s[j]);                                                  \
        float out[16];                                                                                                \
        store(out, s[0]);                                                                                             \
        return out[0];                                                                                                \
    }
#endif
#if defined(__x86_64__)
ROOF(avx512, __attribute__((target("avx512f"))), __m512, _mm512_setzero_ps, _mm512_set1_ps, _mm512_loadu_ps,
     _mm512_add_ps, _mm512_fmadd_ps, _mm512_storeu_ps, 16)
ROOF(avx2, __attribute__((target("avx2,fma"))), __m256, _mm256_setzero_ps, _mm256_set1_ps, _mm256_loadu_ps,
     _mm256_add_ps, _mm256_fmadd_ps, _mm256_storeu_ps, 8)

__attribute__((target("avx512f,avx512bf16"))) static float dot_bf16(float x)
{
    __m512 s[FMA_CHAINS], a = _mm512_set1_ps(x), m = _mm512_set1_ps(0.999f);
    for (int j = 0; j < FMA_CHAINS; j++) s[j] = _mm512_set1_ps((float)j);
    for (int i = 0; i < FMA_TURNS; i++)
        _Pragma("GCC unroll 12") for (int j = 0; j < FMA_CHAINS; j++) s[j] =
            _mm512_dpbf16_ps(s[j], (__m512bh)m, (__m512bh)a);
    for (int j = 1; j < FMA_CHAINS; j++) s[0] = _mm512_add_ps(s[0], s[j]);
    return _mm512_cvtss_f32(s[0]);
}
__attribute__((target("avx512f,avx512vnni"))) static float dot_int8(float x)
{
    __m512i s[FMA_CHAINS], a = _mm512_set1_epi32((int)x), m = _mm512_set1_epi32(0x01010101);
    for (int j = 0; j < FMA_CHAINS; j++) s[j] = _mm512_set1_epi32(j);
    for (int i = 0; i < FMA_TURNS; i++)
        _Pragma("GCC unroll 12") for (int j = 0; j < FMA_CHAINS; j++) s[j] = _mm512_dpbusd_epi32(s[j], m, a);
    for (int j = 1; j < FMA_CHAINS; j++) s[0] = _mm512_add_epi32(s[0], s[j]);
    return (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(s[0]));
}
#define TILES(dot)                         \
    amx_rows(16);                          \
    memset(zeros, 0, sizeof zeros);        \
    amx_load(4, zeros, 64);                \
    amx_load(5, zeros, 64);                \
    amx_load(6, zeros, 64);                \
    amx_load(7, zeros, 64);                \
    for (int i = 0; i < TILE_TURNS; i++) { \
        dot(0, 4, 6);                      \
        dot(1, 4, 7);                      \
        dot(2, 5, 6);                      \
        dot(3, 5, 7);                      \
    }                                      \
    amx_done();                            \
    return (float)zeros[0][0]
__attribute__((target("amx-tile,amx-bf16"))) static float tile_bf16(void)
{
    char zeros[16][64];
    TILES(amx_bf16);
}
__attribute__((target("amx-tile,amx-int8"))) static float tile_int8(void)
{
    char zeros[16][64];
    TILES(amx_int8);
}
#elif defined(__aarch64__)
#define NEON_ZERO()       vdupq_n_f32(0)
#define NEON_FMA(a, b, c) vfmaq_f32(c, a, b)
ROOF(neon, , float32x4_t, NEON_ZERO, vdupq_n_f32, vld1q_f32, vaddq_f32, NEON_FMA, vst1q_f32, 4)

__attribute__((target("arch=armv8.2-a+bf16"))) static float dot_bf16(float x)
{
    float32x4_t  s[FMA_CHAINS];
    bfloat16x8_t a = vreinterpretq_bf16_f32(vdupq_n_f32(x)), m = vreinterpretq_bf16_f32(vdupq_n_f32(0.999f));
    for (int j = 0; j < FMA_CHAINS; j++) s[j] = vdupq_n_f32((float)j);
    for (int i = 0; i < FMA_TURNS; i++)
        _Pragma("GCC unroll 12") for (int j = 0; j < FMA_CHAINS; j++) s[j] = vbfmmlaq_f32(s[j], m, a);
    for (int j = 1; j < FMA_CHAINS; j++) s[0] = vaddq_f32(s[0], s[j]);
    return vgetq_lane_f32(s[0], 0);
}
__attribute__((target("arch=armv8.2-a+i8mm"))) static float dot_int8(float x)
{
    int32x4_t s[FMA_CHAINS];
    int8x16_t a = vdupq_n_s8((int8_t)x), m = vdupq_n_s8(1);
    for (int j = 0; j < FMA_CHAINS; j++) s[j] = vdupq_n_s32(j);
    for (int i = 0; i < FMA_TURNS; i++)
        _Pragma("GCC unroll 12") for (int j = 0; j < FMA_CHAINS; j++) s[j] = vmmlaq_s32(s[j], m, a);
    for (int j = 1; j < FMA_CHAINS; j++) s[0] = vaddq_s32(s[0], s[j]);
    return (float)vgetq_lane_s32(s[0], 0);
}
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
#elif defined(__aarch64__)
    if (!strcmp(r->b->simd, "neon"))
        r->sink[piece] = read_neon(p, r->piece_bytes);
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
#elif defined(__aarch64__)
    if (!strcmp(r->b->simd, "neon"))
        r->sink[piece] = fma_neon((float)piece);
    else
#endif
        r->sink[piece] = fma_scalar((float)piece);
}
/* ---- units for 16 and 8 bits; unit_flops 0: this instruction set has none */

static bool has_tiles(const struct bench *b) { return strstr(b->d->ops->name, "amx"); }
static bool has_dots(const struct bench *b) { return strstr(b->d->ops->name, "bf16"); }
static void unit_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    struct roof *r = arg;
#if defined(__x86_64__)
    if (has_tiles(r->b))
        r->sink[piece] = r->int8 ? tile_int8() : tile_bf16();
    else
        r->sink[piece] = r->int8 ? dot_int8((float)piece) : dot_bf16((float)piece);
#elif defined(__aarch64__)
    r->sink[piece] = r->int8 ? dot_int8((float)piece) : dot_bf16((float)piece);
#else
    (void)r;
    (void)piece;
#endif
}
#if defined(__aarch64__)
enum { DOT_PRODUCTS = 16 }; /* of bf16, by one instruction */
#else
enum { DOT_PRODUCTS = 32 };
#endif
static double unit_flops(const struct roof *r)
{
    double bits = r->int8 ? 2 : 1; /* int8: twice as many in a register */
    if (has_tiles(r->b)) return bits * 4 * 2 * 16 * 16 * 32 * TILE_TURNS;
    return has_dots(r->b) ? bits * 2 * DOT_PRODUCTS * FMA_CHAINS * FMA_TURNS : 0;
}
static void unit_all(void *arg, uint32_t i)
{
    (void)i;
    team_run(((struct roof *)arg)->b->team, PIECES, UINT64_MAX, unit_piece, arg);
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
    double lanes = !strcmp(b->simd, "neon") ? 4 : 1;
    if (!strcmp(b->simd, "avx2")) lanes = 8;
    if (!strcmp(b->simd, "avx512")) lanes = 16;
    b->fma_gflops = 2.0 * lanes * FMA_CHAINS * FMA_TURNS * PIECES / median_s(b, fma_all, &r) * 1e-9;
    b->bf16_gflops = b->int8_gflops = b->fma_gflops;
    if (unit_flops(&r) > 0) b->bf16_gflops = unit_flops(&r) * PIECES / median_s(b, unit_all, &r) * 1e-9;
    r.int8 = true;
    if (unit_flops(&r) > 0) b->int8_gflops = unit_flops(&r) * PIECES / median_s(b, unit_all, &r) * 1e-9;
    printf("device %s, %u threads; roofs: read %.1f GB/s, fma %.0f, bf16 %.0f, int8 %.0f GFLOP/s\n\n", b->d->ops->name,
           b->n_thread, b->read_gbs, b->fma_gflops, b->bf16_gflops, b->int8_gflops);
    printf("%-46s %10s %8s %6s %9s %6s\n", "op", "us", "GB/s", "roof", "GFLOP/s", "roof");
}
