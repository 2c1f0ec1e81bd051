/* emu_kernel: what a kernel sees when it runs on the CPU: threadIdx, barriers, shuffles, launches.   C++17, included by
 * cuda_runtime.h. Thread: all state is of the OS thread that launches. */
#pragma once
#include <emu.h>
#include <emu_types.h>
#include <functional>
#include <memory>
#include <stdlib.h>
#include <tuple>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ \
    static thread_local /* launch.cc finds them by name: no other C++ function here may have such a one */

namespace emu
{
enum { WARP = 32, SLOT = 40, BARRIERS = 16, WORDS = 1024 / 64, CLUSTER_MAX = 8 };
/* kinds of warp collectives: lanes that meet must mean the same one */
enum kind { SYNC = 1, SHFL, VOTE, REDUCE, MATCH, MMA, LDMATRIX, FOLD, COMMIT, WAIT };

struct Set { /* of the threads of a block, by their place in its order */
    uint64_t at[WORDS];
};
struct Meet { /* where the lanes of one mask meet */
    uint32_t mask, arrived[2], turn;
    int      kind;
    size_t   size; /* of what each lane leaves */
    Set      waiting;
    alignas(64) unsigned char slot[2][WARP * SLOT];
};
struct Warp {
    std::vector<std::unique_ptr<Meet>>
           meet; /* usually one, of all lanes; [n_meet] are of this block, the rest is kept for others */
    size_t n_meet;
    Set    member;
};
struct CpAsync {
    void       *dst;
    const void *src;
    int         bytes; /* of 16: the rest becomes zero */
};
struct
    CpQueue { /* of a thread: groups of copies in the order of their commits, and behind them what is not committed */
    std::vector<CpAsync> copy;
    std::vector<size_t>  end; /* of each group, in copy */
    size_t               first_copy = 0, first_group = 0;
    bool                 idle() const { return first_copy == copy.size(); }
};
struct Fiber {
    void   *sp;
    char   *stack;
    bool    waited; /* has called pdl_wait */
    uint3   tid;
    int     lin, lane, warp;
    CpQueue cp;
};
struct Hopper;  /* hopper.cc */
struct Cluster; /* cluster.cc */
struct Block {
    dim3                         grid, dim;
    uint3                        bid;
    int                          n, live, cur, words; /* words: of the sets that n threads need */
    std::vector<Fiber>           f;
    std::vector<Warp>            w;
    std::vector<int>             order;
    Set                          ready;                              /* can go on; the others have ended or wait */
    int                          arrived[BARRIERS], count[BARRIERS]; /* count: of a part's barrier */
    Set                          waiting[BARRIERS];
    unsigned char               *dyn; /* dynamic shared memory, exact size */
    size_t                       dyn_bytes;
    uint32_t                     dyn_at;         /* its address, as descriptors of matrices have it */
    std::shared_ptr<Hopper>      hopper;         /* NULL: nothing of that was used */
    std::shared_ptr<Cluster>     cluster;        /* NULL: it is of none */
    uint32_t                     rank;           /* in it */
    uint64_t                     progress, seen; /* seen: progress when spins began to count */
    long                         spins;          /* calls of spin() since a thread last got on */
    bool                         parked;         /* all it can do is wait for another block, rank or kernel */
    bool                         pdl, early;     /* may begin early; the kernel ahead has not run yet       */
    Set                          at_wait;        /* threads at pdl_wait meanwhile                           */
    Set                          giving_way;     /* threads that go on when no other can                    */
    Set                          at_cluster;     /* threads at the barrier of its cluster                   */
    std::vector<unsigned char>   statics;        /* of a parked block: its __shared__ variables */
    char                        *stacks;
    const std::function<void()> *body;
};
extern __thread Block *B; /* of the block that runs on this OS thread */
extern __thread Fiber *F;
extern enum emu_peer   peer_writes; /* emu_set_peer */

[[noreturn]] void die(const char *what); /* names block and thread, aborts */
void              bar_sync(int id, int count);
void              part_sync(int id, int count, bool stay); /* stay: wait for the others */
void              spin();                                  /* in a loop that waits for another block or rank */
/* All lanes of mask meet and leave `size` bytes each, lane l at [l * stride(size)]; the last one runs `last` (may be
 * NULL) over them. They stay until this lane's next collective. */
constexpr size_t stride(size_t size) { return (size + 7) / 8 * 8; }
unsigned char   *collect(kind k, uint32_t mask, const void *v, size_t size, void (*last)(unsigned char *slot));
/* blocks_max: how many of these blocks the device holds at once; a kernel whose blocks wait for each other may have no
 * more */
struct Launch {
    const void           *kernel;
    dim3                  grid, block;
    size_t                smem;
    bool                  pdl;
    uint32_t              cluster; /* blocks, along x; 1: none */
    size_t                blocks_max;
    std::function<void()> body;
};
/* Some blocks of it run up to their pdl_wait; finish runs all to the end, on the same OS thread. */
struct Grid;
bool                  stays(); /* a kernel does not run before what follows it is known, which may begin early */
bool                  begins_early(const Launch &l); /* behind a kernel */
std::shared_ptr<Grid> begin_early(const std::shared_ptr<const Launch> &l);
void                  finish(const std::shared_ptr<const Launch> &l, std::shared_ptr<Grid> begun); /* begun: or NULL */
void                  pdl_wait();
void                  pdl_launch();
/* emu.cc, launch.cc and hopper.cc */
void        open_gate(Block &b); /* the kernel ahead has run */
void        prepare(Block &b);   /* before a block runs */
void        run_block(Block &b); /* until it has ended or is parked */
void        unprepare(Block &b);
void        wait_at(Set &s); /* until go_on(s) */
void        give_way();
void        go_on(Set &s);
bool        hopper_advance(); /* no thread can go on: what was under way has got on */
const char *hopper_stuck();   /* NULL, or what a thread waits for in vain */
const char *hopper_end();     /* NULL, or what the block has left under way */
void        hopper_arrive(uint64_t *bar);
void        hopper_known(uint64_t *bar); /* dies: other blocks of the cluster do not know that it is set up */
void        hopper_met();                /* all threads of the cluster have met at its barrier */
bool        may_park();                  /* when no thread of the block can go on, another block or kernel may help */
void        cluster_stuck();             /* dies when no block of the cluster has got on for long */
void        cluster_got_on();            /* a thread of a block of it goes on */
void       *tensor_encode();             /* cuTensorMapEncodeTiled */
bool        cluster_lets_pass();         /* the other blocks of the cluster go first */
void        cluster_ends();              /* the block has ended */
std::shared_ptr<Cluster>     cluster_of(size_t n); /* blocks, which join one after another */
void                         cluster_join(const std::shared_ptr<Cluster> &c, Block &b);
size_t                       stacks_bytes(size_t n);
char                        *stack_of(char *stacks, size_t i);
extern __thread emu_schedule schedule; /* of the kernel that runs on this OS thread */
/* covered.cc: notes, where somebody asked for it, that a kernel ran under the schedule at hand */
void covered(const void *kernel, const char *mangled, bool pdl, bool early);
/* Gives work to a stream (cudart.cc). func: the kernel, for its attributes. */
void enqueue_kernel(cudaStream_t s, const void *func, dim3 grid, dim3 block, size_t smem, bool pdl, uint32_t cluster,
                    std::function<void()> body);

template <class T> T shfl(uint32_t mask, T v, int src)
{
    static_assert(sizeof(T) <= SLOT, "too large for a shuffle");
    const unsigned char *s = collect(SHFL, mask, &v, sizeof v, NULL);
    T                    r = v;
    if (src >= 0 && src < WARP && (mask >> src & 1)) memcpy((void *)&r, s + (size_t)src * stride(sizeof r), sizeof r);
    return r;
}
/* Arguments are copied at the launch, as the driver does; a captured launch keeps these copies. */
template <class... P, class... A>
void launch_kernel(void (*k)(P...), dim3 grid, dim3 block, size_t smem, cudaStream_t stream, bool pdl, uint32_t cluster,
                   A &&...a)
{
    std::tuple<std::decay_t<P>...> t(static_cast<std::decay_t<P>>(a)...);
    enqueue_kernel(stream, (const void *)k, grid, block, smem, pdl, cluster, [k, t] { std::apply(k, t); });
}
} // namespace emu

#define threadIdx (emu::F->tid)
#define blockIdx  (emu::B->bid)
#define blockDim  (emu::B->dim)
#define gridDim   (emu::B->grid)
static const int warpSize = 32;

static inline void __syncthreads() { emu::bar_sync(0, emu::B->n); }
static inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    int none = 0;
    emu::collect(emu::SYNC, mask, &none, sizeof none, NULL);
}
int __syncthreads_or(int p);
int __syncthreads_and(int p);
int __syncthreads_count(int p);

template <class T> T __shfl_xor_sync(uint32_t m, T v, int x, int w = 32)
{
    int l = emu::F->lane, s = l ^ x;
    return emu::shfl(m, v, s / w == l / w ? s : l);
}
template <class T> T __shfl_down_sync(uint32_t m, T v, unsigned d, int w = 32)
{
    int l = emu::F->lane, s = l + (int)d;
    return emu::shfl(m, v, s / w == l / w ? s : l);
}
template <class T> T __shfl_up_sync(uint32_t m, T v, unsigned d, int w = 32)
{
    int l = emu::F->lane, s = l - (int)d;
    return emu::shfl(m, v, s >= 0 && s / w == l / w ? s : l);
}
template <class T> T __shfl_sync(uint32_t m, T v, int src, int w = 32)
{
    int l = emu::F->lane;
    return emu::shfl(m, v, l / w * w + (src & (w - 1)));
}
static inline uint32_t __ballot_sync(uint32_t m, int p)
{
    int                  q = p != 0, t;
    uint32_t             r = 0;
    const unsigned char *s = emu::collect(emu::VOTE, m, &q, sizeof q, NULL);
    for (int i = 0; i < 32; i++)
        if (m >> i & 1) {
            memcpy(&t, s + (size_t)i * emu::stride(sizeof t), sizeof t);
            r |= (uint32_t)t << i;
        }
    return r;
}
static inline int      __any_sync(uint32_t m, int p) { return __ballot_sync(m, p) != 0; }
static inline int      __all_sync(uint32_t m, int p) { return __ballot_sync(m, p) == m; }
static inline uint32_t __activemask() { emu::die("__activemask says nothing that a kernel may rely on"); }

/* integers over the lanes of a mask */
template <class T, class Op> T emu_reduce(uint32_t m, T v, Op op)
{
    const unsigned char *s = emu::collect(emu::REDUCE, m, &v, sizeof v, NULL);
    T                    r = v, t;
    bool                 first = true;
    for (int i = 0; i < 32; i++)
        if (m >> i & 1) {
            memcpy(&t, s + (size_t)i * emu::stride(sizeof t), sizeof t);
            r = first ? t : op(r, t);
            first = false;
        }
    return r;
}
#define EMU_REDUCE(T)                                                                     \
    static inline T __reduce_add_sync(uint32_t m, T v)                                    \
    {                                                                                     \
        return emu_reduce(m, v, [](T a, T b) { return (T)((uint32_t)a + (uint32_t)b); }); \
    }                                                                                     \
    static inline T __reduce_min_sync(uint32_t m, T v)                                    \
    {                                                                                     \
        return emu_reduce(m, v, [](T a, T b) { return a < b ? a : b; });                  \
    }                                                                                     \
    static inline T __reduce_max_sync(uint32_t m, T v)                                    \
    {                                                                                     \
        return emu_reduce(m, v, [](T a, T b) { return a > b ? a : b; });                  \
    }
EMU_REDUCE(unsigned)
EMU_REDUCE(int)
static inline unsigned __reduce_and_sync(uint32_t m, unsigned v)
{
    return emu_reduce(m, v, [](unsigned a, unsigned b) { return a & b; });
}
static inline unsigned __reduce_or_sync(uint32_t m, unsigned v)
{
    return emu_reduce(m, v, [](unsigned a, unsigned b) { return a | b; });
}
static inline unsigned __reduce_xor_sync(uint32_t m, unsigned v)
{
    return emu_reduce(m, v, [](unsigned a, unsigned b) { return a ^ b; });
}
template <class T> uint32_t __match_any_sync(uint32_t m, T v)
{
    const unsigned char *s = emu::collect(emu::MATCH, m, &v, sizeof v, NULL);
    uint32_t             r = 0;
    for (int i = 0; i < 32; i++)
        if ((m >> i & 1) && !memcmp(s + (size_t)i * emu::stride(sizeof v), &v, sizeof v)) r |= 1u << i;
    return r;
}
