#include "base/dtype.h"

const char *dtype_name(enum dtype t)
{
    static const char *const name[DT_COUNT] = {
        [DT_F32] = "f32", [DT_BF16] = "bf16", [DT_F16] = "f16",      [DT_F8E4M3] = "f8e4m3",
        [DT_I4] = "i4",   [DT_I8] = "i8",     [DT_F4E2M1] = "f4e2m1"
    };
    return (unsigned)t < DT_COUNT ? name[t] : "unknown";
}

float f16_to_f32(f16 x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exp = (x >> 10) & 0x1fu, frac = x & 0x3ffu, u;
    if (exp == 0x1f) {
        u = sign | 0x7f800000u | frac << 13;
    } else if (exp) {
        u = sign | (exp + 112) << 23 | frac << 13;
    } else if (frac) { /* subnormal: frac * 2^-24, normal in float32 */
        uint32_t shift = (uint32_t)__builtin_clz(frac) - 21;
        u = sign | (113 - shift) << 23 | ((frac << shift) & 0x3ffu) << 13;
    } else {
        u = sign;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

f16 f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (f16)(sign | 0x7e00u | ((mag >> 13) & 0x3ffu)); /* NaN, quiet, payload kept */
    if (mag >= 0x477ff000u) return (f16)(sign | 0x7c00u);                         /* from 65520 on: infinity */
    if (mag >= 0x38800000u)                                                       /* normal: from 2^-14 */
        return (f16)(sign | ((mag + 0xfffu + ((mag >> 13) & 1u) - 0x38000000u) >> 13));
    if (mag < 0x33000000u) return (f16)sign; /* below 2^-25: zero */
    uint32_t exp = mag >> 23, frac = (mag & 0x7fffffu) | 0x800000u,
             shift = 126 - exp; /* frac * 2^(exp-150) in units of 2^-24 */
    uint32_t half = 1u << (shift - 1), out = frac >> shift, rest = frac & ((1u << shift) - 1);
    if (rest > half || (rest == half && (out & 1u))) out++;
    return (f16)(sign | out);
}
