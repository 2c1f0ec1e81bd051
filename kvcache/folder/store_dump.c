#include "kvcache/folder/store_dump.h"
#include "base/hash.h"
#include "kvcache/folder/store_format.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

/* ---- saying it */

__attribute__((format(printf, 3, 4))) static void wrong(struct store_dump *d, uint64_t byte, const char *fmt, ...)
{
    va_list args;
    d->n_wrong++;
    fprintf(d->out, "  wrong at byte %" PRIu64 ": ", byte);
    va_start(args, fmt);
    vfprintf(d->out, fmt, args);
    va_end(args);
    fputc('\n', d->out);
}
__attribute__((format(printf, 2, 3))) static void say(const struct store_dump *d, const char *fmt, ...)
{
    va_list args;
    if (!d->all) return;
    va_start(args, fmt);
    vfprintf(d->out, fmt, args);
    va_end(args);
}
static const struct digest_key *mac_of(const struct store_dump *d) { return d->keys->mac[d->keys->mac_is]; }
static const char              *hex(const unsigned char *p, char out[17]) /* the first 8 bytes */
{
    for (int i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", p[i]);
    return out;
}

/* ---- header */

/* true: its geometry can be used. */
static bool header(struct store_dump *d, const unsigned char *file, uint64_t bytes, struct store_header *h)
{
    char a[17], b[17];
    if (bytes < STORE_PAGE) {
        wrong(d, bytes, "the file ends within its header page");
        return false;
    }
    memcpy(h, file, sizeof *h);
    struct store_geometry g = store_geometry(h->payload_bytes, h->segment_bytes);
    uint64_t              n = d->n_wrong;
    if (memcmp(h->magic, STORE_HEADER, sizeof h->magic)) wrong(d, 0, "no segment: it begins with %s", hex(h->magic, a));
    if (h->version != STORE_VERSION)
        wrong(d, offsetof(struct store_header, version), "version %u, known is %d", h->version, STORE_VERSION);
    if (h->sum != hash_bytes(h, offsetof(struct store_header, sum), 0))
        wrong(d, offsetof(struct store_header, sum),
              "the sum of the header is not this: a byte before it was changed, or it");
    if (!g.n_record || g.record_bytes != h->record_bytes || g.n_record != h->n_record ||
        g.segment_bytes != h->segment_bytes)
        wrong(d, offsetof(struct store_header, record_bytes),
              "%u records of %" PRIu64 " bytes with payloads of %" PRIu64 " are no segment of %" PRIu64, h->n_record,
              h->record_bytes, h->payload_bytes, h->segment_bytes);
    if (!h->block_tokens || h->block_tokens > KV_RECORD_TOKENS_MAX)
        wrong(d, offsetof(struct store_header, block_tokens), "%u tokens in a block, allowed are 1 to %d",
              h->block_tokens, KV_RECORD_TOKENS_MAX);
    if (h->sealed > STORE_SEALED_START)
        wrong(d, offsetof(struct store_header, sealed), "sealed in a way that is not known: %u", h->sealed);
    if (n != d->n_wrong) return false;
    say(d,
        "header: seq %" PRIx64 ", model %s, %u records of %" PRIu64 " bytes, %u tokens and %" PRIu64
        " bytes of KV each%s%s\n",
        h->seq, hex(h->fingerprint.b, a), h->n_record, h->record_bytes, h->block_tokens, h->payload_bytes,
        h->sealed ? ", sealed, file key of " : "", h->sealed ? hex(h->random, b) : "");
    if (h->segment_bytes > bytes) wrong(d, bytes, "the file ends %" PRIu64 " bytes early", h->segment_bytes - bytes);
    if (h->segment_bytes < bytes)
        wrong(d, h->segment_bytes, "%" PRIu64 " bytes behind its end", bytes - h->segment_bytes);
    return true;
}

/* ---- records */

static bool is_zero(const unsigned char *p, uint64_t n)
{
    while (n && *p == 0) {
        p++;
        n--;
    }
    return n == 0;
}

/* The head at off, which is opened already. h NULL: there is no header to compare with. true: a whole head. */
static bool head(struct store_dump *d, const unsigned char *page, uint64_t off, const struct store_header *h)
{
    struct kv_record r;
    char             a[17], b[17];
    uint64_t         n = d->n_wrong;
    bool             window;
    memcpy(&r, page, sizeof r);
    if (!kv_record_named(&r, &window)) {
        wrong(d, off, "no record: it begins with %s", hex(r.magic, a));
        return false;
    }
    if (r.version != KV_RECORD_VERSION)
        wrong(d, off + offsetof(struct kv_record, version), "version %u, known is %d", r.version, KV_RECORD_VERSION);
    if (!digest_equal(r.head, digest_of(mac_of(d), &r, offsetof(struct kv_record, head))))
        wrong(d, off + offsetof(struct kv_record, head),
              "the digest of the head is not this: a byte before it was changed, or the MAC key is another");
    if (!r.block_tokens || r.block_tokens > KV_RECORD_TOKENS_MAX)
        wrong(d, off + offsetof(struct kv_record, block_tokens), "%u tokens, allowed are 1 to %d", r.block_tokens,
              KV_RECORD_TOKENS_MAX);
    if (h && r.block_tokens != h->block_tokens)
        wrong(d, off + offsetof(struct kv_record, block_tokens), "%u tokens, the segment's have %u", r.block_tokens,
              h->block_tokens);
    if (h && r.payload_bytes != h->payload_bytes)
        wrong(d, off + offsetof(struct kv_record, payload_bytes), "%" PRIu64 " bytes, the segment's have %" PRIu64,
              r.payload_bytes, h->payload_bytes);
    if (h && r.seq != h->seq)
        wrong(d, off + offsetof(struct kv_record, seq), "of segment %" PRIx64 ", left over or copied here", r.seq);
    if (h && !kv_key_equal(&r.fingerprint, &h->fingerprint))
        wrong(d, off + offsetof(struct kv_record, fingerprint), "of model %s", hex(r.fingerprint.b, a));
    if (n != d->n_wrong) return false;
    say(d, window ? "  piece %s of the window's block beside %s, tokens" : "  block %s after %s, tokens",
        hex(r.key.b, a), hex(r.parent.b, b));
    for (uint32_t i = 0; i < r.block_tokens && i < 8; i++) say(d, " %u", r.ids[i]);
    say(d, "%s\n", r.block_tokens > 8 ? " ..." : "");
    return true;
}

/* bytes: of the record that are there. true: whole. */
static bool record(struct store_dump *d, unsigned char *p, uint64_t off, uint64_t bytes, const struct store_header *h)
{
    const struct store_keys *c = h && h->sealed && d->keys->n_secret ? d->keys : NULL;
    if (bytes < KV_RECORD_HEAD) {
        wrong(d, off + bytes, "the file ends within the head of this record");
        return false;
    }
    if (h && h->sealed && !c) {
        say(d, "  sealed, and no key was given\n");
        return true;
    }
    if (c && bytes >= h->record_bytes && seal_blob_open(c->sealer, c->key, off, p, KV_RECORD_HEAD, h->record_bytes)) {
        /* head and payload lie in the clear now */
    } else if (c) {
        bool ok = seal_head_open(c->sealer, c->key, off, p, KV_RECORD_HEAD);
        wrong(d, ok ? off + KV_RECORD_HEAD : off, "%s does not open: it was changed, moved here, or never whole",
              ok ? "the payload" : "the head");
        if (ok) head(d, p, off, h);
        return false;
    }
    if (!head(d, p, off, h)) return false;
    const struct kv_record *r = kv_record_of(p);
    uint64_t                n = r->payload_bytes;
    if (n > bytes - KV_RECORD_HEAD) {
        wrong(d, off + bytes, "the file ends within the payload, which has %" PRIu64 " bytes", n);
        return false;
    }
    if (digest_equal(digest_of(mac_of(d), p + KV_RECORD_HEAD, n), r->payload)) return true;
    wrong(d, off + KV_RECORD_HEAD, "the digest of the payload of %" PRIu64 " bytes is not that of the head", n);
    return false;
}

static void records(struct store_dump *d, unsigned char *file, uint64_t bytes, const struct store_header *h)
{
    struct store_geometry g = store_geometry(h->payload_bytes, h->segment_bytes);
    for (uint32_t i = 0; i < g.n_record; i++) {
        uint64_t off = store_record_off(&g, i), left = off < bytes ? bytes - off : 0;
        if (left > g.record_bytes) left = g.record_bytes;
        if (left && is_zero(file + off, left < KV_RECORD_HEAD ? left : KV_RECORD_HEAD)) {
            d->n_empty++;
            continue;
        }
        if (!left) return; /* that the file ends early has been said */
        uint64_t n = d->n_wrong;
        say(d, "record %u at byte %" PRIu64 "\n", i, off);
        if (!d->all && h->sealed && !d->keys->n_secret) continue;
        bool whole = record(d, file + off, off, left, h);
        d->n_record += whole;
        if (n != d->n_wrong && !d->all) fprintf(d->out, "  which is record %u at byte %" PRIu64 "\n", i, off);
    }
}

/* ---- footer */

static void footer(struct store_dump *d, unsigned char *file, uint64_t bytes, const struct store_header *h)
{
    struct store_geometry g = store_geometry(h->payload_bytes, h->segment_bytes);
    struct store_trailer  t;
    uint64_t              rows = g.segment_bytes - store_footer_bytes(&g), at = g.segment_bytes - STORE_PAGE;
    uint64_t              n = d->n_wrong;
    char                  a[17], b[17];
    if (bytes < g.segment_bytes) return;
    memcpy(&t, file + at, sizeof t);
    if (is_zero((const unsigned char *)&t, sizeof t)) {
        say(d, "no footer: the segment was not full when its server ended\n");
        return;
    }
    if (memcmp(t.magic, STORE_TRAILER, sizeof t.magic)) wrong(d, at, "no footer: it begins with %s", hex(t.magic, a));
    if (t.version != STORE_VERSION)
        wrong(d, at + offsetof(struct store_trailer, version), "version %u, known is %d", t.version, STORE_VERSION);
    if (t.sum != hash_bytes(&t, offsetof(struct store_trailer, sum), 0))
        wrong(d, at + offsetof(struct store_trailer, sum), "the sum of the footer's last page is not this");
    if (t.seq != h->seq) wrong(d, at + offsetof(struct store_trailer, seq), "of segment %" PRIx64, t.seq);
    if (t.n > g.n_record)
        wrong(d, at + offsetof(struct store_trailer, n), "%u rows, the segment has %u records", t.n, g.n_record);
    if (n != d->n_wrong) return;
    say(d, "footer at byte %" PRIu64 ": %u rows\n", rows, t.n);
    if (!digest_equal(t.mac, digest_of(mac_of(d), &t, offsetof(struct store_trailer, mac)))) {
        wrong(d, at + offsetof(struct store_trailer, mac),
              "the digest of the footer's last page is not this, or the MAC key is another");
        return;
    }
    if (!digest_equal(t.rows, digest_of(mac_of(d), file + rows, t.n * sizeof(struct store_row)))) {
        wrong(d, rows, "the digest of the rows is not that of the last page");
        return;
    }
    if (h->sealed && !d->keys->n_secret) return;
    if (h->sealed && !seal_piece_open(d->keys->sealer, d->keys->key, rows, STORE_PART_FOOTER, &t,
                                      offsetof(struct store_trailer, rows), file + rows, t.n * sizeof(struct store_row),
                                      file + rows, t.tag)) {
        wrong(d, rows, "the rows do not open");
        return;
    }
    for (uint32_t i = 0; i < t.n; i++) {
        struct store_row row;
        uint64_t         off = rows + i * sizeof row;
        memcpy(&row, file + off, sizeof row);
        if (row.index >= g.n_record) {
            wrong(d, off + offsetof(struct store_row, index), "row %u is of record %u of %u", i, row.index, g.n_record);
            continue;
        }
        struct kv_record r;
        memcpy(&r, file + store_record_off(&g, row.index), sizeof r);
        if (!kv_key_equal(&row.key, &r.key))
            wrong(d, off, "row %u says that record %u is block %s, it says %s", i, row.index, hex(row.key.b, a),
                  hex(r.key.b, b));
        if (!digest_equal(row.payload, r.payload))
            wrong(d, off + offsetof(struct store_row, payload),
                  "row %u has another digest of the payload than record %u", i, row.index);
    }
}

void store_dump(struct store_dump *d, unsigned char *file, uint64_t bytes)
{
    struct store_header h;
    d->n_record = d->n_empty = d->n_wrong = 0;
    if (header(d, file, bytes, &h)) {
        if ((h.sealed && d->keys->n_secret && !store_header_opens(&h, d->keys)) || !store_header_mac(&h, d->keys)) {
            bool mac = store_header_mac(&h, d->keys);
            wrong(
                d, mac ? offsetof(struct store_header, check) : offsetof(struct store_header, mac), "%s",
                mac ? "sealed under another key than the one given"
                    : "its digests are under another MAC key than the one given, or were forged: nothing more can be said");
            return;
        }
        records(d, file, bytes, &h);
        footer(d, file, bytes, &h);
        return;
    }
    for (uint64_t off = STORE_PAGE; off + KV_RECORD_HEAD <= bytes;
         off += STORE_PAGE) { /* what can be told without the header */
        bool window;
        if (!kv_record_named(kv_record_of(file + off), &window)) continue;
        say(d, "record at byte %" PRIu64 "\n", off);
        d->n_record += record(d, file + off, off, bytes - off, NULL);
    }
}
