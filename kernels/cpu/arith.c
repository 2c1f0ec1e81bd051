/* arith: which parts of the cpu device make which bits, on each instruction set. Two sets with one name and number for
 * a part make the same bits there; tests/model/test_arith.c compares them, and holds every name and number against
 * digests of what was computed with it.
 *
 * Whoever changes the bits of a part raises its number, in this one row, and adds the new digests
 * (tests/data/arith.txt): KV that was kept by earlier builds is then not taken for what this one computes. A new
 * instruction set is a word in the rows whose bits it shares, and a row of its own for every part where it shares none.
 * Never give a number or a name that was used before to other bits. */
#include "base/check.h"
#include "kernels/cpu/cpu.h"
#include <stdio.h>
#include <string.h>

enum arith_part {
    PART_FLOATS, /* norms, RoPE, gates, softmax of experts: all that multiplies with no matrix */
    PART_F32,    /* products, by type of weight */
    PART_BF16,
    PART_F16,
    PART_I8,
    PART_I4,
    PART_F8,
    PART_F4,
    PART_I8_ACT8, /* by activations of 8 bits */
    PART_I4_ACT8,
    PART_KEYS_F32, /* attention, by type of KV */
    PART_KEYS_BF16,
    PART_KEYS_F16,
    PART_KEYS_F8, /* rows of kernels/kv8.h, then as those of bf16 */
};

#define VECTORS "avx2 avx-vnni avx512 avx512-vnni"
static const struct arith {
    enum arith_part part;
    const char     *isas; /* with a blank between two */
    const char     *name;
    uint32_t        number;
} ariths[] = {
    { PART_FLOATS, VECTORS " avx512-bf16 amx", "vectors", 1 },
    { PART_FLOATS, "neon neon-bf16", "neon", 1 },
    { PART_FLOATS, "scalar", "scalar", 1 },
    { PART_F32, VECTORS " avx512-bf16 amx", "vectors", 1 },
    { PART_F32, "neon neon-bf16", "neon", 1 },
    { PART_F32, "scalar", "scalar", 1 },
    { PART_BF16, VECTORS, "vectors", 1 },
    { PART_BF16, "avx512-bf16", "pairs", 1 },
    { PART_BF16, "amx", "amx", 1 },
    { PART_BF16, "neon", "neon", 1 },
    { PART_BF16, "neon-bf16", "neon-bf16", 1 },
    { PART_BF16, "scalar", "scalar", 1 },
    { PART_F16, VECTORS " avx512-bf16 amx", "vectors", 1 },
    { PART_F16, "neon neon-bf16", "neon", 1 },
    { PART_F16, "scalar", "scalar", 1 },
    { PART_I8, VECTORS " avx512-bf16", "words", 1 },
    { PART_I8, "amx", "amx", 1 },
    { PART_I8, "neon neon-bf16", "neon", 1 },
    { PART_I8, "scalar", "scalar", 1 },
    { PART_I4, VECTORS " avx512-bf16", "words", 1 },
    { PART_I4, "amx", "amx", 1 },
    { PART_I4, "neon neon-bf16", "neon", 1 },
    { PART_I4, "scalar", "scalar", 1 },
    { PART_F8, VECTORS, "vectors", 1 },
    { PART_F8, "avx512-bf16", "pairs", 1 },
    { PART_F8, "amx", "amx", 1 },
    { PART_F8, "neon neon-bf16", "neon", 1 },
    { PART_F8, "scalar", "scalar", 1 },
    { PART_F4, VECTORS " avx512-bf16", "words", 1 },
    { PART_F4, "amx", "amx", 1 },
    { PART_F4, "neon neon-bf16", "neon", 1 },
    { PART_F4, "scalar", "scalar", 1 },
    { PART_I8_ACT8, VECTORS " avx512-bf16", "whole", 1 },
    { PART_I8_ACT8, "amx", "amx", 1 },
    { PART_I8_ACT8, "neon", "neon", 1 },
    { PART_I8_ACT8, "neon-bf16", "neon-bf16", 1 },
    { PART_I8_ACT8, "scalar", "scalar", 1 },
    { PART_I4_ACT8, VECTORS " avx512-bf16 amx", "whole", 1 },
    { PART_I4_ACT8, "neon neon-bf16", "neon", 1 },
    { PART_I4_ACT8, "scalar", "scalar", 1 },
    { PART_KEYS_F32, VECTORS " avx512-bf16 amx", "vectors", 1 },
    { PART_KEYS_F32, "neon neon-bf16", "neon", 1 },
    { PART_KEYS_F32, "scalar", "scalar", 1 },
    { PART_KEYS_BF16, VECTORS, "vectors", 1 },
    { PART_KEYS_BF16, "avx512-bf16", "pairs", 1 },
    { PART_KEYS_BF16, "amx", "amx", 1 },
    { PART_KEYS_BF16, "neon neon-bf16", "neon", 1 },
    { PART_KEYS_BF16, "scalar", "scalar", 1 },
    { PART_KEYS_F16, VECTORS " avx512-bf16 amx", "vectors", 1 },
    { PART_KEYS_F16, "neon neon-bf16", "neon", 1 },
    { PART_KEYS_F16, "scalar", "scalar", 1 },
    { PART_KEYS_F8, VECTORS, "vectors", 1 },
    { PART_KEYS_F8, "avx512-bf16", "pairs", 1 },
    { PART_KEYS_F8, "amx", "amx", 1 },
    { PART_KEYS_F8, "neon neon-bf16", "neon", 1 },
    { PART_KEYS_F8, "scalar", "scalar", 1 },
};

static bool names(const char *isas, const char *isa)
{
    size_t n = strlen(isa);
    for (const char *at = strstr(isas, isa); at; at = strstr(at + 1, isa))
        if ((at == isas || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

/* A set without a row shares bits with nobody, and the test of this table asks for the row. */
static struct arith arith_of(const char *isa, enum arith_part part)
{
    for (size_t i = 0; i < sizeof ariths / sizeof *ariths; i++)
        if (ariths[i].part == part && names(ariths[i].isas, isa)) return ariths[i];
    return (struct arith){ part, isa, isa, 0 };
}

static enum arith_part product_of(enum dtype t, bool act8)
{
    switch (t) {
    case DT_F32: return PART_F32;
    case DT_F16: return PART_F16;
    case DT_I8: return act8 ? PART_I8_ACT8 : PART_I8;
    case DT_I4: return act8 ? PART_I4_ACT8 : PART_I4;
    case DT_F8E4M3: return PART_F8;
    case DT_F4E2M1: return PART_F4;
    default: return PART_BF16;
    }
}

static enum arith_part keys_of(enum dtype kv)
{
    switch (kv) {
    case DT_F32: return PART_KEYS_F32;
    case DT_F16: return PART_KEYS_F16;
    case DT_F8E4M3: return PART_KEYS_F8;
    default: return PART_KEYS_BF16;
    }
}

static size_t put(char *text, size_t bytes, size_t at, const char *what, struct arith a)
{
    if (at >= bytes) return at;
    return at + (size_t)snprintf(text + at, bytes - at, "%s%s %s.%u", at ? " " : "", what, a.name, a.number);
}

void cpu_arith(const struct device *dev, enum dtype weights, const struct dev_quant *q, enum dtype kv, char *text,
               size_t bytes)
{
    const char     *isa = cpu_isa_name(((const struct cpu_dev *)dev)->isa);
    enum arith_part keys = keys_of(kv);
    bool            codes = q && q->code != DT_F32;
    size_t          n = put(text, bytes, 0, "floats", arith_of(isa, PART_FLOATS));
    n = put(text, bytes, n, dtype_name(weights), arith_of(isa, product_of(weights, false)));
    bool full =
        codes && q->full && !q->act8 && !strcmp(isa, "amx"); /* int8 down to -128: by words there too (cpu_full_kind) */
    if (codes)
        n = put(text, bytes, n, dtype_name(q->code),
                arith_of(full ? "avx512-vnni" : isa, product_of(q->code, q->act8)));
    if (codes && q->code != DT_I8 && q->code != DT_F4E2M1)
        n = put(text, bytes, n, "i8", arith_of(isa, PART_I8)); /* embedding and head beside them */
    n = put(text, bytes, n, "keys", arith_of(isa, keys));
    CHECK(n < bytes);
}
