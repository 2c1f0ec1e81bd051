/* emu: fibers for the threads of a block, what they wait at, and the schedules.   See include/emu_kernel.h. */
#include <algorithm>
#include <emu_kernel.h>
#include <random>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
enum { STACK = 256 << 10 };
#else
enum { STACK = 64 << 10 };
#endif
enum { GUARD = 4096, SPIN_SECONDS = 60, SMEM_MAX = 227 << 10 };

namespace emu
{
__thread Block *B;
__thread Fiber *F;
bool            cp_eager;

static emu_schedule schedule = { EMU_IN_ORDER, false, false, 1 };

static __thread void    *main_sp;
static __thread uint64_t last_progress;
static __thread long     idle;    /* switches since a thread last got on             */
static __thread uint64_t n_spin;  /* calls of spin() since then                      */
static __thread time_t   spun_at; /* when it began                                   */
#ifdef EMU_ASAN
static __thread const void *main_stack;
static __thread size_t      main_size;
static __thread void       *main_fake;
#endif

void die(const char *what)
{
    if (B)
        fprintf(stderr, "emu: block (%u,%u,%u) thread %d: %s\n", B->bid.x, B->bid.y, B->bid.z, F ? F->lin : -1, what);
    else
        fprintf(stderr, "emu: %s\n", what);
    abort();
}

/* ---------------------------------------------------------------- switching */

static void entry();

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)
extern "C" void emu_switch(void **save, void *to);
asm(R"(.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
static void prepare(Fiber &f)
{
    uint64_t *s = (uint64_t *)((uintptr_t)(f.stack + STACK) & ~(uintptr_t)63);
    *--s = 0;
    *--s = (uint64_t)(void *)&entry;
    for (int i = 0; i < 6; i++) *--s = 0;
    f.sp = s;
}
static void switch_to(void **save, void *to) { emu_switch(save, to); }
static void unprepare(Fiber &) {}
#else
static void prepare(Fiber &f)
{
    ucontext_t *u = new ucontext_t;
    getcontext(u);
    u->uc_stack.ss_sp = f.stack;
    u->uc_stack.ss_size = STACK;
    u->uc_link = NULL;
    makecontext(u, entry, 0);
    f.sp = u;
}
static void switch_to(void **save, void *to)
{
    if (!*save) *save = new ucontext_t;
    swapcontext((ucontext_t *)*save, (ucontext_t *)to);
}
static void unprepare(Fiber &f)
{
    delete (ucontext_t *)f.sp;
    f.sp = NULL;
}
#endif

/* Begins before a switch, ends after it on the other side: AddressSanitizer must know which stack is in use. */
static void leaving(void **fake, const void *stack, size_t size)
{
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(fake, stack, size);
#else
    (void)fake, (void)stack, (void)size;
#endif
}
static void arrived(void *fake)
{
#ifdef EMU_ASAN
    const void *from;
    size_t      size;
    __sanitizer_finish_switch_fiber(fake, &from, &size);
    if (!main_stack) main_stack = from, main_size = size;
#else
    (void)fake;
#endif
}

static void run(int pos) /* the fiber at this place of the order */
{
    Fiber *me = F;
    B->cur = pos;
    F = &B->f[(size_t)B->order[(size_t)pos]];
    if (F == me) return;
    void *fake = NULL;
    leaving(&fake, F->stack, STACK);
    switch_to(me ? &me->sp : &main_sp, F->sp);
    arrived(fake);
}

static int next_of(bool same_warp)
{
    for (int i = 1; i <= B->n; i++) {
        int          pos = (B->cur + i) % B->n;
        const Fiber &f = B->f[(size_t)B->order[(size_t)pos]];
        if (!f.done && (!same_warp || f.warp == F->warp)) return pos;
    }
    return -1;
}

static void tick()
{
    if (B->progress != last_progress)
        last_progress = B->progress, idle = 0, n_spin = 0;
    else if (++idle > 4000L * B->n + 100000 && !n_spin)
        die("deadlock: no thread can pass its barrier or collective");
}
static void yield()
{
    tick();
    run(next_of(false));
}
static void yield_warp()
{
    tick();
    run(next_of(schedule.greedy));
}

void spin()
{
    struct timespec now;
    if (!B) return;
    if (n_spin++ == 0 || n_spin % 256 == 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (n_spin == 1) spun_at = now.tv_sec;
        if (now.tv_sec - spun_at > SPIN_SECONDS) die("deadlock: a thread has waited for another block or rank for a minute");
    }
    /* Every thread of the block may be waiting for a rank on another OS thread: let that one run. */
    if (n_spin % (uint64_t)B->n == 0) sched_yield();
    run(next_of(false));
}

static void entry()
{
    arrived(F->fake);
    (*B->body)();
    F->done = true;
    B->live--;
    B->progress++;
    void *dead = NULL;
    if (B->live == 0) {
#ifdef EMU_ASAN
        leaving(NULL, main_stack, main_size);
#endif
#if defined(__x86_64__) && !defined(EMU_UCONTEXT)
        switch_to(&dead, main_sp);
#else
        setcontext((ucontext_t *)main_sp);
#endif
    }
    int pos = schedule.greedy ? next_of(true) : -1;
    if (pos < 0) pos = next_of(false);
    Fiber *me = F;
    B->cur = pos;
    F = &B->f[(size_t)B->order[(size_t)pos]];
    leaving(NULL, F->stack, STACK);
    switch_to(&me->sp, F->sp);
    abort();
}

/* ---------------------------------------------------------------- meeting */

void bar_sync(int id, int count)
{
    uint64_t gen = B->gen[id];
    if (++B->arrived[id] == count) {
        B->arrived[id] = 0;
        B->gen[id]++;
        B->progress++;
    } else {
        while (B->gen[id] == gen) yield();
    }
}

unsigned char (*collect(kind k, uint32_t mask, const void *v, size_t size, void (*last)(unsigned char (*slot)[SLOT])))[SLOT]
{
    Warp    &w = B->w[(size_t)F->warp];
    uint64_t gen = w.gen;
    int      p = (int)(gen & 1);
    uint32_t me = 1u << F->lane;
    if (!(mask & me)) die("a lane calls a warp collective with a mask that leaves it out");
    if (!w.arrived[p])
        w.mask = mask, w.kind = k;
    else if (w.mask != mask)
        die("lanes of a warp call a collective with different masks");
    else if (w.kind != k)
        die("lanes of a warp call different collectives");
    if (w.arrived[p] & me) die("a lane arrives twice at a collective");
    memcpy(w.slot[p][F->lane], v, size);
    w.arrived[p] |= me;
    if (w.arrived[p] == mask) {
        if (last) last(w.slot[p]);
        w.arrived[p ^ 1] = 0;
        w.gen++;
        B->progress++;
    } else {
        while (w.gen == gen) yield_warp();
    }
    return w.slot[p];
}

/* ---------------------------------------------------------------- launching */

struct Pool { /* stacks of the threads of a block, each with a guard page below; one pool per OS thread, kept */
    char  *base = NULL;
    size_t n = 0;
    ~Pool() { drop(); }
    void drop()
    {
        if (base) munmap(base, n * (STACK + GUARD));
        base = NULL, n = 0;
    }
    char *stack(size_t i) { return base + i * (STACK + GUARD) + GUARD; }
    void  reserve(size_t want)
    {
        if (want <= n) return;
        drop();
        void *p = mmap(NULL, want * (STACK + GUARD), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) die("no memory for stacks");
        base = (char *)p, n = want;
        for (size_t i = 0; i < n; i++) mprotect(base + i * (STACK + GUARD), GUARD, PROT_NONE);
    }
};

void launch(dim3 grid, dim3 block, size_t smem, bool pdl, const std::function<void()> &body)
{
    static thread_local Pool pool;
    size_t                   n = (size_t)block.x * block.y * block.z;
    if (B) die("a launch within a kernel");
    if (n < 1 || n > 1024 || smem > SMEM_MAX) die("a block of this size was not refused");
    Block blk;
    blk.grid = grid, blk.dim = block, blk.n = (int)n, blk.body = &body;
    blk.f.resize(n);
    blk.w.resize((n + 31) / 32);
    blk.order.resize(n);
    pool.reserve(n);
    /* Exactly as large as asked for, so that AddressSanitizer sees the end. */
    void *dyn = NULL;
    if (posix_memalign(&dyn, 128, smem ? smem : 1)) die("no memory for shared memory");
    blk.dyn = (unsigned char *)dyn;

    std::mt19937        rng(schedule.seed);
    std::vector<size_t> ids((size_t)grid.x * grid.y * grid.z);
    for (size_t i = 0; i < ids.size(); i++) ids[i] = i;
    for (size_t i = 0; i < n; i++) blk.order[i] = (int)i;
    if (schedule.order == EMU_REVERSED) std::reverse(ids.begin(), ids.end()), std::reverse(blk.order.begin(), blk.order.end());
    if (schedule.order == EMU_RANDOM) std::shuffle(ids.begin(), ids.end(), rng);

    B = &blk;
    for (size_t id : ids) {
        blk.bid = uint3{ (unsigned)(id % grid.x), (unsigned)(id / grid.x % grid.y), (unsigned)(id / ((size_t)grid.x * grid.y)) };
        if (smem) memset(blk.dyn, 0xff, smem); /* NaN */
        if (schedule.order == EMU_RANDOM) std::shuffle(blk.order.begin(), blk.order.end(), rng);
        memset(blk.arrived, 0, sizeof blk.arrived);
        memset(blk.gen, 0, sizeof blk.gen);
        for (Warp &w : blk.w) w.arrived[0] = w.arrived[1] = 0, w.gen = 0;
        blk.live = (int)n, blk.progress = 0;
        last_progress = 0, idle = 0, n_spin = 0;
        for (size_t i = 0; i < n; i++) {
            Fiber &f = blk.f[i];
            f.stack = pool.stack(i);
            f.done = f.waited = false;
            f.lin = (int)i, f.lane = (int)(i & 31), f.warp = (int)(i >> 5);
            f.tid = uint3{ (unsigned)(i % block.x), (unsigned)(i / block.x % block.y), (unsigned)(i / ((size_t)block.x * block.y)) };
            f.open.clear();
            f.groups.clear();
            f.fake = NULL;
            prepare(f);
        }
        F = NULL;
        blk.cur = (int)n - 1;
#ifdef EMU_ASAN
        main_stack = NULL;
#endif
        run(0);
        F = NULL;
        bool waited = !pdl;
        for (Fiber &f : blk.f) {
            unprepare(f);
            waited |= f.waited;
            if (!f.open.empty()) die("a thread ends with a cp.async that was not committed");
            for (const std::vector<CpAsync> &g : f.groups)
                if (!g.empty()) die("a thread ends with a cp.async that was not waited for");
        }
        /* The end of a kernel says nothing about the one before it unless somebody waited: transitivity is the kernel's duty. */
        if (!waited) die("launched with programmatic dependency, but no thread of the block calls pdl_wait");
        for (int i = 0; i < BARRIERS; i++)
            if (blk.arrived[i]) die("the block ends with threads at a barrier");
    }
    B = NULL;
    free(dyn);
}
} // namespace emu

/* ---------------------------------------------------------------- barriers with a vote */

static int block_count(int p)
{
    static thread_local int n;
    if (emu::F->lin == 0) n = 0;
    __syncthreads();
    n += p != 0;
    __syncthreads();
    int r = n;
    __syncthreads();
    return r;
}
int __syncthreads_count(int p) { return block_count(p); }
int __syncthreads_or(int p) { return block_count(p) != 0; }
int __syncthreads_and(int p) { return block_count(p) == emu::B->n; }

/* ---------------------------------------------------------------- schedules */

void emu_set_schedule(const struct emu_schedule *s)
{
    static const emu_schedule plain = { EMU_IN_ORDER, false, false, 1 };
    emu::schedule = s ? *s : plain;
    emu::cp_eager = emu::schedule.eager;
}
struct emu_schedule emu_schedule_at(uint32_t i)
{
    return emu_schedule{ (emu_order)(i % EMU_ORDERS), i / EMU_ORDERS % 2 != 0, i / EMU_ORDERS / 2 % 2 != 0, 1 };
}
const char *emu_schedule_name(const struct emu_schedule *s)
{
    static thread_local char name[64];
    static const char *const order[] = { "in order", "reversed", "random" };
    snprintf(name, sizeof name, "%s, %s, %s", order[s->order], s->greedy ? "greedy" : "lockstep", s->eager ? "eager" : "lazy");
    return name;
}
