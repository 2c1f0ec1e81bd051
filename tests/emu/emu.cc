/* emu: fibers for the threads of a block, and what they wait at.   See include/emu_kernel.h. */
#include <emu_kernel.h>
#include <stdio.h>
#include <ucontext.h>
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
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK = 256 << 10 };
#else
enum { STACK = 64 << 10 };
#endif
enum { GUARD = 4096, SPIN_ROUNDS = 4 };

namespace emu
{
__thread Block *B;
__thread Fiber *F;
bool            cp_eager;

emu_schedule schedule = { EMU_IN_ORDER, false, false, 1 };

static __thread void *main_sp;
#ifdef EMU_ASAN
static __thread const void *main_stack;
static __thread size_t      main_size;
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
static void prepare_fiber(Fiber &f)
{
    uint64_t *s = (uint64_t *)((uintptr_t)(f.stack + STACK) & ~(uintptr_t)63);
    *--s = 0;
    *--s = (uint64_t)(void *)&entry;
    for (int i = 0; i < 6; i++) *--s = 0;
    f.sp = s;
}
static void switch_to(void **save, void *to) { emu_switch(save, to); }
static void unprepare_fiber(Fiber &) {}
#else
static void prepare_fiber(Fiber &f)
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
static void unprepare_fiber(Fiber &f)
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

/* Whose turn is next: behind the one that runs, among those that can go on; -1: none can. */
static int next_of(bool same_warp)
{
    int pos = B->cur;
    for (int i = 0; i < B->n; i++) {
        if (++pos >= B->n) pos = 0;
        const Fiber &f = B->f[(size_t)B->order[(size_t)pos]];
        if (!f.done && (!f.wait || *f.wait != f.wait_gen) && (!same_warp || f.warp == F->warp)) return pos;
    }
    return -1;
}
static int next_or_die(bool same_warp)
{
    int pos = same_warp ? next_of(true) : -1;
    if (pos < 0) pos = next_of(false);
    if (pos < 0) die("deadlock: no thread can pass its barrier or collective");
    return pos;
}
/* until *gen is no longer what it was */
static void wait(const uint64_t *gen, bool same_warp)
{
    F->wait = gen, F->wait_gen = *gen;
    run(next_or_die(same_warp && schedule.greedy));
    F->wait = NULL;
}

static void leave_to_main(Fiber *me, void **fake)
{
#ifdef EMU_ASAN
    leaving(fake, main_stack, main_size);
#else
    (void)fake;
#endif
    switch_to(&me->sp, main_sp);
}
/* The block has gone round often enough: another block, or a rank on another OS thread, must do something first. */
void spin()
{
    if (!B) return;
    if (B->progress != B->seen) B->seen = B->progress, B->spins = 0;
    if (++B->spins % (SPIN_ROUNDS * (long)B->n) == 0) {
        Fiber *me = F;
        void  *fake = NULL;
        B->parked = true;
        leave_to_main(me, &fake);
        arrived(fake);
        return;
    }
    run(next_or_die(false));
}

static void entry()
{
    arrived(NULL);
    (*B->body)();
    F->done = true;
    B->live--;
    B->progress++;
    if (B->live == 0) leave_to_main(F, NULL);
    Fiber *me = F;
    B->cur = next_or_die(schedule.greedy);
    F = &B->f[(size_t)B->order[(size_t)B->cur]];
    leaving(NULL, F->stack, STACK);
    switch_to(&me->sp, F->sp);
    abort();
}

/* ---------------------------------------------------------------- blocks */

size_t stacks_bytes(size_t n) { return n * (STACK + GUARD); }
char  *stack_of(char *stacks, size_t i) { return stacks + i * (STACK + GUARD) + GUARD; } /* the guard lies below */

void prepare(Block &b)
{
    for (Warp &w : b.w) w.meet.clear();
    memset(b.arrived, 0, sizeof b.arrived);
    memset(b.gen, 0, sizeof b.gen);
    b.live = b.n, b.cur = -1, b.parked = false;
    b.progress = b.seen = 0, b.spins = 0;
    for (size_t i = 0; i < (size_t)b.n; i++) {
        Fiber &f = b.f[i];
        f.stack = stack_of(b.stacks, i);
        f.done = f.waited = false;
        f.lin = (int)i, f.lane = (int)(i & 31), f.warp = (int)(i >> 5);
        f.tid = uint3{ (unsigned)(i % b.dim.x), (unsigned)(i / b.dim.x % b.dim.y), (unsigned)(i / ((size_t)b.dim.x * b.dim.y)) };
        f.open.clear();
        f.groups.clear();
        f.sp = NULL, f.wait = NULL;
#ifdef EMU_ASAN
        __asan_unpoison_memory_region(f.stack, STACK); /* the last frames of the fiber before */
#endif
        prepare_fiber(f);
    }
}
void run_block(Block &b)
{
    B = &b;
    b.parked = false;
    F = NULL;
#ifdef EMU_ASAN
    main_stack = NULL;
#endif
    run(b.cur < 0 ? 0 : b.cur);
    F = NULL;
    B = NULL;
}
void unprepare(Block &b)
{
    for (Fiber &f : b.f) unprepare_fiber(f);
}

/* ---------------------------------------------------------------- meeting */

void bar_sync(int id, int count)
{
    if (++B->arrived[id] < count) {
        wait(&B->gen[id], false);
        return;
    }
    B->arrived[id] = 0;
    B->gen[id]++;
    B->progress++;
}

static Meet &meet_of(uint32_t mask)
{
    Warp &w = B->w[(size_t)F->warp];
    for (std::unique_ptr<Meet> &m : w.meet)
        if (m->mask == mask) return *m;
    w.meet.emplace_back(new Meet());
    w.meet.back()->mask = mask;
    return *w.meet.back();
}
unsigned char (*collect(kind k, uint32_t mask, const void *v, size_t size, void (*last)(unsigned char (*slot)[SLOT])))[SLOT]
{
    uint32_t me = 1u << F->lane;
    if (!(mask & me)) die("a lane calls a warp collective with a mask that leaves it out");
    Meet &w = meet_of(mask);
    int   p = (int)(w.gen & 1);
    if (!w.arrived[p])
        w.kind = k;
    else if (w.kind != k)
        die("lanes of a warp call different collectives");
    if (w.arrived[p] & me) die("a lane arrives twice at a collective");
    memcpy(w.slot[p][F->lane], v, size);
    w.arrived[p] |= me;
    if (w.arrived[p] != mask) {
        wait(&w.gen, true);
    } else {
        if (last) last(w.slot[p]);
        w.arrived[p ^ 1] = 0;
        w.gen++;
        B->progress++;
    }
    return w.slot[p];
}
} // namespace emu

/* ---------------------------------------------------------------- barriers with a vote */

static int block_count(int p)
{
    __shared__ int n;
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
