/* simd_body: the inner loops, once, over the 16 lanes that the including file defines:   (no include guard: a template)
 *   v16; v_zero v_set1 v_load v_store, with V_MASKED v_load_n (zeros behind n) v_store_n; v_add v_sub v_mul v_div
 *   v_fma (a * b + c)
 *   v_max (b where either is NaN) v_load_bf16 v_load_f16 (and _n) v_store_bf16_n v_store_f16_n v_pow2 (see v_exp)
 *   v_above (16-bit mask) v_equal v_nan v_pick (mask ? a : b) v_transpose (16 of them) v_low16 v_high16 (bf16 pairs)
 *   v_load_i8 (int8) v_load_f8 (E4M3, NaN may be anything) v_load_i4 (low and high halves of 16 bytes)
 *   v_load_f4 (the same halves as numbers of E2M1, doubled) v_add_bits
 *   v_widen_f8 (16 codes of E4M3 times 2^-8 and a power of two as bf16, exact; NaN only of the latter)
 *   v_sum_bits (as unsigned integers) v_sum v_hmax (trees: lane i with i + 8, + 4, + 2, + 1)
 *   v_fused and V_FUSED where v_fma may round twice; MUL_ROWS, MUL_COLS(rows), SIMD_TABLE, SIMD_NAME
 * Over 500 lines: one table of functions, which an including file compiles as a whole. */
#include <math.h>
#include <string.h>

#ifdef SIMD_OUT_OF_LINE /* sanitized scalar: inlined and unrolled it is minutes of compiling */
#define INLINE static __attribute__((unused))
#define UNROLL
#else
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#endif

#ifndef V_FUSED
#define v_fused v_fma
#endif

#ifndef V_MASKED
INLINE v16 v_load_n(const float *p, uint32_t n)
{
    float t[16] = { 0 };
    memcpy(t, p, n * sizeof *t);
    return v_load(t);
}
INLINE void v_store_n(float *p, v16 x, uint32_t n)
{
    float t[16];
    v_store(t, x);
    memcpy(p, t, n * sizeof *t);
}
#endif

/* exp(x), 2 ulp, the same bits on every machine (kernels/cuda/sample.cu takes these very steps):
 * x = n ln 2 + r; e^r by the polynomial of Cephes expf; below -87.3 exactly 0, above 88.3 infinite */
INLINE v16 v_exp_low(v16 x) /* x <= 88.3 */
{
    const v16 magic = v_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer, which lies in the low bits */
    v16       y = v_max(v_set1(-87.3f), x);
    v16       t = v_fused(y, v_set1(1.44269504088896341f), magic);
    v16       n = v_sub(t, magic);
    v16       r = v_fused(n, v_set1(2.12194440e-4f), v_fused(n, v_set1(-0.693359375f), y));
    v16       p = v_set1(1.9875691500e-4f);
    p = v_fused(p, r, v_set1(1.3981999507e-3f));
    p = v_fused(p, r, v_set1(8.3334519073e-3f));
    p = v_fused(p, r, v_set1(4.1665795894e-2f));
    p = v_fused(p, r, v_set1(1.6666665459e-1f));
    p = v_fused(p, r, v_set1(5.0000001201e-1f));
    p = v_fused(p, v_mul(r, r), v_add(r, v_set1(1.0f)));
    p = v_mul(p, v_pow2(t));
    return v_pick(v_above(v_set1(-87.3f), x), v_zero(), p);
}
INLINE v16 v_exp(v16 x) { return v_pick(v_above(x, v_set1(88.3f)), v_set1(INFINITY), v_exp_low(x)); }

/* ---------------------------------------------------------------- products */

INLINE v16 v_load_f32(const float *p) { return v_load(p); }

#define MUL_ARGS(T) float *out, size_t ldo, const float *x, size_t ldx, const T *w, size_t w_col, size_t w_k, uint32_t k

/* One register block of R rows by C columns of 16. R and C are constants where this is inlined. */
#define MUL_TILE(T, name)                                                                                  \
    INLINE void tile_##name(MUL_ARGS(T), bool add, const int R, const int C)                               \
    {                                                                                                      \
        v16 acc[MUL_ROWS][8];                                                                              \
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] =                  \
            add ? v_load(out + (size_t)r * ldo + c * 16) : v_zero();                                       \
        for (uint32_t i = 0; i < k; i++, w += w_k) {                                                       \
            if (C == 1) __builtin_prefetch((const char *)w + 2048, 0, 3); /* one stream only: ask ahead */ \
            if (R <= C) { /* whichever side is shorter stays in registers */                               \
                v16 a[MUL_ROWS];                                                                           \
                UNROLL for (int r = 0; r < R; r++) a[r] = v_set1(x[(size_t)r * ldx + i]);                  \
                UNROLL for (int c = 0; c < C; c++)                                                         \
                {                                                                                          \
                    v16 b = v_load_##name(w + (size_t)c * w_col);                                          \
                    UNROLL for (int r = 0; r < R; r++) acc[r][c] = v_fma(a[r], b, acc[r][c]);              \
                }                                                                                          \
            } else {                                                                                       \
                v16 b[8];                                                                                  \
                UNROLL for (int c = 0; c < C; c++) b[c] = v_load_##name(w + (size_t)c * w_col);            \
                UNROLL for (int r = 0; r < R; r++)                                                         \
                {                                                                                          \
                    v16 a = v_set1(x[(size_t)r * ldx + i]);                                                \
                    UNROLL for (int c = 0; c < C; c++) acc[r][c] = v_fma(a, b[c], acc[r][c]);              \
                }                                                                                          \
            }                                                                                              \
        }                                                                                                  \
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)                              \
            v_store(out + (size_t)r * ldo + c * 16, acc[r][c]);                                            \
    }

/* One function per R, so that each has its registers for itself: its columns some at a time, then what is left by
 * ones. */
#define MUL_ROW(T, name, R)                                                                            \
    static void mul_##name##_##R(MUL_ARGS(T), uint32_t cols, bool add)                                 \
    {                                                                                                  \
        uint32_t c = 0;                                                                                \
        for (; c + MUL_COLS(R) <= cols; c += MUL_COLS(R))                                              \
            tile_##name(out + c * 16, ldo, x, ldx, w + c * w_col, w_col, w_k, k, add, R, MUL_COLS(R)); \
        for (; MUL_COLS(R) > 1 && c < cols; c++)                                                       \
            tile_##name(out + c * 16, ldo, x, ldx, w + c * w_col, w_col, w_k, k, add, R, 1);           \
    }

#define MUL(T, name)                                                                                             \
    MUL_TILE(T, name)                                                                                            \
    MUL_ROW(T, name, 1)                                                                                          \
    MUL_ROW(T, name, 2)                                                                                          \
    MUL_ROW(T, name, 3)                                                                                          \
    MUL_ROW(T, name, 4)                                                                                          \
    MUL_ROW(T, name, 5)                                                                                          \
    MUL_ROW(T, name, 6)                                                                                          \
    static void mul_##name(MUL_ARGS(void), uint32_t rows, uint32_t cols, bool add)                               \
    {                                                                                                            \
        static void (*const by_rows[])(MUL_ARGS(T), uint32_t,                                                    \
                                       bool) = { NULL,           mul_##name##_1, mul_##name##_2, mul_##name##_3, \
                                                 mul_##name##_4, mul_##name##_5, mul_##name##_6 };               \
        for (uint32_t r; rows; rows -= r, out += r * ldo, x += r * ldx) {                                        \
            r = simd_rows(rows, MUL_ROWS);                                                                       \
            by_rows[r](out, ldo, x, ldx, w, w_col, w_k, k, cols, add);                                           \
        }                                                                                                        \
    }
MUL(float, f32)
MUL(bf16, bf16)
MUL(f16, f16)

static void panel_expand(float *dst, const void *code, enum dtype t, const void *scale, const f16 *zero,
                         const float *factor, uint32_t n_k)
{
    const uint8_t *c = code;
    if (t == DT_I4) {
        v16 s = v_load_f16(scale), z = zero ? v_load_f16(zero) : v_set1(8.0f);
        for (uint32_t i = 0; i < n_k; i += 2, c += 16) {
            v16 high, low = v_load_i4(c, &high);
            v_store(dst + i * 16, v_mul(v_sub(low, z), s));
            v_store(dst + i * 16 + 16, v_mul(v_sub(high, z), s));
        }
        return;
    }
    if (t == DT_F4E2M1) {
        float half[16]; /* of the scales: the numbers are doubled */
        for (uint32_t i = 0; i < 16; i++) {
            uint8_t byte = ((const uint8_t *)scale)[i];
            half[i] = (factor ? f8e4m3_to_f32(byte) * factor[i] : f8e8m0_to_f32(byte)) * 0.5f;
        }
        v16 s = v_load(half);
        for (uint32_t i = 0; i < n_k; i += 2, c += 16) {
            v16 high, low = v_load_f4(c, &high);
            v_store(dst + i * 16, v_mul(low, s));
            v_store(dst + i * 16 + 16, v_mul(high, s));
        }
        return;
    }
    v16 s = v_load(scale);
    if (t == DT_I8)
        for (uint32_t i = 0; i < n_k; i++) v_store(dst + i * 16, v_mul(v_load_i8(c + i * 16), s));
    else
        for (uint32_t i = 0; i < n_k; i++) v_store(dst + i * 16, v_mul(v_load_f8(c + i * 16), s));
}

/* ---------------------------------------------------------------- rows */

/* Four sums over vectors 0, 4, 8, ..; 1, 5, ..; then a tree: the same for every caller. */
static float row_sum_squares(const float *x, uint32_t n)
{
    v16      s[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        UNROLL for (int j = 0; j < 4; j++)
        {
            v16 a = v_load(x + i + 16 * j);
            s[j] = v_fma(a, a, s[j]);
        }
    }
    for (; i + 16 <= n; i += 16) {
        v16 a = v_load(x + i);
        s[0] = v_fma(a, a, s[0]);
    }
    if (i < n) {
        v16 a = v_load_n(x + i, n - i);
        s[1] = v_fma(a, a, s[1]);
    }
    return v_sum(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])));
}

/* The same sums of the numbers themselves. */
static float row_total(const float *x, uint32_t n)
{
    v16      s[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        UNROLL for (int j = 0; j < 4; j++) s[j] = v_add(s[j], v_load(x + i + 16 * j));
    }
    for (; i + 16 <= n; i += 16) s[0] = v_add(s[0], v_load(x + i));
    if (i < n) s[1] = v_add(s[1], v_load_n(x + i, n - i));
    return v_sum(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])));
}

/* body(i, n) for every 16 of [0, n), n < 16 at the end: lanes are independent, so the tail has the bits of the rest */
#define FOR_VECTORS(n) for (uint32_t i = 0, len; len = (n)-i < 16 ? (n)-i : 16, i < (n); i += 16)

INLINE v16  load_part(const float *p, uint32_t len) { return len == 16 ? v_load(p) : v_load_n(p, len); }
INLINE void store_part(float *p, v16 a, uint32_t len)
{
    if (len == 16)
        v_store(p, a);
    else
        v_store_n(p, a, len);
}

static void row_norm(float *out, const float *x, const float *w, float scale, uint32_t n)
{
    v16 s = v_set1(scale);
    FOR_VECTORS(n)
    {
        v16 y = v_mul(load_part(x + i, len), s);
        store_part(out + i, w ? v_mul(y, load_part(w + i, len)) : y, len);
    }
}

static void row_add(float *x, const float *delta, uint32_t n)
{
    FOR_VECTORS(n) { store_part(x + i, v_add(load_part(x + i, len), load_part(delta + i, len)), len); }
}

/* x / (1 + e^-t) */
INLINE v16 v_gate(v16 x, v16 t) { return v_div(x, v_add(v_set1(1.0f), v_exp(v_sub(v_zero(), t)))); }

/* 1 + erf(x): a rational approximation, as in Eigen, off by 5e-7 at most; exactly 0 from -4 down */
INLINE v16 v_erf_plus_1(v16 x)
{
    v16 y = v_max(v_set1(-4.0f), v_pick(v_above(x, v_set1(4.0f)), v_set1(4.0f), x)), s = v_mul(y, y);
    v16 p = v_set1(-2.72614225801306e-10f), q = v_set1(-1.45660718464996e-05f);
    p = v_fused(p, s, v_set1(2.77068142495902e-08f));
    p = v_fused(p, s, v_set1(-2.10102402082508e-06f));
    p = v_fused(p, s, v_set1(-5.69250639462346e-05f));
    p = v_fused(p, s, v_set1(-7.34990630326855e-04f));
    p = v_fused(p, s, v_set1(-2.95459980854025e-03f));
    p = v_fused(p, s, v_set1(-1.60960333262415e-02f));
    q = v_fused(q, s, v_set1(-2.13374055278905e-04f));
    q = v_fused(q, s, v_set1(-1.68282697438203e-03f));
    q = v_fused(q, s, v_set1(-7.37332916720468e-03f));
    q = v_fused(q, s, v_set1(-1.42647390514189e-02f));
    return v_pick(v_above(v_set1(-3.9999f), x), v_zero(), v_add(v_set1(1.0f), v_div(v_mul(y, p), q)));
}

/* tanh(u) = 1 - 2 / (1 + e^2u): off by a rounding of 1 at most, everywhere; NaN stays */
static void row_cap(float *x, float by, float cap, uint32_t n)
{
    v16 times = v_set1(2.0f * by / cap), most = v_set1(cap), twice = v_set1(2.0f * cap);
    FOR_VECTORS(n)
    {
        v16 e = v_exp(v_mul(load_part(x + i, len), times));
        store_part(x + i, v_sub(most, v_div(twice, v_add(v_set1(1.0f), e))), len);
    }
}

INLINE v16 v_silu(v16 x) { return v_gate(x, x); }
INLINE v16 v_gelu(v16 x) { return v_mul(v_mul(v_set1(0.5f), x), v_erf_plus_1(v_mul(x, v_set1(0.707106781f)))); }
INLINE v16 v_gelu_tanh(v16 x) /* (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
{
    return v_gate(x, v_mul(x, v_fused(v_mul(x, x), v_set1(0.0713548163f), v_set1(1.59576912f))));
}
INLINE v16 v_quick_gelu(v16 x) { return v_gate(x, v_mul(x, v_set1(1.702f))); }
INLINE v16 v_relu(v16 x) { return v_max(v_zero(), x); } /* NaN stays */
INLINE v16 v_relu2(v16 x) { return v_mul(v_relu(x), v_relu(x)); }

#define ROW_ACT(name)                                                                        \
    static void row_##name##_mul(float *out, const float *gate, const float *up, uint32_t n) \
    {                                                                                        \
        FOR_VECTORS(n)                                                                       \
        {                                                                                    \
            v16 y = v_##name(load_part(gate + i, len));                                      \
            store_part(out + i, v_mul(y, load_part(up + i, len)), len);                      \
        }                                                                                    \
    }
ROW_ACT(silu)
ROW_ACT(gelu)
ROW_ACT(gelu_tanh)
ROW_ACT(quick_gelu)
ROW_ACT(relu)
ROW_ACT(relu2)

static void row_shift(float *out, const float *x, float by, uint32_t n)
{
    v16 b = v_set1(by);
    FOR_VECTORS(n) { store_part(out + i, v_sub(load_part(x + i, len), b), len); }
}

static void row_clamped_mul(float *out, const float *gate, const float *up, uint32_t n) /* NaN stays in both */
{
    const v16 most = v_set1(7.0f), least = v_set1(-7.0f);
    FOR_VECTORS(n)
    {
        v16 g = load_part(gate + i, len), u = load_part(up + i, len);
        g = v_quick_gelu(v_pick(v_above(g, most), most, g));
        u = v_max(least, v_pick(v_above(u, most), most, u));
        store_part(out + i, v_mul(g, v_add(u, v_set1(1.0f))), len);
    }
}

static void row_rope(float *x, const float *cos, const float *sin, uint32_t half)
{
    FOR_VECTORS(half)
    {
        v16 a = load_part(x + i, len), b = load_part(x + half + i, len), c = load_part(cos + i, len),
            s = load_part(sin + i, len);
        store_part(x + i, v_sub(v_mul(a, c), v_mul(b, s)), len);
        store_part(x + half + i, v_add(v_mul(b, c), v_mul(a, s)), len);
    }
}

static void row_store(void *dst, enum dtype t, const float *src, uint32_t n)
{
    FOR_VECTORS(n)
    {
        v16 a = load_part(src + i, len);
        if (t == DT_F32)
            store_part((float *)dst + i, a, len);
        else if (t == DT_BF16)
            v_store_bf16_n((bf16 *)dst + i, a, len);
        else
            v_store_f16_n((f16 *)dst + i, a, len);
    }
}

INLINE v16 load_typed(const void *src, enum dtype t, uint32_t i, uint32_t len)
{
    if (t == DT_F32) return load_part((const float *)src + i, len);
    if (t == DT_BF16) return len == 16 ? v_load_bf16((const bf16 *)src + i) : v_load_bf16_n((const bf16 *)src + i, len);
    return len == 16 ? v_load_f16((const f16 *)src + i) : v_load_f16_n((const f16 *)src + i, len);
}

static void row_load(float *dst, const void *src, enum dtype t, uint32_t n)
{
    FOR_VECTORS(n) { v_store(dst + i, load_typed(src, t, i, len)); }
}

static void row_load_f8(bf16 *dst, const uint8_t *code, float scale, uint32_t n)
{
    v16      by = v_set1(scale * 256.0f);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) v_widen_f8(dst + i, code + i, by);
    if (i == n) return;
    uint8_t rest[16] = { 0 };
    bf16    wide[16];
    memcpy(rest, code + i, n - i);
    v_widen_f8(wide, rest, by);
    memcpy(dst + i, wide, (n - i) * sizeof *dst);
}

static void tile_pack_k(float *dst, const void *const *token, enum dtype t, uint32_t dim)
{
    v16      a[16];
    uint32_t i = 0;
    if (t == DT_BF16) /* pairs of dims travel together: half the shuffles */
        for (; i + 32 <= dim; i += 32, dst += 32 * 16) {
            UNROLL for (int j = 0; j < 16; j++)
            {
                const void *pairs = (const bf16 *)token[j] + i;
                a[j] = v_load(pairs);
            }
            v_transpose(a);
            UNROLL for (int j = 0; j < 16; j++)
            {
                v_store(dst + 32 * j, v_low16(a[j]));
                v_store(dst + 32 * j + 16, v_high16(a[j]));
            }
        }
    for (; i < dim; i += 16, dst += 16 * 16) {
        uint32_t len = dim - i < 16 ? dim - i : 16;
        for (int j = 0; j < 16; j++) a[j] = load_typed(token[j], t, i, len);
        v_transpose(a);
        for (uint32_t j = 0; j < len; j++) v_store(dst + 16 * j, a[j]);
    }
}

static float tile_softmax(float *s, uint32_t lo, uint32_t hi, float *m, float *l)
{
    uint32_t first = lo / 16 * 16;
    v16      top = v_set1(-INFINITY);
    for (uint32_t i = first; i < hi; i += 16) {
        uint32_t from = lo > i ? lo - i : 0, to = hi - i < 16 ? hi - i : 16;
        v16      a = v_pick((0xffffu >> (16 - to)) & (0xffffu << from), v_load(s + i), v_set1(-INFINITY));
        v_store(s + i, a);
        top = v_max(top, a);
    }
    float max = v_hmax(top), old = *m;
    if (!(max > old)) max = old;
    v16   sum = v_load(l);
    float alpha[16] = { 1.0f };
    if (old != max) {
        v16 a = v_exp(v_set1(old - max));
        v_store(alpha, a);
        sum = v_mul(sum, a);
    }
    for (uint32_t i = first; i < hi; i += 16) {
        v16 p = v_exp(v_sub(v_load(s + i), v_set1(max)));
        v_store(s + i, p);
        sum = v_add(sum, p);
    }
    v_store(l, sum);
    *m = max;
    return alpha[0];
}

static float lanes_sum(const float *l) { return v_sum(v_load(l)); }

/* ---------------------------------------------------------------- logits */

static float logits_max(const float *x, uint32_t n, bool *nan_out)
{
    v16      top[4];
    uint32_t nan = 0, i = 0;
    for (int j = 0; j < 4; j++) top[j] = v_set1(-INFINITY);
    for (; i + 64 <= n; i += 64) {
        UNROLL for (int j = 0; j < 4; j++)
        {
            v16 a = v_load(x + i + 16 * j);
            nan |= v_nan(a);
            top[j] = v_max(top[j], a);
        }
    }
    for (; i < n; i += 16) {
        uint32_t len = n - i < 16 ? n - i : 16;
        v16      a = v_pick(0xffffu >> (16 - len), load_part(x + i, len), v_set1(-INFINITY));
        nan |= v_nan(a);
        top[0] = v_max(top[0], a);
    }
    *nan_out = nan != 0;
    return v_hmax(v_max(v_max(top[0], top[1]), v_max(top[2], top[3])));
}

static void logits_divide(float *out, const float *x, float by, uint32_t n)
{
    v16 d = v_set1(by);
    FOR_VECTORS(n) { store_part(out + i, v_div(load_part(x + i, len), d), len); }
}

static float logits_exp_sum(float *e, const float *x, float max, float min, uint32_t n)
{
    v16 sum = v_zero(), m = v_set1(max), low = v_set1(min);
    FOR_VECTORS(n)
    {
        v16 a = v_exp(v_sub(load_part(x + i, len), m));
        a = v_pick(v_above(low, a), v_zero(), a);
        if (len < 16) a = v_pick(0xffffu >> (16 - len), a, v_zero());
        if (e) store_part(e + i, a, len);
        sum = v_add(sum, a);
    }
    return v_sum(sum);
}

/* weigh() without a double: adding 4 rounds e to h / 2^21, and what is left, added to 1.5 / 2^19, to l / 2^42. h and l
 * then lie in the low bits, where they are summed as integers, constants and all; h * 2^21 is even, so a tie in l is a
 * tie of the whole. */
static uint64_t logits_weigh(float *e, const float *x, float max, float min, uint32_t n)
{
    const v16 m = v_set1(max), low = v_set1(min), to_h = v_set1(4.0f), to_l = v_set1(0x1.8p-19f);
    v16       h_sum = v_zero(), l_sum = v_zero();
    FOR_VECTORS(n)
    {
        v16 a = v_exp_low(v_sub(load_part(x + i, len), m));
        a = v_pick(v_above(low, a), v_zero(), a);
        if (len < 16) a = v_pick(0xffffu >> (16 - len), a, v_zero());
        if (e) store_part(e + i, a, len);
        v16 h = v_add(a, to_h), l = v_add(v_sub(a, v_sub(h, to_h)), to_l);
        h_sum = v_add_bits(h_sum, h);
        l_sum = v_add_bits(l_sum, l);
    }
    uint32_t bits_h, bits_l, h_all = v_sum_bits(h_sum), l_all = v_sum_bits(l_sum), lanes = (n + 15) / 16 * 16;
    memcpy(&bits_h, &(float){ 4.0f }, sizeof bits_h);
    memcpy(&bits_l, &(float){ 0x1.8p-19f }, sizeof bits_l);
    h_all -= lanes * bits_h;
    l_all -= lanes * bits_l; /* at most 2^29; between -2^28 and 2^28 */
    return ((uint64_t)h_all << 21) + (uint64_t)(int64_t)(int32_t)l_all;
}

static uint32_t logits_find(const float *x, float value, uint32_t n)
{
    v16 b = v_set1(value);
    FOR_VECTORS(n)
    {
        uint32_t hit = v_equal(load_part(x + i, len), b) & (0xffffu >> (16 - len));
        if (hit) return i + (uint32_t)__builtin_ctz(hit);
    }
    return n;
}

static uint32_t logits_count_above(const float *x, float value, uint32_t n)
{
    v16      b = v_set1(value);
    uint32_t count = 0;
    FOR_VECTORS(n)
    {
        count += (uint32_t)__builtin_popcount(v_above(load_part(x + i, len), b) & (0xffffu >> (16 - len)));
    }
    return count;
}

static uint32_t logits_ids_above(uint32_t *id_out, const float *x, float value, uint32_t first_id, uint32_t n)
{
    v16      b = v_set1(value);
    uint32_t count = 0;
    FOR_VECTORS(n)
    {
        uint32_t hit = v_above(load_part(x + i, len), b) & (0xffffu >> (16 - len));
        for (; hit; hit &= hit - 1) id_out[count++] = first_id + i + (uint32_t)__builtin_ctz(hit);
    }
    return count;
}

const struct simd SIMD_TABLE = {
    .name = SIMD_NAME,
    .mul = { [DT_F32] = mul_f32, [DT_BF16] = mul_bf16, [DT_F16] = mul_f16 },
    .expand = panel_expand,
    .sum_squares = row_sum_squares,
    .total = row_total,
    .shift = row_shift,
    .norm = row_norm,
    .add = row_add,
    .cap = row_cap,
    .act_mul = { [OP_SILU] = row_silu_mul,
                 [OP_GELU] = row_gelu_mul,
                 [OP_GELU_TANH] = row_gelu_tanh_mul,
                 [OP_QUICK_GELU] = row_quick_gelu_mul,
                 [OP_RELU] = row_relu_mul,
                 [OP_RELU2] = row_relu2_mul,
                 [OP_CLAMPED] = row_clamped_mul },
    .rope = row_rope,
    .store = row_store,
    .load = row_load,
    .load_f8 = row_load_f8,
    .pack_k = tile_pack_k,
    .softmax = tile_softmax,
    .sum = lanes_sum,
    .max = logits_max,
    .divide = logits_divide,
    .exp_sum = logits_exp_sum,
    .weigh = logits_weigh,
    .find = logits_find,
    .count_above = logits_count_above,
    .ids_above = logits_ids_above,
};
