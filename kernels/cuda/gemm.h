/* gemm: which algorithm multiplies which matrix for how many rows.   Private to gemm*.c and tune.c. Thread: rank's.
 * A shape is seen once, while loading, and every bucket of rows of it gets its pin then: from the file that `spillway
 * tune` wrote, else the library's first choice, else our own kernels. Nothing is chosen later and nothing is allocated.
 * With --deterministic every pin is our own kernels', which give a row the same bits for every number of rows. */
#pragma once
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

enum {
    GEMM_FUSED_ROWS = 32, /* most rows of a product that is joined with what stands around it */
    GEMM_BUCKETS = 19,
    GEMM_ROWS_MAX = 8192,     /* the last bucket: more rows go in slices of as many         */
    GEMM_SHAPES_MAX = 96,     /* different matrices of one model on one rank                */
    GEMM_HEADS_MAX = 1024,    /* of q, k and v together, of a product that finishes them        */
    GEMM_ALIGN = 256,         /* bytes; of workspaces                                       */
    GEMM_CANDIDATES = 32,     /* most that are asked of the library at one time             */
    GEMM_WORKSPACE = 32 << 20 /* bytes; fixed: with another size the library offers other algorithms */
};

/* A way to multiply, and one algorithm of it. */
struct gemm_pin {
    const struct cuda_gemm_kind *kind;
    bool                         tuned; /* comes from a file */
    struct lt_algo               algo;  /* of gemm_lt */
};
struct gemm_shape {
    uint32_t        n, k;
    enum dtype      out;      /* act, or F32 */
    enum dtype      code;     /* of the weights, as in dev_quant: F32 are plain ones */
    bool            act8;     /* likewise */
    bool            slab;     /* of numbers that lie in the workspace: gemm_is_slab */
    uint32_t        rows_max; /* more rows go in slices of as many */
    struct gemm_pin pin[GEMM_BUCKETS];
};
/* One product: out[m, n] = x[m, k] * w[n, k]^T. */
struct gemm_product {
    void                    *out; /* [m, n] of type out_t: act, or F32 */
    enum dtype               out_t;
    const void              *x; /* act [m, k]; for `mul` of a kind that prepares rows: m of those */
    const struct dev_weight *w;
    uint32_t                 m; /* 1 .. GEMM_ROWS_MAX */
    /* For the library alone: */
    uint32_t out_row; /* numbers from a row of out to the next; 0: n */
    bool     add;     /* out += the product, rounded once */
};
/* What a pin is looked for. */
struct gemm_want {
    uint32_t lo, hi; /* rows of a product */
};
/* A way to multiply: one row of the table in gemm.c, which stands there best first. It says which weights it multiplies
 * and for how many rows, and what it does to activations first. A kernel for few rows that streams weights is a row,
 * and so is each kind of codes. */
struct cuda_gemm_kind {
    const char *name;
    enum dtype  code; /* of the weights: F32 are plain ones, in the type of the activations */
    bool        act8;
    /* Ours: it multiplies any such weights for any number of rows, never refuses, and a row has the same bits for each
     * number of them. */
    bool     last;
    uint32_t rows_max; /* of a product; 0: any */
    /* Pins for what is wanted, best guess first, at most GEMM_CANDIDATES: tuned ones, or those that are guessed.
     * NULL: it is the last and nothing else. */
    uint32_t (*offer)(struct cuda_dev *d, const struct gemm_shape *s, const struct gemm_want *want, bool tuned,
                      struct gemm_pin *pin_out);
    /* Whether it can multiply m rows by this pin; NULL: it can. */
    bool (*takes)(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_shape *s, uint32_t m);
    /* Bytes of a prepared row, a multiple of 16 and at most GEMM_WORKSPACE; NULL, and prepare too: activations are
     * taken as they are. */
    size_t (*row_bytes)(const struct dev_weight *w);
    /* m rows of activations x to `rows`, which lies where the library's workspace is. Enqueued on d->stream, as mul. */
    void (*prepare)(struct cuda_dev *d, void *rows, const void *x, const struct dev_weight *w, uint32_t m);
    bool (*mul)(struct cuda_dev *d, const struct gemm_pin *pin,
                const struct gemm_product *p); /* false: it did nothing */
    /* The product joined with what stands around it. NULL: it stands alone. false: nothing is done. */
    bool (*fused)(struct cuda_dev *d, const struct gemm_pin *pin, const struct op_fused *o);
};
extern const struct cuda_gemm_kind gemm_rows; /* our own kernels, gemm_rows.cu */
extern const struct cuda_gemm_kind gemm_lt;   /* gemm_lt.c: the library */

/* A file of algorithms: lines of text, the last a checksum of those before it. An algorithm of zeros is gemm_rows. */
struct gemm_file_row {
    uint32_t       n, k, bucket;
    enum dtype     in, out;
    struct lt_algo algo;
    int            tile, stages, splitk;
    double         us, gbs, tflops, err; /* as tune measured it, with what stands around; err: largest relative error */
};
struct gemm_file {
    char                  gpu[96];
    int                   arch;
    size_t                version, workspace_bytes; /* of the library */
    struct gemm_file_row *row;
    uint32_t              n_row, cap;
};
/* ST_NOT_FOUND: no such file. ST_CONFIG: not to be used, err says in one line why (damaged, another GPU, another
 * library). */
enum status                 gemm_file_read(const char *path, struct gemm_file *f, char *err, size_t err_bytes);
enum status                 gemm_file_write(const char *path, const struct gemm_file *f, char *err, size_t err_bytes);
enum status                 gemm_file_add(struct gemm_file *f, const struct gemm_file_row *r);
const struct gemm_file_row *gemm_file_find(const struct gemm_file *f, uint32_t n, uint32_t k, enum dtype in,
                                           enum dtype out, uint32_t bucket);
void                        gemm_file_free(struct gemm_file *f);
/* "$XDG_CACHE_HOME/spillway/gemm-nvidia-h100-sm90-130100.txt" ($HOME/.cache, else /var/cache/spillway); returns text */
const char *gemm_file_name(const char *gpu, int arch, size_t version, char *text, size_t text_bytes);

struct cuda_blas {
    struct cublaslt   lt;
    struct lt_handle *h; /* NULL: no library, everything is gemm_rows' */
    size_t            version;
    char              gpu[96];
    /* GEMM_WORKSPACE bytes of the arena: the library's, or the rows that a kind prepares, or what codes_wide.c or
     * codes_fp8.cu make */
    void             *workspace;
    uint32_t         *tiles; /* [GEMM_HEADS_MAX] of fused.cuh: zero between launches */
    struct gemm_file  file;
    struct gemm_shape shape[GEMM_SHAPES_MAX];
    uint32_t          n_shape;
    bool              told;   /* that something is not tuned */
    bool              broken; /* the library refused a pinned algorithm: said once */
};

uint32_t gemm_bucket(uint32_t m);           /* of m rows, 1..GEMM_ROWS_MAX */
uint32_t gemm_bucket_rows(uint32_t bucket); /* the most rows of it */

/* Weights whose numbers lie in the workspace, so that the library has none. */
static inline bool gemm_is_slab(const struct cuda_blas *b, const struct dev_weight *w)
{
    return w->data == b->workspace;
}

/* One problem as the library sees it. Alignments: of the arena's pieces and of rows of k or n elements. */
struct gemm_problem {
    struct lt_desc   op;
    struct lt_layout a, b, d;
};
/* LT_OK, or what the library said first. more than eight: sizes and types of three matrices. */
int gemm_problem_init(struct cuda_blas *b, struct gemm_problem *p, uint32_t m, uint32_t n, uint32_t k, enum dtype in,
                      enum dtype out, uint32_t out_row);
/* Whether the library takes our descriptions and offers something for the plainest of products: LT_OK. Asked once. */
int gemm_lt_works(struct cuda_blas *b);
/* Candidates for m rows, best guess first. Returns how many.
 * more than eight: a shape, its types, and the question. */
uint32_t gemm_candidates(struct cuda_blas *b, uint32_t m, uint32_t n, uint32_t k, enum dtype in, enum dtype out,
                         size_t workspace, uint32_t want, struct lt_algo *out_algo);
/* Whether the library takes this algorithm for m rows in so many bytes of workspace. */
bool gemm_takes(struct cuda_blas *b, const struct lt_algo *a, uint32_t m, uint32_t n, uint32_t k, enum dtype in,
                enum dtype out, size_t workspace);
bool gemm_is_ours(const struct lt_algo *a); /* of a file: it stands for gemm_rows */
/* Prepares the rows where the kind wants that, and multiplies. false: it did nothing that counts, another pin must. */
bool gemm_run(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p);

/* Largest relative error of a pin over sampled elements of p; above gemm_error_max or NAN: wrong. x and w hold numbers,
 * out is overwritten (where p adds, it is added to zeros). Waits for the device. INFINITY: it does not run. */
float gemm_error(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p);
float gemm_error_max(enum dtype out);
/* gemm_rows.cu: ours. A row has the same bits for every m from 1 to GEMM_ROWS_MAX. Weights are asked for before what is
 * ahead on the stream has ended: no kernel there may write them. more than eight: three matrices, their types and sizes. */
void cuda_gemm_rows(struct cuda_dev *d, void *out, enum dtype out_t, const void *x, const void *w, uint32_t m,
                    uint32_t n, uint32_t k);
/* gemm_fused.cu: struct op_fused by a kernel of ours; plain weights, which are asked for as above. A row has the bits
 * that cuda_gemm_rows and the kernels around it give. false: nothing is done, there is no kernel for it. */
bool cuda_gemm_fused(struct cuda_dev *d, const struct op_fused *o);
/* codes_fused.cu: the same with weights that are codes, and the bits that cuda_gemm_codes and the kernels around it give. */
bool cuda_codes_fused(struct cuda_dev *d, const struct op_fused *o);
/* gemm.c: may this product of m rows be part of a kernel of ours that does more? Where it has no pin that tune has found
 * to be the library's. out: act, or F32. */
bool cuda_gemm_joins(struct cuda_dev *d, const struct dev_weight *w, enum dtype out, uint32_t m);
/* gemm.c: pins for a slab of numbers (codes_wide.c), while loading; and what is pinned for m rows, NULL if that is not the
 * library's. */
void                   gemm_slab_seen(struct cuda_dev *d, const struct dev_weight *slab);
const struct gemm_pin *gemm_slab_pin(struct cuda_dev *d, const struct dev_weight *slab, uint32_t m);
/* codes_wide.c: pins for a matrix of codes, while loading. Then a product of many rows by the library: false: it does
 * nothing that counts, our own kernels must. */
void cuda_codes_seen(struct cuda_dev *d, const struct dev_weight *w);
bool cuda_codes_wide(struct cuda_dev *d, const struct gemm_product *p);
/* codes_fp8.cu: a product of many rows with fp8 weights, whose activations become fp8 too. false: nothing is done, the
 * option was not given or it is for others to multiply. A row has the same bits for every m. */
bool cuda_codes_fp8(struct cuda_dev *d, const struct gemm_product *p);
/* codes_numbers.cu: rows [row0, + n_row) of codes as numbers of act, [n_row, k]. */
void cuda_codes_numbers(struct cuda_dev *d, void *out, const struct dev_weight *w, uint32_t row0, uint32_t n_row);
/* gemm_codes.cu: ours, of every kind of codes. As cuda_gemm_rows: a row has the same bits for every m; with d->wgmma
 * for every m below d->wgmma_codes, and for every other. */
void cuda_gemm_codes(struct cuda_dev *d, const struct gemm_product *p);
/* gemm_check.cu: *worst becomes the largest relative error of out over sampled elements. more than eight: the three
 * matrices of a product, their types and sizes. */
void cuda_gemm_check(struct cuda_dev *d, float *worst, const void *out, enum dtype out_t, const void *x, const void *w,
                     uint32_t m, uint32_t n, uint32_t k);
/* fill.cu: element (row0 + r) * row_len + col0 + c of the numbers of `seed` to w[r, c]; see dev_weight_fill. more than
 * eight: as there. */
void cuda_fill(struct cuda_dev *d, void *w, enum dtype t, uint32_t n_row, uint32_t n_col, uint64_t seed, uint64_t row0,
               uint64_t col0, uint64_t row_len, float std);
#ifdef __cplusplus
}
#endif
