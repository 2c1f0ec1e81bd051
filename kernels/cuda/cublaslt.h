/* cublaslt: what we use of cuBLASLt, declared by ourselves and found at run time, so that neither its header nor its
 * library is needed to build, nor the library to start.   Thread: any; a handle belongs to the thread that made it.
 * Names and values as in cublasLt.h of CUDA 12 and 13 (tests/cuda/test_cublaslt.c compares them where that header is).
 * Everything is column-major there: our row-major [r, c] is its [c, r] with leading dimension c. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct lt_handle; /* cublasLtContext */
struct lt_layout {
    uint64_t data[8];
};
struct lt_desc {
    uint64_t data[32];
};
struct lt_pref {
    uint64_t data[8];
};
/* An algorithm with its settings: plain bytes, good for the same version of the library on the same kind of GPU. */
struct lt_algo {
    uint64_t data[8];
};
struct lt_result {
    struct lt_algo algo;
    size_t         workspace_bytes;
    int            state; /* LT_OK: the rest holds */
    float          waves;
    int            reserved[4];
};

enum {
    LT_OK = 0,
    LT_ALLOC_FAILED = 3,
    LT_INVALID_VALUE = 7,
    LT_EXECUTION_FAILED = 13,
    LT_NOT_SUPPORTED = 15,
    LT_R_32F = 0,
    LT_R_16F = 2,
    LT_R_16BF = 14,
    LT_COMPUTE_32F = 68,
    LT_OP_T = 1,
    LT_DESC_TRANSA = 3,
    LT_PREF_WORKSPACE_BYTES = 1,
    LT_PREF_ALIGN_A = 5, /* B, C, D follow */
    LT_CONFIG_ID = 0,
    LT_CONFIG_TILE = 1,
    LT_CONFIG_SPLITK = 2,
    LT_CONFIG_STAGES = 6
};

struct cublaslt {
    size_t (*version)(void);
    int (*create)(struct lt_handle **h);
    int (*destroy)(struct lt_handle *h);
    int (*layout_init)(struct lt_layout *l, size_t size, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*desc_init)(struct lt_desc *d, size_t size, int compute, int scale);
    int (*desc_set)(struct lt_desc *d, int attr, const void *v, size_t size);
    int (*pref_init)(struct lt_pref *p, size_t size);
    int (*pref_set)(struct lt_pref *p, int attr, const void *v, size_t size);
    /* more than eight: the library says so */
    int (*heuristic)(struct lt_handle *h, struct lt_desc *op, struct lt_layout *a, struct lt_layout *b,
                     struct lt_layout *c, struct lt_layout *d, struct lt_pref *p, int n_wanted, struct lt_result *r,
                     int *n);
    int (*check)(struct lt_handle *h, struct lt_desc *op, struct lt_layout *a, struct lt_layout *b, struct lt_layout *c,
                 struct lt_layout *d, const struct lt_algo *algo, struct lt_result *r);
    int (*config_get)(const struct lt_algo *algo, int attr, void *v, size_t size, size_t *written);
    /* more than eight: the library says so */
    int (*matmul)(struct lt_handle *h, struct lt_desc *op, const void *alpha, const void *a, struct lt_layout *la,
                  const void *b, struct lt_layout *lb, const void *beta, const void *c, struct lt_layout *lc, void *d,
                  struct lt_layout *ld, const struct lt_algo *algo, void *workspace, size_t workspace_bytes,
                  void *stream);
};

/* path: the library's file; NULL or "": libcublasLt.so.13, then .12, where the loader looks (LD_LIBRARY_PATH,
 * ld.so.cache), then under /usr/local/cuda/lib64; "none": as if there were none. It stays loaded until the process
 * ends: libraries of CUDA do not like to go while a context lives. err: one line with what was tried. ST_NOT_FOUND. */
enum status cublaslt_load(const char *path, struct cublaslt *out, char *err, size_t err_bytes);

#ifdef CUDA_EMU
extern const struct cublaslt emu_cublaslt; /* tests/emu/cublaslt.cc */
#endif
#ifdef __cplusplus
}
#endif
