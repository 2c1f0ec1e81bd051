/* Over 500 lines: one format, whose hello, refusals and steps are written and read by the same few functions, side by
 * side. */
#include "engine/wire.h"
#include "base/check.h"
#include "base/hash.h"
#include <assert.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

/* Numbers lie little-endian in 4 or 8 bytes, floats as their bits. */
struct out {
    unsigned char *p;
};
struct in {
    const unsigned char *p, *end;
    bool                 bad; /* the bytes have run out; numbers read since are 0 */
};

static void put_u32(struct out *o, uint32_t v)
{
    for (int i = 0; i < 4; i++) *o->p++ = (unsigned char)(v >> 8 * i);
}
static void put_u64(struct out *o, uint64_t v)
{
    put_u32(o, (uint32_t)v);
    put_u32(o, (uint32_t)(v >> 32));
}
static void put_f32(struct out *o, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_u32(o, bits);
}
static void put_bytes(struct out *o, const void *p, size_t n)
{
    memcpy(o->p, p, n);
    o->p += n;
}

static const unsigned char *take(struct in *in, size_t n)
{
    static const unsigned char zero[8];
    if (in->bad || (size_t)(in->end - in->p) < n) {
        in->bad = true;
        CHECK(n <= sizeof zero);
        return zero;
    }
    in->p += n;
    return in->p - n;
}
static uint32_t get_u32(struct in *in)
{
    const unsigned char *p = take(in, 4);
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static uint64_t get_u64(struct in *in)
{
    uint64_t low = get_u32(in);
    return low | (uint64_t)get_u32(in) << 32;
}
static float get_f32(struct in *in)
{
    uint32_t bits = get_u32(in);
    float    v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static void get_bytes(struct in *in, void *out, size_t n)
{
    memset(out, 0, n);
    if (in->bad || (size_t)(in->end - in->p) < n) {
        in->bad = true;
        return;
    }
    memcpy(out, in->p, n);
    in->p += n;
}

/* ---- hello and welcome: plain fields, then HMAC-SHA256(key, purpose, the other side's nonce, the fields) */

const char *wire_field_name(uint32_t field)
{
    static const char *const name[WIRE_FIELDS] = {
        [WIRE_F_MODEL] = "--model (config.json or the weights)",
        [WIRE_F_NNODES] = "--nnodes",
        [WIRE_F_TP] = "--tensor-parallel-size",
        [WIRE_F_DEVICE] = "--device",
        [WIRE_F_DTYPE] = "--dtype",
        [WIRE_F_KV_DTYPE] = "--kv-cache-dtype",
        [WIRE_F_BLOCK] = "--block-size",
        [WIRE_F_SEQS] = "--max-num-seqs",
        [WIRE_F_ROWS] = "--max-num-batched-tokens",
        [WIRE_F_CONTEXT] = "--max-model-len",
        [WIRE_F_CHUNK] = "--prefill-chunk",
        [WIRE_F_DETERMINISTIC] = "--deterministic",
        [WIRE_F_PREFIX] = "--enable-prefix-caching",
        [WIRE_F_SYMMETRIC] = "--nccl-symmetric",
        [WIRE_F_EXPERTS] = "--enable-expert-parallel",
    };
    return field < WIRE_FIELDS ? name[field] : "?";
}

uint32_t wire_arrays(void)
{
#define SIZE(name, ...)                                   "size " #name "\n"
#define ARRAY(name, type, size, extra, pack, values, ...) #name " " #type " " #size " " #extra " " #values "\n"
#define FIELD_F(name)                                     #name " f"
#define FIELD_U(name)                                     #name " u"
#define FIELD_L(name)                                     #name " l"
    static const char text[] = DEV_SIZES(SIZE) DEV_ARRAYS(ARRAY) OP_SAMPLE_FIELDS(FIELD_F, FIELD_U, FIELD_L);
#undef SIZE
#undef ARRAY
#undef FIELD_F
#undef FIELD_U
#undef FIELD_L
#define ENTRY(name, type, ...) sizeof(type),
    static const uint32_t entry_bytes[] = { DEV_ARRAYS(ENTRY) OP_SAMPLE_TOP_MAX };
#undef ENTRY
    uint64_t h = hash_bytes(text, sizeof text - 1, hash_bytes(entry_bytes, sizeof entry_bytes, 0));
    return (uint32_t)(h ^ h >> 32);
}

enum { WIRE_SIGNED_MAX = 512 };
_Static_assert((int)WIRE_SIGNED_MAX >= (int)WIRE_HELLO_BYTES, "a hello is signed");
_Static_assert((int)WIRE_SIGNED_MAX >= (int)WIRE_TEXT_MAX, "a refusal is signed");

static void sign(unsigned char mac[WIRE_MAC], const char *purpose, const unsigned char nonce[WIRE_NONCE],
                 const unsigned char *p, size_t n, const char *key)
{
    unsigned char text[16 + WIRE_NONCE + WIRE_SIGNED_MAX] = { 0 }, got[EVP_MAX_MD_SIZE];
    unsigned      got_bytes = 0;
    CHECK(n <= WIRE_SIGNED_MAX);
    snprintf((char *)text, 16, "spillway %s", purpose);
    memcpy(text + 16, nonce, WIRE_NONCE);
    memcpy(text + 16 + WIRE_NONCE, p, n);
    CHECK(HMAC(EVP_sha256(), key, (int)strlen(key), text, 16 + WIRE_NONCE + n, got, &got_bytes));
    CHECK(got_bytes == WIRE_MAC);
    memcpy(mac, got, WIRE_MAC);
}

void wire_hello_put(unsigned char out[WIRE_HELLO_BYTES], const struct wire_hello *h,
                    const unsigned char peer_nonce[WIRE_NONCE], const char *key)
{
    struct out o = { out };
    put_u32(&o, WIRE_FIELDS);
    put_bytes(&o, h->version, sizeof h->version);
    put_u32(&o, h->node);
    put_u32(&o, h->n_block);
    put_u32(&o, h->arrays);
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) put_u64(&o, h->field[i]);
    put_bytes(&o, h->nonce, sizeof h->nonce);
    sign(o.p, "hello", peer_nonce, out, (size_t)(o.p - out), key);
    CHECK(o.p + WIRE_MAC == out + WIRE_HELLO_BYTES);
}

enum status wire_hello_get(const void *p, size_t n, const unsigned char own_nonce[WIRE_NONCE], const char *key,
                           struct wire_hello *h_out)
{
    struct in         in = { p, (const unsigned char *)p + n, false };
    struct wire_hello h;
    unsigned char     mac[WIRE_MAC];
    uint32_t          n_field = get_u32(&in);
    if (n != WIRE_HELLO_BYTES || n_field != WIRE_FIELDS) return ST_INVALID;
    get_bytes(&in, h.version, sizeof h.version);
    h.node = get_u32(&in);
    h.n_block = get_u32(&in);
    h.arrays = get_u32(&in);
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) h.field[i] = get_u64(&in);
    get_bytes(&in, h.nonce, sizeof h.nonce);
    if (in.bad || h.version[sizeof h.version - 1]) return ST_INVALID;
    sign(mac, "hello", own_nonce, p, n - WIRE_MAC, key);
    if (CRYPTO_memcmp(mac, in.p, WIRE_MAC) != 0) return ST_CANCELED;
    *h_out = h;
    return ST_OK;
}

void wire_welcome_put(unsigned char out[WIRE_WELCOME_BYTES], const struct wire_welcome *w,
                      const unsigned char peer_nonce[WIRE_NONCE], const char *key)
{
    struct out o = { out };
    put_u32(&o, w->n_block);
    put_bytes(&o, w->comm, sizeof w->comm);
    sign(o.p, "welcome", peer_nonce, out, (size_t)(o.p - out), key);
}

enum status wire_welcome_get(const void *p, size_t n, const unsigned char own_nonce[WIRE_NONCE], const char *key,
                             struct wire_welcome *w_out)
{
    struct in           in = { p, (const unsigned char *)p + n, false };
    struct wire_welcome w;
    unsigned char       mac[WIRE_MAC];
    if (n != WIRE_WELCOME_BYTES) return ST_INVALID;
    w.n_block = get_u32(&in);
    get_bytes(&in, w.comm, sizeof w.comm);
    sign(mac, "welcome", own_nonce, p, n - WIRE_MAC, key);
    if (CRYPTO_memcmp(mac, in.p, WIRE_MAC) != 0) return ST_CANCELED;
    *w_out = w;
    return ST_OK;
}

uint32_t wire_refuse_put(unsigned char out[WIRE_REFUSE_BYTES], const char *text, const void *hello, size_t hello_bytes,
                         const char *key)
{
    unsigned char nonce[WIRE_NONCE] = { 0 };
    size_t        n = strlen(text) < WIRE_TEXT_MAX ? strlen(text) : (size_t)WIRE_TEXT_MAX;
    memcpy(out, text, n);
    if (!*key) return (uint32_t)n;
    if (hello_bytes == WIRE_HELLO_BYTES)
        memcpy(nonce, (const unsigned char *)hello + WIRE_HELLO_BYTES - WIRE_MAC - WIRE_NONCE, WIRE_NONCE);
    sign(out + n, "refuse", nonce, out, n, key);
    return (uint32_t)n + WIRE_MAC;
}

enum status wire_refuse_get(const void *p, size_t n, const unsigned char own_nonce[WIRE_NONCE], const char *key,
                            char text_out[WIRE_TEXT_MAX + 1])
{
    unsigned char mac[WIRE_MAC];
    size_t        n_mac = *key ? WIRE_MAC : 0, n_text = n > n_mac ? n - n_mac : 0;
    *text_out = 0;
    if (n < n_mac || n_text > WIRE_TEXT_MAX) return ST_INVALID;
    memcpy(text_out, p, n_text);
    text_out[n_text] = 0;
    for (size_t i = 0; i < n_text; i++)
        if ((unsigned char)text_out[i] < ' ' || (unsigned char)text_out[i] > '~')
            text_out[i] = '?'; /* it goes into a log */
    if (!n_mac) return ST_OK;
    sign(mac, "refuse", own_nonce, p, n_text, key);
    return CRYPTO_memcmp(mac, (const unsigned char *)p + n_text, WIRE_MAC) == 0 ? ST_OK : ST_CANCELED;
}

void wire_frame_key(unsigned char out[WIRE_MAC], const char *key, bool to_first,
                    const unsigned char challenge[WIRE_NONCE], const unsigned char hello[WIRE_NONCE])
{
    sign(out, to_first ? "to 0" : "from 0", challenge, hello, WIRE_NONCE, key);
}

bool wire_hello_fits(const struct wire_hello *own, const struct wire_hello *h, char *why, size_t why_bytes)
{
    if (strcmp(own->version, h->version) != 0) {
        snprintf(why, why_bytes, "its version differs from node 0's, which is %s",
                 own->version); /* theirs is not ours to print */
        return false;
    }
    if (own->arrays != h->arrays) {
        snprintf(why, why_bytes,
                 "its steps consist of other arrays than node 0's: both say version %s, but are different builds",
                 own->version);
        return false;
    }
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) {
        if (own->field[i] == h->field[i]) continue;
        snprintf(why, why_bytes, "its %s differs from node 0's (%" PRIu64 " there, %" PRIu64 " here)",
                 wire_field_name(i), own->field[i], h->field[i]);
        return false;
    }
    if (h->node == 0 || h->node >= own->field[WIRE_F_NNODES]) {
        snprintf(why, why_bytes, "its --node-rank is %u, allowed are 1 to %" PRIu64, h->node,
                 own->field[WIRE_F_NNODES] - 1);
        return false;
    }
    return true;
}

/* ---- steps: the sizes, then the arrays, both in the order of kernels/arrays.h */

enum { STEP_HEAD = 8 }; /* its number */

/* Bytes of one entry: its words as they lie in memory, but for rows of sampling, which have a gap. */
#define FIELD4(name) +4
#define FIELD8(name) +8
enum { SAMPLE_BYTES = OP_SAMPLE_FIELDS(FIELD4, FIELD4, FIELD8) };
#undef FIELD4
#undef FIELD8

static uint64_t entry_bytes(enum dev_values values, size_t in_memory)
{
    if (values == DEV_DERIVED) return 0;
    return values == DEV_SAMPLE ? SAMPLE_BYTES : in_memory;
}

uint32_t wire_step_bytes_max(const struct batch_cfg *b)
{
    struct dev_sizes most = batch_most(b);
    uint64_t         n = STEP_HEAD;
#define ADD(name, ...) n += sizeof most.name;
    DEV_SIZES(ADD)
#undef ADD
#define ADD(name, type, size, extra, pack, values, noun) \
    n += ((uint64_t)most.size + (extra)) * entry_bytes(values, sizeof(type));
    DEV_ARRAYS(ADD)
#undef ADD
    CHECK(n <= UINT32_MAX);
    return (uint32_t)n;
}

/* Floats first, then words, then longs. */
static void put_sample(struct out *o, const struct op_sample_row *r)
{
    const unsigned char *begin = o->p;
#define FLOAT(name) put_f32(o, r->name);
#define WORD(name)  put_u32(o, r->name);
#define LONG(name)  put_u64(o, r->name);
#define PASS(name)
    OP_SAMPLE_FIELDS(FLOAT, PASS, PASS)
    OP_SAMPLE_FIELDS(PASS, WORD, PASS)
    OP_SAMPLE_FIELDS(PASS, PASS, LONG)
#undef FLOAT
#undef WORD
#undef LONG
    CHECK(o->p - begin == SAMPLE_BYTES);
}

/* n bytes of an array whose entries are words */
static void put_words(struct out *o, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word;
        memcpy(&word, (const char *)from + i, sizeof word);
        put_u32(o, word);
    }
}

static void put_array(struct out *o, const struct batch *b, enum dev_values values, const void *from, uint32_t n,
                      size_t entry)
{
    unsigned char              *begin = o->p;
    const struct op_sample_row *row = from;
    switch (values) {
    case DEV_DERIVED: break;
    case DEV_SAMPLE:
        for (uint32_t i = 0; i < n; i++) put_sample(o, &row[i]);
        break;
    case DEV_ROW_TOKEN:
        put_words(o, from, n * entry);
        for (uint32_t i = 0; i < b->n_patch_id; i++)
            memset(begin + entry * b->patch_id[i].at, 0, entry); /* nobody knows them yet */
        break;
    default: put_words(o, from, n * entry); break;
    }
}

uint32_t wire_step_put(unsigned char *out, const struct batch *b, struct wire_steps *s)
{
    struct out o = { out };
    put_u64(&o, ++s->n);
#define PUT(name, ...) put_u32(&o, b->name);
    DEV_SIZES(PUT)
#undef PUT
#define PUT(name, type, size, extra, pack, values, noun)             \
    static_assert(sizeof(type) % 4 == 0, "an entry is whole words"); \
    put_array(&o, b, values, b->name, b->size + (extra), sizeof(type));
    DEV_ARRAYS(PUT)
#undef PUT
    s->n_drawn = b->n_sample;
    return (uint32_t)(o.p - out);
}

static enum status wrong(char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "a step whose %s", what);
    return ST_INVALID;
}

/* What is wrong with an array whose values are not as they should be; behind its noun. */
static const char *fault_of(enum dev_values values)
{
    switch (values) {
    case DEV_TOKEN:
    case DEV_ROW_TOKEN: return "outside of the vocabulary";
    case DEV_POSITION: return "beyond the context";
    case DEV_BLOCK: return "outside of the pool";
    case DEV_ROW: return "not in it";
    case DEV_ROW_START:
    case DEV_PAGE_START: return "not divided among its sequences";
    case DEV_SAMPLE: return "pointing beyond their lists";
    case DEV_PATCH_ID:
    case DEV_PATCH_HIST: return "pointing beyond its rows or the step before";
    case DEV_ANY:
    case DEV_DERIVED: break;
    }
    return "cut";
}

static bool get_words(struct in *in, void *to, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word = get_u32(in);
        memcpy((char *)to + i, &word, sizeof word);
    }
    return !in->bad;
}

/* n ids below `below` */
static bool get_ids(struct in *in, uint32_t *v, uint32_t n, uint32_t below)
{
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        v[i] = get_u32(in);
        ok = ok && v[i] < below;
    }
    return ok && !in->bad;
}

/* 0 = start[0] <= start[1] <= ... <= start[n] = total */
static bool get_starts(struct in *in, uint32_t *start, uint32_t n, uint32_t total)
{
    if (!get_words(in, start, ((size_t)n + 1) * sizeof *start)) return false;
    if (start[0] || start[n] != total) return false;
    for (uint32_t i = 0; i < n; i++)
        if (start[i] > start[i + 1]) return false;
    return true;
}

static bool within(uint32_t start, uint32_t n, uint32_t total) { return start <= total && n <= total - start; }

static bool get_sample(struct in *in, const struct batch *b, struct op_sample_row *r)
{
    *r = (struct op_sample_row){ 0 };
#define FLOAT(name) r->name = get_f32(in);
#define WORD(name)  r->name = get_u32(in);
#define LONG(name)  r->name = get_u64(in);
    OP_SAMPLE_FIELDS(FLOAT, PASS, PASS)
    OP_SAMPLE_FIELDS(PASS, WORD, PASS)
    OP_SAMPLE_FIELDS(PASS, PASS, LONG)
#undef FLOAT
#undef WORD
#undef LONG
#undef PASS
    bool ok = !in->bad && r->n_top <= OP_SAMPLE_TOP_MAX && r->n_prompt <= r->n_hist;
#define WITHIN(name, type, size, ...) ok = ok && within(r->name##_start, r->size, b->size);
    DEV_LISTS(WITHIN)
#undef WITHIN
    return ok;
}

static bool get_patches(struct in *in, struct dev_patch *p, uint32_t n, uint32_t at_below, uint32_t from_below)
{
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        p[i].at = get_u32(in);
        p[i].from = get_u32(in);
        ok = ok && p[i].at < at_below && p[i].from < from_below;
    }
    return ok && !in->bad;
}

/* Where the bytes come from, and what they are checked against. */
struct step_in {
    struct in                 in;
    const struct wire_limits *lim;
    const struct batch       *b; /* its sizes are known */
    uint32_t                  n_drawn;
};

/* The array `to` with n entries; false: they are not what its line in kernels/arrays.h says. */
static bool get_array(struct step_in *s, enum dev_values values, void *to, uint32_t n, size_t entry)
{
    struct in *in = &s->in;
    switch (values) {
    case DEV_DERIVED: return true;
    case DEV_TOKEN:
    case DEV_ROW_TOKEN: return get_ids(in, to, n, s->lim->vocab);
    case DEV_POSITION: return get_ids(in, to, n, s->lim->context);
    case DEV_BLOCK: return get_ids(in, to, n, s->lim->n_block);
    case DEV_ROW: return get_ids(in, to, n, s->b->n_row);
    case DEV_ROW_START: return get_starts(in, to, n - 1, s->b->n_row);
    case DEV_PAGE_START: return get_starts(in, to, n - 1, s->b->n_page);
    case DEV_SAMPLE: {
        struct op_sample_row *row = to;
        for (uint32_t i = 0; i < n; i++)
            if (!get_sample(in, s->b, &row[i])) return false;
        return true;
    }
    case DEV_PATCH_ID: return get_patches(in, to, n, s->b->n_row, s->n_drawn);
    case DEV_PATCH_HIST: return get_patches(in, to, n, s->b->n_hist, s->n_drawn);
    case DEV_ANY: break;
    }
    return get_words(in, to, n * entry);
}

/* Rows of a sequence rise by one, and its pages hold them. */
static bool rows_fit(const struct batch *b, const struct wire_limits *lim)
{
    for (uint32_t i = 0; i < b->n_seq; i++) {
        uint32_t first = b->row_start[i], end = b->row_start[i + 1];
        b->win_start[i] = b->page_start[i];
        b->win_start[i + 1] = b->page_start[i + 1];
        uint64_t held = (uint64_t)(b->page_start[i + 1] - b->page_start[i]) * lim->block_tokens;
        for (uint32_t r = first; r < end; r++) {
            if (b->pos[r] >= lim->context || b->pos[r] - b->pos[first] != r - first || b->pos[r] >= held) return false;
            b->row_seq[r] = i;
        }
    }
    return true;
}

enum status wire_step_get(const void *p, size_t n, const struct wire_limits *lim, struct wire_steps *s, struct batch *b,
                          char *why, size_t why_bytes)
{
    struct step_in g = { .in = { p, (const unsigned char *)p + n, false }, .lim = lim, .b = b, .n_drawn = s->n_drawn };
    struct dev_sizes most = batch_most(&lim->b), sizes;
    uint64_t         number = get_u64(&g.in);
    bool             ok = true;
#define GET(name, ...) sizes.name = get_u32(&g.in);
    DEV_SIZES(GET)
#undef GET
    if (g.in.bad) return wrong(why, why_bytes, "counts are missing");
    if (number != s->n + 1) return wrong(why, why_bytes, "number does not follow the one before");
#define FITS(name, ...) ok = ok && sizes.name <= most.name;
    DEV_SIZES(FITS)
#undef FITS
    if (!ok) return wrong(why, why_bytes, "counts are over the bounds");
#define SET(name, ...) b->name = sizes.name;
    DEV_SIZES(SET)
#undef SET
    if (b->n_logit != b->n_sample + b->n_lp) return wrong(why, why_bytes, "counts do not add up");
#define GET(name, type, size, extra, pack, values, noun)                            \
    if (!get_array(&g, values, b->name, b->size + (extra), sizeof(type))) {         \
        snprintf(why, why_bytes, "a step whose %s are %s", noun, fault_of(values)); \
        return ST_INVALID;                                                          \
    }
    DEV_ARRAYS(GET)
#undef GET
    if (!rows_fit(b, lim)) return wrong(why, why_bytes, "rows are not held by their pages");
    for (uint32_t i = 0; i < b->n_patch_id; i++)
        if (b->id[b->patch_id[i].at]) return wrong(why, why_bytes, "patched ids are not 0");
    if (g.in.bad || g.in.p != g.in.end) return wrong(why, why_bytes, "length is not what its counts say");
    s->n = number;
    s->n_drawn = b->n_sample;
    return ST_OK;
}
