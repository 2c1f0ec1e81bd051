/* amx: the tile instructions that gemm_amx.c uses, by name. tests/op/amx_model.h has the same ones in C, for machines
 * without them. Tiles 0-3 are sums, 4-5 rows of x, 6-7 columns of w. Tile numbers are constants.   Private to
 * kernels/cpu/. */
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

struct amx_config {
    uint8_t  palette, start, none[14];
    uint16_t bytes[16];
    uint8_t  rows[16];
} __attribute__((aligned(64)));

/* Sums and x have so many rows, w has 16. By hand: gcc 12's _tile_loadconfig says that it reads 8 bytes of the 64, and
 * then their stores are dropped. Tiles are of the thread that says so; what they held is lost. */
static inline void amx_rows(uint32_t rows)
{
    struct amx_config c;
    memset(&c, 0, sizeof c);
    c.palette = 1;
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = 64;
        c.rows[i] = (uint8_t)(i < 6 ? rows : 16);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}
#define amx_done()              _tile_release()
#define amx_zero(t)             _tile_zero(t)
#define amx_load(t, p, stride)  _tile_loadd(t, p, (long)(stride))
#define amx_store(t, p, stride) _tile_stored(t, p, (long)(stride))
#define amx_bf16(c, a, b)       _tile_dpbf16ps(c, a, b)
#define amx_int8(c, a, b)       _tile_dpbsud(c, a, b) /* a signed, b unsigned */
