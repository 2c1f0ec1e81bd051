/* emu_hopper: the bodies of kernels/cuda/hopper.cuh on the CPU.   C++17. What a block has of barriers, copies under way
 * and products under way is in tests/emu/hopper.cc, which also says what is reported.
 *
 * A bulk copy, and a cp.async that arrives at a barrier, is done at once in a schedule that is eager, else only when all
 * threads wait and one of them for its phase. A product is computed at its commit, in an eager schedule at the wait;
 * its accumulators are NaN from its issue to the wait that names them. wgmma reads shared memory as it was at the last
 * fence_async() of any thread, plus what bulk copies brought since. What a bulk copy brings to several blocks of a
 * cluster comes to each at a moment of its own. */
#pragma once
#include <cuda.h>
#include <emu_kernel.h>

namespace emu
{
typedef std::function<void(void *)> Fill; /* writes what a copy brings, to where it goes */
void                                bulk_begin(void *smem, uint32_t bytes, uint64_t *bar, const Fill &fill);
void     copy_to(void *smem, uint32_t bytes, uint64_t *bar, uint32_t ranks, const Fill &fill);
void     tensor_load_to(void *smem, const CUtensorMap *map, int32_t col, int32_t row, uint64_t *bar, uint32_t ranks);
void     mbar_init(uint64_t *bar, uint32_t count);
void     mbar_inval(uint64_t *bar);
void     mbar_arrive(uint64_t *bar, uint32_t bytes);
void     mbar_wait(uint64_t *bar, uint32_t parity);
void     mbar_show();
uint32_t cluster_rank();
void     cluster_sync();
void     mbar_arrive_at(uint64_t *bar, uint32_t rank);
void     bulk_load_to(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar, uint32_t ranks);
void     fence_async();
void     bulk_load(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar);
void     cp_async_arrive(uint64_t *bar);
uint32_t smem_address(const void *p); /* of dynamic shared memory */
void    *dyn_1024();                  /* it, at an address that is a multiple of 1024 */
enum wgmma_number { WGMMA_F16, WGMMA_BF16, WGMMA_E4M3 };
struct wgmma_kind {
    wgmma_number number; /* of both operands; 32 bytes of k each */
    bool         trans_a, trans_b, add;
    int          n;
    bool         operator!=(const wgmma_kind &k) const
    {
        return number != k.number || trans_a != k.trans_a || trans_b != k.trans_b || add != k.add || n != k.n;
    }
};
/* a: four words of this lane, or NULL: at address_a */
void wgmma(float *d, const uint32_t *a, uint64_t address_a, uint64_t b, wgmma_kind kind);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(uint32_t left, const float *d); /* d, or NULL: it may be read then */
} // namespace emu

/* Other kernels' dynamic shared memory begins at a multiple of 128 that is none of 1024. */
#define DYN_SMEM_1024(T, name) T *name = (T *)emu::dyn_1024()

static inline void     mbar_init(uint64_t *bar, uint32_t count) { emu::mbar_init(bar, count); }
static inline void     mbar_inval(uint64_t *bar) { emu::mbar_inval(bar); }
static inline void     mbar_show() { emu::mbar_show(); }
static inline uint32_t cluster_rank() { return emu::cluster_rank(); }
static inline void     cluster_sync() { emu::cluster_sync(); }
static inline void     mbar_arrive_at(uint64_t *bar, uint32_t rank) { emu::mbar_arrive_at(bar, rank); }
static inline void     bulk_load_to(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar, uint32_t ranks)
{
    emu::bulk_load_to(smem, gmem, bytes, bar, ranks);
}
static inline void mbar_arrive(uint64_t *bar) { emu::mbar_arrive(bar, 0); }
static inline void mbar_expect(uint64_t *bar, uint32_t bytes) { emu::mbar_arrive(bar, bytes); }
static inline void mbar_wait(uint64_t *bar, uint32_t parity) { emu::mbar_wait(bar, parity); }
static inline void fence_async() { emu::fence_async(); }
static inline void bulk_load(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar)
{
    emu::bulk_load(smem, gmem, bytes, bar);
}
static inline void tensor_load_to(void *smem, const CUtensorMap &map, int32_t col, int32_t row, uint64_t *bar,
                                  uint32_t ranks)
{
    emu::tensor_load_to(smem, &map, col, row, bar, ranks);
}
static inline void bulk_prefetch(const void *gmem, uint32_t bytes)
{
    if (((uintptr_t)gmem | bytes) & 15) emu::die("bulk_prefetch: address or size no multiple of 16");
}
static inline void cp_async_arrive(uint64_t *bar) { emu::cp_async_arrive(bar); }
static inline void part_sync(uint32_t id, uint32_t count) { emu::part_sync((int)id, (int)count, true); }
static inline void part_arrive(uint32_t id, uint32_t count) { emu::part_sync((int)id, (int)count, false); }
template <int N> static inline void regs_give() { static_assert(N >= 24 && N <= 256 && N % 8 == 0, "registers"); }
template <int N> static inline void regs_take() { static_assert(N >= 24 && N <= 256 && N % 8 == 0, "registers"); }

static inline uint64_t wgmma_operand(const void *smem, uint64_t layout)
{
    return layout | (emu::smem_address(smem) >> 4 & 0x3fff);
}
static inline uint64_t              wgmma_step(uint64_t operand, uint32_t bytes) { return operand + (bytes >> 4); }
static inline void                  wgmma_fence() { emu::wgmma_fence(); }
static inline void                  wgmma_commit() { emu::wgmma_commit(); }
template <int M> static inline void wgmma_hold(float (&)[M]) {}
template <int M> static inline void wgmma_hold(uint32_t (&)[M]) {}
template <int LEFT, int M> static inline void wgmma_wait(float (&d)[M]) { emu::wgmma_wait(LEFT, d); }
template <int LEFT> static inline void        wgmma_wait() { emu::wgmma_wait(LEFT, NULL); }
template <bool BF16, bool TRANS_A, bool TRANS_B, int M>
static inline void wgmma(float (&d)[M], uint64_t a, uint64_t b, bool add)
{
    emu::wgmma(d, NULL, a, b, { BF16 ? emu::WGMMA_BF16 : emu::WGMMA_F16, TRANS_A, TRANS_B, add, 2 * M });
}
template <bool BF16, bool TRANS_B, int M>
static inline void wgmma(float (&d)[M], const uint32_t (&a)[4], uint64_t b, bool add)
{
    emu::wgmma(d, a, 0, b, { BF16 ? emu::WGMMA_BF16 : emu::WGMMA_F16, false, TRANS_B, add, 2 * M });
}
template <int M> static inline void wgmma_e4m3(float (&d)[M], uint64_t a, uint64_t b, bool add)
{
    emu::wgmma(d, NULL, a, b, { emu::WGMMA_E4M3, false, false, add, 2 * M });
}
