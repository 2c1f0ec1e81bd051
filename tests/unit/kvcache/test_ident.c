#include "kvcache/ident.h"
#include "kvcache/record.h"
#include "test.h"

static struct kv_identity identity(void)
{
    return (struct kv_identity){ .model = { 1, 2, 3 },
                                 .dtype = 1,
                                 .layout = KV_LAYOUT,
                                 .block_tokens = 16,
                                 .n_layer = 5,
                                 .n_kv_head = 2,
                                 .head_dim = 64,
                                 .tp_size = 1,
                                 .block_bytes = 40960 };
}

static void everything_that_the_bytes_depend_on_changes_the_key(void **state)
{
    (void)state;
    struct kv_key seen[16];
    size_t        n = 0;
    for (int i = 0; i < 10; i++) {
        struct kv_identity id = identity();
        uint32_t          *field[] = { &id.dtype,     &id.layout,   &id.block_tokens, &id.n_layer,
                                       &id.n_kv_head, &id.head_dim, &id.tp_size };
        if (i < 7) ++*field[i];
        if (i == 7) id.model[31] ^= 1;
        if (i == 8) id.block_bytes += 4096;
        seen[n++] = kv_fingerprint(&id);
    }
    struct kv_key f = seen[9];
    seen[n++] = kv_key_root(&f, (struct kv_salt){ 0, 0 });
    seen[n++] = kv_key_root(&f, (struct kv_salt){ 1, 0 });
    seen[n++] = kv_key_root(&f, (struct kv_salt){ 0, 1 });
    uint32_t ids[16] = { 5, 6, 7 };
    seen[n++] = kv_key_next(&seen[10], ids, 16);
    seen[n++] = kv_key_next(&seen[11], ids, 16);
    ids[15] = 1;
    seen[n++] = kv_key_next(&seen[10], ids, 16);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) assert_false(kv_key_equal(&seen[i], &seen[j]));
}

static void the_key_of_a_piece_says_that_it_is_one(void **state)
{
    (void)state;
    struct kv_key f = { { 0 } }, at = kv_key_root(&f, (struct kv_salt){ 0, 0 }), seen = at;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_false(kv_key_is_piece(&at));
        struct kv_key piece = kv_key_window(&at, i % 7), other = kv_key_window(&at, 7);
        assert_true(kv_key_is_piece(&piece) && kv_key_is_piece(&other));
        assert_false(kv_key_equal(&piece, &other) || kv_key_equal(&piece, &seen));
        seen = piece;
        at = kv_key_next(&at, &i, 1);
    }
}

/* Written by hand from the definition (sha256 of the bytes): the same on every machine, for ever. */
static void the_key_of_known_tokens_is_a_known_constant(void **state)
{
    (void)state;
    struct kv_key              f = { { 0 } }, k = kv_key_root(&f, (struct kv_salt){ 0x0102030405060708, 9 });
    uint32_t                   ids[2] = { 1, 0x01020304 };
    struct kv_key              next = kv_key_next(&k, ids, 2);
    static const unsigned char want[4] = { 0x0c, 0xee, 0x9f, 0x77 };
    assert_memory_equal(next.b, want, 4);
}

static void a_record_of_anything_else_is_doubted(void **state)
{
    (void)state;
    struct digest_key dk, other;
    digest_key_init(&dk, NULL, 0, 7);
    digest_key_init(&other, "0123456789abcdef0123456789abcdef", 32, 7);
    struct kv_identity id = identity();
    struct kv_key      f = kv_fingerprint(&id), root = kv_key_root(&f, (struct kv_salt){ 3, 4 });
    uint32_t           ids[16] = { 9, 8, 7, 6 }, ids2[16] = { 9, 8, 7, 5 };
    struct kv_key      key = kv_key_next(&root, ids, 16), key2 = kv_key_next(&root, ids2, 16);
    unsigned char      page[KV_RECORD_HEAD], torn[KV_RECORD_HEAD];
    kv_record_make(page, &dk,
                   &(struct kv_record_facts){ .fingerprint = &f,
                                              .key = &key,
                                              .parent = &root,
                                              .ids = ids,
                                              .block_tokens = 16,
                                              .payload_bytes = 40960,
                                              .seq = 5,
                                              .payload = { 1, 2 } });
    assert_int_equal(kv_record_check(page, &dk, &f, &key, ids, 16, 40960, 5), KV_SURE);
    assert_int_equal(kv_record_check(page, &dk, &f, NULL, NULL, 16, 40960, 5), KV_SURE);
    assert_int_equal(kv_record_check(page, &dk, &f, &key2, ids2, 16, 40960, 5), KV_DOUBT_KEY);
    assert_int_equal(kv_record_check(page, &dk, &f, &key, ids2, 16, 40960, 5), KV_DOUBT_TOKENS);
    assert_int_equal(kv_record_check(page, &dk, &f, &key, ids, 16, 40960, 6), KV_DOUBT_SEQ);
    assert_int_equal(kv_record_check(page, &dk, &f, &key, ids, 16, 45056, 5), KV_DOUBT_FINGERPRINT);
    assert_int_equal(kv_record_check(page, &dk, &root, &key, ids, 16, 40960, 5), KV_DOUBT_FINGERPRINT);
    assert_int_equal(kv_record_check(page, &other, &f, &key, ids, 16, 40960, 5), KV_DOUBT_HEAD);
    for (size_t i = 0; i < sizeof(struct kv_record); i++) { /* every byte counts */
        memcpy(torn, page, sizeof page);
        torn[i] ^= 0x10;
        assert_int_not_equal(kv_record_check(torn, &dk, &f, &key, ids, 16, 40960, 5), KV_SURE);
    }
}

static void a_sealed_record_differs_in_what_was_said_and_is_sure(void **state)
{
    (void)state;
    struct digest_key dk;
    digest_key_init(&dk, NULL, 0, 7);
    struct kv_identity id = identity();
    struct kv_key      f = kv_fingerprint(&id), root = kv_key_root(&f, (struct kv_salt){ 3, 4 });
    uint32_t           ids[16] = { 9, 8, 7, 6 };
    struct kv_key      key = kv_key_next(&root, ids, 16);
    unsigned char      page[KV_RECORD_HEAD];
    struct kv_record   before, after;
    kv_record_make(page, &dk,
                   &(struct kv_record_facts){ .fingerprint = &f,
                                              .key = &key,
                                              .parent = &root,
                                              .ids = ids,
                                              .block_tokens = 16,
                                              .payload_bytes = 40960,
                                              .payload = { 1, 2 } });
    memcpy(&before, page, sizeof before);
    kv_record_seal(page, &dk, 77, 1800000000, -3);
    memcpy(&after, page, sizeof after);
    assert_int_equal(kv_record_check(page, &dk, &f, &key, ids, 16, 40960, 77), KV_SURE);
    assert_int_equal(kv_record_check(page, &dk, &f, &key, ids, 16, 40960, 0), KV_DOUBT_SEQ);
    assert_int_equal(after.until_s, 1800000000);
    assert_int_equal(after.priority, -3);
    before.seq = 77;
    before.until_s = 1800000000;
    before.priority = -3;
    assert_false(digest_equal(before.head, after.head));
    before.head = after.head;
    assert_memory_equal(&before, &after, sizeof before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_that_the_bytes_depend_on_changes_the_key),
        cmocka_unit_test(the_key_of_known_tokens_is_a_known_constant),
        cmocka_unit_test(the_key_of_a_piece_says_that_it_is_one),
        cmocka_unit_test(a_record_of_anything_else_is_doubted),
        cmocka_unit_test(a_sealed_record_differs_in_what_was_said_and_is_sure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
