/* gemm_lt: products by cuBLASLt: the library's view of one, its algorithms, and the row of the table of kinds.
 * Weights are op T there: our row-major w [n, k] is its column-major [k, n], x is [k, m], out is [n, m]; fp32
 * compute. */
#include "base/log.h"
#include "kernels/cuda/gemm.h"

/* ---------------------------------------------------------------- the library's view */

static int lt_type(enum dtype t)
{
    if (t == DT_F32) return LT_R_32F;
    return t == DT_F16 ? LT_R_16F : LT_R_16BF;
}

/* Bytes, up to 16, that divide every row's address when the matrix begins at a multiple of 16. */
static uint32_t row_align(uint32_t n, enum dtype t)
{
    uint64_t bytes = (uint64_t)n * dtype_bytes(t), low = bytes & (~bytes + 1);
    return low > 16 ? 16 : (uint32_t)low;
}

int gemm_problem_init(struct cuda_blas *b, struct gemm_problem *p, uint32_t m, uint32_t n, uint32_t k, enum dtype in,
                      enum dtype out, uint32_t out_row)
{
    int op_t = LT_OP_T, st;
    if ((st = b->lt.desc_init(&p->op, sizeof p->op, LT_COMPUTE_32F, LT_R_32F)) != LT_OK) return st;
    if ((st = b->lt.desc_set(&p->op, LT_DESC_TRANSA, &op_t, sizeof op_t)) != LT_OK) return st;
    if ((st = b->lt.layout_init(&p->a, sizeof p->a, lt_type(in), k, n, k)) != LT_OK) return st;
    if ((st = b->lt.layout_init(&p->b, sizeof p->b, lt_type(in), k, m, k)) != LT_OK) return st;
    return b->lt.layout_init(&p->d, sizeof p->d, lt_type(out), n, m, out_row);
}

/* How candidates are asked for; LT_OK, or what the library said first. */
static int pref_init(struct cuda_blas *b, struct lt_pref *pref, const uint32_t align[4], uint64_t workspace)
{
    int st = b->lt.pref_init(pref, sizeof *pref);
    if (st == LT_OK) st = b->lt.pref_set(pref, LT_PREF_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (int i = 0; i < 4 && st == LT_OK; i++)
        st = b->lt.pref_set(pref, LT_PREF_ALIGN_A + i, &align[i], sizeof align[i]);
    return st;
}

int gemm_lt_works(struct cuda_blas *b)
{
    const uint32_t      align[4] = { 16, 16, 16, 16 };
    struct gemm_problem p;
    struct lt_pref      pref;
    struct lt_result    r;
    int                 n = 0, st = gemm_problem_init(b, &p, 16, 64, 64, DT_BF16, DT_BF16, 64);
    if (st == LT_OK) st = pref_init(b, &pref, align, GEMM_WORKSPACE);
    if (st == LT_OK) st = b->lt.heuristic(b->h, &p.op, &p.a, &p.b, &p.d, &p.d, &pref, 1, &r, &n);
    return st == LT_OK && n == 0 ? LT_NOT_SUPPORTED : st;
}

uint32_t gemm_candidates(struct cuda_blas *b, uint32_t m, uint32_t n, uint32_t k, enum dtype in, enum dtype out,
                         size_t workspace, uint32_t want, struct lt_algo *out_algo)
{
    struct gemm_problem p;
    struct lt_pref      pref;
    struct lt_result    r[GEMM_CANDIDATES];
    uint32_t            align[4] = { row_align(k, in), row_align(k, in), row_align(n, out), row_align(n, out) };
    int                 n_r = 0;
    uint32_t            n_out = 0;
    if (want > GEMM_CANDIDATES) want = GEMM_CANDIDATES;
    if (gemm_problem_init(b, &p, m, n, k, in, out, n) != LT_OK || pref_init(b, &pref, align, workspace) != LT_OK)
        return 0;
    if (b->lt.heuristic(b->h, &p.op, &p.a, &p.b, &p.d, &p.d, &pref, (int)want, r, &n_r) != LT_OK) return 0;
    for (int i = 0; i < n_r; i++)
        if (r[i].state == LT_OK && r[i].workspace_bytes <= workspace) out_algo[n_out++] = r[i].algo;
    return n_out;
}

bool gemm_takes(struct cuda_blas *b, const struct lt_algo *a, uint32_t m, uint32_t n, uint32_t k, enum dtype in,
                enum dtype out, size_t workspace)
{
    struct gemm_problem p;
    struct lt_result    r;
    if (gemm_problem_init(b, &p, m, n, k, in, out, n) != LT_OK) return false;
    return b->lt.check(b->h, &p.op, &p.a, &p.b, &p.d, &p.d, a, &r) == LT_OK && r.workspace_bytes <= workspace;
}

bool gemm_is_ours(const struct lt_algo *a)
{
    static const struct lt_algo zero;
    return memcmp(a, &zero, sizeof zero) == 0;
}

/* ---------------------------------------------------------------- the kind */

/* A slab of numbers lies where the workspace is. */
static size_t room_of(bool slab) { return slab ? 0 : GEMM_WORKSPACE; }

static uint32_t lt_offer(struct cuda_dev *d, const struct gemm_shape *s, const struct gemm_want *want, bool tuned,
                         struct gemm_pin *pin_out)
{
    enum { GUESSES = 4 };
    struct cuda_blas *b = d->blas;
    enum dtype        in = d->impl.dev.act;
    struct lt_algo    algo[GEMM_CANDIDATES];
    if (!b->h) return 0;
    if (tuned) {
        const struct gemm_file_row *row = gemm_file_find(&b->file, s->n, s->k, in, s->out, want->hi);
        if (!row || gemm_is_ours(&row->algo)) return 0;
        *pin_out = (struct gemm_pin){ .kind = &gemm_lt, .tuned = true, .algo = row->algo };
        return 1;
    }
    uint32_t n = gemm_candidates(b, want->hi, s->n, s->k, in, s->out, room_of(s->slab), GUESSES, algo);
    for (uint32_t i = 0; i < n; i++) pin_out[i] = (struct gemm_pin){ .kind = &gemm_lt, .algo = algo[i] };
    return n;
}

static bool lt_takes(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_shape *s, uint32_t m)
{
    return gemm_takes(d->blas, &pin->algo, m, s->n, s->k, d->impl.dev.act, s->out, room_of(s->slab));
}

static bool lt_mul(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *o)
{
    static const float  one = 1, zero = 0;
    const float        *keep = o->add ? &one : &zero;
    struct cuda_blas   *b = d->blas;
    struct gemm_problem p;
    uint32_t            m = o->m, n = o->w->n, k = o->w->k, out_row = o->out_row ? o->out_row : n;
    uint32_t            align = row_align(k, d->impl.dev.act), align_out = row_align(n, o->out_t);
    bool                aligned = !((uintptr_t)o->x & (align - 1)) && !((uintptr_t)o->out & (align_out - 1));
    if (!aligned) return false; /* it was asked for aligned rows */
    int         st = gemm_problem_init(b, &p, m, n, k, d->impl.dev.act, o->out_t, out_row);
    cudaError_t e = cudaSuccess;
    bool        described = st == LT_OK, again = cuda_may_relaunch(d);
    /* as LAUNCH does, whatever the library says of a launch of its own that was refused */
    for (; described; again = false) {
        st = b->lt.matmul(b->h, &p.op, &one, o->w->data, &p.a, o->x, &p.b, keep, o->out, &p.d, o->out, &p.d, &pin->algo,
                          b->workspace, room_of(gemm_is_slab(b, o->w)), d->stream);
        e = cudaPeekAtLastError();
        if (e == cudaSuccess || !again || !cuda_relaunch(d)) break;
    }
    if (e != cudaSuccess && d->step) {
        cuda_ok(d, e, "cuBLASLt");
        return true;
    }
    if (st == LT_OK) return true;
    if (!b->broken)
        LOG_WARN("gemm: cuBLASLt refuses its algorithm for [%u, %u] x [%u, %u] (status %d), our own kernels compute it",
                 m, k, n, k, st);
    b->broken = true;
    return false;
}

/* A product that the library adds to the residual stream itself, so that no kernel reads it again. Its sum is rounded once,
 * not twice: other bits than those of the ops one after another, as all of the library's may be. */
static bool lt_fused(struct cuda_dev *d, const struct gemm_pin *pin, const struct op_fused *o)
{
    if (o->end != OP_END_ADD || o->norm || o->bias) return false;
    const struct gemm_product p = {
        .out = o->out, .out_t = d->impl.dev.act, .x = o->x, .w = o->w, .m = o->m, .add = true
    };
    return gemm_run(d, pin, &p);
}

const struct cuda_gemm_kind gemm_lt = {
    .name = "cuBLASLt", .offer = lt_offer, .takes = lt_takes, .mul = lt_mul, .fused = lt_fused
};
