/* hopper: what sm_90a alone has: barriers in shared memory that count bytes, bulk copies, products of a warp group.
 * Here what runs on a GPU; what runs on the emulator is in tests/emu/include/emu_hopper.h under the same names. A kernel
 * that calls these is launched on sm_90 only: compiled for another architecture each is a trap.
 * tests/cuda/test_hopper.c compares each with a plain loop, wherever it runs.   Device code. Source: PTX ISA 8.x, the
 * section named at each.
 *
 * Two proxies reach shared memory: loads, stores and cp.async go through the generic one, bulk copies and wgmma through
 * the async one. What one thread wrote by the first is read by the second only behind fence_async(). */
#pragma once
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/tensor_map.h"

/* How 16-byte pieces of a row lie: piece c of row r of an 8-row pattern at c ^ r (of as many bits as the row has
 * pieces). The values are those of the descriptor. 9.7.15.5.1 */
enum swizzle { SWIZZLE_NONE, SWIZZLE_128, SWIZZLE_64, SWIZZLE_32 };

/* Where the byte at `offset` of a pattern that begins at a multiple of its size (128: 1024 bytes) lies. */
template <enum swizzle S> __device__ __forceinline__ uint32_t swizzled(uint32_t offset)
{
    if (S == SWIZZLE_128) return offset ^ (offset >> 3 & 0x70);
    if (S == SWIZZLE_64) return offset ^ (offset >> 3 & 0x30);
    if (S == SWIZZLE_32) return offset ^ (offset >> 3 & 0x10);
    return offset;
}
/* What a matrix descriptor says beside its address. `lead`, `stride`: bytes, multiples of 16. In 8x8 core matrices of
 * 128 bytes:
 *   operand by rows of k, swizzled: `stride` from 8 rows to the next 8; a row of a pattern has 32, 64 or 128 bytes of k
 *   the same, SWIZZLE_NONE: a core matrix has its 8 rows one after another; `lead` to the next 8 of k, `stride` to the next 8 rows
 *   operand by rows of m or n (TRANS), swizzled: `stride` from 8 of k to the next 8, `lead` from one pattern's 16, 32 or 64 of
 *   m or n to the next
 *   the same, SWIZZLE_NONE: `lead` to the next 8 of k, `stride` to the next 8 of m or n */
__device__ __forceinline__ constexpr uint64_t wgmma_layout(enum swizzle s, uint32_t lead, uint32_t stride)
{
    return (uint64_t)s << 62 | (uint64_t)(stride >> 4 & 0x3fff) << 32 | (uint64_t)(lead >> 4 & 0x3fff) << 16;
}

/* HOPPER: this is compiled for what has all of the below. */
#ifdef CUDA_EMU
#define HOPPER 1
#include <emu_hopper.h>
#else

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HOPPER          1
#define HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#else
#define HOPPER_ASM(...) __trap()
#endif

/* Dynamic shared memory as T *name, from a multiple of 1024 bytes on: where patterns of SWIZZLE_128 may begin. */
#define DYN_SMEM_1024(T, name)                                         \
    extern __shared__ __align__(1024) unsigned char name##_raw_1024[]; \
    T                                              *name = (T *)name##_raw_1024

__device__ __forceinline__ uint32_t smem_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* ---------------------------------------------------------------- mbarrier: 9.7.13.15 */

/* A barrier of 8 bytes, aligned, in shared memory. Its phases are numbered from 0 on; a phase is over when `count`
 * threads have arrived and as many bytes have been copied as they announced, and then the next begins. By one thread,
 * with fence_async() and a barrier of the block behind it. */
__device__ __forceinline__ void mbar_init(uint64_t *bar, uint32_t count)
{
    HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(smem_address(bar)), "r"(count) : "memory");
}
/* Its 8 bytes are memory again. */
__device__ __forceinline__ void mbar_inval(uint64_t *bar)
{
    HOPPER_ASM("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(smem_address(bar)) : "memory");
}
/* What this thread has written before is seen by who waits for the phase. */
__device__ __forceinline__ void mbar_arrive(uint64_t *bar)
{
    HOPPER_ASM("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(smem_address(bar)) : "memory");
}
/* Arrives, and announces so many bytes of bulk copies that the phase waits for as well. */
__device__ __forceinline__ void mbar_expect(uint64_t *bar, uint32_t bytes)
{
    HOPPER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(smem_address(bar)), "r"(bytes) : "memory");
}
/* Until the phase of this parity, the one under way or the one before it, is over. */
__device__ __forceinline__ void mbar_wait(uint64_t *bar, uint32_t parity)
{
    uint32_t over = 0;
    do
        HOPPER_ASM("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p;}"
                   : "=r"(over)
                   : "r"(smem_address(bar)), "r"(parity)
                   : "memory");
    while (!over);
}

/* ---------------------------------------------------------------- copies */

/* What this thread has read and written in shared memory, or knows by a barrier to be written, comes before what bulk
 * copies and wgmma do after it. 9.7.13.4 */
__device__ __forceinline__ void fence_async() { HOPPER_ASM("fence.proxy.async.shared::cta;" ::: "memory"); }

/* `bytes` from global to shared memory, and both addresses: multiples of 16. By one thread. The bytes count for the
 * phase of `bar` that is under way. 9.7.9.25.4 */
__device__ __forceinline__ void bulk_load(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar)
{
    HOPPER_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(
                   smem_address(smem)),
               "l"(gmem), "r"(bytes), "r"(smem_address(bar))
               : "memory");
}
/* `bytes` into the L2 cache; address and size: multiples of 16. By one thread. 9.7.9.25.4 */
__device__ __forceinline__ void bulk_prefetch(const void *gmem, uint32_t bytes)
{
    HOPPER_ASM("cp.async.bulk.prefetch.L2.global [%0],%1;" ::"l"(gmem), "r"(bytes) : "memory");
}
/* Arrives when this thread's cp.async16 so far have all copied: without a wait. It is one of the barrier's count.
 * Whoever gives the bytes to wgmma fences them after his wait. 9.7.13.15.17 */
__device__ __forceinline__ void cp_async_arrive(uint64_t *bar)
{
    HOPPER_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(bar)) : "memory");
}

/* ---------------------------------------------------------------- clusters of blocks: LAUNCH_CLUSTER */

/* Neighbours along x that are on the device at once, each with the shared memory of all. Which of them this block is. 10 */
__device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t rank = 0;
    HOPPER_ASM("mov.u32 %0,%%cluster_ctarank;" : "=r"(rank));
    return rank;
}
/* All threads of all blocks of the cluster meet: what one has done before, the others see behind it. The last thing that
 * a block does to whose barriers others come. 9.7.13.3 */
__device__ __forceinline__ void cluster_sync()
{
    HOPPER_ASM("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
/* The barriers that this thread has set up are so for the cluster, behind a cluster_sync(). 9.7.13.4 */
__device__ __forceinline__ void mbar_show() { HOPPER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/* As mbar_arrive, at the barrier that lies where `bar` does in block `rank` of the cluster, its own or another. To another
 * it says that a stage is free, to be filled by bulk copies: what was written by stores it does not show there, for a
 * release to the cluster is a fence of the whole GPU. */
__device__ __forceinline__ void mbar_arrive_at(uint64_t *bar, uint32_t rank)
{
    HOPPER_ASM("{.reg .b32 a; mapa.shared::cluster.u32 a,%0,%1; mbarrier.arrive.shared::cluster.b64 _,[a];}" ::"r"(
                   smem_address(bar)),
               "r"(rank)
               : "memory");
}
/* As bulk_load, read once for all blocks whose ranks are bits of `ranks`: each has the bytes where `smem` lies in it, and
 * they count at its own barrier, where `bar` lies. 9.7.9.25.4 */
__device__ __forceinline__ void bulk_load_to(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar,
                                             uint32_t ranks)
{
    HOPPER_ASM(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0],[%1],%2,[%3],%4;" ::
            "r"(smem_address(smem)),
        "l"(gmem), "r"(bytes), "r"(smem_address(bar)), "h"((uint16_t)ranks)
        : "memory");
}

/* The box at (col, row) of a mapped matrix, to all blocks whose ranks are bits of `ranks`, and its bytes count there as with
 * bulk_load_to. smem: a multiple of 1024. map: a kernel's parameter. 9.7.9, cp.async.bulk.tensor */
__device__ __forceinline__ void tensor_load_to(void *smem, const CUtensorMap &map, int32_t col, int32_t row,
                                               uint64_t *bar, uint32_t ranks)
{
    HOPPER_ASM(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0],[%1,{%2,%3}],[%4],%5;" ::
            "r"(smem_address(smem)),
        "l"(&map), "r"(col), "r"(row), "r"(smem_address(bar)), "h"((uint16_t)ranks)
        : "memory");
}

/* ---------------------------------------------------------------- parts of a block */

/* Barrier `id`, 1..15 (0 is __syncthreads), of `count` threads, whole warps: arrives and waits, or arrives. 9.7.13.1 */
__device__ __forceinline__ void part_sync(uint32_t id, uint32_t count)
{
    HOPPER_ASM("bar.sync %0,%1;" ::"r"(id), "r"(count) : "memory");
}
__device__ __forceinline__ void part_arrive(uint32_t id, uint32_t count)
{
    HOPPER_ASM("bar.arrive %0,%1;" ::"r"(id), "r"(count) : "memory");
}
/* This warp group goes on with N registers a thread, a multiple of 8 of 24..256: fewer than the kernel was compiled for
 * (give), or more, once others have given (take). All four warps. 9.7.19.5 */
template <int N> __device__ __forceinline__ void regs_give()
{
    HOPPER_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void regs_take()
{
    HOPPER_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---------------------------------------------------------------- products of a warp group: 9.7.15 */

/* The operand that begins at `smem`, laid out as wgmma_layout says. A step of k adds its bytes: wgmma_step. */
__device__ __forceinline__ uint64_t wgmma_operand(const void *smem, uint64_t layout)
{
    return layout | (smem_address(smem) >> 4 & 0x3fff);
}
__device__ __forceinline__ uint64_t wgmma_step(uint64_t operand, uint32_t bytes) { return operand + (bytes >> 4); }

/* Ahead of the first product, and of each that takes registers which other code has touched since. */
__device__ __forceinline__ void wgmma_fence() { HOPPER_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { HOPPER_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* The compiler neither reads nor writes these before, or after, what stands here. */
template <int M> __device__ __forceinline__ void wgmma_hold(float (&d)[M])
{
#pragma unroll
    for (int i = 0; i < M; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int M> __device__ __forceinline__ void wgmma_hold(uint32_t (&a)[M])
{
#pragma unroll
    for (int i = 0; i < M; i++) asm volatile("" : "+r"(a[i])::"memory");
}
/* At most LEFT of the warp group's latest groups are still under way; d: what the others have made, and may be read. */
template <int LEFT, int M> __device__ __forceinline__ void wgmma_wait(float (&d)[M])
{
    HOPPER_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    wgmma_hold(d);
}
/* the same, for operands in shared memory that may then be written */
template <int LEFT> __device__ __forceinline__ void wgmma_wait()
{
    HOPPER_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define HOPPER_D8(i)                                                                                            \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define HOPPER_D32(i) HOPPER_D8(i), HOPPER_D8(i + 8), HOPPER_D8(i + 16), HOPPER_D8(i + 24)
#define HOPPER_DS64   HOPPER_D32(0)
#define HOPPER_DS128  HOPPER_D32(0), HOPPER_D32(32)
#define HOPPER_DS256  HOPPER_D32(0), HOPPER_D32(32), HOPPER_D32(64), HOPPER_D32(96)
#define HOPPER_R64                                                                                                       \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
    "%31"
#define HOPPER_R128                                                                                                    \
    HOPPER_R64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
               "%57,%58,%59,%60,%61,%62,%63"
#define HOPPER_R256                                                                                         \
    HOPPER_R128                                                                                             \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88," \
    "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"   \
    "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
/* Operands behind the N / 2 of D: a and b (or four of a, and b), add, TRANS_A, TRANS_B. */
#define HOPPER_SS(N, type, a_, b_, add_, ta_, tb_)                                                             \
    HOPPER_ASM("{.reg .pred p; setp.ne.b32 p," add_ ",0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type \
               "." type " {" HOPPER_R##N "}," a_ "," b_ ",p,1,1," ta_ "," tb_ ";}"                             \
               : HOPPER_DS##N                                                                                  \
               : "l"(a), "l"(b), "r"((int)add), "n"(TRANS_A), "n"(TRANS_B))
#define HOPPER_RS(N, type, a0_, a1_, a2_, a3_, b_, add_, tb_)                                                  \
    HOPPER_ASM("{.reg .pred p; setp.ne.b32 p," add_ ",0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type \
               "." type " {" HOPPER_R##N "},{" a0_ "," a1_ "," a2_ "," a3_ "}," b_ ",p,1,1," tb_ ";}"          \
               : HOPPER_DS##N                                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(TRANS_B))
#define HOPPER_SS_N(type)                                                           \
    if constexpr (M == 32) HOPPER_SS(64, type, "%32", "%33", "%34", "%35", "%36");  \
    if constexpr (M == 64) HOPPER_SS(128, type, "%64", "%65", "%66", "%67", "%68"); \
    if constexpr (M == 128) HOPPER_SS(256, type, "%128", "%129", "%130", "%131", "%132")
#define HOPPER_RS_N(type)                                                                         \
    if constexpr (M == 32) HOPPER_RS(64, type, "%32", "%33", "%34", "%35", "%36", "%37", "%38");  \
    if constexpr (M == 64) HOPPER_RS(128, type, "%64", "%65", "%66", "%67", "%68", "%69", "%70"); \
    if constexpr (M == 128) HOPPER_RS(256, type, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#define HOPPER_E4M3(N, a_, b_, add_)                                                           \
    HOPPER_ASM("{.reg .pred p; setp.ne.b32 p," add_ ",0; wgmma.mma_async.sync.aligned.m64n" #N \
               "k32.f32.e4m3.e4m3 {" HOPPER_R##N "}," a_ "," b_ ",p,1,1;}"                     \
               : HOPPER_DS##N                                                                  \
               : "l"(a), "l"(b), "r"((int)add))

/* d = a * b (+ d where `add`) on 64 x n x 16 for n = 2 M (64, 128, 256) by four warps whose first is a multiple of four,
 * fp32 sums of bf16 (or f16). d: of warp w of the four, rows 16 w + lane / 4 and (d[2], d[3] of each four) 8 below;
 * columns 8 j + 2 * (lane % 4) and + 1 in d[4 j ..]. a: 64 rows of 16 in shared memory, or in registers as
 * mma_m16n8k16 has them. b: n rows of 16. TRANS: the operand lies as 16 rows of 64 or n. It begins when it is committed,
 * and its operands and d are its own until it is waited for. */
template <bool BF16, bool TRANS_A, bool TRANS_B, int M>
__device__ __forceinline__ void wgmma(float (&d)[M], uint64_t a, uint64_t b, bool add)
{
    if constexpr (BF16) {
        HOPPER_SS_N("bf16");
    } else {
        HOPPER_SS_N("f16");
    }
}
template <bool BF16, bool TRANS_B, int M>
__device__ __forceinline__ void wgmma(float (&d)[M], const uint32_t (&a)[4], uint64_t b, bool add)
{
    if constexpr (BF16) {
        HOPPER_RS_N("bf16");
    } else {
        HOPPER_RS_N("f16");
    }
}
/* The same on 64 x n x 32 of E4M3, operands of rows of k in shared memory. Hopper adds such products up in some 14 bits,
 * so that sums of many are to be made of sums of few (arXiv:2412.19437, 3.3.2). */
template <int M> __device__ __forceinline__ void wgmma_e4m3(float (&d)[M], uint64_t a, uint64_t b, bool add)
{
    if constexpr (M == 32) HOPPER_E4M3(64, "%32", "%33", "%34");
    if constexpr (M == 64) HOPPER_E4M3(128, "%64", "%65", "%66");
    if constexpr (M == 128) HOPPER_E4M3(256, "%128", "%129", "%130");
}
#endif
