/* cublaslt: a small cuBLASLt for emulated devices: a plain product, fp32, k in order, that looks closely at what it is
 * given. It works in the order of the stream and while a graph is captured, as the real one does. */
#include "tests/emu/cublaslt.h"
extern "C" {
#include "base/dtype.h"
}
#include "kernels/cuda/cublaslt.h"
#include "rt.h"
#include <emu.h>
#include <emu_kernel.h>
#include <stdio.h>
#include <string.h>
#include <vector>

struct emu_lt_state emu_lt;

namespace
{
enum : uint64_t {
    LAYOUT = 0x454d554c41594f55u,
    DESC = 0x454d554445534321u,
    PREF = 0x454d555052454621u,
    ALGO = 0x454d55414c474f21u
};
enum { VERSION = 130100 };
struct Layout { /* lt_layout */
    uint64_t magic;
    int64_t  type;
    uint64_t rows, cols;
    int64_t  ld;
};
struct Desc { /* lt_desc */
    uint64_t magic;
    int64_t  compute, scale, transa;
};
struct Pref { /* lt_pref */
    uint64_t magic, workspace;
    uint32_t align[4];
};
struct Algo { /* lt_algo */
    uint64_t magic;
    uint32_t id, tile, stages, splitk, in, out, spare[2];
    uint64_t sum; /* of the fields: a damaged one is refused */
};
struct Problem {
    uint32_t m, n, k;
    int      in, out;
    size_t   out_row; /* numbers from a row of out to the next */
};

uint64_t algo_sum(const Algo &a)
{
    return a.id * 3u + a.tile * 5u + a.stages * 7u + a.splitk * 11u + a.in * 17u + a.out * 19u + 23u;
}
size_t type_bytes(int64_t t) { return t == LT_R_32F ? 4 : 2; }

int misuse(const char *what)
{
    __atomic_fetch_add(&emu_lt.n_misuse, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "emulated cuBLASLt: %s\n", what);
    return LT_INVALID_VALUE;
}

template <class T, class L> const T *as(const L *l, uint64_t magic)
{
    static_assert(sizeof(T) <= sizeof(L), "fits the opaque type");
    const T *t = reinterpret_cast<const T *>(l);
    return t && t->magic == magic ? t : NULL;
}

/* a [k, n], b [k, m], c and d [n, m]: w^T x */
int problem(const lt_desc *op, const lt_layout *la, const lt_layout *lb, const lt_layout *lc, const lt_layout *ld,
            Problem *p)
{
    const Desc   *o = as<Desc>(op, DESC);
    const Layout *a = as<Layout>(la, LAYOUT), *b = as<Layout>(lb, LAYOUT), *c = as<Layout>(lc, LAYOUT),
                 *d = as<Layout>(ld, LAYOUT);
    if (!o || !a || !b || !c || !d) return misuse("a descriptor was not initialised");
    if (o->compute != LT_COMPUTE_32F || o->scale != LT_R_32F || o->transa != LT_OP_T)
        return misuse("not fp32 compute with A transposed");
    if (a->rows != b->rows || d->rows != a->cols || d->cols != b->cols || c->rows != d->rows || c->cols != d->cols)
        return misuse("the sizes of the matrices do not fit");
    if (a->ld < (int64_t)a->rows || b->ld < (int64_t)b->rows || d->ld < (int64_t)d->rows || c->ld != d->ld)
        return misuse("a leading dimension is smaller than a column");
    if (a->ld != (int64_t)a->rows || b->ld != (int64_t)b->rows) return LT_NOT_SUPPORTED;
    if (a->type != b->type || a->type == LT_R_32F || c->type != d->type || (d->type != a->type && d->type != LT_R_32F))
        return misuse("these types are not multiplied");
    if (!a->rows || !a->cols || !b->cols) return misuse("an empty matrix");
    *p = { (uint32_t)b->cols, (uint32_t)a->cols, (uint32_t)a->rows, (int)a->type, (int)d->type, (size_t)d->ld };
    return LT_OK;
}

size_t workspace_of(uint32_t id, const Problem &p) { return id == EMU_LT_SPLIT ? (size_t)p.m * p.n * 4 : 0; }

bool fits(uint32_t id, const Problem &p)
{
    return id != EMU_LT_WIDE || (p.k % 8 == 0 && p.n * type_bytes(p.out) % 16 == 0);
}

/* ---------------------------------------------------------------- the functions */

size_t version() { return VERSION; }
int    create(lt_handle **h)
{
    *h = reinterpret_cast<lt_handle *>(new uint64_t(ALGO));
    return LT_OK;
}
int destroy(lt_handle *h)
{
    delete reinterpret_cast<uint64_t *>(h);
    return LT_OK;
}
int layout_init(lt_layout *l, size_t size, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    if (size != sizeof *l) return misuse("size of a layout");
    if (emu_lt.strange) return LT_INVALID_VALUE;
    memset(l, 0, sizeof *l);
    *reinterpret_cast<Layout *>(l) = { LAYOUT, type, rows, cols, ld };
    return LT_OK;
}
int desc_init(lt_desc *d, size_t size, int compute, int scale)
{
    if (size != sizeof *d) return misuse("size of an operation");
    memset(d, 0, sizeof *d);
    *reinterpret_cast<Desc *>(d) = { DESC, compute, scale, 0 };
    return LT_OK;
}
int desc_set(lt_desc *d, int attr, const void *v, size_t size)
{
    int t;
    if (!as<Desc>(d, DESC) || attr != LT_DESC_TRANSA || size != sizeof t) return misuse("attribute of an operation");
    memcpy(&t, v, sizeof t);
    reinterpret_cast<Desc *>(d)->transa = t;
    return LT_OK;
}
int pref_init(lt_pref *p, size_t size)
{
    if (size != sizeof *p) return misuse("size of a preference");
    memset(p, 0, sizeof *p);
    *reinterpret_cast<Pref *>(p) = { PREF, 0, { 256, 256, 256, 256 } };
    return LT_OK;
}
int pref_set(lt_pref *lp, int attr, const void *v, size_t size)
{
    Pref *p = reinterpret_cast<Pref *>(lp);
    if (!as<Pref>(lp, PREF)) return misuse("a preference was not initialised");
    if (attr == LT_PREF_WORKSPACE_BYTES && size == 8)
        memcpy(&p->workspace, v, 8);
    else if (attr >= LT_PREF_ALIGN_A && attr < LT_PREF_ALIGN_A + 4 && size == 4)
        memcpy(&p->align[attr - LT_PREF_ALIGN_A], v, 4);
    else
        return misuse("attribute of a preference");
    return LT_OK;
}

Algo algo_of(uint32_t id, const Problem &p)
{
    Algo a = {};
    a.magic = ALGO, a.id = id, a.tile = 18 + id, a.stages = 4, a.splitk = id == EMU_LT_SPLIT ? 2 : 1;
    a.in = (uint32_t)p.in, a.out = (uint32_t)p.out;
    a.sum = algo_sum(a);
    return a;
}

int heuristic(lt_handle *h, lt_desc *op, lt_layout *la, lt_layout *lb, lt_layout *lc, lt_layout *ld, lt_pref *lp,
              int want, lt_result *r, int *n)
{
    static const emu_lt_algo few[] = { EMU_LT_WRONG, EMU_LT_DRIFT, EMU_LT_SPLIT, EMU_LT_PLAIN, EMU_LT_WIDE },
                             many[] = { EMU_LT_WRONG, EMU_LT_DRIFT, EMU_LT_WIDE, EMU_LT_PLAIN, EMU_LT_SPLIT };
    Problem     p;
    const Pref *pref = as<Pref>(lp, PREF);
    __atomic_fetch_add(&emu_lt.n_heuristic, 1, __ATOMIC_RELAXED);
    if (!h || !pref || want < 1) return misuse("heuristic without handle, preference or room");
    int st = problem(op, la, lb, lc, ld, &p);
    if (st) return st;
    for (uint32_t align : pref->align)
        if (align < 2 || align > 16) return misuse("an alignment that rows of this kind do not have");
    *n = 0;
    for (int i = 0; i < 5 && *n < want; i++) {
        uint32_t id = p.m <= 16 ? few[i] : many[i];
        if ((id == EMU_LT_WRONG && !emu_lt.wrong) || (id == EMU_LT_DRIFT && !emu_lt.drift) || !fits(id, p) ||
            workspace_of(id, p) > pref->workspace)
            continue;
        lt_result out = {};
        Algo      a = algo_of(id, p);
        memcpy(&out.algo, &a, sizeof a);
        out.workspace_bytes = workspace_of(id, p), out.state = LT_OK, out.waves = 1;
        r[(*n)++] = out;
    }
    return *n ? LT_OK : LT_NOT_SUPPORTED;
}

int check_algo(const lt_algo *la, const Problem &p, const Algo **out)
{
    static_assert(sizeof(Algo) <= sizeof(lt_algo), "an algorithm is 64 bytes");
    const Algo *a = as<Algo>(la, ALGO);
    if (!a || a->id >= EMU_LT_ALGOS || a->sum != algo_sum(*a)) return LT_INVALID_VALUE; /* what a damaged file brings */
    if (a->in != (uint32_t)p.in || a->out != (uint32_t)p.out) return LT_INVALID_VALUE;
    if (!fits(a->id, p)) return LT_NOT_SUPPORTED;
    *out = a;
    return LT_OK;
}

int check(lt_handle *h, lt_desc *op, lt_layout *la, lt_layout *lb, lt_layout *lc, lt_layout *ld, const lt_algo *algo,
          lt_result *r)
{
    Problem     p;
    const Algo *a;
    if (!h) return misuse("check without a handle");
    int st = problem(op, la, lb, lc, ld, &p);
    if (st || (st = check_algo(algo, p, &a))) return st;
    r->workspace_bytes = workspace_of(a->id, p), r->state = LT_OK, r->waves = 1;
    return LT_OK;
}

int config_get(const lt_algo *la, int attr, void *v, size_t size, size_t *written)
{
    const Algo *a = as<Algo>(la, ALGO);
    if (!a || size != 4) return LT_INVALID_VALUE;
    uint32_t x = attr == LT_CONFIG_ID       ? a->id
                 : attr == LT_CONFIG_TILE   ? a->tile
                 : attr == LT_CONFIG_SPLITK ? a->splitk
                                            : a->stages;
    memcpy(v, &x, 4);
    if (written) *written = 4;
    return LT_OK;
}

void store(void *p, int type, size_t i, float v)
{
    if (type == LT_R_32F)
        static_cast<float *>(p)[i] = v;
    else
        static_cast<uint16_t *>(p)[i] = type == LT_R_16BF ? f32_to_bf16(v) : f32_to_f16(v);
}

/* n numbers from place i on, as floats. */
__attribute__((optimize("O3"))) void load_row(float *to, const void *p, int type, size_t i, uint32_t n)
{
    if (type == LT_R_32F)
        memcpy(to, static_cast<const float *>(p) + i, n * sizeof *to);
    else if (type == LT_R_16BF)
        for (uint32_t k = 0; k < n; k++) to[k] = bf16_to_f32(static_cast<const uint16_t *>(p)[i + k]);
    else
        for (uint32_t k = 0; k < n; k++) to[k] = f16_to_f32(static_cast<const uint16_t *>(p)[i + k]);
}

enum { COLS = 64 }; /* as many sums as the vector registers hold, so that none waits for the one before it */

/* sum[j] += row[i] * wt[i][j]. Two thirds of what a served model costs here: with vectors of 32 bytes where there are some, which
 * changes no sum, since each column adds in the same order. */
inline __attribute__((always_inline)) void add_products(float *sum, const float *row, const float *wt, uint32_t from,
                                                        uint32_t to)
{
    float s[COLS];
    memcpy(s, sum, sizeof s);
    for (uint32_t i = from; i < to; i++)
        for (int j = 0; j < COLS; j++) s[j] += row[i] * wt[(size_t)i * COLS + j];
    memcpy(sum, s, sizeof s);
}
void add_any(float *sum, const float *row, const float *wt, uint32_t from, uint32_t to)
{
    add_products(sum, row, wt, from, to);
}
#ifdef __x86_64__
__attribute__((target("avx2"), optimize("O3"))) void add_avx2(float *sum, const float *row, const float *wt,
                                                              uint32_t from, uint32_t to)
{
    add_products(sum, row, wt, from, to);
}
auto *const add = __builtin_cpu_supports("avx2") ? add_avx2 : add_any;
#else
auto *const add = add_any;
#endif

void multiply(const Problem &p, uint32_t id, const void *w, const void *x, bool plus, void *out, float *workspace)
{
    bool               drift = id == EMU_LT_DRIFT && p.m >= emu_lt.drift;
    uint32_t           cut = id == EMU_LT_SPLIT || drift ? p.k / 2 : p.k; /* k before, and k from here on */
    std::vector<float> wt((size_t)p.k * COLS), columns((size_t)p.k * COLS), rows((size_t)p.m * p.k);
    for (uint32_t m = 0; m < p.m; m++) load_row(&rows[(size_t)m * p.k], x, p.in, (size_t)m * p.k, p.k);
    for (uint32_t n0 = 0; n0 < p.n; n0 += COLS) {
        uint32_t cols = p.n - n0 < COLS ? p.n - n0 : COLS;
        load_row(columns.data(), w, p.in, (size_t)n0 * p.k, cols * p.k);
        for (uint32_t i = 0; i < p.k; i++)
            for (uint32_t j = 0; j < COLS; j++) wt[(size_t)i * COLS + j] = columns[(size_t)j * p.k + i];
        for (uint32_t m = 0; m < p.m; m++) {
            float a[COLS] = {}, b[COLS] = {};
            add(a, &rows[(size_t)m * p.k], wt.data(), 0, cut);
            add(b, &rows[(size_t)m * p.k], wt.data(), cut, p.k);
            for (uint32_t j = 0; j < cols; j++) {
                size_t at = (size_t)m * p.n + n0 + j, to = m * p.out_row + n0 + j;
                if (id == EMU_LT_SPLIT) workspace[at] = b[j]; /* really through there: one too small is found */
                if (id == EMU_LT_WRONG && p.m >= emu_lt.wrong_from && n0 + j + 1 == p.n) continue;
                float sum = id == EMU_LT_SPLIT ? a[j] + workspace[at] : a[j] + b[j], old = 0;
                if (plus) load_row(&old, out, p.out, to, 1);
                store(out, p.out, to, sum + old);
            }
        }
    }
}

void nothing() {}

int matmul(lt_handle *h, lt_desc *op, const void *alpha, const void *a, lt_layout *la, const void *b, lt_layout *lb,
           const void *beta, const void *c, lt_layout *lc, void *d, lt_layout *ld, const lt_algo *algo, void *workspace,
           size_t workspace_bytes, void *stream)
{
    Problem     p;
    const Algo *al;
    float       one, keep;
    if (!h || !alpha || !beta || !a || !b || !d || !algo)
        return misuse("matmul without an argument; the heuristic must not choose here");
    memcpy(&one, alpha, 4), memcpy(&keep, beta, 4);
    if (one != 1 || (keep != 0 && keep != 1) || c != d) return misuse("not 1 * a * b + 0 or 1 * d in place");
    int st = problem(op, la, lb, lc, ld, &p);
    if (st || (st = check_algo(algo, p, &al))) return st;
    if (emu_lt.refuse) return LT_NOT_SUPPORTED;
    if ((st = (int)rt::planned("cublasLtMatmul"))) return st; /* a status of the library, not of CUDA */
    if (workspace_of(al->id, p) > workspace_bytes || ((uintptr_t)workspace & 15))
        return misuse("the workspace is too small or not aligned");
    if (((uintptr_t)a | (uintptr_t)b) % type_bytes(p.in) || (uintptr_t)d % type_bytes(p.out))
        return misuse("an address is not aligned");
    if (al->id == EMU_LT_WIDE && (((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) & 15))
        return misuse("an address is not aligned to 16");
    __atomic_fetch_add(&emu_lt.n_matmul, 1, __ATOMIC_RELAXED);
    uint32_t id = al->id;
    bool     plus = keep != 0;
    float   *space = static_cast<float *>(workspace);
    emu::enqueue_kernel(static_cast<cudaStream_t>(stream), reinterpret_cast<const void *>(nothing), dim3(1), dim3(1), 0,
                        false, 1, [=] { multiply(p, id, a, b, plus, d, space); });
    return cudaPeekAtLastError() == cudaSuccess ? LT_OK : LT_EXECUTION_FAILED;
}
} // namespace

extern "C" const struct cublaslt emu_cublaslt = { version,   create,   destroy,   layout_init, desc_init,  desc_set,
                                                  pref_init, pref_set, heuristic, check,       config_get, matmul };
