/* What nccl_api.h declares is what the nccl.h of this machine declares: checked by the compiler, where there is one. */
#include "test.h"
#include "kernels/cuda/nccl_api.h"
#if !defined           CUDA_EMU && __has_include(<nccl.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wold-style-definition"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop
#include <assert.h>

/* Pointers pass as pointers and enums as int: the same places of the same width. */
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
                  sizeof(ncclRedOp_t) == sizeof(int),
              "enums");
static_assert(sizeof(ncclComm_t) == sizeof(nccl_comm) && sizeof(ncclUniqueId) == sizeof(struct nccl_id), "handles");
static_assert((int)ncclSuccess == NCCL_OK && (int)ncclInProgress == NCCL_IN_PROGRESS, "results");
static_assert((int)ncclSum == NCCL_SUM && (int)ncclInt8 == NCCL_INT8 && (int)ncclFloat16 == NCCL_F16, "types");
static_assert((int)ncclFloat32 == NCCL_F32 && (int)ncclBfloat16 == NCCL_BF16, "types");
static_assert(offsetof(ncclConfig_t, size) == offsetof(struct nccl_config, size) &&
                  offsetof(ncclConfig_t, magic) == offsetof(struct nccl_config, magic) &&
                  offsetof(ncclConfig_t, version) == offsetof(struct nccl_config, version) &&
                  offsetof(ncclConfig_t, blocking) == offsetof(struct nccl_config, blocking),
              "the configuration");
#define IS(call, ...) static_assert(_Generic(&(call), ncclResult_t(*)(__VA_ARGS__) : 1, default : 0), #call)
IS(ncclGetVersion, int *);
IS(ncclGetUniqueId, ncclUniqueId *);
IS(ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
IS(ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
IS(ncclCommAbort, ncclComm_t);
IS(ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
IS(ncclAllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
IS(ncclBroadcast, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
#if NCCL_VERSION_CODE >= 22700
static_assert(NCCL_WIN_COLL_SYMMETRIC == NCCL_WINDOW_SYMMETRIC, "the flag");
static_assert(sizeof(ncclWindow_t) == sizeof(nccl_window), "handles");
#ifdef NCCL_WIN_REQUIRED_ALIGNMENT
static_assert(NCCL_WIN_REQUIRED_ALIGNMENT == NCCL_WINDOW_ALIGN, "alignment");
#endif
IS(ncclMemAlloc, void **, size_t);
IS(ncclMemFree, void *);
IS(ncclCommWindowRegister, ncclComm_t, void *, size_t, ncclWindow_t *, int);
IS(ncclCommWindowDeregister, ncclComm_t, ncclWindow_t);
#endif
#define COMPARED NCCL_VERSION_CODE
#else
#define COMPARED 0
#endif

/* And the library of this machine has those calls, if it is there: opening it needs no GPU. */
static void each_version_of_the_library_has_its_functions(void **state)
{
    (void)state;
    char                   why[300];
    const struct nccl_api *api = nccl_api_get(why, sizeof why);
    printf("    compared with nccl.h %d, library %d\n", COMPARED, api ? api->version : 0);
    if (!api) test_skip("no NCCL: %s", why);
    assert_int_equal(nccl_has_windows(api, why, sizeof why), api->version >= NCCL_WINDOWS_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_version_of_the_library_has_its_functions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
