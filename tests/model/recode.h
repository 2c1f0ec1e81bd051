/* recode: rounds a matrix to codes and packs them as the tools that quantise do: AutoAWQ, GPTQModel, transformers
 * (fp8), compressed-tensors and ModelOpt. Two files grow beside each other: one has the codes, the other the floats that they
 * mean. */
#pragma once
#include "base/dtype.h"
#include "test.h"
#include <math.h>

enum { RECODE_HEADER_MAX = 1 << 19, RECODE_DATA_MAX = 6 << 20, RECODE_MATRIX_MAX = 1 << 16, RECODE_NAME_MAX = 160 };

enum recode_form {
    RECODE_AWQ,     /* qweight, qzeros, scales: words across the outputs */
    RECODE_GPTQ,    /* the same across the inputs, and g_idx */
    RECODE_PACKED,  /* weight_packed, weight_scale, weight_shape, perhaps weight_zero_point and weight_g_idx */
    RECODE_BYTES,   /* weight, weight_scale or weight_scale_inv */
    RECODE_NVFP4,   /* weight_packed, weight_scale, weight_global_scale, input_global_scale */
    RECODE_MODELOPT /* the same numbers: weight, weight_scale, weight_scale_2, input_scale */
};
enum recode_scale { RECODE_GROUPS, RECODE_CHANNEL, RECODE_TENSOR, RECODE_BLOCKS };
enum {
    RECODE_GROUP = 32,
    RECODE_NVFP4_GROUP = 16,
    RECODE_BLOCK_ROWS = 24 /* so that a block may lie on the border of two matrices */
};

/* How a tool stores matrices. */
struct recode_layout {
    const char       *name;
    enum recode_form  form;
    enum recode_scale scale;
    uint32_t          bits;
    bool        fp8, zeros, order; /* zeros: not all the middle; order: inputs' groups are not one after another */
    const char *scale_name;        /* of bytes; NULL: .weight_scale */
    bool        stack;             /* a tensor of all experts stays one, of codes */
    uint32_t    block_rows;        /* 0: RECODE_BLOCK_ROWS */
    const char *config;            /* quantization_config; GROUP in it is the size of a group or -1 */
};

struct recode_file {
    char          header[RECODE_HEADER_MAX];
    unsigned char data[RECODE_DATA_MAX];
    size_t        n_header, n;
};

struct recode {
    const struct recode_layout *how;
    uint32_t                    group;    /* inputs that share a scale, where it has groups; 0: all */
    uint32_t                    n_matrix; /* that became codes */
    struct recode_file          coded, plain;
};

/* A matrix [n, k] of codes: w = (code - zero) * scale. */
struct recode_matrix {
    uint32_t n, k, group, groups;
    float    x[RECODE_MATRIX_MAX], scale[RECODE_MATRIX_MAX];
    float    global; /* of NVFP4, as it is stored; its scales are bytes, in `zero` */
    uint8_t  code[RECODE_MATRIX_MAX], zero[RECODE_MATRIX_MAX];
    uint32_t group_of[4096], word[RECODE_MATRIX_MAX];
    uint16_t half[RECODE_MATRIX_MAX];
};
static struct recode_matrix recode_matrix;

static inline void recode_emit(struct recode_file *f, const char *name, const char *dtype, const char *shape,
                               const void *bytes, size_t n)
{
    assert_true(f->n + n <= RECODE_DATA_MAX);
    f->n_header += (size_t)snprintf(f->header + f->n_header, RECODE_HEADER_MAX - f->n_header,
                                    "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                                    f->n_header ? "," : "{", name, dtype, shape, f->n, f->n + n);
    assert_true(f->n_header < RECODE_HEADER_MAX);
    memcpy(f->data + f->n, bytes, n);
    f->n += n;
}

/* A part of a matrix of codes. b 0: one dimension */
static inline void recode_part(struct recode *r, const char *module, const char *suffix, const char *dtype, uint32_t a,
                               uint32_t b, const void *bytes, size_t n)
{
    char name[RECODE_NAME_MAX + 32], shape[32];
    snprintf(name, sizeof name, "%s%s", module, suffix);
    snprintf(shape, sizeof shape, b ? "[%u,%u]" : "[%u]", a, b);
    recode_emit(&r->coded, name, dtype, shape, bytes, n);
}

static inline uint32_t recode_block_rows(const struct recode *r)
{
    return r->how->block_rows ? r->how->block_rows : RECODE_BLOCK_ROWS;
}

/* The place of the scale of an output and an input. */
static inline uint32_t recode_scale_at(const struct recode *r, const struct recode_matrix *m, uint32_t row,
                                       uint32_t col)
{
    if (r->how->scale == RECODE_TENSOR) return 0;
    if (r->how->scale == RECODE_BLOCKS) row = row / recode_block_rows(r);
    return row * m->groups + m->group_of[col];
}

/* The e4m3 number nearest to x: positive ones are in the order of their codes. */
static inline uint8_t recode_fp8(float x)
{
    uint8_t low = 0, high = 0x7e;
    while (high - low > 1) {
        uint8_t middle = (uint8_t)((low + high) / 2);
        *(f8e4m3_to_f32(middle) > fabsf(x) ? &high : &low) = middle;
    }
    uint8_t near = f8e4m3_to_f32(high) - fabsf(x) < fabsf(x) - f8e4m3_to_f32(low) ? high : low;
    return (uint8_t)(near | (x < 0 ? 0x80 : 0));
}

static inline uint8_t recode_code(const struct recode *r, float x, float scale, uint8_t zero)
{
    int half = 1 << (r->how->bits - 1), low = r->how->form == RECODE_BYTES ? -half : 0, high = low + 2 * half - 1;
    if (r->how->fp8) return recode_fp8(x / scale);
    int c = (int)lrintf(x / scale) + (r->how->form == RECODE_BYTES ? 0 : zero);
    if (c < low) c = low;
    return (uint8_t)(c > high ? high : c);
}

static inline float recode_number(const struct recode *r, uint8_t code, uint8_t zero)
{
    if (r->how->fp8) return f8e4m3_to_f32(code);
    return r->how->form == RECODE_BYTES ? (float)(int8_t)code : (float)code - (float)zero;
}

static inline bool recode_is_nvfp4(const struct recode_layout *how)
{
    return how->form == RECODE_NVFP4 || how->form == RECODE_MODELOPT;
}

/* The same as 4-bit floats: the largest number of all is 6 times 448 of the scale that a matrix has. */
static inline void recode_round4(const struct recode *r, struct recode_matrix *m)
{
    static const float size[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    float              most = 1e-6f, factor;
    for (uint32_t i = 0; i < m->n * m->k; i++) most = fmaxf(most, fabsf(m->x[i]));
    m->global = r->how->form == RECODE_NVFP4 ? 6 * 448 / most : most / (6 * 448);
    factor = r->how->form == RECODE_NVFP4 ? (float)(1 / (double)m->global) : m->global;
    for (uint32_t g = 0; g < m->n * m->groups; g++) {
        float   *x = m->x + (size_t)g * m->group, max = 0, by;
        uint8_t *code = m->code + (size_t)g * m->group;
        for (uint32_t i = 0; i < m->group; i++) max = fmaxf(max, fabsf(x[i]));
        m->zero[g] = recode_fp8(max / 6 / factor);
        by = f8e4m3_to_f32(m->zero[g]) * factor;
        for (uint32_t i = 0; i < m->group; i++) {
            uint8_t best = 0;
            for (uint8_t c = 1; c < 8; c++)
                if (fabsf(size[c] * by - fabsf(x[i])) < fabsf(size[best] * by - fabsf(x[i]))) best = c;
            code[i] = (uint8_t)(best | (x[i] < 0 ? 8 : 0));
            x[i] = (x[i] < 0 ? -size[best] : size[best]) * by;
        }
    }
}

/* Rounds m->x [n, k] to codes; then x has what they mean. Scales are numbers of the type that the tool stores. */
static inline void recode_round(const struct recode *r, struct recode_matrix *m, uint32_t n, uint32_t k)
{
    const struct recode_layout *how = r->how;
    m->n = n;
    m->k = k;
    m->group = how->scale == RECODE_GROUPS && r->group ? r->group : k;
    if (how->scale == RECODE_BLOCKS) m->group = RECODE_GROUP;
    if (recode_is_nvfp4(how)) m->group = RECODE_NVFP4_GROUP;
    m->groups = (k + m->group - 1) / m->group;
    assert_true(n * k <= RECODE_MATRIX_MAX && k <= ARRAY_N(m->group_of));
    if (recode_is_nvfp4(how)) {
        assert_int_equal(k % RECODE_NVFP4_GROUP, 0);
        recode_round4(r, m);
        return;
    }
    for (uint32_t i = 0; i < k; i++) m->group_of[i] = how->order ? i % m->groups : i / m->group;
    bool     compressed = how->form == RECODE_BYTES || how->form == RECODE_PACKED;
    uint32_t n_scale = n * m->groups, most = how->fp8 ? 448 : (1u << (how->bits - 1)) - 1;
    memset(m->scale, 0, n_scale * sizeof *m->scale);
    for (uint32_t i = 0; i < n * k; i++) {
        float *s = &m->scale[recode_scale_at(r, m, i / k, i % k)];
        *s = fmaxf(*s, fabsf(m->x[i]) / (float)most);
    }
    for (uint32_t i = 0; i < n_scale; i++) {
        m->half[i] = compressed ? f32_to_bf16(m->scale[i] + 1e-6f) : f32_to_f16(m->scale[i] + 1e-6f);
        m->scale[i] = compressed ? bf16_to_f32(m->half[i]) : f16_to_f32(m->half[i]);
        m->zero[i] = (uint8_t)(how->zeros ? 5 + i % 7 : 1u << (how->bits - 1));
    }
    for (uint32_t i = 0; i < n * k; i++) {
        uint32_t at = recode_scale_at(r, m, i / k, i % k);
        m->code[i] = recode_code(r, m->x[i], m->scale[at], m->zero[at]);
        m->x[i] = recode_number(r, m->code[i], m->zero[at]) * m->scale[at];
    }
}

static inline void recode_words(struct recode *r, const struct recode_matrix *m, const char *module)
{
    static const uint8_t awq_output[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }; /* that half byte i of a word holds */
    static uint32_t      word[RECODE_MATRIX_MAX];
    static uint16_t      turned[RECODE_MATRIX_MAX];
    bool                 awq = r->how->form == RECODE_AWQ;
    uint32_t             n = m->n, k = m->k;
    memset(word, 0, sizeof word);
    for (uint32_t o = 0; o < n; o++)
        for (uint32_t i = 0; i < k; i++) {
            uint32_t place = 0;
            while (awq && awq_output[place] != o % 8) place++;
            uint32_t at = awq ? i * (n / 8) + o / 8 : i / 8 * n + o;
            word[at] |= (uint32_t)m->code[o * k + i] << 4 * (awq ? place : i % 8);
        }
    recode_part(r, module, ".qweight", "I32", awq ? k : k / 8, awq ? n / 8 : n, word, n * k / 2);
    memset(word, 0, sizeof word);
    for (uint32_t g = 0; g < m->groups; g++)
        for (uint32_t o = 0; o < n; o++) {
            uint32_t place = o % 8;
            for (place = 0; awq && awq_output[place] != o % 8;) place++;
            word[g * (n / 8) + o / 8] |= (uint32_t)(m->zero[o * m->groups + g] - !awq) << 4 * (awq ? place : o % 8);
            turned[g * n + o] = m->half[o * m->groups + g];
        }
    recode_part(r, module, ".qzeros", "I32", m->groups, n / 8, word, m->groups * n / 2);
    recode_part(r, module, ".scales", "F16", m->groups, n, turned, m->groups * n * sizeof *turned);
    if (!awq) recode_part(r, module, ".g_idx", "I32", k, 0, m->group_of, k * sizeof *m->group_of);
}

static inline void recode_packed(struct recode *r, const struct recode_matrix *m, const char *module)
{
    static uint32_t word[RECODE_MATRIX_MAX];
    uint32_t        n = m->n, k = m->k, per = 32 / r->how->bits;
    uint64_t        shape[2] = { n, k };
    memset(word, 0, sizeof word);
    for (uint32_t i = 0; i < n * k; i++) word[i / per] |= (uint32_t)m->code[i] << i % per * r->how->bits;
    recode_part(r, module, ".weight_packed", "I32", n, k / per, word, n * k / per * 4);
    recode_part(r, module, ".weight_scale", "BF16", n, m->groups, m->half, n * m->groups * sizeof *m->half);
    recode_part(r, module, ".weight_shape", "I64", 2, 0, shape, sizeof shape);
    if (r->how->order) recode_part(r, module, ".weight_g_idx", "I32", k, 0, m->group_of, k * sizeof *m->group_of);
    if (!r->how->zeros) return;
    memset(word, 0, sizeof word);
    for (uint32_t i = 0; i < n * m->groups; i++) {
        uint32_t row = i / m->groups, g = i % m->groups;
        word[row / 8 * m->groups + g] |= (uint32_t)m->zero[i] << row % 8 * 4;
    }
    recode_part(r, module, ".weight_zero_point", "I32", (n + 7) / 8, m->groups, word, (n + 7) / 8 * m->groups * 4);
}

static inline void recode_bytes(struct recode *r, const struct recode_matrix *m, const char *module)
{
    uint32_t    rows = (m->n + recode_block_rows(r) - 1) / recode_block_rows(r);
    const char *name = r->how->scale_name ? r->how->scale_name : ".weight_scale";
    recode_part(r, module, ".weight", r->how->fp8 ? "F8_E4M3" : "I8", m->n, m->k, m->code, m->n * m->k);
    if (r->how->scale == RECODE_TENSOR) {
        recode_part(r, module, name, "BF16", 1, 0, m->half, sizeof *m->half);
        recode_part(r, module, ".input_scale", "F32", 1, 0, m->scale, sizeof *m->scale);
    } else if (r->how->scale == RECODE_BLOCKS) {
        recode_part(r, module, name, "F32", rows, m->groups, m->scale, rows * m->groups * sizeof *m->scale);
    } else {
        recode_part(r, module, name, "BF16", m->n, m->groups, m->half, m->n * m->groups * sizeof *m->half);
    }
}

static inline void recode_nvfp4(struct recode *r, const struct recode_matrix *m, const char *module)
{
    static uint8_t pair[RECODE_MATRIX_MAX / 2];
    const float    input = 0.125f;
    uint32_t       n = m->n, k = m->k;
    char           name[RECODE_NAME_MAX + 32];
    for (uint32_t i = 0; i < n * k; i += 2) pair[i / 2] = (uint8_t)(m->code[i] | m->code[i + 1] << 4);
    bool packed = r->how->form == RECODE_NVFP4;
    recode_part(r, module, packed ? ".weight_packed" : ".weight", "U8", n, k / 2, pair, n * k / 2);
    recode_part(r, module, ".weight_scale", "F8_E4M3", n, m->groups, m->zero, n * m->groups);
    recode_part(r, module, packed ? ".input_global_scale" : ".input_scale", "F32", 1, 0, &input, sizeof input);
    snprintf(name, sizeof name, "%s%s", module, packed ? ".weight_global_scale" : ".weight_scale_2");
    recode_emit(&r->coded, name, "F32", packed ? "[1]" : "[]", &m->global, sizeof m->global);
}

/* m->x to the codes of a linear layer, and to what they mean. */
static inline void recode_linear(struct recode *r, struct recode_matrix *m, const char *module, uint32_t n, uint32_t k)
{
    recode_round(r, m, n, k);
    r->n_matrix++;
    if (r->how->form == RECODE_PACKED)
        recode_packed(r, m, module);
    else if (recode_is_nvfp4(r->how))
        recode_nvfp4(r, m, module);
    else if (r->how->form == RECODE_BYTES)
        recode_bytes(r, m, module);
    else
        recode_words(r, m, module);
}
