/* fill: the numbers of dev_weight_fill, one function for host and device.   Private to kernels/. Thread: any, no
 * state. */
#pragma once
#include <stdint.h>
#ifndef FILL_DEVICE
#define FILL_DEVICE static inline
#endif

/* Number i of the sequence of `seed`: the centred sum of four bytes of a hash. Nearly normal, within 3.5 std, exact in
 * float, hence the same on every machine. One number in about 370 is zero. */
FILL_DEVICE float fill_number(uint64_t seed, uint64_t i, float std)
{
    uint64_t x = (i >> 1) + seed * 0x9e3779b97f4a7c15u; /* splitmix64, two numbers a turn */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    uint32_t h = (uint32_t)(i & 1 ? x >> 32 : x);
    int      sum = (int)(h & 255) + (int)(h >> 8 & 255) + (int)(h >> 16 & 255) + (int)(h >> 24) - 510;
    return (float)sum * (std * (1.0f / 147.802f)); /* 147.802: the deviation of such a sum */
}
