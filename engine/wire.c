#include "engine/wire.h"
#include "base/check.h"
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
static void put_ids(struct out *o, const uint32_t *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) put_u32(o, v[i]);
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
    };
    return field < WIRE_FIELDS ? name[field] : "?";
}

enum { WIRE_SIGNED_MAX = 512 };
_Static_assert((int)WIRE_SIGNED_MAX >= (int)WIRE_HELLO_BYTES, "a hello is signed");
_Static_assert((int)WIRE_SIGNED_MAX >= (int)WIRE_TEXT_MAX, "a refusal is signed");

static void sign(unsigned char mac[WIRE_MAC], const char *purpose, const unsigned char nonce[WIRE_NONCE], const unsigned char *p, size_t n,
                 const char *key)
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

void wire_hello_put(unsigned char out[WIRE_HELLO_BYTES], const struct wire_hello *h, const unsigned char peer_nonce[WIRE_NONCE],
                    const char *key)
{
    struct out o = { out };
    put_u32(&o, WIRE_FIELDS);
    put_bytes(&o, h->version, sizeof h->version);
    put_u32(&o, h->node);
    put_u32(&o, h->n_block);
    put_u32(&o, 0);
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) put_u64(&o, h->field[i]);
    put_bytes(&o, h->nonce, sizeof h->nonce);
    sign(o.p, "hello", peer_nonce, out, (size_t)(o.p - out), key);
    CHECK(o.p + WIRE_MAC == out + WIRE_HELLO_BYTES);
}

enum status wire_hello_get(const void *p, size_t n, const unsigned char own_nonce[WIRE_NONCE], const char *key, struct wire_hello *h_out)
{
    struct in         in = { p, (const unsigned char *)p + n, false };
    struct wire_hello h;
    unsigned char     mac[WIRE_MAC];
    uint32_t          n_field = get_u32(&in);
    if (n != WIRE_HELLO_BYTES || n_field != WIRE_FIELDS) return ST_INVALID;
    get_bytes(&in, h.version, sizeof h.version);
    h.node = get_u32(&in), h.n_block = get_u32(&in), (void)get_u32(&in);
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) h.field[i] = get_u64(&in);
    get_bytes(&in, h.nonce, sizeof h.nonce);
    if (in.bad || h.version[sizeof h.version - 1]) return ST_INVALID;
    sign(mac, "hello", own_nonce, p, n - WIRE_MAC, key);
    if (CRYPTO_memcmp(mac, in.p, WIRE_MAC) != 0) return ST_CANCELED;
    *h_out = h;
    return ST_OK;
}

void wire_welcome_put(unsigned char out[WIRE_WELCOME_BYTES], const struct wire_welcome *w, const unsigned char peer_nonce[WIRE_NONCE],
                      const char *key)
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

uint32_t wire_refuse_put(unsigned char out[WIRE_REFUSE_BYTES], const char *text, const void *hello, size_t hello_bytes, const char *key)
{
    unsigned char nonce[WIRE_NONCE] = { 0 };
    size_t        n = strlen(text) < WIRE_TEXT_MAX ? strlen(text) : (size_t)WIRE_TEXT_MAX;
    memcpy(out, text, n);
    if (!*key) return (uint32_t)n;
    if (hello_bytes == WIRE_HELLO_BYTES) memcpy(nonce, (const unsigned char *)hello + WIRE_HELLO_BYTES - WIRE_MAC - WIRE_NONCE, WIRE_NONCE);
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
        if ((unsigned char)text_out[i] < ' ' || (unsigned char)text_out[i] > '~') text_out[i] = '?'; /* it goes into a log */
    if (!n_mac) return ST_OK;
    sign(mac, "refuse", own_nonce, p, n_text, key);
    return CRYPTO_memcmp(mac, (const unsigned char *)p + n_text, WIRE_MAC) == 0 ? ST_OK : ST_CANCELED;
}

void wire_frame_key(unsigned char out[WIRE_MAC], const char *key, bool to_first, const unsigned char challenge[WIRE_NONCE],
                    const unsigned char hello[WIRE_NONCE])
{
    sign(out, to_first ? "to 0" : "from 0", challenge, hello, WIRE_NONCE, key);
}

bool wire_hello_fits(const struct wire_hello *own, const struct wire_hello *h, char *why, size_t why_bytes)
{
    if (strcmp(own->version, h->version) != 0) {
        snprintf(why, why_bytes, "its version differs from node 0's, which is %s", own->version); /* theirs is not ours to print */
        return false;
    }
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) {
        if (own->field[i] == h->field[i]) continue;
        snprintf(why, why_bytes, "its %s differs from node 0's (%" PRIu64 " there, %" PRIu64 " here)", wire_field_name(i), own->field[i],
                 h->field[i]);
        return false;
    }
    if (h->node == 0 || h->node >= own->field[WIRE_F_NNODES]) {
        snprintf(why, why_bytes, "its --node-rank is %u, allowed are 1 to %" PRIu64, h->node, own->field[WIRE_F_NNODES] - 1);
        return false;
    }
    return true;
}

/* ---- steps: the counts, then the arrays in the order of struct batch. row_seq follows from row_start and is not sent. */

enum { STEP_COUNTS = 14, SAMPLE_BYTES = 17 * 4 + 3 * 8 };

uint32_t wire_step_bytes_max(const struct batch_cfg *b)
{
    uint64_t seqs = b->seqs_max, rows = b->rows_max;
    uint64_t n = 8 + 4 * (uint64_t)STEP_COUNTS + 4 * (rows * 2 + 2 * (seqs + 1) + b->pages_max + 2 * seqs + (seqs + rows)) +
                 seqs * SAMPLE_BYTES + 4 * ((uint64_t)b->hist_max + b->ban_max + b->allow_max) + 8 * (uint64_t)b->bias_max + 4 * rows +
                 8 * 2 * seqs;
    CHECK(n <= UINT32_MAX);
    return (uint32_t)n;
}

static void put_sample(struct out *o, const struct op_sample_row *r)
{
    const unsigned char *begin = o->p;
    const float          f[] = { r->temperature, r->top_p, r->min_p, r->presence, r->frequency, r->repetition };
    const uint32_t       u[] = { r->top_k,  r->n_top,     r->hist_start, r->n_prompt,    r->n_hist, r->bias_start,
                                 r->n_bias, r->ban_start, r->n_ban,      r->allow_start, r->n_allow };
    for (size_t i = 0; i < sizeof f / sizeof *f; i++) put_f32(o, f[i]);
    put_ids(o, u, sizeof u / sizeof *u);
    put_u64(o, r->seed);
    put_u64(o, r->stream);
    put_u64(o, r->counter);
    CHECK(o->p - begin == SAMPLE_BYTES);
}

uint32_t wire_step_put(unsigned char *out, const struct batch *b, struct wire_steps *s)
{
    struct out o = { out };
    uint32_t   n_seq = b->d.n_seq, n_page = b->page_start[n_seq];
    put_u64(&o, ++s->n);
    const uint32_t count[STEP_COUNTS] = {
        b->d.n_row, n_seq,      n_page,    b->n_copy,      b->n_logit,    b->n_sample,   b->n_hist,
        b->n_ban,   b->n_allow, b->n_bias, b->n_prompt_lp, b->prompt_top, b->n_patch_id, b->n_patch_hist
    };
    put_ids(&o, count, STEP_COUNTS);
    unsigned char *ids = o.p;
    put_ids(&o, b->id, b->d.n_row);
    for (uint32_t i = 0; i < b->n_patch_id; i++) memset(ids + 4 * (size_t)b->patch_id[i].at, 0, 4); /* nobody knows them yet */
    put_ids(&o, b->pos, b->d.n_row);
    put_ids(&o, b->row_start, n_seq + 1);
    put_ids(&o, b->page_start, n_seq + 1);
    put_ids(&o, b->page, n_page);
    put_ids(&o, b->copy_src, b->n_copy);
    put_ids(&o, b->copy_dst, b->n_copy);
    put_ids(&o, b->logit_row, b->n_logit);
    for (uint32_t i = 0; i < b->n_sample; i++) put_sample(&o, &b->sample[i]);
    put_ids(&o, b->hist, b->n_hist);
    put_ids(&o, b->ban, b->n_ban);
    put_ids(&o, b->allow, b->n_allow);
    for (uint32_t i = 0; i < b->n_bias; i++) put_u32(&o, b->bias[i].id), put_f32(&o, b->bias[i].bias);
    put_ids(&o, b->lp_id, b->n_prompt_lp);
    for (uint32_t i = 0; i < b->n_patch_id; i++) put_u32(&o, b->patch_id[i].at), put_u32(&o, b->patch_id[i].from);
    for (uint32_t i = 0; i < b->n_patch_hist; i++) put_u32(&o, b->patch_hist[i].at), put_u32(&o, b->patch_hist[i].from);
    s->n_drawn = b->n_sample;
    return (uint32_t)(o.p - out);
}

static enum status wrong(char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "a step whose %s", what);
    return ST_INVALID;
}

/* n ids below `below` (UINT32_MAX: any) */
static bool get_ids(struct in *in, uint32_t *v, uint32_t n, uint32_t below)
{
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) ok &= (v[i] = get_u32(in)) < below || below == UINT32_MAX;
    return ok && !in->bad;
}

/* 0 = start[0] <= start[1] <= ... = total */
static bool rises(const uint32_t *start, uint32_t n, uint32_t total)
{
    if (start[0] || start[n] != total) return false;
    for (uint32_t i = 0; i < n; i++)
        if (start[i] > start[i + 1]) return false;
    return true;
}

static bool within(uint32_t start, uint32_t n, uint32_t total) { return start <= total && n <= total - start; }

static bool get_sample(struct in *in, const struct batch *b, struct op_sample_row *r)
{
    float    *f[] = { &r->temperature, &r->top_p, &r->min_p, &r->presence, &r->frequency, &r->repetition };
    uint32_t *u[] = { &r->top_k,  &r->n_top,     &r->hist_start, &r->n_prompt,    &r->n_hist, &r->bias_start,
                      &r->n_bias, &r->ban_start, &r->n_ban,      &r->allow_start, &r->n_allow };
    *r = (struct op_sample_row){ 0 };
    for (size_t i = 0; i < sizeof f / sizeof *f; i++) *f[i] = get_f32(in);
    for (size_t i = 0; i < sizeof u / sizeof *u; i++) *u[i] = get_u32(in);
    r->seed = get_u64(in), r->stream = get_u64(in), r->counter = get_u64(in);
    return !in->bad && r->n_top <= OP_SAMPLE_TOP_MAX && r->n_prompt <= r->n_hist && within(r->hist_start, r->n_hist, b->n_hist) &&
           within(r->bias_start, r->n_bias, b->n_bias) && within(r->ban_start, r->n_ban, b->n_ban) &&
           within(r->allow_start, r->n_allow, b->n_allow);
}

static bool get_patches(struct in *in, struct dev_patch *p, uint32_t n, uint32_t at_below, uint32_t from_below)
{
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        p[i].at = get_u32(in), p[i].from = get_u32(in);
        ok &= p[i].at < at_below && p[i].from < from_below;
    }
    return ok && !in->bad;
}

/* Rows of a sequence rise by one, and its pages hold them. */
static bool rows_fit(const struct batch *b, const struct wire_limits *lim)
{
    for (uint32_t i = 0; i < b->d.n_seq; i++) {
        uint32_t first = b->row_start[i], end = b->row_start[i + 1];
        uint64_t held = (uint64_t)(b->page_start[i + 1] - b->page_start[i]) * lim->block_tokens;
        for (uint32_t r = first; r < end; r++) {
            if (b->pos[r] >= lim->context || b->pos[r] - b->pos[first] != r - first || b->pos[r] >= held) return false;
            b->row_seq[r] = i;
        }
    }
    return true;
}

enum status wire_step_get(const void *p, size_t n, const struct wire_limits *lim, struct wire_steps *s, struct batch *b, char *why,
                          size_t why_bytes)
{
    struct in               in = { p, (const unsigned char *)p + n, false };
    const struct batch_cfg *max = &lim->b;
    uint64_t                number = get_u64(&in);
    uint32_t                count[STEP_COUNTS];
    if (!get_ids(&in, count, STEP_COUNTS, UINT32_MAX)) return wrong(why, why_bytes, "counts are missing");
    if (number != s->n + 1) return wrong(why, why_bytes, "number does not follow the one before");
    const uint32_t bound[STEP_COUNTS] = { max->rows_max, max->seqs_max,     max->pages_max, max->seqs_max,  max->seqs_max + max->rows_max,
                                          max->seqs_max, max->hist_max,     max->ban_max,   max->allow_max, max->bias_max,
                                          max->rows_max, OP_SAMPLE_TOP_MAX, max->seqs_max,  max->seqs_max };
    for (int i = 0; i < STEP_COUNTS; i++)
        if (count[i] > bound[i]) return wrong(why, why_bytes, "counts are over the bounds");
    batch_clear(b);
    b->d.n_row = count[0], b->d.n_seq = count[1], b->n_copy = count[3], b->n_logit = count[4], b->n_sample = count[5];
    b->n_hist = count[6], b->n_ban = count[7], b->n_allow = count[8], b->n_bias = count[9], b->n_prompt_lp = count[10];
    b->prompt_top = count[11], b->n_patch_id = count[12], b->n_patch_hist = count[13];
    if (b->n_logit != b->n_sample + b->n_prompt_lp) return wrong(why, why_bytes, "counts do not add up");
    if (!get_ids(&in, b->id, b->d.n_row, lim->vocab)) return wrong(why, why_bytes, "ids are outside of the vocabulary");
    if (!get_ids(&in, b->pos, b->d.n_row, lim->context)) return wrong(why, why_bytes, "positions are beyond the context");
    if (!get_ids(&in, b->row_start, b->d.n_seq + 1, UINT32_MAX) || !rises(b->row_start, b->d.n_seq, b->d.n_row))
        return wrong(why, why_bytes, "rows do not divide among its sequences");
    if (!get_ids(&in, b->page_start, b->d.n_seq + 1, UINT32_MAX) || !rises(b->page_start, b->d.n_seq, count[2]))
        return wrong(why, why_bytes, "pages do not divide among its sequences");
    if (!get_ids(&in, b->page, count[2], lim->n_block)) return wrong(why, why_bytes, "pages are outside of the pool");
    if (!rows_fit(b, lim)) return wrong(why, why_bytes, "rows are not held by their pages");
    if (!get_ids(&in, b->copy_src, b->n_copy, lim->n_block) || !get_ids(&in, b->copy_dst, b->n_copy, lim->n_block))
        return wrong(why, why_bytes, "copies are outside of the pool");
    if (!get_ids(&in, b->logit_row, b->n_logit, b->d.n_row)) return wrong(why, why_bytes, "wanted rows are not in it");
    for (uint32_t i = 0; i < b->n_sample; i++)
        if (!get_sample(&in, b, &b->sample[i])) return wrong(why, why_bytes, "sampling rows point beyond their lists");
    if (!get_ids(&in, b->hist, b->n_hist, UINT32_MAX) || !get_ids(&in, b->ban, b->n_ban, UINT32_MAX) ||
        !get_ids(&in, b->allow, b->n_allow, UINT32_MAX))
        return wrong(why, why_bytes, "lists are cut");
    for (uint32_t i = 0; i < b->n_bias; i++) b->bias[i].id = get_u32(&in), b->bias[i].bias = get_f32(&in);
    if (!get_ids(&in, b->lp_id, b->n_prompt_lp, lim->vocab)) return wrong(why, why_bytes, "prompt ids are outside of the vocabulary");
    if (!get_patches(&in, b->patch_id, b->n_patch_id, b->d.n_row, s->n_drawn) ||
        !get_patches(&in, b->patch_hist, b->n_patch_hist, b->n_hist, s->n_drawn))
        return wrong(why, why_bytes, "patches point beyond its rows or the step before");
    for (uint32_t i = 0; i < b->n_patch_id; i++)
        if (b->id[b->patch_id[i].at]) return wrong(why, why_bytes, "patched ids are not 0");
    if (in.bad || in.p != in.end) return wrong(why, why_bytes, "length is not what its counts say");
    s->n = number, s->n_drawn = b->n_sample;
    return ST_OK;
}
