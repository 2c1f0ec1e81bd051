/* Blocks of the KV pool copied within it. */
#include "cuda/cuda_test.h"

enum { BLOCKS = 150 };

static struct dev_kv make(struct device *d, uint64_t block_bytes, uint8_t *host)
{
    struct dev_kv kv = { .dtype = DT_BF16, .n_block = BLOCKS, .block_bytes = block_bytes };
    for (size_t i = 0; i < BLOCKS * kv.block_bytes; i++)
        host[i] = (uint8_t)(rng_philox(1, i / 8, 0).x[0] >> (i % 4 * 8));
    kv.base = ct_bytes(d, host, BLOCKS * kv.block_bytes);
    return kv;
}

/* As on the host, one pair after the other: chains, swaps and copies over a source included. */
static void blocks_are_copied_as_if_one_after_another(void **state)
{
    (void)state;
    static const uint32_t shape[][4] = { { 1, 1, 16, 16 },
                                         { 3, 2, 16, 80 },
                                         { 2, 8, 32, 128 } }; /* layers, heads, tokens, head_dim */
    for (size_t s = 0; s < 3; s++) {
        struct device  *d = ct_open(DT_BF16, 128 << 20);
        const uint32_t *z = shape[s];
        size_t          bytes = z[0] * z[2] * dev_kv_heads_bytes(DT_BF16, z[1], z[3]);
        uint8_t        *host = malloc(BLOCKS * bytes), *got = malloc(BLOCKS * bytes);
        struct dev_kv   kv = make(d, bytes, host);
        uint32_t        src[140], dst[140], n = 0;
        for (uint32_t i = 0; i < 100; i++) {
            src[n] = i / 4;
            dst[n++] = 49 + i;
        } /* forks of a few: more pairs than a launch takes */
        for (uint32_t i = 0; i < 10; i++) {
            src[n] = 49 + i;
            dst[n++] = 50 + i;
        } /* a chain */
        src[n] = 1;
        dst[n++] = 2;
        src[n] = 3;
        dst[n++] = 1;
        src[n] = 7;
        dst[n++] = 7; /* over a source; onto itself */
        src[n] = 9;
        dst[n++] = 10;
        src[n] = 11;
        dst[n++] = 10;
        src[n] = 10;
        dst[n++] = BLOCKS - 1; /* twice to one place */
        d->ops->block_copy(d, &kv, src, dst, n);
        memset(src, 0xff, sizeof src);
        memset(dst, 0xff, sizeof dst); /* the host's arrays are its own again */
        ct_get(d, got, kv.base, BLOCKS * bytes);
        for (uint32_t i = 0; i < 100; i++) memcpy(host + (49 + i) * bytes, host + i / 4 * bytes, bytes);
        for (uint32_t i = 0; i < 10; i++) memcpy(host + (50 + i) * bytes, host + (49 + i) * bytes, bytes);
        memcpy(host + 2 * bytes, host + bytes, bytes);
        memcpy(host + bytes, host + 3 * bytes, bytes);
        memcpy(host + 10 * bytes, host + 11 * bytes, bytes);
        memcpy(host + (BLOCKS - 1) * bytes, host + 10 * bytes, bytes);
        ct_assert_same(got, host, BLOCKS * bytes, "the pool");
        free(host);
        free(got);
        dev_close(d);
    }
}

static void guests_are_copied_into_the_pool(void **state)
{
    (void)state;
    enum { GUESTS = 3, GAP = 4096 };
    struct device *d = ct_open(DT_BF16, 128 << 20);
    size_t         bytes = 2 * 16 * dev_kv_heads_bytes(DT_BF16, 2, 80), step = bytes + GAP;
    uint8_t       *host = malloc(BLOCKS * bytes), *got = malloc(BLOCKS * bytes);
    uint8_t       *slab = aligned_alloc(GAP, (GUESTS * step + 2 * GAP - 1) / GAP * GAP);
    struct dev_kv  kv = make(d, bytes, host);
    uint32_t       src[] = { BLOCKS + 1, 5, BLOCKS + 2, BLOCKS }, dst[] = { 7, 8, 5, 9 };
    for (uint32_t i = 0; i < GUESTS; i++) memset(slab + i * step, (int)(0x30 + i), bytes);
    assert_true(dev_pin(d, slab, GUESTS * step));
    kv.guest = (const char *)slab;
    kv.guest_step = step;
    kv.n_guest = GUESTS;
    d->ops->block_copy(d, &kv, src, dst, 4);
    ct_get(d, got, kv.base, BLOCKS * bytes);
    memcpy(host + 7 * bytes, slab + step, bytes);
    memcpy(host + 8 * bytes, host + 5 * bytes, bytes);
    memcpy(host + 5 * bytes, slab + 2 * step, bytes);
    memcpy(host + 9 * bytes, slab, bytes);
    ct_assert_same(got, host, BLOCKS * bytes, "the pool");
    dev_unpin(d, slab);
    free(slab);
    free(host);
    free(got);
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(blocks_are_copied_as_if_one_after_another),
                                        cmocka_unit_test(guests_are_copied_into_the_pool) };
    return ct_run(tests);
}
