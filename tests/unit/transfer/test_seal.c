/* What is sealed comes back as it went, in its place, under its key; anything else does not open. */
#include "transfer/seal.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { HEAD = 256, BYTES = 1000, PLACE = 40960 };

static void fill(unsigned char *blob)
{
    for (uint32_t i = 0; i < BYTES; i++) blob[i] = (unsigned char)(i * 7 + 1);
    memset(blob + HEAD - SEAL_CLEAR, 0, SEAL_CLEAR);
}

/* Test case 16 of "The Galois/Counter Mode of Operation" (McGrew and Viega): the cipher, its nonce and its associated
 * data. */
static void the_cipher_is_aes_256_gcm(void **state)
{
    (void)state;
    static const unsigned char key[32] = { 0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65, 0x73, 0x1c, 0x6d, 0x6a, 0x8f,
                                           0x94, 0x67, 0x30, 0x83, 0x08, 0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65,
                                           0x73, 0x1c, 0x6d, 0x6a, 0x8f, 0x94, 0x67, 0x30, 0x83, 0x08 };
    static const unsigned char nonce[12] = { 0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce, 0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88 };
    static const unsigned char in[16] = { 0xd9, 0x31, 0x32, 0x25, 0xf8, 0x84, 0x06, 0xe5,
                                          0xa5, 0x59, 0x09, 0xc5, 0xaf, 0xf5, 0x26, 0x9a };
    static const unsigned char want[16] = { 0x52, 0x2d, 0xc1, 0xf0, 0x99, 0x56, 0x7d, 0x07,
                                            0xf4, 0x7f, 0x37, 0xa3, 0x2a, 0x84, 0x42, 0x7d };
    struct sealer             *s;
    struct seal_key            k;
    unsigned char              out[16], tag[SEAL_TAG];
    uint64_t                   place;
    uint32_t                   part;
    memcpy(k.b, key, 32);
    memcpy(&place, nonce, 8);
    memcpy(&part, nonce + 8, 4);
    assert_int_equal(seal_open(&s), ST_OK);
    seal_piece(s, &k, place, part, NULL, 0, in, 16, out, tag);
    assert_memory_equal(out, want, 16);
    assert_true(seal_piece_open(s, &k, place, part, NULL, 0, out, 16, out, tag));
    assert_memory_equal(out, in, 16);
    seal_close(s);
}

static void a_blob_opens_in_its_place_under_its_key_alone(void **state)
{
    (void)state;
    unsigned char   secret[SEAL_SECRET] = { 1 }, in[BYTES], sealed[BYTES], blob[BYTES];
    struct sealer  *s;
    struct seal_key k, other;
    seal_key_make(secret, "a header", 8, &k);
    seal_key_make(secret, "b header", 8, &other);
    assert_memory_not_equal(k.b, other.b, sizeof k.b);
    assert_int_equal(seal_open(&s), ST_OK);
    fill(in);
    seal_blob(s, &k, PLACE, in, HEAD, BYTES, sealed);
    for (uint32_t i = SEAL_CLEAR; i + 8 < BYTES; i++)
        assert_memory_not_equal(sealed + i, in + (i < HEAD ? i - SEAL_CLEAR : i), 8);

    memcpy(blob, sealed, BYTES);
    assert_true(seal_blob_open(s, &k, PLACE, blob, HEAD, BYTES));
    assert_memory_equal(blob, in, BYTES);
    memcpy(blob, sealed, BYTES);
    assert_true(seal_head_open(s, &k, PLACE, blob, HEAD)); /* without the body */
    assert_memory_equal(blob, in, HEAD);

    memcpy(blob, sealed, BYTES);
    assert_false(seal_blob_open(s, &k, PLACE + 4096, blob, HEAD, BYTES));
    memcpy(blob, sealed, BYTES);
    assert_false(seal_blob_open(s, &other, PLACE, blob, HEAD, BYTES));
    for (uint32_t bit = 0; bit < BYTES * 8;
         bit += bit < HEAD * 8 ? 1 : 5) { /* what is zero in front of it is not looked at */
        if (bit / 8 >= SEAL_CLEAR - 16 && bit / 8 < SEAL_CLEAR) continue;
        memcpy(blob, sealed, BYTES);
        blob[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (seal_blob_open(s, &k, PLACE, blob, HEAD, BYTES)) fail_msg("bit %u may be another", bit);
    }
    seal_close(s);
}

/* A stream of one key and nonce would give itself away: xor of two sealed blobs is that of the plain ones. */
static void no_two_pieces_share_a_stream(void **state)
{
    (void)state;
    enum { N = 64, ONE = HEAD - SEAL_CLEAR };
    static unsigned char stream[2 * N][ONE];
    unsigned char        secret[SEAL_SECRET] = { 3 }, in[2 * HEAD] = { 0 }, out[2 * HEAD];
    struct sealer       *s;
    struct seal_key      k;
    seal_key_make(secret, "h", 1, &k);
    assert_int_equal(seal_open(&s), ST_OK);
    for (uint32_t i = 0; i < N; i++) { /* of zeros: the stream itself */
        seal_blob(s, &k, i * 4096u, in, HEAD, sizeof in, out);
        memcpy(stream[2 * i], out + SEAL_CLEAR, ONE);
        memcpy(stream[2 * i + 1], out + HEAD, ONE);
    }
    for (uint32_t i = 0; i < 2 * N; i++)
        for (uint32_t j = 0; j < i; j++) assert_memory_not_equal(stream[i], stream[j], ONE);
    seal_close(s);
}

static void write_file(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}
static void a_key_file_is_32_bytes_or_64_digits(void **state)
{
    (void)state;
    char          path[] = "/tmp/spillway-seal-XXXXXX", err[300], text[130];
    unsigned char want[SEAL_SECRET], got[SEAL_SECRET];
    int           fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < SEAL_SECRET; i++) {
        want[i] = (unsigned char)(i * 37 + 10);
        snprintf(text + 2 * i, 3, i % 2 ? "%02x" : "%02X", want[i]);
    }
    write_file(path, want, SEAL_SECRET);
    assert_int_equal(seal_secret_read(path, got, err, sizeof err), ST_OK);
    assert_memory_equal(got, want, SEAL_SECRET);
    write_file(path, text, 64);
    memset(got, 0, sizeof got);
    assert_int_equal(seal_secret_read(path, got, err, sizeof err), ST_OK);
    assert_memory_equal(got, want, SEAL_SECRET);
    memcpy(text + 64, "\r\n", 2);
    write_file(path, text, 66);
    assert_int_equal(seal_secret_read(path, got, err, sizeof err), ST_OK);
    for (int n = 0; n < 130; n++) {
        if (n == 32 || n == 64) continue;
        memset(text, 'a', sizeof text);
        write_file(path, text, (size_t)n);
        assert_int_equal(seal_secret_read(path, got, err, sizeof err), ST_CONFIG);
        assert_non_null(strstr(err, "32 bytes or 64 hex digits"));
    }
    memset(text, 'g', 64);
    write_file(path, text, 64);
    assert_int_equal(seal_secret_read(path, got, err, sizeof err), ST_CONFIG);
    unlink(path);
    assert_int_equal(seal_secret_read(path, got, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cipher_is_aes_256_gcm),
        cmocka_unit_test(a_blob_opens_in_its_place_under_its_key_alone),
        cmocka_unit_test(no_two_pieces_share_a_stream),
        cmocka_unit_test(a_key_file_is_32_bytes_or_64_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
