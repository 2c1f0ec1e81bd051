#include "transfer/seal.h"
#include "base/hex.h"
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory and keys */

void *seal_take(size_t bytes)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    void              *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (mlock(p, bytes) && !atomic_flag_test_and_set(&said))
        LOG_WARN("kv: keys cannot be locked in memory (%s): swap may see them", strerror(errno));
    (void)madvise(p, bytes, MADV_DONTDUMP);
    return p;
}

void seal_give(void *p, size_t bytes)
{
    if (!p) return;
    OPENSSL_cleanse(p, bytes);
    munmap(p, bytes);
}

void seal_key_make(const unsigned char secret[SEAL_SECRET], const void *header, size_t bytes, struct seal_key *key_out)
{
    unsigned char text[32 + 32] = "spillway kv file key 1";
    unsigned int  n = 0;
    CHECK(EVP_Digest(header, bytes, text + 32, &n, EVP_sha256(), NULL));
    CHECK(HMAC(EVP_sha256(), secret, SEAL_SECRET, text, sizeof text, key_out->b, &n));
    CHECK(n == sizeof key_out->b);
}

enum status seal_secret_read(const char *path, unsigned char secret_out[SEAL_SECRET], char *err, size_t err_bytes)
{
    char   text[4 * SEAL_SECRET];
    size_t n = 0;
    int    error = file_read_first(path, text, sizeof text, &n);
    if (error) {
        snprintf(err, err_bytes, "%s: %s", path, strerror(error));
        return ST_CONFIG;
    }
    bool ok = n == SEAL_SECRET;
    if (ok) memcpy(secret_out, text, SEAL_SECRET);
    if (!ok && file_without_line_end(text, n) == 2 * SEAL_SECRET) {
        ok = true;
        for (int i = 0; i < SEAL_SECRET; i++) {
            int hi = hex_value(text[2 * i]), lo = hex_value(text[2 * i + 1]);
            ok = ok && hi >= 0 && lo >= 0;
            secret_out[i] = (unsigned char)(ok ? 16 * hi + lo : 0);
        }
    }
    OPENSSL_cleanse(text, sizeof text);
    if (ok) return ST_OK;
    OPENSSL_cleanse(secret_out, SEAL_SECRET);
    snprintf(err, err_bytes, "%s: found %s%zu bytes, needed are 32 bytes or 64 hex digits (openssl rand -hex 32)", path,
             n == sizeof text ? "more than " : "", n == sizeof text ? n - 1 : n);
    return ST_CONFIG;
}

void seal_secret_random(unsigned char secret_out[SEAL_SECRET]) { CHECK(RAND_priv_bytes(secret_out, SEAL_SECRET) == 1); }

/* ---- pieces */

struct sealer {
    EVP_CIPHER     *cipher;
    EVP_CIPHER_CTX *ctx;
};

enum status seal_open(struct sealer **s_out)
{
    struct sealer *s = calloc(1, sizeof *s);
    if (!s) return ST_NOMEM;
    s->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    s->ctx = EVP_CIPHER_CTX_new();
    if (!s->cipher || !s->ctx || !EVP_CipherInit_ex(s->ctx, s->cipher, NULL, NULL, NULL, 1)) {
        seal_close(s);
        return ST_NOMEM;
    }
    *s_out = s;
    return ST_OK;
}

void seal_close(struct sealer *s)
{
    if (!s) return;
    EVP_CIPHER_CTX_free(s->ctx); /* which cleans its copy of the key */
    EVP_CIPHER_free(s->cipher);
    free(s);
}

/* All but the tag. more than eight: as seal_piece. */
static bool piece(struct sealer *s, const struct seal_key *k, uint64_t place, uint32_t part, const void *aad,
                  size_t n_aad, const void *in, size_t n, void *out, bool enc)
{
    unsigned char nonce[12];
    int           got = 0;
    CHECK(n <= INT_MAX && n_aad <= INT_MAX);
    memcpy(nonce, &place, 8);
    memcpy(nonce + 8, &part, 4);
    return EVP_CipherInit_ex(s->ctx, NULL, NULL, k->b, nonce, enc) &&
           (!n_aad || EVP_CipherUpdate(s->ctx, NULL, &got, aad, (int)n_aad)) &&
           (!n || EVP_CipherUpdate(s->ctx, out, &got, in, (int)n));
}

void seal_piece(struct sealer *s, const struct seal_key *k, uint64_t place, uint32_t part, const void *aad,
                size_t n_aad, const void *in, size_t n, void *out, unsigned char tag_out[SEAL_TAG])
{
    unsigned char none[16];
    int           got = 0;
    CHECK(piece(s, k, place, part, aad, n_aad, in, n, out, true));
    CHECK(EVP_CipherFinal_ex(s->ctx, none, &got));
    CHECK(EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG, tag_out));
}

bool seal_piece_open(struct sealer *s, const struct seal_key *k, uint64_t place, uint32_t part, const void *aad,
                     size_t n_aad, const void *in, size_t n, void *out, const unsigned char tag[SEAL_TAG])
{
    unsigned char none[16], copy[SEAL_TAG];
    int           got = 0;
    memcpy(copy, tag, sizeof copy);
    if (piece(s, k, place, part, aad, n_aad, in, n, out, false) &&
        EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG, copy) &&
        EVP_CipherFinal_ex(s->ctx, none, &got) > 0)
        return true;
    if (n) memset(out, 0, n);
    return false;
}

/* ---- blobs */

struct clear {
    unsigned char magic[8];
    uint64_t      place;
    unsigned char body[SEAL_TAG], head[SEAL_TAG];
    unsigned char zero[16];
};
_Static_assert(sizeof(struct clear) == SEAL_CLEAR, "what stands in front of a sealed blob");
enum { PART_HEAD, PART_BODY, AAD_BODY = 16, AAD_HEAD = AAD_BODY + SEAL_TAG };
static const unsigned char MAGIC[8] = { 'S', 'P', 'W', 'K', 'V', 'E', 'N', 'C' };

void seal_blob(struct sealer *s, const struct seal_key *k, uint64_t place, const void *in, size_t head, size_t bytes,
               void *out)
{
    struct clear         c = { .place = place };
    const unsigned char *from = in;
    unsigned char       *to = out;
    CHECK(head >= SEAL_CLEAR && bytes >= head);
    for (size_t i = head - SEAL_CLEAR; i < head; i++) CHECK(from[i] == 0);
    memcpy(c.magic, MAGIC, sizeof MAGIC);
    seal_piece(s, k, place, PART_BODY, &c, AAD_BODY, from + head, bytes - head, to + head, c.body);
    seal_piece(s, k, place, PART_HEAD, &c, AAD_HEAD, from, head - SEAL_CLEAR, to + SEAL_CLEAR, c.head);
    memcpy(to, &c, sizeof c);
}

bool seal_head_open(struct sealer *s, const struct seal_key *k, uint64_t place, void *blob, size_t head)
{
    struct clear   c;
    unsigned char *p = blob;
    memcpy(&c, p, sizeof c);
    if (memcmp(c.magic, MAGIC, sizeof MAGIC) || c.place != place ||
        !seal_piece_open(s, k, place, PART_HEAD, &c, AAD_HEAD, p + SEAL_CLEAR, head - SEAL_CLEAR, p + SEAL_CLEAR,
                         c.head)) {
        memset(p, 0, head);
        return false;
    }
    memmove(p, p + SEAL_CLEAR, head - SEAL_CLEAR);
    memset(p + head - SEAL_CLEAR, 0, SEAL_CLEAR);
    return true;
}

bool seal_blob_open(struct sealer *s, const struct seal_key *k, uint64_t place, void *blob, size_t head, size_t bytes)
{
    struct clear   c;
    unsigned char *p = blob;
    memcpy(&c, p, sizeof c);
    return !memcmp(c.magic, MAGIC, sizeof MAGIC) && c.place == place &&
           seal_piece_open(s, k, place, PART_BODY, &c, AAD_BODY, p + head, bytes - head, p + head, c.body) &&
           seal_head_open(s, k, place, blob, head);
}
