/* hopper: barriers that count bytes, bulk copies and products of warp groups, as a block of the emulator has them.   See
 * include/emu_hopper.h. Built without sanitizers, as emu.cc.
 *
 * Reported by name: a phase that never completes, arrivals beyond a barrier's count, a barrier that was not set up or
 * was written over, bytes that were not announced in their phase, addresses and sizes that the instruction refuses, a
 * product without its fence, operands written while they are read or without a fence behind, a wait that names what
 * is still under way, accumulators that were written meanwhile, lanes or warps that do not do the same, and what a
 * block leaves under way at its end. */
#include "base/dtype.h"
#include <algorithm>
#include <emu_hopper.h>
#include <emu_ptx.h>
#include <map>
#include <stdio.h>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emu
{
enum { TX_MAX = (1 << 20) - 1, COUNT_MAX = (1 << 20) - 1, N_MAX = 256, K_MAX = 32, GROUP = 4 /* warps */ };
static const uint64_t MARK = 0x7261626d5f756d65; /* what a barrier's 8 bytes hold, beside its address */
static const uint32_t POISON = 0xff80dead;       /* NaN that arithmetic changes: a signalling one */

struct Mbar {
    uint32_t count, pending; /* arrivals */
    int64_t  bytes;          /* announced, and not there yet; below 0 while they come ahead of that */
    uint32_t phase;          /* that is under way: its number */
    int      by;             /* the thread that set it up */
    bool     fenced;         /* ... and told the async proxy so */
    bool     shown;          /* ... and the cluster */
    bool     known;          /* ... whose blocks have met since */
    Set      waiting;
    int      n_waiting;
};
struct Copy { /* under way */
    void                *dst;
    Fill                 fill; /* what it does there */
    uint32_t             bytes;
    std::vector<CpAsync> async; /* instead: of a thread, which then arrives */
    uint64_t            *bar;
    uint32_t             phase; /* of bar, when it began */
};
struct Sum { /* accumulators of a lane under way */
    float   *d;
    int      n;
    uint32_t group; /* the latest that adds to it: the number of its commit */
    float    c[N_MAX / 2];
};
struct Product {
    wgmma_kind kind;
    bool       regs;
    uint32_t   a[4];
    uint64_t   at_a, at_b;
    size_t     sum; /* in sums */
};
struct Lane {
    std::vector<std::unique_ptr<Sum>> sums;
    std::vector<Product>              product;       /* not computed yet */
    std::vector<size_t>               end;           /* of each group that is committed and not computed, in product */
    uint32_t                          committed = 0; /* groups */
    uint32_t                          issued = 0;
    uint64_t                          trace = 0; /* of all operands */
    bool                              fenced = false;
};
struct Hopper {
    std::map<uint64_t *, Mbar> bars;
    std::vector<Copy>          copies; /* in the order in which they began */
    std::vector<unsigned char> seen;   /* dynamic shared memory as the async proxy sees it */
    std::vector<Lane>          lanes;
    uint32_t                   rng = 1;
    float                      a[16][K_MAX], b[K_MAX][N_MAX], c[16][N_MAX]; /* of the product that is computed */
};

static Hopper &mine()
{
    if (!B->hopper) {
        B->hopper = std::make_shared<Hopper>();
        B->hopper->lanes.resize((size_t)B->n);
        B->hopper->seen.assign(B->dyn_bytes, 0xff);
        B->hopper->rng = schedule.seed;
    }
    return *B->hopper;
}
static char text[256];
static long offset_of(const void *p) { return (long)((const unsigned char *)p - B->dyn); }

/* ---------------------------------------------------------------- barriers */

static uint64_t mark_of(const uint64_t *bar) { return MARK ^ (uint64_t)(uintptr_t)bar; }
static Mbar    &bar_at(uint64_t *bar)
{
    Hopper &h = mine();
    auto    at = h.bars.find(bar);
    if (at == h.bars.end()) die("an mbarrier is used that was not set up");
    if (*bar != mark_of(bar)) die("an mbarrier was written over");
    return at->second;
}
void mbar_init(uint64_t *bar, uint32_t count)
{
    Hopper &h = mine();
    if ((uintptr_t)bar & 7) die("mbarrier address not 8-byte aligned");
    if (count < 1 || count > COUNT_MAX) die("an mbarrier's count is not 1..2^20 - 1");
    if (h.bars.count(bar)) die("an mbarrier is set up that is one already");
    Mbar &m = h.bars[bar];
    memset(&m, 0, sizeof m);
    m.count = m.pending = count;
    m.by = F->lin;
    *bar = mark_of(bar);
}
void mbar_inval(uint64_t *bar)
{
    if (bar_at(bar).n_waiting) die("an mbarrier is given up for which threads wait");
    for (const Copy &c : mine().copies)
        if (c.bar == bar) die("an mbarrier is given up for which a copy is under way");
    mine().bars.erase(bar);
    memset(bar, 0xff, sizeof *bar);
}
static void perhaps_over(Mbar &m)
{
    if (m.pending || m.bytes) return;
    m.pending = m.count;
    m.phase++;
    m.n_waiting = 0;
    go_on(m.waiting);
}
static void arrive(uint64_t *bar, int64_t bytes)
{
    Mbar &m = bar_at(bar);
    if (!m.pending) die("more threads arrive at an mbarrier than its count");
    m.bytes += bytes;
    if (m.bytes > TX_MAX) die("an mbarrier counts more than 2^20 - 1 bytes");
    m.pending--;
    perhaps_over(m);
}
void mbar_arrive(uint64_t *bar, uint32_t bytes)
{
    if (bytes > TX_MAX) die("an mbarrier counts more than 2^20 - 1 bytes");
    arrive(bar, bytes);
    give_way(); /* what this thread writes behind its arrival is not there yet for who has waited */
}
void mbar_show()
{
    for (auto &b : mine().bars) b.second.shown |= b.second.by == F->lin;
}
void hopper_met()
{
    if (!B->hopper) return;
    for (auto &b : B->hopper->bars) b.second.known |= b.second.shown;
}
void hopper_known(uint64_t *bar)
{
    if (!bar_at(bar).known)
        die("an mbarrier of another block: no mbar_show() by the thread that set it up, or no cluster_sync() behind");
}
void hopper_arrive(uint64_t *bar) { arrive(bar, 0); }
void mbar_wait(uint64_t *bar, uint32_t parity)
{
    if (parity > 1) die("an mbarrier's parity is not 0 or 1");
    for (;;) {
        Mbar &m = bar_at(bar);
        if ((m.phase & 1) != parity) return;
        m.n_waiting++;
        wait_at(m.waiting);
    }
}

/* ---------------------------------------------------------------- copies */

void fence_async()
{
    Hopper &h = mine();
    for (auto &b : h.bars) b.second.fenced |= b.second.by == F->lin;
    if (B->dyn_bytes) memcpy(h.seen.data(), B->dyn, B->dyn_bytes);
}
static void land(Hopper &h, const Copy &c)
{
    Mbar &m = bar_at(c.bar);
    if (!c.bytes) {
        for (const CpAsync &a : c.async) copy16(a);
        arrive(c.bar, 0);
        return;
    }
    if (m.phase != c.phase)
        die("a bulk copy ends in a later phase of its mbarrier than it began: too few bytes were announced");
    c.fill(c.dst);
    memcpy(h.seen.data() + offset_of(c.dst), c.dst, c.bytes);
    m.bytes -= c.bytes;
    if (m.bytes < -TX_MAX) die("an mbarrier counts more than 2^20 - 1 bytes");
    perhaps_over(m);
}
static void begin(Copy &&c)
{
    Hopper &h = mine();
    if (schedule.eager)
        land(h, c);
    else
        h.copies.push_back(std::move(c));
}
void bulk_begin(void *smem, uint32_t bytes, uint64_t *bar, const Fill &fill)
{
    Mbar &m = bar_at(bar);
    if ((uintptr_t)smem & 15) die("bulk copy: address not 16-byte aligned");
    if (offset_of(smem) < 0 || offset_of(smem) + (long)bytes > (long)B->dyn_bytes)
        die("bulk copy: not within dynamic shared memory");
    if (!m.fenced) die("bulk copy: no fence_async() by the thread that set its mbarrier up");
    begin({ smem, fill, bytes, {}, bar, m.phase });
}
void cp_async_arrive(uint64_t *bar)
{
    CpQueue &q = F->cp;
    Copy     c = { NULL, nullptr, 0, { q.copy.begin() + (long)q.first_copy, q.copy.end() }, bar, bar_at(bar).phase };
    q.copy.clear(), q.end.clear();
    q.first_copy = q.first_group = 0;
    begin(std::move(c));
}
/* No thread can go on: one of the copies lands that a thread waits for. */
bool hopper_advance()
{
    if (!B->hopper) return false;
    Hopper             &h = *B->hopper;
    std::vector<size_t> may;
    for (size_t i = 0; i < h.copies.size(); i++)
        if (bar_at(h.copies[i].bar).n_waiting) may.push_back(i);
    if (may.empty()) return false;
    size_t at = may.front();
    if (schedule.order == EMU_REVERSED) at = may.back();
    if (schedule.order == EMU_RANDOM) {
        h.rng = h.rng * 1664525 + 1013904223;
        at = may[(h.rng >> 8) % may.size()];
    }
    Copy c = std::move(h.copies[at]);
    h.copies.erase(h.copies.begin() + (long)at);
    land(h, c);
    return true;
}
const char *hopper_stuck()
{
    if (!B->hopper) return NULL;
    for (const auto &b : B->hopper->bars) {
        const Mbar &m = b.second;
        if (!m.n_waiting) continue;
        snprintf(
            text, sizeof text,
            "deadlock: phase %u of the mbarrier at dynamic shared memory %+ld never completes: %u of %u arrivals and %lld "
            "bytes are missing, %d threads wait",
            m.phase, offset_of(b.first), m.pending, m.count, (long long)m.bytes, m.n_waiting);
        return text;
    }
    return NULL;
}

/* ---------------------------------------------------------------- matrices in shared memory */

uint32_t smem_address(const void *p)
{
    long at = offset_of(p);
    if (at < 0 || at >= (long)B->dyn_bytes)
        die("an operand, or where a tensor copy goes, is not in dynamic shared memory");
    return B->dyn_at + (uint32_t)at;
}
void *dyn_1024()
{
    B->dyn_at = 1024;
    return B->dyn;
}
static float of_bf16(uint32_t h) { return __uint_as_float(h << 16); }
static float of_f16(uint32_t h) { return __half2float(__half{ (unsigned short)h }); }

/* Numbers in 16 bytes of an operand. */
static uint32_t piece_numbers(wgmma_number number) { return number == WGMMA_E4M3 ? 16 : 8; }

/* 16 bytes of an operand, as numbers. */
static void piece(const Hopper &h, uint32_t address, uint64_t operand, wgmma_number number, float out[16])
{
    static const uint32_t bits[] = { 0, 0x70, 0x30, 0x10 }; /* by enum swizzle */
    address ^= address >> 3 & bits[operand >> 62];
    if (address < B->dyn_at || (size_t)(address - B->dyn_at) + 16 > h.seen.size())
        die("wgmma: an operand lies outside of dynamic shared memory");
    const unsigned char *seen = h.seen.data() + (address - B->dyn_at);
    uint16_t             x[8];
    if (memcmp(seen, B->dyn + (address - B->dyn_at), sizeof x))
        die("wgmma: an operand was written without a fence_async(), or while it is read");
    memcpy(x, seen, sizeof x);
    if (number == WGMMA_E4M3) {
        for (int i = 0; i < 16; i++) out[i] = f8e4m3_to_f32(seen[i]);
        return;
    }
    for (int i = 0; i < 8; i++) out[i] = number == WGMMA_BF16 ? of_bf16(x[i]) : of_f16(x[i]);
}
/* Rows [first, end) of an operand, multiples of 8, as [16 or 32 of k][rows]: `out` with `ld` numbers a row. Those that
 * lie by rows of m or n are of 16 bits. */
static void read_operand(const Hopper &h, uint64_t operand, bool trans, wgmma_number number, uint32_t first,
                         uint32_t end, float *out, size_t ld)
{
    static const uint32_t row_bytes[] = { 16, 128, 64, 32 }; /* of a pattern, by enum swizzle */
    uint32_t              start = (uint32_t)(operand & 0x3fff) << 4, lead = (uint32_t)(operand >> 16 & 0x3fff) << 4,
             stride = (uint32_t)(operand >> 32 & 0x3fff) << 4, w = row_bytes[operand >> 62];
    const uint32_t each = piece_numbers(number);
    bool           none = operand >> 62 == 0;
    float          x[16];
    if (operand >> 49 & 7) die("wgmma: the emulator knows no matrix base offset");
    for (uint32_t r = first; r < end; r += 8)
        for (uint32_t i = 0; i < 16; i++) {
            if (!trans) { /* eight rows, two pieces of k each */
                uint32_t row = i >> 1, half = i & 1;
                piece(h, start + row * w + r / 8 * stride + half * (none ? lead : 16), operand, number, x);
                for (uint32_t j = 0; j < each; j++) out[(half * each + j) * ld + r - first + row] = x[j];
            } else { /* sixteen of k, a piece of eight rows each */
                uint32_t unit = w / 16, q = r / 8,
                         at = none ? q * stride + i % 8 * 16 + i / 8 * lead
                                   : q % unit * 16 + q / unit * lead + i % 8 * w + i / 8 * stride;
                piece(h, start + at, operand, number, x);
                memcpy(out + i * ld + (r - first), x, 8 * sizeof *x);
            }
        }
}

/* ---------------------------------------------------------------- products */

/* 16 rows of a warp: as mma_m16n8k16, k by k, each step rounded once. A GPU keeps fewer bits of sums of E4M3. */
static void compute(Hopper &h, int warp, size_t at)
{
    Lane          *lane = &h.lanes[(size_t)warp * WARP];
    const Product &p = lane[0].product[at];
    size_t         n = (size_t)p.kind.n;
    const int      n_k = 2 * (int)piece_numbers(p.kind.number);
    for (int l = 0; l < WARP; l++) {
        const Product &q = lane[l].product[at];
        if (q.kind != p.kind || q.at_a != p.at_a || q.at_b != p.at_b || q.regs != p.regs || q.sum != p.sum)
            die("lanes of a warp give wgmma different operands");
    }
    float rows[K_MAX][16]; /* [k][m] */
    if (p.regs) {
        for (int l = 0; l < WARP; l++)
            for (int r = 0; r < 4; r++)
                for (int i = 0; i < 2; i++) {
                    uint32_t x = lane[l].product[at].a[r] >> 16 * i & 0xffff;
                    h.a[l / 4 + (r & 1) * 8][l % 4 * 2 + i + (r >> 1) * 8] =
                        p.kind.number == WGMMA_BF16 ? of_bf16(x) : of_f16(x);
                }
    } else {
        uint32_t first = (uint32_t)(warp % GROUP) * 16;
        read_operand(h, p.at_a, p.kind.trans_a, p.kind.number, first, first + 16, rows[0], 16);
        for (int m = 0; m < 16; m++)
            for (int k = 0; k < n_k; k++) h.a[m][k] = rows[k][m];
    }
    read_operand(h, p.at_b, p.kind.trans_b, p.kind.number, 0, (uint32_t)n, h.b[0], N_MAX);
    for (int l = 0; l < WARP; l++) {
        const float *c = lane[l].sums[p.sum]->c;
        for (size_t i = 0; i < n / 2; i++)
            h.c[l / 4 + (i >> 1 & 1) * 8][i / 4 * 8 + (size_t)l % 4 * 2 + (i & 1)] = p.kind.add ? c[i] : 0.0f;
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < n_k; k++)
            for (size_t j = 0; j < n; j++) h.c[m][j] += h.a[m][k] * h.b[k][j];
    for (int l = 0; l < WARP; l++) {
        float *c = lane[l].sums[p.sum]->c;
        for (size_t i = 0; i < n / 2; i++)
            c[i] = h.c[l / 4 + (i >> 1 & 1) * 8][i / 4 * 8 + (size_t)l % 4 * 2 + (i & 1)];
    }
}
/* Groups of this warp, until `left` of those that are committed are not computed. */
static void compute_groups(int warp, uint32_t left)
{
    Hopper &h = mine();
    Lane   *lane = &h.lanes[(size_t)warp * WARP];
    size_t groups = lane[0].end.size() > left ? lane[0].end.size() - left : 0, n = groups ? lane[0].end[groups - 1] : 0;
    for (int l = 1; l < WARP; l++)
        if (lane[l].end != lane[0].end || lane[l].product.size() != lane[0].product.size())
            die("lanes of a warp have given different products");
    if (!groups) return;
    for (size_t i = 0; i < n; i++) compute(h, warp, i);
    for (int l = 0; l < WARP; l++) {
        Lane &x = lane[l];
        x.product.erase(x.product.begin(), x.product.begin() + (long)n);
        x.end.erase(x.end.begin(), x.end.begin() + (long)groups);
        for (size_t &e : x.end) e -= n;
    }
}
void wgmma(float *d, const uint32_t *a, uint64_t address_a, uint64_t b, wgmma_kind kind)
{
    Lane  &l = mine().lanes[(size_t)F->lin];
    size_t at = 0, m = (size_t)kind.n / 2;
    if (!l.fenced) die("wgmma without a wgmma_fence() since the last wait");
    if ((F->warp / GROUP + 1) * GROUP * WARP > B->n) die("wgmma by a warp that is not one of four");
    for (; at < l.sums.size(); at++) {
        Sum &s = *l.sums[at];
        if (s.d == d && s.n == kind.n) break;
        if (d < s.d + s.n / 2 && s.d < d + m) die("wgmma into accumulators of which another shape is under way");
    }
    if (at == l.sums.size()) {
        l.sums.emplace_back(new Sum);
        l.sums[at]->d = d, l.sums[at]->n = kind.n;
        memcpy(l.sums[at]->c, d, m * sizeof *d);
        for (size_t i = 0; i < m; i++) memcpy(d + i, &POISON, sizeof *d);
    }
    l.sums[at]->group = l.committed + 1;
    Product p = { kind, a != NULL, {}, address_a, b, at };
    if (a) memcpy(p.a, a, sizeof p.a);
    l.product.push_back(p);
    l.issued++;
    l.trace = (l.trace ^ address_a ^ b << 1) * 0x9e3779b97f4a7c15u + (uint64_t)kind.add;
}
void wgmma_fence() { mine().lanes[(size_t)F->lin].fenced = true; }
void wgmma_commit()
{
    Lane    &l = mine().lanes[(size_t)F->lin];
    uint32_t group = ++l.committed;
    l.end.push_back(l.product.size());
    collect(COMMIT, 0xffffffffu, &group, sizeof group, [](unsigned char *) {
        if (!schedule.eager) compute_groups(F->warp, 0);
    });
}
void wgmma_wait(uint32_t left, const float *named)
{
    Lane    &l = mine().lanes[(size_t)F->lin];
    uint32_t until = l.committed > left ? l.committed - left : 0;
    collect(WAIT, 0xffffffffu, &left, sizeof left, [](unsigned char *slot) {
        uint32_t stay;
        memcpy(&stay, slot, sizeof stay);
        compute_groups(F->warp, stay);
    });
    for (size_t i = 0; i < l.sums.size(); i++) {
        Sum &s = *l.sums[i];
        if (s.group > until) {
            if (named < s.d + s.n / 2 && s.d <= named) die("wgmma_wait names accumulators that are still under way");
            continue;
        }
        for (int j = 0; j < s.n / 2; j++) {
            if (memcmp(s.d + j, &POISON, sizeof POISON)) die("accumulators were written while a product was under way");
            s.d[j] = s.c[j];
        }
        l.sums.erase(l.sums.begin() + (long)i);
        for (Product &p : l.product) p.sum -= p.sum > i;
        i--;
    }
    l.fenced = false;
}

/* ---------------------------------------------------------------- the end of a block */

const char *hopper_end()
{
    if (!B->hopper) return NULL;
    Hopper &h = *B->hopper;
    if (!h.copies.empty()) return "a block ends with a copy under way that nobody waited for";
    for (const auto &b : h.bars)
        if (b.second.pending != b.second.count)
            return "a block ends in the middle of an mbarrier's phase: its count is wrong";
    for (const auto &b : h.bars)
        if (b.second.bytes) return "a block ends with an mbarrier for which bytes are missing, or too many came";
    for (size_t i = 0; i < h.lanes.size(); i++) {
        const Lane &l = h.lanes[i], &first = h.lanes[i / (GROUP * WARP) * (GROUP * WARP)];
        if (!l.sums.empty() || !l.product.empty()) return "a thread ends with a product that it did not wait for";
        if (l.issued != first.issued || l.trace != first.trace)
            return "warps of a warp group have given different products";
    }
    return NULL;
}
} // namespace emu
