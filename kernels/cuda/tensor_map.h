/* tensor_map: what a tensor copy (tensor_load_to, hopper.cuh) knows of the matrix that it takes boxes of. For sm_90. */
#pragma once
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
enum { TENSOR_COLS = 64 /* numbers of a box's row: 128 bytes, as SWIZZLE_128 has them */ };
/* Does the driver make such maps? It is asked once. Thread: any. */
bool cuda_tensor_maps(void);
/* Boxes of `box_rows` (at most 256) rows and TENSOR_COLS columns of numbers of 16 bits at `base` (device memory, a multiple
 * of 16): [rows, cols], rows one after another, cols a multiple of 8. What a box has outside of the matrix is 0, in shared
 * memory its rows of 128 bytes lie one after another, swizzled. The map goes to a kernel by value, as __grid_constant__. */
CUtensorMap cuda_tensor_map(const void *base, uint32_t rows, uint32_t cols, uint32_t box_rows);
#ifdef __cplusplus
}
#endif
