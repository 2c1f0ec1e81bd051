#include "transfer/peer/pwire.h"
#include "base/check.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

enum { MAGIC = 0x50565053, WHERE_BYTES = 20 }; /* "SPVP"; bytes in FOUND of one key that was found */

/* ---- numbers */

struct out {
    unsigned char *p;
    uint32_t       n;
};
struct in {
    const unsigned char *p;
    uint32_t             n, at;
    bool                 short_of; /* a field lies behind the end */
};

static void put(struct out *o, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) o->p[o->n++] = (unsigned char)(v >> 8 * i);
}

static void put_bytes(struct out *o, const void *p, uint32_t n)
{
    memcpy(o->p + o->n, p, n);
    o->n += n;
}

static uint64_t get(struct in *i, int bytes)
{
    uint64_t v = 0;
    if (i->n - i->at < (uint32_t)bytes) {
        i->short_of = true;
        return 0;
    }
    for (int k = bytes; k-- > 0;) v = v << 8 | i->p[i->at + (uint32_t)k];
    i->at += (uint32_t)bytes;
    return v;
}

static void get_bytes(struct in *i, void *p, uint32_t n)
{
    if (i->n - i->at < n) {
        i->short_of = true;
        return;
    }
    memcpy(p, i->p + i->at, n);
    i->at += n;
}

/* ---- seals */

void pwire_session_key(unsigned char out[PWIRE_SECRET], const unsigned char secret[PWIRE_SECRET],
                       const unsigned char client[PWIRE_RANDOM], const unsigned char server[PWIRE_RANDOM])
{
    static const char label[] = "spillway peer 1";
    unsigned char     text[sizeof label + 2 * PWIRE_RANDOM];
    unsigned int      n = 0;
    memcpy(text, label, sizeof label);
    memcpy(text + sizeof label, client, PWIRE_RANDOM);
    memcpy(text + sizeof label + PWIRE_RANDOM, server, PWIRE_RANDOM);
    CHECK(HMAC(EVP_sha256(), secret, PWIRE_SECRET, text, sizeof text, out, &n));
    CHECK(n == PWIRE_SECRET);
}

static void seal_of(struct pwire_seal *s, const unsigned char *frame, uint32_t n, unsigned char out[PWIRE_FRAME_MAC])
{
    unsigned char first[PWIRE_SECRET + 9], whole[EVP_MAX_MD_SIZE], inner[EVP_MAX_MD_SIZE];
    unsigned int  n_inner = 0, n_whole = 0;
    memset(out, 0, PWIRE_FRAME_MAC);
    if (!s->on) return;
    /* The frame's own digest is a MAC already; the second one adds direction and number to it. */
    CHECK(HMAC(EVP_sha256(), s->key, PWIRE_SECRET, frame, n, inner, &n_inner));
    CHECK(n_inner == PWIRE_SECRET);
    memcpy(first, inner, PWIRE_SECRET);
    first[PWIRE_SECRET] = s->from_server;
    for (int i = 0; i < 8; i++) first[PWIRE_SECRET + 1 + i] = (unsigned char)(s->n >> 8 * i);
    CHECK(HMAC(EVP_sha256(), s->key, PWIRE_SECRET, first, sizeof first, whole, &n_whole));
    memcpy(out, whole, PWIRE_FRAME_MAC);
    s->n++;
}

/* ---- bodies */

uint32_t pwire_body_max(uint32_t type)
{
    switch (type) {
    case PWIRE_HELLO:
    case PWIRE_CHALLENGE: return PWIRE_RANDOM + PWIRE_ID;
    case PWIRE_PROOF: return 32 + 8 + 4;
    case PWIRE_WELCOME: return 4 + 3 * 8 + 2 * 4 + 2 * PWIRE_ADDRESS_MAX;
    case PWIRE_LOOKUP: return 8 + 4 + 32 * PWIRE_KEYS_MAX;
    case PWIRE_FOUND: return 8 + 4 + 4 + PWIRE_KEYS_MAX / 8 + WHERE_BYTES * PWIRE_KEYS_MAX;
    case PWIRE_RELEASE: return 8 + 4;
    case PWIRE_PING:
    case PWIRE_PONG: return 8;
    case PWIRE_CLAIM: return PWIRE_ID + 32 + 4 + 1;
    default: return 0;
    }
}

static bool is_sealed(enum pwire_type t) { return t != PWIRE_HELLO && t != PWIRE_CHALLENGE; }

static void put_found(struct out *o, const struct pwire_msg *m)
{
    unsigned char map[PWIRE_KEYS_MAX / 8] = { 0 };
    put(o, m->lease_ms, 4);
    put(o, m->n, 4);
    for (uint32_t i = 0; i < m->n; i++)
        if (m->where[i].found) map[i / 8] = (unsigned char)(map[i / 8] | 1u << i % 8);
    put_bytes(o, map, (m->n + 7) / 8);
    for (uint32_t i = 0; i < m->n; i++) {
        if (!m->where[i].found) continue;
        put(o, m->where[i].slot, 4);
        put(o, m->where[i].payload.lo, 8);
        put(o, m->where[i].payload.hi, 8);
    }
}

static void get_found(struct in *in, struct pwire_msg *m)
{
    unsigned char map[PWIRE_KEYS_MAX / 8];
    m->lease_ms = (uint32_t)get(in, 4);
    m->n = (uint32_t)get(in, 4);
    if (m->n > PWIRE_KEYS_MAX) {
        in->short_of = true;
        return;
    }
    get_bytes(in, map, (m->n + 7) / 8);
    if (in->short_of) return;
    for (uint32_t i = 0; i < m->n && !in->short_of; i++) {
        m->where[i] = (struct pwire_where){ .found = map[i / 8] >> i % 8 & 1 };
        if (!m->where[i].found) continue;
        m->where[i].slot = (uint32_t)get(in, 4);
        m->where[i].payload.lo = get(in, 8);
        m->where[i].payload.hi = get(in, 8);
    }
}

static void put_welcome(struct out *o, const struct pwire_msg *m)
{
    CHECK(m->n_address <= PWIRE_ADDRESS_MAX && m->n_rkey <= PWIRE_ADDRESS_MAX);
    put(o, m->verdict, 4);
    put(o, m->epoch, 8);
    put(o, m->slab_base, 8);
    put(o, m->slab_bytes, 8);
    put(o, m->n_address, 4);
    put(o, m->n_rkey, 4);
    put_bytes(o, m->address, m->n_address);
    put_bytes(o, m->rkey, m->n_rkey);
}

static void get_welcome(struct in *in, struct pwire_msg *m)
{
    uint32_t verdict = (uint32_t)get(in, 4);
    m->epoch = get(in, 8);
    m->slab_base = get(in, 8);
    m->slab_bytes = get(in, 8);
    m->n_address = (uint32_t)get(in, 4);
    m->n_rkey = (uint32_t)get(in, 4);
    if (verdict >= PWIRE_VERDICTS || m->n_address > PWIRE_ADDRESS_MAX || m->n_rkey > PWIRE_ADDRESS_MAX ||
        m->slab_base + m->slab_bytes < m->slab_base) {
        in->short_of = true;
        return;
    }
    m->verdict = (enum pwire_verdict)verdict;
    get_bytes(in, m->address, m->n_address);
    get_bytes(in, m->rkey, m->n_rkey);
}

static void put_body(struct out *o, const struct pwire_msg *m)
{
    switch (m->type) {
    case PWIRE_HELLO:
    case PWIRE_CHALLENGE:
        put_bytes(o, m->random, PWIRE_RANDOM);
        put_bytes(o, m->id, PWIRE_ID);
        break;
    case PWIRE_PROOF:
        put_bytes(o, m->fingerprint.b, 32);
        put(o, m->record_bytes, 8);
        put(o, m->transport, 4);
        break;
    case PWIRE_WELCOME: put_welcome(o, m); break;
    case PWIRE_LOOKUP:
        put(o, m->lease, 8);
        put(o, m->n, 4);
        put_bytes(o, m->key, m->n * 32);
        break;
    case PWIRE_FOUND:
        put(o, m->lease, 8);
        put_found(o, m);
        break;
    case PWIRE_RELEASE:
        put(o, m->lease, 8);
        put(o, m->n, 4);
        break;
    case PWIRE_PING:
    case PWIRE_PONG: put(o, m->lease, 8); break;
    case PWIRE_CLAIM:
        put_bytes(o, m->id, PWIRE_ID);
        put_bytes(o, m->key, 32);
        put(o, m->n, 4);
        put(o, m->done, 1);
        break;
    }
}

/* false: not exactly a body of this type. */
static bool get_body(struct in *in, struct pwire_msg *m)
{
    uint64_t done;
    switch (m->type) {
    case PWIRE_HELLO:
    case PWIRE_CHALLENGE:
        get_bytes(in, m->random, PWIRE_RANDOM);
        get_bytes(in, m->id, PWIRE_ID);
        break;
    case PWIRE_PROOF:
        get_bytes(in, m->fingerprint.b, 32);
        m->record_bytes = get(in, 8);
        m->transport = (uint32_t)get(in, 4);
        break;
    case PWIRE_WELCOME: get_welcome(in, m); break;
    case PWIRE_LOOKUP:
        m->lease = get(in, 8);
        m->n = (uint32_t)get(in, 4);
        if (m->n == 0 || m->n > PWIRE_KEYS_MAX) return false;
        get_bytes(in, m->key, m->n * 32);
        break;
    case PWIRE_FOUND:
        m->lease = get(in, 8);
        get_found(in, m);
        break;
    case PWIRE_RELEASE:
        m->lease = get(in, 8);
        m->n = (uint32_t)get(in, 4);
        break;
    case PWIRE_PING:
    case PWIRE_PONG: m->lease = get(in, 8); break;
    case PWIRE_CLAIM:
        get_bytes(in, m->id, PWIRE_ID);
        get_bytes(in, m->key, 32);
        m->n = (uint32_t)get(in, 4);
        done = get(in, 1);
        if (done > 1) return false;
        m->done = done == 1;
        break;
    }
    return !in->short_of && in->at == in->n;
}

/* ---- frames */

uint32_t pwire_put(unsigned char *out, const struct pwire_msg *m, struct pwire_seal *seal)
{
    struct out o = { .p = out };
    CHECK(is_sealed(m->type) == seal->on);
    CHECK(m->type == PWIRE_RELEASE || m->type == PWIRE_CLAIM || m->n <= PWIRE_KEYS_MAX);
    put(&o, MAGIC, 4);
    put(&o, PWIRE_VERSION, 2);
    put(&o, m->type, 2);
    put(&o, 0, 4);
    put_body(&o, m);
    struct out length = { .p = out, .n = 8 };
    put(&length, o.n - PWIRE_FRAME_HEAD, 4);
    seal_of(seal, out, o.n, out + o.n);
    return o.n + PWIRE_FRAME_MAC;
}

enum status pwire_get(const unsigned char *p, uint32_t n, struct pwire_seal *seal, struct pwire_msg *out,
                      uint32_t *used_out)
{
    static const unsigned char begin[4] = { 'S', 'P', 'V', 'P' };
    struct in                  head = { .p = p, .n = n };
    if (memcmp(p, begin, n < 4 ? n : 4)) return ST_INVALID; /* even if fewer than four bytes are there */
    if (n < PWIRE_FRAME_HEAD) return ST_AGAIN;
    head.at = 4;
    if (get(&head, 2) != PWIRE_VERSION) return ST_CONFIG;
    uint32_t type = (uint32_t)get(&head, 2), bytes = (uint32_t)get(&head, 4), max = pwire_body_max(type);
    if (!max || bytes > max || is_sealed((enum pwire_type)type) != seal->on) return ST_INVALID;
    uint32_t whole = PWIRE_FRAME_HEAD + bytes + PWIRE_FRAME_MAC;
    if (n < whole) return ST_AGAIN;
    unsigned char mac[PWIRE_FRAME_MAC];
    seal_of(seal, p, whole - PWIRE_FRAME_MAC, mac);
    if (CRYPTO_memcmp(mac, p + whole - PWIRE_FRAME_MAC, PWIRE_FRAME_MAC)) return ST_INVALID;
    struct in body = { .p = p + PWIRE_FRAME_HEAD, .n = bytes };
    out->type = (enum pwire_type)type;
    if (!get_body(&body, out)) return ST_INVALID;
    *used_out = whole;
    return ST_OK;
}

bool pwire_get_body(const unsigned char *p, uint32_t n, struct pwire_msg *out)
{
    if (n < 1 || !pwire_body_max(p[0]) || n - 1 > pwire_body_max(p[0])) return false;
    struct in body = { .p = p + 1, .n = n - 1 };
    memset(out, 0, sizeof *out);
    out->type = (enum pwire_type)p[0];
    return get_body(&body, out);
}
