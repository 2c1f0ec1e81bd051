/* isa: which instruction set the cpu device uses, picked once at open. */
#include "kernels/cpu/attn.h"
#include <stdio.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>

static bool has_mmla(void)
{
    enum { I8MM = 1 << 13, BF16 = 1 << 14 }; /* HWCAP2_* of <asm/hwcap.h>, which may be older than the processor */
    return (getauxval(AT_HWCAP2) & (I8MM | BF16)) == (I8MM | BF16);
}
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_f16c(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
static bool has_avx2(void) { return has_f16c() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static bool has_avx_vnni(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & AVX_VNNI;
}
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
static bool has_bf16(void)
{
    unsigned a, b, c, d;
    return has_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & bit_AVX512BF16;
}
static bool has_vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
/* Tiles are large: Linux (5.16) lets a process use them that asks. */
static bool has_amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, TILE = 1 << 24, INT8 = 1 << 25, BF16 = 1 << 22 };
    unsigned a, b, c, d;
    if (!has_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (TILE | INT8 | BF16)) != (TILE | INT8 | BF16))
        return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 && gemm_amx_works() &&
           attn_amx_works();
}
#endif
static bool has_c(void) { return true; }

static const struct gemm_kind *lanes_kind(enum dtype t, bool act8)
{
    if (t == DT_F32 || t == DT_BF16 || t == DT_F16) return &gemm_lanes_plain;
    return act8 ? &gemm_lanes_act8 : &gemm_lanes_quant;
}
#if defined(__x86_64__)
/* By whole numbers, where weights are codes of 8 bits or 4. */
static const struct gemm_kind *avx2_kind(enum dtype t, bool act8)
{
    if (t == DT_I8) return act8 ? &gemm_words_act8_avx2 : &gemm_words_avx2;
    if (t == DT_I4) return act8 ? &gemm_nibbles_act8_avx2 : &gemm_words_avx2;
    if (t == DT_F4E2M1) return &gemm_words_avx2;
    return lanes_kind(t, act8);
}
static const struct gemm_kind *avx512_kind(enum dtype t, bool act8)
{
    if (t == DT_I8) return act8 ? &gemm_words_act8_avx512 : &gemm_words_avx512;
    if (t == DT_I4) return act8 ? &gemm_nibbles_act8_avx512 : &gemm_words_avx512;
    if (t == DT_F4E2M1) return &gemm_words_avx512;
    return lanes_kind(t, act8);
}
static const struct gemm_kind *avx_vnni_kind(enum dtype t, bool act8)
{
    if (t == DT_I8) return act8 ? &gemm_words_act8_vnni : &gemm_words_vnni;
    if (t == DT_I4) return act8 ? &gemm_nibbles_act8_vnni : &gemm_words_vnni;
    if (t == DT_F4E2M1) return &gemm_words_vnni;
    return lanes_kind(t, act8);
}
static const struct gemm_kind *vnni_kind(enum dtype t, bool act8)
{
    const struct gemm_kind *k = gemm_vnni_kind(t, act8);
    return k ? k : lanes_kind(t, act8);
}
static const struct gemm_kind *bf16_kind(enum dtype t, bool act8)
{
    const struct gemm_kind *k = gemm_bf16_kind(t, act8);
    return k ? k : lanes_kind(t, act8);
}
static const struct gemm_kind *amx_kind(enum dtype t, bool act8)
{
    const struct gemm_kind *k = gemm_amx_kind(t, act8);
    return k ? k : lanes_kind(t, act8);
}
#elif defined(__aarch64__)
static const struct gemm_kind *mmla_kind(enum dtype t, bool act8)
{
    const struct gemm_kind *k = gemm_mmla_kind(t, act8);
    return k ? k : lanes_kind(t, act8);
}
#endif

#if defined(__x86_64__) /* those that pair have vnni too */
const struct gemm_kind *cpu_full_kind(enum dtype t, bool act8) { return vnni_kind(t, act8); }
#else
const struct gemm_kind *cpu_full_kind(enum dtype t, bool act8) { return lanes_kind(t, act8); }
#endif

static const struct cpu_isa
    isas[] = { /* best first */
#if defined(__x86_64__)
               { DEV_ISA_AMX, &simd_avx512, has_amx, amx_kind, { 0, 0 }, &attn_amx },
               { DEV_ISA_AVX512_BF16, &simd_avx512, has_bf16, bf16_kind, { 20, 20 }, &attn_bf16 },
               { DEV_ISA_AVX512_VNNI, &simd_avx512, has_vnni, vnni_kind, { 20, 20 }, NULL },
               { DEV_ISA_AVX512, &simd_avx512, has_avx512, avx512_kind, { 10, 18 }, NULL },
               { DEV_ISA_AVX_VNNI, &simd_avx2, has_avx_vnni, avx_vnni_kind, { 20, 20 }, NULL },
               { DEV_ISA_AVX2, &simd_avx2, has_avx2, avx2_kind, { 10, 18 }, NULL },
#elif defined(__aarch64__)
               { DEV_ISA_NEON_BF16, &simd_neon, has_mmla, mmla_kind, { 0, 0 }, NULL },
               { DEV_ISA_NEON, &simd_neon, has_c, lanes_kind, { 0, 0 }, NULL },
#endif
               { DEV_ISA_SCALAR, &simd_scalar, has_c, lanes_kind, { 0, 0 }, NULL }
    };

#if defined(__x86_64__)
/* On Intel's cores vdpbf16ps does no more than fused multiply-adds of floats do, at half the precision: taken where it
 * is asked for. */
static bool worth(const struct cpu_isa *i) { return i->kind != bf16_kind || __builtin_cpu_is("amd"); }
#else
static bool worth(const struct cpu_isa *i) { return i != NULL; }
#endif

const char *cpu_isa_name(const struct cpu_isa *isa)
{
#define NAME(id, name) [DEV_ISA_##id] = name,
    static const char *const names[] = { DEV_CPU_ISA_LIST(NAME) };
    return names[isa->id];
}

const char *cpu_isa_device(const struct cpu_isa *isa)
{
#define DEVICE(id, name) [DEV_ISA_##id] = "cpu " name,
    static const char *const devices[] = { DEV_CPU_ISA_LIST(DEVICE) };
    return devices[isa->id];
}

const struct cpu_isa *cpu_isa_pick(const char *name)
{
    bool best = !name || !*name || !strcmp(name, "auto");
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        if (isas[i].has() && (best ? worth(&isas[i]) : !strcmp(name, cpu_isa_name(&isas[i])))) return &isas[i];
    return NULL;
}

double dev_cpu_act8_gain(const char *name, enum dtype t)
{
    const struct cpu_isa *i = cpu_isa_pick(name);
    uint8_t               tenths = 0;
    if (i && t == DT_I8) tenths = i->act8_tenths.i8;
    if (i && t == DT_I4) tenths = i->act8_tenths.i4;
    return tenths > 10 ? tenths / 10.0 : 1;
}

bool dev_cpu_has_isa(const char *name) { return cpu_isa_pick(name) != NULL; }

const char *dev_cpu_isas(char *text, size_t text_bytes)
{
    size_t n = 0;
    *text = 0;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        if (isas[i].has() && n < text_bytes)
            n += (size_t)snprintf(text + n, text_bytes - n, "%s%s", n ? ", " : "", cpu_isa_name(&isas[i]));
    return text;
}
