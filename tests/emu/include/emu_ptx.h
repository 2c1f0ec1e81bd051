/* emu_ptx: the bodies of kernels/cuda/ptx.cuh on the CPU.   C++17. Fragment layouts: PTX ISA, "Matrix Fragments for
 * mma.m16n8k16". tests/cuda/test_ptx.c runs both kinds of bodies against plain loops. */
#pragma once
#include <emu_kernel.h>
#include <math.h>

namespace emu
{
/* emu.cc: the whole product, done once per warp by the lane that arrives last. Per lane 4 words of A, 2 of B, 4 floats
 * of C, which become D. */
void mma_bf16(unsigned char *slot);
void mma_f16(unsigned char *slot);

static inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
                       void (*product)(unsigned char *slot))
{
    unsigned char in[SLOT];
    memcpy(in, a, 16), memcpy(in + 16, b, 8), memcpy(in + 24, c, 16);
    const unsigned char *s = collect(MMA, 0xffffffffu, in, sizeof in, product);
    memcpy(d, s + (size_t)F->lane * SLOT + 24, 16);
}
/* row r of matrix m comes from the address of lane 8 * m + r */
static inline void ldmatrix(uint32_t *r, int n, bool trans, const void *row)
{
    if ((uintptr_t)row & 15) die("ldmatrix address not 16-byte aligned");
    const unsigned char *s = collect(LDMATRIX, 0xffffffffu, &row, sizeof row, NULL);
    int                  l = F->lane;
    for (int m = 0; m < n; m++)
        for (int j = 0; j < 2; j++) {
            int         at = trans ? (l & 3) * 2 + j : l >> 2, col = trans ? l >> 2 : (l & 3) * 2 + j;
            const char *from;
            uint16_t    h;
            memcpy(&from, s + (size_t)(m * 8 + at) * sizeof from, sizeof from);
            memcpy(&h, from + col * 2, sizeof h);
            r[m] = j ? (r[m] & 0xffffu) | (uint32_t)h << 16 : h;
        }
}
template <class T, class Op> void fold(unsigned char *slot)
{
    T x[WARP], y[WARP];
    for (int l = 0; l < WARP; l++) memcpy(&x[l], slot + (size_t)l * stride(sizeof(T)), sizeof(T));
    for (int m = WARP / 2; m; m >>= 1) {
        for (int l = 0; l < WARP; l++) y[l] = Op()(x[l], x[l ^ m]);
        memcpy(x, y, sizeof x);
    }
    for (int l = 0; l < WARP; l++) memcpy(slot + (size_t)l * stride(sizeof(T)), &x[l], sizeof(T));
}
static inline void copy16(const CpAsync &c)
{
    if (c.bytes == 16) { /* usual: a copy that the compiler knows the size of */
        memcpy(c.dst, c.src, 16);
        return;
    }
    memcpy(c.dst, c.src, (size_t)c.bytes);
    memset((char *)c.dst + c.bytes, 0, 16 - (size_t)c.bytes);
}
} // namespace emu

static inline void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    emu::mma(d, a, b, c, emu::mma_bf16);
}
static inline void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    emu::mma(d, a, b, c, emu::mma_f16);
}
static inline void ldmatrix_x4(uint32_t r[4], const void *smem_row) { emu::ldmatrix(r, 4, false, smem_row); }
static inline void ldmatrix_x4_trans(uint32_t r[4], const void *smem_row) { emu::ldmatrix(r, 4, true, smem_row); }
static inline void ldmatrix_x2(uint32_t r[2], const void *smem_row) { emu::ldmatrix(r, 2, false, smem_row); }
static inline void ldmatrix_x2_trans(uint32_t r[2], const void *smem_row) { emu::ldmatrix(r, 2, true, smem_row); }

static inline void cp_async16(void *smem, const void *gmem, int valid = 16)
{
    if (((uintptr_t)smem | (uintptr_t)gmem) & 15) emu::die("cp.async address not 16-byte aligned");
    if (valid < 0 || valid > 16) emu::die("cp.async size not 0..16");
    if (emu::schedule.eager)
        emu::copy16({ smem, gmem, valid });
    else
        emu::F->cp.copy.push_back({ smem, gmem, valid });
}
static inline void cp_async_commit()
{
    emu::CpQueue &q = emu::F->cp;
    q.end.push_back(q.copy.size());
}
template <int N> static inline void cp_async_wait()
{
    emu::CpQueue &q = emu::F->cp;
    for (; q.end.size() - q.first_group > (size_t)N; q.first_group++)
        for (; q.first_copy < q.end[q.first_group]; q.first_copy++) emu::copy16(q.copy[q.first_copy]);
    if (q.first_group < q.end.size() || !q.idle()) return;
    q.copy.clear(), q.end.clear();
    q.first_copy = q.first_group = 0;
}
static inline void pdl_wait() { emu::pdl_wait(); }
static inline void pdl_launch() { emu::pdl_launch(); }

static inline float ex2_approx(float x)
{
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y; /* ftz */
}

static inline float rcp_approx(float x)
{
    float y = 1.0f / x;
    return fabsf(y) < 0x1p-126f ? 0.0f : y; /* ftz */
}

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
static inline void st_peer16(void *p, uint4 v)
{
    if (emu::peer_writes == EMU_PEER_LOST) return;
    if (emu::peer_writes == EMU_PEER_ALTERED && ((uintptr_t)p >> 4) % 1000 == 0) v.w ^= 0x100;
    st_stream16(p, v);
}
static inline void     prefetch_l2(const void *) {}
static inline uint32_t ld_acquire_sys(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void     st_release_sys(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint32_t ld_acquire_gpu(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void     st_release_gpu(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint32_t atom_add_acq_rel_gpu(uint32_t *p, uint32_t v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
}
static inline uint4            ld_volatile16(const void *p) { return ld_stream16(p); }
static inline void             spin_pause() { emu::spin(); }
template <class T, class Op> T warp_fold(T v, Op)
{
    const unsigned char *s = emu::collect(emu::FOLD, 0xffffffffu, &v, sizeof v, emu::fold<T, Op>);
    memcpy(&v, s + (size_t)emu::F->lane * emu::stride(sizeof v), sizeof v);
    return v;
}
