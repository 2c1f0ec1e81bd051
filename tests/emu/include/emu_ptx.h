/* emu_ptx: the bodies of kernels/cuda/ptx.cuh on the CPU.   C++17. Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16".
 * tests/cuda/test_ptx.c runs both kinds of bodies against plain loops. */
#pragma once
#include <emu_kernel.h>
#include <math.h>

namespace emu
{
static inline float bf16_half(uint32_t w, int hi) { return __uint_as_float(hi ? w & 0xffff0000u : w << 16); }
static inline float f16_half(uint32_t w, int hi) { return __half2float(__half{ (unsigned short)(hi ? w >> 16 : w) }); }

/* The whole product, done once per warp by the lane that arrives last. slot: 4 words of A, 2 of B, 4 floats of C, which become D.
 * Products of two 16-bit floats are exact in float, so each step rounds once, as a fused multiply-add would. */
template <float (*half)(uint32_t, int)> void mma_16816(unsigned char (*slot)[SLOT])
{
    float    a[16][16], b[16][8], c[16][8];
    uint32_t w[6];
    float    v[4];
    for (int l = 0; l < WARP; l++) {
        int g = l >> 2, t = l & 3;
        memcpy(w, slot[l], sizeof w);
        memcpy(v, slot[l] + sizeof w, sizeof v);
        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < 4; r++) a[g + (r & 1) * 8][t * 2 + i + (r >> 1) * 8] = half(w[r], i);
            for (int r = 0; r < 2; r++) b[t * 2 + i + r * 8][g] = half(w[4 + r], i);
        }
        for (int i = 0; i < 4; i++) c[g + (i >> 1) * 8][t * 2 + (i & 1)] = v[i];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++) c[m][n] += a[m][k] * b[k][n];
    for (int l = 0; l < WARP; l++) {
        int g = l >> 2, t = l & 3;
        for (int i = 0; i < 4; i++) v[i] = c[g + (i >> 1) * 8][t * 2 + (i & 1)];
        memcpy(slot[l] + sizeof w, v, sizeof v);
    }
}
template <float (*half)(uint32_t, int)> void mma(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    unsigned char in[40];
    memcpy(in, a, 16), memcpy(in + 16, b, 8), memcpy(in + 24, c, 16);
    unsigned char(*s)[SLOT] = collect(MMA, 0xffffffffu, in, sizeof in, mma_16816<half>);
    memcpy(d, s[F->lane] + 24, 16);
}
/* row r of matrix m comes from the address of lane 8 * m + r */
static inline void ldmatrix(uint32_t *r, int n, bool trans, const void *row)
{
    if ((uintptr_t)row & 15) die("ldmatrix address not 16-byte aligned");
    unsigned char(*s)[SLOT] = collect(LDMATRIX, 0xffffffffu, &row, sizeof row, NULL);
    int l = F->lane;
    for (int m = 0; m < n; m++)
        for (int j = 0; j < 2; j++) {
            int         at = trans ? (l & 3) * 2 + j : l >> 2, col = trans ? l >> 2 : (l & 3) * 2 + j;
            const char *from;
            uint16_t    h;
            memcpy(&from, s[m * 8 + at], sizeof from);
            memcpy(&h, from + col * 2, sizeof h);
            r[m] = j ? (r[m] & 0xffffu) | (uint32_t)h << 16 : h;
        }
}
static inline void copy16(const CpAsync &c)
{
    memcpy(c.dst, c.src, (size_t)c.bytes);
    memset((char *)c.dst + c.bytes, 0, 16 - (size_t)c.bytes);
}
} // namespace emu

static inline void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    emu::mma<emu::bf16_half>(d, a, b, c);
}
static inline void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    emu::mma<emu::f16_half>(d, a, b, c);
}
static inline void ldmatrix_x4(uint32_t r[4], const void *smem_row) { emu::ldmatrix(r, 4, false, smem_row); }
static inline void ldmatrix_x4_trans(uint32_t r[4], const void *smem_row) { emu::ldmatrix(r, 4, true, smem_row); }
static inline void ldmatrix_x2(uint32_t r[2], const void *smem_row) { emu::ldmatrix(r, 2, false, smem_row); }
static inline void ldmatrix_x2_trans(uint32_t r[2], const void *smem_row) { emu::ldmatrix(r, 2, true, smem_row); }

static inline void cp_async16(void *smem, const void *gmem, int valid = 16)
{
    if (((uintptr_t)smem | (uintptr_t)gmem) & 15) emu::die("cp.async address not 16-byte aligned");
    if (valid < 0 || valid > 16) emu::die("cp.async size not 0..16");
    if (emu::cp_eager)
        emu::copy16({ smem, gmem, valid });
    else
        emu::F->open.push_back({ smem, gmem, valid });
}
static inline void cp_async_commit()
{
    emu::F->groups.push_back(emu::F->open);
    emu::F->open.clear();
}
template <int N> static inline void cp_async_wait()
{
    std::vector<std::vector<emu::CpAsync>> &g = emu::F->groups;
    while ((int)g.size() > N) {
        for (const emu::CpAsync &c : g.front()) emu::copy16(c);
        g.erase(g.begin());
    }
}
static inline void pdl_wait() { emu::F->waited = true; }
static inline void pdl_launch() {}

static inline float ex2_approx(float x) { return exp2f(x); }

static inline uint4 ld_stream16(const void *p)
{
    if ((uintptr_t)p & 15) emu::die("16-byte load not aligned");
    uint4 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void st_stream16(void *p, uint4 v)
{
    if ((uintptr_t)p & 15) emu::die("16-byte store not aligned");
    memcpy(p, &v, sizeof v);
}
static inline void     prefetch_l2(const void *) {}
static inline uint32_t ld_acquire_sys(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void     st_release_sys(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint32_t ld_acquire_gpu(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void     st_release_gpu(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint4    ld_volatile16(const void *p) { return ld_stream16(p); }
static inline void     spin_pause() { emu::spin(); }
