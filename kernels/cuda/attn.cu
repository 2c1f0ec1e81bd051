/* attention: paged, causal, grouped heads, sliding window.   truth: kernels/ref/attn.c
 *   out act [n_row, n_head * head_dim]   qkv act [n_row, (n_head + 2 * n_kv_head) * head_dim]
 *   pool bf16, f16 as act is, or rows of 8 bits (kv8.h), whose kernels are in attn_kv8.cu */
#include "kernels/cuda/attn_kernels.cuh"

enum { ATTN_DIM_MAX = 512 };

extern "C" uint32_t cuda_attn_resident(struct cuda_dev *d, uint32_t head_dim)
{
    uint32_t n = min(attn_resident_as<__nv_bfloat16>(d, head_dim), cuda_attn_kv8_resident(d, head_dim));
    if (d->impl.dev.act == DT_F16) n = min(n, attn_resident_as<__half>(d, head_dim)); /* whichever the pool is of */
    return n;
}

extern "C" void cuda_attention(struct device *dev, const struct op_attn *o, const struct dev_batch *b,
                               const struct dev_kv *kv)
{
    struct cuda_dev *d = cuda_of(dev);
    CHECK(kv_holds_heads(kv, o->layer, o->n_kv_head, o->head_dim) && cuda_holds_kv(dev, kv->dtype));
    CHECK(o->head_dim > 0 && o->head_dim <= ATTN_DIM_MAX && o->n_head % o->n_kv_head == 0 && o->scale > 0.0f);
    uint32_t         dim = cuda_attn_dim(o->head_dim);
    struct attn_args a = attn_args_of(d, o, b);
    size_t           each = dtype_bytes(kv->dtype);
    a.block_stride = kv->block_bytes / each;
    a.v_offset = kv->layer[o->layer].bytes / 2 / each;
    const char *pool = (const char *)kv->base + kv->layer[o->layer].offset, *low = pool;
    if (kv->n_guest) {
        const char *guest = kv->guest + kv->layer[o->layer].offset;
        if ((uintptr_t)guest < (uintptr_t)low) low = guest;
        a.guest_stride = kv->guest_step / each;
        a.guest = (long long)(((uintptr_t)guest - (uintptr_t)low) / each) - (long long)(kv->n_block * a.guest_stride);
    }
    a.pool = low;
    a.first = (long long)(((uintptr_t)pool - (uintptr_t)low) / each);
    a.n_block = kv->n_guest ? kv->n_block : UINT32_MAX;
    a.block_tokens = kv->block_tokens;
    a.wide_q = o->head_dim == dim && (uintptr_t)o->qkv % 16 == 0;
    a.fast = o->head_dim == dim && kv->block_tokens % ATTN_GROUP == 0;
    a.fixed = d->deterministic;
    struct cuda_attn_split split = cuda_attn_split(d, o->n_head, o->n_kv_head, o->head_dim);
    a.n_unit = split.n_unit;
    a.n_slot = split.n_slot;
    a.n_item = a.plan.n_item;
    if (a.plan.n_run) a.n_unit = cuda_attn_units(o->n_kv_head, a.group, a.plan.run_most);
    if (a.window && a.n_item) {
        uint32_t rows = a.plan.n_run ? a.plan.n_run_row : a.plan.n_decode;
        a.cut = cuda_attn_window(&split, rows, a.plan.n_part, a.window, a.plan.run_spread);
        a.n_item = (a.plan.n_run ? a.plan.n_run : a.plan.n_decode) * a.cut.each;
        if (a.plan.n_run && !a.cut.chunk) a.n_item *= 2; /* attn_run_item_of */
    }
    if (kv->dtype == DT_F16)
        attn_launch_as<__half>(d, a);
    else if (kv->dtype == DT_BF16)
        attn_launch_as<__nv_bfloat16>(d, a);
    else
        cuda_attn_kv8(d, a);
    cuda_launched(d, "attention");
}
