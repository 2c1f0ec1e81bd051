#include "kvcache/store_file.h"
#include "base/check.h"
#include "kvcache/store_format.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static uint64_t rows_pages(uint32_t n) { return ((uint64_t)n * sizeof(struct store_row) + STORE_PAGE - 1) / STORE_PAGE; }

struct store_geometry store_geometry(uint64_t payload_bytes, uint64_t segment_bytes)
{
    struct store_geometry g = { 0 };
    if (!payload_bytes || payload_bytes > STORE_PAYLOAD_MAX || segment_bytes > STORE_SEGMENT_MAX) return g; /* a header that lies */
    g.record_bytes = kv_record_bytes(payload_bytes), g.segment_bytes = segment_bytes / STORE_PAGE * STORE_PAGE;
    uint64_t n = g.segment_bytes / g.record_bytes;
    while (n && STORE_PAGE + n * g.record_bytes + (rows_pages((uint32_t)n) + 1) * STORE_PAGE > g.segment_bytes) n--;
    g.n_record = (uint32_t)n;
    if (n) g.segment_bytes = STORE_PAGE + n * g.record_bytes + (rows_pages(g.n_record) + 1) * STORE_PAGE; /* no byte that nobody uses */
    return g;
}

void store_name(char *out, size_t bytes, uint64_t seq) { snprintf(out, bytes, "seg-%016" PRIx64 ".kv", seq); }

bool store_seq_of(const char *name, uint64_t *seq_out)
{
    char     again[32];
    uint64_t seq;
    if (sscanf(name, "seg-%16" SCNx64 ".kv", &seq) != 1) return false;
    store_name(again, sizeof again, seq);
    *seq_out = seq;
    return strcmp(name, again) == 0;
}

/* ---- whole pages at a place */

static enum status all_written(int fd, const void *p, uint64_t bytes, uint64_t off, int *error_out)
{
    for (const char *from = p; bytes;) {
        ssize_t n = pwrite(fd, from, bytes, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            *error_out = n < 0 ? errno : ENOSPC;
            return *error_out == ENOSPC || *error_out == EDQUOT ? ST_TOO_LARGE : ST_IO;
        }
        from += n, off += (uint64_t)n, bytes -= (uint64_t)n;
    }
    return ST_OK;
}

static bool all_read(int fd, void *p, uint64_t bytes, uint64_t off)
{
    for (char *to = p; bytes;) {
        ssize_t n = pread(fd, to, bytes, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        to += n, off += (uint64_t)n, bytes -= (uint64_t)n;
    }
    return true;
}

static int open_direct(int dir, const char *name, int flags, bool *direct)
{
    int fd = *direct ? openat(dir, name, flags | O_DIRECT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 && (!*direct || errno == EINVAL)) {
        *direct = false; /* tmpfs, some network file systems */
        fd = openat(dir, name, flags | O_CLOEXEC, 0600);
    }
    return fd;
}

/* Every byte of the file has its place on the disk. Where the file system cannot promise that, a write may find it full later. */
static int reserve(int fd, uint64_t bytes)
{
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0) return 0;
    if (errno != EOPNOTSUPP) return errno;
    return ftruncate(fd, (off_t)bytes) ? errno : 0;
}

/* ---- seals */

static void header_seal(struct store_header *h, const struct store_crypt *c)
{
    h->sealed = 1;
    CHECK(RAND_bytes(h->random, sizeof h->random) == 1); /* no key without it */
    seal_key_make(c->secret, h, offsetof(struct store_header, check), c->key);
    seal_piece(c->sealer, c->key, 0, STORE_PART_CHECK, NULL, 0, NULL, 0, NULL, h->check);
}
bool store_header_opens(const struct store_header *h, const struct store_crypt *c)
{
    if (!c || !h->sealed) return !c && !h->sealed;
    seal_key_make(c->secret, h, offsetof(struct store_header, check), c->key);
    return seal_piece_open(c->sealer, c->key, 0, STORE_PART_CHECK, NULL, 0, NULL, 0, NULL, h->check);
}

/* ---- segments */

enum status store_file_make(int dir, uint64_t seq, const struct store_geometry *g, const struct kv_key *fingerprint, uint64_t payload_bytes,
                            uint32_t block_tokens, const struct store_crypt *crypt, bool *direct, int *fd_out, int *error_out)
{
    char name[32];
    store_name(name, sizeof name, seq);
    int fd = open_direct(dir, name, O_RDWR | O_CREAT | O_EXCL, direct);
    if (fd < 0) {
        *error_out = errno;
        return errno == ENOSPC || errno == EDQUOT ? ST_TOO_LARGE : ST_IO;
    }
    enum status st = ST_OK;
    void       *page = aligned_alloc(STORE_PAGE, STORE_PAGE);
    int         error = page ? reserve(fd, g->segment_bytes) : ENOMEM;
    if (error) {
        *error_out = error;
        st = error == ENOSPC || error == EDQUOT || error == EFBIG ? ST_TOO_LARGE : ST_IO;
    } else {
        struct store_header *h = page;
        memset(page, 0, STORE_PAGE);
        memcpy(h->magic, STORE_HEADER, sizeof h->magic);
        h->version = STORE_VERSION, h->block_tokens = block_tokens, h->seq = seq;
        h->record_bytes = g->record_bytes, h->segment_bytes = g->segment_bytes, h->payload_bytes = payload_bytes, h->n_record = g->n_record;
        h->fingerprint = *fingerprint;
        if (crypt) header_seal(h, crypt);
        h->sum = XXH3_64bits(h, offsetof(struct store_header, sum));
        st = all_written(fd, page, STORE_PAGE, 0, error_out);
    }
    free(page);
    if (st) {
        close(fd);
        unlinkat(dir, name, 0);
        return st;
    }
    *fd_out = fd;
    return ST_OK;
}

/* fd and header of a segment; the header's own word for everything. -1: none of ours. */
static int open_header(int dir, uint64_t seq, int flags, bool *direct, struct store_header *h_out)
{
    char name[32];
    store_name(name, sizeof name, seq);
    struct stat st;
    int         fd = open_direct(dir, name, flags | O_NOFOLLOW | O_NONBLOCK, direct); /* whatever somebody has put there: a link, a pipe */
    void       *page = aligned_alloc(STORE_PAGE, STORE_PAGE);
    bool        ok = fd >= 0 && page && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && all_read(fd, page, STORE_PAGE, 0);
    if (ok) {
        memcpy(h_out, page, sizeof *h_out);
        ok = !memcmp(h_out->magic, STORE_HEADER, sizeof h_out->magic) && h_out->version == STORE_VERSION && h_out->seq == seq &&
             h_out->sum == XXH3_64bits(h_out, offsetof(struct store_header, sum));
    }
    free(page);
    if (ok) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static enum status opened(int fd, const struct store_header *h, const struct kv_key *fingerprint, bool fits,
                          const struct store_crypt *crypt)
{
    enum status st = !kv_key_equal(&h->fingerprint, fingerprint) || !fits ? ST_CONFIG : store_header_opens(h, crypt) ? ST_OK : ST_INVALID;
    if (st) close(fd);
    return st;
}

enum status store_file_open(int dir, uint64_t seq, const struct store_geometry *g, const struct kv_key *fingerprint, bool read_only,
                            const struct store_crypt *crypt, bool *direct, int *fd_out)
{
    struct store_header h;
    int                 fd = open_header(dir, seq, read_only ? O_RDONLY : O_RDWR, direct, &h);
    if (fd < 0) return ST_NOT_FOUND;
    bool fits = h.record_bytes == g->record_bytes && h.n_record == g->n_record && h.segment_bytes == g->segment_bytes;
    *fd_out = fd;
    return opened(fd, &h, fingerprint, fits, crypt);
}

enum status store_file_open_foreign(int dir, uint64_t seq, const struct store_geometry *g, const struct kv_key *fingerprint,
                                    const struct store_crypt *crypt, bool *direct, struct store_geometry *its_out, int *fd_out)
{
    struct store_header h;
    int                 fd = open_header(dir, seq, O_RDONLY, direct, &h);
    if (fd < 0) return ST_NOT_FOUND;
    *its_out = store_geometry(h.payload_bytes, h.segment_bytes);
    bool fits = h.record_bytes == g->record_bytes && its_out->record_bytes == h.record_bytes && its_out->n_record == h.n_record &&
                its_out->segment_bytes == h.segment_bytes && h.n_record && h.n_record <= g->n_record;
    *fd_out = fd;
    return opened(fd, &h, fingerprint, fits, crypt);
}

enum status store_file_about(int dir, uint64_t seq, const struct store_crypt *crypt, struct store_about *about_out, int *fd_out)
{
    struct store_header h;
    bool                direct = false;
    int                 fd = open_header(dir, seq, O_RDONLY, &direct, &h);
    if (fd < 0) return ST_NOT_FOUND;
    *about_out = (struct store_about){ .sealed = h.sealed,
                                       .g = { h.record_bytes, h.segment_bytes, h.n_record },
                                       .fingerprint = h.fingerprint,
                                       .payload_bytes = h.payload_bytes,
                                       .block_tokens = h.block_tokens };
    struct store_geometry g = store_geometry(h.payload_bytes, h.segment_bytes);
    if (g.record_bytes != h.record_bytes || g.n_record != h.n_record || h.block_tokens > KV_RECORD_TOKENS_MAX) { /* a header that lies */
        close(fd);
        return ST_NOT_FOUND;
    }
    if (h.sealed && !(crypt && store_header_opens(&h, crypt))) {
        close(fd);
        return ST_INVALID;
    }
    *fd_out = fd;
    return ST_OK;
}

uint64_t store_footer_bytes(const struct store_geometry *g) { return (rows_pages(g->n_record) + 1) * STORE_PAGE; }

static uint64_t footer_off(const struct store_geometry *g) { return g->segment_bytes - store_footer_bytes(g); }

enum status store_footer_write(int fd, const struct store_geometry *g, uint64_t seq, const struct store_row *row, uint32_t n,
                               const struct store_crypt *crypt, void *buffer, int *error_out)
{
    uint64_t bytes = store_footer_bytes(g);
    memset(buffer, 0, bytes);
    memcpy(buffer, row, n * sizeof *row);
    struct store_trailer *t = (struct store_trailer *)(void *)((char *)buffer + bytes - STORE_PAGE);
    memcpy(t->magic, STORE_TRAILER, sizeof t->magic);
    t->version = STORE_VERSION, t->n = n, t->seq = seq;
    if (crypt)
        seal_piece(crypt->sealer, crypt->key, footer_off(g), STORE_PART_FOOTER, t, offsetof(struct store_trailer, rows_sum), buffer,
                   n * sizeof *row, buffer, t->tag);
    t->rows_sum = XXH3_64bits(buffer, n * sizeof *row);
    t->sum = XXH3_64bits(t, offsetof(struct store_trailer, sum));
    return all_written(fd, buffer, bytes, footer_off(g), error_out);
}

enum status store_footer_read(int fd, const struct store_geometry *g, uint64_t seq, uint32_t block_tokens, const struct store_crypt *crypt,
                              void *buffer, struct store_row *row, uint32_t *n_out)
{
    uint64_t bytes = store_footer_bytes(g);
    if (!all_read(fd, buffer, bytes, footer_off(g))) return ST_NOT_FOUND;
    struct store_trailer t;
    memcpy(&t, (char *)buffer + bytes - STORE_PAGE, sizeof t);
    if (memcmp(t.magic, STORE_TRAILER, sizeof t.magic) || t.version != STORE_VERSION || t.seq != seq || t.n > g->n_record ||
        t.sum != XXH3_64bits(&t, offsetof(struct store_trailer, sum)) || t.rows_sum != XXH3_64bits(buffer, t.n * sizeof *row))
        return ST_NOT_FOUND;
    if (crypt && !seal_piece_open(crypt->sealer, crypt->key, footer_off(g), STORE_PART_FOOTER, &t, offsetof(struct store_trailer, rows_sum),
                                  buffer, t.n * sizeof *row, buffer, t.tag))
        return ST_NOT_FOUND;
    memcpy(row, buffer, t.n * sizeof *row);
    for (uint32_t i = 0; i < t.n; i++)
        if (row[i].index >= g->n_record || row[i].block_tokens != block_tokens) return ST_NOT_FOUND;
    *n_out = t.n;
    return ST_OK;
}

enum status store_file_scan(int fd, const struct store_geometry *g, uint64_t seq, const struct kv_key *fingerprint,
                            const struct digest_key *dk, uint64_t payload_bytes, uint32_t block_tokens, const struct store_crypt *crypt,
                            void *buffer, struct store_row *row, uint32_t *n_out, bool *from_footer_out)
{
    *n_out = 0;
    *from_footer_out = !store_footer_read(fd, g, seq, block_tokens, crypt, buffer, row, n_out);
    if (*from_footer_out) return ST_OK;
    for (uint32_t i = 0; i < g->n_record; i++) {
        if (!all_read(fd, buffer, STORE_PAGE, store_record_off(g, i))) return ST_IO;
        if (crypt && !seal_head_open(crypt->sealer, crypt->key, store_record_off(g, i), buffer, KV_RECORD_HEAD)) continue;
        if (kv_record_check(buffer, dk, fingerprint, NULL, NULL, block_tokens, payload_bytes, seq)) continue;
        const struct kv_record *r = kv_record_of(buffer);
        row[(*n_out)++] = (struct store_row){ .key = r->key, .payload = r->payload, .index = i, .block_tokens = block_tokens };
    }
    return ST_OK;
}
