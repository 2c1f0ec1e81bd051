#include "kernels/quant.h"
#include "base/log.h"
#include "kernels/elem.h"
#include <float.h>
#include <math.h>

enum { GROUP_MAX = 1024 };

bool quant_ok(const struct dev_quant *q, uint32_t k)
{
    if (q->code == DT_F4E2M1) return (q->group == 32 || q->group == 16) && !q->zero && !q->act8 && k > 0;
    if (q->code != DT_I8 && q->code != DT_I4 && q->code != DT_F8E4M3) return false;
    if (q->group & (q->group - 1) || (q->group && (q->group < 32 || q->group > GROUP_MAX))) return false;
    if (q->zero && q->code != DT_I4) return false;
    if (q->act8 && (q->zero || q->code == DT_F8E4M3 || (q->code == DT_I8 && q->group && q->group < 64))) return false;
    return k > 0;
}

enum status weight_refuse(const char *device, enum dtype t, const struct dev_quant *q)
{
    if (q)
        LOG_ERROR("dev: the %s device has no %s codes in groups of %u%s%s", device, dtype_name(t), q->group,
                  q->zero ? " with zeros" : "", q->act8 ? " by 8-bit activations" : "");
    else
        LOG_ERROR("dev: the %s device has no weights of type %s", device, dtype_name(t));
    return ST_CONFIG;
}

/* to the nearest even integer; |x| < 2^22. A call of rintf for each would be most of the time. */
static inline int32_t round_even(float x)
{
    float    y = x + 12582912.0f;
    uint32_t u;
    memcpy(&u, &y, 4);
    return (int32_t)u - 0x4b400000;
}

/* The first of the largest by size; x is finite. Sizes compare as the whole numbers that their bits are: one step an
 * element. */
static float largest(const float *x, uint32_t n)
{
    uint32_t max = 0, i = 0, u;
    for (uint32_t j = 0; j < n; j++) {
        memcpy(&u, x + j, 4);
        u &= 0x7fffffffu;
        max = u > max ? u : max;
    }
    for (; i < n; i++) {
        memcpy(&u, x + i, 4);
        if ((u & 0x7fffffffu) == max) break;
    }
    return i < n ? x[i] : 0;
}

static int32_t within(int32_t v, int32_t low, int32_t high)
{
    if (v < low) return low;
    return v > high ? high : v;
}

/* The nearest E2M1 of |x| < 8, ties to even: steps of a half below 2, of 1 below 4, then of 2; at most 6. */
static uint8_t to_f4(float x)
{
    uint32_t sign = x < 0 ? 8 : 0;
    float    size = fabsf(x);
    int32_t  code = 0;
    if (size < 2)
        code = round_even(size * 2);
    else if (size < 4)
        code = round_even(size) + 2;
    else
        code = round_even(size / 2) + 4;
    return (uint8_t)(sign | (uint32_t)within(code, 0, 7));
}

static void quant_floats4(uint32_t n, const float *x, uint8_t *out, float *scale)
{
    uint32_t u;
    float    max = fabsf(largest(x, n));
    memcpy(&u, &max, 4);
    u = u >> 23 > 2 ? (u >> 23) - 2 : 0; /* the power of two of the largest, less that of 4 */
    *scale = f8e8m0_to_f32((uint8_t)u);
    for (uint32_t i = 0; i < n; i++) out[i] = to_f4(x[i] / *scale);
}

/* The same with a scale of E4M3 times the row's factor. */
static void quant_floats4_factor(uint32_t n, const float *x, float factor, uint8_t *out, float *scale)
{
    *scale = f8e4m3_to_f32(f32_to_f8e4m3(fabsf(largest(x, n)) / 6 / factor));
    float by = *scale * factor;
    for (uint32_t i = 0; i < n; i++) out[i] = by > 0 ? to_f4(x[i] / by) : 0;
}

static void quant_group(enum dtype code, uint32_t n, const float *x, uint8_t *out, float *scale)
{
    if (code == DT_F4E2M1) {
        quant_floats4(n, x, out, scale);
        return;
    }
    float top = largest(x, n), max = fabsf(top);
    float s = max / (code == DT_I8 ? 127.0f : 448.0f);
    if (code == DT_I4) s = f16_to_f32(f32_to_f16(top / -8.0f));
    float r = s != 0 ? 1.0f / s : 0;
    if (!(fabsf(r) < 3e38f)) s = r = 0; /* so small that its inverse overflows: they are all 0 */
    *scale = s;
    if (code == DT_I8)
        for (uint32_t i = 0; i < n; i++) {
            int32_t v = round_even(x[i] * r);
            out[i] = (uint8_t)(int8_t)within(v, -127, 127);
        }
    else if (code == DT_I4)
        for (uint32_t i = 0; i < n; i++) {
            int32_t v = round_even(x[i] * r) + 8;
            out[i] = (uint8_t)within(v, 0, 15);
        }
    else
        for (uint32_t i = 0; i < n; i++) out[i] = f32_to_f8e4m3(fmaxf(-448.0f, fminf(448.0f, x[i] * r)));
}

/* Elements [at, at + n) of a row; what is not finite is 0. */
static void load_finite(float *out, const void *src, enum dtype t, size_t at, uint32_t n)
{
    if (t == DT_BF16) /* most checkpoints; a choice of type for each element would take longer than all the rest */
        for (uint32_t i = 0; i < n; i++) {
            bf16 h;
            memcpy(&h, (const char *)src + 2 * (at + i), 2);
            out[i] = bf16_to_f32(h);
        }
    else
        for (uint32_t i = 0; i < n; i++) out[i] = elem_load(src, t, at + i);
    for (uint32_t i = 0; i < n; i++) out[i] = fabsf(out[i]) < INFINITY ? out[i] : 0;
}

/* So small that it is no normal number: 1, and the codes are 0. */
static float row_factor(uint32_t k, const void *src, enum dtype t)
{
    float part[GROUP_MAX], max = 0;
    for (uint32_t i = 0, n; i < k; i += n) {
        n = k - i < GROUP_MAX ? k - i : GROUP_MAX;
        load_finite(part, src, t, i, n);
        max = fmaxf(max, fabsf(largest(part, n)));
    }
    return max / (6 * 448) >= FLT_MIN ? max / (6 * 448) : 1;
}

float quant_row(const struct dev_quant *q, uint32_t k, const void *src, enum dtype t, uint8_t *code, float *scale)
{
    float    part[GROUP_MAX], factor = quant_has_factor(q) ? row_factor(k, src, t) : 1;
    uint32_t group = q->group ? q->group : k;
    if (group <= GROUP_MAX) {
        for (uint32_t g = 0; g * group < k; g++) {
            uint32_t n = k - g * group < group ? k - g * group : group;
            load_finite(part, src, t, (size_t)g * group, n);
            if (quant_has_factor(q))
                quant_floats4_factor(n, part, factor, code + (size_t)g * group, &scale[g]);
            else
                quant_group(q->code, n, part, code + (size_t)g * group, &scale[g]);
        }
        return factor;
    }
    /* one group that is long: its largest number first, which a part that begins with it then meets */
    float top = 0;
    for (uint32_t i = 0, n; i < k; i += n) {
        n = k - i < GROUP_MAX ? k - i : GROUP_MAX;
        load_finite(part, src, t, i, n);
        float most = largest(part, n);
        if (fabsf(most) > fabsf(top)) top = most;
    }
    for (uint32_t i = 0, n; i < k; i += n) {
        n = k - i < GROUP_MAX - 1 ? k - i : GROUP_MAX - 1;
        uint8_t out[GROUP_MAX];
        part[0] = top;
        load_finite(part + 1, src, t, i, n);
        quant_group(q->code, n + 1, part, out, scale);
        memcpy(code + i, out + 1, n);
    }
    return factor;
}

float quant_act(const float *x, uint32_t k, int8_t *code)
{
    float max = 0, poison = 0;
    for (uint32_t i = 0; i < k; i++) {
        float a = fabsf(x[i]);
        max = a > max ? a : max;
        poison += x[i] * 0.0f; /* NaN and infinities stay */
    }
    float s = max / 127.0f, r = s != 0 ? 1.0f / s : 0;
    if (poison != 0 || !(r < 3e38f)) {
        memset(code, 0, k);
        return poison != 0 ? NAN : 0;
    }
    for (uint32_t i = 0; i < k; i++) code[i] = (int8_t)round_even(x[i] * r);
    return s;
}
