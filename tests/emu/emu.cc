/* emu: fibers for the threads of a block, and what they wait at.   See include/emu_kernel.h. */
#include <emu_kernel.h>
#include <stdio.h>
#include <ucontext.h>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

/* Built without sanitizers, whatever the rest is built with: this is what a kernel's every shuffle runs through.
 * EMU_ASAN says that the rest has AddressSanitizer, which must be told which stack is in use. */
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK = 256 << 10 };
#else
enum { STACK = 64 << 10 };
#endif
enum { GUARD = 4096, SPIN_ROUNDS = 4, STACK_AHEAD = 4 /* lines of the cache */ };

namespace emu
{
__thread Block *B;
__thread Fiber *F;
enum emu_peer   peer_writes;

__thread emu_schedule schedule = { EMU_IN_ORDER, false, false, 1, false };

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

extern "C" void emu_entry(void);

/* Where the stack of thread i begins: not at the same place of a page for all, or they would fight for the same lines
 * of the cache. */
static char *top_of(const Fiber &f) { return f.stack + STACK - 64 - 64 * (size_t)((f.lin + f.lin / 32 * 2) % 64); }

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)
/* No call and no return, so that the processor's own stack of returns stays right: who comes back returns to where all
 * others do. */
static inline __attribute__((always_inline)) void switch_to(void **save, void *to)
{
    asm volatile("leaq -128(%%rsp), %%rsp\n\t"
                 "pushq %%rbp\n\t"
                 "leaq 1f(%%rip), %%rcx\n\t"
                 "pushq %%rcx\n\t"
                 "movq %%rsp, (%%rdi)\n\t"
                 "movq %%rsi, %%rsp\n\t"
                 "popq %%rcx\n\t"
                 "jmpq *%%rcx\n"
                 "1:\n\t"
                 "popq %%rbp\n\t"
                 "leaq 128(%%rsp), %%rsp"
                 : "+D"(save), "+S"(to)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
                   "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                   "xmm14", "xmm15", "cc", "memory");
}
asm(R"(.text
.type emu_begin,@function
emu_begin:
  xorl %ebp,%ebp
  jmp emu_entry
)");
extern "C" __attribute__((visibility("hidden"))) void emu_begin(void);
static void                                           prepare_fiber(Fiber &f)
{
    uint64_t *s = (uint64_t *)(void *)top_of(f);
    *--s = 0;
    *--s = (uint64_t)(void *)&emu_begin;
    f.sp = s;
}
static void unprepare_fiber(Fiber &) {}
#else
static void prepare_fiber(Fiber &f)
{
    ucontext_t *u = new ucontext_t;
    getcontext(u);
    u->uc_stack.ss_sp = f.stack;
    u->uc_stack.ss_size = (size_t)(top_of(f) - f.stack);
    u->uc_link = NULL;
    makecontext(u, emu_entry, 0);
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
    /* Most often the thread behind this one comes next, and its stack lies in a page that no cache has. */
    const Fiber &behind = B->f[(size_t)B->order[(size_t)(pos + 1 < B->n ? pos + 1 : 0)]];
    for (int i = 0; i < STACK_AHEAD; i++) __builtin_prefetch((const char *)behind.sp + 64 * i);
    void *fake = NULL;
    leaving(&fake, F->stack, STACK);
    switch_to(me ? &me->sp : &main_sp, F->sp);
    arrived(fake);
}

static void add(Set &s, int pos) { s.at[pos >> 6] |= 1ull << (pos & 63); }
static void drop(Set &s, int pos) { s.at[pos >> 6] &= ~(1ull << (pos & 63)); }

/* Whose turn is next: behind the one that runs, among those that can go on; -1: none can. */
static int next_of(const Set *among)
{
    const Block &b = *B;
    int          start = b.cur + 1 < b.words * 64 ? b.cur + 1 : 0, word = start >> 6;
    uint64_t     from = ~0ull << (start & 63), x = b.ready.at[word] & from;
    if (among) x &= among->at[word];
    for (int i = 0; !x; i++) { /* the first word once more, for what lies before `start` */
        if (i == b.words) return -1;
        word = word + 1 < b.words ? word + 1 : 0;
        x = b.ready.at[word] & (among ? among->at[word] : ~0ull);
    }
    return word * 64 + __builtin_ctzll(x);
}
/* The same, when those who gave way go on, and copies that threads wait for have come. */
static int next_of_all()
{
    int  pos = next_of(NULL);
    bool some = false;
    for (int i = 0; i < B->words && pos < 0; i++) some |= B->giving_way.at[i] != 0;
    if (some) {
        go_on(B->giving_way);
        pos = next_of(NULL);
    }
    while (pos < 0 && hopper_advance()) pos = next_of(NULL);
    return pos;
}
static int next_or_die(bool same_warp)
{
    int pos = same_warp ? next_of(&B->w[(size_t)F->warp].member) : -1;
    if (pos < 0) pos = next_of_all();
    if (pos >= 0) return pos;
    const char *why = hopper_stuck();
    die(why ? why : "deadlock: no thread can pass its barrier or collective");
}
static bool has(const Set &s, int pos) { return s.at[pos >> 6] >> (pos & 63) & 1; }
static void park();
static void wait(Set &s, bool same_warp) /* until those in s may go on */
{
    int me = B->cur;
    drop(B->ready, me);
    add(s, me);
    while (may_park() && next_of_all() < 0) {
        cluster_stuck();
        park();
        if (has(B->ready, me)) return;
    }
    run(next_or_die(same_warp && schedule.greedy));
}
void wait_at(Set &s) { wait(s, false); }
void go_on(Set &s)
{
    for (int i = 0; i < B->words; i++) B->ready.at[i] |= s.at[i], s.at[i] = 0;
    B->progress++;
    cluster_got_on();
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
/* Back to who runs the block, who comes again later. */
static void park()
{
    Fiber *me = F;
    void  *fake = NULL;
    B->parked = true;
    leave_to_main(me, &fake);
    arrived(fake);
}
/* All others go first, as far as they can; not in a greedy schedule. Blocks of a cluster run ahead of each other: which of
 * them let the others go first here is another one in each order. */
void give_way()
{
    if (!B->early && cluster_lets_pass() && may_park()) {
        B->progress++;
        cluster_got_on();
        park();
    }
    if (!schedule.greedy) wait(B->giving_way, false);
}
/* The block has gone round often enough: another block, or a rank on another OS thread, must do something first. */
void spin()
{
    if (!B) return;
    if (B->progress != B->seen) B->seen = B->progress, B->spins = 0;
    if (++B->spins % (SPIN_ROUNDS * (long)B->n) == 0 && !hopper_advance()) {
        cluster_got_on();
        park();
    } else
        run(next_or_die(false));
}

void pdl_wait()
{
    if (B->early) wait(B->at_wait, false);
    F->waited = true;
}
/* The next kernel may begin when all threads have come here or ended, whatever the one ahead does: so nobody comes here
 * before his wait. */
void pdl_launch()
{
    if (B->pdl && !F->waited) die("pdl_launch before pdl_wait");
}
void open_gate(Block &b)
{
    B = &b;
    b.early = false;
    go_on(b.at_wait);
    B = NULL;
}

extern "C" void emu_entry(void)
{
    arrived(NULL);
    (*B->body)();
    drop(B->ready, B->cur);
    B->live--;
    B->progress++;
    if (B->live == 0) leave_to_main(F, NULL);
    Fiber *me = F;
    if (may_park() && next_of_all() < 0) {
        B->cur = -1;
        B->parked = true;
        leave_to_main(me, NULL);
    }
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
    b.words = (b.n + 63) / 64;
    memset(b.arrived, 0, sizeof b.arrived);
    memset(b.waiting, 0, sizeof b.waiting);
    memset(&b.ready, 0, sizeof b.ready);
    memset(&b.at_wait, 0, sizeof b.at_wait);
    memset(&b.giving_way, 0, sizeof b.giving_way);
    memset(&b.at_cluster, 0, sizeof b.at_cluster);
    for (Warp &w : b.w) w.n_meet = 0, memset(&w.member, 0, sizeof w.member);
    for (int pos = 0; pos < b.n; pos++) add(b.ready, pos), add(b.w[(size_t)b.order[(size_t)pos] / WARP].member, pos);
    b.live = b.n, b.cur = -1, b.parked = b.early = false;
    b.dyn_at = 1024 + 128;
    b.hopper.reset();
    b.progress = b.seen = 0, b.spins = 0;
    uint3 tid = { 0, 0, 0 };
    for (size_t i = 0; i < (size_t)b.n; i++) {
        Fiber &f = b.f[i];
        f.stack = stack_of(b.stacks, i);
        f.waited = false;
        f.lin = (int)i, f.lane = (int)(i & 31), f.warp = (int)(i >> 5);
        f.tid = tid;
        if (++tid.x == b.dim.x) tid.x = 0, tid.y++;
        if (tid.y == b.dim.y) tid.y = 0, tid.z++;
        f.cp.copy.clear(), f.cp.end.clear();
        f.cp.first_copy = f.cp.first_group = 0;
        f.sp = NULL;
        prepare_fiber(f); /* what ran there before has returned, so nothing of it is poisoned for AddressSanitizer */
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
    if (b.cur < 0 && may_park() && next_of_all() < 0) { /* who ran last has ended */
        cluster_stuck();
        b.parked = true;
    } else {
        run(b.cur < 0 ? next_or_die(false) : b.cur);
    }
    F = NULL;
    B = NULL;
}
void unprepare(Block &b)
{
    for (int i = 0; i < b.n; i++) unprepare_fiber(b.f[(size_t)i]);
}

/* ---------------------------------------------------------------- meeting */

void bar_sync(int id, int count)
{
    if (++B->arrived[id] < count) {
        wait(B->waiting[id], false);
        return;
    }
    B->arrived[id] = 0;
    go_on(B->waiting[id]);
}

void part_sync(int id, int count, bool stay)
{
    if (id < 0 || id >= BARRIERS) die("a barrier's number is not 0..15");
    if (count < WARP || count % WARP || count > B->n) die("a barrier of threads that are not whole warps of the block");
    if (B->arrived[id] && B->count[id] != count) die("threads give a barrier different counts");
    B->count[id] = count;
    if (stay) {
        bar_sync(id, count);
    } else if (++B->arrived[id] == count) {
        B->arrived[id] = 0;
        go_on(B->waiting[id]);
    }
}

static Meet &meet_of(uint32_t mask)
{
    Warp &w = B->w[(size_t)F->warp];
    for (size_t i = 0; i < w.n_meet; i++)
        if (w.meet[i]->mask == mask) return *w.meet[i];
    if (w.n_meet == w.meet.size()) w.meet.emplace_back(new Meet());
    Meet &m = *w.meet[w.n_meet++];
    m.mask = mask, m.arrived[0] = m.arrived[1] = m.turn = 0;
    memset(&m.waiting, 0, sizeof m.waiting);
    return m;
}
static inline void put(unsigned char *slot, const void *v, size_t size)
{
    switch (size) { /* copies that the compiler knows the size of */
    case 4: memcpy(slot, v, 4); break;
    case 8: memcpy(slot, v, 8); break;
    case SLOT: memcpy(slot, v, SLOT); break;
    default: memcpy(slot, v, size); break;
    }
}
unsigned char *collect(kind k, uint32_t mask, const void *v, size_t size, void (*last)(unsigned char *slot))
{
    uint32_t me = 1u << F->lane;
    if (!(mask & me)) die("a lane calls a warp collective with a mask that leaves it out");
    Meet          &w = meet_of(mask);
    uint32_t       p = w.turn & 1;
    unsigned char *slot = w.slot[p];
    if (!w.arrived[p])
        w.kind = k, w.size = size;
    else if (w.kind != k || w.size != size)
        die("lanes of a warp call different collectives");
    if (w.arrived[p] & me) die("a lane arrives twice at a collective");
    put(slot + (size_t)F->lane * stride(size), v, size);
    w.arrived[p] |= me;
    if (w.arrived[p] != mask) {
        wait(w.waiting, true);
    } else {
        if (last) last(slot);
        w.arrived[p ^ 1] = 0;
        w.turn++;
        go_on(w.waiting);
    }
    return slot;
}

/* ---------------------------------------------------------------- the product of a warp */

static inline float of_bf16(uint32_t h) { return __uint_as_float(h << 16); }
static inline float of_f16(uint32_t h) { return __half2float(__half{ (unsigned short)h }); }

/* Products of two 16-bit floats are exact in float, so each step rounds once, as a fused multiply-add would. */
template <float (*number)(uint32_t)> static void mma_16816(unsigned char *slot)
{
    float    a[16][16], b[16][8], c[16][8];
    uint32_t w[6];
    float    v[4];
    for (int l = 0; l < WARP; l++) {
        int g = l >> 2, t = l & 3;
        memcpy(w, slot + l * SLOT, sizeof w);
        memcpy(v, slot + l * SLOT + sizeof w, sizeof v);
        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < 4; r++) a[g + (r & 1) * 8][t * 2 + i + (r >> 1) * 8] = number(w[r] >> 16 * i & 0xffffu);
            for (int r = 0; r < 2; r++) b[t * 2 + i + r * 8][g] = number(w[4 + r] >> 16 * i & 0xffffu);
        }
        for (int i = 0; i < 4; i++) c[g + (i >> 1) * 8][t * 2 + (i & 1)] = v[i];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++) c[m][n] += a[m][k] * b[k][n];
    for (int l = 0; l < WARP; l++) {
        int g = l >> 2, t = l & 3;
        for (int i = 0; i < 4; i++) v[i] = c[g + (i >> 1) * 8][t * 2 + (i & 1)];
        memcpy(slot + l * SLOT + sizeof w, v, sizeof v);
    }
}
void mma_bf16(unsigned char *slot) { mma_16816<of_bf16>(slot); }
void mma_f16(unsigned char *slot) { mma_16816<of_f16>(slot); }
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
