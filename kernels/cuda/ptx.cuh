/* ptx: the instructions that CUDA C has no name for: matrix products, asynchronous copies, dependent launches, ordered
 * loads. Here what runs on a GPU; what runs on the emulator is in tests/emu/include/emu_ptx.h under the same names.
 * tests/cuda/test_ptx.c compares each with a plain loop, wherever it runs.   Device code. Source: PTX ISA 8.x, the
 * section named at each. */
#pragma once
#include <stdint.h>
#ifdef CUDA_EMU
#include <emu_ptx.h>
#else
#include <cuda_runtime.h>

/* d = a * b + c on 16x8x16, one warp, fp32 sums. A row-major: a[0], a[2]: row lane / 4, columns 2 * (lane % 4) and + 8;
 * a[1], a[3]: eight rows below. B column-major: b[0]: column lane / 4, rows 2 * (lane % 4); b[1]: eight below. d, c: as
 * a[0] and a[1], 8 columns. 9.7.14.5.8 */
__device__ __forceinline__ void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
                                                  const float c[4])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/* 8x8 matrices of 16-bit numbers from shared memory: lane 8 * m + r says where row r of matrix m begins (16-byte
 * aligned); lane l gets elements 2 * (l % 4), + 1 of row l / 4 (trans: of column l / 4). x2: the addresses of lanes
 * 0..15 count. 9.7.14.5.15 */
__device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *smem_row)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(smem_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t r[4], const void *smem_row)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(smem_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(uint32_t r[2], const void *smem_row)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(smem_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(p) : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t r[2], const void *smem_row)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(smem_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(p)
                 : "memory");
}

/* 16 bytes from global to shared memory, both 16-byte aligned: the first `valid` (0..16) are copied, the rest becomes
 * zero. Seen by the thread itself after the wait for its group, by others after a barrier behind that. 9.7.9.25.3 */
__device__ __forceinline__ void cp_async16(void *smem, const void *gmem, int valid = 16)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(smem);
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(p), "l"(gmem), "r"(valid) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* at most N of this thread's latest groups are still under way */
template <int N> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Programmatic dependent launch: wait until all that the kernel before wrote can be read; let the kernel behind begin.
 * Nothing happens without the launch attribute. 9.7.13.13 */
__device__ __forceinline__ void pdl_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#ifdef PDL_TORTURE /* the next kernel begins before this one has written anything: if it reads ahead of its own wait, it reads too early */
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __nanosleep(20000);
#endif
#endif
}
__device__ __forceinline__ void pdl_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* 2^x within 2 ulp; results below 2^-126 are 0, 2^0 is 1. 9.7.3.20 */
__device__ __forceinline__ float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x within 1 ulp; results below 2^-126 are 0, and so is 1 / infinity. 9.7.3.14 */
__device__ __forceinline__ float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
}

/* 16 bytes, aligned, that are read once: past L1 (weights). Never for what another kernel may still write. 9.7.9.8 */
__device__ __forceinline__ uint4 ld_stream16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
__device__ __forceinline__ void st_stream16(void *p, uint4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0],{%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
/* 16 bytes into the memory of another device, aligned. A wrapper so that the emulator can lose them, as machines do
 * whose GPUs say that they reach each other and do not. */
__device__ __forceinline__ void st_peer16(void *p, uint4 v) { *(uint4 *)p = v; }
__device__ __forceinline__ void prefetch_l2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* Flags between blocks (gpu) and between devices (sys): what was written before the release is seen after the acquire.
 * 9.7.9.8 */
__device__ __forceinline__ uint32_t ld_acquire_sys(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void st_release_sys(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ uint32_t ld_acquire_gpu(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void st_release_gpu(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.gpu.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory");
}
/* *p += v, and what it was. Both a release and an acquire for blocks of this device. 9.7.13.5 */
__device__ __forceinline__ uint32_t atom_add_acq_rel_gpu(uint32_t *p, uint32_t v)
{
    uint32_t was;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0,[%1],%2;" : "=r"(was) : "l"(p), "r"(v) : "memory");
    return was;
}
/* 16 bytes that another device has written: never from a cache of this kernel's earlier loads */
__device__ __forceinline__ uint4 ld_volatile16(const void *p)
{
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
/* in a loop that waits for another block or rank */
__device__ __forceinline__ void spin_pause() { __nanosleep(20); }

/* v of all 32 lanes folded by op, halves first: a fixed tree, the same bits in every lane for an op that commutes. No
 * instruction of its own, but what kernels do most in a warp: the emulator does it in one meeting instead of five. */
template <class T, class Op> __device__ __forceinline__ T warp_fold(T v, Op op)
{
#pragma unroll
    for (int m = 16; m; m >>= 1) v = op(v, __shfl_xor_sync(0xffffffffu, v, m));
    return v;
}
#endif
struct fold_sum {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
struct fold_max {
    __device__ __forceinline__ float              operator()(float a, float b) const { return fmaxf(a, b); }
    __device__ __forceinline__ unsigned long long operator()(unsigned long long a, unsigned long long b) const
    {
        return b > a ? b : a;
    }
};
