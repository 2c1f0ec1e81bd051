/* tensor: boxes of a matrix by bulk copies, and the maps that describe it.   See include/emu_hopper.h. Of what the driver
 * has, what kernels/cuda/tensor_map.h asks for: two dimensions of 16-bit numbers, rows of 128 bytes, SWIZZLE_128. */
#include <cuda.h>
#include <emu_hopper.h>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emu
{
enum { NUMBER = 2, ROW = 128, PATTERN = 1024, BOX_MAX = 256 };
struct Map { /* in a CUtensorMap */
    uint64_t    mark;
    const char *base;
    uint64_t    rows, cols, stride;
    uint32_t    box_rows;
};
static const uint64_t MARK = 0x70616d5f726f736e;
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "a map has room");

static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *size,
                       const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *step,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill outside)
{
    bool known = type == CU_TENSOR_MAP_DATA_TYPE_UINT16 && rank == 2 && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                 swizzle == CU_TENSOR_MAP_SWIZZLE_128B && outside == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
                 step[0] == 1 && step[1] == 1;
    bool right = !((uintptr_t)map & 63) && !((uintptr_t)base & 15) && !(stride[0] & 15) && size[0] && size[1] &&
                 size[0] <= 1ull << 32 && size[1] <= 1ull << 32 && stride[0] < 1ull << 40 && box[0] * NUMBER == ROW &&
                 box[1] && box[1] <= BOX_MAX;
    if (!known || !right) return CUDA_ERROR_INVALID_VALUE;
    Map m = { MARK, (const char *)base, size[1], size[0], stride[0], box[1] };
    memcpy((void *)map, &m, sizeof m);
    return CUDA_SUCCESS;
}
void *tensor_encode() { return (void *)encode; }

void tensor_load_to(void *smem, const CUtensorMap *map, int32_t col, int32_t row, uint64_t *bar, uint32_t ranks)
{
    Map m;
    memcpy(&m, (const void *)map, sizeof m);
    if (m.mark != MARK) die("tensor copy: this is no map");
    if (smem_address(smem) & (PATTERN - 1)) die("tensor copy: SWIZZLE_128 begins at no multiple of 1024");
    copy_to(smem, m.box_rows * ROW, bar, ranks, [m, col, row](void *to) {
        memset(to, 0, m.box_rows * ROW);
        for (uint32_t r = 0; r < m.box_rows; r++)
            for (uint32_t at = 0; at < ROW; at += NUMBER) {
                int64_t y = (int64_t)row + r, x = (int64_t)col + at / NUMBER;
                if (y < 0 || x < 0 || y >= (int64_t)m.rows || x >= (int64_t)m.cols) continue;
                uint32_t lies = r * ROW + at;
                lies ^= lies >> 3 & 0x70;
                memcpy((char *)to + lies, m.base + (uint64_t)y * m.stride + (uint64_t)x * NUMBER, NUMBER);
            }
    });
}
} // namespace emu
