/* launch: the blocks of a kernel, one after another on the OS thread that launches, or in turns where they wait for
 * each other. See include/emu_kernel.h. */
#include <algorithm>
#include <cxxabi.h>
#include <deque>
#include <elf.h>
#include <emu_kernel.h>
#include <fcntl.h>
#include <link.h>
#include <memory>
#include <mutex>
#include <random>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <string>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <unordered_map>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emu
{
enum { SMEM_MAX = 227 << 10, SPIN_SECONDS = 60, GUARD = 4096 };

/* ---------------------------------------------------------------- __shared__ variables */

/* A __shared__ variable is a thread_local of a function: in the program's symbol table a TLS object whose name begins
 * with _ZZ (a C++ name within a function). They are one per OS thread, so a block that is parked takes their contents
 * along. In a stripped program none are found: then they are not poisoned, and blocks that wait for each other must not
 * use any.
 * A kernel's are those of its own name, and those of the functions that are no kernels (whose names begin with k_): but
 * where such a function was made for one kernel, which hands it pieces of its own code, that kernel's alone. Without that
 * each block would be given the megabytes of all. */
struct Var {
    size_t at, size; /* in the thread's TLS block of the program */
};
struct Symbols {
    struct Shared {
        std::string function; /* mangled, without _Z */
        std::string made_for; /* its name as people read it, where a kernel is part of that; else empty */
        Var         var;
    };
    std::vector<Shared>                                shared;
    std::unordered_map<uintptr_t, std::string>         function; /* k_ ones, by address: mangled, without _Z */
    std::unordered_map<const void *, std::vector<Var>> of;       /* of the kernels asked for so far */
    std::mutex                                         m;
    Symbols()
    {
        int         fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        struct stat st;
        if (fd < 0) return;
        void *map = fstat(fd, &st) == 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
        close(fd);
        if (map == MAP_FAILED) return;
        const char *file = (const char *)map;
        const ElfW(Ehdr) *eh = (const ElfW(Ehdr) *)map;
        const ElfW(Shdr) *sh = (const ElfW(Shdr) *)(const void *)(file + eh->e_shoff);
        uintptr_t base = 0;
        dl_iterate_phdr(load_address, &base);
        for (int i = 0; i < eh->e_shnum; i++) {
            if (sh[i].sh_type != SHT_SYMTAB) continue;
            const ElfW(Sym) *sym = (const ElfW(Sym) *)(const void *)(file + sh[i].sh_offset);
            const char *names = file + sh[sh[i].sh_link].sh_offset;
            for (size_t j = 0; j < sh[i].sh_size / sizeof *sym; j++) {
                const char *name = names + sym[j].st_name;
                if (sym[j].st_shndx == SHN_UNDEF) continue;
                if ((sym[j].st_info & 15) == STT_TLS && !strncmp(name, "_ZZ", 3))
                    shared.push_back({ name + 3, made_for(name), { sym[j].st_value, sym[j].st_size } });
                else if ((sym[j].st_info & 15) == STT_FUNC && is_kernel(name + 2))
                    function[base + sym[j].st_value] = name + 2;
            }
        }
        munmap(map, (size_t)st.st_size);
    }
    static int load_address(struct dl_phdr_info *info, size_t, void *out) /* the program itself comes first */
    {
        *(uintptr_t *)out = info->dlpi_addr;
        return 1;
    }
    const char *name_of(const void *kernel) const
    {
        auto f = function.find((uintptr_t)kernel);
        return f == function.end() ? NULL : f->second.c_str();
    }
    static std::string readable(const std::string &mangled)
    {
        int                                     status;
        std::unique_ptr<char, void (*)(void *)> text(abi::__cxa_demangle(mangled.c_str(), NULL, NULL, &status), free);
        return text ? text.get() : "";
    }
    static std::string made_for(const char *mangled)
    {
        if (is_kernel(mangled + 3)) return "";
        std::string text = readable(mangled);
        return text.find("<k_") == std::string::npos && text.find(" k_") == std::string::npos ? "" : text;
    }
    /* mangled: of a kernel, without _Z */
    static bool uses(const std::string &kernel, const Shared &s)
    {
        if (is_kernel(s.function.c_str())) return !s.function.compare(0, kernel.size(), kernel);
        if (s.made_for.empty()) return true;
        std::string name = readable("_Z" + kernel);
        size_t      begin = name.find("k_");
        return begin == std::string::npos || s.made_for.find(name.substr(begin)) != std::string::npos;
    }
    static bool is_kernel(const char *mangled) { return !strncmp(mangled + strspn(mangled, "L0123456789"), "k_", 2); }
    const std::vector<Var> &vars_of(const void *kernel)
    {
        std::lock_guard<std::mutex> g(m);
        auto                        known = of.find(kernel);
        if (known != of.end()) return known->second;
        auto              f = function.find((uintptr_t)kernel);
        std::vector<Var> &v = of[kernel];
        for (const Shared &s : shared)
            if (f == function.end() || uses(f->second, s)) v.push_back(s.var);
        return v; /* stays where it is when the map grows */
    }
};
static char *tls_block()
{
    char *b = NULL;
    dl_iterate_phdr(
        [](struct dl_phdr_info *info, size_t, void *out) {
            *(char **)out = (char *)info->dlpi_tls_data;
            return 1;
        },
        &b);
    return b;
}
static void poison(char *tls, const std::vector<Var> &vars)
{
    for (const Var &v : vars) memset(tls + v.at, 0xff, v.size);
}
static void save(char *tls, const std::vector<Var> &vars, std::vector<unsigned char> *to)
{
    to->clear();
    for (const Var &v : vars) to->insert(to->end(), (unsigned char *)tls + v.at, (unsigned char *)tls + v.at + v.size);
}
static void restore(char *tls, const std::vector<Var> &vars, const std::vector<unsigned char> &from)
{
    const unsigned char *p = from.data();
    for (const Var &v : vars) memcpy(tls + v.at, p, v.size), p += v.size;
}

/* ---------------------------------------------------------------- the grid */

struct Live { /* what a block needs while it lives; kept for the next ones of this OS thread */
    Block  b;
    size_t cap; /* threads */
    explicit Live(size_t n) : cap(n)
    {
        void *p =
            mmap(NULL, stacks_bytes(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) die("no memory for stacks");
        for (size_t i = 0; i < n; i++) mprotect(stack_of((char *)p, i) - GUARD, GUARD, PROT_NONE);
        b.stacks = (char *)p;
        b.f.resize(n);
        b.dyn = NULL, b.dyn_bytes = 0;
    }
    ~Live()
    {
        free(b.dyn);
        munmap(b.stacks, stacks_bytes(cap));
    }
    void begin(dim3 grid, dim3 block, size_t n, size_t smem, const std::function<void()> *body)
    {
        b.grid = grid, b.dim = block, b.n = (int)n, b.body = body;
        b.w.resize((n + WARP - 1) / WARP);
        b.order.resize(n);
        b.statics.clear();
        /* Exactly as large as asked for, so that AddressSanitizer sees the end. */
        if (b.dyn && b.dyn_bytes == smem) return;
        void *dyn = NULL;
        free(b.dyn);
        if (posix_memalign(&dyn, 128, smem ? smem : 1)) die("no memory for shared memory");
        b.dyn = (unsigned char *)dyn, b.dyn_bytes = smem;
    }
};
/* How many threads begin early, a block at least, and how many stacks are kept for the next blocks: each is two
 * mappings, of which a process has 65530. */
enum { EARLY_THREADS = 4096, KEPT_MAX = 2 * EARLY_THREADS };
static thread_local std::vector<std::unique_ptr<Live>> lives;
static thread_local size_t                             kept; /* stacks of lives */

static std::unique_ptr<Live> take(size_t n)
{
    for (size_t i = lives.size(); i-- > 0;) {
        if (lives[i]->cap != n) continue;
        std::unique_ptr<Live> l = std::move(lives[i]);
        lives.erase(lives.begin() + (ptrdiff_t)i);
        kept -= n;
        return l;
    }
    return std::unique_ptr<Live>(new Live(n));
}
static void keep(std::unique_ptr<Live> l)
{
    kept += l->cap;
    lives.push_back(std::move(l));
    for (; kept > KEPT_MAX; lives.erase(lives.begin())) kept -= lives.front()->cap;
}

static void check_end(const Block &b, bool pdl)
{
    bool waited = !pdl;
    B = const_cast<Block *>(&b); /* for die */
    for (int i = 0; i < b.n; i++) {
        const Fiber &f = b.f[(size_t)i];
        waited |= f.waited;
        if (f.cp.copy.size() > (f.cp.end.empty() ? 0 : f.cp.end.back()))
            die("a thread ends with a cp.async that was not committed");
        if (!f.cp.idle()) die("a thread ends with a cp.async that was not waited for");
    }
    /* The end of a kernel says nothing about the one before it unless somebody waited: transitivity is the kernel's
     * duty. */
    if (!waited) die("launched with programmatic dependency, but no thread of the block calls pdl_wait");
    for (const Warp &w : b.w)
        for (size_t i = 0; i < w.n_meet; i++)
            if (w.meet[i]->arrived[w.meet[i]->turn & 1]) die("the block ends with lanes at a collective");
    for (int i = 0; i < BARRIERS; i++)
        if (b.arrived[i]) die("the block ends with threads at a barrier");
    cluster_ends();
    if (const char *left = hopper_end()) die(left);
    B = NULL;
}

static double seconds()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Symbols &symbols()
{
    static Symbols s;
    return s;
}

/* ---------------------------------------------------------------- whose turn it is */

static emu_schedule fixed = { EMU_IN_ORDER, false, false, 1, false };
static bool         is_set; /* emu_set_schedule: else turns */
static emu_turns    turns = EMU_STILL;
/* Of a kernel, on this OS thread. */
struct Turn {
    unsigned had = 0; /* which of the four this round had */
    uint32_t n = 0;   /* launches */
};
static thread_local std::unordered_map<const void *, Turn> turn_of;
enum { FOUR = 4, BESIDE_EARLY = 7, BY_TURNS_EARLY = 8 /* sets of the four: bits */ };

/* One of `may` that this round has not had, in an order that looks random and is the same in each run. */
static unsigned turn_next(const Turn &t, unsigned may)
{
    unsigned left = may & ~t.had ? may & ~t.had : may;
    unsigned skip = (t.n * 2654435761u >> 16) % (unsigned)__builtin_popcount(left);
    for (; skip; skip--) left &= left - 1;
    return (unsigned)__builtin_ctz(left);
}
/* Of the schedules that begin early it is another each round. */
static emu_schedule turn_take(const void *kernel, unsigned may)
{
    if (is_set || turns == EMU_STILL) return fixed;
    Turn    &t = turn_of[kernel];
    unsigned at = turn_next(t, may);
    t.had = may & ~t.had ? t.had | 1u << at : 1u << at;
    emu_schedule s = emu_schedule_at(at * FOUR + (1u << at == BY_TURNS_EARLY ? t.n % EMU_ORDERS : 0));
    s.seed = ++t.n;
    return s;
}
bool stays() { return is_set ? fixed.early : turns == EMU_TURNS_EARLY; }
bool begins_early(const Launch &l)
{
    if (!l.pdl || !stays()) return false;
    return is_set || 1u << turn_next(turn_of[l.kernel], BESIDE_EARLY | BY_TURNS_EARLY) == BY_TURNS_EARLY;
}

/* A kernel that runs. */
struct Grid {
    emu_schedule                      how;
    std::shared_ptr<const Launch>     l;
    size_t                            n; /* threads of a block */
    const std::vector<Var>           &vars;
    char                             *tls; /* of the one OS thread that runs it */
    std::mt19937                      rng;
    std::vector<size_t>               ids; /* of clusters, each of l->cluster blocks */
    size_t                            next = 0;
    std::deque<std::unique_ptr<Live>> parked;

    Grid(const std::shared_ptr<const Launch> &of, bool begins)
        : how(turn_take(of->kernel, begins ? BESIDE_EARLY | BY_TURNS_EARLY : BESIDE_EARLY)), l(of),
          n((size_t)of->block.x * of->block.y * of->block.z), vars(symbols().vars_of(of->kernel)), tls(tls_block()),
          rng(how.seed), ids((size_t)of->grid.x * of->grid.y * of->grid.z / of->cluster)
    {
        if (B) die("a launch within a kernel");
        if (n < 1 || n > 1024 || l->smem > SMEM_MAX) die("a block of this size was not refused");
        schedule = how;
        in_order(ids);
        covered(l->kernel, symbols().name_of(l->kernel), l->pdl, false);
    }
    template <class T> void in_order(std::vector<T> &v) /* 0 and up, as the schedule has it */
    {
        for (size_t i = 0; i < v.size(); i++) v[i] = (T)i;
        if (schedule.order == EMU_REVERSED) std::reverse(v.begin(), v.end());
        if (schedule.order == EMU_RANDOM) std::shuffle(v.begin(), v.end(), rng);
    }
    std::unique_ptr<Live> begin(size_t id)
    {
        std::unique_ptr<Live> live = take(n);
        live->begin(l->grid, l->block, n, l->smem, &l->body);
        Block &b = live->b;
        b.bid = uint3{ (unsigned)(id % l->grid.x), (unsigned)(id / l->grid.x % l->grid.y),
                       (unsigned)(id / ((size_t)l->grid.x * l->grid.y)) };
        in_order(b.order);
        if (l->smem) memset(b.dyn, 0xff, l->smem); /* NaN */
        poison(tls, vars);
        prepare(b);
        b.pdl = l->pdl;
        return live;
    }
    /* The next block; the others of its cluster, which are on the device from the same moment on, are parked. */
    std::unique_ptr<Live> take_next()
    {
        const size_t cluster = l->cluster, id = ids[next++] * cluster;
        if (cluster == 1) return begin(id);
        std::vector<uint32_t> rank(cluster);
        std::unique_ptr<Live> first;
        auto                  c = cluster_of(cluster);
        in_order(rank);
        for (size_t i = 0; i < cluster; i++) {
            std::unique_ptr<Live> live = begin(id + rank[i]);
            live->b.rank = rank[i];
            cluster_join(c, live->b);
            save(tls, vars, &live->b.statics);
            if (i)
                parked.push_back(std::move(live));
            else
                first = std::move(live);
        }
        return first;
    }
    std::unique_ptr<Live> take_parked(size_t at)
    {
        std::unique_ptr<Live> live = std::move(parked[at]);
        parked.erase(parked.begin() + (ptrdiff_t)at);
        if (!live->b.statics.empty()) restore(tls, vars, live->b.statics);
        return live;
    }
    /* Runs it as far as it gets; true: to its end. */
    bool go(std::unique_ptr<Live> live)
    {
        run_block(live->b);
        if (live->b.parked) {
            save(tls, vars, &live->b.statics);
            parked.push_back(std::move(live));
            return false;
        }
        check_end(live->b, l->pdl);
        unprepare(live->b);
        keep(std::move(live));
        return true;
    }
    void early()
    {
        const size_t most = std::min(l->blocks_max, std::max<size_t>(EARLY_THREADS / n, 1));
        while (next < ids.size() && parked.size() < most) {
            const size_t          before = parked.size();
            std::unique_ptr<Live> live = take_next();
            live->b.early = true;
            for (size_t i = before; i < parked.size(); i++) parked[i]->b.early = true;
            go(std::move(live));
            /* Blocks of a cluster may wait for each other once, ahead of their pdl_wait. */
            for (size_t i = 0; i < 2 * (l->cluster - 1); i++) go(take_parked(before));
        }
        covered(l->kernel, symbols().name_of(l->kernel), l->pdl, true);
    }
    void finish()
    {
        bool stuck = false; /* the last block that ran could only wait */
        /* Who waits for a block of his own cluster waits for one that is there. */
        auto     others_help = [&](uint64_t tried) { return l->cluster == 1 ? stuck : tried > parked.size(); };
        uint64_t moved = 1, tries = 0;
        double   since = 0;
        schedule = how;
        if (tls != tls_block()) die("a kernel that began early is waited for by another OS thread");
        for (auto &live : parked) open_gate(live->b);
        while (next < ids.size() || !parked.empty()) {
            std::unique_ptr<Live> live;
            if (next < ids.size() &&
                (parked.empty() || (others_help(tries) && parked.size() + l->cluster <= l->blocks_max)))
                live = take_next();
            else
                live = take_parked(0);
            Block   &b = live->b; /* where it is, whoever holds it */
            uint64_t before = b.progress;
            stuck = !go(std::move(live));
            moved += b.progress - before + !stuck;
            if (!stuck) continue;
            if (moved) moved = 0, since = seconds(), tries = 0;
            if (++tries > parked.size()) sched_yield(); /* nobody here can: a rank on another OS thread must */
            if (tries % 64 == 0 && seconds() - since > SPIN_SECONDS) {
                B = &parked.back()->b;
                die("deadlock: blocks have waited for another block or rank for a minute");
            }
        }
    }
};

std::shared_ptr<Grid> begin_early(const std::shared_ptr<const Launch> &l)
{
    std::shared_ptr<Grid> g = std::make_shared<Grid>(l, true);
    g->early();
    return g;
}

void finish(const std::shared_ptr<const Launch> &l, std::shared_ptr<Grid> begun)
{
    if (!begun) begun = std::make_shared<Grid>(l, false);
    begun->finish();
}
} // namespace emu

/* ---------------------------------------------------------------- schedules */

void emu_set_schedule(const struct emu_schedule *s)
{
    static const emu_schedule plain = { EMU_IN_ORDER, false, false, 1, false };
    emu::is_set = s;
    emu::fixed = s ? *s : plain;
}
void                emu_set_turns(enum emu_turns t) { emu::turns = t; }
struct emu_schedule emu_schedule_at(uint32_t i)
{
    enum { EARLY = EMU_ORDERS * 4 };
    if (i >= EARLY) return emu_schedule{ (emu_order)(i % EMU_ORDERS), i % 2 != 0, i % 3 == 2, 1, true };
    /* Of the four kinds a missing wait shows best in greedy and lazy, a missing barrier ahead of a copy in greedy and
     * eager: every fourth schedule has both. */
    uint32_t kind = i / EMU_ORDERS;
    return emu_schedule{ (emu_order)(i % EMU_ORDERS), kind == 1 || kind == 2, kind % 2 != 0, 1, false };
}
static thread_local char schedule_text[64];

const char *emu_schedule_name(const struct emu_schedule *s)
{
    static const char *const order[] = { "in order", "reversed", "random" };
    snprintf(schedule_text, sizeof schedule_text, "%s, %s, %s%s", order[s->order], s->greedy ? "greedy" : "lockstep",
             s->eager ? "eager" : "lazy", s->early ? ", early" : "");
    return schedule_text;
}
