/* What one process says of its host tier to the next: every byte that is not as it was written makes it refused
 * whole. */
#include "base/rng.h"
#include "kvcache/tier_hand.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

enum { N_ROW = 5, N_SLOT = 9 };
static const struct digest stores = { 3, 4 };

static struct kv_tiers_cfg config(void)
{
    return (struct kv_tiers_cfg){ .block_bytes = 600,
                                  .host_bytes = (uint64_t)N_SLOT * 8192,
                                  .ident = { .block_bytes = 600, .block_tokens = 4, .layout = KV_LAYOUT },
                                  .key = { .seed = 5 } };
}

struct index {
    struct kv_tiers_cfg  cfg;
    struct kv_hand_shape shape;
    size_t               bytes;
    unsigned char       *data;
};
static void make(struct index *x)
{
    x->cfg = config();
    kv_hand_shape_of(&x->cfg, &x->shape);
    x->bytes = kv_hand_bytes(N_ROW);
    x->data = calloc(1, x->bytes);
    assert_non_null(x->data);
    for (uint32_t i = 0; i < N_ROW; i++) {
        struct kv_hand_row *r = kv_hand_rows(x->data) + i;
        r->slot = (i * 5) % N_SLOT;
        r->store = i & 1;
        r->payload = (struct digest){ i, i + 1 };
        for (int k = 0; k < 32; k++) r->key.b[k] = (unsigned char)(i * 32 + (uint32_t)k);
    }
    kv_hand_finish(x->data, N_ROW, &x->shape, &x->cfg.key, stores);
}

static enum status read_it(const struct index *x, const void *data, size_t bytes, struct kv_hand_index *out)
{
    char        why[160] = "";
    enum status st = kv_hand_read(data, bytes, &x->shape, &x->cfg.key, stores, out, why, sizeof why);
    assert_true(st == ST_OK || (st == ST_INVALID && why[0]));
    return st;
}

static void a_written_index_is_read_back(void **state)
{
    (void)state;
    struct index         x;
    struct kv_hand_index found;
    make(&x);
    assert_int_equal(read_it(&x, x.data, x.bytes, &found), ST_OK);
    assert_int_equal(found.n, N_ROW);
    assert_true(found.same_stores);
    assert_memory_equal(found.row, kv_hand_rows(x.data), N_ROW * sizeof *found.row);
    struct digest other = { 3, 5 };
    char          why[160];
    assert_int_equal(kv_hand_read(x.data, x.bytes, &x.shape, &x.cfg.key, other, &found, why, sizeof why), ST_OK);
    assert_false(found.same_stores); /* other folders: what their numbers mean is not known */
    free(x.data);
}

static void every_flipped_bit_and_every_cut_is_refused(void **state)
{
    (void)state;
    struct index         x;
    struct kv_hand_index found;
    make(&x);
    for (size_t i = 0; i < x.bytes * 8; i++) {
        x.data[i / 8] ^= (unsigned char)(1u << i % 8);
        assert_int_equal(read_it(&x, x.data, x.bytes, &found), ST_INVALID);
        x.data[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t cut = 0; cut < x.bytes; cut++) { /* of its own memory: a byte too far is a crash under ASan */
        unsigned char *part = malloc(cut ? cut : 1);
        memcpy(part, x.data, cut);
        assert_int_equal(read_it(&x, part, cut, &found), ST_INVALID);
        free(part);
    }
    free(x.data);
}

/* Well made, with a right digest, and of no use. */
static void another_shape_key_or_slot_is_refused(void **state)
{
    (void)state;
    struct index         x;
    struct kv_hand_index found;
    make(&x);
    for (int what = 0; what < 6; what++) {
        struct kv_tiers_cfg  other = config();
        struct kv_hand_shape shape;
        switch (what) {
        case 0: other.ident.model[31] ^= 1; break;
        case 1: other.host_bytes += 8192; break;
        case 2: other.key.seed++; break;
        case 3: other.key.mac = true; break;
        case 4: other.ident.dtype++; break;
        case 5: other.block_bytes += 4096; break;
        }
        kv_hand_shape_of(&other, &shape);
        assert_non_null(kv_hand_differs(&x.shape, &shape));
        kv_hand_finish(x.data, N_ROW, &shape, &x.cfg.key, stores); /* as one would who has our key */
        assert_int_equal(read_it(&x, x.data, x.bytes, &found), ST_INVALID);
        kv_hand_finish(x.data, N_ROW, &x.shape, &other.key, stores);
        assert_int_equal(read_it(&x, x.data, x.bytes, &found), other.key.mac || what == 2 ? ST_INVALID : ST_OK);
    }
    const uint32_t bad[] = { N_SLOT, UINT32_MAX, 0x80000000u, 5 /* that of row 1 */ };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t was = kv_hand_rows(x.data)[4].slot;
        kv_hand_rows(x.data)[4].slot = bad[i];
        kv_hand_finish(x.data, N_ROW, &x.shape, &x.cfg.key, stores);
        assert_int_equal(read_it(&x, x.data, x.bytes, &found), ST_INVALID);
        kv_hand_rows(x.data)[4].slot = was;
    }
    kv_hand_finish(x.data, N_ROW, &x.shape, &x.cfg.key, stores);
    assert_int_equal(read_it(&x, x.data, x.bytes, &found), ST_OK);
    free(x.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_index_is_read_back),
        cmocka_unit_test(every_flipped_bit_and_every_cut_is_refused),
        cmocka_unit_test(another_shape_key_or_slot_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
