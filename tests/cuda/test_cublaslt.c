/* Our own words for cuBLASLt against its header and its library, where they are. */
#include "tests/op/op_test.h"
#include "kernels/cuda/cublaslt.h"
#include "test.h"
#if !defined(CUDA_EMU) && defined(__has_include)
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define HEADER 1
_Static_assert((int)LT_OK == (int)CUBLAS_STATUS_SUCCESS, "status");
_Static_assert((int)LT_INVALID_VALUE == (int)CUBLAS_STATUS_INVALID_VALUE, "status");
_Static_assert((int)LT_NOT_SUPPORTED == (int)CUBLAS_STATUS_NOT_SUPPORTED, "status");
_Static_assert((int)LT_R_32F == (int)CUDA_R_32F && (int)LT_R_16F == (int)CUDA_R_16F &&
                   (int)LT_R_16BF == (int)CUDA_R_16BF,
               "types");
_Static_assert((int)LT_COMPUTE_32F == (int)CUBLAS_COMPUTE_32F && (int)LT_OP_T == (int)CUBLAS_OP_T, "operation");
_Static_assert((int)LT_DESC_TRANSA == (int)CUBLASLT_MATMUL_DESC_TRANSA, "operation");
_Static_assert((int)LT_PREF_WORKSPACE_BYTES == (int)CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, "preference");
_Static_assert((int)LT_PREF_ALIGN_A == (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, "preference");
_Static_assert((int)LT_PREF_ALIGN_A + 1 == (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, "preference");
_Static_assert((int)LT_PREF_ALIGN_A + 2 == (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, "preference");
_Static_assert((int)LT_PREF_ALIGN_A + 3 == (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, "preference");
_Static_assert((int)LT_CONFIG_ID == (int)CUBLASLT_ALGO_CONFIG_ID &&
                   (int)LT_CONFIG_TILE == (int)CUBLASLT_ALGO_CONFIG_TILE_ID,
               "config");
_Static_assert((int)LT_CONFIG_SPLITK == (int)CUBLASLT_ALGO_CONFIG_SPLITK_NUM, "config");
_Static_assert((int)LT_CONFIG_STAGES == (int)CUBLASLT_ALGO_CONFIG_STAGES_ID, "config");
_Static_assert(sizeof(struct lt_layout) == sizeof(cublasLtMatrixLayoutOpaque_t), "size");
_Static_assert(sizeof(struct lt_desc) == sizeof(cublasLtMatmulDescOpaque_t), "size");
_Static_assert(sizeof(struct lt_pref) == sizeof(cublasLtMatmulPreferenceOpaque_t), "size");
_Static_assert(sizeof(struct lt_algo) == sizeof(cublasLtMatmulAlgo_t), "size");
_Static_assert(sizeof(struct lt_result) == sizeof(cublasLtMatmulHeuristicResult_t), "size");
_Static_assert(offsetof(struct lt_result, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize),
               "place");
_Static_assert(offsetof(struct lt_result, state) == offsetof(cublasLtMatmulHeuristicResult_t, state), "place");
#endif
#endif

static void a_missing_library_is_reported_in_one_line(void **state)
{
    (void)state;
    struct cublaslt lt;
    char            err[200] = "";
    assert_int_equal(cublaslt_load("/nowhere/libcublasLt.so.13", &lt, err, sizeof err), ST_NOT_FOUND);
    assert_non_null(strstr(err, "/nowhere/libcublasLt.so.13"));
    assert_null(strchr(err, '\n'));
    assert_int_equal(cublaslt_load("none", &lt, err, sizeof err), ST_NOT_FOUND);
#ifndef CUDA_EMU
    assert_int_equal(cublaslt_load("libm.so.6", &lt, err, sizeof err), ST_NOT_FOUND); /* one that is something else */
    assert_non_null(strstr(err, "cublasLt"));
#endif
}

/* What needs no GPU: every function is there, and descriptors of our sizes are taken. */
static void the_library_takes_our_descriptors(void **state)
{
    (void)state;
    struct cublaslt  lt;
    char             err[200];
    struct lt_layout l;
    struct lt_desc   d;
    struct lt_pref   p;
    int              op = LT_OP_T;
    uint64_t         bytes = 1 << 20;
    uint32_t         align = 16;
    if (cublaslt_load(NULL, &lt, err, sizeof err)) test_skip("%s", err);
    assert_true(lt.version() >= 120000);
    assert_int_equal(lt.layout_init(&l, sizeof l, LT_R_16BF, 64, 48, 64), LT_OK);
    assert_int_equal(lt.desc_init(&d, sizeof d, LT_COMPUTE_32F, LT_R_32F), LT_OK);
    assert_int_equal(lt.desc_set(&d, LT_DESC_TRANSA, &op, sizeof op), LT_OK);
    assert_int_equal(lt.pref_init(&p, sizeof p), LT_OK);
    assert_int_equal(lt.pref_set(&p, LT_PREF_WORKSPACE_BYTES, &bytes, sizeof bytes), LT_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(lt.pref_set(&p, LT_PREF_ALIGN_A + i, &align, sizeof align), LT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_reported_in_one_line),
        cmocka_unit_test(the_library_takes_our_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
