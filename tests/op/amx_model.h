/* amx_model: the tile instructions of kernels/cpu/amx.h in plain C, as Intel's manual has them (SDM 2A, TDPBF16PS,
 * TDPBSUD): for machines that have none. It checks what the processor would trap on. Tiles are of the thread. */
#pragma once
#include "base/check.h"
#include "base/dtype.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static _Thread_local struct {
    unsigned char byte[16][64];
} amx_tile[8];
static _Thread_local uint32_t amx_n_row;  /* 0: not configured */
static bool                   amx_broken; /* one product is off by one */

static inline void amx_rows(uint32_t rows)
{
    CHECK(rows >= 1 && rows <= 16);
    memset(amx_tile, 0xa5, sizeof amx_tile);
    amx_n_row = rows;
}
static inline void     amx_done(void) { amx_n_row = 0; }
static inline uint32_t amx_rows_of(int t)
{
    CHECK(amx_n_row && t >= 0 && t < 8);
    return t < 6 ? amx_n_row : 16;
}
static inline void amx_zero(int t)
{
    amx_rows_of(t);
    memset(&amx_tile[t], 0, sizeof amx_tile[t]);
}
static inline void amx_load(int t, const void *p, size_t stride)
{
    memset(&amx_tile[t], 0, sizeof amx_tile[t]);
    for (uint32_t r = 0; r < amx_rows_of(t); r++) memcpy(amx_tile[t].byte[r], (const char *)p + r * stride, 64);
}
static inline void amx_store(int t, void *p, size_t stride)
{
    for (uint32_t r = 0; r < amx_rows_of(t); r++) memcpy((char *)p + r * stride, amx_tile[t].byte[r], 64);
}
/* two products a lane, the sum of the even ones and that of the odd ones rounded by themselves, then added to c */
static inline void amx_bf16(int c, int a, int b)
{
    CHECK(c < 4 && (a == 4 || a == 5) && b >= 6);
    for (uint32_t r = 0; r < amx_rows_of(c); r++)
        for (int n = 0; n < 16; n++) {
            float sum, even = amx_broken && r == 2 && n == 3, odd = 0;
            for (int k = 0; k < 16; k++) {
                bf16 x[2], w[2];
                memcpy(x, amx_tile[a].byte[r] + 4 * k, 4);
                memcpy(w, amx_tile[b].byte[k] + 4 * n, 4);
                even += bf16_to_f32(x[0]) * bf16_to_f32(w[0]);
                odd += bf16_to_f32(x[1]) * bf16_to_f32(w[1]);
            }
            memcpy(&sum, amx_tile[c].byte[r] + 4 * n, 4);
            sum += even + odd;
            memcpy(amx_tile[c].byte[r] + 4 * n, &sum, 4);
        }
}
static inline void amx_int8(int c, int a, int b)
{
    CHECK(c < 4 && (a == 4 || a == 5) && b >= 6);
    for (uint32_t r = 0; r < amx_rows_of(c); r++)
        for (int n = 0; n < 16; n++) {
            uint32_t sum, off = amx_broken && r == 2 && n == 3;
            memcpy(&sum, amx_tile[c].byte[r] + 4 * n, 4);
            for (int k = 0; k < 64; k++)
                sum += (uint32_t)((int8_t)amx_tile[a].byte[r][k] * (int)amx_tile[b].byte[k / 4][4 * n + k % 4]);
            sum += off;
            memcpy(amx_tile[c].byte[r] + 4 * n, &sum, 4);
        }
}
