/* tensor_map: maps by the driver, whose function is asked for by name: nothing here is linked with it. See tensor_map.h. */
#include "kernels/cuda/tensor_map.h"
#include "base/check.h"
#include <cuda_runtime_api.h>
#include <pthread.h>

enum { MAPS_SINCE = 12000 /* CUDA 12.0 */ };
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult (*encode)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                          const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
                          const cuuint32_t *step, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                          CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill outside);

static void find(void)
{
    void                                *found = NULL;
    enum cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
    cudaError_t                          e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, MAPS_SINCE, cudaEnableDefault, &how);
    if (e == cudaSuccess && how == cudaDriverEntryPointSuccess)
        *(void **)&encode = found;
    else
        (void)cudaGetLastError(); /* no op is to take this for its own */
}
bool cuda_tensor_maps(void)
{
    pthread_once(&once, find);
    return encode != NULL;
}
CUtensorMap cuda_tensor_map(const void *base, uint32_t rows, uint32_t cols, uint32_t box_rows)
{
    const cuuint64_t size[] = { cols, rows }, stride[] = { (cuuint64_t)cols * sizeof(uint16_t) };
    const cuuint32_t box[] = { TENSOR_COLS, box_rows }, step[] = { 1, 1 };
    CUtensorMap      map;
    CHECK(cuda_tensor_maps());
    CHECK(encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, (void *)(uintptr_t)base, size, stride, box, step,
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    return map;
}
